//! Copies on the server's side: FSCTL_SRV_REQUEST_RESUME_KEY and FSCTL_SRV_COPYCHUNK(_WRITE) ([MS-SMB2] 3.3.5.15.5,
//! 3.3.5.15.6), and both ends of a copy, which `extents.rs` uses as well.
//!
//! A copy counts as a write: byte-range locks of both files are checked, the caching of others is broken before and
//! after it, and every range is marked dirty before the reply.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use durability::{Completion, PendingContents, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    fsctl::{
        CopyChunk, CopyChunkCopy, CopyChunkResponse, FsctlCode, MAX_CHUNK_BYTES, MAX_CHUNKS,
        MAX_COPY_BYTES, RequestResumeKeyResponse, ResumeKey,
    },
    ids::FileId,
    msg::IoctlRequest,
    status::Status,
};
use vfs::{Node, Range, Vfs, WriteMode};

use super::IoctlAnswer;
use crate::{
    command::{Call, engine::OnDisk, file_end, modified, range_end},
    failure::Failure,
    file::Operation,
    limits::COPY_MEMORY,
    state::{Disk, InFlight, OpenKind, Share},
};

/// STATUS_INVALID_VIEW_SIZE: the status of Windows and Samba for a chunk beyond the source's end.
const BEYOND_SOURCE: Status = Status(0xc000_001f);

/// The TargetOffset that stands for the end of the target ([MS-SMB2] 3.3.5.15.6, [MS-FSA] 2.1.5.4).
const AT_END: u64 = u64::MAX;

/// The key of an open: its FileId.
fn key_of(id: FileId) -> ResumeKey {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&id.persistent.to_le_bytes());
    key[8..16].copy_from_slice(&id.volatile.to_le_bytes());
    key
}

/// Names an open as the source of a copy.
pub(super) fn resume_key<V: Vfs>(
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    let key = RequestResumeKeyResponse {
        resume_key: key_of(open.file_id),
    };
    IoctlAnswer::structure(request, RequestResumeKeyResponse::MIN, |out| {
        key.encode(out)
    })
}

/// Finds an open of the same session, on any share that admits this request.
pub(super) fn source<V: Vfs>(
    call: &Call<V>,
    is_it: impl Fn(FileId) -> bool,
    volatile: u64,
) -> Result<Option<InFlight<V>>, Failure> {
    let found = call.session()?.tables().opens.get(&volatile).cloned();
    let found = found.filter(|open| is_it(open.file_id));
    if let Some(open) = &found {
        call.is_admitted_by(&open.tree)?;
    }
    Ok(found.and_then(InFlight::new))
}

fn by_key<V: Vfs>(call: &Call<V>, key: &ResumeKey) -> Result<InFlight<V>, Failure> {
    let volatile = key.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let volatile = volatile.map_or(0, u64::from_le_bytes);
    let found = source(call, |id| key_of(id) == *key, volatile)?;
    Ok(found.ok_or(Status::OBJECT_NAME_NOT_FOUND)?)
}

pub(super) struct Ends<'a, V: Vfs> {
    source: &'a InFlight<V>,
    pub(super) from: Disk<'a, V>,
    pub(super) from_share: &'a Arc<Share<V>>,
    pub(super) to: OnDisk<'a, V>,
}

/// Bytes to copy: their place in the source and in the target.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: u64,
}

impl Span {
    pub(super) fn target(self) -> Range {
        Range {
            offset: self.to,
            len: self.len,
        }
    }
}

pub(super) fn ends<'a, V: Vfs>(
    call: &'a Call<V>,
    source: &'a InFlight<V>,
    target: &'a InFlight<V>,
) -> Result<Ends<'a, V>, Failure> {
    let from = source.file()?;
    let to = OnDisk::file(call, target)?;
    let from_share = source.tree.share.as_ref();
    let from_share = from_share.ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let sealed = to.share.config.encryption_required || call.session()?.encrypt_data;
    // The source's share requires encryption, and a copy in this share could be read without it.
    Status::ACCESS_DENIED.when(from_share.config.encryption_required && !sealed)?;
    Ok(Ends {
        source,
        from,
        from_share,
        to,
    })
}

impl<V: Vfs> Ends<'_, V> {
    /// Whether both trees lead to one share, so that the kernel can copy.
    pub(super) fn one_share(&self) -> bool {
        Arc::ptr_eq(&self.from_share.vfs, &self.to.share.vfs)
    }

    async fn target_size(&self) -> Result<u64, Failure> {
        Ok(self.to.share.vfs.attr(&self.to.disk.node).await?.size)
    }

    /// Whether source and target are of one stream and overlap.
    pub(super) fn overlap(&self, Span { from, to, len }: Span) -> bool {
        let same = self.from.node.key() == self.to.disk.node.key()
            && self.from.node.stream() == self.to.disk.node.stream();
        same && from < to.saturating_add(len) && to < from.saturating_add(len)
    }

    /// Whether the source's blocks on the disk may differ from what is read of it; then they must not be shared.
    pub(super) fn is_doubtful(&self) -> bool {
        self.from_share.gate.is_poisoned(&self.from.node)
    }

    /// Checks the byte-range locks of others ([MS-SMB2] 3.3.5.15.6).
    pub(super) fn check_locks(&self, Span { from, to, len }: Span) -> Result<(), Status> {
        let files = &self.to.server.files;
        if self.from.quick.ranges_in_use() {
            files.check_io(&self.from.place, self.source.engine, from, len, false)?;
        }
        if self.to.disk.quick.ranges_in_use() {
            files.check_io(&self.to.disk.place, self.to.open.engine, to, len, true)?;
        }
        Ok(())
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    chunks: u32,
    /// Bytes of the chunk that was not done.
    partial: u64,
    total: u64,
}

impl Progress {
    fn encode(&self) -> Bytes {
        let count = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut out = BytesMut::new();
        CopyChunkResponse {
            chunks_written: self.chunks,
            chunk_bytes_written: count(self.partial),
            total_bytes_written: count(self.total),
        }
        .encode(&mut out);
        out.freeze()
    }
}

/// FSCTL_SRV_COPYCHUNK and _WRITE.
pub(super) async fn chunks<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    target: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    // [MS-SMB2] 3.3.5.15.6: the source is looked for before anything else is checked.
    let key: Option<&ResumeKey> = request.input.first_chunk();
    let source = key.map(|key| by_key(call, key)).transpose()?;
    Status::INVALID_PARAMETER.when(size(request.max_output_response) < CopyChunkResponse::MIN)?;
    let (Some(source), Ok(copy)) = (source, CopyChunkCopy::read(request.input)) else {
        return Ok(over_limits());
    };
    let pipe = |open: &InFlight<V>| matches!(open.kind, OpenKind::Pipe(_));
    if !within_limits(&copy) || pipe(&source) || pipe(target) {
        return Ok(over_limits());
    }
    check_access(FsctlCode(request.ctl_code), &source, target)?;
    let ends = ends(call, &source, target)?;
    let mut progress = Progress::default();
    let (status, completion) = match run(&ends, &copy.chunks, &mut progress).await {
        Ok(completion) => (Status::SUCCESS, completion),
        Err(Failure::Status(status)) => (status, Unchanged::because("a failed copy").into()),
        Err(other) => return Err(other),
    };
    // [MS-SMB2] 3.3.5.15.6.1: a failed copy reports how much was copied.
    Ok(IoctlAnswer {
        status,
        output: progress.encode(),
        completion,
    })
}

/// [MS-SMB2] 3.3.5.15.6.2.
fn over_limits() -> IoctlAnswer {
    let mut out = BytesMut::new();
    CopyChunkResponse::LIMITS.encode(&mut out);
    IoctlAnswer {
        status: Status::INVALID_PARAMETER,
        ..IoctlAnswer::of_query(out)
    }
}

fn within_limits(copy: &CopyChunkCopy) -> bool {
    let chunk = |chunk: &CopyChunk| {
        let length = u64::from(chunk.length);
        (1..=u64::from(MAX_CHUNK_BYTES)).contains(&length)
            && range_end(chunk.source_offset, length).is_ok()
            && (chunk.target_offset == AT_END || range_end(chunk.target_offset, length).is_ok())
    };
    let total: u64 = copy.chunks.iter().map(|c| u64::from(c.length)).sum();
    copy.chunk_count <= MAX_CHUNKS
        && total <= u64::from(MAX_COPY_BYTES)
        && copy.chunks.iter().all(chunk)
}

/// The ranges of a chunk if the target has `size` bytes when its turn comes.
fn span(chunk: &CopyChunk, size: u64) -> Span {
    Span {
        from: chunk.source_offset,
        to: match chunk.target_offset {
            AT_END => size,
            offset => offset,
        },
        len: u64::from(chunk.length),
    }
}

/// Checks the ranges of all chunks before any is copied.
async fn check_ranges<V: Vfs>(ends: &Ends<'_, V>, chunks: &[CopyChunk]) -> Result<(), Failure> {
    let mut size = 0;
    if chunks.iter().any(|chunk| chunk.target_offset == AT_END) {
        size = ends.target_size().await?;
    }
    for chunk in chunks {
        let span = span(chunk, size);
        size = size.max(file_end(range_end(span.to, span.len)?)?);
        ends.check_locks(span)?;
    }
    Ok(())
}

fn check_access<V: Vfs>(
    code: FsctlCode,
    source: &InFlight<V>,
    target: &InFlight<V>,
) -> Result<(), Failure> {
    let writes = AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA;
    let reads = AccessMask::FILE_READ_DATA;
    // A user who may execute a file may read it, as for READ itself (3.3.5.12).
    let reads_source = reads | AccessMask::FILE_EXECUTE;
    let reads_target = code == FsctlCode::SRV_COPYCHUNK;
    source.need_any(reads_source)?;
    target.need_any(writes)?;
    target.need(reads.when(reads_target))
}

/// Copies the chunks in order. They are one change with one barrier at its end, whether or not all of them succeed.
async fn run<V: Vfs>(
    ends: &Ends<'_, V>,
    chunks: &[CopyChunk],
    progress: &mut Progress,
) -> Result<Completion, Failure> {
    check_ranges(ends, chunks).await?;
    if chunks.is_empty() {
        return Ok(Unchanged::because("no chunks").into());
    }
    let mut change = ends.to.queued();
    ends.to.data_operation(Operation::Write).await?;
    let gate = &ends.to.share.gate;
    change.start();
    gate.watch_write_back(&ends.to.disk.node).await;
    let times = modified::begin(&ends.to).await?;
    let mut copied = Ok(());
    for chunk in chunks {
        let turn = &ends.to.call.connection.turn;
        turn.did(size(chunk.length));
        turn.wait().await;
        copied = copy_chunk(ends, chunk, progress, &mut change).await;
        if copied.is_err() {
            break;
        }
    }
    // A chunk that failed may have been written in part.
    let has_changed = change.has_changed();
    let completion = change.end(ends.to.open.flags()).await;
    ends.to.open.state().wrote |= has_changed;
    let ended = times.end(&ends.to, has_changed, Operation::Write).await;
    if completion.is_err() {
        // The bytes are there, but not known to be as stable as the policy promises.
        *progress = Progress::default();
    }
    ended.and(copied)?;
    Ok(completion?)
}

async fn copy_chunk<V: Vfs>(
    ends: &Ends<'_, V>,
    chunk: &CopyChunk,
    progress: &mut Progress,
    change: &mut PendingContents<'_, V>,
) -> Result<(), Failure> {
    let mut whole = span(chunk, 0);
    if chunk.target_offset == AT_END {
        // Others may have written to the target since the ranges were checked.
        whole = span(chunk, ends.target_size().await?);
        file_end(range_end(whole.to, whole.len)?)?;
    }
    // Others may have locked a range since then, while caching was given up or earlier chunks were copied.
    ends.check_locks(whole)?;
    let size = ends.from_share.vfs.attr(&ends.from.node).await?.size;
    if range_end(whole.from, whole.len)? > size {
        return Err(BEYOND_SOURCE.into());
    }
    let by_kernel = ends.one_share() && !ends.overlap(whole) && !ends.is_doubtful();
    let (done, outcome) = if by_kernel {
        by_the_kernel(ends, whole, change).await
    } else {
        copy_through_memory(ends, whole, change).await
    };
    progress.total += done;
    if done < whole.len {
        progress.partial = done;
        outcome?;
        // The source was truncated meanwhile.
        return Err(Status::END_OF_FILE.into());
    }
    progress.chunks += 1;
    outcome
}

/// The number of bytes copied, and the result.
type Outcome = (u64, Result<(), Failure>);

async fn by_the_kernel<V: Vfs>(
    ends: &Ends<'_, V>,
    span: Span,
    change: &mut PendingContents<'_, V>,
) -> Outcome {
    let (vfs, from, to) = (&ends.to.share.vfs, &ends.from.node, &ends.to.disk.node);
    match vfs.copy((from, span.from), (to, span.to), span.len).await {
        Ok(done) => {
            change.rewrote(Span { len: done, ..span }.target());
            (done, Ok(()))
        }
        Err(error) => {
            // An unknown part may have been written.
            change.failed(span.target(), error);
            (0, Err(error.into()))
        }
    }
}

/// Copies through our memory: between two shares, where source and target overlap, and from a poisoned source, because
/// a kernel that copies by sharing blocks would take those on the disk for its contents. If the target overlaps the
/// source from behind, it copies from the end, so that no byte is overwritten before it is read.
async fn copy_through_memory<V: Vfs>(
    ends: &Ends<'_, V>,
    span: Span,
    change: &mut PendingContents<'_, V>,
) -> Outcome {
    let backwards = ends.overlap(span) && span.to > span.from;
    let Span { from, to, len } = span;
    let most = COPY_MEMORY.min(size(ends.to.call.io_max())) as u64;
    let mut done = 0;
    while done < len {
        let piece = most.min(len - done);
        let at = if backwards { len - done - piece } else { done };
        let want = usize::try_from(piece).unwrap_or(0);
        let buffer = BytesMut::with_capacity(want);
        let (vfs, node) = (&ends.from_share.vfs, &ends.from.node);
        let data = match vfs.read(node, from + at, want, buffer).await {
            Ok(data) if data.len() == want => data.freeze(),
            // The source was truncated meanwhile; the incomplete piece is not written.
            Ok(_) => return (done, Ok(())),
            Err(error) => return (done, Err(error.into())),
        };
        let range = Range {
            offset: to + at,
            len: piece,
        };
        let vfs = &ends.to.share.vfs;
        let written = vfs.write(&ends.to.disk.node, range.offset, data, WriteMode::default());
        if let Err(error) = written.await {
            change.failed(range, error);
            return (done, Err(error.into()));
        }
        change.rewrote(range);
        done += piece;
    }
    (done, Ok(()))
}
