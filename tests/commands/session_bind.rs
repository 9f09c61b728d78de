//! Several channels of one session: binding and its checks ([MS-SMB2] 3.3.5.5, 3.3.5.5.3), the
//! state that all channels share, and the consequences of losing one (3.3.7.1, 3.3.4.6).

use std::thread::sleep;

use smb_client::{
    Break, Client, CreateArgs, Encryption, Login, Options, Request, Session, Signing, Tree,
};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_tests::durable::v1;
use smb_tests::{
    DATA, HoldfastServer, MEANWHILE, OTHER_PASSWORD, OTHER_USER, Outcome, PASSWORD, SOON, USER,
    adopt, outcome, status, wait_until,
};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::FileAction;
use smb_wire::fsctl::{FsctlCode, read_network_interfaces};
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{Guid, LeaseKey, SessionId};
use smb_wire::msg::{
    Capabilities, ChangeNotifyFlags, Dialect, LockFlags, NotifyFilter, OplockLevel, SecurityMode,
    SessionFlags, SessionSetupFlags, SessionSetupRequest, ShareAccess, WriteFlags,
};

const GUID: Guid = Guid([0x5a; 16]);
const KEY: LeaseKey = LeaseKey([0x11; 16]);
/// Maximum number of channels of a session, as on Windows and Samba.
const CHANNELS_MAX: usize = 32;
/// The token that begins an authentication by NTLM.
const NTLM_NEGOTIATE: &[u8] =
    b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

fn options() -> Options {
    Options::default().signing(Signing::Required).guid(GUID)
}

fn of(dialect: Dialect) -> Options {
    Options::dialect(dialect)
        .signing(Signing::Required)
        .guid(GUID)
}

fn alice() -> Login {
    Login::user(USER, PASSWORD, "")
}

fn bind_with(client: &Client, to: &Session) -> Result<Session, smb_client::ClientError> {
    client.bind(to.secret().unwrap(), &alice())
}

/// Connects another channel of a session.
fn channel(server: &HoldfastServer, to: &Session) -> Session {
    bind_with(&server.client(to.client().options().clone()), to).unwrap()
}

/// Returns the same tree on another channel.
fn over(channel: &Session, tree: &Tree) -> Tree {
    channel.tree_of(tree.id(), *tree.info())
}

/// Waits until the server has noticed that a session has one channel left.
fn wait_for_one_channel(server: &HoldfastServer, tree: &Tree) {
    wait_until("the other channel ends", || {
        let sessions = server.sessions();
        let id = Some(tree.session().id().0);
        let session = sessions.iter().find(|session| session["id"].as_u64() == id);
        let channels = session.and_then(|session| session["channels"].as_array());
        channels.is_some_and(|channels| channels.len() == 1)
    });
}

/// Creates a session with two channels, and returns its tree on both.
fn two(server: &HoldfastServer) -> (Tree, Tree) {
    let first = server.session(options());
    let second = channel(server, &first);
    let tree = first.tree(DATA).unwrap();
    let other = over(&second, &tree);
    (tree, other)
}

fn unharmed(session: &Session) {
    let tree = session.tree(DATA).unwrap();
    tree.write_file("unharmed", b"yes").unwrap();
    tree.disconnect().unwrap();
}

fn binding(token: &[u8], flags: SessionSetupFlags) -> Request {
    Request::new(&SessionSetupRequest {
        flags,
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        previous_session_id: SessionId(0),
        security_buffer: token,
    })
}

#[test]
fn multichannel_is_announced_on_request_on_3x() {
    let server = HoldfastServer::new();
    let offered = |options: Options| {
        let client = server.client(options);
        let capabilities = client.negotiated().capabilities;
        capabilities.contains(Capabilities::MULTI_CHANNEL)
    };
    assert!(!offered(Options::dialect(Dialect::SMB_2_1)));
    assert!(offered(Options::dialect(Dialect::SMB_3_0)));
    assert!(offered(Options::dialect(Dialect::SMB_3_1_1)));
    let mut silent = Options::dialect(Dialect::SMB_3_1_1);
    silent.capabilities = Capabilities::LARGE_MTU;
    assert!(!offered(silent));
}

#[test]
fn a_second_connection_is_bound_and_has_keys_of_its_own() {
    let server = HoldfastServer::new();
    let mut cases: Vec<Options> = [Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1]
        .map(of)
        .into();
    for algorithm in [
        SigningAlgorithm::AesGmac,
        SigningAlgorithm::AesCmac,
        SigningAlgorithm::HmacSha256,
    ] {
        cases.push(options().signing_algorithm(algorithm));
    }
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Ccm] {
        cases.push(options().cipher(cipher).encryption(Encryption::Always));
    }
    for case in cases {
        let case = case.guid(Guid(rand()));
        let first = server.session(case.clone());
        let bound = channel(&server, &first);
        assert_eq!(bound.id(), first.id());
        let tree = first.tree(DATA).unwrap();
        let file = tree.create(&CreateArgs::open_if("both")).unwrap();
        let through = file.through(&over(&bound, &tree));
        through.write_all(0, b"by the second").unwrap();
        assert_eq!(file.read_all().unwrap(), b"by the second");
        file.close().unwrap();
        assert_eq!(status(through.read_all()), Status::FILE_CLOSED);
    }
}

/// Returns different bytes in each call.
fn rand() -> [u8; 16] {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static NEXT: AtomicU8 = AtomicU8::new(1);
    [NEXT.fetch_add(1, Relaxed); 16]
}

#[test]
fn every_failed_check_has_its_status_and_no_effect() {
    let server = HoldfastServer::new();
    let cmac = || options().signing_algorithm(SigningAlgorithm::AesCmac);
    let first = server.session(cmac());
    let refused = |options: Options| status(bind_with(&server.client(options), &first));
    let cases = [
        // Another dialect of 3.x, and one that does not support binding.
        (of(Dialect::SMB_3_0), Status::INVALID_PARAMETER),
        (of(Dialect::SMB_2_1), Status::REQUEST_NOT_ACCEPTED),
        // Another cipher: the encryption keys belong to the session.
        (cmac().cipher(Cipher::Aes256Gcm), Status::INVALID_PARAMETER),
        // Another ClientGuid.
        (cmac().guid(Guid([7; 16])), Status::USER_SESSION_DELETED),
        // AES-GMAC on one side.
        (options(), Status::NOT_SUPPORTED),
    ];
    for (options, expected) in cases {
        let said = format!("{options:?}");
        assert_eq!(refused(options), expected, "{said}");
        unharmed(&first);
    }
    let gmac = server.session(options());
    let client = server.client(cmac());
    assert_eq!(
        status(bind_with(&client, &gmac)),
        Status::REQUEST_OUT_OF_SEQUENCE
    );
    // The refused connection still works.
    let own = client.login(USER, PASSWORD, "").unwrap();
    unharmed(&own);
    unharmed(&gmac);
}

#[test]
fn unauthenticated_binding_requests_are_refused() {
    let server = HoldfastServer::new();
    let first = server.session(options());
    let client = server.client(options());
    let ask = |id: SessionId, flags| outcome(client.call(binding(b"x", flags).session(id)));
    let bind = SessionSetupFlags::BINDING;
    // Unsigned.
    assert_eq!(
        ask(first.id(), bind),
        Outcome::Answered(Status::INVALID_PARAMETER)
    );
    // An unknown session; no session at all.
    assert_eq!(
        ask(SessionId(0x77), bind),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
    assert_eq!(
        ask(SessionId(0), bind),
        Outcome::Answered(Status::INVALID_PARAMETER)
    );
    // A session of another connection cannot be reauthenticated.
    assert_eq!(
        ask(first.id(), SessionSetupFlags::empty()),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
    // The request is signed with another session's key.
    let other = server.client(options().guid(GUID));
    let stranger = other.login(USER, PASSWORD, "").unwrap();
    let forged = binding(b"x", bind).session(stranger.id());
    let forged = forged.overriding(|o| o.sign = Some(true));
    adopt(&client, &stranger);
    let reply = client.call(forged.overriding(|o| o.corrupt_signature = true));
    assert_eq!(outcome(reply), Outcome::Answered(Status::ACCESS_DENIED));
    unharmed(&first);
    unharmed(&stranger);
}

/// [MS-SMB2] 3.3.5.5: that the request is signed is checked before the state of the session.
#[test]
fn a_session_in_setup_cannot_be_bound() {
    let server = HoldfastServer::new();
    let client = server.client(options());
    let reply = client.call(Request::session_setup(NTLM_NEGOTIATE)).unwrap();
    assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
    let ask = |flags| {
        let request = binding(b"x", SessionSetupFlags::BINDING);
        let request = request.session(reply.header.session_id).flag(flags);
        outcome(client.call(request))
    };
    assert_eq!(
        ask(HeaderFlags::empty()),
        Outcome::Answered(Status::INVALID_PARAMETER)
    );
    assert_eq!(
        ask(HeaderFlags::SIGNED),
        Outcome::Answered(Status::REQUEST_NOT_ACCEPTED)
    );
}

/// [MS-SMB2] 3.3.5.2.4 comes before 3.3.5.5.
#[test]
fn the_session_of_a_signed_binding_is_looked_up_before_the_dialect() {
    let server = HoldfastServer::new();
    let client = server.client(of(Dialect::SMB_2_1));
    let ask = |flags| {
        let request = binding(b"x", SessionSetupFlags::BINDING).session(SessionId(0x77));
        outcome(client.call(request.flag(flags)))
    };
    assert_eq!(
        ask(HeaderFlags::SIGNED),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
    assert_eq!(
        ask(HeaderFlags::empty()),
        Outcome::Answered(Status::REQUEST_NOT_ACCEPTED)
    );
}

/// [MS-SMB2] 3.3.5.5: each request of a binding looks the session up.
#[test]
fn a_binding_is_over_when_its_session_ends() {
    let server = HoldfastServer::new();
    let first = server.session(options());
    let second = server.client(options());
    adopt(&second, &first);
    let ask = || {
        let request = binding(NTLM_NEGOTIATE, SessionSetupFlags::BINDING).session(first.id());
        outcome(second.call(request.overriding(|o| o.sign = Some(true))))
    };
    assert_eq!(ask(), Outcome::Answered(Status::MORE_PROCESSING_REQUIRED));
    first.logoff().unwrap();
    assert_eq!(ask(), Outcome::Answered(Status::USER_SESSION_DELETED));
}

#[test]
fn only_the_user_of_the_session_can_bind() {
    let server = HoldfastServer::new();
    let first = server.session(options());
    let tree = first.tree(DATA).unwrap();
    let kept = tree.create(&CreateArgs::open_if("kept")).unwrap();
    let client = server.client(options());
    // The connection has a session of its own at the same time.
    let own = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    for (login, expected) in [
        (
            Login::user(OTHER_USER, OTHER_PASSWORD, ""),
            Status::ACCESS_DENIED,
        ),
        (Login::user(USER, "wrong", ""), Status::LOGON_FAILURE),
        (Login::user("nobody-here", "x", ""), Status::LOGON_FAILURE),
        (Login::anonymous(), Status::ACCESS_DENIED),
    ] {
        let bound = client.bind(first.secret().unwrap(), &login);
        assert_eq!(status(bound), expected);
        // CVE-2026-31476: neither the session nor the connection is affected.
        kept.write_all(0, b"still mine").unwrap();
        unharmed(&own);
    }
    // The connection is not a channel.
    adopt(&client, &first);
    let adopted = Request::new(&smb_wire::msg::EchoRequest).session(first.id());
    assert_eq!(
        outcome(client.call(adopted)),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
    // The right user can still bind, on the same connection.
    let bound = bind_with(&client, &first).unwrap();
    let through = kept.through(&over(&bound, &tree));
    assert_eq!(through.read_all().unwrap(), b"still mine");
}

#[test]
fn a_connection_is_one_channel_only() {
    let server = HoldfastServer::new();
    // On the first connection the channel's key is the session's, so the signature is right.
    let first = server.session(options());
    let again = binding(b"x", SessionSetupFlags::BINDING).session(first.id());
    let reply = first.client().call(again);
    assert_eq!(
        outcome(reply),
        Outcome::Answered(Status::REQUEST_NOT_ACCEPTED)
    );
    let second = channel(&server, &first);
    let again = binding(b"x", SessionSetupFlags::BINDING).session(first.id());
    let reply = second.client().call(again);
    assert_eq!(
        outcome(reply),
        Outcome::Answered(Status::REQUEST_NOT_ACCEPTED)
    );
    // The session's key makes it a wrong signature.
    let wrong = bind_with(second.client(), &first);
    assert_eq!(status(wrong), Status::ACCESS_DENIED);
    unharmed(&first);
}

#[test]
fn the_number_of_channels_is_limited() {
    let server = HoldfastServer::new();
    let first = server.session(options());
    let mut channels: Vec<Session> = (1..CHANNELS_MAX)
        .map(|_| channel(&server, &first))
        .collect();
    let client = server.client(options());
    assert_eq!(
        status(bind_with(&client, &first)),
        Status::INSUFFICIENT_RESOURCES
    );
    unharmed(&first);
    channels.pop();
    // The server notices the end of a connection with a delay.
    let bound = (0..100).find_map(|_| {
        sleep(MEANWHILE / 10);
        bind_with(&client, &first).ok()
    });
    unharmed(&bound.expect("no channel became free"));
}

#[test]
fn the_session_ends_with_its_last_channel() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let alone = CreateArgs::open_if("held").share(ShareAccess::empty());
    let file = tree.create(&alone).unwrap();
    let through = file.through(&other);
    drop(file);
    drop(tree);
    sleep(MEANWHILE);
    through.write_all(0, b"over what is left").unwrap();
    let stranger = server.tree();
    assert_eq!(status(stranger.create(&alone)), Status::SHARING_VIOLATION);
    drop(through);
    drop(other);
    let opened = (0..100).any(|_| {
        sleep(MEANWHILE / 10);
        stranger.create(&alone).is_ok()
    });
    assert!(opened, "the session outlived its connections");
}

#[test]
fn close_disconnect_and_logoff_on_one_channel_apply_to_all() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    file.through(&other).close().unwrap();
    assert_eq!(status(file.read(0, 1)), Status::FILE_CLOSED);
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    other.disconnect().unwrap();
    assert_eq!(status(file.read(0, 1)), Status::NETWORK_NAME_DELETED);
    other.session().logoff().unwrap();
    assert_eq!(
        status(tree.session().tree(DATA)),
        Status::USER_SESSION_DELETED
    );
    // The connection remains.
    tree.client().echo().unwrap();
    tree.client().login(USER, PASSWORD, "").unwrap();
}

#[test]
fn a_reauthentication_on_any_channel_applies_to_all() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    other.session().reauthenticate(&alice()).unwrap();
    file.write_all(0, b"as before").unwrap();
    assert_eq!(file.through(&other).read_all().unwrap(), b"as before");
    // [MS-SMB2] 3.3.5.5.3: a failed one ends the session.
    let wrong = other
        .session()
        .reauthenticate(&Login::user(USER, "wrong", ""));
    assert_eq!(status(wrong), Status::LOGON_FAILURE);
    assert_eq!(status(file.read(0, 1)), Status::USER_SESSION_DELETED);
}

#[test]
fn a_session_that_is_replaced_loses_all_its_channels() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let alone = CreateArgs::open_if("held").share(ShareAccess::empty());
    let file = tree.create(&alone).unwrap();
    let client = server.client(options());
    let login = alice().replacing(tree.session().id());
    let new = client.login_with(&login).unwrap();
    new.tree(DATA).unwrap().create(&alone).unwrap();
    for file in [&file, &file.through(&other)] {
        assert_eq!(status(file.read(0, 1)), Status::USER_SESSION_DELETED);
    }
}

#[test]
fn pending_requests_end_with_their_channel() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let held = tree.create(&CreateArgs::open_if("f")).unwrap();
    held.lock(0, 10, exclusive).unwrap();
    // The request is pending on the second channel, through a handle of the session.
    let waiting = tree.create(&CreateArgs::open("f")).unwrap();
    let element = smb_wire::msg::LockElement {
        offset: 0,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    let request = waiting.lock_request(0, &[element]);
    let id = other.send(request).unwrap();
    assert!(other.client().wait_pending(id).unwrap().is_some());
    drop(other);
    wait_for_one_channel(&server, &tree);
    held.unlock(0, 10).unwrap();
    // The lock was not granted to the lost channel.
    held.lock(0, 10, exclusive).unwrap();
    waiting.close().unwrap();
}

#[test]
fn a_break_is_sent_on_the_opens_connection_or_another_channel() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let stranger = server.tree();
    let batch = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    for lost in [false, true] {
        // The file was opened on the second channel.
        let file = other.create(&batch).unwrap();
        let through = file.through(&tree);
        let file_id = file.id();
        let teller = if lost {
            // The connection ends; the FileId remains valid.
            drop(file);
            None
        } else {
            Some(&other)
        };
        if lost {
            other
                .client()
                .connection()
                .stream_mut()
                .shutdown(std::net::Shutdown::Both)
                .unwrap();
            wait_for_one_channel(&server, &tree);
        }
        let id = stranger.send(CreateArgs::open("f").request()).unwrap();
        let by = teller.unwrap_or(&tree);
        let broken = by.client().next_break(SOON).unwrap();
        let level = OplockLevel::II;
        assert_eq!(broken, Some(Break::Oplock { file_id, level }));
        assert!(
            !stranger
                .client()
                .connection()
                .answered(id, MEANWHILE)
                .unwrap()
        );
        // Any channel may acknowledge.
        through.acknowledge_oplock(level).unwrap();
        let reply = stranger.client().wait(id).unwrap().ok().unwrap();
        stranger.file(&reply).unwrap().close().unwrap();
        through.close().unwrap();
    }
}

#[test]
fn a_break_on_a_lost_channel_is_sent_again_on_another() {
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let stranger = server.tree();
    let file = other
        .create(&CreateArgs::open_if("f").oplock(OplockLevel::BATCH))
        .unwrap();
    let through = file.through(&tree);
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(other.client().next_break(SOON).unwrap().is_some());
    // The break was sent, but the channel is lost before the acknowledgment.
    drop(file);
    drop(other);
    assert!(tree.client().next_break(SOON).unwrap().is_some());
    through.acknowledge_oplock(OplockLevel::NONE).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
}

/// [MS-SMB2] 3.3.5.6: the opens of the session are closed, and nobody waits for their breaks any more. Requests on
/// its other channels get a signed refusal.
#[test]
fn a_logoff_ends_a_break_that_another_channel_carries() {
    let server = HoldfastServer::new();
    let stranger = server.tree();
    for durable in [false, true] {
        let (tree, other) = two(&server);
        let batch = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
        let asked = if durable { v1(batch) } else { batch };
        let held = other.create(&asked).unwrap();
        let id = stranger.send(CreateArgs::open("f").request()).unwrap();
        assert!(other.client().next_break(SOON).unwrap().is_some());
        tree.session().logoff().unwrap();
        let reply = stranger.client().wait(id).unwrap().ok().unwrap();
        stranger.file(&reply).unwrap().close().unwrap();
        let late = held.acknowledge_oplock(OplockLevel::II);
        assert_eq!(status(late), Status::USER_SESSION_DELETED);
        other.client().echo().unwrap();
    }
}

/// [MS-SMB2] 3.3.4.7: the lease belongs to the client, so the break goes on as long as another session has an open of
/// the lease.
#[test]
fn a_logoff_leaves_a_break_to_the_other_session_of_its_lease() {
    let server = HoldfastServer::new();
    let stranger = server.tree();
    let (tree, other) = two(&server);
    let second = server.session(options()).tree(DATA).unwrap();
    let leased = CreateArgs::open_if("f").lease_v2(KEY, LeaseState::RWH, 1);
    other.create(&leased).unwrap();
    let shares = second.create(&leased).unwrap();
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(other.client().next_break(SOON).unwrap().is_some());
    tree.session().logoff().unwrap();
    let mut connection = stranger.client().connection();
    assert!(!connection.answered(id, MEANWHILE).unwrap());
    drop(connection);
    let kept = LeaseState::READ | LeaseState::HANDLE;
    second.acknowledge_lease(KEY, kept).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
    shares.close().unwrap();
}

#[test]
fn channels_on_two_workers_share_locks_and_changes() {
    let server = HoldfastServer::new();
    // Connections are assigned to the workers in turn.
    let (tree, other) = two(&server);
    let stranger = server.tree();
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let mine = tree.create(&CreateArgs::open_if("f")).unwrap();
    let mine_there = mine.through(&other);
    let theirs = stranger.create(&CreateArgs::open("f")).unwrap();
    for (round, by) in (0..).zip([&mine, &mine_there]) {
        by.lock(round * 100, 10, exclusive).unwrap();
        assert_eq!(
            status(theirs.lock(round * 100, 1, exclusive)),
            Status::LOCK_NOT_GRANTED
        );
    }
    // A lock acquired on one channel is released on the other, which wakes the waiting request.
    let element = smb_wire::msg::LockElement {
        offset: 0,
        length: 1,
        flags: LockFlags::EXCLUSIVE,
    };
    let request = theirs.lock_request(0, &[element]);
    let id = stranger.send(request).unwrap();
    assert!(stranger.client().wait_pending(id).unwrap().is_some());
    mine_there.unlock(0, 10).unwrap();
    assert_eq!(
        stranger.client().wait(id).unwrap().status(),
        Status::SUCCESS
    );
    let names = NotifyFilter(NotifyFilter::FILE_NAME.0);
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    for (name, watcher) in [("one", &tree), ("two", &other)] {
        let through = root.through(watcher);
        let id = through
            .notify(names, ChangeNotifyFlags::empty(), 65_536)
            .unwrap();
        assert!(watcher.client().wait_pending(id).unwrap().is_some());
        stranger.write_file(name, b"").unwrap();
        let reply = watcher.client().wait(id).unwrap();
        let told = through.changes(reply).unwrap();
        assert_eq!(
            (told[0].action, told[0].file_name.as_str()),
            (FileAction::ADDED, name)
        );
    }
}

#[test]
fn the_addresses_of_the_server_are_reported_on_3x() {
    // [MS-SMB2] 2.2.32.5, 3.3.5.15.11
    let server = HoldfastServer::new();
    let code = FsctlCode::QUERY_NETWORK_INTERFACE_INFO;
    let ask = |options: Options, max| {
        let tree = server.tree_with(options);
        tree.ioctl(code, &[], max)
    };
    let told = ask(Options::default(), 65_536).unwrap();
    let interfaces = read_network_interfaces(&told).unwrap();
    // The server listens on one loopback address, so it is the only one to report.
    assert_eq!(interfaces.len(), 1, "{interfaces:?}");
    assert_eq!(interfaces[0].address, server.addr().ip());
    assert_ne!(interfaces[0].if_index, 0);
    assert_eq!(interfaces[0].link_speed_bits, 1_000_000_000);
    assert_eq!(told.len(), 152);
    let few = ask(Options::default(), 151);
    assert_eq!(status(few), Status::BUFFER_TOO_SMALL);
    let old = ask(Options::dialect(Dialect::SMB_2_1), 65_536);
    assert_eq!(status(old), Status::NOT_SUPPORTED);
    let silent = Options {
        capabilities: Capabilities::LARGE_MTU,
        ..Options::default()
    };
    let told = ask(silent, 65_536).unwrap();
    assert_eq!(read_network_interfaces(&told).unwrap(), interfaces);
    let file = server.tree().create(&CreateArgs::open_if("f")).unwrap();
    let through = file.ioctl(code, &[], 65_536);
    assert_eq!(status(through), Status::INVALID_PARAMETER);
}

/// They could open no further channel, because a binding is signed with the key of a user's session. The list that
/// they get is empty: smb2.session.anon-encryption2 wants an anonymous session answered.
#[test]
fn guests_and_anonymous_clients_do_not_learn_the_addresses_of_the_server() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "signing = \"desired\"".into(),
        tables: "[[share]]\nname = \"open\"\npath = \"data\"\nguest = true\n".into(),
        ..smb_tests::Options::default()
    });
    let options = Options::default().signing(Signing::IfRequired);
    for (login, flag) in [
        (Login::anonymous(), SessionFlags::IS_NULL),
        (Login::user("nobody-here", "x", ""), SessionFlags::IS_GUEST),
    ] {
        let session = server.client(options.clone()).login_with(&login).unwrap();
        assert!(session.flags().contains(flag));
        for share in ["IPC$", "open"] {
            let tree = session.tree(share).unwrap();
            let code = FsctlCode::QUERY_NETWORK_INTERFACE_INFO;
            let told = tree.ioctl(code, &[], 65_536).unwrap();
            assert!(told.is_empty(), "{login:?} {share}");
        }
    }
}

#[test]
fn a_replay_waits_for_pending_requests_of_the_lost_channel() {
    // [MS-SMB2] 3.3.5.2.10
    let server = HoldfastServer::new();
    let (tree, other) = two(&server);
    let stranger = server.tree();
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let theirs = stranger.create(&CreateArgs::open_if("f")).unwrap();
    theirs.lock(1000, 10, exclusive).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let element = smb_wire::msg::LockElement {
        offset: 1000,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    // The request with channel sequence 0 is pending on the first channel while the lock is held.
    let waiting = tree.send(file.lock_request(0, &[element])).unwrap();
    assert!(tree.client().wait_pending(waiting).unwrap().is_some());
    let write = |by: &Tree, number: u16, replay: bool| {
        let mut request = file.write_request(0, b"once", WriteFlags::empty());
        request.channel_sequence = number;
        let flags = if replay {
            HeaderFlags::REPLAY
        } else {
            HeaderFlags::empty()
        };
        status(by.call(request.flag(flags)))
    };
    assert_eq!(write(&other, 0, true), Status::SUCCESS);
    assert_eq!(write(&other, 1, true), Status::FILE_NOT_AVAILABLE);
    assert_eq!(write(&other, 1, true), Status::FILE_NOT_AVAILABLE);
    // Other requests need not wait; older ones must be refused.
    assert_eq!(write(&other, 1, false), Status::SUCCESS);
    assert_eq!(write(&tree, 0, false), Status::FILE_NOT_AVAILABLE);
    theirs.unlock(1000, 10).unwrap();
    tree.client().wait(waiting).unwrap().ok().unwrap();
    assert_eq!(write(&other, 1, true), Status::SUCCESS);
    // A difference of 0x7fff is newer, 0x8000 is older.
    assert_eq!(write(&other, 1 + 0x7fff, false), Status::SUCCESS);
    assert_eq!(write(&other, 0, false), Status::FILE_NOT_AVAILABLE);
    // A READ changes nothing.
    assert_eq!(file.read(0, 4).unwrap(), b"once");
}
