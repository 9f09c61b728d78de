//! Turns bytes into events: framing, decryption, compounds, signatures, and matching of replies
//! with requests ([MS-SMB2] 3.2.5.1).

use bytes::{Buf, Bytes, BytesMut};
use smb_crypto::{SignNonce, SigningKey};
use smb_wire::header::{
    Header, HeaderFlags, NETBIOS_KEEP_ALIVE, NETBIOS_SESSION_MESSAGE, PROTOCOL_ID,
    TRANSPORT_HEADER_SIZE, transport_length,
};
use smb_wire::ids::{MessageId, SessionId};
use smb_wire::msg::{LeaseBreakFlags, OplockBreakServerMessage};
use smb_wire::transform::{self, TransformHeader};
use smb_wire::{Command, Status, compound};

use super::{Break, ClientCore, Event, Reply};
use crate::error::ClientError;

impl ClientCore {
    /// Processes bytes of the socket; [`ClientCore::next_event`] returns the resulting events.
    ///
    /// # Errors
    /// After any error the connection is unusable.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.inbound.extend_from_slice(bytes);
        while let Some(message) = self.next_message()? {
            self.message(message)?;
        }
        Ok(())
    }

    fn next_message(&mut self) -> Result<Option<BytesMut>, ClientError> {
        loop {
            let Some(head) = self.inbound.first_chunk::<TRANSPORT_HEADER_SIZE>() else {
                return Ok(None);
            };
            let (kind, len) = transport_length(*head);
            if self.inbound.len() < TRANSPORT_HEADER_SIZE + len {
                self.inbound
                    .reserve(TRANSPORT_HEADER_SIZE + len - self.inbound.len());
                return Ok(None);
            }
            self.inbound.advance(TRANSPORT_HEADER_SIZE);
            let message = self.inbound.split_to(len);
            match kind {
                NETBIOS_SESSION_MESSAGE => return Ok(Some(message)),
                NETBIOS_KEEP_ALIVE => {}
                _ => return Err(ClientError::Protocol("unknown type of transport packet")),
            }
        }
    }

    fn message(&mut self, message: BytesMut) -> Result<(), ClientError> {
        if message.starts_with(&transform::PROTOCOL_ID) {
            let (session, clear) = self.open(message)?;
            return self.elements(clear, Some(session));
        }
        if message.starts_with(&PROTOCOL_ID) {
            return self.elements(message.freeze(), None);
        }
        Err(ClientError::Protocol("neither SMB2 nor encrypted"))
    }

    /// Decrypts a message ([MS-SMB2] 3.2.5.1.1).
    fn open(&self, mut message: BytesMut) -> Result<(SessionId, Bytes), ClientError> {
        let header = TransformHeader::read(&message)?;
        let mut body = message.split_off(TransformHeader::SIZE.min(message.len()));
        ClientError::Encryption("flags").when(header.flags != TransformHeader::ENCRYPTED)?;
        let size = smb_wire::codec::size(header.original_message_size);
        ClientError::Encryption("size").when(size != body.len())?;
        let key = self
            .sessions
            .get(&header.session_id)
            .and_then(|state| state.secret.as_ref())
            .and_then(|secret| secret.open.as_ref())
            .ok_or(ClientError::Encryption("no key for this session"))?;
        let aad = TransformHeader::aad(&message)?;
        key.open_in_place(&header.nonce, aad, &header.signature, &mut body)
            .map_err(|_| ClientError::Encryption("authentication tag"))?;
        Ok((header.session_id, body.freeze()))
    }

    fn elements(&mut self, message: Bytes, sealed: Option<SessionId>) -> Result<(), ClientError> {
        let elements = compound::split(&message)
            .map_err(|_| ClientError::Protocol("chain of a compound reply"))?;
        for element in elements {
            let reply = Reply {
                header: element.header,
                message: message.slice(element.range),
                encrypted: sealed.is_some(),
                signed: false,
            };
            self.element_in(reply)?;
        }
        Ok(())
    }

    fn element_in(&mut self, mut reply: Reply) -> Result<(), ClientError> {
        let header = reply.header;
        let is_request = !header.flags.contains(HeaderFlags::RESPONSE);
        ClientError::Protocol("a request from the server").when(is_request)?;
        if header.message_id == MessageId::UNSOLICITED {
            return self.unsolicited(reply);
        }
        let id = header.message_id;
        let outstanding = self.outstanding.get(&id).copied();
        let multi_protocol =
            matches!(self.stage, super::Stage::MultiProtocol) && id == MessageId(0);
        match &outstanding {
            Some(o) if o.command != header.command => {
                return Err(ClientError::Protocol("reply of another command"));
            }
            None if !self.tolerant && !multi_protocol => {
                return Err(ClientError::Protocol("reply to nothing"));
            }
            _ => {}
        }
        reply.signed = self.verify(&reply)?;
        self.window.grant(header.credits);
        if header.status == Status::PENDING
            && let Some(async_id) = header.async_id
        {
            let message_id = id;
            self.events.push_back(Event::Pending {
                message_id,
                async_id,
            });
            return Ok(());
        }
        self.outstanding.remove(&id);
        if self.on_negotiate(&reply)? || self.on_setup(&reply)? {
            return Ok(());
        }
        if header.command == Command::LOGOFF && header.status.is_success() {
            self.sessions.remove(&header.session_id);
        }
        self.events.push_back(Event::Reply(reply));
        Ok(())
    }

    /// Verifies the signature of a reply ([MS-SMB2] 3.2.5.1.3); returns whether it is signed. A
    /// missing required signature is an error.
    fn verify(&self, reply: &Reply) -> Result<bool, ClientError> {
        let header = &reply.header;
        let outstanding = self.outstanding.get(&header.message_id);
        if reply.encrypted || self.derives_key(header.message_id, header.status) {
            return Ok(false);
        }
        // These concern a session for which the server has no key any more, or never had one.
        let keyless = matches!(
            header.status,
            Status::USER_SESSION_DELETED | Status::NETWORK_SESSION_EXPIRED
        );
        let is_clear = outstanding.is_some_and(|o| o.encrypted) && !keyless && !self.tolerant;
        ClientError::Encryption("clear reply to an encrypted request").when(is_clear)?;
        let key = self
            .sessions
            .get(&header.session_id)
            .or_else(|| self.sessions.get(&outstanding?.session_id))
            .and_then(|state| state.signing.as_ref());
        if header.flags.contains(HeaderFlags::SIGNED)
            && let Some(key) = key
        {
            return match is_signed_by(reply, key) {
                true => Ok(true),
                // Samba sets the flag here without having a key.
                false if keyless => Ok(false),
                false => Err(ClientError::BadSignature(header.command)),
            };
        }
        let due = outstanding.is_some_and(|o| o.signed)
            && header.status != Status::PENDING
            && !keyless
            && !self.tolerant;
        ClientError::Unsigned(header.command).when(due)?;
        Ok(false)
    }

    /// Processes unsolicited messages: breaks and closed sessions.
    fn unsolicited(&mut self, reply: Reply) -> Result<(), ClientError> {
        let Header {
            command,
            session_id,
            ..
        } = reply.header;
        let event = match command {
            Command::OPLOCK_BREAK => Event::Break {
                broken: read_break(&reply.message)?,
                encrypted: reply.encrypted,
            },
            Command::SERVER_TO_CLIENT_NOTIFICATION => Event::SessionClosed(session_id),
            _ => return Err(ClientError::Protocol("unsolicited message")),
        };
        self.events.push_back(event);
        Ok(())
    }
}

/// Whether the signature of a reply is that of this key.
pub(super) fn is_signed_by(reply: &Reply, key: &SigningKey) -> bool {
    let nonce = SignNonce {
        message_id: reply.header.message_id.0,
        is_server: true,
        is_cancel: false,
    };
    key.verify(&reply.message, nonce)
}

fn read_break(message: &[u8]) -> Result<Break, ClientError> {
    match OplockBreakServerMessage::read(message)? {
        OplockBreakServerMessage::Oplock(body) => Ok(Break::Oplock {
            file_id: body.file_id,
            level: body.oplock_level,
        }),
        OplockBreakServerMessage::LeaseNotification(body) => Ok(Break::Lease {
            key: body.lease_key,
            current: body.current_lease_state,
            new: body.new_lease_state,
            epoch: body.new_epoch,
            ack_required: body.flags.contains(LeaseBreakFlags::ACK_REQUIRED),
        }),
        OplockBreakServerMessage::LeaseResponse(_) => {
            Err(ClientError::Protocol("lease break response unasked"))
        }
    }
}
