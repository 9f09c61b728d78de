//! The NTLM acceptor, which answers NEGOTIATE with CHALLENGE and AUTHENTICATE with an identity ([MS-NLMP] 3.2.5.1).
//!
//! Invariants: a server challenge is valid for one AUTHENTICATE only; the NTLMv2 proof is always
//! compared, in constant time, and it alone admits a user (a MIC can only refuse); a user who does
//! not exist costs the same work as one who does; the gate is consulted before any hash is
//! computed, and notified of success only after proof, MIC and account flags have been checked. The
//! domain name that a client sends is an input of the proof and never selects another account:
//! there is one account database.

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use super::keys::{self, Key, MicKeys};
use super::message::{self, Authenticate, Charset, NtAnswer, av, flags};
use crate::params::AcceptorParams;
use crate::secret::{NtHash, SessionKey};
use crate::{AuthEnv, AuthError, PeerIdentity, UserIdentity, UserRecord};

/// The flags that the server grants when the client asks for them.
const GRANTED: u32 = flags::EXTENDED_SESSIONSECURITY
    | flags::SIGN
    | flags::SEAL
    | flags::ALWAYS_SIGN
    | flags::NEGOTIATE_128
    | flags::NEGOTIATE_56
    | flags::KEY_EXCH
    | flags::VERSION;

/// An exchange in which CHALLENGE was sent. Evaluating the AUTHENTICATE consumes it.
pub(crate) struct Challenged {
    pub(super) negotiate: Vec<u8>,
    pub(super) challenge: Vec<u8>,
    pub(super) server_challenge: [u8; 8],
    pub(super) flags: u32,
    pub(super) charset: Charset,
}

/// A completed exchange.
pub(crate) struct Accepted {
    pub(crate) identity: PeerIdentity,
    pub(crate) session_key: SessionKey,
    pub(crate) mic_keys: MicKeys,
    /// AUTHENTICATE carried a MIC, so the peer must send a mechListMIC as well.
    pub(crate) had_mic: bool,
}

/// Answers NEGOTIATE with CHALLENGE; returns the message and the state for the next step.
pub(crate) fn challenge(
    negotiate: &[u8],
    params: &AcceptorParams,
    env: &mut AuthEnv<'_>,
) -> Result<(Vec<u8>, Challenged), AuthError> {
    let asked = message::parse_negotiate(negotiate)?;
    let charset =
        Charset::of(asked).ok_or(AuthError::InvalidToken("NTLM: neither Unicode nor OEM"))?;
    let granted = (asked & GRANTED)
        | charset.flag()
        | flags::NTLM
        | flags::REQUEST_TARGET
        | flags::TARGET_TYPE_SERVER
        | flags::TARGET_INFO;
    let mut server_challenge = [0u8; 8];
    (env.random)(&mut server_challenge);

    let mut info = Vec::new();
    for (id, name) in [
        (av::NB_DOMAIN, &params.netbios_domain),
        (av::NB_COMPUTER, &params.netbios_computer),
        (av::DNS_DOMAIN, &params.dns_domain),
        (av::DNS_COMPUTER, &params.dns_computer),
    ] {
        message::push_av(&mut info, id, &keys::utf16(name));
    }
    // If the server sends a timestamp, clients send a MIC and no LMv2 response ([MS-NLMP]
    // 3.1.5.1.2).
    message::push_av(&mut info, av::TIMESTAMP, &env.now_filetime.to_le_bytes());
    message::push_av(&mut info, av::EOL, &[]);
    let target = charset.encode(&params.netbios_computer);
    let challenge = message::build_challenge(granted, &server_challenge, &target, &info);
    let state = Challenged {
        negotiate: negotiate.to_vec(),
        challenge: challenge.clone(),
        server_challenge,
        flags: granted,
        charset,
    };
    Ok((challenge, state))
}

impl Challenged {
    /// Evaluates AUTHENTICATE. Consumes the challenge in any case.
    pub(crate) fn authenticate(
        self,
        authenticate: &[u8],
        params: &AcceptorParams,
        env: &mut AuthEnv<'_>,
    ) -> Result<Accepted, AuthError> {
        let parsed = message::parse_authenticate(authenticate, self.charset)?;
        let negotiated = parsed.flags & self.flags;
        // [MS-NLMP] 3.2.5.1.2: the user name and the NT response are empty, the LM response is
        // empty or one zero byte. Nothing is proven, so the flags do not matter.
        if parsed.user.is_empty() && parsed.nt.is_empty() && matches!(parsed.lm, [] | [0]) {
            return anonymous(&parsed, negotiated);
        }
        if parsed.nt.is_empty() && parsed.lm.len() < message::MAX_LM {
            return Err(without_password(parsed, env));
        }
        // A client that knows NTLMv1 alone often sends no flags either; its answer is the reason to name.
        let answer = NtAnswer::parse(parsed.nt)?;
        let needed = self.flags & (self.charset.flag() | flags::EXTENDED_SESSIONSECURITY);
        AuthError::InvalidToken("NTLM: flags taken back").when(negotiated & needed != needed)?;
        // The form is checked before the password, so that its result reveals nothing about the password.
        answer.av_pairs().flags()?;
        let key_exchange = negotiated & flags::KEY_EXCH != 0;
        check_key(key_exchange, &parsed)?;
        if !env.gate.admit(&parsed.user) {
            return Err(AuthError::TooManyFailures { name: parsed.user });
        }
        let (user, base_key) = self.prove(&parsed, answer, params, env)?;
        let exported = export(&base_key, key_exchange, parsed.encrypted_key);
        let had_mic = self.check_mic(authenticate, &parsed, answer, &exported)?;
        if user.disabled {
            return Err(AuthError::Disabled { name: user.name });
        }
        env.gate.succeeded(&parsed.user);
        Ok(Accepted {
            identity: PeerIdentity::User(UserIdentity {
                name: user.name,
                domain: params.netbios_computer.clone(),
                rid: user.rid,
                group_rids: user.group_rids,
                uid_gid: user.uid_gid,
            }),
            mic_keys: MicKeys::new(&exported[..], negotiated),
            session_key: SessionKey::new(exported.to_vec()),
            had_mic,
        })
    }

    /// Compares the proof. The same computations run for every outcome.
    fn prove(
        &self,
        parsed: &Authenticate<'_>,
        answer: NtAnswer<'_>,
        params: &AcceptorParams,
        env: &mut AuthEnv<'_>,
    ) -> Result<(UserRecord, Key), AuthError> {
        let mut dummy = Zeroizing::new([0u8; 16]);
        (env.random)(&mut dummy[..]);
        let dummy = NtHash::from_bytes(*dummy);
        let record = env.users.find(&parsed.user);
        let known = record.as_ref().and_then(|r| r.nt_hash.clone());
        let has_hash = known.is_some();
        let hash = known.unwrap_or(dummy);
        let empty_password = hash.is_empty_password();
        let usable = has_hash && (params.allow_empty_passwords || !empty_password);

        // The proof covers the time stamp and the AV pairs, which are not compared with anything
        // (docs/protocol-notes.md, "The time and the names in an NTLMv2 response").
        // A proof that was computed with an empty domain name is accepted as well, and so is one over another upper
        // case of the user name (docs/protocol-notes.md, "The upper case of user names").
        let mut key: Key = Zeroizing::new([0; 16]);
        let mut right = Choice::from(0);
        for user in keys::upper_cases(&parsed.user) {
            for domain in [parsed.domain.as_str(), ""] {
                let candidate = keys::ntowf_v2_of_upper(&hash, &user, domain);
                let proof = keys::nt_proof(&candidate, &self.server_challenge, answer.blob);
                let same: Choice = proof.ct_eq(answer.proof);
                for (to, from) in key.iter_mut().zip(candidate.iter()) {
                    to.conditional_assign(from, same);
                }
                right |= same;
            }
        }
        let base_key = keys::session_base_key(&key, answer.proof);
        let right = bool::from(right & Choice::from(u8::from(usable)));
        let (name, domain) = (parsed.user.clone(), parsed.domain.clone());
        match record {
            Some(user) if right => Ok((user, base_key)),
            Some(_) => Err(AuthError::WrongPassword { name, domain }),
            None => Err(AuthError::UnknownUser { name, domain }),
        }
    }

    /// Verifies the MIC if the (proven) AV flags announce one. Returns whether there was one.
    fn check_mic(
        &self,
        authenticate: &[u8],
        parsed: &Authenticate<'_>,
        answer: NtAnswer<'_>,
        exported: &Key,
    ) -> Result<bool, AuthError> {
        if answer.av_pairs().flags()? & av::FLAG_MIC == 0 {
            return Ok(false);
        }
        let claimed = parsed.mic.ok_or(AuthError::BadMic)?;
        let mut zeroed = authenticate.to_vec();
        if let Some(field) = zeroed.get_mut(message::MIC_RANGE) {
            field.fill(0);
        }
        let mic = keys::message_mic(&exported[..], &self.negotiate, &self.challenge, &zeroed);
        AuthError::BadMic.when(!bool::from(mic.ct_eq(&claimed)))?;
        Ok(true)
    }
}

/// A user name without any response: clients without a password try this before they request a null
/// session. It is no NTLMv1 response, and it fails like a wrong password.
fn without_password(parsed: Authenticate<'_>, env: &AuthEnv<'_>) -> AuthError {
    let (name, domain) = (parsed.user, parsed.domain);
    if !env.gate.admit(&name) {
        AuthError::TooManyFailures { name }
    } else if env.users.find(&name).is_some() {
        AuthError::WrongPassword { name, domain }
    } else {
        AuthError::UnknownUser { name, domain }
    }
}

/// Accepts a null session. Its base key is 16 zero bytes and proves nothing.
fn anonymous(parsed: &Authenticate<'_>, negotiated: u32) -> Result<Accepted, AuthError> {
    let key_exchange = negotiated & flags::KEY_EXCH != 0 && !parsed.encrypted_key.is_empty();
    check_key(key_exchange, parsed)?;
    let exported = export(&Zeroizing::new([0; 16]), key_exchange, parsed.encrypted_key);
    Ok(Accepted {
        identity: PeerIdentity::Anonymous,
        mic_keys: MicKeys::new(&exported[..], negotiated),
        session_key: SessionKey::new(exported.to_vec()),
        had_mic: false,
    })
}

/// Checks the length of the session key that a client sends with `key_exchange`.
fn check_key(key_exchange: bool, parsed: &Authenticate<'_>) -> Result<(), AuthError> {
    let is_wrong = key_exchange && parsed.encrypted_key.len() != 16;
    AuthError::InvalidToken("NTLM: encrypted session key length").when(is_wrong)
}

/// Computes ExportedSessionKey; `encrypted` has 16 bytes if `key_exchange` is set.
fn export(base: &Key, key_exchange: bool, encrypted: &[u8]) -> Key {
    let mut exported = base.clone();
    if key_exchange {
        exported
            .iter_mut()
            .zip(encrypted)
            .for_each(|(to, from)| *to = *from);
        keys::rc4(&base[..], &mut exported[..]);
    }
    exported
}
