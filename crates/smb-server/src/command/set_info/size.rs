//! FileAllocationInformation and FileEndOfFileInformation change the size of a file ([MS-FSA] 2.1.5.15.1, 2.1.5.15.5).
//! Neither examines byte-range locks (docs/protocol-notes.md, "Truncation and byte-range locks").

use durability::{PendingChange, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    fscc::{FileAllocationInformation, FileEndOfFileInformation},
    status::Status,
};
use vfs::Vfs;

use super::{Changed, report_size};
use crate::{
    command::{
        engine::OnDisk,
        file_end,
        modified::{self, KeptTimes},
        unsigned,
    },
    failure::Failure,
    file::Operation,
};

/// The allocation unit that NTFS cuts at.
const CLUSTER: u64 = 4096;

/// FileEndOfFileInformation.
pub(super) async fn end_of_file<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::FILE_WRITE_DATA)?;
    let info = parse!(FileEndOfFileInformation, buffer);
    let size = check(on, info.end_of_file)?;
    if on.is_deleted_stream() {
        return Ok(Unchanged::because("the stream is to be deleted").into());
    }
    let _change = on.queued();
    on.data_operation(Operation::SetSize).await?;
    set_size(on, size).await
}

/// FileAllocationInformation: truncates at the cluster or reserves space. Space that is already
/// reserved is given back only when data are truncated (docs/protocol-notes.md, "The allocation of a file").
pub(super) async fn allocation<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::FILE_WRITE_DATA)?;
    let info = parse!(FileAllocationInformation, buffer);
    let asked = check(on, info.allocation_size)?;
    let rounded = asked
        .checked_next_multiple_of(CLUSTER)
        .ok_or(Status::INVALID_PARAMETER)?;
    if on.is_deleted_stream() {
        return Ok(Unchanged::because("the stream is to be deleted").into());
    }
    let _change = on.queued();
    on.data_operation(Operation::SetSize).await?;
    let attr = on.vfs().attr(&on.disk.node).await?;
    if rounded < attr.size {
        return set_size(on, rounded).await;
    }
    on.share.gate.watch_write_back(&on.disk.node).await;
    // [MS-FSA] 2.1.5.15.1: a reservation moves only the change time, even if the space is already
    // allocated.
    let times = modified::begin_unmodified(on).await?;
    let begun = on.share.gate.begin(&on.disk.node);
    if rounded != attr.allocated {
        // A smaller reservation may leave the blocks as they are, although NTFS gives the space
        // back.
        on.vfs().allocate(&on.disk.node, rounded).await?;
    }
    done(on, times, begun, None).await
}

async fn set_size<V: Vfs>(on: &OnDisk<'_, V>, size: u64) -> Changed {
    on.share.gate.watch_write_back(&on.disk.node).await;
    let times = modified::begin(on).await?;
    let begun = on.share.gate.begin(&on.disk.node);
    on.vfs().set_size(&on.disk.node, size).await?;
    done(on, times, begun, Some(size)).await
}

fn check<V: Vfs>(on: &OnDisk<'_, V>, size: i64) -> Result<u64, Failure> {
    Status::INVALID_PARAMETER.when(on.disk.directory)?;
    file_end(unsigned(size)?)
}

/// Ends a change of the end of file to `size`, or without one of the allocation.
async fn done<V: Vfs>(
    on: &OnDisk<'_, V>,
    times: KeptTimes<'_>,
    begun: PendingChange<'_, V>,
    size: Option<u64>,
) -> Changed {
    // Even if the wait for a break fails, the change is on disk and must be marked.
    let ended = times.end(on, true, Operation::SetSize).await;
    let (node, flags) = (&on.disk.node, on.open.flags());
    let receipt = begun.resized(node, size, flags).await;
    report_size(on);
    let receipt = receipt?;
    ended?;
    Ok(receipt.into())
}
