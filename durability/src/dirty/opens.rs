//! The opens of one inode, as far as they decide its policy: the strictest one does.
//!
//! An open that matched no rule follows the current policy of its share; one that matched a rule
//! follows the rule, as `honor` while its share is tripped or guarded. A request through a share
//! without an open of the inode counts as an open that follows the share. Opens are counted by share
//! and rule, so a decision takes a few steps however many there are.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use crate::{
    policy::{Bound, Policy},
    rules::{Opener, Rule},
    share::Share,
};

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

    /// Whether going from `self` to `to` promises something new.
    pub(crate) fn tightens_to(&self, to: &Self) -> bool {
        Bound::tightens(self.bound, to.bound) || self.policy.tightens_to(&to.policy)
    }
}

/// One open, and the rule it matched.
pub(crate) struct OpenEntry {
    pub(crate) share: Arc<Share>,
    pub(crate) opener: Arc<Opener>,
    pub(crate) rule: Option<Arc<Rule>>,
}

impl OpenEntry {
    /// The policy that it asks for now.
    pub(crate) fn policy(&self) -> Policy {
        match &self.rule {
            Some(rule) => self.share.in_force(rule.policy),
            None => self.share.policy(),
        }
    }
}

/// The opens through one share, counted by the rules that they matched.
struct Counted {
    share: Arc<Share>,
    /// `None`: they follow the share.
    by_rule: Vec<(Option<Arc<Rule>>, usize)>,
}

impl Counted {
    fn strictest(&self) -> Option<Effective> {
        let rules = self.by_rule.iter().map(|(rule, _)| rule.as_deref());
        let each = rules.map(|rule| self.share.asked(rule));
        each.reduce(Effective::join)
    }
}

/// The opens of an inode.
#[derive(Default)]
pub(crate) struct Opens {
    by_id: BTreeMap<u64, OpenEntry>,
    /// They did not all come by one path of one share, since there was none.
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

    /// Whether the opens may have come by several names of the inode.
    pub(crate) fn have_several_names(&self) -> bool {
        self.several_names
    }

    /// A new open, judged by its share's rules as they are now.
    pub(crate) fn insert(&mut self, id: u64, share: &Arc<Share>, opener: Arc<Opener>) {
        self.several_names = self.by_id.values().next().is_some_and(|first| {
            let one_name = Arc::ptr_eq(&first.share, share) && first.opener.path == opener.path;
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

    /// The client of an open has come back through another connection.
    pub(crate) fn came_back(&mut self, id: u64, client: IpAddr, dialect: u16) {
        let Some(entry) = self.by_id.get(&id) else {
            return;
        };
        let share = Arc::clone(&entry.share);
        let opener = Opener {
            client: Some(client),
            dialect,
            ..Opener::clone(&entry.opener)
        };
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
            if Arc::ptr_eq(&counted.share, &entry.share) {
                for (rule, number) in &mut counted.by_rule {
                    *number -= usize::from(*rule == entry.rule);
                }
                counted.by_rule.retain(|(_, number)| *number > 0);
            }
        }
        self.counted.retain(|counted| !counted.by_rule.is_empty());
    }

    /// Judges the opens through a share again, because its rules changed.
    pub(crate) fn judge_anew(&mut self, share: &Arc<Share>) {
        let rules = share.rules();
        self.counted.clear();
        let mut all = std::mem::take(&mut self.by_id);
        for entry in all.values_mut() {
            if Arc::ptr_eq(&entry.share, share) {
                entry.rule = rules.find(&entry.opener).cloned();
            }
            self.add(entry);
        }
        self.by_id = all;
    }

    fn add(&mut self, entry: &OpenEntry) {
        let mut all = self.counted.iter_mut();
        let Some(counted) = all.find(|one| Arc::ptr_eq(&one.share, &entry.share)) else {
            self.counted.push(Counted {
                share: Arc::clone(&entry.share),
                by_rule: vec![(entry.rule.clone(), 1)],
            });
            return;
        };
        let mut rules = counted.by_rule.iter_mut();
        match rules.find(|(rule, _)| *rule == entry.rule) {
            Some((_, number)) => *number += 1,
            None => counted.by_rule.push((entry.rule.clone(), 1)),
        }
    }

    /// The terms that the opens ask for; `None` without opens.
    pub(crate) fn strictest(&self) -> Option<Effective> {
        let asked = self.counted.iter().filter_map(Counted::strictest);
        asked.reduce(Effective::join)
    }

    /// The terms of a request through `own`.
    pub(crate) fn effective(&self, own: &Arc<Share>) -> Effective {
        let opened = |counted: &Counted| Arc::ptr_eq(&counted.share, own);
        let asked = self.strictest();
        if let Some(asked) = asked
            && self.counted.iter().any(opened)
        {
            return asked;
        }
        let mine = own.asked(None);
        asked.map_or(mine, |asked| asked.join(mine))
    }

    /// Shares other than `own` with a bounded open: what changes through `own` is charged to them
    /// too, so that it is synced within their bound.
    pub(crate) fn bounded_elsewhere(&self, own: &Arc<Share>) -> Vec<Arc<Share>> {
        let bounded = |counted: &&Counted| {
            !Arc::ptr_eq(&counted.share, own)
                && counted
                    .strictest()
                    .is_some_and(|asked| asked.bound.is_some())
        };
        let shares = self.counted.iter().filter(bounded);
        shares.map(|counted| Arc::clone(&counted.share)).collect()
    }
}
