//! SESSION_SETUP with SMB2_SESSION_FLAG_BINDING: a connection becomes a further channel of a
//! session ([MS-SMB2] 3.3.5.5, 3.3.5.5.3).
//!
//! A binding changes nothing until it has succeeded: one that fails leaves the session and its
//! other channels as they were (CVE-2026-31476). The requests of a binding are signed with
//! Session.SigningKey in the session's own algorithm; so are the answers, except the last one, which is signed with the
//! channel's new key. Nothing else is signed with a session's key on a connection that is no channel of it: two
//! AES-GMACs under one nonce, which is the MessageId, would let an attacker forge others, and anybody can send a copy
//! of a signed request, with its MessageId, on another connection.

use std::{rc::Rc, sync::Arc};

use smb_auth::{PeerIdentity, SessionKey};
use smb_crypto::{SignNonce, SigningAlgorithm, SigningKey};
use smb_wire::{
    header::HeaderFlags,
    ids::SessionId,
    msg::{Dialect, SessionFlags},
    status::Status,
};
use vfs::Vfs;

use super::{
    Call,
    session_setup::{Done, derive},
};
use crate::{
    connection::Negotiated,
    failure::Failure,
    limits::CHANNELS_PER_SESSION_MAX,
    state::{Channel, Purpose, Session, Setup},
    token::Token,
};

/// The session of other connections that a binding request names, if the request is signed with its key. The
/// answer will be signed with that key too, unless the binding succeeds and the channel gets its own.
fn signer<V: Vfs>(call: &Call<V>) -> Option<Arc<Session<V>>> {
    let header = &call.header;
    if call.channel.is_some() || call.encrypted || !header.flags.contains(HeaderFlags::SIGNED) {
        return None;
    }
    let session = call.server().session(header.session_id)?;
    let key = session.signing.clone()?;
    let nonce = SignNonce {
        message_id: header.message_id.0,
        is_server: false,
        is_cancel: false,
    };
    if !key.verify(&call.message, nonce) {
        return None;
    }
    *call.sign_with.borrow_mut() = Some(Rc::new(Channel {
        session: Arc::clone(&session),
        signing: Some(key),
    }));
    Some(session)
}

/// Every check of [MS-SMB2] 3.3.5.5 on one leg of a binding, in the order of the text. In addition:
///
/// - AES-GMAC on one side only is checked first, as in Windows: such a signature cannot be verified.
/// - A connection that is a channel already has had its signature checked with the channel's own key (3.3.5.2.4); a
///   wrong one was refused there.
/// - Another cipher is refused like another dialect, since the sealing keys are the session's.
/// - Another ClientGuid is refused, as the text allows: leases and durable opens belong to it.
pub(super) fn check<V: Vfs>(call: &Call<V>, facts: &Negotiated) -> Result<(), Failure> {
    // This comes first, because a refusal is signed as well.
    let signed = signer(call).is_some();
    let id = call.header.session_id;
    Status::INVALID_PARAMETER.when(id == SessionId::default())?;
    let Some(session) = call.server().session(id) else {
        return Err(unknown(call, facts, id).into());
    };
    check_algorithm(&session, facts.signing)?;
    Status::REQUEST_NOT_ACCEPTED.when(facts.dialect < Dialect::SMB_3_0)?;
    let terms = &session.terms;
    if terms.dialect != facts.dialect
        || !call.header.flags.contains(HeaderFlags::SIGNED)
        || terms.cipher != facts.cipher
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Status::USER_SESSION_DELETED.when(terms.client_guid != facts.client_guid)?;
    let token = session.token();
    Status::NOT_SUPPORTED.when(token.guest || token.anonymous || session.signing.is_none())?;
    Status::REQUEST_NOT_ACCEPTED.when(call.channel.is_some())?;
    Status::ACCESS_DENIED.when(!signed)?;
    Ok(
        Status::INSUFFICIENT_RESOURCES
            .when(session.channels().len() >= CHANNELS_PER_SESSION_MAX)?,
    )
}

/// The status for a session that is in setup on this connection or does not exist; it may have ended since its binding
/// or its re-authentication began. One that is in setup on another connection cannot be found, although 3.3.5.5 has
/// REQUEST_NOT_ACCEPTED for it too: nobody has its key yet, and a binding is signed with it.
fn unknown<V: Vfs>(call: &Call<V>, facts: &Negotiated, id: SessionId) -> Status {
    let setups = call.connection.setups.borrow();
    let setup = setups.get(&id);
    let in_setup = setup.is_some_and(|setup| setup.purpose == Purpose::New);
    let signed = call.header.flags.contains(HeaderFlags::SIGNED);
    match (in_setup, signed) {
        // [MS-SMB2] 3.3.5.2.4 looks the session of a signed request up before anything else is examined.
        (false, true) => Status::USER_SESSION_DELETED,
        _ if facts.dialect < Dialect::SMB_3_0 => Status::REQUEST_NOT_ACCEPTED,
        (false, false) => Status::USER_SESSION_DELETED,
        (true, false) => Status::INVALID_PARAMETER,
        (true, true) => Status::REQUEST_NOT_ACCEPTED,
    }
}

fn check_algorithm<V: Vfs>(session: &Session<V>, here: SigningAlgorithm) -> Result<(), Failure> {
    let is_gmac = |algorithm: SigningAlgorithm| algorithm == SigningAlgorithm::AesGmac;
    let there = session.signing.as_ref().map(|key| key.algorithm());
    match (there.map(is_gmac), is_gmac(here)) {
        (Some(true), false) => Err(Status::REQUEST_OUT_OF_SEQUENCE.into()),
        (Some(false), true) => Err(Status::NOT_SUPPORTED.into()),
        _ => Ok(()),
    }
}

/// Makes the connection a channel, if the peer proved to be the session's user. Nothing in here waits, so that a
/// connection that is lost meanwhile never becomes a channel. The session's own flags stay: a channel that requires
/// signing signs, and the other channels need not, as in Windows and Samba.
pub(super) fn finish<V: Vfs>(
    call: &Call<V>,
    facts: &Negotiated,
    setup: &Setup,
    identity: PeerIdentity,
    session_key: &SessionKey,
) -> Result<Done<V>, Failure> {
    let (server, connection) = (call.server(), &call.connection);
    let config = server.config();
    let session = server
        .session(call.header.session_id)
        .ok_or(Status::USER_SESSION_DELETED)?;
    let PeerIdentity::User(user) = identity else {
        return Err(Status::ACCESS_DENIED.into());
    };
    let token = Token::user(&config, &user, &*server.users());
    // docs/protocol-notes.md, "Binding a session as another user".
    Status::ACCESS_DENIED.when(token.user_sid != session.token().user_sid)?;
    if connection.count_sessions(|_| true) >= config.limits.sessions_per_connection {
        return Err(Status::REQUEST_NOT_ACCEPTED.into());
    }
    let keys = derive(facts, setup, session_key)?;
    Status::USER_SESSION_DELETED.when(!server.logged_in(connection.id, token.user_sid))?;
    session.add_channel(connection.id, (connection.authenticated)())?;
    let channel = Rc::new(Channel {
        session,
        signing: Some(Arc::new(SigningKey::new(facts.signing, &keys.signing))),
    });
    connection.add_channel(channel.session.id, Rc::clone(&channel));
    tracing::debug!(peer = %connection.peer, user = token.user, session = channel.session.id.0, "channel bound");
    Ok(Done {
        flags: SessionFlags::empty(),
        channel,
    })
}
