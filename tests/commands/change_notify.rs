//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19, [MS-FSA] 2.1.5.11).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Reply, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    FileAction, FileBasicInformation, FileInformationClass, FileLinkInformation, FileNotifyEntry,
};
use smb_wire::ids::{FileId, MessageId};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CreateDisposition, CreateOptions, NotifyFilter,
};

const NAMES: NotifyFilter = NotifyFilter(NotifyFilter::FILE_NAME.0 | NotifyFilter::DIR_NAME.0);

fn watch(directory: &File, filter: NotifyFilter, flags: ChangeNotifyFlags) -> MessageId {
    let id = directory.notify(filter, flags, 65_536).unwrap();
    let pending = directory.tree().client().wait_pending(id).unwrap();
    assert!(pending.is_some(), "answered at once");
    id
}

fn changes(directory: &File, id: MessageId) -> Vec<(FileAction, String)> {
    let reply = directory.tree().client().wait(id).unwrap();
    let list: Vec<FileNotifyEntry> = directory.changes(reply).unwrap();
    list.into_iter().map(|e| (e.action, e.file_name)).collect()
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::directory(name)).unwrap()
}

#[test]
fn created_and_deleted_names_are_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.write_file("new", b"").unwrap();
    assert_eq!(changes(&root, id)[0], (FileAction::ADDED, "new".into()));
    let id = root
        .notify(NAMES, ChangeNotifyFlags::empty(), 65_536)
        .unwrap();
    other.delete("new").unwrap();
    assert_eq!(changes(&root, id)[0], (FileAction::REMOVED, "new".into()));
    let id = root
        .notify(NAMES, ChangeNotifyFlags::empty(), 65_536)
        .unwrap();
    other.mkdir("sub").unwrap();
    assert_eq!(changes(&root, id)[0], (FileAction::ADDED, "sub".into()));
}

#[test]
fn a_rename_reports_both_names() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("old", b"").unwrap();
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.rename("old", "new", false).unwrap();
    let mut seen = changes(&root, id);
    if seen.len() < 2 {
        let id = root
            .notify(NAMES, ChangeNotifyFlags::empty(), 65_536)
            .unwrap();
        seen.extend(changes(&root, id));
    }
    assert_eq!(
        seen,
        [
            (FileAction::RENAMED_OLD_NAME, "old".to_owned()),
            (FileAction::RENAMED_NEW_NAME, "new".to_owned())
        ]
    );
}

/// A server with a share `all`, and a share `one` of the folder `d` in it.
pub(crate) fn one_in_all() -> (tempfile::TempDir, HoldfastServer, [Tree; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("d");
    std::fs::create_dir(&below).unwrap();
    let table = |name, path: &std::path::Path| {
        let path = path.display();
        format!("[[share]]\nname = \"{name}\"\npath = \"{path}\"\n")
    };
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: table("all", folder.path()) + &table("one", &below),
        ..smb_tests::Options::default()
    });
    let tree = |name| {
        let session = server.session(smb_client::Options::default());
        session.tree(name).unwrap()
    };
    let trees = [tree("all"), tree("one")];
    (folder, server, trees)
}

/// [MS-FSA] 2.1.4.1: a watcher is one of a directory, by whatever path that is reached.
#[test]
fn changes_through_another_share_are_reported() {
    let (_folder, _server, [all, one]) = one_in_all();
    let seen = |of: &Tree, name: &str, by: &dyn Fn()| {
        let directory = open(of, name);
        let filter = NAMES | NotifyFilter::SIZE | NotifyFilter::STREAM_NAME;
        let id = watch(&directory, filter, ChangeNotifyFlags::empty());
        by();
        changes(&directory, id)
    };
    let added = seen(&all, "d", &|| one.write_file("f", b"").unwrap());
    assert_eq!(added, [(FileAction::ADDED, "f".to_owned())]);
    let written = seen(&all, "d", &|| {
        let file = one.create(&CreateArgs::open("f")).unwrap();
        file.write_all(0, b"content").unwrap();
        file.close().unwrap();
    });
    assert_eq!(written, [(FileAction::MODIFIED, "f".to_owned())]);
    let streamed = seen(&all, "d", &|| one.write_file("f:s", b"").unwrap());
    assert_eq!(streamed, [(FileAction::ADDED_STREAM, "f:s".to_owned())]);
    let gone = seen(&all, "d", &|| one.delete("f:s").unwrap());
    assert_eq!(gone, [(FileAction::REMOVED_STREAM, "f:s".to_owned())]);
    let renamed = seen(&one, "", &|| all.rename("d\\f", "d\\g", false).unwrap());
    assert_eq!(
        renamed,
        [
            (FileAction::RENAMED_OLD_NAME, "f".to_owned()),
            (FileAction::RENAMED_NEW_NAME, "g".to_owned())
        ]
    );
    let removed = seen(&one, "", &|| all.delete("d\\g").unwrap());
    assert_eq!(removed, [(FileAction::REMOVED, "g".to_owned())]);
}

/// That holds for the whole tree below the directory.
#[test]
fn changes_below_a_directory_through_another_share_are_reported() {
    let (_folder, _server, [all, one]) = one_in_all();
    one.mkdir("e").unwrap();
    let seen = |of: &Tree, by: &dyn Fn()| {
        let root = open(of, "");
        let id = watch(&root, NAMES, ChangeNotifyFlags::WATCH_TREE);
        by();
        changes(&root, id)
    };
    let added = |name: &str| [(FileAction::ADDED, name.to_owned())];
    let above = seen(&all, &|| one.write_file("e\\f", b"").unwrap());
    assert_eq!(above, added("d\\e\\f"));
    let near = seen(&all, &|| one.write_file("g", b"").unwrap());
    assert_eq!(near, added("d\\g"));
    let below = seen(&one, &|| all.write_file("d\\e\\h", b"").unwrap());
    assert_eq!(below, added("e\\h"));
}

/// [MS-FSA] 2.1.4.1 compares the directories, and another one has the path of the watched one by now.
#[test]
fn a_directory_that_left_its_share_is_watched_where_it_is() {
    let (_folder, _server, [all, one]) = one_in_all();
    one.mkdir("e").unwrap();
    let directory = open(&one, "e");
    let id = watch(&directory, NAMES, ChangeNotifyFlags::empty());
    all.rename("d\\e", "out", false).unwrap();
    one.mkdir("e").unwrap();
    one.write_file("e\\f", b"").unwrap();
    all.write_file("out\\g", b"").unwrap();
    let seen = changes(&directory, id);
    assert_eq!(seen, [(FileAction::ADDED, "g".to_owned())]);
}

/// [MS-FSA] 2.1.5.15.12: the name of a replaced file stays, with other contents behind it.
#[test]
fn a_rename_onto_a_name_removes_one_and_modifies_the_other() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for folder in ["here", "there"] {
        other.mkdir(folder).unwrap();
        let target = format!("{folder}\\Target");
        for source in ["here\\source", &target] {
            other.write_file(source, b"").unwrap();
        }
        let root = open(&tree, "");
        let filter = NAMES | NotifyFilter::SIZE;
        let id = watch(&root, filter, ChangeNotifyFlags::WATCH_TREE);
        other.rename("here\\source", &target, true).unwrap();
        assert_eq!(
            changes(&root, id),
            [
                (FileAction::REMOVED, "here\\source".to_owned()),
                (FileAction::MODIFIED, target)
            ]
        );
        root.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.15.7 says the same of a link that replaces one.
#[test]
fn a_link_onto_a_name_modifies_it() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for name in ["source", "target"] {
        other.write_file(name, b"").unwrap();
    }
    let root = open(&tree, "");
    let source = other.create(&CreateArgs::open("source")).unwrap();
    let link = |to: &str| {
        let mut bytes = BytesMut::new();
        FileLinkInformation {
            replace_if_exists: true,
            root_directory: 0,
            file_name: to.to_owned(),
        }
        .encode(&mut bytes);
        source.set(FileInformationClass::LINK, &bytes).unwrap();
    };
    let filter = NAMES | NotifyFilter::SIZE;
    let id = watch(&root, filter, ChangeNotifyFlags::empty());
    link("target");
    assert_eq!(
        changes(&root, id),
        [(FileAction::MODIFIED, "target".into())]
    );
    other.write_file("second", b"").unwrap();
    let root = open(&tree, "");
    let id = watch(&root, filter, ChangeNotifyFlags::empty());
    link("SECOND");
    let removed = (FileAction::REMOVED, "second".to_owned());
    let added = (FileAction::ADDED, "SECOND".to_owned());
    assert_eq!(changes(&root, id), [removed, added]);
}

/// As above: in another letter case the old name goes.
#[test]
fn a_rename_onto_a_name_in_another_case_removes_that_name() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for name in ["source", "target"] {
        other.write_file(name, b"").unwrap();
    }
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.rename("source", "TARGET", true).unwrap();
    assert_eq!(
        changes(&root, id),
        [
            (FileAction::REMOVED, "target".to_owned()),
            (FileAction::RENAMED_OLD_NAME, "source".to_owned()),
            (FileAction::RENAMED_NEW_NAME, "TARGET".to_owned())
        ]
    );
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.rename("TARGET", "Target", false).unwrap();
    assert_eq!(
        changes(&root, id),
        [
            (FileAction::RENAMED_OLD_NAME, "TARGET".to_owned()),
            (FileAction::RENAMED_NEW_NAME, "Target".to_owned())
        ]
    );
}

/// [MS-FSA] 2.1.5.15.12: that holds for another name of the same file as well, which otherwise stays.
#[test]
fn a_rename_onto_the_files_own_name_removes_it_in_another_case_only() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("source", b"").unwrap();
    for name in ["other", "third"] {
        std::fs::hard_link(server.path("source"), server.path(name)).unwrap();
    }
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.rename("source", "OTHER", true).unwrap();
    assert_eq!(
        changes(&root, id),
        [
            (FileAction::REMOVED, "other".to_owned()),
            (FileAction::RENAMED_OLD_NAME, "source".to_owned()),
            (FileAction::RENAMED_NEW_NAME, "OTHER".to_owned())
        ]
    );
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.rename("OTHER", "third", true).unwrap();
    let removed = (FileAction::REMOVED, "OTHER".to_owned());
    assert_eq!(changes(&root, id), [removed]);
}

/// [MS-FSA] 2.1.5.15.2.
#[test]
fn attributes_that_stay_as_they_are_are_not_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for name in ["same", "hidden"] {
        other.write_file(name, b"").unwrap();
    }
    let root = open(&tree, "");
    let id = watch(&root, NotifyFilter::ATTRIBUTES, ChangeNotifyFlags::empty());
    let set = |name, attributes| {
        let info = FileBasicInformation {
            file_attributes: attributes,
            ..FileBasicInformation::default()
        };
        let mut bytes = BytesMut::new();
        info.encode(&mut bytes);
        let file = other.create(&CreateArgs::open(name)).unwrap();
        file.set(FileInformationClass::BASIC, &bytes).unwrap();
    };
    set("same", FileAttributes::ARCHIVE);
    set("hidden", FileAttributes::ARCHIVE | FileAttributes::HIDDEN);
    let hidden = (FileAction::MODIFIED, "hidden".to_owned());
    assert_eq!(changes(&root, id), [hidden]);
}

/// [MS-FSA] 2.1.5.1.2: an overwrite changes the file, even if nothing is written afterwards.
#[test]
fn an_overwrite_is_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for disposition in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        other.write_file("f", b"content").unwrap();
        other.write_file("f:s", b"content").unwrap();
        for (name, filter, expected) in [
            (
                "f:s",
                NotifyFilter::STREAM_SIZE,
                FileAction::MODIFIED_STREAM,
            ),
            ("f", NotifyFilter::SIZE, FileAction::MODIFIED),
        ] {
            let watching = open(&tree, "");
            let id = watch(&watching, filter, ChangeNotifyFlags::empty());
            let args = CreateArgs::open(name).disposition(disposition);
            other.create(&args).unwrap().close().unwrap();
            let seen = changes(&watching, id);
            assert_eq!(seen, [(expected, name.to_owned())], "{disposition:?}");
        }
    }
}

/// [MS-FSA] 2.1.5.5, phase 5.
#[test]
fn a_written_stream_is_reported_as_a_stream() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("f:s", b"content").unwrap();
    let (streams, files) = (open(&tree, ""), open(&tree, ""));
    let of_files = NotifyFilter::SIZE | NotifyFilter::LAST_WRITE | NotifyFilter::ATTRIBUTES;
    let of_file = watch(&files, of_files, ChangeNotifyFlags::empty());
    let filter = NotifyFilter::STREAM_WRITE;
    let id = watch(&streams, filter, ChangeNotifyFlags::empty());
    let stream = other.create(&CreateArgs::open("f:s")).unwrap();
    stream.write_all(0, b"written").unwrap();
    stream.close().unwrap();
    let expected = (FileAction::MODIFIED_STREAM, "f:s".to_owned());
    assert_eq!(changes(&streams, id), [expected]);
    let mut connection = tree.client().connection();
    assert!(!connection.answered(of_file, MEANWHILE).unwrap());
}

#[test]
fn only_changes_of_the_filter_are_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("f", b"x").unwrap();
    let root = open(&tree, "");
    let id = watch(&root, NotifyFilter::DIR_NAME, ChangeNotifyFlags::empty());
    other.write_file("g", b"x").unwrap();
    other.delete("f").unwrap();
    assert!(!tree.client().connection().answered(id, MEANWHILE).unwrap());
    other.mkdir("d").unwrap();
    assert_eq!(changes(&root, id), [(FileAction::ADDED, "d".into())]);
}

#[test]
fn changes_in_subdirectories_are_reported_only_on_request() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.mkdir("d").unwrap();
    let (flat, deep) = (open(&tree, ""), open(&tree, ""));
    let shallow = watch(&flat, NAMES, ChangeNotifyFlags::empty());
    let whole = watch(&deep, NAMES, ChangeNotifyFlags::WATCH_TREE);
    other.write_file("d\\f", b"").unwrap();
    assert_eq!(changes(&deep, whole)[0], (FileAction::ADDED, "d\\f".into()));
    let mut connection = tree.client().connection();
    assert!(!connection.answered(shallow, MEANWHILE).unwrap());
}

#[test]
fn changes_between_two_requests_are_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.write_file("first", b"").unwrap();
    assert_eq!(changes(&root, id)[0].1, "first");
    other.write_file("second", b"").unwrap();
    other.write_file("third", b"").unwrap();
    let id = root
        .notify(NAMES, ChangeNotifyFlags::empty(), 65_536)
        .unwrap();
    let names: Vec<_> = changes(&root, id).into_iter().map(|c| c.1).collect();
    assert_eq!(names, ["second", "third"]);
}

/// [MS-SMB2] 3.3.4.4, 3.3.4.17: the request gets no ERROR response, whose body has 0 where this one has the offset of
/// the buffer.
fn assert_is_an_empty_response(reply: &Reply) {
    let body = reply.message.get(64..).unwrap();
    assert_eq!(body.get(..8).unwrap(), [9, 0, 72, 0, 0, 0, 0, 0]);
}

#[test]
fn a_buffer_that_is_too_small_gives_notify_enum_dir() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let root = open(&tree, "");
    for max in [0, 1, 12] {
        let id = root.notify(NAMES, ChangeNotifyFlags::empty(), max).unwrap();
        tree.client().wait_pending(id).unwrap();
        let name = format!("a-rather-long-name-{max}");
        other.write_file(&name, b"").unwrap();
        let reply = tree.client().wait(id).unwrap();
        assert_eq!(reply.status(), Status::NOTIFY_ENUM_DIR, "{max}");
        assert_is_an_empty_response(&reply);
    }
}

#[test]
fn requests_on_one_handle_are_answered_in_order() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let root = open(&tree, "");
    let first = watch(&root, NAMES, ChangeNotifyFlags::empty());
    let second = watch(&root, NAMES, ChangeNotifyFlags::empty());
    other.write_file("one", b"").unwrap();
    assert_eq!(changes(&root, first)[0].1, "one");
    other.write_file("two", b"").unwrap();
    let seen = changes(&root, second);
    assert_eq!(seen.last().unwrap().1, "two");
}

#[test]
fn invalid_requests_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let ask = |file_id, max| {
        let request = Request::new(&ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: max,
            file_id,
            completion_filter: NAMES,
        });
        status(tree.call(request))
    };
    let max = tree.client().negotiated().max_transact_size;
    for length in [4096, max + 1] {
        assert_eq!(ask(FileId::ANY, length), Status::FILE_CLOSED, "{length}");
    }
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    assert_eq!(ask(file.id(), 4096), Status::INVALID_PARAMETER);
    let blind = CreateArgs::directory("").access(AccessMask::FILE_READ_ATTRIBUTES);
    let blind = tree.create(&blind).unwrap();
    assert_eq!(ask(blind.id(), 4096), Status::ACCESS_DENIED);
    let root = open(&tree, "");
    assert_eq!(ask(root.id(), max + 1), Status::INVALID_PARAMETER);
}

#[test]
fn a_pending_deletion_of_the_directory_is_reported() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.mkdir("d").unwrap();
    let directory = open(&tree, "d");
    let id = watch(&directory, NAMES, ChangeNotifyFlags::empty());
    let doomed = other
        .create(
            &CreateArgs::open("d")
                .access(AccessMask::DELETE)
                .options(CreateOptions::DIRECTORY_FILE),
        )
        .unwrap();
    doomed.set_delete(true).unwrap();
    let end = tree.client().wait(id).unwrap();
    assert_eq!(end.status(), Status::DELETE_PENDING);
}

#[test]
fn changes_on_the_host_are_reported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    std::fs::write(server.path("by-hand"), b"x").unwrap();
    let seen = changes(&root, id);
    assert_eq!(seen[0], (FileAction::ADDED, "by-hand".into()));
}

const FLAT: ChangeNotifyFlags = ChangeNotifyFlags(0);
const TREE: ChangeNotifyFlags = ChangeNotifyFlags::WATCH_TREE;
const ATTRIBUTES: NotifyFilter = NotifyFilter::ATTRIBUTES;

fn next(directory: &File) -> Vec<(FileAction, String)> {
    let id = directory.notify(NAMES, FLAT, 65_536).unwrap();
    changes(directory, id)
}

fn end(tree: &Tree, id: MessageId) -> Status {
    tree.client().wait(id).unwrap().status()
}

/// Opens a directory that is deleted when its handle is closed.
fn delete_on_close(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open(name)
        .access(AccessMask::DELETE)
        .options(CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE);
    tree.create(&args).unwrap()
}

#[test]
fn delete_on_close_completes_the_requests_of_others() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.mkdir("d").unwrap();
    let directory = open(&tree, "d");
    let id = watch(&directory, NAMES, FLAT);
    delete_on_close(&other, "d").close().unwrap();
    assert_eq!(end(&tree, id), Status::DELETE_PENDING);
    // A directory that is not empty is not deleted, and no watcher is notified of a deletion.
    tree.mkdir("full").unwrap();
    tree.write_file("full\\f", b"").unwrap();
    let full = open(&tree, "full");
    let id = watch(&full, NAMES, FLAT);
    delete_on_close(&other, "full").close().unwrap();
    assert!(!tree.client().connection().answered(id, MEANWHILE).unwrap());
    other.write_file("full\\g", b"").unwrap();
    assert_eq!(changes(&full, id), [(FileAction::ADDED, "g".into())]);
}

#[test]
fn a_rename_modifies_the_attributes_of_a_file_but_not_of_a_directory() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("f", b"").unwrap();
    other.mkdir("d").unwrap();
    let root = open(&tree, "");
    let id = watch(&root, ATTRIBUTES, FLAT);
    other.rename("d", "e", false).unwrap();
    assert!(!tree.client().connection().answered(id, MEANWHILE).unwrap());
    other.rename("f", "g", false).unwrap();
    assert_eq!(changes(&root, id), [(FileAction::MODIFIED, "g".into())]);
}

#[test]
fn filter_and_tree_are_those_of_the_first_request() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.mkdir("d").unwrap();
    let root = open(&tree, "");
    let id = watch(&root, NotifyFilter::DIR_NAME, FLAT);
    tree.client()
        .connection()
        .cancel(id, tree.session().id())
        .unwrap();
    assert_eq!(end(&tree, id), Status::CANCELLED);
    let id = watch(&root, NAMES, TREE);
    other.write_file("f", b"").unwrap();
    other.mkdir("d\\below").unwrap();
    assert!(!tree.client().connection().answered(id, MEANWHILE).unwrap());
    other.mkdir("beside").unwrap();
    assert_eq!(changes(&root, id), [(FileAction::ADDED, "beside".into())]);
}

#[test]
fn undefined_bits_are_ignored() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let (some, none) = (open(&tree, ""), open(&tree, ""));
    let with = watch(&some, NotifyFilter(0x8000_0000 | NAMES.0), FLAT);
    let without = watch(&none, NotifyFilter(0x8000_0000), FLAT);
    other.write_file("f", b"").unwrap();
    assert_eq!(changes(&some, with)[0], (FileAction::ADDED, "f".into()));
    // A request without a valid bit is pending until it is cancelled or its handle is closed.
    let mut connection = tree.client().connection();
    assert!(!connection.answered(without, MEANWHILE).unwrap());
    drop(connection);
    none.close().unwrap();
    assert_eq!(end(&tree, without), Status::NOTIFY_CLEANUP);
}

#[test]
fn a_cancelled_request_loses_no_changes() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let root = open(&tree, "");
    let (first, second) = (watch(&root, NAMES, FLAT), watch(&root, NAMES, FLAT));
    let session = tree.session().id();
    tree.client().connection().cancel(first, session).unwrap();
    assert_eq!(end(&tree, first), Status::CANCELLED);
    other.write_file("one", b"").unwrap();
    assert_eq!(changes(&root, second)[0].1, "one");
    other.write_file("two", b"").unwrap();
    assert_eq!(next(&root)[0].1, "two");
}

#[test]
fn every_way_to_end_the_handle_completes_the_request() {
    let server = HoldfastServer::new();
    let wait = || {
        let tree = server.tree();
        let root = open(&tree, "");
        let ids = [(); 3].map(|()| watch(&root, NAMES, TREE));
        (tree, root, ids)
    };
    for what in ["close", "tree disconnect", "logoff"] {
        let (tree, root, ids) = wait();
        match what {
            "close" => root.close().unwrap(),
            "logoff" => tree.session().logoff().unwrap(),
            _ => tree.disconnect().unwrap(),
        }
        for id in ids {
            let reply = tree.client().wait(id).unwrap();
            assert_eq!(reply.status(), Status::NOTIFY_CLEANUP, "{what}");
            assert_is_an_empty_response(&reply);
        }
    }
}

#[test]
fn too_many_changes_between_two_requests_give_notify_enum_dir() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let root = open(&tree, "");
    // Space for a few names; the first request of the handle determines it.
    let id = root.notify(NAMES, FLAT, 100).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    other.write_file("first", b"").unwrap();
    assert_eq!(changes(&root, id)[0].1, "first");
    for at in 0..10 {
        other.write_file(&format!("name-{at}"), b"").unwrap();
    }
    let id = root.notify(NAMES, FLAT, 65_536).unwrap();
    assert_eq!(end(&tree, id), Status::NOTIFY_ENUM_DIR);
    // After it was reported, notifications continue as before.
    other.write_file("last", b"").unwrap();
    assert_eq!(next(&root), [(FileAction::ADDED, "last".into())]);
}

/// Each watcher is notified of the changes below it only, by names relative to its directory.
#[test]
fn watchers_at_every_depth_see_the_changes_below_them() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let folders = ["", "a", "a\\b", "a\\b\\c", "a\\bb", "z"];
    for folder in &folders[1..] {
        other.mkdir(folder).unwrap();
    }
    let flat = folders.map(|folder| (folder, open(&tree, folder)));
    let deep = folders.map(|folder| (folder, open(&tree, folder)));
    let asked = |list: &[(&str, File)], flags| -> Vec<_> {
        list.iter()
            .map(|(_, file)| watch(file, NAMES, flags))
            .collect()
    };
    let (mut shallow, mut whole) = (asked(&flat, FLAT), asked(&deep, TREE));
    for at in folders {
        let file = if at.is_empty() {
            "f".to_owned()
        } else {
            format!("{at}\\f")
        };
        other.write_file(&file, b"").unwrap();
        for (list, ids, tree_too) in [(&flat, &mut shallow, false), (&deep, &mut whole, true)] {
            for ((folder, directory), id) in list.iter().zip(ids.iter_mut()) {
                let below = at == *folder
                    || folder.is_empty()
                    || at
                        .strip_prefix(folder)
                        .is_some_and(|rest| rest.starts_with('\\'));
                if at == *folder || (tree_too && below) {
                    let name = file.strip_prefix(folder).unwrap().trim_start_matches('\\');
                    assert_eq!(changes(directory, *id), [(FileAction::ADDED, name.into())]);
                    let flags = if tree_too { TREE } else { FLAT };
                    *id = watch(directory, NAMES, flags);
                }
            }
        }
    }
    let mut connection = tree.client().connection();
    for id in shallow.into_iter().chain(whole) {
        assert!(
            !connection
                .answered(id, std::time::Duration::from_millis(20))
                .unwrap()
        );
    }
}

/// Needs root: only then does each user have an identity on disk.
#[test]
fn names_below_folders_that_the_user_may_not_traverse_are_not_reported() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    if fs::metadata("/proc/self")
        .map(|meta| std::os::unix::fs::MetadataExt::uid(&meta))
        .ok()
        != Some(0)
    {
        smb_tests::missing("root");
        return;
    }
    let server = HoldfastServer::new();
    server.add_user("carol", "Carol-pw-3", &["--owner", "65534:65534"]);
    fs::set_permissions(server.path(""), Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(
        server.path("").parent().unwrap(),
        Permissions::from_mode(0o755),
    )
    .unwrap();
    for (name, mode) in [("secret", 0o700), ("open", 0o755)] {
        fs::create_dir(server.path(name)).unwrap();
        fs::create_dir(server.path(name).join("sub")).unwrap();
        fs::set_permissions(server.path(name), Permissions::from_mode(mode)).unwrap();
        chown(server.path(name), Some(0), Some(0)).unwrap();
    }
    let client = server.client(smb_client::Options::default());
    let tree = client
        .login("carol", "Carol-pw-3", "")
        .unwrap()
        .tree(smb_tests::DATA)
        .unwrap();
    assert_eq!(
        tree.create_status(&CreateArgs::open("secret\\sub"))
            .unwrap(),
        Status::ACCESS_DENIED
    );
    let root = open(&tree, "");
    let (first, second) = (watch(&root, NAMES, TREE), watch(&root, NAMES, TREE));
    let other = server.tree();
    other.write_file("secret\\sub\\f", b"").unwrap();
    fs::write(server.path("secret/sub/g"), b"").unwrap();
    assert!(
        !tree
            .client()
            .connection()
            .answered(first, MEANWHILE)
            .unwrap()
    );
    // The first request is answered first.
    fs::write(server.path("open/sub/f"), b"").unwrap();
    assert_eq!(
        changes(&root, first),
        [(FileAction::ADDED, "open\\sub\\f".into())]
    );
    assert!(
        !tree
            .client()
            .connection()
            .answered(second, MEANWHILE)
            .unwrap()
    );
    // The folder itself is in a folder that the user may traverse.
    fs::rename(server.path("secret"), server.path("other")).unwrap();
    assert_eq!(changes(&root, second)[0].1, "secret");
}
