//! The headers of encrypted messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_wire::transform::TransformHeader;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = TransformHeader::read(data) {
        assert_eq!(TransformHeader::read(&header.to_bytes()), Ok(header));
        assert_eq!(
            TransformHeader::aad(data).unwrap(),
            &data[TransformHeader::AAD]
        );
    }
});
