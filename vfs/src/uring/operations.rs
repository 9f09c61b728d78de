//! Reads and writes of a thread's ring as futures.
//!
//! A ring that has no room, or that cannot do an operation here, declines it, and the pool then carries it out.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};

use super::{
    sys::{self, Ended, HeldFd, Operation},
    worker::ThreadRing,
};
use crate::disk::{Attempt, Errno};

/// The errors after which the pool tries instead.
const RETRY_ON_POOL: [i32; 4] = [libc::EAGAIN, libc::EINTR, libc::ECANCELED, libc::EOPNOTSUPP];

/// Most bytes of one read.
const READ_MAX: u32 = 1 << 30;

impl ThreadRing {
    /// Reads at most `len` bytes to the end of `buf`.
    pub(crate) async fn read(
        self: Rc<Self>,
        fd: HeldFd,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> Attempt<BytesMut, BytesMut> {
        let len = u32::try_from(len).unwrap_or(READ_MAX).min(READ_MAX);
        let operation = Operation::Read {
            fd,
            offset,
            len,
            buf,
        };
        match RingFuture::new(self, operation).await {
            Ok((Operation::Read { buf, len, .. }, got)) => {
                Attempt::Done(got.map(|got| sys::filled(buf, len, got)))
            }
            Err(Operation::Read { buf, .. }) => Attempt::Declined(buf),
            _ => Attempt::Done(Err(Errno(libc::EIO))),
        }
    }

    /// Writes `data` or its beginning, and returns the number of bytes.
    pub(crate) async fn write(
        self: Rc<Self>,
        fd: HeldFd,
        offset: u64,
        data: Bytes,
    ) -> Attempt<usize, Bytes> {
        let operation = Operation::Write { fd, offset, data };
        match RingFuture::new(self, operation).await {
            Ok((_, put)) => Attempt::Done(put.map(|put| put as usize)),
            Err(Operation::Write { data, .. }) => Attempt::Declined(data),
            Err(_) => Attempt::Done(Err(Errno(libc::EIO))),
        }
    }
}

enum Stage {
    /// The operation is not queued yet.
    New(Operation),
    Queued(usize),
    Over,
}

/// A future of one ring operation. Completes with `Err` if the ring declines it.
pub(super) struct RingFuture {
    thread: Rc<ThreadRing>,
    stage: Stage,
}

impl RingFuture {
    pub(super) fn new(thread: Rc<ThreadRing>, operation: Operation) -> Self {
        Self {
            thread,
            stage: Stage::New(operation),
        }
    }
}

impl Future for RingFuture {
    type Output = Result<Ended, Operation>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut ring = this.thread.ring.borrow_mut();
        match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::New(operation) => {
                match ring.push(operation, cx.waker().clone()) {
                    Ok(key) => this.stage = Stage::Queued(key),
                    Err(operation) => return Poll::Ready(Err(operation)),
                }
                Poll::Pending
            }
            Stage::Queued(key) => match ring.take(key, cx.waker()) {
                Some((operation, Err(Errno(errno)))) if RETRY_ON_POOL.contains(&errno) => {
                    Poll::Ready(Err(operation))
                }
                Some(done) => Poll::Ready(Ok(done)),
                None => {
                    this.stage = Stage::Queued(key);
                    Poll::Pending
                }
            },
            Stage::Over => Poll::Pending,
        }
    }
}

impl Drop for RingFuture {
    fn drop(&mut self) {
        if let Stage::Queued(key) = self.stage {
            let waker = self.thread.ring.borrow_mut().abandon(key);
            drop(waker);
        }
    }
}
