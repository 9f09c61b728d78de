//! LOGOFF ([MS-SMB2] 3.3.5.6).

use smb_client::{CreateArgs, Encryption, Options, Request, Signing};
use smb_tests::{DATA, HoldfastServer, Outcome, PASSWORD, USER, outcome, status, wait_until};
use smb_wire::Status;
use smb_wire::ids::SessionId;
use smb_wire::msg::{EchoRequest, LogoffRequest, LogoffResponse, OplockLevel, ShareAccess};

#[test]
fn everything_of_the_session_ends() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let tree = session.tree(DATA).unwrap();
    let exclusive = CreateArgs::create("held").share(ShareAccess::empty());
    tree.create(&exclusive).unwrap();
    let reply = session
        .client()
        .call(Request::new(&LogoffRequest).session(session.id()))
        .unwrap()
        .ok()
        .unwrap();
    LogoffResponse::read(&reply.message).unwrap();
    let after = tree.create(&CreateArgs::open("held"));
    assert_eq!(status(after), Status::USER_SESSION_DELETED);
    // The open was closed with the session.
    server.tree().create(&CreateArgs::open("held")).unwrap();
}

#[test]
fn the_connection_can_log_in_again() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    session.logoff().unwrap();
    let again = session.client().login(USER, PASSWORD, "").unwrap();
    assert_ne!(again.id(), session.id());
    again.tree(DATA).unwrap();
}

#[test]
fn other_sessions_of_the_connection_are_not_affected() {
    let server = HoldfastServer::new();
    let first = server.session(Options::default());
    let second = first.client().login(USER, PASSWORD, "").unwrap();
    first.logoff().unwrap();
    second.tree(DATA).unwrap().write_file("f", b"x").unwrap();
}

#[test]
fn unknown_sessions_give_user_session_deleted() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let client = session.client().clone();
    for id in [SessionId(0), SessionId(0x5555), SessionId::ANY] {
        let reply = client.call(Request::new(&LogoffRequest).session(id));
        assert_eq!(
            outcome(reply),
            Outcome::Answered(Status::USER_SESSION_DELETED),
            "{id:?}"
        );
    }
    session.logoff().unwrap();
    let again = client.call(Request::new(&LogoffRequest).session(session.id()));
    assert_eq!(
        outcome(again),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
}

#[test]
fn an_unsigned_logoff_of_a_signed_session_is_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default().signing(Signing::Required));
    let unsigned = Request::new(&LogoffRequest)
        .session(session.id())
        .overriding(|o| o.sign = Some(false));
    let reply = session.client().call(unsigned);
    assert_eq!(outcome(reply), Outcome::Answered(Status::ACCESS_DENIED));
    session
        .client()
        .call(Request::new(&EchoRequest).session(session.id()))
        .unwrap()
        .ok()
        .unwrap();
}

/// [MS-SMB2] 3.3.5.6: nothing of the session stays. Its last answers come while the client still has its keys. The
/// other client does not answer the break.
#[test]
fn a_create_that_waits_for_a_break_is_answered_before_the_logoff() {
    let server = HoldfastServer::new();
    let holder = server.tree();
    let cached = CreateArgs::create("f").oplock(OplockLevel::BATCH);
    let _held = holder.create(&cached).unwrap();
    for options in [
        Options::default().signing(Signing::Required),
        Options::default().encryption(Encryption::Always),
    ] {
        let tree = server.tree_with(options);
        let waits = tree.send(CreateArgs::open("f").request()).unwrap();
        assert!(tree.client().wait_pending(waits).unwrap().is_some());
        tree.session().logoff().unwrap();
        let ended = tree.client().wait(waits).unwrap();
        assert_eq!(ended.status(), Status::USER_SESSION_DELETED);
        assert!(ended.signed || ended.encrypted);
    }
    assert_eq!(server.opens(), 1);
}

/// Otherwise an attacker with one account could keep others out without having a session.
#[test]
fn a_connection_whose_session_was_logged_off_makes_room_for_another() {
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nconnections_per_address = 2\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let [left, stays] = [(); 2].map(|()| server.session(Options::default()));
    left.logoff().unwrap();
    server.tree().write_file("f", b"from another").unwrap();
    stays.tree(DATA).unwrap();
    wait_until("the connection ends", || left.client().echo().is_err());
}
