//! The contexts of a field or two: MxAc, QFid, AlSi, TWrp ([MS-SMB2] 2.2.13.2.5 to .9,
//! 2.2.14.2.5, .9).

use bytes::{BufMut, BytesMut};

use crate::access_mask::AccessMask;
use crate::codec::{Malformed, Reader};
use crate::ids::FileTime;
use crate::status::Status;

/// A reader over `data`, which must be `len` bytes long: [MS-SMB2] 3.3.5.9 makes any other
/// length an error.
pub(super) fn exactly<'a>(
    data: &'a [u8],
    len: usize,
    what: &'static str,
) -> Result<Reader<'a>, Malformed> {
    if data.len() == len {
        Ok(Reader::new(data, what))
    } else {
        Err(Malformed { what })
    }
}

/// MxAc of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryMaximalAccessRequest {
    /// If present and equal to the file's ChangeTime, the client wants no answer.
    pub timestamp: Option<FileTime>,
}

impl QueryMaximalAccessRequest {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when they are neither empty nor a time.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        if data.is_empty() {
            return Ok(Self { timestamp: None });
        }
        let mut reader = exactly(data, 8, "MxAc")?;
        Ok(Self {
            timestamp: Some(FileTime(reader.u64()?)),
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        if let Some(timestamp) = self.timestamp {
            out.put_u64_le(timestamp.0);
        }
    }
}

/// MxAc of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryMaximalAccessResponse {
    /// The status of the query.
    pub query_status: Status,
    /// The maximal access that the user can be granted.
    pub maximal_access: AccessMask,
}

impl QueryMaximalAccessResponse {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, 8, "MxAc response")?;
        Ok(Self {
            query_status: Status(reader.u32()?),
            maximal_access: AccessMask(reader.u32()?),
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.query_status.0);
        out.put_u32_le(self.maximal_access.bits());
    }
}

/// QFid of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryOnDiskIdResponse {
    /// The file's number on its volume.
    pub disk_file_id: u64,
    /// The volume's number.
    pub volume_id: u64,
}

impl QueryOnDiskIdResponse {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, 32, "QFid response")?;
        Ok(Self {
            disk_file_id: reader.u64()?,
            volume_id: reader.u64()?,
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.disk_file_id);
        out.put_u64_le(self.volume_id);
        out.put_bytes(0, 16);
    }
}

/// AlSi: bytes to allocate for a new or overwritten file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationSize(pub u64);

impl AllocationSize {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        Ok(Self(exactly(data, 8, "AlSi")?.u64()?))
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.0);
    }
}

/// TWrp: the time of the requested version of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimewarpToken(pub FileTime);

impl TimewarpToken {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        Ok(Self(FileTime(exactly(data, 8, "TWrp")?.u64()?)))
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.0.0);
    }
}
