//! Contents that change otherwise than by a WRITE: copied, cloned, zeroed.
//!
//! Such a change takes its time, in one call or in several. A [`Changing`] is made before the
//! first: from then on FLUSH waits for it as it does for a write, and a sync that fails meanwhile
//! leaves unproven what it may have dropped. The policy's barrier comes once, at the end. Only
//! what was surely rewritten repairs a latch.

use vfs::{Node, Range, Vfs, VfsError};

use super::{Arrived, Asked, Gate, Judged};
use crate::{
    epoch::{Account, Where},
    inode::{Held, Inode},
    policy::{Event, RequestFlags},
    receipt::Receipt,
};

/// A change of contents under way, made by [`Gate::changing`]. Dropped before its end it counts
/// as a change of anything.
pub struct Changing<'a, V: Vfs> {
    gate: &'a Gate<V>,
    held: Held<V>,
    ticket: u64,
    /// Failed syncs of the inode before it began.
    failures: u64,
    /// What changed, and how many bytes of that count as written.
    pub(crate) ranges: Vec<(Where, u64)>,
    ended: bool,
}

impl<V: Vfs> Gate<V> {
    /// Contents of `node` are about to change by a copy, a clone or zeroing.
    pub fn changing(&self, node: &V::Node) -> Changing<'_, V> {
        self.changing_arrived(None, node)
    }

    /// As [`Gate::changing`], of a change that has had to wait ([`Gate::arrived`]).
    pub fn changing_arrived(
        &self,
        arrived: Option<Arrived<'_, V>>,
        node: &V::Node,
    ) -> Changing<'_, V> {
        let held = self.held(node);
        let (ticket, failures) = self.core.with(held.key(), |inode| {
            inode.seen_through(&self.share);
            let ticket =
                (arrived.as_ref()).map_or_else(|| self.core.tick(), |arrived| arrived.ticket);
            inode.in_flight.insert(ticket);
            (ticket, inode.failures)
        });
        drop(arrived);
        Changing {
            gate: self,
            held,
            ticket,
            failures,
            ranges: Vec::new(),
            ended: false,
        }
    }
}

impl<V: Vfs> Changing<'_, V> {
    /// All of the range has been rewritten.
    pub fn rewrote(&mut self, range: Range) {
        let end = range.offset.saturating_add(range.len);
        self.ranges.push((Where::At(range.offset, end), range.len));
    }

    /// Something within the range may have changed.
    pub fn touched(&mut self, range: Range) {
        let end = range.offset.saturating_add(range.len);
        self.ranges
            .push((Where::Within(range.offset, end), range.len));
    }

    /// The change is over: what was said of it is marked, and what the policy asks is done.
    ///
    /// # Errors
    /// What the sync says; the contents have changed all the same.
    pub async fn end(mut self, flags: RequestFlags) -> Result<Receipt, VfsError> {
        self.ended = true;
        if self.ranges.is_empty() {
            self.leave();
            return Ok(Receipt::new());
        }
        let judged = self.mark(flags);
        let (gate, node) = (self.gate, self.held.node.clone());
        gate.after(&gate.core, &node, judged).await
    }

    /// Nothing has changed.
    fn leave(&self) {
        self.gate.core.with(self.held.key(), |inode| {
            inode.in_flight.remove(&self.ticket);
            inode.written.notify_waiters();
            inode.unchanged();
        });
    }

    fn mark(&self, flags: RequestFlags) -> Judged {
        let core = &self.gate.core;
        let (mut missed, mut shares) = (None, Vec::new());
        let change = |inode: &mut Inode<V>, account: &Account<'_>| {
            let Account { share, kind, .. } = *account;
            inode.in_flight.remove(&self.ticket);
            inode.written.notify_waiters();
            // A sync failed meanwhile: it may have dropped what was there by then.
            let doubt = inode.failures != self.failures;
            for (place, bytes) in &self.ranges {
                let mut place = *place;
                let since = || *missed.insert(core.missed(self.held.key(), self.ticket));
                if doubt && let Some(latch) = inode.doubted(since) {
                    let stream = self.held.node.stream().unwrap_or_default();
                    latch.add(share, stream, place);
                    place = Where::Latched;
                }
                let reservation = share.reserve(*bytes, u64::MAX, kind);
                inode.wrote((share, kind), &self.held, place, reservation);
            }
            shares.clone_from(&inode.shares);
        };
        let node = &self.held.node;
        let asked = Asked::of(Event::Content, flags);
        let judged = self.gate.mark(core, node, asked, change);
        core.tell_lost(self.held.key(), missed.map(|failure| (failure, shares)));
        judged
    }
}

impl<V: Vfs> Drop for Changing<'_, V> {
    fn drop(&mut self) {
        if !self.ended {
            self.ranges.push((Where::Unknown, 0));
            self.mark(RequestFlags::default());
        }
    }
}
