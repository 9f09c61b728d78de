//! Breaks on their way to clients: held back behind the answer that grants the caching they take, sent again when
//! the connection that carried them is lost, and stored for a client that is disconnected.
//!
//! Invariants: a break of an owner leaves only after every answer to a CREATE of that owner that was under way when
//! the break happened, whichever connections the two use, so a break never overtakes the grant; breaks of one owner
//! leave in the order in which they happened; an answer that began later delays no earlier break of a connected open.
//! `state::breaks` decides which connection carries a break and when it times out.
//!
//! Bounded by the requests under way: one entry for each CREATE between its grant and its answer, at most one break
//! that awaits its acknowledgment or its client for each owner, and one timer for each place where an owner breaks. Of
//! the breaks that await nothing, each connection has at most [`UNASKED_BREAKS_MAX`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::sync::oneshot;
use vfs::FileKey;

use crate::{
    file::{Break, Owner, Place},
    limits::UNASKED_BREAKS_MAX,
    locks::Mutex,
    state::ids::ConnectionId,
};

/// Answers under way and breaks that wait for them or for their acknowledgment.
#[derive(Debug, Default)]
pub(crate) struct PendingBreaks(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    owners: BTreeMap<Owner, UnderWay>,
    /// The connection that carries a break which must be acknowledged.
    sent: BTreeMap<Owner, (ConnectionId, Break)>,
    /// The last breaks of each connection that need no acknowledgment, without their opens.
    unasked: BTreeMap<ConnectionId, VecDeque<Break>>,
    /// Breaks that wait until a client is back ([MS-SMB2] 3.3.1.12: Lease.BreakNotification, not empty).
    unsent: BTreeMap<Owner, Break>,
    /// The break whose timer runs, and the sender that ends the timer when dropped. The key of a lease that is to be
    /// deleted may be bound again, so one owner may have breaks at several places.
    timers: BTreeMap<(Owner, Place), (Break, oneshot::Sender<()>)>,
}

/// The breaks that one owner's answers hold back.
#[derive(Debug, Default)]
struct UnderWay {
    unsent: BTreeSet<u64>,
    /// Each break with the last answer that it waits for.
    held: VecDeque<(u64, Break)>,
}

impl Inner {
    fn end_timer(&mut self, broken: &Break) {
        let at = (broken.owner, broken.place.clone());
        let timer = self.timers.get(&at);
        if timer.is_some_and(|(timed, _)| timed.ticket == broken.ticket) {
            self.timers.remove(&at);
        }
    }
}

impl PendingBreaks {
    /// The number of owners with answers under way, and of those with breaks to be acknowledged now or when their
    /// client is back.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.owners.len(), inner.sent.len() + inner.unsent.len())
    }

    /// Called before a CREATE is granted caching: breaks of it wait from now on. Returns the number for
    /// [`PendingBreaks::end`].
    pub(crate) fn begin(&self, owner: Owner) -> u64 {
        let mut inner = self.0.lock();
        inner.next += 1;
        let number = inner.next;
        inner.owners.entry(owner).or_default().unsent.insert(number);
        number
    }

    /// Called when the answer has left or never will. Returns the breaks that no earlier answer holds back any more.
    pub(crate) fn end(&self, owner: Owner, number: u64) -> Vec<Break> {
        let mut inner = self.0.lock();
        let Some(under_way) = inner.owners.get_mut(&owner) else {
            return Vec::new();
        };
        under_way.unsent.remove(&number);
        let first = under_way.unsent.first().copied().unwrap_or(u64::MAX);
        let held = &mut under_way.held;
        let free = held.partition_point(|(last, _)| *last < first);
        let free = held.drain(..free).map(|(_, broken)| broken).collect();
        if under_way.unsent.is_empty() {
            inner.owners.remove(&owner);
        }
        free
    }

    /// Holds a break back while answers of its owner are under way, and returns it if it may leave now.
    pub(crate) fn hold(&self, broken: Break) -> Option<Break> {
        let mut inner = self.0.lock();
        if let Some(under_way) = inner.owners.get_mut(&broken.owner)
            && let Some(last) = under_way.unsent.last()
        {
            under_way.held.push_back((*last, broken));
            return None;
        }
        Some(broken)
    }

    /// Records that this connection carries a break that must be acknowledged. A slow caller may find the owner's
    /// next break recorded already, which stays: tickets grow.
    pub(crate) fn sent(&self, by: ConnectionId, broken: &Break) {
        let mut inner = self.0.lock();
        let known = inner.sent.get(&broken.owner);
        if known.is_none_or(|(_, known)| known.ticket <= broken.ticket) {
            inner.sent.insert(broken.owner, (by, broken.clone()));
        }
    }

    /// Records that this connection carries a break that needs no acknowledgment. Its opens are left out, because there
    /// may be thousands.
    pub(crate) fn carries(&self, by: ConnectionId, broken: &Break) {
        let mut broken = broken.clone();
        broken.opens = Vec::new();
        let mut inner = self.0.lock();
        let carried = inner.unasked.entry(by).or_default();
        if carried.len() >= UNASKED_BREAKS_MAX {
            carried.pop_front();
        }
        carried.push_back(broken);
    }

    /// Takes out the breaks without an acknowledgment that a lost connection carried, the oldest first.
    pub(crate) fn carried(&self, with: ConnectionId) -> VecDeque<Break> {
        let mut inner = self.0.lock();
        inner.unasked.remove(&with).unwrap_or_default()
    }

    /// Called when the timer of a break starts. The receiver completes if the break ends before it. Returns `None` if
    /// this timer, or the timer of the owner's next break there, is already running, or if the break waits for its
    /// client: its connection may be lost as it leaves.
    pub(crate) fn timed(&self, broken: &Break) -> Option<oneshot::Receiver<()>> {
        let at = (broken.owner, broken.place.clone());
        let mut inner = self.0.lock();
        let timer = inner.timers.get(&at);
        let waiting = inner.unsent.get(&broken.owner);
        if timer.is_some_and(|(timed, _)| timed.ticket >= broken.ticket)
            || waiting.is_some_and(|waiting| waiting.ticket == broken.ticket)
        {
            return None;
        }
        let (ends, ended) = oneshot::channel();
        // The timer of an earlier break of the owner at this place has nothing left to end.
        inner.timers.insert(at, (broken.clone(), ends));
        Some(ended)
    }

    /// Stores a break that no connection can carry until its client is back. Its timer ends, and begins anew when the
    /// break leaves. An owner has one break that waits: tickets grow, so a later one stays or takes the place of an
    /// earlier one. Returns the break that is not stored.
    pub(crate) fn waits(&self, broken: Break) -> Option<Break> {
        let mut inner = self.0.lock();
        let owner = broken.owner;
        let sent = inner.sent.get(&owner).map(|(_, known)| known.ticket);
        let unsent = inner.unsent.get(&owner).map(|known| known.ticket);
        if sent.max(unsent).is_some_and(|known| known > broken.ticket) {
            return Some(broken);
        }
        inner.sent.remove(&owner);
        inner.end_timer(&broken);
        inner.unsent.insert(owner, broken)
    }

    /// Takes out a break that another connection than `by` carries, for the caller to send it anew. With `anew` its
    /// timer ends, and begins when the break leaves.
    pub(crate) fn recall(&self, owner: Owner, by: ConnectionId, anew: bool) -> Option<Break> {
        let mut inner = self.0.lock();
        inner.sent.get(&owner).filter(|(with, _)| *with != by)?;
        let (_, broken) = inner.sent.remove(&owner)?;
        if anew {
            inner.end_timer(&broken);
        }
        Some(broken)
    }

    /// Takes out the break that waits for a client of this owner.
    pub(crate) fn resume(&self, owner: Owner) -> Option<Break> {
        self.0.lock().unsent.remove(&owner)
    }

    /// Whether a break of this owner has been sent and is not over.
    pub(crate) fn is_sent(&self, owner: Owner) -> bool {
        self.0.lock().sent.contains_key(&owner)
    }

    /// The breaks of this owner that have been sent, wait for its client, or are only to end in time.
    pub(crate) fn of(&self, owner: Owner) -> Vec<Break> {
        let inner = self.0.lock();
        let sent = inner.sent.get(&owner).map(|(_, broken)| broken);
        let known = sent.into_iter().chain(inner.unsent.get(&owner));
        let mut all: Vec<_> = known.cloned().collect();
        let first = Place {
            key: FileKey::default(),
            stream: None,
        };
        for ((of, _), (broken, _)) in inner.timers.range((owner, first)..) {
            if *of != owner {
                break;
            }
            if all.iter().all(|known| known.ticket != broken.ticket) {
                all.push(broken.clone());
            }
        }
        all
    }

    /// Forgets a break that was acknowledged or has timed out.
    pub(crate) fn forget(&self, broken: &Break) {
        let mut inner = self.0.lock();
        let known = inner.sent.get(&broken.owner);
        if known.is_some_and(|(_, known)| known.ticket == broken.ticket) {
            inner.sent.remove(&broken.owner);
        }
        let unsent = inner.unsent.get(&broken.owner);
        if unsent.is_some_and(|known| known.ticket == broken.ticket) {
            inner.unsent.remove(&broken.owner);
        }
        inner.end_timer(broken);
    }

    /// Withdraws a break from this connection, to send it on another. Returns false if the cleanup of the connection
    /// has taken it already.
    pub(crate) fn withdraw(&self, by: ConnectionId, broken: &Break) -> bool {
        let mut inner = self.0.lock();
        let known = inner.sent.get(&broken.owner);
        let ours = known.is_some_and(|(with, known)| *with == by && known.ticket == broken.ticket);
        if ours {
            inner.sent.remove(&broken.owner);
        }
        ours
    }

    /// The connections that carry breaks which must be acknowledged.
    pub(crate) fn carriers(&self) -> BTreeSet<ConnectionId> {
        let inner = self.0.lock();
        inner.sent.values().map(|(by, _)| *by).collect()
    }

    /// Takes out the breaks whose connection is lost; the caller must send them on another one.
    pub(crate) fn lost(&self, with: ConnectionId) -> Vec<Break> {
        let mut inner = self.0.lock();
        let lost = inner.sent.extract_if(.., |_, (by, _)| *by == with);
        lost.map(|(_, (_, broken))| broken).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::file::{LeaseState, OpenId};

    fn owner() -> Owner {
        Owner::Oplock(OpenId(7))
    }

    fn broken(ticket: u64) -> Break {
        Break {
            owner: owner(),
            place: Place {
                key: vfs::FileKey::default(),
                stream: None,
            },
            opens: vec![OpenId(7)],
            current: LeaseState::RWH,
            new: LeaseState::READ,
            epoch: 0,
            ack_required: true,
            ticket,
        }
    }

    fn tickets(breaks: &[Break]) -> Vec<u64> {
        breaks.iter().map(|broken| broken.ticket).collect()
    }

    #[test]
    fn a_break_waits_for_the_answers_before_it_and_for_no_later_ones() {
        let pending = PendingBreaks::default();
        assert_eq!(pending.hold(broken(1)), Some(broken(1)));
        let (first, second) = (pending.begin(owner()), pending.begin(owner()));
        assert_eq!(pending.hold(broken(2)), None);
        let third = pending.begin(owner());
        assert_eq!(pending.hold(broken(3)), None);
        assert!(pending.end(owner(), first).is_empty());
        assert_eq!(tickets(&pending.end(owner(), second)), [2]);
        assert_eq!(tickets(&pending.end(owner(), third)), [3]);
        assert!(pending.0.lock().owners.is_empty());
        assert_eq!(pending.hold(broken(4)), Some(broken(4)));
    }

    #[test]
    fn an_early_answer_that_is_late_holds_up_what_came_after_it() {
        let pending = PendingBreaks::default();
        let (first, second) = (pending.begin(owner()), pending.begin(owner()));
        assert_eq!(pending.hold(broken(1)), None);
        assert!(pending.end(owner(), second).is_empty());
        assert_eq!(tickets(&pending.end(owner(), first)), [1]);
        assert!(pending.0.lock().owners.is_empty());
    }

    #[test]
    fn what_a_lost_connection_carried_is_named() {
        let pending = PendingBreaks::default();
        let other = Break {
            owner: Owner::Oplock(OpenId(8)),
            ..broken(6)
        };
        pending.sent(ConnectionId(1), &broken(5));
        pending.sent(ConnectionId(2), &other);
        // The end of an earlier break does not end this one.
        pending.forget(&broken(4));
        assert_eq!(tickets(&pending.lost(ConnectionId(1))), [5]);
        // Each break is returned once.
        assert!(pending.lost(ConnectionId(1)).is_empty());
        assert!(!pending.withdraw(ConnectionId(1), &broken(5)));
        pending.sent(ConnectionId(1), &broken(5));
        assert!(!pending.withdraw(ConnectionId(1), &broken(4)));
        assert!(pending.withdraw(ConnectionId(1), &broken(5)));
        pending.sent(ConnectionId(1), &broken(5));
        assert_eq!(pending.of(owner()), [broken(5)]);
        pending.forget(&broken(5));
        assert!(pending.lost(ConnectionId(1)).is_empty());
        pending.forget(&other);
        assert!(pending.lost(ConnectionId(2)).is_empty());
    }

    #[test]
    fn a_connection_keeps_the_last_breaks_without_an_acknowledgment() {
        let pending = PendingBreaks::default();
        let last = UNASKED_BREAKS_MAX as u64;
        for ticket in 0..=last {
            pending.carries(ConnectionId(1), &broken(ticket));
        }
        assert!(pending.carried(ConnectionId(2)).is_empty());
        let carried = pending.carried(ConnectionId(1));
        let tickets: Vec<_> = carried.iter().map(|broken| broken.ticket).collect();
        assert_eq!(tickets, (1..=last).collect::<Vec<_>>());
        assert!(carried.iter().all(|broken| broken.opens.is_empty()));
        assert!(pending.0.lock().unasked.is_empty());
    }

    #[test]
    fn a_break_that_is_over_takes_nothing_from_the_next_one() {
        let pending = PendingBreaks::default();
        pending.sent(ConnectionId(1), &broken(6));
        let mut time = pending.timed(&broken(6)).unwrap();
        // Another worker records the earlier break late.
        pending.sent(ConnectionId(2), &broken(5));
        assert!(pending.timed(&broken(5)).is_none());
        assert!(!pending.withdraw(ConnectionId(2), &broken(5)));
        pending.forget(&broken(5));
        assert!(matches!(time.try_recv(), Err(TryRecvError::Empty)));
        assert_eq!(tickets(&pending.lost(ConnectionId(1))), [6]);
    }

    #[test]
    fn breaks_of_one_key_on_two_files_have_a_timer_each() {
        let pending = PendingBreaks::default();
        let mut of_first = pending.timed(&broken(5)).unwrap();
        let mut second = broken(6);
        second.place.key.ino = 2;
        let mut of_second = pending.timed(&second).unwrap();
        assert!(matches!(of_first.try_recv(), Err(TryRecvError::Empty)));
        assert_eq!(pending.of(owner()), [broken(5), second.clone()]);
        assert_eq!(pending.of(Owner::Oplock(OpenId(6))), []);
        pending.forget(&broken(5));
        assert!(matches!(of_first.try_recv(), Err(TryRecvError::Closed)));
        assert!(matches!(of_second.try_recv(), Err(TryRecvError::Empty)));
    }

    #[test]
    fn a_client_that_is_back_gets_what_another_connection_carried() {
        let pending = PendingBreaks::default();
        for anew in [true, false] {
            pending.sent(ConnectionId(1), &broken(5));
            let mut time = pending.timed(&broken(5)).unwrap();
            assert_eq!(pending.recall(owner(), ConnectionId(1), anew), None);
            assert!(pending.is_sent(owner()));
            let recalled = pending.recall(owner(), ConnectionId(2), anew);
            assert_eq!(recalled, Some(broken(5)));
            assert!(pending.lost(ConnectionId(1)).is_empty());
            assert_eq!(pending.recall(owner(), ConnectionId(2), anew), None);
            assert_eq!(time.try_recv() == Err(TryRecvError::Closed), anew);
            pending.forget(&broken(5));
        }
        assert_eq!(pending.sizes(), (0, 0));
    }

    #[test]
    fn what_waits_for_a_client_is_no_connections_any_more() {
        let pending = PendingBreaks::default();
        pending.sent(ConnectionId(1), &broken(5));
        assert!(pending.is_sent(owner()));
        pending.waits(broken(5));
        assert!(pending.lost(ConnectionId(1)).is_empty());
        assert_eq!(pending.of(owner()), [broken(5)]);
        assert!(!pending.is_sent(owner()));
        assert_eq!(pending.resume(owner()), Some(broken(5)));
        assert_eq!(pending.resume(owner()), None);
        pending.waits(broken(6));
        pending.forget(&broken(5));
        assert_eq!(pending.sizes(), (0, 1));
        pending.forget(&broken(6));
        assert_eq!(pending.sizes(), (0, 0));
        // The break waits for another connection of the client.
        pending.waits(broken(7));
        assert_eq!(pending.of(owner()), [broken(7)]);
        pending.forget(&broken(7));
        assert_eq!(pending.sizes(), (0, 0));
    }

    #[test]
    fn a_break_has_no_timer_while_it_waits_for_a_client() {
        let pending = PendingBreaks::default();
        pending.sent(ConnectionId(1), &broken(5));
        let mut time = pending.timed(&broken(5)).unwrap();
        assert_eq!(pending.waits(broken(5)), None);
        assert!(matches!(time.try_recv(), Err(TryRecvError::Closed)));
        // Another worker has sent it and is slow.
        assert!(pending.timed(&broken(5)).is_none());
        assert_eq!(pending.resume(owner()), Some(broken(5)));
        assert!(pending.timed(&broken(5)).is_some());
    }

    #[test]
    fn a_break_that_begins_to_wait_late_takes_nothing_from_the_next_one() {
        let pending = PendingBreaks::default();
        pending.sent(ConnectionId(1), &broken(6));
        assert_eq!(pending.waits(broken(5)), Some(broken(5)));
        assert!(pending.is_sent(owner()));
        assert_eq!(pending.waits(broken(7)), None);
        assert!(!pending.is_sent(owner()));
        assert_eq!(pending.waits(broken(6)), Some(broken(6)));
        assert_eq!(pending.waits(broken(8)), Some(broken(7)));
        assert_eq!(pending.of(owner()), [broken(8)]);
    }
}
