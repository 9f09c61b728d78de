//! UTF-16LE text of the wire: raw bytes, without a terminating NUL unless a field says so.
//!
//! Decoding is strict for names (an unpaired surrogate is an error; MS-FSCC 2.1.5 names become
//! paths) and lossy for text that is only displayed. Case folding is elsewhere.

use bytes::{BufMut, BytesMut};

use crate::codec::Malformed;

/// The 16-bit units of `bytes`; an odd last byte is omitted.
fn units(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u16::from_le_bytes(*pair))
}

/// Decodes `bytes`.
///
/// # Errors
/// [`Malformed`] for an odd number of bytes or an unpaired surrogate.
pub fn decode(bytes: &[u8], what: &'static str) -> Result<String, Malformed> {
    let (units_of_two, []) = bytes.as_chunks::<2>() else {
        return Err(Malformed { what });
    };
    if units_of_two
        .iter()
        .all(|[low, high]| *high == 0 && low.is_ascii())
    {
        let ascii = units_of_two.iter().map(|[low, _]| *low).collect();
        return String::from_utf8(ascii).map_err(|_| Malformed { what });
    }
    char::decode_utf16(units(bytes))
        .collect::<Result<String, _>>()
        .map_err(|_| Malformed { what })
}

/// Decodes `bytes` for display; invalid parts become U+FFFD.
pub fn decode_lossy(bytes: &[u8]) -> String {
    char::decode_utf16(units(bytes))
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// Appends `text` as UTF-16LE without a terminator.
pub fn put(out: &mut BytesMut, text: &str) {
    if text.is_ascii() {
        let start = out.len();
        out.resize(start + 2 * text.len(), 0);
        let units = out.get_mut(start..).unwrap_or_default();
        for (unit, byte) in units.as_chunks_mut::<2>().0.iter_mut().zip(text.bytes()) {
            *unit = [byte, 0];
        }
        return;
    }
    for unit in text.encode_utf16() {
        out.put_u16_le(unit);
    }
}

/// Encodes `text` as UTF-16LE without a terminator.
pub fn encode(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Length of `text` in UTF-16LE, in bytes.
pub fn len_bytes(text: &str) -> usize {
    if text.is_ascii() {
        return 2 * text.len();
    }
    text.chars().map(char::len_utf16).sum::<usize>() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_both_ways() {
        let text = "grün 𝄞";
        let bytes = encode(text);
        assert_eq!(decode(&bytes, "x").as_deref(), Ok(text));
        assert_eq!(len_bytes(text), bytes.len());
        let mut out = BytesMut::new();
        put(&mut out, text);
        assert_eq!(&out[..], bytes);
    }

    #[test]
    fn half_units_and_half_pairs_are_rejected_or_replaced() {
        assert!(decode(b"a", "x").is_err());
        assert!(decode(&[0x00, 0xd8, b'a', 0], "x").is_err());
        assert_eq!(decode_lossy(&[0x00, 0xd8, b'a', 0, 7]), "\u{fffd}a");
    }
}
