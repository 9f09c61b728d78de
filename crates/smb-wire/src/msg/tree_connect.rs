//! TREE_CONNECT ([MS-SMB2] 2.2.9, 2.2.10): a share and its properties.
//!
//! The path is raw UTF-16LE `\\server\share`. The 3.1.1 extension (remoted identity contexts) is
//! neither read nor written.

use bytes::{BufMut, BytesMut};

use crate::access_mask::AccessMask;
use crate::codec::{Malformed, Patch, Reader, fitting_u16, offset_u16, put_at_least_a_byte};

flags_of_the_wire! {
    /// Flags of the request, 3.1.1 only.
    pub struct TreeConnectFlags(u16) {
        EXTENSION_PRESENT = 0x0004,
    }
}

enum_of_the_wire! {
    /// The type of a share.
    pub struct ShareType(u8) {
        DISK = 0x01,
        PIPE = 0x02,
    }
}

flags_of_the_wire! {
    /// Properties of a share. The offline caching property is the two-bit field
    /// [`ShareFlags::NO_CACHING`]; manual caching is zero.
    pub struct ShareFlags(u32) {
        DFS = 0x0000_0001,
        NO_CACHING = 0x0000_0030,
        ACCESS_BASED_DIRECTORY_ENUM = 0x0000_0800,
        ENCRYPT_DATA = 0x0000_8000,
    }

    /// Capabilities of a share.
    pub struct ShareCapabilities(u32) {
        DFS = 0x0000_0008,
        CONTINUOUS_AVAILABILITY = 0x0000_0010,
    }
}

/// The TREE_CONNECT request ([MS-SMB2] 2.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeConnectRequest<'a> {
    /// Flags; meaningful on 3.1.1 only.
    pub flags: TreeConnectFlags,
    /// `\\server\share` in raw UTF-16LE.
    pub path: &'a [u8],
}

impl<'a> TreeConnectRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 9;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the path is outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "TREE_CONNECT request")?;
        let flags = TreeConnectFlags(body.u16()?);
        let (offset, len) = (body.u16()?, body.u16()?);
        Ok(Self {
            flags,
            path: body.buffer(message, offset, len)?,
        })
    }

    /// Appends the body, always without an extension; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (path, len) = fitting_u16(self.path);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(
            self.flags
                .without(TreeConnectFlags::EXTENSION_PRESENT)
                .bits(),
        );
        let offset = Patch::u16(out);
        out.put_u16_le(len);
        offset.set_u16(out, offset_u16(out, start));
        put_at_least_a_byte(out, path);
    }
}

fixed_messages! {
    /// The TREE_CONNECT response ([MS-SMB2] 2.2.10).
    TreeConnectResponse(16) {
        /// The type of the share.
        share_type: ShareType, pad 1;
        /// Its properties.
        share_flags: ShareFlags;
        /// Its capabilities.
        capabilities: ShareCapabilities;
        /// The maximal access of this user on the share.
        maximal_access: AccessMask;
    }
}
