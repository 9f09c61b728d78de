//! The opens that outlive the loss of their connection ([MS-SMB2] 3.3.7.1, 3.3.5.6), and those that do not: by their
//! caching at that moment, and by the event that disconnected them.

use std::time::Duration;

use smb_client::{CreateArgs, File, Login, Tree};
use smb_tests::durable::{v1, v1_again, v2, v2_again};
use smb_tests::{DATA, HoldfastServer, PASSWORD, SOON, USER, cut, status};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::FileInformationClass;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, Guid, MessageId};
use smb_wire::msg::{CreateOptions, LockFlags, OplockLevel, QueryDirectoryFlags, ShareAccess};

use super::durable_reconnect::{
    CREATE_GUID, EXCLUSIVE, KEY, Lost, RH, RWH, batch, leased, modern, other,
};

const R: LeaseState = LeaseState::READ;

#[test]
fn an_open_that_is_not_durable_ends_with_its_connection() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree
        .create(&batch("f").share(ShareAccess::empty()))
        .unwrap();
    let id = file.id();
    server.lose(&tree);
    let tree = modern(&server);
    let again = tree.create(&v2_again(batch("f"), id, CREATE_GUID));
    assert_eq!(status(again), Status::OBJECT_NAME_NOT_FOUND);
    let again = tree.create(&v1_again(batch("f"), id));
    assert_eq!(status(again), Status::OBJECT_NAME_NOT_FOUND);
    tree.create(&CreateArgs::open("f")).unwrap();
}

#[test]
fn a_logoff_preserves_a_durable_open() {
    // 3.3.5.6: a durable open is detached from its session, and its timer starts.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    file.write_all(0, b"kept").unwrap();
    tree.session().logoff().unwrap();
    let session = tree.client().login(USER, PASSWORD, "").unwrap();
    let tree = session.tree(DATA).unwrap();
    let again = v2_again(batch("f"), file.id(), CREATE_GUID);
    assert_eq!(tree.create(&again).unwrap().read_all().unwrap(), b"kept");
}

#[test]
fn a_failed_reauthentication_closes_a_durable_open() {
    // 3.3.5.5.3, unlike 3.3.5.6.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    let refused = tree
        .session()
        .reauthenticate(&Login::user(USER, "wrong", ""));
    assert_eq!(status(refused), Status::LOGON_FAILURE);
    let session = tree.client().login(USER, PASSWORD, "").unwrap();
    let tree = session.tree(DATA).unwrap();
    let again = v2_again(batch("f"), file.id(), CREATE_GUID);
    assert_eq!(status(tree.create(&again)), Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn a_tree_disconnect_closes_a_durable_open() {
    // 3.3.5.8
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    tree.disconnect().unwrap();
    let tree = tree.session().tree(DATA).unwrap();
    let again = v2_again(batch("f"), file.id(), CREATE_GUID);
    assert_eq!(status(tree.create(&again)), Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn a_session_that_replaces_the_old_one_can_reconnect() {
    // 3.3.5.5.3 with PreviousSessionId: the old session ends as at the loss of its connection.
    for args in [batch("f"), leased("f", RWH)] {
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let file = tree.create(&v2(args.clone(), CREATE_GUID, 0)).unwrap();
        file.write_all(0, b"kept").unwrap();
        let client = server.client(tree.client().options().clone());
        let login = Login::user(USER, PASSWORD, "").replacing(tree.session().id());
        let after = client.login_with(&login).unwrap().tree(DATA).unwrap();
        let again = v2_again(args, file.id(), CREATE_GUID);
        assert_eq!(after.create(&again).unwrap().read_all().unwrap(), b"kept");
        assert_eq!(status(file.read(0, 1)), Status::USER_SESSION_DELETED);
    }
}

/// A durable open of `f` that is being broken by another client's open.
struct Breaking {
    tree: Tree,
    file: File,
    stranger: Tree,
    waits: MessageId,
}

impl Breaking {
    fn new(server: &HoldfastServer, args: CreateArgs) -> Self {
        let (tree, stranger) = (modern(server), other(server));
        let file = tree.create(&v2(args, CREATE_GUID, 0)).unwrap();
        let waits = stranger.send(CreateArgs::open("f").request()).unwrap();
        assert!(tree.client().next_break(SOON).unwrap().is_some());
        Self {
            tree,
            file,
            stranger,
            waits,
        }
    }

    /// Asserts that the other client's open succeeds now.
    fn ended(&self) {
        let client = self.stranger.client();
        client.wait(self.waits).unwrap().ok().unwrap();
    }

    fn lose(&self, server: HoldfastServer) -> Lost {
        server.lose(&self.tree);
        let id = self.file.id();
        Lost { server, id }
    }
}

#[test]
fn an_open_whose_oplock_is_breaking_is_not_preserved() {
    // 3.3.7.1: OplockState must be Held.
    let server = HoldfastServer::new();
    let breaking = Breaking::new(&server, batch("f"));
    let lost = breaking.lose(server);
    // Nobody waits for its acknowledgment any more.
    breaking.ended();
    lost.assert_gone(batch("f"));
}

#[test]
fn an_open_whose_lease_is_breaking_is_not_preserved() {
    let server = HoldfastServer::new();
    let breaking = Breaking::new(&server, leased("f", RWH));
    let lost = breaking.lose(server);
    breaking.ended();
    lost.assert_gone(leased("f", RWH));
}

#[test]
fn an_open_that_lost_its_batch_oplock_is_not_preserved() {
    let server = HoldfastServer::new();
    let breaking = Breaking::new(&server, batch("f"));
    let level = OplockLevel::II;
    breaking.file.acknowledge_oplock(level).unwrap();
    breaking.ended();
    breaking.lose(server).assert_gone(batch("f"));
}

#[test]
fn an_open_that_still_caches_its_handle_is_preserved() {
    // RWH was broken to RH while the client was connected.
    let server = HoldfastServer::new();
    let breaking = Breaking::new(&server, leased("f", RWH));
    breaking.tree.acknowledge_lease(KEY, RH).unwrap();
    breaking.ended();
    let file = breaking.lose(server).back(leased("f", RWH));
    assert_eq!(file.created().lease().unwrap().lease_state, RH);
}

#[test]
fn the_loss_of_one_of_two_channels_changes_nothing() {
    // 3.3.7.1: the session has another channel.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let options = tree.client().options().clone();
    let secret = tree.session().secret().unwrap();
    let second = server.client(options);
    let second = second
        .bind(secret, &Login::user(USER, PASSWORD, ""))
        .unwrap();
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 200)).unwrap();
    let through = file.through(&second.tree_of(tree.id(), *tree.info()));
    smb_tests::cut(tree.client());
    std::thread::sleep(Duration::from_millis(600));
    through.write_all(0, b"still open").unwrap();
    assert_eq!(through.read_all().unwrap(), b"still open");
}

#[test]
fn a_pending_lock_ends_with_the_connection_although_the_open_is_preserved() {
    // 3.3.7.1: all requests of the connection are cancelled.
    let server = HoldfastServer::new();
    let (tree, stranger) = (modern(&server), other(&server));
    let theirs = stranger.create(&CreateArgs::open_if("f")).unwrap();
    theirs.lock(0, 10, EXCLUSIVE).unwrap();
    let args = leased("f", RH);
    let file = tree.create(&v2(args.clone(), CREATE_GUID, 0)).unwrap();
    let element = smb_wire::msg::LockElement {
        offset: 0,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    let id = tree.send(file.lock_request(0, &[element])).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    server.lose(&tree);
    theirs.unlock(0, 10).unwrap();
    // Nobody was granted the lock since. A lock request to find out would break the lease ([MS-FSA]
    // 2.1.5.8), and thereby close the open.
    assert_eq!(status(theirs.read(0, 10)), Status::END_OF_FILE);
    let tree = modern(&server);
    tree.create(&v2_again(args, file.id(), CREATE_GUID))
        .unwrap();
}

#[test]
fn an_open_with_read_caching_only_is_not_preserved() {
    // 3.3.7.1 with a lease broken to R while connected.
    let server = HoldfastServer::new();
    let (tree, stranger) = (modern(&server), other(&server));
    let args = leased("f", RH);
    let file = tree.create(&v2(args, CREATE_GUID, 0)).unwrap();
    let alone = CreateArgs::open("f").share(ShareAccess::empty());
    let id = stranger.send(alone.request()).unwrap();
    assert!(tree.client().next_break(SOON).unwrap().is_some());
    tree.acknowledge_lease(KEY, R).unwrap();
    let refused = stranger.client().wait(id).unwrap();
    assert_eq!(refused.status(), Status::SHARING_VIOLATION);
    let lost = Lost {
        id: file.id(),
        server,
    };
    lost.server.lose(&tree);
    lost.assert_gone(leased("f", RH));
}

/// Creates a durable open on a connection that ends behind requests that the server has not
/// received yet, and connects the same client again, on a connection that another worker serves.
fn left_behind(server: &HoldfastServer, args: &CreateArgs) -> (FileId, Tree) {
    let (tree, next) = (modern(server), modern(server));
    let file = tree.create(args).unwrap();
    let folder = tree.create(&CreateArgs::directory("")).unwrap();
    for _ in 0..60 {
        let class = FileInformationClass::ID_BOTH_DIRECTORY;
        let restart = QueryDirectoryFlags::RESTART_SCANS;
        let list = smb_client::Request::query_directory(folder.id(), class, "*", restart, 65_536);
        tree.send(list).unwrap();
    }
    cut(tree.client());
    (file.id(), next)
}

#[test]
fn a_client_that_reconnects_immediately_finds_its_open() {
    // 3.3.7.1: the loss of the connection is processed before later requests.
    let server = HoldfastServer::new();
    for n in 1..100u8 {
        let name = format!("names {n}");
        server.tree().write_file(&name, b"").unwrap();
    }
    for n in 1..=20u8 {
        let (args, guid) = (batch(&format!("f{n}")), Guid([n; 16]));
        let (id, next) = left_behind(&server, &v2(args.clone(), guid, 0));
        let back = next.create(&v2_again(args, id, guid)).unwrap();
        assert_eq!(back.id().persistent, id.persistent, "round {n}");
        let args = batch(&format!("g{n}"));
        let (id, next) = left_behind(&server, &v1(args.clone()));
        let back = next.create(&v1_again(args, id)).unwrap();
        assert_eq!(back.id().persistent, id.persistent, "round {n}");
    }
}

#[test]
fn a_client_that_reconnects_immediately_can_replay_its_create() {
    let server = HoldfastServer::new();
    for n in 1..=20u8 {
        let name = format!("f{n}");
        let args = CreateArgs::create(&name).oplock(OplockLevel::BATCH);
        let args = v2(args, Guid([n; 16]), 0);
        let (id, next) = left_behind(&server, &args);
        let again = args.request().flag(HeaderFlags::REPLAY);
        let back = next.file(&next.call(again).unwrap()).unwrap();
        assert_eq!(back.id().persistent, id.persistent, "round {n}");
        // An open that is not preserved is closed by then, so the CREATE is executed again.
        let args = v2(CreateArgs::open_if("plain"), Guid([n; 16]), 0);
        back.close().unwrap();
        let (id, next) = left_behind(&server, &args);
        let again = args.request().flag(HeaderFlags::REPLAY);
        let anew = next.file(&next.call(again).unwrap()).unwrap();
        assert_ne!(anew.id().persistent, id.persistent, "round {n}");
        anew.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.9.7, 3.3.5.9.12: the name of a leased file that is to be deleted is not compared, and the path of a
/// reconnect is not validated.
#[test]
fn a_leased_open_that_deletes_its_file_is_reconnected_by_any_name() {
    for (version_1, name) in [
        (true, "g"),
        (false, "g"),
        (true, r"\g"),
        (false, r"\g"),
        (true, r"..\g"),
        (false, r"..\g"),
    ] {
        let deleting = leased("f", RWH).options(CreateOptions::DELETE_ON_CLOSE);
        let lost = Lost::new(deleting);
        let tree = modern(&lost.server);
        let again = match version_1 {
            true => v1_again(leased(name, RWH), lost.id),
            false => v2_again(leased(name, RWH), lost.id, CREATE_GUID),
        };
        let file = tree.create(&again).unwrap();
        assert_eq!(file.read_all().unwrap(), b"before");
        file.close().unwrap();
        assert!(!lost.server.path("f").exists() && !lost.server.path("g").exists());
    }
}

/// [MS-SMB2] 3.3.5.9: only a CREATE with a request of version 2 is a replay; a reconnect with the flag is a reconnect.
#[test]
fn a_reconnect_with_the_replay_flag_is_a_reconnect() {
    for args in [batch("f"), leased("f", RH)] {
        let lost = Lost::new(args.clone());
        let tree = modern(&lost.server);
        let again = lost.again(args).request().flag(HeaderFlags::REPLAY);
        let reply = tree.call(again).unwrap();
        let file = tree.file(&reply).unwrap();
        assert_eq!(file.id().persistent, lost.id.persistent);
        assert_eq!(file.read_all().unwrap(), b"before");
    }
}
