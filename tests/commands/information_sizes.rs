//! The lengths of the buffers of QUERY_INFO and SET_INFO, class by class ([MS-SMB2] 3.3.5.20, 3.3.5.21, [MS-FSA]
//! 2.1.5.12, 2.1.5.13, 2.1.5.15).

use smb_client::{CreateArgs, File, Options, Reply, Request, Tree};
use smb_tests::state::ea_list;
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{FileInformationClass as Class, FsInformationClass};
use smb_wire::msg::{Dialect, ErrorResponse, InfoType, QueryInfoResponse};

/// Classes of files whose answers have one length.
const FIXED: [(Class, u32); 12] = [
    (Class::BASIC, 40),
    (Class::STANDARD, 24),
    (Class::INTERNAL, 8),
    (Class::EA, 4),
    (Class::ACCESS, 4),
    (Class::POSITION, 8),
    (Class::MODE, 4),
    (Class::ALIGNMENT, 4),
    (Class::COMPRESSION, 16),
    (Class::NETWORK_OPEN, 56),
    (Class::ATTRIBUTE_TAG, 8),
    (Class::ID, 24),
];

/// Classes of file systems whose answers have one length.
const FIXED_OF_VOLUMES: [(FsInformationClass, u32); 4] = [
    (FsInformationClass::SIZE, 24),
    (FsInformationClass::DEVICE, 8),
    (FsInformationClass::FULL_SIZE, 32),
    (FsInformationClass::SECTOR_SIZE, 28),
];

fn open(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

fn ask(file: &File, kind: InfoType, class: u8, additional: u32, max: u32) -> Reply {
    let request = Request::query_info(file.id(), kind, class, additional, max);
    file.tree().reply(request).unwrap()
}

fn length(reply: &Reply) -> u32 {
    let answer = QueryInfoResponse::read(&reply.message).unwrap();
    u32::try_from(answer.buffer.len()).unwrap()
}

/// A class whose answer always has `whole` bytes.
fn needs_all_of(file: &File, kind: InfoType, class: u8, whole: u32) {
    for short in [0, 1, whole - 1] {
        let end = ask(file, kind, class, 0, short).status();
        assert_eq!(end, Status::INFO_LENGTH_MISMATCH, "{kind} {class}: {short}");
    }
    for enough in [whole, whole + 1, 4096] {
        let reply = ask(file, kind, class, 0, enough);
        assert_eq!(reply.status(), Status::SUCCESS, "{kind} {class}: {enough}");
        assert_eq!(length(&reply), whole, "{kind} {class}: {enough}");
    }
}

/// [MS-FSA] 2.1.5.12: each structure is returned entirely or not at all, for files, directories and streams.
#[test]
fn classes_of_one_length_need_all_of_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for name in ["f", "d", "f:s"] {
        let object = open(&tree, name);
        for (class, whole) in FIXED {
            needs_all_of(&object, InfoType::FILE, class.0, whole);
        }
        object.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.13.
#[test]
fn classes_of_the_volume_of_one_length_need_all_of_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for (class, whole) in FIXED_OF_VOLUMES {
        needs_all_of(&file, InfoType::FILESYSTEM, class.0, whole);
    }
}

/// [MS-SMB2] 3.3.5.20.1, 3.3.5.20.2: the error has an empty context on 3.1.1, and no data before it.
#[test]
fn a_length_that_is_too_small_is_refused_with_an_empty_context() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = open(&tree, "f");
        for (kind, class) in [
            (InfoType::FILE, Class::BASIC.0),
            (InfoType::FILESYSTEM, FsInformationClass::SIZE.0),
        ] {
            let reply = ask(&file, kind, class, 0, 3);
            assert_eq!(reply.status(), Status::INFO_LENGTH_MISMATCH);
            let error = ErrorResponse::read(&reply.message).unwrap();
            let expected: &[u8] = if dialect == Dialect::SMB_3_1_1 {
                &[0; 8]
            } else {
                &[]
            };
            assert_eq!(error.data, expected, "{dialect} {kind}");
        }
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.20.3: the error names the length that is needed, within a context on 3.1.1.
#[test]
fn a_descriptor_that_does_not_fit_is_answered_with_its_length() {
    let server = HoldfastServer::new();
    let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = open(&tree, "f");
        let ask = |max| ask(&file, InfoType::SECURITY, 0, parts.bits(), max);
        let whole = length(&ask(4096));
        for max in [0, 4, whole - 1] {
            let reply = ask(max);
            assert_eq!(reply.status(), Status::BUFFER_TOO_SMALL, "{dialect} {max}");
            let error = ErrorResponse::read(&reply.message).unwrap();
            if dialect == Dialect::SMB_3_1_1 {
                assert_eq!((error.context_count, error.data.len()), (1, 12));
                let context = error.contexts().next().unwrap().unwrap();
                assert_eq!(context.error_id.0, 0);
                assert_eq!(context.data, whole.to_le_bytes());
            } else {
                assert_eq!(error.context_count, 0);
                assert_eq!(error.data, whole.to_le_bytes(), "{dialect}");
            }
        }
        assert_eq!(length(&ask(whole)), whole);
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.12.3: the fixed part and a letter of the name, aligned to 8, is the least.
#[test]
fn all_information_needs_room_for_its_fixed_part() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "a name that is long enough to be cut");
    for short in [0, 40, 100, 102, 103] {
        let end = ask(&file, InfoType::FILE, Class::ALL.0, 0, short).status();
        assert_eq!(end, Status::INFO_LENGTH_MISMATCH, "{short}");
    }
    // Newer servers return no name ([MS-SMB2] 3.3.5.20.1); older ones cut it.
    let reply = ask(&file, InfoType::FILE, Class::ALL.0, 0, 104);
    let answer = QueryInfoResponse::read(&reply.message).unwrap();
    let name_length = u32::from_le_bytes(answer.buffer[96..100].try_into().unwrap());
    if name_length == 0 {
        assert_eq!(reply.status(), Status::SUCCESS);
    } else {
        assert_eq!(reply.status(), Status::BUFFER_OVERFLOW);
        assert_eq!(answer.buffer.len(), 104);
    }
}

/// [MS-FSA] 2.1.5.12.4: the length is looked at before the name, which the root of a share has not.
#[test]
fn a_short_name_needs_room_for_its_fixed_part() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let asked = |file: &File, max| {
        let reply = ask(file, InfoType::FILE, Class::ALTERNATE_NAME.0, 0, max);
        reply.status()
    };
    for file in [
        &open(&tree, "SHORT.TXT"),
        &open(&tree, "a name that needs a short one.txt"),
        &root,
    ] {
        for short in [0, 4, 7] {
            assert_eq!(asked(file, short), Status::INFO_LENGTH_MISMATCH, "{short}");
        }
    }
    assert_eq!(asked(&root, 8), Status::OBJECT_NAME_NOT_FOUND);
}

/// [MS-FSA] 2.1.5.12.29: entries that do not fit are left out, and the client learns of it.
/// [MS-SMB2] 3.3.5.20.1: the fixed part of FileFullEaInformation must fit, whether or not there are any; [MS-FSA]
/// 2.1.5.12.12: the first attribute must fit as a whole.
#[test]
fn attributes_need_room_for_their_fixed_part() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let class = Class::FULL_EA;
    let end = |max| ask(&file, InfoType::FILE, class.0, 0, max).status();
    for (before, short, whole) in [
        (None, Status::NO_EAS_ON_FILE, Status::NO_EAS_ON_FILE),
        (Some(()), Status::BUFFER_TOO_SMALL, Status::SUCCESS),
    ] {
        if before.is_some() {
            file.set(class, &ea_list("NAME", b"value")).unwrap();
        }
        for max in [0, 7] {
            assert_eq!(end(max), Status::INFO_LENGTH_MISMATCH, "{max}");
        }
        assert_eq!((end(8), end(4096)), (short, whole));
    }
}

#[test]
fn streams_that_do_not_fit_give_an_overflow() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f:one", b"1").unwrap();
    tree.write_file("f:another", b"2").unwrap();
    let file = open(&tree, "f");
    let asked = |max| ask(&file, InfoType::FILE, Class::STREAM.0, 0, max);
    for short in [0, 8, 23] {
        let end = asked(short).status();
        assert_eq!(end, Status::INFO_LENGTH_MISMATCH, "{short}");
    }
    let whole = asked(4096);
    assert_eq!(whole.status(), Status::SUCCESS);
    let whole = length(&whole);
    for cut in [38, whole / 2, whole - 8] {
        let reply = asked(cut);
        assert_eq!(reply.status(), Status::BUFFER_OVERFLOW, "{cut}");
        assert!(length(&reply) <= cut, "{cut}");
    }
    assert_eq!(asked(whole).status(), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.20.2, [MS-FSA] 2.1.5.13.1, 2.1.5.13.5: a name that does not fit is cut, and its length is not.
#[test]
fn names_of_the_volume_are_cut() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    // The length of the name and the position of the name.
    for (class, length_at, name_at, least) in [
        (FsInformationClass::VOLUME, 12, 18, 24),
        (FsInformationClass::ATTRIBUTE, 8, 12, 16),
    ] {
        let asked = |max| ask(&file, InfoType::FILESYSTEM, class.0, 0, max);
        let whole = asked(4096);
        assert_eq!(whole.status(), Status::SUCCESS);
        let answer = QueryInfoResponse::read(&whole.message).unwrap();
        let word = |bytes: &[u8]| {
            let word = &bytes[length_at..length_at + 4];
            u32::from_le_bytes(word.try_into().unwrap())
        };
        let name_length = word(answer.buffer);
        let end = usize::try_from(name_length).unwrap() + name_at;
        assert!(answer.buffer.len() >= end, "{class}");
        let reply = asked(least);
        let cut = QueryInfoResponse::read(&reply.message).unwrap();
        let fits = name_length + u32::try_from(name_at).unwrap() <= least;
        let expected = if fits {
            Status::SUCCESS
        } else {
            Status::BUFFER_OVERFLOW
        };
        assert_eq!(reply.status(), expected, "{class}");
        assert_eq!(word(cut.buffer), name_length, "{class}");
        if !fits {
            let least = usize::try_from(least).unwrap();
            assert_eq!(cut.buffer, &answer.buffer[..least], "{class}");
        }
    }
}

/// [MS-SMB2] 3.3.5.20.1: normalized names begin with 3.1.1. Ids need a server with SMB 3.x, and no dialect.
#[test]
fn normalized_names_need_a_dialect_and_ids_need_none() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2] {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = open(&tree, "f");
        let end = ask(&file, InfoType::FILE, Class::NORMALIZED_NAME.0, 0, 4096);
        assert_eq!(end.status(), Status::NOT_SUPPORTED, "{dialect}");
        let id = ask(&file, InfoType::FILE, Class::ID.0, 0, 4096);
        assert_eq!(id.status(), Status::SUCCESS, "{dialect}");
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.12.30.
#[test]
fn a_normalized_name_is_cut_and_its_length_is_not() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_3_1_1));
    tree.mkdir("Folder").unwrap();
    tree.write_file("Folder\\File.txt", b"x").unwrap();
    let file = open(&tree, "FOLDER\\fILE.TXT");
    let asked = |max| ask(&file, InfoType::FILE, Class::NORMALIZED_NAME.0, 0, max);
    let whole = asked(4096);
    if whole.status() == Status::NOT_SUPPORTED {
        // The class is optional.
        return;
    }
    assert_eq!(whole.status(), Status::SUCCESS);
    let answer = QueryInfoResponse::read(&whole.message).unwrap();
    let expected = smb_wire::utf16::encode("Folder\\File.txt");
    assert!(answer.buffer.ends_with(&expected), "{:?}", answer.buffer);
    for short in [0, 4, 7] {
        let end = asked(short).status();
        assert_eq!(end, Status::INFO_LENGTH_MISMATCH, "{short}");
    }
    let reply = asked(11);
    assert_eq!(reply.status(), Status::BUFFER_OVERFLOW);
    let cut = QueryInfoResponse::read(&reply.message).unwrap();
    assert_eq!(cut.buffer, &answer.buffer[..10]);
}

/// [MS-SMB2] 3.3.5.20.4.
#[test]
fn quotas_are_not_supported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    // SMB2_QUERY_QUOTA_INFO ([MS-SMB2] 2.2.37.1): a restarted scan without a list.
    let mut input = [0; 16];
    input[1] = 1;
    let request = Request::new(&smb_wire::msg::QueryInfoRequest {
        info_type: InfoType::QUOTA,
        info_class: 0,
        output_buffer_length: 4096,
        additional_information: 0,
        flags: smb_wire::msg::QueryInfoFlags::empty(),
        file_id: root.id(),
        input: &input,
    });
    assert_eq!(status(tree.call(request)), Status::NOT_SUPPORTED);
}

/// [MS-FSA] 2.1.5.15: a structure that is cut is refused.
#[test]
fn structures_to_set_need_all_of_their_length() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for (class, whole) in [
        (Class::MODE, 4),
        (Class::DISPOSITION_EX, 4),
        (Class::LINK, 20),
        (Class::RENAME_EX, 20),
    ] {
        for short in [1, whole - 1] {
            let end = status(file.set(class, &vec![0; short]));
            assert_eq!(end, Status::INFO_LENGTH_MISMATCH, "{class} {short}");
        }
    }
}

/// [MS-SMB2] 3.3.5.21: a SET_INFO without any data is refused for every kind of information.
#[test]
fn nothing_at_all_is_not_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for (kind, class, additional) in [
        (InfoType::FILE, Class::BASIC.0, 0),
        (InfoType::FILE, Class::DISPOSITION.0, 0),
        (InfoType::FILE, Class::END_OF_FILE.0, 0),
        (InfoType::FILE, Class::FULL_EA.0, 0),
        (InfoType::FILESYSTEM, FsInformationClass::CONTROL.0, 0),
        (InfoType::SECURITY, 0, SecurityInformation::DACL.bits()),
    ] {
        let request = file.set_info_request(kind, class, additional, &[]);
        let end = status(tree.call(request));
        assert_eq!(end, Status::INVALID_PARAMETER, "{kind} {class}");
    }
}
