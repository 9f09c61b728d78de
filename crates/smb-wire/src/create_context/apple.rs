//! AAPL: the query that Apple's clients send with their first CREATE. The server query is described in Apple's "Time
//! Machine over SMB Specification" (24 bytes in the request, fields of the answer in the order of the bitmap); most of
//! the bits are described only by the source of Apple's client.

use bytes::{BufMut, BytesMut};

use super::plain::exactly;
use crate::codec::{Malformed, Reader, fitting_u32, size};

flags_of_the_wire! {
    /// The parts of a query and of its answer.
    pub struct AppleBitmap(u64) {
        SERVER_CAPABILITIES = 0x01,
        VOLUME_CAPABILITIES = 0x02,
        MODEL_INFO = 0x04,
    }

    /// The capabilities of the client.
    pub struct AppleClientCapabilities(u64) {
        SUPPORTS_READ_DIR_ATTR = 0x01,
        SUPPORTS_OSX_COPYFILE = 0x02,
        UNIX_BASED = 0x04,
        SUPPORTS_NFS_ACE = 0x08,
    }

    /// The capabilities of the server.
    pub struct AppleServerCapabilities(u64) {
        SUPPORTS_READ_DIR_ATTR = 0x01,
        SUPPORTS_OSX_COPYFILE = 0x02,
        UNIX_BASED = 0x04,
        SUPPORTS_NFS_ACE = 0x08,
    }

    /// The capabilities of the volume.
    pub struct AppleVolumeCapabilities(u64) {
        SUPPORT_RESOLVE_ID = 0x01,
        CASE_SENSITIVE = 0x02,
        SUPPORTS_FULL_SYNC = 0x04,
    }
}

const COMMAND_SERVER_QUERY: u32 = 1;
const COMMAND_RESOLVE_ID: u32 = 2;

/// AAPL of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppleRequest {
    /// Queries the server's capabilities.
    ServerQuery {
        /// The requested parts.
        bitmap: AppleBitmap,
        /// The capabilities of the client.
        client_capabilities: AppleClientCapabilities,
    },
    /// Resolves a file id to its path.
    ResolveId {
        /// The file's number on its volume.
        file_id: u64,
    },
    /// Another command; its data are ignored.
    Other {
        /// The command.
        command: u32,
    },
}

impl AppleRequest {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when they are too short, or not 24 bytes in a server query.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data, "AAPL");
        let command = reader.u32()?;
        reader.skip(4)?;
        match command {
            COMMAND_SERVER_QUERY => {
                exactly(data, 24, "AAPL")?;
                Ok(Self::ServerQuery {
                    bitmap: AppleBitmap(reader.u64()?),
                    client_capabilities: AppleClientCapabilities(reader.u64()?),
                })
            }
            COMMAND_RESOLVE_ID => Ok(Self::ResolveId {
                file_id: reader.u64()?,
            }),
            command => Ok(Self::Other { command }),
        }
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        match *self {
            Self::ServerQuery {
                bitmap,
                client_capabilities,
            } => {
                out.put_u32_le(COMMAND_SERVER_QUERY);
                out.put_u32_le(0);
                out.put_u64_le(bitmap.bits());
                out.put_u64_le(client_capabilities.bits());
            }
            Self::ResolveId { file_id } => {
                out.put_u32_le(COMMAND_RESOLVE_ID);
                out.put_u32_le(0);
                out.put_u64_le(file_id);
            }
            Self::Other { command } => {
                out.put_u32_le(command);
                out.put_u32_le(0);
            }
        }
    }
}

/// AAPL of a response to a server query; a part that is present has its bit set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppleResponse<'a> {
    /// The capabilities of the server.
    pub server_capabilities: Option<AppleServerCapabilities>,
    /// The capabilities of the volume.
    pub volume_capabilities: Option<AppleVolumeCapabilities>,
    /// The model whose icon the client shows, in raw UTF-16LE.
    pub model: Option<&'a [u8]>,
}

impl<'a> AppleResponse<'a> {
    /// Reads the data.
    ///
    /// # Errors
    /// [`Malformed`] when a part announced by the bitmap is missing, or the command is another.
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data, "AAPL response");
        if reader.u32()? != COMMAND_SERVER_QUERY {
            return Err(reader.malformed());
        }
        reader.skip(4)?;
        let bitmap = AppleBitmap(reader.u64()?);
        let mut response = Self::default();
        if bitmap.contains(AppleBitmap::SERVER_CAPABILITIES) {
            response.server_capabilities = Some(AppleServerCapabilities(reader.u64()?));
        }
        if bitmap.contains(AppleBitmap::VOLUME_CAPABILITIES) {
            response.volume_capabilities = Some(AppleVolumeCapabilities(reader.u64()?));
        }
        if bitmap.contains(AppleBitmap::MODEL_INFO) {
            reader.skip(4)?;
            let len = size(reader.u32()?);
            response.model = Some(reader.take(len)?);
        }
        Ok(response)
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        let bitmap = AppleBitmap::SERVER_CAPABILITIES.when(self.server_capabilities.is_some())
            | AppleBitmap::VOLUME_CAPABILITIES.when(self.volume_capabilities.is_some())
            | AppleBitmap::MODEL_INFO.when(self.model.is_some());
        out.put_u32_le(COMMAND_SERVER_QUERY);
        out.put_u32_le(0);
        out.put_u64_le(bitmap.bits());
        if let Some(capabilities) = self.server_capabilities {
            out.put_u64_le(capabilities.bits());
        }
        if let Some(capabilities) = self.volume_capabilities {
            out.put_u64_le(capabilities.bits());
        }
        if let Some(model) = self.model {
            let (model, len) = fitting_u32(model);
            out.put_u32_le(0);
            out.put_u32_le(len);
            out.put_slice(model);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange that Apple's specification prints: a Mac and a server that is none.
    #[test]
    fn the_published_exchange_is_read_and_written() {
        let query = [
            1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0, 0,
        ];
        let asked = AppleRequest::read(&query).unwrap();
        let all = AppleBitmap::SERVER_CAPABILITIES
            | AppleBitmap::VOLUME_CAPABILITIES
            | AppleBitmap::MODEL_INFO;
        let expected = AppleRequest::ServerQuery {
            bitmap: all,
            client_capabilities: AppleClientCapabilities(0x0f),
        };
        assert_eq!(asked, expected);
        let mut written = BytesMut::new();
        asked.encode(&mut written);
        assert_eq!(written[..], query);

        let reply = [
            1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0,
            0, 0, 0,
        ];
        let answer = AppleResponse::read(&reply).unwrap();
        let expected = AppleResponse {
            server_capabilities: Some(AppleServerCapabilities::empty()),
            volume_capabilities: Some(AppleVolumeCapabilities::SUPPORTS_FULL_SYNC),
            model: None,
        };
        assert_eq!(answer, expected);
        let mut written = BytesMut::new();
        answer.encode(&mut written);
        assert_eq!(written[..], reply);
        for end in 0..reply.len() {
            assert!(AppleResponse::read(&reply[..end]).is_err(), "{end}");
        }
    }
}
