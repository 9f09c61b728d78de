//! The waiting jobs that a lane has for one file system, and the threads that work for it.

use super::{Job, Purpose, QUEUE_MAX, THREADS_MIN, waiting::Waiting};
use crate::requester::Requester;

/// The threads and waiting jobs that a lane has for one file system.
#[derive(Default)]
pub(super) struct Part {
    pub(super) waiting: Waiting,
    /// The waiting jobs that close a descriptor, which do not count against the limit.
    pub(super) closing: usize,
    /// Threads that work for it.
    pub(super) running: usize,
}

impl Part {
    /// The number of jobs that threads may take now.
    pub(super) fn ready(&self, most: usize) -> usize {
        self.waiting.jobs.min(most.saturating_sub(self.running))
    }

    /// Takes the next job.
    pub(super) fn begin(&mut self) -> Option<Job> {
        let (purpose, job) = self.waiting.pop()?;
        self.closing -= usize::from(purpose == Purpose::Close);
        self.running += 1;
        Some(job)
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
        let least = THREADS_MIN.saturating_sub(self.running);
        self.ready(most).min(least)
    }
}
