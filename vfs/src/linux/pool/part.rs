//! What a lane has for one file system: its waiting jobs, and the threads that work for it.

use std::collections::BTreeMap;

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
    /// How many of them work for each requester; the server is left out.
    threads: BTreeMap<Requester, usize>,
}

impl Part {
    /// The number of jobs that threads may take now; 0 only if they may take none.
    pub(super) fn ready(&self, most: usize) -> usize {
        let free = most.saturating_sub(self.running);
        let full = self.threads.iter().filter(|(_, own)| **own >= free);
        let held_back: usize = full.map(|(requester, _)| self.waiting.of(*requester)).sum();
        self.waiting.jobs.saturating_sub(held_back).min(free)
    }

    /// Takes the next job. A requester gets a thread while it has fewer than are free, which is half of those that the
    /// others leave; the server gets any.
    pub(super) fn begin(&mut self, most: usize) -> Option<(Requester, Job)> {
        let free = most.saturating_sub(self.running);
        let threads = &self.threads;
        let may = |requester: Requester| threads.get(&requester).is_none_or(|own| *own < free);
        let (requester, purpose, job) = self.waiting.pop(may)?;
        self.closing -= usize::from(purpose == Purpose::Close);
        self.running += 1;
        if requester != Requester::SERVER {
            *self.threads.entry(requester).or_default() += 1;
        }
        Some((requester, job))
    }

    pub(super) fn ended(&mut self, requester: Requester) {
        self.running = self.running.saturating_sub(1);
        if let Some(own) = self.threads.get_mut(&requester) {
            *own -= 1;
            if *own == 0 {
                self.threads.remove(&requester);
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

    /// The number of threads that it must get however many the others hold.
    pub(super) fn wanted(&self, most: usize) -> usize {
        let least = THREADS_MIN.saturating_sub(self.running);
        self.ready(most).min(least)
    }
}
