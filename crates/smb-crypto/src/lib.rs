//! Cryptography of SMB 2 and 3 without policy: the preauthentication hash chain, key
//! derivation, message signing and message encryption.
//!
//! Everything here is a pure function of its arguments. The server and client crates decide which
//! algorithm a connection uses, when a message must be signed and where a nonce comes from; this
//! crate only computes the bytes ([MS-SMB2] 3.1.4.1 - 3.1.4.3).
//!
//! Primitives come from AWS-LC, except AES-CCM, whose 11-byte nonce AWS-LC does not offer, and AES-GCM on processors
//! where ring is faster. Keys are wiped when dropped (except ring's), comparisons of authentication values take
//! constant time, and `Debug` never shows a key.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]
#![cfg_attr(not(test), deny(clippy::iter_over_hash_type))]

mod cmac;
pub mod kdf;
mod permutation;
pub mod preauth;
pub mod sealing;
pub mod signing;

pub use kdf::{CipherKey, SessionKeys, derive_keys};
pub use permutation::Permutation;
pub use preauth::PreauthHash;
pub use sealing::{Cipher, SealingKey};
pub use signing::{SignNonce, SigningAlgorithm, SigningKey};

/// A computation that cannot be done or whose result is wrong. Each function says what that means; callers give the
/// message or the session up in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptoError;
