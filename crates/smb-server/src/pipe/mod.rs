//! Named pipes of IPC$: which there are, and the SMB commands on them ([MS-SMB2] 3.3.5.12,
//! 3.3.5.13, 3.3.5.15.3, 3.3.5.15.4).
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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fsctl::PipePeekResponse,
    ids::{FileId, FileTime},
    msg::{
        CreateAction, CreateOptions, CreateRequest, CreateResponse, CreateResponseFlags,
        ImpersonationLevel, OplockLevel,
    },
    rpc::Interface,
    status::Status,
    utf16,
};
use tokio::sync::Notify;
use vfs::Vfs;

use self::{link::Link, world::World};
use crate::{
    command::{Call, Handled, Reply, insert},
    failure::Failure,
    file::{Link, OpenId},
    state::{EndReason, Endurance, NewOpen, Open, OpenKind, Origin},
};

/// AllocationSize of a pipe, as Windows and Samba say.
const ALLOCATION_BYTES: u64 = 4096;

/// An open pipe.
pub(crate) struct Pipe {
    interface: Interface,
    link: Mutex<Link>,
    /// Something can be read, or the pipe has broken.
    readable: Notify,
}

/// Whether what is written must have its answer at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    Now,
    Later,
}

impl Pipe {
    pub(super) fn new(interface: Interface) -> Self {
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
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// READ: the next message, or what is left of it. BUFFER_OVERFLOW when more of it remains.
    /// With nothing to come it waits.
    ///
    /// # Errors
    /// `PIPE_BROKEN` after a client that does not speak RPC, `ACCESS_DENIED`, and those of
    /// [`Call::park`].
    pub(crate) async fn read<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        max: usize,
    ) -> Result<(Status, Bytes), Failure> {
        if !open.granted.contains(AccessMask::FILE_READ_DATA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        loop {
            let readable = self.readable.notified();
            let (found, again) = {
                let mut link = self.link();
                (link.read(max)?, link.is_readable())
            };
            if let Some((data, more)) = found {
                if again {
                    // Another reader may wait for what is left.
                    self.readable.notify_one();
                }
                let status = if more {
                    Status::BUFFER_OVERFLOW
                } else {
                    Status::SUCCESS
                };
                return Ok((status, data));
            }
            // One notification wakes one reader, and is kept if nobody waits yet.
            match call.park(Some(open), readable).await? {
                Ok(()) => {}
                Err(EndReason::Cancelled) => return Err(Status::CANCELLED.into()),
                Err(EndReason::Closed | EndReason::Gone) => {
                    return Err(Status::PIPE_BROKEN.into());
                }
            }
        }
    }

    /// WRITE: requests, whole or in pieces. Their answers wait to be read.
    ///
    /// # Errors
    /// `PIPE_BROKEN` after a client that does not speak RPC, `ACCESS_DENIED`.
    pub(crate) fn write<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        data: &[u8],
    ) -> Result<(), Failure> {
        self.put(call, open, data, Answered::Later)
    }

    fn put<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        data: &[u8],
        answered: Answered,
    ) -> Result<(), Failure> {
        if !open.granted.contains(AccessMask::FILE_WRITE_DATA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let world = World::of(call, self.interface)?;
        let mut link = self.link();
        link.write(data, &world)?;
        if answered == Answered::Now {
            // Before a READ on another channel can take the answer.
            link.must_answer();
        }
        link.charge(call.connection.account())?;
        if link.is_readable() {
            self.readable.notify_one();
        }
        Ok(())
    }

    /// FSCTL_PIPE_TRANSCEIVE: WRITE and READ in one.
    ///
    /// # Errors
    /// `PIPE_BUSY` while an earlier answer has not been read; those of both. The input is always answered, if only
    /// by a fault: the call never waits for another request.
    pub(crate) async fn transceive<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        data: &[u8],
        max: usize,
    ) -> Result<(Status, Bytes), Failure> {
        // Both before anything is written: a refused request must leave no answer behind.
        let both = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
        if !open.granted.contains(both) {
            return Err(Status::ACCESS_DENIED.into());
        }
        {
            let link = self.link();
            link.check()?;
            if link.is_readable() {
                return Err(Status::PIPE_BUSY.into());
            }
        }
        self.put(call, open, data, Answered::Now)?;
        self.read(call, open, max).await
    }

    /// FSCTL_PIPE_PEEK: what waits, without taking it; `max` bytes of the first message.
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

/// CREATE on IPC$.
pub(crate) async fn create<V: Vfs>(call: &Call<V>) -> Handled {
    let request = CreateRequest::read(&call.message)?;
    if request.impersonation_level > ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    let name = utf16::decode(request.name, "pipe").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let interface = Interface::of_pipe(&name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    if request.options.contains(CreateOptions::DIRECTORY_FILE) {
        return Err(Status::NOT_A_DIRECTORY.into());
    }
    let asked = request.desired_access.map_generic();
    let granted = if asked.contains(AccessMask::MAXIMUM_ALLOWED) {
        AccessMask::FILE_ALL_ACCESS
    } else {
        asked
    };
    let granted = granted & call.tree()?.maximal_access;
    if granted.is_empty() {
        return Err(Status::ACCESS_DENIED.into());
    }
    let file_id = enter(call, interface, granted, request.options)?;
    let response = CreateResponse {
        oplock_level: OplockLevel::NONE,
        flags: CreateResponseFlags::empty(),
        create_action: CreateAction::OPENED,
        creation_time: FileTime::ZERO,
        last_access_time: FileTime::ZERO,
        last_write_time: FileTime::ZERO,
        change_time: FileTime::ZERO,
        allocation_size: ALLOCATION_BYTES,
        end_of_file: 0,
        file_attributes: FileAttributes::NORMAL,
        file_id,
        contexts: &[],
    };
    Ok(Reply::unchanged(&response, "a pipe has no file"))
}

fn enter<V: Vfs>(
    call: &Call<V>,
    interface: Interface,
    granted: AccessMask,
    options: CreateOptions,
) -> Result<FileId, Failure> {
    let server = call.server();
    let session = call.session()?;
    let id = server.fresh_file_id();
    let file_id = FileId {
        persistent: id,
        volatile: id,
    };
    let open = Arc::new(Open::new(NewOpen {
        file_id,
        tree: Arc::clone(call.tree()?),
        granted,
        options,
        kind: OpenKind::Pipe(Pipe::new(interface)),
        user: session.token().user.clone(),
        engine: OpenId(server.fresh_id()),
        channel_sequence: call.header.channel_sequence(),
        parent_lease: None,
        policy: None,
        place: call.place.borrow_mut().take(),
        origin: Origin::plain(session.id, session.token()),
        endurance: Endurance::None,
    }));
    if !insert(session, open) {
        return Err(Status::USER_SESSION_DELETED.into());
    }
    call.chain.set_file_id(file_id);
    Ok(file_id)
}
