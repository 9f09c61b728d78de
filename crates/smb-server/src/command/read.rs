//! READ ([MS-SMB2] 3.3.5.12).

use bytes::{Bytes, BytesMut};
use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    msg::{Channel, ReadRequest},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Failure, Handled, Reply, range_end};
use crate::state::{InFlight, OpenKind};

/// Reads.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = ReadRequest::read(&call.message)?;
    if request.length > call.io_max() || request.channel != Channel::NONE {
        return Err(Status::INVALID_PARAMETER.into());
    }
    call.check_charge(0, size(request.length))?;
    let open = call.open(request.file_id)?;
    if let OpenKind::Pipe(pipe) = &open.kind {
        let (status, data) = pipe.read(call, &open, size(request.length)).await?;
        return Ok(Reply::data(status, data));
    }
    if !open
        .granted
        .intersects(AccessMask::FILE_READ_DATA | AccessMask::FILE_EXECUTE)
    {
        return Err(Status::ACCESS_DENIED.into());
    }
    let data = file(call, &open, &request).await?;
    if data.is_empty() && request.length > 0 || size(request.minimum_count) > data.len() {
        return Err(Status::END_OF_FILE.into());
    }
    open.state().position = request.offset + data.len() as u64;
    Ok(Reply::data(Status::SUCCESS, data))
}

async fn file<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    request: &ReadRequest<'_>,
) -> Result<Bytes, Failure> {
    let disk = open.file()?;
    let length = u64::from(request.length);
    range_end(request.offset, length)?;
    if disk.quick.ranges_in_use() {
        call.server()
            .files
            .check_io(disk.place, open.engine, request.offset, length, false)?;
    }
    let share = call.share()?;
    let buffer = BytesMut::with_capacity(size(request.length));
    let data = share
        .vfs
        .read(&disk.node, request.offset, size(request.length), buffer)
        .await?;
    Ok(data.freeze())
}
