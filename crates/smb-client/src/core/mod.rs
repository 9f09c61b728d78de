//! The client's side of one connection as a machine: requests in, frames out; bytes in, events
//! out ([MS-SMB2] 3.2).
//!
//! Owns the message ids and credits, the preauthentication hash, the keys of the sessions on
//! this connection and what is outstanding. It negotiates and logs in by itself once told to.
//! It reads no socket and no clock; randomness comes in as a closure. An error from
//! [`ClientCore::feed`] means that nothing that follows can be trusted: drop the connection.

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
use smb_wire::header::{Header, HeaderFlags};
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

/// A final reply, or an interim one where asked for.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// The message from its header on, padding of a compound included.
    pub message: Bytes,
    /// It came encrypted.
    pub encrypted: bool,
    /// It carried a signature, and the signature is right.
    pub signed: bool,
}

impl Reply {
    /// The outcome.
    pub fn status(&self) -> Status {
        self.header.status
    }

    /// The reply when its status is of success, else the status as an error.
    ///
    /// # Errors
    /// [`ClientError::Status`].
    pub fn ok(self) -> Result<Self, ClientError> {
        if self.status().is_success() {
            Ok(self)
        } else {
            Err(ClientError::Status(self.status()))
        }
    }
}

/// A break the server announces ([MS-SMB2] 2.2.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Of an oplock.
    Oplock {
        /// The handle.
        file_id: FileId,
        /// What is left.
        level: OplockLevel,
    },
    /// Of a lease.
    Lease {
        /// The lease.
        key: LeaseKey,
        /// What it was.
        current: LeaseState,
        /// What is left.
        new: LeaseState,
        /// The new epoch (version 2), else 0.
        epoch: u16,
        /// Whether it has to be acknowledged.
        ack_required: bool,
    },
}

/// What became of a session setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session.
    pub session_id: SessionId,
    /// Guest, null, to be encrypted.
    pub flags: SessionFlags,
}

/// Something that came from the server.
#[derive(Debug)]
pub enum Event {
    /// A final reply.
    Reply(Reply),
    /// STATUS_PENDING: the request goes on asynchronously.
    Pending {
        /// The request.
        message_id: MessageId,
        /// What to CANCEL it by.
        async_id: AsyncId,
    },
    /// A break of an oplock or lease.
    Break(Break),
    /// A session was closed by the server ([MS-SMB2] 2.2.44).
    SessionClosed(SessionId),
    /// The NEGOTIATE is over, well or with the server's status.
    Negotiated(Result<(), Status>),
    /// A login is over.
    Login {
        /// What [`ClientCore::begin_login`] returned.
        ticket: MessageId,
        /// How it ended.
        outcome: Result<SessionInfo, ClientError>,
    },
}

/// A request sent and not finally answered.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    command: Command,
    /// Whose keys; that of a related element is the one before it, whatever its header says.
    session_id: SessionId,
    /// The reply must be signed.
    signed: bool,
    /// The reply must be encrypted.
    encrypted: bool,
}

/// One connection.
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
    /// A connection before its first message.
    #[must_use]
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

    /// What it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The ClientGuid in use.
    #[must_use]
    pub fn guid(&self) -> smb_wire::ids::Guid {
        self.guid
    }

    /// What was negotiated, once it was.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Credits left.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.window.available()
    }

    /// The MessageId the next request gets.
    #[must_use]
    pub fn next_message_id(&self) -> MessageId {
        self.window.next()
    }

    /// Requests without a final reply.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The next frame to send.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes replies to requests it never saw, and unsigned ones, as events instead of errors;
    /// for tests that write messages by hand. A wrong signature stays an error.
    pub fn tolerate(&mut self) {
        self.tolerant = true;
    }

    /// Whether a request carries the flag of a related element.
    fn is_related(flags: HeaderFlags) -> bool {
        flags.contains(HeaderFlags::RELATED)
    }
}
