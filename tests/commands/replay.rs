//! A repeated CREATE ([MS-SMB2] 3.3.5.9 "Create Context Validation", 3.3.5.9.10): the CreateGuid
//! finds the open of the first one, if its response can have been lost.

use smb_client::{Break, ClientError, CreateArgs, File, Login, Options, Request, Session, Tree};
use smb_tests::durable::{CREATE_GUID, KEY, granted_v2, modern, options, v1, v2};
use smb_tests::{
    DATA, HoldfastServer, MEANWHILE, OTHER_PASSWORD, OTHER_USER, PASSWORD, SECOND, SOON, USER, cut,
    status, wait_for_one_break,
};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{
    CreateAction, CreateDisposition, CreateOptions, LockElement, LockFlags, OplockLevel,
    ShareAccess, WriteFlags,
};

const OTHER_GUID: Guid = Guid([0x45; 16]);
const OTHER_KEY: LeaseKey = LeaseKey([0x34; 16]);
const RH: LeaseState = LeaseState(3);
const RWH: LeaseState = LeaseState::RWH;

/// Creates a new file; a second execution would collide.
fn new_file() -> CreateArgs {
    v2(CreateArgs::create("f"), CREATE_GUID, 0)
}

fn batch() -> CreateArgs {
    v2(
        CreateArgs::create("f").oplock(OplockLevel::BATCH),
        CREATE_GUID,
        0,
    )
}

fn leased(key: LeaseKey, state: LeaseState) -> CreateArgs {
    let args = CreateArgs::create("f").lease_v2(key, state, 0);
    v2(args, CREATE_GUID, 0)
}

/// Sends a CREATE as a replay.
fn replay(tree: &Tree, args: &CreateArgs) -> Result<File, ClientError> {
    let reply = tree.call(args.request().flag(HeaderFlags::REPLAY))?;
    tree.file(&reply)
}

/// Asserts that the response is the same as the first one.
fn assert_same(first: &File, again: &File) {
    let (first, again) = (first.created(), again.created());
    assert_eq!(again.file_id, first.file_id);
    assert_eq!(again.oplock_level, first.oplock_level);
    assert_eq!(again.create_action, first.create_action);
    assert_eq!(again.facts.creation_time, first.facts.creation_time);
    assert_eq!(again.facts.file_attributes, first.facts.file_attributes);
    assert_eq!(
        again
            .lease()
            .map(|lease| (lease.lease_key, lease.lease_state)),
        first
            .lease()
            .map(|lease| (lease.lease_key, lease.lease_state))
    );
}

/// Connects another channel of a session.
fn channel(server: &HoldfastServer, session: &Session, tree: &Tree) -> Tree {
    let client = server.client(session.client().options().clone());
    let login = Login::user(USER, PASSWORD, "");
    let bound = client.bind(session.secret().unwrap(), &login).unwrap();
    bound.tree_of(tree.id(), *tree.info())
}

#[test]
fn a_replay_returns_the_same_open() {
    // With an oplock, with a lease, and with neither: opens that can read, write or delete are
    // eligible.
    for args in [new_file(), batch(), leased(KEY, RWH), leased(KEY, RH)] {
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let file = tree.create(&args).unwrap();
        assert_eq!(file.created().create_action, CreateAction::CREATED);
        for _ in 0..3 {
            let again = replay(&tree, &args).unwrap();
            assert_same(&file, &again);
            assert_eq!(granted_v2(&again), granted_v2(&file));
        }
        assert_eq!(server.opens(), 1);
        // A single close closes it.
        file.close().unwrap();
        assert_eq!(status(file.close()), Status::FILE_CLOSED);
    }
}

#[test]
fn a_replay_does_not_execute_the_open_again() {
    // A replayed overwrite does not truncate data that others have written meanwhile.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    tree.write_file("f", b"old").unwrap();
    let args = v2(
        CreateArgs::new("f", CreateDisposition::OVERWRITE),
        CREATE_GUID,
        0,
    );
    let file = tree.create(&args).unwrap();
    let other = server.tree().create(&CreateArgs::open("f")).unwrap();
    other.write_all(0, b"new").unwrap();
    let again = replay(&tree, &args).unwrap();
    assert_eq!(again.id(), file.id());
    assert_eq!(again.created().create_action, CreateAction::OVERWRITTEN);
    assert_eq!(again.read_all().unwrap(), b"new");
}

#[test]
fn without_the_flag_a_create_guid_in_use_is_a_duplicate() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&batch()).unwrap();
    assert_eq!(status(tree.create(&batch())), Status::DUPLICATE_OBJECTID);
    let elsewhere = v2(CreateArgs::create("g"), CREATE_GUID, 0);
    assert_eq!(status(tree.create(&elsewhere)), Status::DUPLICATE_OBJECTID);
    assert!(!server.path("g").exists());
    // The CreateGuid belongs to the client, on any connection.
    assert_eq!(
        status(modern(&server).create(&elsewhere)),
        Status::DUPLICATE_OBJECTID
    );
    file.write_all(0, b"unharmed").unwrap();
}

#[test]
fn the_create_guid_of_another_client_is_ignored() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&new_file()).unwrap();
    let stranger = server.tree_with(Options::default().guid(Guid([1; 16])));
    assert_eq!(
        status(replay(&stranger, &new_file())),
        Status::OBJECT_NAME_COLLISION
    );
    let elsewhere = v2(CreateArgs::create("g"), CREATE_GUID, 0);
    let theirs = stranger.create(&elsewhere).unwrap();
    theirs.write_all(0, b"theirs").unwrap();
    assert_same(&file, &replay(&tree, &new_file()).unwrap());
}

#[test]
fn a_replay_of_an_unknown_create_is_executed() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = replay(&tree, &batch()).unwrap();
    assert_eq!(file.created().create_action, CreateAction::CREATED);
    assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
    file.write_all(0, b"works").unwrap();
}

#[test]
fn a_replay_of_a_failed_create_is_executed() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = v2(CreateArgs::open("f"), CREATE_GUID, 0);
    assert_eq!(status(tree.create(&args)), Status::OBJECT_NAME_NOT_FOUND);
    server.tree().write_file("f", b"now").unwrap();
    let file = replay(&tree, &args).unwrap();
    assert_eq!(file.read_all().unwrap(), b"now");
}

#[test]
fn without_a_create_guid_the_flag_is_ignored() {
    // smb2.replay.replay-regular
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for args in [
        CreateArgs::create("f"),
        v1(CreateArgs::create("f").oplock(OplockLevel::BATCH)),
    ] {
        let file = tree.create(&args).unwrap();
        assert_eq!(status(replay(&tree, &args)), Status::OBJECT_NAME_COLLISION);
        file.close().unwrap();
        tree.delete("f").unwrap();
    }
}

#[test]
fn another_user_is_denied() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&batch()).unwrap();
    let thief = server.client(options());
    let thief = thief.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let thief = thief.tree(DATA).unwrap();
    assert_eq!(status(replay(&thief, &batch())), Status::ACCESS_DENIED);
    assert_same(&file, &replay(&tree, &batch()).unwrap());
}

#[test]
fn another_lease_key_is_denied() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&leased(KEY, RWH)).unwrap();
    assert_eq!(
        status(replay(&tree, &leased(OTHER_KEY, RWH))),
        Status::ACCESS_DENIED
    );
    assert_same(&file, &replay(&tree, &leased(KEY, RWH)).unwrap());
}

/// [MS-SMB2] 3.3.5.9.8, 3.3.5.9.11: it stays with its file, whether the CreateGuid is known or not.
#[test]
fn a_lease_does_not_move_to_another_file() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&leased(KEY, RWH)).unwrap();
    let elsewhere = CreateArgs::create("g").lease_v2(KEY, RWH, 0);
    for guid in [CREATE_GUID, OTHER_GUID] {
        let args = v2(elsewhere.clone(), guid, 0);
        assert_eq!(status(tree.create(&args)), Status::INVALID_PARAMETER);
        assert_eq!(status(replay(&tree, &args)), Status::INVALID_PARAMETER);
    }
    assert!(!server.path("g").exists());
    assert_same(&file, &replay(&tree, &leased(KEY, RWH)).unwrap());
}

#[test]
fn another_session_finds_a_duplicate() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&batch()).unwrap();
    assert_eq!(
        status(replay(&modern(&server), &batch())),
        Status::DUPLICATE_OBJECTID
    );
    assert_same(&file, &replay(&tree, &batch()).unwrap());
}

#[test]
fn a_replay_can_use_the_remaining_channel() {
    // 3.2.7.1: the behaviour of a client whose channel is lost before the response.
    for args in [new_file(), batch(), leased(KEY, RWH)] {
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let other = channel(&server, tree.session(), &tree);
        let file = tree.create(&args).unwrap();
        let mut again = replay(&other, &args).unwrap();
        assert_same(&file, &again);
        cut(tree.client());
        std::thread::sleep(MEANWHILE);
        again = replay(&other, &args).unwrap();
        assert_same(&file, &again);
        again.write_all(0, b"over what is left").unwrap();
        assert_eq!(again.read_all().unwrap(), b"over what is left");
    }
}

#[test]
fn a_break_after_a_replay_is_sent_on_one_of_the_channels() {
    // 3.3.5.9.10 sets Open.Connection to that of the replay; 3.3.4.6 sends on the first channel.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let other = channel(&server, tree.session(), &tree);
    tree.create(&batch()).unwrap();
    let again = replay(&other, &batch()).unwrap();
    let stranger = server.tree();
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    wait_for_one_break(&[other.client(), tree.client()]);
    again.acknowledge_oplock(OplockLevel::NONE).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn a_break_that_the_lost_channel_carried_follows_the_answer_to_a_replay() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let other = channel(&server, tree.session(), &tree);
    let args = leased(KEY, RWH);
    let file = tree.create(&args).unwrap();
    let stranger = server.tree();
    let waits = stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(tree.client().next_break(SOON).unwrap().is_some());
    let again = replay(&other, &args).unwrap();
    // 3.2.5.19.2: a client accepts only a newer epoch.
    let epoch_of = |file: &File| file.created().lease().unwrap().v2.unwrap().epoch;
    assert_eq!(epoch_of(&again), epoch_of(&file));
    let notified = other.client().next_break(SOON).unwrap();
    let Some(Break::Lease { new, epoch, .. }) = notified else {
        panic!("{notified:?}")
    };
    assert_eq!((new, epoch), (RH, epoch_of(&file) + 1));
    other.acknowledge_lease(KEY, RH).unwrap();
    stranger.client().wait(waits).unwrap().ok().unwrap();
}

/// Asserts that after this use of the handle a replay counts as a new CREATE, because the response
/// was obviously received.
fn assert_spent_by(what: &str, usage: impl FnOnce(&File)) {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&new_file()).unwrap();
    usage(&file);
    assert_eq!(
        status(replay(&tree, &new_file())),
        Status::OBJECT_NAME_COLLISION,
        "{what}"
    );
    // The CreateGuid can be used for another open.
    let elsewhere = v2(CreateArgs::create("g"), CREATE_GUID, 0);
    tree.create(&elsewhere).unwrap();
    file.close().unwrap();
}

#[test]
fn no_replay_after_a_write() {
    assert_spent_by("WRITE", |file| {
        file.write(0, b"x", WriteFlags::empty()).unwrap();
    });
}

#[test]
fn no_replay_after_a_read() {
    assert_spent_by("READ", |file| {
        assert_eq!(status(file.read(0, 1)), Status::END_OF_FILE);
    });
}

#[test]
fn no_replay_after_a_flush() {
    assert_spent_by("FLUSH", |file| file.flush(false).unwrap());
}

#[test]
fn no_replay_after_a_lock() {
    assert_spent_by("LOCK", |file| {
        let element = LockElement {
            offset: 0,
            length: 1,
            flags: LockFlags(0x12),
        };
        file.tree().call(file.lock_request(0, &[element])).unwrap();
    });
}

#[test]
fn no_replay_after_a_query() {
    assert_spent_by("QUERY_INFO", |file| {
        file.query(smb_wire::fscc::FileInformationClass::BASIC)
            .unwrap();
    });
}

#[test]
fn no_replay_after_a_set() {
    assert_spent_by("SET_INFO", |file| file.set_end_of_file(1).unwrap());
}

#[test]
fn no_replay_after_an_ioctl() {
    assert_spent_by("IOCTL", |file| {
        let code = smb_wire::fsctl::FsctlCode::SRV_REQUEST_RESUME_KEY;
        file.ioctl(code, &[], 64).unwrap();
    });
}

/// [MS-SMB2] 3.3.5.12 to 3.3.5.21: the open is no longer eligible as soon as it is found, before anything else about
/// the request is examined.
#[test]
fn no_replay_after_a_refused_request() {
    use smb_wire::fscc::FileInformationClass as Class;
    use smb_wire::fsctl::FsctlCode;
    use smb_wire::msg::{ChangeNotifyFlags, InfoType, NotifyFilter, QueryDirectoryFlags};
    let refused = |file: &File, request| status(file.tree().call(request));
    assert_spent_by("QUERY_DIRECTORY", |file| {
        let flags = QueryDirectoryFlags::empty();
        let search = file.query_directory(Class::NAMES, "*", flags, 4096);
        assert_eq!(status(search), Status::INVALID_PARAMETER);
    });
    assert_spent_by("CHANGE_NOTIFY", |file| {
        let names = NotifyFilter::FILE_NAME;
        let id = file.notify(names, ChangeNotifyFlags::empty(), 4096);
        let reply = file.tree().client().wait(id.unwrap()).unwrap();
        assert_eq!(reply.status(), Status::INVALID_PARAMETER);
    });
    assert_spent_by("QUERY_INFO", |file| {
        let request = Request::query_info(file.id(), InfoType::FILE, 0xff, 0, 100);
        assert_eq!(refused(file, request), Status::INVALID_INFO_CLASS);
    });
    assert_spent_by("SET_INFO", |file| {
        let request = file.set_info_request(InfoType::FILE, 0xff, 0, &[0; 8]);
        assert_eq!(refused(file, request), Status::INVALID_INFO_CLASS);
    });
    assert_spent_by("IOCTL", |file| {
        // FSCTL_SRV_READ_HASH.
        let request = file.ioctl_request(FsctlCode(0x0014_41bb), &[0; 24], 4096);
        assert_eq!(refused(file, request), Status::NOT_SUPPORTED);
    });
    assert_spent_by("LOCK", |file| {
        assert_eq!(status(file.unlock(0, 1)), Status::RANGE_NOT_LOCKED);
    });
}

/// [MS-SMB2] 3.3.5.2.11, 3.3.5.15: a request that is refused before its open is looked up leaves the open eligible.
#[test]
fn a_request_that_does_not_reach_the_open_leaves_the_replay() {
    use smb_wire::fsctl::FsctlCode;
    use smb_wire::ids::TreeId;
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&new_file()).unwrap();
    let astray = Request::read(file.id(), 0, 1).session(tree.session().id());
    let reply = tree.client().call(astray.tree(TreeId(0x1234))).unwrap();
    assert_eq!(reply.status(), Status::NETWORK_NAME_DELETED);
    let code = FsctlCode::SRV_REQUEST_RESUME_KEY;
    // Flags, which do not say that it is an FSCTL.
    let ioctl = file.ioctl_request(code, &[], 32);
    let ioctl = ioctl.mutate(|m| m[64 + 48..64 + 52].fill(0));
    assert_eq!(status(tree.call(ioctl)), Status::NOT_SUPPORTED);
    let again = replay(&tree, &new_file()).unwrap();
    assert_same(&file, &again);
}

/// [MS-SMB2] 3.3.5.9.10: each right to the data, or to delete the file, is enough.
#[test]
fn each_of_five_rights_makes_an_open_eligible() {
    let server = HoldfastServer::new();
    for right in [
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_EXECUTE,
        AccessMask::FILE_WRITE_DATA,
        AccessMask::FILE_APPEND_DATA,
        AccessMask::DELETE,
    ] {
        let tree = modern(&server);
        let args = v2(CreateArgs::create("f").access(right), CREATE_GUID, 0);
        let file = tree.create(&args).unwrap();
        let again = replay(&tree, &args).unwrap();
        assert_same(&file, &again);
        file.close().unwrap();
        tree.delete("f").unwrap();
    }
}

#[test]
fn no_replay_after_an_acknowledgment_of_its_lease() {
    // 3.3.5.22.2
    let server = HoldfastServer::new();
    let tree = modern(&server);
    tree.create(&leased(KEY, RWH)).unwrap();
    let stranger = server.tree();
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(tree.client().next_break(SOON).unwrap().is_some());
    tree.acknowledge_lease(KEY, RH).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(
        status(replay(&tree, &leased(KEY, RWH))),
        Status::OBJECT_NAME_COLLISION
    );
}

/// 3.3.5.22.2 ends the replay before it looks whether there is a break.
#[test]
fn no_replay_after_an_acknowledgment_that_is_refused() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    tree.create(&leased(KEY, RWH)).unwrap();
    let refused = tree.acknowledge_lease(KEY, RH);
    assert_eq!(status(refused), Status::UNSUCCESSFUL);
    assert_eq!(
        status(replay(&tree, &leased(KEY, RWH))),
        Status::OBJECT_NAME_COLLISION
    );
}

#[test]
fn a_close_frees_the_create_guid() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    tree.create(&batch()).unwrap().close().unwrap();
    assert_eq!(
        status(replay(&tree, &batch())),
        Status::OBJECT_NAME_COLLISION
    );
    let open = v2(CreateArgs::open("f"), CREATE_GUID, 0);
    tree.create(&open).unwrap();
}

#[test]
fn an_attribute_only_open_is_not_eligible() {
    // 3.3.5.9.10: read, execute, write, append or delete access is required.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let stat = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    let args = v2(CreateArgs::create("f").access(stat), CREATE_GUID, 0);
    tree.create(&args).unwrap();
    assert_eq!(status(replay(&tree, &args)), Status::OBJECT_NAME_COLLISION);
    // It is no duplicate either.
    let elsewhere = v2(CreateArgs::create("g"), CREATE_GUID, 0);
    tree.create(&elsewhere).unwrap();
}

#[test]
fn a_directory_is_not_eligible() {
    // Open.FileAttributes includes FILE_ATTRIBUTE_DIRECTORY.
    use smb_wire::file_attributes::FileAttributes;
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = CreateArgs::create("d")
        .options(CreateOptions::DIRECTORY_FILE)
        .attributes(FileAttributes::DIRECTORY);
    let args = v2(args, CREATE_GUID, 0);
    tree.create(&args).unwrap();
    assert_eq!(status(replay(&tree, &args)), Status::OBJECT_NAME_COLLISION);
}

#[test]
fn the_fields_of_the_replay_do_not_change_the_open() {
    // smb2.replay.replay-dhv2-oplock3: another share mode in the replay has no effect.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&batch()).unwrap();
    let args = CreateArgs::create("f")
        .oplock(OplockLevel::BATCH)
        .share(ShareAccess::empty());
    let again = replay(&tree, &v2(args, CREATE_GUID, 0)).unwrap();
    assert_eq!(again.id(), file.id());
    // The file is still fully shared: another open breaks the oplock and succeeds.
    let stranger = server.tree();
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(tree.client().next_break(SOON).unwrap().is_some());
    file.acknowledge_oplock(OplockLevel::NONE).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn a_lease_that_was_upgraded_meanwhile_is_returned_as_it_is() {
    // smb2.replay.replay-dhv2-lease1
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&leased(KEY, RH)).unwrap();
    let wider = v2(CreateArgs::open("f").lease_v2(KEY, RWH, 0), OTHER_GUID, 0);
    let second = tree.create(&wider).unwrap();
    assert_eq!(second.created().lease().unwrap().lease_state, RWH);
    let again = replay(&tree, &leased(KEY, RH)).unwrap();
    assert_eq!(again.id(), file.id());
    assert_eq!(again.created().lease().unwrap().lease_state, RWH);
}

#[test]
fn the_timeout_is_returned_unchanged() {
    // "If SMB2_FLAGS_REPLAY_OPERATION ... Timeout MUST be set to Open.DurableOpenTimeout"
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = |timeout_ms| {
        v2(
            CreateArgs::create("f").oplock(OplockLevel::BATCH),
            CREATE_GUID,
            timeout_ms,
        )
    };
    tree.create(&args(20_000)).unwrap();
    let again = replay(&tree, &args(50_000)).unwrap();
    assert_eq!(granted_v2(&again).unwrap().timeout_ms, 20_000);
}

#[test]
fn two_concurrent_replays_on_two_channels_give_one_open() {
    for round in 0..10u8 {
        let server_args = v2(
            CreateArgs::create(&format!("f{round}")),
            Guid([round + 1; 16]),
            0,
        );
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let other = channel(&server, tree.session(), &tree);
        let request = || server_args.request().flag(HeaderFlags::REPLAY);
        let first = tree.send(request()).unwrap();
        let second = other.send(request()).unwrap();
        let ends = [
            tree.client().wait(first).unwrap(),
            other.client().wait(second).unwrap(),
        ];
        // One replay creates the open; the other finds it, or has to try again.
        let mut ids = Vec::new();
        for reply in ends {
            match reply.status() {
                Status::SUCCESS => ids.push(tree.file(&reply).unwrap().id()),
                end => assert_eq!(end, Status::FILE_NOT_AVAILABLE),
            }
        }
        assert!(!ids.is_empty());
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
}

#[test]
fn a_replay_returns_a_disconnected_open() {
    // smb2.replay.durable-reconnect-replay1, replay-twice-durable: by the specification the status
    // is DUPLICATE_OBJECTID, since Open.Session is not the session of the request; Windows and
    // Samba return the open to a client that lost its connection before the response.
    for args in [batch(), leased(KEY, RWH), leased(KEY, RH)] {
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let file = tree.create(&args).unwrap();
        server.lose(&tree);
        let tree = modern(&server);
        // No other open can be created with its CreateGuid.
        assert_eq!(status(tree.create(&args)), Status::DUPLICATE_OBJECTID);
        let back = replay(&tree, &args).unwrap();
        assert_eq!(back.id().persistent, file.id().persistent);
        assert_eq!(back.created().create_action, CreateAction::CREATED);
        assert_eq!(back.created().oplock_level, file.created().oplock_level);
        assert_eq!(granted_v2(&back), granted_v2(&file));
        // The client replays again after another loss.
        assert_same(&back, &replay(&tree, &args).unwrap());
        server.lose(&tree);
        let tree = modern(&server);
        let back = replay(&tree, &args).unwrap();
        back.write_all(0, b"back").unwrap();
        assert_eq!(back.read_all().unwrap(), b"back");
        assert_eq!(server.opens(), 1);
        // The response was received.
        assert_eq!(status(replay(&tree, &args)), Status::OBJECT_NAME_COLLISION);
    }
}

#[test]
fn a_replay_returns_the_open_of_a_replaced_session() {
    // smb2.replay.durable-reconnect-replay3
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = leased(KEY, RWH);
    let file = tree.create(&args).unwrap();
    let login = Login::user(USER, PASSWORD, "").replacing(tree.session().id());
    let session = server.client(options()).login_with(&login).unwrap();
    let back = replay(&session.tree(DATA).unwrap(), &args).unwrap();
    assert_eq!(back.id().persistent, file.id().persistent);
    back.write_all(0, b"back").unwrap();
}

#[test]
fn a_disconnected_open_needs_its_user_lease_and_share() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = leased(KEY, RWH);
    let file = tree.create(&args).unwrap();
    server.lose(&tree);
    let thief = server.client(options());
    let thief = thief.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let thief = thief.tree(DATA).unwrap();
    assert_eq!(status(replay(&thief, &args)), Status::ACCESS_DENIED);
    let tree = modern(&server);
    let other_key = leased(OTHER_KEY, RWH);
    assert_eq!(status(replay(&tree, &other_key)), Status::ACCESS_DENIED);
    let elsewhere = tree.session().tree(SECOND).unwrap();
    assert_eq!(
        status(replay(&elsewhere, &args)),
        Status::DUPLICATE_OBJECTID
    );
    let back = replay(&tree, &args).unwrap();
    assert_eq!(back.id().persistent, file.id().persistent);
}

#[test]
fn a_disconnected_open_that_was_broken_is_created_again() {
    // 3.3.4.7: another client's open closed it.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    tree.create(&leased(KEY, RWH)).unwrap();
    server.lose(&tree);
    let stranger = server.tree_with(Options::default().guid(Guid([1; 16])));
    stranger.create(&CreateArgs::open("f")).unwrap();
    let tree = modern(&server);
    let again = replay(&tree, &leased(KEY, RWH));
    assert_eq!(status(again), Status::OBJECT_NAME_COLLISION);
}
