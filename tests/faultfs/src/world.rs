//! The state behind the mount: the disk, what the kernel knows of it, the rules, the power.
//!
//! Node ids are never used twice: the number of the disk (each `reset` makes a new one) stands
//! above the inode number. The kernel's counts of looked-up nodes outlive a cut and a reset; the
//! descriptors behind them do not, and a node that no lookup has found since is ESTALE.
//!
//! After a cut the disk is frozen: what the power loss left is kept aside, every call fails with
//! EIO or waits, until `thaw` puts that in place.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{SystemTime, UNIX_EPOCH},
};

use vfs::{
    Disk, Identity, Timestamp,
    disk::{DiskResult, Errno, OpenHow, RawEntry, Stat},
    env::Clock,
    identity::LocalUser,
    sim::{Cut, Profile, SimDisk, SimFd, SimOptions},
};

use crate::{kind::KINDS, kind::Kind, rules::Plan};

/// The kernel's number of the root.
pub const ROOT: u64 = 1;
/// Bits of a node id that are the inode number.
const INO_BITS: u32 = 32;
/// How many of the last calls are kept for `trace`.
pub const TRACE_MAX: usize = 20_000;

/// Waits for a disk that never makes anybody wait.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("no hook is set, so the simulated disk never waits"),
    }
}

/// An inode that the kernel knows by a number.
pub struct Node {
    /// How often it was looked up and not forgotten.
    lookups: u64,
    /// Directory and name, for the paths of rules and for symbolic links.
    place: (u64, Vec<u8>),
    /// `None`: not found since the last cut, or a symbolic link.
    fd: Option<SimFd>,
}

/// An open file or directory.
#[derive(Clone)]
pub struct Handle {
    /// Its descriptor.
    pub fd: SimFd,
    /// The entries that READDIR returns.
    pub listing: Arc<Vec<RawEntry>>,
}

/// A call that waits: run with `true` to go on, `false` to fail.
pub type Parked = Box<dyn FnOnce(&mut World, bool) + Send>;

/// The whole state.
pub struct World {
    disk: SimDisk,
    number: u64,
    nodes: BTreeMap<u64, Node>,
    handles: BTreeMap<u64, Handle>,
    next_handle: u64,
    /// The rules.
    pub plan: Plan,
    /// Calls by kind.
    pub stats: [u64; KINDS.len()],
    /// The last calls, oldest first.
    pub trace: VecDeque<String>,
    /// Calls that wait for `release` or `thaw`.
    pub parked: Vec<Parked>,
    /// The disk as the power loss left it, from a cut until `thaw`.
    left: Option<SimDisk>,
    /// Whether calls wait while the power is off; otherwise they fail.
    pub hangs: bool,
}

fn options(seed: u64, profile: Profile) -> SimOptions {
    SimOptions {
        seed,
        profile,
        root_mode: 0o777,
        clock: Some(Clock::new(|| time(SystemTime::now()))),
        ..SimOptions::default()
    }
}

/// A time of the system as the disk keeps it.
#[must_use]
pub fn time(at: SystemTime) -> Timestamp {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp {
            secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp {
                    secs: -secs,
                    nanos: 0,
                },
                nanos => Timestamp {
                    secs: -secs - 1,
                    nanos: 1_000_000_000 - nanos,
                },
            }
        }
    }
}

impl World {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64, profile: Profile) -> Self {
        Self {
            disk: SimDisk::new(options(seed, profile)),
            number: 0,
            nodes: BTreeMap::new(),
            handles: BTreeMap::new(),
            next_handle: 1,
            plan: Plan::default(),
            stats: [0; KINDS.len()],
            trace: VecDeque::new(),
            parked: Vec::new(),
            left: None,
            hangs: false,
        }
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.left.is_some()
    }

    /// The power goes. False if it is off already.
    pub fn cut(&mut self, how: Cut) -> bool {
        if self.is_off() {
            return false;
        }
        self.left = Some(self.disk.cut(how));
        true
    }

    /// The power comes back: the disk is what the cut left. False if it was not off.
    pub fn thaw(&mut self) -> bool {
        let Some(left) = self.left.take() else {
            return false;
        };
        self.replace(left);
        true
    }

    /// A new, empty disk; rules, statistics and trace start anew too.
    pub fn reset(&mut self, seed: u64, profile: Profile) {
        self.left = None;
        self.number += 1;
        self.plan.clear(None);
        self.stats = [0; KINDS.len()];
        self.trace.clear();
        self.hangs = false;
        self.replace(SimDisk::new(options(seed, profile)));
    }

    fn replace(&mut self, disk: SimDisk) {
        self.release(false);
        self.handles.clear();
        for node in self.nodes.values_mut() {
            node.fd = None;
        }
        self.disk = disk;
    }

    /// Lets the calls that wait go on, or fail. How many there were.
    pub fn release(&mut self, go_on: bool) -> usize {
        let parked = std::mem::take(&mut self.parked);
        let count = parked.len();
        for call in parked {
            call(self, go_on);
        }
        count
    }

    /// Keeps a line for `trace`.
    pub fn note(&mut self, kind: Kind, paths: &[String], outcome: &str) {
        if self.trace.len() >= TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace
            .push_back(format!("{} {} {outcome}", kind.name(), paths.join(" ")));
    }

    // ---- nodes ----

    /// The number by which the kernel knows an inode.
    #[must_use]
    pub fn id(&self, ino: u64) -> u64 {
        if ino == self.disk.root().ino() {
            ROOT
        } else {
            self.number << INO_BITS | ino
        }
    }

    /// The number of the disk, as generation of its inodes.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The descriptor of a node.
    ///
    /// # Errors
    /// ESTALE when the kernel knows more than is left.
    pub fn fd(&self, id: u64) -> DiskResult<SimFd> {
        if id == ROOT {
            return Ok(self.disk.root());
        }
        let node = self.nodes.get(&id).ok_or(Errno(libc::ESTALE))?;
        node.fd.clone().ok_or(Errno(libc::ESTALE))
    }

    /// Attributes of a node.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn stat(&self, id: u64) -> DiskResult<Stat> {
        match self.fd(id) {
            Ok(fd) => now(self.disk.stat(&fd)),
            Err(stale) => {
                let (dir, name) = self.link_place(id).ok_or(stale)?;
                now(self.disk.stat_at(&dir, &name)).map_err(|_| stale)
            }
        }
    }

    /// Directory and name of a symbolic link.
    #[must_use]
    pub fn link_place(&self, id: u64) -> Option<(SimFd, Vec<u8>)> {
        let (dir, name) = &self.nodes.get(&id)?.place;
        let dir = self.fd(*dir).ok()?;
        let found = now(self.disk.stat_at(&dir, name)).ok()?;
        (self.id(found.key.ino) == id && found.mode & libc::S_IFMT == libc::S_IFLNK)
            .then(|| (dir, name.clone()))
    }

    /// Looks up the inode at a name, which the kernel then knows.
    ///
    /// # Errors
    /// Those of the disk; the kernel then knows nothing more.
    pub fn enter(&mut self, dir: u64, name: &[u8]) -> DiskResult<Stat> {
        let parent = self.fd(dir)?;
        let stat = now(self.disk.stat_at(&parent, name))?;
        let path_only = OpenHow {
            path_only: true,
            ..OpenHow::default()
        };
        let fd = match now(self
            .disk
            .open_at(&Identity::Service, &parent, name, path_only))
        {
            Err(Errno(libc::ELOOP)) => None,
            other => Some(other?),
        };
        let place = (dir, name.to_vec());
        let node = self
            .nodes
            .entry(self.id(stat.key.ino))
            .or_insert_with(|| Node {
                lookups: 0,
                place: place.clone(),
                fd: None,
            });
        node.lookups += 1;
        node.place = place;
        node.fd = fd.or(node.fd.take());
        Ok(stat)
    }

    /// A node has a new name, if the kernel knows it.
    pub fn moved(&mut self, dir: u64, name: &[u8]) {
        if let Ok(parent) = self.fd(dir)
            && let Ok(stat) = now(self.disk.stat_at(&parent, name))
            && let Some(node) = self.nodes.get_mut(&self.id(stat.key.ino))
        {
            node.place = (dir, name.to_vec());
        }
    }

    /// The kernel forgets some of its look-ups.
    pub fn forget(&mut self, id: u64, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 {
                self.nodes.remove(&id);
            }
        }
    }

    /// The path of a node, by the names under which it was last found.
    #[must_use]
    pub fn path(&self, mut id: u64) -> String {
        let mut names = Vec::new();
        while id != ROOT {
            let Some(node) = self.nodes.get(&id) else {
                names.push("?".to_owned());
                break;
            };
            names.push(String::from_utf8_lossy(&node.place.1).into_owned());
            if names.len() > 64 {
                break; // A directory moved below itself by two stale names.
            }
            id = node.place.0;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// The path of a name in a node.
    #[must_use]
    pub fn path_of(&self, dir: u64, name: &[u8]) -> String {
        let dir = self.path(dir);
        let name = String::from_utf8_lossy(name);
        if dir == "/" {
            format!("/{name}")
        } else {
            format!("{dir}/{name}")
        }
    }

    // ---- open files ----

    /// A number for a descriptor.
    pub fn keep(&mut self, fd: SimFd) -> u64 {
        let number = self.next_handle;
        self.next_handle += 1;
        let listing = Arc::default();
        self.handles.insert(number, Handle { fd, listing });
        number
    }

    /// The open file of a number.
    ///
    /// # Errors
    /// EIO when the power went since it was opened.
    pub fn handle(&mut self, number: u64) -> DiskResult<&mut Handle> {
        self.handles.get_mut(&number).ok_or(Errno(libc::EIO))
    }

    /// Closes.
    pub fn drop_handle(&mut self, number: u64) {
        self.handles.remove(&number);
    }

    /// How many files are open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.handles.len()
    }
}

/// The identity that owns a new inode.
#[must_use]
pub fn owner(uid: u32, gid: u32) -> Identity {
    if uid == 0 {
        return Identity::Service;
    }
    Identity::User(Arc::new(LocalUser {
        uid,
        gid,
        groups: Vec::new(),
    }))
}
