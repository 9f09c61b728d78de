//! The control codes for sparse files: FSCTL_SET_SPARSE, _SET_ZERO_DATA, _QUERY_ALLOCATED_RANGES
//! ([MS-FSA] 2.1.5.10.22, 2.1.5.10.38, 2.1.5.10.39).

use bytes::BytesMut;
use durability::{Meta, Unchanged};
use smb_wire::{
    codec::size,
    file_attributes::FileAttributes,
    fsctl::{AllocatedRange, SetSparse, SetZeroData, encode_allocated_ranges},
    msg::{IoctlRequest, NotifyFilter},
    status::Status,
};
use vfs::{Attr, Range, SetAttr, Vfs};

use super::IoctlAnswer;
use crate::{
    command::{
        engine::OnDisk,
        modified::{self, KeptChange},
        range_end,
        set_info::report_change,
        unsigned,
    },
    failure::Failure,
    file::Operation,
    turn::ENTRY_WORK,
};

/// Most ranges that the file system is asked for at once.
const RANGES_AT_ONCE_MAX: usize = 512;

pub(super) fn is_sparse(attr: &Attr) -> bool {
    FileAttributes(attr.dos_attributes).contains(FileAttributes::SPARSE_FILE)
}

/// Makes a file sparse, or no longer so. [MS-FSA] 2.1.5.10.38 allocates the holes of a file that is
/// no longer sparse. Linux has holes in any file (also where the end of file was moved, which NTFS
/// allocates too), so here they stay and count as allocated in an answer to FSCTL_QUERY_ALLOCATED_RANGES: setting a
/// flag must not fill the disk.
pub(super) async fn set_sparse<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &IoctlRequest<'_>,
) -> Result<IoctlAnswer, Failure> {
    let wanted = SetSparse::read(request.input).set_sparse;
    let (vfs, node) = (on.vfs(), &on.disk.node);
    let attr = vfs.attr(node).await?;
    // A flag that is set already is set again: another request may just have set it without its being stable yet, or
    // a failed sync may have lost it.
    let set = SetAttr {
        sparse: Some(wanted),
        ..SetAttr::default()
    };
    let token = on.token()?;
    let turn = modified::turn(on.disk.quick).await;
    let kept = KeptChange::begin(on, turn).await;
    let begun = on.share.gate.begin(node);
    vfs.set_attr(&token.identity, node, &set).await?;
    let shown = kept.show(on).await;
    if is_sparse(&attr) != wanted {
        report_change(on, NotifyFilter::ATTRIBUTES);
    }
    let marked = begun.metadata_changed(node, Meta::Attributes, on.open.flags());
    let receipt = marked.await?;
    shown?;
    Ok(IoctlAnswer::done(receipt))
}

/// Zeroes a range within the end of file.
pub(super) async fn zero<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &IoctlRequest<'_>,
) -> Result<IoctlAnswer, Failure> {
    let input = SetZeroData::read(request.input)?;
    let (from, to) = (
        unsigned(input.file_offset)?,
        unsigned(input.beyond_final_zero)?,
    );
    Status::INVALID_PARAMETER.when(to < from)?;
    Status::FILE_DELETED.when(on.is_deleted_stream())?;
    if to == from {
        return Ok(IoctlAnswer::done(Unchanged::because("an empty range")));
    }
    let mut change = on.queued();
    // [MS-FSA] 2.1.5.10.39: the end of file does not move, and beyond it no lock is met and no caching broken.
    let within = async || Ok::<_, Failure>(on.vfs().attr(&on.disk.node).await?.size.min(to));
    let mut end = within().await?;
    if end > from {
        on.data_operation(Operation::ZeroData).await?;
        // Beyond the former end no caching was broken.
        end = end.min(within().await?);
    }
    let flags = on.open.flags();
    if end <= from {
        // Another request that is still under way may have moved the end of file: a client that writes through is
        // promised zeros all the same.
        change.start();
        change.touched(Range {
            offset: from,
            len: 0,
        });
        return Ok(IoctlAnswer::done(change.end(flags).await?));
    }
    let range = Range {
        offset: from,
        len: end - from,
    };
    on.share.gate.watch_write_back(&on.disk.node).await;
    let times = modified::begin(on).await?;
    // A lock may have been granted while this has waited.
    if on.disk.quick.ranges_in_use() {
        let files = &on.server.files;
        files.check_io(&on.disk.place, on.open.engine, from, range.len, true)?;
    }
    change.start();
    let zeroed = on.vfs().zero(&on.disk.node, range).await;
    // The range does not count as rewritten, because a part that is a hole already is left as it is, even if a failed
    // sync lost the change that made the hole. On an error a part may have been zeroed.
    match zeroed {
        Ok(()) => change.touched(range),
        Err(error) => change.failed(range, error),
    }
    let receipt = change.end(flags).await;
    on.open.state().wrote = true;
    times.end(on, true, Operation::ZeroData).await?;
    zeroed?;
    Ok(IoctlAnswer::done(receipt?))
}

/// Lists the ranges in which a file holds data.
pub(super) async fn allocated<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &IoctlRequest<'_>,
) -> Result<IoctlAnswer, Failure> {
    let asked = AllocatedRange::read(request.input)?;
    let offset = unsigned(asked.file_offset)?;
    let end = range_end(offset, unsigned(asked.length)?)?;
    let attr = on.vfs().attr(&on.disk.node).await?;
    // docs/protocol-notes.md, "Allocated ranges of a file that is not sparse".
    let end = end.min(attr.size);
    let within = Range {
        offset,
        len: end.saturating_sub(offset),
    };
    let max = size(request.max_output_response);
    let (out, cut) = list(on, within, is_sparse(&attr), max).await?;
    Status::BUFFER_TOO_SMALL.when(cut && max < AllocatedRange::MIN)?;
    let mut answer = IoctlAnswer::of_query(out);
    if cut {
        answer.status = Status::BUFFER_OVERFLOW;
    }
    Ok(answer)
}

/// The ranges of `within` that hold data, as many as fit into `max` bytes, and whether there are more. A file may have
/// very many, so they are read and encoded in parts.
async fn list<V: Vfs>(
    on: &OnDisk<'_, V>,
    within: Range,
    sparse: bool,
    max: usize,
) -> Result<(BytesMut, bool), Failure> {
    let mut out = BytesMut::new();
    let end = within.offset.saturating_add(within.len);
    let mut at = within.offset;
    while at < end {
        let rest = Range {
            offset: at,
            len: end - at,
        };
        let room = max.saturating_sub(out.len());
        // One more than fits shows that there are more.
        let most = (room / AllocatedRange::MIN + 1).min(RANGES_AT_ONCE_MAX);
        let found = match sparse {
            true => on.vfs().allocated(&on.disk.node, rest, most).await?,
            false => vec![rest],
        };
        let ranges: Vec<_> = found.iter().map(|range| on_wire(*range)).collect();
        let fitted = encode_allocated_ranges(&ranges, room, &mut out);
        if fitted < ranges.len() {
            return Ok((out, true));
        }
        let Some(last) = found.last().filter(|_| found.len() == most) else {
            break;
        };
        at = last.offset.saturating_add(last.len);
        on.call.worked(ENTRY_WORK * most).await?;
    }
    Ok((out, false))
}

fn on_wire(range: Range) -> AllocatedRange {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    AllocatedRange {
        file_offset: number(range.offset),
        length: number(range.len),
    }
}
