//! The named pipes of IPC$ and the RPC services behind them. The SMB commands on them are in `command/pipe.rs`.
//!
//! `link.rs` is the RPC state machine of one pipe (bytes in, messages out), `services.rs` sends
//! a call to its interface, the other files are one interface each. A service answers at once
//! from a snapshot of facts ([`World`]), so a WRITE leaves its response ready to be read.
//!
//! Names of pipes are an enumeration and never part of a path (CVE-2023-3961).

mod handles;
mod link;
mod lsarpc;
mod names;
mod samr;
mod services;
mod srvsvc;
#[cfg(test)]
pub(crate) mod tests;
mod wkssvc;
mod world;

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use smb_wire::{fsctl::PipePeekResponse, rpc::Interface, status::Status};
use tokio::sync::{Notify, futures::Notified};

use self::link::Link;
pub(crate) use self::world::{SeenShare, World};
use crate::{failure::Failure, locks::Mutex, memory::Account};

/// An open pipe.
pub(crate) struct Pipe {
    pub(crate) interface: Interface,
    link: Mutex<Link>,
    /// Something can be read, or the pipe has broken.
    readable: Notify,
}

impl Pipe {
    pub(crate) fn new(interface: Interface) -> Self {
        Self {
            interface,
            link: Mutex::new(Link::new(interface)),
            readable: Notify::new(),
        }
    }

    /// Name without the backslash.
    pub(crate) fn name(&self) -> &str {
        self.interface.pipe_name()
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock()
    }

    /// The next message, or the rest of it, with BUFFER_OVERFLOW if more of it remains. `None` if nothing can be read.
    ///
    /// # Errors
    /// `PIPE_BROKEN` after a client that does not speak RPC.
    pub(crate) fn take(&self, max: usize) -> Result<Option<(Status, Bytes)>, Failure> {
        let mut link = self.link();
        let Some((data, more)) = link.read(max)? else {
            return Ok(None);
        };
        if link.is_readable() {
            // Another reader may wait for the rest.
            self.readable.notify_one();
        }
        let status = if more {
            Status::BUFFER_OVERFLOW
        } else {
            Status::SUCCESS
        };
        Ok(Some((status, data)))
    }

    /// Completes when something can be read, or the pipe has broken. One notification wakes one reader, and is kept
    /// if nobody waits yet.
    pub(crate) fn readable(&self) -> Notified<'_> {
        self.readable.notified()
    }

    /// Takes requests, whole or in pieces. Their answers wait to be read; with `now` there is always an answer, if only
    /// a fault, before a reader on another channel can take it.
    ///
    /// # Errors
    /// `PIPE_BROKEN` after a client that does not speak RPC.
    pub(crate) fn put(
        &self,
        data: &[u8],
        world: &World,
        now: bool,
        account: &Arc<Account>,
    ) -> Result<(), Failure> {
        let mut link = self.link();
        link.write(data, world)?;
        if now {
            link.must_answer();
        }
        link.charge(account)?;
        if link.is_readable() {
            self.readable.notify_one();
        }
        Ok(())
    }

    /// Checks that FSCTL_PIPE_TRANSCEIVE is possible.
    ///
    /// # Errors
    /// `PIPE_BUSY` while an earlier answer has not been read, `PIPE_BROKEN`.
    pub(crate) fn check_idle(&self) -> Result<(), Failure> {
        let link = self.link();
        link.check()?;
        if link.is_readable() {
            return Err(Status::PIPE_BUSY.into());
        }
        Ok(())
    }

    /// FSCTL_PIPE_PEEK: reports the waiting data without taking them, and up to `max` bytes of the first message.
    pub(crate) fn peek(&self, max: usize) -> (bool, PipePeekResponse) {
        self.link().peek(max)
    }

    /// FLUSH: everything written has been taken by the service, which answers at once.
    ///
    /// # Errors
    /// `PIPE_BROKEN`.
    pub(crate) fn flushed(&self) -> Result<(), Failure> {
        self.link().check()
    }
}
