//! How an open ends ([MS-FSA] 2.1.5.5): by CLOSE, with its session or tree connect, or because its client did not
//! reconnect.
//!
//! Exactly one request or task closes an open: the one that has marked it as closing. Requests under way on it are
//! waited for, and new ones are refused. The handle is gone whatever the disk answers; an error is reported or logged.

use std::{cell::Cell, collections::BTreeMap, pin::pin, rc::Rc, sync::Arc};

use durability::{Completion, Receipt, RequestFlags, Unchanged};
use smb_wire::{
    ids::{LeaseKey, TreeId},
    msg::{CreateOptions, NotifyFilter},
};
use tokio::sync::mpsc;
use vfs::{FileKey, Identity, Node, Timestamp, Vfs, VfsError};

use super::{
    EndReason, LineAbout, Open, OpenKind, STILL_MAX, Server, Session, Share, Still, archive,
    breaks::{self, perform},
    disconnected, notices, records, share_line_due,
};
use crate::{
    file::{Change, Closed, Deleter, Going, Link, OpenId, Place, Remove, ShareId, SharePath},
    race::with_patience,
    turn::{NAME_WORK, Turn},
};

/// The closes that [`in_tasks`] carries out.
pub(crate) struct Closing(mpsc::Receiver<()>);

impl Closing {
    /// Waits until all of them have ended.
    pub(crate) async fn ended(mut self) {
        // Nothing is sent: each task has a sender and drops it when it ends.
        let _none = self.0.recv().await;
    }
}

/// Begins to close those of `opens` that nobody else is closing: from now on every request on them
/// is refused, and requests that wait on them end.
pub(crate) fn begin<V: Vfs>(opens: Vec<Arc<Open<V>>>, reason: EndReason) -> Vec<Arc<Open<V>>> {
    // They are marked first, so that no request is parked on them after the waiting ones were ended.
    let mine: Vec<_> = opens.into_iter().filter(|one| one.begin_close()).collect();
    for open in &mine {
        open.parked.end(reason);
    }
    mine
}

/// Closes the opens that [`begin`] returned, in turns.
async fn rest<V: Vfs>(
    server: &Arc<Server<V>>,
    session: &Session<V>,
    turn: &Rc<Turn>,
    mine: Vec<Arc<Open<V>>>,
) {
    for open in mine {
        // No request on these opens waits for this close: LOGOFF and TREE_DISCONNECT, which do, name no open.
        let what = "closing a handle of a lost session";
        finish_logged(server, Some(session), &open, what).await;
        turn.did(NAME_WORK);
        turn.wait().await;
    }
}

/// As [`finish`], once the requests on the open have ended. No client gets an error, so it is logged.
pub(super) async fn finish_logged<V: Vfs>(
    server: &Arc<Server<V>>,
    session: Option<&Session<V>>,
    open: &Open<V>,
    what: &'static str,
) {
    open.quiesce(0).await;
    let Err(error) = finish(server, session, open).await else {
        return;
    };
    if let Some(left_out) = share_line_due(server, LineAbout::FailedClose, open.tree.share_id()) {
        tracing::warn!(%error, share = open.tree.name(), user = open.user, left_out, "{what}");
    }
}

/// Closes the opens that [`begin`] returned, in one task for each tree, so that a share whose disk hangs does not delay
/// the release of locks and share modes of another. All these tasks together have one turn of the worker.
pub(crate) fn in_tasks<V: Vfs>(
    server: &Arc<Server<V>>,
    session: &Arc<Session<V>>,
    mine: Vec<Arc<Open<V>>>,
) -> Closing {
    let (running, ended) = mpsc::channel(1);
    let turn = Turn::new(Arc::clone(&server.env));
    let mut trees: BTreeMap<TreeId, Vec<_>> = BTreeMap::new();
    for open in mine {
        trees.entry(open.tree.id).or_default().push(open);
    }
    for opens in trees.into_values() {
        let (server, session) = (Arc::clone(server), Arc::clone(session));
        let (env, turn) = (Arc::clone(&server.env), Rc::clone(&turn));
        let running = running.clone();
        env.spawn(Box::pin(async move {
            let closes = pin!(rest(&server, &session, &turn, opens));
            turn.run(closes).await;
            drop(running);
        }));
    }
    Closing(ended)
}

/// Takes an open out of all tables and carries out its close on disk. A disconnected open has no session; it is closed
/// as the user who opened it.
pub(crate) async fn finish<V: Vfs>(
    server: &Arc<Server<V>>,
    session: Option<&Session<V>>,
    open: &Open<V>,
) -> Result<Completion, VfsError> {
    if let Some(session) = session {
        session.tables().opens.remove(&open.file_id.volatile);
    }
    drop(open.take_place());
    let (OpenKind::Disk { .. }, Some(share)) = (&open.kind, &open.tree.share) else {
        return Ok(Unchanged::because("a pipe has no file").into());
    };
    let Ok(disk) = open.disk() else {
        return Ok(Unchanged::because("the open has no file").into());
    };
    report_changes(server, open);
    let flags = open.flags();
    let mut deletes = None;
    if open.options.contains(CreateOptions::DELETE_ON_CLOSE) {
        let token = session.map_or_else(
            || Arc::clone(&open.origin.owner),
            |session| open.tree.token(server, session),
        );
        let identity = &token.identity;
        // If it cannot be listed, its removal decides.
        let is_empty = share.vfs.is_empty(identity, &disk.node);
        if disk.directory && !is_empty.await.unwrap_or(true) {
            // [MS-FSA] 2.1.5.5, phase 1: a directory that is not empty is not even marked. If the open is gone already,
            // there is no mark to remove.
            let _gone = (server.files).set_delete_on_close(&disk.place, open.engine, false, false);
        }
        let through = flags.open_write_through;
        deletes = Some(Deleter::new(identity, open.parent_lease, through));
    }
    // A lock or an open that nobody else can take again must stay until its record is deleted, so the record goes
    // first. If the close removes the name, a crash must not forget that, so there the record goes last.
    let record_last = deletes.is_some() || server.files.is_delete_pending(&disk.place, open.engine);
    if !record_last {
        records::end(server, open).await;
    }
    // The directory of a stream's file is known only as long as the stream is open.
    let parent_of = || server.files.parent_of(&disk.place, open.engine);
    let directory = disk.place.stream.is_some().then(parent_of).flatten();
    let closed = (server.files).close(&disk.place, open.engine, deletes.as_ref());
    // Earlier, requests that wait for this would still meet its share mode and its locks.
    server.durables.ended(open);
    server.holders.remove(open.engine);
    server.host_watches.forget(open.engine);
    let mut receipt = Ok(None);
    if let Some((remove, deleter)) = &closed.remove {
        let removal = Removal {
            server,
            share,
            node: &disk.node,
            who: &deleter.identity,
            flags: as_marked(deleter, flags),
            spared: deleter.spares(open.parent_lease),
            directory,
            keeps_change: open.state().keeps_times.changed,
        };
        receipt = Box::pin(removal.run(&disk.place, remove, open.engine)).await;
    }
    if record_last {
        if server.files.count(disk.place.key, None) > 0 {
            // Other opens keep the name, which must go with the last of them after a crash, too, or have lost it.
            records::inode_changed(server, disk.place.key).await;
        }
        records::end(server, open).await;
    }
    // A request that waited for this close must find the name already removed.
    perform(server, closed.effects);
    breaks::acknowledged(server, disconnected::owner(open));
    if let Some((from, going)) = closed.unlinked {
        // The effects of this close come before this wait, as the removal may be waiting for them.
        receipt = match server.is_removed(going).await {
            Ok(true) => (share.gate.removed_beside(&disk.node, from, flags).await).map(Some),
            outcome => outcome.map(|_| None),
        };
    }
    // The barrier and the errors of the close count whether or not the name was removed.
    let closed = share.gate.closed(&disk.node, flags).await;
    drop(open.policy.lock().take());
    let removed = receipt?;
    Ok(removed.unwrap_or(closed?).into())
}

/// The flags of a removal by the close of an open with the flags `closing`: what a write-through open has asked for is
/// stable before its answer, whichever close that is the answer to.
fn as_marked(deleter: &Deleter, closing: RequestFlags) -> RequestFlags {
    RequestFlags {
        open_write_through: closing.open_write_through || deleter.write_through,
        ..closing
    }
}

/// Carries out what the engine asks for after the close of an open that no client has: if another client has marked the
/// file for deletion and closed it meanwhile, this was the last open, and the name is removed now.
pub(crate) async fn without_client<V: Vfs>(
    server: &Arc<Server<V>>,
    share: &Share<V>,
    node: &V::Node,
    (place, open): (&Place, OpenId),
    closed: Closed,
) -> Result<(), VfsError> {
    let mut removed = Ok(());
    if let Some((remove, deleter)) = &closed.remove {
        let removal = Removal {
            server,
            share,
            node,
            who: &deleter.identity,
            flags: as_marked(deleter, RequestFlags::default()),
            spared: None,
            directory: None,
            keeps_change: false,
        };
        removed = Box::pin(removal.run(place, remove, open)).await.map(drop);
    }
    // A request that waited for this open must find the name already removed.
    perform(server, closed.effects);
    removed
}

/// Reports the changes made through the handle to watchers, and breaks leases on the directory.
fn report_changes<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>) {
    let Ok(disk) = open.disk() else {
        return;
    };
    // Open.File.PendingNotifications ([MS-FSA] 2.1.4.19).
    let (wrote, renamed) = {
        let state = open.state();
        (state.wrote, state.renamed)
    };
    if let (Some(stream), true) = (disk.node.stream(), wrote) {
        let written = (Change::MODIFIED_STREAM, notices::STREAM_DATA);
        notices::stream_changed(server, open, stream, written);
        return;
    }
    let of_writes = NotifyFilter::LAST_WRITE | NotifyFilter::SIZE;
    let pending = of_writes.when(wrote) | NotifyFilter::ATTRIBUTES.when(renamed);
    if wrote || renamed {
        notices::modified(server, open, pending);
    }
    if wrote {
        // Size and times of the entry are final now, so clients that cache the listing must read it again.
        if let Some(parent) = server.files.parent_of(&disk.place, open.engine) {
            let after = server.files.entries_changed(parent, open.parent_lease);
            perform(server, after);
        }
    }
}

impl<V: Vfs> Server<V> {
    /// Whether a name is gone that another close removes or has removed: waits until that is known.
    async fn is_removed(&self, going: Option<Going>) -> Result<bool, VfsError> {
        let Some(going) = going else {
            return Ok(true);
        };
        loop {
            let mut ended = pin!(self.removals.notified());
            ended.as_mut().enable();
            if let Some(outcome) = going.get() {
                return *outcome;
            }
            ended.await;
        }
    }
}

fn is_absent(error: &VfsError) -> bool {
    matches!(error, VfsError::NotFound | VfsError::PathNotFound)
}

/// Whether the error may mean that the path has just been moved, or names another object by now.
fn is_elsewhere(error: &VfsError) -> bool {
    let other = matches!(
        error,
        VfsError::AccessDenied | VfsError::NotADirectory | VfsError::SymbolicLink
    );
    other || is_absent(error)
}

/// A name to be removed.
struct Removal<'a, V: Vfs> {
    server: &'a Arc<Server<V>>,
    share: &'a Share<V>,
    node: &'a V::Node,
    who: &'a Identity,
    flags: RequestFlags,
    spared: Option<LeaseKey>,
    /// For a stream, the directory of its file if that is known: it may be watched by another path, too.
    directory: Option<FileKey>,
    /// The handle that closes keeps the change time (Open.UserSetChangeTime).
    keeps_change: bool,
}

/// Reports how a removal ended, also if its task panics or is dropped.
struct Report<'a, V: Vfs> {
    server: &'a Server<V>,
    removal: (&'a Place, &'a Remove, OpenId),
    /// Whether the name is gone.
    outcome: Result<bool, VfsError>,
}

impl<V: Vfs> Drop for Report<'_, V> {
    fn drop(&mut self) {
        let (files, (place, remove, open)) = (&self.server.files, self.removal);
        files.removal_ended(place, remove, Some(open), self.outcome);
        self.server.removals.notify_waiters();
    }
}

impl<V: Vfs> Removal<'_, V> {
    /// Removes the name of an object whose last handle is closed and which is marked for deletion, at the open's
    /// present path, and reports to the engine how that ended. A directory that is not empty stays, without an error
    /// ([MS-FSA] 2.1.5.5).
    ///
    /// # Errors
    /// A name that may still exist, because somebody moved it on the host, is not reported as removed.
    async fn run(
        &self,
        place: &Place,
        remove: &Remove,
        open: OpenId,
    ) -> Result<Option<Receipt>, VfsError> {
        let mut report = Report {
            server: self.server,
            removal: (place, remove, open),
            outcome: Err(VfsError::Io),
        };
        let kept = self.kept_change(remove).await;
        let removed = self.carry_out(remove, open, &mut report.outcome).await;
        let mut archived = Ok(());
        if report.outcome != Ok(true) {
            report.outcome = removed
                .as_ref()
                .map_or_else(|error| Err(*error), |_| Ok(false));
        } else if matches!(remove, Remove::Link(_))
            && self.server.files.is_without_archive(place.key)
        {
            let (server, share) = (self.server, self.share);
            archived = Box::pin(archive::set_of_others(server, share, self.node, self.flags)).await;
        }
        if let Some(before) = kept
            && let Ok(attr) = self.share.vfs.attr(self.node).await
        {
            self.server.change_times.remember(&attr, before);
        }
        archived.and(removed)
    }

    /// The change time that the removal of one of several names leaves as it is ([MS-FSA] 2.1.5.5, phase 10).
    async fn kept_change(&self, remove: &Remove) -> Option<Timestamp> {
        let (true, Remove::Link(_)) = (self.keeps_change, remove) else {
            return None;
        };
        let mut attr = self.share.vfs.attr(self.node).await.ok()?;
        self.server.change_times.apply(&mut attr);
        (attr.links > 1).then_some(attr.changed)
    }

    /// Sets the outcome if the name is gone, which it may be although its removal is not stable.
    async fn carry_out(
        &self,
        remove: &Remove,
        open: OpenId,
        outcome: &mut Result<bool, VfsError>,
    ) -> Result<Option<Receipt>, VfsError> {
        let server = self.server;
        let Some(path) = server.files.leaving(open) else {
            return Ok(None);
        };
        let Remove::Link(link) = remove else {
            let begun = self.share.gate.begin(self.node);
            self.share.vfs.remove_stream(self.who, self.node).await?;
            *outcome = Ok(true);
            let name = self.node.stream().unwrap_or_default();
            let (action, filter) = (Change::REMOVED_STREAM, NotifyFilter::STREAM_NAME);
            let removed = notices::change_of_stream(path, self.directory, name, action, filter);
            notices::report(server, &[removed]);
            return begun.stream_removed(self.node, self.flags).await.map(Some);
        };
        let now = || server.files.leaving(open).unwrap_or_else(|| path.clone());
        let mut tried = self.attempt(&path, link, &Cell::new(None)).await;
        if let Err(error) = &tried
            && !matches!(error, VfsError::NotEmpty)
            && (is_elsewhere(error) || !now().same(&path))
        {
            // A directory above may have moved since the path was read, or may be moving now: ask the disk first.
            tried = self.attempt_in_turn(path.share, link, now).await;
        }
        match tried {
            Ok(marked) => {
                *outcome = Ok(true);
                marked.map(Some)
            }
            Err(VfsError::NotEmpty) => Ok(None),
            Err(error) if is_absent(&error) && self.is_gone(open).await => {
                *outcome = Ok(true);
                let gone = (self.share.gate).removed_beside(self.node, link.parent, self.flags);
                gone.await.map(Some)
            }
            Err(error) => {
                let due = share_line_due(server, LineAbout::NameStays, self.share.id);
                if let Some(left_out) = due {
                    let (share, path) = (&self.share.config.name, now().text());
                    tracing::warn!(
                        %error, share, path, left_out,
                        "a name that the last close should have removed stays"
                    );
                }
                Err(error)
            }
        }
    }

    /// As [`Removal::attempt`] at the path `now`, between the renames of the share, which wait for it no longer than
    /// [`STILL_MAX`].
    async fn attempt_in_turn(
        &self,
        share: ShareId,
        link: &Link,
        now: impl Fn() -> SharePath,
    ) -> Result<Result<Receipt, VfsError>, VfsError> {
        let env = &*self.server.env;
        let still = Cell::new(self.server.name_turns.still(share, env).await);
        let path = now();
        let attempt = pin!(self.attempt(&path, link, &still));
        with_patience(attempt, env.sleep(STILL_MAX), || drop(still.take())).await
    }

    /// Removes the name at `path`, if it is the open's `link`. The outer error means that the name still exists or was
    /// not found; the inner result is the gate's for a name that was removed.
    async fn attempt(
        &self,
        path: &SharePath,
        link: &Link,
        still: &Cell<Option<Still>>,
    ) -> Result<Result<Receipt, VfsError>, VfsError> {
        let (server, node, who) = (self.server, self.node, self.who);
        let (vfs, gate) = (&self.share.vfs, &self.share.gate);
        let names = path.to_names();
        // The removal checks under its lock that the name still leads to the node.
        let (file, parent) = match node.stream() {
            None => (node.clone(), vfs.lookup_parent(who, &names).await?),
            Some(_) => {
                let lookup = vfs.lookup(who, &names).await?;
                let same = |file: &V::Node| file.key() == node.key();
                let found = lookup.found.map(|(file, _)| file).filter(same);
                (found.ok_or(VfsError::NotFound)?, lookup.parent)
            }
        };
        let (Some(parent), Some(name)) = (&parent, names.last()) else {
            return Err(VfsError::NotFound);
        };
        // [MS-FSA] 2.1.5.5 removes Open.Link. Another share may have moved that, and another link to the file have got
        // its former path since.
        if Link::new(parent.key(), name) != *link {
            return Err(VfsError::NotFound);
        }
        let begun = gate.begin_removal(&file, parent).await?;
        let removed = vfs.remove(who, &file, parent, name).await?;
        drop(still.take());
        let filter = notices::name_filter(file.is_directory());
        let gone = notices::change(path.clone(), Some(parent.key()), Change::REMOVED, filter);
        notices::report(server, &[gone]);
        let after = server.files.entries_changed(parent.key(), self.spared);
        perform(server, after);
        Ok(begun.removed(&file, removed, self.flags).await)
    }

    /// Whether the name that the close of `open` was to remove is gone although no removal has found it: a rename or
    /// link has given it to another file, or the file has no names any more.
    async fn is_gone(&self, open: OpenId) -> bool {
        let (files, node) = (&self.server.files, self.node);
        !files.is_removed_by(node.key(), open) || matches!(self.share.vfs.links(node).await, Ok(0))
    }
}

#[cfg(test)]
#[path = "close_tests.rs"]
mod tests;
