//! Negotiation: bind, alter_context and their responses (C706 12.6.4.3 to 12.6.4.5, [MS-RPCE]
//! 2.2.2.4, 3.3.1.5.3).
//!
//! [`answer_contexts`] contains the whole policy: NDR32 is accepted, other transfer syntaxes are
//! rejected, bind time feature negotiation is acknowledged without any feature.

use bytes::{BufMut, BytesMut};

use super::interface::{Interface, SyntaxId};
use super::pdu::{PduHeader, PduType, PfcFlags};
use crate::codec::{Malformed, Reader, pad_to};
use crate::fscc::record::{Field, record};

/// Maximum number of presentation contexts of a bind.
pub const MAX_CONTEXTS: usize = 16;

/// Maximum number of transfer syntaxes of a context.
const MAX_TRANSFER_SYNTAXES: usize = 16;

/// An interface and the transfer syntaxes that the client offers for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentationContext {
    /// Its number in later requests.
    pub id: u16,
    /// The interface.
    pub abstract_syntax: SyntaxId,
    /// The syntaxes.
    pub transfer_syntaxes: Vec<SyntaxId>,
}

/// Bind or alter_context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bind {
    /// Longest fragment the client sends, in bytes.
    pub max_xmit_frag: u16,
    /// Longest fragment the client accepts, in bytes.
    pub max_recv_frag: u16,
    /// Association group, 0 for a new one.
    pub assoc_group_id: u32,
    /// The contexts.
    pub contexts: Vec<PresentationContext>,
}

impl Bind {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed`] when a field is missing or there are over [`MAX_CONTEXTS`] contexts.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body, "RPC bind");
        let max_xmit_frag = reader.u16()?;
        let max_recv_frag = reader.u16()?;
        let assoc_group_id = reader.u32()?;
        let count = usize::from(reader.u8()?);
        reader.skip(3)?;
        if count > MAX_CONTEXTS {
            return Err(reader.malformed());
        }
        let mut contexts = Vec::with_capacity(count);
        for _ in 0..count {
            let id = reader.u16()?;
            let transfers = usize::from(reader.u8()?);
            reader.skip(1)?;
            if transfers > MAX_TRANSFER_SYNTAXES {
                return Err(reader.malformed());
            }
            let abstract_syntax = SyntaxId::get(&mut reader)?;
            let transfer_syntaxes = (0..transfers)
                .map(|_| SyntaxId::get(&mut reader))
                .collect::<Result<_, _>>()?;
            contexts.push(PresentationContext {
                id,
                abstract_syntax,
                transfer_syntaxes,
            });
        }
        Ok(Self {
            max_xmit_frag,
            max_recv_frag,
            assoc_group_id,
            contexts,
        })
    }

    /// Appends the PDU, a bind or an alter_context.
    pub fn encode(&self, pdu_type: PduType, call_id: u32, out: &mut BytesMut) {
        PduHeader::new(pdu_type, PfcFlags::WHOLE, call_id).encode(out, |out| {
            out.put_u16_le(self.max_xmit_frag);
            out.put_u16_le(self.max_recv_frag);
            out.put_u32_le(self.assoc_group_id);
            out.put_u8(u8::try_from(self.contexts.len()).unwrap_or(u8::MAX));
            out.put_bytes(0, 3);
            for context in &self.contexts {
                out.put_u16_le(context.id);
                out.put_u8(u8::try_from(context.transfer_syntaxes.len()).unwrap_or(u8::MAX));
                out.put_u8(0);
                context.abstract_syntax.put(out);
                for syntax in &context.transfer_syntaxes {
                    syntax.put(out);
                }
            }
        });
    }
}

enum_of_the_wire! {
    /// The result for a context.
    pub struct ResultCode(u16) {
        ACCEPTANCE = 0,
        PROVIDER_REJECTION = 2,
        /// Bind time features are acknowledged; the reason holds the bits.
        NEGOTIATE_ACK = 3,
    }

    /// The reason why a context was rejected.
    pub struct ProviderReason(u16) {
        REASON_NOT_SPECIFIED = 0,
        ABSTRACT_SYNTAX_NOT_SUPPORTED = 1,
        PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED = 2,
        LOCAL_LIMIT_EXCEEDED = 3,
    }
}

record! {
    /// The answer to one context.
    ContextResult {
        /// The result.
        result: ResultCode;
        /// The reason, or the bits of an acknowledgement.
        reason: ProviderReason;
        /// The accepted syntax, zero if none.
        transfer_syntax: SyntaxId;
    }
}

/// Returns the answers to the contexts of a bind on the pipe of `interface`, in order. All interfaces behind that pipe
/// are accepted.
pub fn answer_contexts(bind: &Bind, interface: Interface) -> Vec<ContextResult> {
    let reject = |reason| ContextResult {
        result: ResultCode::PROVIDER_REJECTION,
        reason,
        transfer_syntax: SyntaxId::default(),
    };
    bind.contexts
        .iter()
        .map(|context| {
            let transfers = &context.transfer_syntaxes;
            let asked = Interface::of(&context.abstract_syntax);
            if transfers.iter().any(SyntaxId::is_bind_time_features) {
                ContextResult {
                    result: ResultCode::NEGOTIATE_ACK,
                    ..ContextResult::default()
                }
            } else if asked.is_none_or(|asked| asked.pipe_name() != interface.pipe_name()) {
                reject(ProviderReason::ABSTRACT_SYNTAX_NOT_SUPPORTED)
            } else if transfers.contains(&SyntaxId::NDR32) {
                ContextResult {
                    transfer_syntax: SyntaxId::NDR32,
                    ..ContextResult::default()
                }
            } else {
                reject(ProviderReason::PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED)
            }
        })
        .collect()
}

/// Bind_ack or alter_context_resp.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BindAck {
    /// Longest fragment the server sends, in bytes.
    pub max_xmit_frag: u16,
    /// Longest fragment the server accepts, in bytes.
    pub max_recv_frag: u16,
    /// Association group.
    pub assoc_group_id: u32,
    /// `\PIPE\name`; empty in an alter_context_resp.
    pub secondary_address: String,
    /// Answers in the order of the contexts.
    pub results: Vec<ContextResult>,
}

impl BindAck {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed`] when a field is missing.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body, "RPC bind_ack");
        let max_xmit_frag = reader.u16()?;
        let max_recv_frag = reader.u16()?;
        let assoc_group_id = reader.u32()?;
        let len = usize::from(reader.u16()?);
        let address = reader.take(len)?;
        let address = address.strip_suffix(&[0]).unwrap_or(address);
        let secondary_address = String::from_utf8_lossy(address).into_owned();
        // The results are aligned from the start of the PDU, whose header is 16 bytes.
        reader.skip((10 + len).next_multiple_of(4) - (10 + len))?;
        let count = usize::from(reader.u8()?);
        reader.skip(3)?;
        let results = (0..count)
            .map(|_| ContextResult::get(&mut reader))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            max_xmit_frag,
            max_recv_frag,
            assoc_group_id,
            secondary_address,
            results,
        })
    }

    /// Appends the PDU, a bind_ack or an alter_context_resp.
    pub fn encode(&self, pdu_type: PduType, call_id: u32, out: &mut BytesMut) {
        let start = out.len();
        PduHeader::new(pdu_type, PfcFlags::WHOLE, call_id).encode(out, |out| {
            out.put_u16_le(self.max_xmit_frag);
            out.put_u16_le(self.max_recv_frag);
            out.put_u32_le(self.assoc_group_id);
            if self.secondary_address.is_empty() {
                out.put_u16_le(0);
            } else {
                let address = self.secondary_address.as_bytes();
                out.put_u16_le(u16::try_from(address.len() + 1).unwrap_or(u16::MAX));
                out.put_slice(address);
                out.put_u8(0);
            }
            pad_to(out, start, 4);
            out.put_u8(u8::try_from(self.results.len()).unwrap_or(u8::MAX));
            out.put_bytes(0, 3);
            for result in &self.results {
                result.put(out);
            }
        });
    }
}

/// Bind_nak: the bind is refused altogether.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindNak {
    /// 0 unspecified, 4 protocol version not supported, 8 authentication type unknown.
    pub reason: u16,
}

impl BindNak {
    /// The client requests an authentication type that is not implemented.
    pub const AUTHENTICATION_TYPE_NOT_RECOGNIZED: Self = Self { reason: 8 };

    /// The bind cannot be decoded.
    pub const REASON_NOT_SPECIFIED: Self = Self { reason: 0 };

    /// Appends the PDU.
    pub fn encode(self, call_id: u32, out: &mut BytesMut) {
        PduHeader::new(PduType::BIND_NAK, PfcFlags::WHOLE, call_id).encode(out, |out| {
            out.put_u16_le(self.reason);
            // The supported versions: one of them, 5.0.
            out.put_slice(&[1, 5, 0]);
            out.put_bytes(0, 3);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(id: u16, abstract_syntax: SyntaxId, transfer: SyntaxId) -> PresentationContext {
        PresentationContext {
            id,
            abstract_syntax,
            transfer_syntaxes: vec![transfer],
        }
    }

    #[test]
    fn a_windows_bind_gets_ndr32_only() {
        let srvsvc = Interface::Srvsvc.syntax();
        let mut features = SyntaxId::BIND_TIME_FEATURES;
        features.uuid.0[8] = 3;
        let bind = Bind {
            max_xmit_frag: 4280,
            max_recv_frag: 4280,
            assoc_group_id: 0,
            contexts: vec![
                context(0, srvsvc, SyntaxId::NDR32),
                context(1, srvsvc, SyntaxId::NDR64),
                context(2, srvsvc, features),
                context(3, Interface::Samr.syntax(), SyntaxId::NDR32),
            ],
        };
        let mut out = BytesMut::new();
        bind.encode(PduType::BIND, 1, &mut out);
        let (_, body, _) = PduHeader::read(&out).unwrap();
        assert_eq!(Bind::read(body).as_ref(), Ok(&bind));
        for cut in 0..body.len() {
            assert!(Bind::read(&body[..cut]).is_err());
        }
        let results = answer_contexts(&bind, Interface::Srvsvc);
        let codes: Vec<_> = results.iter().map(|r| (r.result.0, r.reason.0)).collect();
        assert_eq!(codes, [(0, 0), (2, 2), (3, 0), (2, 1)]);

        for (address, pdu_type) in [
            ("\\PIPE\\srvsvc", PduType::BIND_ACK),
            ("", PduType::ALTER_CONTEXT_RESP),
        ] {
            let ack = BindAck {
                max_xmit_frag: 4280,
                max_recv_frag: 4280,
                assoc_group_id: 0x53f0,
                secondary_address: address.to_owned(),
                results: results.clone(),
            };
            let mut out = BytesMut::new();
            ack.encode(pdu_type, 1, &mut out);
            let (_, body, _) = PduHeader::read(&out).unwrap();
            assert_eq!(BindAck::read(body), Ok(ack));
        }
    }

    #[test]
    fn too_many_contexts_are_refused() {
        let mut body = vec![0u8; 12 + 17 * 24];
        body[8] = 17;
        assert!(Bind::read(&body).is_err());
        body[8] = 16;
        assert!(Bind::read(&body).is_ok());
    }
}
