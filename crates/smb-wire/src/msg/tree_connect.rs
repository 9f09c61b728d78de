//! TREE_CONNECT ([MS-SMB2] 2.2.9, 2.2.10): a share and its properties.
//!
//! The path is raw UTF-16LE `\\server\share`. The 3.1.1 extension (remoted identity contexts) is
//! neither read nor written.

use crate::access_mask::AccessMask;
use crate::codec::put_at_least_a_byte;

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

buffer_messages! {
    /// The TREE_CONNECT request ([MS-SMB2] 2.2.9).
    TreeConnectRequest(9, put_at_least_a_byte) {
        /// Flags; meaningful on 3.1.1 only.
        flags: TreeConnectFlags;
        [offset: u16; length: u16;]
        => /// `\\server\share` in raw UTF-16LE.
        path
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
