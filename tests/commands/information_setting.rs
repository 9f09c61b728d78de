//! The rules of single classes of SET_INFO: which values are refused, and which change something ([MS-FSA] 2.1.5.15).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    DispositionFlags, FileBasicInformation, FileInformationClass as Class, FileLinkInformation,
    FileStandardInformation,
};
use smb_wire::msg::CreateOptions;

fn open(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

fn mode(file: &File) -> u32 {
    u32::from_le_bytes(file.query(Class::MODE).unwrap().try_into().unwrap())
}

fn set_mode(file: &File, mode: u32) -> Status {
    status(file.set(Class::MODE, &mode.to_le_bytes()))
}

fn basic(file: &File) -> FileBasicInformation {
    FileBasicInformation::read(&file.query(Class::BASIC).unwrap()).unwrap()
}

fn set_basic(file: &File, information: &FileBasicInformation) -> Status {
    let mut buffer = BytesMut::new();
    information.encode(&mut buffer);
    status(file.set(Class::BASIC, &buffer))
}

fn set_attributes(file: &File, file_attributes: FileAttributes) -> Status {
    let information = FileBasicInformation {
        file_attributes,
        ..FileBasicInformation::default()
    };
    set_basic(file, &information)
}

fn standard(file: &File) -> FileStandardInformation {
    FileStandardInformation::read(&file.query(Class::STANDARD).unwrap()).unwrap()
}

fn dispose(file: &File, flags: u32) -> Status {
    status(file.set(Class::DISPOSITION_EX, &flags.to_le_bytes()))
}

fn link(file: &File, to: &str, replace_if_exists: bool) -> Status {
    let mut buffer = BytesMut::new();
    FileLinkInformation {
        replace_if_exists,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    status(file.set(Class::LINK, &buffer))
}

/// [MS-FSA] 2.1.5.15.8.
#[test]
fn two_flags_of_the_mode_can_be_changed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let through = CreateOptions::WRITE_THROUGH.bits();
    let sequential = CreateOptions::SEQUENTIAL_ONLY.bits();
    for set in [through, sequential, through | sequential, 0] {
        assert_eq!(set_mode(&file, set), Status::SUCCESS, "{set:#x}");
        assert_eq!(mode(&file), set);
    }
    assert_eq!(set_mode(&file, sequential), Status::SUCCESS);
    // The mode of a handle from the network is never synchronous ([MS-SMB2] 3.3.5.9).
    for refused in [
        CreateOptions::NO_INTERMEDIATE_BUFFERING,
        CreateOptions::DELETE_ON_CLOSE,
        CreateOptions::SYNCHRONOUS_IO_ALERT,
        CreateOptions::SYNCHRONOUS_IO_NONALERT,
        CreateOptions::SYNCHRONOUS_IO_ALERT | CreateOptions::SYNCHRONOUS_IO_NONALERT,
        CreateOptions::WRITE_THROUGH | CreateOptions::NO_INTERMEDIATE_BUFFERING,
    ] {
        let end = set_mode(&file, refused.bits());
        assert_eq!(end, Status::INVALID_PARAMETER, "{refused}");
        assert_eq!(mode(&file), sequential, "{refused}");
    }
}

/// [MS-FSCC] 2.4.31: that the file is deleted with the handle is no part of the mode that a client sees and sets.
#[test]
fn the_mode_leaves_out_the_deletion() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (through, on_close) = (CreateOptions::WRITE_THROUGH, CreateOptions::DELETE_ON_CLOSE);
    let sequential = CreateOptions::SEQUENTIAL_ONLY;
    let args = CreateArgs::create("f").options(on_close | sequential);
    let file = tree.create(&args).unwrap();
    assert_eq!(mode(&file), sequential.bits());
    let refused = set_mode(&file, (through | on_close).bits());
    assert_eq!(refused, Status::INVALID_PARAMETER);
    assert_eq!(set_mode(&file, through.bits()), Status::SUCCESS);
    assert_eq!(mode(&file), through.bits());
    file.close().unwrap();
    assert!(!server.path("f").exists());
}

/// [MS-FSA] 2.1.5.15.8: a handle without buffering writes through in any case.
#[test]
fn an_unbuffered_handle_stays_as_it_is() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let unbuffered = CreateOptions::NO_INTERMEDIATE_BUFFERING;
    let args = CreateArgs::open_if("f").options(unbuffered);
    let file = tree.create(&args).unwrap();
    let through = CreateOptions::WRITE_THROUGH.bits();
    let sequential = CreateOptions::SEQUENTIAL_ONLY.bits();
    let set = set_mode(&file, through | sequential);
    assert_eq!(set, Status::SUCCESS);
    assert_eq!(mode(&file), unbuffered.bits() | sequential);
}

/// [MS-FSA] 2.1.5.15.10.
#[test]
fn a_position_is_not_negative_and_aligned_where_there_are_no_buffers() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let set =
        |file: &File, position: i64| status(file.set(Class::POSITION, &position.to_le_bytes()));
    for position in [-1, i64::MIN] {
        let end = set(&file, position);
        assert_eq!(end, Status::INVALID_PARAMETER, "{position}");
    }
    for position in [0, 1, i64::MAX] {
        assert_eq!(set(&file, position), Status::SUCCESS, "{position}");
    }
    let unbuffered = CreateOptions::NO_INTERMEDIATE_BUFFERING;
    let args = CreateArgs::open("f").options(unbuffered);
    let file = tree.create(&args).unwrap();
    for (position, expected) in [
        (1, Status::INVALID_PARAMETER),
        (65_535, Status::INVALID_PARAMETER),
        (0, Status::SUCCESS),
        (65_536, Status::SUCCESS),
    ] {
        assert_eq!(set(&file, position), expected, "{position}");
    }
}

/// [MS-FSA] 2.1.5.15.2: other attributes are neither set nor cleared, and a directory stays one.
#[test]
fn attributes_that_cannot_be_set_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let (file, directory) = (open(&tree, "f"), open(&tree, "d"));
    let hidden = FileAttributes::HIDDEN;
    for ignored in [
        FileAttributes::SPARSE_FILE,
        FileAttributes::REPARSE_POINT,
        FileAttributes::COMPRESSED,
        FileAttributes::ENCRYPTED,
    ] {
        let set = set_attributes(&file, hidden | ignored);
        assert_eq!(set, Status::SUCCESS, "{ignored}");
        assert_eq!(basic(&file).file_attributes, hidden, "{ignored}");
    }
    let is_directory = FileAttributes::DIRECTORY;
    for (asked, expected) in [
        (hidden, hidden | is_directory),
        (hidden | is_directory, hidden | is_directory),
        (FileAttributes::NORMAL, is_directory),
        (is_directory, is_directory),
    ] {
        assert_eq!(set_attributes(&directory, asked), Status::SUCCESS);
        assert_eq!(basic(&directory).file_attributes, expected, "{asked}");
    }
}

/// [MS-FSA] 2.1.5.15.2: the attributes are those of the file, through whichever stream they are set.
#[test]
fn attributes_set_through_a_stream_are_those_of_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, stream) = (open(&tree, "f"), open(&tree, "f:s"));
    let system = FileAttributes::SYSTEM;
    assert_eq!(set_attributes(&stream, system), Status::SUCCESS);
    assert_eq!(basic(&file).file_attributes, system);
    let wrong = set_attributes(&stream, FileAttributes::DIRECTORY);
    assert_eq!(wrong, Status::INVALID_PARAMETER);
}

/// [MS-FSA] 2.1.5.15.2: the values are checked before any of them is set.
#[test]
fn refused_basic_information_sets_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let before = basic(&file);
    let mut asked = FileBasicInformation {
        file_attributes: FileAttributes::DIRECTORY,
        ..FileBasicInformation::default()
    };
    asked.creation_time.0 = 132_223_104_000_000_000;
    assert_eq!(set_basic(&file, &asked), Status::INVALID_PARAMETER);
    asked.file_attributes = FileAttributes::HIDDEN;
    asked.change_time.0 = (-3i64) as u64;
    assert_eq!(set_basic(&file, &asked), Status::INVALID_PARAMETER);
    assert_eq!(basic(&file), before);
}

/// [MS-FSA] 2.1.5.15.4.
#[test]
fn unknown_ways_to_delete_are_not_supported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let read = CreateArgs::open("f").access(AccessMask::FILE_READ_DATA);
    let read = tree.create(&read).unwrap();
    for flags in [0x20, 0x21, 0x8000_0001] {
        assert_eq!(dispose(&file, flags), Status::NOT_SUPPORTED, "{flags:#x}");
        assert_eq!(dispose(&read, flags), Status::NOT_SUPPORTED, "{flags:#x}");
    }
    for flags in [0, 1, 0x11] {
        assert_eq!(dispose(&read, flags), Status::ACCESS_DENIED, "{flags:#x}");
    }
    // The handle was not opened to delete the file at its end.
    let on_close = DispositionFlags::DELETE | DispositionFlags::ON_CLOSE;
    assert_eq!(dispose(&file, on_close.bits()), Status::NOT_SUPPORTED);
    assert!(!standard(&file).delete_pending);
}

/// [MS-FSA] 2.1.5.15.4: a read-only file is deleted on request by those who could make it writable.
#[test]
fn a_read_only_file_is_deleted_on_request() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let readonly = set_attributes(&file, FileAttributes::READONLY);
    assert_eq!(readonly, Status::SUCCESS);
    file.close().unwrap();
    let (delete, write) = (AccessMask::DELETE, AccessMask::FILE_WRITE_ATTRIBUTES);
    let all = DispositionFlags::DELETE | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
    for (access, flags, expected) in [
        (
            delete | write,
            DispositionFlags::DELETE,
            Status::CANNOT_DELETE,
        ),
        (delete, all, Status::CANNOT_DELETE),
        (delete | write, all, Status::SUCCESS),
    ] {
        let args = CreateArgs::open("f").access(access);
        let file = tree.create(&args).unwrap();
        assert_eq!(dispose(&file, flags.bits()), expected, "{access} {flags}");
        file.close().unwrap();
        assert_eq!(server.path("f").exists(), expected != Status::SUCCESS);
    }
}

/// [MS-FSA] 2.1.5.12.27: links whose deletion is pending are not counted.
#[test]
fn links_that_are_to_be_deleted_are_not_counted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    assert_eq!(standard(&file).number_of_links, 1);
    assert_eq!(link(&file, "second", false), Status::SUCCESS);
    let second = open(&tree, "second");
    assert_eq!(standard(&file).number_of_links, 2);
    second.set_delete(true).unwrap();
    assert_eq!(standard(&second).number_of_links, 1);
    assert!(standard(&second).delete_pending);
    // The other link's handle, and a handle of a stream, count the same links.
    for handle in [&file, &open(&tree, "f:s")] {
        let other = standard(handle);
        assert_eq!((other.number_of_links, other.delete_pending), (1, false));
    }
    second.close().unwrap();
    file.set_delete(true).unwrap();
    let last = standard(&file);
    assert_eq!((last.number_of_links, last.delete_pending), (0, true));
    file.set_delete(false).unwrap();
    let last = standard(&file);
    assert_eq!((last.number_of_links, last.delete_pending), (1, false));
}

/// A link that was removed under an open handle is not counted there either, but the other links are.
#[test]
fn links_that_are_removed_already_are_counted_out_once() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    assert_eq!(link(&file, "second", false), Status::SUCCESS);
    let (second, stays) = (open(&tree, "second"), open(&tree, "second"));
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    assert_eq!(dispose(&second, posix.bits()), Status::SUCCESS);
    second.close().unwrap();
    assert!(!server.path("second").exists());
    let removed = standard(&stays);
    assert_eq!((removed.number_of_links, removed.delete_pending), (1, true));
    let other = standard(&file);
    assert_eq!((other.number_of_links, other.delete_pending), (1, false));
}

/// [MS-FSA] 2.1.5.5: a directory that is not empty stays, so the other handles have their name for as long.
#[test]
fn a_name_that_could_not_be_removed_stays_the_other_handles_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let (deletes, stays) = (open(&tree, "d"), open(&tree, "d"));
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    assert_eq!(dispose(&deletes, posix.bits()), Status::SUCCESS);
    std::fs::write(server.path("d/by-hand"), b"").unwrap();
    deletes.close().unwrap();
    assert!(server.path("d").exists());
    let named = standard(&stays);
    assert_eq!((named.number_of_links, named.delete_pending), (1, false));
    std::fs::remove_file(server.path("d/by-hand")).unwrap();
    stays.set_delete(true).unwrap();
    stays.close().unwrap();
    assert!(!server.path("d").exists());
}

/// Linux counts each directory as a link to the one above.
#[test]
fn a_directory_has_one_link_whatever_is_in_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.mkdir("d\\below").unwrap();
    for name in ["d", "d:s"] {
        let links = standard(&open(&tree, name)).number_of_links;
        assert_eq!(links, 1, "{name}");
    }
}

/// [MS-FSA] 2.1.5.15.7.
#[test]
fn impossible_links_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("there", b"there").unwrap();
    tree.mkdir("d").unwrap();
    let (file, stream) = (open(&tree, "f"), open(&tree, "f:s"));
    assert_eq!(link(&stream, "new", false), Status::INVALID_PARAMETER);
    let collides = Status::OBJECT_NAME_COLLISION;
    for taken in ["there", "THERE", "d", "f"] {
        assert_eq!(link(&file, taken, false), collides, "{taken}");
    }
    let missing = link(&file, "missing\\new", false);
    assert_eq!(missing, Status::OBJECT_PATH_NOT_FOUND);
    for name in ["a*b", "a|b", "a\"b"] {
        let invalid = link(&file, name, false);
        assert_eq!(invalid, Status::OBJECT_NAME_INVALID, "{name}");
    }
    file.set_delete(true).unwrap();
    assert_eq!(link(&file, "new", false), Status::ACCESS_DENIED);
    file.set_delete(false).unwrap();
    assert!(!server.path("new").exists());
    assert_eq!(link(&file, "THERE", true), Status::SUCCESS);
    assert_eq!(tree.read_file("there").unwrap(), b"");
}

/// [MS-FSA] 2.1.5.15.1: an allocation counts in clusters, so that data within the last one stay.
#[test]
fn an_allocation_truncates_by_clusters() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    let set = |size: u64| status(file.set(Class::ALLOCATION, &size.to_le_bytes()));
    for size in [100_000, 10, 5, 1] {
        assert_eq!(set(size), Status::SUCCESS, "{size}");
        assert_eq!(file.read_all().unwrap(), b"0123456789", "{size}");
    }
    assert_eq!(set(0), Status::SUCCESS);
    assert_eq!(standard(&file).end_of_file, 0);
    tree.mkdir("d").unwrap();
    let directory = open(&tree, "d");
    let refused = status(directory.set(Class::ALLOCATION, &[0; 8]));
    assert_eq!(refused, Status::INVALID_PARAMETER);
}

/// [MS-FSA] 2.1.5.15.3: the deletion of a stream is not that of its file.
#[test]
fn the_deletion_of_a_stream_is_its_own() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, stream) = (open(&tree, "f"), open(&tree, "f:s"));
    stream.set_delete(true).unwrap();
    assert!(standard(&stream).delete_pending);
    assert!(!standard(&file).delete_pending);
    stream.close().unwrap();
    let gone = status(tree.create(&CreateArgs::open("f:s")));
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
    file.write_all(0, b"still there").unwrap();
    assert_eq!(tree.read_file("f").unwrap(), b"still there");
}
