//! Bytes of the stores: little-endian fields, a checksum, and a reader that takes nothing on trust.
//!
//! A text is its length (u16) and UTF-8; a list is its count (u16) and its items. The
//! checksum is CRC-32C (Castagnoli, reflected, as in RFC 3720 appendix B.4). It protects against torn
//! and decayed records, not against an attacker, who could write a valid file anyway.
//!
//! Invariants: reading never panics, never allocates more than the bytes at hand can fill, and
//! answers `None` for anything that is not exactly what was written.

use std::time::Duration;

use crc::{CRC_32_ISCSI, Crc};
use vfs::{FileKey, Timestamp, VfsError};

use crate::policy::{Bound, Policy};

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The CRC-32C of these bytes, one after the other.
pub(crate) fn crc32c<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let mut digest = CRC.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// A value that always has the same form of bytes.
pub trait StoredField: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes it off the front. `None` for bytes that [`StoredField::put`] does not write.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Takes `len` bytes off the front; `None` if there are fewer.
pub(crate) fn bytes<'a>(from: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(head)
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl StoredField for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                let bytes = bytes(from, size_of::<Self>())?;
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i64);

impl StoredField for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl StoredField for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        bytes(from, 16)?.try_into().ok()
    }
}

impl StoredField for String {
    /// A longer text is cut at 65,535 bytes, at the edge of a character.
    fn put(&self, out: &mut Vec<u8>) {
        let end = self.floor_char_boundary(usize::from(u16::MAX));
        (end as u16).put(out);
        out.extend(self.as_bytes().iter().take(end));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = u16::take(from)?;
        let bytes = bytes(from, usize::from(len))?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

impl StoredField for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        (self.secs, self.nanos).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let (secs, nanos) = StoredField::take(from)?;
        (nanos < 1_000_000_000).then_some(Self { secs, nanos })
    }
}

/// Whole milliseconds, rounded up, because recorded bounds are upper bounds.
impl StoredField for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        let millis = self.as_nanos().div_ceil(1_000_000);
        u64::try_from(millis).unwrap_or(u64::MAX).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        u64::take(from).map(Self::from_millis)
    }
}

/// Every policy is stored in the form of `bounded`, with zeros where it has no bound.
impl StoredField for Policy {
    fn put(&self, out: &mut Vec<u8>) {
        let (code, (delay, bytes)): (u8, _) = match self {
            Self::Honor => (0, (Duration::ZERO, 0)),
            Self::TreatHostAsStableStorage => (1, (Duration::ZERO, 0)),
            Self::StrictSync => (2, (Duration::ZERO, 0)),
            Self::Bounded(bound) => (3, (bound.max_delay, bound.max_bytes)),
        };
        (code, (delay, bytes)).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let (code, (max_delay, max_bytes)): (u8, _) = StoredField::take(from)?;
        Some(match code {
            0 => Self::Honor,
            1 => Self::TreatHostAsStableStorage,
            2 => Self::StrictSync,
            3 => Self::Bounded(Bound {
                max_delay,
                max_bytes,
            }),
            _ => return None,
        })
    }
}

impl<A: StoredField, B: StoredField> StoredField for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

/// A byte that says whether there is a value, and the value.
impl<T: StoredField> StoredField for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: StoredField> StoredField for Vec<T> {
    /// A longer list is cut at 65,535 items.
    fn put(&self, out: &mut Vec<u8>) {
        let count = self.len().min(usize::from(u16::MAX));
        (count as u16).put(out);
        self.iter().take(count).for_each(|item| item.put(out));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        (0..u16::take(from)?).map(|_| T::take(from)).collect()
    }
}

/// Makes a struct a [`StoredField`]: the fields to store, in this order, and the value that the others are read as.
macro_rules! fields {
    ($type:ident { $($field:ident),+ $(, ..$rest:expr)? }) => {
        impl StoredField for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                $(let $field = StoredField::take(from)?;)+
                Some(Self { $($field,)+ $(..$rest)? })
            }
        }
    };
}
pub(super) use fields;

// The device number is left out, because it does not outlive a reboot. The journal appends it to its records.
fields! { FileKey { ino, generation, ..FileKey::default() } }

/// Errors as numbers that never change; an error that is not in this list is stored and read as `Io`.
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

impl StoredField for VfsError {
    fn put(&self, out: &mut Vec<u8>) {
        let known = ERRORS.iter().find(|(_, known)| known == self);
        known.map_or(1, |(code, _)| *code).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let code = u8::take(from)?;
        let known = ERRORS.iter().find(|(known, _)| *known == code);
        Some(known.map_or(Self::Io, |(_, error)| *error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        // RFC 3720 B.4.
        assert_eq!(crc32c([&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c([&[0xFF; 32]]), 0x62A8_AB43);
        assert_eq!(crc32c([b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c([b"1234", b"56789"]), 0xE306_9283);
    }

    #[test]
    fn errors_keep_their_meaning() {
        let back = |error: VfsError| {
            let mut out = Vec::new();
            error.put(&mut out);
            VfsError::take(&mut &*out)
        };
        for (_, error) in ERRORS {
            assert_eq!(back(error), Some(error));
        }
        assert_eq!(back(VfsError::NotFound), Some(VfsError::Io));
        assert_eq!(VfsError::take(&mut &[200][..]), Some(VfsError::Io));
    }

    proptest! {
        #[test]
        fn fields_come_back(text in ".{0,40}", secs: i64, nanos in 0u32..1_000_000_000, a: u64, ms: u32) {
            let max_delay = Duration::from_millis(u64::from(ms));
            let policy = Policy::Bounded(Bound { max_delay, max_bytes: a });
            let at = Timestamp { secs, nanos };
            let mut out = Vec::new();
            (text.clone(), (at, policy)).put(&mut out);
            let mut from = &*out;
            let read: Option<(String, (Timestamp, Policy))> = StoredField::take(&mut from);
            prop_assert_eq!(read, Some((text, (at, policy))));
            prop_assert!(from.is_empty() && u8::take(&mut from).is_none());
        }
    }
}
