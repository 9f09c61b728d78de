//! NEGOTIATE on the client ([MS-SMB2] 3.2.4.2, 3.2.5.2): the offer, the result, and the checks that
//! a client must make.

use bytes::{BufMut, BytesMut};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::Command;
use smb_wire::fsctl::ValidateNegotiateInfoRequest;
use smb_wire::ids::{Guid, MessageId};
use smb_wire::msg::{Capabilities, Dialect, NegotiateRequest, NegotiateResponse, SecurityMode};
use smb_wire::negotiate_context::{
    EncryptionCapabilities, HashAlgorithm, NegotiateContextList, PreauthIntegrityCapabilities,
    SigningCapabilities,
};
use smb_wire::smb1::{DIALECT_SMB_2_002, DIALECT_SMB_2_WILDCARD, Smb1NegotiateRequest};

use super::outbound::Frame;
use super::{ClientCore, Event, Reply};
use crate::error::ClientError;
use crate::options::{Encryption, MultiProtocol, Signing};
use crate::request::Request;

/// Bytes of salt in the preauthentication context.
const SALT_LEN: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Fresh,
    /// An SMB1 NEGOTIATE was sent; its answer has MessageId 0.
    MultiProtocol,
    Smb2(MessageId),
    Done,
}

#[derive(Debug, Clone)]
pub struct Negotiated {
    pub dialect: Dialect,
    pub server_guid: Guid,
    pub capabilities: Capabilities,
    pub security_mode: SecurityMode,
    pub server_requires_signing: bool,
    /// Longest buffer of QUERY and SET requests, bytes.
    pub max_transact_size: u32,
    /// Longest READ, bytes.
    pub max_read_size: u32,
    /// Longest WRITE, bytes.
    pub max_write_size: u32,
    pub signing_algorithm: SigningAlgorithm,
    pub cipher: Option<Cipher>,
    /// Requests may charge more than one credit.
    pub multi_credit: bool,
    /// The server's first token.
    pub security_buffer: Vec<u8>,
}

impl ClientCore {
    /// Starts the negotiation; [`Event::Negotiated`] reports its end.
    pub fn begin_negotiate(&mut self) -> Result<(), ClientError> {
        ClientError::Usage("negotiated already").when(self.stage != Stage::Fresh)?;
        let dialects: &[&[u8]] = match self.options.multi_protocol {
            MultiProtocol::No => return self.send_negotiate(),
            MultiProtocol::Smb2002 => &[b"NT LM 0.12", DIALECT_SMB_2_002],
            MultiProtocol::Wildcard => &[b"NT LM 0.12", DIALECT_SMB_2_002, DIALECT_SMB_2_WILDCARD],
        };
        let mut message = BytesMut::new();
        Smb1NegotiateRequest::encode(&mut message, dialects);
        self.frames.push_back(Frame::new(&[], message)?);
        // The SMB1 message counts as MessageId 0.
        self.window.take(1, true)?;
        self.stage = Stage::MultiProtocol;
        Ok(())
    }

    /// The security mode that the client announces.
    pub fn security_mode(&self) -> SecurityMode {
        match self.options.signing {
            Signing::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
            Signing::IfRequired | Signing::Never => SecurityMode::SIGNING_ENABLED,
        }
    }

    /// The capabilities that the client announces.
    pub fn capabilities(&self) -> Capabilities {
        // [MS-SMB2] 2.2.3: zero unless 3.x is offered.
        if !self.options.offers_3x() {
            return Capabilities::empty();
        }
        self.options.capabilities
            | Capabilities::ENCRYPTION.when(self.options.encryption != Encryption::Never)
    }

    /// Builds the NEGOTIATE request of this connection's options, to be sent unchanged or modified.
    pub fn negotiate_request(&mut self) -> Request {
        let contexts = self.negotiate_contexts();
        Request::new(&NegotiateRequest {
            security_mode: self.security_mode(),
            capabilities: self.capabilities(),
            client_guid: if self.options.dialects.iter().any(|d| *d >= Dialect::SMB_2_1) {
                self.guid
            } else {
                Guid::default()
            },
            dialects: self.options.dialects.clone(),
            context_offset: 0,
            contexts: contexts.contexts(),
        })
    }

    fn negotiate_contexts(&mut self) -> NegotiateContextList {
        let mut list = NegotiateContextList::new();
        if !self.options.dialects.contains(&Dialect::SMB_3_1_1) {
            return list;
        }
        let mut salt = [0; SALT_LEN];
        (self.random)(&mut salt);
        let preauth = PreauthIntegrityCapabilities {
            hash_algorithms: vec![HashAlgorithm::SHA_512],
            salt: &salt,
        };
        list.push_with(PreauthIntegrityCapabilities::TYPE, |out| {
            preauth.encode(out);
        });
        if self.options.encryption != Encryption::Never && !self.options.ciphers.is_empty() {
            let ciphers = self.options.ciphers.iter();
            let ciphers = ciphers.map(|c| smb_wire::negotiate_context::CipherId(c.id()));
            let encryption = EncryptionCapabilities {
                ciphers: ciphers.collect(),
            };
            list.push_with(EncryptionCapabilities::TYPE, |out| encryption.encode(out));
        }
        if !self.options.signing_algorithms.is_empty() {
            let algorithms = self.options.signing_algorithms.iter();
            let algorithms =
                algorithms.map(|a| smb_wire::negotiate_context::SigningAlgorithmId(a.id()));
            let signing = SigningCapabilities {
                algorithms: algorithms.collect(),
            };
            list.push_with(SigningCapabilities::TYPE, |out| signing.encode(out));
        }
        list
    }

    fn send_negotiate(&mut self) -> Result<(), ClientError> {
        let request = self.negotiate_request();
        let ids = self.send(vec![request])?;
        let id = ids.first().copied().unwrap_or_default();
        // [MS-SMB2] 3.2.4.2.2.2: the preauthentication hash begins with the request.
        if let Some(frame) = self.frames.back() {
            self.preauth.update(&frame.body);
        }
        self.stage = Stage::Smb2(id);
        Ok(())
    }

    /// Processes the response to the NEGOTIATE that [`ClientCore::begin_negotiate`] sent; returns
    /// false for any other reply.
    pub(super) fn on_negotiate(&mut self, reply: &Reply) -> Result<bool, ClientError> {
        let id = reply.header.message_id;
        let expected = match self.stage {
            Stage::MultiProtocol => id == MessageId(0),
            Stage::Smb2(expected) => id == expected,
            Stage::Fresh | Stage::Done => false,
        };
        if !expected || reply.header.command != Command::NEGOTIATE {
            return Ok(false);
        }
        if !reply.status().is_success() {
            self.stage = Stage::Done;
            self.events
                .push_back(Event::Negotiated(Err(reply.status())));
            return Ok(true);
        }
        let response = NegotiateResponse::read(&reply.message)?;
        if self.stage == Stage::MultiProtocol {
            if response.dialect == Dialect::WILDCARD {
                self.send_negotiate()?;
                return Ok(true);
            }
            let is_other = response.dialect != Dialect::SMB_2_0_2;
            ClientError::Protocol("dialect of an SMB1 NEGOTIATE").when(is_other)?;
        } else {
            let is_offered = self.options.dialects.contains(&response.dialect);
            ClientError::Protocol("dialect that was not offered").when(!is_offered)?;
        }
        self.preauth.update(&reply.message);
        self.negotiated = Some(self.settle(&response)?);
        self.stage = Stage::Done;
        self.events.push_back(Event::Negotiated(Ok(())));
        Ok(true)
    }

    /// Checks the response ([MS-SMB2] 3.2.5.2) and extracts the result.
    fn settle(&self, response: &NegotiateResponse<'_>) -> Result<Negotiated, ClientError> {
        let mut signing_algorithm = SigningAlgorithm::default_for_dialect(response.dialect.0);
        let mut cipher = None;
        match response.dialect {
            Dialect::SMB_3_1_1 => {
                self.settle_contexts(response, &mut cipher, &mut signing_algorithm)?;
            }
            Dialect::SMB_3_0 | Dialect::SMB_3_0_2 => {
                cipher = response
                    .capabilities
                    .contains(Capabilities::ENCRYPTION)
                    .then_some(Cipher::Aes128Ccm);
            }
            _ => {}
        }
        if self.options.encryption == Encryption::Never {
            cipher = None;
        }
        let multi_credit = response.dialect >= Dialect::SMB_2_1
            && response.capabilities.contains(Capabilities::LARGE_MTU);
        Ok(Negotiated {
            dialect: response.dialect,
            server_guid: response.server_guid,
            capabilities: response.capabilities,
            security_mode: response.security_mode,
            server_requires_signing: response
                .security_mode
                .contains(SecurityMode::SIGNING_REQUIRED),
            max_transact_size: response.max_transact_size,
            max_read_size: response.max_read_size,
            max_write_size: response.max_write_size,
            signing_algorithm,
            cipher,
            multi_credit,
            security_buffer: response.security_buffer.to_vec(),
        })
    }

    fn settle_contexts(
        &self,
        response: &NegotiateResponse<'_>,
        cipher: &mut Option<Cipher>,
        signing: &mut SigningAlgorithm,
    ) -> Result<(), ClientError> {
        let mut hashed = 0;
        for context in response.contexts.iter() {
            let context = context?;
            match context.context_type {
                PreauthIntegrityCapabilities::TYPE => {
                    let preauth = PreauthIntegrityCapabilities::read(context.data)?;
                    let is_other = preauth.hash_algorithms != [HashAlgorithm::SHA_512];
                    ClientError::Protocol("preauth hash not offered").when(is_other)?;
                    hashed += 1;
                }
                EncryptionCapabilities::TYPE => {
                    let chosen = EncryptionCapabilities::read(context.data)?.ciphers;
                    let [id] = chosen[..] else {
                        return Err(ClientError::Protocol("not exactly one cipher chosen"));
                    };
                    *cipher = Cipher::from_id(id.0);
                    let is_offered = cipher.is_some_and(|c| self.options.ciphers.contains(&c));
                    ClientError::Protocol("cipher that was not offered")
                        .when(id.0 != 0 && !is_offered)?;
                }
                SigningCapabilities::TYPE => {
                    let chosen = SigningCapabilities::read(context.data)?.algorithms;
                    let [id] = chosen[..] else {
                        return Err(ClientError::Protocol("not exactly one signing algorithm"));
                    };
                    *signing = SigningAlgorithm::from_id(id.0)
                        .ok_or(ClientError::Protocol("unknown signing algorithm"))?;
                }
                _ => {}
            }
        }
        ClientError::Protocol("not exactly one preauth context").when(hashed != 1)
    }

    /// Returns the input of VALIDATE_NEGOTIATE_INFO if this connection has to send it ([MS-SMB2]
    /// 3.2.5.5): 3.x was offered and a dialect below 3.1.1 was chosen.
    pub fn validate_negotiate_input(&self) -> Option<BytesMut> {
        let negotiated = self.negotiated.as_ref()?;
        if negotiated.dialect == Dialect::SMB_3_1_1 || !self.options.offers_3x() {
            return None;
        }
        let mut out = BytesMut::new();
        ValidateNegotiateInfoRequest {
            capabilities: self.capabilities().bits(),
            guid: self.guid,
            security_mode: self.security_mode().bits(),
            dialects: self.options.dialects.iter().map(|d| d.0).collect(),
        }
        .encode(&mut out);
        Some(out)
    }

    /// Queues the raw bytes of a message, behind a transport header.
    pub fn send_message(&mut self, message: &[u8]) -> Result<(), ClientError> {
        let mut body = BytesMut::with_capacity(message.len());
        body.put_slice(message);
        self.frames.push_back(Frame::new(&[], body)?);
        self.tolerant = true;
        Ok(())
    }
}
