//! TREE_DISCONNECT ([MS-SMB2] 3.3.5.8, 3.3.5.2.11).

use smb_client::{Break, CreateArgs, Login, Options, Request, Signing};
use smb_tests::durable::KEY;
use smb_tests::{DATA, HoldfastServer, Outcome, PASSWORD, SOON, USER, outcome, status};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::ids::{Guid, SessionId, TreeId};
use smb_wire::msg::{
    ChangeNotifyFlags, CreateDisposition, LockElement, LockFlags, NotifyFilter, ShareAccess,
    TreeDisconnectRequest, TreeDisconnectResponse,
};

#[test]
fn a_tree_disconnect_closes_the_opens_of_the_tree() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (first, other) = (session.tree(DATA).unwrap(), session.tree(DATA).unwrap());
    let held = CreateArgs::create("held").share(ShareAccess::empty());
    let file = first.create(&held).unwrap();
    assert_eq!(
        status(other.create(&CreateArgs::open("held"))),
        Status::SHARING_VIOLATION
    );
    let reply = first.call(Request::new(&TreeDisconnectRequest)).unwrap();
    TreeDisconnectResponse::read(&reply.message).unwrap();
    assert_eq!(
        status(first.create(&CreateArgs::open("held"))),
        Status::NETWORK_NAME_DELETED
    );
    assert_eq!(status(first.disconnect()), Status::NETWORK_NAME_DELETED);
    other.create(&CreateArgs::open("held")).unwrap();
    assert_eq!(status(file.through(&other).close()), Status::FILE_CLOSED);
}

#[test]
fn a_create_that_waits_ends_with_its_tree_or_session_and_opens_and_empties_nothing() {
    let dispositions = [CreateDisposition::OVERWRITE, CreateDisposition::OPEN];
    for (logoff, disposition) in [false, true]
        .into_iter()
        .flat_map(|logoff| dispositions.map(|disposition| (logoff, disposition)))
    {
        let server = HoldfastServer::new();
        let holder = server.tree_with(Options::default().guid(Guid([1; 16])));
        holder.write_file("f", b"kept").unwrap();
        let leased = CreateArgs::open("f").lease_v2(KEY, LeaseState::RWH, 0);
        let _held = holder.create(&leased).unwrap();
        let tree = server.tree_with(Options::default().guid(Guid([2; 16])));
        let create = CreateArgs::new("f", disposition);
        let waits = tree.send(create.request()).unwrap();
        assert!(tree.client().wait_pending(waits).unwrap().is_some());
        let expected = if logoff {
            tree.session().logoff().unwrap();
            Status::USER_SESSION_DELETED
        } else {
            tree.disconnect().unwrap();
            Status::NETWORK_NAME_DELETED
        };
        let reply = tree.client().wait(waits).unwrap();
        assert_eq!(reply.status(), expected);
        let notified = holder.client().next_break(SOON).unwrap();
        let Some(Break::Lease { key, new, .. }) = notified else {
            panic!("{notified:?}")
        };
        holder.acknowledge_lease(key, new).unwrap();
        assert_eq!(std::fs::read(server.path("f")).unwrap(), b"kept");
    }
}

/// [MS-SMB2] 3.3.4.17: the requests that wait on an open end with it, on each connection of the session.
#[test]
fn a_tree_disconnect_ends_the_waiting_requests_of_other_channels() {
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
    let holder = server.tree();
    let held = holder.create(&CreateArgs::open_if("f")).unwrap();
    held.lock(0, 10, LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY)
        .unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let element = LockElement {
        offset: 0,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    let lock = tree.send(file.lock_request(0, &[element])).unwrap();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let notify = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    for id in [lock, notify] {
        assert!(tree.client().wait_pending(id).unwrap().is_some());
    }
    through.disconnect().unwrap();
    let end = |id| tree.client().wait(id).unwrap().status();
    assert_eq!(end(lock), Status::RANGE_NOT_LOCKED);
    assert_eq!(end(notify), Status::NOTIFY_CLEANUP);
    held.unlock(0, 10).unwrap();
}

#[test]
fn unknown_trees_give_network_name_deleted() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    session.tree(DATA).unwrap();
    for id in [TreeId(0), TreeId(0x7fff_fff0), TreeId::ANY] {
        let request = Request::new(&TreeDisconnectRequest)
            .session(session.id())
            .tree(id);
        assert_eq!(
            outcome(session.client().call(request)),
            Outcome::Answered(Status::NETWORK_NAME_DELETED),
            "{id:?}"
        );
    }
}

#[test]
fn the_session_is_looked_up_first() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let request = Request::new(&TreeDisconnectRequest)
        .session(SessionId(0x99))
        .tree(tree.id());
    assert_eq!(
        outcome(tree.client().call(request)),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
    tree.write_file("f", b"x").unwrap();
}
