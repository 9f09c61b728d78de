//! FSCTL_DUPLICATE_EXTENTS_TO_FILE(_EX) ([MS-FSA] 2.1.5.10.4): two files share extents on the disk.
//!
//! It counts as a write, as a copy does (`copy.rs`): byte-range locks of both files are checked, the caching of others
//! is broken before and after it, and the range is marked dirty before the reply. Where the file system cannot share
//! extents, the request fails.

use durability::{Completion, PendingContents, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    fsctl::{DuplicateExtents, DuplicateExtentsEx},
    msg::IoctlRequest,
    status::Status,
};
use vfs::{Vfs, VfsError, VfsResult};

use super::{
    IoctlAnswer,
    copy::{Ends, Span, ends, source},
    ranges::is_sparse,
};
use crate::{
    command::{Call, file_end, modified, range_end, unsigned},
    failure::Failure,
    file::Operation,
    state::InFlight,
};

/// FSCTL_DUPLICATE_EXTENTS_TO_FILE(_EX): the file system shares the extents or the request fails; the data are not
/// copied instead.
pub(super) async fn duplicate<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    target: &InFlight<V>,
    extended: bool,
) -> Result<IoctlAnswer, Failure> {
    let asked = if extended {
        let asked = DuplicateExtentsEx::read(request.input)?;
        // [MS-FSA] 2.1.5.10.5.
        Status::NOT_SUPPORTED.when(asked.structure_size != DuplicateExtentsEx::STRUCTURE_SIZE)?;
        asked.extents
    } else {
        DuplicateExtents::read(request.input)?
    };
    let id = asked.source_file_id;
    // [MS-SMB2] 3.3.5.15.17.
    let source = source(call, |known| known == id, id.volatile)?.ok_or(Status::INVALID_HANDLE)?;
    // [MS-FSA] 2.1.5.10.4: only an open of data is a source.
    source.file().map_err(|_| Status::INVALID_PARAMETER)?;
    let ends = ends(call, &source, target)?;
    let from = unsigned(asked.source_file_offset)?;
    let to = unsigned(asked.target_file_offset)?;
    let len = unsigned(asked.byte_count)?;
    let source_end = range_end(from, len)?;
    file_end(range_end(to, len)?)?;
    if len == 0 {
        return Ok(IoctlAnswer::done(Unchanged::because("an empty range")));
    }
    // [MS-FSA] 2.1.5.10.4 looks at the right to read first, then at the size of the source, then at its volume.
    Status::INVALID_PARAMETER.when(!source.granted.contains(AccessMask::FILE_READ_DATA))?;
    let read = ends.from_share.vfs.attr(&ends.from.node).await?;
    let volume = ends.from_share.vfs.fs_info(&ends.from.node).await?;
    let cluster = u64::from(volume.block);
    let len = if source_end > read.size {
        tail(from, source_end, read.size, cluster).ok_or(Status::NOT_SUPPORTED)?
    } else {
        len
    };
    Status::INVALID_PARAMETER.when(!ends.one_share())?;
    let written = ends.to.share.vfs.attr(&ends.to.disk.node).await?;
    let span = Span { from, to, len };
    // Any other file system shares no extents, whichever they are.
    if volume.clones
        && let Some(refusal) = refusal(span, (read.size, written.size), cluster)
    {
        return Err(refusal.into());
    }
    // [MS-FSA] 2.1.5.10.4: a file that is not sparse must not get holes from a sparse one.
    let only_source_sparse = is_sparse(&read) && !is_sparse(&written);
    Status::NOT_SUPPORTED.when(ends.overlap(span) || only_source_sparse || ends.is_doubtful())?;
    ends.check_locks(span)?;
    let change = ends.to.queued();
    ends.to.data_operation(Operation::Write).await?;
    let times = modified::begin(&ends.to).await?;
    // Others may have locked the range while this has waited.
    ends.check_locks(span)?;
    let (cloned, completion) = clone(&ends, change, span).await;
    // After any other error, something within the range may have changed.
    let changed = !matches!(cloned, Err(VfsError::NotSupported));
    ends.to.open.state().wrote |= changed;
    times.end(&ends.to, changed, Operation::Write).await?;
    match cloned {
        Ok(()) => Ok(IoctlAnswer::done(completion?)),
        // The file system cannot share extents: the control code is unknown to it.
        Err(VfsError::NotSupported) => Err(Status::INVALID_DEVICE_REQUEST.into()),
        Err(error) => Err(error.into()),
    }
}

/// The bytes from `from` to the end of a source of `size` bytes, if the range ends within its last cluster. By [MS-FSA]
/// 2.1.5.10.4 a range has whole clusters and lies within the source, so the end of most files could not be shared at
/// all; clients round the range up to a cluster there.
fn tail(from: u64, end: u64, size: u64, cluster: u64) -> Option<u64> {
    let whole = size.checked_next_multiple_of(cluster)?;
    (from < size && end <= whole).then(|| size - from)
}

/// [MS-FSA] 2.1.5.10.4: the status for a range that has not only whole clusters. It may end with its source, but Linux
/// shares that end at the end of the target alone. `source` and `target` are the sizes of both.
fn refusal(span: Span, (source, target): (u64, u64), cluster: u64) -> Option<Status> {
    let whole = |bytes: u64| bytes.is_multiple_of(cluster);
    let Span { from, to, len } = span;
    let ends_early = !whole(len) && from + len != source;
    if !whole(from) || !whole(to) || ends_early {
        return Some(Status::INVALID_PARAMETER);
    }
    (!whole(len) && to.saturating_add(len) < target).then_some(Status::NOT_SUPPORTED)
}

async fn clone<V: Vfs>(
    ends: &Ends<'_, V>,
    mut change: PendingContents<'_, V>,
    span: Span,
) -> (VfsResult<()>, VfsResult<Completion>) {
    let (share, target) = (ends.to.share, &ends.to.disk.node);
    let Span { from, to, len } = span;
    change.start();
    share.gate.watch_write_back(target).await;
    let (vfs, source) = (&share.vfs, &ends.from.node);
    let cloned = vfs.clone_range((source, from), (target, to), len).await;
    let range = span.target();
    match cloned {
        Ok(()) => change.rewrote(range),
        Err(VfsError::NotSupported) => {}
        Err(error) => change.failed(range, error),
    }
    (cloned, change.end(ends.to.open.flags()).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_whole_clusters_or_the_end_of_its_source() {
        let refused = |from, to, len, target| {
            let span = Span { from, to, len };
            refusal(span, (5000, target), 4096)
        };
        let invalid = Some(Status::INVALID_PARAMETER);
        assert_eq!(refused(0, 0, 4096, 9000), None);
        assert_eq!(refused(1, 0, 4096, 9000), invalid);
        assert_eq!(refused(0, 512, 4096, 9000), invalid);
        assert_eq!(refused(0, 0, 4095, 9000), invalid);
        assert_eq!(refused(0, 0, 5000, 5000), None);
        assert_eq!(refused(4096, 8192, 904, 9096), None);
        assert_eq!(refused(0, 0, 5000, 5001), Some(Status::NOT_SUPPORTED));
    }

    #[test]
    fn a_range_ends_within_the_last_cluster_of_its_source() {
        assert_eq!(tail(0, 8192, 5000, 4096), Some(5000));
        assert_eq!(tail(4096, 8192, 5000, 4096), Some(904));
        assert_eq!(tail(0, 5001, 5000, 4096), Some(5000));
        assert_eq!(tail(0, 8193, 5000, 4096), None);
        assert_eq!(tail(8192, 8193, 5000, 4096), None);
        assert_eq!(tail(5000, 8192, 5000, 4096), None);
        assert_eq!(tail(0, 8192, 4096, 4096), None);
        assert_eq!(tail(0, 1, 0, 4096), None);
        assert_eq!(tail(0, u64::MAX, u64::MAX - 1, 4096), None);
        assert_eq!(tail(0, 8192, 5000, 0), None);
    }
}
