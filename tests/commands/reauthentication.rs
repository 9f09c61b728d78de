//! SESSION_SETUP for a session of the same connection: the user authenticates again ([MS-SMB2]
//! 3.3.5.5, 3.3.5.5.2, 3.3.5.5.3).

use smb_auth::{Credentials, Initiator, InitiatorParams};
use smb_client::{
    Client, CreateArgs, Encryption, Login, Options, Reply, Request, Session, Signing,
};
use smb_tests::{
    DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, PASSWORD, SOON, USER, adopt, status,
    wait_until,
};
use smb_wire::Status;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileTime, SessionId};
use smb_wire::msg::{
    Capabilities, Dialect, EchoRequest, SecurityMode, SessionFlags, SessionSetupFlags,
    SessionSetupRequest, SessionSetupResponse,
};
use smb_wire::transform::TransformHeader;

fn alice() -> Login {
    Login::user(USER, PASSWORD, "")
}

fn bob() -> Login {
    Login::user(OTHER_USER, OTHER_PASSWORD, "")
}

/// The protection of a SESSION_SETUP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leg {
    Signed,
    Unsigned,
    WronglySigned,
}

/// Requests that must be refused.
const FOREIGN: [Leg; 2] = [Leg::Unsigned, Leg::WronglySigned];

/// A reauthentication whose requests are sent one at a time.
struct Proof<'a> {
    client: &'a Client,
    session: SessionId,
    flags: SessionSetupFlags,
    initiator: Initiator,
}

impl<'a> Proof<'a> {
    fn new(session: &'a Session, credentials: Credentials) -> Self {
        Self {
            client: session.client(),
            session: session.id(),
            flags: SessionSetupFlags::empty(),
            initiator: Initiator::new(InitiatorParams {
                credentials,
                workstation: String::new(),
                target_spn: None,
            }),
        }
    }

    fn of(session: &'a Session, user: &str, password: &str) -> Self {
        Self::new(session, Credentials::password(user, "", password))
    }

    /// Returns the client's answer to a token of the server.
    fn token(&mut self, of_server: &[u8]) -> Vec<u8> {
        let now = FileTime::from_unix(2_000_000_000, 0).0;
        let mut random = |out: &mut [u8]| out.fill(7);
        let token = self.initiator.step(of_server, now, &mut random);
        token.unwrap().unwrap_or_default()
    }

    fn send(&self, token: &[u8], leg: Leg) -> Reply {
        let request = Request::new(&SessionSetupRequest {
            flags: self.flags,
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::empty(),
            previous_session_id: SessionId(0),
            security_buffer: token,
        });
        let request = request.session(self.session).overriding(|o| {
            o.sign = Some(leg != Leg::Unsigned);
            o.encrypt = Some(false);
            o.corrupt_signature = leg == Leg::WronglySigned;
        });
        self.client.call(request).unwrap()
    }

    /// Sends the first request, signed, and returns the client's answer to the challenge.
    fn begin(&mut self) -> Vec<u8> {
        let first = self.token(&[]);
        let reply = self.send(&first, Leg::Signed);
        assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
        let response = SessionSetupResponse::read(&reply.message).unwrap();
        let challenge = response.security_buffer.to_vec();
        self.token(&challenge)
    }
}

#[test]
fn a_reauthentication_preserves_the_session() {
    let servers = [HoldfastServer::new(), HoldfastServer::lenient()];
    for dialect in Dialect::ALL {
        for (server, options) in [
            (&servers[0], Options::dialect(dialect)),
            (&servers[1], Options::dialect(dialect)),
            (
                &servers[1],
                Options::dialect(dialect).signing(Signing::Never),
            ),
        ] {
            let session = server.session(options);
            let tree = session.tree(DATA).unwrap();
            let file = tree.create(&CreateArgs::open_if("kept")).unwrap();
            session.reauthenticate(&alice()).unwrap();
            file.write_all(0, b"still mine").unwrap();
            file.close().unwrap();
        }
    }
}

/// Tries the attacks on a session that are possible for an attacker on the network.
fn attacks_on(session: &Session, told: &str) {
    let tree = session.tree(DATA).unwrap();
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    for foreign in FOREIGN {
        // A first request starts nothing.
        let mut stranger = Proof::of(session, OTHER_USER, OTHER_PASSWORD);
        let first = stranger.token(&[]);
        let reply = stranger.send(&first, foreign);
        assert_eq!(reply.status(), Status::ACCESS_DENIED, "{told} {foreign:?}");
        // A later one, whether garbage or copied, neither replaces the request of the legitimate
        // client nor ends the session.
        let mut rightful = Proof::of(session, USER, PASSWORD);
        let answer = rightful.begin();
        for token in [&b"rubbish"[..], b"", &first, &answer] {
            let reply = rightful.send(token, foreign);
            assert_eq!(reply.status(), Status::ACCESS_DENIED, "{told} {foreign:?}");
        }
        let reply = rightful.send(&answer, Leg::Signed);
        assert_eq!(reply.status(), Status::SUCCESS, "{told} {foreign:?}");
        file.write_all(0, b"still mine").unwrap();
    }
}

#[test]
fn an_unsigned_or_wrongly_signed_request_does_not_affect_the_session() {
    let (strict, lenient) = (HoldfastServer::new(), HoldfastServer::lenient());
    for dialect in Dialect::ALL {
        let options = || Options::dialect(dialect);
        let signs = options().signing(Signing::Required);
        attacks_on(&strict.session(signs.clone()), "signing required");
        attacks_on(&lenient.session(signs), "signing chosen");
        if dialect >= Dialect::SMB_3_0 {
            let seals = options().encryption(Encryption::Always);
            attacks_on(&strict.session(seals), "sealed");
        }
    }
}

/// The client of an encrypted session encrypts these requests as well ([MS-SMB2] 3.2.4.1.8).
#[test]
fn an_unprotected_request_does_not_affect_an_encrypted_session_that_signs_nothing() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "signing = \"desired\"\nencryption = \"required\"".into(),
        ..smb_tests::Options::default()
    });
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
        let session = server.session(Options::dialect(dialect));
        attacks_on(&session, "encrypted");
    }
}

#[test]
fn a_failed_reauthentication_ends_the_session() {
    // [MS-SMB2] 3.3.5.5.3: an error of the authentication protocol, in any of the requests.
    let server = HoldfastServer::new();
    let wrong_password =
        |session: &Session| status(session.reauthenticate(&Login::user(USER, "wrong", "")));
    let rubbish_at_first = |session: &Session| {
        let proof = Proof::of(session, USER, PASSWORD);
        proof.send(b"rubbish", Leg::Signed).status()
    };
    let rubbish_later = |session: &Session| {
        let mut proof = Proof::of(session, USER, PASSWORD);
        proof.begin();
        proof.send(b"rubbish", Leg::Signed).status()
    };
    let ways: [fn(&Session) -> Status; 3] = [wrong_password, rubbish_at_first, rubbish_later];
    let answers = [
        Status::LOGON_FAILURE,
        Status::INVALID_PARAMETER,
        Status::INVALID_PARAMETER,
    ];
    for (fail, expected) in ways.into_iter().zip(answers) {
        let session = server.session(Options::default().signing(Signing::Required));
        let tree = session.tree(DATA).unwrap();
        assert_eq!(fail(&session), expected);
        let after = tree.create(&CreateArgs::open_if("gone"));
        assert_eq!(status(after), Status::USER_SESSION_DELETED);
    }
}

#[test]
fn failed_logins_of_others_at_the_same_address_end_no_session() {
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nfailed_logins = 1\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let session = server.session(Options::default());
    let tree = session.tree(DATA).unwrap();
    let guess = server.client(Options::default()).login(USER, "wrong", "");
    assert_eq!(status(guess), Status::LOGON_FAILURE);
    // From now on even the right password is refused, without being looked at.
    let again = session.reauthenticate(&alice());
    assert_eq!(status(again), Status::LOGON_FAILURE);
    tree.write_file("f", b"still mine").unwrap();
}

#[test]
fn a_malformed_request_affects_neither_the_session_nor_the_setup() {
    // The message is malformed, so no token has been evaluated.
    let server = HoldfastServer::new();
    let session = server.session(Options::default().signing(Signing::Required));
    let mut proof = Proof::of(&session, USER, PASSWORD);
    let answer = proof.begin();
    let broken = Request::raw(smb_wire::Command::SESSION_SETUP, &[9; 24]).session(session.id());
    let broken = broken.overriding(|o| o.sign = Some(true));
    let reply = session.client().call(broken).unwrap();
    assert_eq!(reply.status(), Status::INVALID_PARAMETER);
    let reply = proof.send(&answer, Leg::Signed);
    assert_eq!(reply.status(), Status::SUCCESS);
    session.tree(DATA).unwrap();
}

#[test]
fn a_session_cannot_change_its_user() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let session = server.session(Options::dialect(dialect));
        let tree = session.tree(DATA).unwrap();
        let file = tree.create(&CreateArgs::open_if("hers")).unwrap();
        assert_eq!(
            status(session.reauthenticate(&bob())),
            Status::ACCESS_DENIED
        );
        // The other user has proved his identity, which neither ends nor changes the session.
        file.write_all(0, b"hers").unwrap();
        let owners: Vec<_> = server.sessions();
        assert!(owners.iter().all(|one| one["user"] == USER), "{owners:?}");
        session.reauthenticate(&alice()).unwrap();
        file.close().unwrap();
        session.logoff().unwrap();
    }
}

#[test]
fn a_session_that_became_anonymous_keeps_its_handles_and_gets_no_more() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let tree = session.tree(DATA).unwrap();
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    session.reauthenticate(&Login::anonymous()).unwrap();
    file.write_all(0, b"as granted").unwrap();
    let opened = tree.create(&CreateArgs::open("f"));
    assert_eq!(status(opened), Status::ACCESS_DENIED);
    assert_eq!(status(session.tree(DATA)), Status::ACCESS_DENIED);
    // It cannot become the session of another user.
    assert_eq!(
        status(session.reauthenticate(&bob())),
        Status::ACCESS_DENIED
    );
    session.reauthenticate(&alice()).unwrap();
    tree.create(&CreateArgs::open("f")).unwrap();
}

#[test]
fn a_session_without_keys_cannot_become_a_users() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "signing = \"desired\"\n".to_owned(),
        tables: "[[share]]\nname = \"open\"\npath = \"data\"\nguest = true\n".to_owned(),
        ..smb_tests::Options::default()
    });
    for dialect in Dialect::ALL {
        let options = Options::dialect(dialect).signing(Signing::IfRequired);
        let guest = server.client(options.clone());
        let guest = guest.login("nobody-here", "x", "").unwrap();
        assert!(guest.flags().contains(SessionFlags::IS_GUEST));
        assert_eq!(
            status(guest.reauthenticate(&alice())),
            Status::ACCESS_DENIED
        );
        let turned = guest.reauthenticate(&Login::anonymous());
        assert_eq!(status(turned), Status::ACCESS_DENIED);
        guest.tree("open").unwrap();
        signs_and_encrypts_nothing(&guest);
        let nobody = server.client(options);
        let nobody = nobody.login_with(&Login::anonymous()).unwrap();
        assert_eq!(
            status(nobody.reauthenticate(&alice())),
            Status::ACCESS_DENIED
        );
        // A share that allows guests admits the anonymous session as a guest.
        nobody.tree("open").unwrap();
    }
    let users = |name: &str| {
        let sessions = server.sessions();
        sessions.iter().filter(|one| one["user"] == name).count()
    };
    wait_until("no session is a user's", || users(USER) == 0);
}

/// Asserts that a guest can neither sign nor encrypt ([MS-SMB2] 3.3.5.2.4, 3.3.5.2.1.1), and ends the connection.
fn signs_and_encrypts_nothing(guest: &Session) {
    let client = guest.client();
    let signed = Request::new(&EchoRequest).session(guest.id());
    let refused = client.call(signed.flag(HeaderFlags::SIGNED)).unwrap();
    assert_eq!(refused.status(), Status::NOT_SUPPORTED);
    assert!(!refused.signed);
    let header = TransformHeader {
        original_message_size: 68,
        flags: TransformHeader::ENCRYPTED,
        session_id: guest.id(),
        ..TransformHeader::default()
    };
    let sealed = [&header.to_bytes()[..], &[0; 68]].concat();
    client.connection().send_message(&sealed).unwrap();
    assert!(client.connection().closed_by_server(SOON).unwrap());
}

/// A copy of a signed request, sent on another connection, must not make the server sign a second message with the same
/// MessageId and key ([MS-SMB2] 3.1.4.1).
#[test]
fn the_key_of_a_session_signs_nothing_on_a_connection_that_is_no_channel() {
    let server = HoldfastServer::new();
    let options = || Options::default().guid(smb_wire::ids::Guid([6; 16]));
    let first = server.session(options());
    let second = server.client(options());
    adopt(&second, &first);
    let on_second = |flags| {
        let mut proof = Proof {
            client: &second,
            flags,
            ..Proof::of(&first, USER, PASSWORD)
        };
        let token = proof.token(&[]);
        let reply = proof.send(&token, Leg::Signed);
        (reply.status(), reply.signed)
    };
    let copied = on_second(SessionSetupFlags::empty());
    assert_eq!(copied, (Status::USER_SESSION_DELETED, false));
    // The answers of a binding are signed with it.
    let binding = on_second(SessionSetupFlags::BINDING);
    assert_eq!(binding, (Status::MORE_PROCESSING_REQUIRED, true));
    first.tree(DATA).unwrap();
}

#[test]
fn a_request_without_the_binding_flag_does_not_affect_a_binding() {
    // It is not signed, so anybody could have sent it.
    let server = HoldfastServer::new();
    let options = || Options::default().guid(smb_wire::ids::Guid([5; 16]));
    let first = server.session(options());
    let second = server.client(options());
    adopt(&second, &first);
    let channel = Proof {
        client: &second,
        flags: SessionSetupFlags::BINDING,
        ..Proof::of(&first, USER, PASSWORD)
    };
    let mut binding = channel;
    let answer = binding.begin();
    let stranger = Proof {
        client: &second,
        ..Proof::of(&first, USER, PASSWORD)
    };
    let reply = stranger.send(&answer, Leg::Unsigned);
    assert_eq!(reply.status(), Status::USER_SESSION_DELETED);
    let id = binding
        .client
        .send(
            Request::new(&SessionSetupRequest {
                flags: SessionSetupFlags::BINDING,
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::empty(),
                previous_session_id: SessionId(0),
                security_buffer: &answer,
            })
            .session(first.id())
            .overriding(|o| o.sign = Some(true)),
        )
        .unwrap();
    // The successful response is signed with a key that this manually driven client has not
    // derived.
    let refused = second.wait(id);
    assert!(
        matches!(refused, Err(smb_client::ClientError::BadSignature(_))),
        "{refused:?}"
    );
    first.tree(DATA).unwrap();
}
