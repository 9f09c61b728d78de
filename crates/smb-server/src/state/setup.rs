//! A session that is being set up: the legs of SESSION_SETUP on one connection ([MS-SMB2] 3.3.5.5).

use std::time::Duration;

use smb_auth::Acceptor;
use smb_crypto::PreauthHash;

use crate::memory::Held;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A new session.
    New,
    /// A session of this connection authenticates again.
    Again,
    /// The connection becomes a channel of another's session.
    Bind,
}

/// A session being set up on a connection.
pub(crate) struct Setup {
    pub(crate) acceptor: Acceptor,
    /// Session.PreauthIntegrityHashValue, which starts with the connection's.
    pub(crate) preauth: PreauthHash,
    pub(crate) started: Duration,
    pub(crate) purpose: Purpose,
    /// Its share of the server's memory, if it is charged.
    pub(crate) _memory: Option<Held>,
}

impl Setup {
    /// Adds the request or the answer of a leg to the hash; re-authentication hashes nothing.
    pub(crate) fn hash(&mut self, message: &[u8]) {
        if self.purpose != Purpose::Again {
            self.preauth.update(message);
        }
    }
}
