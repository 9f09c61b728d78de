//! Turns requests into frames: headers, compounds, signatures, encryption ([MS-SMB2] 3.2.4.1).
//!
//! All elements of a list are sent in one message of the transport; two or more are padded to eight
//! bytes and chained by NextCommand. Encryption covers the whole message.

use bytes::{BufMut, BytesMut};
use smb_crypto::SignNonce;
use smb_wire::header::{Header, HeaderFlags, TRANSPORT_HEADER_SIZE, transport_header};
use smb_wire::ids::{MessageId, SessionId};
use smb_wire::transform::TransformHeader;
use smb_wire::{Command, Status};

use super::{ClientCore, Outstanding};
use crate::error::ClientError;
use crate::options::{Encryption, Signing};
use crate::request::Request;

/// Bytes to send, in two segments so that a long message is not copied.
#[derive(Debug)]
pub struct Frame {
    /// The transport header, and the transform header of an encrypted message.
    pub head: BytesMut,
    pub body: BytesMut,
}

impl Frame {
    pub fn new(head: &[u8], body: BytesMut) -> Result<Self, ClientError> {
        let len = transport_header(head.len() + body.len())
            .ok_or(ClientError::Usage("message too long for the transport"))?;
        let mut all = BytesMut::with_capacity(TRANSPORT_HEADER_SIZE + head.len());
        all.put_slice(&len);
        all.put_slice(head);
        Ok(Self { head: all, body })
    }
}

/// The protection of the elements of one message.
struct Protection {
    sign: bool,
    encrypt: Option<SessionId>,
}

impl ClientCore {
    /// Returns the number of credits that a list of requests is charged on this connection.
    pub fn charge(&self, requests: &[Request]) -> u32 {
        requests
            .iter()
            .filter(|r| r.command != Command::CANCEL && r.overrides.message_id.is_none())
            .map(|r| u32::from(self.charge_of(r)))
            .sum()
    }

    fn charge_of(&self, request: &Request) -> u16 {
        if self.negotiated.as_ref().is_some_and(|n| n.multi_credit) {
            request.charge()
        } else {
            1
        }
    }

    /// Sends one request, or several as a compound; returns their message ids.
    ///
    /// # Errors
    /// [`ClientError::NoCredits`] (then nothing was sent and no credits were used), or [`ClientError::Usage`].
    pub fn send(&mut self, requests: Vec<Request>) -> Result<Vec<MessageId>, ClientError> {
        let needed = self.charge(&requests);
        let forced = requests.iter().any(|r| r.overrides.ignore_credits);
        if needed > self.window.available() && !forced {
            return Err(ClientError::NoCredits {
                needed,
                available: self.window.available(),
            });
        }
        let last = requests.len().saturating_sub(1);
        let mut ids = Vec::with_capacity(requests.len());
        let mut message = BytesMut::new();
        let protection = self.protection(&requests);
        let spoil_tag = requests.iter().any(|r| r.overrides.corrupt_signature);
        let transform_id = requests
            .iter()
            .find_map(|r| r.overrides.transform_session_id);
        // A related element is signed with the session of the first element.
        let mut session = SessionId(0);
        for (index, request) in requests.into_iter().enumerate() {
            if !request.flags.contains(HeaderFlags::RELATED) {
                session = request.session_id;
            }
            let element = self.element(request, session, index == last, &protection, &mut ids)?;
            if message.is_empty() {
                message = element;
            } else {
                message.unsplit(element);
            }
        }
        let frame = match protection.encrypt {
            Some(id) => self.seal(id, transform_id, message, spoil_tag)?,
            None => Frame::new(&[], message)?,
        };
        self.frames.push_back(frame);
        Ok(ids)
    }

    fn protection(&self, requests: &[Request]) -> Protection {
        let mut protection = Protection {
            sign: false,
            encrypt: None,
        };
        for request in requests {
            let Some(state) = self.sessions.get(&request.session_id) else {
                continue;
            };
            let always = self.options.encryption == Encryption::Always
                && request.command != Command::SESSION_SETUP;
            let sealed = state.secret.as_ref().is_some_and(|s| s.seal.is_some());
            let wanted = request.overrides.encrypt.unwrap_or(state.encrypt || always);
            if wanted && sealed {
                protection.encrypt = Some(request.session_id);
            }
            protection.sign |= state.sign;
        }
        protection
    }

    /// Returns whether a request is signed ([MS-SMB2] 3.2.4.1.1).
    fn signs(&self, request: &Request, session: SessionId, protection: &Protection) -> bool {
        if protection.encrypt.is_some() && request.overrides.sign.is_none() {
            return false;
        }
        let Some(state) = self.sessions.get(&session) else {
            return false;
        };
        if state.signing.is_none() {
            return false;
        }
        // On 3.1.1 a user's TREE_CONNECT is always signed, to prove that the negotiation was not tampered with.
        let tree_connect = request.command == Command::TREE_CONNECT
            && state.is_user()
            && self
                .negotiated
                .as_ref()
                .is_some_and(|n| n.dialect == smb_wire::msg::Dialect::SMB_3_1_1);
        request
            .overrides
            .sign
            .unwrap_or(state.sign || tree_connect || protection.sign)
    }

    fn element(
        &mut self,
        request: Request,
        session: SessionId,
        is_last: bool,
        protection: &Protection,
        ids: &mut Vec<MessageId>,
    ) -> Result<BytesMut, ClientError> {
        let sign = self.signs(&request, session, protection);
        let charge = self.charge_of(&request);
        let (message_id, credits) = self.ids_for(&request, charge)?;
        let Request {
            mut message,
            overrides,
            ..
        } = request;
        if !is_last {
            let padded = message.len().next_multiple_of(8);
            message.resize(padded, 0);
        }
        let chained = if is_last { 0 } else { message.len() };
        let multi_credit = self.negotiated.as_ref().is_some_and(|n| n.multi_credit);
        let header = Header {
            // [MS-SMB2] 2.2.1.2: reserved without multi-credit requests.
            credit_charge: overrides
                .credit_charge
                .unwrap_or(if multi_credit { charge } else { 0 }),
            status: Status(u32::from(request.channel_sequence)),
            command: request.command,
            credits,
            flags: request.flags | HeaderFlags::SIGNED.when(sign),
            next_command: overrides
                .next_command
                .unwrap_or(u32::try_from(chained).unwrap_or(u32::MAX)),
            message_id,
            async_id: request.async_id,
            reserved: overrides.reserved,
            tree_id: request.tree_id,
            session_id: request.session_id,
            signature: [0; 16],
        };
        let mut bytes = BytesMut::with_capacity(Header::SIZE);
        header.encode(&mut bytes);
        if let Some(place) = message.get_mut(..Header::SIZE) {
            place.copy_from_slice(&bytes);
        }
        if sign {
            self.sign(&mut message, session, &header)?;
        }
        if overrides.corrupt_signature && protection.encrypt.is_none() {
            flip(&mut message, Header::SIGNATURE_AT);
        }
        if request.command != Command::CANCEL {
            let expectation = Outstanding {
                command: request.command,
                session_id: session,
                signed: sign && !overrides.corrupt_signature,
                encrypted: protection.encrypt.is_some(),
            };
            self.outstanding.insert(message_id, expectation);
        }
        ids.push(message_id);
        Ok(message)
    }

    /// Returns the MessageId and the number of credits to request.
    fn ids_for(&mut self, request: &Request, charge: u16) -> Result<(MessageId, u16), ClientError> {
        let overrides = &request.overrides;
        let message_id = match overrides.message_id {
            Some(id) => id,
            // [MS-SMB2] 3.2.4.24: CANCEL uses no id of its own; with an AsyncId the MessageId has no meaning.
            None if request.command == Command::CANCEL => MessageId(0),
            None => self.window.take(charge, overrides.ignore_credits)?,
        };
        let missing = u32::from(self.options.credits).saturating_sub(self.window.available());
        let wanted = u16::try_from(missing).unwrap_or(u16::MAX).max(charge);
        Ok((message_id, overrides.credits.unwrap_or(wanted)))
    }

    fn sign(
        &self,
        message: &mut [u8],
        session: SessionId,
        header: &Header,
    ) -> Result<(), ClientError> {
        let nonce = SignNonce {
            message_id: header.message_id.0,
            is_server: false,
            is_cancel: header.command == Command::CANCEL,
        };
        self.sessions
            .get(&session)
            .and_then(|state| state.signing.as_ref())
            .ok_or(ClientError::Usage("no key to sign with"))?
            .sign(message, nonce)
            .map_err(|_| ClientError::Usage("message cannot be signed"))
    }

    /// Encrypts the whole message ([MS-SMB2] 3.1.4.3).
    fn seal(
        &self,
        session_id: SessionId,
        claimed: Option<SessionId>,
        mut message: BytesMut,
        spoil: bool,
    ) -> Result<Frame, ClientError> {
        const NO_KEY: ClientError = ClientError::Usage("no key to encrypt with");
        let secret = self
            .sessions
            .get(&session_id)
            .and_then(|state| state.secret.as_ref())
            .ok_or(NO_KEY)?;
        let key = secret.seal.as_ref().ok_or(NO_KEY)?;
        let nonce = secret.nonce();
        let header = TransformHeader {
            signature: [0; 16],
            nonce,
            original_message_size: u32::try_from(message.len()).unwrap_or(u32::MAX),
            flags: TransformHeader::ENCRYPTED,
            session_id: claimed.unwrap_or(session_id),
        };
        let mut head = header.to_bytes();
        let aad = TransformHeader::aad(&head)?;
        let tag = key
            .seal_in_place(&nonce, aad, &mut message)
            .map_err(|_| ClientError::Usage("message cannot be encrypted"))?;
        TransformHeader::patch_signature(&mut head, &tag);
        if spoil {
            flip(&mut head, TransformHeader::SIGNATURE.start);
        }
        Frame::new(&head, message)
    }

    /// Returns whether requests of a new session are signed by default ([MS-SMB2] 3.2.5.3.1).
    pub(super) fn signing_required(&self) -> bool {
        match self.options.signing {
            Signing::Required => true,
            Signing::Never => false,
            Signing::IfRequired => self
                .negotiated
                .as_ref()
                .is_some_and(|n| n.server_requires_signing),
        }
    }
}

fn flip(bytes: &mut [u8], at: usize) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 0xff;
    }
}
