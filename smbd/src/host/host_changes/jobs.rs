//! The jobs of the thread besides reading events, and their order.
//!
//! Parts of trees and ends of interests are in one queue; whole trees that must be walked again, of which one at a
//! time is under way, take turns with it and with each other. So neither a busy tree nor one larger than the queue
//! keeps another client from learning that changes were lost.
//!
//! Bounds: [`JOBS_MAX`] parts that events asked for; besides, at most one walk and one end for each interest in the
//! queue, one entry in `anew`, and one walk under way.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Bound,
};

use super::{table::UseId, walk::Walk};

/// Walks that wait because events asked for them; trees with more are walked again as a whole.
pub(super) const JOBS_MAX: usize = 16_384;

pub(super) enum Job {
    Walk(Walk),
    Forget(UseId),
}

#[derive(Default)]
pub(super) struct Jobs {
    queue: VecDeque<Job>,
    /// Interests whose whole tree must be walked, which makes walks of its parts unnecessary.
    anew: BTreeSet<UseId>,
    /// The walk through a whole tree that was due.
    whole: Option<Walk>,
    /// The interest whose tree was walked last: the next one comes next.
    last: Option<UseId>,
    /// Whether it is the turn of whole trees.
    turn: bool,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.anew.is_empty() && self.whole.is_none()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn order(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// Adds a walk through a directory that was added to an interest's tree.
    pub(super) fn follow(&mut self, walk: Walk) {
        if self.queue.len() >= JOBS_MAX {
            self.anew.insert(walk.id());
        } else if !self.anew.contains(&walk.id()) {
            self.queue.push_back(Job::Walk(walk));
        }
    }

    /// Requests a walk through an interest's whole tree.
    pub(super) fn anew(&mut self, id: UseId) {
        self.anew.insert(id);
    }

    /// Continues with the rest of a walk.
    pub(super) fn go_on(&mut self, walk: Walk) {
        if walk.is_anew() {
            self.whole = Some(walk);
        } else {
            self.queue.push_back(Job::Walk(walk));
        }
    }

    /// Takes the next job; the caller returns the rest of a walk by [`Jobs::go_on`].
    pub(super) fn next(&mut self) -> Option<Job> {
        self.turn = !self.turn;
        if self.turn {
            self.queue.pop_front().or_else(|| self.next_whole())
        } else {
            self.next_whole().or_else(|| self.queue.pop_front())
        }
    }

    fn next_whole(&mut self) -> Option<Job> {
        let under_way = self.whole.take();
        let walk = under_way.or_else(|| {
            let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
            let mut later = self.anew.range((after, Bound::Unbounded));
            let id = *later.next().or_else(|| self.anew.first())?;
            self.anew.remove(&id);
            self.last = Some(id);
            Some(Walk::anew(id))
        });
        walk.map(Job::Walk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::host_changes::table::Below;

    fn part(id: u64) -> Walk {
        Walk::new_directory(UseId::of(id), Below::default(), false)
    }

    /// The interest whose whole tree is walked next, within so many jobs; parts that are taken
    /// meanwhile are never done.
    fn whole(jobs: &mut Jobs, within: usize) -> Option<Walk> {
        for _ in 0..within {
            match jobs.next()? {
                Job::Walk(walk) if walk.is_anew() => return Some(walk),
                Job::Walk(walk) => jobs.go_on(walk),
                Job::Forget(_) => {}
            }
        }
        None
    }

    #[test]
    fn a_busy_tree_does_not_keep_another_from_being_walked() {
        let mut jobs = Jobs::default();
        for _ in 0..10 {
            jobs.follow(part(1));
        }
        jobs.anew(UseId::of(2));
        let walk = whole(&mut jobs, 2).expect("it has its turn");
        assert_eq!(walk.id(), UseId::of(2));
        // Nor does its walk repeat the parts.
        jobs.go_on(walk);
        let taken: Vec<_> = (0..4).filter_map(|_| jobs.next()).collect();
        let parts = taken.iter().filter(|job| match job {
            Job::Walk(walk) => !walk.is_anew(),
            Job::Forget(_) => false,
        });
        assert_eq!(parts.count(), 3, "one was the whole tree");
    }

    #[test]
    fn a_tree_that_is_due_again_and_again_lets_others_go_first() {
        let mut jobs = Jobs::default();
        jobs.anew(UseId::of(1));
        jobs.anew(UseId::of(2));
        jobs.anew(UseId::of(3));
        let mut order = Vec::new();
        for _ in 0..6 {
            let walk = whole(&mut jobs, 2).unwrap();
            jobs.anew(walk.id());
            order.push(walk.id());
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 3].map(UseId::of));
    }

    #[test]
    fn one_whole_tree_is_walked_at_a_time() {
        let mut jobs = Jobs::default();
        for _ in 0..2 * JOBS_MAX {
            jobs.follow(part(1));
        }
        assert_eq!(jobs.queued(), JOBS_MAX);
        let first = whole(&mut jobs, 2).unwrap();
        // More comes than can be queued, again.
        jobs.follow(part(1));
        jobs.go_on(first);
        jobs.follow(part(1));
        let first = whole(&mut jobs, 2).unwrap();
        assert!(jobs.queued() <= JOBS_MAX);
        drop(first);
        assert!(whole(&mut jobs, 2).is_some(), "what came meanwhile");
        assert!(whole(&mut jobs, 4).is_none());
    }
}
