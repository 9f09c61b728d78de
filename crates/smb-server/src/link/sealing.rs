//! The keys that seal and open a session's messages, and their nonces ([MS-SMB2] 3.1.4.3).

use std::sync::atomic::{AtomicU64, Ordering};

use smb_crypto::SealingKey;

/// The cipher keys of a session, shared by all its channels.
pub(crate) struct Sealing {
    pub(crate) server_to_client: SealingKey,
    pub(crate) client_to_server: SealingKey,
    /// Fixed part of every nonce, random for each session.
    salt: [u8; 3],
    next: AtomicU64,
}

impl Sealing {
    pub(crate) fn new(
        server_to_client: SealingKey,
        client_to_server: SealingKey,
        salt: [u8; 3],
    ) -> Self {
        Self {
            server_to_client,
            client_to_server,
            salt,
            next: AtomicU64::new(1),
        }
    }

    /// [MS-SMB2] 3.1.4.3: no nonce may repeat under a session's key, whatever the channel. The
    /// session has one counter of 64 bits; once it is used up, nothing more can be sealed.
    pub(crate) fn next_nonce(&self) -> Option<[u8; 16]> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        if count == u64::MAX {
            return None;
        }
        // 11 bytes fit both CCM and GCM; the rest must be zero.
        let [a, b, c] = self.salt;
        let salt = u128::from(u32::from_le_bytes([a, b, c, 0]));
        Some((salt << 64 | u128::from(count)).to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use smb_crypto::Cipher;

    use super::*;

    #[test]
    fn every_nonce_is_another_and_fits_both_modes() {
        let key = || SealingKey::new(Cipher::Aes128Ccm, &[1; 16]).unwrap();
        let sealing = Sealing::new(key(), key(), [7, 8, 9]);
        let nonces = (0..1000).map(|_| sealing.next_nonce().unwrap());
        let nonces: BTreeSet<_> = nonces.collect();
        assert_eq!(nonces.len(), 1000);
        let rest = [7, 8, 9, 0, 0, 0, 0, 0];
        assert!(nonces.iter().all(|nonce| nonce.ends_with(&rest)));
        sealing.next.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(sealing.next_nonce(), None);
    }
}
