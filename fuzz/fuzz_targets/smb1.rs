//! The SMB1 NEGOTIATE.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::smb1::Smb1NegotiateRequest;

fuzz_target!(|data: &[u8]| {
    let Ok(request) = Smb1NegotiateRequest::read(data) else {
        return;
    };
    let _ = (request.offers_wildcard(), request.offers_smb_2_002());
    let dialects: Vec<_> = request.dialects().collect();
    let mut out = BytesMut::new();
    Smb1NegotiateRequest::encode(&mut out, &dialects);
    let again = Smb1NegotiateRequest::read(&out).expect("what was written is readable");
    assert!(again.dialects().eq(dialects));
});
