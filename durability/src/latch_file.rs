//! Latches in one file, `latches`, in the state folder, over any [`Disk`].
//!
//! The file is replaced whole: written beside it (`latches.new`), synced, renamed over it, the
//! folder synced. A write that failed leaves the old file and is tried again with a new one; no
//! sync is ever repeated on the same file. Requests that come during a write share the next one.
//!
//! **Format** (version 1, little-endian; a *text* is u16 length and UTF-8):
//!
//! | head | |
//! |---|---|
//! | 8 bytes | `HFLATCH1` |
//! | u32, u32 | entries, CRC-32C of that number and of what follows up to the entries |
//! | u16 | file systems, each: u64 `f_type`, 16 bytes UUID, u64 `f_fsid`, text root of a share on it |
//!
//! then every entry: u32 length, u32 CRC-32C of the body, body: u16 file system (65535: unknown),
//! u64 inode, u64 generation, u8 error (`record.rs`), u64 + u32 time, u64 sequence, u8 flags (1
//! metadata, 2 size, 4 entries), u16 streams (each: text, u16 ranges of u64 from, u64 to), u16
//! names (each: u16 file system, u64 inode, u64 generation), text path, u16 shares (each a text).
//!
//! Invariants: what the file says is unproven is never less than what is; an entry that cannot be
//! read is named in [`Opened::refused`] and its file kept aside (`latches.refused`); a head that
//! cannot be read refuses the start. Does not own: when a latch begins or ends.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;
use vfs::{
    Disk, Env, FileKey, Identity, VfsError,
    disk::{DiskResult, Errno, OpenHow},
    sys::FsIdentity,
};

use crate::{
    latch_store::{
        LatchRecord, LatchStore, STORED_NAMES_MAX, STORED_RANGES_MAX, STORED_SHARES_MAX,
        STORED_STREAMS_MAX, StoreTask, UnprovenStream,
    },
    record::{In, Out, crc32c, error_code, error_of},
    share::lock,
};

const FILE: &[u8] = b"latches";
const NEW: &[u8] = b"latches.new";
const REFUSED: &[u8] = b"latches.refused";
const MAGIC: &[u8; 8] = b"HFLATCH1";
/// Largest file read: twice what as many latches as an engine keeps may take.
const FILE_MAX: u64 = 256 << 20;
/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// Most file systems known at once.
const FILE_SYSTEMS_MAX: usize = 4096;
/// Pause before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// From so many on, those who no longer wait are looked for.
const WAITERS_SWEPT: usize = 1024;
/// "No file system of ours."
const UNKNOWN: u16 = u16::MAX;

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
    /// Entries that were not taken.
    pub refused: Vec<RefusedEntry>,
}

/// What a file of latches says, without a server: the records (their `fs` is 0) and what could not
/// be read.
///
/// # Errors
/// Its head is not what this version writes.
pub fn read_latches(bytes: &[u8]) -> Result<(Vec<LatchRecord>, Vec<RefusedEntry>), LatchFileError> {
    let (all, refused) = decode(bytes)?;
    Ok((all.into_iter().map(|one| one.record).collect(), refused))
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
    /// For the end of the next write.
    waiters: Vec<oneshot::Sender<Result<(), VfsError>>>,
    /// For the end of the one under way.
    joined: Vec<oneshot::Sender<Result<(), VfsError>>>,
    /// Something changed since the last write began.
    dirty: bool,
    running: bool,
    retrying: bool,
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
        let bytes = read_file(&disk, FILE).await?;
        if let Some(bytes) = &bytes {
            let (all, bad) = decode(bytes)?;
            refused = bad;
            for one in all {
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
            let (next, joined) = {
                let mut state = lock(&self.state);
                let dirty = std::mem::replace(&mut state.dirty, false);
                state.running = dirty;
                let next = dirty.then(|| (state.encode(), std::mem::take(&mut state.waiters)));
                (next, std::mem::take(&mut state.joined))
            };
            tell_all(joined, told);
            let Some((bytes, waiters)) = next else {
                return;
            };
            let written = write_file(&self.disk, FILE, bytes).await;
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
        self.ask(|state| _ = state.live.insert(record.key, record))
    }

    fn cleared(&self, key: FileKey) -> StoreTask {
        if !lock(&self.state).live.contains_key(&key) {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.ask(|state| _ = state.live.remove(&key))
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

    fn encode(&self) -> Vec<u8> {
        let mut table: Vec<(FsIdentity, String)> = Vec::new();
        let mut number = |fs: Option<(FsIdentity, String)>| -> u16 {
            let Some(fs) = fs else { return UNKNOWN };
            let at = table.iter().position(|known| *known == fs);
            let at = at.unwrap_or_else(|| {
                table.push(fs);
                table.len() - 1
            });
            u16::try_from(at).unwrap_or(UNKNOWN)
        };
        let known = |dev: u64| {
            let fs = self.known.iter().find(|fs| fs.dev == dev);
            fs.map(|fs| (fs.identity, fs.root.clone()))
        };
        let mut entries = Out::default();
        for record in self.live.values() {
            let fs = number(known(record.key.fs));
            let names: Vec<u16> = record
                .names
                .iter()
                .map(|name| number(known(name.fs)))
                .collect();
            encode_entry(&mut entries, record, fs, &names);
        }
        for one in &self.dormant {
            let fs = number(one.fs.clone());
            let names: Vec<u16> = one.names.iter().map(|fs| number(fs.clone())).collect();
            encode_entry(&mut entries, &one.record, fs, &names);
        }
        let mut systems = Out::default();
        systems.u16(table.len() as u16);
        for (identity, root) in &table {
            systems.u64(identity.kind);
            systems.bytes(&identity.uuid);
            systems.u64(identity.fsid);
            systems.text(root);
        }
        let mut out = Out::default();
        out.bytes(MAGIC);
        let count = self.live.len() + self.dormant.len();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        out.u32(count);
        out.u32(crc32c(crc32c(0, &count.to_le_bytes()), &systems.0));
        out.bytes(&systems.0);
        out.bytes(&entries.0);
        out.0
    }
}

fn encode_entry(out: &mut Out, record: &LatchRecord, fs: u16, names: &[u16]) {
    let mut body = Out::default();
    body.u16(fs);
    body.inode(record.key);
    body.u8(error_code(record.error));
    body.time(record.at);
    body.u64(record.sequence);
    body.u8(u8::from(record.metadata) | u8::from(record.size) << 1 | u8::from(record.entries) << 2);
    body.u16(record.unproven.len() as u16);
    for stream in &record.unproven {
        body.text(&stream.stream);
        body.u16(stream.ranges.len() as u16);
        for (start, end) in &stream.ranges {
            body.u64(*start);
            body.u64(*end);
        }
    }
    body.u16(names.len() as u16);
    for (name, fs) in record.names.iter().zip(names) {
        body.u16(*fs);
        body.inode(*name);
    }
    body.text(&record.path);
    body.u16(record.shares.len() as u16);
    record.shares.iter().for_each(|share| body.text(share));
    out.u32(body.0.len() as u32);
    out.u32(crc32c(0, &body.0));
    out.bytes(&body.0);
}

type Systems = Vec<(FsIdentity, String)>;

/// Reads a whole file: its entries, and those that are no good.
fn decode(bytes: &[u8]) -> Result<(Vec<Dormant>, Vec<RefusedEntry>), LatchFileError> {
    let mut from = In(bytes);
    let magic = from.bytes(MAGIC.len()).ok_or(LatchFileError::NotOurs)?;
    if magic != MAGIC {
        let ours = magic.starts_with(b"HFLATCH");
        return Err(if ours {
            LatchFileError::Version
        } else {
            LatchFileError::NotOurs
        });
    }
    let (count, systems) = decode_head(&mut from).ok_or(LatchFileError::NotOurs)?;
    let mut all = Vec::new();
    let mut refused = Vec::new();
    for number in 0..count {
        let mut refuse = |why, body: Option<&[u8]>| {
            let path = body.and_then(|body| decode_entry(body, &systems));
            let path = path.map(|one| one.record.path);
            refused.push(RefusedEntry { number, why, path });
        };
        let head = from.u32().zip(from.u32());
        let Some((body, crc)) =
            head.and_then(|(len, crc)| Some((from.bytes(usize::try_from(len).ok()?)?, crc)))
        else {
            // Nothing after it can be found.
            refuse("cut off; it and all after it are lost", None);
            break;
        };
        if crc32c(0, body) != crc {
            refuse("checksum", Some(body));
        } else if let Some(one) = decode_entry(body, &systems) {
            all.push(one);
        } else {
            refuse("contents", None);
        }
    }
    Ok((all, refused))
}

fn decode_head(from: &mut In<'_>) -> Option<(u32, Systems)> {
    let (count, crc) = (from.u32()?, from.u32()?);
    let start = from.clone();
    let mut systems = Vec::new();
    for _ in 0..from.u16()? {
        let identity = FsIdentity {
            kind: from.u64()?,
            uuid: from.uuid()?,
            fsid: from.u64()?,
        };
        systems.push((identity, from.text()?));
    }
    let read = start.0.get(..start.0.len() - from.0.len())?;
    (crc32c(crc32c(0, &count.to_le_bytes()), read) == crc).then_some((count, systems))
}

fn decode_entry(body: &[u8], systems: &Systems) -> Option<Dormant> {
    let mut from = In(body);
    let fs_of = |number: u16| systems.get(usize::from(number)).cloned();
    let fs = fs_of(from.u16()?);
    let key = from.inode()?;
    let error = error_of(from.u8()?);
    let at = from.time()?;
    let sequence = from.u64()?;
    let flags = from.u8()?;
    let mut unproven = Vec::new();
    let streams = usize::from(from.u16()?);
    for _ in 0..streams {
        let stream = from.text()?;
        let count = usize::from(from.u16()?);
        let mut ranges = Vec::new();
        for _ in 0..count {
            ranges.push((from.u64()?, from.u64()?));
        }
        if count > STORED_RANGES_MAX || ranges.iter().any(|(start, end)| start >= end) {
            return None;
        }
        unproven.push(UnprovenStream { stream, ranges });
    }
    let (mut names, mut name_systems) = (Vec::new(), Vec::new());
    for _ in 0..from.u16()? {
        name_systems.push(fs_of(from.u16()?));
        names.push(from.inode()?);
    }
    let path = from.text()?;
    let mut shares = Vec::new();
    for _ in 0..from.u16()? {
        shares.push(from.text()?);
    }
    let fits = streams <= STORED_STREAMS_MAX
        && names.len() <= STORED_NAMES_MAX
        && shares.len() <= STORED_SHARES_MAX
        && flags < 8
        && from.is_empty();
    let record = LatchRecord {
        key,
        error,
        at,
        sequence,
        unproven,
        metadata: flags & 1 != 0,
        size: flags & 2 != 0,
        entries: flags & 4 != 0,
        names,
        path,
        shares,
    };
    (fits && !record.is_repaired()).then_some(Dormant {
        record,
        fs,
        names: name_systems,
    })
}

async fn read_file<D: Disk>(disk: &D, name: &[u8]) -> DiskResult<Option<Vec<u8>>> {
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let fd = match disk
        .open_at(&Identity::Service, &disk.root(), name, how)
        .await
    {
        Err(Errno(libc::ENOENT)) => return Ok(None),
        fd => fd?,
    };
    let size = disk.stat(&fd).await?.size;
    if size > FILE_MAX {
        return Err(Errno(libc::EFBIG));
    }
    let mut buf = BytesMut::new();
    loop {
        let before = buf.len();
        buf = disk.read(&fd, before as u64, CHUNK, buf).await?;
        if buf.len() == before {
            return Ok(Some(buf.to_vec()));
        }
        if buf.len() as u64 > FILE_MAX {
            return Err(Errno(libc::EFBIG));
        }
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
    let mut rest = Bytes::from(bytes);
    let mut offset = 0;
    while !rest.is_empty() {
        let put = disk.write(&fd, offset, rest.clone(), false).await?;
        if put == 0 {
            return Err(Errno(libc::EIO));
        }
        offset += put as u64;
        rest = rest
            .get(put..)
            .map_or(Bytes::new(), |left| rest.slice_ref(left));
    }
    disk.fsync(&fd).await?;
    disk.rename(me, &root, NEW, &root, name, true).await?;
    disk.fsync(&root).await
}
