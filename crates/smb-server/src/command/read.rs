//! READ ([MS-SMB2] 3.3.5.12).

use bytes::BytesMut;
use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    msg::{Channel, ReadRequest},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, range_end};
use crate::{
    failure::Failure,
    link::outbound,
    state::{InFlight, OpenKind},
};

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
    open.need_any(AccessMask::FILE_READ_DATA | AccessMask::FILE_EXECUTE)?;
    let head = file(call, &open, &request).await?;
    let count = outbound::data_len(&head);
    if count == 0 && request.length > 0 || size(request.minimum_count) > count {
        return Err(Status::END_OF_FILE.into());
    }
    open.state().position = request.offset + count as u64;
    Ok(Reply::read(outbound::fitted(head)))
}

/// The data of the answer, behind its header.
async fn file<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    request: &ReadRequest<'_>,
) -> Result<BytesMut, Failure> {
    let disk = open.file()?;
    let length = u64::from(request.length);
    range_end(request.offset, length)?;
    if disk.quick.ranges_in_use() {
        call.server()
            .files
            .check_io(disk.place, open.engine, request.offset, length, false)?;
    }
    let share = call.share()?;
    let length = size(request.length);
    let head = outbound::for_data(length);
    let read = share.vfs.read(&disk.node, request.offset, length, head);
    Ok(read.await?)
}
