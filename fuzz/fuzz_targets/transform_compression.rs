//! The headers of encrypted and of compressed messages.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::compression::{ChainedWriter, CompressedMessage, encode_unchained};
use smb_wire::transform::TransformHeader;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = TransformHeader::read(data) {
        assert_eq!(TransformHeader::read(&header.to_bytes()), Ok(header));
        assert_eq!(
            TransformHeader::aad(data).unwrap(),
            &data[TransformHeader::AAD]
        );
    }
    match CompressedMessage::read(data) {
        Ok(CompressedMessage::Unchained {
            original_size,
            algorithm,
            clear,
            data,
        }) => {
            let mut out = BytesMut::new();
            encode_unchained(&mut out, original_size, algorithm, clear, data);
            assert_eq!(
                CompressedMessage::read(&out),
                Ok(CompressedMessage::Unchained {
                    original_size,
                    algorithm,
                    clear,
                    data
                })
            );
        }
        Ok(CompressedMessage::Chained {
            original_size,
            payloads,
        }) => {
            let mut out = BytesMut::new();
            let mut writer = ChainedWriter::new(&mut out, original_size);
            for payload in payloads.flatten() {
                let _ = payload.pattern();
                writer.push(payload);
            }
            if let Ok(CompressedMessage::Chained {
                payloads: again, ..
            }) = CompressedMessage::read(&out)
            {
                assert!(again.eq(payloads.filter(Result::is_ok)));
            }
        }
        Err(_) => {}
    }
});
