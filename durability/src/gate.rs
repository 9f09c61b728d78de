//! The gate of one share: every change passes here before its success reply.
//!
//! [`Gate::write`] does the write itself. All other changes are done by the caller through the
//! `Vfs`, between [`Gate::begin`] or [`Gate::changing`] and what these hand out: that marks the
//! inode dirty and does what the policy asks before it hands out the [`Receipt`]. If that fails,
//! the change itself *has* happened and is not undone: the error says that it is not known to be
//! stable, and the inode is latched.
//!
//! Invariants: a change is marked before its future can complete; the policy is read under the
//! same lock as the mark, so that a tightening that has begun misses nothing; a receipt is made
//! only after the barrier. Say the change promptly after it: between the two a sync
//! of another client may save a part of it (a rename's old directory without the new one).
//!
//! Futures are not `Send`; poll them to completion on their worker. A dropped one leaves
//! everything owed.

mod arrived;
mod begun;
mod bound;
mod changing;
mod flush;
mod found;
mod moving;
mod noted;
mod opened;
mod writing;

use std::sync::{Arc, atomic::Ordering::SeqCst};

use bytes::Bytes;
use vfs::{Env, FileKey, Node, Timestamp, Vfs, VfsError, WriteMode};

use crate::{
    epoch::{Account, Changed},
    inode::{Held, Inode},
    metrics::{Counters, count},
    opens::Effective,
    planted::Planted,
    policy::{Barriers, Event, Meta, RequestFlags, Wait, barriers},
    receipt::Receipt,
    report::{Exposure, LatchedInode, StopReport},
    settings::{Bound, Policy, PolicyKind, ShareDurability},
    share::{Share, lock},
    table::Durability,
};

pub use arrived::{Arrived, Earlier};
pub use begun::Begun;
pub use changing::Changing;
pub use flush::FlushTarget;
pub use moving::{Moving, Removing};
pub use opened::OpenPolicy;
use writing::{Outcome, leaves_doubt};

/// Streams of one inode that may be dirty at once; a change beyond it waits for a sync.
const DIRTY_STREAMS_MAX: usize = 256;

/// Directories that may owe names of one inode at once, each with a descriptor; as above.
const DIRTY_NAMES_MAX: usize = 16;

/// Durability of one share.
pub struct Gate<V: Vfs> {
    core: Arc<Durability<V>>,
    env: Arc<dyn Env>,
    vfs: Arc<V>,
    share: Arc<Share>,
}

impl<V: Vfs> Drop for Gate<V> {
    fn drop(&mut self) {
        self.share.gates.fetch_sub(1, SeqCst);
    }
}

/// What is to be done about a change, or a request for stability.
#[derive(Clone, Copy)]
struct Judged {
    barriers: Barriers,
    /// Which policy says so.
    kind: PolicyKind,
    /// The bound that the acknowledgement must keep if it is owed.
    bound: Option<Bound>,
}

impl<V: Vfs> Gate<V> {
    /// Takes over the count of one gate of the share.
    pub(crate) fn new(
        core: Arc<Durability<V>>,
        env: Arc<dyn Env>,
        vfs: Arc<V>,
        share: Arc<Share>,
    ) -> Arc<Self> {
        Arc::new(Self {
            core,
            env,
            vfs,
            share,
        })
    }

    /// The share's name, as given.
    pub fn name(&self) -> &str {
        &self.share.name
    }

    pub(crate) fn share(&self) -> &Arc<Share> {
        &self.share
    }

    /// The settings as configured.
    pub fn settings(&self) -> ShareDurability {
        self.share.settings()
    }

    /// The policy in force: `honor` instead of the configured one after a failed sync, until the
    /// policy is set or the share's last latch is gone (repaired, deleted with its file, cleared);
    /// where a file system lost something that is no file's ([`Durability::write_back_lost`]),
    /// until the policy is set or the share's latches are cleared. While the guard is on
    /// ([`Durability::set_guard`]), `honor` instead of a lazy one, too.
    pub fn effective_policy(&self) -> Policy {
        self.share.effective().policy
    }

    /// Whether a FLUSH that asks for full sync is stable before its answer, through whatever handle
    /// of the share. It is not where [`ShareDurability::ignore_full_sync`] makes it an ordinary
    /// FLUSH, and the share's policy or that of one of its rules answers one before the disk does.
    pub fn honors_full_sync(&self) -> bool {
        !self.settings().ignore_full_sync || !self.share.has_lazy()
    }

    /// Changes the policy, for `who` (noted with the time). A loosening holds at once. A
    /// tightening, or a policy under which nothing is answered before the disk, holds for every
    /// request from now on; the future completes when everything owed so far is on disk, or reports
    /// what failed.
    pub async fn set_policy(&self, policy: Policy, who: &str) -> StopReport {
        let old = self.share.settings().policy;
        let tightens =
            self.share.effective().policy.tightens_to(&policy) || old.tightens_to(&policy);
        self.share.set(|settings| settings.policy = policy);
        self.share.policy_changed(who);
        tracing::info!(share = self.name(), %old, new = %policy, who, "durability policy changed");
        // Set once more it is asked whether it holds by now: an earlier attempt may have been given
        // up, or have failed. Only what is loosened owes nothing more than before.
        let again = old == policy && policy.kind() == PolicyKind::Bounded;
        if (!tightens && !again && policy.is_lazy())
            || self.core.planted(Planted::PolicySetWithoutSync)
        {
            return StopReport::default();
        }
        self.core.sync_share(&self.share).await
    }

    /// When the policy was set last while the server ran (wall clock), and by whom.
    pub fn policy_changed(&self) -> Option<(Timestamp, String)> {
        self.share.last_change()
    }

    /// Changes options other than the policy (which is ignored here). They hold from now on.
    pub fn set_options(&self, options: ShareDurability) {
        self.share.set_options(options);
    }

    /// Writes `data` at `offset`, durably where the policy says so, and waits for what else it
    /// says. On failure a part may have been written.
    pub async fn write(
        &self,
        node: &V::Node,
        offset: u64,
        data: Bytes,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        self.write_arrived(None, node, (offset, data), flags).await
    }

    /// As [`Gate::write`], of a write that has had to wait ([`Gate::arrived`]).
    ///
    /// # Errors
    /// As there.
    pub async fn write_arrived(
        &self,
        arrived: Option<Arrived<'_, V>>,
        node: &V::Node,
        (offset, data): (u64, Bytes),
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        let core = &self.core;
        let end = offset.saturating_add(data.len() as u64);
        let (judged, mut write) = self
            .begin_write(core, (node, arrived), (offset, end), flags)
            .await;
        let barriers = judged.barriers;
        if write.wants_keeper {
            self.keep(node).await;
        }
        let mode = WriteMode {
            durable: barriers.durable_write,
        };
        let result = self.vfs.write(node, offset, data, mode).await;
        if barriers.durable_write {
            count(&self.share.metrics.writes_durable);
        } else if barriers.deferred {
            count(&self.share.metrics.writes_deferred);
        }
        write.end(match result {
            Ok(()) if barriers.durable_write => Outcome::Durable,
            Err(error) if barriers.durable_write && leaves_doubt(error) => Outcome::Failed(error),
            Ok(()) => Outcome::Dirty,
            Err(_) => Outcome::Doubtful,
        });
        drop(write);
        let doubtful = |error| barriers.durable_write && leaves_doubt(error);
        let result = result.map_err(|error| {
            let first = core.latch_error(node.key()).filter(|_| doubtful(error));
            first.unwrap_or(error)
        });
        self.told(core, result).await?;
        self.after(core, node, judged).await
    }

    /// Contents of `node` are about to change otherwise than by [`Gate::write`], which does this itself:
    /// what is held of the inode until it is synced shall not keep anybody from running the file once
    /// its last handle is closed. Held is then a descriptor of its own, opened here, before the change,
    /// or it would not hear of a failed write-back that somebody else was told of first.
    pub async fn keep(&self, node: &V::Node) {
        let known = || self.core.peek(node.key(), |inode| !inode.wants_keeper());
        if node.forbids_execution()
            && known() != Some(true)
            && let Some(keeper) = self.vfs.keeper(node).await
        {
            let held = self.held(&keeper);
            self.core.with(node.key(), |inode| inode.keep(held));
        }
    }

    async fn stream_named(&self, node: &V::Node, flags: Since) -> Result<Receipt, VfsError> {
        let stream = node.stream().unwrap_or_default().to_owned();
        let held = self.held(node);
        self.changed(Event::Stream, node, flags, |inode, _| {
            inode.stream_named(&stream, held);
            inode.pending.meta = true;
            inode.pending.set_meta.insert(Changed::Stream(stream));
        })
        .await
    }

    async fn stream_gone(&self, node: &V::Node, flags: Since) -> Result<Receipt, VfsError> {
        let stream = node.stream().unwrap_or_default().to_owned();
        self.changed(Event::Stream, node, flags, |inode, _| {
            inode.pending.meta = true;
            inode
                .pending
                .set_meta
                .insert(Changed::Stream(stream.clone()));
            inode.pending.extents.remove_stream(&stream);
            inode.truncated(&stream, 0);
        })
        .await
    }

    async fn size(&self, node: &V::Node, through: Since) -> Result<Receipt, VfsError> {
        let core = &self.core;
        // Bytes that were unproven and are cut off will not be in doubt.
        let mut size = u64::MAX;
        if core.check_latch(node.key()).is_err()
            && let Ok(attr) = self.vfs.attr(node).await
        {
            size = attr.size;
        }
        let stream = node.stream().unwrap_or_default();
        self.changed(Event::Resize, node, through, |inode, _| {
            inode.pending.data = true;
            inode.pending.times = true;
            inode.pending.sized = true;
            inode.truncated(stream, size);
        })
        .await
    }

    async fn meta(&self, node: &V::Node, what: Meta, flags: Since) -> Result<Receipt, VfsError> {
        self.changed(Event::Meta(what), node, flags, |inode, _| {
            inode.pending.meta = true;
            inode.pending.set_meta.insert(Changed::Meta(what));
        })
        .await
    }

    /// A handle is being closed. The handle is free whatever the answer: an error says that
    /// something of the inode is not stable and cannot be proven to become so.
    pub async fn closed(&self, node: &V::Node, flags: RequestFlags) -> Result<Receipt, VfsError> {
        let core = &self.core;
        let key = node.key();
        let (judged, dirty, forbids) = core.with(key, |inode| {
            let asked = Asked::of(Event::Close, flags);
            let judged = self.judge(inode, asked);
            (judged, inode.is_dirty(), inode.forbids_execution())
        });
        if dirty
            && forbids
            && let Some(keeper) = self.vfs.keeper(node).await
        {
            let held = self.held(&keeper);
            core.with(key, |inode| inode.allow_execution(held));
        }
        let mut result = Ok(());
        if dirty {
            count(&self.share.metrics.dirty_at_close);
            if judged.barriers.wait != Wait::Nothing {
                result = core.barrier(key, None).await;
            }
        }
        let mut result = result.and_then(|()| core.check_latch(key));
        if judged.barriers.wait != Wait::Nothing {
            result = result.and_then(|()| core.check_above(key, Some(&self.held(node))));
        }
        self.told(core, result).await.map(|()| Receipt::new())
    }

    /// An error is told when its latch is stored.
    async fn told<T>(
        &self,
        core: &Durability<V>,
        result: Result<T, VfsError>,
    ) -> Result<T, VfsError> {
        if result.is_err() {
            core.latches_settled().await;
        }
        result
    }

    /// For a success reply to a request that could have changed something and did not.
    pub fn unchanged(&self) -> Receipt {
        Receipt::new()
    }

    /// What this share has acknowledged and cannot prove to be stable: an upper bound.
    pub fn exposure(&self) -> Exposure {
        self.share.exposure(self.env.monotonic())
    }

    /// What this share has counted.
    pub fn counters(&self) -> Counters {
        self.share.metrics.read()
    }

    /// The latched inodes that were changed or flushed through this share, and directories of its
    /// file system whose own name is lost, which concern all that is below.
    pub fn latched(&self) -> Vec<LatchedInode> {
        let core = &self.core;
        let mut latched = core.latched_where(|inode| {
            let mut shares = inode.shares.iter();
            inode.shares.is_empty() || shares.any(|share| Arc::ptr_eq(share, &self.share))
        });
        let known: Vec<FileKey> = latched.iter().map(|latched| latched.key).collect();
        let fs = self.vfs.root().key().fs;
        let lost = lock(&core.lost).clone().into_iter();
        let lost = lost.filter(|dir| dir.fs == fs && !known.contains(dir));
        latched.extend(lost.filter_map(|dir| core.peek(dir, |inode| inode.view(dir)).flatten()));
        latched
    }

    /// An administrator accepts the loss. True if the inode was latched.
    pub fn clear_latch(&self, key: FileKey) -> bool {
        let core = &self.core;
        let (latch, shares) = core.with(key, |inode| (inode.latch.take(), inode.shares.clone()));
        let cleared = latch.is_some();
        drop(latch);
        shares.iter().for_each(|share| share.untrip_if_clean());
        if cleared {
            tracing::warn!(
                share = self.name(),
                fs = key.fs,
                inode = key.ino,
                "latch cleared"
            );
        }
        cleared
    }

    /// An administrator accepts the loss of everything latched that was changed or flushed through
    /// this share; the configured policy is in force again if nothing is left. Answers how many
    /// inodes were latched.
    pub fn clear_latches(&self) -> usize {
        let latched = self.latched();
        let cleared = latched.iter().filter(|one| self.clear_latch(one.key));
        let cleared = cleared.count();
        self.share.accept_loss();
        cleared
    }

    fn held(&self, node: &V::Node) -> Held<V> {
        Held {
            vfs: Arc::clone(&self.vfs),
            node: node.clone(),
        }
    }

    /// What decides for the inode now is asked of the table: the strictest of its opens.
    fn judge(&self, inode: &Inode<V>, asked: Asked) -> Judged {
        let mut effective = inode.opens.effective(&self.share);
        if let Some(others) = asked.others {
            effective = effective.join(others);
        }
        let mut settings = self.share.settings();
        settings.policy = effective.policy;
        let barriers = barriers(asked.event, &settings, asked.flags);
        let mut barriers = self.core.weakened(asked.event, barriers);
        if effective.bound.is_some()
            && barriers == Barriers::default()
            && !matches!(asked.event, Event::Flush(_) | Event::Close | Event::Stop)
        {
            barriers.owed = true;
        }
        Judged {
            barriers,
            kind: settings.policy.kind(),
            bound: effective.bound,
        }
    }

    /// What the opens of other inodes that a request concerns ask for.
    fn asked_of<'a>(&self, nodes: impl IntoIterator<Item = &'a V::Node>) -> Option<Effective> {
        let asked = |node: &V::Node| self.core.peek(node.key(), |inode| inode.opens.strictest());
        let each = nodes.into_iter().filter_map(|node| asked(node).flatten());
        each.reduce(Effective::join)
    }

    async fn named(
        &self,
        event: Event,
        node: &V::Node,
        parents: (Option<&V::Node>, Option<&V::Node>),
        since: Since,
    ) -> Result<Receipt, VfsError> {
        let judged = self.mark_name(event, node, parents, since);
        self.after(&self.core, node, judged).await
    }

    fn mark_name(
        &self,
        event: Event,
        node: &V::Node,
        (new, old): (Option<&V::Node>, Option<&V::Node>),
        (flags, since): Since,
    ) -> Judged {
        let core = &self.core;
        let asked = Asked {
            others: self.asked_of([new, old].into_iter().flatten()),
            ..Asked::of(event, flags)
        };
        let dirs = begun::keys(new, old);
        let new = new.map(|dir| self.held(dir));
        let old = old.map(|dir| self.held(dir));
        let key = node.key();
        let (mut idle, mut lost) = (Vec::new(), None);
        let judged = self.mark(core, node, asked, |inode, account| {
            if event == Event::Move {
                core.moves.marked(key, node.is_directory());
            }
            // Drawn under the lock: a barrier that draws a later number finds the name in
            // its plan.
            let at = (core.tick(), core.now());
            idle = inode.renamed(account, (new.as_ref(), old.as_ref()), at, key);
            lost = core.names_begun(&dirs, since, inode);
        });
        idle.iter().for_each(|share| core.start_payer(share));
        core.tell_lost(key, lost);
        (dirs.iter()).for_each(|dir| core.entry_failed_since(*dir, since));
        judged
    }

    async fn changed(
        &self,
        event: Event,
        node: &V::Node,
        (flags, since): Since,
        change: impl FnOnce(&mut Inode<V>, &Account<'_>),
    ) -> Result<Receipt, VfsError> {
        let core = &self.core;
        let (key, mut lost) = (node.key(), None);
        let judged = self.mark(core, node, Asked::of(event, flags), |inode, account| {
            lost = core.mark_begun(key, since, inode, |inode| change(inode, account));
        });
        core.tell_lost(key, lost);
        self.after(core, node, judged).await
    }

    /// Marks a change, and reads the policy for it in the same step.
    fn mark(
        &self,
        core: &Durability<V>,
        node: &V::Node,
        asked: Asked,
        change: impl FnOnce(&mut Inode<V>, &Account<'_>),
    ) -> Judged {
        let held = self.held(node);
        let now = core.now();
        let (idle, judged) = core.with(node.key(), |inode| {
            let mut judged = self.judge(inode, asked);
            let account = Account {
                share: &self.share,
                kind: judged.kind,
                also: inode.opens.bounded_elsewhere(&self.share),
            };
            let idle = inode.owe(&account, &held, now);
            if core.planted(Planted::KeepFirstDescriptor) {
                inode.keep_first();
            }
            change(inode, &account);
            if inode.dirty_streams() > DIRTY_STREAMS_MAX || inode.names().len() > DIRTY_NAMES_MAX {
                judged.barriers.wait = judged.barriers.wait.max(Wait::Inode);
            }
            (idle, judged)
        });
        idle.iter().for_each(|share| core.start_payer(share));
        judged
    }

    /// What the reply to a change waits for.
    async fn after(
        &self,
        core: &Durability<V>,
        node: &V::Node,
        judged: Judged,
    ) -> Result<Receipt, VfsError> {
        let result = self.barriers(core, node, judged).await;
        self.changed_told(core, node.key(), result).await
    }

    /// A change may be latched with what a failed sync dropped of it and be answered with success:
    /// not before that latch is stored.
    async fn changed_told(
        &self,
        core: &Durability<V>,
        key: FileKey,
        result: Result<(), VfsError>,
    ) -> Result<Receipt, VfsError> {
        let latched = core.check_latch(key).is_err();
        let told = self.told(core, result).await;
        if latched && told.is_ok() {
            core.latches_settled().await;
        }
        told.map(|()| Receipt::new())
    }

    async fn barriers(
        &self,
        core: &Durability<V>,
        node: &V::Node,
        judged: Judged,
    ) -> Result<(), VfsError> {
        let key = node.key();
        let barriers = judged.barriers;
        if barriers != Barriers::default() {
            let waits = barriers.wait != Wait::Nothing;
            self.owe_name(core, node, waits).await?;
        }
        match barriers.wait {
            // Answered before the disk, but not against what is known of it.
            Wait::Nothing if barriers.deferred => {
                core.check_latch(key)?;
                core.check_above(key, Some(&self.held(node)))?;
            }
            Wait::Nothing => {}
            Wait::Names => {
                if core.with(key, |inode| !inode.names().is_empty())
                    || core.has_outstanding(key, &self.held(node))
                {
                    core.barrier(key, None).await?;
                }
                core.check_latch(key)?;
                core.check_above(key, Some(&self.held(node)))?;
            }
            Wait::Inode | Wait::Parent => core.barrier(key, None).await?,
            Wait::Share => {
                let report = core.sync_share(&self.share).await;
                if let Some((_, error)) = report.errors.first() {
                    return Err(*error);
                }
            }
        }
        core.limit_dirty(&self.share, key.fs).await;
        if judged.kind.is_lazy() {
            self.cover(core, key).await?;
        }
        if barriers.owed {
            self.keep_bound(core, key, judged).await?;
        }
        Ok(())
    }
}

/// What a request asks, and when its change began.
type Since = (RequestFlags, u64);

/// What a request asks of an inode.
#[derive(Clone, Copy)]
struct Asked {
    event: Event,
    flags: RequestFlags,
    /// What the opens of other inodes ask for that the request concerns as well.
    others: Option<Effective>,
}

impl Asked {
    fn of(event: Event, flags: RequestFlags) -> Self {
        Self {
            event,
            flags,
            others: None,
        }
    }
}
