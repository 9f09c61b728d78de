//! CLOSE ([MS-SMB2] 3.3.5.10).

use smb_client::{CreateArgs, File, Login, Options, Request, Signing};
use smb_tests::{HoldfastServer, PASSWORD, USER, status};
use smb_wire::Status;
use smb_wire::ids::{FileId, FileTime, Guid};
use smb_wire::msg::{ChangeNotifyFlags, CloseFlags, CloseResponse, CreateOptions, NotifyFilter};

#[test]
fn attributes_are_returned_only_on_request() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[1; 5000]).unwrap();
    let told = file.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
    assert_eq!(told.flags, CloseFlags::POSTQUERY_ATTRIB);
    assert_eq!(told.facts.end_of_file, 5000);
    assert!(told.facts.allocation_size >= 5000);
    assert_ne!(told.facts.creation_time, FileTime::ZERO);
    assert_ne!(told.facts.file_attributes.bits(), 0);
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let silent = file.close_with(CloseFlags::empty()).unwrap();
    assert_eq!(silent, CloseResponse::default());
}

#[test]
fn a_handle_is_closed_once() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.close().unwrap();
    assert_eq!(status(file.close()), Status::FILE_CLOSED);
    assert_eq!(status(file.read(0, 1)), Status::FILE_CLOSED);
    assert_eq!(status(file.flush(false)), Status::FILE_CLOSED);
}

#[test]
fn both_halves_of_the_handle_are_checked() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let id = file.id();
    let half = |persistent, volatile| FileId {
        persistent,
        volatile,
    };
    for wrong in [
        half(id.persistent ^ 1, id.volatile),
        half(id.persistent, id.volatile ^ 1),
        half(0, 0),
        FileId::ANY,
    ] {
        let request = Request::close(wrong);
        assert_eq!(status(tree.call(request)), Status::FILE_CLOSED, "{wrong:?}");
    }
    file.close().unwrap();
}

#[test]
fn deletion_happens_when_the_last_handle_closes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let doomed = tree
        .create(&CreateArgs::create("f").options(CreateOptions::DELETE_ON_CLOSE))
        .unwrap();
    let other = tree.create(&CreateArgs::open("f")).unwrap();
    doomed.close().unwrap();
    assert_eq!(
        status(tree.create(&CreateArgs::open("f"))),
        Status::DELETE_PENDING
    );
    other.write_all(0, b"still usable").unwrap();
    other.close().unwrap();
    assert_eq!(
        status(tree.create(&CreateArgs::open("f"))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    assert!(!server.path("f").exists());
}

#[test]
fn pending_notifications_end() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let watch = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    tree.client().wait_pending(watch).unwrap().unwrap();
    root.close().unwrap();
    let end = tree.client().wait(watch).unwrap();
    assert_eq!(end.status(), Status::NOTIFY_CLEANUP);
}

/// [MS-SMB2] 3.3.5.10: the requests that wait for changes end with the handle, on each connection of the session.
#[test]
fn pending_notifications_of_other_channels_end() {
    let server = HoldfastServer::new();
    let options = || {
        let options = Options::default().signing(Signing::Required);
        options.guid(Guid([3; 16]))
    };
    let tree = server.tree_with(options());
    let login = Login::user(USER, PASSWORD, "");
    let second = server.client(options());
    let second = second.bind(tree.session().secret().unwrap(), &login);
    let through = second.unwrap().tree_of(tree.id(), *tree.info());
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let waits = |root: &File| {
        let names = NotifyFilter::FILE_NAME;
        let id = root.notify(names, ChangeNotifyFlags::empty(), 4096);
        let id = id.unwrap();
        let pending = root.tree().client().wait_pending(id).unwrap();
        assert!(pending.is_some());
        id
    };
    let (here, there) = (waits(&root), waits(&root.through(&through)));
    root.close().unwrap();
    for (on, id) in [(&tree, here), (&through, there)] {
        let end = on.client().wait(id).unwrap().status();
        assert_eq!(end, Status::NOTIFY_CLEANUP);
    }
}
