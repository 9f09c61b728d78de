//! A session, its channels and its tables ([MS-SMB2] 3.3.1.8, 3.3.1.9).
//!
//! A session lives as long as it has a channel: the connection that made it is its first one,
//! others are bound to it. Its end and the addition and removal of channels are decided under one lock, so that no
//! channel joins a session that ends and exactly one caller ends it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, MutexGuard},
};

use smb_crypto::{Cipher, SigningKey};
use smb_wire::{
    access_mask::AccessMask,
    ids::{Guid, SessionId, TreeId},
    msg::{Dialect, ShareFlags},
    status::Status,
};
use vfs::Vfs;

use super::{ConnectionId, EndReason, Ender, Open, ParkedRequests, Server, Share};
use crate::{
    limits::{ADOPTED_PER_SESSION_MAX, CHANNELS_PER_SESSION_MAX},
    link::{outbound::Seal, sealing::Sealing},
    locks::{Mutex, RwLock},
    memory::Held,
    token::{Acting, Token},
    transport::HeldLogin,
};

/// The negotiated terms of the connection that made a session; every further channel must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) dialect: Dialect,
    pub(crate) client_guid: Guid,
    pub(crate) cipher: Option<Cipher>,
}

/// A session on a connection ([MS-SMB2] 3.3.1.14), with the key that signs on this connection.
pub(crate) struct Channel<V: Vfs> {
    pub(crate) session: Arc<Session<V>>,
    /// Channel.SigningKey; `None` for guest and anonymous sessions, which cannot sign.
    pub(crate) signing: Option<Arc<SigningKey>>,
}

/// Whether a session lives, and on which connections.
struct Standing {
    /// Logged off or lost: nothing finds it any more.
    ended: bool,
    /// Session.ChannelList, in the order in which they were added; the first is Session.Connection. The login of each
    /// ends with the session, and there is none in a session that only lists shares.
    channels: Vec<(ConnectionId, Option<HeldLogin>)>,
    /// Requests that continue although their channel is lost.
    adopted: Vec<Arc<Ender>>,
}

pub(crate) struct Session<V: Vfs> {
    pub(crate) id: SessionId,
    pub(crate) terms: Terms,
    /// Session.SigningKey: signs the binding of further channels; `None` where the login gave no key.
    pub(crate) signing: Option<Arc<SigningKey>>,
    standing: Mutex<Standing>,
    /// The identity for which it was established; re-authentication cannot give it to another user.
    pub(crate) established: Arc<Token>,
    token: RwLock<Arc<Token>>,
    /// Session.SigningRequired.
    pub(crate) signing_required: bool,
    /// Session.EncryptData.
    pub(crate) encrypt_data: bool,
    /// The keys that seal its messages, if it has any.
    pub(crate) sealing: Option<Sealing>,
    tables: Mutex<Tables<V>>,
}

pub(crate) struct Tables<V: Vfs> {
    pub(crate) trees: BTreeMap<TreeId, Arc<TreeConnect<V>>>,
    pub(crate) opens: BTreeMap<u64, Arc<Open<V>>>,
    next_tree: u32,
}

impl<V: Vfs> Tables<V> {
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

impl<V: Vfs> Session<V> {
    /// A session on its first channel, without keys. A session that only lists shares has no `login`.
    pub(crate) fn new(
        id: SessionId,
        connection: ConnectionId,
        login: Option<HeldLogin>,
        terms: Terms,
        token: Token,
    ) -> Self {
        let token = Arc::new(token);
        Self {
            id,
            terms,
            signing: None,
            standing: Mutex::new(Standing {
                ended: false,
                channels: vec![(connection, login)],
                adopted: Vec::new(),
            }),
            established: Arc::clone(&token),
            token: RwLock::new(token),
            signing_required: false,
            encrypt_data: false,
            sealing: None,
            tables: Mutex::new(Tables {
                trees: BTreeMap::new(),
                opens: BTreeMap::new(),
                next_tree: 1,
            }),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.standing.lock().ended
    }

    pub(crate) fn check(&self) -> Result<(), Status> {
        Status::USER_SESSION_DELETED.when(self.has_ended())
    }

    /// Ends the session; returns true for exactly one caller, which must close its opens.
    pub(crate) fn end(&self) -> bool {
        let mut standing = self.standing.lock();
        let adopted = std::mem::take(&mut standing.adopted);
        let before = std::mem::replace(&mut standing.ended, true);
        for (_, login) in &mut standing.channels {
            *login = None;
        }
        drop(standing);
        for ender in adopted {
            ender.end(EndReason::Gone);
        }
        !before
    }

    /// Takes over a waiting request whose connection is lost, because the client can ask for the result on another
    /// channel: the request continues until the session ends. Returns false if there is no other channel, or
    /// [`ADOPTED_PER_SESSION_MAX`] is reached.
    pub(crate) fn adopt(&self, lost: ConnectionId, ender: &Arc<Ender>) -> bool {
        let mut standing = self.standing.lock();
        standing.adopted.retain(|ender| !ender.is_over());
        let others = standing
            .channels
            .iter()
            .any(|(channel, _)| *channel != lost);
        let adopted = !standing.ended && others && standing.adopted.len() < ADOPTED_PER_SESSION_MAX;
        if adopted {
            standing.adopted.push(Arc::clone(ender));
        }
        adopted
    }

    /// Adds a connection as a channel. A session that has ended, or has just lost its last channel, gets no more.
    ///
    /// # Errors
    /// `USER_SESSION_DELETED`, `REQUEST_NOT_ACCEPTED` if it is a channel already, `INSUFFICIENT_RESOURCES` with
    /// [`CHANNELS_PER_SESSION_MAX`].
    pub(crate) fn add_channel(
        &self,
        connection: ConnectionId,
        login: HeldLogin,
    ) -> Result<(), Status> {
        let mut standing = self.standing.lock();
        if standing.ended || standing.channels.is_empty() {
            return Err(Status::USER_SESSION_DELETED);
        }
        let is_one = standing
            .channels
            .iter()
            .any(|(channel, _)| *channel == connection);
        Status::REQUEST_NOT_ACCEPTED.when(is_one)?;
        Status::INSUFFICIENT_RESOURCES.when(standing.channels.len() >= CHANNELS_PER_SESSION_MAX)?;
        standing.channels.push((connection, Some(login)));
        Ok(())
    }

    /// Removes a lost connection ([MS-SMB2] 3.3.7.1). Returns true if it was the last channel, so that the session must
    /// be ended.
    pub(crate) fn remove_channel(&self, connection: ConnectionId) -> bool {
        let mut standing = self.standing.lock();
        let before = standing.channels.len();
        standing
            .channels
            .retain(|(channel, _)| *channel != connection);
        before > 0 && standing.channels.is_empty()
    }

    /// The connections of the session, the oldest first.
    pub(crate) fn channels(&self) -> Vec<ConnectionId> {
        let standing = self.standing.lock();
        standing
            .channels
            .iter()
            .map(|(channel, _)| *channel)
            .collect()
    }

    pub(crate) fn token(&self) -> Arc<Token> {
        Arc::clone(&self.token.read())
    }

    /// Replaces the whole identity after a re-authentication.
    pub(crate) fn set_token(&self, token: Token) {
        *self.token.write() = Arc::new(token);
    }

    /// Replaces the identity of its user; keeps it if the session has turned anonymous.
    pub(crate) fn renew(&self, user: Token) {
        let mut token = self.token.write();
        if token.user_sid == user.user_sid && **token != user {
            *token = Arc::new(user);
        }
    }

    /// The keys that seal its messages, if it has any.
    pub(crate) fn seal(&self) -> Option<Seal<'_>> {
        let session = self.id;
        let sealing = self.sealing.as_ref();
        sealing.map(|keys| Seal { session, keys })
    }

    /// Whether it can only list shares: it is anonymous, and no share allows guests.
    pub(crate) fn lists_only(&self, server: &Server<V>) -> bool {
        self.established.anonymous && !server.welcomes_guests()
    }

    /// # Errors
    /// `USER_SESSION_DELETED` and `NETWORK_NAME_DELETED` if the session or the tree connect has ended.
    pub(crate) fn check_tree(&self, tables: &Tables<V>, tree: TreeId) -> Result<(), Status> {
        self.check()?;
        Status::NETWORK_NAME_DELETED.when(!tables.trees.contains_key(&tree))
    }

    /// Enters an open.
    pub(crate) fn insert(&self, open: Arc<Open<V>>) -> Result<(), Status> {
        let mut tables = self.tables();
        self.check_tree(&tables, open.tree.id)?;
        // An open that another instance of its application is closing is never found: its close may have taken it out
        // of the tables already.
        if !open.is_closing() {
            tables.opens.insert(open.file_id.volatile, open);
        }
        Ok(())
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables<V>> {
        self.tables.lock()
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
    /// The share admits only some addresses, so the address of every channel is checked.
    pub(crate) limits_hosts: bool,
    /// The identity under which it acts, if not that of the session's user.
    pub(crate) acting: Acting,
    /// The requests that wait on no open of it: CREATEs.
    pub(crate) parked: ParkedRequests,
    /// Its share of the server's memory, if it is charged.
    pub(crate) _memory: Option<Held>,
}

impl<V: Vfs> TreeConnect<V> {
    /// A tree connect to a share, with all rights and without an id.
    pub(crate) fn of(share: Arc<Share<V>>) -> Self {
        Self {
            id: TreeId::default(),
            maximal_access: AccessMask::FILE_ALL_ACCESS,
            flags: ShareFlags::empty(),
            encrypted: share.config.encryption_required,
            limits_hosts: share.config.hosts.limits(),
            share: Some(share),
            acting: Acting::default(),
            parked: ParkedRequests::default(),
            _memory: None,
        }
    }

    /// The token of the session's user on this tree.
    pub(crate) fn token(&self, server: &Server<V>, session: &Session<V>) -> Arc<Token> {
        let token = session.token();
        let share = self.share.as_ref();
        let ids = share.and_then(|share| share.config.act_as);
        let as_guest = token.anonymous && share.is_some_and(|share| share.config.guest);
        if ids.is_none() && !as_guest {
            return token;
        }
        self.acting.token(token, |token| {
            let config = server.config();
            let guest = as_guest.then(|| Token::guest(&config));
            let token = guest.as_ref().unwrap_or(token);
            ids.map_or_else(|| token.clone(), |ids| token.acting_as(&config, ids))
        })
    }

    /// Whether a request may come from this address, and encrypted or not.
    pub(crate) fn admits(&self, peer: IpAddr, encrypted: bool) -> bool {
        let share = self.share.as_ref();
        // A further channel of the session may come from elsewhere than its TREE_CONNECT.
        let here = !self.limits_hosts || share.is_none_or(|share| share.config.hosts.admits(peer));
        here && (encrypted || !self.encrypted)
    }

    /// The share's number; 0 for IPC$.
    pub(crate) fn share_id(&self) -> u32 {
        self.share.as_ref().map_or(0, |share| share.id)
    }

    /// The share's name as shown.
    pub(crate) fn name(&self) -> &str {
        self.share
            .as_ref()
            .map_or("IPC$", |share| share.config.name.as_str())
    }
}

#[cfg(test)]
impl<V: Vfs> Session<V> {
    /// A session of SMB 3.1.1.
    pub(crate) fn plain(token: Token) -> Self {
        let terms = Terms {
            dialect: Dialect::SMB_3_1_1,
            client_guid: Guid::default(),
            cipher: None,
        };
        Self::new(SessionId(1), ConnectionId(1), None, terms, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::ServerLimits,
        restore::world::{Back, World},
    };

    fn session(world: &World) -> Session<Back> {
        Session::plain(Token::guest(&world.server.config()))
    }

    #[test]
    fn an_open_that_is_being_closed_is_not_entered() {
        let world = World::new(false, ServerLimits::default());
        world.changes_seen(true);
        let _back = world.bring_back(&[world.record(10)]);
        let open = world.server.durables.find(10).unwrap();
        let session = session(&world);
        let tree = Arc::clone(&open.tree);
        session.tables().trees.insert(tree.id, tree);
        let _mine = open.begin_close();
        assert_eq!(session.insert(open), Ok(()));
        assert!(session.tables().opens.is_empty());
    }

    #[test]
    fn a_login_ends_with_its_channel_or_its_session() {
        let world = World::new(false, ServerLimits::default());
        let (session, counted) = (session(&world), Arc::new(()));
        let add = |id| session.add_channel(ConnectionId(id), Box::new(Arc::clone(&counted)));
        let logins = || Arc::strong_count(&counted) - 1;
        assert_eq!((add(2), add(3), logins()), (Ok(()), Ok(()), 2));
        assert!(add(3).is_err());
        assert_eq!(logins(), 2);
        assert!(!session.remove_channel(ConnectionId(2)));
        assert_eq!(logins(), 1);
        assert!(session.end());
        assert_eq!(logins(), 0);
    }

    #[test]
    fn a_tree_connect_ends_before_its_session_or_with_it() {
        let world = World::new(false, ServerLimits::default());
        let session = session(&world);
        let check = || session.check_tree(&session.tables(), TreeId(1));
        assert_eq!(check(), Err(Status::NETWORK_NAME_DELETED));
        assert!(session.end());
        assert_eq!(check(), Err(Status::USER_SESSION_DELETED));
    }
}
