//! FLUSH ([MS-SMB2] 3.3.5.11): its success reply leaves when the share's policy allows it.

use durability::{Earlier, FlushTarget, RequestFlags};
use smb_wire::{
    access_mask::AccessMask,
    msg::{FlushRequest, FlushResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, engine::OnDisk};
use crate::{failure::Failure, file::Operation, state::OpenKind};

/// Makes the file as stable as the share's policy says, also through a persistent open (docs/protocol-notes.md, "A
/// FLUSH of a persistent open").
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = FlushRequest::read(&call.message)?;
    let open = call.open(request.file_id)?;
    if let OpenKind::Pipe(pipe) = &open.kind {
        // A flush of a pipe completes when the reader, here a service, has taken everything that was written.
        let _order = pipe.in_order().await;
        pipe.check()?;
        return Ok(Reply::unchanged(&FlushResponse, "a pipe has no file"));
    }
    // The same two bits mean ADD_FILE and ADD_SUBDIRECTORY on a directory.
    open.need_any(AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA)?;
    let on = OnDisk::new(call, &open)?;
    let disk = &on.disk;
    // [MS-FSA] 2.1.5.7: this includes a file system that became read-only after the open, for instance because of an
    // error. There, fsync succeeds as soon as it has nothing to write.
    Status::MEDIA_WRITE_PROTECTED.when(on.vfs().is_read_only(&disk.node).await?)?;
    if !disk.directory && disk.quick.others_cache() {
        on.operation(Operation::Flush).await?;
    }
    // macOS expresses F_FULLFSYNC this way.
    let flags = RequestFlags {
        full_sync: request.reserved == FlushRequest::FULL_SYNC,
        ..open.flags()
    };
    let target = target(&on)?;
    // A lease holder may be flushing in response to a break that a pending WRITE is waiting for; waiting for that
    // WRITE here would deadlock.
    let earlier = if disk.quick.caches() {
        Earlier::Of(open.engine.0)
    } else {
        Earlier::All
    };
    let gate = &on.share.gate;
    let receipt = gate.flush_after(&disk.node, target, flags, earlier).await?;
    Ok(Reply::changed(&FlushResponse, receipt))
}

/// [MS-FSA] 2.1.5.7: a flush of a directory covers its own name, and a flush of the share's root covers the whole
/// share.
fn target<V: Vfs>(on: &OnDisk<'_, V>) -> Result<FlushTarget, Failure> {
    if !on.disk.directory {
        return Ok(FlushTarget::File);
    }
    if on.server.path_of(on.open)?.names().is_empty() {
        return Ok(FlushTarget::ShareRoot);
    }
    Ok(FlushTarget::Directory)
}
