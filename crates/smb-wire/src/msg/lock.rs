//! LOCK ([MS-SMB2] 2.2.26, 2.2.27): a list of byte ranges to lock or to unlock.
//!
//! The list has the announced length if the message contains it (LockCount is 16 bits wide); an
//! empty list can be decoded, and the server refuses it.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::fscc::record::{Field, records};
use crate::ids::FileId;

flags_of_the_wire! {
    /// The operation on a range.
    pub struct LockFlags(u32) {
        SHARED = 0x0000_0001,
        EXCLUSIVE = 0x0000_0002,
        UNLOCK = 0x0000_0004,
        FAIL_IMMEDIATELY = 0x0000_0010,
    }
}

records! {
    /// One range ([MS-SMB2] 2.2.26.1).
    LockElement {
        /// The position of the first byte.
        offset: u64;
        /// Bytes in the range; may be zero.
        length: u64;
        /// The operation on a range.
        flags: LockFlags, pad 4;
    }
}

/// The LOCK request ([MS-SMB2] 2.2.26).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    /// LockSequence: see [`LockRequest::sequence_number`] and [`LockRequest::sequence_index`]. Reserved in 2.0.2.
    pub lock_sequence: u32,
    /// The handle.
    pub file_id: FileId,
    /// The ranges.
    pub locks: Vec<LockElement>,
}

impl LockRequest {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 48;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the message contains fewer ranges than it announces.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "LOCK request")?;
        let count = body.u16()?;
        let lock_sequence = body.u32()?;
        let file_id = FileId::get(&mut body)?;
        // Taking the bytes first bounds the allocation by the size of the message.
        let elements = body.take(usize::from(count) * LockElement::MIN)?;
        let locks = elements.chunks_exact(LockElement::MIN);
        let locks = locks.map(LockElement::read).collect::<Result<_, _>>()?;
        Ok(Self {
            lock_sequence,
            file_id,
            locks,
        })
    }

    /// The number within the bucket: the low four bits of LockSequence.
    pub const fn sequence_number(&self) -> u8 {
        // The mask makes the cast exact.
        (self.lock_sequence & 0xf) as u8
    }

    /// The bucket: the high 28 bits of LockSequence; 0 means none.
    pub const fn sequence_index(&self) -> u32 {
        self.lock_sequence >> 4
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        let count = u16::try_from(self.locks.len()).unwrap_or(u16::MAX);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(count);
        out.put_u32_le(self.lock_sequence);
        self.file_id.put(out);
        for lock in self.locks.iter().take(count.into()) {
            lock.encode(out);
        }
    }
}

empty_message! {
    /// The LOCK response ([MS-SMB2] 2.2.27).
    pub struct LockResponse(4);
}
