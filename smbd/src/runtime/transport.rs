//! A TCP stream for the protocol core: a receiving and a sending half.
//!
//! Receiving appends to the core's own buffer; sending hands the kernel many segments in one
//! call, so that READ data are never copied into one piece, or sends data of a file from the page cache. Cancelling
//! `receive` loses no bytes.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    os::fd::AsFd,
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rustix::net::{
    SendFlags,
    sockopt::{set_tcp_cork, tcp_congestion},
};
use smb_server::transport::{Direct, Receive, Transmit};
use smb_wire::header::TRANSPORT_HEADER_SIZE;
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, Interest},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use vfs::{disk::InMemory, linux::set_receive_low_water};

use super::{listener::UNACKNOWLEDGED_MAX, timers::sleep};

/// Segments given to one system call; the kernel takes up to 1,024.
const SEGMENTS_MAX: usize = 64;

/// A message that misses at least this many bytes may be waited for as a whole.
const LARGE_MIN: usize = 128 << 10;
/// A client that sent at least this many bytes in one call counts as fast. A slow client is served piece by piece, so
/// that it does not seem to send nothing.
const FAST_MIN: usize = 32 << 10;
/// The most bytes that are waited for.
const LOW_WATER_MAX: usize = 768 << 10;
/// The longest wait for them. A client that was fast once may be slow now, and what it sent by then counts.
const LOW_WATER_TIME: Duration = Duration::from_millis(100);

/// `sendfile` hands the socket this many bytes at a time (the pages of its pipe). Their last bytes fill no segment, and
/// each acknowledgement that arrives before the next piece sends them as a packet of their own unless the socket is
/// corked.
const SENDFILE_PIECE: usize = 64 << 10;

/// The time after which a connection that carries a break is closed if the peer acknowledges nothing of the sent data.
/// The break has 35 s, and its client may have to write back its data when it gets it on another connection. This holds
/// no longer than the break: the kernel closes the connection also if one keepalive probe is lost, or if the client
/// takes nothing for as long.
const UNACKNOWLEDGED_SOON: Duration = Duration::from_secs(15);

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    stream: OwnedReadHalf,
    /// The last call for a part of a large message received much.
    fast: bool,
    /// The socket's low-water mark.
    low_water: usize,
}

/// The sending half; borrowed for the length of a call.
#[derive(Debug)]
pub struct Transmitter(Rc<RefCell<OwnedWriteHalf>>);

/// Splits a stream; it is closed when both halves are dropped.
#[must_use]
pub fn split(stream: TcpStream) -> (Receiver, Transmitter) {
    let (read, write) = stream.into_split();
    let receiver = Receiver {
        stream: read,
        fast: false,
        low_water: 1,
    };
    (receiver, Transmitter(Rc::new(RefCell::new(write))))
}

/// Makes a stream of its two halves again.
#[must_use]
pub fn join(mut receiver: Receiver, transmitter: Transmitter) -> Option<TcpStream> {
    receiver.set_low_water(0);
    let write = Rc::into_inner(transmitter.0)?.into_inner();
    receiver.stream.reunite(write).ok()
}

impl Receiver {
    /// Lets a fast client fill the socket with the rest of a large message before this thread is woken. Waking it for
    /// each piece that has arrived costs the client's core more time than copying the piece.
    fn set_low_water(&mut self, most: usize) {
        let bytes = match most >= LARGE_MIN && self.fast {
            true => most.min(LOW_WATER_MAX),
            false => 1,
        };
        if bytes != self.low_water {
            // If the mark could not be set, the thread is only woken more often.
            let _ = set_receive_low_water(self.stream.as_ref().as_fd(), bytes);
            self.low_water = bytes;
        }
    }
}

impl Receive for Receiver {
    async fn ready(&mut self) {
        // The next message may be smaller than the rest of the last one was.
        self.set_low_water(0);
        // Receiving returns the same error. (`readable` would use a list of waiters with its lock, which is not needed
        // here.)
        let _ = poll_fn(|cx| self.stream.as_ref().poll_read_ready(cx)).await;
    }

    async fn receive(&mut self, buffer: &mut BytesMut, most: usize) -> io::Result<usize> {
        self.set_low_water(most);
        let mut room = buffer.limit(most);
        let read = match self.low_water {
            1 => self.stream.read_buf(&mut room).await?,
            _ => tokio::select! {
                biased;
                read = self.stream.read_buf(&mut room) => read?,
                () = sleep(LOW_WATER_TIME) => {
                    self.set_low_water(0);
                    self.stream.read_buf(&mut room).await?
                }
            },
        };
        if most >= LARGE_MIN {
            self.fast = read >= FAST_MIN;
        }
        if read > 0 && read <= TRANSPORT_HEADER_SIZE {
            // The client writes the length of a message and the message one after the other, and
            // its kernel keeps the message back until the length is acknowledged (RFC 1122
            // 4.2.3.4). Ours would take 40 ms for that, each time.
            let _ = rustix::net::sockopt::set_tcp_quickack(self.stream.as_ref(), true);
        }
        Ok(read)
    }

    fn is_lost(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let ready = pin!(self.stream.ready(Interest::READABLE)).poll(&mut context);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }
}

impl Transmit for Transmitter {
    async fn transmit(&mut self, segments: &mut VecDeque<Bytes>) -> io::Result<()> {
        while segments.front().is_some_and(Bytes::is_empty) {
            segments.pop_front();
        }
        if segments.is_empty() {
            return Ok(());
        }
        let mut slices = [IoSlice::new(&[]); SEGMENTS_MAX];
        let mut count = 0;
        for (slice, segment) in slices.iter_mut().zip(segments.iter()) {
            *slice = IoSlice::new(segment);
            count += 1;
        }
        let slices = slices.get(..count).unwrap_or_default();
        let sent =
            poll_fn(|cx| Pin::new(&mut *self.0.borrow_mut()).poll_write_vectored(cx, slices))
                .await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        advance(segments, sent);
        Ok(())
    }

    async fn finish(&mut self) {
        // The peer may be gone, so that nothing is left to finish.
        let _ = poll_fn(|cx| Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)).await;
    }

    fn direct(&self) -> Option<Box<dyn Direct>> {
        let congestion = tcp_congestion(self.0.borrow().as_ref());
        Some(Box::new(DirectTransmitter {
            half: Rc::downgrade(&self.0),
            // BBR paces full segments with a timer for each, which costs more than the packets that a cork saves.
            corks: congestion.is_ok_and(|name| !name.starts_with("bbr")),
        }))
    }
}

/// The sending half for what is sent at once; it does not keep the socket open.
struct DirectTransmitter {
    half: Weak<RefCell<OwnedWriteHalf>>,
    /// The socket is corked for data of more than one [`SENDFILE_PIECE`].
    corks: bool,
}

impl Direct for DirectTransmitter {
    fn send(&self, head: &mut Bytes, file: &mut dyn InMemory) -> io::Result<()> {
        let half = self.half.upgrade().ok_or(io::ErrorKind::BrokenPipe)?;
        let half = half.borrow();
        let stream: &TcpStream = half.as_ref();
        // If the socket cannot be corked, only more packets are sent.
        let corked =
            self.corks && file.left() > SENDFILE_PIECE && set_tcp_cork(stream, true).is_ok();
        let send = || {
            while !head.is_empty() {
                let flags = SendFlags::MORE | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = rustix::net::send(stream, head, flags)?;
                head.advance(sent);
            }
            // The caller notices the end of the file and its errors, because something is left.
            while file.left() > 0 {
                match file.send(stream.as_fd()) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                    Err(_) => break,
                }
            }
            Ok(())
        };
        let sent = stream.try_io(Interest::WRITABLE, send);
        if corked {
            // This fails only if the socket is broken.
            let _ = set_tcp_cork(stream, false);
        }
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    fn gives_up_soon(&self, soon: bool) {
        let time = match soon {
            true => UNACKNOWLEDGED_SOON,
            false => UNACKNOWLEDGED_MAX,
        };
        if let Some(half) = self.half.upgrade() {
            let half = half.borrow();
            let stream: &TcpStream = half.as_ref();
            // If it cannot be set, the socket is broken already, or its loss is noticed later.
            let _ = SockRef::from(stream).set_tcp_user_timeout(Some(time));
        }
    }
}

/// Takes `sent` bytes off the front.
fn advance(segments: &mut VecDeque<Bytes>, mut sent: usize) {
    while sent > 0 {
        let Some(first) = segments.front_mut() else {
            return;
        };
        let part = sent.min(first.len());
        first.advance(part);
        sent -= part;
        if first.is_empty() {
            segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
