//! The checks and effects of SET_INFO that hold for one class or one right ([MS-SMB2] 3.3.5.21, [MS-FSA] 2.1.5.15).

use std::time::Duration;

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::state::{all_attributes, ea_list};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{
    FileBasicInformation, FileInformationClass as Class, FileLinkInformation,
    FileStandardInformation,
};
use smb_wire::ids::FileId;
use smb_wire::msg::InfoType;

fn with(tree: &Tree, access: AccessMask) -> File {
    tree.create(&CreateArgs::open("f").access(access)).unwrap()
}

fn full(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

fn basic(file: &File) -> FileBasicInformation {
    FileBasicInformation::read(&file.query(Class::BASIC).unwrap()).unwrap()
}

fn standard(file: &File) -> FileStandardInformation {
    FileStandardInformation::read(&file.query(Class::STANDARD).unwrap()).unwrap()
}

fn link(to: &str) -> BytesMut {
    let mut buffer = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    buffer
}

/// [MS-FSA] 2.1.5.15.5: an end of the file that is the current one counts as a change all the same.
#[test]
fn the_current_end_of_the_file_modifies_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    file.flush(false).unwrap();
    let before = basic(&file);
    std::thread::sleep(Duration::from_millis(30));
    file.set_end_of_file(10).unwrap();
    let after = basic(&file);
    assert!(after.last_write_time > before.last_write_time);
    assert!(after.change_time > before.change_time);
    assert_eq!(after.creation_time, before.creation_time);
    assert_eq!(file.read_all().unwrap(), b"0123456789");
}

/// [MS-FSA] 2.1.5.15.5: the end of a stream that is to be deleted stays where it is, and that is no error.
#[test]
fn the_end_of_a_stream_that_is_to_be_deleted_stays() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let stream = full(&tree, "f:s");
    stream.write_all(0, b"0123456789").unwrap();
    stream.set_delete(true).unwrap();
    assert_eq!(status(stream.set_end_of_file(3)), Status::SUCCESS);
    assert_eq!(standard(&stream).end_of_file, 10);
    stream.set_delete(false).unwrap();
    assert_eq!(stream.read_all().unwrap(), b"0123456789");
}

/// [MS-SMB2] 3.3.5.21.1: the right to append does not suffice to move the end of a file or to allocate.
#[test]
fn the_right_to_append_moves_no_end() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"0123456789").unwrap();
    let append = AccessMask::FILE_APPEND_DATA | AccessMask::FILE_WRITE_ATTRIBUTES;
    let file = with(&tree, append);
    for end in [0_u64, 10, 100] {
        for class in [Class::END_OF_FILE, Class::ALLOCATION] {
            let refused = status(file.set(class, &end.to_le_bytes()));
            assert_eq!(refused, Status::ACCESS_DENIED, "{class} {end}");
        }
    }
    file.close().unwrap();
    assert_eq!(tree.read_file("f").unwrap(), b"0123456789");
}

/// [MS-SMB2] 3.3.5.21.1: each class needs its right, and only that.
#[test]
fn each_class_needs_its_right_alone() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let all = AccessMask::FILE_ALL_ACCESS;
    for (class, right, buffer) in [
        (Class::BASIC, AccessMask::FILE_WRITE_ATTRIBUTES, vec![0; 40]),
        (
            Class::FULL_EA,
            AccessMask::FILE_WRITE_EA,
            ea_list("A", b"x"),
        ),
        (Class::END_OF_FILE, AccessMask::FILE_WRITE_DATA, vec![0; 8]),
        (Class::ALLOCATION, AccessMask::FILE_WRITE_DATA, vec![0; 8]),
        (Class::DISPOSITION, AccessMask::DELETE, vec![0]),
        (Class::DISPOSITION_EX, AccessMask::DELETE, vec![0; 4]),
    ] {
        let file = with(&tree, right);
        let done = status(file.set(class, &buffer));
        assert_eq!(done, Status::SUCCESS, "{class}");
        file.close().unwrap();
        let file = with(&tree, all.without(right));
        let refused = status(file.set(class, &buffer));
        assert_eq!(refused, Status::ACCESS_DENIED, "{class}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.21.1: the right is checked before the object store finds the buffer too short, but that of a rename
/// after its length.
#[test]
fn a_right_is_missed_before_the_length() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let all = AccessMask::FILE_ALL_ACCESS;
    let short = Status::INFO_LENGTH_MISMATCH;
    for (class, right, first) in [
        (
            Class::BASIC,
            AccessMask::FILE_WRITE_ATTRIBUTES,
            Status::ACCESS_DENIED,
        ),
        (
            Class::END_OF_FILE,
            AccessMask::FILE_WRITE_DATA,
            Status::ACCESS_DENIED,
        ),
        (
            Class::ALLOCATION,
            AccessMask::FILE_WRITE_DATA,
            Status::ACCESS_DENIED,
        ),
        (
            Class::VALID_DATA_LENGTH,
            AccessMask::FILE_WRITE_DATA,
            Status::ACCESS_DENIED,
        ),
        (Class::SHORT_NAME, AccessMask::DELETE, Status::ACCESS_DENIED),
        (Class::RENAME, AccessMask::DELETE, short),
    ] {
        let file = with(&tree, all.without(right));
        assert_eq!(status(file.set(class, &[0; 3])), first, "{class}");
        file.close().unwrap();
        let file = with(&tree, all);
        assert_eq!(status(file.set(class, &[0; 3])), short, "{class}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.21.1, [MS-FSA] 2.1.5.15.7, 2.1.5.15.8, 2.1.5.15.10: other classes need no right to the file.
#[test]
fn links_modes_and_positions_need_no_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let file = with(&tree, AccessMask::FILE_READ_ATTRIBUTES);
    for (class, buffer) in [
        (Class::MODE, vec![0; 4]),
        (Class::POSITION, vec![0; 8]),
        (Class::LINK, link("second").to_vec()),
    ] {
        let done = status(file.set(class, &buffer));
        assert_eq!(done, Status::SUCCESS, "{class}");
    }
    assert!(server.path("second").exists());
}

/// [MS-FSA] 2.1.5.15: a buffer must have the size of the structure at least.
#[test]
fn a_buffer_may_be_longer_than_its_structure() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    for (class, length) in [
        (Class::BASIC, 48),
        (Class::DISPOSITION, 8),
        (Class::DISPOSITION_EX, 8),
        (Class::MODE, 8),
        (Class::POSITION, 16),
        (Class::END_OF_FILE, 16),
    ] {
        let done = status(file.set(class, &vec![0; length]));
        assert_eq!(done, Status::SUCCESS, "{class}");
    }
    assert_eq!(standard(&file).end_of_file, 0);
}

/// [MS-SMB2] 3.3.5.2.6: the buffer lies within its message.
#[test]
fn a_buffer_outside_its_message_is_not_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    let class = Class::END_OF_FILE.0;
    let good = || file.set_info_request(InfoType::FILE, class, 0, &[0; 8]);
    // BufferLength is at 4 of the body, BufferOffset at 8.
    for (at, bytes) in [
        (68, &9_u32.to_le_bytes()[..]),
        (68, &[0xff; 4]),
        (72, &0x100_u16.to_le_bytes()),
        (72, &[0xff; 2]),
    ] {
        let spoilt = good().mutate(|m| m[at..at + bytes.len()].copy_from_slice(bytes));
        let refused = tree.reply(spoilt).unwrap().status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{at} {bytes:x?}");
    }
    assert_eq!(file.read_all().unwrap(), b"0123456789");
    tree.call(good()).unwrap();
}

/// [MS-SMB2] 3.3.5.21.4.
#[test]
fn quotas_are_not_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let request = root.set_info_request(InfoType::QUOTA, 0, 0, &[0; 64]);
    assert_eq!(status(tree.call(request)), Status::NOT_SUPPORTED);
    let nowhere = Request::set_info(FileId::ANY, InfoType::QUOTA, 0, 0, &[0; 64]);
    assert_eq!(status(tree.call(nowhere)), Status::FILE_CLOSED);
}

/// [MS-SMB2] 3.3.5.21.3: each part of a descriptor needs its right.
#[test]
fn each_part_of_a_descriptor_needs_its_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let (list, owner) = (AccessMask::WRITE_DAC, AccessMask::WRITE_OWNER);
    let audit = AccessMask::ACCESS_SYSTEM_SECURITY;
    for (part, right) in [
        (SecurityInformation::OWNER, owner),
        (SecurityInformation::GROUP, owner),
        (SecurityInformation::LABEL, owner),
        (SecurityInformation::DACL, list),
        (SecurityInformation::ATTRIBUTE, list),
        (SecurityInformation::SACL, audit),
        (SecurityInformation::SCOPE, audit),
        (SecurityInformation::BACKUP, audit),
    ] {
        let file = with(&tree, AccessMask::FILE_ALL_ACCESS.without(right));
        let whole = SecurityInformation::OWNER | SecurityInformation::DACL;
        let asked = file.query_info(InfoType::SECURITY, 0, whole.bits());
        let request = file.set_info_request(InfoType::SECURITY, 0, part.bits(), &asked.unwrap());
        assert_eq!(status(tree.call(request)), Status::ACCESS_DENIED, "{part}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.21: the open is looked up before the kind of information.
#[test]
fn the_handle_is_checked_before_the_kind_of_information() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for (kind, class) in [(9, 4), (1, 0xff), (2, 0xff), (3, 0)] {
        let request = Request::set_info(FileId::ANY, InfoType(kind), class, 0, &[0; 40]);
        assert_eq!(status(tree.call(request)), Status::FILE_CLOSED, "{kind}");
    }
}

/// [MS-FSA] 2.1.5.15.6: a name or flag that no attribute can have changes none.
#[test]
fn a_list_with_an_invalid_attribute_sets_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    file.set(Class::FULL_EA, &ea_list("KEPT", b"x")).unwrap();
    let before = all_attributes(&file).unwrap();
    let mut flagged = ea_list("NEW", b"y");
    flagged[4] = 1;
    for list in [
        ea_list("a*b", b"y"),
        ea_list("a:b", b"y"),
        ea_list("a\"b", b"y"),
        ea_list("a\\b", b"y"),
        ea_list("", b"y"),
        // The server has this one itself, and Linux has no room for names as long as the other.
        ea_list("DosAttrib", b"y"),
        ea_list(&"n".repeat(251), b"y"),
        flagged,
    ] {
        let refused = status(file.set(Class::FULL_EA, &list));
        assert_eq!(refused, Status::INVALID_EA_NAME, "{list:x?}");
    }
    assert_eq!(all_attributes(&file).unwrap(), before);
}
