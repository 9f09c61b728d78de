//! Shared by the tests of this crate: a message around a body, and the check of captured messages.

use bytes::BytesMut;

use crate::header::{Command, Header};

/// Builds a message: a header (not at the start of the output, so that wrong offsets are detected)
/// and the body that `encode` appends to it.
pub(crate) fn message(encode: impl FnOnce(&mut BytesMut, usize)) -> Vec<u8> {
    let mut out = BytesMut::from(&b"before"[..]);
    let start = out.len();
    Header {
        command: Command(0x1234),
        ..Header::default()
    }
    .encode(&mut out);
    encode(&mut out, start);
    out.split_off(start).to_vec()
}

/// Asserts that a captured message decodes to `$value`, and that encoding `$value` yields the captured body again.
macro_rules! captured {
    ($type:ty, $bytes:expr, $value:expr) => {{
        let bytes = $bytes;
        let value = $value;
        let read = <$type>::read(&bytes).unwrap();
        assert_eq!(read, value);
        let written = crate::testing::message(|out, start| read.encode(out, start));
        assert_eq!(written[64..], bytes[64..], "written: {written:02x?}");
    }};
}
pub(crate) use captured;
