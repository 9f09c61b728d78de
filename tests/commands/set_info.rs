//! SET_INFO ([MS-SMB2] 3.3.5.21, [MS-FSA] 2.1.5.15).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    FileBasicInformation, FileInformationClass, FileRenameInformation, FileStandardInformation,
};
use smb_wire::ids::{FileId, FileTime};
use smb_wire::msg::{CreateOptions, InfoType, WriteFlags};

fn open(tree: &Tree, name: &str) -> File {
    let access = CreateArgs::open_if(name).desired_access;
    tree.create(&CreateArgs::open_if(name).access(access))
        .unwrap()
}

fn basic(times: [u64; 4], attributes: FileAttributes) -> BytesMut {
    let mut out = BytesMut::new();
    FileBasicInformation {
        creation_time: FileTime(times[0]),
        last_access_time: FileTime(times[1]),
        last_write_time: FileTime(times[2]),
        change_time: FileTime(times[3]),
        file_attributes: attributes,
    }
    .encode(&mut out);
    out
}

fn set_basic(file: &File, times: [u64; 4], attributes: FileAttributes) -> Status {
    status(file.set(FileInformationClass::BASIC, &basic(times, attributes)))
}

fn get_basic(file: &File) -> FileBasicInformation {
    FileBasicInformation::read(&file.query(FileInformationClass::BASIC).unwrap()).unwrap()
}

/// A time in January 2020.
const TIME: u64 = 132_223_104_000_000_000;

#[test]
fn times_are_set_and_preserved() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let times = [
        TIME,
        TIME + 10_000_000,
        TIME + 20_000_000,
        TIME + 30_000_000,
    ];
    assert_eq!(
        set_basic(&file, times, FileAttributes::empty()),
        Status::SUCCESS
    );
    let got = get_basic(&file);
    assert_eq!(got.creation_time.0, times[0]);
    assert_eq!(got.last_access_time.0, times[1]);
    assert_eq!(got.last_write_time.0, times[2]);
    // Zero changes nothing.
    assert_eq!(
        set_basic(&file, [0; 4], FileAttributes::empty()),
        Status::SUCCESS
    );
    let same = get_basic(&file);
    assert_eq!(same.creation_time, got.creation_time);
    assert_eq!(same.last_write_time, got.last_write_time);
    file.close().unwrap();
    let again = get_basic(&open(&tree, "f"));
    assert_eq!(again.creation_time, got.creation_time);
    assert_eq!(again.last_write_time, got.last_write_time);
}

#[test]
fn undefined_negative_times_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for place in 0..4 {
        let mut times = [0; 4];
        times[place] = (-3i64) as u64;
        assert_eq!(
            set_basic(&file, times, FileAttributes::empty()),
            Status::INVALID_PARAMETER,
            "{place}"
        );
    }
    assert_eq!(
        set_basic(&file, [u64::MAX; 4], FileAttributes::empty()),
        Status::SUCCESS,
        "-1 stops updates"
    );
}

#[test]
fn attributes_are_set_and_checked() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let hidden = FileAttributes::HIDDEN | FileAttributes::READONLY;
    assert_eq!(set_basic(&file, [0; 4], hidden), Status::SUCCESS);
    assert_eq!(get_basic(&file).file_attributes, hidden);
    assert_eq!(
        set_basic(&file, [0; 4], FileAttributes::NORMAL),
        Status::SUCCESS
    );
    assert_eq!(get_basic(&file).file_attributes, FileAttributes::NORMAL);
    assert_eq!(
        set_basic(&file, [0; 4], FileAttributes::DIRECTORY),
        Status::INVALID_PARAMETER
    );
    tree.mkdir("d").unwrap();
    let access = AccessMask::FILE_WRITE_ATTRIBUTES | AccessMask::FILE_READ_ATTRIBUTES;
    let directory = tree
        .create(&CreateArgs::directory("d").access(access))
        .unwrap();
    assert_eq!(
        set_basic(&directory, [0; 4], FileAttributes::TEMPORARY),
        Status::INVALID_PARAMETER
    );
    // A stream of a directory is no directory, but its attributes are the directory's.
    let stream = open(&tree, "d:s");
    for attributes in [FileAttributes::TEMPORARY, FileAttributes::DIRECTORY] {
        let refused = set_basic(&stream, [0; 4], attributes);
        assert_eq!(refused, Status::INVALID_PARAMETER, "{attributes}");
    }
}

#[test]
fn the_end_of_file_is_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    file.set_end_of_file(4).unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"0123");
    file.set_end_of_file(8).unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"0123\0\0\0\0");
    for end in [u64::MAX, 1 << 63] {
        assert_eq!(status(file.set_end_of_file(end)), Status::INVALID_PARAMETER);
    }
    let standard = file.query(FileInformationClass::STANDARD).unwrap();
    assert_eq!(
        FileStandardInformation::read(&standard)
            .unwrap()
            .end_of_file,
        8
    );
    tree.mkdir("d").unwrap();
    let access = AccessMask::FILE_ADD_FILE | AccessMask::FILE_READ_ATTRIBUTES;
    let directory = tree
        .create(&CreateArgs::directory("d").access(access))
        .unwrap();
    assert_eq!(
        status(directory.set_end_of_file(0)),
        Status::INVALID_PARAMETER
    );
}

#[test]
fn deletion_can_be_set_and_revoked() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.set_delete(true).unwrap();
    let standard = file.query(FileInformationClass::STANDARD).unwrap();
    assert!(
        FileStandardInformation::read(&standard)
            .unwrap()
            .delete_pending
    );
    file.set_delete(false).unwrap();
    file.close().unwrap();
    assert!(server.path("f").exists());
    let file = open(&tree, "f");
    file.set_delete(true).unwrap();
    file.close().unwrap();
    assert!(!server.path("f").exists());
}

#[test]
fn impossible_deletions_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d\\f", b"x").unwrap();
    let deleting = |name: &str| {
        let args = CreateArgs::open(name).access(AccessMask::DELETE);
        status(tree.create(&args).unwrap().set_delete(true))
    };
    assert_eq!(deleting("d"), Status::DIRECTORY_NOT_EMPTY);
    let file = open(&tree, "r");
    assert_eq!(
        set_basic(&file, [0; 4], FileAttributes::READONLY),
        Status::SUCCESS
    );
    file.close().unwrap();
    assert_eq!(deleting("r"), Status::CANNOT_DELETE);
    let without = CreateArgs::open("d\\f").access(AccessMask::FILE_READ_DATA);
    let without = tree.create(&without).unwrap();
    assert_eq!(status(without.set_delete(true)), Status::ACCESS_DENIED);
    assert!(server.path("d/f").exists() && server.path("r").exists());
}

#[test]
fn files_and_directories_are_renamed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"content").unwrap();
    tree.rename("f", "d\\g", false).unwrap();
    assert_eq!(std::fs::read(server.path("d/g")).unwrap(), b"content");
    assert!(!server.path("f").exists());
    tree.rename("d", "e", false).unwrap();
    assert_eq!(tree.read_file("e\\g").unwrap(), b"content");
    // Case only.
    tree.rename("e\\g", "e\\G", false).unwrap();
    assert!(server.path("e/G").exists() && !server.path("e/g").exists());
    // The handle follows.
    let file = open(&tree, "e\\G");
    file.rename("h", false).unwrap();
    file.write_all(0, b"CONTENT").unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(server.path("h")).unwrap(), b"CONTENT");
}

#[test]
fn an_existing_target_is_replaced_only_on_request() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("from", b"new").unwrap();
    tree.write_file("to", b"old").unwrap();
    assert_eq!(
        status(tree.rename("from", "to", false)),
        Status::OBJECT_NAME_COLLISION
    );
    assert_eq!(std::fs::read(server.path("to")).unwrap(), b"old");
    tree.rename("from", "to", true).unwrap();
    assert_eq!(std::fs::read(server.path("to")).unwrap(), b"new");
    // A directory is not replaced, and neither is an open file.
    tree.mkdir("d").unwrap();
    assert_eq!(status(tree.rename("to", "d", true)), Status::ACCESS_DENIED);
    tree.write_file("held", b"held").unwrap();
    let held = tree.create(&CreateArgs::open("held")).unwrap();
    assert_eq!(
        status(tree.rename("to", "held", true)),
        Status::ACCESS_DENIED
    );
    held.close().unwrap();
    assert_eq!(std::fs::read(server.path("held")).unwrap(), b"held");
}

#[test]
fn impossible_renames_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    assert_eq!(
        status(tree.rename("f", "missing\\g", false)),
        Status::OBJECT_PATH_NOT_FOUND
    );
    // Into its own subtree.
    assert!(status(tree.rename("d", "d\\e", false)).is_error());
    // With an open child.
    tree.write_file("d\\f", b"x").unwrap();
    let child = tree.create(&CreateArgs::open("d\\f")).unwrap();
    assert_eq!(status(tree.rename("d", "e", false)), Status::ACCESS_DENIED);
    child.close().unwrap();
    // Without the right to delete.
    let blind = CreateArgs::open("f").access(AccessMask::FILE_READ_DATA);
    let blind = tree.create(&blind).unwrap();
    assert_eq!(status(blind.rename("g", false)), Status::ACCESS_DENIED);
    blind.close().unwrap();
    for name in ["a*b", "a?b", "a|b", "..", "..\\x", "d\\..\\x"] {
        let refused = status(tree.rename("f", name, false));
        assert!(refused.is_error(), "{name}: {refused}");
    }
    assert!(server.path("f").exists());
    assert!(!server.share_path("", "x").exists());
}

#[test]
fn malformed_rename_structures_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let mut good = BytesMut::new();
    FileRenameInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: "renamed".into(),
    }
    .encode(&mut good);
    let set = |bytes: &[u8]| status(file.set(FileInformationClass::RENAME, bytes));
    for len in [1, 8, 19] {
        assert_eq!(set(&good[..len]), Status::INFO_LENGTH_MISMATCH, "{len}");
    }
    let with = |at: usize, bytes: &[u8]| {
        let mut spoilt = good.to_vec();
        spoilt[at..at + bytes.len()].copy_from_slice(bytes);
        set(&spoilt)
    };
    assert_eq!(with(8, &[1]), Status::INVALID_PARAMETER, "root directory");
    assert_eq!(
        with(16, &0u32.to_le_bytes()),
        Status::INVALID_PARAMETER,
        "no name"
    );
    assert_eq!(
        with(16, &13u32.to_le_bytes()),
        Status::INVALID_PARAMETER,
        "odd"
    );
    assert_eq!(
        with(16, &1000u32.to_le_bytes()),
        Status::INVALID_PARAMETER,
        "long"
    );
    assert_eq!(
        with(16, &u32::MAX.to_le_bytes()),
        Status::INVALID_PARAMETER,
        "longest"
    );
    assert!(server.path("f").exists());
    assert_eq!(set(&good), Status::SUCCESS);
}

/// [MS-FSA] 2.1.5.15.2: only attributes that differ move the change time.
#[test]
fn equal_attributes_leave_the_change_time() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    // A file of the host has no stored attributes before the first change.
    std::fs::write(server.path("f"), b"x").unwrap();
    let file = open(&tree, "f");
    let set = |attributes| assert_eq!(set_basic(&file, [0; 4], attributes), Status::SUCCESS);
    let before = get_basic(&file);
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(30));
        set(FileAttributes::ARCHIVE);
        assert_eq!(get_basic(&file), before);
        let listed = tree.list("", "f").unwrap();
        assert_eq!(listed[0].change_time, before.change_time);
    }
    set(FileAttributes::NORMAL);
    assert!(get_basic(&file).change_time.0 > before.change_time.0);
}

/// [MS-SMB2] 3.3.5.21.1, note 428, and 3.3.5.21.2; [MS-FSA] 2.1.5.15.9 and 2.1.5.15.13.
#[test]
fn classes_that_are_not_set_over_the_wire_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let ask = |kind: u8, class: u8| {
        let request = file.set_info_request(InfoType(kind), class, 0, &[0; 64]);
        status(tree.call(request))
    };
    for class in [29, 30, 41, 42, 43, 44] {
        assert_eq!(ask(1, class), Status::NOT_SUPPORTED, "{class}");
    }
    // A label, a driver and flags of the volume are for local callers.
    for class in [2, 9, 10] {
        assert_eq!(ask(2, class), Status::NOT_SUPPORTED, "{class}");
    }
    // [MS-FSA] 2.1.5.16.6 and 2.1.5.16.8: there are no quotas, and the id is not kept.
    let short = |class: u8| {
        let request = file.set_info_request(InfoType::FILESYSTEM, class, 0, &[0; 40]);
        status(tree.call(request))
    };
    assert_eq!(ask(2, 6), Status::VOLUME_NOT_UPGRADED);
    assert_eq!(short(6), Status::INFO_LENGTH_MISMATCH);
    assert_eq!(ask(2, 8), Status::INVALID_PARAMETER);
    assert_eq!(short(8), Status::INVALID_INFO_CLASS);
    for class in [1, 3, 4, 5, 7, 11, 99] {
        assert_eq!(ask(2, class), Status::INVALID_INFO_CLASS, "{class}");
    }
    let reader = CreateArgs::open("f").access(AccessMask::FILE_READ_DATA);
    let reader = tree.create(&reader).unwrap();
    for class in [6, 8] {
        let request = reader.set_info_request(InfoType::FILESYSTEM, class, 0, &[0; 64]);
        assert_eq!(status(tree.call(request)), Status::ACCESS_DENIED, "{class}");
    }
}

/// [MS-FSA] 2.1.5.15.14 and 2.1.5.15.15 check the request before the privileges, which nobody has.
#[test]
fn short_names_and_valid_data_lengths_are_checked_before_privileges() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let named = |name: &str| {
        let name = smb_wire::utf16::encode(name);
        let mut out = u32::try_from(name.len()).unwrap().to_le_bytes().to_vec();
        out.extend_from_slice(&name);
        out.resize(out.len().max(8), 0);
        out
    };
    let short = FileInformationClass::SHORT_NAME;
    let set = |file: &File, buffer: &[u8]| status(file.set(short, buffer));
    assert_eq!(set(&file, &named("SHORT~1")), Status::PRIVILEGE_NOT_HELD);
    assert_eq!(set(&file, &named("")), Status::PRIVILEGE_NOT_HELD);
    assert_eq!(set(&file, &[0; 3]), Status::INFO_LENGTH_MISMATCH);
    for bad in ["\\SHORT", "much too long.txt", "A.B.C", "A B"] {
        assert_eq!(set(&file, &named(bad)), Status::INVALID_PARAMETER, "{bad}");
    }
    let stream = open(&tree, "f:s");
    assert_eq!(set(&stream, &named("SHORT")), Status::INVALID_PARAMETER);
    let only_delete = CreateArgs::open("f").access(AccessMask::DELETE);
    let only_delete = tree.create(&only_delete).unwrap();
    assert_eq!(set(&only_delete, &named("SHORT")), Status::ACCESS_DENIED);
    let valid = FileInformationClass::VALID_DATA_LENGTH;
    assert_eq!(
        status(file.set(valid, &[0; 7])),
        Status::INFO_LENGTH_MISMATCH
    );
    assert_eq!(status(file.set(valid, &[0; 8])), Status::PRIVILEGE_NOT_HELD);
}

#[test]
fn invalid_requests_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let ask = |kind: u8, class: u8, buffer: &[u8]| {
        let request = file.set_info_request(InfoType(kind), class, 0, buffer);
        status(tree.call(request))
    };
    // The open is looked up before the length is checked ([MS-SMB2] 3.3.5.21).
    for buffer in [&[0; 40][..], &[]] {
        let class = FileInformationClass::BASIC.0;
        let missing = Request::set_info(FileId::ANY, InfoType::FILE, class, 0, buffer);
        assert_eq!(status(tree.call(missing)), Status::FILE_CLOSED);
    }
    assert_eq!(ask(1, 0xfe, &[0; 8]), Status::INVALID_INFO_CLASS);
    assert_eq!(ask(0, 4, &[0; 40]), Status::INVALID_PARAMETER);
    assert_eq!(ask(9, 4, &[0; 40]), Status::INVALID_PARAMETER);
    for (class, short) in [
        (FileInformationClass::BASIC, 39),
        (FileInformationClass::END_OF_FILE, 7),
        (FileInformationClass::ALLOCATION, 7),
        (FileInformationClass::POSITION, 7),
    ] {
        assert_eq!(
            ask(1, class.0, &vec![0; short]),
            Status::INFO_LENGTH_MISMATCH,
            "{class}"
        );
    }
    // Classes that can only be queried.
    for class in [
        FileInformationClass::STANDARD,
        FileInformationClass::INTERNAL,
    ] {
        let end = ask(1, class.0, &[0; 40]);
        assert!(
            [Status::INVALID_INFO_CLASS, Status::NOT_SUPPORTED].contains(&end),
            "{class}: {end}"
        );
    }
}

#[test]
fn rights_are_needed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"0123").unwrap();
    let blind = CreateArgs::open("f").access(AccessMask::FILE_READ_DATA);
    let blind = tree.create(&blind).unwrap();
    assert_eq!(
        set_basic(&blind, [0; 4], FileAttributes::HIDDEN),
        Status::ACCESS_DENIED
    );
    assert_eq!(status(blind.set_end_of_file(0)), Status::ACCESS_DENIED);
    assert_eq!(
        status(blind.set(FileInformationClass::ALLOCATION, &[0; 8])),
        Status::ACCESS_DENIED
    );
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"0123");
}

#[test]
fn a_directory_that_is_not_empty_outlives_delete_on_close() {
    // [MS-FSA] 2.1.5.5
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let doomed = CreateArgs::open("d")
        .access(AccessMask::DELETE)
        .options(CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE);
    let doomed = tree.create(&doomed).unwrap();
    tree.write_file("d\\f", b"x").unwrap();
    doomed.close().unwrap();
    assert!(server.path("d/f").exists());
}

/// The exact limit of the file size ([MS-FSA] 2.1.1.1) for end of file, allocation, WRITE and
/// copies.
#[test]
fn the_file_size_is_limited() {
    const LARGEST: u64 = 0x0fff_ffff_0000;
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["f", "f:s"] {
        let file = open(&tree, name);
        file.write_all(0, b"x").unwrap();
        let size = || {
            let info = file.query(FileInformationClass::STANDARD).unwrap();
            FileStandardInformation::read(&info).unwrap().end_of_file
        };
        let set = |class, end: u64| status(file.set(class, &end.to_le_bytes()));
        for end in [
            LARGEST + 1,
            LARGEST + 4096,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
        ] {
            for class in [
                FileInformationClass::END_OF_FILE,
                FileInformationClass::ALLOCATION,
            ] {
                assert_eq!(
                    set(class, end),
                    Status::INVALID_PARAMETER,
                    "{name} {class} {end:#x}"
                );
            }
        }
        let write = |offset, data: &[u8]| status(file.write(offset, data, WriteFlags::empty()));
        for offset in [
            LARGEST,
            LARGEST - 1,
            i64::MAX as u64 - 1,
            1 << 63,
            u64::MAX - 1,
        ] {
            assert_eq!(
                write(offset, b"ab"),
                Status::INVALID_PARAMETER,
                "{name} {offset:#x}"
            );
        }
        assert_eq!(write(1 << 63, b""), Status::INVALID_PARAMETER, "{name}");
        let read = |offset| status(file.read(offset, 2));
        assert_eq!(read(1 << 63), Status::INVALID_PARAMETER, "{name}");
        assert_eq!(read(i64::MAX as u64 - 2), Status::END_OF_FILE, "{name}");
        assert_eq!(size(), 1, "{name}");
    }
    let file = open(&tree, "f");
    // The file is sparse, or the file system's own limit is lower: then this cannot be tested here.
    let wanted = file.set(FileInformationClass::END_OF_FILE, &LARGEST.to_le_bytes());
    if status(wanted) == Status::SUCCESS {
        let last = file.write(LARGEST - 1, b"z", WriteFlags::empty());
        assert_eq!(status(last), Status::SUCCESS);
        let beyond = file.write(LARGEST, b"z", WriteFlags::empty());
        assert_eq!(status(beyond), Status::INVALID_PARAMETER);
    } else {
        smb_tests::missing("a file system with files of 16 TiB");
    }
}
