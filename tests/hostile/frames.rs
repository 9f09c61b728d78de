//! Invalid bytes on the transport: false lengths in its header, garbage, and incomplete messages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use fastrand::Rng;
use smb_client::Options;
use smb_tests::{HoldfastServer, SOON};
use smb_wire::header::{NETBIOS_POSITIVE_RESPONSE, transport_header};
use smb_wire::smb1::{DIALECT_SMB_2_WILDCARD, Smb1NegotiateRequest};

use crate::random::bytes;
use crate::requests::Precious;

/// Sends bytes and waits until the server closes the connection or has been silent for `quiet`.
fn throw(server: &HoldfastServer, bytes: &[u8], quiet: Duration) -> Closed {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(quiet)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Closed(true),
            Ok(_) => {}
            Err(error) => {
                let kind = error.kind();
                let waited = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
                return Closed(!waited.contains(&kind));
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Closed(bool);

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = transport_header(message.len()).unwrap().to_vec();
    out.extend_from_slice(message);
    out
}

#[test]
fn bytes_that_are_not_smb_end_the_connection() {
    let server = HoldfastServer::new();
    let long = [0x41; 70_000];
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 100],
        &framed(b""),
        &framed(b"x"),
        &framed(b"\xfeSMB"),
        &framed(b"\xfdSMB"),
        &framed(b"\xfcSMB"),
        &framed(b"\xffSMB"),
        &framed(b"\xffSMB\x72"),
        &framed(&[0; 64]),
        &framed(&[0xfe; 64]),
        &framed(&long),
        &long,
    ] {
        let start = &bytes[..bytes.len().min(12)];
        // Here the bytes of the length field are not chosen: 0x41414141 and HTTP announce much more
        // than is sent.
        let complete = bytes.starts_with(&[0]);
        let closed = throw(
            &server,
            bytes,
            if complete {
                SOON
            } else {
                Duration::from_secs(1)
            },
        );
        // An empty message may be a keep-alive.
        if complete && bytes.len() > 4 {
            assert_eq!(closed, Closed(true), "{start:x?}");
        }
    }
    server.assert_serving();
}

/// RFC 1002 4.3.2: a client of the session service names both ends before it negotiates.
#[test]
fn a_session_of_netbios_is_accepted_once_and_before_the_first_message_only() {
    let server = HoldfastServer::new();
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let request = [&[0x81_u8, 0, 0, 68][..], &[0x20; 68]].concat();
    stream.write_all(&request).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, NETBIOS_POSITIVE_RESPONSE);
    let mut negotiate = BytesMut::new();
    Smb1NegotiateRequest::encode(&mut negotiate, &[DIALECT_SMB_2_WILDCARD]);
    stream.write_all(&framed(&negotiate)).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], &answer[4..]), (0, &b"\xfeSMB"[..]));
    stream.write_all(&request).unwrap();
    // The rest of the answer comes before the end.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.ends_with(&NETBIOS_POSITIVE_RESPONSE));
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&request.repeat(2)).unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    assert_eq!(answers, NETBIOS_POSITIVE_RESPONSE);
    server.assert_serving();
}

#[test]
fn announced_lengths_do_not_reserve_memory() {
    let server = HoldfastServer::new();
    let before = server.memory("VmRSS");
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        // The header announces 16 MiB, but only a few bytes are sent.
        let _ = stream.write_all(&[0x00, 0xff, 0xff, 0xff, 0xfe, b'S', b'M', b'B']);
        held.push(stream);
    }
    server.assert_serving();
    let grown = server.memory("VmRSS").saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for 50 promises");
    drop(held);
    server.assert_serving();
}

/// A NEGOTIATE with the part of its header that a server looks at first.
fn negotiate(server: &HoldfastServer) -> Vec<u8> {
    let mut connection = server.connection(Options::default());
    let request = connection.core_mut().negotiate_request();
    let mut message = request.message().to_vec();
    message[..4].copy_from_slice(b"\xfeSMB");
    message[4] = 64;
    message
}

#[test]
fn incomplete_messages_are_dropped() {
    let server = HoldfastServer::new();
    let whole = framed(&negotiate(&server));
    for len in (0..whole.len()).step_by(7) {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(&whole[..len]).unwrap();
        drop(stream);
    }
    server.assert_serving();
}

#[test]
fn a_message_can_arrive_byte_by_byte() {
    let server = HoldfastServer::new();
    let mut message = negotiate(&server);
    message[14] = 1;
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    for byte in framed(&message) {
        stream.write_all(&[byte]).unwrap();
    }
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[4..], b"\xfeSMB");
}

#[test]
fn garbage_behind_a_valid_header_is_survived() {
    let server = HoldfastServer::new();
    let precious = Precious::new(&server);
    for seed in 1..=60 {
        let mut random = Rng::with_seed(seed);
        let session = server.session(Options::default());
        let mut connection = session.client().connection();
        connection.set_timeout(Duration::from_millis(20));
        for _ in 0..20 {
            let len = 4 + random.usize(..300);
            let mut message = bytes(&mut random, len);
            message[..4].copy_from_slice(match random.u8(..8) {
                0 => b"\xfdSMB",
                1 => b"\xfcSMB",
                2 => b"\xffSMB",
                _ => b"\xfeSMB",
            });
            if message.len() >= 64 && random.u8(..4) != 0 {
                // The bytes look like a header of a known command with the next id.
                message[4..6].copy_from_slice(&64u16.to_le_bytes());
                message[12..14].copy_from_slice(&u16::to_le_bytes(random.u16(..20)));
                message[16..24].fill(0);
                let id = connection.core().next_message_id().0;
                message[24..32].copy_from_slice(&id.to_le_bytes());
                message[40..48].copy_from_slice(&session.id().0.to_le_bytes());
            }
            if connection.send_message(&message).is_err() || connection.receive().is_err() {
                break;
            }
        }
        precious.check(&format!("seed {seed}"));
    }
    server.assert_serving();
}

#[test]
fn invalid_transform_headers_end_the_connection() {
    use smb_client::Encryption;
    use smb_wire::ids::SessionId;
    use smb_wire::transform::TransformHeader;
    let server = HoldfastServer::new();
    let good = |session: SessionId| TransformHeader {
        signature: [1; 16],
        nonce: [2; 16],
        original_message_size: 68,
        flags: TransformHeader::ENCRYPTED,
        session_id: session,
    };
    let spoils: [fn(&mut TransformHeader); 6] = [
        |_| {},
        |h| h.flags = 0,
        |h| h.flags = 2,
        |h| h.original_message_size = 0,
        |h| h.original_message_size = u32::MAX,
        |h| h.session_id = SessionId(0),
    ];
    for (index, spoil) in spoils.into_iter().enumerate() {
        for len in [0, 1, 63, 68] {
            let session = server.session(Options::default().encryption(Encryption::IfRequired));
            let mut header = good(session.id());
            spoil(&mut header);
            let mut message = header.to_bytes().to_vec();
            message.extend(vec![3; len]);
            let mut connection = session.client().connection();
            connection.send_message(&message).unwrap();
            assert!(
                connection.closed_by_server(SOON).unwrap(),
                "{index} {len} still open"
            );
        }
    }
    server.assert_serving();
}

#[test]
fn many_silent_connections_do_not_block_others() {
    let server = HoldfastServer::new();
    let idle: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(server.addr()).unwrap())
        .collect();
    server.assert_serving();
    drop(idle);
    server.assert_serving();
}
