//! Truncated, damaged and random messages: decoding never panics, and truncation is detected.

use proptest::prelude::*;

use super::captured::rewrite;
use super::data::CAPTURED;
use crate::create_context::CreateContexts;
use crate::header::Header;
use crate::msg::{CreateRequest, ErrorResponse, NegotiateRequest};

/// Decodes `bytes` with every decoder.
fn read_everything(bytes: &[u8]) {
    let _ = Header::read(bytes);
    let _ = crate::compound::split(bytes);
    let _ = crate::transform::TransformHeader::read(bytes);
    let _ = crate::smb1::Smb1NegotiateRequest::read(bytes);
    for (kind, _) in CAPTURED {
        let _ = rewrite(kind, bytes);
    }
    if let Ok(request) = CreateRequest::read(bytes) {
        read_contexts(request.contexts);
    }
    if let Ok(request) = NegotiateRequest::read(bytes) {
        request.contexts.iter().for_each(drop);
    }
    if let Ok(response) = ErrorResponse::read(bytes) {
        response.contexts().for_each(drop);
    }
    read_contexts(bytes);
}

fn read_contexts(list: &[u8]) {
    for context in CreateContexts::new(list).flatten() {
        let _ = context.request();
        let _ = context.response();
    }
}

#[test]
fn truncated_messages_are_refused() {
    for (kind, bytes) in CAPTURED {
        for len in 0..bytes.len() {
            let read = rewrite(kind, &bytes[..len]);
            if len < 66 {
                assert!(read.is_err(), "{kind} of {len} bytes");
            }
        }
    }
}

#[test]
fn a_create_has_a_byte_behind_its_fixed_part() {
    let mut message = vec![0; 64 + 57];
    message[64] = 57;
    let read = CreateRequest::read(&message).unwrap();
    assert!(read.name.is_empty() && read.contexts.is_empty());
    message.pop();
    assert!(CreateRequest::read(&message).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn captured_messages_with_flipped_bytes(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = which.get(CAPTURED).1.to_vec();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_everything(&bytes);
        read_everything(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_everything(&bytes);
    }

    #[test]
    fn random_create_contexts_do_not_panic(
        list in prop::collection::vec(prop_oneof![Just(0u8), Just(8), Just(16), any::<u8>()], 0..200)
    ) {
        // At most as many members as the bytes have space for.
        prop_assert!(CreateContexts::new(&list).count() <= list.len() / 16 + 1);
        read_contexts(&list);
    }
}
