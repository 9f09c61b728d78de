//! A network in memory: one connection is two byte queues with an end on either side.
//!
//! The server's end implements [`Receive`] and [`Transmit`]; the client's end is polled by
//! whatever drives the sans-IO client. Bytes arrive in order; how many at a time can be left to
//! a [`Cutter`], so that framing meets every boundary. Nothing here knows time or threads.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes, BytesMut};
use smb_server::transport::{Receive, Transmit};

use crate::trace::Direction;

/// Bytes in flight in one direction above which the sender waits, as a socket's buffer would make it.
pub const FLIGHT_BYTES_MAX: usize = 4 << 20;

/// Says how many of the bytes that wait are handed over at once, given how many there are. 0 counts as 1.
pub type Cutter = Rc<dyn Fn(usize) -> usize>;

/// Called for every segment sent.
pub type Observer = Rc<dyn Fn(Direction, &Bytes)>;

#[derive(Default)]
struct Queue {
    segments: VecDeque<Bytes>,
    bytes: usize,
    /// The sender is done; what is queued still arrives.
    ended: bool,
    /// The connection broke; nothing arrives any more.
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Queue {
    fn wake(slot: &mut Option<Waker>) {
        if let Some(waker) = slot.take() {
            waker.wake();
        }
    }

    fn push(&mut self, segment: Bytes) {
        if segment.is_empty() {
            return;
        }
        self.bytes += segment.len();
        self.segments.push_back(segment);
        Self::wake(&mut self.reader);
    }

    fn pop(&mut self, max: usize) -> Option<Bytes> {
        let first = self.segments.front_mut()?;
        let part = first.split_to(max.max(1).min(first.len()));
        if first.is_empty() {
            self.segments.pop_front();
        }
        self.bytes -= part.len();
        Self::wake(&mut self.writer);
        Some(part)
    }

    fn end(&mut self) {
        self.ended = true;
        Self::wake(&mut self.reader);
        Self::wake(&mut self.writer);
    }

    fn cut(&mut self) {
        self.broken = true;
        self.segments.clear();
        self.bytes = 0;
        self.end();
    }

    /// Room for the sender: an error when the connection is gone.
    fn poll_room(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.broken || self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.bytes < FLIGHT_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits for something to arrive, or the end.
    fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.segments.is_empty() || self.ended {
            return Poll::Ready(());
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next bytes; `None` at the end.
    fn poll_next(&mut self, max: usize, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(part) = self.pop(max) {
            return Poll::Ready(Some(part));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

struct Wire {
    to_server: RefCell<Queue>,
    to_client: RefCell<Queue>,
    cutter: Option<Cutter>,
    observer: Option<Observer>,
}

impl Wire {
    fn observe(&self, direction: Direction, segment: &Bytes) {
        if let Some(observer) = &self.observer {
            observer(direction, segment);
        }
    }
}

/// A connection: the client's end, and the two halves of the server's.
#[must_use]
pub fn connect(
    cutter: Option<Cutter>,
    observer: Option<Observer>,
) -> (ClientEnd, ServerReceiver, ServerTransmitter) {
    let wire = Rc::new(Wire {
        to_server: RefCell::default(),
        to_client: RefCell::default(),
        cutter,
        observer,
    });
    (
        ClientEnd(Rc::clone(&wire)),
        ServerReceiver(Rc::clone(&wire)),
        ServerTransmitter(wire),
    )
}

/// The client's end. Dropping it breaks the connection.
pub struct ClientEnd(Rc<Wire>);

impl ClientEnd {
    /// Sends without waiting for room.
    pub fn send(&self, bytes: impl Into<Bytes>) -> io::Result<()> {
        let bytes = bytes.into();
        let mut queue = self.0.to_server.borrow_mut();
        if queue.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0.observe(Direction::ToServer, &bytes);
        queue.push(bytes);
        Ok(())
    }

    /// The next bytes, without waiting.
    #[must_use]
    pub fn take(&self) -> Option<Bytes> {
        self.0.to_client.borrow_mut().pop(usize::MAX)
    }

    /// Waits for the next bytes; `None` is the end.
    pub async fn receive(&self) -> Option<Bytes> {
        poll_fn(|cx| self.0.to_client.borrow_mut().poll_next(usize::MAX, cx)).await
    }

    /// Says that nothing more follows.
    pub fn finish(&self) {
        self.0.to_server.borrow_mut().end();
    }

    /// Breaks the connection: what is in flight is lost in both directions.
    pub fn cut(&self) {
        self.0.to_server.borrow_mut().cut();
        self.0.to_client.borrow_mut().cut();
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.cut();
    }
}

/// The half the server reads.
pub struct ServerReceiver(Rc<Wire>);

impl Receive for ServerReceiver {
    async fn ready(&mut self) {
        poll_fn(|cx| self.0.to_server.borrow_mut().poll_ready(cx)).await;
    }

    async fn receive(&mut self, buffer: &mut BytesMut, most: usize) -> io::Result<usize> {
        let wire = &self.0;
        let part = poll_fn(|cx| {
            let mut queue = wire.to_server.borrow_mut();
            if queue.broken {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
            }
            let room = most.min(buffer.capacity() - buffer.len());
            let waiting = queue.segments.front().map_or(0, Bytes::len).min(room);
            let max = match &wire.cutter {
                Some(cutter) if waiting > 0 => cutter(waiting).clamp(1, waiting),
                _ => room,
            };
            queue.poll_next(max, cx).map(Ok)
        })
        .await?;
        buffer.extend_from_slice(part.as_deref().unwrap_or_default());
        Ok(part.map_or(0, |part| part.len()))
    }

    fn is_lost(&self) -> bool {
        self.0.to_server.borrow().ended
    }
}

/// The half the server writes.
pub struct ServerTransmitter(Rc<Wire>);

impl Transmit for ServerTransmitter {
    async fn transmit(&mut self, segments: &mut VecDeque<Bytes>) -> io::Result<()> {
        if let Some(segment) = segments.front_mut() {
            let wire = &self.0;
            poll_fn(|cx| wire.to_client.borrow_mut().poll_room(cx)).await?;
            wire.observe(Direction::ToClient, segment);
            wire.to_client
                .borrow_mut()
                .push(segment.split_to(segment.len()));
            debug_assert!(!segment.has_remaining());
            segments.pop_front();
        }
        Ok(())
    }

    async fn finish(&mut self) {
        self.0.to_client.borrow_mut().end();
    }
}

impl Drop for ServerReceiver {
    fn drop(&mut self) {
        // A socket closed by the server: the client's bytes have nowhere to go.
        self.0.to_server.borrow_mut().cut();
    }
}

impl Drop for ServerTransmitter {
    fn drop(&mut self) {
        self.0.to_client.borrow_mut().end();
    }
}
