//! CANCEL ([MS-SMB2] 3.3.5.16).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE};
use smb_wire::Status;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{AsyncId, MessageId, SessionId};
use smb_wire::msg::{
    CancelRequest, ChangeNotifyFlags, EchoRequest, LockElement, LockFlags, NotifyFilter,
};

fn watch(tree: &Tree) -> (File, MessageId) {
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let id = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    tree.client().wait_pending(id).unwrap().unwrap();
    (root, id)
}

#[test]
fn a_waiting_notification_is_cancelled() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (root, id) = watch(&tree);
    let session = tree.session().id();
    tree.client().connection().cancel(id, session).unwrap();
    assert_eq!(tree.client().wait(id).unwrap().status(), Status::CANCELLED);
    // The handle still works.
    let again = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    tree.write_file("new", b"").unwrap();
    tree.client().wait(again).unwrap().ok().unwrap();
}

#[test]
fn a_waiting_lock_is_cancelled_and_leaves_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", &[0; 20]).unwrap();
    let (holder, waiter) = (
        tree.create(&CreateArgs::open("f")).unwrap(),
        tree.create(&CreateArgs::open("f")).unwrap(),
    );
    let now = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    holder.lock(0, 10, now).unwrap();
    let element = LockElement {
        offset: 0,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    let id = tree.send(waiter.lock_request(0, &[element])).unwrap();
    tree.client().wait_pending(id).unwrap().unwrap();
    let session = tree.session().id();
    tree.client().connection().cancel(id, session).unwrap();
    assert_eq!(tree.client().wait(id).unwrap().status(), Status::CANCELLED);
    holder.unlock(0, 10).unwrap();
    holder.lock(0, 10, now).unwrap();
}

#[test]
fn a_cancel_of_an_unknown_request_is_ignored_without_an_answer() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (_root, id) = watch(&tree);
    let session = tree.session().id();
    let mut connection = tree.client().connection();
    for (message_id, async_id) in [
        (MessageId(0x7777), None),
        (MessageId(0), Some(AsyncId(0x7777))),
        (MessageId(0), Some(AsyncId(0))),
        (MessageId(0), Some(AsyncId(u64::MAX))),
    ] {
        let mut request = Request::new(&CancelRequest)
            .session(session)
            .overriding(|o| o.message_id = Some(message_id));
        request.async_id = async_id;
        connection.send(request).unwrap();
    }
    // Ids and credits have not changed.
    for _ in 0..3 {
        connection
            .call(Request::new(&EchoRequest))
            .unwrap()
            .ok()
            .unwrap();
    }
    assert!(!connection.answered(id, MEANWHILE).unwrap());
}

#[test]
fn another_connection_cannot_cancel() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let (_root, id) = watch(&tree);
    let async_id = tree.client().wait_pending(id).unwrap();
    let mut request = Request::new(&CancelRequest)
        .session(other.session().id())
        .overriding(|o| o.message_id = Some(id));
    request.async_id = async_id;
    other.client().send(request).unwrap();
    other.client().echo().unwrap();
    let mut connection = tree.client().connection();
    assert!(!connection.answered(id, MEANWHILE).unwrap());
}

#[test]
fn a_second_cancel_is_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (_root, id) = watch(&tree);
    let session = tree.session().id();
    let mut connection = tree.client().connection();
    connection.cancel(id, session).unwrap();
    connection.cancel(id, session).unwrap();
    assert_eq!(connection.wait(id).unwrap().status(), Status::CANCELLED);
    connection.echo().unwrap();
}

/// [MS-SMB2] 3.3.5.16: without SMB2_FLAGS_ASYNC_COMMAND the MessageId finds a request that has an AsyncId by now.
#[test]
fn a_pending_request_is_cancelled_by_its_message_id() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (_root, id) = watch(&tree);
    let request = Request::new(&CancelRequest).session(tree.session().id());
    let request = request.overriding(|o| o.message_id = Some(id));
    tree.client().send(request).unwrap();
    assert_eq!(tree.client().wait(id).unwrap().status(), Status::CANCELLED);
}

/// [MS-SMB2] 3.3.5.16: with SMB2_FLAGS_ASYNC_COMMAND the AsyncId alone counts.
#[test]
fn an_asynchronous_id_is_looked_up_and_the_message_id_beside_it_is_not() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (_one, first) = watch(&tree);
    let (_two, second) = watch(&tree);
    let request = Request::new(&CancelRequest).session(tree.session().id());
    let mut request = request.overriding(|o| o.message_id = Some(first));
    request.async_id = tree.client().wait_pending(second).unwrap();
    let mut connection = tree.client().connection();
    connection.send(request).unwrap();
    assert_eq!(connection.wait(second).unwrap().status(), Status::CANCELLED);
    assert!(!connection.answered(first, MEANWHILE).unwrap());
}

/// [MS-SMB2] 3.3.5.2.4, 3.3.5.16: the signature and the session of a signed CANCEL are verified.
#[test]
fn a_cancel_with_a_wrong_signature_or_session_cancels_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (_root, id) = watch(&tree);
    let async_id = tree.client().wait_pending(id).unwrap();
    let session = tree.session().id();
    let mut connection = tree.client().connection();
    // It may be answered.
    connection.core_mut().tolerate();
    let cancel = |session| {
        let request = Request::new(&CancelRequest).session(session);
        request.overriding(|o| o.message_id = Some(MessageId(0x7777)))
    };
    let forged = cancel(session).overriding(|o| {
        o.sign = Some(true);
        o.corrupt_signature = true;
    });
    let strange = cancel(SessionId(0x7777)).flag(HeaderFlags::SIGNED);
    for mut request in [forged, strange] {
        request.async_id = async_id;
        connection.send(request).unwrap();
        assert!(!connection.answered(id, MEANWHILE).unwrap());
    }
    connection.cancel(id, session).unwrap();
    assert_eq!(connection.wait(id).unwrap().status(), Status::CANCELLED);
}
