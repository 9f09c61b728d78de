//! NTLM key arithmetic: NTOWFv2, the NTLMv2 proof, key exchange, MIC and message signature
//! ([MS-NLMP] 3.3.2, 3.4.4, 3.4.5).
//!
//! All are pure functions over byte slices; intermediate keys are wiped. User names are converted
//! to upper case one character at a time, so that a letter never becomes two; domain names are used
//! as sent ([MS-NLMP] 3.3.2).

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::message::flags;
use crate::secret::NtHash;

/// A 16-byte key that is wiped on drop.
pub(crate) type Key = Zeroizing<[u8; 16]>;

/// Converts a name to upper case character by character, by Unicode's table, for comparing and hashing. One character
/// remains one character.
pub fn upper(name: &str) -> String {
    name.chars().map(upper_letter).collect()
}

/// Converts a name to upper case as Windows does ([MS-UCODEREF] 3.1.5.3.2). Its table changes no letter whose upper
/// case has another lower case (ı, ς, µ), and is older than the capital letters of Georgian.
pub(crate) fn upper_of_windows(name: &str) -> String {
    let letter = |c| {
        let upper = upper_letter(c);
        let is_pair = upper.to_lowercase().eq([c]) && !GEORGIAN_CAPITALS.contains(&upper);
        if is_pair { upper } else { c }
    };
    name.chars().map(letter).collect()
}

/// The upper cases of a name over which clients compute a proof, each once: those of Unicode, of Windows, and of macOS,
/// which changes the letters of ASCII only.
pub(crate) fn upper_cases(name: &str) -> Vec<String> {
    let mut all = vec![upper(name)];
    for other in [upper_of_windows(name), name.to_ascii_uppercase()] {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// Capital letters of Unicode 11.
const GEORGIAN_CAPITALS: core::ops::RangeInclusive<char> = '\u{1c90}'..='\u{1cbf}';

fn upper_letter(c: char) -> char {
    let mut folded = c.to_uppercase();
    match (folded.next(), folded.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// UTF-16LE bytes of a text.
pub(crate) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

pub(crate) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> Key {
    // HMAC accepts keys of any length, so this error cannot happen; if it did, the zero MAC would match nothing.
    let Ok(mut mac) = Hmac::<Md5>::new_from_slice(key) else {
        return Zeroizing::new([0; 16]);
    };
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// Applies RC4 to `data` in place, starting from a fresh state.
pub(crate) fn rc4(key: &[u8], data: &mut [u8]) {
    use rc4::KeyInit as _;
    if let Ok(mut stream) = Rc4::new_from_slice(key) {
        stream.apply_keystream(data);
    }
}

/// NTOWFv2: HMAC-MD5 of upper-cased user and domain under the NT hash.
pub(crate) fn ntowf_v2(hash: &NtHash, user: &str, domain: &str) -> Key {
    ntowf_v2_of_upper(hash, &upper(user), domain)
}

/// NTOWFv2 of a user name that is in upper case already.
pub(crate) fn ntowf_v2_of_upper(hash: &NtHash, user: &str, domain: &str) -> Key {
    hmac_md5(hash.as_bytes(), &[&utf16(user), &utf16(domain)])
}

/// NTProofStr over the server challenge and the client's blob (`temp`).
pub(crate) fn nt_proof(response_key: &Key, server_challenge: &[u8; 8], blob: &[u8]) -> Key {
    hmac_md5(&response_key[..], &[server_challenge, blob])
}

/// SessionBaseKey; for NTLMv2 it is the KeyExchangeKey too.
pub(crate) fn session_base_key(response_key: &Key, proof: &[u8]) -> Key {
    hmac_md5(&response_key[..], &[proof])
}

/// Computes the MIC of AUTHENTICATE; the MIC field in `authenticate` must be zero.
pub(crate) fn message_mic(
    exported: &[u8],
    negotiate: &[u8],
    challenge: &[u8],
    authenticate: &[u8],
) -> Key {
    hmac_md5(exported, &[negotiate, challenge, authenticate])
}

/// The sender of a signed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// The keys for the first signed message of each end. Since the RC4 state is reset after a
/// mechListMIC ([MS-SPNG] 3.2.5.1), signing is a pure function of the keys.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct MicKeys {
    pub(super) client_sign: [u8; 16],
    server_sign: [u8; 16],
    pub(super) client_seal: [u8; 16],
    server_seal: [u8; 16],
    key_exchange: bool,
}

impl MicKeys {
    /// Derives the keys with extended session security ([MS-NLMP] 3.4.5.2, 3.4.5.3).
    pub(crate) fn new(exported: &[u8], negotiated: u32) -> Self {
        let seal_input = if negotiated & flags::NEGOTIATE_128 != 0 {
            exported
        } else if negotiated & flags::NEGOTIATE_56 != 0 {
            exported.get(..7).unwrap_or(exported)
        } else {
            exported.get(..5).unwrap_or(exported)
        };
        let key = |input: &[u8], magic: &[u8]| -> [u8; 16] {
            let mut hash = Md5::new();
            hash.update(input);
            hash.update(magic);
            hash.finalize().into()
        };
        Self {
            client_sign: key(
                exported,
                b"session key to client-to-server signing key magic constant\0",
            ),
            server_sign: key(
                exported,
                b"session key to server-to-client signing key magic constant\0",
            ),
            client_seal: key(
                seal_input,
                b"session key to client-to-server sealing key magic constant\0",
            ),
            server_seal: key(
                seal_input,
                b"session key to server-to-client sealing key magic constant\0",
            ),
            key_exchange: negotiated & flags::KEY_EXCH != 0,
        }
    }

    /// The signature with sequence number 0 ([MS-NLMP] 3.4.4.2).
    pub(crate) fn sign(&self, sender: Sender, message: &[u8]) -> [u8; super::MIC_LEN] {
        let (sign, seal) = match sender {
            Sender::Client => (&self.client_sign, &self.client_seal),
            Sender::Server => (&self.server_sign, &self.server_seal),
        };
        let digest = hmac_md5(sign, &[&[0; 4], message]);
        let mut out = [0u8; super::MIC_LEN];
        let (version, rest) = out.split_at_mut(4);
        version.copy_from_slice(&1u32.to_le_bytes());
        let (checksum, _) = rest.split_at_mut(8);
        let bytes = checksum.iter_mut().zip(digest.iter());
        bytes.for_each(|(to, from)| *to = *from);
        if self.key_exchange {
            rc4(seal, checksum);
        }
        out
    }
}
