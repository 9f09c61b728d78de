//! The preauthentication integrity hash of SMB 3.1.1 ([MS-SMB2] 3.3.5.4, 3.3.5.5.3).
//!
//! The hash is a chain: H starts as 64 zero bytes, then H = SHA-512(H ‖ message). The caller
//! chooses the messages: NEGOTIATE request and response for the connection's value; each
//! SESSION_SETUP request and each MORE_PROCESSING_REQUIRED response for the copy that a session
//! takes of it. A message starts at the SMB2 header, without the 4-byte transport length.

use aws_lc_rs::digest;

/// Length of the hash value in bytes.
pub const PREAUTH_HASH_LEN: usize = 64;

/// A state of the hash chain. A session starts from a clone of its connection's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreauthHash {
    value: [u8; PREAUTH_HASH_LEN],
}

impl Default for PreauthHash {
    fn default() -> Self {
        Self::new()
    }
}

impl PreauthHash {
    /// The start value: 64 zero bytes.
    pub fn new() -> Self {
        Self {
            value: [0; PREAUTH_HASH_LEN],
        }
    }

    /// Adds one whole message, from its SMB2 header to its last byte.
    pub fn update(&mut self, message: &[u8]) {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&self.value);
        context.update(message);
        self.value.copy_from_slice(context.finish().as_ref());
    }

    /// The current value, which is the context of every 3.1.1 key derivation.
    pub fn value(&self) -> &[u8; PREAUTH_HASH_LEN] {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_is_sha512_of_previous_value_and_message() {
        let mut hash = PreauthHash::new();
        assert_eq!(hash.value(), &[0; 64]);
        hash.update(b"negotiate request");
        hash.update(b"negotiate response");

        let mut one = vec![0u8; 64];
        one.extend_from_slice(b"negotiate request");
        let mut two = digest::digest(&digest::SHA512, &one).as_ref().to_vec();
        two.extend_from_slice(b"negotiate response");
        assert_eq!(
            hash.value().as_slice(),
            digest::digest(&digest::SHA512, &two).as_ref()
        );
    }

    #[test]
    fn message_boundaries_change_the_hash() {
        let (mut a, mut b) = (PreauthHash::new(), PreauthHash::new());
        a.update(b"ab");
        a.update(b"c");
        b.update(b"a");
        b.update(b"bc");
        assert_ne!(a, b);
    }
}
