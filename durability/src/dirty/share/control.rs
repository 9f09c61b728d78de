//! A share as administrators and background syncs see it: its settings and trips, its exposure, and how it keeps its
//! bound.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
use vfs::{Env, FileKey, lock};

use super::{Ruled, Share, StartFlusher, read, write};
use crate::{
    dirty::latency::Keeping,
    metrics::Metrics,
    policy::Bound,
    report::{Exposure, PolicyExposure, TooSlow},
    rules::Rules,
    settings::ShareDurability,
};

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

    /// Whether the share can be forgotten when its last gate is gone: nothing of it is dirty, unproven or tripped.
    pub(crate) fn is_settled(&self) -> bool {
        let ages = lock(&self.ages);
        let clean = ages.is_empty() && ages.bytes() == 0 && ages.lost_inodes == 0;
        clean && !self.is_tripped()
    }

    fn has_lost(&self) -> bool {
        lock(&self.ages).lost_inodes > 0
    }

    /// The inodes of which anything is dirty.
    pub(crate) fn dirty(&self) -> Vec<FileKey> {
        let ages = lock(&self.ages);
        let inodes = ages.on.values().flat_map(|on| on.inodes.keys());
        inodes.copied().collect()
    }

    pub(crate) fn exposure(&self, now: Duration) -> Exposure {
        let ages = lock(&self.ages);
        let mut all = Exposure {
            bytes: ages.bytes(),
            by_policy: ages.bytes.map(|bytes| PolicyExposure {
                bytes,
                ..PolicyExposure::default()
            }),
            unproven_bytes: ages.lost_bytes,
            poisoned_inodes: ages.lost_inodes,
            ..Exposure::default()
        };
        let mut seen = BTreeSet::new();
        for ((since, _), charge) in ages.on.values().flat_map(|on| &on.charges) {
            let age = now.saturating_sub(*since);
            let mut inodes = |of| u64::from(seen.insert((of, charge.key))) + charge.removed;
            all.inodes += inodes(None);
            all.oldest_age = all.oldest_age.max(age);
            if let Some(one) = all.by_policy.get_mut(charge.kind as usize) {
                one.inodes += inodes(Some(charge.kind));
                one.oldest_age = one.oldest_age.max(age);
            }
        }
        all
    }

    /// How the bound is kept for a change of `chain` syncs in a row. The log says when a disk turns too slow or quick.
    pub(crate) fn keeping(&self, bound: &Bound, chain: usize) -> Keeping {
        let now = self.env.monotonic();
        let mut latency = lock(&self.latency);
        let keeping = latency.keeping(bound, chain, now);
        let turned = latency.judged(&keeping, now);
        let sync_ms = latency.too_slow().map(|(_, sync)| sync.as_millis());
        drop(latency);
        if turned {
            let bound_ms = bound.max_delay.as_millis();
            let what = match keeping.at_once {
                false => "too slow for the bound: FLUSH waits as under honor",
                true => "quick enough for the bound again: FLUSH is answered at once",
            };
            tracing::warn!(share = self.name, bound_ms, sync_ms, "the disk is {what}");
        }
        keeping
    }

    /// For how long the disk has been too slow for the bound unless FLUSH waits; `None` if it is quick enough.
    pub(crate) fn too_slow(&self) -> Option<TooSlow> {
        self.bound()?;
        let (since, sync) = lock(&self.latency).too_slow()?;
        let lasts = self.env.monotonic().saturating_sub(since);
        Some(TooSlow { lasts, sync })
    }

    /// Whether more is dirty on the file system than background syncs can make stable in time, round after round.
    pub(crate) fn is_behind(&self, fs: u64, at_once: usize, keeping: &Keeping) -> bool {
        let ages = lock(&self.ages);
        let rounds = ages.on.get(&fs).map(|on| on.rounds(at_once));
        rounds.is_some_and(|rounds| rounds > keeping.rounds)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
