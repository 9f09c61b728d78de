//! Each bit of the filter of CHANGE_NOTIFY, and the changes that no watcher is notified of ([MS-SMB2] 3.3.5.19,
//! [MS-FSA] 2.1.4.1, 2.1.5.11, 2.1.5.15; the cases of smb2.notify.mask).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, state::ea_list};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileAction, FileBasicInformation, FileInformationClass as Class};
use smb_wire::ids::{FileTime, MessageId};
use smb_wire::msg::{ChangeNotifyFlags, InfoType, NotifyFilter as Filter};

const FLAT: ChangeNotifyFlags = ChangeNotifyFlags::empty();
/// A day in the year 2001.
const THEN: FileTime = FileTime(126_000_000_000_000_000);

fn watch(directory: &File, filter: Filter) -> MessageId {
    let id = directory.notify(filter, FLAT, 65_536).unwrap();
    let pending = directory.tree().client().wait_pending(id).unwrap();
    assert!(pending.is_some(), "answered at once");
    id
}

fn changes(directory: &File, id: MessageId) -> Vec<(FileAction, String)> {
    let reply = directory.tree().client().wait(id).unwrap();
    let list = directory.changes(reply).unwrap();
    list.into_iter().map(|e| (e.action, e.file_name)).collect()
}

fn root(tree: &Tree) -> File {
    tree.create(&CreateArgs::directory("")).unwrap()
}

/// Opens an object with all rights.
fn open(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

fn set_basic(file: &File, information: &FileBasicInformation) {
    let mut buffer = BytesMut::new();
    information.encode(&mut buffer);
    file.set(Class::BASIC, &buffer).unwrap();
}

fn set_list(file: &File) {
    let parts = SecurityInformation::DACL.bits();
    let list = file.query_info(InfoType::SECURITY, 0, parts).unwrap();
    let request = Request::set_info(file.id(), InfoType::SECURITY, 0, parts, &list);
    file.tree().call(request).unwrap();
}

/// Asserts that a change of `f` is reported to those who ask for it, once its handle is closed at the latest.
fn reports(filter: Filter, change: impl Fn(&File)) {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("f", b"0123456789").unwrap();
    let (root, names) = (root(&tree), root(&tree));
    let id = watch(&root, filter);
    let of_names = watch(&names, Filter::FILE_NAME | Filter::DIR_NAME);
    let file = open(&other, "f");
    change(&file);
    file.close().unwrap();
    let modified = (FileAction::MODIFIED, "f".to_owned());
    assert_eq!(changes(&root, id)[0], modified, "{filter}");
    // No name has changed.
    let mut connection = tree.client().connection();
    assert!(!connection.answered(of_names, MEANWHILE).unwrap());
}

/// [MS-FSA] 2.1.5.15.2.
#[test]
fn attributes_are_reported() {
    reports(Filter::ATTRIBUTES, |file| {
        let file_attributes = FileAttributes::HIDDEN;
        let information = FileBasicInformation {
            file_attributes,
            ..FileBasicInformation::default()
        };
        set_basic(file, &information);
    });
}

/// [MS-FSA] 2.1.5.15.2.
#[test]
fn the_time_of_creation_is_reported() {
    reports(Filter::CREATION, |file| {
        let information = FileBasicInformation {
            creation_time: THEN,
            ..FileBasicInformation::default()
        };
        set_basic(file, &information);
    });
}

/// [MS-FSA] 2.1.5.15.2.
#[test]
fn the_time_of_the_last_access_is_reported() {
    reports(Filter::LAST_ACCESS, |file| {
        let information = FileBasicInformation {
            last_access_time: THEN,
            ..FileBasicInformation::default()
        };
        set_basic(file, &information);
    });
}

/// [MS-FSA] 2.1.5.15.2.
#[test]
fn the_time_of_the_last_write_is_reported() {
    reports(Filter::LAST_WRITE, |file| {
        let information = FileBasicInformation {
            last_write_time: THEN,
            ..FileBasicInformation::default()
        };
        set_basic(file, &information);
    });
}

/// [MS-FSA] 2.1.5.4, 2.1.4.17: a write moves the time of the last write.
#[test]
fn a_write_is_reported_as_a_last_write() {
    reports(Filter::LAST_WRITE, |file| file.write_all(0, b"x").unwrap());
}

/// [MS-FSA] 2.1.5.15.5.
#[test]
fn a_new_end_of_the_file_is_reported_as_a_size() {
    for end in [5, 20] {
        reports(Filter::SIZE, |file| file.set_end_of_file(end).unwrap());
    }
}

/// [MS-FSA] 2.1.5.15.6.
#[test]
fn extended_attributes_are_reported() {
    reports(Filter::EA, |file| {
        file.set(Class::FULL_EA, &ea_list("NAME", b"value"))
            .unwrap();
    });
}

/// [MS-FSA] 2.1.5.17.
#[test]
fn a_descriptor_is_reported() {
    reports(Filter::SECURITY, set_list);
}

/// [MS-FSA] 2.1.4.1: the names of directories are those of the filter DIR_NAME alone.
#[test]
fn the_names_of_directories_have_a_filter_of_their_own() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.mkdir("old").unwrap();
    let (directories, files) = (root(&tree), root(&tree));
    let of_files = watch(&files, Filter::FILE_NAME);
    let id = watch(&directories, Filter::DIR_NAME);
    other.delete("old").unwrap();
    let removed = (FileAction::REMOVED, "old".to_owned());
    assert_eq!(changes(&directories, id), [removed]);
    let id = watch(&directories, Filter::DIR_NAME);
    other.mkdir("new").unwrap();
    let added = (FileAction::ADDED, "new".to_owned());
    assert_eq!(changes(&directories, id), [added]);
    let mut connection = tree.client().connection();
    assert!(!connection.answered(of_files, MEANWHILE).unwrap());
}

/// [MS-FSA] 2.1.4.1: changes of the watched directory itself are those of the one above; smb2.notify.basedir.
#[test]
fn the_watched_directory_is_not_reported_to_its_own_watcher() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.mkdir("d").unwrap();
    other.write_file("d\\f", b"x").unwrap();
    let directory = tree.create(&CreateArgs::directory("d")).unwrap();
    let above = root(&tree);
    let filter = Filter::ATTRIBUTES | Filter::CREATION | Filter::LAST_WRITE;
    let id = watch(&directory, filter);
    let id_above = watch(&above, filter);
    let hide = |name: &str| {
        let file = open(&other, name);
        let information = FileBasicInformation {
            file_attributes: FileAttributes::HIDDEN,
            ..FileBasicInformation::default()
        };
        set_basic(&file, &information);
        file.close().unwrap();
    };
    hide("d");
    let modified = |name: &str| (FileAction::MODIFIED, name.to_owned());
    assert_eq!(changes(&above, id_above)[0], modified("d"));
    let mut connection = tree.client().connection();
    assert!(!connection.answered(id, MEANWHILE).unwrap());
    drop(connection);
    hide("d\\f");
    assert_eq!(changes(&directory, id)[0], modified("f"));
}

/// [MS-FSA] 2.1.5.3, 2.1.5.12: an open, a read and a query change nothing.
#[test]
fn opening_reading_and_querying_is_not_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("f", b"x").unwrap();
    let root = root(&tree);
    let all = Filter(0xfff).without(Filter::LAST_ACCESS);
    let id = watch(&root, all);
    let file = other.create(&CreateArgs::open("f")).unwrap();
    file.read_all().unwrap();
    file.query(Class::ALL).unwrap();
    file.flush(false).unwrap();
    file.close().unwrap();
    let mut connection = tree.client().connection();
    assert!(!connection.answered(id, MEANWHILE).unwrap());
}

/// [MS-SMB2] 3.3.5.19: a filter without any bit waits for nothing but its end, and undefined flags change nothing.
#[test]
fn a_filter_of_nothing_waits_until_it_is_cancelled() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let (blind, seeing) = (root(&tree), root(&tree));
    let nothing = watch(&blind, Filter::empty());
    let flags = ChangeNotifyFlags(0xfffe);
    let names = seeing.notify(Filter::FILE_NAME, flags, 65_536).unwrap();
    assert!(tree.client().wait_pending(names).unwrap().is_some());
    other.mkdir("d").unwrap();
    other.write_file("d\\below", b"").unwrap();
    other.write_file("f", b"").unwrap();
    let seen = changes(&seeing, names);
    assert_eq!(seen, [(FileAction::ADDED, "f".to_owned())]);
    let mut connection = tree.client().connection();
    assert!(!connection.answered(nothing, MEANWHILE).unwrap());
    connection.cancel(nothing, tree.session().id()).unwrap();
    let end = connection.wait(nothing).unwrap().status();
    assert_eq!(end, Status::CANCELLED);
}
