//! Error latches as values of a durable map (`map.rs`) in the state folder; key: the inode.
//!
//! A record names its file systems by what they are called over reboots, not by device numbers.
//! Where its file system is known it is *live*, otherwise *dormant*: nobody can reach the inode
//! then, and it wakes when the file system comes. Format: `latch_format.rs`.
//!
//! Invariants: what is stored as unproven is never less than what is. A record that would take too
//! much room is replaced by a shorter one that covers more, at last by an *overflow*: every FLUSH
//! fails until an administrator clears it. Damage does the same, as any inode may be meant; the file
//! is kept as `latches.refused`. A full disk takes latches as long as the room that is set aside
//! holds them, and then an overflow.
//! Does not own: when a latch begins or ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use vfs::{Disk, Env, FileKey, linux::FsIdentity};

use super::{
    frames::Damage,
    latch_format::{OVERFLOW_KEY, StoredLatch, StoredLatches, key_of, read_old_latches},
    latch_record::{LatchRecord, LatchStore},
    log::StoreTask,
    map::{Change, LogMap, MapSpec, StoreError},
    map_format::ReadMap,
};
use crate::share::lock;

/// Most file systems known at once.
const FILE_SYSTEMS_MAX: usize = 4096;
/// Most entries removed in one change.
const REMOVED_MAX: usize = 4096;
/// The last of [`LatchRecord::coarsen`]'s steps.
const COARSEST: u8 = 2;

/// The latches.
pub const LATCHES: MapSpec = MapSpec {
    name: "latches",
    title: "the store of error latches",
    risk: "the latch of a failed sync holds while this process lives and is forgotten by a restart",
    entries: 1 << 20,
    bytes: 64 << 20,
    segment_bytes: 1 << 20,
    last_word: Some((OVERFLOW_KEY, &[1])),
    read_old: read_old_latches,
};

/// One file system of shares: its number now and its name for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFs {
    /// Device number now, as in [`FileKey::fs`].
    pub dev: u64,
    /// Name over reboots.
    pub identity: FsIdentity,
    /// The root of a share on it, which identifies a file system that has no other name.
    pub root: String,
}

/// A store, and what was wrong with its file.
pub struct OpenedLatches<D: Disk> {
    /// The store.
    pub store: Arc<LatchMap<D>>,
    /// Parts that could not be read. With any, the store [has an overflow](LatchMap::has_overflow).
    pub damage: Vec<Damage>,
}

#[derive(Default)]
struct State {
    known: Vec<KnownFs>,
    /// With the keys in the map.
    live: BTreeMap<FileKey, (Vec<u8>, LatchRecord)>,
    dormant: Vec<(Vec<u8>, StoredLatch)>,
    overflow: bool,
}

/// See the module head.
pub struct LatchMap<D: Disk> {
    map: LogMap<D>,
    state: Mutex<State>,
}

impl<D: Disk> LatchMap<D> {
    /// Reads what the folder that `disk` starts at holds; there may be none.
    ///
    /// # Errors
    /// Then nobody may serve: latches could be forgotten. Moving the file away is the way out.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        known: Vec<KnownFs>,
    ) -> Result<OpenedLatches<D>, StoreError> {
        Self::open_as(disk, env, known, &LATCHES).await
    }

    pub(crate) async fn open_as(
        disk: D,
        env: Arc<dyn Env>,
        known: Vec<KnownFs>,
        spec: &'static MapSpec,
    ) -> Result<OpenedLatches<D>, StoreError> {
        let mut state = State {
            known,
            ..State::default()
        };
        let take = |read: &mut ReadMap| {
            let stored = StoredLatches::of(std::mem::take(read));
            state.overflow = stored.overflow || !stored.damage.is_empty();
            read.damage = stored.damage;
            // Always there, so that it can be set when there is room for nothing more.
            let overflow = vec![u8::from(state.overflow)];
            let mut all = BTreeMap::from([(OVERFLOW_KEY.to_vec(), overflow)]);
            for (key, latch) in stored.latches {
                all.insert(key.clone(), latch.encode());
                state.admit(key, latch);
            }
            all
        };
        // Without a segment it begins unhealthy, and has reported that.
        let (map, ReadMap { damage, .. }, _) = LogMap::open_with(disk, env, spec, take).await?;
        let state = Mutex::new(state);
        let store = Arc::new(Self { map, state });
        Ok(OpenedLatches { store, damage })
    }

    /// A file system came (a share was added, or the daemon found where an inode is). Answers the
    /// latches that wake with it: restore them before anybody can reach the inodes.
    pub fn learn(&self, fs: KnownFs) -> Vec<LatchRecord> {
        let mut state = lock(&self.state);
        state.known.retain(|known| known.dev != fs.dev);
        if state.known.len() < FILE_SYSTEMS_MAX {
            state.known.push(fs);
        }
        let dormant = std::mem::take(&mut state.dormant);
        let woken = dormant
            .into_iter()
            .filter_map(|(key, latch)| state.admit(key, latch));
        woken.collect()
    }

    /// The dormant latch of this record is of this inode: found by its path. Answers the record
    /// to restore.
    pub fn found(&self, dormant: &LatchRecord, key: FileKey) -> Option<LatchRecord> {
        let mut state = lock(&self.state);
        let mut all = state.dormant.iter();
        let place = all.position(|(_, latch)| latch.record == *dormant)?;
        let (name, latch) = state.dormant.swap_remove(place);
        let record = LatchRecord {
            key,
            ..latch.record
        };
        state.live.insert(key, (name, record.clone()));
        Some(record)
    }

    /// Every stored latch whose file system is known.
    pub fn restore(&self) -> Vec<LatchRecord> {
        let state = lock(&self.state);
        state
            .live
            .values()
            .map(|(_, record)| record.clone())
            .collect()
    }

    /// Latches whose file system is not there now (and so nobody can reach the inode): named to the
    /// administrator.
    pub fn dormant(&self) -> Vec<LatchRecord> {
        let state = lock(&self.state);
        let all = state.dormant.iter().map(|(_, latch)| latch.record.clone());
        all.collect()
    }

    /// An administrator accepts the loss of everything dormant. Answers how many there were.
    pub fn clear_dormant(&self) -> usize {
        let dormant = std::mem::take(&mut lock(&self.state).dormant);
        for some in dormant.chunks(REMOVED_MAX) {
            let keys = some.iter().map(|(key, _)| Change::Remove(key.clone()));
            // Runs without being awaited.
            drop(self.map.change(keys.collect()));
        }
        dormant.len()
    }

    /// Whether more inodes are poisoned than are named, or something stored could not be read.
    pub fn has_overflow(&self) -> bool {
        lock(&self.state).overflow
    }

    /// Whether the last write succeeded, and none hangs: if not, a restart forgets latches.
    pub fn is_healthy(&self) -> bool {
        self.map.is_healthy()
    }

    /// Tries again to write what could not be written; a healthy store does nothing.
    pub fn try_again(&self) {
        if !self.is_healthy() {
            // It reports itself.
            drop(self.map.change(Vec::new()));
        }
    }
}

impl<D: Disk> LatchStore for LatchMap<D> {
    fn set(&self, mut record: LatchRecord) -> StoreTask {
        record.limit();
        if record.is_repaired() {
            // Nothing of it is unproven: the next sync that succeeds ends it, as it would anew.
            return self.cleared(record.key);
        }
        let mut state = lock(&self.state);
        let name = match state.live.get(&record.key) {
            Some((name, _)) => name.clone(),
            // Another file system may have an inode of this number.
            None => (0..=u32::MAX)
                .map(|n| key_of(record.key, n))
                .find(|name| !self.map.contains(name))
                .unwrap_or_default(),
        };
        for step in 0..=COARSEST {
            if step > 0 {
                record.coarsen(step);
            }
            let value = state.named(&record).encode();
            let put = Change::Put(name.clone(), value);
            if let Some(task) = self.map.try_change(vec![put]) {
                state.live.insert(record.key, (name, record));
                return task;
            }
        }
        drop(state);
        tracing::error!(
            "more latches than can be stored: after a restart every FLUSH fails until they are \
             cleared"
        );
        self.set_overflow(true)
    }

    fn cleared(&self, key: FileKey) -> StoreTask {
        let mut state = lock(&self.state);
        match state.live.remove(&key) {
            Some((name, _)) => self.map.change(vec![Change::Remove(name)]),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn set_overflow(&self, overflow: bool) -> StoreTask {
        let mut state = lock(&self.state);
        state.overflow = overflow;
        let put = Change::Put(OVERFLOW_KEY.to_vec(), vec![u8::from(overflow)]);
        self.map.change(vec![put])
    }

    fn settled(&self) -> Option<StoreTask> {
        self.map.settled()
    }
}

impl State {
    fn find(&self, (identity, root): &(FsIdentity, String)) -> Option<u64> {
        let same = || self.known.iter().filter(|fs| fs.identity == *identity);
        let exact = same().find(|fs| fs.root == *root);
        // A clone of a file system has the UUID of the original: the root decides. A file system
        // that has no name at all is known by its root only.
        exact
            .or_else(|| same().next().filter(|_| identity.is_known()))
            .map(|fs| fs.dev)
    }

    /// Takes an entry: live if its file system is here, which is answered, dormant otherwise.
    fn admit(&mut self, key: Vec<u8>, latch: StoredLatch) -> Option<LatchRecord> {
        let Some(dev) = latch.fs.as_ref().and_then(|fs| self.find(fs)) else {
            self.dormant.push((key, latch));
            return None;
        };
        let StoredLatch {
            mut record, names, ..
        } = latch;
        record.key.fs = dev;
        for (name, fs) in record.names.iter_mut().zip(&names) {
            match fs.as_ref().and_then(|fs| self.find(fs)) {
                Some(dev) => name.fs = dev,
                // Never named again: only an administrator ends it.
                None => record.entries = true,
            }
        }
        self.live.insert(record.key, (key, record.clone()));
        Some(record)
    }

    /// The record with the names of its file systems.
    fn named(&self, record: &LatchRecord) -> StoredLatch {
        let name = |key: &FileKey| {
            let fs = self.known.iter().find(|known| known.dev == key.fs)?;
            Some((fs.identity, fs.root.clone()))
        };
        StoredLatch {
            fs: name(&record.key),
            names: record.names.iter().map(name).collect(),
            record: record.clone(),
        }
    }
}
