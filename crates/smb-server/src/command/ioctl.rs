//! IOCTL ([MS-SMB2] 3.3.5.15): the checks that apply to every control code, and the way to its
//! handler.
//!
//! Every code that is answered has a row in `table.rs` with the kind of object that it works on and
//! the access that its handle must have; both are checked here, before any handler runs
//! (CVE-2026-1933 was a control code whose access was not checked). The rows are served by
//! `connection.rs`, `copy.rs`, `extents.rs`, `facts.rs`, `pipes.rs` and `ranges.rs`.

mod connection;
mod copy;
mod extents;
mod facts;
mod pipes;
mod ranges;
mod table;

use bytes::{Bytes, BytesMut};
use durability::{Completion, Unchanged};
use smb_wire::{
    codec::size,
    fsctl::FsctlCode,
    ids::FileId,
    msg::{IoctlFlags, IoctlRequest, IoctlResponse},
    status::Status,
};
use vfs::Vfs;

use self::table::{Alone, Does, Kind, Row};
use super::{Call, Handled, Reply, engine::OnDisk};
use crate::{
    failure::Failure,
    state::{InFlight, OpenKind},
};

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = IoctlRequest::read(&call.message)?;
    Status::NOT_SUPPORTED.when(request.flags != IoctlFlags::IS_FSCTL)?;
    let row = table::row_of(FsctlCode(request.ctl_code));
    if let Does::Alone(alone) = row.does {
        Status::INVALID_PARAMETER.when(request.file_id != FileId::ANY)?;
        check_sizes(call, &request)?;
        let answer = without_handle(call, &request, alone)?;
        return Ok(reply(&request, FileId::ANY, answer));
    }
    let open = call.open(request.file_id)?;
    check_sizes(call, &request)?;
    check_kind(&open, row)?;
    if !row.access.is_empty() {
        open.need_any(row.access)?;
    }
    let answer = with_handle(call, &request, row, &open).await?;
    Ok(reply(&request, open.file_id, answer))
}

/// Sizes against the connection's limit and the credits paid ([MS-SMB2] 3.3.5.15, 3.3.5.2.5).
fn check_sizes<V: Vfs>(call: &Call<V>, request: &IoctlRequest<'_>) -> Result<(), Failure> {
    let max = size(call.io_max());
    let (into, out) = (
        size(request.max_input_response),
        size(request.max_output_response),
    );
    Status::INVALID_PARAMETER.when(request.input.len() > max || into > max || out > max)?;
    let sent = request
        .input
        .len()
        .saturating_add(size(request.output_count));
    call.check_charge(sent, into.saturating_add(out))
}

fn check_kind<V: Vfs>(open: &InFlight<V>, row: &Row) -> Result<(), Failure> {
    let kind = match &open.kind {
        OpenKind::Pipe(_) => Kind::Pipe,
        OpenKind::Disk {
            directory: true, ..
        } => Kind::Directory,
        OpenKind::Disk { .. } => Kind::Stream,
    };
    match row.does.refusal(kind) {
        Some(status) => Err(status.into()),
        None => Ok(()),
    }
}

struct IoctlAnswer {
    status: Status,
    output: Bytes,
    completion: Completion,
}

impl IoctlAnswer {
    /// Success that changed nothing.
    fn of_query(output: BytesMut) -> Self {
        Self {
            status: Status::SUCCESS,
            output: output.freeze(),
            completion: Unchanged::because("a query").into(),
        }
    }

    /// As [`Self::of_query`], for a structure of at least `min` bytes.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` where the client has no room for it.
    fn structure(
        request: &IoctlRequest<'_>,
        min: usize,
        encode: impl FnOnce(&mut BytesMut),
    ) -> Result<Self, Failure> {
        Status::INVALID_PARAMETER.when(size(request.max_output_response) < min)?;
        let mut output = BytesMut::new();
        encode(&mut output);
        Ok(Self::of_query(output))
    }

    /// Success of a change, with no output.
    fn done(completion: impl Into<Completion>) -> Self {
        Self {
            status: Status::SUCCESS,
            output: Bytes::new(),
            completion: completion.into(),
        }
    }
}

fn reply(request: &IoctlRequest<'_>, file_id: FileId, answer: IoctlAnswer) -> Reply {
    let response = IoctlResponse {
        ctl_code: request.ctl_code,
        file_id,
        input: &[],
        output: &answer.output,
        flags: 0,
    };
    Reply::changed_with(answer.status, &response, answer.completion)
}

fn without_handle<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    alone: Alone,
) -> Result<IoctlAnswer, Failure> {
    match alone {
        Alone::ValidateNegotiate => connection::validate(call, request),
        Alone::WaitForPipe => pipes::wait(call, request),
        Alone::NetworkInterfaces => connection::interfaces(call, request),
        Alone::Refuse(status) => Err(status.into()),
    }
}

async fn with_handle<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    row: &Row,
    open: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    match row.does {
        Does::Transceive => pipes::transceive(call, request, open).await,
        Does::Peek => pipes::peek(request, open),
        Does::ResumeKey => copy::resume_key(request, open),
        Does::CopyChunk => copy::chunks(call, request, open).await,
        Does::DuplicateExtents { extended } => {
            extents::duplicate(call, request, open, extended).await
        }
        Does::SetSparse => ranges::set_sparse(&OnDisk::file(call, open)?, request).await,
        Does::ZeroData => ranges::zero(&OnDisk::file(call, open)?, request).await,
        Does::AllocatedRanges => ranges::allocated(&OnDisk::file(call, open)?, request).await,
        Does::GetCompression => facts::compression(request),
        Does::SetCompression => facts::set_compression(request),
        Does::ObjectId => facts::object_id(call, request, open).await,
        Does::Snapshots => facts::snapshots(request),
        Does::Resiliency => facts::resiliency(call, request, open),
        Does::MarkHandle => Err(facts::mark_handle(call, request)),
        Does::Refuse(status) => Err(status.into()),
        Does::Alone(_) => Err(Status::INTERNAL_ERROR.into()),
    }
}
