//! The jobs that wait for the threads of one file system: requesters take turns.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Unbounded},
};

use super::{Job, Purpose};
use crate::requester::Requester;

/// Jobs that wait, in a queue for each requester.
#[derive(Default)]
pub(super) struct Waiting {
    /// The next job, if nothing else waited when it came: usually the only one, which a thread takes at once.
    next: Option<(Requester, Purpose, Job)>,
    /// None of the queues is empty.
    queues: BTreeMap<Requester, VecDeque<(Purpose, Job)>>,
    /// The requester whose turn was last.
    last: Requester,
    /// All jobs.
    pub(super) jobs: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, requester: Requester, purpose: Purpose, job: Job) {
        if self.jobs == 0 {
            self.next = Some((requester, purpose, job));
        } else {
            let queue = self.queues.entry(requester).or_default();
            queue.push_back((purpose, job));
        }
        self.jobs += 1;
    }

    /// The number of jobs of a requester.
    pub(super) fn of(&self, requester: Requester) -> usize {
        let next = self.next.as_ref().is_some_and(|next| next.0 == requester);
        let queued = self.queues.get(&requester).map_or(0, VecDeque::len);
        queued + usize::from(next)
    }

    /// Takes the first job of the requester whose turn is next.
    pub(super) fn pop(&mut self) -> Option<(Purpose, Job)> {
        if let Some((requester, purpose, job)) = self.next.take() {
            self.last = requester;
            self.jobs -= 1;
            return Some((purpose, job));
        }
        let later = self.queues.range((Excluded(self.last), Unbounded)).next();
        let (requester, _) = later.or_else(|| self.queues.first_key_value())?;
        self.last = *requester;
        let queue = self.queues.get_mut(&self.last)?;
        let next = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&self.last);
        }
        self.jobs -= 1;
        Some(next)
    }
}
