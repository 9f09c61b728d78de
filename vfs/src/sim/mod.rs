//! A simulated disk in memory with the semantics of Linux, a live and a durable image, and faults.
//!
//! The POSIX back end cannot distinguish it from a real one: inodes, links, permissions, sparse files, extended
//! attributes with ext4's space limit, names that outlive an unlink. In addition, [`SimDisk::cut`] gives the disk
//! as a power loss would leave it, [`SimDisk::crash_process`] as the server's death would, and [`SimDisk::inject`]
//! plants failures.
//!
//! It is deterministic, without clock, thread or hashing: the same calls give the same results. An operation takes
//! place completely at the moment after its hook's future (if any) has completed.
//!
//! POSIX ACLs, quotas, last-access times of reads and `..` are not simulated.

mod data;
mod deceit;
mod effects;
mod faults;
mod image;
mod meta;
mod names;
mod operations;
mod rng;
mod state;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

pub use data::FILE_MAX;
pub use deceit::Deceit;
pub use effects::{Cut, Profile};
pub use faults::{
    FAULTS_MAX, Fault, FaultAction, SimHook, SimOp, SimYield, SyncKind, SyncObserver, SyncSeen,
};
pub use image::BLOCK;
pub use rng::SimRng;

use crate::{
    Identity, IoAccess,
    disk::{DiskResult, InodeLocks},
    env::Clock,
    lock,
};
use effects::Scope;
use image::ROOT;
use state::{OpenName, State, err, for_something};

#[derive(Debug, Clone)]
pub struct SimOptions {
    /// File-system number in every [`crate::FileKey`].
    pub fs: u64,
    /// Size in blocks of [`BLOCK`] bytes; every inode takes one besides its data.
    pub capacity_blocks: u64,
    /// Space for the extended attributes of one inode in bytes (ext4 without `ea_inode`: about
    /// 4,000).
    pub xattr_space: usize,
    pub clones: bool,
    /// It looks like NFS, and its listings do not say which names are links.
    pub nfs: bool,
    pub read_only: bool,
    /// The changes that a power loss may take. [`Profile::Untracked`] for a plain memory share.
    pub profile: Profile,
    /// The seed of random choices within faults.
    pub seed: u64,
    /// Time of changes; without one, a counter of milliseconds from September 2020 on.
    pub clock: Option<Clock>,
    pub root_owner: (u32, u32),
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// `fs.protected_hardlinks`, as distributions have it.
    pub protected_hardlinks: bool,
    /// User and group of [`Identity::Service`].
    pub service: (u32, u32),
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            fs: 0x5157,
            capacity_blocks: 1 << 18, // 1 GiB
            xattr_space: 4000,
            clones: false,
            nfs: false,
            read_only: false,
            profile: Profile::PosixMin,
            seed: 0,
            clock: None,
            root_owner: (0, 0),
            root_mode: 0o755,
            protected_hardlinks: true,
            service: (0, 0),
        }
    }
}

struct Shared {
    state: Mutex<State>,
    hook: Mutex<Option<SimHook>>,
    observer: Mutex<Option<SyncObserver>>,
    /// The locks of this disk only; another simulated disk, perhaps in another thread, shares none of its inodes.
    inode_locks: Arc<InodeLocks>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Reports the result of a sync of an inode to the observer.
    fn synced<T>(&self, ino: u64, kind: SyncKind, result: &DiskResult<T>) {
        let observer = lock(&self.observer).clone();
        if let Some(observer) = observer {
            observer(SyncSeen {
                ino,
                kind,
                error: result.as_ref().err().map(|errno| errno.0),
            });
        }
    }

    /// `fsync` or `fdatasync`.
    async fn sync(&self, fd: &SimFd, scope: Scope) -> DiskResult<()> {
        let ino = fd.usable(IoAccess::default())?;
        self.pause(SimOp::Sync).await;
        let synced = self.lock().sync_as_deceived(fd.0.serial, ino, scope);
        let kind = match scope {
            Scope::All => SyncKind::All,
            _ => SyncKind::Data,
        };
        // A success is reported now, because it covers the present effects; a failure is reported when the call
        // returns.
        let seen = synced.real.as_ref();
        if let Some(real) = seen.filter(|real| real.is_ok()) {
            self.synced(ino, kind, real);
        }
        self.pause(SimOp::Answer).await;
        if let Some(real) = seen.filter(|real| real.is_err()) {
            self.synced(ino, kind, real);
        }
        synced.reported
    }

    async fn pause(&self, op: SimOp) {
        let hook = lock(&self.hook).clone();
        if let Some(wait) = hook.and_then(|hook| hook(op)) {
            wait.await;
        }
    }

    /// Locks the state for an operation.
    async fn begin(&self, op: SimOp) -> MutexGuard<'_, State> {
        self.pause(op).await;
        self.lock()
    }

    /// [`Self::begin`], unless a planted fault hits the operation.
    async fn attempt(&self, op: SimOp) -> DiskResult<MutexGuard<'_, State>> {
        let mut state = self.begin(op).await;
        state.fault(op)?;
        Ok(state)
    }

    /// Carries out an operation whose caller knows the result only after [`SimOp::Answer`].
    async fn answered<T>(&self, op: SimOp, call: impl FnOnce(&mut State) -> T) -> T {
        let result = call(&mut *self.begin(op).await);
        self.pause(SimOp::Answer).await;
        result
    }
}

struct Handle {
    shared: Arc<Shared>,
    serial: u64,
    ino: u64,
    /// `None` for `O_PATH`.
    io: Option<IoAccess>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().release(self.serial);
    }
}

#[derive(Clone)]
pub struct SimFd(Arc<Handle>);

impl fmt::Debug for SimFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFd({})", self.0.ino)
    }
}

impl SimFd {
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// The inode, if the descriptor is open for these kinds of I/O.
    fn usable(&self, wanted: IoAccess) -> DiskResult<u64> {
        match self.0.io {
            Some(io) if (io.read || !wanted.read) && (io.write || !wanted.write) => Ok(self.0.ino),
            _ => err(libc::EBADF),
        }
    }
}

/// A simulated disk. Cheap to clone: clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
    root: SimFd,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDisk")
    }
}

impl SimDisk {
    /// An empty disk: a root directory only.
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        Self::with_state(State::new(options))
    }

    fn with_state(state: State) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            hook: Mutex::new(None),
            observer: Mutex::new(None),
            inode_locks: Arc::default(),
        });
        Self::with_root(shared, ROOT)
    }

    fn with_root(shared: Arc<Shared>, ino: u64) -> Self {
        let serial = shared.lock().hold(ino, None);
        let root = SimFd(Arc::new(Handle {
            shared: Arc::clone(&shared),
            serial,
            ino,
            io: Some(IoAccess::READ),
        }));
        Self { shared, root }
    }

    /// The same disk, of which only the directory `ino` and what is below it is served.
    #[must_use]
    pub fn below(&self, ino: u64) -> Self {
        Self::with_root(Arc::clone(&self.shared), ino)
    }

    /// The disk as a power loss at this moment leaves it, checked and mounted again. This disk continues as if nothing
    /// had happened, so that one run can be cut many times.
    #[must_use]
    pub fn cut(&self, cut: Cut) -> Self {
        let state = self.shared.lock();
        let image = match state.durable.profile {
            Profile::Untracked => {
                let mut image = state.live.clone();
                image.check();
                image
            }
            _ => {
                let mut image = state.durable.cut(cut);
                if cut == Cut::Everything {
                    state.add_times(&mut image);
                }
                image
            }
        };
        let next = state.after_cut(image);
        drop(state);
        Self::with_state(next)
    }

    /// The disk as the death of the server process leaves it: everything written still exists, nothing more is durable
    /// than before, and unlinked inodes are gone.
    #[must_use]
    pub fn crash_process(&self) -> Self {
        let next = self.shared.lock().after_crash();
        Self::with_state(next)
    }

    /// Plants a fault. False if there are [`FAULTS_MAX`] already.
    pub fn inject(&self, fault: Fault) -> bool {
        self.shared.lock().faults.add(fault)
    }

    /// Removes the planted faults that have not happened yet.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Simulates that the kernel fails to write back the inode that has waited longest: its blocks are lost by chance,
    /// and every descriptor open now gets `errno` once at its next sync. Returns the inode number, `None` if nothing
    /// waited.
    pub fn fail_write_back(&self, errno: i32) -> Option<u64> {
        let mut state = self.shared.lock();
        let ino = state.durable.first_dirty()?;
        state.lose(ino, errno);
        Some(ino)
    }

    /// As [`SimDisk::fail_write_back`], but another program on the host, which had the inode open before, syncs it and
    /// gets the error first: descriptors opened from now on do not get it.
    pub fn fail_write_back_reported_elsewhere(&self, errno: i32) -> Option<u64> {
        let ino = self.fail_write_back(errno)?;
        self.shared.lock().reported_elsewhere(ino);
        Some(ino)
    }

    /// From now on the disk reports syncs wrongly in this way; with `None` it is honest again.
    pub fn deceive(&self, deceit: Option<Deceit>) {
        self.shared.lock().deceit = deceit;
    }

    /// `syncfs`: everything is durable.
    pub fn sync_all(&self) {
        self.shared.lock().sync_all();
    }

    /// Makes the disk read-only or writable, as the kernel does after an error.
    pub fn set_read_only(&self, read_only: bool) {
        self.shared.lock().options.read_only = read_only;
    }

    pub fn observe_syncs(&self, observer: Option<SyncObserver>) {
        *lock(&self.shared.observer) = observer;
    }

    /// Changes the size of the disk in blocks (so that space can run out during a run, and be free again).
    pub fn set_capacity(&self, blocks: u64) {
        self.shared.lock().options.capacity_blocks = blocks;
    }

    /// Sets or removes the hook that every operation calls first.
    pub fn set_hook(&self, hook: Option<SimHook>) {
        *lock(&self.shared.hook) = hook;
    }

    /// Operations and syncs so far (attempts included).
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.shared.lock();
        (state.operations, state.syncs)
    }

    /// The number of effects that are not durable yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.lock().durable.pending.len()
    }

    /// Makes a symbolic link, as `ln -s` on the server would.
    pub fn symlink(&self, dir: &SimFd, name: &[u8], target: &[u8]) -> DiskResult<()> {
        let mut state = self.shared.lock();
        let ino = state.create(&Identity::Service, dir.0.ino, name, libc::S_IFLNK | 0o777)?;
        state.node_mut(ino)?.target = target.into();
        if let Some(kept) = state.durable.image.get_mut(ino) {
            kept.target = target.into();
        }
        Ok(())
    }

    /// Makes a special file; `kind` is an `S_IFMT` value such as `S_IFIFO`.
    pub fn special(&self, dir: &SimFd, name: &[u8], kind: u32) -> DiskResult<()> {
        let mode = (kind & libc::S_IFMT) | 0o644;
        self.shared
            .lock()
            .create(&Identity::Service, dir.0.ino, name, mode)
            .map(drop)
    }

    /// A descriptor that was opened for `io`, or with `O_PATH`.
    fn handle(
        &self,
        state: &mut State,
        (ino, name): (u64, Option<OpenName>),
        io: Option<IoAccess>,
    ) -> SimFd {
        SimFd(Arc::new(Handle {
            shared: Arc::clone(&self.shared),
            serial: state.hold(ino, name),
            ino,
            io: io.map(for_something),
        }))
    }
}
