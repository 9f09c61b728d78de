//! The NTLM initiator: builds NEGOTIATE and answers CHALLENGE with NTLMv2 ([MS-NLMP] 3.1.5.1).
//!
//! It sends a MIC whenever the server sent a timestamp, always asks for key exchange, and sends no
//! LM response beside a timestamp. It refuses servers without Unicode, extended session security or
//! target information.

use zeroize::Zeroizing;

use super::keys::{self, MicKeys};
use super::message::{self, AuthenticateFields, AvPairs, av, flags};
use crate::params::{Credentials, InitiatorParams};
use crate::secret::SessionKey;
use crate::{AuthError, RandomSource};

const ASKED: u32 = flags::UNICODE
    | flags::REQUEST_TARGET
    | flags::SIGN
    | flags::SEAL
    | flags::NTLM
    | flags::ALWAYS_SIGN
    | flags::EXTENDED_SESSIONSECURITY
    | flags::TARGET_INFO
    | flags::VERSION
    | flags::NEGOTIATE_128
    | flags::KEY_EXCH
    | flags::NEGOTIATE_56;

/// The answer to a challenge.
pub(crate) struct Answer {
    pub(crate) authenticate: Vec<u8>,
    pub(crate) session_key: SessionKey,
    pub(crate) mic_keys: MicKeys,
}

pub(crate) fn negotiate() -> Vec<u8> {
    message::build_negotiate(ASKED)
}

/// Builds AUTHENTICATE for a CHALLENGE. `now` is the current time as FILETIME, used when the server sent no timestamp.
pub(crate) fn answer(
    negotiate: &[u8],
    challenge_bytes: &[u8],
    params: &InitiatorParams,
    now: u64,
    random: &mut RandomSource<'_>,
) -> Result<Answer, AuthError> {
    let challenge = message::parse_challenge(challenge_bytes)?;
    let negotiated = challenge.flags & ASKED;
    let needed = flags::UNICODE | flags::EXTENDED_SESSIONSECURITY | flags::TARGET_INFO;
    AuthError::NotSupported("NTLM server without NTLMv2").when(negotiated & needed != needed)?;
    let mut client_challenge = [0u8; 8];
    random(&mut client_challenge);
    let mut exported = Zeroizing::new([0u8; 16]);
    random(&mut exported[..]);

    let mut with_mic = false;
    let (lm, nt, base_key) = match &params.credentials {
        Credentials::Anonymous => (vec![0], Vec::new(), Zeroizing::new([0u8; 16])),
        Credentials::User { user, domain, hash } => {
            let (pairs, time) = answer_pairs(challenge.target_info, params)?;
            with_mic = time.is_some();
            let blob = client_blob(time.unwrap_or(now), &client_challenge, &pairs);
            let key = keys::ntowf_v2(hash, user, domain);
            let proof = keys::nt_proof(&key, &challenge.server_challenge, &blob);
            let lm = if with_mic {
                vec![0; 24]
            } else {
                let parts: [&[u8]; 2] = [&challenge.server_challenge, &client_challenge];
                let mut lm = keys::hmac_md5(&key[..], &parts).to_vec();
                lm.extend_from_slice(&client_challenge);
                lm
            };
            let mut nt = proof.to_vec();
            nt.extend_from_slice(&blob);
            (lm, nt, keys::session_base_key(&key, &proof[..]))
        }
    };
    let mut encrypted_key = Vec::new();
    if negotiated & flags::KEY_EXCH != 0 {
        encrypted_key.extend_from_slice(&exported[..]);
        keys::rc4(&base_key[..], &mut encrypted_key);
    } else {
        exported = base_key;
    }
    let (user, domain, anonymous) = match &params.credentials {
        Credentials::Anonymous => ("", "", flags::ANONYMOUS),
        Credentials::User { user, domain, .. } => (user.as_str(), domain.as_str(), 0),
    };
    let mut authenticate = message::build_authenticate(&AuthenticateFields {
        lm: &lm,
        nt: &nt,
        domain: &keys::utf16(domain),
        user: &keys::utf16(user),
        workstation: &keys::utf16(&params.workstation),
        encrypted_key: &encrypted_key,
        flags: negotiated | anonymous,
    });
    if with_mic {
        let mic = keys::message_mic(&exported[..], negotiate, challenge_bytes, &authenticate);
        if let Some(field) = authenticate.get_mut(message::MIC_RANGE) {
            field.copy_from_slice(&mic[..]);
        }
    }
    Ok(Answer {
        authenticate,
        mic_keys: MicKeys::new(&exported[..], negotiated),
        session_key: SessionKey::new(exported.to_vec()),
    })
}

/// Returns the server's AV pairs with ours added, and the server's timestamp.
fn answer_pairs(
    target_info: &[u8],
    params: &InitiatorParams,
) -> Result<(Vec<u8>, Option<u64>), AuthError> {
    let mut list = Vec::new();
    let mut time = None;
    let mut av_flags = 0;
    for pair in AvPairs::new(target_info) {
        let (id, value) = pair?;
        match id {
            // The client sends its own values for these; those of a server are not echoed.
            av::FLAGS | av::TARGET_NAME | av::CHANNEL_BINDINGS => {}
            _ => message::push_av(&mut list, id, value),
        }
        if id == av::TIMESTAMP {
            let bytes = value.try_into();
            time = Some(u64::from_le_bytes(
                bytes.map_err(|_| AuthError::InvalidToken("NTLM: timestamp"))?,
            ));
        }
    }
    if time.is_some() {
        av_flags |= av::FLAG_MIC;
    }
    if av_flags != 0 {
        message::push_av(&mut list, av::FLAGS, &av_flags.to_le_bytes());
    }
    message::push_av(&mut list, av::CHANNEL_BINDINGS, &[0; 16]);
    if let Some(spn) = &params.target_spn {
        message::push_av(&mut list, av::TARGET_NAME, &keys::utf16(spn));
    }
    message::push_av(&mut list, av::EOL, &[]);
    Ok((list, time))
}

/// `temp` of [MS-NLMP] 3.3.2: versions, reserved bytes, time, client challenge, AV pairs.
pub(crate) fn client_blob(time: u64, client_challenge: &[u8; 8], pairs: &[u8]) -> Vec<u8> {
    let mut blob = vec![1, 1, 0, 0, 0, 0, 0, 0];
    blob.extend_from_slice(&time.to_le_bytes());
    blob.extend_from_slice(client_challenge);
    blob.extend_from_slice(&[0; 4]);
    blob.extend_from_slice(pairs);
    blob.extend_from_slice(&[0; 4]);
    blob
}
