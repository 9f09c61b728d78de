//! Persistent opens ([MS-SMB2] 3.3.1.10 Open.IsPersistent): recorded so that a server that was killed gives its
//! clients their handles, leases and locks back.
//!
//! Owns the list of opens that are recorded and the leases they are under. A record is the whole state of an open or
//! lease in the file engine; it is read and given to the store under one lock, so that the order on disk is the order
//! of the changes. A request that changes an open calls [`Persistence::changed`] after the engine has changed and
//! before the client gets its answer, and waits for the task. The loss of a lease is recorded before the notification
//! leaves, and the request that caused it waits as well ([`Persistence::caching_recorded`]): otherwise a client could
//! reconnect to caching that it should have lost by a change that was already acknowledged to another client. If the
//! loss cannot be recorded, the request proceeds, but the record that this run sees host changes is withdrawn
//! ([`Persistence::missed`]), so that a restart trusts no cached state.
//!
//! Bounds: a user who has as many recorded opens as may be disconnected, or [`OWNER_BYTES_MAX`] of records, gets no
//! more; so every recorded open can wait, and no user fills the store.
//!
//! This module does not decide how records are stored (a [`HandleStore`]), who may have a persistent open and how its
//! client reconnects (`command::create`), and the opens that wait for their clients (`state::durable`).

mod own_changes;
pub(crate) mod record;
mod table;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, MutexGuard, OnceLock, RwLockReadGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use durability::{LogMap, MapChange, MapCounts, StoreTask};
use smb_wire::{
    dtyp::Sid,
    ids::{Guid, LeaseKey},
};
use vfs::{Disk, FileKey, Timestamp, VfsError};

pub use self::own_changes::Announce;
use self::{
    own_changes::OwnChanges,
    table::{Inner, Recorded, Rename},
};
pub(crate) use self::{
    record::{LOCKS_MAX, OpenRecord},
    table::{OWNER_BYTES_MAX, put_lease},
};
use crate::{
    file::{Files, OpenId, Owner, Place, SavedLease, SharePath},
    limits::ServerLimits,
    locks::{Mutex, RwLock},
};

/// The leases of recorded opens.
pub(crate) type Leases = BTreeMap<(Guid, LeaseKey), SavedLease>;

/// The store in which persistent opens are recorded.
pub trait HandleStore: Send + Sync {
    /// Makes changes, all or none, in the order of the calls; see [`LogMap::change`].
    fn change(&self, changes: Vec<MapChange>) -> StoreTask;

    /// The last write succeeded.
    fn is_healthy(&self) -> bool;

    /// The numbers of records and operations of the store.
    fn counts(&self) -> MapCounts;
}

impl<D: Disk> HandleStore for LogMap<D> {
    fn change(&self, changes: Vec<MapChange>) -> StoreTask {
        Self::change(self, changes)
    }

    fn is_healthy(&self) -> bool {
        Self::is_healthy(self)
    }

    fn counts(&self) -> MapCounts {
        Self::counts(self)
    }
}

/// The recorded opens. Without a store nothing is recorded, and no open is persistent.
#[derive(Default)]
pub(crate) struct Persistence {
    store: OnceLock<Arc<dyn HandleStore>>,
    inner: Mutex<Inner>,
    /// Opens of an earlier run on shares that cannot be served yet, and their leases.
    pub(crate) late: Mutex<(Vec<OpenRecord>, Leases)>,
    /// How many of those are being restored: they are no longer in `late` and not yet in the tables.
    pub(crate) coming: AtomicUsize,
    /// Records for the next run how long this run saw all changes.
    own: OwnChanges,
    /// The last time at which the previous run still saw every change of the files.
    pub(crate) seen_until: OnceLock<Timestamp>,
    /// The number of recorded opens that could not be checked and stay in the store, and of losses of caching that the
    /// store will never record.
    pub(crate) unknown: AtomicUsize,
    /// How often lost caching could not be recorded, and how many of these losses were recorded since.
    missed: AtomicU64,
    made_up: AtomicU64,
    /// The number of recorded opens, readable without the lock.
    count: AtomicUsize,
    /// Changes of caching that are being stored.
    being_recorded: Arc<AtomicUsize>,
    /// Locked for reading from before the engine takes caching away until that is counted in `being_recorded`.
    breaking: RwLock<()>,
}

impl Persistence {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Sets the store, so that opens can become persistent. To be called once, before a client can ask for one.
    pub(crate) fn keep_in(&self, store: Arc<dyn HandleStore>) {
        // A second store is not expected and is ignored.
        let _ = self.store.set(store);
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn HandleStore>> {
        self.store.get()
    }

    /// How many opens are recorded.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// The records, without a lock if there are none.
    fn recorded(&self) -> Option<MutexGuard<'_, Inner>> {
        (self.len() != 0).then(|| self.lock())
    }

    /// Whether one more open of this owner may be persistent.
    pub(crate) fn has_room(&self, owner: Sid, limits: &ServerLimits) -> bool {
        let (late, late_all) = {
            let late = &self.late.lock().0;
            let mine = late.iter().filter(|record| record.owner == owner);
            (mine.count(), late.len())
        };
        // Opens that are being restored count for every owner, because theirs is not known here.
        let coming = self.coming.load(Ordering::SeqCst);
        let (late, late_all) = (late + coming, late_all + coming);
        let inner = self.lock();
        let usage = inner.usage(owner);
        inner.opens.len() + late_all < limits.disconnected_opens
            && usage.opens + late < limits.disconnected_opens_per_user
            && usage.bytes < OWNER_BYTES_MAX
    }

    /// Records an open as persistent; `record` has the facts that the engine does not know. `None` without a store. If
    /// the task fails, the open is not persistent, and the caller must call [`Persistence::end`].
    pub(crate) fn begin(
        &self,
        files: &Files,
        open: OpenId,
        place: &Place,
        record: OpenRecord,
    ) -> Option<StoreTask> {
        let store = self.store.get()?;
        let mut inner = self.lock();
        inner.enter(open, place, record);
        if let Some(path) = files.path_of(open) {
            inner.meets_renames(files, open, &path);
        }
        self.publish(&inner);
        let changes = inner.describe(files, open);
        Some(store.change(changes))
    }

    /// Takes over an open that was recorded in an earlier run and is restored.
    pub(crate) fn again(&self, open: OpenId, place: &Place, record: OpenRecord) {
        let mut inner = self.lock();
        inner.enter(open, place, record);
        self.publish(&inner);
    }

    /// Called when the locks, the disposition or the caching of an open changed. `None` if it is not recorded. If its
    /// owner may not record more locks, the result is `Exhausted`: the caller must undo the locks and call this again.
    pub(crate) fn changed(&self, files: &Files, open: OpenId) -> Option<StoreTask> {
        let mut inner = self.recorded()?;
        let store = self.store.get()?;
        let recorded = inner.opens.get(&open)?;
        let (before, owner) = (recorded.record.engine.locks.len(), recorded.record.owner);
        let changes = inner.describe(files, open);
        let recorded = inner.opens.get(&open)?;
        if recorded.record.engine.locks.len() > before && inner.is_over(owner) {
            return Some(exhausted());
        }
        Some(store.change(changes))
    }

    /// Called when the name or the deletion mark of an inode changed, for all its opens.
    pub(crate) fn inode_changed(&self, files: &Files, key: FileKey) -> Option<StoreTask> {
        let mut inner = self.recorded()?;
        let store = self.store.get()?;
        let opens = inner.by_inode.get(&key)?.clone();
        let mut last = None;
        for open in opens {
            // Each open is stored by itself, because together they may exceed what the store takes at once. The last
            // one is stored after the others.
            let changes = inner.describe(files, open);
            last = Some(store.change(changes));
        }
        last
    }

    /// Whether the record of an open has two names of its stream, of a rename that did not become stable.
    pub(crate) fn has_two_streams(&self, open: OpenId) -> bool {
        let inner = self.recorded();
        let recorded = inner.as_ref().and_then(|inner| inner.opens.get(&open));
        recorded.is_some_and(|recorded| recorded.record.stream_to.is_some())
    }

    /// Records the name of an open's stream, and the one that a rename is about to give it, if any. `None` if the open
    /// is not recorded. Before a rename the present name must be stable, because no other is recorded beside the new one.
    pub(crate) fn stream_named(
        &self,
        files: &Files,
        open: OpenId,
        (name, to): (Option<&str>, Option<&str>),
    ) -> Option<StoreTask> {
        let mut inner = self.recorded()?;
        let owner = inner.opens.get(&open)?.record.owner;
        if to.is_some() && inner.is_over(owner) {
            return Some(exhausted());
        }
        let record = &mut inner.opens.get_mut(&open)?.record;
        record.stream = name.map(str::to_owned);
        record.stream_to = to.map(str::to_owned);
        drop(inner);
        self.changed(files, open)
    }

    /// Called when the engine has the stream of an open under its new name. The record keeps both names.
    pub(crate) fn stream_follows(&self, open: OpenId, place: &Place) {
        if let Some(mut inner) = self.recorded()
            && let Some(recorded) = inner.opens.get_mut(&open)
        {
            recorded.place.clone_from(place);
        }
    }

    /// Called before [`Persistence::moving`], so that an open which is recorded after that and before the end of the
    /// rename gets both names as well. Ends with [`Persistence::moved`] or [`Persistence::left`].
    pub(crate) fn renaming(
        &self,
        files: &Files,
        key: FileKey,
        rename: OpenId,
        [from, to]: [&SharePath; 2],
    ) {
        if self.store.get().is_some() {
            let of = Rename {
                key,
                from: from.clone(),
                to: to.clone(),
                below: Vec::new(),
            };
            self.lock().announce(files, rename, of);
        }
    }

    /// The recorded opens below a directory that met its rename.
    pub(crate) fn met(&self, rename: OpenId) -> Vec<OpenId> {
        let inner = self.lock();
        let known = inner.renames.get(&rename);
        known.map(|known| known.below.clone()).unwrap_or_default()
    }

    /// Whether an open of the object that is renamed is recorded, or one below it that met the rename.
    pub(crate) fn is_met(&self, rename: OpenId, key: FileKey) -> bool {
        let inner = self.lock();
        let known = inner.renames.get(&rename);
        inner.by_inode.contains_key(&key) || known.is_some_and(|known| !known.below.is_empty())
    }

    /// Called when the request of a rename is over. Opens that have both names in their records keep them if
    /// [`Persistence::moved`] was not called.
    pub(crate) fn left(&self, rename: OpenId) {
        if self.store.get().is_some() {
            self.lock().renames.remove(&rename);
        }
    }

    /// Called before a rename gives an inode another name. Earlier records of this rename's new name no longer count;
    /// those of other renames stay. `None` if no open of the inode is recorded.
    pub(crate) fn moving(
        &self,
        files: &Files,
        key: FileKey,
        rename: OpenId,
        to: &SharePath,
    ) -> Option<StoreTask> {
        let mut inner = self.recorded()?;
        let opens = inner.by_inode.get(&key)?.clone();
        let mut records = opens.iter().filter_map(|open| inner.opens.get(open));
        let full = |one: &Recorded| inner.is_over(one.record.owner) || !one.has_room_for(rename);
        if records.any(full) {
            return Some(exhausted());
        }
        for open in opens {
            if let Some(recorded) = inner.opens.get_mut(&open) {
                let path = files.path_of(open);
                let from = path
                    .as_ref()
                    .map_or_else(|| recorded.record.path.clone(), SharePath::to_names);
                // The new name as the share of the open shows it; if it does not, only the old name leads to the file.
                let to = path.and_then(|path| files.path_in(path.share, to));
                let to = to.map_or_else(|| from.clone(), |to| to.to_names());
                recorded.moving.insert(rename, [from, to]);
            }
        }
        drop(inner);
        self.inode_changed(files, key)
    }

    /// Called when the rename is over, whether or not it succeeded, and the engine's paths have followed. `None` if it
    /// had recorded nothing and no open of the inode was recorded by its old name meanwhile.
    pub(crate) fn moved(&self, files: &Files, key: FileKey, rename: OpenId) -> Option<StoreTask> {
        if self.store.get().is_some() {
            self.lock().rename_over(rename);
        }
        let mut inner = self.recorded()?;
        let opens = inner.by_inode.get(&key)?.clone();
        let mut any = false;
        for open in opens {
            if let Some(recorded) = inner.opens.get_mut(&open) {
                any |= recorded.moving.remove(&rename).is_some();
                let path = files.path_of(open);
                any |= path.is_some_and(|path| path.to_names() != recorded.record.path);
            }
        }
        drop(inner);
        any.then(|| self.inode_changed(files, key))?
    }

    /// Called when an oplock or lease changed without a request of its opens. The task need not be awaited if
    /// [`Persistence::caching_recorded`] is awaited later. If it fails, [`Persistence::missed`] must be called before
    /// the count is given back.
    pub(crate) fn caching_changed(
        &self,
        files: &Files,
        owner: Owner,
    ) -> Option<(StoreTask, BeingRecorded)> {
        let mut inner = self.recorded()?;
        let store = self.store.get()?;
        let open = match owner {
            Owner::Oplock(open) => inner.opens.contains_key(&open).then_some(open),
            Owner::Lease(client, key) => {
                let opens = inner.leases.get(&(client, key));
                opens.and_then(|opens| opens.first().copied())
            }
        }?;
        let changes = inner.describe(files, open);
        let task = store.change(changes);
        let being_recorded = Arc::clone(&self.being_recorded);
        being_recorded.fetch_add(1, Ordering::SeqCst);
        Some((task, BeingRecorded(being_recorded)))
    }

    /// Called when lost caching could not be recorded: until it is, a restart must trust no caching.
    pub(crate) async fn missed(&self, error: VfsError) {
        match error {
            // The store refused it, so it will not be written later either.
            VfsError::Exhausted => _ = self.unknown.fetch_add(1, Ordering::SeqCst),
            _ => _ = self.missed.fetch_add(1, Ordering::SeqCst),
        }
        self.own.take_back().await;
    }

    /// See [`crate::Server::sees_all_changes`].
    pub(crate) fn sees_all_changes(&self) -> bool {
        // The order matters: opens that leave `late` are counted as coming first, and an open that could not be
        // restored is counted before it stops coming.
        let late = !self.late.lock().0.is_empty() || self.coming.load(Ordering::SeqCst) > 0;
        !late && self.unknown.load(Ordering::SeqCst) == 0 && self.is_recorded()
    }

    /// Whether the store is healthy and has all losses of caching.
    fn is_recorded(&self) -> bool {
        self.missed.load(Ordering::SeqCst) == self.made_up.load(Ordering::SeqCst)
            && self.store.get().is_none_or(|store| store.is_healthy())
    }

    /// Checks whether losses that could not be recorded are stored by now, because the store keeps trying.
    pub(crate) async fn make_up(&self) {
        let missed = self.missed.load(Ordering::SeqCst);
        if missed != self.made_up.load(Ordering::SeqCst)
            && let Some(store) = self.store.get()
            // An empty change is stored after all earlier ones.
            && store.change(Vec::new()).await.is_ok()
        {
            self.made_up.fetch_max(missed, Ordering::SeqCst);
        }
    }

    /// Held from before the engine is called for something that may take caching away until the loss was given to the
    /// store ([`Persistence::caching_changed`]), so that a request that sees the loss also waits for its record.
    /// Nothing may be awaited while it is held.
    pub(crate) fn breaking(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.len() > 0).then(|| self.breaking.read())
    }

    /// Waits until every change of caching so far is stored, or is known not to be (the store reports its error
    /// itself). Returns at once if no change is being stored.
    pub(crate) async fn caching_recorded(&self) {
        if self.len() == 0 {
            return;
        }
        // Now every request that has taken caching away in the engine has counted it.
        drop(self.breaking.write());
        if self.being_recorded.load(Ordering::SeqCst) > 0
            && let Some(store) = self.store.get()
        {
            // An empty change is stored after all earlier ones.
            if let Err(error) = store.change(Vec::new()).await {
                self.missed(error).await;
            }
        }
    }

    /// Whether there are recorded opens of the file.
    pub(crate) fn has_opens_at(&self, place: &Place) -> bool {
        self.len() > 0 && self.lock().by_inode.contains_key(&place.key)
    }

    /// Whether a recorded open of this file or stream is selected by `which`.
    pub(crate) fn any_at(&self, place: &Place, which: impl Fn(OpenId) -> bool) -> bool {
        let Some(inner) = self.recorded() else {
            return false;
        };
        let mut here: Vec<OpenId> = Vec::new();
        for open in inner.by_inode.get(&place.key).into_iter().flatten() {
            let recorded = inner.opens.get(open);
            if recorded.is_some_and(|recorded| recorded.place.stream == place.stream) {
                here.push(*open);
            }
        }
        // The lock is released first, because `which` may ask another table of the server.
        drop(inner);
        here.into_iter().any(which)
    }

    /// Removes the record of an open that is closed or is not persistent after all. `None` if it is not recorded.
    pub(crate) fn end(&self, open: OpenId) -> Option<StoreTask> {
        let mut inner = self.recorded()?;
        let store = self.store.get()?;
        let changes = inner.leave(open)?;
        self.publish(&inner);
        Some(store.change(changes))
    }

    fn publish(&self, inner: &Inner) {
        self.count.store(inner.opens.len(), Ordering::SeqCst);
    }
}

fn exhausted() -> StoreTask {
    Box::pin(std::future::ready(Err(VfsError::Exhausted)))
}

/// Counts a change of caching that is being stored, until it is dropped.
pub(crate) struct BeingRecorded(Arc<AtomicUsize>);

impl Drop for BeingRecorded {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
