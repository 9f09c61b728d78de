//! OPLOCK_BREAK ([MS-SMB2] 2.2.23 to 2.2.25): three messages in two forms, which differ in
//! StructureSize and sender.
//!
//! The oplock form has the same layout for notification, acknowledgment and response; in the lease
//! form the layout of the notification differs.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::create_context::LeaseState;
use crate::ids::{FileId, LeaseKey};
use crate::msg::OplockLevel;

/// The oplock form of all three messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OplockBreak {
    /// The level broken to, or acknowledged.
    pub oplock_level: OplockLevel,
    /// The open that holds the oplock.
    pub file_id: FileId,
}

/// Server to client ([MS-SMB2] 2.2.23.1).
pub type OplockBreakNotification = OplockBreak;
/// Client to server ([MS-SMB2] 2.2.24.1).
pub type OplockBreakAcknowledgment = OplockBreak;
/// Server to client ([MS-SMB2] 2.2.25.1).
pub type OplockBreakResponse = OplockBreak;

impl OplockBreak {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 24;

    /// Reads the message, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short or of another form.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "oplock break")?;
        let oplock_level = OplockLevel(body.u8()?);
        body.skip(5)?;
        Ok(Self {
            oplock_level,
            file_id: FileId::read(&mut body)?,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(self.oplock_level.0);
        out.put_bytes(0, 5);
        self.file_id.encode(out);
    }
}

flags_of_the_wire! {
    /// Flags of a lease break notification.
    pub struct LeaseBreakFlags(u32) {
        ACK_REQUIRED = 0x0000_0001,
    }
}

/// Lease break, server to client ([MS-SMB2] 2.2.23.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseBreakNotification {
    /// The epoch after this change (leases of version 2), else 0.
    pub new_epoch: u16,
    /// Flags; they say whether the client has to acknowledge.
    pub flags: LeaseBreakFlags,
    /// The lease.
    pub lease_key: LeaseKey,
    /// The state that the client has.
    pub current_lease_state: LeaseState,
    /// The state after the break.
    pub new_lease_state: LeaseState,
}

impl LeaseBreakNotification {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 44;

    /// Reads the message, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short or of another form.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "lease break notification")?;
        let new_epoch = body.u16()?;
        let flags = LeaseBreakFlags(body.u32()?);
        let lease_key = LeaseKey(body.array()?);
        let current_lease_state = LeaseState(body.u32()?);
        let new_lease_state = LeaseState(body.u32()?);
        // BreakReason, AccessMaskHint, ShareMaskHint: reserved.
        body.skip(12)?;
        Ok(Self {
            new_epoch,
            flags,
            lease_key,
            current_lease_state,
            new_lease_state,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(self.new_epoch);
        out.put_u32_le(self.flags.bits());
        out.put_slice(&self.lease_key.0);
        out.put_u32_le(self.current_lease_state.bits());
        out.put_u32_le(self.new_lease_state.bits());
        out.put_bytes(0, 12);
    }
}

/// The lease form of acknowledgment and response ([MS-SMB2] 2.2.24.2, 2.2.25.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseBreak {
    /// The lease.
    pub lease_key: LeaseKey,
    /// The state after the acknowledgment.
    pub lease_state: LeaseState,
}

/// Client to server ([MS-SMB2] 2.2.24.2).
pub type LeaseBreakAcknowledgment = LeaseBreak;
/// Server to client ([MS-SMB2] 2.2.25.2).
pub type LeaseBreakResponse = LeaseBreak;

impl LeaseBreak {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 36;

    /// Reads the message, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short or of another form.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "lease break")?;
        body.skip(6)?;
        let lease_key = LeaseKey(body.array()?);
        let lease_state = LeaseState(body.u32()?);
        // LeaseDuration: reserved.
        body.skip(8)?;
        Ok(Self {
            lease_key,
            lease_state,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_bytes(0, 6);
        out.put_slice(&self.lease_key.0);
        out.put_u32_le(self.lease_state.bits());
        out.put_u64_le(0);
    }
}

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
