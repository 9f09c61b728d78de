//! Lease breaks, error data and the notification as laid out in the text: bytes made by hand from
//! [MS-SMB2] 2.2.23.2, 2.2.24.2, 2.2.25.2, 2.2.2 and 2.2.44, because the captures have none.

use bytes::BytesMut;

use crate::create_context::LeaseState;
use crate::ids::LeaseKey;
use crate::msg::*;
use crate::testing::captured;

/// A header whose contents do not matter.
macro_rules! after_header {
    ($body:literal) => {
        concat!(
            "fe534d42 4000 0000 00000000 1200 0000 00000000 00000000 ffffffffffffffff",
            "00000000 00000000 0000000000000000 00000000000000000000000000000000",
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

#[test]
fn symbolic_link_of_the_text() {
    // The second example of [MS-SMB2] 2.2.2.2.1.1.
    let target = crate::utf16::encode(r"..\DonHall\Documents\PDocs");
    let link = SymbolicLinkError {
        unparsed_path_length: 0x2e,
        relative: true,
        substitute_name: &target,
        print_name: &target,
    };
    let mut data = BytesMut::new();
    link.encode(&mut data);
    assert_eq!(SymbolicLinkError::read(&data), Ok(link));
    let head =
        crate::testing::hex("80000000 53594d4c 0c0000a0 7400 2e00 0000 3400 3400 3400 01000000");
    assert_eq!(data[..28], head);
    assert_eq!(data.len(), 4 + 0x80);
    for len in 0..data.len() {
        assert!(SymbolicLinkError::read(&data[..len]).is_err(), "{len}");
    }
}

#[test]
fn session_closed() {
    captured!(
        ServerToClientNotification<'_>,
        after_header!("0c00 0000 00000000 00000000"),
        ServerToClientNotification::SESSION_CLOSED
    );
}
