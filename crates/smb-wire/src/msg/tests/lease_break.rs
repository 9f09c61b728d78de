//! Breaks and error data: the captured messages, and bytes composed by hand from [MS-SMB2]
//! 2.2.23.2, 2.2.24.2, 2.2.25.2 and 2.2.2. There is no capture of error contexts and of the data
//! of a symbolic link, because Samba 4.17 sends none of them.

use bytes::BytesMut;

use super::captured::all;
use crate::Status;
use crate::create_context::LeaseState;
use crate::header::Header;
use crate::ids::{LeaseKey, MessageId};
use crate::msg::*;
use crate::testing::captured;

/// The lease key that smbtorture names LEASE1.
const TORTURE_KEY: LeaseKey = LeaseKey([
    0x0d, 0xf0, 0xdd, 0xe0, 0xfe, 0x0f, 0xdc, 0xba, 0xf2, 0x0f, 0x22, 0x1f, 0x01, 0xf0, 0x23, 0x45,
]);

#[test]
fn captured_server_messages_are_of_every_form() {
    let read = |bytes: &Vec<u8>| OplockBreakServerMessage::read(bytes).unwrap();
    let unsolicited =
        |bytes: &Vec<u8>| Header::read(bytes).unwrap().message_id == MessageId::UNSOLICITED;
    let messages = all("OplockBreakServerMessage");
    let unasked: Vec<_> = messages.iter().filter(|m| unsolicited(m)).collect();
    let answers: Vec<_> = messages
        .iter()
        .filter(|m| !unsolicited(m))
        .map(read)
        .collect();
    let notification = |flags, current_lease_state, new_lease_state| {
        OplockBreakServerMessage::LeaseNotification(LeaseBreakNotification {
            new_epoch: 0x13,
            flags,
            lease_key: TORTURE_KEY,
            current_lease_state,
            new_lease_state,
        })
    };
    let OplockBreakServerMessage::Oplock(broken) = read(unasked[0]) else {
        panic!("{:?}", unasked[0]);
    };
    assert_eq!(broken.oplock_level, OplockLevel::II);
    assert_eq!(
        unasked[1..].iter().map(|m| read(m)).collect::<Vec<_>>(),
        [
            notification(
                LeaseBreakFlags::ACK_REQUIRED,
                LeaseState::RWH,
                LeaseState::READ | LeaseState::HANDLE
            ),
            // [MS-SMB2] 3.3.4.7: the loss of read caching alone needs no acknowledgment.
            notification(
                LeaseBreakFlags::empty(),
                LeaseState::READ,
                LeaseState::empty()
            ),
        ]
    );
    let OplockBreakServerMessage::Oplock(answered) = answers[0] else {
        panic!("{:?}", answers[0]);
    };
    assert_eq!(answered.oplock_level, OplockLevel::II);
    assert_eq!(
        answers[1..],
        [OplockBreakServerMessage::LeaseResponse(LeaseBreak {
            lease_key: TORTURE_KEY,
            lease_state: LeaseState::READ | LeaseState::HANDLE,
        })]
    );
}

#[test]
fn captured_acknowledgments_are_of_both_forms() {
    let requests = all("OplockBreakRequest");
    let mut leases = Vec::new();
    for request in &requests {
        match OplockBreakRequest::read(request).unwrap() {
            OplockBreakRequest::Oplock(ack) => assert_eq!(ack.oplock_level, OplockLevel::II),
            OplockBreakRequest::Lease(ack) => {
                assert_eq!(ack.lease_key, TORTURE_KEY);
                leases.push(ack.lease_state);
            }
        }
    }
    let read_handle = LeaseState::READ | LeaseState::HANDLE;
    assert_eq!(leases, [LeaseState::READ, read_handle]);
    assert_eq!(requests.len(), 4, "two of each form");
}

#[test]
fn captured_errors_of_3_1_1_are_bare() {
    // The required length of a security descriptor. Samba 4.17 does not put it into an error
    // context even on 3.1.1, so a client has to understand both forms.
    let errors = all("ErrorResponse");
    let with = |status| {
        let found = errors
            .iter()
            .find(|bytes| Header::read(bytes).unwrap().status == status);
        ErrorResponse::read(found.expect("captured")).unwrap()
    };
    let error = with(Status::BUFFER_TOO_SMALL);
    assert_eq!((error.context_count, error.data), (0, &[0x14, 0, 0, 0][..]));
    assert_eq!(error.contexts().count(), 0);
    // The answer to an acknowledgment of a break that was never sent.
    assert_eq!(with(Status::INVALID_OPLOCK_PROTOCOL), ErrorResponse::EMPTY);
}

/// A header with arbitrary content.
macro_rules! after_header {
    ($body:literal) => {
        hex_literal::hex!(
            "fe534d42 4000 0000 00000000 1200 0000 00000000 00000000 ffffffffffffffff"
            "00000000 00000000 0000000000000000 00000000000000000000000000000000"
            $body
        )
    };
}

#[test]
fn lease_break_notification() {
    captured!(
        OplockBreakServerMessage,
        after_header!(
            "2c00 0500 01000000 0102030405060708090a0b0c0d0e0f10 07000000 03000000
             00000000 00000000 00000000"
        ),
        OplockBreakServerMessage::LeaseNotification(LeaseBreakNotification {
            new_epoch: 5,
            flags: LeaseBreakFlags::ACK_REQUIRED,
            lease_key: LeaseKey([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            current_lease_state: LeaseState::RWH,
            new_lease_state: LeaseState::READ | LeaseState::HANDLE,
        })
    );
}

#[test]
fn lease_break_acknowledgment() {
    let lease = LeaseBreak {
        lease_key: LeaseKey([7; 16]),
        lease_state: LeaseState::READ,
    };
    captured!(
        OplockBreakRequest,
        after_header!(
            "2400 0000 00000000 07070707070707070707070707070707 01000000 0000000000000000"
        ),
        OplockBreakRequest::Lease(lease)
    );
    captured!(
        OplockBreakServerMessage,
        after_header!(
            "2400 0000 00000000 07070707070707070707070707070707 01000000 0000000000000000"
        ),
        OplockBreakServerMessage::LeaseResponse(lease)
    );
}

#[test]
fn error_with_contexts() {
    let mut data = BytesMut::new();
    ErrorContext {
        error_id: ErrorId::DEFAULT,
        data: b"abcde",
    }
    .encode(&mut data, 0);
    ErrorContext {
        error_id: ErrorId::SHARE_REDIRECT,
        data: b"x",
    }
    .encode(&mut data, 0);
    captured!(
        ErrorResponse<'_>,
        after_header!(
            "0900 02 00 19000000 05000000 00000000 6162636465 000000 01000000 53526472 78"
        ),
        ErrorResponse {
            context_count: 2,
            data: &data
        }
    );
    let response = ErrorResponse {
        context_count: 2,
        data: &data,
    };
    let contexts: Vec<_> = response.contexts().map(Result::unwrap).collect();
    assert_eq!(contexts[0].data, b"abcde");
    assert_eq!(
        contexts[1],
        ErrorContext {
            error_id: ErrorId::SHARE_REDIRECT,
            data: b"x"
        }
    );
    let short = ErrorResponse {
        context_count: 3,
        data: &data,
    };
    assert_eq!(short.contexts().filter(Result::is_err).count(), 1);
    let bare = ErrorResponse {
        context_count: 0,
        data: &data,
    };
    assert_eq!(bare.contexts().count(), 0);
}
