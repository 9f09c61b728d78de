//! Marking for deletion: FileDispositionInformation and its Ex form ([MS-FSA] 2.1.5.15.3,
//! 2.1.5.15.4). The name is removed when the file is closed, so nothing here changes the disk.

use durability::Unchanged;
use smb_wire::{
    access_mask::AccessMask,
    fscc::{DispositionFlags, FileDispositionInformation, FileDispositionInformationEx},
    msg::CreateOptions,
    status::Status,
};
use vfs::{Vfs, VfsError};

use super::Changed;
use crate::{
    command::engine::OnDisk,
    failure::Failure,
    file::{Deleter, Operation},
    state::{breaks::perform, records},
};

/// Every flag of the Ex form.
const KNOWN: DispositionFlags = DispositionFlags(0x1f);

/// FileDispositionInformation.
pub(super) async fn set<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    let info = parse!(FileDispositionInformation, buffer);
    decide(on, DispositionFlags::DELETE.when(info.delete_pending)).await
}

/// FileDispositionInformationEx.
pub(super) async fn set_ex<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    let info = parse!(FileDispositionInformationEx, buffer);
    Status::NOT_SUPPORTED.when(!info.flags.without(KNOWN).is_empty())?;
    decide(on, info.flags).await
}

/// Marks the name for deletion or removes the mark.
async fn decide<V: Vfs>(on: &OnDisk<'_, V>, flags: DispositionFlags) -> Changed {
    on.open.need(AccessMask::DELETE)?;
    let delete = flags.contains(DispositionFlags::DELETE);
    let posix = flags.contains(DispositionFlags::POSIX_SEMANTICS);
    if flags.contains(DispositionFlags::ON_CLOSE) {
        Status::NOT_SUPPORTED.when(!on.open.options.contains(CreateOptions::DELETE_ON_CLOSE))?;
        if delete {
            check(on, flags).await?;
        }
        let files = &on.server.files;
        files.set_delete_on_close(&on.disk.place, on.open.engine, delete, posix)?;
        records::inode_changed(on.server, on.disk.place.key).await;
    } else if delete {
        mark(on, flags).await?;
    } else {
        clear(on).await?;
    }
    Ok(Unchanged::because("the name goes with the last close").into())
}

/// Checks whether what the handle has open may be deleted ([MS-FSA] 2.1.5.15.4). A close checks only again whether a
/// directory is empty.
async fn check<V: Vfs>(on: &OnDisk<'_, V>, flags: DispositionFlags) -> Result<(), Failure> {
    if on.disk.place.stream.is_none() && on.server.path_of(on.open)?.names().is_empty() {
        return Err(Status::ACCESS_DENIED.into());
    }
    let ignore = flags.contains(DispositionFlags::IGNORE_READONLY_ATTRIBUTE)
        && on.open.granted.contains(AccessMask::FILE_WRITE_ATTRIBUTES);
    Status::CANNOT_DELETE.when(!ignore && on.vfs().is_readonly(&on.disk.node).await?)?;
    if on.disk.directory {
        let who = &on.token()?.identity;
        Status::DIRECTORY_NOT_EMPTY.when(!on.vfs().is_empty(who, &on.disk.node).await?)?;
    }
    if on.disk.place.stream.is_none() {
        check_kernel(on).await?;
    }
    Ok(())
}

async fn mark<V: Vfs>(on: &OnDisk<'_, V>, flags: DispositionFlags) -> Result<(), Failure> {
    check(on, flags).await?;
    on.operation(Operation::Delete).await?;
    let posix = flags.contains(DispositionFlags::POSIX_SEMANTICS);
    let through = on.open.flags().open_write_through;
    let who = Deleter::new(&on.token()?.identity, on.open.parent_lease, through);
    let (files, place) = (&on.server.files, &on.disk.place);
    let effects = files.set_delete_pending(place, on.open.engine, posix, &who)?;
    records::inode_changed(on.server, on.disk.place.key).await;
    perform(on.server, effects);
    Ok(())
}

async fn clear<V: Vfs>(on: &OnDisk<'_, V>) -> Result<(), Failure> {
    let files = &on.server.files;
    files.clear_delete_pending(&on.disk.place, on.open.engine)?;
    records::inode_changed(on.server, on.disk.place.key).await;
    Ok(())
}

/// Checks whether the kernel would refuse to remove the name, because of a sticky or unwritable directory or an
/// attribute of the inode. The name is removed at a close, when a refusal can no longer be reported.
async fn check_kernel<V: Vfs>(on: &OnDisk<'_, V>) -> Result<(), Failure> {
    let (vfs, token) = (on.vfs(), on.token()?);
    let path = on.server.path_of(on.open)?;
    let names = path.to_names();
    let Some(name) = names.last() else {
        return Ok(());
    };
    let parent = match vfs.lookup_parent(&token.identity, &names).await {
        Ok(Some(parent)) => parent,
        // Somebody is moving the name: the removal will look for it at its new place.
        Ok(None) | Err(VfsError::NotFound | VfsError::PathNotFound) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let (who, node) = (&token.identity, &on.disk.node);
    Ok(vfs.may_remove(who, node, &parent, name).await?)
}
