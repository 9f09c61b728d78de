//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19): waits until something changes below a directory.

use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    fscc::{FileAction, NotifyWriter},
    msg::{ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Failure, Handled, Reply};
use crate::{
    file::{Change, Outcome, WatchRequest, Watching},
    state::{EndReason, InFlight},
};

/// Waits for changes.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = ChangeNotifyRequest::read(&call.message)?;
    if request.output_buffer_length > call.io_max() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    call.check_charge(0, size(request.output_buffer_length))?;
    let open = call.open(request.file_id)?;
    if !open.is_directory() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    // CVE-2020-14318: at every request, on the right of the handle.
    if !open.granted.contains(AccessMask::FILE_LIST_DIRECTORY) {
        return Err(Status::ACCESS_DENIED.into());
    }
    match watch(call, &open, &request).await? {
        Outcome::Changes(changes) => answer(&changes, size(request.output_buffer_length)),
        Outcome::Failed(status) => Err(status.into()),
        Outcome::Retry | Outcome::Locked => Err(Status::INTERNAL_ERROR.into()),
    }
}

async fn watch<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    request: &ChangeNotifyRequest,
) -> Result<Outcome, Failure> {
    let server = call.server();
    let disk = open.disk()?;
    let (waiter, woken) = server.waiter();
    let watching = server.files.watch(&WatchRequest {
        open: open.engine,
        place: disk.place.clone(),
        path: server.path_of(open)?,
        filter: request.completion_filter,
        tree: request.flags.contains(ChangeNotifyFlags::WATCH_TREE),
        buffer: size(request.output_buffer_length),
        waiter,
    });
    if let Watching::Done(outcome) = watching {
        server.forget_waiter(waiter);
        return Ok(outcome);
    }
    let waited = call.park(Some(open), woken).await;
    let reason = match waited {
        Ok(Ok(Ok(outcome))) => return Ok(outcome),
        Ok(Ok(Err(_))) => EndReason::Gone,
        Ok(Err(reason)) => reason,
        Err(failure) => {
            server.files.cancel_watch(open.engine, waiter);
            server.forget_waiter(waiter);
            return Err(failure);
        }
    };
    server.files.cancel_watch(open.engine, waiter);
    server.forget_waiter(waiter);
    Ok(Outcome::Failed(match reason {
        EndReason::Cancelled => Status::CANCELLED,
        EndReason::Closed | EndReason::Gone => Status::NOTIFY_CLEANUP,
    }))
}

fn answer(changes: &[Change], max: usize) -> Handled {
    let mut writer = NotifyWriter::new(max);
    let fits = changes
        .iter()
        .all(|change| writer.push(FileAction(change.action), &change.name));
    if !fits || changes.is_empty() {
        // Too much to tell, or asked without a buffer: the client lists the directory anew.
        return Err(Status::NOTIFY_ENUM_DIR.into());
    }
    let out = writer.finish();
    Ok(Reply::read_only(&ChangeNotifyResponse { buffer: &out }))
}
