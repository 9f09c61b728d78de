//! The named pipes of IPC$ and the RPC services behind them. The SMB commands on them are in `command/pipe.rs`.
//!
//! `link.rs` is the RPC state machine of one pipe (bytes in, messages out), `services.rs` sends
//! a call to its interface, and `srvsvc.rs` (with `activity.rs`), `lsarpc.rs` (with `names.rs`) and `samr.rs` are the
//! large ones. A service answers at once from a snapshot of facts ([`World`]), so a WRITE leaves its response ready to
//! be read. The WRITE also carries out the ends that it asks for.
//!
//! Names of pipes are an enumeration and never part of a path (CVE-2023-3961).

mod activity;
mod handles;
mod link;
mod lsarpc;
mod names;
mod samr;
mod services;
mod srvsvc;
#[cfg(test)]
pub(crate) mod tests;
mod world;

use std::sync::Arc;

use bytes::Bytes;
use smb_wire::{fsctl::PipePeekResponse, rpc::Interface, status::Status};
use tokio::sync::{Notify, futures::Notified};

use self::link::RpcLink;
pub(crate) use self::world::{LazyReport, SeenShare, World};
use crate::{failure::Failure, locks::Mutex, memory::Account};

pub(crate) struct Pipe {
    pub(crate) interface: Interface,
    /// Locked before any other lock of the server, because an answer may list what those protect.
    link: Mutex<RpcLink>,
    /// Held by the request whose bytes are taken or given now.
    order: tokio::sync::Mutex<()>,
    /// Something can be read, or the pipe has broken.
    readable: Notify,
}

impl Pipe {
    pub(crate) fn new(interface: Interface) -> Self {
        Self {
            interface,
            link: Mutex::new(RpcLink::new(interface)),
            order: tokio::sync::Mutex::default(),
            readable: Notify::new(),
        }
    }

    /// Name without the backslash.
    pub(crate) fn name(&self) -> &str {
        self.interface.pipe_name()
    }

    /// The next message, or the rest of it, with BUFFER_OVERFLOW if more of it remains. `None` if nothing can be read.
    ///
    /// # Errors
    /// `PIPE_BROKEN` after a client that does not speak RPC.
    pub(crate) fn take(&self, max: usize) -> Result<Option<(Status, Bytes)>, Failure> {
        let mut link = self.link.lock();
        let found = link.read(max);
        if link.is_readable() {
            // Another reader may wait for the rest, or to learn that the pipe has broken.
            self.readable.notify_one();
        }
        Ok(found?.map(|(data, more)| match more {
            true => (Status::BUFFER_OVERFLOW, data),
            false => (Status::SUCCESS, data),
        }))
    }

    /// Completes when something can be read, or the pipe has broken. One notification wakes one reader, and is kept
    /// if nobody waits yet.
    pub(crate) fn readable(&self) -> Notified<'_> {
        self.readable.notified()
    }

    /// Waits for the requests on the pipe that came earlier: each may take several turns.
    pub(crate) async fn in_order(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.order.lock().await
    }

    /// Checks that requests are taken.
    ///
    /// # Errors
    /// `PIPE_BROKEN` after a client that does not speak RPC.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.link.lock().check()
    }

    /// Takes bytes out of `data` and acts upon the first PDU that is complete. Its answer waits to be read. Returns how
    /// many bytes both have; `None` if there is none, or the pipe has broken.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` if there is no memory for what waits to be read; the pipe has broken then.
    pub(crate) fn take_pdu(
        &self,
        data: &mut &[u8],
        world: &World,
        account: &Arc<Account>,
    ) -> Result<Option<usize>, Failure> {
        let mut link = self.link.lock();
        let taken = link.take_pdu(data, world);
        link.charge(account)
            .inspect_err(|_| self.readable.notify_one())?;
        Ok(taken)
    }

    /// Called when all is taken: readers get the answers. With `now` there is always one, if only a fault.
    pub(crate) fn all_taken(&self, now: bool) {
        let mut link = self.link.lock();
        if now {
            link.must_answer();
        }
        if link.is_readable() {
            self.readable.notify_one();
        }
    }

    /// Breaks the pipe of a client that is lost before all it wrote was taken.
    pub(crate) fn abandon(&self) {
        self.link.lock().abandon();
        self.readable.notify_one();
    }

    /// Checks that FSCTL_PIPE_TRANSCEIVE is possible.
    ///
    /// # Errors
    /// `PIPE_BUSY` while an earlier answer has not been read, `PIPE_BROKEN`.
    pub(crate) fn check_idle(&self) -> Result<(), Failure> {
        let link = self.link.lock();
        link.check()?;
        Ok(Status::PIPE_BUSY.when(link.is_readable())?)
    }

    /// FSCTL_PIPE_PEEK: reports the waiting data without taking them, and up to `max` bytes of the first message.
    ///
    /// # Errors
    /// `PIPE_BROKEN`, as for a read ([MS-SMB2] 3.3.5.15.4).
    pub(crate) fn peek(&self, max: usize) -> Result<(bool, PipePeekResponse), Failure> {
        let link = self.link.lock();
        let peeked = link.peek(max);
        if peeked.1.number_of_messages == 0 {
            link.check()?;
        }
        Ok(peeked)
    }
}
