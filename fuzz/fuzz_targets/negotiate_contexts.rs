//! A list of negotiate contexts: walked, each member decoded by its type and written again.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::negotiate_context::*;

macro_rules! both_ways {
    ($data:expr, $name:ident) => {
        if let Ok(value) = $name::read($data) {
            let mut out = BytesMut::new();
            value.encode(&mut out);
            assert_eq!($name::read(&out), Ok(value));
        }
    };
}

fuzz_target!(|data: &[u8]| {
    let Some((count, list)) = data.split_first() else {
        return;
    };
    let mut written = NegotiateContextList::new();
    for context in NegotiateContexts::new((*count).into(), list)
        .iter()
        .flatten()
    {
        written.push(context);
        let data = context.data;
        match context.context_type {
            PreauthIntegrityCapabilities::TYPE => both_ways!(data, PreauthIntegrityCapabilities),
            EncryptionCapabilities::TYPE => both_ways!(data, EncryptionCapabilities),
            SigningCapabilities::TYPE => both_ways!(data, SigningCapabilities),
            _ => {}
        }
    }
    let contexts = written.contexts();
    assert_eq!(
        contexts.iter().map(Result::unwrap).count(),
        usize::from(contexts.count())
    );
});
