//! Policy by open: the rules of a share, and the handles to which they apply.
//!
//! Each handle on a file registers here and holds an [`OpenPolicy`] until it is closed. The strictest of an inode's
//! handles decides every request on it (`dirty/share.rs`). Registering is one step on its state, without the disk.

use std::{net::IpAddr, sync::Arc};

use vfs::{FileKey, Node, Volume};

use super::Gate;
use crate::{
    planted::Planted,
    policy::Policy,
    report::{InForce, SetAside, StopReport},
    rules::{Opener, PolicyDecision, Rules},
    share::Alike,
    sync::Durability,
};

/// A handle's part in the policy of its inode; dropped when the handle is closed.
#[must_use = "dropped at once it says nothing"]
pub struct OpenPolicy<V: Volume> {
    core: Arc<Durability<V>>,
    key: FileKey,
    id: u64,
}

impl<V: Volume> OpenPolicy<V> {
    /// The client has come back through another connection, by which the handle is judged from now on. (A handle that
    /// was restored after a restart had no client.)
    pub fn came_back(&self, client: IpAddr, dialect: u16) {
        self.core.with(self.key, |inode| {
            inode.opens.came_back(self.id, client, dialect);
        });
    }
}

impl<V: Volume> Drop for OpenPolicy<V> {
    fn drop(&mut self) {
        self.core.with(self.key, |inode| {
            inode.opens.remove(self.id);
            if self.core.planted(Planted::LatchForgottenOnClose) && inode.opens.is_empty() {
                inode.forget_latch();
            }
        });
    }
}

impl<V: Volume> Gate<V> {
    /// A handle is being made on `node` (for a stream: on the inode that carries it). Call this as
    /// soon as the node is known, so that the handle's policy also decides what the request itself changes.
    pub fn opened(&self, node: &V::Node, opener: Arc<Opener>) -> OpenPolicy<V> {
        let (key, id) = (node.key(), self.core.tick());
        // Judged under the inode's lock, so that a change of rules either is seen here or judges this open anew.
        self.core.with(key, |inode| {
            if inode.opens.is_empty() {
                inode.found_at = None;
            }
            inode.opens.insert(id, &self.share, opener);
        });
        let core = Arc::clone(&self.core);
        OpenPolicy { core, key, id }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        self.share.rules()
    }

    /// Changes the rules, for `who`; handles open now are judged anew. As with [`Gate::set_policy`] a loosening holds
    /// at once, and after a tightening the future completes when everything dirty is stable. An administrator who sets
    /// the same rules again asks whether they hold by now: an earlier attempt may have been given up, or have failed.
    pub async fn set_rules(&self, rules: Arc<Rules>, who: &str) -> StopReport {
        let (old, bound) = (self.share.rules(), self.share.bound());
        if old != rules {
            self.share.set_rules(Arc::clone(&rules));
            let (share, number) = (self.name(), rules.iter().count());
            tracing::info!(share, rules = number, who, "durability rules changed");
            self.core.judge_anew(&self.share);
        }
        let share = self.settings().policy;
        let before = || old.iter().map(|rule| rule.policy).chain([share]);
        let after = || rules.iter().map(|rule| rule.policy).chain([share]);
        // It is not known under which of them files that are closed were changed, nor which one applies to them now.
        let stricter = || before().any(|old| after().any(|new| old.tightens_to(&new)));
        let promises = || after().any(|policy| policy != Policy::TreatHostAsStableStorage);
        if bound != self.share.bound() || stricter() || (old == rules && promises()) {
            self.core.sync_share(&self.share).await
        } else {
            StopReport::default()
        }
    }

    /// The policy that would apply to such an open now, and its rule; `honor` for a lazy one that is set aside.
    pub fn explain(&self, opener: &Opener) -> PolicyDecision {
        let mut decision = self.share.rules().decide(self.settings().policy, opener);
        decision.policy = self.share.in_force(decision.policy);
        decision
    }

    /// The policy that decides a request on this inode through this share now.
    pub fn policy_of(&self, key: FileKey) -> Policy {
        let core = &self.core;
        let opened = core.peek(key, |inode| inode.opens.effective(&self.share));
        opened.map_or_else(|| self.effective_policy(), |effective| effective.policy)
    }

    /// The policy in force for an inode, and the open that decides it; `None` if it is not open.
    pub fn in_force(&self, key: FileKey) -> Option<InForce> {
        self.core.peek(key, |inode| {
            let asked = inode.opens.strictest()?;
            let decides = |some: &&Alike| some.asked().policy.kind() == asked.policy.kind();
            let because = inode.opens.iter().find(decides)?;
            Some(InForce {
                policy: asked.policy,
                bound: asked.bound,
                flush_times: asked.times,
                because: Arc::clone(&because.openers.first()?.opener),
                share: because.share.name.clone(),
                rule: because.rule.clone(),
                opens: inode.opens.iter().map(|some| some.openers.len()).sum(),
            })
        })?
    }

    /// Like [`Gate::in_force`], for an inode that was opened by this path through this share, without regard to case. A
    /// handle keeps the path by which it was opened, also after a rename.
    pub fn in_force_at(&self, path: &str) -> Option<InForce> {
        let folded = vfs::fold(path);
        let found = self.core.find(|key, inode| {
            let mine = inode.opens.iter().filter(|some| some.share == self.share);
            let mut openers = mine.flat_map(|some| &some.openers).map(|one| &one.opener);
            let found = openers.any(|opener| vfs::fold(&opener.path) == folded);
            found.then_some(key)
        });
        self.in_force(*found.first()?)
    }

    /// The reasons why the lazy policies of the share are not in force; none if they are.
    pub fn set_aside(&self) -> SetAside {
        let lazy = self.share.has_lazy();
        SetAside {
            failed_sync: lazy && self.share.is_tripped(),
            guard: lazy && self.share.is_guarded(),
        }
    }
}
