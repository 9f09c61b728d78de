//! The two halves of a byte stream, which stand for a socket in the protocol core.
//!
//! `smbd` implements them over TCP, and the simulator over its own network. Both halves are polled by the worker that
//! serves the connection; [`Direct`] is a second handle of the sending half, for what can be sent without waiting.
//! Framing, encryption and credits are in `link/`.

#![allow(async_fn_in_trait)] // Polled on the worker that owns the socket; no `Send` wanted.

use std::{collections::VecDeque, io};

use bytes::{Bytes, BytesMut};
use vfs::disk::InMemory;

/// The session of a user on a connection, as the transport counts it: dropped when the session ends, or its channel.
pub type HeldLogin = Box<dyn Send + Sync>;

/// The receiving half.
pub trait Receive: 'static {
    /// Waits until [`Receive::receive`] can return bytes, the end or an error. It may return early.
    async fn ready(&mut self);

    /// Waits for bytes and appends at most `most` of them to `buffer`, which has room for them. 0 is
    /// the end of the stream. Dropping the future loses no bytes.
    async fn receive(&mut self, buffer: &mut BytesMut, most: usize) -> io::Result<usize>;

    /// Whether the peer has ended or broken the connection, even if bytes that came before have not been received.
    fn is_lost(&self) -> bool;
}

/// The sending half.
pub trait Transmit: 'static {
    /// Waits until some of `segments` can be sent, and removes those that were sent from the front of the queue. It
    /// must be called until the queue is empty.
    async fn transmit(&mut self, segments: &mut VecDeque<Bytes>) -> io::Result<()>;

    /// Closes the sending half; the peer still receives what was sent.
    async fn finish(&mut self);

    /// A handle to send at once and from files, if the transport supports that. It is not used while
    /// [`Transmit::transmit`] has anything left to send.
    fn direct(&self) -> Option<Box<dyn Direct>> {
        None
    }
}

/// Sends as much as the transport takes now, and never waits.
pub trait Direct {
    /// Removes the sent bytes from the front of `head`, and then of `file`. The remaining bytes were not sent.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&self, head: &mut Bytes, file: &mut dyn InMemory) -> io::Result<()>;

    /// Says whether a dead link is to be noticed soon, because it may carry a break: there must be time left to send
    /// the break on another connection. The socket keeps to this until the next call, also on another worker.
    fn gives_up_soon(&self, _soon: bool) {}
}
