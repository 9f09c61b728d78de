//! Extended attributes: the FULL_EA list and the list of requested names ([MS-FSCC] 2.4.16), and
//! the rules for names.
//!
//! Lists are limited in bytes. The position at which a list is malformed is not reported (the
//! status is STATUS_EA_LIST_INCONSISTENT). No attribute is stored or compared here; the server
//! compares names, without regard to case.

use std::borrow::Borrow;

use bytes::{BufMut, BytesMut};

use super::record::{Chain, encode_chain};
use crate::codec::{Malformed, Reader};

/// Maximum length in bytes of an EA list that is read. A file on NTFS can have 64 KiB of attributes.
pub const MAX_EA_LIST_BYTES: usize = 65_536 * 2;

/// Maximum length of a name in bytes: the length field has one byte.
pub const MAX_EA_NAME_BYTES: usize = 255;

flags_of_the_wire! {
    /// Flags of an attribute ([MS-FSCC] 2.4.16).
    pub struct EaFlags(u8) {
        /// The file cannot be interpreted without this attribute.
        NEED_EA = 0x80,
    }
}

/// One attribute. In a set request an empty value removes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EaEntry {
    /// Flags.
    pub flags: EaFlags,
    /// The name: bytes of an 8-bit alphabet without NUL, at most 255.
    pub name: Vec<u8>,
    /// The value, at most 65,535 bytes.
    pub value: Vec<u8>,
}

impl EaEntry {
    /// The smallest output buffer of a query, which is also the length before the name.
    pub const MIN: usize = 8;

    /// An attribute without flags.
    pub fn new(name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self {
            flags: EaFlags::empty(),
            name: name.into(),
            value: value.into(),
        }
    }

    /// Checks the name and the flags of an attribute that is to be stored ([MS-FSA] 2.1.5.15.6).
    ///
    /// # Errors
    /// [`Malformed`]: see [`check_ea_name`]; the status is the same for the flags.
    pub fn check(&self) -> Result<(), Malformed> {
        if !self.flags.without(EaFlags::NEED_EA).is_empty() {
            return Err(Malformed::new("flags of an extended attribute"));
        }
        check_ea_name(&self.name)
    }

    /// Length of the entry in a list, without the padding behind it.
    pub fn encoded_len(&self) -> usize {
        Self::MIN + self.name.len() + 1 + self.value.len()
    }
}

/// Checks the name of an attribute: [MS-FSCC] 2.4.16 forbids control characters and the characters
/// of paths, wildcards and lists.
///
/// # Errors
/// [`Malformed`] for an invalid name (the status is always STATUS_INVALID_EA_NAME).
pub fn check_ea_name(name: &[u8]) -> Result<(), Malformed> {
    let forbidden = |byte: &u8| *byte < 0x20 || b"\\/:*?\"<>|,+=[];".contains(byte);
    if name.is_empty() || name.len() > MAX_EA_NAME_BYTES || name.iter().any(forbidden) {
        return Err(Malformed::new("name of an extended attribute"));
    }
    Ok(())
}

/// Reads a FULL_EA list (FileFullEaInformation, create context ExtA). Names are not checked against [`check_ea_name`].
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer, an unaligned offset, a name without its NUL, or a list over
/// [`MAX_EA_LIST_BYTES`].
pub fn read_ea_list(bytes: &[u8]) -> Result<Vec<EaEntry>, Malformed> {
    const WHAT: &str = "FileFullEaInformation";
    if bytes.len() > MAX_EA_LIST_BYTES {
        return Err(Malformed { what: WHAT });
    }
    Chain::new(bytes, WHAT)
        .map(|entry| {
            let mut reader = Reader::new(entry?, WHAT);
            if !reader.u32()?.is_multiple_of(4) {
                return Err(reader.malformed());
            }
            let flags = EaFlags(reader.u8()?);
            let name_len = usize::from(reader.u8()?);
            let value_len = usize::from(reader.u16()?);
            let name = reader.take(name_len)?.to_vec();
            if reader.u8()? != 0 {
                return Err(reader.malformed());
            }
            let value = reader.take(value_len)?.to_vec();
            Ok(EaEntry { flags, name, value })
        })
        .collect()
}

/// Encodes as many of `entries` as fit into a FULL_EA list of at most `limit` bytes; returns the list and their number.
pub fn encode_ea_list(entries: &[impl Borrow<EaEntry>], limit: usize) -> (BytesMut, usize) {
    let lengths = |entry: &EaEntry| {
        let name_len = u8::try_from(entry.name.len()).ok()?;
        Some((name_len, u16::try_from(entry.value.len()).ok()?))
    };
    let entries = entries.iter().map_while(|entry| {
        let entry: &EaEntry = entry.borrow();
        Some((entry, lengths(entry)?))
    });
    encode_chain(entries, limit, 4, |(entry, (name_len, value_len)), out| {
        out.put_u8(entry.flags.0);
        out.put_u8(*name_len);
        out.put_u16_le(*value_len);
        out.put_slice(&entry.name);
        out.put_u8(0);
        out.put_slice(&entry.value);
    })
}

/// Reads the list of names in a QUERY_INFO request of FullEa ([MS-FSCC] 2.4.16.1).
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer, a name without its NUL, or a list over [`MAX_EA_LIST_BYTES`].
pub fn read_get_ea_list(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    const WHAT: &str = "FILE_GET_EA_INFORMATION";
    if bytes.len() > MAX_EA_LIST_BYTES {
        return Err(Malformed { what: WHAT });
    }
    Chain::new(bytes, WHAT)
        .map(|entry| {
            let mut reader = Reader::new(entry?, WHAT);
            reader.skip(4)?;
            let len = usize::from(reader.u8()?);
            let name = reader.take(len)?.to_vec();
            if reader.u8()? != 0 {
                return Err(reader.malformed());
            }
            Ok(name)
        })
        .collect()
}

/// Appends the list of names; names over 255 bytes are omitted.
pub fn encode_get_ea_list(names: &[&[u8]], out: &mut BytesMut) {
    let names = names
        .iter()
        .filter_map(|name| Some((name, u8::try_from(name.len()).ok()?)));
    let (list, _) = encode_chain(names, usize::MAX, 4, |(name, len), out| {
        out.put_u8(*len);
        out.put_slice(name);
        out.put_u8(0);
    });
    out.unsplit(list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip_and_stop_at_the_limit() {
        let entries = vec![
            EaEntry {
                flags: EaFlags::empty(),
                name: b"USER.A".to_vec(),
                value: vec![1, 2, 3],
            },
            EaEntry {
                flags: EaFlags::NEED_EA,
                name: b"B".to_vec(),
                value: vec![],
            },
        ];
        let (out, fitted) = encode_ea_list(&entries, 1000);
        assert_eq!(fitted, 2);
        assert_eq!(
            &out[..20],
            b"\x14\0\0\0\0\x06\x03\0USER.A\0\x01\x02\x03\0\0"
        );
        assert_eq!(read_ea_list(&out), Ok(entries.clone()));
        let (cut, fitted) = encode_ea_list(&entries, out.len() - 1);
        assert_eq!(fitted, 1);
        assert_eq!(read_ea_list(&cut), Ok(entries[..1].to_vec()));
    }

    #[test]
    fn requested_names_round_trip() {
        let mut out = BytesMut::new();
        encode_get_ea_list(&[b"AB", b"C"], &mut out);
        assert_eq!(&out[..], b"\x08\0\0\0\x02AB\0\0\0\0\0\x01C\0");
        assert_eq!(
            read_get_ea_list(&out),
            Ok(vec![b"AB".to_vec(), b"C".to_vec()])
        );
    }

    #[test]
    fn forged_lists_are_rejected() {
        // No NUL behind the name; a value beyond the end; unaligned and endless chains.
        assert!(read_ea_list(b"\0\0\0\0\0\x01\0\0AX").is_err());
        assert!(read_ea_list(b"\0\0\0\0\0\x01\x02\0A\0x").is_err());
        assert!(read_ea_list(b"\x0b\0\0\0\0\x01\0\0A\0\0\0\0\0\0\0\x01\0\0A\0").is_err());
        assert!(read_ea_list(b"\x01\0\0\0\0\x01\0\0A\0").is_err());
        assert!(read_ea_list(&vec![0; MAX_EA_LIST_BYTES + 1]).is_err());
    }

    #[test]
    fn names_of_attributes_are_checked() {
        assert_eq!(check_ea_name(b"USER.X"), Ok(()));
        for bad in [&b""[..], b"a:b", &[b'a'; 256]] {
            assert!(check_ea_name(bad).is_err(), "{bad:?}");
        }
    }
}
