//! Tests of the state machine with a minimal server: frames out, replies in.

use bytes::BytesMut;
use smb_crypto::{Cipher, SignNonce, derive_keys};
use smb_wire::header::{Header, HeaderFlags, transport_header};
use smb_wire::ids::{AsyncId, FileId, FileTime, Guid, MessageId, SessionId};
use smb_wire::msg::{
    Capabilities, Dialect, EchoRequest, EchoResponse, ErrorResponse, NegotiateRequest,
    NegotiateResponse, OplockBreak, OplockLevel, SecurityMode, SessionFlags,
};
use smb_wire::negotiate_context::NegotiateContexts;
use smb_wire::smb1::Smb1NegotiateRequest;
use smb_wire::transform::TransformHeader;
use smb_wire::{Command, Status};

use super::{Break, ClientCore, Event, SessionSecret};
use crate::error::ClientError;
use crate::options::{MultiProtocol, Options};
use crate::request::Request;

fn core(options: Options) -> ClientCore {
    ClientCore::new(options, Box::new(|buffer| buffer.fill(7)))
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = transport_header(message.len()).unwrap().to_vec();
    out.extend_from_slice(message);
    out
}

fn header(command: Command, id: u64) -> Header {
    Header {
        command,
        message_id: MessageId(id),
        credits: 10,
        flags: HeaderFlags::RESPONSE,
        ..Header::default()
    }
}

fn message(header: &Header, body: impl FnOnce(&mut BytesMut, usize)) -> BytesMut {
    let mut out = BytesMut::new();
    header.encode(&mut out);
    body(&mut out, 0);
    out
}

fn negotiate_reply(id: u64, dialect: Dialect) -> Vec<u8> {
    let response = NegotiateResponse {
        security_mode: SecurityMode::SIGNING_ENABLED,
        dialect,
        server_guid: Guid([1; 16]),
        capabilities: Capabilities::LARGE_MTU,
        max_transact_size: 1 << 20,
        max_read_size: 1 << 20,
        max_write_size: 1 << 20,
        system_time: FileTime(0),
        security_buffer: &[],
        contexts: NegotiateContexts::EMPTY,
    };
    framed(&message(&header(Command::NEGOTIATE, id), |out, start| {
        response.encode(out, start);
    }))
}

fn echo_reply(id: u64) -> Vec<u8> {
    framed(&message(&header(Command::ECHO, id), |out, start| {
        EchoResponse.encode(out, start);
    }))
}

fn ready(dialect: Dialect) -> ClientCore {
    let mut core = core(Options::dialect(dialect));
    core.begin_negotiate().unwrap();
    core.next_frame().unwrap();
    core.feed(&negotiate_reply(0, dialect)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Negotiated(Ok(())))));
    core
}

#[test]
fn negotiation_accepts_an_offered_dialect() {
    let mut core = core(Options::dialect(Dialect::SMB_2_1));
    core.begin_negotiate().unwrap();
    let frame = core.next_frame().unwrap();
    assert_eq!(frame.head.len(), 4);
    let sent = NegotiateRequest::read(&frame.body).unwrap();
    assert_eq!(sent.dialects, [Dialect::SMB_2_1]);
    assert_eq!(sent.capabilities, Capabilities::empty());
    // One byte at a time, as a socket may deliver it.
    for byte in negotiate_reply(0, Dialect::SMB_2_1) {
        assert!(core.next_event().is_none());
        core.feed(&[byte]).unwrap();
    }
    assert!(matches!(core.next_event(), Some(Event::Negotiated(Ok(())))));
    assert_eq!(core.negotiated().unwrap().dialect, Dialect::SMB_2_1);
    assert!(core.begin_negotiate().is_err());
}

#[test]
fn a_dialect_that_was_not_offered_is_refused() {
    let mut core = core(Options::dialect(Dialect::SMB_2_1));
    core.begin_negotiate().unwrap();
    let outcome = core.feed(&negotiate_reply(0, Dialect::SMB_2_0_2));
    assert!(matches!(outcome, Err(ClientError::Protocol(_))));
}

#[test]
fn an_smb1_negotiate_is_followed_by_one_of_smb2() {
    let mut core = core(Options {
        multi_protocol: MultiProtocol::Wildcard,
        ..Options::dialect(Dialect::SMB_2_1)
    });
    core.begin_negotiate().unwrap();
    let first = core.next_frame().unwrap();
    assert!(
        Smb1NegotiateRequest::read(&first.body)
            .unwrap()
            .offers_wildcard()
    );
    core.feed(&negotiate_reply(0, Dialect::WILDCARD)).unwrap();
    let second = core.next_frame().unwrap();
    assert_eq!(Header::read(&second.body).unwrap().message_id, MessageId(1));
    core.feed(&negotiate_reply(1, Dialect::SMB_2_1)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Negotiated(Ok(())))));
}

#[test]
fn replies_grant_credits_and_need_a_request() {
    let mut core = ready(Dialect::SMB_2_1);
    assert_eq!(core.credits(), 10);
    let ids = core.send(vec![Request::new(&EchoRequest)]).unwrap();
    assert_eq!((ids, core.credits()), (vec![MessageId(1)], 9));
    core.feed(&echo_reply(1)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Reply(_))));
    assert_eq!(core.credits(), 19);
    assert!(matches!(
        core.feed(&echo_reply(1)),
        Err(ClientError::Protocol(_))
    ));
    core.tolerate();
    core.feed(&echo_reply(77)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Reply(_))));
}

#[test]
fn a_request_without_credits_uses_no_ids() {
    let mut core = ready(Dialect::SMB_2_1);
    let many = vec![Request::new(&EchoRequest); 11];
    assert!(matches!(
        core.send(many),
        Err(ClientError::NoCredits {
            needed: 11,
            available: 10
        })
    ));
    assert_eq!(core.next_message_id(), MessageId(1));
    assert!(core.next_frame().is_none());
}

#[test]
fn compounds_are_chained_and_aligned() {
    let mut core = ready(Dialect::SMB_2_1);
    let odd = Request::raw(Command::ECHO, &[4, 0, 0, 0, 9]);
    let requests = vec![odd, Request::new(&EchoRequest).related()];
    let ids = core.send(requests).unwrap();
    assert_eq!(ids, [MessageId(1), MessageId(2)]);
    let frame = core.next_frame().unwrap();
    let elements = smb_wire::compound::split(&frame.body).unwrap();
    assert_eq!(elements[0].range, 0..72);
    assert_eq!(elements[1].range, 72..140);
    assert!(elements[1].header.flags.contains(HeaderFlags::RELATED));
}

#[test]
fn an_interim_reply_is_followed_by_the_final_one() {
    let mut core = ready(Dialect::SMB_2_1);
    core.send(vec![Request::new(&EchoRequest)]).unwrap();
    let mut interim = header(Command::ECHO, 1);
    interim.status = Status::PENDING;
    interim.async_id = Some(AsyncId(5));
    let bytes = message(&interim, |out, start| {
        ErrorResponse::EMPTY.encode(out, start)
    });
    core.feed(&framed(&bytes)).unwrap();
    assert!(matches!(
        core.next_event(),
        Some(Event::Pending {
            message_id: MessageId(1),
            async_id: AsyncId(5)
        })
    ));
    assert_eq!(core.outstanding(), 1);
    core.feed(&echo_reply(1)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Reply(_))));
    assert_eq!(core.outstanding(), 0);
}

#[test]
fn breaks_need_no_request() {
    let mut core = ready(Dialect::SMB_2_1);
    let file_id = FileId {
        persistent: 1,
        volatile: 2,
    };
    let body = OplockBreak {
        oplock_level: OplockLevel::II,
        file_id,
    };
    let bytes = message(&header(Command::OPLOCK_BREAK, u64::MAX), |out, start| {
        body.encode(out, start);
    });
    core.feed(&framed(&bytes)).unwrap();
    assert!(matches!(
        core.next_event(),
        Some(Event::Break { broken: Break::Oplock { file_id: id, level: OplockLevel::II }, encrypted: false }) if id == file_id
    ));
}

fn secret(dialect: Dialect, cipher: Option<Cipher>) -> SessionSecret {
    let keys = derive_keys(dialect.0, &[3; 16], Some(&[4; 64]), cipher).unwrap();
    SessionSecret::new(SessionId(9), SessionFlags::empty(), keys)
}

#[test]
fn signatures_are_made_and_checked() {
    let mut core = ready(Dialect::SMB_3_0);
    core.adopt_session(secret(Dialect::SMB_3_0, None), true);
    let send = |core: &mut ClientCore| {
        let request = Request::new(&EchoRequest).session(SessionId(9));
        core.send(vec![request]).unwrap()[0].0
    };
    let key = derive_keys(0x0300, &[3; 16], None, None)
        .unwrap()
        .signing_key(smb_crypto::SigningAlgorithm::AesCmac);
    let nonce = |id, is_server| SignNonce {
        message_id: id,
        is_server,
        is_cancel: false,
    };

    let id = send(&mut core);
    let frame = core.next_frame().unwrap();
    assert!(key.verify(&frame.body, nonce(id, false)));
    let mut reply = header(Command::ECHO, id);
    reply.session_id = SessionId(9);
    let unsigned = message(&reply, |out, start| EchoResponse.encode(out, start));
    assert!(matches!(
        core.feed(&framed(&unsigned)),
        Err(ClientError::Unsigned(Command::ECHO))
    ));
    reply.flags |= HeaderFlags::SIGNED;
    let mut signed = message(&reply, |out, start| EchoResponse.encode(out, start));
    key.sign(&mut signed, nonce(id, true)).unwrap();
    let mut forged = signed.clone();
    forged[66] ^= 1;
    assert!(matches!(
        core.feed(&framed(&forged)),
        Err(ClientError::BadSignature(Command::ECHO))
    ));
    core.feed(&framed(&signed)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Reply(r)) if r.signed));
}

#[test]
fn encryption_is_made_and_checked() {
    let cipher = Some(Cipher::Aes128Ccm);
    let mut core = ready(Dialect::SMB_3_0);
    core.adopt_session(secret(Dialect::SMB_3_0, cipher), false);
    let request = || {
        Request::new(&EchoRequest)
            .session(SessionId(9))
            .overriding(|o| o.encrypt = Some(true))
    };
    let keys = derive_keys(0x0300, &[3; 16], None, cipher).unwrap();
    let id = core.send(vec![request()]).unwrap()[0].0;
    let frame = core.next_frame().unwrap();
    let head = TransformHeader::read(&frame.head[4..]).unwrap();
    let mut body = frame.body.to_vec();
    keys.sealing_client_to_server()
        .unwrap()
        .open_in_place(&head.nonce, &frame.head[24..56], &head.signature, &mut body)
        .unwrap();
    assert_eq!(Header::read(&body).unwrap().message_id.0, id);
    core.send(vec![request()]).unwrap();
    let again = TransformHeader::read(&core.next_frame().unwrap().head[4..]).unwrap();
    assert_ne!(head.nonce, again.nonce);

    let clear = message(&header(Command::ECHO, id), |out, start| {
        EchoResponse.encode(out, start);
    });
    assert!(matches!(
        core.feed(&framed(&clear)),
        Err(ClientError::Encryption(_))
    ));
    let mut sealed = clear.to_vec();
    let mut head = TransformHeader {
        nonce: [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        original_message_size: u32::try_from(sealed.len()).unwrap(),
        flags: TransformHeader::ENCRYPTED,
        session_id: SessionId(9),
        ..TransformHeader::default()
    };
    let bytes = head.to_bytes();
    head.signature = keys
        .sealing_server_to_client()
        .unwrap()
        .seal_in_place(
            &head.nonce,
            TransformHeader::aad(&bytes).unwrap(),
            &mut sealed,
        )
        .unwrap();
    let mut whole = head.to_bytes().to_vec();
    whole.extend_from_slice(&sealed);
    let mut forged = whole.clone();
    forged[60] ^= 1;
    assert!(matches!(
        core.feed(&framed(&forged)),
        Err(ClientError::Encryption(_))
    ));
    core.feed(&framed(&whole)).unwrap();
    assert!(matches!(core.next_event(), Some(Event::Reply(r)) if r.encrypted));
}

#[test]
fn invalid_messages_are_an_error_and_no_panic() {
    for bytes in [
        &[0x11, 0, 0, 4, 1, 2, 3, 4][..],
        &framed(b"\xffSMBr"),
        &framed(b"\xfeSMB"),
        &framed(b"\xfdSMB"),
        &framed(b"\xfcSMB"),
        &framed(&[0xfe; 64]),
    ] {
        let mut core = ready(Dialect::SMB_2_1);
        assert!(core.feed(bytes).is_err(), "{bytes:x?}");
    }
    let mut core = ready(Dialect::SMB_2_1);
    core.feed(&[0x85, 0, 0, 0]).unwrap();
    assert!(core.next_event().is_none());
}
