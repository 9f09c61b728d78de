//! The control codes for pipes: FSCTL_PIPE_TRANSCEIVE, _PEEK and _WAIT ([MS-SMB2] 3.3.5.15.3, 3.3.5.15.4, 3.3.5.15.10).

use bytes::BytesMut;
use smb_wire::{
    codec::size,
    fsctl::{PipePeekResponse, PipeWaitRequest},
    msg::IoctlRequest,
    rpc::Interface,
    status::Status,
};
use vfs::Vfs;

use super::IoctlAnswer;
use crate::{
    command::Call,
    failure::Failure,
    pipe::Pipe,
    state::{InFlight, OpenKind},
};

fn pipe<V: Vfs>(open: &InFlight<V>) -> Result<&Pipe, Failure> {
    match &open.kind {
        OpenKind::Pipe(pipe) => Ok(pipe),
        OpenKind::Disk { .. } => Err(Status::NOT_SUPPORTED.into()),
    }
}

/// Writes the input and answers with the next message, or as much of it as fits.
pub(super) async fn transceive<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    let max = size(request.max_output_response);
    let (status, output) = pipe(open)?
        .transceive(call, open, request.input, max)
        .await?;
    Ok(IoctlAnswer {
        status,
        output,
        completion: durability::Unchanged::because("a pipe has no file").into(),
    })
}

/// Reports the data that wait to be read, without taking them.
pub(super) fn peek<V: Vfs>(
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<IoctlAnswer, Failure> {
    let max = size(request.max_output_response);
    let pipe = pipe(open)?;
    let room = match max.checked_sub(PipePeekResponse::MIN) {
        Some(room) => room,
        // [MS-SMB2] 3.3.5.15.4 allows zero.
        None if max == 0 => 0,
        None => return Err(Status::BUFFER_TOO_SMALL.into()),
    };
    let (more, response) = pipe.peek(room)?;
    let mut out = BytesMut::new();
    if max > 0 {
        response.encode(&mut out);
    }
    let mut answer = IoctlAnswer::of_query(out);
    if more {
        answer.status = Status::BUFFER_OVERFLOW;
    }
    Ok(answer)
}

/// Named pipes here accept any number of clients, so waiting for an existing pipe succeeds at once.
pub(super) fn wait<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
) -> Result<IoctlAnswer, Failure> {
    Status::INVALID_DEVICE_REQUEST.when(call.tree()?.share.is_some())?;
    // [MS-SMB2] 3.3.5.15.10: a malformed name gets the same status as one that no pipe has.
    let known = PipeWaitRequest::read(request.input)
        .ok()
        .and_then(|wait| Interface::of_pipe(&wait.name));
    match known {
        Some(_) => Ok(IoctlAnswer::of_query(BytesMut::new())),
        None => Err(Status::OBJECT_NAME_NOT_FOUND.into()),
    }
}
