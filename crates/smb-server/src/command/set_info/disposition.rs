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
    file::{Deleter, Effects, Operation},
    state::{breaks::perform, records},
};

/// Every flag of the Ex form.
const KNOWN: DispositionFlags = DispositionFlags(0x1f);

/// FileDispositionInformation.
pub(super) async fn set<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::DELETE)?;
    let info = parse!(FileDispositionInformation, buffer);
    decide(on, DispositionFlags::DELETE.when(info.delete_pending)).await
}

/// FileDispositionInformationEx.
pub(super) async fn set_ex<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    let info = parse!(FileDispositionInformationEx, buffer);
    Status::NOT_SUPPORTED.when(!info.flags.without(KNOWN).is_empty())?;
    on.open.need(AccessMask::DELETE)?;
    decide(on, info.flags).await
}

/// Marks the name for deletion or removes the mark.
async fn decide<V: Vfs>(on: &OnDisk<'_, V>, flags: DispositionFlags) -> Changed {
    let delete = flags.contains(DispositionFlags::DELETE);
    let posix = flags.contains(DispositionFlags::POSIX_SEMANTICS);
    let (files, place, open) = (&on.server.files, &on.disk.place, on.open.engine);
    let on_close = flags.contains(DispositionFlags::ON_CLOSE);
    let opened_so = on.open.options.contains(CreateOptions::DELETE_ON_CLOSE);
    Status::NOT_SUPPORTED.when(on_close && !opened_so)?;
    if delete {
        check(on, flags).await?;
    }
    let mut effects = Effects::default();
    if on_close {
        files.set_delete_on_close(place, open, delete, posix)?;
    } else if delete {
        on.operation(Operation::Delete).await?;
        let through = on.open.flags().open_write_through;
        let who = Deleter::new(&on.token()?.identity, on.open.parent_lease, through);
        effects = files.set_delete_pending(place, open, posix, &who)?;
    } else {
        files.clear_delete_pending(place, open)?;
    }
    records::inode_changed(on.server, place.key).await;
    perform(on.server, effects);
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
