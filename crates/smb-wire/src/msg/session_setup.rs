//! SESSION_SETUP ([MS-SMB2] 2.2.5, 2.2.6): one round of authentication.
//!
//! The security buffer is a GSS token, which is opaque here.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, fitting_u16, offset_u16, put_at_least_a_byte};
use crate::ids::SessionId;
use crate::msg::{Capabilities, SecurityMode};

flags_of_the_wire! {
    /// Flags of the request.
    pub struct SessionSetupFlags(u8) {
        /// The request binds an existing session to a new connection.
        BINDING = 0x01,
    }

    /// SessionFlags of the response.
    pub struct SessionFlags(u16) {
        IS_GUEST = 0x0001,
        IS_NULL = 0x0002,
        ENCRYPT_DATA = 0x0004,
    }
}

/// The SESSION_SETUP request ([MS-SMB2] 2.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSetupRequest<'a> {
    /// Whether an existing session is bound (3.x).
    pub flags: SessionSetupFlags,
    /// The client's signing policy; only the low 8 bits are on the wire.
    pub security_mode: SecurityMode,
    /// The client's capabilities; only DFS has a meaning here.
    pub capabilities: Capabilities,
    /// The session this one replaces after a lost connection; 0 for none.
    pub previous_session_id: SessionId,
    /// The GSS token; may be empty.
    pub security_buffer: &'a [u8],
}

impl<'a> SessionSetupRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 25;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the security buffer is outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "SESSION_SETUP request")?;
        let flags = SessionSetupFlags(body.u8()?);
        let security_mode = SecurityMode(body.u8()?.into());
        let capabilities = Capabilities(body.u32()?);
        body.skip(4)?;
        let (offset, len) = (body.u16()?, body.u16()?);
        let previous_session_id = SessionId(body.u64()?);
        Ok(Self {
            flags,
            security_mode,
            capabilities,
            previous_session_id,
            security_buffer: body.buffer(message, offset, len)?,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (security_buffer, len) = fitting_u16(self.security_buffer);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(self.flags.bits());
        let [security_mode, _] = self.security_mode.bits().to_le_bytes();
        out.put_u8(security_mode);
        out.put_u32_le(self.capabilities.bits());
        out.put_u32_le(0);
        let offset = Patch::u16(out);
        out.put_u16_le(len);
        out.put_u64_le(self.previous_session_id.0);
        offset.set_u16(out, offset_u16(out, start));
        put_at_least_a_byte(out, security_buffer);
    }
}

buffer_messages! {
    /// The SESSION_SETUP response ([MS-SMB2] 2.2.6).
    SessionSetupResponse(9, BytesMut::extend_from_slice) {
        /// The kind of the session.
        session_flags: SessionFlags;
        [offset: u16; length: u16;]
        => /// The GSS token; may be empty.
        security_buffer
    }
}
