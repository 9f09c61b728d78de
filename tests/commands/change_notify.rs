//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19, [MS-FSA] 2.1.5.11).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{FileAction, FileNotifyEntry};
use smb_wire::ids::{FileId, MessageId};
use smb_wire::msg::{ChangeNotifyFlags, ChangeNotifyRequest, CreateOptions, NotifyFilter};

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
fn names_that_come_and_go_are_told() {
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
fn a_rename_tells_both_names() {
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

#[test]
fn only_what_the_filter_names_is_told() {
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
fn changes_below_are_told_only_on_request() {
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
fn what_happens_between_requests_is_kept() {
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

#[test]
fn a_buffer_too_small_means_look_yourself() {
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
    }
}

#[test]
fn several_on_one_handle_are_served_in_turn() {
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
fn refusals() {
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
    assert_eq!(ask(FileId::ANY, 4096), Status::FILE_CLOSED);
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    assert_eq!(ask(file.id(), 4096), Status::INVALID_PARAMETER);
    let blind = CreateArgs::directory("").access(AccessMask::FILE_READ_ATTRIBUTES);
    let blind = tree.create(&blind).unwrap();
    assert_eq!(ask(blind.id(), 4096), Status::ACCESS_DENIED);
    let root = open(&tree, "");
    let max = tree.client().negotiated().max_transact_size;
    assert_eq!(ask(root.id(), max + 1), Status::INVALID_PARAMETER);
}

#[test]
fn a_directory_that_is_to_go_says_so() {
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
fn changes_behind_the_servers_back_are_told() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = open(&tree, "");
    let id = watch(&root, NAMES, ChangeNotifyFlags::empty());
    std::fs::write(server.path("by-hand"), b"x").unwrap();
    let seen = changes(&root, id);
    assert_eq!(seen[0], (FileAction::ADDED, "by-hand".into()));
}
