//! Truncated bodies, bodies of the wrong size, and every field at its extremes.

use bytes::BytesMut;
use smb_client::{Options, Request};
use smb_tests::HoldfastServer;
use smb_wire::Status;

use crate::requests::{Attacker, End, Precious, end};

const BODY: usize = 64;

/// Runs `spoil` for every command, with a new connection whenever the last one has become unusable.
fn each(
    server: &HoldfastServer,
    spoils: impl Fn(&Request) -> Vec<(String, Request)>,
    check: impl Fn(&str, End),
) {
    let precious = Precious::new(server);
    let mut attacker = Attacker::new(server, Options::default());
    let commands = attacker.requests().len();
    for index in 0..commands {
        let (command, good) = attacker.requests().swap_remove(index);
        for nth in 0..spoils(&good).len() {
            // The handles may have changed since the last request.
            let (_, good) = attacker.requests().swap_remove(index);
            let (what, spoilt) = spoils(&good).swap_remove(nth);
            let what = format!("{command}, {what}");
            let ended = end(&attacker, spoilt, &what);
            check(&what, ended);
            precious.check(&what);
            if used_up(command, ended) {
                attacker = Attacker::new(server, Options::default());
            }
        }
    }
    server.assert_serving();
}

/// Returns whether the attacker needs a new session or new handles.
fn used_up(command: &str, ended: End) -> bool {
    match ended {
        End::Closed | End::Pending => true,
        End::Status(status) => {
            let gone = [
                Status::USER_SESSION_DELETED,
                Status::NETWORK_NAME_DELETED,
                Status::FILE_CLOSED,
            ];
            gone.contains(&status)
                || (status.is_success()
                    && ["CLOSE", "TREE_DISCONNECT", "LOGOFF", "LOCK"].contains(&command))
        }
    }
}

fn with(request: &Request, change: impl FnOnce(&mut BytesMut)) -> Request {
    request.clone().mutate(change)
}

#[test]
fn truncated_bodies_are_refused() {
    let server = HoldfastServer::new();
    each(
        &server,
        |good| {
            // The fixed part, whose length is StructureSize (rounded down to even).
            let size = u16::from_le_bytes([good.message()[BODY], good.message()[BODY + 1]]);
            let fixed = usize::from(size & !1);
            (0..fixed.min(good.message().len() - BODY))
                .map(|len| {
                    (
                        format!("{len} bytes"),
                        with(good, |m| m.truncate(BODY + len)),
                    )
                })
                .collect()
        },
        |what, ended| match ended {
            End::Closed => {}
            End::Status(status) => assert!(status.is_error(), "{what}: {status}"),
            End::Pending => panic!("{what} waits"),
        },
    );
}

#[test]
fn wrong_structure_sizes_are_refused() {
    let server = HoldfastServer::new();
    each(
        &server,
        |good| {
            let size = u16::from_le_bytes([good.message()[BODY], good.message()[BODY + 1]]);
            [0, 1, size - 1, size + 1, size | 0x100, 0xffff]
                .into_iter()
                .map(|wrong| {
                    let spoilt = with(good, |m| {
                        m[BODY..BODY + 2].copy_from_slice(&wrong.to_le_bytes());
                    });
                    (format!("StructureSize {wrong}"), spoilt)
                })
                .collect()
        },
        |what, ended| match ended {
            End::Closed => {}
            End::Status(status) => assert!(status.is_error(), "{what}: {status}"),
            End::Pending => panic!("{what} waits"),
        },
    );
}

fn extremes_16(good: &Request) -> Vec<(String, Request)> {
    let len = good.message().len();
    let mut all = Vec::new();
    for at in (BODY + 2..len.min(BODY + 64) - 1).step_by(2) {
        let now = u16::from_le_bytes([good.message()[at], good.message()[at + 1]]);
        let body = u16::try_from(len).unwrap_or(u16::MAX);
        for value in [
            0,
            1,
            now.wrapping_add(1),
            now.wrapping_sub(1),
            body,
            body + 1,
            0x7fff,
            0xffff,
        ] {
            let spoilt = with(good, |m| {
                m[at..at + 2].copy_from_slice(&value.to_le_bytes())
            });
            all.push((format!("{value:#x} at {}", at - BODY), spoilt));
        }
    }
    all
}

fn extremes_32(good: &Request) -> Vec<(String, Request)> {
    let len = good.message().len();
    let mut all = Vec::new();
    for at in (BODY + 4..len.min(BODY + 80) - 3).step_by(4) {
        let now: [u8; 4] = good.message()[at..at + 4].try_into().unwrap();
        let now = u32::from_le_bytes(now);
        let body = u32::try_from(len).unwrap_or(u32::MAX);
        for value in [
            0,
            1,
            now.wrapping_add(1),
            now.wrapping_sub(1),
            body,
            body + 1,
            0xffff,
            0x7fff_ffff,
            0xffff_fff8,
            0xffff_ffff,
        ] {
            let spoilt = with(good, |m| {
                m[at..at + 4].copy_from_slice(&value.to_le_bytes())
            });
            all.push((format!("{value:#x} at {}", at - BODY), spoilt));
        }
    }
    all
}

#[test]
fn every_16_bit_field_at_its_extremes_is_survived() {
    let server = HoldfastServer::new();
    each(&server, extremes_16, |_, _| {});
}

#[test]
fn every_32_bit_field_at_its_extremes_is_survived() {
    let server = HoldfastServer::new();
    each(&server, extremes_32, |_, _| {});
}

#[test]
fn header_fields_at_their_extremes_are_survived() {
    let server = HoldfastServer::new();
    let precious = Precious::new(&server);
    // CreditCharge, Status, Command, Flags, NextCommand: the client fills these fields in itself,
    // so they are overwritten in a raw message.
    for (at, len) in [(4, 2), (6, 2), (8, 4), (12, 2), (16, 4), (20, 4), (24, 8)] {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let attacker = Attacker::new(&server, Options::default());
            let mut connection = attacker.session.client().connection();
            let mut header = BytesMut::new();
            smb_wire::Header {
                command: smb_wire::Command::ECHO,
                credit_charge: 1,
                credits: 1,
                message_id: connection.core().next_message_id(),
                ..smb_wire::Header::default()
            }
            .encode(&mut header);
            header.extend_from_slice(&[4, 0, 0, 0]);
            header[at..at + len].fill(byte);
            connection.send_message(&header).unwrap();
            connection.set_timeout(smb_tests::MEANWHILE);
            // The message is answered, ignored (a CANCEL), or the connection is closed.
            let _ = connection.receive();
            drop(connection);
            precious.check("header");
        }
    }
    server.assert_serving();
}
