//! One share: the policy in force, also for the opens of one inode. `share/exposure.rs` counts what is
//! dirty of what the share has acknowledged, and says how its bound is kept.
//!
//! The strictest of an inode's opens decides. An open that matched no rule follows the current policy of
//! its share; one that matched a rule follows the rule, as `honor` while its share is tripped or guarded.
//! A request through a share without an open of the inode counts as an open that follows the share. Opens
//! are counted by share and rule, so a decision takes a few steps however many there are.

mod exposure;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
pub(crate) use vfs::lock;
use vfs::{Env, FileKey};

use super::latency::SyncLatency;
use crate::{
    metrics::Metrics,
    policy::{Bound, Policy},
    rules::{Opener, Rule, Rules},
    settings::ShareDurability,
};

pub(crate) use exposure::{Ages, Charge, Charged, Reservation, Unproven, uncount};

/// Whether both are names of one share: case does not count.
#[must_use]
pub fn is_same_share(one: &str, other: &str) -> bool {
    one.to_uppercase() == other.to_uppercase()
}

/// As [`lock`].
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`].
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The rules in force, with the values that are read often.
#[derive(Default)]
struct Ruled {
    rules: Arc<Rules>,
    bound: Option<Bound>,
    lazy: bool,
}

/// Starts the flusher task of a share; may be called under any lock but that of [`Ages`].
pub(crate) type StartFlusher = Box<dyn Fn(&Arc<Share>) + Send + Sync>;

pub(crate) struct Share {
    pub(crate) name: String,
    env: Arc<dyn Env>,
    settings: RwLock<ShareDurability>,
    ruled: RwLock<Ruled>,
    /// Gates of the share: more than one while a reload replaces its back end.
    pub(crate) gates: AtomicUsize,
    /// The root folders of the share: several after a reload.
    roots: Mutex<BTreeSet<FileKey>>,
    /// How long syncs take.
    latency: Mutex<SyncLatency>,
    /// After a failed sync: treated as `honor` until no latch is left or an administrator acts.
    tripped: AtomicBool,
    /// One of its file systems lost data of an unknown file: `honor` until an administrator acts.
    tripped_for_good: AtomicBool,
    /// The engine's guard is on (`sync/table.rs`).
    guard: Arc<AtomicBool>,
    pub(crate) ages: Mutex<Ages>,
    /// Changes that became dirty at this time (nanoseconds) or before it are due at once.
    urgent: AtomicU64,
    /// Notifies those who wait for dirty state to become clean.
    pub(crate) room: Notify,
    /// Wakes the flusher.
    pub(crate) kick: Notify,
    start_flusher: StartFlusher,
    pub(crate) metrics: Metrics,
}

/// A share equals only itself.
impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Share {
    pub(crate) fn new(
        name: &str,
        settings: ShareDurability,
        env: Arc<dyn Env>,
        guard: Arc<AtomicBool>,
        start_flusher: StartFlusher,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            env,
            settings: RwLock::new(settings),
            ruled: RwLock::default(),
            gates: AtomicUsize::new(0),
            roots: Mutex::default(),
            latency: Mutex::default(),
            tripped: AtomicBool::new(false),
            tripped_for_good: AtomicBool::new(false),
            guard,
            ages: Mutex::default(),
            urgent: AtomicU64::new(0),
            room: Notify::new(),
            kick: Notify::new(),
            start_flusher,
            metrics: Metrics::default(),
        })
    }

    /// Whether this is its name; a reload may change the case.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        is_same_share(&self.name, name)
    }

    /// The settings as configured.
    pub(crate) fn settings(&self) -> ShareDurability {
        *read(&self.settings)
    }

    /// The policy in force: `honor` instead of a lazy policy while the share is tripped or guarded.
    pub(crate) fn policy(&self) -> Policy {
        self.in_force(self.settings().policy)
    }

    /// The policy in force instead of `policy`, which the share or one of its rules has.
    pub(crate) fn in_force(&self, policy: Policy) -> Policy {
        match policy.is_lazy() && (self.is_tripped() || self.is_guarded()) {
            true => Policy::Honor,
            false => policy,
        }
    }

    /// The terms in force of the share, or of one of its rules. A guarded share keeps its bounds; a tripped one none.
    pub(crate) fn asked(&self, rule: Option<&Rule>) -> Effective {
        let settings = self.settings();
        let policy = rule.map_or(settings.policy, |rule| rule.policy);
        let times = rule.and_then(|rule| rule.flush_times);
        let times = times.unwrap_or(settings.flush_times);
        let now = Effective::of(self.in_force(policy), times);
        match self.is_tripped() {
            true => now,
            false => now.join(Effective::of(policy, times)),
        }
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.load(SeqCst)
    }

    /// Whether its policy or one of its rules answers before the disk does.
    pub(crate) fn has_lazy(&self) -> bool {
        self.settings().policy.is_lazy() || read(&self.ruled).lazy
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&read(&self.ruled).rules)
    }

    pub(crate) fn set_rules(&self, rules: Arc<Rules>) {
        *write(&self.ruled) = Ruled {
            bound: Bound::tightest(rules.iter().map(|rule| rule.policy.bound())),
            lazy: rules.iter().any(|rule| rule.policy.is_lazy()),
            rules: Arc::clone(&rules),
        };
        self.policy_changed();
    }

    fn policy_changed(&self) {
        lock(&self.latency).slow = None;
        self.room.notify_waiters();
        self.kick.notify_one();
    }

    /// The tightest bound of the share's policy and its rules, within which everything dirty is synced.
    /// It holds for a tripped share too, because earlier changes were acknowledged under it.
    pub(crate) fn bound(&self) -> Option<Bound> {
        Bound::tightest([self.settings().policy.bound(), read(&self.ruled).bound])
    }

    /// The bound that the share keeps for a change for which `all` is the tightest. It is neither the tighter one of
    /// another share, within which its flusher does not sync, nor that of a rule that does not apply.
    pub(crate) fn bound_for(&self, all: Bound) -> Option<Bound> {
        self.bound().map(|own| own.looser(all))
    }

    pub(crate) fn add_root(&self, root: FileKey) {
        lock(&self.roots).insert(root);
    }

    pub(crate) fn roots(&self) -> BTreeSet<FileKey> {
        lock(&self.roots).clone()
    }

    /// Whether one of these is a root folder of the share.
    pub(crate) fn is_within(&self, roots: &BTreeSet<FileKey>) -> bool {
        !lock(&self.roots).is_disjoint(roots)
    }

    /// Changes the settings for an administrator, who thereby accepts a loss, if there is one.
    pub(crate) fn set(&self, change: impl FnOnce(&mut ShareDurability)) {
        self.tripped.store(false, SeqCst);
        self.tripped_for_good.store(false, SeqCst);
        self.configure(change);
    }

    /// Sets the options of a share that comes back after it was removed. Failures are not forgotten.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut ShareDurability)) {
        let before = self.bound();
        change(&mut write(&self.settings));
        if Bound::tightens(self.bound(), before) {
            // Everything dirty was acknowledged under a bound that is not kept any more, so it is due now.
            self.hurry();
        }
        self.policy_changed();
    }

    pub(crate) fn set_options(&self, mut options: ShareDurability) {
        let mut settings = write(&self.settings);
        options.policy = settings.policy;
        *settings = options;
    }

    /// Makes the share honor flushes if its policy answers before the disk does; everything dirty by now is due. With
    /// `for_good` no latch stands for the loss. Returns whether this is news.
    pub(crate) fn trip(&self, for_good: bool) -> bool {
        if !self.has_lazy() {
            return false;
        }
        // The flag is set first, because the requests that are woken below check it.
        let known = self.is_tripped();
        self.tripped.store(true, SeqCst);
        self.tripped_for_good.fetch_or(for_good, SeqCst);
        self.hurry();
        self.room.notify_waiters();
        !known
    }

    /// Makes everything that is dirty now due at once.
    pub(crate) fn hurry(&self) {
        self.urgent.fetch_max(nanos(self.env.monotonic()), SeqCst);
        self.kick.notify_one();
    }

    /// Whether `honor` is in force instead of lazy policies because of a failure.
    pub(crate) fn is_tripped(&self) -> bool {
        self.tripped.load(SeqCst) || self.tripped_for_good.load(SeqCst)
    }

    /// Called when a latch has ended. The trip that latches caused ends with the last of them.
    pub(crate) fn untrip_if_clean(&self) {
        if !self.has_lost() {
            self.tripped.store(false, SeqCst);
            // A latch that appeared meanwhile has tripped the share before this point, or does so after it.
            if self.has_lost() {
                self.tripped.store(true, SeqCst);
            }
        }
    }

    /// Ends the trip, because an administrator accepts all losses of the share.
    pub(crate) fn accept_loss(&self) {
        self.tripped_for_good.store(false, SeqCst);
        self.untrip_if_clean();
    }

    pub(crate) fn is_due_now(&self, since: Duration) -> bool {
        let urgent = self.urgent.load(SeqCst);
        urgent > 0 && nanos(since) <= urgent
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The terms of a request: the strictest of several policies, and the tightest of their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) policy: Policy,
    /// The tightest bound of all bounded policies among them, even if a stricter policy decides: a bound promises
    /// something about changes that no client flushed, and the stricter policy does not.
    pub(crate) bound: Option<Bound>,
    /// A FLUSH covers the times of a file whose contents changed.
    pub(crate) times: bool,
}

impl Effective {
    pub(crate) fn of(policy: Policy, times: bool) -> Self {
        Self {
            policy,
            bound: policy.bound(),
            times: policy.flushes_times(times),
        }
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            policy: self.policy.stricter(other.policy),
            bound: Bound::tightest([self.bound, other.bound]),
            times: self.times || other.times,
        }
    }
}

/// One open, and the rule it matched.
pub(crate) struct OpenEntry {
    pub(crate) share: Arc<Share>,
    pub(crate) opener: Arc<Opener>,
    pub(crate) rule: Option<Arc<Rule>>,
}

/// The number of opens through one share that matched one rule.
struct Counted {
    share: Arc<Share>,
    /// `None`: they follow the share.
    rule: Option<Arc<Rule>>,
    number: usize,
}

impl Counted {
    fn has(&self, open: &OpenEntry) -> bool {
        self.share == open.share && self.rule == open.rule
    }

    fn asked(&self) -> Effective {
        self.share.asked(self.rule.as_deref())
    }
}

/// The opens of an inode.
#[derive(Default)]
pub(crate) struct Opens {
    by_id: BTreeMap<u64, OpenEntry>,
    /// Since the inode last had no open, its opens did not all come by one path of one share.
    several_names: bool,
    counted: Vec<Counted>,
    /// The path by which the last of all opens reached the inode, once all are closed.
    last: Option<Arc<Opener>>,
}

impl Opens {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenEntry> {
        self.by_id.values()
    }

    /// A path that the inode is or was opened by, from the root of the share.
    pub(crate) fn path(&self) -> Option<String> {
        let open = self.by_id.values().next().map(|open| &open.opener);
        open.or(self.last.as_ref())
            .map(|opener| opener.path.to_string())
    }

    pub(crate) fn have_several_names(&self) -> bool {
        self.several_names
    }

    /// Adds an open, and judges it by its share's present rules.
    pub(crate) fn insert(&mut self, id: u64, share: &Arc<Share>, opener: Arc<Opener>) {
        self.several_names = self.by_id.values().next().is_some_and(|first| {
            let one_name = first.share == *share && first.opener.path == opener.path;
            self.several_names || !one_name
        });
        let rule = share.rules().find(&opener).cloned();
        let share = Arc::clone(share);
        let entry = OpenEntry {
            share,
            opener,
            rule,
        };
        self.add(&entry);
        self.by_id.insert(id, entry);
    }

    /// Judges an open again whose client has reconnected through another connection.
    pub(crate) fn came_back(&mut self, id: u64, client: IpAddr, dialect: u16) {
        let Some(entry) = self.by_id.get(&id) else {
            return;
        };
        let share = Arc::clone(&entry.share);
        let mut opener = Opener::clone(&entry.opener);
        (opener.client, opener.dialect) = (Some(client), dialect);
        let several_names = self.several_names;
        self.remove(id);
        self.insert(id, &share, opener.into());
        // An open that was closed before may have come by another name.
        self.several_names = several_names;
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let Some(entry) = self.by_id.remove(&id) else {
            return;
        };
        if self.by_id.is_empty() {
            self.last = Some(Arc::clone(&entry.opener));
        }
        for counted in &mut self.counted {
            counted.number -= usize::from(counted.has(&entry));
        }
        self.counted.retain(|counted| counted.number > 0);
    }

    /// Judges the opens through a share again, because its rules changed.
    pub(crate) fn judge_anew(&mut self, share: &Arc<Share>) {
        let rules = share.rules();
        self.counted.clear();
        let mut all = std::mem::take(&mut self.by_id);
        for entry in all.values_mut() {
            if entry.share == *share {
                entry.rule = rules.find(&entry.opener).cloned();
            }
            self.add(entry);
        }
        self.by_id = all;
    }

    fn add(&mut self, entry: &OpenEntry) {
        let mut all = self.counted.iter_mut();
        match all.find(|counted| counted.has(entry)) {
            Some(counted) => counted.number += 1,
            None => self.counted.push(Counted {
                share: Arc::clone(&entry.share),
                rule: entry.rule.clone(),
                number: 1,
            }),
        }
    }

    /// The terms that the opens ask for; `None` without opens.
    pub(crate) fn strictest(&self) -> Option<Effective> {
        let asked = self.counted.iter().map(Counted::asked);
        asked.reduce(Effective::join)
    }

    /// The terms of a request through `own`.
    pub(crate) fn effective(&self, own: &Arc<Share>) -> Effective {
        let asked = self.strictest();
        if let Some(asked) = asked
            && self.counted.iter().any(|counted| counted.share == *own)
        {
            return asked;
        }
        let mine = own.asked(None);
        asked.map_or(mine, |asked| asked.join(mine))
    }

    /// Shares other than `own` with a bounded open. They are charged with changes through `own`, to sync them in time.
    pub(crate) fn bounded_elsewhere(&self, own: &Arc<Share>) -> Vec<Arc<Share>> {
        let mut shares: Vec<Arc<Share>> = Vec::new();
        let counted = self.counted.iter();
        for Counted { share, .. } in counted.filter(|one| one.asked().bound.is_some()) {
            if share != own && !shares.contains(share) {
                shares.push(Arc::clone(share));
            }
        }
        shares
    }
}
