//! The waiting jobs that a group has for one file system, and the threads that work for it.

use super::{Job, Purpose, QUEUE_MAX, SPARE_THREADS_MAX, THREADS_MIN, waiting::Waiting};
use crate::requester::Requester;

/// The threads and waiting jobs that a group has for one file system.
#[derive(Default)]
pub(super) struct FsJobs {
    pub(super) waiting: Waiting,
    /// The waiting jobs that close a descriptor, which do not count against the limit.
    pub(super) closing: usize,
    /// The requester of each job under way, one for each thread that works for the file system.
    under_way: Vec<Requester>,
}

impl FsJobs {
    /// The number of threads that work for the file system.
    pub(super) fn running(&self) -> usize {
        self.under_way.len()
    }

    /// The number of jobs that threads may take now; 0 only if they may take none.
    pub(super) fn ready(&self, most: usize) -> usize {
        let free = most.saturating_sub(self.running());
        if self.waiting.jobs <= free {
            return self.waiting.jobs;
        }
        let spare = SPARE_THREADS_MAX.saturating_sub(self.running().saturating_sub(most));
        let without = self.waiting.requesters();
        let without = without.filter(|requester| !self.under_way.contains(requester));
        self.waiting.jobs.min(free + without.take(spare).count())
    }

    /// Takes the next job. Once the usual threads are busy, it is one of a requester that none of them works for.
    pub(super) fn begin(&mut self, most: usize) -> Option<(Requester, Job)> {
        let is_full = self.running() >= most;
        let under_way = &self.under_way;
        let may = |requester: Requester| !(is_full && under_way.contains(&requester));
        let (requester, purpose, job) = self.waiting.pop(may)?;
        self.closing -= usize::from(purpose == Purpose::Close);
        self.under_way.push(requester);
        Some((requester, job))
    }

    /// Records that a job of the requester has ended.
    pub(super) fn ended(&mut self, requester: Requester) {
        if let Some(at) = self.under_way.iter().position(|one| *one == requester) {
            self.under_way.swap_remove(at);
        }
    }

    /// Whether one more job may wait. A requester may have half of the places that other requesters leave free, and the
    /// server itself as many as all of them.
    pub(super) fn has_room_for(&self, requester: Requester) -> bool {
        let servers = self.waiting.of(Requester::SERVER);
        if requester == Requester::SERVER {
            return servers.saturating_sub(self.closing) < QUEUE_MAX;
        }
        let own = self.waiting.of(requester);
        let others = self.waiting.jobs.saturating_sub(servers + own);
        let free = QUEUE_MAX.saturating_sub(others);
        own < free.div_ceil(2)
    }

    /// The number of threads that it must get however many the others hold.
    pub(super) fn wanted(&self, most: usize) -> usize {
        let ready = self.ready(most);
        match self.running() < most {
            true => ready.min(THREADS_MIN.saturating_sub(self.running())),
            // These are for requesters that would have none.
            false => ready,
        }
    }
}
