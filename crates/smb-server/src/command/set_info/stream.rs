//! Renaming a named stream within its file ([MS-FSA] 2.1.5.15.12.1). The unnamed stream neither
//! gets nor gives up its place.

use durability::{Completion, Unchanged};
use smb_wire::{msg::NotifyFilter, status::Status};
use vfs::{Node, StreamOpen, Vfs, VfsError};

use super::tell_stream;
use crate::{
    command::{Call, create::NameStream, engine},
    failure::Failure,
    file::{Change, Operation, Place},
    state::{Open, records},
};

/// Renames the stream of the open.
pub(super) async fn rename<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    to: &NameStream,
    replace: bool,
) -> Result<Completion, Failure> {
    let disk = open.disk()?;
    let (Some(old), false) = (disk.node.stream(), disk.directory) else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    let share = call.share()?;
    let to = match to {
        NameStream::Named(name) => name,
        NameStream::Unnamed if replace => return Err(Status::INVALID_PARAMETER.into()),
        NameStream::Unnamed => return Err(Status::OBJECT_NAME_COLLISION.into()),
    };
    engine::operation(call, open, Operation::Rename).await?;
    if vfs::posix::name::fold(old) == vfs::posix::name::fold(to) {
        return Ok(Unchanged::because("the name is the same").into());
    }
    check_target(call, open, to, replace).await?;
    let token = call.token()?;
    let begun = share.gate.begin();
    let node = share
        .vfs
        .rename_stream(&token.identity, &disk.node, to, replace)
        .await?;
    open.moved(node.clone());
    records::stream_renamed(call.server(), open).await;
    let filter = NotifyFilter::STREAM_NAME;
    tell_stream(call, open, (Change::REMOVED_STREAM, filter), Some(old));
    tell_stream(call, open, (Change::ADDED_STREAM, filter), Some(to));
    let receipt = begun.stream_created(&node, open.flags()).await?;
    Ok(receipt.into())
}

/// A stream of the new name may go only if it is empty and nobody has it open.
async fn check_target<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    to: &str,
    replace: bool,
) -> Result<(), Failure> {
    let share = call.share()?;
    let token = call.token()?;
    let Some((file, _)) = engine::lookup(call, open).await?.found else {
        return Err(Status::OBJECT_NAME_NOT_FOUND.into());
    };
    let existing = share
        .vfs
        .open_stream(&token.identity, &file, to, StreamOpen::Existing)
        .await;
    let node = match existing {
        Err(VfsError::NotFound | VfsError::NoAttribute) => return Ok(()),
        other => other?.0,
    };
    if !replace {
        return Err(Status::OBJECT_NAME_COLLISION.into());
    }
    let place = Place::of_stream(file.key(), to);
    let open_elsewhere = call.server().files.is_stream_open(&place);
    if open_elsewhere || share.vfs.attr(&node).await?.size != 0 {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(())
}
