//! The create contexts of opens that outlive their connection ([MS-SMB2] 2.2.13.2.3, .4, .11, .12,
//! .13, .15): adding them to a CREATE and reading them from its response.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_wire::create_context::{
    AppInstanceId, AppInstanceVersion, DurableHandleFlags, DurableHandleReconnect,
    DurableHandleReconnectV2, DurableHandleRequestV2, DurableHandleResponseV2, name,
};
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::Dialect;

use crate::{HoldfastServer, Options};

/// The CreateGuid of an open that a test loses and takes back.
pub const CREATE_GUID: Guid = Guid([0x44; 16]);
/// The client that has the open.
pub const CLIENT_GUID: Guid = Guid([0x55; 16]);
/// Another client.
pub const OTHER_CLIENT: Guid = Guid([0x56; 16]);
/// The key of the open's lease.
pub const KEY: LeaseKey = LeaseKey([0x33; 16]);

const PLAIN: DurableHandleFlags = DurableHandleFlags::empty();

/// Starts a server whose shares are continuously available. Cached state is restored regardless of
/// the time of the last write (`persistent_host.rs`).
#[must_use]
pub fn continuously_available() -> HoldfastServer {
    HoldfastServer::start(&Options {
        share: "continuous_availability = true".into(),
        ..Options::default()
    })
}

/// The options of the client that has the open.
pub fn options() -> smb_client::Options {
    smb_client::Options::dialect(Dialect::SMB_3_1_1).guid(CLIENT_GUID)
}

/// Opens the share as the client that has the open.
#[must_use]
pub fn modern(server: &HoldfastServer) -> Tree {
    server.tree_with(options())
}

/// Requests a durable open, version 1.
pub fn v1(args: CreateArgs) -> CreateArgs {
    args.context(name::DURABLE_HANDLE_REQUEST, &[0; 16])
}

/// Reconnects to a durable or resilient open, version 1.
pub fn v1_again(args: CreateArgs, file_id: FileId) -> CreateArgs {
    let mut data = BytesMut::new();
    DurableHandleReconnect { file_id }.encode(&mut data);
    args.context(name::DURABLE_HANDLE_RECONNECT, &data)
}

/// Requests a durable open, version 2.
pub fn v2(args: CreateArgs, create_guid: Guid, timeout_ms: u32) -> CreateArgs {
    request(args, create_guid, timeout_ms, PLAIN)
}

/// Requests a persistent open.
pub fn persistent(args: CreateArgs, create_guid: Guid, timeout_ms: u32) -> CreateArgs {
    request(
        args,
        create_guid,
        timeout_ms,
        DurableHandleFlags::PERSISTENT,
    )
}

fn request(
    args: CreateArgs,
    create_guid: Guid,
    timeout_ms: u32,
    flags: DurableHandleFlags,
) -> CreateArgs {
    args.durable_v2(DurableHandleRequestV2 {
        timeout_ms,
        flags,
        create_guid,
    })
}

/// Reconnects to a durable open, version 2.
pub fn v2_again(args: CreateArgs, file_id: FileId, create_guid: Guid) -> CreateArgs {
    reconnect(args, file_id, create_guid, PLAIN)
}

/// Reconnects to a persistent open.
pub fn persistent_again(args: CreateArgs, file_id: FileId, create_guid: Guid) -> CreateArgs {
    reconnect(args, file_id, create_guid, DurableHandleFlags::PERSISTENT)
}

fn reconnect(
    args: CreateArgs,
    file_id: FileId,
    create_guid: Guid,
    flags: DurableHandleFlags,
) -> CreateArgs {
    args.durable_v2_again(DurableHandleReconnectV2 {
        file_id,
        create_guid,
        flags,
    })
}

/// Adds the id of the application instance.
pub fn app_instance(args: CreateArgs, id: Guid) -> CreateArgs {
    let mut data = BytesMut::new();
    AppInstanceId(id).encode(&mut data);
    args.context(name::APP_INSTANCE_ID, &data)
}

/// Adds the version of the application instance.
pub fn app_version(args: CreateArgs, high: u64, low: u64) -> CreateArgs {
    let mut data = BytesMut::new();
    AppInstanceVersion { high, low }.encode(&mut data);
    args.context(name::APP_INSTANCE_VERSION, &data)
}

/// Returns whether the response grants a durable open, version 1.
///
/// # Panics
/// When the context has another length than 8 bytes.
#[must_use]
pub fn granted_v1(file: &File) -> bool {
    let context = file.created().context(name::DURABLE_HANDLE_REQUEST);
    context.is_some_and(|data| {
        assert_eq!(data.len(), 8, "DHnQ response");
        true
    })
}

/// Returns the context of version 2 in the response, if it grants a durable open.
///
/// # Panics
/// When the context is malformed.
#[must_use]
pub fn granted_v2(file: &File) -> Option<DurableHandleResponseV2> {
    let context = file.created().context(name::DURABLE_HANDLE_REQUEST_V2)?;
    Some(DurableHandleResponseV2::read(context).unwrap())
}
