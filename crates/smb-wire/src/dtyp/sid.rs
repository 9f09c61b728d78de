//! Security identifiers ([MS-DTYP] 2.4.2): binary and text form, well-known values, and the two
//! authorities that represent UNIX ids for Windows clients.
//!
//! A [`Sid`] is always valid: revision 1, an authority of 48 bits, at most 15 sub-authorities, and
//! zeros in the unused ones (so that the derived equality and order are right).

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};

/// Maximum number of sub-authorities of a SID.
pub const MAX_SUB_AUTHORITIES: usize = 15;

/// The only revision.
const REVISION: u8 = 1;

/// A security identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    authority: u64,
    count: u8,
    subs: [u32; MAX_SUB_AUTHORITIES],
}

impl Sid {
    /// S-1-0-0, nobody.
    pub const NULL: Self = Self::of(0, [0]);
    /// S-1-1-0, everybody.
    pub const EVERYONE: Self = Self::of(1, [0]);
    /// S-1-3-0, stands for the owner of a new object in inheritable ACEs.
    pub const CREATOR_OWNER: Self = Self::of(3, [0]);
    /// S-1-3-1, stands for the group of a new object in inheritable ACEs.
    pub const CREATOR_GROUP: Self = Self::of(3, [1]);
    /// S-1-3-4, the owner of the object; entries for it replace the owner's implicit rights.
    pub const OWNER_RIGHTS: Self = Self::of(3, [4]);
    /// S-1-5-2, users who logged on over the network.
    pub const NETWORK: Self = Self::of(5, [2]);
    /// S-1-5-7, anonymous users.
    pub const ANONYMOUS: Self = Self::of(5, [7]);
    /// S-1-5-11, users who proved their identity.
    pub const AUTHENTICATED_USERS: Self = Self::of(5, [11]);
    /// S-1-5-18, the system.
    pub const LOCAL_SYSTEM: Self = Self::of(5, [18]);
    /// S-1-5-32, the domain of built-in groups.
    pub const BUILTIN: Self = Self::of(5, [32]);
    /// S-1-5-32-544.
    pub const BUILTIN_ADMINISTRATORS: Self = Self::of(5, [32, 544]);
    /// S-1-5-32-545.
    pub const BUILTIN_USERS: Self = Self::of(5, [32, 545]);
    /// S-1-5-32-546.
    pub const BUILTIN_GUESTS: Self = Self::of(5, [32, 546]);
    /// S-1-22-1, parent of UNIX users.
    pub const UNIX_USERS: Self = Self::of(22, [1]);
    /// S-1-22-2, parent of UNIX groups.
    pub const UNIX_GROUPS: Self = Self::of(22, [2]);

    /// Bytes before the sub-authorities.
    pub const MIN: usize = 8;

    /// Bytes of the longest SID.
    pub const MAX: usize = Self::MIN + 4 * MAX_SUB_AUTHORITIES;

    /// Creates a SID with a fixed number of sub-authorities; more than 15 do not compile.
    pub const fn of<const N: usize>(authority: u64, from: [u32; N]) -> Self {
        const { assert!(N <= MAX_SUB_AUTHORITIES) };
        let mut subs = [0; MAX_SUB_AUTHORITIES];
        let (front, _) = subs.split_at_mut(N);
        front.copy_from_slice(&from);
        Self {
            authority: authority & 0xffff_ffff_ffff,
            count: N as u8,
            subs,
        }
    }

    /// Creates a SID; `None` for more than 15 sub-authorities or an authority of more than 48 bits.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Option<Self> {
        let mut subs = [0; MAX_SUB_AUTHORITIES];
        subs.get_mut(..sub_authorities.len())?
            .copy_from_slice(sub_authorities);
        let count = u8::try_from(sub_authorities.len()).ok()?;
        (authority >> 48 == 0).then_some(Self {
            authority,
            count,
            subs,
        })
    }

    /// The SID of a UNIX user without one of its own.
    pub const fn unix_user(uid: u32) -> Self {
        Self::of(22, [1, uid])
    }

    /// The SID of a UNIX group without one of its own.
    pub const fn unix_group(gid: u32) -> Self {
        Self::of(22, [2, gid])
    }

    /// Returns the uid if this is the SID of a UNIX user.
    pub fn as_unix_user(&self) -> Option<u32> {
        self.rid_in(&Self::UNIX_USERS)
    }

    /// Returns the gid if this is the SID of a UNIX group.
    pub fn as_unix_group(&self) -> Option<u32> {
        self.rid_in(&Self::UNIX_GROUPS)
    }

    /// The sub-authorities, at most 15.
    pub fn sub_authorities(&self) -> &[u32] {
        self.subs.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// Returns the SID with one more sub-authority; `None` if it has 15 already.
    pub fn child(&self, rid: u32) -> Option<Self> {
        let mut child = *self;
        *child.subs.get_mut(usize::from(self.count))? = rid;
        child.count += 1;
        Some(child)
    }

    /// The SID without its last sub-authority, and that sub-authority.
    pub fn split_rid(&self) -> Option<(Self, u32)> {
        let (rid, parent) = self.sub_authorities().split_last()?;
        Some((Self::new(self.authority, parent)?, *rid))
    }

    /// Returns the last sub-authority if the rest is `domain`.
    pub fn rid_in(&self, domain: &Self) -> Option<u32> {
        let (parent, rid) = self.split_rid()?;
        (parent == *domain).then_some(rid)
    }

    /// Reads a SID from the front of `bytes` and ignores the rest.
    ///
    /// # Errors
    /// [`Malformed`] for another revision, over 15 sub-authorities or too few bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::get(&mut Reader::new(bytes, "SID"))
    }

    /// Reads the next SID.
    ///
    /// # Errors
    /// [`Malformed`] as [`Sid::read`].
    pub fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        const MALFORMED: Malformed = Malformed::new("SID");
        let revision = reader.u8()?;
        let count = reader.u8()?;
        let [a, b, c, d, e, f] = reader.array::<6>()?;
        let authority = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        if revision != REVISION {
            return Err(MALFORMED);
        }
        let mut subs = [0; MAX_SUB_AUTHORITIES];
        for sub in subs.get_mut(..usize::from(count)).ok_or(MALFORMED)? {
            *sub = reader.u32()?;
        }
        Ok(Self {
            authority,
            count,
            subs,
        })
    }

    /// Bytes on the wire, 8 to 68.
    pub const fn encoded_len(&self) -> usize {
        Self::MIN + 4 * self.count as usize
    }

    /// Appends the SID.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(REVISION);
        out.put_u8(self.count);
        out.put_uint(self.authority, 6);
        for sub in self.sub_authorities() {
            out.put_u32_le(*sub);
        }
    }
}

impl core::fmt::Display for Sid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // [MS-DTYP] 2.4.2.1: an authority of 32 bits in decimal, a longer one in hex.
        if self.authority >> 32 == 0 {
            write!(f, "S-1-{}", self.authority)?;
        } else {
            write!(f, "S-1-0x{:012X}", self.authority)?;
        }
        for sub in self.sub_authorities() {
            write!(f, "-{sub}")?;
        }
        Ok(())
    }
}

impl core::fmt::Debug for Sid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_agree() {
        let sid = Sid::of(5, [21, 4_157_903_411, 2_676_160_896, 3_563_895_788, 1000]);
        let text = "S-1-5-21-4157903411-2676160896-3563895788-1000";
        assert_eq!(sid.to_string(), text);
        let mut out = BytesMut::new();
        sid.encode(&mut out);
        assert_eq!(out.len(), sid.encoded_len());
        assert_eq!(&out[..12], b"\x01\x05\0\0\0\0\0\x05\x15\0\0\0");
        assert_eq!(Sid::read(&out), Ok(sid));
        for cut in 0..out.len() {
            assert!(Sid::read(&out[..cut]).is_err());
        }
        assert_eq!(sid.split_rid().unwrap().1, 1000);
    }

    #[test]
    fn a_long_authority_is_shown_in_hex() {
        let big = Sid::new(0x1234_5678_90ab, &[1]).unwrap();
        assert_eq!(big.to_string(), "S-1-0x1234567890AB-1");
        assert_eq!(Sid::new(1 << 48, &[1]), None);
    }

    #[test]
    fn unix_ids_have_their_own_authority() {
        assert_eq!(Sid::unix_user(1000).to_string(), "S-1-22-1-1000");
        assert_eq!(Sid::unix_group(7).as_unix_group(), Some(7));
        assert_eq!(Sid::unix_group(7).as_unix_user(), None);
        assert_eq!(Sid::EVERYONE.as_unix_user(), None);
    }

    #[test]
    fn forged_counts_are_rejected() {
        assert!(Sid::read(&[1, 16, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0]).is_err());
        assert!(Sid::read(&[2, 0, 0, 0, 0, 0, 0, 5]).is_err());
    }
}
