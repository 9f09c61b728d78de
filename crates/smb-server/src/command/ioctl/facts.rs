//! Control codes that query or set small properties of a file or of its handle: compression, object id, previous
//! versions, the copy that is read, resiliency.

use std::time::Duration;

use durability::Unchanged;
use smb_wire::{
    fsctl::{
        CompressionFormat, FileObjectIdBuffer, LmrRequestResiliency, MarkHandleInfo, SnapshotArray,
    },
    ids::Guid,
    msg::{Dialect, IoctlRequest},
    status::Status,
};
use vfs::Vfs;

use super::IoctlAnswer;
use crate::{
    command::{Call, query_info::volume_id},
    failure::Failure,
    state::{Endurance, InFlight},
};

/// MaxResiliencyTimeout: the longest a client may ask for.
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// The timeout of a resilient open if the client leaves it to the server (note 401).
const TIMEOUT: Duration = Duration::from_secs(120);

/// FSCTL_GET_COMPRESSION ([MS-FSA] 2.1.5.10.9): no file is compressed as far as clients can see.
pub(super) fn compression(request: &IoctlRequest<'_>) -> Result<IoctlAnswer, Failure> {
    let none = CompressionFormat::NONE;
    IoctlAnswer::structure(request, CompressionFormat::MIN, |out| none.encode(out))
}

/// FSCTL_SET_COMPRESSION ([MS-FSA] 2.1.5.10.30): only "not compressed" is accepted, which every file
/// is.
pub(super) fn set_compression(request: &IoctlRequest<'_>) -> Result<IoctlAnswer, Failure> {
    let format = CompressionFormat::read(request.input)?;
    Status::INVALID_PARAMETER.when(!format.is_known())?;
    Status::NOT_SUPPORTED.when(format != CompressionFormat::NONE)?;
    Ok(IoctlAnswer::done(Unchanged::because(
        "nothing is compressed",
    )))
}

/// FSCTL_CREATE_OR_GET_OBJECT_ID and FSCTL_GET_OBJECT_ID ([MS-FSA] 2.1.5.10.1, 2.1.5.10.13): the id is made of the
/// inode's identity, so every file has one, it stays the same as long as the inode lives and need not be stored.
pub(super) async fn object_id<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    let vfs = &call.share()?.vfs;
    let attr = vfs.attr(&open.disk()?.node).await?;
    let (low, high) = (u128::from(attr.file_id), u128::from(attr.key.generation));
    let object_id = Guid((low | high << 64).to_le_bytes());
    let id = FileObjectIdBuffer {
        object_id,
        birth_volume_id: volume_id(&call.server().config().server_guid, vfs.volume_id()),
        birth_object_id: object_id,
        domain_id: Guid::default(),
    };
    IoctlAnswer::structure(request, FileObjectIdBuffer::MIN, |out| id.encode(out))
}

/// FSCTL_MARK_HANDLE ([MS-SMB2] 3.3.5.15.19): the status of a request, none of which is supported, because files have
/// one copy as far as this server can see ([MS-FSA] 2.1.5.10.19).
pub(super) fn mark_handle<V: Vfs>(call: &Call<V>, request: &IoctlRequest<'_>) -> Failure {
    let asked = match MarkHandleInfo::read(request.input) {
        Ok(info) => info.handle_info,
        Err(short) => return short.into(),
    };
    let known = [MarkHandleInfo::READ_COPY, MarkHandleInfo::NOT_READ_COPY].contains(&asked);
    let status = match known && call.connection.dialect() >= Dialect::SMB_3_1_1 {
        true => Status::INVALID_DEVICE_REQUEST,
        false => Status::NOT_SUPPORTED,
    };
    status.into()
}

/// FSCTL_SRV_ENUMERATE_SNAPSHOTS ([MS-SMB2] 3.3.5.15.1): there are none. The list has a terminator all the same, as
/// from Windows (note 383).
pub(super) fn snapshots(request: &IoctlRequest<'_>) -> Result<IoctlAnswer, Failure> {
    let none = SnapshotArray {
        snapshot_array_size: 2,
        ..SnapshotArray::default()
    };
    IoctlAnswer::structure(request, SnapshotArray::MIN, |out| none.encode(out))
}

/// FSCTL_LMR_REQUEST_RESILIENCY ([MS-SMB2] 3.3.5.15.9): the open is kept for its client over the loss of its
/// connection, whatever it caches. It is not durable any more.
pub(super) fn resiliency<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    Status::INVALID_DEVICE_REQUEST.when(call.connection.dialect() < Dialect::SMB_2_1)?;
    let asked = LmrRequestResiliency::read(request.input)?;
    let timeout = match Duration::from_millis(asked.timeout_ms.into()) {
        Duration::ZERO => TIMEOUT,
        // Both are compared in seconds.
        timeout if timeout.as_secs() > TIMEOUT_MAX.as_secs() => {
            return Err(Status::INVALID_PARAMETER.into());
        }
        timeout => timeout,
    };
    let mut state = open.state();
    // A persistent open stays persistent, because it outlives more than a resilient one.
    if !state.endurance.is_persistent() {
        state.endurance = Endurance::Resilient { timeout };
    }
    drop(state);
    call.server().durables.endures(open);
    Ok(IoctlAnswer::done(Unchanged::because(
        "only the open changed",
    )))
}
