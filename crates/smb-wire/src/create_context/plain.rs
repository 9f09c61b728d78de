//! The contexts of a field or two: MxAc and QFid ([MS-SMB2] 2.2.13.2.5, .9, 2.2.14.2.5, .9), and the length of those
//! that are no structure.

use bytes::{BufMut, BytesMut};

use crate::access_mask::AccessMask;
use crate::codec::{Malformed, Reader};
use crate::fscc::record::records;
use crate::ids::FileTime;
use crate::status::Status;

/// A reader over `data`, which must be `len` bytes long: [MS-SMB2] 3.3.5.9 makes any other length an error.
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

records! {
    /// MxAc of a response.
    QueryMaximalAccessResponse, exactly {
        /// The status of the query.
        query_status: Status;
        /// The maximal access that the user can be granted.
        maximal_access: AccessMask;
    }

    /// QFid of a response.
    QueryOnDiskIdResponse, exactly {
        /// The file's number on its volume.
        disk_file_id: u64;
        /// The volume's number.
        volume_id: u64, pad 16;
    }
}
