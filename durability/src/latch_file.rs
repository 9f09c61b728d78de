//! Latches in one file, `latches`, in the state folder, over any [`Disk`].
//!
//! The file is replaced whole: written beside it (`latches.new`), synced, renamed over it, the
//! folder synced. A write that failed leaves the old file and is tried again with a new one; no
//! sync is ever repeated on the same file. Requests that come during a write share the next one,
//! which begins no sooner than the last one took, so that many failures are few writes. What
//! would make the file larger than [`WRITE_MAX`] is said in fewer words, which cover more.
//!
//! The format: `latch_file/format.rs`.
//!
//! Invariants: what the file says is unproven is never less than what is; an entry that cannot be
//! read is named in [`Opened::refused`], its file kept aside (`latches.refused`), and since any
//! inode may be meant, counts as an overflow: every FLUSH fails until an administrator clears it;
//! a head that cannot be read refuses the start. Does not own: when a latch begins or ends.

mod format;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use vfs::{
    Disk, Env, FileKey, Identity, VfsError,
    disk::{DiskResult, Errno, OpenHow},
    sys::FsIdentity,
};

use format::decode;

use crate::{
    disk_file::{put, read_file},
    latch_store::{LatchRecord, LatchStore, StoreTask},
    share::lock,
};

const FILE: &[u8] = b"latches";
const NEW: &[u8] = b"latches.new";
const REFUSED: &[u8] = b"latches.refused";
/// Largest file read.
const FILE_MAX: u64 = 256 << 20;
/// Most bytes of entries written.
const WRITE_MAX: usize = 64 << 20;
/// Longest pause between two writes.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Most file systems known at once.
const FILE_SYSTEMS_MAX: usize = 4096;
/// Pause before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// From so many on, those who no longer wait are looked for.
const WAITERS_SWEPT: usize = 1024;

/// One file system of shares: its number now and its name for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFs {
    /// Device number now, as in [`FileKey::fs`].
    pub dev: u64,
    /// Name over reboots.
    pub identity: FsIdentity,
    /// The root of a share on it; tells apart what has no other name.
    pub root: String,
}

/// Why the store cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatchFileError {
    /// The disk.
    Disk(Errno),
    /// It is no file of latches, or its head is damaged.
    NotOurs,
    /// It was written by a version of the server that this one does not know.
    Version,
}

impl fmt::Display for LatchFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno.0)),
            Self::NotOurs => f.write_str("no file of latches, or damaged at its head"),
            Self::Version => f.write_str("written by another version of the server"),
        }
    }
}

impl std::error::Error for LatchFileError {}

impl From<Errno> for LatchFileError {
    fn from(errno: Errno) -> Self {
        Self::Disk(errno)
    }
}

/// An entry that could not be read: some inode is not latched that should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEntry {
    /// Which one, from 0.
    pub number: u32,
    /// What is wrong with it.
    pub why: &'static str,
    /// The path it names, if that can be made out; not to be relied on.
    pub path: Option<String>,
}

/// A store, and what was wrong with its file.
pub struct Opened<D: Disk> {
    /// The store.
    pub store: Arc<LatchFile<D>>,
    /// Entries that were not taken. With any, the store [has an overflow](LatchStore::has_overflow).
    pub refused: Vec<RefusedEntry>,
}

/// What a file of latches says, without a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredLatches {
    /// The latches; their `fs` is 0.
    pub records: Vec<LatchRecord>,
    /// More inodes were latched than are named: every FLUSH fails.
    pub overflow: bool,
    /// Entries that cannot be read.
    pub refused: Vec<RefusedEntry>,
}

/// Reads a file of latches.
///
/// # Errors
/// Its head is not what this version writes.
pub fn read_latches(bytes: &[u8]) -> Result<StoredLatches, LatchFileError> {
    let read = decode(bytes)?;
    Ok(StoredLatches {
        records: read.all.into_iter().map(|one| one.record).collect(),
        overflow: read.overflow,
        refused: read.refused,
    })
}

/// An entry with the names of its file systems instead of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dormant {
    record: LatchRecord,
    fs: Option<(FsIdentity, String)>,
    names: Vec<Option<(FsIdentity, String)>>,
}

#[derive(Default)]
struct State {
    known: Vec<KnownFs>,
    live: BTreeMap<FileKey, LatchRecord>,
    dormant: Vec<Dormant>,
    overflow: bool,
    /// For the end of the next write.
    waiters: Vec<oneshot::Sender<Result<(), VfsError>>>,
    /// For the end of the one under way.
    joined: Vec<oneshot::Sender<Result<(), VfsError>>>,
    /// Something changed since the last write began.
    dirty: bool,
    running: bool,
    retrying: bool,
    /// When the last write ended and the next may begin, monotonic.
    rest_until: Duration,
}

/// Latches in a file. See the module head.
pub struct LatchFile<D: Disk> {
    disk: D,
    env: Arc<dyn Env>,
    state: Mutex<State>,
    healthy: AtomicBool,
    me: std::sync::Weak<Self>,
}

impl<D: Disk> LatchFile<D> {
    /// Reads the file in the folder that `disk` starts at; there may be none.
    ///
    /// # Errors
    /// Then nobody may serve: latches could be forgotten. Moving the file away is the way out.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        known: Vec<KnownFs>,
    ) -> Result<Opened<D>, LatchFileError> {
        let mut state = State {
            known,
            ..State::default()
        };
        let mut refused = Vec::new();
        let bytes = read_file(&disk, FILE, FILE_MAX).await?;
        if let Some(bytes) = &bytes {
            let read = decode(bytes)?;
            refused = read.refused;
            state.overflow = read.overflow || !refused.is_empty();
            for one in read.all {
                state.admit(one);
            }
        }
        if let Some(bytes) = bytes.filter(|_| !refused.is_empty()) {
            // What could not be read is lost with the next write: keep it for whoever looks.
            write_file(&disk, REFUSED, bytes).await?;
        }
        let store = Arc::new_cyclic(|me| Self {
            disk,
            env,
            state: Mutex::new(state),
            healthy: AtomicBool::new(true),
            me: me.clone(),
        });
        Ok(Opened { store, refused })
    }

    /// A file system came (a share was added, or the daemon found where an inode is). Answers the
    /// latches that wake with it: restore them before anybody can reach the inodes.
    pub fn learn(&self, fs: KnownFs) -> Vec<LatchRecord> {
        let mut state = lock(&self.state);
        state.known.retain(|known| known.dev != fs.dev);
        if state.known.len() < FILE_SYSTEMS_MAX {
            state.known.push(fs);
        }
        let before: Vec<FileKey> = state.live.keys().copied().collect();
        for one in std::mem::take(&mut state.dormant) {
            state.admit(one);
        }
        let woken = state.live.iter();
        let woken = woken.filter(|(key, _)| before.binary_search(key).is_err());
        woken.map(|(_, record)| record.clone()).collect()
    }

    /// The dormant latch of this record is of this inode: found by its path. Answers the record
    /// to restore.
    pub fn found(&self, dormant: &LatchRecord, key: FileKey) -> Option<LatchRecord> {
        let mut state = lock(&self.state);
        let place = state
            .dormant
            .iter()
            .position(|one| one.record == *dormant)?;
        let mut record = state.dormant.swap_remove(place).record;
        record.key = key;
        state.live.insert(key, record.clone());
        Some(record)
    }

    /// Asks for a write of the state as it is now.
    fn ask(&self, change: impl FnOnce(&mut State)) -> StoreTask {
        let (tell, told) = oneshot::channel();
        let run = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.dirty = true;
            state.forget_the_gone();
            state.waiters.push(tell);
            !std::mem::replace(&mut state.running, true)
        };
        if run {
            self.start();
        }
        Box::pin(async move { told.await.unwrap_or(Err(VfsError::Io)) })
    }

    fn start(&self) {
        if let Some(me) = self.me.upgrade() {
            self.env.spawn(Box::pin(async move {
                let driver = Driver(&me);
                me.drive().await;
                std::mem::forget(driver);
            }));
        }
    }

    async fn drive(&self) {
        let mut told = Ok(());
        loop {
            let (rest, joined) = {
                let mut state = lock(&self.state);
                let rest = state.rest_until.saturating_sub(self.env.monotonic());
                let rest = if state.dirty { rest } else { Duration::ZERO };
                (rest, std::mem::take(&mut state.joined))
            };
            tell_all(joined, told);
            if !rest.is_zero() {
                self.env.sleep(rest).await;
            }
            let begun = self.env.monotonic();
            let (next, joined) = {
                let mut state = lock(&self.state);
                let dirty = std::mem::replace(&mut state.dirty, false);
                state.running = dirty;
                let next =
                    dirty.then(|| (state.encode(WRITE_MAX), std::mem::take(&mut state.waiters)));
                (next, std::mem::take(&mut state.joined))
            };
            tell_all(joined, told);
            let Some((bytes, waiters)) = next else {
                return;
            };
            let written = write_file(&self.disk, FILE, bytes).await;
            let ended = self.env.monotonic();
            let took = ended.saturating_sub(begun);
            lock(&self.state).rest_until = ended + took.min(PAUSE_MAX);
            self.note(written);
            told = written.map_err(|_| VfsError::Io);
            tell_all(waiters, told);
        }
    }

    fn note(&self, written: DiskResult<()>) {
        match written {
            Ok(()) => {
                if !self.healthy.swap(true, SeqCst) {
                    tracing::warn!("latches can be stored again and are");
                }
            }
            Err(errno) => {
                self.healthy.store(false, SeqCst);
                tracing::error!(
                    error = %std::io::Error::from_raw_os_error(errno.0),
                    "the latch of a failed sync cannot be stored: it holds while this process \
                     lives and is forgotten by a restart"
                );
                self.retry_later();
            }
        }
    }

    fn retry_later(&self) {
        if std::mem::replace(&mut lock(&self.state).retrying, true) {
            return;
        }
        if let Some(me) = self.me.upgrade() {
            self.env.spawn(Box::pin(async move {
                me.env.sleep(RETRY).await;
                lock(&me.state).retrying = false;
                // It reports itself.
                let _ = me.ask(|_| ()).await;
            }));
        }
    }
}

fn tell_all(waiters: Vec<oneshot::Sender<Result<(), VfsError>>>, what: Result<(), VfsError>) {
    for waiter in waiters {
        // Who went away does not care.
        let _ = waiter.send(what);
    }
}

/// The worker of a driver is gone: the next request starts another one.
struct Driver<'a, D: Disk>(&'a LatchFile<D>);

impl<D: Disk> Drop for Driver<'_, D> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.running = false;
        state.dirty = true;
        state.waiters.clear();
        state.joined.clear();
    }
}

impl<D: Disk> LatchStore for LatchFile<D> {
    fn set(&self, mut record: LatchRecord) -> StoreTask {
        record.limit();
        if record.is_repaired() {
            // Nothing of it is unproven: the next sync that succeeds ends it, as it would anew.
            return self.cleared(record.key);
        }
        self.ask(|state| _ = state.live.insert(record.key, record))
    }

    fn cleared(&self, key: FileKey) -> StoreTask {
        if !lock(&self.state).live.contains_key(&key) {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.ask(|state| _ = state.live.remove(&key))
    }

    fn set_overflow(&self, overflow: bool) -> StoreTask {
        self.ask(|state| state.overflow = overflow)
    }

    fn has_overflow(&self) -> bool {
        lock(&self.state).overflow
    }

    fn settled(&self) -> Option<StoreTask> {
        let (tell, told) = oneshot::channel();
        let mut state = lock(&self.state);
        if !state.running {
            return None;
        }
        state.forget_the_gone();
        if state.dirty {
            state.waiters.push(tell);
        } else {
            state.joined.push(tell);
        }
        drop(state);
        Some(Box::pin(
            async move { told.await.unwrap_or(Err(VfsError::Io)) },
        ))
    }

    fn restore(&self) -> Vec<LatchRecord> {
        lock(&self.state).live.values().cloned().collect()
    }

    fn dormant(&self) -> Vec<LatchRecord> {
        let state = lock(&self.state);
        let all = state.dormant.iter().map(|one| one.record.clone());
        all.collect()
    }

    fn clear_dormant(&self) -> usize {
        let dormant = std::mem::take(&mut lock(&self.state).dormant).len();
        if dormant > 0 {
            // Runs without being awaited.
            drop(self.ask(|_| ()));
        }
        dormant
    }

    fn is_healthy(&self) -> bool {
        self.healthy.load(SeqCst)
    }
}

impl State {
    /// While a disk hangs, those who gave up waiting must not pile up.
    fn forget_the_gone(&mut self) {
        for waiters in [&mut self.waiters, &mut self.joined] {
            if waiters.len() >= WAITERS_SWEPT {
                waiters.retain(|waiter| !waiter.is_closed());
            }
        }
    }

    fn find(&self, identity: FsIdentity, root: &str) -> Option<u64> {
        let same = || self.known.iter().filter(|fs| fs.identity == identity);
        let exact = same().find(|fs| fs.root == root);
        // A clone of a file system has the UUID of the original: the root decides. What has no
        // name at all is known by its root only.
        exact
            .or_else(|| same().next().filter(|_| identity.is_known()))
            .map(|fs| fs.dev)
    }

    /// Takes an entry: live if its file system is here, dormant otherwise.
    fn admit(&mut self, mut one: Dormant) {
        let Some(dev) = one
            .fs
            .as_ref()
            .and_then(|(identity, root)| self.find(*identity, root))
        else {
            self.dormant.push(one);
            return;
        };
        one.record.key.fs = dev;
        for (name, fs) in one.record.names.iter_mut().zip(&one.names) {
            let dev = fs
                .as_ref()
                .and_then(|(identity, root)| self.find(*identity, root));
            match dev {
                Some(dev) => name.fs = dev,
                // Never named again: only an administrator ends it.
                None => one.record.entries = true,
            }
        }
        self.live.insert(one.record.key, one.record);
    }
}

/// Replaces a file of the disk's root, durably, or leaves the old one.
async fn write_file<D: Disk>(disk: &D, name: &[u8], bytes: Vec<u8>) -> DiskResult<()> {
    let (me, root) = (&Identity::Service, disk.root());
    match disk.unlink(me, &root, NEW, false).await {
        Ok(()) | Err(Errno(libc::ENOENT)) => {}
        Err(errno) => return Err(errno),
    }
    let how = OpenHow {
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    let fd = disk.open_at(me, &root, NEW, how).await?;
    put(disk, &fd, 0, bytes.into(), false).await?;
    disk.fsync(&fd).await?;
    disk.rename(me, &root, NEW, &root, name, true).await?;
    disk.fsync(&root).await
}
