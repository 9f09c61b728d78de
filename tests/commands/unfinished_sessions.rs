//! Sessions in setup, logins that do not succeed, and sessions without a user's keys ([MS-SMB2] 3.3.5.2.9, 3.3.5.5,
//! 3.3.5.5.3).

use smb_auth::{Credentials, Initiator, InitiatorParams};
use smb_client::{Client, CreateArgs, Login, Options, Request, Signing};
use smb_tests::{HoldfastServer, PASSWORD, USER, status};
use smb_wire::Status;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, FileTime, Guid, SessionId};
use smb_wire::msg::{
    Capabilities, CloseFlags, CloseRequest, EchoRequest, LogoffRequest, SecurityMode,
    SessionSetupFlags, SessionSetupRequest, SessionSetupResponse, TreeConnectFlags,
    TreeConnectRequest,
};

/// The first message of NTLM.
const NTLM_NEGOTIATE: &[u8] =
    b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

fn setup(flags: SessionSetupFlags, previous_session_id: SessionId) -> Request {
    Request::new(&SessionSetupRequest {
        flags,
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        previous_session_id,
        security_buffer: NTLM_NEGOTIATE,
    })
}

fn ask(client: &Client, request: Request) -> Status {
    client.call(request).unwrap().status()
}

/// Sends the first message of a login and returns the session that it begins.
fn begin(client: &Client) -> SessionId {
    let reply = client.call(Request::session_setup(NTLM_NEGOTIATE)).unwrap();
    assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
    reply.header.session_id
}

/// [MS-SMB2] 3.3.5.5.3: only the same user's login replaces a session, and only when it has succeeded.
#[test]
fn a_login_that_does_not_succeed_replaces_no_session() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let id = tree.session().id();
    let client = server.client(Options::default());
    let first = setup(SessionSetupFlags::empty(), id);
    assert_eq!(ask(&client, first), Status::MORE_PROCESSING_REQUIRED);
    file.write_all(0, b"a login has begun").unwrap();
    let wrong = Login::user(USER, "wrong", "").replacing(id);
    let refused = status(client.login_with(&wrong));
    assert_eq!(refused, Status::LOGON_FAILURE);
    file.write_all(0, b"a login was refused").unwrap();
    let nobody = Login::anonymous().replacing(id);
    client.login_with(&nobody).unwrap();
    file.write_all(0, b"somebody else has logged in").unwrap();
}

/// [MS-SMB2] 3.3.5.2.9: other commands are refused in a session that is in setup, and do not disturb the login.
#[test]
fn a_session_in_setup_serves_no_other_command_and_goes_on() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let mut initiator = Initiator::new(InitiatorParams {
        credentials: Credentials::password(USER, "", PASSWORD),
        workstation: String::new(),
        target_spn: None,
    });
    let mut token = |of_server: &[u8]| {
        let now = FileTime::from_unix(2_000_000_000, 0).0;
        let mut random = |out: &mut [u8]| out.fill(7);
        let token = initiator.step(of_server, now, &mut random);
        token.unwrap().unwrap_or_default()
    };
    let first = Request::session_setup(&token(&[]));
    let reply = client.call(first).unwrap();
    assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
    let id = reply.header.session_id;
    let path = smb_wire::utf16::encode(r"\\host\data");
    let connect = Request::new(&TreeConnectRequest {
        flags: TreeConnectFlags::empty(),
        path: &path,
    });
    for request in [
        Request::new(&EchoRequest),
        CreateArgs::create("f").request(),
        connect,
    ] {
        let command = request.command;
        let refused = ask(&client, request.session(id));
        assert!(!refused.is_success(), "{command} {refused}");
    }
    let response = SessionSetupResponse::read(&reply.message).unwrap();
    let last = Request::session_setup(&token(response.security_buffer));
    assert_eq!(ask(&client, last.session(id)), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.2.9: LOGOFF, CLOSE and LOCK are processed in a session that is in setup.
#[test]
fn a_session_in_setup_can_be_logged_off() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let id = begin(&client);
    let close = Request::new(&CloseRequest {
        flags: CloseFlags::empty(),
        file_id: FileId::ANY,
    });
    assert_eq!(
        ask(&client, close.session(id)),
        Status::NETWORK_NAME_DELETED
    );
    let logoff = || Request::new(&LogoffRequest).session(id);
    assert_eq!(ask(&client, logoff()), Status::SUCCESS);
    let gone = Status::USER_SESSION_DELETED;
    assert_eq!(ask(&client, logoff()), gone);
    let next = Request::session_setup(b"no token").session(id);
    assert_eq!(ask(&client, next), gone);
    client.login(USER, PASSWORD, "").unwrap();
}

/// [MS-SMB2] 3.3.5.5: a login goes on where it has begun. [MS-SMB2] 3.3.5.5.3: its session ends when it is refused.
#[test]
fn a_session_in_setup_is_one_of_its_connection_until_it_is_refused() {
    let server = HoldfastServer::new();
    let (client, other) = (
        server.client(Options::default()),
        server.client(Options::default()),
    );
    let id = begin(&client);
    let next = || Request::session_setup(b"no token").session(id);
    let gone = Status::USER_SESSION_DELETED;
    assert_eq!(ask(&other, next()), gone);
    let signed = next().flag(HeaderFlags::SIGNED);
    assert_eq!(ask(&other, signed), gone);
    let refused = ask(&client, next());
    assert!(!refused.is_success() && refused != gone, "{refused}");
    assert_eq!(ask(&client, next()), gone);
}

/// [MS-SMB2] 3.3.5.5, 3.3.5.2.4: sessions of guests and anonymous clients get no second channel.
#[test]
fn guests_and_anonymous_clients_have_one_channel() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "signing = \"desired\"".into(),
        tables: "[[share]]\nname = \"open\"\npath = \"data\"\nguest = true\n".into(),
        ..smb_tests::Options::default()
    });
    let connect = || {
        let options = Options::default().signing(Signing::IfRequired);
        server.client(options.guid(Guid([0x5b; 16])))
    };
    let (first, second) = (connect(), connect());
    let nobody = first.login_with(&Login::anonymous()).unwrap();
    let bound = second.bind(nobody.secret().unwrap(), &Login::anonymous());
    assert_eq!(status(bound), Status::NOT_SUPPORTED);
    let guest = first.login("nobody-here", "x", "").unwrap();
    let binding = setup(SessionSetupFlags::BINDING, SessionId(0));
    let binding = binding.session(guest.id()).flag(HeaderFlags::SIGNED);
    assert_eq!(ask(&second, binding), Status::NOT_SUPPORTED);
    guest.tree("open").unwrap();
}
