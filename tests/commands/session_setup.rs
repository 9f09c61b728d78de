//! SESSION_SETUP ([MS-SMB2] 3.3.5.5): logging in and replacing a session. Binding is tested in
//! `session_bind.rs`, reauthentication in `reauthentication.rs`.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use smb_client::core::LoginArgs;
use smb_client::{
    Client, ClientError, CreateArgs, Credentials, Login, Options, Request, Session, Signing,
};
use smb_tests::{
    DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, Outcome, PASSWORD, SECOND, USER, outcome,
    status,
};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::{FileTime, SessionId};
use smb_wire::msg::{Dialect, SessionFlags, TreeConnectFlags, TreeConnectRequest};

#[test]
fn users_log_in_on_every_dialect() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let session = server.session(Options::dialect(dialect));
        assert_ne!(session.id(), SessionId(0));
        assert!(
            !session
                .flags()
                .intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL)
        );
        session.tree(DATA).unwrap();
    }
}

#[test]
fn user_names_ignore_case_and_passwords_do_not() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    client.login("ALICE", PASSWORD, "").unwrap();
    let refused = client.login(USER, &PASSWORD.to_uppercase(), "");
    assert_eq!(status(refused), Status::LOGON_FAILURE);
}

#[test]
fn wrong_password_and_unknown_user_look_the_same() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    for (user, password) in [(USER, "wrong"), ("nobody-here", "wrong"), (USER, "")] {
        assert_eq!(
            status(client.login(user, password, "")),
            Status::LOGON_FAILURE,
            "{user}"
        );
    }
    // The connection still works.
    client.login(USER, PASSWORD, "").unwrap();
}

#[test]
fn an_anonymous_session_cannot_open_a_share() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    // A null session may list the shares, but cannot open any.
    let session = client.login_with(&Login::anonymous()).unwrap();
    assert!(session.flags().contains(SessionFlags::IS_NULL));
    assert_eq!(status(session.tree(DATA)), Status::ACCESS_DENIED);
    let pipes = session.tree("IPC$").unwrap();
    let srvsvc = CreateArgs::open("srvsvc").access(AccessMask::FILE_GENERIC_READ);
    pipes.create(&srvsvc).unwrap();
    // It cannot find out which shares exist either, and does not use up the limits of users.
    assert_eq!(status(session.tree("no-such-share")), Status::ACCESS_DENIED);
    let second = client.login_with(&Login::anonymous()).map(|_| ());
    assert_eq!(status(second), Status::REQUEST_NOT_ACCEPTED);
    let more: Vec<_> = (0..8).map(|_| session.tree("IPC$")).collect();
    let refused = more.into_iter().find_map(|tree| tree.err());
    let refused = refused.and_then(|error| error.status());
    assert_eq!(refused, Some(Status::INSUFFICIENT_RESOURCES));
    client.login(USER, PASSWORD, "").unwrap();
}

/// A connection may carry a user's session and an anonymous one, and a client that always signs and
/// encrypts does so in the latter with keys that everybody can compute.
#[test]
fn an_anonymous_session_beside_a_users_signs_and_encrypts_with_its_own_keys() {
    let server = HoldfastServer::lenient();
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
        let client = server.client(Options::dialect(dialect).signing(Signing::IfRequired));
        let user = client.login(USER, PASSWORD, "").unwrap();
        let nobody = client.login_with(&Login::anonymous()).unwrap();
        assert!(nobody.flags().contains(SessionFlags::IS_NULL));
        for (sign, encrypt) in [(true, false), (false, true), (false, false)] {
            let mut request = nobody.tree_connect("\\\\server\\IPC$");
            request.overrides.sign = Some(sign);
            request.overrides.encrypt = Some(encrypt);
            let reply = client.call(request).unwrap();
            let what = format!("{dialect:?}, signed {sign}, encrypted {encrypt}");
            assert_eq!(reply.status(), Status::SUCCESS, "{what}");
            assert_eq!((reply.signed, reply.encrypted), (sign, encrypt), "{what}");
        }
        user.tree(DATA).unwrap().write_file("f", b"x").unwrap();
        // The refusal of a wrong signature is signed with the right key.
        let mut request = nobody.tree_connect("\\\\server\\IPC$");
        request.overrides.sign = Some(true);
        request.overrides.corrupt_signature = true;
        let reply = client.call(request).unwrap();
        assert_eq!(
            (reply.status(), reply.signed),
            (Status::ACCESS_DENIED, true)
        );
        // [MS-SMB2] 3.3.5.2.1.1: where nobody else has authenticated, nothing is encrypted.
        let alone = server.client(Options::dialect(dialect).signing(Signing::IfRequired));
        let nobody = alone.login_with(&Login::anonymous()).unwrap();
        let mut request = nobody.tree_connect("\\\\server\\IPC$");
        request.overrides.encrypt = Some(true);
        assert_eq!(outcome(alone.call(request)), Outcome::Closed, "{dialect:?}");
    }
}

#[test]
fn an_anonymous_session_lists_nothing_if_that_is_disabled() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "anonymous_listing = false\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let client = server.client(Options::default());
    let refused = client.login_with(&Login::anonymous()).map(|_| ());
    assert_eq!(status(refused), Status::ACCESS_DENIED);
}

/// An anonymous client has the rights and the identity of a guest.
#[test]
fn an_anonymous_session_is_a_guest_on_shares_that_allow_guests() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "signing = \"desired\"\n".to_owned(),
        tables: "[[share]]\nname = \"open\"\npath = \"second\"\nguest = true\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let folder = server.share_path(SECOND, "");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    for dialect in Dialect::ALL {
        let client = || server.client(Options::dialect(dialect).signing(Signing::IfRequired));
        let nobody = client().login_with(&Login::anonymous()).unwrap();
        assert!(nobody.flags().contains(SessionFlags::IS_NULL));
        assert_eq!(status(nobody.tree(DATA)), Status::ACCESS_DENIED);
        let tree = nobody.tree("open").unwrap();
        tree.write_file("nobodys", b"written").unwrap();
        let guest = client().login("no-such-user", "x", "").unwrap();
        let guests = guest.tree("open").unwrap();
        assert_eq!(guests.read_file("nobodys").unwrap(), b"written");
        guests.write_file("guests", b"too").unwrap();
        let owner = |name| std::fs::metadata(folder.join(name)).unwrap().uid();
        assert_eq!(owner("nobodys"), owner("guests"));
        assert_eq!(tree.read_file("guests").unwrap(), b"too");
        guests.delete("nobodys").unwrap();
        tree.delete("guests").unwrap();
    }
}

#[test]
fn invalid_tokens_are_refused() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    for token in [
        &b""[..],
        b"\x60",
        b"\x60\x84\xff\xff\xff\xff\x06",
        b"NTLMSSP\0\x03\0\0\0",
        b"NTLMSSP\0\x01\0\0\0\xff",
        &[0x30; 4000],
    ] {
        let reply = client.call(Request::session_setup(token)).unwrap();
        assert!(
            reply.status().is_error() && reply.status() != Status::MORE_PROCESSING_REQUIRED
                || token.is_empty(),
            "{token:x?}: {}",
            reply.status()
        );
    }
    client.login(USER, PASSWORD, "").unwrap();
}

#[test]
fn an_unknown_session_gives_user_session_deleted() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let reply = client.call(Request::session_setup(b"x").session(SessionId(0x1234_5678)));
    assert_eq!(
        outcome(reply),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
}

#[test]
fn several_users_share_a_connection() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let alice = client.login(USER, PASSWORD, "").unwrap();
    let bob = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    assert_ne!(alice.id(), bob.id());
    let (a, b) = (alice.tree(DATA).unwrap(), bob.tree(DATA).unwrap());
    let file = a.create(&CreateArgs::create("f")).unwrap();
    // A handle belongs to its session.
    assert_eq!(status(file.through(&b).close()), Status::FILE_CLOSED);
    // A tree belongs to its session, too.
    let stranger = bob.tree_of(a.id(), *a.info());
    if a.id() != b.id() {
        let opened = stranger.create(&CreateArgs::open("f"));
        assert_eq!(status(opened), Status::NETWORK_NAME_DELETED);
    }
    file.close().unwrap();
}

#[test]
fn interleaved_logins_on_one_connection_have_separate_hashes() {
    // [MS-SMB2] 3.3.5.5.1: Session.PreauthIntegrityHashValue belongs to the session. If both logins
    // shared one, the keys of neither client would match the server's.
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect).signing(Signing::Required));
        // An existing session provides the credits for several concurrent requests.
        client.login(USER, PASSWORD, "").unwrap();
        let mut connection = client.connection();
        let begin = |user: &str, password: &str| {
            let credentials = Credentials::password(user, "", password);
            LoginArgs::new(credentials, FileTime::from_unix(2_000_000_000, 0).0)
        };
        let tickets = [
            (USER, PASSWORD),
            (OTHER_USER, OTHER_PASSWORD),
            (USER, PASSWORD),
        ]
        .map(|(user, password)| {
            let args = begin(user, password);
            connection.core_mut().begin_login(args).unwrap()
        });
        // All first requests are sent before any answer is read, and so before any second request.
        let ids = tickets.map(|ticket| connection.finish_login(ticket).unwrap().session_id);
        for id in ids {
            let path = smb_wire::utf16::encode(r"\\127.0.0.1\data");
            let request = Request::new(&TreeConnectRequest {
                flags: TreeConnectFlags::empty(),
                path: &path,
            });
            let reply = connection.call(request.session(id)).unwrap();
            assert_eq!((reply.status(), reply.signed), (Status::SUCCESS, true));
        }
    }
}

#[test]
fn a_new_session_replaces_the_old_one_of_the_same_user() {
    let server = HoldfastServer::new();
    let old = server.session(Options::default());
    let tree = old.tree(DATA).unwrap();
    let file = tree.create(&CreateArgs::create("held").share(smb_wire::msg::ShareAccess::empty()));
    let file = file.unwrap();
    let client = server.client(Options::default());
    let login = Login::user(USER, PASSWORD, "").replacing(old.id());
    let new = client.login_with(&login).unwrap();
    let tree = new.tree(DATA).unwrap();
    // The open of the old session was closed, so nothing conflicts.
    tree.create(&CreateArgs::open("held")).unwrap();
    match file.write(0, b"x", smb_wire::msg::WriteFlags::empty()) {
        Err(ClientError::Status(Status::USER_SESSION_DELETED) | ClientError::Disconnected) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_with_all_its_sessions_has_room_for_one_that_replaces_another() {
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nsessions_per_connection = 1\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let old = server.session(Options::default());
    let another = old.client().login(USER, PASSWORD, "");
    assert_eq!(status(another), Status::REQUEST_NOT_ACCEPTED);
    let login = Login::user(USER, PASSWORD, "").replacing(old.id());
    let new = old.client().login_with(&login).unwrap();
    assert_eq!(status(old.tree(DATA)), Status::USER_SESSION_DELETED);
    new.tree(DATA).unwrap();
}

#[test]
fn another_users_session_is_not_replaced() {
    let server = HoldfastServer::new();
    let old = server.session(Options::default());
    let tree = old.tree(DATA).unwrap();
    let client = server.client(Options::default());
    let login = Login::user(OTHER_USER, OTHER_PASSWORD, "").replacing(old.id());
    client.login_with(&login).unwrap();
    tree.write_file("mine", b"still").unwrap();
}

fn second(server: &HoldfastServer, first: &Session, options: Options) -> Client {
    let guid = first.client().connection().core().guid();
    server.client(options.guid(guid))
}

#[test]
fn smb_2_1_has_no_binding() {
    let server = HoldfastServer::new();
    let first = server.session(Options::dialect(Dialect::SMB_2_1).signing(Signing::Required));
    let other = second(&server, &first, Options::dialect(Dialect::SMB_2_1));
    let refused = other.bind(first.secret().unwrap(), &Login::user(USER, PASSWORD, ""));
    assert_eq!(status(refused), Status::REQUEST_NOT_ACCEPTED);
}

#[test]
fn one_client_uses_one_dialect() {
    // [MS-SMB2] 3.3.5.5.3: a login with another dialect under the same ClientGuid is refused.
    let server = HoldfastServer::new();
    let first = server.session(Options::default());
    let other = second(&server, &first, Options::dialect(Dialect::SMB_2_1));
    let refused = other.login(USER, PASSWORD, "");
    assert_eq!(status(refused), Status::USER_SESSION_DELETED);
    first.tree(DATA).unwrap();
    // Anybody can read and send the ClientGuid, and keeps no other user from logging in by it.
    other.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let again = second(&server, &first, Options::default());
    again.login(USER, PASSWORD, "").unwrap();
}

/// [MS-SMB2] 3.3.5.5.3: connections of 2.0.2 neither count nor are counted.
#[test]
fn a_login_with_the_oldest_dialect_excludes_no_other() {
    for oldest_first in [false, true] {
        let server = HoldfastServer::new();
        let oldest = Options::dialect(Dialect::SMB_2_0_2);
        let (one, two) = match oldest_first {
            true => (oldest, Options::default()),
            false => (Options::default(), oldest),
        };
        let first = server.session(one);
        let other = second(&server, &first, two);
        other.login(USER, PASSWORD, "").unwrap().tree(DATA).unwrap();
        first.tree(DATA).unwrap();
    }
}
