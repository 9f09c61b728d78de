//! The waiting jobs that a group has for one file system, and the threads that work for it.

use super::{Job, Purpose, QUEUE_MAX, SPARE_THREADS_MAX, waiting::Waiting};
use crate::requester::Requester;

/// The threads and waiting jobs that a group has for one file system.
#[derive(Default)]
pub(super) struct FsJobs {
    pub(super) waiting: Waiting,
    /// The waiting jobs that close a descriptor, which do not count against the limit.
    pub(super) closing: usize,
    /// The requester of each job under way on one of the usual threads, which go by turns.
    usual: Vec<Requester>,
    /// The same of the spare threads.
    spare: Vec<Requester>,
}

impl FsJobs {
    /// The number of threads that work for the file system.
    pub(super) fn running(&self) -> usize {
        self.usual.len() + self.spare.len()
    }

    /// The number of jobs that threads may take now, if this many of the threads may be usual ones; 0 only if they may
    /// take none.
    pub(super) fn ready(&self, usual_max: usize) -> usize {
        let free = usual_max.saturating_sub(self.usual.len());
        if self.waiting.jobs <= free {
            return self.waiting.jobs;
        }
        let spare = SPARE_THREADS_MAX.saturating_sub(self.spare.len());
        let without = self.waiting.requesters();
        let without = without.filter(|one| !self.usual.contains(one) && !self.spare.contains(one));
        self.waiting.jobs.min(free + without.take(spare).count())
    }

    /// Takes the next job. Once the usual threads are busy, it is one of a requester that no thread works for.
    pub(super) fn begin(&mut self, usual_max: usize) -> Option<(Requester, Job)> {
        let is_full = self.usual.len() >= usual_max;
        let (usual, spare) = (&self.usual, &self.spare);
        let may = |one: Requester| !(is_full && (usual.contains(&one) || spare.contains(&one)));
        let (requester, purpose, job) = self.waiting.pop(may)?;
        self.closing -= usize::from(purpose == Purpose::Close);
        match is_full {
            true => self.spare.push(requester),
            false => self.usual.push(requester),
        }
        Some((requester, job))
    }

    /// Records that a job of the requester has ended. Of a usual and a spare thread, it leaves the usual one: the next
    /// turn must not wait for a job that takes long.
    pub(super) fn ended(&mut self, requester: Requester) {
        for threads in [&mut self.usual, &mut self.spare] {
            if let Some(at) = threads.iter().position(|one| *one == requester) {
                threads.swap_remove(at);
                return;
            }
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
}
