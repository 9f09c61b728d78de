//! SESSION_SETUP on the client: a new session, another channel of a session, or reauthentication
//! ([MS-SMB2] 3.2.4.2.3, 3.2.5.3).
//!
//! Each setup has its own preauthentication hash, which starts from the connection's. Keys are
//! derived before the final response is evaluated, because it is signed with them.

use bytes::Bytes;
use smb_auth::{Credentials, Initiator, InitiatorParams};
use smb_crypto::{PreauthHash, SigningKey, derive_keys};
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{MessageId, SessionId};
use smb_wire::msg::{
    Capabilities, Dialect, SessionFlags, SessionSetupFlags, SessionSetupRequest,
    SessionSetupResponse,
};
use smb_wire::{Command, Status};

use super::inbound::is_signed_by;
use super::session::{SessionSecret, SessionState};
use super::{ClientCore, Event, Negotiated, Reply, SessionInfo};
use crate::error::ClientError;
use crate::request::Request;

#[derive(Debug, Clone)]
pub enum LoginKind {
    New,
    /// This connection becomes another channel of a session ([MS-SMB2] 3.2.4.2.3.1, 3.x).
    Bind(SessionSecret),
    Reauthenticate(SessionId),
}

#[derive(Debug, Clone)]
pub struct LoginArgs {
    pub credentials: Credentials,
    /// The session that the new one replaces; 0 for none.
    pub previous_session_id: SessionId,
    pub kind: LoginKind,
    /// The current time as FILETIME.
    pub now_filetime: u64,
}

impl LoginArgs {
    pub fn new(credentials: Credentials, now_filetime: u64) -> Self {
        Self {
            credentials,
            previous_session_id: SessionId(0),
            kind: LoginKind::New,
            now_filetime,
        }
    }
}

pub(super) struct Setup {
    ticket: MessageId,
    initiator: Initiator,
    kind: LoginKind,
    hash: PreauthHash,
    previous: SessionId,
    session_id: SessionId,
    now: u64,
    anonymous: bool,
}

impl ClientCore {
    /// Starts a login; an [`Event::Login`] with the returned ticket reports its end.
    ///
    /// # Errors
    /// [`ClientError::Usage`] before the negotiation, or for a session that does not exist.
    pub fn begin_login(&mut self, args: LoginArgs) -> Result<MessageId, ClientError> {
        let negotiated = self
            .negotiated
            .as_ref()
            .ok_or(ClientError::Usage("login before NEGOTIATE"))?;
        let anonymous = matches!(args.credentials, Credentials::Anonymous);
        let mut initiator = Initiator::new(InitiatorParams {
            credentials: args.credentials,
            workstation: self.options.workstation.clone(),
            target_spn: None,
        });
        let session_id = match &args.kind {
            LoginKind::New => SessionId(0),
            LoginKind::Reauthenticate(id) => *id,
            LoginKind::Bind(secret) => secret.id,
        };
        if let LoginKind::Bind(secret) = &args.kind {
            // Session.SigningKey signs until the channel has a key of its own.
            let state = SessionState::keyed(secret.clone(), negotiated, true);
            self.sessions.insert(session_id, state);
        }
        let token = initiator
            .step(
                &negotiated.security_buffer,
                args.now_filetime,
                &mut self.random,
            )?
            .unwrap_or_default();
        let setup = Setup {
            ticket: self.next_message_id(),
            initiator,
            kind: args.kind,
            hash: self.preauth.clone(),
            previous: args.previous_session_id,
            session_id,
            now: args.now_filetime,
            anonymous,
        };
        self.send_setup(setup, &token)
    }

    fn send_setup(&mut self, mut setup: Setup, token: &[u8]) -> Result<MessageId, ClientError> {
        let binding = matches!(setup.kind, LoginKind::Bind(_));
        let again = matches!(setup.kind, LoginKind::Reauthenticate(_));
        let session = self.sessions.get(&setup.session_id);
        let signs_again =
            again && session.is_some_and(|state| state.signing.is_some() && !state.encrypt);
        let request = Request::new(&SessionSetupRequest {
            flags: SessionSetupFlags::BINDING.when(binding),
            security_mode: self.security_mode(),
            capabilities: Capabilities::DFS,
            previous_session_id: setup.previous,
            security_buffer: token,
        })
        .session(setup.session_id)
        // [MS-SMB2] 3.2.4.2.3.1: a binding request is always signed and cannot be encrypted.
        .overriding(|o| {
            if binding {
                o.sign = Some(true);
                o.encrypt = Some(false);
            }
            // Reauthentication is always signed, to prove that it comes from the client of the
            // session, whether signing is required or not.
            if signs_again {
                o.sign = Some(true);
            }
        });
        let id = *self
            .send(vec![request])?
            .first()
            .ok_or(ClientError::Usage("nothing sent"))?;
        if let Some(frame) = self.frames.back() {
            setup.hash.update(&frame.body);
        }
        let ticket = setup.ticket;
        self.setups.insert(id, setup);
        Ok(ticket)
    }

    /// Returns whether the signature of a reply cannot be verified on arrival. The final reply of a login is signed
    /// with a key that is derived from the exchange. The refusal of a binding may be signed with a key we do not have
    /// (of another dialect or algorithm), and trusting a refusal gives nothing away.
    pub(super) fn derives_key(&self, id: MessageId, status: Status) -> bool {
        self.setups.get(&id).is_some_and(|setup| match setup.kind {
            LoginKind::New => status == Status::SUCCESS,
            LoginKind::Bind(_) => status != Status::MORE_PROCESSING_REQUIRED,
            LoginKind::Reauthenticate(_) => false,
        })
    }

    /// Processes a reply to a SESSION_SETUP of a login; returns false for any other reply.
    pub(super) fn on_setup(&mut self, reply: &Reply) -> Result<bool, ClientError> {
        let Some(mut setup) = self.setups.remove(&reply.header.message_id) else {
            return Ok(false);
        };
        let ticket = setup.ticket;
        let outcome = match reply.status() {
            Status::MORE_PROCESSING_REQUIRED => {
                setup.hash.update(&reply.message);
                setup.session_id = reply.header.session_id;
                match self.step_setup(&mut setup, &reply.message) {
                    Ok(token) => {
                        self.send_setup(setup, &token)?;
                        return Ok(true);
                    }
                    Err(error) => Err(error),
                }
            }
            Status::SUCCESS => self.finish_setup(setup, reply),
            status => {
                if matches!(setup.kind, LoginKind::Bind(_)) {
                    self.sessions.remove(&setup.session_id);
                }
                Err(ClientError::Status(status))
            }
        };
        self.events.push_back(Event::Login { ticket, outcome });
        Ok(true)
    }

    fn step_setup(&mut self, setup: &mut Setup, message: &Bytes) -> Result<Vec<u8>, ClientError> {
        let response = SessionSetupResponse::read(message)?;
        let token = setup
            .initiator
            .step(response.security_buffer, setup.now, &mut self.random)?;
        token.ok_or(ClientError::Protocol("server asks for more than there is"))
    }

    fn finish_setup(
        &mut self,
        mut setup: Setup,
        reply: &Reply,
    ) -> Result<SessionInfo, ClientError> {
        const NOT_NOW: ClientError = ClientError::Usage("login before NEGOTIATE");
        let response = SessionSetupResponse::read(&reply.message)?;
        let mut flags = response.session_flags;
        if setup.anonymous && !reply.header.flags.contains(HeaderFlags::SIGNED) {
            // Some servers do not set the flag, because the client knows that it asked for a null session.
            flags |= SessionFlags::IS_NULL;
        }
        let session_id = reply.header.session_id;
        let info = SessionInfo { session_id, flags };
        if matches!(setup.kind, LoginKind::Reauthenticate(_)) {
            setup
                .initiator
                .step(response.security_buffer, setup.now, &mut self.random)?;
            return Ok(info);
        }
        if flags.contains(SessionFlags::IS_GUEST) {
            self.sessions
                .insert(session_id, SessionState::keyless(flags));
            return Ok(info);
        }
        // The keys of an anonymous session prove nothing; only requests that ask for it use them.
        let anonymous = flags.contains(SessionFlags::IS_NULL);
        if !anonymous {
            setup
                .initiator
                .step(response.security_buffer, setup.now, &mut self.random)?;
        }
        let negotiated = self.negotiated.clone().ok_or(NOT_NOW)?;
        let key = setup
            .initiator
            .session_key()
            .ok_or(ClientError::Protocol("session without a key"))?;
        let keys = derive_keys(
            negotiated.dialect.0,
            key.as_bytes(),
            Some(setup.hash.value()),
            negotiated.cipher,
        )
        .map_err(|_| ClientError::Protocol("no keys for this dialect"))?;
        let channel_key = keys.signing_key(negotiated.signing_algorithm);
        let signs = !anonymous && self.signing_required();
        if !anonymous {
            verify_final(reply, &channel_key, &negotiated, signs)?;
        }
        let state = match setup.kind {
            LoginKind::Bind(secret) => {
                let mut state = SessionState::keyed(secret, &negotiated, signs);
                state.signing = Some(channel_key);
                state
            }
            _ => {
                let secret = SessionSecret::new(session_id, flags, keys)
                    .signed_in(negotiated.signing_algorithm);
                SessionState::keyed(secret, &negotiated, signs)
            }
        };
        self.sessions.insert(session_id, state);
        Ok(info)
    }

    /// Returns the secret that another connection needs to bind this session; `None` for unknown
    /// sessions and those without keys.
    pub fn session_secret(&self, id: SessionId) -> Option<SessionSecret> {
        self.sessions.get(&id)?.secret.clone()
    }

    /// Uses the keys of a session on this connection without the server's consent; for tests that
    /// attack another client's session.
    pub fn adopt_session(&mut self, secret: SessionSecret, sign: bool) {
        if let Some(negotiated) = &self.negotiated {
            let id = secret.id;
            let state = SessionState::keyed(secret, negotiated, sign);
            self.sessions.insert(id, state);
        }
    }
}

/// Verifies the signature of the final response ([MS-SMB2] 3.2.5.3.1). On 2.x servers sign it only
/// if signing is required.
fn verify_final(
    reply: &Reply,
    key: &SigningKey,
    negotiated: &Negotiated,
    required: bool,
) -> Result<(), ClientError> {
    if !reply.header.flags.contains(HeaderFlags::SIGNED) {
        let is_required = required || negotiated.dialect >= Dialect::SMB_3_0;
        return ClientError::Unsigned(Command::SESSION_SETUP).when(is_required);
    }
    ClientError::BadSignature(Command::SESSION_SETUP).when(!is_signed_by(reply, key))
}
