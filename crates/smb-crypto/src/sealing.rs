//! Message encryption ([MS-SMB2] 3.1.4.3, 2.2.41): AES-CCM and AES-GCM with 128 and 256 bits.
//!
//! The associated data is the transform header without ProtocolId and Signature: the 32 bytes
//! from Nonce on. The 16-byte tag is the header's Signature. Of the 16-byte Nonce field CCM uses
//! the first 11 bytes and GCM the first 12; the rest must be zero on the wire.
//! **A nonce must never repeat under one key**, and a key belongs to a session, not to a channel:
//! the caller keeps the counter. CCM is one call over a contiguous buffer (measured: CCM 1 GB/s,
//! GCM 7 to 15 GB/s).

use aes::{Aes128, Aes256};
use aws_lc_rs::aead;
use ccm::{
    AeadInOut, Ccm, KeyInit,
    consts::{U11, U16},
};
use core::fmt;
use serde::Deserialize;

use crate::CryptoError;

/// Length of the authentication tag in bytes.
pub const TAG_LEN: usize = 16;
/// Length of the Nonce field of the transform header in bytes.
pub const NONCE_FIELD_LEN: usize = 16;

/// The ciphers of SMB2_ENCRYPTION_CAPABILITIES ([MS-SMB2] 2.2.3.1.2), and their names in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Cipher {
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm = 2,
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm = 4,
    /// The only cipher of 3.0 and 3.0.2.
    #[serde(rename = "aes-128-ccm")]
    Aes128Ccm = 1,
    #[serde(rename = "aes-256-ccm")]
    Aes256Ccm = 3,
}

impl Cipher {
    /// The wire identifier, 1..=4.
    pub fn id(self) -> u16 {
        self as u16
    }

    /// The cipher of a wire identifier.
    pub fn from_id(id: u16) -> Option<Self> {
        let all = [
            Self::Aes128Ccm,
            Self::Aes128Gcm,
            Self::Aes256Ccm,
            Self::Aes256Gcm,
        ];
        all.into_iter().find(|cipher| cipher.id() == id)
    }

    /// Key length in bytes: 16 or 32.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }
}

enum Inner {
    Gcm(Box<aead::LessSafeKey>),
    GcmVaes(Box<ring::aead::LessSafeKey>),
    Ccm128(Box<Ccm<Aes128, U16, U11>>),
    Ccm256(Box<Ccm<Aes256, U16, U11>>),
}

impl Inner {
    fn gcm(cipher: Cipher, key: &[u8]) -> Result<Self, CryptoError> {
        let algorithm = match cipher {
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            _ => &aead::AES_128_GCM,
        };
        let key = aead::UnboundKey::new(algorithm, key).map_err(|_| CryptoError)?;
        Ok(Self::Gcm(Box::new(aead::LessSafeKey::new(key))))
    }

    /// Makes the key as [`Self::gcm`] does, for ring.
    fn gcm_vaes(cipher: Cipher, key: &[u8]) -> Result<Self, CryptoError> {
        use ring::aead;
        let algorithm = match cipher {
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            _ => &aead::AES_128_GCM,
        };
        let key = aead::UnboundKey::new(algorithm, key).map_err(|_| CryptoError)?;
        Ok(Self::GcmVaes(Box::new(aead::LessSafeKey::new(key))))
    }
}

/// Whether the processor encrypts two blocks with one instruction (VAES), but has no AVX-512. AWS-LC
/// uses VAES only together with AVX-512 and needs twice the time of ring there (17 us instead of 9 us for
/// 64 KiB on a Zen 3); on other processors AWS-LC is as fast as ring or twice as fast.
fn vaes_without_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("vaes") && has!("vpclmulqdq") && has!("avx2") && !has!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A key for one direction of one session. The round keys are wiped on drop, except those of GCM on a processor with
/// VAES and without AVX-512, where they are ring's, which does not wipe them.
pub struct SealingKey {
    cipher: Cipher,
    inner: Inner,
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey")
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

impl SealingKey {
    /// Sets up a key of [`Cipher::key_len`] bytes.
    ///
    /// # Errors
    /// The key has another length.
    pub fn new(cipher: Cipher, key: &[u8]) -> Result<Self, CryptoError> {
        let inner = match cipher {
            Cipher::Aes128Gcm | Cipher::Aes256Gcm if vaes_without_avx512() => {
                Inner::gcm_vaes(cipher, key)?
            }
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => Inner::gcm(cipher, key)?,
            Cipher::Aes128Ccm => {
                Inner::Ccm128(Box::new(Ccm::new_from_slice(key).map_err(|_| CryptoError)?))
            }
            Cipher::Aes256Ccm => {
                Inner::Ccm256(Box::new(Ccm::new_from_slice(key).map_err(|_| CryptoError)?))
            }
        };
        Ok(Self { cipher, inner })
    }

    /// Encrypts `buf` in place and returns the tag for the Signature field. `nonce` is the Nonce
    /// field of the transform header, `aad` its 32 bytes from Nonce on.
    ///
    /// # Errors
    /// The message is longer than the cipher allows (4 GiB for CCM). The buffer's content is then unspecified.
    pub fn seal_in_place(
        &self,
        nonce: &[u8; NONCE_FIELD_LEN],
        aad: &[u8],
        buf: &mut [u8],
    ) -> Result<[u8; TAG_LEN], CryptoError> {
        let mut tag = [0; TAG_LEN];
        match &self.inner {
            Inner::Gcm(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(front(nonce));
                let sealed = key.seal_in_place_separate_tag(nonce, aead::Aad::from(aad), buf);
                tag.copy_from_slice(sealed.map_err(|_| CryptoError)?.as_ref());
            }
            Inner::GcmVaes(key) => {
                use ring::aead;
                let nonce = aead::Nonce::assume_unique_for_key(front(nonce));
                let sealed = key.seal_in_place_separate_tag(nonce, aead::Aad::from(aad), buf);
                tag.copy_from_slice(sealed.map_err(|_| CryptoError)?.as_ref());
            }
            Inner::Ccm128(key) => {
                let sealed = key.encrypt_inout_detached(&front(nonce).into(), aad, buf.into());
                tag.copy_from_slice(&sealed.map_err(|_| CryptoError)?);
            }
            Inner::Ccm256(key) => {
                let sealed = key.encrypt_inout_detached(&front(nonce).into(), aad, buf.into());
                tag.copy_from_slice(&sealed.map_err(|_| CryptoError)?);
            }
        }
        Ok(tag)
    }

    /// Checks the tag and decrypts `buf` in place.
    ///
    /// # Errors
    /// The message was not encrypted with this key, nonce and header. The buffer's content is then unspecified and must
    /// not be used.
    pub fn open_in_place(
        &self,
        nonce: &[u8; NONCE_FIELD_LEN],
        aad: &[u8],
        tag: &[u8; TAG_LEN],
        buf: &mut [u8],
    ) -> Result<(), CryptoError> {
        match &self.inner {
            Inner::Gcm(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(front(nonce));
                let opened = key.open_in_place_separate_tag(nonce, aead::Aad::from(aad), tag, buf);
                opened.map(|_| ()).map_err(|_| CryptoError)
            }
            Inner::GcmVaes(key) => {
                use ring::aead;
                let nonce = aead::Nonce::assume_unique_for_key(front(nonce));
                let tag = aead::Tag::from(*tag);
                let opened =
                    key.open_in_place_separate_tag(nonce, aead::Aad::from(aad), tag, buf, 0..);
                opened.map(|_| ()).map_err(|_| CryptoError)
            }
            Inner::Ccm128(key) => key
                .decrypt_inout_detached(&front(nonce).into(), aad, buf.into(), tag.into())
                .map_err(|_| CryptoError),
            Inner::Ccm256(key) => key
                .decrypt_inout_detached(&front(nonce).into(), aad, buf.into(), tag.into())
                .map_err(|_| CryptoError),
        }
    }
}

/// The first N bytes of the Nonce field, which are those that a cipher uses.
fn front<const N: usize>(field: &[u8; NONCE_FIELD_LEN]) -> [u8; N] {
    let mut nonce = [0; N];
    nonce
        .iter_mut()
        .zip(field)
        .for_each(|(to, from)| *to = *from);
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which library encrypts depends on the processor; the bytes do not.
    #[test]
    fn both_libraries_of_gcm_agree() {
        let text: Vec<u8> = (0..70_000).map(|at| (at * 31 % 251) as u8).collect();
        let (nonce, aad) = ([7; NONCE_FIELD_LEN], [9; 32]);
        for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
            let secret = &text[..cipher.key_len()];
            let inner = [Inner::gcm(cipher, secret), Inner::gcm_vaes(cipher, secret)];
            let keys = inner.map(|inner| SealingKey {
                cipher,
                inner: inner.unwrap(),
            });
            for length in (0..=300).chain([4095, 4096, 4097, 65_536, 70_000]) {
                let sealed = keys.each_ref().map(|key| {
                    let mut buf = text[..length].to_vec();
                    let tag = key.seal_in_place(&nonce, &aad, &mut buf).unwrap();
                    (buf, tag)
                });
                assert_eq!(sealed[0], sealed[1], "{cipher:?}, {length} bytes");
                for (key, (mut buf, mut tag)) in keys.iter().zip(sealed.into_iter().rev()) {
                    let mut changed = buf.clone();
                    key.open_in_place(&nonce, &aad, &tag, &mut buf).unwrap();
                    assert_eq!(buf, text[..length]);
                    tag[15] ^= 1;
                    let opened = key.open_in_place(&nonce, &aad, &tag, &mut changed);
                    assert_eq!(opened, Err(CryptoError));
                }
            }
        }
    }
}
