//! Create contexts ([MS-SMB2] 2.2.13.2, 2.2.14.2): the list, and the structures of the known
//! members.
//!
//! The list is a chain of untrusted offsets: every step must move forward, stay aligned and stay
//! inside (see [`CreateContexts`]). Unknown members are returned like any other, and the server
//! ignores them. [`CreateContext::request`] and [`CreateContext::response`] decode a member by its
//! name.

mod app_instance;
mod apple;
mod durable;
mod lease;
mod list;
mod plain;
mod typed;

pub use app_instance::{AppInstanceId, AppInstanceVersion};
pub use apple::{
    AppleBitmap, AppleClientCapabilities, AppleRequest, AppleResponse, AppleServerCapabilities,
    AppleVolumeCapabilities,
};
pub use durable::{
    DurableHandleFlags, DurableHandleReconnect, DurableHandleReconnectV2, DurableHandleRequestV2,
    DurableHandleResponseV2,
};
pub use lease::{LeaseContext, LeaseFlags, LeaseState, LeaseV2};
pub use list::{CreateContext, CreateContextList, CreateContexts};
pub use plain::{QueryMaximalAccessRequest, QueryMaximalAccessResponse, QueryOnDiskIdResponse};
pub use typed::{RequestContext, ResponseContext};

/// The names of the contexts.
pub mod name {
    /// Extended attributes for a new file ([MS-FSCC] FILE_FULL_EA_INFORMATION list).
    pub const EXTENDED_ATTRIBUTES: &[u8] = b"ExtA";
    /// A security descriptor for a new file.
    pub const SECURITY_DESCRIPTOR: &[u8] = b"SecD";
    /// Durable open, version 1.
    pub const DURABLE_HANDLE_REQUEST: &[u8] = b"DHnQ";
    /// Reconnect to a durable open, version 1.
    pub const DURABLE_HANDLE_RECONNECT: &[u8] = b"DHnC";
    /// Durable or persistent open, version 2.
    pub const DURABLE_HANDLE_REQUEST_V2: &[u8] = b"DH2Q";
    /// Reconnect to a durable or persistent open, version 2.
    pub const DURABLE_HANDLE_RECONNECT_V2: &[u8] = b"DH2C";
    /// The maximal access that the user can be granted.
    pub const QUERY_MAXIMAL_ACCESS: &[u8] = b"MxAc";
    /// The file's id on disk.
    pub const QUERY_ON_DISK_ID: &[u8] = b"QFid";
    /// Size to allocate for a new file.
    pub const ALLOCATION_SIZE: &[u8] = b"AlSi";
    /// Open a previous version.
    pub const TIMEWARP_TOKEN: &[u8] = b"TWrp";
    /// A lease, version 1 or 2.
    pub const REQUEST_LEASE: &[u8] = b"RqLs";
    /// Apple's extensions.
    pub const APPLE: &[u8] = b"AAPL";
    /// The POSIX extensions of Samba and the Linux client, a GUID.
    pub const POSIX: &[u8] = b"\x93\xad\x25\x50\x9c\xb4\x11\xe7\xb4\x23\x83\xde\x96\x8b\xcd\x7c";
    /// Names an application instance for failover, a GUID.
    pub const APP_INSTANCE_ID: &[u8] =
        b"\x45\xbc\xa6\x6a\xef\xa7\xf7\x4a\x90\x08\xfa\x46\x2e\x14\x4d\x74";
    /// The version of an application instance, a GUID.
    pub const APP_INSTANCE_VERSION: &[u8] =
        b"\xb9\x82\xd0\xb7\x3b\x56\x07\x4f\xa0\x7b\x52\x4a\x81\x16\xa0\x10";
    /// A shared virtual disk, a GUID.
    pub const SVHDX_OPEN_DEVICE: &[u8] =
        b"\x9c\xcb\xcf\x9e\x04\xc1\xe6\x43\x98\x0e\x15\x8d\xa1\xf6\xec\x83";
}
