//! The keys of one session as this connection uses them.
//!
//! Signing keys belong to the channel, encryption keys and their nonce counter to the session: a
//! [`SessionSecret`] transfers the latter to another connection for binding, and all channels share
//! one counter ([MS-SMB2] 3.1.4.3: no nonce may repeat under one key).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smb_crypto::{SealingKey, SessionKeys, SigningAlgorithm, SigningKey};
use smb_wire::ids::SessionId;
use smb_wire::msg::SessionFlags;

use super::Negotiated;

/// The secrets that a session needs on each of its channels. Cheap to clone; `Debug` shows no key.
#[derive(Clone)]
pub struct SessionSecret {
    pub(super) id: SessionId,
    pub(super) flags: SessionFlags,
    pub(super) keys: Arc<SessionKeys>,
    pub(super) seal: Option<Arc<SealingKey>>,
    pub(super) open: Option<Arc<SealingKey>>,
    /// The algorithm in which the session's own key signs, if it differs from the connection's.
    pub(super) algorithm: Option<SigningAlgorithm>,
    nonces: Arc<AtomicU64>,
}

impl std::fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionSecret({:?})", self.id)
    }
}

impl SessionSecret {
    pub fn new(id: SessionId, flags: SessionFlags, keys: SessionKeys) -> Self {
        Self {
            id,
            flags,
            seal: keys.sealing_client_to_server().map(Arc::new),
            open: keys.sealing_server_to_client().map(Arc::new),
            keys: Arc::new(keys),
            algorithm: None,
            nonces: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Makes the signing key use this algorithm on any connection: a binding request is signed with
    /// the algorithm of the session's first connection.
    #[must_use]
    pub fn signed_in(mut self, algorithm: SigningAlgorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Returns a fresh nonce: a counter, followed by zeros.
    pub(super) fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        let count = self.nonces.fetch_add(1, Ordering::Relaxed);
        for (to, from) in nonce.iter_mut().zip(count.to_le_bytes()) {
            *to = from;
        }
        nonce
    }
}

pub(super) struct SessionState {
    pub(super) flags: SessionFlags,
    /// `None` for guests.
    pub(super) secret: Option<SessionSecret>,
    pub(super) signing: Option<SigningKey>,
    /// Requests are signed by default.
    pub(super) sign: bool,
    /// Requests are encrypted by default.
    pub(super) encrypt: bool,
}

impl SessionState {
    /// Creates a session with keys. `sign` is the default for requests.
    pub(super) fn keyed(secret: SessionSecret, negotiated: &Negotiated, sign: bool) -> Self {
        Self {
            flags: secret.flags,
            signing: Some(
                secret
                    .keys
                    .signing_key(secret.algorithm.unwrap_or(negotiated.signing_algorithm)),
            ),
            sign,
            encrypt: secret.flags.contains(SessionFlags::ENCRYPT_DATA) && secret.seal.is_some(),
            secret: Some(secret),
        }
    }

    /// Creates a guest session, which has no keys and signs nothing.
    pub(super) fn keyless(flags: SessionFlags) -> Self {
        Self {
            flags,
            secret: None,
            signing: None,
            sign: false,
            encrypt: false,
        }
    }

    /// Returns whether the session has a proven identity.
    pub(super) fn is_user(&self) -> bool {
        !self
            .flags
            .intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL)
    }
}
