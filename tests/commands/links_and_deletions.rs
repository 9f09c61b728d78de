//! The several names of a file, deletions that are marked, and the times of the directories that hold the names
//! ([MS-FSA] 2.1.5.5, 2.1.5.15.3, 2.1.5.15.7, 2.1.5.15.12).

use std::time::Duration;

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    FileBasicInformation, FileInformationClass as Class, FileLinkInformation,
    FileStandardInformation,
};

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

fn basic(tree: &Tree, name: &str) -> FileBasicInformation {
    let args = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
    let file = tree.create(&args).unwrap();
    let bytes = file.query(Class::BASIC).unwrap();
    file.close().unwrap();
    FileBasicInformation::read(&bytes).unwrap()
}

fn is_pending(file: &File) -> bool {
    let standard = file.query(Class::STANDARD).unwrap();
    FileStandardInformation::read(&standard)
        .unwrap()
        .delete_pending
}

fn set_attributes(file: &File, file_attributes: FileAttributes) {
    let mut buffer = BytesMut::new();
    FileBasicInformation {
        file_attributes,
        ..FileBasicInformation::default()
    }
    .encode(&mut buffer);
    file.set(Class::BASIC, &buffer).unwrap();
}

fn link(file: &File, to: &str) {
    let mut buffer = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    file.set(Class::LINK, &buffer).unwrap();
}

/// Waits longer than the resolution of any file system's clock.
fn tick() {
    std::thread::sleep(Duration::from_millis(30));
}

/// [MS-FSA] 2.1.5.15.3, 2.1.5.5: a deletion concerns the name by which the file was opened.
#[test]
fn a_deletion_concerns_one_name_of_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    let file = open(&tree, "f");
    link(&file, "g");
    file.set_delete(true).unwrap();
    let pending = tree.create_status(&CreateArgs::open("f")).unwrap();
    assert_eq!(pending, Status::DELETE_PENDING);
    let other = tree.create(&CreateArgs::open("g")).unwrap();
    assert!(is_pending(&file) && !is_pending(&other));
    file.close().unwrap();
    assert!(!server.path("f").exists());
    assert_eq!(other.read_all().unwrap(), b"content");
    other.close().unwrap();
    assert_eq!(tree.read_file("g").unwrap(), b"content");
}

/// [MS-FSA] 2.1.5.15.7: data, attributes and streams are those of the file, whatever its name.
#[test]
fn the_names_of_a_file_have_everything_in_common() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"content").unwrap();
    tree.write_file("f:s", b"stream").unwrap();
    let file = open(&tree, "f");
    link(&file, "d\\g");
    let other = open(&tree, "d\\g");
    set_attributes(&other, FileAttributes::HIDDEN);
    other.write_all(0, b"CONTENT").unwrap();
    assert_eq!(file.read_all().unwrap(), b"CONTENT");
    assert_eq!(tree.read_file("d\\g:s").unwrap(), b"stream");
    for class in [
        Class::BASIC,
        Class::STANDARD,
        Class::INTERNAL,
        Class::STREAM,
    ] {
        assert_eq!(
            file.query(class).unwrap(),
            other.query(class).unwrap(),
            "{class}"
        );
    }
}

/// [MS-FSA] 2.1.5.15.7: a new name is a change of its directory.
#[test]
fn a_link_moves_the_times_of_its_directory() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let file = open(&tree, "f");
    let before = basic(&tree, "d");
    tick();
    link(&file, "d\\g");
    let after = basic(&tree, "d");
    assert!(after.last_write_time > before.last_write_time);
    assert!(after.change_time > before.change_time);
    assert_eq!(after.creation_time, before.creation_time);
}

/// [MS-FSA] 2.1.5.15.12, 2.1.5.5: so is a name that leaves it.
#[test]
fn a_rename_and_a_deletion_move_the_times_of_the_directories() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["from", "to"] {
        tree.mkdir(name).unwrap();
    }
    tree.write_file("from\\f", b"x").unwrap();
    let times = || ["from", "to"].map(|name| basic(&tree, name).last_write_time);
    let before = times();
    tick();
    tree.rename("from\\f", "to\\f", false).unwrap();
    let renamed = times();
    assert!(renamed[0] > before[0] && renamed[1] > before[1]);
    tick();
    tree.delete("to\\f").unwrap();
    let deleted = times();
    assert_eq!(deleted[0], renamed[0]);
    assert!(deleted[1] > renamed[1]);
}

/// [MS-FSA] 2.1.5.15.12: a file that has the name already is renamed without any change.
#[test]
fn a_rename_to_the_same_name_changes_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d\\f", b"x").unwrap();
    // The search for the names may move the time of the last access.
    let look = || {
        ["d", "d\\f"].map(|name| {
            let now = basic(&tree, name);
            [now.creation_time, now.last_write_time, now.change_time]
        })
    };
    let before = look();
    tick();
    for replace in [false, true] {
        let file = tree.rename("d\\f", "d\\f", replace);
        assert_eq!(status(file), Status::SUCCESS, "{replace}");
        let directory = tree.rename("d", "d", replace);
        assert_eq!(status(directory), Status::SUCCESS, "{replace}");
    }
    assert_eq!(look(), before);
}

/// [MS-FSA] 2.1.5.15.3: what is read-only is not marked, its streams are neither, but a mark can always be taken off.
#[test]
fn nothing_of_a_read_only_object_is_marked() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d:s", b"x").unwrap();
    tree.write_file("f:s", b"x").unwrap();
    for name in ["d", "f"] {
        let stream = open(&tree, &format!("{name}:s"));
        let object = open(&tree, name);
        set_attributes(&object, FileAttributes::READONLY);
        for handle in [&stream, &object] {
            let refused = status(handle.set_delete(true));
            assert_eq!(refused, Status::CANNOT_DELETE, "{name}");
            assert_eq!(status(handle.set_delete(false)), Status::SUCCESS, "{name}");
            assert!(!is_pending(handle), "{name}");
        }
        set_attributes(&object, FileAttributes::NORMAL);
        assert_eq!(status(object.set_delete(true)), Status::SUCCESS, "{name}");
        object.set_delete(false).unwrap();
    }
}

/// [MS-FSA] 2.1.5.15.3: the mark belongs to the name, so that any handle may set it again or take it off.
#[test]
fn any_handle_marks_and_unmarks_the_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (first, second) = (open(&tree, "f"), open(&tree, "f"));
    for handle in [&first, &second, &first] {
        handle.set_delete(true).unwrap();
        assert!(is_pending(&first) && is_pending(&second));
    }
    second.set_delete(false).unwrap();
    assert!(!is_pending(&first) && !is_pending(&second));
    first.close().unwrap();
    second.close().unwrap();
    assert!(server.path("f").exists());
}
