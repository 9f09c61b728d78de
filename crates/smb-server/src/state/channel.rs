//! A session on one of its connections ([MS-SMB2] 3.3.1.14).

use std::sync::Arc;

use smb_crypto::SigningKey;

use super::Session;

/// A session on a connection, with the key that signs on this connection.
pub(crate) struct Channel<V: vfs::Vfs> {
    /// The session.
    pub(crate) session: Arc<Session<V>>,
    /// Channel.SigningKey; `None` for guest and anonymous sessions, which cannot sign.
    pub(crate) signing: Option<Arc<SigningKey>>,
}
