//! After a restart: recorded opens become opens that wait for their clients ([MS-SMB2] 3.3.5.9.12), before the
//! first connection.
//!
//! A record is used only if everything it names exists: its share, still continuously available; its owner's
//! account; at its path the same inode, by number and generation. Other records are dropped, and the log says whose
//! handle on which file is lost and why. If an object could not be examined, its record stays in the store for the
//! next start, without its caching: until then other clients may open and cache the file.
//!
//! No check is repeated: the open was granted before. Its caching is given up if the file may have changed since
//! the last run saw host changes, or if the server cannot see changes from now on. A disk that does not answer within
//! [`ANSWER_MAX`] counts as one without usable answers: it delays the start, or a reload, once for each of its shares.

mod object;
mod refusal;

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use durability::{MapChange, MapEntry, Opener, StoreTask};
use smb_auth::UserIdentity;
use smb_wire::{
    ids::{FileId, Guid, LeaseKey, SessionId},
    msg::{CreateOptions, ShareAccess},
};
use vfs::{Node, Timestamp, Vfs, env::pause};

use self::{
    object::find,
    refusal::{Refusal, lost, unknown},
};
use crate::{
    file::{
        CacheRequest, Deleter, LeaseContext, LeaseState, Link, OpenId, OpenRequest, Place, Quick,
        SavedCache, SavedLease, SharePath, Waiter,
    },
    host_watch::Interest,
    locks::Mutex,
    persistent::{
        HandleStore, Leases, OpenRecord, put_lease,
        record::{self, Record, open_key},
    },
    race::{First, race},
    state::{
        AppInstance, At, Endurance, LeaseName, NewOpen, Open, OpenKind, Origin, QuotaUser, Server,
        Share, Shares, TreeConnect, breaks, disconnected,
    },
    token::Token,
};

/// The result of restoring the records of earlier runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Opens that wait for their clients.
    pub opens: usize,
    /// Opens that are lost; the log names each of them.
    pub lost: usize,
    /// Opens that could not be examined: the next start tries again.
    pub unknown: usize,
}

/// How long a disk may take to answer the queries for one record.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The most removals that are given to the store together.
const TOGETHER_MAX: usize = 1024;

impl<V: Vfs> Server<V> {
    /// Records persistent opens in `store` from now on, and restores those in `entries`. To be called once, before
    /// clients can reach a share with such opens; [`Server::watch_restored`] must follow.
    pub async fn keep_opens_in(
        self: &Arc<Self>,
        store: Arc<dyn HandleStore>,
        entries: Vec<MapEntry>,
    ) -> Restored {
        self.persistence.keep_in(Arc::clone(&store));
        let mut damaged = 0;
        let (mut opens, mut leases, mut gone) = (Vec::new(), Leases::new(), Vec::new());
        for entry in entries {
            let read = record::read(&entry.key, &entry.value);
            match read {
                Some(Record::Open(open)) if entry.doubtful => {
                    lost(&open, "its record comes before a damaged part of the store");
                    damaged += 1;
                }
                Some(Record::Open(open)) => opens.push(*open),
                Some(Record::Lease(name, kept)) if !entry.doubtful => {
                    leases.insert(name, kept);
                }
                Some(Record::Lease(..)) => {}
                None => {
                    tracing::error!(
                        "a record of a persistent handle cannot be understood: its client gets \
                         an error when it comes back"
                    );
                    damaged += 1;
                    gone.push(MapChange::Remove(entry.key));
                }
            }
        }
        let earlier = opens.iter().map(|open| open.id);
        self.ids.not_these(earlier.collect());
        let kept: Leases = opens
            .iter()
            .filter_map(|open| Some((open.client, open.lease?.0)))
            .filter_map(|name| Some((name, *leases.get(&name)?)))
            .collect();
        let unused = leases.keys().filter(|name| !kept.contains_key(name));
        gone.extend(
            unused.map(|(client, key)| MapChange::Remove(record::lease_key(*client, *key))),
        );
        forget(&*store, gone).await;
        *self.persistence.late.lock() = (opens, kept);
        let shares = self.shares();
        let mut restored = self.restore_late(&shares).await;
        restored.lost += damaged;
        restored
    }

    /// Sets the time until which the last run saw all changes of the files of recorded opens: their caching is valid if
    /// the file has not changed since. To be called before [`Server::keep_opens_in`]; without it, no caching
    /// at all is restored.
    pub fn seen_until(&self, at: Timestamp) {
        // A second one is not expected and is ignored.
        let _ = self.persistence.seen_until.set(at);
    }

    /// Restores the opens that waited for shares which are among `shares` now; opens on shares that are still late wait
    /// on. To be called before clients can reach these shares; [`Server::watch_restored`] must follow.
    pub async fn restore_late(self: &Arc<Self>, shares: &Shares<V>) -> Restored {
        let (waiting, leases) = {
            let mut late = self.persistence.late.lock();
            let coming = &self.persistence.coming;
            coming.fetch_add(late.0.len(), Ordering::SeqCst);
            std::mem::take(&mut *late)
        };
        let coming = waiting.len();
        let mut restored = Restored::default();
        let (mut late, mut gone, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut unseen, mut silent) = (Vec::new(), BTreeSet::new());
        for open in waiting {
            // There may be many, and after a reload this runs while clients are served.
            pause(&*self.env).await;
            if shares.is_late(&open.share) {
                late.push(open);
                continue;
            }
            let restored_now = match silent.contains(&open.share) {
                true => Err(Refusal::Silent),
                false => self.restore(&open, &leases, shares).await,
            };
            match restored_now {
                Ok(task) => {
                    restored.opens += 1;
                    changes.extend(task);
                }
                Err(Refusal::Gone(why)) => {
                    lost(&open, &why);
                    restored.lost += 1;
                    // Its lease is removed at the next start.
                    gone.push(MapChange::Remove(open_key(open.id)));
                }
                Err(refusal @ (Refusal::Unknown(_) | Refusal::Silent)) => {
                    let why = match &refusal {
                        Refusal::Unknown(why) => why,
                        _ => "its disk does not answer",
                    };
                    unknown(&open, why);
                    if matches!(refusal, Refusal::Silent) {
                        silent.insert(open.share.clone());
                    }
                    restored.unknown += 1;
                    self.persistence.unknown.fetch_add(1, Ordering::SeqCst);
                    unseen.push(open);
                }
            }
        }
        changes.extend(unseen.iter().filter_map(|open| self.leave(open, &leases)));
        if !late.is_empty() {
            *self.persistence.late.lock() = (late, leases);
        }
        if let Some(store) = self.persistence.store() {
            forget(&**store, gone).await;
        }
        for task in changes {
            if let Err(error) = task.await {
                self.persistence.missed(error).await;
            }
        }
        self.persistence.coming.fetch_sub(coming, Ordering::SeqCst);
        restored
    }

    /// Records that an open that could not be examined caches nothing, because until it is, others may open and cache
    /// its file. A lease that other opens have restored stays, because an open by others breaks it.
    fn leave(&self, record: &OpenRecord, leases: &Leases) -> Option<StoreTask> {
        if matches!(record.engine.cache, SavedCache::None) {
            return None;
        }
        let store = self.persistence.store()?;
        let inner = self.persistence.lock();
        let name = record.lease.map(|(key, _)| (record.client, key));
        let lease = name
            .filter(|name| !inner.leases.contains_key(name))
            .and_then(|name| Some((name, *leases.get(&name)?)));
        let (record, lease) = without_cache(record, lease);
        let mut changes = vec![MapChange::Put(open_key(record.id), record.encode())];
        changes.extend(lease.map(|((client, key), kept)| put_lease(client, key, kept)));
        Some(store.change(changes))
    }

    async fn restore(
        self: &Arc<Self>,
        record: &OpenRecord,
        leases: &Leases,
        shares: &Shares<V>,
    ) -> Result<Option<StoreTask>, Refusal> {
        let share = shares
            .find(&record.share)
            .filter(|share| share.config.continuous_availability)
            .ok_or("no continuously available share has this name now")?;
        let owner = Arc::new(self.owner_of(share, record)?);
        let lease = match (record.engine.cache, record.lease) {
            (SavedCache::Lease, Some((key, _))) => {
                let name = (record.client, key);
                let kept = leases.get(&name);
                Some((name, *kept.ok_or("the record of its lease is damaged")?))
            }
            _ => None,
        };
        let (lookup, node) = self.in_time(find(share, record)).await?;
        let engine = OpenId(self.fresh_id());
        let good = self.is_cache_good(share, record, &node, engine).await;
        let (record, lease) = match good {
            Ok(true) => (record.clone(), lease),
            Ok(false) => without_cache(record, lease),
            Err(error) => {
                self.host_watches.forget(engine);
                return Err(error);
            }
        };
        let request = OpenRequest {
            open: engine,
            place: Place::of(&node),
            link: Link::of(&lookup),
            path: SharePath::of(share.id, &lookup.path),
            directory: record.directory,
            access: record.engine.access,
            share: record.engine.share,
            effect: smb_wire::access_mask::AccessMask::empty(),
            delete_on_close: record.engine.delete_on_close,
            patient: true,
            client: record.client,
            cache: match record.lease {
                Some((lease_key, _)) => CacheRequest::Lease(LeaseContext {
                    lease_key,
                    ..LeaseContext::default()
                }),
                None => CacheRequest::None,
            },
            allocation: 0,
            waiter: Waiter::default(),
        };
        let named = lease.map(|((client, key), kept)| (client, key, kept));
        // Every change through a persistent open is write-through.
        let deleter = Deleter::new(&owner.identity, record.parent_lease, true);
        let Some(granted) = (self.files).put_back(&request, &record.engine, named, &deleter) else {
            self.host_watches.forget(engine);
            let why = "the file engine has no room for it".to_owned();
            return Err(Refusal::Unknown(why));
        };
        if let Some(broken) = self.files.break_in_flight(&request.place, engine) {
            breaks::restored(self, broken);
        }
        let lost_cache = matches!(good, Ok(false));
        self.again(share, record, node, &request, granted.quick, owner);
        // Another restart must not restore the caching that was given up.
        let record_again = || self.persistence.changed(&self.files, engine);
        Ok(lost_cache.then(record_again).flatten())
    }

    /// Whether the data that a recorded open cached are unchanged, and any change from now on would break the caching.
    /// The file is observed from here on.
    async fn is_cache_good(
        &self,
        share: &Share<V>,
        record: &OpenRecord,
        node: &V::Node,
        engine: OpenId,
    ) -> Result<bool, Refusal> {
        if matches!(record.engine.cache, SavedCache::None) {
            return Ok(true);
        }
        if record.directory {
            // The entries that its client caches may have changed without a trace at the directory itself.
            return Ok(false);
        }
        let interest = Interest::Caching { directory: false };
        let others = record.stream.is_none() && share.config.host_changes;
        let observing = async { Ok(self.observe_ahead(engine, node, interest).await.is_err()) };
        if others && self.in_time(observing).await? {
            return Ok(false);
        }
        // The time is checked even if no host changes are watched: our own clients may have changed the file after a
        // loss of caching that the last run could not record. The file is observed before that, so that no later change
        // is missed.
        let asking = async { Ok(share.vfs.attr(node).await?.changed) };
        let changed = self.in_time(asking).await?;
        let seen_until = self.persistence.seen_until.get();
        Ok(seen_until.is_some_and(|until| changed <= *until))
    }

    /// The answer of a disk, unless it takes too long. A query that is given up changes nothing.
    async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        match race(asking, self.env.sleep(ANSWER_MAX)).await {
            First::Left(said) => said,
            First::Right(()) => Err(Refusal::Silent),
        }
    }

    /// The present account of the owner. If it was removed, or another account has its name, the open is lost. On disk
    /// the owner acts as the share says, as when the file was opened.
    fn owner_of(&self, share: &Share<V>, record: &OpenRecord) -> Result<Token, Refusal> {
        let (config, users) = (self.config(), self.users());
        let user = users.find(&record.user).ok_or("its owner has no account")?;
        let identity = UserIdentity {
            name: user.name.clone(),
            domain: config.netbios_name.clone(),
            rid: user.rid,
            group_rids: user.group_rids.clone(),
            uid_gid: user.uid_gid,
        };
        let token = Token::user(&config, &identity, &*users);
        if token.user_sid != record.owner {
            return Err("its owner's account is another one now".into());
        }
        Ok(match share.config.act_as {
            Some(ids) => token.acting_as(&config, ids),
            None => token,
        })
    }

    /// Makes the open itself, which the engine has already.
    fn again(
        self: &Arc<Self>,
        share: &Arc<Share<V>>,
        mut record: OpenRecord,
        node: V::Node,
        request: &OpenRequest,
        quick: Quick,
        owner: Arc<Token>,
    ) {
        let opener = Opener {
            client: None,
            user: owner.user.as_str().into(),
            groups: Arc::clone(&owner.groups),
            dialect: smb_wire::msg::Dialect::SMB_3_0.0,
            path: request.path.to_names().join("/").into(),
            write_through: record.options.contains(CreateOptions::WRITE_THROUGH),
            unbuffered: record
                .options
                .contains(CreateOptions::NO_INTERMEDIATE_BUFFERING),
        };
        record.stream = node.stream().map(str::to_owned);
        let policy = share.gate.opened(&node, opener.into());
        let timeout = Duration::from_millis(record.timeout_ms.into());
        let open = Arc::new(Open::new(NewOpen {
            file_id: FileId {
                persistent: record.id,
                volatile: record.id,
            },
            // While the open is disconnected, only the share of this is used.
            tree: Arc::new(TreeConnect::of(Arc::clone(share))),
            granted: record.engine.access,
            options: record.options,
            kind: OpenKind::Disk {
                directory: record.directory,
                at: Mutex::new(At {
                    node,
                    place: request.place.clone(),
                }),
                quick,
            },
            user: owner.user.clone(),
            engine: request.open,
            channel_sequence: 0,
            parent_lease: record.parent_lease,
            policy: Some(policy),
            place: Some(self.opens.enter_again(QuotaUser::User(owner.user_sid))),
            origin: Origin {
                session: SessionId::default(),
                client: record.client,
                owner,
                create_guid: record.create_guid,
                lease: record.lease.map(|(key, v2)| LeaseName { key, v2 }),
                app: record.app.map(|(id, version)| AppInstance { id, version }),
                desired: record.desired,
                share: (record.engine.share).without(ShareAccess::READ.when(record.read_unasked)),
                action: record.action,
            },
            endurance: Endurance::Durable {
                timeout,
                persistent: true,
            },
        }));
        record.moving = Vec::new();
        record.stream_to = None;
        self.persistence.again(request.open, &request.place, record);
        self.durables.made(&open);
        // There is room, because the open was counted when it became persistent.
        disconnected::wait(self, &open);
    }

    /// Watches the time-outs of restored opens and closes those whose client does not return in time. To be called
    /// after the start and whenever more were restored, on a worker that runs as long as the server.
    pub fn watch_restored(self: &Arc<Self>) {
        disconnected::watch_over(self);
        if let Some(store) = self.persistence.store()
            && !store.is_healthy()
        {
            // The task that retries a failed write may have ended with the start.
            let task = store.change(Vec::new());
            self.env.spawn(Box::pin(async move {
                // The store reports its error itself.
                let _ = task.await;
            }));
        }
    }
}

/// Removes records with few writes.
async fn forget(store: &dyn HandleStore, mut gone: Vec<MapChange>) {
    let mut tasks = Vec::new();
    while !gone.is_empty() {
        let rest = gone.split_off(gone.len().min(TOGETHER_MAX));
        tasks.push(store.change(std::mem::replace(&mut gone, rest)));
    }
    for task in tasks {
        // The store reports its error itself, and records that stay are checked again at the next start.
        let _ = task.await;
    }
}

type NamedLease = Option<((Guid, LeaseKey), SavedLease)>;

/// The record without its caching, as after a break that was not acknowledged; so is every one of a directory
/// (docs/protocol-notes.md, "The directory lease of a persistent open").
fn without_cache(record: &OpenRecord, lease: NamedLease) -> (OpenRecord, NamedLease) {
    tracing::info!(
        share = record.share,
        path = record.path.join("/"),
        user = record.user,
        "a file may have changed unknown to its client: the client's caching is given up"
    );
    let mut record = record.clone();
    if matches!(record.engine.cache, SavedCache::Oplock(_)) {
        record.engine.cache = SavedCache::None;
    }
    let given_up = |kept: SavedLease| SavedLease {
        state: LeaseState(0),
        left: None,
        epoch: kept.epoch.wrapping_add(1),
        ..kept
    };
    (record, lease.map(|(name, kept)| (name, given_up(kept))))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
