//! The server: the state that all connections on all workers share ([MS-SMB2] 3.3.1.5).

mod report;
mod sessions;
mod sizes;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use durability::Durability;
use smb_auth::{
    LoginGate, UserStore,
    limiter::{LimiterConfig, LoginLimiter},
};
use smb_wire::{
    dtyp::Sid,
    fsctl::NetworkInterfaceInfo,
    ids::{FileId, Guid, SessionId},
    msg::Dialect,
    status::Status,
};
use tokio::sync::{
    Notify,
    mpsc::{self, error::TrySendError},
    oneshot,
};
use vfs::{Env, Timestamp, Vfs};

use super::{
    ChangeTimes, Durables, LargeListings, LineAbout, LogThrottle, NameTurns, Open, Quota,
    QuotaPlace, Requests, Session, Shares,
    breaks::{Holders, PendingBreaks},
    ids::{ConnectionId, Ids},
};
use crate::{
    config::ServerConfig,
    failure::Failure,
    file::{Files, OpenId, Outcome, SharePath, WaiterId},
    host_watch::HostWatches,
    limits::{ADDRESS_LINES, MEMORY_FREED_PART, SHARE_LINES},
    locks::{Mutex, RwLock},
    memory::{Account, Memory, Seen},
    persistent::Persistence,
};

/// A message that asks a connection to do something.
#[derive(Debug, Clone)]
pub(crate) enum Mail {
    /// Close the connection.
    Close,
    /// Send this unsolicited message: an oplock or lease break notification.
    Notify {
        /// The session whose encryption applies; 0 for leases.
        session: SessionId,
        /// It must be encrypted even if not all messages of the session are.
        encrypted: bool,
        /// If this connection is lost, it can be sent on another one.
        elsewhere: bool,
        /// Encoded body behind a blank header.
        body: bytes::BytesMut,
    },
    /// The connection leaves its worker: nothing more is delivered there, and what follows stays in the mailbox.
    Leave,
    /// Close without sending what is queued, because others wait for its memory.
    Evict {
        /// The bytes of memory that its client could have freed.
        bytes: usize,
    },
}

/// The public facts of a live connection.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) client: Guid,
    /// The users who have logged in on it.
    pub(crate) users: BTreeSet<Sid>,
    pub(crate) since: Timestamp,
    pub(crate) mail: mpsc::Sender<Mail>,
    /// Its mailbox overflowed, so it must be closed.
    pub(crate) stuck: Arc<AtomicBool>,
    /// Its account in the server's memory budget, and when that was last checked.
    pub(crate) account: Arc<Account>,
    pub(crate) seen: Seen,
}

/// A session, and its place among those of its user. A session that is about to replace it has the place as well.
type Counted<V> = (Arc<Session<V>>, Arc<QuotaPlace>);

/// The state that all connections share.
pub struct Server<V: Vfs> {
    /// Time, randomness, tasks.
    pub env: Arc<dyn Env>,
    /// Dirty state and barriers of all shares.
    pub durability: Arc<Durability<V>>,
    pub(crate) files: Files,
    pub(crate) host_watches: HostWatches<V>,
    /// Breaks and the answers they wait for.
    pub(crate) pending_breaks: PendingBreaks,
    /// Opens that outlive their connections.
    pub(crate) durables: Durables<V>,
    /// Opens that outlive the process.
    pub(crate) persistence: Persistence,
    pub(crate) change_times: ChangeTimes,
    pub(crate) name_turns: NameTurns,
    pub(crate) large_listings: LargeListings,
    /// Wakes closes that wait for another one's removal of the name, whenever some removal has ended.
    pub(super) removals: Notify,
    /// Locked while a part of a security descriptor is merged into the stored one, and while a list of EAs is set that
    /// may have to be taken back.
    pub(crate) merges: vfs::disk::InodeLocks,
    /// When the server started.
    pub started: Timestamp,
    config: RwLock<Arc<ServerConfig>>,
    shares: RwLock<Arc<Shares<V>>>,
    users: RwLock<Arc<dyn UserStore>>,
    interfaces: RwLock<Arc<[NetworkInterfaceInfo]>>,
    limiter: Mutex<LoginLimiter>,
    sessions: Mutex<BTreeMap<SessionId, Counted<V>>>,
    /// The sessions by user.
    session_places: Arc<Quota>,
    connections: Mutex<BTreeMap<ConnectionId, Peer>>,
    pub(crate) ids: Ids,
    /// How often configuration, shares or users were replaced.
    rules_replaced: AtomicU64,
    /// How often sessions were checked after a replacement (`command::revoke`).
    pub(crate) revocations: AtomicU64,
    /// The opens by user.
    pub(crate) opens: Arc<Quota>,
    /// The memory budget of all connections and opens.
    pub memory: Arc<Memory>,
    /// The requests and refusals, by command.
    pub requests: Requests,
    /// Warnings that a share, by its number, loses acknowledged data with its host.
    pub(crate) loss_warnings: LogThrottle<u32>,
    /// Log lines about logins, refusals and broken protocols, by address.
    pub(crate) address_lines: LogThrottle<(LineAbout, IpAddr)>,
    /// Log lines about handles, by the number of their share.
    pub(crate) share_lines: LogThrottle<(LineAbout, u32)>,
    /// The requests that wait for the file engine, with their wake-ups.
    waiters: Mutex<BTreeMap<WaiterId, oneshot::Sender<Outcome>>>,
    /// The connection and session of each open whose client is connected, for break notifications.
    pub(crate) holders: Holders,
}

impl<V: Vfs> Server<V> {
    /// A server without connections.
    pub fn new(
        env: Arc<dyn Env>,
        durability: Arc<Durability<V>>,
        config: ServerConfig,
        shares: Shares<V>,
        users: Arc<dyn UserStore>,
    ) -> Arc<Self> {
        let limiter = limiter_config(&config);
        let server = Arc::new(Self {
            started: env.realtime(),
            durability,
            files: Files::default(),
            host_watches: HostWatches::default(),
            pending_breaks: PendingBreaks::default(),
            durables: Durables::default(),
            persistence: Persistence::default(),
            change_times: ChangeTimes::default(),
            name_turns: NameTurns::default(),
            large_listings: LargeListings::default(),
            removals: Notify::new(),
            merges: vfs::disk::InodeLocks::default(),
            memory: Memory::new(config.limits.buffer_memory),
            config: RwLock::new(Arc::new(config)),
            shares: RwLock::new(Arc::new(shares)),
            users: RwLock::new(users),
            interfaces: RwLock::new(Arc::new([])),
            limiter: Mutex::new(LoginLimiter::new(limiter)),
            requests: Requests::default(),
            loss_warnings: LogThrottle::new(1),
            address_lines: LogThrottle::new(ADDRESS_LINES),
            share_lines: LogThrottle::new(SHARE_LINES),
            sessions: Mutex::new(BTreeMap::new()),
            session_places: Arc::default(),
            connections: Mutex::new(BTreeMap::new()),
            // The ids are permuted by a random key, so that a client of the last run does not meet its old numbers by
            // chance. There are 2^64 of them, which never run out.
            ids: Ids::new(&*env),
            rules_replaced: AtomicU64::new(0),
            revocations: AtomicU64::new(0),
            opens: Arc::default(),
            waiters: Mutex::new(BTreeMap::new()),
            holders: Holders::default(),
            env,
        });
        server.found_same_folders(server.shares().same_folders());
        server
    }

    /// Takes note of the pairs of paths in two shares that lead to one folder.
    fn found_same_folders(&self, pairs: Vec<(SharePath, SharePath)>) {
        for (one, other) in &pairs {
            self.name_turns.join(one.share, other.share);
        }
        self.files.set_same_folders(pairs);
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }

    /// Replaces the configuration: negotiations and logins from now on use the new one. Connections keep what they
    /// negotiated, and sessions stay as they are until [`Server::revoke`]. Failed logins counted so far stay counted.
    pub fn set_config(&self, config: ServerConfig) {
        self.limiter.lock().configure(limiter_config(&config));
        self.memory.set_limit(config.limits.buffer_memory);
        *self.config.write() = Arc::new(config);
        self.rules_replaced.fetch_add(1, Ordering::SeqCst);
    }

    /// The shares in force.
    pub fn shares(&self) -> Arc<Shares<V>> {
        Arc::clone(&self.shares.read())
    }

    /// Replaces the shares, and frees the old ones unlocked; existing tree connects stay until [`Server::revoke`].
    pub fn set_shares(&self, shares: Shares<V>) {
        self.found_same_folders(shares.same_folders());
        let _old = std::mem::replace(&mut *self.shares.write(), Arc::new(shares));
        self.rules_replaced.fetch_add(1, Ordering::SeqCst);
    }

    /// Replaces the users; existing sessions keep their identity until they authenticate again, or until
    /// [`Server::revoke`].
    pub fn set_users(&self, users: Arc<dyn UserStore>) {
        *self.users.write() = users;
        self.rules_replaced.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of times that configuration, shares or users were replaced: a request that admits somebody by
    /// them reads it first, and again after the admission.
    pub(crate) fn rules_replaced(&self) -> u64 {
        self.rules_replaced.load(Ordering::SeqCst)
    }

    /// The users in force.
    pub fn users(&self) -> Arc<dyn UserStore> {
        Arc::clone(&self.users.read())
    }

    /// Replaces the server's addresses that are announced to clients of several channels; those of an interface
    /// together. Empty until this is called.
    pub fn set_interfaces(&self, interfaces: Vec<NetworkInterfaceInfo>) {
        *self.interfaces.write() = interfaces.into();
    }

    pub(crate) fn interfaces(&self) -> Arc<[NetworkInterfaceInfo]> {
        Arc::clone(&self.interfaces.read())
    }

    /// A number that was not used since the server started; it must not be shown to clients.
    pub(crate) fn fresh_id(&self) -> u64 {
        self.ids.internal()
    }

    pub(crate) fn fresh_file_id(&self) -> FileId {
        let id = self.ids.file();
        FileId {
            persistent: id,
            volatile: id,
        }
    }

    pub(crate) fn add_connection(&self, id: ConnectionId, peer: Peer) {
        self.connections.lock().insert(id, peer);
    }

    pub(crate) fn remove_connection(&self, id: ConnectionId) {
        self.connections.lock().remove(&id);
    }

    /// Closes the connections from addresses that `refused` selects, as if they were lost, and returns their number.
    pub fn disconnect(&self, refused: impl Fn(IpAddr) -> bool) -> usize {
        let refused: Vec<ConnectionId> = self
            .connections
            .lock()
            .iter()
            .filter(|(_, peer)| refused(peer.address.ip()))
            .map(|(id, _)| *id)
            .collect();
        let closed = refused.iter().filter(|id| self.post(**id, Mail::Close));
        closed.count()
    }

    /// The client addresses of those of these connections that still exist.
    pub(crate) fn addresses_of(&self, connections: &[ConnectionId]) -> Vec<IpAddr> {
        let peers = self.connections.lock();
        let known = connections.iter().filter_map(|id| peers.get(id));
        known.map(|peer| peer.address.ip()).collect()
    }

    pub(crate) fn is_connected(&self, id: ConnectionId) -> bool {
        self.connections.lock().contains_key(&id)
    }

    pub(crate) fn connection_negotiated(&self, id: ConnectionId, dialect: Dialect, client: Guid) {
        if let Some(peer) = self.connections.lock().get_mut(&id) {
            peer.dialect = Some(dialect);
            peer.client = client;
        }
    }

    /// Puts a message into a connection's mailbox. Returns false if the connection is gone or the mailbox is full. With
    /// a full mailbox the connection is closed, since a lost break would let two clients have conflicting caching.
    pub(crate) fn post(&self, to: ConnectionId, mail: Mail) -> bool {
        let sender = self.connections.lock().get(&to).map(|one| one.mail.clone());
        let Some(sender) = sender else {
            return false;
        };
        let sent = sender.try_send(mail);
        if let Err(TrySendError::Full(_)) = sent {
            self.overflowed(to);
        }
        sent.is_ok()
    }

    /// Has a connection closed whose mailbox was full.
    pub(super) fn overflowed(&self, to: ConnectionId) {
        let sender = self.connections.lock().get(&to).map(|peer| {
            peer.stuck.store(true, Ordering::Release);
            peer.mail.clone()
        });
        // The mark is seen when mail is delivered, and by now all of it may have been.
        if let Some(sender) = sender {
            let _ = sender.try_send(Mail::Close);
        }
    }

    /// Called while connections wait for memory: closes connections whose clients have freed nothing for a while,
    /// starting with those that hold most, until they held enough of the budget ([`MEMORY_FREED_PART`]).
    pub(crate) fn close_stuck(&self, now: Duration) {
        if !self.memory.is_time_to_look(now) {
            return;
        }
        let mut stuck: Vec<_> = self
            .connections
            .lock()
            .iter_mut()
            .filter_map(|(id, peer)| Some((peer.account.stuck(&mut peer.seen, now)?, *id)))
            .collect();
        stuck.sort_unstable_by_key(|(bytes, id)| (Reverse(*bytes), *id));
        let enough = self.memory.figures().limit / MEMORY_FREED_PART;
        let mut freed = 0;
        for (bytes, id) in stuck {
            if freed >= enough {
                break;
            }
            freed += bytes;
            self.post(id, Mail::Evict { bytes });
        }
    }

    /// The id for a request that is about to wait, and the receiver of its wake-up. The id is registered before the
    /// engine gets it, so that no wake-up is lost.
    pub(crate) fn waiter(&self) -> (WaiterId, oneshot::Receiver<Outcome>) {
        let id = WaiterId(self.fresh_id());
        let (sender, receiver) = oneshot::channel();
        self.waiters.lock().insert(id, sender);
        (id, receiver)
    }

    /// Removes the id of a request that does not wait any more.
    pub(crate) fn forget_waiter(&self, id: WaiterId) {
        self.waiters.lock().remove(&id);
    }

    pub(crate) fn wake(&self, id: WaiterId, outcome: Outcome) {
        let waiter = self.waiters.lock().remove(&id);
        if let Some(waiter) = waiter {
            // It may have been cancelled meanwhile; then nobody receives this.
            let _ = waiter.send(outcome);
        }
    }

    /// The open with the engine's number `open`, if its client is connected.
    pub(crate) fn open(&self, open: OpenId) -> Option<Arc<Open<V>>> {
        let holder = self.holders.get(open)?;
        let session = self.session(holder.session)?;
        let tables = session.tables();
        tables.opens.get(&holder.file_id.volatile).cloned()
    }

    /// Called when a user logs in on a connection. Returns false if the connection is gone, or the user has a login on
    /// another one of the client with another dialect; connections of 2.0.2 do not count ([MS-SMB2] 3.3.5.5.3). Another
    /// user's login does not count either: it may be that of an attacker, because everybody on the way can read the
    /// ClientGuid (docs/protocol-notes.md, "One dialect for each client").
    pub(crate) fn logged_in(&self, id: ConnectionId, user: Sid) -> bool {
        let mut connections = self.connections.lock();
        let Some(peer) = connections.get(&id) else {
            return false;
        };
        let (client, dialect) = (peer.client, peer.dialect);
        let differs = dialect >= Some(Dialect::SMB_2_1)
            && client != Guid::default()
            && connections
                .values()
                .filter(|other| other.client == client && other.users.contains(&user))
                .any(|other| other.dialect >= Some(Dialect::SMB_2_1) && other.dialect != dialect);
        if !differs && let Some(peer) = connections.get_mut(&id) {
            peer.users.insert(user);
        }
        !differs
    }

    /// Whether some share admits users without an account.
    pub(crate) fn welcomes_guests(&self) -> bool {
        self.shares().iter().any(|share| share.config.guest)
    }

    /// The connections of a client with a login, for lease breaks. The others cannot acknowledge, and a stranger could
    /// use the same ClientGuid.
    pub(crate) fn connections_of(&self, client: Guid) -> Vec<ConnectionId> {
        let connections = self.connections.lock();
        let own = connections
            .iter()
            .filter(|(_, peer)| peer.client == client && !peer.users.is_empty());
        own.map(|(id, _)| *id).collect()
    }

    /// The present path of an open, after all renames.
    pub(crate) fn path_of(&self, open: &Open<V>) -> Result<SharePath, Failure> {
        self.files
            .path_of(open.engine)
            .ok_or(Failure::Status(Status::FILE_CLOSED))
    }
}

fn limiter_config(config: &ServerConfig) -> LimiterConfig {
    let per_user = config.limits.failed_logins;
    LimiterConfig {
        per_user,
        per_address: per_user.saturating_mul(10),
        ..LimiterConfig::default()
    }
}

/// The limiter of failed logins for one peer address during one exchange.
pub(crate) struct Login<'a, V: Vfs> {
    pub(crate) server: &'a Server<V>,
    pub(crate) peer: IpAddr,
    pub(crate) now_ms: u64,
}

impl<V: Vfs> LoginGate for Login<'_, V> {
    fn admit(&self, user: &str) -> bool {
        let mut limiter = self.server.limiter.lock();
        limiter.begin(self.peer, user, self.now_ms)
    }

    fn succeeded(&self, user: &str) {
        self.server.limiter.lock().succeeded(self.peer, user);
    }
}
