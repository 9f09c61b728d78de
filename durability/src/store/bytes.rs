//! Bytes of the stores: little-endian fields, a checksum, and a reader that believes nothing.
//!
//! A text is its length (u16) and UTF-8; a list is its count (u16 or u32) and its items. The
//! checksum is CRC-32C (Castagnoli, reflected, as in RFC 3720 appendix B.4): enough against torn
//! and decayed records, none against somebody who means harm, who could write the file anyway.
//!
//! Invariants: reading never panics, never allocates more than the bytes at hand can fill, and
//! answers `None` for anything that is not exactly what was written.

use std::time::Duration;

use vfs::{FileKey, Timestamp, VfsError};

use crate::settings::{Bound, Policy};

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & (0u32.wrapping_sub(crc & 1)));
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

static CRC: [u32; 256] = crc_table();

/// CRC-32C of some bytes, going on from that of earlier ones (0 at first).
pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, byte| {
        // The index is a byte.
        CRC[usize::from((crc as u8) ^ byte)] ^ (crc >> 8)
    })
}

/// Fields being written.
#[derive(Debug, Default)]
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.0.extend(value);
    }
    /// Cut to what the length takes.
    pub(crate) fn text(&mut self, text: &str) {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.bytes(text.get(..end).unwrap_or_default().as_bytes());
    }
    pub(crate) fn time(&mut self, at: Timestamp) {
        self.u64(at.secs as u64);
        self.u32(at.nanos);
    }
    pub(crate) fn policy(&mut self, policy: Policy) {
        let (code, delay, bytes) = match policy {
            Policy::Honor => (0, Duration::ZERO, 0),
            Policy::TreatHostAsStableStorage => (1, Duration::ZERO, 0),
            Policy::StrictSync => (2, Duration::ZERO, 0),
            Policy::Bounded(bound) => (3, bound.max_delay, bound.max_bytes),
        };
        self.u8(code);
        self.u64(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self.u64(bytes);
    }
    /// Inode and generation: the device number does not outlive a reboot.
    pub(crate) fn inode(&mut self, key: FileKey) {
        self.u64(key.ino);
        self.u64(key.generation);
    }
}

/// Fields being read.
#[derive(Debug, Clone)]
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

impl<'a> In<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub(crate) fn uuid(&mut self) -> Option<[u8; 16]> {
        self.array()
    }
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    pub(crate) fn text(&mut self) -> Option<String> {
        let len = self.u16()?;
        let bytes = self.bytes(usize::from(len))?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        let secs = self.u64()? as i64;
        let nanos = self.u32()?;
        (nanos < 1_000_000_000).then_some(Timestamp { secs, nanos })
    }
    pub(crate) fn policy(&mut self) -> Option<Policy> {
        let (code, delay, bytes) = (self.u8()?, self.u64()?, self.u64()?);
        Some(match code {
            0 => Policy::Honor,
            1 => Policy::TreatHostAsStableStorage,
            2 => Policy::StrictSync,
            3 => Policy::Bounded(Bound {
                max_delay: Duration::from_millis(delay),
                max_bytes: bytes,
            }),
            _ => return None,
        })
    }
    pub(crate) fn inode(&mut self) -> Option<FileKey> {
        Some(FileKey {
            fs: 0,
            ino: self.u64()?,
            generation: self.u64()?,
        })
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A value that always has the same form of bytes. A list is its count (u16) and its items.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Out);
    /// `None` for bytes that [`Field::put`] does not write.
    fn take(from: &mut In<'_>) -> Option<Self>;
}

macro_rules! plain {
    ($($type:ty: $put:expr, $take:expr;)*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Out) {
                $put(out, self);
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                $take(from)
            }
        }
    )*};
}

plain! {
    u64: |out: &mut Out, value: &u64| out.u64(*value), In::u64;
    bool: |out: &mut Out, value: &bool| out.u8(u8::from(*value)), In::flag;
    [u8; 16]: |out: &mut Out, value: &[u8; 16]| out.bytes(value), In::uuid;
    String: |out: &mut Out, value: &String| out.text(value), In::text;
    Timestamp: |out: &mut Out, value: &Timestamp| out.time(*value), In::time;
    Policy: |out: &mut Out, value: &Policy| out.policy(*value), In::policy;
    FileKey: |out: &mut Out, value: &FileKey| out.inode(*value), In::inode;
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Out) {
        out.u16(self.len() as u16);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        (0..from.u16()?).map(|_| T::take(from)).collect()
    }
}

/// Makes a struct a [`Field`]: its fields in the order given.
macro_rules! fields {
    ($type:ident { $($field:ident),+ }) => {
        impl Field for $type {
            fn put(&self, out: &mut Out) {
                $(self.$field.put(out);)+
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                $(let $field = Field::take(from)?;)+
                Some(Self { $($field),+ })
            }
        }
    };
}
pub(super) use fields;

/// Errors as numbers that stay the same for ever; what a store does not know is `Io`.
const ERRORS: [(u8, VfsError); 8] = [
    (1, VfsError::Io),
    (2, VfsError::NoSpace),
    (3, VfsError::QuotaExceeded),
    (4, VfsError::ReadOnly),
    (5, VfsError::Poisoned),
    (6, VfsError::TooLarge),
    (7, VfsError::AccessDenied),
    (8, VfsError::NotSupported),
];

pub(crate) fn error_code(error: VfsError) -> u8 {
    let known = ERRORS.iter().find(|(_, known)| *known == error);
    known.map_or(1, |(code, _)| *code)
}

pub(crate) fn error_of(code: u8) -> VfsError {
    let known = ERRORS.iter().find(|(known, _)| *known == code);
    known.map_or(VfsError::Io, |(_, error)| *error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        // RFC 3720 B.4.
        assert_eq!(crc32c(0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(0, &[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283);
    }

    #[test]
    fn errors_keep_their_meaning() {
        for (_, error) in ERRORS {
            assert_eq!(error_of(error_code(error)), error);
        }
        assert_eq!(error_of(error_code(VfsError::NotFound)), VfsError::Io);
        assert_eq!(error_of(200), VfsError::Io);
    }

    proptest! {
        #[test]
        fn fields_come_back(text in ".{0,40}", secs: i64, nanos in 0u32..1_000_000_000, a: u64, ms: u32) {
            let policy = Policy::Bounded(Bound {
                max_delay: Duration::from_millis(u64::from(ms)),
                max_bytes: a,
            });
            let mut out = Out::default();
            out.text(&text);
            out.time(Timestamp { secs, nanos });
            out.policy(policy);
            let mut from = In(&out.0);
            prop_assert_eq!(from.text().unwrap(), text);
            prop_assert_eq!(from.time().unwrap(), Timestamp { secs, nanos });
            prop_assert_eq!(from.policy().unwrap(), policy);
            prop_assert!(from.is_empty() && from.u8().is_none());
        }
    }
}
