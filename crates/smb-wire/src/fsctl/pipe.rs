//! The messages of the control codes FSCTL_PIPE_WAIT and FSCTL_PIPE_PEEK ([MS-FSCC] 2.3.46, 2.3.49). TRANSCEIVE has no
//! structure.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, size};
use crate::utf16;

/// FSCTL_PIPE_WAIT input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PipeWaitRequest {
    /// The timeout in units of 100 ms, as [MS-FSCC] says; valid if `timeout_specified`.
    pub timeout: i64,
    /// Whether the timeout is valid.
    pub timeout_specified: bool,
    /// The pipe, without `\pipe\`.
    pub name: String,
}

impl PipeWaitRequest {
    /// Bytes before the name.
    pub const MIN: usize = 14;

    /// Reads the input.
    ///
    /// # Errors
    /// [`Malformed`] when the name is missing or not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "FSCTL_PIPE_WAIT";
        let mut reader = Reader::new(bytes, WHAT);
        // The cast reinterprets the sign bit.
        let timeout = reader.u64()? as i64;
        let len = size(reader.u32()?);
        let timeout_specified = reader.u8()? != 0;
        reader.skip(1)?;
        Ok(Self {
            timeout,
            timeout_specified,
            name: utf16::decode(reader.take(len)?, WHAT)?,
        })
    }

    /// Appends the input.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_i64_le(self.timeout);
        out.put_u32_le(u32::try_from(utf16::len_bytes(&self.name)).unwrap_or(u32::MAX));
        out.put_u8(u8::from(self.timeout_specified));
        out.put_u8(0);
        utf16::put(out, &self.name);
    }
}

/// FSCTL_PIPE_PEEK output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PipePeekResponse {
    /// 3 connected, 4 closing.
    pub named_pipe_state: u32,
    /// Number of bytes that can be read.
    pub read_data_available: u32,
    /// Number of messages that can be read.
    pub number_of_messages: u32,
    /// Bytes of the first message.
    pub message_length: u32,
    /// The part of the data that fits the client's buffer.
    pub data: Vec<u8>,
}

impl PipePeekResponse {
    /// Bytes before the data.
    pub const MIN: usize = 16;

    /// Appends the output.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.named_pipe_state);
        out.put_u32_le(self.read_data_available);
        out.put_u32_le(self.number_of_messages);
        out.put_u32_le(self.message_length);
        out.put_slice(&self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_round_trip() {
        let wait = PipeWaitRequest {
            timeout: 50,
            timeout_specified: true,
            name: "srvsvc".to_owned(),
        };
        let mut out = BytesMut::new();
        wait.encode(&mut out);
        assert_eq!(PipeWaitRequest::read(&out), Ok(wait));
        assert!(PipeWaitRequest::read(&out[..25]).is_err());
    }
}
