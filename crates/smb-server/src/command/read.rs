//! READ returns data of a file or a pipe ([MS-SMB2] 3.3.5.12).

use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    msg::{Channel, Dialect, ReadFlags, ReadRequest},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, range_end};
use crate::{
    failure::Failure,
    link::outbound,
    state::{InFlight, OpenKind},
};

/// READs from this size on are sent from the page cache (docs/protocol-notes.md, "What a READ shows of a change made
/// meanwhile"). This saves a copy, but the kernel must be asked first, and answers are sent one by one.
const FROM_FILE_MIN: usize = 64 << 10;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = ReadRequest::read(&call.message)?;
    // [MS-SMB2] 3.3.5.12: the open and its rights are looked at before the length.
    let open = call.open(request.file_id)?;
    open.need_any(AccessMask::FILE_READ_DATA | AccessMask::FILE_EXECUTE)?;
    if request.length > call.io_max() || has_channel(call, request.channel) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    call.check_charge(0, size(request.length))?;
    if let OpenKind::Pipe(pipe) = &open.kind {
        // [MS-SMB2] 3.3.5.12.
        let unbuffered = request.flags.contains(ReadFlags::READ_UNBUFFERED);
        if unbuffered && call.connection.dialect() >= Dialect::SMB_3_0_2 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (status, data) = pipe.read(call, &open, size(request.length)).await?;
        return Ok(Reply::data(status, data));
    }
    let (count, reply) = file(call, &open, &request).await?;
    if count == 0 && request.length > 0 || size(request.minimum_count) > count {
        return Err(Status::END_OF_FILE.into());
    }
    // [MS-FSA] 2.1.5.3: a read of no bytes ends before the position moves.
    if count > 0 {
        open.state().position = request.offset + count as u64;
    }
    Ok(reply)
}

/// Whether the data of a READ or WRITE are to come by RDMA, which is not offered. The field has no meaning before 3.0
/// ([MS-SMB2] 2.2.19, 2.2.21).
pub(super) fn has_channel<V: Vfs>(call: &Call<V>, channel: Channel) -> bool {
    channel != Channel::NONE && call.connection.dialect() >= Dialect::SMB_3_0
}

/// The answer, and how many bytes are in it.
async fn file<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    request: &ReadRequest<'_>,
) -> Result<(usize, Reply), Failure> {
    let disk = open.file()?;
    let length = u64::from(request.length);
    range_end(request.offset, length)?;
    if disk.quick.ranges_in_use() {
        let files = &call.server().files;
        files.check_io(&disk.place, open.engine, request.offset, length, false)?;
    }
    let share = call.share()?;
    let length = size(request.length);
    // If the file changes before the socket has delivered the data, the client gets the changed data, so no other open
    // may write. A client that sends a WRITE before it has the answer to its READ does not know which of them comes
    // first. Nor must this thread wait for the disk, which it would do behind a request that waits for the disk.
    if length >= FROM_FILE_MIN
        && !disk.quick.others_write()
        && !disk.quick.is_busy()
        && call.may_send_from_file()
        && let Some(file) = share.vfs.in_memory(&disk.node, request.offset, length)
    {
        return Ok((length, Reply::from_file(file)));
    }
    let head = outbound::for_data(length);
    let _reading = disk.quick.read();
    let read = share.vfs.read(&disk.node, request.offset, length, head);
    let head = read.await?;
    let count = outbound::data_len(&head);
    Ok((count, Reply::read(outbound::fitted(head))))
}
