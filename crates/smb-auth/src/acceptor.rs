//! Server side of an authentication exchange: SPNEGO around NTLM, or NTLM alone.
//!
//! A first token that begins with "NTLMSSP" is NTLM without SPNEGO, as Linux' cifs sends it.
//!
//! Mechanism choice (RFC 4178 section 5): the client's first mechanism that is implemented here. If
//! that is not the first one in the client's list, its optimistic token belongs to another
//! mechanism and is dropped, the reply is request-mic, and a mechListMIC is required. A mechListMIC
//! is also required when the NTLM AUTHENTICATE carries a MIC (docs/protocol-notes.md, "The
//! mechListMIC after NTLM"), and it is verified whenever the client sends one. The exchange is
//! finished after success and after any error.

use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::ntlm::keys::Sender;
use crate::ntlm::{self, server};
use crate::params::AcceptorParams;
use crate::spnego::{self, Mech, NegState, Resp};
use crate::{AuthEnv, AuthError, AuthStep, MAX_TOKEN_LEN, PeerIdentity};

/// The state of SPNEGO that is needed until the end of the exchange.
struct Spnego {
    mech_list: Vec<u8>,
    mic_required: bool,
}

enum State {
    Start,
    /// NTLMSSP was chosen, but the client has not sent its NEGOTIATE yet.
    WaitNegotiate(Spnego),
    WaitAuthenticate(Option<Spnego>, Box<server::Challenged>),
    Finished,
}

/// One authentication exchange, one for each SESSION_SETUP sequence. It is finished after success or failure.
pub struct Acceptor {
    params: Arc<AcceptorParams>,
    state: State,
}

impl core::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let state = match self.state {
            State::Start => "start",
            State::WaitNegotiate(_) => "wait for NEGOTIATE",
            State::WaitAuthenticate(..) => "wait for AUTHENTICATE",
            State::Finished => "finished",
        };
        f.debug_struct("Acceptor").field("state", &state).finish()
    }
}

impl Acceptor {
    /// Starts an exchange.
    pub fn new(params: Arc<AcceptorParams>) -> Self {
        Self {
            params,
            state: State::Start,
        }
    }

    /// The NegTokenInit2 of the NEGOTIATE response's security buffer ([MS-SPNG] 3.2.5.2).
    pub fn negotiate_hint() -> Vec<u8> {
        spnego::build_init2(&[Mech::Ntlmssp])
    }

    /// Processes one token of the client.
    ///
    /// # Errors
    /// Any [`AuthError`] ends the exchange.
    pub fn step(&mut self, token: &[u8], env: &mut AuthEnv<'_>) -> Result<AuthStep, AuthError> {
        if token.len() > MAX_TOKEN_LEN {
            self.state = State::Finished;
            return Err(AuthError::InvalidToken("token too long"));
        }
        match core::mem::replace(&mut self.state, State::Finished) {
            State::Start if token.starts_with(ntlm::SIGNATURE) => {
                self.challenge(token, None, None, env)
            }
            State::Start => self.first(token, env),
            State::WaitNegotiate(spnego) => {
                let negotiate = spnego::parse_resp(token)?
                    .token
                    .ok_or(AuthError::InvalidToken("SPNEGO: no NTLM token"))?;
                self.challenge(negotiate, Some(spnego), None, env)
            }
            State::WaitAuthenticate(None, challenged) => {
                let accepted = challenged.authenticate(token, &self.params, env)?;
                Ok(done(None, accepted))
            }
            State::WaitAuthenticate(Some(spnego), challenged) => {
                self.last(token, &spnego, *challenged, env)
            }
            State::Finished => Err(AuthError::OutOfSequence),
        }
    }

    /// Processes NegTokenInit and chooses the mechanism.
    fn first(&mut self, token: &[u8], env: &mut AuthEnv<'_>) -> Result<AuthStep, AuthError> {
        let init = spnego::parse_init(token)?;
        let place = init
            .mechs
            .iter()
            .position(|m| *m == Mech::Ntlmssp)
            .ok_or(AuthError::NotSupported("no mechanism in common"))?;
        let preferred = place == 0;
        let spnego = Spnego {
            mech_list: init.mech_list.to_vec(),
            mic_required: !preferred,
        };
        match init.mech_token {
            Some(negotiate) if preferred => {
                self.challenge(negotiate, Some(spnego), Some(Mech::Ntlmssp), env)
            }
            _ => {
                self.state = State::WaitNegotiate(spnego);
                let state = if preferred {
                    NegState::AcceptIncomplete
                } else {
                    NegState::RequestMic
                };
                Ok(AuthStep::Continue(spnego::build_resp(&Resp {
                    state: Some(state),
                    mech: Some(Mech::Ntlmssp),
                    ..Resp::default()
                })))
            }
        }
    }

    /// Answers an NTLM NEGOTIATE, inside SPNEGO or bare. `mech` goes into the first reply only.
    fn challenge(
        &mut self,
        negotiate: &[u8],
        spnego: Option<Spnego>,
        mech: Option<Mech>,
        env: &mut AuthEnv<'_>,
    ) -> Result<AuthStep, AuthError> {
        let (challenge, challenged) = server::challenge(negotiate, &self.params, env)?;
        let reply = if spnego.is_some() {
            spnego::build_resp(&Resp {
                state: Some(NegState::AcceptIncomplete),
                mech,
                token: Some(&challenge),
                mic: None,
            })
        } else {
            challenge
        };
        self.state = State::WaitAuthenticate(spnego, Box::new(challenged));
        Ok(AuthStep::Continue(reply))
    }

    /// Processes the token with AUTHENTICATE and the mechListMIC.
    fn last(
        &self,
        token: &[u8],
        spnego: &Spnego,
        challenged: server::Challenged,
        env: &mut AuthEnv<'_>,
    ) -> Result<AuthStep, AuthError> {
        let resp = spnego::parse_resp(token)?;
        AuthError::Rejected.when(resp.state == Some(NegState::Reject))?;
        let authenticate = resp
            .token
            .ok_or(AuthError::InvalidToken("SPNEGO: no NTLM token"))?;
        let accepted = challenged.authenticate(authenticate, &self.params, env)?;
        // A null session has no secret a MIC could prove; everyone can compute one.
        let anonymous = accepted.identity == PeerIdentity::Anonymous;
        let required = !anonymous && (spnego.mic_required || accepted.had_mic);
        match resp.mic {
            Some(mic) => {
                let expected = accepted.mic_keys.sign(Sender::Client, &spnego.mech_list);
                if !anonymous && !bool::from(expected.ct_eq(mic)) {
                    return Err(AuthError::BadMic);
                }
            }
            None if required => return Err(AuthError::BadMic),
            None => {}
        }
        let mic = accepted.mic_keys.sign(Sender::Server, &spnego.mech_list);
        let reply = spnego::build_resp(&Resp {
            state: Some(NegState::AcceptCompleted),
            mic: resp.mic.is_some().then_some(&mic[..]),
            ..Resp::default()
        });
        Ok(done(Some(reply), accepted))
    }
}

fn done(token: Option<Vec<u8>>, accepted: server::Accepted) -> AuthStep {
    AuthStep::Done {
        token,
        identity: accepted.identity,
        session_key: accepted.session_key,
    }
}
