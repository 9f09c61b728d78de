//! FileRenameInformation gives a file or a directory another name ([MS-FSA] 2.1.5.15.12; which operations break handle
//! caching: 2.1.4.12).
//!
//! The steps in order: rights and names are checked, handle caching of other clients is broken, the
//! opens that remain decide whether the rename is allowed, the name changes on disk, the engine's
//! paths follow, and watchers and leases are notified. If another file has taken the new name
//! meanwhile, all steps are repeated.

use durability::{Completion, PendingRename};
use smb_wire::{access_mask::AccessMask, fscc::FileInformationClass, status::Status};
use vfs::{FileKey, Identity, Lookup, Node, Vfs, VfsError};

use super::{
    Changed, entries_changed,
    replaced::{self, ReplacedHold},
    stream,
    target::{self, Target, WantedName},
};
use crate::{
    command::{
        attempts::{Attempt, attempts},
        create::streams_made_by_nobody,
        engine::OnDisk,
        modified::KeptChange,
    },
    failure::Failure,
    file::{Change, Link, Operation, Renamed, SharePath, Step},
    state::{Renaming, breaks::perform, notices, records},
    turn::COMPONENT_WORK,
};

/// A portion of the opens below a directory.
const CLEARING_WORK: usize = 128 << 10;
/// How often the new name of a rename is recorded again because directories above it were moved.
const RECORDED_MAX: usize = 32;

/// A rename that may go ahead.
struct Move<'a, V: Vfs> {
    parent: &'a V::Node,
    /// The old name as stored.
    name: &'a str,
    from: SharePath,
    to: SharePath,
    target: &'a Target<V>,
}

/// The object that has the new name at present.
enum There<V: Vfs> {
    /// Nothing has the name, or the file itself has it with other letter case.
    Free,
    /// Another file has it and is replaced.
    Other(ReplacedHold<V>),
    /// The file itself has it as another link: POSIX would do nothing, so the old name is removed. If the new name
    /// disappears meanwhile, the old one stays, because it is the last.
    Itself,
}

impl<V: Vfs> There<V> {
    /// The object that must have the new name when `node` gets it.
    fn key(&self, node: &V::Node) -> Option<FileKey> {
        match self {
            Self::Free => None,
            Self::Other(hold) => Some(hold.key()),
            Self::Itself => Some(node.key()),
        }
    }

    /// Releases the object that was to be replaced, whether or not it was.
    async fn end(self) {
        if let Self::Other(hold) = self {
            hold.end().await;
        }
    }
}

/// Renames. A handle without the right is refused before the new name is looked at.
pub(super) async fn set<V: Vfs>(
    on: &OnDisk<'_, V>,
    class: FileInformationClass,
    buffer: &[u8],
) -> Changed {
    target::check_length(buffer)?;
    on.open.need(AccessMask::DELETE)?;
    let wanted = target::read(class, buffer, on.disk.directory)?;
    if let Some(to) = &wanted.new_stream {
        return stream::rename(on, to, wanted.replace).await;
    }
    attempts(async || attempt(on, &wanted).await).await
}

async fn attempt<V: Vfs>(
    on: &OnDisk<'_, V>,
    wanted: &WantedName,
) -> Result<Attempt<Completion>, Failure> {
    let _place = target::place(on.call)?;
    let source = on.lookup().await?;
    let Some(parent) = &source.parent else {
        // The root of the share.
        return Err(Status::ACCESS_DENIED.into());
    };
    let from = SharePath::of(on.share.id, &source.path);
    let target = target::find(on, &wanted.path, on.disk.directory).await?;
    Status::OBJECT_NAME_INVALID.when(wanted.stream.is_some())?;
    // A stream is renamed by `:name` alone.
    Status::NOT_SUPPORTED.when(on.disk.place.stream.is_some())?;
    // A program on the host can delay this, so it comes before the checks, whose results would be old afterwards, and
    // before the object with the new name is held.
    let gate = &on.share.gate;
    if gate.needs_rename_lock(parent, &target.parent) {
        Box::pin(gate.prepare_rename(&on.disk.node)).await;
    }
    on.operation(Operation::Rename).await?;
    Status::ACCESS_DENIED.when(on.is_delete_pending())?;
    if on.disk.directory {
        // A directory cannot be moved below itself.
        Status::ACCESS_DENIED.when(target.path.starts_with(&from) && !target.path.same(&from))?;
        clear_below(on, &from).await?;
    }
    let (files, key) = (&on.server.files, on.disk.node.key());
    on.clear_streams(key).await?;
    // A stream that is being made counts among the open ones once its request is over.
    if !files.claims.is_empty() && !Box::pin(streams_made_by_nobody(on.call, key)).await? {
        return Ok(Attempt::Again(Status::ACCESS_DENIED));
    }
    Status::ACCESS_DENIED.when(files.has_open_streams(key))?;
    let one = Move {
        parent,
        name: &source.name,
        from,
        to: target.path_now(),
        target: &target,
    };
    decide(on, &source, one, wanted).await
}

/// Determines which object has the new name, and so how the rename proceeds.
async fn decide<V: Vfs>(
    on: &OnDisk<'_, V>,
    source: &Lookup<V::Node>,
    one: Move<'_, V>,
    wanted: &WantedName,
) -> Result<Attempt<Completion>, Failure> {
    let target = one.target;
    let same_parent = one.parent.key() == target.parent.key();
    if same_parent && source.name == target.name {
        let node = &on.disk.node;
        let found = on.share.gate.begin(node);
        let receipt = found.linked(node, one.parent, on.open.flags()).await?;
        return Ok(Attempt::Done(receipt.into()));
    }
    let existing = target.existing.as_ref();
    let same_file = existing.is_some_and(|(node, _)| node.key() == on.disk.node.key());
    let there = if !same_file {
        let hold = replaced::hold(on, target, wanted).await?;
        hold.map_or(There::Free, There::Other)
    } else if same_parent && target.stored == source.name {
        // Only the case of letters changes.
        There::Free
    } else if (on.server.files).is_going(on.disk.node.key(), &target.existing_link()) {
        // The new name is about to be removed; without the old name, the file would be removed with it.
        return Err(Status::DELETE_PENDING.into());
    } else {
        There::Itself
    };
    carry_out(on, one, there).await
}

/// [MS-FSA] 2.1.4.2: clients that cache handles below the directory give them up; an open that remains then forbids
/// the rename.
async fn clear_below<V: Vfs>(on: &OnDisk<'_, V>, directory: &SharePath) -> Result<(), Failure> {
    let mut before = None;
    loop {
        let parking = on.call.parking()?;
        let files = &on.server.files;
        let mut clearing = files.clear_below(directory);
        let below = loop {
            if let Some(below) = clearing.go_on(files, parking.waiter, before.as_ref()) {
                break below;
            }
            let turn = &on.call.connection.turn;
            turn.did(CLEARING_WORK);
            turn.wait().await;
        };
        before = below.asked.map(|asked| (below.open, asked));
        perform(on.server, below.effects);
        match below.step {
            Step::Go | Step::Refused(Status::ACCESS_DENIED) => {
                let used = below.open > 0 && Box::pin(is_used_below(on, directory)).await;
                return Ok(Status::ACCESS_DENIED.when(used)?);
            }
            Step::Refused(status) => return Err(status.into()),
            Step::Wait => {
                // It is parked at the file that was asked.
                let asked = before.as_ref().map_or(&on.disk.place, |(_, place)| place);
                parking.wait(on.call, Some(on.open), asked).await?;
            }
        }
    }
}

/// Whether any of the opens below the directory is still there on disk: the engine does not see that a program on the
/// host has moved a file elsewhere or has removed its name.
async fn is_used_below<V: Vfs>(on: &OnDisk<'_, V>, directory: &SharePath) -> bool {
    let files = &on.server.files;
    let mut below = files.opens_below(directory);
    while let Some(opens) = below.portion(files) {
        for (open, place) in opens {
            if files.is_unlinked(&place, open) {
                continue;
            }
            let Some(path) = files.path_of(open) else {
                // Its name is being removed, or it is closed by now.
                if files.leaving(open).is_some() {
                    return true;
                }
                continue;
            };
            let Some(path) = files.path_in(directory.share, &path) else {
                return true;
            };
            let (turn, names) = (&on.call.connection.turn, path.to_names());
            turn.did(COMPONENT_WORK * names.len());
            turn.wait().await;
            match on.vfs().lookup(&Identity::Service, &names).await {
                Ok(found)
                    if found
                        .found
                        .as_ref()
                        .is_none_or(|(node, _)| node.key() != place.key) => {}
                Err(VfsError::NotFound | VfsError::PathNotFound) => {}
                Ok(_) | Err(_) => return true,
            }
        }
    }
    false
}

async fn carry_out<V: Vfs>(
    on: &OnDisk<'_, V>,
    mut one: Move<'_, V>,
    there: There<V>,
) -> Result<Attempt<Completion>, Failure> {
    let (token, server, node) = (on.token()?, on.server, &on.disk.node);
    let (to, rename) = (one.target, one.target.announced.id);
    let (turn, mut moving, is_recorded) = match begin(on, &one).await {
        Ok(begun) => begun,
        Err(error) => {
            there.end().await;
            records::moved(server, node.key(), rename).await;
            return Err(error.into());
        }
    };
    let kept = KeptChange::begin(on, None).await;
    let (who, parent, name, key) = (&token.identity, one.parent, one.name, there.key(node));
    let renamed = (on.vfs()).rename(who, node, parent, name, &to.parent, &to.name, key);
    if let Err(error) = renamed.await {
        // The replaced object may have to be removed next, and the removal needs a turn of its own.
        drop((moving, turn));
        there.end().await;
        records::moved(server, node.key(), rename).await;
        return again(error, to.existing.is_none());
    }
    let replaced = match &there {
        There::Other(hold) => Some(hold.replaced(on, to)),
        There::Free | There::Itself => None,
    };
    follow(on, &mut one);
    // Nothing is waited for before this, because the directories above the old name, and with them their watchers, may
    // be moved meanwhile.
    report(on, &one, &there);
    drop(turn);
    let replaced = replaced::marked(replaced).await;
    let mut flags = on.open.flags();
    // A persistent open of any client, also one that came since, must be found after a crash by the one name that its
    // record then has.
    flags.open_write_through |= is_recorded || server.persistence.is_met(rename, node.key());
    let receipt = moving.renamed(node, flags).await;
    // [MS-FSA] 2.1.5.15.12: the file now has FILE_ATTRIBUTE_ARCHIVE, which is reported at the close.
    let ended = kept.end(on).await;
    on.open.state().renamed |= !on.disk.directory && !matches!(there, There::Itself);
    let archived = match &there {
        There::Other(hold) => hold.archive(flags).await,
        There::Free | There::Itself => Ok(()),
    };
    there.end().await;
    // Up to here the record has both names. The turn was given back before, so that no other rename waits for the
    // store. A rename that is not stable leaves both names in it.
    if receipt.is_ok() {
        records::moved(server, node.key(), rename).await;
        if on.disk.directory {
            // A client may have opened something below since it was checked that nobody has.
            let mut below = server.files.opens_below(&one.to);
            while let Some(opens) = below.portion(&server.files) {
                for (_, place) in opens {
                    records::moved(server, place.key, rename).await;
                }
            }
        }
    }
    let (from, into) = (one.parent.key(), to.parent.key());
    entries_changed(on, from);
    if from != into {
        entries_changed(on, into);
    }
    let receipt = replaced::answer(replaced, node, receipt).await;
    ended?;
    archived?;
    Ok(Attempt::Done(receipt?.into()))
}

/// Records both names for a restart, then takes the turns of a rename. While this request waits for them, the
/// directories above may be moved and the new name with them; then it is recorded again. The last value is whether
/// anything is recorded.
///
/// # Errors
/// The rename cannot be recorded and so must not be made.
async fn begin<'a, V: Vfs>(
    on: &'a OnDisk<'_, V>,
    one: &Move<'a, V>,
) -> Result<(Renaming, PendingRename<'a, V>, bool), VfsError> {
    let (server, to) = (on.server, one.target);
    let (gate, node) = (&on.share.gate, &on.disk.node);
    let replaced = to.existing.as_ref().map(|(node, _)| node);
    let mut recorded = to.path_now();
    let (key, rename) = (node.key(), to.announced.id);
    (server.persistence).renaming(&server.files, key, rename, [&one.from, &recorded]);
    let mut is_recorded = records::moving(server, key, rename, &recorded).await?;
    for _ in 0..RECORDED_MAX {
        // Removals that do not find their name wait for this turn, and so until the paths have followed.
        let turn = server.name_turns.rename(one.from.share).await;
        let moving = gate.begin_rename(one.parent, &to.parent, replaced).await?;
        let now = to.path_now();
        if now == recorded {
            return Ok((turn, moving, is_recorded));
        }
        // An open that is recorded from now on has the present name.
        (server.persistence).renaming(&server.files, key, rename, [&one.from, &now]);
        // If nothing is recorded, no record has to be corrected.
        if !is_recorded && !server.persistence.is_met(rename, key) {
            return Ok((turn, moving, is_recorded));
        }
        drop((moving, turn));
        is_recorded = records::moving(server, key, rename, &now).await?;
        records::moving_below(server, rename).await?;
        recorded = now;
    }
    Err(VfsError::Busy)
}

/// The result of an attempt whose object no longer has the name under which it was looked up.
fn again(error: VfsError, free: bool) -> Result<Attempt<Completion>, Failure> {
    match error {
        VfsError::Exists if free => Ok(Attempt::Taken(Status::OBJECT_NAME_COLLISION)),
        VfsError::Exists => Ok(Attempt::Again(Status::OBJECT_NAME_COLLISION)),
        // [MS-FSA] 2.1.5.15.12 renames the open's link, wherever another request has moved it meanwhile. The rename
        // fails only if the link is not found by a lookup between renames.
        VfsError::NotFound | VfsError::PathNotFound => {
            Ok(Attempt::Again(Status::OBJECT_NAME_NOT_FOUND))
        }
        other => Err(other.into()),
    }
}

/// Moves the engine's paths and links along, from and to the present paths of both directories.
fn follow<V: Vfs>(on: &OnDisk<'_, V>, one: &mut Move<'_, V>) {
    if on.disk.directory {
        // A request that has looked up a path through the directory, and is not yet in the engine's tables, looks
        // it up again.
        on.server.files.directory_moved();
    }
    let paths = on.server.files.arrived(&Renamed {
        key: on.disk.node.key(),
        directory: on.disk.directory,
        from: Link::new(one.parent.key(), one.name),
        to: one.target.link(),
        open: on.open.engine,
        rename: one.target.announced.id,
    });
    // The handle always has a path while a request on it is under way.
    if let Some(paths) = paths {
        (one.from, one.to) = paths;
    }
}

/// Reports the rename to watchers ([MS-FSA] 2.1.5.15.12, [MS-FSCC] 2.7.1). A name that the replaced file had in the
/// same letter case stays, so that only the old name is removed and the new one is modified. In another letter case it
/// is removed first. If the new name was a link to the same file already, in the same letter case, only the old name
/// has disappeared.
fn report<V: Vfs>(on: &OnDisk<'_, V>, one: &Move<'_, V>, there: &There<V>) {
    let filter = notices::name_filter(on.disk.directory);
    let (from, to) = (&one.from, &one.to);
    let (left, entered) = (Some(one.parent.key()), Some(one.target.parent.key()));
    let same_case = one.target.stored == one.target.name;
    let mut reports = Vec::with_capacity(3);
    if let (There::Other(_) | There::Itself, false) = (there, same_case) {
        let filter = notices::name_filter(false);
        let replaced = one.target.existing_path();
        reports.push(notices::change(replaced, entered, Change::REMOVED, filter));
    }
    let (old, new) = match there {
        There::Itself if same_case => (Change::REMOVED, None),
        There::Other(_) if same_case => {
            let modified = (Change::MODIFIED, notices::ANOTHER_FILE);
            (Change::REMOVED, Some(modified))
        }
        _ if left == entered => {
            let renamed = (Change::RENAMED_NEW_NAME, filter);
            (Change::RENAMED_OLD_NAME, Some(renamed))
        }
        _ => (Change::REMOVED, Some((Change::ADDED, filter))),
    };
    reports.push(notices::change(from.clone(), left, old, filter));
    if let Some((action, filter)) = new {
        reports.push(notices::change(to.clone(), entered, action, filter));
    }
    notices::report(on.server, &reports);
}
