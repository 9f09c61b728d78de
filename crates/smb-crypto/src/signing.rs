//! Signs messages and verifies their signatures ([MS-SMB2] 3.1.4.1, 3.1.5.1): HMAC-SHA256, AES-CMAC, AES-GMAC.
//!
//! A message is one element of a compound: its SMB2 header, its body and the padding up to the next
//! element, without the transport length. The 16-byte signature is at bytes 48..64 of the header
//! and counts as zero in the computation. Verification compares in constant time.
//!
//! The caller decides whether a message has to be signed, and sets the SIGNED flag before signing.
//! AWS-LC's safe interface computes GMAC over one contiguous buffer only, so
//! [`SigningKey::sign_parts`] and [`SigningKey::verify`] copy the message for it; the `_in_place`
//! variant does not.

use aws_lc_rs::{aead, constant_time, hmac};
use core::fmt;
use serde::Deserialize;

use crate::{CryptoError, cmac};

/// Length of a signature in bytes.
pub const SIGNATURE_LEN: usize = 16;
/// The position of the signature in the SMB2 header.
pub const SIGNATURE_RANGE: core::ops::Range<usize> = 48..64;
const HEADER_LEN: usize = 64;

/// The algorithms of SMB2_SIGNING_CAPABILITIES ([MS-SMB2] 2.2.3.1.7), and their names in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SigningAlgorithm {
    /// Only 3.1.1 can negotiate it.
    AesGmac = 2,
    /// The default of dialects 3.x.
    AesCmac = 1,
    /// The algorithm of dialects 2.0.2 and 2.1; 3.1.1 can negotiate it.
    HmacSha256 = 0,
}

impl SigningAlgorithm {
    /// The wire identifier.
    pub fn id(self) -> u16 {
        self as u16
    }

    /// The algorithm of a wire identifier.
    pub fn from_id(id: u16) -> Option<Self> {
        let all = [Self::HmacSha256, Self::AesCmac, Self::AesGmac];
        all.into_iter().find(|algorithm| algorithm.id() == id)
    }

    /// The algorithm of a dialect when no signing context was negotiated.
    pub fn default_for_dialect(dialect: u16) -> Self {
        if dialect >= 0x0300 {
            Self::AesCmac
        } else {
            Self::HmacSha256
        }
    }
}

/// The inputs of the AES-GMAC nonce; the other algorithms ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignNonce {
    /// MessageId of the SMB2 header.
    pub message_id: u64,
    /// The *sender* of the message is the server.
    pub is_server: bool,
    /// The message is an SMB2 CANCEL request.
    pub is_cancel: bool,
}

impl SignNonce {
    // [MS-SMB2] 3.1.4.1: 8 bytes MessageId, then 32 bits: bit 0 the sender's role, bit 1 CANCEL.
    fn to_bytes(self) -> [u8; 12] {
        let bits = u32::from(self.is_server) | (u32::from(self.is_cancel) << 1);
        let mut nonce = [0; 12];
        let (id, role) = nonce.split_at_mut(8);
        id.copy_from_slice(&self.message_id.to_le_bytes());
        role.copy_from_slice(&bits.to_le_bytes());
        nonce
    }
}

enum Inner {
    Hmac(Box<hmac::Key>),
    Cmac(Box<cmac::Key>),
    Gmac(aead::LessSafeKey),
    /// Setting up the key failed, which never happens with a 16-byte key: it signs nothing and verifies nothing.
    Broken,
}

/// A signing key, set up once per session or channel. The library wipes the key on drop.
pub struct SigningKey {
    algorithm: SigningAlgorithm,
    inner: Inner,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Sets up a key.
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; 16]) -> Self {
        let inner = match algorithm {
            SigningAlgorithm::HmacSha256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, key);
                Some(Inner::Hmac(Box::new(key)))
            }
            SigningAlgorithm::AesCmac => cmac::Key::new(key).ok().map(|k| Inner::Cmac(Box::new(k))),
            SigningAlgorithm::AesGmac => aead::UnboundKey::new(&aead::AES_128_GCM, key)
                .ok()
                .map(|k| Inner::Gmac(aead::LessSafeKey::new(k))),
        };
        Self {
            algorithm,
            inner: inner.unwrap_or(Inner::Broken),
        }
    }

    /// The algorithm this key is for.
    pub fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// Signs one contiguous message in place: zeroes 48..64, computes, writes the signature there.
    ///
    /// # Errors
    /// The message has less than 64 bytes; it is unchanged then.
    pub fn sign(&self, message: &mut [u8], nonce: SignNonce) -> Result<(), CryptoError> {
        self.sign_parts(message, &[], nonce)
    }

    /// Signs a message whose head (at least the whole SMB2 header) is followed by further
    /// segments, as a READ response is by its data. The signature is written into `head`.
    ///
    /// # Errors
    /// `head` has less than 64 bytes.
    pub fn sign_parts(
        &self,
        head: &mut [u8],
        tail: &[&[u8]],
        nonce: SignNonce,
    ) -> Result<(), CryptoError> {
        head.get_mut(SIGNATURE_RANGE).ok_or(CryptoError)?.fill(0);
        let signature = self.mac(&[head], tail, nonce).ok_or(CryptoError)?;
        head.get_mut(SIGNATURE_RANGE)
            .ok_or(CryptoError)?
            .copy_from_slice(&signature);
        Ok(())
    }

    /// Whether the message carries the right signature; false for anything below 64 bytes.
    /// For GMAC the message is copied; see [`Self::verify_in_place`].
    #[must_use]
    pub fn verify(&self, message: &[u8], nonce: SignNonce) -> bool {
        let (Some(before), Some(signature), Some(after)) = (
            message.get(..SIGNATURE_RANGE.start),
            message.get(SIGNATURE_RANGE),
            message.get(HEADER_LEN..),
        ) else {
            return false;
        };
        let zeros = [0u8; SIGNATURE_LEN];
        self.mac(&[before, &zeros, after], &[], nonce)
            .is_some_and(|mac| constant_time::verify_slices_are_equal(&mac, signature).is_ok())
    }

    /// As [`Self::verify`], without a copy: the signature is zeroed and then put back.
    #[must_use]
    pub fn verify_in_place(&self, message: &mut [u8], nonce: SignNonce) -> bool {
        let mut claimed = [0u8; SIGNATURE_LEN];
        match message.get_mut(SIGNATURE_RANGE) {
            Some(field) => {
                claimed.copy_from_slice(field);
                field.fill(0);
            }
            None => return false,
        }
        let mac = self.mac(&[message], &[], nonce);
        if let Some(field) = message.get_mut(SIGNATURE_RANGE) {
            field.copy_from_slice(&claimed);
        }
        mac.is_some_and(|mac| constant_time::verify_slices_are_equal(&mac, &claimed).is_ok())
    }

    /// The first 16 bytes of the MAC over all segments in order.
    fn mac(&self, head: &[&[u8]], tail: &[&[u8]], nonce: SignNonce) -> Option<[u8; 16]> {
        let segments = head.iter().chain(tail);
        let mut out = [0u8; SIGNATURE_LEN];
        match &self.inner {
            Inner::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                segments.for_each(|s| context.update(s));
                out.copy_from_slice(context.sign().as_ref().get(..SIGNATURE_LEN)?);
            }
            Inner::Cmac(key) => out = key.tag(segments.copied()).ok()?,
            Inner::Gmac(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(nonce.to_bytes());
                let tag = match (head, tail) {
                    ([whole], []) => {
                        key.seal_in_place_separate_tag(nonce, aead::Aad::from(whole), &mut [])
                    }
                    _ => {
                        let length = segments.clone().map(|s| s.len()).sum();
                        let mut text = Vec::with_capacity(length);
                        segments.for_each(|s| text.extend_from_slice(s));
                        key.seal_in_place_separate_tag(nonce, aead::Aad::from(text), &mut [])
                    }
                };
                out.copy_from_slice(tag.ok()?.as_ref());
            }
            Inner::Broken => return None,
        }
        Some(out)
    }
}
