//! Renaming a named stream within its file ([MS-FSA] 2.1.5.15.12.1). The unnamed stream is neither the source nor the
//! target (docs/protocol-notes.md, "A rename from or to the unnamed stream").

use durability::PendingChange;
use smb_wire::{msg::NotifyFilter, status::Status};
use vfs::{Node, StreamOpen, Vfs, VfsError};

use super::Changed;
use crate::{
    command::{create::is_too_long, engine::OnDisk, modified, split},
    failure::Failure,
    file::{Change, Operation, Place},
    state::{At, breaks::perform, notices, records},
};

/// The kind of stream that a new name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Data,
    /// The index of a directory.
    Index,
    Unknown,
}

/// The new name of a stream: `:name` or `:name:type`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewStream {
    /// Empty for the unnamed stream.
    name: String,
    kind: For,
}

impl NewStream {
    /// Parses the part after the first colon.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` where [MS-FSA] 2.1.5.15.12.1 has it for the form of the name.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let (name, kind) = split(text, ':');
        let ends_early = kind.map_or(name.is_empty(), str::is_empty);
        let forbidden = |c| matches!(c, '\0' | '\\' | '/' | ':');
        if ends_early
            || name.contains(forbidden)
            || kind.is_some_and(|kind| kind.contains(forbidden))
            || is_too_long(name)
        {
            return Err(Status::INVALID_PARAMETER.into());
        }
        Ok(Self {
            name: name.to_owned(),
            kind: match kind {
                // Clients send names without a type (docs/protocol-notes.md, "The new name of a stream").
                None => For::Data,
                Some(kind) if kind.eq_ignore_ascii_case("$DATA") => For::Data,
                Some(kind) if kind.eq_ignore_ascii_case("$INDEX_ALLOCATION") => For::Index,
                Some(_) => For::Unknown,
            },
        })
    }
}

pub(super) async fn rename<V: Vfs>(on: &OnDisk<'_, V>, to: &NewStream, replace: bool) -> Changed {
    let directory = on.disk.directory;
    let unnamed = to.name.is_empty();
    // A directory has no unnamed data stream.
    Status::INVALID_PARAMETER.when(unnamed && (directory || on.attr().await?.is_of_directory()))?;
    Status::OBJECT_TYPE_MISMATCH.when(to.kind != if directory { For::Index } else { For::Data })?;
    Status::INVALID_PARAMETER.when(directory)?;
    let (old, to) = (on.disk.node.stream().unwrap_or_default(), to.name.as_str());
    let same = vfs::fold(old) == vfs::fold(to);
    // The unnamed stream gets no other name, and no other stream gets its name.
    Status::OBJECT_NAME_COLLISION.when(!same && unnamed && !replace)?;
    Status::INVALID_PARAMETER.when(!same && (unnamed || old.is_empty()))?;
    on.operation(Operation::Rename).await?;
    if same {
        let (found, flags) = (on.share.gate.begin(&on.disk.node), on.open.flags());
        return Ok(found.stream_found(&on.disk.node, flags).await?.into());
    }
    check_target(on, to, replace).await?;
    let token = on.token()?;
    let place = Place::of_stream(on.disk.node.key(), to);
    let wake = |effects| perform(on.server, effects);
    let renaming = (on.server.files).rename_stream(on.open.engine, place, wake)?;
    // Until its name was reserved, another client could open the stream there, write to it and close it.
    check_target(on, to, replace).await?;
    make_last_rename_stable(on).await?;
    // If the record cannot be written, it may hold both names, but the rename is not made.
    if let Err(error) = records::stream_moving(on.server, on.open, Some(to)).await {
        records::stream_moved(on.server, on.open).await;
        return Err(error.into());
    }
    let begun = on.share.gate.begin(&on.disk.node);
    let vfs = on.vfs();
    let renamed = vfs.rename_stream(&token.identity, &on.disk.node, to, replace);
    let node = match renamed.await {
        Ok(node) => node,
        Err(error) => {
            failed(on, begun, error).await;
            return Err(error.into());
        }
    };
    // [MS-FSA] 2.1.5.15.12.1: the open is one of the stream under its new name.
    on.open.moved(At {
        node: node.clone(),
        place: renaming.done(),
    });
    records::stream_follows(on.server, on.open);
    let filter = NotifyFilter::STREAM_NAME;
    for (name, action) in [(old, Change::REMOVED_STREAM), (to, Change::ADDED_STREAM)] {
        notices::stream_changed(on.server, on.open, name, (action, filter));
    }
    // It is stable if the open is persistent, so that its record needs the new name only.
    let receipt = begun.stream_renamed(&node, old, on.open.flags()).await?;
    records::stream_moved(on.server, on.open).await;
    modified::archive(on).await?;
    Ok(receipt.into())
}

/// Makes the last rename of a persistent open's stream stable if it is not yet: the record has room for two names, and
/// would forget one that a crash may leave.
async fn make_last_rename_stable<V: Vfs>(on: &OnDisk<'_, V>) -> Result<(), Failure> {
    if on.server.persistence.has_two_streams(on.open.engine) {
        let begun = on.share.gate.begin(&on.disk.node);
        drop(begun.stream_found(&on.disk.node, on.open.flags()).await?);
        records::stream_moved(on.server, on.open).await;
    }
    Ok(())
}

/// Called when the file system did not make a rename, or only some of its steps.
async fn failed<V: Vfs>(on: &OnDisk<'_, V>, begun: PendingChange<'_, V>, error: VfsError) {
    use VfsError::{AccessDenied, Exists, InvalidName, NameTooLong};
    // These refuse the name or the user before the first step.
    if !matches!(error, AccessDenied | Exists | InvalidName | NameTooLong) {
        // A sync that fails now poisons the file.
        let found = begun.stream_found(&on.disk.node, on.open.flags());
        drop(found.await);
    }
    records::stream_moved(on.server, on.open).await;
}

/// Checks the stream that has the new name: it may be replaced only if it is empty and nobody has
/// it open.
async fn check_target<V: Vfs>(on: &OnDisk<'_, V>, to: &str, replace: bool) -> Result<(), Failure> {
    let (vfs, token) = (on.vfs(), on.token()?);
    let file = vfs.carrier(&on.disk.node);
    let existing = vfs.open_stream(&token.identity, &file, to, StreamOpen::Existing);
    let node = match existing.await {
        Err(VfsError::NotFound | VfsError::NoAttribute) => return Ok(()),
        other => other?.0,
    };
    Status::OBJECT_NAME_COLLISION.when(!replace)?;
    let place = Place::of_stream(file.key(), to);
    let open_elsewhere = on.server.files.is_stream_open(&place);
    Ok(Status::INVALID_PARAMETER.when(open_elsewhere || on.vfs().attr(&node).await?.size != 0)?)
}
