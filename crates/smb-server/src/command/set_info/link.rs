//! FileLinkInformation: another name for a file ([MS-FSA] 2.1.5.15.7).

use durability::Completion;
use smb_wire::{fscc::FileInformationClass, status::Status};
use vfs::{Node, Vfs, VfsError};

use super::{
    Changed, entries_changed,
    replaced::{self, ReplacedHold},
    target::{self, Target, WantedName},
};
use crate::{
    access,
    command::{
        attempts::{Attempt, attempts},
        engine::OnDisk,
        modified::KeptChange,
    },
    failure::Failure,
    file::{Change, Operation},
    state::notices,
};

/// Adds a name. An object that cannot have another name is refused before the new one is looked at.
pub(super) async fn set<V: Vfs>(
    on: &OnDisk<'_, V>,
    class: FileInformationClass,
    buffer: &[u8],
) -> Changed {
    target::check_length(buffer)?;
    Status::INVALID_PARAMETER.when(on.disk.place.stream.is_some())?;
    Status::FILE_IS_A_DIRECTORY.when(on.disk.directory)?;
    Status::ACCESS_DENIED.when(on.is_delete_pending())?;
    let wanted = target::read(class, buffer, false)?;
    Status::OBJECT_NAME_INVALID.when(wanted.stream.is_some())?;
    attempts(async || attempt(on, &wanted).await).await
}

async fn attempt<V: Vfs>(
    on: &OnDisk<'_, V>,
    wanted: &WantedName,
) -> Result<Attempt<Completion>, Failure> {
    let token = on.token()?;
    let target = target::find(on, &wanted.path, false).await?;
    let attr = on.vfs().attr(&on.disk.node).await?;
    let subject = on.call.subject(&on.disk.node, &attr)?;
    access::may_link(&subject, &token).await?;
    on.operation(Operation::Link).await?;
    if let Some((node, _)) = &target.existing
        && node.key() == on.disk.node.key()
        && wanted.replace
    {
        return keep(on, &target).await;
    }
    let hold = replaced::hold(on, &target, wanted).await?;
    let replace = hold.is_some();
    // A removal that does not find the replaced name waits until the engine knows why.
    let turn = match replace {
        true => Some(on.server.name_turns.rename(target.path.share).await),
        false => None,
    };
    // The replaced file may have names elsewhere that are not stable.
    if let Some((node, _)) = target.existing.as_ref().filter(|_| replace)
        && let Err(error) = on.share.gate.begin_replacement(node, &target.parent).await
    {
        drop(turn);
        replaced::end(hold).await;
        return Err(error.into());
    }
    let kept = KeptChange::begin(on, None).await;
    let begun = on.share.gate.begin(&on.disk.node);
    let (vfs, who, key) = (
        on.vfs(),
        &token.identity,
        hold.as_ref().map(ReplacedHold::key),
    );
    let linked = vfs.link(who, &on.disk.node, &target.parent, &target.name, key);
    if let Err(error) = linked.await {
        // The replaced object may have to be removed next, and the removal needs a turn of its own.
        drop(turn);
        replaced::end(hold).await;
        return again(error, target.existing.is_none());
    }
    let replaced = hold.as_ref().map(|hold| hold.replaced(on, &target));
    drop(turn);
    let replaced = replaced::marked(replaced).await;
    // The new name must be reported before anything else is waited for, because a sync in between
    // would not include it.
    let flags = on.open.flags();
    let receipt = begun.linked(&on.disk.node, &target.parent, flags).await;
    let ended = kept.end(on).await;
    report(on, &target, replace);
    entries_changed(on, target.parent.key());
    replaced::end(hold).await;
    let receipt = replaced::answer(replaced, &on.disk.node, receipt).await;
    ended?;
    Ok(Attempt::Done(receipt?.into()))
}

/// The name leads to this very file already: at most its letter case changes.
async fn keep<V: Vfs>(
    on: &OnDisk<'_, V>,
    target: &Target<V>,
) -> Result<Attempt<Completion>, Failure> {
    let (node, existing) = (&on.disk.node, target.existing_link());
    // The name is about to be removed, and would be after the answer.
    Status::DELETE_PENDING.when(on.server.files.is_going(node.key(), &existing))?;
    // A short form of the name is not put in its place.
    let differs = target.name != target.stored && target.link() == existing;
    let kept = KeptChange::begin(on, None).await;
    let begun = on.share.gate.begin(node);
    if differs {
        let (vfs, token, key) = (on.vfs(), on.token()?, Some(node.key()));
        let linked = vfs.link(&token.identity, node, &target.parent, &target.name, key);
        if let Err(error) = linked.await {
            return again(error, false);
        }
    }
    let flags = on.open.flags();
    let receipt = begun.linked(node, &target.parent, flags).await;
    if differs {
        report(on, target, true);
        entries_changed(on, target.parent.key());
        kept.show(on).await?;
    }
    Ok(Attempt::Done(receipt?.into()))
}

/// [MS-FSA] 2.1.5.15.7: a name that is replaced in the same letter case stays and is modified.
fn report<V: Vfs>(on: &OnDisk<'_, V>, target: &Target<V>, replaced: bool) {
    let filter = notices::name_filter(false);
    let (old, new) = (target.existing_path(), target.path_now());
    let change =
        |path, action, filter| notices::change(path, Some(target.parent.key()), action, filter);
    let reports = match replaced {
        true if target.stored == target.name => {
            vec![change(new, Change::MODIFIED, notices::ANOTHER_FILE)]
        }
        true => vec![
            change(old, Change::REMOVED, filter),
            change(new, Change::ADDED, filter),
        ],
        false => vec![change(new, Change::ADDED, filter)],
    };
    notices::report(on.server, &reports);
}

fn again(error: VfsError, free: bool) -> Result<Attempt<Completion>, Failure> {
    match error {
        VfsError::Exists if free => Ok(Attempt::Taken(Status::OBJECT_NAME_COLLISION)),
        // The name no longer belongs to the object that the lookup saw.
        VfsError::Exists => Ok(Attempt::Again(Status::OBJECT_NAME_COLLISION)),
        VfsError::TooManyLinks => Err(Status::TOO_MANY_LINKS.into()),
        other => Err(other.into()),
    }
}
