//! FileLinkInformation: another name for a file ([MS-FSA] 2.1.5.15.7).

use durability::{Completion, Unchanged};
use smb_wire::status::Status;
use vfs::{Node, Vfs, VfsError};

use super::{
    entries_changed,
    room::{self, Room},
    target::{self, Wanted},
};
use crate::{
    access::{self, Subject},
    command::{
        Call,
        attempts::{Attempt, attempts},
        engine,
    },
    failure::Failure,
    file::{Change, Operation},
    state::{Open, notices},
};

/// Adds a name.
pub(super) async fn set<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    wanted: Wanted,
) -> Result<Completion, Failure> {
    let disk = open.disk()?;
    if disk.place.stream.is_some() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if disk.directory {
        return Err(Status::FILE_IS_A_DIRECTORY.into());
    }
    let server = call.server();
    if server.files.is_delete_pending(disk.place, open.engine) {
        return Err(Status::ACCESS_DENIED.into());
    }
    if wanted.stream.is_some() {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    attempts(async || attempt(call, open, &wanted).await).await
}

async fn attempt<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    wanted: &Wanted,
) -> Result<Attempt<Completion>, Failure> {
    let (server, share) = (call.server(), call.share()?);
    let (disk, token) = (open.disk()?, call.token()?);
    let target = target::find(call, open, &wanted.path, false).await?;
    let subject = Subject {
        vfs: &*share.vfs,
        node: &disk.node,
        attr: &share.vfs.attr(&disk.node).await?,
        changed: None,
        parent: None,
        ceiling: call.tree()?.maximal_access,
        stream: false,
    };
    access::may_link(&subject, &token).await?;
    engine::operation(call, open, Operation::Link).await?;
    if let Some((node, _)) = &target.existing
        && node.key() == disk.node.key()
        && wanted.replace
    {
        // The name leads to this very file already.
        return Ok(Attempt::Done(Unchanged::because("the name exists").into()));
    }
    let room = room::make_room(call, open, &target, wanted).await?;
    let replace = room.is_some();
    // The replaced file may have names elsewhere that are not on disk.
    if let Some((node, _)) = target.existing.as_ref().filter(|_| replace)
        && let Err(error) = share.gate.begin_replacement(node, &target.parent).await
    {
        room::end(room).await;
        return Err(error.into());
    }
    let begun = share.gate.begin();
    let linked = share
        .vfs
        .link(
            &token.identity,
            &disk.node,
            &target.parent,
            &target.name,
            room.as_ref().map(Room::key),
        )
        .await;
    if let Err(error) = linked {
        room::end(room).await;
        return again(error, target.existing.is_none());
    }
    if let Some(room) = &room {
        room.is_replaced();
        room::replaced(call, &target).await;
    }
    // Before anything else is waited for: a sync in between would know nothing of the new name.
    let flags = open.flags();
    let receipt = begun.linked(&disk.node, &target.parent, flags).await;
    let filter = notices::name_filter(false);
    let mut reports = Vec::with_capacity(2);
    if replace {
        let replaced = target.existing_path();
        reports.push(notices::change(replaced, Change::REMOVED, filter));
    }
    reports.push(notices::change(target.path_now(), Change::ADDED, filter));
    notices::report(server, &reports);
    entries_changed(call, open, target.parent.key());
    room::end(room).await;
    Ok(Attempt::Done(receipt?.into()))
}

fn again(error: VfsError, free: bool) -> Result<Attempt<Completion>, Failure> {
    match error {
        VfsError::Exists if free => Ok(Attempt::Taken(Status::OBJECT_NAME_COLLISION)),
        // Not what was seen by the name.
        VfsError::Exists => Ok(Attempt::Again(Status::OBJECT_NAME_COLLISION)),
        VfsError::TooManyLinks => Err(Status::TOO_MANY_LINKS.into()),
        other => Err(other.into()),
    }
}
