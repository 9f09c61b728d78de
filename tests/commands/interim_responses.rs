//! The identifiers of requests that are answered later ([MS-SMB2] 3.3.4.2, 3.3.4.3, 3.3.4.4).

use smb_client::{CreateArgs, File, Reply};
use smb_tests::HoldfastServer;
use smb_wire::Status;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{AsyncId, MessageId};
use smb_wire::msg::{ChangeNotifyFlags, NotifyFilter};

fn watch(directory: &File) -> (MessageId, AsyncId) {
    let names = NotifyFilter::FILE_NAME;
    let id = directory.notify(names, ChangeNotifyFlags::empty(), 4096);
    let id = id.unwrap();
    let pending = directory.tree().client().wait_pending(id).unwrap();
    (id, pending.expect("answered at once"))
}

#[track_caller]
fn assert_is_the_final_response(reply: &Reply, asked: (MessageId, AsyncId)) {
    let header = &reply.header;
    let flags = HeaderFlags::RESPONSE | HeaderFlags::ASYNC;
    assert!(header.flags.contains(flags), "{}", header.flags);
    assert_eq!(
        (header.message_id, header.async_id),
        (asked.0, Some(asked.1))
    );
    assert_eq!((header.credits, header.next_command), (0, 0));
}

/// [MS-SMB2] 3.3.4.2: the identifiers of a connection are not zero, and differ.
#[test]
fn requests_that_wait_have_identifiers_of_their_own() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let mut ids: Vec<_> = (0..8).map(|_| watch(&root).1).collect();
    assert!(!ids.contains(&AsyncId(0)));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

/// [MS-SMB2] 3.3.4.3: the final response repeats the identifier of the interim response.
#[test]
fn a_success_has_the_identifier_of_its_interim_response() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let asked = watch(&root);
    server.tree().write_file("f", b"").unwrap();
    let reply = tree.client().wait(asked.0).unwrap();
    assert_eq!(reply.status(), Status::SUCCESS);
    assert_is_the_final_response(&reply, asked);
}

/// [MS-SMB2] 3.3.4.4, 3.3.5.10, 3.3.5.16: an error repeats it too.
#[test]
fn an_error_has_the_identifier_of_its_interim_response() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let asked = watch(&root);
    let session = tree.session().id();
    tree.client().connection().cancel(asked.0, session).unwrap();
    let reply = tree.client().wait(asked.0).unwrap();
    assert_eq!(reply.status(), Status::CANCELLED);
    assert_is_the_final_response(&reply, asked);
    let asked = watch(&root);
    root.close().unwrap();
    let reply = tree.client().wait(asked.0).unwrap();
    assert_eq!(reply.status(), Status::NOTIFY_CLEANUP);
    assert_is_the_final_response(&reply, asked);
}
