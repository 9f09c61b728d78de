//! Opens that outlive their connection ([MS-SMB2] 3.3.1.10, 3.3.2.2, 3.3.2.4): the server's tables of them, besides
//! the sessions.
//!
//! Owns four tables: the opens that a client can reconnect to, by Open.DurableFileId; the disconnected opens
//! (Open.Session is NULL) with the time that each may wait for its client; the CREATEs that can be replayed by
//! their CreateGuid; and the opens of application instances. Their meaning, and everything that has to wait, is in
//! `state::disconnected`.
//!
//! Invariants: a disconnected open is in no session's table, and no request runs on it any more, or the last ones
//! are about to end; exactly one request takes it out of the table and then owns it (a reconnect, the scavenger, a
//! break, an application instance); facts that were read without the lock are checked again after that. The lock is
//! one of the server's maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use smb_wire::ids::Guid;
use tokio::sync::oneshot;
use vfs::Vfs;

use super::{Endurance, Open, QuotaUser};
use crate::{file::OpenId, limits::ServerLimits, locks::Mutex};

/// The CREATE that a CreateGuid stands for.
pub(crate) enum Known<V: Vfs> {
    /// The CreateGuid was unknown; from now on it stands for a CREATE that is under way.
    First,
    /// A CREATE that has not been answered.
    UnderWay,
    /// This open.
    Made(Arc<Open<V>>),
}

struct Kept<V: Vfs> {
    open: Arc<Open<V>>,
    /// The user whose open it counts as.
    user: QuotaUser,
    /// The time at which it has waited long enough, by the environment's clock.
    until: Duration,
}

/// An open that endures, or has a CreateGuid.
struct Found<V: Vfs> {
    open: Weak<Open<V>>,
    /// Requests that wait until it is disconnected, or closed: their channels are dropped then.
    leaving: Vec<oneshot::Sender<()>>,
}

struct Inner<V: Vfs> {
    /// By Open.DurableFileId.
    found: BTreeMap<u64, Found<V>>,
    /// By Open.DurableFileId.
    kept: BTreeMap<u64, Kept<V>>,
    /// The ids of disconnected opens, by the engine's number.
    numbers: BTreeMap<OpenId, u64>,
    /// The persistent ones among them, by Open.CreateGuid and Open.ClientGuid. Two clients may have chosen the same.
    persistent: BTreeSet<(Guid, Guid, u64)>,
    per_user: BTreeMap<QuotaUser, usize>,
    /// When the next scavenger runs.
    wakes: Option<Duration>,
    /// By Open.CreateGuid and Open.ClientGuid.
    creates: BTreeMap<(Guid, Guid), Weak<Open<V>>>,
    /// The CREATEs that have not been answered, by the same key. An open that cannot be replayed any more may have the
    /// CreateGuid of such a CREATE, and keeps it if that fails.
    under_way: BTreeSet<(Guid, Guid)>,
    /// By Open.AppInstanceId and the engine's number.
    instances: BTreeMap<Guid, BTreeMap<OpenId, Weak<Open<V>>>>,
    /// The server is stopping, so no more opens are kept.
    stopping: bool,
}

pub(crate) struct Durables<V: Vfs> {
    inner: Mutex<Inner<V>>,
    /// The number of disconnected opens, readable without the lock.
    count: AtomicUsize,
}

impl<V: Vfs> Default for Durables<V> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                found: BTreeMap::new(),
                kept: BTreeMap::new(),
                numbers: BTreeMap::new(),
                persistent: BTreeSet::new(),
                per_user: BTreeMap::new(),
                wakes: None,
                creates: BTreeMap::new(),
                under_way: BTreeSet::new(),
                instances: BTreeMap::new(),
                stopping: false,
            }),
            count: AtomicUsize::new(0),
        }
    }
}

/// The result of disconnecting an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It waits, and a scavenger will run in time.
    Done,
    /// It waits, and the caller must start a scavenger that runs at this time.
    Wake(Duration),
    /// There are too many, or the server is stopping: the open must be closed.
    Refused,
}

impl<V: Vfs> Inner<V> {
    fn remove(&mut self, id: u64) -> Option<Arc<Open<V>>> {
        let kept = self.kept.remove(&id)?;
        self.numbers.remove(&kept.open.engine);
        self.persistent.remove(&persistent_key(&kept.open));
        if let Some(count) = self.per_user.get_mut(&kept.user) {
            *count -= 1;
            if *count == 0 {
                self.per_user.remove(&kept.user);
            }
        }
        Some(kept.open)
    }
}

fn persistent_key<V: Vfs>(open: &Open<V>) -> (Guid, Guid, u64) {
    let origin = &open.origin;
    (origin.create_guid, origin.client, open.file_id.persistent)
}

impl<V: Vfs> Durables<V> {
    fn publish(&self, inner: &Inner<V>) {
        self.count.store(inner.kept.len(), Ordering::SeqCst);
    }

    /// How many opens wait for their clients.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Enters an open that has lost its session; it waits until `until`.
    pub(crate) fn keep(
        &self,
        open: &Arc<Open<V>>,
        until: Duration,
        limits: &ServerLimits,
    ) -> Keeping {
        let persistent = open.endurance().is_persistent();
        let user = open.counts_as();
        let mut inner = self.inner.lock();
        let mine = inner.per_user.get(&user).copied().unwrap_or(0);
        let full = inner.kept.len() >= limits.disconnected_opens
            || mine >= limits.disconnected_opens_per_user;
        // A persistent open may always wait, because it was counted when it became persistent
        // (`Persistence::has_room`).
        if !persistent && (inner.stopping || full) {
            return Keeping::Refused;
        }
        let (id, open) = (open.file_id.persistent, Arc::clone(open));
        inner.numbers.insert(open.engine, id);
        if persistent {
            inner.persistent.insert(persistent_key(&open));
        }
        *inner.per_user.entry(user).or_default() += 1;
        if let Some(found) = inner.found.get_mut(&id) {
            found.leaving.clear();
        }
        inner.kept.insert(id, Kept { open, user, until });
        self.publish(&inner);
        if inner.wakes.is_some_and(|at| at <= until) {
            return Keeping::Done;
        }
        inner.wakes = Some(until);
        Keeping::Wake(until)
    }

    /// The time at which a scavenger must run, if any open waits.
    pub(crate) fn wakes(&self) -> Option<Duration> {
        self.inner.lock().wakes
    }

    /// A disconnected persistent open, by Open.CreateGuid: the client's own, even if another has chosen the same, and
    /// otherwise another's, as [MS-SMB2] 3.3.5.9.12 does not look at the ClientGuid.
    pub(crate) fn find_persistent(&self, client: Guid, create: Guid) -> Option<Arc<Open<V>>> {
        let inner = self.inner.lock();
        let from = |client: Guid| {
            let first = inner.persistent.range((create, client, 0)..).next();
            first.filter(|(same, ..)| *same == create)
        };
        let own = from(client).filter(|(_, of, _)| *of == client);
        let (.., id) = own.or_else(|| from(Guid::default()))?;
        Some(Arc::clone(&inner.kept.get(id)?.open))
    }

    /// An open, by its client and Open.CreateGuid, whether it is disconnected or not.
    pub(crate) fn made_by(&self, client: Guid, create: Guid) -> Option<Arc<Open<V>>> {
        self.inner.lock().creates.get(&(create, client))?.upgrade()
    }

    /// Opens of other clients with this Open.CreateGuid, whether they are kept or not.
    pub(crate) fn made_elsewhere(&self, client: Guid, create: Guid) -> Vec<Arc<Open<V>>> {
        let inner = self.inner.lock();
        let same = inner.creates.range((create, Guid::default())..);
        same.take_while(|((guid, _), _)| *guid == create)
            .filter(|((_, of), _)| *of != client)
            .filter_map(|(_, made)| made.upgrade())
            .collect()
    }

    /// An open that a client can reconnect to, by Open.DurableFileId, whether it is disconnected or not.
    pub(crate) fn made_as(&self, id: u64) -> Option<Arc<Open<V>>> {
        self.inner.lock().found.get(&id)?.open.upgrade()
    }

    /// A receiver that completes when this open is disconnected or closed. `None` if it already is.
    pub(crate) fn leaving(&self, open: &Open<V>) -> Option<oneshot::Receiver<()>> {
        let id = open.file_id.persistent;
        let mut inner = self.inner.lock();
        if inner.kept.contains_key(&id) {
            return None;
        }
        let found = inner.found.get_mut(&id)?;
        if !std::ptr::eq(found.open.as_ptr(), open) {
            return None;
        }
        // Requests that no longer wait are removed.
        found.leaving.retain(|left| !left.is_closed());
        let (left, leaves) = oneshot::channel();
        found.leaving.push(left);
        Some(leaves)
    }

    /// A disconnected open, by Open.DurableFileId. It may be gone the next moment.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Open<V>>> {
        Some(Arc::clone(&self.inner.lock().kept.get(&id)?.open))
    }

    /// All disconnected opens. They may be gone the next moment.
    pub(crate) fn all(&self) -> Vec<Arc<Open<V>>> {
        if self.len() == 0 {
            return Vec::new();
        }
        let inner = self.inner.lock();
        let kept = inner.kept.values();
        kept.map(|kept| Arc::clone(&kept.open)).collect()
    }

    /// Takes a disconnected open out of the table: exactly one caller gets it.
    pub(crate) fn take(&self, id: u64) -> Option<Arc<Open<V>>> {
        let mut inner = self.inner.lock();
        let open = inner.remove(id);
        self.publish(&inner);
        open
    }

    /// Whether the open with the engine's number `open` waits for its client.
    pub(crate) fn is_kept(&self, open: OpenId) -> bool {
        self.len() > 0 && self.inner.lock().numbers.contains_key(&open)
    }

    /// The open with the engine's number `open`, if it waits.
    pub(crate) fn kept(&self, open: OpenId) -> Option<Arc<Open<V>>> {
        let inner = self.inner.lock();
        let id = inner.numbers.get(&open)?;
        Some(Arc::clone(&inner.kept.get(id)?.open))
    }

    /// Takes out those of `opens` that wait and are selected by `which`.
    pub(crate) fn take_of(
        &self,
        opens: &[OpenId],
        which: impl Fn(&Open<V>) -> bool,
    ) -> Vec<Arc<Open<V>>> {
        if self.len() == 0 {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let ids: Vec<u64> = opens
            .iter()
            .filter_map(|open| inner.numbers.get(open).copied())
            .filter(|id| inner.kept.get(id).is_some_and(|kept| which(&kept.open)))
            .collect();
        let taken = ids.into_iter().filter_map(|id| inner.remove(id)).collect();
        self.publish(&inner);
        taken
    }

    /// Takes out the opens that have waited long enough, and returns when to run again if this was the call that was
    /// due now.
    pub(crate) fn due(&self, now: Duration) -> (Vec<Arc<Open<V>>>, Option<Duration>) {
        let mut inner = self.inner.lock();
        if inner.wakes.is_none_or(|at| at > now) {
            return (Vec::new(), None);
        }
        let taken = self.take_if(&mut inner, |kept| kept.until <= now);
        inner.wakes = inner.kept.values().map(|kept| kept.until).min();
        (taken, inner.wakes)
    }

    /// Stops keeping opens, and returns those that wait to be closed, except those that `spared` selects.
    pub(crate) fn stop(&self, spared: impl Fn(&Open<V>) -> bool) -> Vec<Arc<Open<V>>> {
        let mut inner = self.inner.lock();
        inner.stopping = true;
        self.take_if(&mut inner, |kept| !spared(&kept.open))
    }

    fn take_if(&self, inner: &mut Inner<V>, which: impl Fn(&Kept<V>) -> bool) -> Vec<Arc<Open<V>>> {
        let chosen = inner.kept.iter().filter(|(_, kept)| which(kept));
        let ids: Vec<u64> = chosen.map(|(id, _)| *id).collect();
        let taken = ids.into_iter().filter_map(|id| inner.remove(id)).collect();
        self.publish(inner);
        taken
    }

    /// The CREATE that a client's CreateGuid stands for. An open that is closed, or that cannot be replayed any
    /// more (Open.IsReplayEligible), does not count.
    pub(crate) fn begin_create(&self, client: Guid, create: Guid) -> Known<V> {
        let mut inner = self.inner.lock();
        let name = (create, client);
        if inner.under_way.contains(&name) {
            return Known::UnderWay;
        }
        let made = inner.creates.get(&name).and_then(Weak::upgrade);
        if let Some(open) = made.filter(|open| open.is_replayable()) {
            return Known::Made(open);
        }
        inner.under_way.insert(name);
        Known::First
    }

    /// Called when a CREATE under way has made no open.
    pub(crate) fn create_failed(&self, client: Guid, create: Guid) {
        self.inner.lock().under_way.remove(&(create, client));
    }

    /// Enters an open that was just made or restored, so that it can be found by its CreateGuid, its application
    /// instance and Open.DurableFileId.
    pub(crate) fn made(&self, open: &Arc<Open<V>>) {
        let origin = &open.origin;
        let has_guid = origin.create_guid != Guid::default();
        if has_guid || open.endurance() != Endurance::None {
            self.endures(open);
        }
        if !has_guid && origin.app.is_none() {
            return;
        }
        let mut inner = self.inner.lock();
        if has_guid {
            let name = (origin.create_guid, origin.client);
            inner.under_way.remove(&name);
            inner.creates.insert(name, Arc::downgrade(open));
        }
        if let Some(app) = origin.app {
            let opens = inner.instances.entry(app.id).or_default();
            opens.insert(open.engine, Arc::downgrade(open));
        }
    }

    /// Enters the open with which a client continues after a reconnect, in the place of `old`. Entries that another
    /// open has by now stay: once a client has used an open, its CreateGuid may stand for another CREATE.
    pub(crate) fn renewed(&self, old: &Open<V>, open: &Arc<Open<V>>) {
        let (origin, new) = (&open.origin, Arc::downgrade(open));
        let is_old = |known: &Weak<Open<V>>| std::ptr::eq(known.as_ptr(), old);
        let mut inner = self.inner.lock();
        if let Some(found) = inner.found.get_mut(&open.file_id.persistent)
            && is_old(&found.open)
        {
            *found = Found {
                open: Weak::clone(&new),
                leaving: Vec::new(),
            };
        }
        if let Some(made) = inner.creates.get_mut(&(origin.create_guid, origin.client))
            && is_old(made)
        {
            *made = Weak::clone(&new);
        }
        if let Some(app) = origin.app
            && let Some(opens) = inner.instances.get_mut(&app.id)
            && let Some(one) = opens.get_mut(&open.engine)
            && is_old(one)
        {
            *one = new;
        }
    }

    /// Enters an open that a client can reconnect to from now on.
    pub(crate) fn endures(&self, open: &Arc<Open<V>>) {
        let found = Found {
            open: Arc::downgrade(open),
            leaving: Vec::new(),
        };
        let mut inner = self.inner.lock();
        inner.found.insert(open.file_id.persistent, found);
    }

    /// Removes a closed open.
    pub(crate) fn ended(&self, open: &Open<V>) {
        let origin = &open.origin;
        let has_guid = origin.create_guid != Guid::default();
        let endures = open.endurance() != Endurance::None;
        if !has_guid && origin.app.is_none() && !endures {
            return;
        }
        let is_it = |known: &Weak<Open<V>>| std::ptr::eq(known.as_ptr(), open);
        let mut inner = self.inner.lock();
        let id = open.file_id.persistent;
        if inner.found.get(&id).is_some_and(|found| is_it(&found.open)) {
            inner.found.remove(&id);
        }
        let name = (origin.create_guid, origin.client);
        if inner.creates.get(&name).is_some_and(is_it) {
            inner.creates.remove(&name);
        }
        if let Some(app) = origin.app
            && let Some(opens) = inner.instances.get_mut(&app.id)
        {
            if opens.get(&open.engine).is_some_and(is_it) {
                opens.remove(&open.engine);
            }
            if opens.is_empty() {
                inner.instances.remove(&app.id);
            }
        }
    }

    /// Those of `opens` that are of an application instance.
    pub(crate) fn of_instance(&self, app: Guid, opens: &[OpenId]) -> Vec<Arc<Open<V>>> {
        let inner = self.inner.lock();
        let Some(known) = inner.instances.get(&app) else {
            return Vec::new();
        };
        let known = opens.iter().filter_map(|open| known.get(open));
        known.filter_map(Weak::upgrade).collect()
    }

    /// Entries of the tables by Open.DurableFileId, by CreateGuid and by application instance.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let inner = self.inner.lock();
        [
            inner.found.len(),
            inner.creates.len() + inner.under_way.len(),
            inner.instances.len(),
        ]
    }
}

#[cfg(test)]
#[path = "durable_tests.rs"]
mod tests;
