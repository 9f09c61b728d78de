//! A session and its tables ([MS-SMB2] 3.3.1.8, 3.3.1.9).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use smb_crypto::SealingKey;
use smb_wire::{
    access_mask::AccessMask,
    ids::{SessionId, TreeId},
    msg::ShareFlags,
};
use vfs::Vfs;

use super::{Acting, ConnectionId, Open, Server, Share, Token};

/// Session.State.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// Usable.
    Valid,
    /// Logged off or lost: nothing finds it any more.
    Closed,
}

/// A user's session.
pub(crate) struct Session<V: Vfs> {
    pub(crate) id: SessionId,
    /// The connection that made it.
    pub(crate) connection: ConnectionId,
    phase: Mutex<SessionPhase>,
    token: RwLock<Arc<Token>>,
    /// Session.SigningRequired.
    pub(crate) signing_required: AtomicBool,
    /// Session.EncryptData.
    pub(crate) encrypt_data: AtomicBool,
    sealing: OnceLock<Sealing>,
    tables: Mutex<Tables<V>>,
}

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
    /// counter is the session's, 64 bits; with it used up nothing more can be sealed.
    pub(crate) fn next_nonce(&self) -> Option<[u8; 16]> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        if count == u64::MAX {
            return None;
        }
        let mut nonce = [0; 16];
        let (counter, rest) = nonce.split_at_mut(8);
        counter.copy_from_slice(&count.to_le_bytes());
        // 11 bytes fit CCM and GCM both; what is beyond must be zero.
        rest.iter_mut()
            .zip(self.salt)
            .for_each(|(to, from)| *to = from);
        Some(nonce)
    }
}

/// Trees and opens of a session.
pub(crate) struct Tables<V: Vfs> {
    pub(crate) trees: BTreeMap<TreeId, Arc<TreeConnect<V>>>,
    pub(crate) opens: BTreeMap<u64, Arc<Open<V>>>,
    next_tree: u32,
}

impl<V: Vfs> Tables<V> {
    /// A tree id not in use.
    pub(crate) fn new_tree_id(&mut self) -> TreeId {
        loop {
            let id = TreeId(self.next_tree);
            self.next_tree = self.next_tree.wrapping_add(1);
            if id.0 != 0 && id != TreeId::ANY && !self.trees.contains_key(&id) {
                return id;
            }
        }
    }
}

/// What a session is made with.
pub(crate) struct NewSession {
    pub(crate) id: SessionId,
    pub(crate) connection: ConnectionId,
    pub(crate) token: Token,
    pub(crate) signing_required: bool,
    pub(crate) encrypt_data: bool,
    pub(crate) sealing: Option<Sealing>,
}

impl<V: Vfs> Session<V> {
    pub(crate) fn new(new: NewSession) -> Self {
        let sealing = OnceLock::new();
        if let Some(keys) = new.sealing {
            let _ = sealing.set(keys);
        }
        Self {
            id: new.id,
            connection: new.connection,
            phase: Mutex::new(SessionPhase::Valid),
            token: RwLock::new(Arc::new(new.token)),
            signing_required: AtomicBool::new(new.signing_required),
            encrypt_data: AtomicBool::new(new.encrypt_data),
            sealing,
            tables: Mutex::new(Tables {
                trees: BTreeMap::new(),
                opens: BTreeMap::new(),
                next_tree: 1,
            }),
        }
    }

    pub(crate) fn phase(&self) -> SessionPhase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves on to `phase` and says where it was; Closed is never left.
    pub(crate) fn set_phase(&self, phase: SessionPhase) -> SessionPhase {
        let mut place = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *place;
        if before != SessionPhase::Closed {
            *place = phase;
        }
        before
    }

    pub(crate) fn token(&self) -> Arc<Token> {
        Arc::clone(&self.token.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Re-authentication: the identity is replaced whole.
    pub(crate) fn set_token(&self, token: Token) {
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(token);
    }

    pub(crate) fn sealing(&self) -> Option<&Sealing> {
        self.sealing.get()
    }

    pub(crate) fn encrypts(&self) -> bool {
        self.encrypt_data.load(Ordering::Relaxed)
    }

    pub(crate) fn must_sign(&self) -> bool {
        self.signing_required.load(Ordering::Relaxed)
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables<V>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's connection to a share.
pub(crate) struct TreeConnect<V: Vfs> {
    pub(crate) id: TreeId,
    /// `None` is IPC$.
    pub(crate) share: Option<Arc<Share<V>>>,
    /// The most any open on this tree may be granted.
    pub(crate) maximal_access: AccessMask,
    /// Flags as answered.
    pub(crate) flags: ShareFlags,
    /// Every request must come encrypted.
    pub(crate) encrypted: bool,
    /// As whom it acts, if not as the session's user.
    pub(crate) acting: Acting,
}

impl<V: Vfs> TreeConnect<V> {
    /// Who the session's user is on this tree.
    pub(crate) fn token(&self, server: &Server<V>, session: &Session<V>) -> Arc<Token> {
        let token = session.token();
        let share = self.share.as_ref();
        match share.and_then(|share| share.config.act_as) {
            Some(ids) => self.acting.token(&server.config(), token, ids),
            None => token,
        }
    }

    /// The share's name as shown.
    pub(crate) fn name(&self) -> &str {
        self.share
            .as_ref()
            .map_or("IPC$", |share| share.config.name.as_str())
    }
}
