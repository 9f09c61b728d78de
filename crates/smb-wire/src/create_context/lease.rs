//! RqLs: a requested or granted lease ([MS-SMB2] 2.2.13.2.8, 2.2.13.2.10, 2.2.14.2.10,
//! 2.2.14.2.11). Request and response have the same layout; the length distinguishes version 1 from
//! 2.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::fscc::record::{Field, record};
use crate::ids::LeaseKey;

flags_of_the_wire! {
    /// The caching that a lease permits to its holder.
    pub struct LeaseState(u32) {
        READ = 0x01,
        HANDLE = 0x02,
        WRITE = 0x04,
        /// All three.
        RWH = 0x07,
    }

    /// Flags of a lease.
    pub struct LeaseFlags(u32) {
        /// Response: the lease is being broken.
        BREAK_IN_PROGRESS = 0x0000_0002,
        /// Version 2: the parent's key is present.
        PARENT_LEASE_KEY_SET = 0x0000_0004,
    }
}

record! {
    /// The fields that version 2 adds.
    LeaseV2 {
        /// The key of the parent directory's lease; valid if the flag is set.
        parent_lease_key: LeaseKey;
        /// Counts the changes of the lease.
        epoch: u16, pad 2;
    }
}

/// The data of RqLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseContext {
    /// The client's name for the lease.
    pub lease_key: LeaseKey,
    /// The requested or granted state.
    pub lease_state: LeaseState,
    /// Flags.
    pub flags: LeaseFlags,
    /// Present in version 2.
    pub v2: Option<LeaseV2>,
}

impl LeaseContext {
    /// Length of version 1.
    pub const SIZE_V1: usize = 32;
    /// Length of version 2.
    pub const SIZE_V2: usize = 52;

    /// Reads either version.
    ///
    /// # Errors
    /// [`Malformed`] when the length is that of neither.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data, "lease context");
        if data.len() != Self::SIZE_V1 && data.len() != Self::SIZE_V2 {
            return Err(reader.malformed());
        }
        let lease_key = LeaseKey(reader.array()?);
        let lease_state = LeaseState(reader.u32()?);
        let flags = LeaseFlags(reader.u32()?);
        reader.skip(8)?;
        let has_v2 = !reader.is_empty();
        Ok(Self {
            lease_key,
            lease_state,
            flags,
            v2: has_v2.then(|| LeaseV2::get(&mut reader)).transpose()?,
        })
    }

    /// Returns whether a break of the lease awaits its acknowledgment.
    pub const fn is_breaking(&self) -> bool {
        self.flags.contains(LeaseFlags::BREAK_IN_PROGRESS)
    }

    /// Returns the parent's key if version and flags say that it is present.
    pub fn parent_lease_key(&self) -> Option<LeaseKey> {
        self.v2
            .filter(|_| self.flags.contains(LeaseFlags::PARENT_LEASE_KEY_SET))
            .map(|v2| v2.parent_lease_key)
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.lease_key.0);
        out.put_u32_le(self.lease_state.bits());
        out.put_u32_le(self.flags.bits());
        out.put_u64_le(0);
        if let Some(v2) = self.v2 {
            v2.put(out);
        }
    }
}
