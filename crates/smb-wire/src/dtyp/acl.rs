//! Access control lists ([MS-DTYP] 2.4.5), with limits against forged lists.
//!
//! The order of entries is preserved, because it decides. A list that exceeds its 16-bit length is
//! an error when it is encoded; it is never truncated.

use bytes::{BufMut, BytesMut};

use super::ace::Ace;
use crate::codec::{Malformed, Reader};

/// Maximum length of a list in bytes: AclSize is 16 bits wide.
pub const MAX_ACL_BYTES: usize = 65_532;

/// Maximum number of entries of a list; on NTFS the length alone limits a list to about 1,820 entries.
pub const MAX_ACES: usize = 2_048;

/// A list of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// 2, or 4 when there are object entries; smbcacls writes 3, and Windows accepts it.
    pub revision: u8,
    /// The entries, in the order of evaluation.
    pub aces: Vec<Ace>,
}

impl Acl {
    /// Bytes before the entries.
    pub const MIN: usize = 8;

    /// The revision of lists without object entries.
    pub const REVISION: u8 = 2;

    /// The revision of lists with object entries.
    pub const REVISION_DS: u8 = 4;

    /// A list of these entries, of the revision that their types need ([MS-DTYP] 2.4.5).
    pub fn new(aces: Vec<Ace>) -> Self {
        let has_object = aces.iter().any(|ace| ace.ace_type.is_of_object());
        let revision = match has_object {
            true => Self::REVISION_DS,
            false => Self::REVISION,
        };
        Self { revision, aces }
    }

    /// Reads a list from the front of `bytes` and ignores the rest.
    ///
    /// # Errors
    /// [`Malformed`] for an unknown revision, a length or count that exceeds `bytes`, over
    /// [`MAX_ACES`] entries, or a malformed entry.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "ACL";
        let mut header = Reader::new(bytes, WHAT);
        let revision = header.u8()?;
        header.skip(1)?;
        let len = usize::from(header.u16()?);
        let count = usize::from(header.u16()?);
        header.skip(2)?;
        if !(Self::REVISION..=Self::REVISION_DS).contains(&revision) || count > MAX_ACES {
            return Err(Malformed { what: WHAT });
        }
        let body = bytes.get(Self::MIN..len).ok_or(Malformed { what: WHAT })?;
        let mut reader = Reader::new(body, WHAT);
        let aces = (0..count)
            .map(|_| Ace::get(&mut reader))
            .collect::<Result<_, _>>()?;
        Ok(Self { revision, aces })
    }

    /// Bytes on the wire.
    pub fn encoded_len(&self) -> usize {
        Self::MIN + self.aces.iter().map(Ace::encoded_len).sum::<usize>()
    }

    /// Appends the list.
    ///
    /// # Errors
    /// [`Malformed`], and nothing is written, when the list is longer than [`MAX_ACL_BYTES`] or has
    /// more than [`MAX_ACES`] entries.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        const TOO_LONG: Malformed = Malformed::new("ACL (too long to write)");
        let len = self.encoded_len();
        if len > MAX_ACL_BYTES || self.aces.len() > MAX_ACES {
            return Err(TOO_LONG);
        }
        out.put_u8(self.revision);
        out.put_u8(0);
        out.put_u16_le(u16::try_from(len).map_err(|_| TOO_LONG)?);
        out.put_u16_le(u16::try_from(self.aces.len()).map_err(|_| TOO_LONG)?);
        out.put_u16_le(0);
        for ace in &self.aces {
            ace.encode(out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AceBody, AceFlags, AceType, Sid};
    use super::*;
    use crate::access_mask::AccessMask;

    #[test]
    fn lists_round_trip_with_entries_we_do_not_know() {
        let opaque = Ace {
            ace_type: AceType::ACCESS_ALLOWED_OBJECT,
            flags: AceFlags::empty(),
            body: AceBody::Opaque(vec![1, 2, 3, 4, 5, 6, 7, 8]),
        };
        let acl = Acl::new(vec![
            Ace::deny(Sid::EVERYONE, AccessMask::DELETE, AceFlags::INHERITED),
            Ace::allow(Sid::unix_user(3), AccessMask::FILE_ALL_ACCESS, AceFlags(3)),
            opaque,
        ]);
        let mut out = BytesMut::new();
        acl.encode(&mut out).unwrap();
        assert_eq!(out.len(), acl.encoded_len());
        assert_eq!(Acl::read(&out), Ok(acl));
        for cut in 0..out.len() {
            assert!(Acl::read(&out[..cut]).is_err());
        }
    }

    #[test]
    fn untrusted_lengths_are_checked() {
        // The count exceeds the content; AceSize is 0, not a multiple of 4, or exceeds the list.
        assert!(Acl::read(&[2, 0, 8, 0, 1, 0, 0, 0]).is_err());
        assert!(Acl::read(&[2, 0, 12, 0, 1, 0, 0, 0, 5, 0, 0, 0]).is_err());
        assert!(Acl::read(&[2, 0, 12, 0, 1, 0, 0, 0, 5, 0, 3, 0]).is_err());
        assert!(Acl::read(&[2, 0, 12, 0, 1, 0, 0, 0, 5, 0, 8, 0]).is_err());
        assert!(Acl::read(&[2, 0, 8, 0, 0xff, 0xff, 0, 0]).is_err());
        assert!(Acl::read(&[2, 0, 4, 0, 0, 0, 0, 0]).is_err());
        for (revision, known) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
            let list = Acl::read(&[revision, 0, 8, 0, 0, 0, 0, 0]);
            assert_eq!(list.is_ok(), known, "{revision}");
        }
    }

    #[test]
    fn too_long_lists_are_not_written() {
        let ace = Ace::allow(Sid::EVERYONE, AccessMask::DELETE, AceFlags::empty());
        let mut out = BytesMut::new();
        let acl = Acl::new(vec![ace; MAX_ACES + 1]);
        assert!(acl.encode(&mut out).is_err());
        assert!(out.is_empty());
    }
}
