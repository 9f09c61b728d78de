//! The application instance contexts ([MS-SMB2] 2.2.13.2.13, 2.2.13.2.15): the instance of a
//! clustered application that opens a file, and its version.

use bytes::{BufMut, BytesMut};

use super::plain::exactly;
use crate::codec::Malformed;
use crate::ids::Guid;

/// SMB2_CREATE_APP_INSTANCE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppInstanceId(pub Guid);

impl AppInstanceId {
    /// Length of the data, and their StructureSize.
    pub const SIZE: u16 = 20;

    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when length or StructureSize is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, Self::SIZE.into(), "AppInstanceId")?;
        reader.structure_size(Self::SIZE)?;
        reader.skip(2)?;
        Ok(Self(Guid(reader.array()?)))
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(Self::SIZE);
        out.put_u16_le(0);
        out.put_slice(&self.0.0);
    }
}

/// SMB2_CREATE_APP_INSTANCE_VERSION. The order of the fields makes the derived order the order of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppInstanceVersion {
    /// The high half.
    pub high: u64,
    /// The low half.
    pub low: u64,
}

impl AppInstanceVersion {
    /// Length of the data, and their StructureSize.
    pub const SIZE: u16 = 24;

    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when length or StructureSize is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, Self::SIZE.into(), "AppInstanceVersion")?;
        reader.structure_size(Self::SIZE)?;
        reader.skip(6)?;
        Ok(Self {
            high: reader.u64()?,
            low: reader.u64()?,
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(Self::SIZE);
        out.put_bytes(0, 6);
        out.put_u64_le(self.high);
        out.put_u64_le(self.low);
    }
}
