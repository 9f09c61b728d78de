//! FileAllocationInformation and FileEndOfFileInformation ([MS-FSA] 2.1.5.15.1, 2.1.5.15.5).
//! Neither examines byte-range locks (docs/protocol-notes.md, "Truncation and byte-range locks").

use durability::{Completion, PendingChange, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    fscc::{FileAllocationInformation, FileEndOfFileInformation},
    status::Status,
};
use vfs::Vfs;

use super::tell_size;
use crate::{
    command::{
        Call, engine, file_end,
        kept_times::{self, KeptTimes},
    },
    failure::Failure,
    file::Operation,
    state::{Disk, Open},
};

/// The allocation unit that NTFS cuts at.
const CLUSTER: u64 = 4096;

/// FileEndOfFileInformation.
pub(super) async fn end_of_file<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    buffer: &[u8],
) -> Result<Completion, Failure> {
    let info = parse!(FileEndOfFileInformation, buffer);
    let (disk, size) = check(open, info.end_of_file)?;
    if is_deleted_stream(call, open, &disk) {
        return Ok(Unchanged::because("the stream is to be deleted").into());
    }
    engine::data_operation(call, open, &disk, Operation::SetSize).await?;
    set_size(call, open, &disk, size).await
}

/// FileAllocationInformation: cuts at the cluster or reserves; a reservation below what is there
/// is given back only together with data.
pub(super) async fn allocation<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    buffer: &[u8],
) -> Result<Completion, Failure> {
    let info = parse!(FileAllocationInformation, buffer);
    let (disk, asked) = check(open, info.allocation_size)?;
    let rounded = asked
        .checked_next_multiple_of(CLUSTER)
        .ok_or(Status::INVALID_PARAMETER)?;
    let share = call.share()?;
    if is_deleted_stream(call, open, &disk) {
        return Ok(Unchanged::because("the stream is to be deleted").into());
    }
    engine::data_operation(call, open, &disk, Operation::SetSize).await?;
    let attr = share.vfs.attr(&disk.node).await?;
    if rounded < attr.size {
        return set_size(call, open, &disk, rounded).await;
    }
    share.gate.watch_write_back(&disk.node).await;
    // [MS-FSA] 2.1.5.15.1: a reservation moves the change time alone, also one of what is there.
    let times = kept_times::begin_unmodified(call, open, disk.quick).await?;
    let begun = share.gate.begin();
    if rounded != attr.allocated {
        // A smaller reservation may leave the blocks as they are; NTFS gives the space back.
        share.vfs.allocate(&disk.node, rounded).await?;
    }
    done(call, open, &disk, times, begun).await
}

async fn set_size<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    disk: &Disk<'_, V>,
    size: u64,
) -> Result<Completion, Failure> {
    let share = call.share()?;
    share.gate.watch_write_back(&disk.node).await;
    let times = kept_times::begin(call, open, disk.quick).await?;
    let begun = share.gate.begin();
    share.vfs.set_size(&disk.node, size).await?;
    done(call, open, disk, times, begun).await
}

fn check<V: Vfs>(open: &Open<V>, size: i64) -> Result<(Disk<'_, V>, u64), Failure> {
    open.need(AccessMask::FILE_WRITE_DATA)?;
    let disk = open.disk()?;
    if disk.directory {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let size = u64::try_from(size).map_err(|_| Status::INVALID_PARAMETER)?;
    Ok((disk, file_end(size)?))
}

/// A stream that is to go is not resized any more; the client hears success.
fn is_deleted_stream<V: Vfs>(call: &Call<V>, open: &Open<V>, disk: &Disk<'_, V>) -> bool {
    disk.place.stream.is_some()
        && call
            .server()
            .files
            .is_delete_pending(disk.place, open.engine)
}

async fn done<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    disk: &Disk<'_, V>,
    times: KeptTimes<'_>,
    begun: PendingChange<'_, V>,
) -> Result<Completion, Failure> {
    let kept = times.put_back(call, open).await;
    // A client that was granted caching meanwhile may hold the old bytes.
    engine::data_operation(call, open, disk, Operation::SetSize).await?;
    let receipt = begun.resized(&disk.node, open.flags()).await?;
    tell_size(call, open).await;
    kept?;
    Ok(receipt.into())
}
