//! WRITE ([MS-SMB2] 3.3.5.13): the answer waits until the promise of the share's durability policy
//! is kept.

use durability::{Completion, RequestFlags, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    msg::{Dialect, WriteFlags, WriteRequest, WriteResponse},
    status::Status,
};
use vfs::Vfs;

use super::{
    Call, Handled, Reply, engine::OnDisk, file_end, modified, range_end, read::has_channel,
};
use crate::{
    failure::Failure,
    file::Operation,
    state::{InFlight, Open, OpenKind},
};

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = WriteRequest::read(&call.message)?;
    // [MS-SMB2] 3.3.5.13: the open is looked up before the length is checked.
    let open = call.open(request.file_id)?;
    let count = u32::try_from(request.data.len()).unwrap_or(u32::MAX);
    Status::INVALID_PARAMETER.when(count > call.io_max() || has_channel(call, request.channel))?;
    call.check_charge(request.data.len(), 0)?;
    let response = WriteResponse { count };
    if let OpenKind::Pipe(pipe) = &open.kind {
        let durable = WriteFlags::WRITE_THROUGH | WriteFlags::WRITE_UNBUFFERED;
        Status::INVALID_PARAMETER.when(request.flags.intersects(durable))?;
        pipe.write(call, &open, request.data).await?;
        return Ok(Reply::unchanged(&response, "a pipe has no file"));
    }
    // As Windows does (docs/protocol-notes.md, "Rights for a WRITE").
    open.need_any(AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA)?;
    let receipt = file(call, &open, &request).await?;
    Ok(Reply::changed(&response, receipt))
}

async fn file<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    request: &WriteRequest<'_>,
) -> Result<Completion, Failure> {
    let on = OnDisk::file(call, open)?;
    let disk = &on.disk;
    let length = request.data.len() as u64;
    let end = range_end(request.offset, length)?;
    let flags = flags(call, open, request.flags);
    if length == 0 {
        // It succeeds before locks and oplocks are examined (docs/protocol-notes.md, "A WRITE of no bytes").
        return Ok(Unchanged::because("a write of no bytes").into());
    }
    file_end(end)?;
    let mut change = on.share.gate.contents(&disk.node);
    if on.may_wait() {
        // A FLUSH that comes while this waits covers it.
        change.queue(Some(open.engine.0));
    }
    // [MS-FSA] 2.1.5.4: caching is broken first. A lock may be granted while this waits, or waits for its turn.
    on.data_operation(Operation::Write).await?;
    let times = modified::begin(&on).await?;
    if disk.quick.ranges_in_use() {
        let files = &on.server.files;
        files.check_io(&disk.place, open.engine, request.offset, length, true)?;
    }
    let data = call.message.slice_ref(request.data);
    // On an error a part may have been written, or all without being as stable as the policy promises.
    let receipt = change.write(request.offset, data, flags).await;
    {
        let mut state = open.state();
        state.wrote = true;
        if receipt.is_ok() {
            state.position = end;
        }
    }
    let ended = times.end(&on, true, Operation::Write).await;
    let receipt = receipt?;
    ended?;
    Ok(receipt.into())
}

/// The durability that the request and its open ask for, as far as the dialect can express it.
fn flags<V: Vfs>(call: &Call<V>, open: &Open<V>, flags: WriteFlags) -> RequestFlags {
    let dialect = call.connection.dialect();
    let through = flags.contains(WriteFlags::WRITE_THROUGH) && dialect >= Dialect::SMB_2_1;
    let unbuffered = flags.contains(WriteFlags::WRITE_UNBUFFERED) && dialect >= Dialect::SMB_3_0_2;
    // [MS-SMB2] 3.3.5.13 refuses write-through on a buffered open; it is honoured here
    // (docs/protocol-notes.md, "Write-through on a buffered open").
    RequestFlags {
        write_through: through,
        unbuffered,
        ..open.flags()
    }
}
