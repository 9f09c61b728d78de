//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19): waits until something changes below a directory.

use std::time::Duration;

use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    fscc::{FileAction, NotifyWriter},
    msg::{ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse},
    status::Status,
};
use tokio::sync::oneshot;
use vfs::Vfs;

use super::{Call, Failure, Handled, Reply};
use crate::{
    file::{Change, Outcome, WatchRequest, Watching},
    outside::Interest,
    race::race,
    state::{EndReason, InFlight},
};

/// How long the interim answer waits for the observing of a tree to be set up.
const OBSERVE_MAX: Duration = Duration::from_secs(1);

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
    let mut ready = None;
    if open.first_watch() {
        let interest = Interest::Changes {
            open: open.engine,
            tree: request.flags.contains(ChangeNotifyFlags::WATCH_TREE),
        };
        ready = server.observe(open.engine, &disk.node, interest);
    }
    let waited = call
        .park_after(Some(open), observed(call, ready), woken)
        .await;
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

/// What others do is observed from before the client hears that it waits; a tree too large to be
/// walked in time from soon after.
async fn observed<V: Vfs>(call: &Call<V>, ready: Option<oneshot::Receiver<()>>) {
    if let Some(ready) = ready {
        let late = call.server().env.sleep(OBSERVE_MAX);
        let _ = race(ready, late).await;
    }
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
