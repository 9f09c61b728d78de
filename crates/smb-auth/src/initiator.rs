//! Client side of an authentication exchange: SPNEGO with NTLMv2.
//!
//! The client offers only NTLMSSP, so the server can choose nothing else and the first token is
//! always the optimistic one. The client sends a mechListMIC with AUTHENTICATE and, unless the
//! session is anonymous, requires the server's: a server that does not know the password hash
//! cannot finish the exchange. The session key is available before the server's last token, since
//! the final SESSION_SETUP response is signed with keys derived from it.

use subtle::ConstantTimeEq;

use crate::ntlm::{
    client,
    keys::{MicKeys, Sender},
};
use crate::params::{Credentials, InitiatorParams};
use crate::secret::SessionKey;
use crate::spnego::{self, Mech, NegState, Resp};
use crate::{AuthError, RandomSource};

enum State {
    Start,
    Negotiated(Vec<u8>),
    Answered(MicKeys),
    Finished,
}

/// One exchange.
pub struct Initiator {
    params: InitiatorParams,
    state: State,
    session_key: Option<SessionKey>,
}

impl core::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Initiator").finish_non_exhaustive()
    }
}

impl Initiator {
    /// A new exchange.
    pub fn new(params: InitiatorParams) -> Self {
        Self {
            params,
            state: State::Start,
            session_key: None,
        }
    }

    /// Processes a token of the server: in the first call the security buffer of the NEGOTIATE response (or nothing),
    /// then those of the SESSION_SETUP responses, including the successful one. `now_filetime` is the current time as
    /// FILETIME. Returns the token to send, or `None` when the exchange is complete.
    ///
    /// # Errors
    /// [`AuthError`]; the exchange is over then.
    pub fn step(
        &mut self,
        token: &[u8],
        now_filetime: u64,
        random: &mut RandomSource<'_>,
    ) -> Result<Option<Vec<u8>>, AuthError> {
        match core::mem::replace(&mut self.state, State::Finished) {
            State::Start => {
                if !token.is_empty() && !spnego::parse_init(token)?.mechs.contains(&Mech::Ntlmssp) {
                    return Err(AuthError::NotSupported("server does not offer NTLMSSP"));
                }
                let negotiate = client::negotiate();
                let first = spnego::build_init(&mech_list(), &negotiate);
                self.state = State::Negotiated(negotiate);
                Ok(Some(first))
            }
            State::Negotiated(negotiate) => {
                let resp = spnego::parse_resp(token)?;
                AuthError::Rejected.when(resp.state == Some(NegState::Reject))?;
                let is_other = resp.mech.is_some_and(|m| m != Mech::Ntlmssp);
                AuthError::InvalidToken("SPNEGO: mechanism not offered").when(is_other)?;
                let challenge = resp
                    .token
                    .ok_or(AuthError::InvalidToken("SPNEGO: no challenge"))?;
                let answer =
                    client::answer(&negotiate, challenge, &self.params, now_filetime, random)?;
                let mic = answer.mic_keys.sign(Sender::Client, &mech_list());
                self.session_key = Some(answer.session_key);
                self.state = State::Answered(answer.mic_keys);
                let user = matches!(self.params.credentials, Credentials::User { .. });
                Ok(Some(spnego::build_resp(&Resp {
                    token: Some(&answer.authenticate),
                    mic: user.then_some(&mic[..]),
                    ..Resp::default()
                })))
            }
            State::Answered(keys) => self.finish(token, &keys),
            State::Finished => Err(AuthError::OutOfSequence),
        }
    }

    fn finish(&self, token: &[u8], keys: &MicKeys) -> Result<Option<Vec<u8>>, AuthError> {
        let anonymous = matches!(self.params.credentials, Credentials::Anonymous);
        if token.is_empty() && anonymous {
            return Ok(None);
        }
        let resp = spnego::parse_resp(token)?;
        AuthError::Rejected.when(resp.state != Some(NegState::AcceptCompleted))?;
        let expected = keys.sign(Sender::Server, &mech_list());
        match resp.mic {
            Some(mic) if bool::from(expected.ct_eq(mic)) => Ok(None),
            None if anonymous => Ok(None),
            _ => Err(AuthError::BadMic),
        }
    }

    /// The session key; `None` before AUTHENTICATE has been built.
    pub fn session_key(&self) -> Option<&SessionKey> {
        self.session_key.as_ref()
    }
}

fn mech_list() -> Vec<u8> {
    spnego::build_mech_list(&[Mech::Ntlmssp])
}
