//! The jobs that wait for the threads of one file system: requesters take turns. Every second turn is the server's own,
//! whose background syncs and closes are on behalf of all requesters.

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
    /// The queue of each requester that has jobs waiting; an empty one is removed.
    queues: BTreeMap<Requester, VecDeque<(Purpose, Job)>>,
    /// The requester, other than the server, whose turn was last.
    last: Requester,
    was_server: bool,
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

    pub(super) fn of(&self, requester: Requester) -> usize {
        let next = self.next.as_ref().is_some_and(|next| next.0 == requester);
        let queued = self.queues.get(&requester).map_or(0, VecDeque::len);
        queued + usize::from(next)
    }

    /// The requesters that have jobs, each once.
    pub(super) fn requesters(&self) -> impl Iterator<Item = Requester> {
        let next = self.next.as_ref().map(|next| next.0);
        let queued = self.queues.keys().copied();
        next.into_iter()
            .chain(queued.filter(move |requester| Some(*requester) != next))
    }

    /// Takes the first job of the requester whose turn is next, of those that may have a thread.
    pub(super) fn pop(
        &mut self,
        may: impl Fn(Requester) -> bool,
    ) -> Option<(Requester, Purpose, Job)> {
        if let Some(next) = self.next.take_if(|next| may(next.0)) {
            self.had_turn(next.0);
            self.jobs -= 1;
            return Some(next);
        }
        let requester = self.next_turn(may)?;
        self.had_turn(requester);
        let queue = self.queues.get_mut(&requester)?;
        let (purpose, job) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&requester);
        }
        self.jobs -= 1;
        Some((requester, purpose, job))
    }

    fn had_turn(&mut self, requester: Requester) {
        self.was_server = requester == Requester::SERVER;
        if !self.was_server {
            self.last = requester;
        }
    }

    /// The requester with jobs whose turn is next, of those that may have a thread.
    fn next_turn(&self, may: impl Fn(Requester) -> bool) -> Option<Requester> {
        let server = self.queues.contains_key(&Requester::SERVER) && may(Requester::SERVER);
        if server && !self.was_server {
            return Some(Requester::SERVER);
        }
        // The server's number is the lowest.
        let after = |last| {
            let later = self.queues.range((Excluded(last), Unbounded));
            later.map(|(of, _)| *of).find(|of| may(*of))
        };
        let other = after(self.last).or_else(|| after(Requester::SERVER));
        other.or(server.then_some(Requester::SERVER))
    }
}
