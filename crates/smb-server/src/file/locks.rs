//! Byte-range locks of one stream ([MS-FSA] 2.1.4.10, 2.1.5.8, 2.1.5.9; [MS-SMB2] 3.3.5.14).
//!
//! Owns the held ranges and the queue of blocked requests. A range belongs to the open that locked it and is unlocked
//! with its close. Blocked requests are granted in the order of their arrival, each as soon as no held range conflicts
//! with it.
//!
//! Invariant: no two held ranges conflict by [`HeldRange::bars`]. Bounds: [`RANGES_MAX`] held ranges and
//! [`WAITING_MAX`] blocked requests per stream. An open may have a quarter of the ranges, and a user half of either.

use std::{collections::VecDeque, mem};

use smb_wire::Status;
use smb_wire::msg::{LockElement, LockFlags};

use super::files::Files;
use super::inode::Inode;
use super::lock_sequences::LockSequence;
use super::lock_series::{self, Before};
use super::restore::SavedLock;
use super::types::{CountedUser, Effects, OpenId, Outcome, Place, WaiterId, Withdrawal};
use crate::limits::{RANGES_MAX, RANGES_PER_OPEN_MAX};

/// Ranges of all opens of one user, so that other users find room.
const RANGES_PER_USER_MAX: usize = RANGES_MAX / 2;
/// Blocked requests per stream; one more gives INSUFFICIENT_RESOURCES.
pub(super) const WAITING_MAX: usize = 1_024;
/// Blocked requests of one user.
const WAITING_PER_USER_MAX: usize = WAITING_MAX / 2;

/// The limits on the locks of an open, besides the number that a file has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockBounds {
    /// Ranges that the open may hold or wait for, [`RANGES_PER_OPEN_MAX`] at most.
    pub most: usize,
    /// The user whose ranges count together, over all of that user's opens.
    pub user: CountedUser,
}

#[cfg(test)]
impl LockBounds {
    /// The limits of any user.
    pub(crate) const ANY: Self = Self {
        most: usize::MAX,
        user: CountedUser(0),
    };
}

/// Outcome of a LOCK request.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Locking {
    /// Answer now.
    Done(Status),
    /// The request was carried out before, and nothing was done now ([MS-SMB2] 3.3.5.14).
    Replayed,
    /// Blocked: the waiter is woken with `Locked` or `Failed`.
    Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Range {
    pub(super) fn of(element: &LockElement) -> Self {
        Self {
            offset: element.offset,
            length: element.length,
        }
    }

    /// [MS-FSA] 2.1.5.8: a range that runs past the last byte a file can have is refused, but
    /// length 0 may start anywhere.
    pub(super) fn is_valid(self) -> bool {
        self.length == 0 || self.offset.checked_add(self.length - 1).is_some()
    }

    /// [MS-FSA] 2.1.4.10: {0,0} overlaps nothing; any other range of length 0 ends before it
    /// starts, so it overlaps only what surrounds it.
    fn overlaps(self, other: Self) -> bool {
        match (self.last(), other.last()) {
            (Some(last), Some(other_last)) => self.offset <= other_last && last >= other.offset,
            _ => false,
        }
    }

    /// The offset of the last byte; `None` for {0,0}.
    pub(super) fn last(self) -> Option<u64> {
        if self.length == 0 {
            self.offset.checked_sub(1)
        } else {
            Some(self.offset.saturating_add(self.length - 1))
        }
    }
}

/// A held (or wanted) range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldRange {
    pub(super) open: OpenId,
    pub(super) user: CountedUser,
    pub(super) range: Range,
    pub(super) exclusive: bool,
}

impl HeldRange {
    /// Whether this held range bars `wanted` from being locked.
    pub(super) fn bars(&self, wanted: &Self) -> bool {
        // [MS-FSA] 2.1.4.10 with LockIntent: a shared lock may overlap shared locks and the same open's exclusive
        // locks; an exclusive lock may overlap none.
        let conflict = if self.exclusive {
            self.open != wanted.open || wanted.exclusive
        } else {
            wanted.exclusive
        };
        conflict && self.range.overlaps(wanted.range)
    }

    /// Whether this held range bars `open` from reading or writing `range`.
    fn bars_io(&self, open: OpenId, range: Range, write: bool) -> bool {
        // [MS-FSA] 2.1.4.10 without LockIntent: a shared lock bars writers, even its owner.
        let conflict = if self.exclusive {
            self.open != open
        } else {
            write
        };
        conflict && self.range.overlaps(range)
    }
}

#[derive(Debug)]
struct Waiting {
    waiter: WaiterId,
    wanted: HeldRange,
    sequence: Option<LockSequence>,
    /// There was no room for it the last time; all other requests wait for a held range.
    for_room: bool,
}

#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    held: Vec<HeldRange>,
    waiting: VecDeque<Waiting>,
    /// The ranges that were released since requests were last granted.
    freed: Vec<HeldRange>,
}

impl RangeLocks {
    pub(super) fn count(&self) -> usize {
        self.held.len()
    }

    /// How many ranges an open holds or waits for.
    fn count_of(&self, open: OpenId) -> usize {
        let held = self.held.iter().filter(|held| held.open == open);
        let waiting = self.waiting.iter().filter(|one| one.wanted.open == open);
        held.count() + waiting.count()
    }

    pub(super) fn any_of(&self, open: OpenId) -> bool {
        self.held.iter().any(|held| held.open == open)
    }

    /// The locks of an open, in the order in which they were granted.
    pub(super) fn of(&self, open: OpenId) -> Vec<SavedLock> {
        let mine = self.held.iter().filter(|held| held.open == open);
        mine.map(|held| SavedLock {
            offset: held.range.offset,
            length: held.range.length,
            exclusive: held.exclusive,
        })
        .collect()
    }

    /// Whether this many more ranges of a user leave room for those of others.
    fn leaves_room(&self, user: CountedUser, more: usize) -> bool {
        // A file nearly always has fewer ranges in total.
        if self.held.len().saturating_add(more) <= RANGES_PER_USER_MAX {
            return true;
        }
        let mine = self.held.iter().filter(|held| held.user == user).count();
        mine.saturating_add(more) <= RANGES_PER_USER_MAX
    }

    /// Whether the user may have one more blocked request.
    fn may_wait(&self, user: CountedUser) -> bool {
        let mine = self.waiting.iter().filter(|one| one.wanted.user == user);
        self.waiting.len() < WAITING_MAX && mine.count() < WAITING_PER_USER_MAX
    }

    /// Restores the locks that an open held before a restart; they count for no user. They were granted before, so
    /// nothing is checked.
    pub(super) fn put_back(&mut self, open: OpenId, locks: &[SavedLock]) {
        let room = RANGES_MAX.saturating_sub(self.held.len());
        self.held
            .extend(locks.iter().take(room).map(|lock| HeldRange {
                open,
                user: CountedUser::default(),
                range: Range {
                    offset: lock.offset,
                    length: lock.length,
                },
                exclusive: lock.exclusive,
            }));
    }

    /// Whether some lock starts within the allocated bytes: then nobody may be granted read
    /// caching alone ([MS-FSA] 2.1.5.18).
    pub(super) fn any_below(&self, allocation: u64) -> bool {
        self.held.iter().any(|held| held.range.offset < allocation)
    }

    /// Checks a READ or WRITE of a range: FILE_LOCK_CONFLICT if a lock bars it. No lock bars an access of no bytes
    /// ([MS-FSA] 2.1.5.3, 2.1.5.4).
    pub(super) fn check_io(
        &self,
        open: OpenId,
        offset: u64,
        length: u64,
        write: bool,
    ) -> Result<(), Status> {
        let range = Range { offset, length };
        let mut held = self.held.iter();
        let barred = length != 0 && held.any(|held| held.bars_io(open, range, write));
        Status::FILE_LOCK_CONFLICT.when(barred)
    }

    /// Takes a series of locks ([MS-SMB2] 3.3.5.14.2), within `bounds`. A single element that may block is queued as
    /// `waiter`.
    pub(super) fn lock(
        &mut self,
        open: OpenId,
        elements: &[LockElement],
        sequence: Option<LockSequence>,
        waiter: WaiterId,
        bounds: LockBounds,
    ) -> Locking {
        if is_refused_whole(elements) {
            return Locking::Done(Status::INVALID_PARAMETER);
        }
        let most = bounds.most.min(RANGES_PER_OPEN_MAX);
        if self.count_of(open).saturating_add(elements.len()) > most
            || !self.leaves_room(bounds.user, elements.len())
        {
            return Locking::Done(Status::INSUFFICIENT_RESOURCES);
        }
        let first_new = self.held.len();
        let before = Before::of(&self.held, open, elements.len());
        for element in elements {
            // A bad flag stops the series but undoes nothing; every other failure does.
            let Some(exclusive) = lock_kind(element.flags) else {
                return Locking::Done(Status::INVALID_PARAMETER);
            };
            let range = Range::of(element);
            let wanted = HeldRange {
                open,
                user: bounds.user,
                range,
                exclusive,
            };
            let failure = if !range.is_valid() {
                Status::INVALID_LOCK_RANGE
            } else if self.held.len() >= RANGES_MAX {
                Status::INSUFFICIENT_RESOURCES
            } else if !before.bars(&self.held, &wanted) {
                self.held.push(wanted);
                continue;
            } else if immediate(element) {
                Status::LOCK_NOT_GRANTED
            } else if !self.may_wait(bounds.user) {
                Status::INSUFFICIENT_RESOURCES
            } else {
                self.waiting.push_back(Waiting {
                    waiter,
                    wanted,
                    sequence,
                    for_room: false,
                });
                return Locking::Pending;
            };
            // [MS-SMB2] 3.3.5.14.2: what this request locked is unlocked again.
            self.held.truncate(first_new);
            return Locking::Done(failure);
        }
        Locking::Done(Status::SUCCESS)
    }

    /// Carries out a series of unlocks ([MS-SMB2] 3.3.5.14.1). It stops at the first bad one and undoes nothing.
    pub(super) fn unlock(&mut self, open: OpenId, elements: &[LockElement]) -> Status {
        let good = elements
            .iter()
            .take_while(|one| unlock_refusal(one).is_none());
        let (series, rest) = elements.split_at(good.count());
        let unlocked = match series {
            [only] => self.unlock_one(open, Range::of(only), true),
            _ => lock_series::take_out(&mut self.held, open, series, &mut self.freed),
        };
        if !unlocked {
            return Status::RANGE_NOT_LOCKED;
        }
        let refusal = rest.first().and_then(unlock_refusal);
        refusal.unwrap_or(Status::SUCCESS)
    }

    /// [MS-FSA] 2.1.5.9: unlocks exactly this range of this open; of several equal ones, one of this kind first.
    fn unlock_one(&mut self, open: OpenId, range: Range, exclusive: bool) -> bool {
        let mine = |held: &HeldRange| held.open == open && held.range == range;
        let found = self
            .held
            .iter()
            .position(|held| mine(held) && held.exclusive == exclusive)
            .or_else(|| self.held.iter().position(mine));
        let Some(at) = found else {
            return false;
        };
        let freed = self.held.remove(at);
        if !self.waiting.is_empty() {
            self.freed.push(freed);
        }
        true
    }

    /// Grants blocked requests that nothing bars any more; to be called after every release. Returns the lock sequences
    /// to record ([`Inode::record`]).
    pub(super) fn grant_waiting(&mut self, effects: &mut Effects) -> Vec<(OpenId, LockSequence)> {
        // The user who has no room although the file has; at most one, because two would fill the file.
        let (mut granted, mut limited) = (Vec::new(), None);
        let held = &mut self.held;
        let freed = mem::take(&mut self.freed);
        self.waiting.retain_mut(|waiting| {
            let wanted = waiting.wanted;
            // Most releases concern few ranges, and the range that bars a request is seldom one of them.
            let few = freed.len() <= held.len() && !waiting.for_room;
            if few && !freed.iter().any(|freed| freed.bars(&wanted)) {
                return true;
            }
            // The limits are checked again, because the user may hold more ranges now.
            let (user, is_full) = (Some(wanted.user), held.len() >= RANGES_MAX);
            let mine = held.iter().filter(|held| Some(held.user) == user);
            if !is_full && limited != user && mine.count() >= RANGES_PER_USER_MAX {
                limited = user;
            }
            waiting.for_room = is_full || limited == user;
            if waiting.for_room || held.iter().any(|held| held.bars(&wanted)) {
                return true;
            }
            held.push(wanted);
            effects.wake(waiting.waiter, Outcome::Locked);
            granted.extend(waiting.sequence.map(|sequence| (wanted.open, sequence)));
            false
        });
        granted
    }

    /// Takes a blocked request out of the queue. Returns false if it is not in it.
    pub(super) fn cancel(&mut self, waiter: WaiterId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.waiter != waiter);
        self.waiting.len() != before
    }

    /// Removes all locks and requests of an open that closes; its blocked requests fail as if the range had been
    /// unlocked.
    pub(super) fn drop_open(&mut self, open: OpenId, effects: &mut Effects) {
        let awaited = !self.waiting.is_empty();
        self.held.retain(|held| {
            if held.open == open && awaited {
                self.freed.push(*held);
            }
            held.open != open
        });
        self.waiting.retain(|waiting| {
            if waiting.wanted.open != open {
                return true;
            }
            effects.wake(waiting.waiter, Outcome::Failed(Status::RANGE_NOT_LOCKED));
            false
        });
    }
}

/// Whether the flags of a lock element ask for an exclusive range; `None` if they are none of
/// the four legal combinations ([MS-SMB2] 2.2.26.1).
fn lock_kind(flags: LockFlags) -> Option<bool> {
    match flags.without(LockFlags::FAIL_IMMEDIATELY) {
        LockFlags::SHARED => Some(false),
        LockFlags::EXCLUSIVE => Some(true),
        _ => None,
    }
}

fn immediate(element: &LockElement) -> bool {
    element.flags.contains(LockFlags::FAIL_IMMEDIATELY)
}

/// Of several locks none may block ([MS-SMB2] 3.3.5.14.2).
fn is_refused_whole(elements: &[LockElement]) -> bool {
    elements.is_empty() || (elements.len() > 1 && !elements.iter().all(immediate))
}

/// The locks of a request that stay even if it fails because of bad flags: those before them ([MS-SMB2] 3.3.5.14.2).
pub(crate) fn before_bad_flags(elements: &[LockElement]) -> &[LockElement] {
    if is_refused_whole(elements) {
        return &[];
    }
    let good = elements
        .iter()
        .take_while(|one| lock_kind(one.flags).is_some());
    elements.split_at(good.count()).0
}

/// The status of an unlock that is refused whatever is locked.
fn unlock_refusal(element: &LockElement) -> Option<Status> {
    if element.flags != LockFlags::UNLOCK {
        return Some(Status::INVALID_PARAMETER);
    }
    (!Range::of(element).is_valid()).then_some(Status::INVALID_LOCK_RANGE)
}

/// Whether a request is a series of unlocks: its first element decides ([MS-SMB2] 3.3.5.14).
pub(crate) fn is_unlock(elements: &[LockElement]) -> bool {
    elements
        .first()
        .is_some_and(|first| first.flags.contains(LockFlags::UNLOCK))
}

impl Inode {
    /// Records the lock sequences of blocked requests that were granted.
    pub(super) fn record(&mut self, granted: &[(OpenId, LockSequence)]) {
        for (open, sequence) in granted {
            if let Some(open) = self.open_mut(*open) {
                open.sequences.succeeded(*sequence);
            }
        }
    }
}

impl Files {
    /// Carries out a LOCK request ([MS-SMB2] 3.3.5.14): it locks or unlocks, as its first element says. The caller must
    /// check that the open is no directory (INVALID_PARAMETER), and must call [`Files::operation`] with
    /// `Operation::Lock` before a lock that starts within the allocated bytes. Locks beyond `bounds`, including those
    /// that the open waits for, give INSUFFICIENT_RESOURCES.
    pub fn lock(
        &self,
        place: &Place,
        open: OpenId,
        elements: &[LockElement],
        sequence: Option<LockSequence>,
        waiter: WaiterId,
        bounds: LockBounds,
    ) -> (Locking, Effects) {
        let mut effects = Effects::default();
        let locking = self.with(place.key, |inode| {
            let (stream, known) = inode.stream_of(open)?;
            if sequence.is_some_and(|sequence| known.sequences.is_replay(sequence)) {
                return Some(Locking::Replayed);
            }
            let mut granted = Vec::new();
            let locking = if is_unlock(elements) {
                let status = stream.locks.unlock(open, elements);
                granted = stream.locks.grant_waiting(&mut effects);
                Locking::Done(status)
            } else {
                (stream.locks).lock(open, elements, sequence, waiter, bounds)
            };
            if let (Locking::Done(Status::SUCCESS), Some(sequence)) = (&locking, sequence) {
                known.sequences.succeeded(sequence);
            }
            stream.publish();
            inode.record(&granted);
            Some(locking)
        });
        (
            locking.unwrap_or(Locking::Done(Status::FILE_CLOSED)),
            effects,
        )
    }

    /// Undoes locks that were just granted, as if they never had been: a request with the same `sequence` is then no
    /// replay. `None` if one was answered with success ([`Files::answer_replay`]): they stay then.
    pub fn take_back(
        &self,
        place: &Place,
        open: OpenId,
        elements: &[LockElement],
        sequence: Option<LockSequence>,
    ) -> Option<Effects> {
        let mut effects = Effects::default();
        let undone = self.with(place.key, |inode| {
            let (stream, known) = inode.stream_of(open)?;
            if sequence.is_some_and(|sequence| !known.sequences.forget(sequence)) {
                return Some(false);
            }
            for element in elements {
                let exclusive = lock_kind(element.flags) == Some(true);
                (stream.locks).unlock_one(open, Range::of(element), exclusive);
            }
            let granted = stream.locks.grant_waiting(&mut effects);
            stream.publish();
            inode.record(&granted);
            Some(true)
        });
        undone.unwrap_or(true).then_some(effects)
    }

    /// Withdraws a blocked lock of an open, unless it has left the queue: because it was granted, or with the open.
    #[must_use]
    pub fn withdraw_lock(&self, place: &Place, open: OpenId, waiter: WaiterId) -> Withdrawal {
        let found = self.with(place.key, |inode| {
            let (stream, _) = inode.stream_of(open)?;
            Some(match stream.locks.cancel(waiter) {
                true => Withdrawal::InTime,
                false => Withdrawal::Granted,
            })
        });
        found.unwrap_or(Withdrawal::Ended)
    }

    /// How many ranges an open holds or waits for.
    pub fn locks_of(&self, place: &Place, open: OpenId) -> usize {
        self.with_stream(place, |stream| stream.locks.count_of(open))
    }

    /// Checks whether byte-range locks allow `open` to read or write a range. Needed only while
    /// `Quick::ranges_in_use` returns true.
    ///
    /// # Errors
    /// FILE_LOCK_CONFLICT.
    pub fn check_io(
        &self,
        place: &Place,
        open: OpenId,
        offset: u64,
        length: u64,
        write: bool,
    ) -> Result<(), Status> {
        self.with_stream(place, |stream| {
            Some(stream.locks.check_io(open, offset, length, write))
        })
        .unwrap_or(Ok(()))
    }
}
