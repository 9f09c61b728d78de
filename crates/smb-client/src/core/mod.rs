//! The client's side of one connection as a state machine: requests in, frames out; bytes in,
//! events out ([MS-SMB2] 3.2).
//!
//! It owns the message ids and credits, the preauthentication hash, the keys of the sessions on
//! this connection, and the outstanding requests. Once started, it carries out the negotiation and
//! a login by itself. It reads no socket and no clock; the caller passes in a source of randomness.
//! An error from [`ClientCore::feed`] means that nothing that follows can be trusted: drop the
//! connection.

mod inbound;
mod login;
mod negotiate;
mod outbound;
mod session;
mod window;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use smb_crypto::PreauthHash;
use smb_wire::create_context::LeaseState;
use smb_wire::header::Header;
use smb_wire::ids::{AsyncId, FileId, LeaseKey, MessageId, SessionId};
use smb_wire::msg::{OplockLevel, SessionFlags};
use smb_wire::{Command, Status};

use crate::error::ClientError;
use crate::options::Options;

pub use login::{LoginArgs, LoginKind};
pub use negotiate::Negotiated;
pub use outbound::Frame;
pub use session::SessionSecret;

use login::Setup;
use negotiate::Stage;
use session::SessionState;
use window::CreditWindow;

/// The source of randomness of a connection: fills the buffer.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// A final reply, or an interim one if requested.
#[derive(Debug, Clone)]
pub struct Reply {
    pub header: Header,
    /// The message from its header on, including the padding of a compound.
    pub message: Bytes,
    pub encrypted: bool,
    /// The message was signed, and the signature is right.
    pub signed: bool,
}

impl Reply {
    pub fn status(&self) -> Status {
        self.header.status
    }

    /// Returns the reply if its status is a success, else the status as an error.
    pub fn ok(self) -> Result<Self, ClientError> {
        ClientError::Status(self.status()).when(!self.status().is_success())?;
        Ok(self)
    }
}

/// A break notification of the server ([MS-SMB2] 2.2.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    Oplock {
        file_id: FileId,
        /// The level or state after the break.
        level: OplockLevel,
    },
    Lease {
        key: LeaseKey,
        /// The state before the break.
        current: LeaseState,
        /// The level or state after the break.
        new: LeaseState,
        /// The new epoch (version 2), else 0.
        epoch: u16,
        ack_required: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionInfo {
    pub session_id: SessionId,
    pub flags: SessionFlags,
}

/// An event that the server caused.
#[derive(Debug)]
pub enum Event {
    Reply(Reply),
    /// STATUS_PENDING: the request continues asynchronously.
    Pending {
        message_id: MessageId,
        /// The id for a CANCEL.
        async_id: AsyncId,
    },
    Break {
        broken: Break,
        encrypted: bool,
    },
    /// A session was closed by the server ([MS-SMB2] 2.2.44).
    SessionClosed(SessionId),
    /// The negotiation has succeeded, or failed with the server's status.
    Negotiated(Result<(), Status>),
    Login {
        /// The return value of [`ClientCore::begin_login`].
        ticket: MessageId,
        outcome: Result<SessionInfo, ClientError>,
    },
}

/// A request without a final reply.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    command: Command,
    /// The session whose keys apply; for a related element it is that of the element before, regardless of its header.
    session_id: SessionId,
    signed: bool,
    encrypted: bool,
}

pub struct ClientCore {
    options: Options,
    guid: smb_wire::ids::Guid,
    random: Random,
    inbound: BytesMut,
    frames: VecDeque<Frame>,
    events: VecDeque<Event>,
    window: CreditWindow,
    outstanding: BTreeMap<MessageId, Outstanding>,
    stage: Stage,
    negotiated: Option<Negotiated>,
    preauth: PreauthHash,
    sessions: BTreeMap<SessionId, SessionState>,
    setups: BTreeMap<MessageId, Setup>,
    tolerant: bool,
}

impl std::fmt::Debug for ClientCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCore")
            .field("negotiated", &self.negotiated)
            .field("window", &self.window)
            .field("outstanding", &self.outstanding.len())
            .finish_non_exhaustive()
    }
}

impl ClientCore {
    /// Creates the state of a connection before its first message.
    pub fn new(options: Options, mut random: Random) -> Self {
        let guid = options.guid.unwrap_or_else(|| {
            let mut guid = [0; 16];
            random(&mut guid);
            smb_wire::ids::Guid(guid)
        });
        Self {
            options,
            guid,
            random,
            inbound: BytesMut::new(),
            frames: VecDeque::new(),
            events: VecDeque::new(),
            window: CreditWindow::new(),
            outstanding: BTreeMap::new(),
            stage: Stage::Fresh,
            negotiated: None,
            preauth: PreauthHash::new(),
            sessions: BTreeMap::new(),
            setups: BTreeMap::new(),
            tolerant: false,
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The ClientGuid in use.
    pub fn guid(&self) -> smb_wire::ids::Guid {
        self.guid
    }

    /// The result of the negotiation, once it is complete.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    pub fn credits(&self) -> u32 {
        self.window.available()
    }

    pub fn next_message_id(&self) -> MessageId {
        self.window.next()
    }

    /// The number of requests without a final reply.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    pub fn next_frame(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// From now on reports replies without a request, and unsigned ones, as events instead of
    /// errors; for tests that write messages by hand. A wrong signature remains an error.
    pub fn tolerate(&mut self) {
        self.tolerant = true;
    }
}
