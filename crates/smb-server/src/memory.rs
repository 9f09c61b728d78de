//! One budget for the buffers of the whole server: received bytes, READ buffers, answers that wait for their
//! clients, many requests that wait, and the memory that opens keep (names of listings, changes to report, byte-range
//! locks, long paths, answers and handles of pipes).
//!
//! Every connection has an [`Account`]; those of one network also count together. A connection may hold at
//! most half of what is free to it (all of it after a long wait), and its network at most half of what is free to the
//! network, so that later connections always find something left. The sums are exact: never more than the limit is
//! granted, and memory comes back when its [`Held`] is dropped.
//!
//! The first [`CONNECTION_MEMORY`] bytes of each connection are not charged, so that small requests never wait. This
//! file grants and counts; `connection/flow.rs` decides which connection waits, and for how long.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use smb_auth::limiter::network;

#[cfg(doc)]
use crate::limits::CONNECTION_MEMORY;
use crate::limits::{
    MEMORY_AGAIN, MEMORY_AGAIN_MAX, MEMORY_LOOK, MEMORY_STUCK, MEMORY_STUCK_BYTES,
    MEMORY_WAITERS_STEP,
};
use crate::locks::Mutex;

/// The budget.
#[derive(Debug, Default)]
pub struct Memory {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// The most bytes used at once since the last [`Memory::take_peak`].
    peak: AtomicUsize,
    /// Connections that wait for memory now.
    waiting: AtomicUsize,
    waits: AtomicU64,
    evictions: AtomicU64,
    refusals: AtomicU64,
    /// The time of the last search for connections whose clients free nothing, in milliseconds.
    looked: AtomicU64,
    /// The memory that the connections of each network hold together, and their number.
    networks: Mutex<BTreeMap<IpAddr, (Arc<AtomicUsize>, usize)>>,
}

/// Figures for status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFigures {
    /// Most bytes that are granted.
    pub limit: usize,
    /// Bytes granted now.
    pub used: usize,
    /// Connections that wait for memory now.
    pub waiting: usize,
    /// Times that a connection had to wait.
    pub waits: u64,
    /// Connections closed because their clients freed nothing while others waited.
    pub evictions: u64,
    /// Requests refused because there was no memory for what they would keep.
    pub refusals: u64,
}

/// How much memory a connection may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Portion {
    /// Half of what is free to it.
    Half,
    /// All that is free to its network: it has waited long.
    All,
}

impl Memory {
    /// A budget of `limit` bytes, all of them free.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicUsize::new(limit),
            ..Self::default()
        })
    }

    /// Changes the limit. Memory that was granted stays granted.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// The account of a new connection from `peer`.
    pub(crate) fn account(self: &Arc<Self>, peer: IpAddr) -> Arc<Account> {
        let peer = network(peer);
        let mut networks = self.networks.lock();
        let (network, accounts) = networks.entry(peer).or_default();
        *accounts += 1;
        Arc::new(Account {
            memory: Arc::clone(self),
            network: Arc::clone(network),
            peer,
            held: AtomicUsize::new(0),
            untaken: AtomicUsize::new(0),
            moves: AtomicU64::new(0),
            waits: AtomicBool::new(false),
        })
    }

    /// The figures of this moment.
    pub fn figures(&self) -> MemoryFigures {
        MemoryFigures {
            limit: self.limit.load(Relaxed),
            used: self.used.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            waits: self.waits.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
        }
    }

    /// The most bytes used at once since the last call.
    pub fn take_peak(&self) -> usize {
        self.peak.swap(self.used.load(Relaxed), Relaxed)
    }

    /// The most bytes that one connection can ever be granted: what its network may hold where nobody else holds any.
    pub(crate) fn most_for_one(&self) -> usize {
        self.limit.load(Relaxed) / 2
    }

    /// The most that is charged for what a request needs besides its data. A request that can never have room ends its
    /// connection, and a small budget has room for little more than data.
    pub(crate) fn most_beside(&self) -> usize {
        self.most_for_one() / 2
    }

    /// The time that a waiting connection should wait before it checks again. It grows with the number of those that
    /// wait, so that they do not keep the workers busy.
    pub(crate) fn again(&self) -> Duration {
        let waiting = self.waiting.load(Relaxed) / MEMORY_WAITERS_STEP;
        let times = u32::try_from(waiting).unwrap_or(u32::MAX).saturating_add(1);
        MEMORY_AGAIN.saturating_mul(times).min(MEMORY_AGAIN_MAX)
    }

    /// Whether it is time to search again for connections whose clients free nothing; only one caller gets true.
    pub(crate) fn is_time_to_look(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let wait = u64::try_from(MEMORY_LOOK.as_millis()).unwrap_or(u64::MAX);
        let due = |last: u64| (now >= last.saturating_add(wait)).then_some(now);
        self.looked.fetch_update(Relaxed, Relaxed, due).is_ok()
    }

    pub(crate) fn evicted(&self) {
        self.evictions.fetch_add(1, Relaxed);
    }
}

/// The memory that one connection holds, with that of its opens.
#[derive(Debug)]
pub(crate) struct Account {
    memory: Arc<Memory>,
    /// The memory that it holds together with the others of its network.
    network: Arc<AtomicUsize>,
    peer: IpAddr,
    held: AtomicUsize,
    /// Bytes that only the client can free: unread answers, and a frame that is not complete.
    untaken: AtomicUsize,
    /// Counts whenever the client frees some of it.
    moves: AtomicU64,
    /// It waits for memory itself.
    waits: AtomicBool,
}

impl Account {
    /// An empty [`Held`], which can be resized.
    pub(crate) fn nothing(self: &Arc<Self>) -> Held {
        Held {
            account: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Charges `bytes` that an open keeps; `None` if there is no room.
    pub(crate) fn keep(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let mut held = self.nothing();
        let kept = held.resize(bytes, Portion::Half);
        if !kept {
            self.memory.refusals.fetch_add(1, Relaxed);
        }
        kept.then_some(held)
    }

    /// Takes `more` bytes or nothing.
    fn take(&self, more: usize, share: Portion) -> bool {
        let limit = self.memory.limit.load(Relaxed);
        // Counted first, so that two connections of one network never both take the same rest.
        let network = self.network.fetch_add(more, Relaxed);
        let held = self.held.load(Relaxed);
        let grant = |used: usize| {
            let free = limit.checked_sub(used)?;
            let of_network = (free.saturating_add(network) / 2).min(limit / 2);
            let free = of_network.checked_sub(network)?.min(free);
            let most = match share {
                Portion::Half => free.saturating_add(held) / 2,
                Portion::All => free.saturating_add(held),
            };
            (held.checked_add(more)? <= most).then(|| used + more)
        };
        match self.memory.used.fetch_update(Relaxed, Relaxed, grant) {
            Ok(before) => {
                self.held.fetch_add(more, Relaxed);
                if before + more > self.memory.peak.load(Relaxed) {
                    self.memory.peak.fetch_max(before + more, Relaxed);
                }
                true
            }
            Err(_) => {
                self.network.fetch_sub(more, Relaxed);
                false
            }
        }
    }

    fn give_back(&self, less: usize) {
        self.held.fetch_sub(less, Relaxed);
        self.memory.used.fetch_sub(less, Relaxed);
        self.network.fetch_sub(less, Relaxed);
    }

    /// Sets how many bytes the client could free.
    pub(crate) fn set_untaken(&self, bytes: usize) {
        self.untaken.store(bytes, Relaxed);
    }

    /// Counts that the client has freed some. Only the connection's own worker calls this, so no atomic
    /// read-modify-write is needed.
    pub(crate) fn moved(&self) {
        let moves = self.moves.load(Relaxed);
        self.moves.store(moves.wrapping_add(1), Relaxed);
    }

    /// Counts the connection among those that wait, until this is dropped.
    pub(crate) fn wait(self: &Arc<Self>) -> WaitsForMemory {
        self.memory.waiting.fetch_add(1, Relaxed);
        self.memory.waits.fetch_add(1, Relaxed);
        self.waits.store(true, Relaxed);
        WaitsForMemory(Arc::clone(self))
    }

    /// If others wait while the client of this connection frees nothing of what it could free, returns how many bytes
    /// that are. `seen` holds the state of the last check.
    pub(crate) fn stuck(&self, seen: &mut Seen, now: Duration) -> Option<usize> {
        let (untaken, moves) = (self.untaken.load(Relaxed), self.moves.load(Relaxed));
        let others = self.memory.waiting.load(Relaxed) > usize::from(self.waits.load(Relaxed));
        let looked_lately = now.saturating_sub(seen.looked) < MEMORY_STUCK;
        seen.looked = now;
        let same = seen.moves == moves && seen.much && looked_lately;
        seen.moves = moves;
        seen.much = untaken >= MEMORY_STUCK_BYTES;
        if !same || !seen.much {
            seen.since = now;
            return None;
        }
        let long = now.saturating_sub(seen.since) >= MEMORY_STUCK;
        (long && others).then_some(untaken)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut networks = self.memory.networks.lock();
        if let Some((_, accounts)) = networks.get_mut(&self.peer) {
            *accounts -= 1;
            if *accounts == 0 {
                networks.remove(&self.peer);
            }
        }
    }
}

/// The facts about a connection at its last check.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    looked: Duration,
    since: Duration,
    moves: u64,
    much: bool,
}

/// A connection that waits; see [`Account::wait`].
#[derive(Debug)]
pub(crate) struct WaitsForMemory(Arc<Account>);

impl Drop for WaitsForMemory {
    fn drop(&mut self) {
        self.0.waits.store(false, Relaxed);
        self.0.memory.waiting.fetch_sub(1, Relaxed);
    }
}

/// Bytes granted to an account; dropping them gives them back, on any thread.
#[derive(Debug)]
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds `bytes` from now on. Returns false, and changes nothing, if there is no room for more.
    pub(crate) fn resize(&mut self, bytes: usize, share: Portion) -> bool {
        if bytes > self.bytes {
            if !self.account.take(bytes - self.bytes, share) {
                return false;
            }
        } else if bytes < self.bytes {
            self.account.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
