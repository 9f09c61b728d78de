//! Changes of contents: WRITE, and copying, cloning and zeroing.
//!
//! Invariants:
//! - FLUSH waits for every change of contents that began before it, by its ticket. A queued write (one that was
//!   accepted, and waits for a break or for the bound) has a ticket as well, and so has a size that is being set, until
//!   it is marked. Only FLUSH waits for queued writes: background syncs and barriers do not, because making room may
//!   depend on them. A FLUSH through an open that caches does not wait for the queued writes of other opens, because
//!   the break that they wait for may wait for this FLUSH.
//! - The bytes of a WRITE are reserved before the kernel sees them: the exposure is never below what was written. A
//!   share that gets a bounded open of the file, or promises the WRITE, while it is under way is charged when it ends.
//! - If a guard is dropped after its change began, anything may have been written: a WRITE counts as done in part, one
//!   with a sync of its own (`RWF_DSYNC`) as failed, any other change as a change of the whole file.
//! - A failure of write-back that a WRITE may have reported instead of the sync poisons the inode.
//! - Only ranges that were certainly rewritten repair a latch.

use std::sync::Arc;

use bytes::Bytes;
use vfs::{Node, Range, VfsError, VfsResult, Volume, WriteMode};

use super::{Asked, Completion, Gate, Judged, Receipt, Unchanged};
use crate::{
    dirty::{Account, ChangedRange, Held, Inode, Made},
    metrics::count,
    planted::Planted,
    policy::{Barriers, Bound, Event, PolicyKind, RequestFlags},
    share::{Reservation, Share},
};

/// A change of contents, about to be made or under way. A guard like [`PendingChange`](super::PendingChange).
#[must_use = "a change that was made must be reported"]
pub struct PendingContents<'a, V: Volume> {
    gate: &'a Gate<V>,
    since: u64,
    held: Held<V>,
    /// The number of the change among the writes of the inode, from when it is queued or starts.
    ticket: Option<u64>,
    phase: Phase<'a>,
    /// The ranges that changed, and the number of bytes that count as written.
    changed: Vec<(ChangedRange, u64)>,
}

enum Phase<'a> {
    /// Nothing has happened, or everything has been reported.
    Idle,
    Queued,
    /// The kernel may be changing contents by other means than a WRITE.
    InFlight,
    Writing(Writing<'a>),
}

/// A WRITE that the kernel may be working on.
struct Writing<'a> {
    range: (u64, u64),
    account: Account<'a>,
    /// The WRITE carries a sync of its own, and this sync may be the one that reports an earlier failure.
    durable: bool,
    /// The bytes reserved for the share of the request; `others` holds those of the other shares that it is charged to.
    reserved: Reservation,
    others: Vec<Reservation>,
}

impl Writing<'_> {
    /// Charges the shares, too, that have got a bounded open or have promised the WRITE since it was admitted.
    fn charge_late<V: Volume>(&mut self, inode: &Inode<V>) {
        let bytes = self.range.1 - self.range.0;
        for share in inode.charged_beside(self.account.share) {
            if !self.account.also.contains(&share) {
                let reserved = share.reserve(bytes, u64::MAX, PolicyKind::Bounded);
                self.others.extend(reserved);
                self.account.also.push(share);
            }
        }
    }
}

enum Outcome {
    /// Written, and stable except for the times if it carried a sync.
    Written,
    /// Written in part or not at all: it repairs nothing.
    Doubtful,
    /// A durable write failed; older data of the file may be lost with it.
    Failed(VfsError),
}

impl<V: Volume> Gate<V> {
    /// Contents of `node` are about to change, once [`PendingContents::start`] or [`PendingContents::write`] is called.
    pub fn contents(&self, node: &V::Node) -> PendingContents<'_, V> {
        PendingContents {
            gate: self,
            since: self.since(Planted::ChangeBesideFailureTrusted),
            held: self.held(node),
            ticket: None,
            phase: Phase::Idle,
            changed: Vec::new(),
        }
    }

    /// Contents of `node` are about to change by other means than [`PendingContents::write`], which does this itself:
    /// the descriptor of the later sync must be open before the change, or it would miss a failed write-back that was
    /// reported elsewhere first. It is a separate one where the caller's would keep the file from being executed.
    pub async fn watch_write_back(&self, node: &V::Node) {
        let watched = || self.core.peek(node.key(), |inode| !inode.wants_keeper());
        if node.forbids_execution() && watched() != Some(true) {
            self.keep_for_sync(node).await;
        }
    }

    /// Opens the descriptor for the syncs of `node`, unless its own serves.
    pub(super) async fn keep_for_sync(&self, node: &V::Node) {
        if let Some(keeper) = self.vfs.keeper(node).await {
            let held = self.held(&keeper);
            self.core.with(node.key(), |inode| inode.keep(held));
        }
    }

    /// Whether a change of contents that failed and has no sync of its own may have reported the failure of an earlier
    /// write-back, which no sync reports then: a descriptor that was opened only for the sync still reports it.
    fn may_have_taken_failure(&self, node: &V::Node, error: VfsError) -> bool {
        error.may_be_of_earlier_write()
            && node.forbids_execution()
            && self.core.peek(node.key(), Inode::is_watched_by_writers) == Some(true)
    }
}

impl<V: Volume> PendingContents<'_, V> {
    /// Queues a request that was accepted and has to wait; a FLUSH that comes meanwhile waits for it. `open` is the
    /// process-wide number of the open through which it came, if that is known.
    pub fn queue(&mut self, open: Option<u64>) {
        let core = &self.gate.core;
        if let Phase::Idle = self.phase {
            self.ticket = Some(core.with(self.held.key(), |inode| {
                let ticket = core.tick();
                inode.queue_write(ticket, open);
                ticket
            }));
            self.phase = Phase::Queued;
        }
    }

    /// Announces that the change begins now, by other means than a WRITE.
    pub fn start(&mut self) {
        let (gate, core, known) = (self.gate, &self.gate.core, self.ticket);
        self.since = gate.since(Planted::ChangeBesideFailureTrusted);
        let ticket = core.with(self.held.key(), |inode| {
            inode.seen_through(&gate.share);
            let ticket = known.unwrap_or_else(|| core.tick());
            inode.start_write(ticket, &self.held, Made::InParts);
            ticket
        });
        self.ticket = Some(ticket);
        self.phase = Phase::InFlight;
    }

    /// Reports that all of the range was rewritten.
    pub fn rewrote(&mut self, range: Range) {
        let place = ChangedRange::At(range.offset, range.offset.saturating_add(range.len));
        self.add(place, range.len);
    }

    /// Reports that something within the range may have changed.
    pub fn touched(&mut self, range: Range) {
        let place = ChangedRange::Within(range.offset, range.offset.saturating_add(range.len));
        self.add(place, range.len);
    }

    pub(crate) fn add(&mut self, place: ChangedRange, bytes: u64) {
        self.changed.push((place, bytes));
    }

    /// Reports that the change failed with `error`, and that something within the range may have changed.
    pub fn failed(&mut self, range: Range, error: VfsError) {
        self.touched(range);
        let (gate, core, held) = (self.gate, &self.gate.core, &self.held);
        if gate.may_have_taken_failure(&held.node, error) {
            let end = range.offset.saturating_add(range.len);
            let failure = core.note_failure(held.key(), error);
            core.with(held.key(), |inode| {
                inode.write_failed(&gate.share, "", (range.offset, end), failure);
            });
        }
    }

    /// Whether any byte may have changed by what was reported so far.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed.iter().any(|(_, bytes)| *bytes > 0)
    }

    /// The change that [`PendingContents::start`] began is over: marks the reported ranges and waits for the barrier.
    ///
    /// # Errors
    /// The error of the sync; the contents have changed all the same.
    pub async fn end(&mut self, flags: RequestFlags) -> VfsResult<Completion> {
        let (gate, node) = (self.gate, self.held.node.clone());
        if self.changed.is_empty() {
            self.phase = Phase::Idle;
            let ticket = self.ticket.take();
            gate.core.with(node.key(), |inode| {
                inode.write_ended(ticket);
                inode.release_at_rest();
            });
            return Ok(Unchanged::because("no range of the contents changed").into());
        }
        let judged = self.mark(flags);
        gate.acknowledge(&node, judged).await.map(Completion::from)
    }

    /// Marks the ranges of a change that was in flight and has now ended.
    fn mark(&mut self, flags: RequestFlags) -> Judged {
        self.phase = Phase::Idle;
        let (ticket, changed) = (self.ticket.take(), std::mem::take(&mut self.changed));
        let (gate, held) = (self.gate, &self.held);
        let asked = Asked::of(Event::Content, flags);
        gate.mark(&held.node, asked, self.since, |inode, account, doubt| {
            inode.write_ended(ticket);
            for (place, bytes) in changed {
                let place = doubt.map_or(place, |failure| {
                    inode.doubted(account.share, held, place, failure)
                });
                let all = account.shares();
                let all = all.filter_map(|(share, kind)| share.reserve(bytes, u64::MAX, kind));
                inode.wrote(held, place, all);
            }
        })
    }

    /// Writes `data` at `offset`, durably where the policy requires that, and waits for the rest of its barrier.
    ///
    /// # Errors
    /// The error of the write or of its syncs. A part may have been written.
    pub async fn write(
        &mut self,
        offset: u64,
        data: Bytes,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let (gate, node) = (self.gate, self.held.node.clone());
        let range = (offset, offset.saturating_add(data.len() as u64));
        // Boxed only where it is needed, so that not every WRITE carries this future.
        let (judged, watch) = match self.admit(range, flags) {
            Ok(admitted) => admitted,
            Err(_) => Box::pin(self.wait_for_room(range, flags)).await,
        };
        if watch {
            gate.watch_write_back(&node).await;
        }
        let durable = judged.barriers.durable_write;
        let mode = WriteMode { durable };
        let result = gate.vfs.write(&node, offset, data, mode).await;
        if durable {
            count(&gate.share.metrics.writes_durable);
        } else if judged.barriers.deferred {
            count(&gate.share.metrics.writes_deferred);
        }
        let Err(mut error) = result else {
            self.end_write(Outcome::Written);
            return gate.acknowledge(&node, judged).await;
        };
        let doubtful = match durable {
            true => leaves_doubt(error),
            false => gate.may_have_taken_failure(&node, error),
        };
        if doubtful {
            self.end_write(Outcome::Failed(error));
            gate.core.sync_what_is_doubtful(&self.held);
            error = gate.core.latch_error(node.key()).unwrap_or(error);
        } else {
            self.end_write(Outcome::Doubtful);
            Box::pin(gate.core.limit_dirty(&gate.share, node.key())).await;
        }
        gate.core.latches_stored().await;
        Err(error)
    }

    /// Queues a WRITE and waits until it is admitted.
    async fn wait_for_room(&mut self, range: (u64, u64), flags: RequestFlags) -> (Judged, bool) {
        let share = &self.gate.share;
        count(&share.metrics.backpressure);
        self.queue(None);
        let mut full = Arc::clone(share);
        loop {
            let in_the_way = Arc::clone(&full);
            let room = in_the_way.room.notified();
            match self.admit(range, flags) {
                Ok(admitted) => return admitted,
                Err(share) if share == full => {}
                Err(share) => {
                    full = share;
                    continue;
                }
            }
            // Everything dirty is in the way now, however recent it is.
            full.hurry();
            room.await;
        }
    }

    /// Admits a WRITE if its bytes, which are reserved, fit the bound. Also says if [`Gate::watch_write_back`] is due.
    ///
    /// # Errors
    /// The share that must have something synced first.
    fn admit(
        &mut self,
        range: (u64, u64),
        flags: RequestFlags,
    ) -> Result<(Judged, bool), Arc<Share>> {
        let gate = self.gate;
        let (core, share) = (&gate.core, &gate.share);
        let event = match self.held.node.stream() {
            Some(_) => Event::WriteStream,
            None => Event::Write,
        };
        let bytes = range.1 - range.0;
        let (known, key) = (self.ticket, self.held.key());
        let admitted: Result<_, Arc<Share>> = core.with(key, |inode| {
            let mut judged = gate.judge(inode, &Asked::of(event, flags));
            let account = gate.account(inode, judged.kind, Vec::new());
            let mut bounded = judged.bound.filter(|_| judged.barriers.bounded);
            let is_large = |bound: &mut Bound| bytes > bound.max_bytes / 2;
            if bounded.take_if(is_large).is_some() {
                // It may never fit beside what others write, so it is made stable before its reply.
                judged.barriers = Barriers::stored(event);
            }
            if judged.barriers.durable_write && inode.latch_error().is_some() {
                // Only a sync of the inode stores the times as well, which the failed one may have lost.
                judged.barriers = Barriers::strict();
            }
            let bound_of = |one: &Share| bounded.and_then(|all| one.bound_for(all));
            let refuses = |one: &Arc<Share>| {
                bound_of(one).is_some_and(|bound| one.refuses(key.fs, bytes, &bound))
            };
            // Nothing is reserved beside a share that refuses: what is given back wakes the WRITEs that wait for room
            // in the other share, and two of these could wake each other without end.
            if let Some((full, _)) = account.shares().find(|(one, _)| refuses(one)) {
                return Err(Arc::clone(full));
            }
            // A request on another worker may have reserved the rest meanwhile.
            let reserve = |one: &Arc<Share>, kind| {
                let max = bound_of(one).map_or(u64::MAX, |bound| bound.max_bytes);
                let reserved = one.reserve(bytes, max, kind);
                reserved.ok_or_else(|| Arc::clone(one))
            };
            let reserved = reserve(share, judged.kind)?;
            let others = account.also.iter();
            let others = others
                .map(|one| reserve(one, PolicyKind::Bounded))
                .collect::<Result<_, _>>()?;
            let writing = Writing {
                range,
                account,
                durable: judged.barriers.durable_write,
                reserved,
                others,
            };
            inode.seen_through(share);
            let ticket = known.unwrap_or_else(|| core.tick());
            let made = match writing.durable {
                true => Made::Durably,
                false => Made::AtOnce,
            };
            inode.start_write(ticket, &self.held, made);
            // A durable write leaves nothing to be synced later.
            let watch = !writing.durable && inode.wants_keeper();
            Ok((judged, writing, ticket, watch))
        });
        let (judged, writing, ticket, watch) = admitted?;
        self.ticket = Some(ticket);
        self.phase = Phase::Writing(writing);
        self.since = gate.since(Planted::WriteBesideFailureTrusted);
        Ok((judged, watch))
    }

    fn end_write(&mut self, outcome: Outcome) {
        let Phase::Writing(mut writing) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let (core, share) = (&self.gate.core, &self.gate.share);
        let (held, since) = (&self.held, self.since);
        let (range, durable) = (writing.range, writing.durable);
        let is_reported = !core.planted(Planted::ExposureUnderReported);
        let key = held.key();
        let stream = held.node.stream().unwrap_or_default();
        let failure = match outcome {
            Outcome::Failed(error) => Some(core.note_failure(key, error)),
            _ => None,
        };
        let place = match outcome {
            Outcome::Doubtful => ChangedRange::Within(range.0, range.1),
            _ => ChangedRange::At(range.0, range.1),
        };
        let mut hint = None;
        let ticket = self.ticket.take();
        core.with(key, |inode| {
            writing.charge_late(inode);
            inode.write_ended(ticket);
            let account = writing.account;
            let reserved = std::iter::once(writing.reserved).chain(writing.others);
            let reserved = reserved.filter(|_| is_reported);
            if let Some(failure) = failure {
                if core.planted(Planted::FailedThroughTrustsOthers) {
                    inode.doubted(share, held, place, failure);
                } else {
                    inode.write_failed(share, stream, range, failure);
                }
            } else {
                let doubt = core.failed_since(key, since);
                let place =
                    doubt.map_or(place, |failure| inode.doubted(share, held, place, failure));
                inode.mark_dirty(&account, held);
                if durable && matches!(outcome, Outcome::Written) {
                    // The data are stable; their modification time is not.
                    inode.pending.times = true;
                } else {
                    inode.wrote(held, place, reserved);
                    // Under a lazy policy no client waits for the write-back.
                    if matches!(place, ChangedRange::At(..))
                        && stream.is_empty()
                        && !account.kind.is_lazy()
                    {
                        hint = inode.write_back.wrote(range.0, range.1);
                    }
                }
            }
        });
        if let Some(range) = hint {
            held.vfs.start_write_back(&held.node, range);
        }
    }
}

impl<V: Volume> Drop for PendingContents<'_, V> {
    fn drop(&mut self) {
        match &self.phase {
            Phase::Idle => {}
            Phase::Queued => {
                let (core, ticket) = (&self.gate.core, self.ticket.take());
                core.with(self.held.key(), |inode| inode.write_ended(ticket));
            }
            Phase::InFlight => {
                self.changed.push((ChangedRange::Within(0, u64::MAX), 0));
                self.mark(RequestFlags::default());
            }
            // If its own sync reported an earlier failure, no other sync will report it.
            Phase::Writing(Writing { durable: true, .. }) => {
                self.end_write(Outcome::Failed(VfsError::Io));
            }
            Phase::Writing(_) => self.end_write(Outcome::Doubtful),
        }
    }
}

/// Whether a failed durable write may have failed in its sync, which leaves older data unproven too.
fn leaves_doubt(error: VfsError) -> bool {
    !matches!(
        error,
        VfsError::AccessDenied | VfsError::TooLarge | VfsError::IsADirectory | VfsError::NotStarted
    )
}
