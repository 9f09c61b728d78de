//! DHnQ, DHnC, DH2Q, DH2C: durable and persistent opens ([MS-SMB2] 2.2.13.2.3, .4, .11, .12 and
//! 2.2.14.2.3, .12). The V1 reconnect and both reconnect responses contain nothing more.

use bytes::{BufMut, BytesMut};

use super::plain::exactly;
use crate::codec::{Malformed, Reader};
use crate::ids::{FileId, Guid};

flags_of_the_wire! {
    /// Flags of version 2.
    pub struct DurableHandleFlags(u32) {
        PERSISTENT = 0x0000_0002,
    }
}

/// DHnQ of a request: 16 reserved bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurableHandleRequest;

impl DurableHandleRequest {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        exactly(data, 16, "DHnQ").map(|_| Self)
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_bytes(0, 16);
    }
}

/// DHnQ of a response: 8 reserved bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurableHandleResponse;

impl DurableHandleResponse {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        exactly(data, 8, "DHnQ response").map(|_| Self)
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(0);
    }
}

/// DHnC: the open to reconnect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableHandleReconnect {
    /// The FileId that CREATE returned.
    pub file_id: FileId,
}

impl DurableHandleReconnect {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader: Reader<'_> = exactly(data, 16, "DHnC")?;
        Ok(Self {
            file_id: FileId::read(&mut reader)?,
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        self.file_id.encode(out);
    }
}

/// DH2Q of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableHandleRequestV2 {
    /// The time in milliseconds for which the server is asked to preserve the open; 0 leaves it to
    /// the server.
    pub timeout_ms: u32,
    /// Flags.
    pub flags: DurableHandleFlags,
    /// Identifies this CREATE across replays.
    pub create_guid: Guid,
}

impl DurableHandleRequestV2 {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, 32, "DH2Q")?;
        let (timeout_ms, flags) = (reader.u32()?, DurableHandleFlags(reader.u32()?));
        reader.skip(8)?;
        Ok(Self {
            timeout_ms,
            flags,
            create_guid: Guid(reader.array()?),
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.timeout_ms);
        out.put_u32_le(self.flags.bits());
        out.put_u64_le(0);
        out.put_slice(&self.create_guid.0);
    }
}

/// DH2Q of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableHandleResponseV2 {
    /// The time in milliseconds for which the server preserves the open.
    pub timeout_ms: u32,
    /// Flags.
    pub flags: DurableHandleFlags,
}

impl DurableHandleResponseV2 {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, 8, "DH2Q response")?;
        Ok(Self {
            timeout_ms: reader.u32()?,
            flags: DurableHandleFlags(reader.u32()?),
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.timeout_ms);
        out.put_u32_le(self.flags.bits());
    }
}

/// DH2C: the open to reconnect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableHandleReconnectV2 {
    /// The FileId that CREATE returned.
    pub file_id: FileId,
    /// The CreateGuid of the original CREATE.
    pub create_guid: Guid,
    /// Flags.
    pub flags: DurableHandleFlags,
}

impl DurableHandleReconnectV2 {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when the length is wrong.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = exactly(data, 36, "DH2C")?;
        Ok(Self {
            file_id: FileId::read(&mut reader)?,
            create_guid: Guid(reader.array()?),
            flags: DurableHandleFlags(reader.u32()?),
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        self.file_id.encode(out);
        out.put_slice(&self.create_guid.0);
        out.put_u32_le(self.flags.bits());
    }
}
