//! Ends a request that waits for a lock, a change or a break.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::oneshot;

use crate::locks::Mutex;

/// The reason why a waiting request ends before its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// CANCEL.
    Cancelled,
    /// Its handle was closed.
    Closed,
    /// Its session, tree connect or connection ended (docs/protocol-notes.md, "A CREATE whose session ends").
    Gone,
}

/// Ends one waiting request; only the first reason counts.
pub(crate) struct Ender {
    fate: Mutex<Fate>,
    /// A CANCEL comes too late.
    past_cancel: bool,
}

enum Fate {
    Waits(oneshot::Sender<EndReason>),
    /// The reason stays for the request's next wait, because the request may have been at work when it came.
    Ended(EndReason),
}

impl Ender {
    /// Makes an ender and the receiver through which the request learns of its end. With `past_cancel` a CANCEL does
    /// not end it.
    pub(crate) fn new(past_cancel: bool) -> (Arc<Self>, oneshot::Receiver<EndReason>) {
        let (sender, receiver) = oneshot::channel();
        let fate = Mutex::new(Fate::Waits(sender));
        (Arc::new(Self { fate, past_cancel }), receiver)
    }

    /// Whether the request has ended by itself.
    pub(crate) fn is_over(&self) -> bool {
        match &*self.fate.lock() {
            Fate::Waits(sender) => sender.is_closed(),
            Fate::Ended(_) => true,
        }
    }

    /// Ends the request unless it has ended.
    pub(crate) fn end(&self, reason: EndReason) {
        if self.past_cancel && reason == EndReason::Cancelled {
            return;
        }
        let mut fate = self.fate.lock();
        if let Fate::Ended(_) = &*fate {
            return;
        }
        let before = std::mem::replace(&mut *fate, Fate::Ended(reason));
        drop(fate);
        if let Fate::Waits(sender) = before {
            // The request may have finished by itself meanwhile; then nobody receives this.
            let _ = sender.send(reason);
        }
    }

    /// Called when the request that `earlier` could end waits again: a reason that came since ends this wait, too.
    pub(crate) fn follows(&self, earlier: &Self) {
        let ended = match &*earlier.fate.lock() {
            Fate::Ended(reason) => Some(*reason),
            Fate::Waits(_) => None,
        };
        if let Some(reason) = ended {
            self.end(reason);
        }
    }
}

/// The requests that wait on an open or a tree connect, and end with it.
#[derive(Default)]
pub(crate) struct ParkedRequests(Mutex<Parked>);

#[derive(Default)]
struct Parked {
    /// The open or tree connect has ended, so nothing waits on it any more.
    ended: Option<EndReason>,
    /// By their numbers, in the order in which they came.
    enders: BTreeMap<u64, Arc<Ender>>,
    next: u64,
}

/// The place of a request among those that wait; it is given up when dropped. Without it a handle would keep something
/// of every request that ever waited on it.
pub(crate) struct ParkedRequest<'a> {
    among: &'a ParkedRequests,
    number: u64,
}

impl Drop for ParkedRequest<'_> {
    fn drop(&mut self) {
        self.among.0.lock().enders.remove(&self.number);
    }
}

impl ParkedRequests {
    /// Adds a request that is about to wait.
    pub(crate) fn add(&self, ender: &Arc<Ender>) -> ParkedRequest<'_> {
        let mut parked = self.0.lock();
        let number = parked.next;
        parked.next = number.wrapping_add(1);
        match parked.ended {
            Some(reason) => ender.end(reason),
            None => {
                parked.enders.insert(number, Arc::clone(ender));
            }
        }
        ParkedRequest {
            among: self,
            number,
        }
    }

    /// Ends them all, and every one that is added later.
    pub(crate) fn end(&self, reason: EndReason) {
        let enders = {
            let mut parked = self.0.lock();
            parked.ended = parked.ended.or(Some(reason));
            std::mem::take(&mut parked.enders)
        };
        for ender in enders.into_values() {
            ender.end(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_comes_between_two_waits_ends_the_second() {
        let (first, ended) = Ender::new(false);
        // The event of the first wait occurred, and the request works before it waits again.
        drop(ended);
        assert!(first.is_over());
        first.end(EndReason::Cancelled);
        first.end(EndReason::Closed);
        let (second, mut ended) = Ender::new(false);
        second.follows(&first);
        assert_eq!(ended.try_recv(), Ok(EndReason::Cancelled));
    }

    #[test]
    fn a_request_that_comes_after_the_end_does_not_wait() {
        let requests = ParkedRequests::default();
        let (first, mut before) = Ender::new(false);
        let _first = requests.add(&first);
        requests.end(EndReason::Gone);
        let (second, mut after) = Ender::new(false);
        let _second = requests.add(&second);
        for ended in [&mut before, &mut after] {
            assert_eq!(ended.try_recv(), Ok(EndReason::Gone));
        }
    }

    #[test]
    fn nothing_stays_of_a_request_that_waits_no_more() {
        let requests = ParkedRequests::default();
        let (ender, _ended) = Ender::new(false);
        let places = [(); 3].map(|()| requests.add(&ender));
        assert_eq!(Arc::strong_count(&ender), 4);
        drop(places);
        assert_eq!(Arc::strong_count(&ender), 1);
        assert!(requests.0.lock().enders.is_empty());
    }

    #[test]
    fn a_wait_after_one_that_nothing_ended_goes_on() {
        let (first, ended) = Ender::new(false);
        drop(ended);
        let (second, mut ended) = Ender::new(false);
        second.follows(&first);
        assert!(ended.try_recv().is_err() && !second.is_over());
        second.end(EndReason::Gone);
        assert_eq!(ended.try_recv(), Ok(EndReason::Gone));
    }

    #[test]
    fn a_request_past_its_cancel_is_ended_for_every_other_reason() {
        let (first, ended) = Ender::new(false);
        drop(ended);
        first.end(EndReason::Cancelled);
        let (second, mut ended) = Ender::new(true);
        second.follows(&first);
        second.end(EndReason::Cancelled);
        assert!(ended.try_recv().is_err() && !second.is_over());
        second.end(EndReason::Gone);
        assert_eq!(ended.try_recv(), Ok(EndReason::Gone));
    }
}
