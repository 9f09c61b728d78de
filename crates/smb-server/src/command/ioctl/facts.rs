//! Control codes that query or set small properties of a file: compression, object id, previous
//! versions, the copy that is read.

use bytes::BytesMut;
use smb_wire::{
    codec::size,
    fsctl::{CompressionFormat, FileObjectIdBuffer, MarkHandleInfo, SnapshotArray},
    ids::Guid,
    msg::{Dialect, IoctlRequest},
    status::Status,
};
use vfs::Vfs;

use super::Answer;
use crate::{
    command::{Call, query_info::volume_id},
    failure::Failure,
    state::InFlight,
};

/// FSCTL_GET_COMPRESSION ([MS-FSA] 2.1.5.10.9): no file is compressed as far as clients can see.
pub(super) fn compression<V: Vfs>(
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<Answer, Failure> {
    open.disk()?;
    Status::INVALID_PARAMETER.when(size(request.max_output_response) < CompressionFormat::MIN)?;
    let mut out = BytesMut::new();
    CompressionFormat::NONE.encode(&mut out);
    Ok(Answer::of_query(out))
}

/// FSCTL_SET_COMPRESSION ([MS-FSA] 2.1.5.10.30): only "not compressed" is accepted, which every file
/// is.
pub(super) fn set_compression<V: Vfs>(
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<Answer, Failure> {
    open.disk()?;
    let format = CompressionFormat::read(request.input)?;
    Status::INVALID_PARAMETER.when(!format.is_known())?;
    Status::NOT_SUPPORTED.when(format != CompressionFormat::NONE)?;
    Ok(Answer::done(durability::Unchanged::because(
        "nothing is compressed",
    )))
}

/// FSCTL_CREATE_OR_GET_OBJECT_ID and FSCTL_GET_OBJECT_ID ([MS-FSA] 2.1.5.10.1, 2.1.5.10.13): the id is made of the
/// inode's identity, so every file has one, it stays the same as long as the inode lives and need not be stored.
pub(super) async fn object_id<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<Answer, Failure> {
    Status::INVALID_PARAMETER.when(size(request.max_output_response) < FileObjectIdBuffer::MIN)?;
    let vfs = &call.share()?.vfs;
    let attr = vfs.attr(&open.disk()?.node).await?;
    let (low, high) = (u128::from(attr.file_id), u128::from(attr.key.generation));
    let object_id = Guid((low | high << 64).to_le_bytes());
    let mut out = BytesMut::new();
    FileObjectIdBuffer {
        object_id,
        birth_volume_id: volume_id(&call.server().config().server_guid, vfs.volume_id()),
        birth_object_id: object_id,
        domain_id: Guid::default(),
    }
    .encode(&mut out);
    Ok(Answer::of_query(out))
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
pub(super) fn snapshots<V: Vfs>(
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<Answer, Failure> {
    open.disk()?;
    Status::INVALID_PARAMETER.when(size(request.max_output_response) < SnapshotArray::MIN)?;
    let mut out = BytesMut::new();
    let none = SnapshotArray {
        snapshot_array_size: 2,
        ..SnapshotArray::default()
    };
    none.encode(&mut out);
    Ok(Answer::of_query(out))
}
