//! Writes under way: admitted by the bound, counted while the kernel works on them, put down to
//! the inode at their end.
//!
//! Each has a ticket by which FLUSH waits for it. A write whose end nobody saw counts as done in
//! part; one with a sync of its own as failed.

use std::pin::pin;

use vfs::{Node, Vfs, VfsError};

use super::{Arrived, Asked, Gate, Judged};
use crate::{
    epoch::{Account, Where},
    inode::Held,
    metrics::count,
    planted::Planted,
    policy::{Barriers, Event, RequestFlags, Wait},
    settings::Bound,
    share::Reservation,
    table::Durability,
};

impl<V: Vfs> Gate<V> {
    /// Admits a write: its bytes fit the bound, its ticket is drawn. One that has to wait has
    /// arrived nevertheless.
    pub(super) async fn begin_write<'a>(
        &'a self,
        core: &'a Durability<V>,
        (node, mut arrived): (&V::Node, Option<Arrived<'a, V>>),
        range: (u64, u64),
        flags: RequestFlags,
    ) -> (Judged, WriteInFlight<'a, V>) {
        let held = self.held(node);
        let event = match node.stream() {
            Some(_) => Event::WriteStream,
            None => Event::Write,
        };
        let bytes = range.1 - range.0;
        let mut held_back = false;
        loop {
            let mut room = pin!(self.share.room.notified());
            room.as_mut().enable();
            let admitted = core.with(held.key(), |inode| {
                let mut judged = self.judge(inode, Asked::of(event, flags));
                let mut max = u64::MAX;
                if let Some(bound) = judged.bound
                    && judged.barriers.owed
                {
                    if bytes > bound.max_bytes {
                        // Never fits: stored before its reply.
                        judged.barriers = stored(event);
                    } else {
                        let max_delay = self.share.keeping(&bound, 1).oldest;
                        if self.share.breaks(&Bound { max_delay, ..bound }, core.now()) {
                            return None;
                        }
                        max = bound.max_bytes;
                    }
                }
                let reservation = self.share.reserve(bytes, max, judged.kind)?;
                inode.seen_through(&self.share);
                let ticket =
                    (arrived.as_ref()).map_or_else(|| core.tick(), |arrived| arrived.ticket);
                let also = inode.opens.bounded_elsewhere(&self.share);
                let seen = inode.begin_write(ticket, judged.barriers.durable_write);
                Some((judged, also, seen, reservation))
            });
            if let Some((judged, also, (ticket, failures, wants_keeper), reservation)) = admitted {
                // Under way: no longer on the list of what waits. Not before.
                drop(arrived);
                let write = WriteInFlight {
                    gate: self,
                    core,
                    held,
                    range,
                    account: Account {
                        share: &self.share,
                        kind: judged.kind,
                        also,
                    },
                    ticket,
                    failures,
                    durable: judged.barriers.durable_write,
                    wants_keeper,
                    reservation: Some(reservation),
                };
                return (judged, write);
            }
            if !std::mem::replace(&mut held_back, true) {
                count(&self.share.metrics.backpressure);
                arrived.get_or_insert_with(|| self.arrive(node, None));
            }
            // What is owed is in the way now, however young it is.
            self.share.hurry(core.now());
            room.await;
        }
    }
}

/// What makes a write stable before its reply.
fn stored(event: Event) -> Barriers {
    let durable_write = event == Event::Write;
    Barriers {
        durable_write,
        wait: match durable_write {
            true => Wait::Names,
            false => Wait::Inode,
        },
        ..Barriers::default()
    }
}

/// Whether a failed durable write may have failed in its sync, leaving older data unproven too.
pub(super) fn leaves_doubt(error: VfsError) -> bool {
    !matches!(
        error,
        VfsError::AccessDenied | VfsError::TooLarge | VfsError::IsADirectory | VfsError::NotStarted
    )
}

pub(super) enum Outcome {
    /// Written, not stable.
    Dirty,
    /// Written in part or not at all: it repairs nothing.
    Doubtful,
    /// Written and stable, but for the times.
    Durable,
    /// A durable write failed; older data of the range may be lost with it.
    Failed(VfsError),
}

/// A write that the kernel may be working on.
pub(super) struct WriteInFlight<'a, V: Vfs> {
    gate: &'a Gate<V>,
    core: &'a Durability<V>,
    held: Held<V>,
    range: (u64, u64),
    account: Account<'a>,
    ticket: u64,
    failures: u64,
    /// A durable write: its sync may hear of any earlier failure.
    durable: bool,
    /// Nothing is held of the inode that was opened before its contents changed.
    pub(super) wants_keeper: bool,
    /// Taken when the write has ended.
    reservation: Option<Reservation>,
}

impl<V: Vfs> WriteInFlight<'_, V> {
    pub(super) fn end(&mut self, outcome: Outcome) {
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        let counted = !self.core.planted(Planted::ExposureUnderReported);
        let reservation = counted.then_some(reservation);
        let (core, share, range) = (self.core, &self.gate.share, self.range);
        let stream = self.held.node.stream().unwrap_or_default();
        let key = self.held.key();
        let now = core.now();
        let failure = match outcome {
            Outcome::Failed(error) => Some(core.failure(error)),
            _ => None,
        };
        if let Some(failure) = failure {
            core.failures.note(key, failure);
        }
        let account = &self.account;
        let mut early = None;
        let (idle, repaired, lost) = core.with(key, |inode| {
            inode.in_flight.remove(&self.ticket);
            inode.written.notify_waiters();
            let (mut idle, mut repaired) = (Vec::new(), false);
            // A sync failed meanwhile: it may have dropped what was written by then.
            let doubt = inode.failures != self.failures
                && !core.planted(Planted::WriteBesideFailureTrusted);
            let mut place = match outcome {
                Outcome::Doubtful => Where::Within(range.0, range.1),
                _ => Where::At(range.0, range.1),
            };
            let mut missed = None;
            let since = || *missed.insert(core.missed(key, self.ticket));
            if doubt && let Some(latch) = inode.doubted(since) {
                latch.add_write(share, stream, range);
                place = Where::Latched;
            }
            match failure {
                Some(failure) if core.planted(Planted::FailedThroughTrustsOthers) => {
                    if let Some(latch) = inode.doubted(|| failure) {
                        latch.add_write(share, stream, range);
                    }
                }
                Some(failure) => {
                    // What others wrote is lost with it: their shares are concerned as well.
                    if inode.write_failed(share, stream, range, failure) {
                        missed = Some(failure);
                    }
                }
                None if matches!(outcome, Outcome::Durable) => {
                    repaired = !doubt && inode.rewritten(stream, range);
                    // The data are stable; when they were written is not.
                    idle = inode.owe(account, &self.held, now);
                    inode.pending.times = true;
                }
                None => {
                    idle = inode.owe(account, &self.held, now);
                    inode.wrote((share, account.kind), &self.held, place, reservation);
                    if matches!(place, Where::At(..)) && stream.is_empty() {
                        early = inode.early.wrote(range.0, range.1);
                    }
                }
            }
            let lost = missed.map(|failure| (failure, inode.shares.clone()));
            (idle, repaired, lost)
        });
        idle.iter().for_each(|share| core.start_payer(share));
        if let Some(range) = early {
            self.held.vfs.start_write_back(&self.held.node, range);
        }
        if repaired {
            core.repaired(key);
        }
        core.tell_lost(key, lost);
    }
}

impl<V: Vfs> Drop for WriteInFlight<'_, V> {
    fn drop(&mut self) {
        // Dropped before its end: it may be anywhere between not begun and done. What its sync
        // may have heard nobody will be told.
        self.end(if self.durable {
            Outcome::Failed(VfsError::Io)
        } else {
            Outcome::Doubtful
        });
    }
}
