//! SESSION_SETUP ([MS-SMB2] 3.3.5.5): authentication in several legs, re-authentication, keys.
//!
//! A session in setup exists on its connection only and cannot be found from elsewhere. It becomes a `Session` of
//! the server when its setup succeeds. `session_bind.rs` binds a connection to an existing session.

use std::{collections::btree_map::Entry, rc::Rc, sync::Arc, time::Duration};

use smb_auth::{
    Acceptor, AcceptorParams, AuthEnv, AuthError, AuthStep, LoginGate, PeerIdentity, SessionKey,
};
use smb_crypto::{SessionKeys, SigningKey, derive_keys};
use smb_wire::{
    ids::SessionId,
    msg::{
        Dialect, SecurityMode, SessionFlags, SessionSetupFlags, SessionSetupRequest,
        SessionSetupResponse,
    },
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, file_time, logoff, revoke, session_bind};
use crate::{
    config::ServerConfig,
    connection::Negotiated,
    failure::Failure,
    limits::{CLOSES_WAIT, LISTING_SESSIONS, SETUP_MEMORY, SETUPS_UNCHARGED},
    link::sealing::Sealing,
    race::race,
    state::{
        Channel, LineAbout, Login, Purpose, QuotaPlace, QuotaUser, Session, Setup, Terms, line_due,
    },
    token::Token,
};

/// Handles one leg of an authentication.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = SessionSetupRequest::read(&call.message)?;
    let facts = call.connection.negotiated();
    let facts = facts.ok_or(Status::INVALID_PARAMETER)?;
    // [MS-SMB2] 3.3.5.5: a client that could not encrypt its session is refused before it proves anything.
    if call.server().config().encryption_required && facts.cipher.is_none() {
        return Err(Status::ACCESS_DENIED.into());
    }
    let binding = request.flags.contains(SessionSetupFlags::BINDING);
    if binding {
        session_bind::check(call, &facts)?;
    }
    let rules = call.server().rules_replaced();
    let (id, mut setup) = begin(call, binding)?;
    if facts.dialect == Dialect::SMB_3_1_1 {
        setup.hash(&call.message);
    }
    match step(call, &mut setup, request.security_buffer) {
        Ok(AuthStep::Continue(token)) => {
            let response = SessionSetupResponse {
                session_flags: SessionFlags::empty(),
                security_buffer: &token,
            };
            let mut reply = Reply::with_status(Status::MORE_PROCESSING_REQUIRED, &response);
            reply.session = Some(id);
            call.connection.setups.borrow_mut().insert(id, setup);
            Ok(reply)
        }
        Ok(AuthStep::Done {
            token,
            identity,
            session_key,
        }) => {
            let token = token.unwrap_or_default();
            let done = finish(call, &request, &facts, id, setup, identity, &session_key)?;
            end_replaced(call, request.previous_session_id, &done.channel.session).await;
            answer(call, id, &token, rules, done)
        }
        Err(error) => refuse(call, id, setup, &request, &facts, rules, error),
    }
}

/// Finds the setup that this leg continues, or starts one.
fn begin<V: Vfs>(call: &Call<V>, binding: bool) -> Result<(SessionId, Setup), Failure> {
    let connection = &call.connection;
    let asked = call.header.session_id;
    if !binding && call.channel.is_some() {
        check_again(call)?;
    }
    let config = call.server().config();
    let now = call.server().env.monotonic();
    let patience = Duration::from_secs(config.limits.setup_seconds);
    let mut setups = connection.setups.borrow_mut();
    // The first token of an authentication must not be taken for the next one of a setup that was given up long ago.
    setups.retain(|_, setup| now.saturating_sub(setup.started) < patience);
    if let Entry::Occupied(setup) = setups.entry(asked) {
        // A setup that began as a binding cannot be finished without the flag. Nothing proves that this request
        // comes from the client that binds, so that setup continues.
        Status::USER_SESSION_DELETED.when((setup.get().purpose == Purpose::Bind) != binding)?;
        return Ok((asked, setup.remove()));
    }
    let most = SETUPS_UNCHARGED.saturating_add(config.limits.sessions_per_connection);
    Status::INSUFFICIENT_RESOURCES.when(setups.len() >= most)?;
    let charged = setups.len() >= SETUPS_UNCHARGED;
    let memory = charged.then(|| call.keep(SETUP_MEMORY)).transpose()?;
    let (id, purpose) = if binding {
        (asked, Purpose::Bind)
    } else if asked != SessionId::default() {
        call.session()?;
        (asked, Purpose::Again)
    } else {
        (call.server().fresh_session_id(), Purpose::New)
    };
    let setup = Setup {
        acceptor: Acceptor::new(Arc::new(params(&config))),
        preauth: connection.preauth.borrow().clone(),
        started: now,
        purpose,
        _memory: memory,
    };
    Ok((id, setup))
}

/// Where the session requires signing or encryption, every leg of a re-authentication must come from its client: it is
/// signed with the key of the channel or sealed with that of the session ([MS-SMB2] 3.3.5.2.4, 3.2.4.1.8). An attacker
/// without a key can neither put another identity into the session, nor end it by a token that is refused, nor take a
/// leg away from the client. A session that requires neither trusts the network for all of its requests, and clients
/// send these legs unsigned.
fn check_again<V: Vfs>(call: &Call<V>) -> Result<(), Failure> {
    let session = call.session()?;
    if session.has_ended() {
        call.connection.setups.borrow_mut().remove(&session.id);
        return Err(Status::USER_SESSION_DELETED.into());
    }
    let protects = session.signing_required || session.encrypt_data;
    Ok(Status::ACCESS_DENIED.when(protects && !call.signed && !call.encrypted)?)
}

fn params(config: &ServerConfig) -> AcceptorParams {
    AcceptorParams {
        netbios_computer: config.netbios_name.clone(),
        netbios_domain: config.workgroup.clone(),
        dns_computer: config.dns_name.clone(),
        dns_domain: String::new(),
        allow_empty_passwords: config.allow_empty_passwords,
    }
}

fn step<V: Vfs>(call: &Call<V>, setup: &mut Setup, token: &[u8]) -> Result<AuthStep, AuthError> {
    let server = call.server();
    let users = server.users();
    let entropy = Arc::clone(&server.env);
    let mut random = move |out: &mut [u8]| entropy.fill_random(out);
    let gate = limiter(call);
    let mut env = AuthEnv {
        now_filetime: file_time(server.env.realtime()).0,
        users: &*users,
        random: &mut random,
        gate: &gate,
    };
    setup.acceptor.step(token, &mut env)
}

/// The limiter of failed logins, for this peer.
fn limiter<V: Vfs>(call: &Call<V>) -> Login<'_, V> {
    let server = call.server();
    Login {
        server,
        peer: call.connection.peer.ip(),
        now_ms: u64::try_from(server.env.monotonic().as_millis()).unwrap_or(u64::MAX),
    }
}

/// The contents of the final answer, and how it is signed.
pub(super) struct Done<V: Vfs> {
    pub(super) flags: SessionFlags,
    pub(super) channel: Rc<Channel<V>>,
}

/// The final answer of a login that began when the rules had been replaced `rules` times.
fn answer<V: Vfs>(
    call: &Call<V>,
    id: SessionId,
    token: &[u8],
    rules: u64,
    done: Done<V>,
) -> Handled {
    let session = &done.channel.session;
    if call.server().rules_replaced() != rules {
        // The existing sessions may have been checked before this one was in the table.
        revoke::look_again(call.server(), session);
    }
    // The rules, or a request on another channel, may have just ended the session.
    session.check()?;
    // [MS-SMB2] 3.3.5.5.3: the success is signed with the new key. Guests have none, and clients
    // expect no signature for an anonymous session.
    if !call.encrypted && !done.channel.session.established.anonymous {
        *call.sign_with.borrow_mut() = Some(done.channel);
    }
    let response = SessionSetupResponse {
        session_flags: done.flags,
        security_buffer: token,
    };
    let mut reply = Reply::read_only(&response);
    reply.session = Some(id);
    Ok(reply)
}

/// Finishes a setup whose peer proved an identity, or is anonymous.
fn finish<V: Vfs>(
    call: &Call<V>,
    request: &SessionSetupRequest<'_>,
    facts: &Negotiated,
    id: SessionId,
    setup: Setup,
    identity: PeerIdentity,
    session_key: &SessionKey,
) -> Result<Done<V>, Failure> {
    if setup.purpose == Purpose::Bind {
        return session_bind::finish(call, facts, &setup, identity, session_key);
    }
    let config = call.server().config();
    let token = match identity {
        PeerIdentity::User(user) => Token::user(&config, &user, &*call.server().users()),
        PeerIdentity::Anonymous => Token::anonymous(&config),
    };
    if setup.purpose == Purpose::Again {
        return again(call, token);
    }
    if token.anonymous && !call.server().welcomes_guests() && !config.anonymous_listing {
        tracing::debug!(peer = %call.connection.peer, "anonymous session refused: no share allows guests, and anonymous_listing is off");
        return Err(Status::ACCESS_DENIED.into());
    }
    establish(call, request, facts, id, &setup, token, Some(session_key))
}

/// Re-authentication: the keys stay, and the identity is replaced as a whole ([MS-SMB2] 3.3.5.5.3).
///
/// The user must stay the same, because trees and opens were granted to that user and the keys were derived from
/// that password. A guest or anonymous session has no key and would remain without one if it became a user's. A
/// user's session may become anonymous and that user's again: it keeps the access its handles were granted and gets
/// no more. A refusal here changes nothing: the client has proved an identity, so this is not a failed
/// authentication, which would end the session.
fn again<V: Vfs>(call: &Call<V>, token: Token) -> Result<Done<V>, Failure> {
    let channel = call.channel.clone();
    let channel = channel.ok_or(Status::USER_SESSION_DELETED)?;
    let session = &channel.session;
    session.check()?;
    let established = &session.established;
    let same_user = token.user_sid == established.user_sid;
    let turns_anonymous = token.anonymous && !established.guest;
    if !same_user && !turns_anonymous {
        if let Some(left_out) = login_line(call) {
            tracing::warn!(
                peer = %call.connection.peer,
                user = established.user,
                other = token.user,
                left_out,
                "a session cannot be authenticated again as another user"
            );
        }
        return Err(Status::ACCESS_DENIED.into());
    }
    session.set_token(token);
    // The user may have left a group, or be another identity now, so the rules are checked again.
    revoke::look_again(call.server(), session);
    Ok(Done {
        flags: SessionFlags::ENCRYPT_DATA.when(session.encrypt_data),
        channel,
    })
}

/// Enters a new session into the tables.
fn establish<V: Vfs>(
    call: &Call<V>,
    request: &SessionSetupRequest<'_>,
    facts: &Negotiated,
    id: SessionId,
    setup: &Setup,
    token: Token,
    session_key: Option<&SessionKey>,
) -> Result<Done<V>, Failure> {
    let server = call.server();
    let config = server.config();
    // The connection was lost while the request waited, and will not end a session that it gets now.
    Status::USER_SESSION_DELETED.when(call.connection.is_closed())?;
    // An anonymous session may only list the shares; it is limited to one on each connection and takes no place from
    // users.
    let lists_only = token.anonymous && !server.welcomes_guests();
    let known = !token.guest && !token.anonymous;
    // An anonymous session has keys as well. Everybody can compute them, so they protect nothing; they only serve
    // clients that always sign and encrypt.
    let keys = session_key
        .filter(|_| !token.guest)
        .map(|key| derive(facts, setup, key))
        .transpose()?;
    let sealing = keys.as_ref().and_then(|keys| sealing(call, keys));
    let encrypt_data = config.encryption_required;
    Status::ACCESS_DENIED.when(encrypt_data && (!known || sealing.is_none()))?;
    let old = replaced(call, request.previous_session_id, &token);
    let place = place(call, &config, &token, lists_only, old.as_deref())?;
    let modes = request.security_mode | facts.client_security_mode;
    let client_requires = modes.contains(SecurityMode::SIGNING_REQUIRED);
    let flags = SessionFlags::IS_GUEST
        .when(token.guest)
        .union(SessionFlags::IS_NULL.when(token.anonymous))
        .union(SessionFlags::ENCRYPT_DATA.when(encrypt_data));
    let user = token.user.clone();
    let signing = keys.map(|keys| Arc::new(SigningKey::new(facts.signing, &keys.signing)));
    let login = (!lists_only).then(|| (call.connection.authenticated)());
    let terms = Terms {
        dialect: facts.dialect,
        client_guid: facts.client_guid,
        cipher: facts.cipher,
    };
    let mut session = Session::new(id, call.connection.id, login, terms, token);
    session.signing.clone_from(&signing);
    session.signing_required = known && (config.signing_required || client_requires);
    (session.encrypt_data, session.sealing) = (encrypt_data, sealing);
    let session = Arc::new(session);
    server.add_session(Arc::clone(&session), place);
    let channel = Rc::new(Channel { session, signing });
    call.connection.add_channel(id, Rc::clone(&channel));
    tracing::debug!(peer = %call.connection.peer, user, session = id.0, "session established");
    Ok(Done { flags, channel })
}

/// The place of a new session, on its connection and among those of the server. At the limit of the server a client
/// that lost its connection can still log in again, since the session it replaces makes room.
fn place<V: Vfs>(
    call: &Call<V>,
    config: &ServerConfig,
    token: &Token,
    lists_only: bool,
    replaced: Option<&Session<V>>,
) -> Result<Arc<QuotaPlace>, Failure> {
    let (server, connection) = (call.server(), &call.connection);
    // The session that this one replaces may be one of the same connection.
    let going = replaced.is_some_and(|old| connection.channel(old.id).is_some());
    let staying = connection
        .count_sessions(|_| true)
        .saturating_sub(usize::from(going));
    let listing = || connection.count_sessions(|session| session.established.anonymous);
    if staying >= config.limits.sessions_per_connection
        || (lists_only && listing() >= LISTING_SESSIONS)
    {
        return Err(Status::REQUEST_NOT_ACCEPTED.into());
    }
    let who = QuotaUser::of(token, connection.peer.ip());
    let replaced = replaced.map(|old| old.id);
    let place = server
        .session_place(who, config.limits.sessions, replaced)
        .ok_or(Status::INSUFFICIENT_RESOURCES)?;
    // This comes last, because it marks the connection: one whose login was refused does not decide about the dialect
    // of its client, and gets no breaks before the client's own connections.
    let counts = lists_only || server.logged_in(connection.id, token.user_sid);
    Status::USER_SESSION_DELETED.when(!counts)?;
    Ok(place)
}

pub(super) fn derive(
    facts: &Negotiated,
    setup: &Setup,
    session_key: &SessionKey,
) -> Result<SessionKeys, Failure> {
    let (key, preauth) = (session_key.as_bytes(), Some(setup.preauth.value()));
    let keys = derive_keys(facts.dialect.0, key, preauth, facts.cipher);
    Ok(keys.map_err(|_| Status::INTERNAL_ERROR)?)
}

fn sealing<V: Vfs>(call: &Call<V>, keys: &SessionKeys) -> Option<Sealing> {
    let mut salt = [0; 3];
    call.server().env.fill_random(&mut salt);
    Some(Sealing::new(
        keys.sealing_server_to_client()?,
        keys.sealing_client_to_server()?,
        salt,
    ))
}

/// [MS-SMB2] 3.3.5.5.3: the session that one with this token replaces, if it is the same user's.
fn replaced<V: Vfs>(call: &Call<V>, previous: SessionId, token: &Token) -> Option<Arc<Session<V>>> {
    let known = !token.guest && !token.anonymous;
    let old = call.server().session(previous).filter(|_| known)?;
    (old.token().user_sid == token.user_sid).then_some(old)
}

/// Ends the session that `by` replaces, which is new, has just been authenticated again, or has got a channel.
async fn end_replaced<V: Vfs>(call: &Call<V>, previous: SessionId, by: &Session<V>) {
    let old = replaced(call, previous, &by.token()).filter(|old| old.id != by.id);
    if let Some(old) = old
        && let Some(closing) = logoff::end(call.server(), &old).await
    {
        // The client may open the same files again at once, so their closes come first, unless a disk hangs.
        let env = &call.server().env;
        race(closing.ended(), env.sleep(CLOSES_WAIT)).await;
    }
}

/// Whether the log reports the result of this login, and if so, how many such lines it left out before. Otherwise
/// somebody who guesses passwords could fill the log.
fn login_line<V: Vfs>(call: &Call<V>) -> Option<u64> {
    let more = |from, left_out| {
        tracing::warn!(%from, left_out, "more logins failed, became guest logins or changed their user");
    };
    let peer = call.connection.peer.ip();
    line_due(call.server(), LineAbout::Login, peer, more)
}

/// Authentication failed: a session in re-authentication ends ([MS-SMB2] 3.3.5.5.3), but a session that was to get a
/// channel does not.
fn refuse<V: Vfs>(
    call: &Call<V>,
    id: SessionId,
    setup: Setup,
    request: &SessionSetupRequest<'_>,
    facts: &Negotiated,
    rules: u64,
    error: AuthError,
) -> Handled {
    let new = setup.purpose == Purpose::New;
    if let AuthError::UnknownUser { name, .. } = &error
        && new
        && call.server().welcomes_guests()
    {
        let token = Token::guest(&call.server().config());
        if let Some(left_out) = login_line(call) {
            tracing::info!(peer = %call.connection.peer, %error, left_out, "signed in as guest; a client that requires signing (Windows 11 24H2) will refuse it");
        }
        let done = establish(call, request, facts, id, &setup, token, None)?;
        // The attempt was counted as failed when it began, but this path tests nobody's password.
        limiter(call).succeeded(name);
        return answer(call, id, &[], rules, done);
    }
    // Where the limiter refused, nothing was proved or refuted: guesses of others at this address end no session.
    let judged = !matches!(error, AuthError::TooManyFailures { .. });
    if setup.purpose == Purpose::Again
        && judged
        && let Ok(session) = call.session()
    {
        logoff::expel(call.server(), session);
    }
    if let Some(left_out) = login_line(call) {
        tracing::warn!(peer = %call.connection.peer, %error, left_out, "authentication failed");
    }
    Err(match error {
        AuthError::Disabled { .. } => Status::ACCOUNT_DISABLED,
        AuthError::InvalidToken(_) | AuthError::OutOfSequence => Status::INVALID_PARAMETER,
        _ => Status::LOGON_FAILURE,
    }
    .into())
}

#[cfg(test)]
#[path = "session_setup_tests.rs"]
mod tests;
