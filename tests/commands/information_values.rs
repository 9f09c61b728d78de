//! The values of single fields in answers of QUERY_INFO, and the fields of its request that mean nothing ([MS-SMB2]
//! 2.2.37, 3.3.5.20, [MS-FSA] 2.1.5.12 to 2.1.5.14, [MS-FSCC] 2.4, 2.5).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request};
use smb_tests::state::{all_attributes, ea_list};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{
    FileCompressionInformation, FileFsAttributeInformation, FileFsSizeInformation,
    FileInformationClass as Class, FsInformationClass as Fs, encode_get_ea_list, read_ea_list,
};
use smb_wire::msg::{InfoType, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse, WriteFlags};

use super::query_answers::{descriptor, open, volume};

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// [MS-FSCC] 2.4.40: each handle has a position of its own, and a server may say that it is zero ([MS-SMB2]
/// 3.3.5.20.1).
#[test]
fn a_position_is_that_of_its_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = (open(&tree, "f"), open(&tree, "f"));
    let position = |file: &File| long(&file.query(Class::POSITION).unwrap(), 0);
    file.set(Class::POSITION, &1000_u64.to_le_bytes()).unwrap();
    let found = position(&file);
    assert!([0, 1000].contains(&found), "{found}");
    assert_eq!(position(&other), 0);
    let all = file.query(Class::ALL).unwrap();
    assert_eq!(long(&all, 80), found);
    // It is where a client reads next, and moves neither writes nor the end of the file.
    file.write(0, b"content", WriteFlags::empty()).unwrap();
    assert_eq!(position(&other), 0);
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}

/// [MS-FSA] 2.1.5.3, 2.1.5.4: what moves no byte does not move the position either.
#[test]
fn reads_and_writes_of_no_bytes_leave_the_position() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, b"content").unwrap();
    let position = || long(&file.query(Class::POSITION).unwrap(), 0);
    let before = position();
    assert_eq!(file.read(3, 0).unwrap().len(), 0);
    file.write(5, b"", WriteFlags::empty()).unwrap();
    assert_eq!(position(), before);
}

/// [MS-FSA] 2.1.5.12.8: nothing is compressed here. As in Windows (GetCompressedFileSize) the size is that of the file
/// then, also where more is allocated.
#[test]
fn no_file_is_compressed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", &[1; 5000]).unwrap();
    tree.write_file("f:s", b"stream").unwrap();
    for (name, size) in [("f", 5000), ("f:s", 6), ("d", 0)] {
        let object = open(&tree, name);
        object.flush(false).unwrap();
        let compression = object.query(Class::COMPRESSION).unwrap();
        let shifts_and_reserved = &compression[10..16];
        assert_eq!(shifts_and_reserved, [0; 6], "{name}");
        let compression = FileCompressionInformation::read(&compression).unwrap();
        assert_eq!(compression.compression_format, 0, "{name}");
        assert_eq!(compression.compressed_file_size, size, "{name}");
    }
}

/// [MS-FSA] 2.1.5.12.3: the answer ends with the name, which newer servers leave empty ([MS-SMB2] 3.3.5.20.1).
#[test]
fn all_information_ends_with_its_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("Folder").unwrap();
    for name in ["", "Folder", "Folder\\File", "Folder\\File:stream"] {
        let all = open(&tree, name).query(Class::ALL).unwrap();
        let length = usize::try_from(word(&all, 96)).unwrap();
        assert_eq!(all.len(), 100 + length, "{name}");
        let own = smb_wire::utf16::encode(name);
        assert!(length == 0 || all[100..].ends_with(&own), "{name}");
    }
}

/// [MS-SMB2] 3.3.5.20.2, [MS-FSCC] 2.5.1: the file system claims what it does, and nothing that clients would ask for
/// in vain.
#[test]
fn the_file_system_claims_what_it_does() {
    const CLEANUP_RESULT_INFO: u32 = 0x0000_0200;
    const POSIX_UNLINK_RENAME: u32 = 0x0000_0400;
    let server = HoldfastServer::new();
    let tree = server.tree();
    let attributes = volume(&open(&tree, "f"), Fs::ATTRIBUTE);
    let name_length = usize::try_from(word(&attributes, 8)).unwrap();
    assert!(name_length > 0 && name_length.is_multiple_of(2));
    assert_eq!(attributes.len(), 12 + name_length);
    let attributes = FileFsAttributeInformation::read(&attributes).unwrap();
    assert_eq!(attributes.maximum_component_name_length, 255);
    let bits = attributes.file_system_attributes.bits();
    for (what, bit) in [
        ("case", 0x2),
        ("Unicode", 0x4),
        ("lists", 0x8),
        ("sparse files", 0x40),
        ("streams", 0x4_0000),
        ("links", 0x40_0000),
        ("attributes", 0x80_0000),
    ] {
        assert_eq!(bits & bit, bit, "{what}: {bits:#x}");
    }
    for (what, bit) in [
        ("cleared", CLEANUP_RESULT_INFO | POSIX_UNLINK_RENAME),
        ("compression", 0x10),
        ("quotas", 0x20),
        ("remote storage", 0x100),
        ("a compressed volume", 0x8000),
        ("encryption", 0x2_0000),
        ("a volume to be read", 0x8_0000),
        ("a volume written once", 0x10_0000),
    ] {
        assert_eq!(bits & bit, 0, "{what}: {bits:#x}");
    }
}

/// [MS-FSA] 2.1.5.13.3: the clusters make up the space of the host's file system.
#[test]
fn the_volume_is_as_large_as_that_of_the_host() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let size = FileFsSizeInformation::read(&volume(&file, Fs::SIZE)).unwrap();
    let cluster = u64::from(size.sectors_per_allocation_unit * size.bytes_per_sector);
    let host = rustix::fs::statvfs(server.path("")).unwrap();
    let expected = host.f_blocks * host.f_frsize;
    let found = size.total_allocation_units * cluster;
    assert!(expected.abs_diff(found) < cluster, "{found} {expected}");
}

/// [MS-FSA] 2.1.5.13.6, 2.1.5.13.8: the length is looked at before anything else, and an answer has all of its length.
#[test]
fn quotas_and_the_id_of_the_volume_need_their_length() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for (class, whole) in [(Fs::CONTROL, 48), (Fs::OBJECT_ID, 64)] {
        let ask = |max| {
            let kind = InfoType::FILESYSTEM;
            let request = Request::query_info(file.id(), kind, class.0, 0, max);
            tree.reply(request).unwrap()
        };
        for short in [0, 1, whole - 1] {
            let refused = ask(short).status();
            assert_eq!(refused, Status::INFO_LENGTH_MISMATCH, "{class} {short}");
        }
        let reply = ask(whole);
        if reply.status() == Status::SUCCESS {
            let answer = QueryInfoResponse::read(&reply.message).unwrap();
            let whole = usize::try_from(whole).unwrap();
            assert_eq!(answer.buffer.len(), whole, "{class}");
        } else {
            let same = ask(4096).status();
            assert_eq!(reply.status(), same, "{class}");
            assert!(same.is_error(), "{class}: {same}");
        }
    }
}

/// [MS-FSA] 2.1.5.14, [MS-DTYP] 2.4.6: a descriptor in self-relative form has offsets for the parts that it has.
#[test]
fn a_descriptor_is_self_relative() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for name in ["f", "d"] {
        let object = open(&tree, name);
        for parts in 0..8_u32 {
            let bytes = descriptor(&object, parts);
            assert_eq!(bytes[..2], [1, 0], "{name} {parts}");
            let control = u16::from_le_bytes([bytes[2], bytes[3]]);
            assert_eq!(control & 0x8000, 0x8000, "{name} {parts}");
            assert_eq!(control & 0x4 != 0, parts & 4 != 0, "{name} {parts}");
            // Owner, group, the audit list, and the list of rights.
            for (at, part) in [(4, 1), (8, 2), (12, 0), (16, 4)] {
                let offset = word(&bytes, at);
                assert_eq!(offset != 0, parts & part != 0, "{name} {parts} {at}");
                let inside = usize::try_from(offset).unwrap() < bytes.len();
                assert!(offset.is_multiple_of(4) && inside, "{name} {parts} {at}");
                assert!(offset == 0 || offset >= 20, "{name} {parts} {at}");
            }
            assert_eq!(bytes.len() == 20, parts == 0, "{name} {parts}");
        }
    }
}

/// [MS-FSA] 2.1.5.14: the label is read with the right to the descriptor, although it is in the audit list.
#[test]
fn the_label_is_read_with_the_right_to_the_descriptor() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let ask = |access, parts: SecurityInformation| {
        let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
        status(file.query_info(InfoType::SECURITY, 0, parts.bits()))
    };
    let (label, control) = (SecurityInformation::LABEL, AccessMask::READ_CONTROL);
    assert_eq!(ask(control, label), Status::SUCCESS);
    assert_eq!(
        ask(control, label | SecurityInformation::DACL),
        Status::SUCCESS
    );
    let all = AccessMask::FILE_ALL_ACCESS;
    assert_eq!(ask(all.without(control), label), Status::ACCESS_DENIED);
    let audit = SecurityInformation::SACL;
    assert_eq!(ask(all, audit | label), Status::ACCESS_DENIED);
}

/// [MS-SMB2] 3.3.5.20.1: the classes that show neither times nor attributes of the file need no right.
#[test]
fn most_classes_need_no_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f:s", b"x").unwrap();
    for name in ["f", "f:s"] {
        let args = CreateArgs::open(name).access(AccessMask::READ_CONTROL);
        let file = tree.create(&args).unwrap();
        for class in [
            Class::STANDARD,
            Class::INTERNAL,
            Class::EA,
            Class::ACCESS,
            Class::POSITION,
            Class::MODE,
            Class::ALIGNMENT,
            Class::COMPRESSION,
            Class::STREAM,
            Class::ID,
        ] {
            let asked = status(file.query(class));
            assert_eq!(asked, Status::SUCCESS, "{name} {class}");
        }
        for class in [Class::ATTRIBUTE_TAG, Class::FULL_EA] {
            let asked = status(file.query(class));
            assert_eq!(asked, Status::ACCESS_DENIED, "{name} {class}");
        }
    }
}

/// [MS-FSA] 2.1.5.12.10, 2.1.5.15.6: extended attributes belong to the object, whichever of its streams is open, and
/// their length needs no right ([MS-SMB2] 3.3.5.20.1).
#[test]
fn attributes_are_those_of_the_object() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for name in ["f", "d"] {
        let (object, stream) = (open(&tree, name), open(&tree, &format!("{name}:s")));
        let length = |file: &File| word(&file.query(Class::EA).unwrap(), 0);
        assert_eq!([&object, &stream].map(length), [0, 0], "{name}");
        stream
            .set(Class::FULL_EA, &ea_list("ONE", b"value"))
            .unwrap();
        // The header of the list, and that of the entry, its name with a zero and its value.
        let expected = 4 + 4 + (3 + 1) + 5;
        assert_eq!([&object, &stream].map(length), [expected; 2], "{name}");
        let all = object.query(Class::ALL).unwrap();
        assert_eq!(word(&all, 72), expected, "{name}");
        let list = all_attributes(&object).unwrap();
        assert_eq!(all_attributes(&stream).unwrap(), list, "{name}");
        let entries = read_ea_list(&list).unwrap();
        assert_eq!(entries.len(), 1, "{name}");
        assert_eq!(
            (&entries[0].name[..], &entries[0].value[..]),
            (&b"ONE"[..], &b"value"[..])
        );
        let args = CreateArgs::open(name).access(AccessMask::READ_CONTROL);
        assert_eq!(length(&tree.create(&args).unwrap()), expected, "{name}");
        // The same name in another case is the same attribute.
        object
            .set(Class::FULL_EA, &ea_list("one", b"other"))
            .unwrap();
        let entries = read_ea_list(&all_attributes(&object).unwrap()).unwrap();
        assert_eq!(entries.len(), 1, "{name}");
        assert_eq!(entries[0].value, b"other", "{name}");
        stream.set(Class::FULL_EA, &ea_list("One", b"")).unwrap();
        assert_eq!([&object, &stream].map(length), [0, 0], "{name}");
    }
}

fn ask_attributes(file: &File, names: &[u8]) -> (Status, Vec<u8>) {
    let request = Request::new(&QueryInfoRequest {
        info_type: InfoType::FILE,
        info_class: Class::FULL_EA.0,
        output_buffer_length: 4096,
        additional_information: 0,
        flags: QueryInfoFlags::RESTART_SCAN,
        file_id: file.id(),
        input: names,
    });
    let reply = file.tree().reply(request).unwrap();
    if reply.status() != Status::SUCCESS {
        return (reply.status(), Vec::new());
    }
    let answer = QueryInfoResponse::read(&reply.message).unwrap();
    (reply.status(), answer.buffer.to_vec())
}

/// [MS-SMB2] 3.3.5.20.1, [MS-FSCC] 2.4.16.1: names in a list have no case, and a list of wrong form is refused.
#[test]
fn a_list_of_names_of_attributes_is_looked_up_or_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.set(Class::FULL_EA, &ea_list("ONE", b"first")).unwrap();
    file.set(Class::FULL_EA, &ea_list("TWO", b"second"))
        .unwrap();
    let mut list = BytesMut::new();
    encode_get_ea_list(&[b"two", b"One"], &mut list);
    let (end, found) = ask_attributes(&file, &list);
    assert_eq!(end, Status::SUCCESS);
    let values = read_ea_list(&found).unwrap();
    let values: Vec<_> = values.into_iter().map(|entry| entry.value).collect();
    assert_eq!(values, [b"second".to_vec(), b"first".to_vec()]);
    // NextEntryOffset, EaNameLength, and the zero behind the first name, at which the second entry begins soon.
    for (at, byte) in [(0, 0xfc), (0, 3), (4, 0xff), (8, b'x')] {
        let mut wrong = list.to_vec();
        wrong[at] = byte;
        let (refused, _) = ask_attributes(&file, &wrong);
        assert_eq!(refused, Status::EA_LIST_INCONSISTENT, "{at} {byte}");
    }
    for cut in [1, 4, 5] {
        let (refused, _) = ask_attributes(&file, &list[..cut]);
        assert_eq!(refused, Status::EA_LIST_INCONSISTENT, "{cut}");
    }
}

/// [MS-SMB2] 2.2.37, 2.2.39: the server ignores what has no meaning for the kind of information.
#[test]
fn fields_without_a_meaning_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let ask = |kind: InfoType, class: u8, fields: &[std::ops::Range<usize>]| {
        let request = Request::query_info(file.id(), kind, class, 0, 4096);
        let request = request.mutate(|m| {
            for field in fields {
                m[field.clone()].fill(0xff);
            }
        });
        let reply = tree.call(request).unwrap();
        let answer = QueryInfoResponse::read(&reply.message).unwrap();
        answer.buffer.to_vec()
    };
    // Reserved at 10 of the body, AdditionalInformation at 16 and Flags at 20.
    let all = [74..76, 80..84, 84..88];
    for (kind, class) in [
        (InfoType::FILE, Class::BASIC.0),
        (InfoType::FILE, Class::ALL.0),
        (InfoType::FILE, Class::STREAM.0),
        (InfoType::FILESYSTEM, Fs::VOLUME.0),
        (InfoType::FILESYSTEM, Fs::ATTRIBUTE.0),
    ] {
        let plain = ask(kind, class, &[]);
        assert_eq!(ask(kind, class, &all), plain, "{kind} {class}");
    }
    // Reserved at 10 of the body.
    let class = Class::END_OF_FILE.0;
    let set = file.set_info_request(InfoType::FILE, class, 0, &10_u64.to_le_bytes());
    let set = set.mutate(|m| m[74..76].fill(0xff));
    tree.call(set).unwrap();
    assert_eq!(tree.read_file("f").unwrap(), [0; 10]);
}

/// [MS-FSCC] 2.4.37, 2.4.38, [MS-SMB2] 3.3.5.20.1, 3.3.5.21.1: files have none of the classes of pipes, and pipes none
/// of those that change names and sizes.
#[test]
fn pipes_and_files_have_classes_of_their_own() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for name in ["f", "d"] {
        let object = open(&tree, name);
        for class in [Class::PIPE, Class::PIPE_LOCAL, Class::PIPE_REMOTE] {
            let refused = status(object.query(class));
            let allowed = [Status::INVALID_PARAMETER, Status::NOT_SUPPORTED];
            assert!(allowed.contains(&refused), "{name} {class}: {refused}");
        }
        let refused = status(object.set(Class::PIPE, &[0; 8]));
        assert!(refused.is_error(), "{name}: {refused}");
    }
    let ipc = server.session(Options::default()).tree("IPC$").unwrap();
    let both = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    let args = CreateArgs::open("srvsvc").access(both);
    let pipe = ipc.create(&args).unwrap();
    for (class, length) in [
        (Class::END_OF_FILE, 8),
        (Class::ALLOCATION, 8),
        (Class::DISPOSITION, 1),
        (Class::FULL_EA, 12),
        (Class::LINK, 24),
    ] {
        let mut buffer = vec![0; length];
        buffer[0] = 1;
        let refused = status(pipe.set(class, &buffer));
        assert!(refused.is_error(), "{class}: {refused}");
    }
    assert!(status(pipe.rename("other", true)).is_error());
    assert_eq!(status(pipe.query(Class::STANDARD)), Status::SUCCESS);
    assert_eq!(ipc.create_status(&args).unwrap(), Status::SUCCESS);
}
