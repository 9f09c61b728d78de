//! NEGOTIATE chooses the dialect, the capabilities and the algorithms of a connection ([MS-SMB2] 3.3.5.3, 3.3.5.4).

use std::rc::Rc;

use smb_auth::Acceptor;
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::{
    header::{Command, Header, HeaderFlags},
    msg::{Capabilities, Dialect, NegotiateRequest, NegotiateResponse, SecurityMode},
    negotiate_context::{
        self as context, EncryptionCapabilities, HashAlgorithm, NegotiateContextList,
        NegotiateContextType, PreauthIntegrityCapabilities, SigningCapabilities,
    },
    smb1::Smb1NegotiateRequest,
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, file_time};
use crate::{
    config::ServerConfig,
    connection::{Connection, Negotiated},
    failure::Failure,
    limits::DIALECTS_MAX,
    link::{
        misbehaved::Misbehaved,
        outbound::{self, HEADROOM, Outgoing},
    },
    state::Server,
};

/// Bytes of salt in our preauthentication context (Windows: 32).
const SALT_BYTES: usize = 32;

/// Largest transfer without LARGE_MTU.
const SMALL_IO: u32 = 65_536;

/// The result of negotiating the contexts of 3.1.1.
struct Contexts {
    cipher: Option<Cipher>,
    signing: SigningAlgorithm,
    reply: NegotiateContextList,
}

/// Chooses the dialect, the capabilities and the algorithms.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = NegotiateRequest::read(&call.message)?;
    if request.dialects.is_empty() || request.dialects.len() > DIALECTS_MAX {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let config = call.server().config();
    let dialect = choose(&config, &request.dialects).ok_or(Status::NOT_SUPPORTED)?;
    let mut contexts = Contexts {
        cipher: None,
        signing: SigningAlgorithm::default_for_dialect(dialect.0),
        reply: NegotiateContextList::new(),
    };
    if dialect == Dialect::SMB_3_1_1 {
        let mut salt = [0; SALT_BYTES];
        call.server().env.fill_random(&mut salt);
        contexts = answer_contexts(&config, &request, &salt)?;
    } else if dialect >= Dialect::SMB_3_0
        && request.capabilities.contains(Capabilities::ENCRYPTION)
        && config.ciphers.contains(&Cipher::Aes128Ccm)
    {
        contexts.cipher = Some(Cipher::Aes128Ccm);
    }
    let offered = call.server().offers_persistence();
    let facts = agree(&config, &request, dialect, &contexts, offered);
    let hint = Acceptor::negotiate_hint();
    let contexts = contexts.reply.contexts();
    let response = response(call.server(), &config, &facts, &hint, contexts);
    let connection = &call.connection;
    connection.preauth.borrow_mut().update(&call.message);
    connection.set_negotiated(facts);
    Ok(Reply::read_only(&response))
}

/// The highest dialect both sides speak.
fn choose(config: &ServerConfig, offered: &[Dialect]) -> Option<Dialect> {
    Dialect::ALL.into_iter().rev().find(|dialect| {
        (config.dialect_min..=config.dialect_max).contains(dialect) && offered.contains(dialect)
    })
}

fn agree(
    config: &ServerConfig,
    request: &NegotiateRequest<'_>,
    dialect: Dialect,
    contexts: &Contexts,
    persistence: bool,
) -> Negotiated {
    let multi_credit = dialect >= Dialect::SMB_2_1;
    // [MS-SMB2] 3.3.5.4: on 3.1.1 only the context says that encryption was agreed (CVE-2021-45100: a server that set
    // the capability bit made clients send unencrypted).
    let encryption = contexts.cipher.is_some() && dialect < Dialect::SMB_3_1_1;
    Negotiated {
        dialect,
        client_guid: request.client_guid,
        client_capabilities: request.capabilities,
        client_security_mode: request.security_mode,
        client_dialects: request.dialects.clone(),
        // [MS-SMB2] 3.3.5.4: leasing from 2.1 on; directory leasing, multichannel and persistent handles (where a
        // share has them) from 3.0 on for clients that announce them (impacket fails if the server announces directory
        // leasing to a client that did not).
        server_capabilities: (Capabilities::LARGE_MTU | Capabilities::LEASING)
            .when(multi_credit)
            .union(
                (request.capabilities
                    & (Capabilities::DIRECTORY_LEASING
                        | Capabilities::MULTI_CHANNEL
                        | Capabilities::PERSISTENT_HANDLES.when(persistence)))
                .when(dialect >= Dialect::SMB_3_0),
            )
            .union(Capabilities::ENCRYPTION.when(encryption)),
        server_security_mode: SecurityMode::SIGNING_ENABLED
            .union(SecurityMode::SIGNING_REQUIRED.when(config.signing_required)),
        cipher: contexts.cipher,
        signing: contexts.signing,
        multi_credit,
        io_bytes: if multi_credit {
            config.limits.io_bytes
        } else {
            SMALL_IO
        },
    }
}

fn response<'a, V: Vfs>(
    server: &Server<V>,
    config: &ServerConfig,
    facts: &Negotiated,
    hint: &'a [u8],
    contexts: context::NegotiateContexts<'a>,
) -> NegotiateResponse<'a> {
    let io = facts.io_bytes;
    NegotiateResponse {
        security_mode: facts.server_security_mode,
        dialect: facts.dialect,
        server_guid: config.server_guid,
        capabilities: facts.server_capabilities,
        max_transact_size: io,
        max_read_size: io,
        max_write_size: io,
        system_time: file_time(server.env.realtime()),
        security_buffer: hint,
        contexts,
    }
}

/// [MS-SMB2] 3.3.5.4: exactly one preauthentication context, at most one of each other kind that
/// is known; unknown kinds are ignored.
fn answer_contexts(
    config: &ServerConfig,
    request: &NegotiateRequest<'_>,
    salt: &[u8],
) -> Result<Contexts, Failure> {
    if request.context_offset_expected() != smb_wire::codec::size(request.context_offset) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let (mut preauth, mut encryption, mut signing) = (None, None, None);
    let mut seen = Vec::new();
    for found in request.contexts.iter() {
        let found = found?;
        let known = matches!(
            found.context_type,
            NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES
                | NegotiateContextType::ENCRYPTION_CAPABILITIES
                | NegotiateContextType::COMPRESSION_CAPABILITIES
                | NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES
                | NegotiateContextType::SIGNING_CAPABILITIES
        );
        Status::INVALID_PARAMETER.when(known && seen.contains(&found.context_type))?;
        seen.push(found.context_type);
        match found.context_type {
            NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES => {
                preauth = Some(PreauthIntegrityCapabilities::read(found.data)?);
            }
            NegotiateContextType::ENCRYPTION_CAPABILITIES => {
                encryption = Some(EncryptionCapabilities::read(found.data)?);
            }
            NegotiateContextType::SIGNING_CAPABILITIES => {
                signing = Some(SigningCapabilities::read(found.data)?);
            }
            _ => {}
        }
    }
    let preauth = preauth.ok_or(Status::INVALID_PARAMETER)?;
    let no_cipher = (encryption.as_ref()).is_some_and(|offered| offered.ciphers.is_empty());
    // [MS-SMB2] 2.2.3.1.1, 2.2.3.1.2, 3.3.5.2.6.
    Status::INVALID_PARAMETER.when(preauth.hash_algorithms.is_empty() || no_cipher)?;
    if !preauth.hash_algorithms.contains(&HashAlgorithm::SHA_512) {
        return Err(Status::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP.into());
    }
    let mut reply = NegotiateContextList::new();
    let ours = PreauthIntegrityCapabilities {
        hash_algorithms: vec![HashAlgorithm::SHA_512],
        salt,
    };
    reply.push_with(PreauthIntegrityCapabilities::TYPE, |out| ours.encode(out));
    let cipher = answer_encryption(config, encryption.as_ref(), &mut reply);
    let signing = answer_signing(config, signing.as_ref(), &mut reply)?;
    Ok(Contexts {
        cipher,
        signing,
        reply,
    })
}

/// Our first cipher among the client's; 0 says that there is none in common.
fn answer_encryption(
    config: &ServerConfig,
    offered: Option<&EncryptionCapabilities>,
    reply: &mut NegotiateContextList,
) -> Option<Cipher> {
    let offered = offered?;
    let is_theirs = |ours: &Cipher| offered.ciphers.contains(&context::CipherId(ours.id()));
    let chosen = config.ciphers.iter().copied().find(is_theirs);
    let ours = EncryptionCapabilities {
        ciphers: vec![context::CipherId(chosen.map_or(0, Cipher::id))],
    };
    reply.push_with(EncryptionCapabilities::TYPE, |out| ours.encode(out));
    chosen
}

/// Our first algorithm among the client's; AES-CMAC, named explicitly, if there is none in common.
fn answer_signing(
    config: &ServerConfig,
    offered: Option<&SigningCapabilities>,
    reply: &mut NegotiateContextList,
) -> Result<SigningAlgorithm, Failure> {
    let Some(offered) = offered else {
        return Ok(SigningAlgorithm::AesCmac);
    };
    Status::INVALID_PARAMETER.when(offered.algorithms.is_empty())?;
    let is_theirs = |ours: &SigningAlgorithm| {
        let id = context::SigningAlgorithmId(ours.id());
        offered.algorithms.contains(&id)
    };
    let chosen = config.signing_algorithms.iter().copied().find(is_theirs);
    let chosen = chosen.unwrap_or(SigningAlgorithm::AesCmac);
    let ours = SigningCapabilities {
        algorithms: vec![context::SigningAlgorithmId(chosen.id())],
    };
    reply.push_with(SigningCapabilities::TYPE, |out| ours.encode(out));
    Ok(chosen)
}

/// An SMB1 NEGOTIATE that offers SMB 2 ([MS-SMB2] 3.3.5.3). Nothing else of SMB1 is supported.
pub(super) fn smb1<V: Vfs>(connection: &Rc<Connection<V>>, message: &[u8]) {
    if connection.negotiated().is_some() || connection.wildcard_answered.get() {
        return connection.misbehaved(Misbehaved::LateSmb1);
    }
    let Ok(request) = Smb1NegotiateRequest::read(message) else {
        return connection.misbehaved(Misbehaved::UnknownProtocol);
    };
    let config = connection.server.config();
    let dialect = if request.offers_wildcard() && config.dialect_max >= Dialect::SMB_2_1 {
        Dialect::WILDCARD
    } else if request.offers_smb_2_002() && config.dialect_min <= Dialect::SMB_2_0_2 {
        Dialect::SMB_2_0_2
    } else {
        return connection.misbehaved(Misbehaved::UnknownProtocol);
    };
    if connection.credits.borrow_mut().admit(0, 1).is_err() {
        return connection.misbehaved(Misbehaved::OutsideWindow);
    }
    let facts = smb1_facts(&config, dialect);
    let hint = Acceptor::negotiate_hint();
    let contexts = context::NegotiateContexts::EMPTY;
    let response = response(&connection.server, &config, &facts, &hint, contexts);
    let mut head = outbound::blank();
    response.encode(&mut head, HEADROOM);
    let header = Header {
        command: Command::NEGOTIATE,
        flags: HeaderFlags::RESPONSE,
        credits: connection.credits.borrow_mut().grant(1),
        ..Header::default()
    };
    if dialect == Dialect::WILDCARD {
        connection.wildcard_answered.set(true);
    } else {
        connection.set_negotiated(facts);
    }
    match outbound::assemble(vec![Outgoing::new(head, header)], None) {
        Ok(frame) => connection.send(frame),
        Err(_) => connection.unsendable(),
    }
}

fn smb1_facts(config: &ServerConfig, dialect: Dialect) -> Negotiated {
    Negotiated {
        dialect,
        client_guid: Default::default(),
        client_capabilities: Capabilities::empty(),
        client_security_mode: SecurityMode::empty(),
        client_dialects: vec![dialect],
        // [MS-SMB2] 3.3.5.3.1: as on 2.1, for a client that negotiates once more. 2.0.2 has neither (3.3.5.3.2).
        server_capabilities: (Capabilities::LARGE_MTU | Capabilities::LEASING)
            .when(dialect == Dialect::WILDCARD),
        server_security_mode: SecurityMode::SIGNING_ENABLED
            .union(SecurityMode::SIGNING_REQUIRED.when(config.signing_required)),
        cipher: None,
        signing: SigningAlgorithm::HmacSha256,
        multi_credit: false,
        io_bytes: SMALL_IO,
    }
}
