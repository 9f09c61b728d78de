//! Marking for deletion: FileDispositionInformation and its Ex form ([MS-FSA] 2.1.5.15.3,
//! 2.1.5.15.4). The name is removed when the file is closed, so nothing here changes the disk.

use durability::{Completion, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    fscc::{DispositionFlags, FileDispositionInformation, FileDispositionInformationEx},
    msg::CreateOptions,
    status::Status,
};
use vfs::{Vfs, VfsError};

use crate::{
    command::{Call, engine},
    failure::Failure,
    file::{Deleter, Operation},
    state::{Open, breaks::perform, records},
};

/// Every flag of the Ex form.
const KNOWN: DispositionFlags = DispositionFlags(0x1f);

/// FileDispositionInformation.
pub(super) async fn set<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    buffer: &[u8],
) -> Result<Completion, Failure> {
    let info = parse!(FileDispositionInformation, buffer);
    open.need(AccessMask::DELETE)?;
    if info.delete_pending {
        mark(call, open, DispositionFlags::empty()).await?;
    } else {
        clear(call, open).await?;
    }
    Ok(Unchanged::because("the name goes with the last close").into())
}

/// FileDispositionInformationEx.
pub(super) async fn set_ex<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    buffer: &[u8],
) -> Result<Completion, Failure> {
    let info = parse!(FileDispositionInformationEx, buffer);
    let flags = info.flags;
    if !flags.without(KNOWN).is_empty() {
        return Err(Status::NOT_SUPPORTED.into());
    }
    open.need(AccessMask::DELETE)?;
    let delete = flags.contains(DispositionFlags::DELETE);
    if flags.contains(DispositionFlags::ON_CLOSE) {
        if !open.options.contains(CreateOptions::DELETE_ON_CLOSE) {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let disk = open.disk()?;
        let files = &call.server().files;
        files.set_delete_on_close(disk.place, open.engine, delete)?;
        records::inode_changed(call.server(), disk.place.key).await;
    } else if delete {
        mark(call, open, flags).await?;
    } else {
        clear(call, open).await?;
    }
    Ok(Unchanged::because("the name goes with the last close").into())
}

async fn mark<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    flags: DispositionFlags,
) -> Result<(), Failure> {
    let server = call.server();
    let disk = open.disk()?;
    if disk.place.stream.is_none() && server.path_of(open)?.names().is_empty() {
        return Err(Status::ACCESS_DENIED.into());
    }
    let ignore = flags.contains(DispositionFlags::IGNORE_READONLY_ATTRIBUTE)
        && open.granted.contains(AccessMask::FILE_WRITE_ATTRIBUTES);
    if !ignore && call.share()?.vfs.is_readonly(&disk.node).await? {
        return Err(Status::CANNOT_DELETE.into());
    }
    if disk.directory {
        check_empty(call, &disk.node).await?;
    }
    if disk.place.stream.is_none() {
        check_kernel(call, open).await?;
    }
    engine::operation(call, open, Operation::Delete).await?;
    let posix = flags.contains(DispositionFlags::POSIX_SEMANTICS);
    let who = Deleter::new(&call.token()?.identity, open.parent_lease);
    let effects = server
        .files
        .set_delete_pending(disk.place, open.engine, posix, &who)?;
    records::inode_changed(server, disk.place.key).await;
    perform(server, effects);
    Ok(())
}

async fn clear<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<(), Failure> {
    let disk = open.disk()?;
    call.server()
        .files
        .clear_delete_pending(disk.place, open.engine)?;
    records::inode_changed(call.server(), disk.place.key).await;
    Ok(())
}

/// The name is removed at a close, when a refusal of the kernel can no longer be reported: in a sticky or
/// unwritable directory, or by an attribute of the inode. So it is checked here.
async fn check_kernel<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<(), Failure> {
    let (vfs, token) = (&call.share()?.vfs, call.token()?);
    let path = call.server().path_of(open)?;
    let names = path.to_names();
    let Some(name) = names.last() else {
        return Ok(());
    };
    let parent = match vfs.lookup_parent(&token.identity, &names).await {
        Ok(Some(parent)) => parent,
        // Somebody is moving it: the removal looks for it where it is then.
        Ok(None) | Err(VfsError::NotFound | VfsError::PathNotFound) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let (who, node) = (&token.identity, &open.disk()?.node);
    Ok(vfs.may_remove(who, node, &parent, name).await?)
}

async fn check_empty<V: Vfs>(call: &Call<V>, directory: &V::Node) -> Result<(), Failure> {
    let token = call.token()?;
    match call.share()?.vfs.list(&token.identity, directory, 1).await {
        Ok(names) if names.is_empty() => Ok(()),
        Ok(_) | Err(VfsError::TooLarge) => Err(Status::DIRECTORY_NOT_EMPTY.into()),
        Err(error) => Err(error.into()),
    }
}
