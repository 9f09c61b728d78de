//! NEGOTIATE ([MS-SMB2] 2.2.3, 2.2.4): dialects, capabilities, security mode, and the contexts
//! of 3.1.1.
//!
//! The choice of the dialect and of the contexts is not made here. The context fields of a request
//! are valid only if the offered dialects include 3.1.1; otherwise the same bytes are
//! ClientStartTime, which is not used.

use bytes::{BufMut, BytesMut};

use crate::codec::{
    HEADER_SIZE, Malformed, Patch, Reader, fitting_u16, offset_u16, offset_u32, pad_to, size,
    slice_at,
};
use crate::ids::{FileTime, Guid};
use crate::negotiate_context::NegotiateContexts;

enum_of_the_wire! {
    /// A dialect of the protocol; the numbers order the dialects.
    pub struct Dialect(u16) {
        SMB_2_0_2 = 0x0202,
        SMB_2_1 = 0x0210,
        /// The answer to a multi-protocol NEGOTIATE that offered "SMB 2.???".
        WILDCARD = 0x02ff,
        SMB_3_0 = 0x0300,
        SMB_3_0_2 = 0x0302,
        SMB_3_1_1 = 0x0311,
    }
}

flags_of_the_wire! {
    /// Global capabilities of client or server ([MS-SMB2] 2.2.3).
    pub struct Capabilities(u32) {
        DFS = 0x01,
        LEASING = 0x02,
        LARGE_MTU = 0x04,
        MULTI_CHANNEL = 0x08,
        PERSISTENT_HANDLES = 0x10,
        DIRECTORY_LEASING = 0x20,
        ENCRYPTION = 0x40,
        NOTIFICATIONS = 0x80,
    }

    /// Whether signing is enabled or required: 16 bits in NEGOTIATE, 8 in SESSION_SETUP.
    pub struct SecurityMode(u16) {
        SIGNING_ENABLED = 0x0001,
        SIGNING_REQUIRED = 0x0002,
    }
}

impl Dialect {
    /// All dialects, the oldest first; [`Dialect::WILDCARD`] is none.
    pub const ALL: [Self; 5] = [
        Self::SMB_2_0_2,
        Self::SMB_2_1,
        Self::SMB_3_0,
        Self::SMB_3_0_2,
        Self::SMB_3_1_1,
    ];
}

/// The NEGOTIATE request ([MS-SMB2] 2.2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiateRequest<'a> {
    /// The client's signing policy.
    pub security_mode: SecurityMode,
    /// The client's capabilities; meaningful for 3.x.
    pub capabilities: Capabilities,
    /// Identifies the client across connections (2.1 and later).
    pub client_guid: Guid,
    /// The dialects offered, in the client's order; may be empty on read.
    pub dialects: Vec<Dialect>,
    /// NegotiateContextOffset as it was read; encoding computes its own. See
    /// [`NegotiateRequest::context_offset_expected`].
    pub context_offset: u32,
    /// The contexts; empty unless 3.1.1 is offered.
    pub contexts: NegotiateContexts<'a>,
}

impl<'a> NegotiateRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 36;
    const FIXED: usize = HEADER_SIZE + 36;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the dialects or the contexts are outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "NEGOTIATE request")?;
        let dialect_count = body.u16()?;
        let security_mode = SecurityMode(body.u16()?);
        body.skip(2)?;
        let capabilities = Capabilities(body.u32()?);
        let client_guid = Guid(body.array()?);
        let context_offset = body.u32()?;
        let context_count = body.u16()?;
        body.skip(2)?;
        let dialects = (0..dialect_count).map(|_| body.u16().map(Dialect));
        let dialects = dialects.collect::<Result<_, _>>()?;
        let mut request = Self {
            security_mode,
            capabilities,
            client_guid,
            dialects,
            context_offset: 0,
            contexts: NegotiateContexts::EMPTY,
        };
        if request.dialects.contains(&Dialect::SMB_3_1_1) {
            request.context_offset = context_offset;
            request.contexts = contexts_at(message, Self::FIXED, context_offset, context_count)?;
        }
        Ok(request)
    }

    /// Returns the offset of contexts that follow the dialects at the next multiple of eight, the
    /// only position that strict servers accept.
    pub fn context_offset_expected(&self) -> usize {
        (Self::FIXED + self.dialects.len() * 2).next_multiple_of(8)
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(u16::try_from(self.dialects.len()).unwrap_or(u16::MAX));
        out.put_u16_le(self.security_mode.bits());
        out.put_u16_le(0);
        out.put_u32_le(self.capabilities.bits());
        out.put_slice(&self.client_guid.0);
        let offset = Patch::u32(out);
        out.put_u16_le(self.contexts.count());
        out.put_u16_le(0);
        for dialect in self.dialects.iter().take(usize::from(u16::MAX)) {
            out.put_u16_le(dialect.0);
        }
        if self.contexts.count() != 0 {
            pad_to(out, start, 8);
            offset.set_u32(out, offset_u32(out, start));
            out.put_slice(self.contexts.bytes());
        }
    }
}

fn contexts_at(
    message: &[u8],
    floor: usize,
    offset: u32,
    count: u16,
) -> Result<NegotiateContexts<'_>, Malformed> {
    const WHAT: &str = "NEGOTIATE context offset";
    if count == 0 {
        return Ok(NegotiateContexts::EMPTY);
    }
    let offset = size(offset);
    let len = message
        .len()
        .checked_sub(offset)
        .ok_or(Malformed::new(WHAT))?;
    let bytes = slice_at(message, floor, offset, len, WHAT)?;
    Ok(NegotiateContexts::new(count, bytes))
}

/// The NEGOTIATE response ([MS-SMB2] 2.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateResponse<'a> {
    /// The server's signing policy.
    pub security_mode: SecurityMode,
    /// The dialect chosen.
    pub dialect: Dialect,
    /// Identifies the server.
    pub server_guid: Guid,
    /// Capabilities of the server that the client can use.
    pub capabilities: Capabilities,
    /// Longest buffer of QUERY_INFO, QUERY_DIRECTORY, SET_INFO, CHANGE_NOTIFY, in bytes.
    pub max_transact_size: u32,
    /// Longest READ, in bytes.
    pub max_read_size: u32,
    /// Longest WRITE, in bytes.
    pub max_write_size: u32,
    /// The server's clock.
    pub system_time: FileTime,
    /// The first GSS token (negTokenInit2), or nothing.
    pub security_buffer: &'a [u8],
    /// The contexts; empty unless the dialect is 3.1.1.
    pub contexts: NegotiateContexts<'a>,
}

impl<'a> NegotiateResponse<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 65;
    const FIXED: usize = HEADER_SIZE + 64;

    /// Reads the response, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the security buffer or the contexts are outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "NEGOTIATE response")?;
        let security_mode = SecurityMode(body.u16()?);
        let dialect = Dialect(body.u16()?);
        let context_count = body.u16()?;
        let server_guid = Guid(body.array()?);
        let capabilities = Capabilities(body.u32()?);
        let (max_transact_size, max_read_size, max_write_size) =
            (body.u32()?, body.u32()?, body.u32()?);
        let system_time = FileTime(body.u64()?);
        body.skip(8)?;
        let (offset, len) = (body.u16()?, body.u16()?);
        let context_offset = body.u32()?;
        Ok(Self {
            security_mode,
            dialect,
            server_guid,
            capabilities,
            max_transact_size,
            max_read_size,
            max_write_size,
            system_time,
            security_buffer: body.buffer(message, offset, len)?,
            contexts: if dialect == Dialect::SMB_3_1_1 {
                contexts_at(message, Self::FIXED, context_offset, context_count)?
            } else {
                NegotiateContexts::EMPTY
            },
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (security_buffer, len) = fitting_u16(self.security_buffer);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(self.security_mode.bits());
        out.put_u16_le(self.dialect.0);
        out.put_u16_le(self.contexts.count());
        out.put_slice(&self.server_guid.0);
        out.put_u32_le(self.capabilities.bits());
        out.put_u32_le(self.max_transact_size);
        out.put_u32_le(self.max_read_size);
        out.put_u32_le(self.max_write_size);
        out.put_u64_le(self.system_time.0);
        // [MS-SMB2] 2.2.4: ServerStartTime is zero.
        out.put_u64_le(0);
        let offset = Patch::u16(out);
        out.put_u16_le(len);
        let context_offset = Patch::u32(out);
        offset.set_u16(out, offset_u16(out, start));
        out.put_slice(security_buffer);
        if self.contexts.count() != 0 {
            pad_to(out, start, 8);
            context_offset.set_u32(out, offset_u32(out, start));
            out.put_slice(self.contexts.bytes());
        }
    }
}
