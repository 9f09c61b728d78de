//! `user.DOSATTRIB`: DOS attributes and creation time, versions 1 to 5 read, 5 written.
//!
//! Layout (NDR): a NUL-terminated hex text (all that very old Samba wrote, at first without the NUL; empty since
//! version 4), then version twice (the structure's and the union's), then the version's fields. Version 4 also has an
//! `itime`, which is not needed any more; this server writes version 5, as Samba 4.17 does.

use super::ndr::{Reader, Writer};
use crate::{Timestamp, VfsError, VfsResult};

const VALID_ATTRIB: u32 = 0x1;
const VALID_CREATE_TIME: u32 = 0x10;
/// No version is longer than this (version 2 carries a name).
const BLOB_MAX: usize = 4096;
/// 100-nanosecond steps from 1601 to 1970.
const EPOCH: i64 = 116_444_736_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DosAttrib {
    pub attributes: Option<u32>,
    pub created: Option<Timestamp>,
}

impl DosAttrib {
    /// Reads a blob of any version; `Corrupt` for anything else.
    pub fn parse(blob: &[u8]) -> VfsResult<Self> {
        VfsError::Corrupt.when(blob.len() > BLOB_MAX)?;
        if !blob.contains(&0) {
            return Self::of_text(blob);
        }
        let mut reader = Reader::new(blob);
        let text = reader.text()?;
        if reader.rest().is_empty() {
            return Self::of_text(text);
        }
        let version = reader.u16()?;
        VfsError::Corrupt.when(reader.u16()? != version)?;
        let valid = match version {
            1 => VALID_ATTRIB | VALID_CREATE_TIME,
            2 => {
                // This says whether a write time counts. Samba's file server takes only the attributes.
                reader.u32()?;
                VALID_ATTRIB
            }
            3..=5 => reader.u32()?,
            // Old versions of Samba wrote 0xFFFF to say that the text counts.
            0xFFFF => return Self::of_text(text),
            _ => return Err(VfsError::Corrupt),
        };
        let attributes = reader.u32()?;
        match version {
            // EA size, size and allocation size; what else there is comes behind the creation time.
            1..=3 => {
                reader.u32()?;
                reader.u64()?;
                reader.u64()?;
            }
            4 => drop(reader.u64()?), // `itime`
            _ => {}
        }
        let created = reader.u64()?;
        Ok(Self {
            attributes: (valid & VALID_ATTRIB != 0).then_some(attributes),
            created: (valid & VALID_CREATE_TIME != 0)
                .then(|| from_nttime(created))
                .flatten(),
        })
    }

    /// The attributes as very old versions of Samba wrote them.
    fn of_text(text: &[u8]) -> VfsResult<Self> {
        Ok(Self {
            attributes: Some(hex(text)?),
            created: None,
        })
    }

    /// The blob, version 5.
    pub fn build(&self) -> Vec<u8> {
        let created = self.created.and_then(to_nttime);
        let mut valid = 0;
        if self.attributes.is_some() {
            valid |= VALID_ATTRIB;
        }
        if created.is_some() {
            valid |= VALID_CREATE_TIME;
        }
        let mut writer = Writer::default();
        writer.bytes(&[0]);
        writer.u16(5);
        writer.u16(5);
        writer.u32(valid);
        writer.u32(self.attributes.unwrap_or(0));
        writer.u64(created.unwrap_or(0));
        writer.blob
    }
}

fn hex(text: &[u8]) -> VfsResult<u32> {
    let text = std::str::from_utf8(text).map_err(|_| VfsError::Corrupt)?;
    let digits = text.strip_prefix("0x").ok_or(VfsError::Corrupt)?;
    VfsError::Corrupt.when(digits.starts_with('+'))?;
    u32::from_str_radix(digits, 16).map_err(|_| VfsError::Corrupt)
}

/// 100-nanosecond steps since 1601; 0 and values outside of `i64` mean "none".
pub fn from_nttime(steps: u64) -> Option<Timestamp> {
    let steps = i64::try_from(steps).ok().filter(|s| *s != 0)?;
    let since = steps - EPOCH;
    Some(Timestamp {
        secs: since.div_euclid(10_000_000),
        nanos: u32::try_from(since.rem_euclid(10_000_000)).ok()? * 100,
    })
}

/// The reverse, rounded down to 100 ns; `None` for times before 1601 or past the format.
pub fn to_nttime(time: Timestamp) -> Option<u64> {
    let steps = time
        .secs
        .checked_mul(10_000_000)?
        .checked_add(i64::from(time.nanos / 100))?
        .checked_add(EPOCH)?;
    u64::try_from(steps).ok().filter(|s| *s != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;
    use proptest::prelude::*;

    #[test]
    fn what_samba_wrote_is_read_and_written_again_alike() {
        // `setmode a.txt +hs` by smbd 4.17.12; the file's birth was 2026-11-21 13:23:08.914235837.
        let blob = hex!("0000050005000000110000002600000056c62c73bb79dd01");
        let read = DosAttrib::parse(&blob).unwrap();
        assert_eq!(read.attributes, Some(0x26));
        assert_eq!(
            read.created,
            Some(Timestamp {
                secs: 1_795_267_388,
                nanos: 914_235_800
            })
        );
        assert_eq!(read.build(), blob);
    }

    #[test]
    fn older_versions() {
        let time = from_nttime(0x1122_3344_5566_7788);
        // These were encoded by Samba's own NDR code.
        let v1 = hex!(
            "3078323200000100010000002200000007000000080000000000000009000000000000008877665544332211aa00000000000000"
        );
        let v3 = hex!(
            "307832320000030003000000110000002200000007000000080000000000000009000000000000008877665544332211aa00000000000000"
        );
        let v4 = hex!("0000040004000000110000002200000099000000000000008877665544332211");
        for blob in [&v1[..], &v3, &v4] {
            let read = DosAttrib::parse(blob).unwrap();
            assert_eq!(
                (read.attributes, read.created),
                (Some(0x22), time),
                "{blob:02x?}"
            );
        }
        for text in [&b"0x27\0"[..], b"0x27"] {
            let text = DosAttrib::parse(text).unwrap();
            assert_eq!((text.attributes, text.created), (Some(0x27), None));
        }
        // The first number of version 2 does not say which values are valid.
        for flag in [0, 1, 0x11] {
            let mut v2 = v3.to_vec();
            (v2[6], v2[8], v2[12]) = (2, 2, flag);
            v2.extend(hex!("bb000000000000006e00"));
            let read = DosAttrib::parse(&v2).unwrap();
            assert_eq!((read.attributes, read.created), (Some(0x22), None));
        }
        // The flags say that only the attributes are valid.
        let some = hex!("00000500050000000100000022000000ffffffffffffffff");
        assert_eq!(DosAttrib::parse(&some).unwrap().created, None);
    }

    #[test]
    fn nonsense_is_corrupt() {
        for blob in [
            &b""[..],
            b"zz\0",
            b"zz",
            b"0x+7\0",
            b"\0\0\x05\0\x05\0",
            b"\0\0\x05\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\0\0\x09\0\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(DosAttrib::parse(blob), Err(VfsError::Corrupt), "{blob:?}");
        }
        assert_eq!(DosAttrib::parse(&[0; 5000]), Err(VfsError::Corrupt));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(blob in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = DosAttrib::parse(&blob);
        }

        #[test]
        fn built_is_parsed(attributes in proptest::option::of(any::<u32>()), secs in -11_000_000_000i64..=200_000_000_000, steps in 0u32..10_000_000) {
            let wrote = DosAttrib { attributes, created: Some(Timestamp { secs, nanos: steps * 100 }) };
            prop_assert_eq!(DosAttrib::parse(&wrote.build()), Ok(wrote));
        }
    }
}
