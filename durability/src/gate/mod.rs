//! The gate of one share: every change passes here before its success reply.
//!
//! A change is announced, made by the caller through the `Vfs`, and reported through one guard
//! ([`PendingChange`], `change.rs`); [`PendingContents::write`] makes the change itself. The gate marks
//! the inode dirty, does what the policy asks and hands out the [`Receipt`].
//!
//! Invariants:
//! - A change is marked before the future that reports it can complete, and the policy is read under
//!   the same lock: a tightening of the policy misses no change.
//! - A receipt is made only after the barrier. If the barrier fails, the change *has* happened and is
//!   not undone: the error says that it is not known to be stable, and the inode is poisoned.
//! - Report a change immediately after making it. A concurrent sync in between can persist only a
//!   part of it (a rename's old directory without the new one).
//!
//! Futures are not `Send`; poll them to completion on their worker. If one is dropped, what it was to make stable stays
//! dirty. A request must not be given up between a change and its report; only a panic may (`change.rs`).

mod change;
mod contents;
mod flush;
mod opens;
mod pacing;
mod rename;

use std::sync::{Arc, atomic::Ordering::SeqCst};

use vfs::{FileKey, Node, VfsResult, Volume};

use crate::{
    dirty::{Account, Effective, Held, Inode},
    metrics::{Counters, count},
    planted::Planted,
    policy::{Barriers, Bound, Event, Policy, PolicyKind, RequestFlags, Wait, barriers},
    report::{Exposure, StopReport},
    settings::ShareDurability,
    share::Share,
    store::LatchRecord,
    sync::Durability,
};

pub use crate::dirty::Earlier;
pub use change::PendingChange;
pub use contents::PendingContents;
pub use opens::OpenPolicy;
pub use rename::{PendingRename, Replaced};

/// The sequence number of a change that no failed sync can concern.
const BEYOND_DOUBT: u64 = u64::MAX;

/// Durability of one share.
pub struct Gate<V: Volume> {
    core: Arc<Durability<V>>,
    vfs: Arc<V>,
    share: Arc<Share>,
    /// The share's name as given, which differs in case from the one of `share` after a reload that changes the case.
    name: String,
}

impl<V: Volume> Drop for Gate<V> {
    fn drop(&mut self) {
        self.share.gates.fetch_sub(1, SeqCst);
    }
}

/// The policy's decision about a change or a request for stability.
#[derive(Clone, Copy)]
struct Judged {
    barriers: Barriers,
    kind: PolicyKind,
    /// The bound that the acknowledgement must keep if the change stays dirty.
    bound: Option<Bound>,
}

impl<V: Volume> Durability<V> {
    /// A gate of a share. Two shares over one inode know of each other's changes. Gates made for one name (case aside)
    /// while one lives are of one share: policy, rules, trip and counters are common, and `settings` are the first's.
    pub fn share(
        self: &Arc<Self>,
        name: &str,
        vfs: Arc<V>,
        settings: ShareDurability,
    ) -> Arc<Gate<V>> {
        let share = self.enroll(name, &vfs, settings);
        let (core, name) = (Arc::clone(self), name.to_owned());
        Arc::new(Gate {
            core,
            vfs,
            share,
            name,
        })
    }

    /// An administrator accepts the loss, whatever share the inode is of. True if it was poisoned.
    pub fn clear_latch(&self, key: FileKey) -> bool {
        let cleared = self.with(key, Inode::forget_latch);
        if cleared {
            tracing::warn!(fs = key.fs, inode = key.ino, "latch cleared");
        }
        cleared
    }
}

impl<V: Volume> Gate<V> {
    /// The share's name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings as configured.
    pub fn settings(&self) -> ShareDurability {
        self.share.settings()
    }

    /// The policy in force. After a failed sync this is `honor` instead of the configured policy, until the policy is
    /// set or the share's last latch is gone (repaired, deleted with its file, cleared). If a file system lost data of
    /// an unknown file ([`Durability::write_back_lost`]), it is `honor` until the policy is set or the share's latches
    /// are cleared. While the guard is on ([`Durability::set_guard`]), it is `honor` instead of a lazy policy, too.
    pub fn effective_policy(&self) -> Policy {
        self.share.policy()
    }

    /// Whether a FLUSH that asks for full sync is answered only when the file is stable, through any handle of the
    /// share. This is false if [`ShareDurability::ignore_full_sync`] makes it an ordinary FLUSH, and the policy of the
    /// share or of one of its rules answers a FLUSH at once.
    pub fn honors_full_sync(&self) -> bool {
        !self.settings().ignore_full_sync || !self.share.has_lazy()
    }

    /// Changes the policy, for `who`, whom the log names. A loosening holds at once. A tightening, or a policy under
    /// which nothing is answered before the disk, holds for every request from now on; the future completes when
    /// everything dirty so far is stable, or reports what failed.
    pub async fn set_policy(&self, policy: Policy, who: &str) -> StopReport {
        let old = self.share.settings().policy;
        let tightens = self.share.policy().tightens_to(&policy) || old.tightens_to(&policy);
        self.share.set(|settings| settings.policy = policy);
        tracing::info!(share = self.name(), %old, new = %policy, who, "durability policy changed");
        // An administrator who sets the same policy again asks whether it holds by now: an earlier attempt
        // may have been given up, or have failed. Only a loosening requires nothing more than before.
        let again = old == policy && policy.kind() == PolicyKind::Bounded;
        if (!tightens && !again && policy.is_lazy())
            || self.core.planted(Planted::PolicySetWithoutSync)
        {
            return StopReport::default();
        }
        self.core.sync_share(&self.share).await
    }

    /// Makes everything of the share stable that is dirty so far, and reports what failed.
    pub async fn sync(&self) -> StopReport {
        self.core.sync_share(&self.share).await
    }

    /// Changes options other than the policy (which is ignored here). They hold from now on.
    pub fn set_options(&self, options: ShareDurability) {
        self.share.set_options(options);
    }

    /// A handle is being closed. The caller frees it whatever the answer: an error says that
    /// something of the inode is not stable and cannot be proven to become so.
    pub async fn closed(&self, node: &V::Node, flags: RequestFlags) -> VfsResult<Receipt> {
        let core = &self.core;
        let key = node.key();
        let (judged, dirty, forbids) = core.with(key, |inode| {
            let judged = self.judge(inode, &Asked::of(Event::Close, flags));
            (judged, inode.is_dirty(), inode.forbids_execution())
        });
        if dirty
            && forbids
            && let Some(keeper) = self.vfs.keeper(node).await
        {
            let held = self.held(&keeper);
            core.with(key, |inode| inode.allow_execution(held));
        }
        if dirty {
            count(&self.share.metrics.dirty_at_close);
        }
        let result = match judged.barriers.wait {
            Wait::Nothing => core.check_latch(key),
            _ if dirty => Box::pin(core.barrier_unless_clean(self.held(node))).await,
            _ => self.check_failures(node),
        };
        self.receipt(key, result).await
    }

    /// An upper bound of what this share has acknowledged and cannot prove to be stable.
    pub fn exposure(&self) -> Exposure {
        self.share.exposure(self.core.now())
    }

    /// The counters of this share.
    pub fn counters(&self) -> Counters {
        self.share.metrics.read()
    }

    /// The poisoned inodes that were changed or flushed through this share, and the directories of its file system
    /// whose own name is lost, because such a loss affects every file below them.
    pub fn poisoned(&self) -> Vec<LatchRecord> {
        let core = &self.core;
        if !core.has_latches() {
            return Vec::new();
        }
        let fs = self.vfs.root().key().fs;
        core.poisoned_where(|key, inode| {
            let own = inode.shares().is_empty() || inode.shares().contains(&self.share);
            own || (key.fs == fs && inode.is_unreachable())
        })
    }

    /// Whether a sync of the inode failed and the loss is not repaired: its contents on the disk may
    /// differ from those that are read through the page cache.
    pub fn is_poisoned(&self, node: &V::Node) -> bool {
        self.core.check_latch(node.key()).is_err()
    }

    /// An administrator accepts the loss of each poisoned inode that was changed or flushed through this share; the
    /// configured policy is in force again if nothing is left. Answers how many inodes were poisoned.
    pub fn clear_latches(&self) -> usize {
        let poisoned = self.poisoned();
        let cleared = poisoned.iter().filter(|one| self.core.clear_latch(one.key));
        let cleared = cleared.count();
        self.share.accept_loss();
        cleared
    }

    fn held(&self, node: &V::Node) -> Held<V> {
        let (vfs, node) = (Arc::clone(&self.vfs), node.clone());
        Held { vfs, node }
    }

    /// The sequence number of a change that begins now, or the one that no failure concerns if the fault is planted.
    fn since(&self, trusted: Planted) -> u64 {
        match self.core.planted(trusted) {
            true => BEYOND_DOUBT,
            false => self.core.tick(),
        }
    }

    /// The decision about a request, by the strictest of the inode's opens.
    fn judge(&self, inode: &Inode<V>, asked: &Asked) -> Judged {
        let mut effective = inode.opens.effective(&self.share);
        if let Some(others) = asked.terms {
            effective = effective.join(others);
        }
        let mut settings = self.share.settings();
        settings.policy = effective.policy;
        let barriers = barriers(asked.event, &settings, asked.flags);
        let mut barriers = self.core.weakened(asked.event, barriers);
        if effective.bound.is_some()
            && barriers == Barriers::default()
            && !matches!(asked.event, Event::Flush(_) | Event::Close)
        {
            barriers.bounded = true;
        }
        Judged {
            barriers,
            kind: settings.policy.kind(),
            bound: effective.bound,
        }
    }

    /// The request, which concerns the opens of these inodes as well.
    fn also_of<'a>(&self, mut asked: Asked, nodes: impl IntoIterator<Item = &'a V::Node>) -> Asked {
        for node in nodes {
            self.core.peek(node.key(), |inode| {
                let terms = [asked.terms, inode.opens.strictest()];
                asked.terms = terms.into_iter().flatten().reduce(Effective::join);
                let bounded = inode.opens.bounded_elsewhere(&self.share);
                asked.bounded.extend(bounded);
            });
        }
        asked
    }

    /// The shares that a change of the inode through this share is charged to, `bounded` among them.
    fn account(&self, inode: &Inode<V>, kind: PolicyKind, bounded: Vec<Arc<Share>>) -> Account<'_> {
        let mut also = inode.charged_beside(&self.share);
        also.extend(bounded);
        let share = &self.share;
        Account { share, kind, also }
    }

    /// Waits for what the reply to a change requires.
    async fn acknowledge(&self, node: &V::Node, judged: Judged) -> VfsResult<Receipt> {
        let core = &self.core;
        let waits = judged.barriers != Barriers::default()
            || core.has_latches()
            || core.is_too_dirty(node.key().fs)
            || (judged.kind.is_lazy() && core.journal.get().is_some());
        if !waits {
            return Ok(Receipt(()));
        }
        // Boxed only where something is waited for, so that not every change carries this future.
        Box::pin(async {
            let result = self.barriers(node, judged).await;
            self.receipt(node.key(), result).await
        })
        .await
    }

    /// A change may be answered with success although a failed sync dropped a part of it. The inode
    /// is poisoned then: the reply waits until its latch is stored, as an error reply does.
    async fn receipt(&self, key: FileKey, result: VfsResult<()>) -> VfsResult<Receipt> {
        if result.is_err() || self.core.check_latch(key).is_err() {
            self.core.latches_stored().await;
        }
        result.map(Receipt)
    }

    async fn barriers(&self, node: &V::Node, judged: Judged) -> VfsResult<()> {
        let (core, key) = (&self.core, node.key());
        let barriers = judged.barriers;
        if barriers != Barriers::default() {
            // Also where a later background sync keeps the promise, because it does not look where the file is by then.
            let promised = barriers.deferred && barriers.bounded;
            let looks = barriers.wait != Wait::Nothing || promised;
            self.mark_found_name(node, looks).await?;
        }
        match barriers.wait {
            Wait::Nothing => {}
            Wait::Names => {
                let held = self.held(node);
                if core.with(key, |inode| !inode.names().is_empty())
                    || core.has_outstanding(key, &held)
                {
                    core.barrier_unless_clean(held).await?;
                }
                self.check_failures(node)?;
            }
            Wait::Inode => core.barrier_unless_clean(self.held(node)).await?,
        }
        if core.is_too_dirty(key.fs) {
            Box::pin(core.limit_dirty(&self.share, key)).await;
        }
        if judged.kind.is_lazy() {
            self.cover(key).await?;
        }
        if barriers.bounded {
            self.keep_bound(node, judged).await?;
        }
        if barriers.deferred {
            // It is answered before the disk, unless a failure is known by now.
            self.check_failures(node)?;
        }
        Ok(())
    }

    /// The error of the inode's latch, or of a directory above it whose own name is lost.
    fn check_failures(&self, node: &V::Node) -> VfsResult<()> {
        match self.core.has_latches() {
            true => self.core.check_stable(node.key(), Some(&self.held(node))),
            false => Ok(()),
        }
    }
}

/// The request about an inode that the policy decides.
struct Asked {
    event: Event,
    flags: RequestFlags,
    /// The terms of the opens of other inodes that the request concerns as well.
    terms: Option<Effective>,
    /// Other shares with a bounded open among these.
    bounded: Vec<Arc<Share>>,
}

impl Asked {
    fn of(event: Event, flags: RequestFlags) -> Self {
        Self {
            event,
            flags,
            terms: None,
            bounded: Vec::new(),
        }
    }
}

/// Proof that the policy's barrier for a change completed. Only this crate can make one:
///
/// ```compile_fail,E0423
/// // The field is private, so no other crate can construct a receipt.
/// let forged = durability::Receipt(());
/// ```
///
/// ```compile_fail,E0599
/// // A receipt cannot be duplicated either.
/// fn twice(one: durability::Receipt) -> (durability::Receipt, durability::Receipt) {
///     (one.clone(), one)
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Nor can a request that changed nothing obtain one.
/// let forged: durability::Receipt = durability::Unchanged::because("nothing to do").into();
/// ```
///
/// ```
/// // The same shape compiles as soon as nothing is forged.
/// fn pass_on(one: durability::Receipt) -> durability::Receipt {
///     one
/// }
/// ```
#[derive(Debug)]
#[must_use = "a success reply needs the receipt of its barrier"]
pub struct Receipt(());

/// States that a successful request changed nothing on any disk. The caller is responsible for the reason it gives.
#[derive(Debug)]
#[must_use = "a success reply is built from it"]
pub struct Unchanged {
    /// Why nothing was changed.
    pub reason: &'static str,
}

impl Unchanged {
    /// States why nothing was changed.
    pub const fn because(reason: &'static str) -> Self {
        Self { reason }
    }
}

/// The two ways in which a request that may change the disk succeeds.
#[derive(Debug)]
#[must_use = "a success reply is built from it"]
pub enum Completion {
    /// The disk was changed, and the policy's barrier completed.
    Changed(Receipt),
    /// Nothing was changed.
    Unchanged(Unchanged),
}

impl From<Receipt> for Completion {
    fn from(receipt: Receipt) -> Self {
        Self::Changed(receipt)
    }
}

impl From<Unchanged> for Completion {
    fn from(unchanged: Unchanged) -> Self {
        Self::Unchanged(unchanged)
    }
}
