//! The two halves of a byte stream, as the protocol core sees a socket.

#![allow(async_fn_in_trait)] // Polled on the worker that owns the socket; no `Send` wanted.

use std::{collections::VecDeque, io};

use bytes::{Bytes, BytesMut};
use vfs::disk::InMemory;

/// The receiving half.
pub trait Receive: 'static {
    /// Waits until [`Receive::receive`] has something to say: bytes, the end or an error. May be
    /// early.
    async fn ready(&mut self);

    /// Waits for bytes and appends at most `most` of them to `buffer`, which has room for them. 0 is
    /// the end of the stream. Dropping the future loses no bytes.
    async fn receive(&mut self, buffer: &mut BytesMut, most: usize) -> io::Result<usize>;
}

/// The sending half.
pub trait Transmit: 'static {
    /// Waits until some of `segments` can be sent, and takes off the queue, from its front, what
    /// was. Call it until the queue is empty.
    async fn transmit(&mut self, segments: &mut VecDeque<Bytes>) -> io::Result<()>;

    /// Sends what is left and says that nothing more follows.
    async fn finish(&mut self);

    /// The same half for what is sent at once, where the transport can send from files. It is not used
    /// while [`Transmit::transmit`] has anything left to send.
    fn direct(&self) -> Option<Box<dyn Direct>> {
        None
    }
}

/// Sends at once what the transport takes now, and never waits.
pub trait Direct {
    /// Takes what was sent off the front of `head`, and then of `file`. Bytes that are left in them are not sent.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&self, head: &mut Bytes, file: &mut dyn InMemory) -> io::Result<()>;
}
