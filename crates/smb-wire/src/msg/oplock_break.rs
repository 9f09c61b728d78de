//! OPLOCK_BREAK ([MS-SMB2] 2.2.23 to 2.2.25): three messages in two forms, which differ in
//! StructureSize and sender.
//!
//! The oplock form has the same layout for notification, acknowledgment and response; in the lease
//! form the layout of the notification differs.

use bytes::BytesMut;

use crate::codec::{Malformed, Reader};
use crate::create_context::LeaseState;
use crate::ids::{FileId, LeaseKey};
use crate::msg::OplockLevel;

fixed_messages! {
    /// The oplock form of all three messages.
    OplockBreak(24) {
        /// The level broken to, or acknowledged.
        oplock_level: OplockLevel, pad 5;
        /// The open that holds the oplock.
        file_id: FileId;
    }

    /// Lease break, server to client ([MS-SMB2] 2.2.23.2).
    LeaseBreakNotification(44) {
        /// The epoch after this change (leases of version 2), else 0.
        new_epoch: u16;
        /// Flags; they say whether the client has to acknowledge.
        flags: LeaseBreakFlags;
        /// The lease.
        lease_key: LeaseKey;
        /// The state that the client has.
        current_lease_state: LeaseState;
        /// The state after the break. BreakReason, AccessMaskHint and ShareMaskHint are reserved.
        new_lease_state: LeaseState, pad 12;
    }

    /// The lease form of acknowledgment and response ([MS-SMB2] 2.2.24.2, 2.2.25.2).
    LeaseBreak(36, pad 6) {
        /// The lease.
        lease_key: LeaseKey;
        /// The state after the acknowledgment. LeaseDuration is reserved.
        lease_state: LeaseState, pad 8;
    }
}

/// Server to client ([MS-SMB2] 2.2.23.1).
pub type OplockBreakNotification = OplockBreak;
/// Client to server ([MS-SMB2] 2.2.24.1).
pub type OplockBreakAcknowledgment = OplockBreak;
/// Server to client ([MS-SMB2] 2.2.25.1).
pub type OplockBreakResponse = OplockBreak;

flags_of_the_wire! {
    /// Flags of a lease break notification.
    pub struct LeaseBreakFlags(u32) {
        ACK_REQUIRED = 0x0000_0001,
    }
}

/// Client to server ([MS-SMB2] 2.2.24.2).
pub type LeaseBreakAcknowledgment = LeaseBreak;
/// Server to client ([MS-SMB2] 2.2.25.2).
pub type LeaseBreakResponse = LeaseBreak;

fn structure_size(message: &[u8]) -> Result<u16, Malformed> {
    const MALFORMED: Malformed = Malformed::new("OPLOCK_BREAK");
    let body = message.get(crate::codec::HEADER_SIZE..).ok_or(MALFORMED)?;
    Reader::new(body, MALFORMED.what).u16()
}

/// A message that a client sends with the OPLOCK_BREAK command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OplockBreakRequest {
    /// Acknowledges the break of an oplock.
    Oplock(OplockBreakAcknowledgment),
    /// Acknowledges the break of a lease.
    Lease(LeaseBreakAcknowledgment),
}

impl OplockBreakRequest {
    /// Reads the message, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short or of neither form.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        match structure_size(message)? {
            LeaseBreak::STRUCTURE_SIZE => LeaseBreak::read(message).map(Self::Lease),
            _ => OplockBreak::read(message).map(Self::Oplock),
        }
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        match self {
            Self::Oplock(body) => body.encode(out, start),
            Self::Lease(body) => body.encode(out, start),
        }
    }
}

/// A message that a server sends with the OPLOCK_BREAK command. A notification has the MessageId
/// [`UNSOLICITED`](crate::ids::MessageId::UNSOLICITED), a response that of the acknowledgment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OplockBreakServerMessage {
    /// Notification or response of the oplock form.
    Oplock(OplockBreak),
    /// A lease is broken.
    LeaseNotification(LeaseBreakNotification),
    /// A lease's acknowledgment is confirmed.
    LeaseResponse(LeaseBreakResponse),
}

impl OplockBreakServerMessage {
    /// Reads the message, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short or of no form.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        match structure_size(message)? {
            LeaseBreakNotification::STRUCTURE_SIZE => {
                LeaseBreakNotification::read(message).map(Self::LeaseNotification)
            }
            LeaseBreak::STRUCTURE_SIZE => LeaseBreak::read(message).map(Self::LeaseResponse),
            _ => OplockBreak::read(message).map(Self::Oplock),
        }
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        match self {
            Self::Oplock(body) => body.encode(out, start),
            Self::LeaseNotification(body) => body.encode(out, start),
            Self::LeaseResponse(body) => body.encode(out, start),
        }
    }
}
