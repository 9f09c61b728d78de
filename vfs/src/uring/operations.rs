//! The operations of a thread's ring as futures.
//!
//! A ring that has no room, or that cannot do an operation here, declines it, and the pool then carries it out.

use std::{
    ffi::CString,
    future::Future,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use io_uring::types::OpenHow;

use super::{
    sys::{self, HeldFd, Operation, Outcome},
    worker::ThreadRing,
};
use crate::{
    Identity,
    disk::{Attempt, DiskResult, Errno, check_name},
};

/// The errors of reads and writes after which the pool tries instead.
const RETRY_ON_POOL: [i32; 4] = [libc::EAGAIN, libc::EINTR, libc::ECANCELED, libc::EOPNOTSUPP];

/// Most bytes of one read.
const READ_MAX: u32 = 1 << 30;

fn c_name(name: &[u8]) -> DiskResult<CString> {
    check_name(name)?;
    CString::new(name).map_err(|_| Errno(libc::EINVAL))
}

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
        match RingFuture::new(self, operation, 0).await {
            Ok((Operation::Read { buf, len, .. }, Outcome::Number(got))) => {
                Attempt::Done(Ok(sys::filled(buf, len, got)))
            }
            Ok((Operation::Read { buf, .. }, Outcome::Failed(Errno(errno))))
                if RETRY_ON_POOL.contains(&errno) =>
            {
                Attempt::Declined(buf)
            }
            Err(Operation::Read { buf, .. }) => Attempt::Declined(buf),
            other => Attempt::Done(Err(failure(other))),
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
        match RingFuture::new(self, operation, 0).await {
            Ok((_, Outcome::Number(put))) => {
                Attempt::Done(usize::try_from(put).map_err(|_| Errno(libc::EIO)))
            }
            Ok((Operation::Write { data, .. }, Outcome::Failed(Errno(errno))))
                if RETRY_ON_POOL.contains(&errno) =>
            {
                Attempt::Declined(data)
            }
            Err(Operation::Write { data, .. }) => Attempt::Declined(data),
            other => Attempt::Done(Err(failure(other))),
        }
    }

    /// `openat2` as `who`.
    pub(crate) async fn open(
        self: Rc<Self>,
        who: &Identity,
        dir: HeldFd,
        name: &[u8],
        how: Box<OpenHow>,
    ) -> Option<DiskResult<OwnedFd>> {
        let operation = c_name(name).map(|name| Operation::Open { dir, name, how });
        match self.name(who, operation).await? {
            Ok(Outcome::Descriptor(fd)) => Some(Ok(fd)),
            Ok(_) => Some(Err(Errno(libc::EIO))),
            Err(errno) => Some(Err(errno)),
        }
    }

    /// `mkdirat` as `who`.
    pub(crate) async fn make_dir(
        self: Rc<Self>,
        who: &Identity,
        dir: HeldFd,
        name: &[u8],
        mode: u32,
    ) -> Option<DiskResult<()>> {
        let operation = c_name(name).map(|name| Operation::MakeDir { dir, name, mode });
        Some(self.name(who, operation).await?.map(drop))
    }

    /// `unlinkat` as `who`; `directory` is `AT_REMOVEDIR`.
    pub(crate) async fn unlink(
        self: Rc<Self>,
        who: &Identity,
        dir: HeldFd,
        name: &[u8],
        directory: bool,
    ) -> Option<DiskResult<()>> {
        let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
        let operation = c_name(name).map(|name| Operation::Unlink { dir, name, flags });
        Some(self.name(who, operation).await?.map(drop))
    }

    /// `renameat2` as `who`; `replace` false is `RENAME_NOREPLACE`.
    pub(crate) async fn rename(
        self: Rc<Self>,
        who: &Identity,
        (from, from_name): (HeldFd, &[u8]),
        (to, to_name): (HeldFd, &[u8]),
        replace: bool,
    ) -> Option<DiskResult<()>> {
        let names = c_name(from_name).and_then(|from| Ok((from, c_name(to_name)?)));
        let operation = names.map(|(from_name, to_name)| Operation::Rename {
            from,
            from_name,
            to,
            to_name,
            flags: if replace { 0 } else { libc::RENAME_NOREPLACE },
        });
        Some(self.name(who, operation).await?.map(drop))
    }

    /// Runs an operation on names as `who`.
    async fn name(
        self: Rc<Self>,
        who: &Identity,
        operation: DiskResult<Operation>,
    ) -> Option<DiskResult<Outcome>> {
        let operation = match operation {
            Ok(operation) => operation,
            Err(errno) => return Some(Err(errno)),
        };
        let personality = match self.personality(who) {
            Ok(id) => id,
            Err(Errno(libc::EPERM)) => return Some(Err(Errno(libc::EPERM))),
            Err(_) => return None,
        };
        match RingFuture::new(self, operation, personality).await {
            Err(_) => None,
            // An operation on names is not repeated after ECANCELED, because it may have taken effect.
            Ok((_, Outcome::Failed(Errno(libc::EAGAIN)))) => None,
            Ok((_, Outcome::Failed(errno))) => Some(Err(errno)),
            Ok((_, outcome)) => Some(Ok(outcome)),
        }
    }
}

/// The error of an operation that neither succeeded nor was declined.
fn failure(ended: Result<(Operation, Outcome), Operation>) -> Errno {
    match ended {
        Ok((_, Outcome::Failed(errno))) => errno,
        _ => Errno(libc::EIO),
    }
}

enum Stage {
    /// The operation is not queued yet; the number is the identity registered with the ring (personality) that it has.
    New(Operation, u16),
    Queued(usize),
    Over,
}

/// A future of one ring operation. Completes with `Err` if there was no room for it.
pub(super) struct RingFuture {
    thread: Rc<ThreadRing>,
    stage: Stage,
}

impl RingFuture {
    pub(super) fn new(thread: Rc<ThreadRing>, operation: Operation, personality: u16) -> Self {
        Self {
            thread,
            stage: Stage::New(operation, personality),
        }
    }
}

impl Future for RingFuture {
    type Output = Result<(Operation, Outcome), Operation>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut ring = this.thread.ring.borrow_mut();
        match std::mem::replace(&mut this.stage, Stage::Over) {
            Stage::New(operation, personality) => {
                match ring.push(operation, personality, cx.waker().clone()) {
                    Ok(key) => this.stage = Stage::Queued(key),
                    Err(operation) => return Poll::Ready(Err(operation)),
                }
                Poll::Pending
            }
            Stage::Queued(key) => match ring.take(key, cx.waker()) {
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
