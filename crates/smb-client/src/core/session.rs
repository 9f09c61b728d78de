//! The keys of one session as this connection uses them.
//!
//! Signing keys belong to the channel, sealing keys and their nonce counter to the session: a
//! [`SessionSecret`] carries the latter to another connection for binding, and all channels
//! count in one counter ([MS-SMB2] 3.1.4.3: no nonce twice under one key).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smb_crypto::{SealingKey, SessionKeys, SigningAlgorithm, SigningKey};
use smb_wire::ids::SessionId;
use smb_wire::msg::SessionFlags;

use super::Negotiated;

/// What a session needs on each of its channels. Cheap to clone; shows no key.
#[derive(Clone)]
pub struct SessionSecret {
    pub(super) id: SessionId,
    pub(super) flags: SessionFlags,
    pub(super) keys: Arc<SessionKeys>,
    pub(super) seal: Option<Arc<SealingKey>>,
    pub(super) open: Option<Arc<SealingKey>>,
    /// In which the session's own key signs, if it is not that of the connection.
    pub(super) algorithm: Option<SigningAlgorithm>,
    nonces: Arc<AtomicU64>,
}

impl std::fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionSecret({:?})", self.id)
    }
}

impl SessionSecret {
    /// The secret of a session whose keys were derived.
    #[must_use]
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

    /// Its signing key signs in this algorithm wherever it is used: a binding is signed in that
    /// of the session's first connection.
    #[must_use]
    pub fn signed_in(mut self, algorithm: SigningAlgorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// A nonce never given before: a counter, the rest zero.
    pub(super) fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        let count = self.nonces.fetch_add(1, Ordering::Relaxed);
        for (to, from) in nonce.iter_mut().zip(count.to_le_bytes()) {
            *to = from;
        }
        nonce
    }
}

/// A session on this connection.
pub(super) struct SessionState {
    pub(super) flags: SessionFlags,
    /// `None` for guests and null sessions.
    pub(super) secret: Option<SessionSecret>,
    pub(super) signing: Option<SigningKey>,
    /// Requests are signed unless they say otherwise.
    pub(super) sign: bool,
    /// Requests are encrypted unless they say otherwise.
    pub(super) encrypt: bool,
}

impl SessionState {
    /// A session with keys. `sign` says whether requests are signed by default.
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

    /// A session of a guest or of nobody: no keys, nothing signed.
    pub(super) fn keyless(flags: SessionFlags) -> Self {
        Self {
            flags,
            secret: None,
            signing: None,
            sign: false,
            encrypt: false,
        }
    }

    /// Whether the session proves somebody's identity.
    pub(super) fn is_user(&self) -> bool {
        !self
            .flags
            .intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL)
    }
}
