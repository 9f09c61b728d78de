//! Key derivation: SP800-108 counter mode with HMAC-SHA256 ([MS-SMB2] 3.1.4.2), and the labels and
//! contexts of each dialect ([MS-SMB2] 3.3.5.5.3, the client's mirror is 3.2.5.3.1). The application
//! key is not derived: no service behind a pipe asks for it.
//!
//! Invariants: labels and contexts carry their trailing NUL; "ServerIn " carries a space too.
//! Signing keys are always 16 bytes from the first 16 bytes of the session key;
//! AES-256 cipher keys are 32 bytes from the *whole* session key. Keys are named by direction
//! (client to server, server to client), so both roles read the same labels.
//! The caller decides whether a session has keys at all (guest and anonymous sessions pass no
//! cipher).

use aws_lc_rs::hmac;
use core::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::CryptoError;
use crate::sealing::{Cipher, SealingKey};
use crate::signing::{SigningAlgorithm, SigningKey};

/// Length of signing keys in bytes.
pub const SIGNING_KEY_LEN: usize = 16;

/// A key of 16 or 32 bytes for one direction of encryption. Wiped on drop, hidden in `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct CipherKey {
    bytes: [u8; 32],
    len: usize,
}

impl CipherKey {
    /// The key's bytes: 16 for AES-128, 32 for AES-256.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CipherKey({} bytes)", self.len)
    }
}

/// All keys of a session (or, for `signing`, of a bound channel).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    /// `Session.SigningKey` / `Channel.SigningKey`.
    pub signing: [u8; SIGNING_KEY_LEN],
    /// The server decrypts with this key, the client encrypts. `None` without a cipher.
    pub client_to_server: Option<CipherKey>,
    /// The server encrypts with this key, the client decrypts. `None` without a cipher.
    pub server_to_client: Option<CipherKey>,
    #[zeroize(skip)]
    cipher: Option<Cipher>,
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys")
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

impl SessionKeys {
    /// The signing key, set up for `algorithm`.
    pub fn signing_key(&self, algorithm: SigningAlgorithm) -> SigningKey {
        SigningKey::new(algorithm, &self.signing)
    }

    /// The key for messages that the server sends; `None` when the session has no cipher.
    pub fn sealing_server_to_client(&self) -> Option<SealingKey> {
        SealingKey::new(self.cipher?, self.server_to_client.as_ref()?.as_bytes()).ok()
    }

    /// The key for messages that the client sends; `None` when the session has no cipher.
    pub fn sealing_client_to_server(&self) -> Option<SealingKey> {
        SealingKey::new(self.cipher?, self.client_to_server.as_ref()?.as_bytes()).ok()
    }
}

/// A label and its context, each with its trailing NUL.
type Purpose<'a> = (&'a [u8], &'a [u8]);

/// SP800-108 counter mode, one round: HMAC-SHA256(key, 1 ‖ label ‖ 0 ‖ context ‖ L), cut to
/// `out.len()` bytes. The function produces at most 32 bytes, which is the most that SMB needs.
fn derive(key: &[u8], (label, context): Purpose<'_>, out: &mut [u8]) {
    let bits = u32::try_from(out.len().saturating_mul(8)).unwrap_or(u32::MAX);
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(context);
    mac.update(&bits.to_be_bytes());
    for (to, from) in out.iter_mut().zip(mac.sign().as_ref()) {
        *to = *from;
    }
}

/// Derives the keys of a session or channel from the mechanism's whole session key.
///
/// `dialect` is the wire value (0x0202 .. 0x0311). `preauth` is used by 3.1.1 only: the session's
/// hash after the last SESSION_SETUP request. `cipher` is the negotiated one, `None` when the
/// session must not have cipher keys; dialects 2.x ignore it, 3.0 and 3.0.2 know AES-128-CCM only.
///
/// # Errors
/// The dialect is unknown, 3.1.1 has no hash, or the authentication mechanism produced an empty key.
pub fn derive_keys(
    dialect: u16,
    session_key: &[u8],
    preauth: Option<&[u8; 64]>,
    cipher: Option<Cipher>,
) -> Result<SessionKeys, CryptoError> {
    if session_key.is_empty() {
        return Err(CryptoError);
    }
    // [MS-SMB2] 3.3.5.5.3: Session.SessionKey is the first 16 bytes, right-padded with zeros.
    let mut short = Zeroizing::new([0u8; SIGNING_KEY_LEN]);
    for (to, from) in short.iter_mut().zip(session_key) {
        *to = *from;
    }
    let mut keys = SessionKeys {
        signing: *short,
        client_to_server: None,
        server_to_client: None,
        cipher: None,
    };
    let purposes: [Purpose<'_>; 3] = match dialect {
        0x0202 | 0x0210 => return Ok(keys),
        0x0300 | 0x0302 => {
            keys.cipher = cipher.map(|_| Cipher::Aes128Ccm);
            [
                (b"SMB2AESCMAC\0", b"SmbSign\0"),
                (b"SMB2AESCCM\0", b"ServerIn \0"),
                (b"SMB2AESCCM\0", b"ServerOut\0"),
            ]
        }
        0x0311 => {
            keys.cipher = cipher;
            let hash = preauth.ok_or(CryptoError)?;
            [
                (b"SMBSigningKey\0", hash),
                (b"SMBC2SCipherKey\0", hash),
                (b"SMBS2CCipherKey\0", hash),
            ]
        }
        _ => return Err(CryptoError),
    };
    let [signing, to_server, to_client] = purposes;
    derive(&short[..], signing, &mut keys.signing);
    if let Some(cipher) = keys.cipher {
        let input = match cipher.key_len() {
            32 => session_key,
            _ => &short[..],
        };
        let of_direction = |purpose| {
            let mut key = CipherKey {
                bytes: [0; 32],
                len: cipher.key_len(),
            };
            derive(input, purpose, key.bytes.get_mut(..key.len)?);
            Some(key)
        };
        keys.client_to_server = of_direction(to_server);
        keys.server_to_client = of_direction(to_client);
    }
    Ok(keys)
}
