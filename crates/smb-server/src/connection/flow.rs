//! The memory of a connection: received bytes, the buffers of requests under way, and answers that wait for the client.
//!
//! Nothing more is read from a connection that holds too much: neither from one beyond its own bounds, which
//! continues when its client takes answers or its requests end, nor from one for which the server's budget
//! ([`crate::Memory`]) has no room, which tries again from time to time. Charges are adjusted when a request is
//! about to begin, when one ends and when answers have been sent. While others wait, a connection whose client
//! frees nothing of what it could is closed.

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use vfs::{Vfs, env::pause};

use super::{Connection, Outbox};
use crate::{
    limits::{
        CONNECTION_MEMORY, DATA_IN_FLIGHT_MAX, LOSS_LOOK, MEMORY_ARRIVED_STEP, MEMORY_PATIENCE,
        MEMORY_SLACK, MEMORY_STEP, MEMORY_STUCK_BYTES, OUTBOX_BYTES_MAX, UNREAD_MAX,
    },
    link::{misbehaved::Misbehaved, receive_buffer::ReceiveBuffer},
    memory::{Account, Held, Portion},
    race::{First, race},
    transport::Receive,
};

/// The share of a connection in the server's budget.
pub(crate) struct Flow {
    pub(crate) account: Arc<Account>,
    /// The granted bytes; also kept in a cell of their own, because every request looks at them.
    granted: RefCell<Held>,
    granted_bytes: Cell<usize>,
    /// The bytes of the receive buffer beyond its usual size.
    receiving: Cell<usize>,
    /// Bytes that have arrived since they last counted as progress.
    arrived: Cell<usize>,
}

impl Flow {
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self {
            granted: RefCell::new(account.nothing()),
            granted_bytes: Cell::new(0),
            receiving: Cell::new(0),
            arrived: Cell::new(0),
            account,
        }
    }

    fn grant(&self, bytes: usize, share: Portion) -> bool {
        let mut granted = self.granted.borrow_mut();
        let done = granted.resize(bytes, share);
        self.granted_bytes.set(granted.bytes());
        done
    }
}

impl<V: Vfs> Connection<V> {
    /// The account of the connection and its opens in the server's memory budget.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.flow.account
    }

    /// The bytes that must be granted before the connection may hold `more` bytes than now.
    fn needed(&self, more: usize) -> usize {
        let held = self.flow.receiving.get() + self.data_in_flight.get() + self.outbox.held.get();
        held.saturating_add(more).saturating_sub(CONNECTION_MEMORY)
    }

    /// Whether `more` bytes may be held according to the server's budget; if so, they are granted.
    fn is_granted(&self, more: usize, share: Portion) -> bool {
        let needed = self.needed(more);
        needed <= self.flow.granted_bytes.get()
            || self.flow.grant(needed.next_multiple_of(MEMORY_STEP), share)
            || self.flow.grant(needed, share)
    }

    /// Charges what was queued without waiting for room; returns false if the budget has no room for it and it is much.
    /// A client that takes its answers may have requests under way for all that was granted, and is not closed for a
    /// little more.
    pub(crate) fn has_room(&self) -> bool {
        self.is_granted(0, Portion::All)
            || self.needed(0) <= self.flow.granted_bytes.get() + MEMORY_STEP
    }

    /// Charges an answer of `bytes` to a request that kept no room for it while it waited; returns false if the budget
    /// has none.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.is_granted(bytes, Portion::Half)
    }

    /// Returns memory to the budget that is no longer held.
    pub(crate) fn return_memory(&self) {
        let granted = self.flow.granted_bytes.get();
        if granted == 0 {
            return;
        }
        let needed = self.needed(0);
        if needed == 0 || granted > needed + MEMORY_SLACK {
            let rest = needed.next_multiple_of(MEMORY_STEP).min(granted);
            self.flow.grant(rest, Portion::Half);
        }
    }

    /// Reports how many bytes the client could free by reading its answers or by sending the rest of a frame.
    pub(crate) fn report_untaken(&self) {
        let untaken = self.outbox.held.get() + self.flow.receiving.get();
        self.flow.account.set_untaken(untaken);
    }

    /// Whether the connection holds no more than one connection may, regardless of the others.
    fn is_within_bounds(&self) -> bool {
        self.outbox.held.get() <= OUTBOX_BYTES_MAX
            && self.data_in_flight.get() <= DATA_IN_FLIGHT_MAX
    }

    /// Waits until the connection may hold `more` bytes than it does, or is closed. It is closed if its client is gone:
    /// nothing is received meanwhile, so the loss would not be noticed before the next answer is sent, and its requests
    /// would keep their memory and their opens until then ([MS-SMB2] 3.3.7.1). While it waits for long, it cancels
    /// waiting requests.
    ///
    /// # Errors
    /// The budget is too small for so many bytes, however much of it others free.
    pub(crate) async fn room(
        &self,
        more: usize,
        receiver: &impl Receive,
    ) -> Result<(), Misbehaved> {
        if self.is_within_bounds() && self.is_granted(more, Portion::Half) {
            return Ok(());
        }
        let env = &*self.server.env;
        let mut room = pin!(self.wait_for_room(more));
        let mut waited = Duration::ZERO;
        while !receiver.is_lost() {
            if let First::Left(found) = race(room.as_mut(), env.sleep(LOSS_LOOK)).await {
                return found;
            }
            waited += LOSS_LOOK;
            if waited >= UNREAD_MAX && self.data_in_flight.get() >= MEMORY_STUCK_BYTES {
                self.cancel_waiting();
                waited = Duration::ZERO;
            }
            // The cancelled requests end meanwhile.
            pause(env).await;
        }
        self.close();
        Ok(())
    }

    async fn wait_for_room(&self, more: usize) -> Result<(), Misbehaved> {
        let env = &self.server.env;
        let mut waits = None;
        loop {
            // The client reads too little of what is sent, or has sent more requests than may run at once.
            let bounded = || (self.is_within_bounds() || self.is_closed()).then_some(());
            Outbox::until(&self.outbox.room, bounded).await;
            let since = waits
                .as_ref()
                .map_or(Duration::ZERO, |(since, _)| env.monotonic() - *since);
            // A client that leaves its answers unread gets no larger share by waiting.
            let share = if since < MEMORY_PATIENCE || self.outbox.held.get() > 0 {
                Portion::Half
            } else {
                Portion::All
            };
            if self.is_closed() || self.is_granted(more, share) {
                return Ok(());
            }
            // Nobody else is closed for what can never be granted.
            let least = more.saturating_sub(CONNECTION_MEMORY);
            if least > self.server.memory.most_for_one() {
                return Err(Misbehaved::TooMuchData);
            }
            waits.get_or_insert_with(|| (env.monotonic(), self.flow.account.wait()));
            self.server.close_stuck(env.monotonic());
            race(self.something_went(), env.sleep(self.server.memory.again())).await;
        }
    }

    /// Waits until the connection frees some of its own memory; it may return early.
    async fn something_went(&self) {
        let mut waited = false;
        Outbox::until(&self.outbox.room, || {
            (std::mem::replace(&mut waited, true) || self.is_closed()).then_some(())
        })
        .await;
    }

    /// Called when a frame was taken out of the receive buffer: its memory now belongs to the request.
    pub(crate) fn frame_taken(&self, length: usize) {
        let receiving = self.flow.receiving.get();
        if receiving > 0 {
            self.flow.receiving.set(receiving.saturating_sub(length));
            self.report_untaken();
        }
    }

    /// Makes room in the receive buffer for `missing` bytes of a frame, which may have to wait for
    /// memory. Returns how many bytes to read.
    pub(crate) async fn room_to_receive(
        &self,
        input: &mut ReceiveBuffer,
        missing: usize,
        receiver: &impl Receive,
    ) -> Result<usize, Misbehaved> {
        let charged = self.flow.receiving.get();
        let wanted = input.beyond_usual(missing);
        if wanted > 0 || charged > 0 {
            let more = wanted.saturating_sub(charged);
            if more > 0 && !self.is_granted(more, Portion::Half) {
                input.shrink();
                self.room(more, receiver).await?;
            }
            self.flow.receiving.set(wanted);
            self.report_untaken();
            self.return_memory();
        }
        Ok(input.make_room(missing))
    }

    /// Gives the empty receive buffer back.
    pub(crate) fn received_all(&self, input: &mut ReceiveBuffer) {
        input.rest();
        if self.flow.receiving.replace(0) > 0 {
            self.report_untaken();
            self.return_memory();
        }
    }

    /// Counts bytes that have arrived.
    pub(crate) fn arrived(&self, bytes: usize) {
        if self.flow.receiving.get() > 0 {
            let arrived = self.flow.arrived.get() + bytes;
            self.flow.arrived.set(arrived % MEMORY_ARRIVED_STEP);
            // For a client that reads no answers, bytes that it sends do not count as progress.
            if arrived >= MEMORY_ARRIVED_STEP && self.outbox.held.get() == 0 {
                self.flow.account.moved();
            }
        }
    }

    /// Closes a connection whose client frees no memory while others wait for it; nothing that was queued is sent.
    pub(crate) fn evict(&self, bytes: usize) {
        tracing::warn!(
            peer = %self.peer,
            bytes,
            "connection closed: others wait for memory, and its client neither takes its answers \
             nor sends the rest of its request"
        );
        self.server.memory.evicted();
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        io,
        task::{Context, Poll, Waker},
    };

    use bytes::BytesMut;
    use smb_wire::header::Header;

    use super::*;
    use crate::{
        connection::DataInFlight,
        limits::ServerLimits,
        restore::world::{HASTE, World, connection},
        state::{EndReason, Ender},
    };

    /// A client that sends nothing more, and says whether it is gone.
    struct Silent {
        gone: bool,
    }

    impl Receive for Silent {
        async fn ready(&mut self) {}

        async fn receive(&mut self, _: &mut BytesMut, _: usize) -> io::Result<usize> {
            Ok(0)
        }

        fn is_lost(&self) -> bool {
            self.gone
        }
    }

    /// Whether a request that waits is cancelled once nothing was read for long, where the requests under way hold so
    /// many bytes.
    fn is_cancelled(bytes: usize) -> bool {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        connection.outbox.held.set(OUTBOX_BYTES_MAX + 1);
        let _requests = DataInFlight::new(&connection, bytes);
        let (ender, mut ended) = Ender::new(false);
        let request = Header::default();
        connection.register(&request, ender, None).unwrap();
        HASTE.set(true);
        let mut context = Context::from_waker(Waker::noop());
        let client = Silent { gone: false };
        let mut room = pin!(connection.room(0, &client));
        for _ in 0..2 * UNREAD_MAX.as_secs() {
            assert_eq!(room.as_mut().poll(&mut context), Poll::Pending);
        }
        HASTE.set(false);
        ended.try_recv() == Ok(EndReason::Cancelled)
    }

    #[test]
    fn requests_that_wait_keep_no_connection_from_being_read_for_ever() {
        let much = [MEMORY_STUCK_BYTES - 1, MEMORY_STUCK_BYTES];
        assert_eq!(much.map(is_cancelled), [false, true]);
    }

    #[test]
    fn the_loss_of_a_client_is_noticed_although_there_is_no_room_to_receive() {
        for gone in [false, true] {
            let server = World::new(false, ServerLimits::default()).server;
            let connection = connection(&server, None);
            let _requests = DataInFlight::new(&connection, DATA_IN_FLIGHT_MAX + 1);
            let client = Silent { gone };
            let mut context = Context::from_waker(Waker::noop());
            let polled = pin!(connection.room(0, &client)).poll(&mut context);
            assert_eq!(polled.is_ready(), gone);
            assert_eq!(connection.is_closed(), gone);
        }
    }

    #[test]
    fn answers_that_nobody_takes_any_more_return_their_memory() {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        connection.outbox.held.set(4 * CONNECTION_MEMORY);
        assert!(connection.has_room() && connection.flow.granted_bytes.get() > 0);
        connection.abandon();
        assert_eq!(connection.flow.granted_bytes.get(), 0);
    }
}
