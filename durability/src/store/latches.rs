//! Error latches as values of a durable map (`map.rs`) in the state folder; key: the inode.
//!
//! A record names its file systems by identities that survive reboots, not by device numbers.
//! A latch whose file system is known is *live*, any other *dormant*: no client can reach the inode
//! then, and the latch wakes when its file system comes. Format: `latch_format.rs`.
//!
//! Invariants: everything that is unproven is stored as unproven. A record that would take too much room is replaced by
//! a shorter one that covers more, in the end by an *overflow*: every FLUSH fails until an administrator clears it.
//! Damage has the same effect, because it may hide any inode; the file is kept as `latches.refused`. A full disk takes
//! latches while the reserved room lasts, then an overflow. The engine decides when one begins or ends.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
};

use vfs::{Disk, Env, FileKey, linux::FsIdentity, lock};

use super::{
    groups::Damage,
    latch_format::{OVERFLOW_KEY, System, has_overflow, holding, key_of, read_old_latches},
    latch_record::{LatchRecord, LatchStore},
    log::StoreTask,
    map::{Entries, LogMap, MapChange, MapSpec, OpenedMap, StoreError},
    segments::Shape,
};

/// Most file systems known at once.
const FILE_SYSTEMS_MAX: usize = 4096;
/// Most entries removed in one change.
const REMOVED_MAX: usize = 4096;

/// The latches.
pub const LATCHES: MapSpec = MapSpec {
    shape: Shape::of_map(
        "latches",
        "the store of error latches",
        "the latch of a failed sync holds while this process lives and is forgotten by a restart",
    ),
    entries: 1 << 20,
    bytes: 64 << 20,
    overflow_entry: Some((OVERFLOW_KEY, &[1])),
    take: holding,
    read_old: read_old_latches,
};

/// One file system of shares: its device number now, and its identity across reboots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFs {
    /// Device number now, as in [`FileKey::fs`].
    pub dev: u64,
    /// Its identity across reboots.
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

/// The latches of the map, by whether their inodes can be reached.
#[derive(Default)]
struct LatchesState {
    known: Vec<KnownFs>,
    /// The live latches, each with its key in the map.
    live: BTreeMap<FileKey, Vec<u8>>,
    dormant: BTreeMap<Vec<u8>, LatchRecord>,
}

/// See the module head.
pub struct LatchMap<D: Disk> {
    map: Arc<LogMap<D>>,
    state: Mutex<LatchesState>,
}

impl<D: Disk> LatchMap<D> {
    /// Reads the latches in the root folder of `disk`; there may be none.
    ///
    /// # Errors
    /// As of [`LogMap::open`]. Without its latches no server may serve; an administrator may move the file away.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        known: Vec<KnownFs>,
        spec: &'static MapSpec,
    ) -> Result<OpenedLatches<D>, StoreError> {
        let OpenedMap { map, damage, .. } = LogMap::open(disk, env, spec).await?;
        let mut state = LatchesState {
            known,
            ..LatchesState::default()
        };
        map.peek(|all| {
            for (key, value) in all.iter().filter(|(key, _)| *key != OVERFLOW_KEY) {
                state.admit(key.clone(), value);
            }
        });
        let state = Mutex::new(state);
        let store = Arc::new(Self { map, state });
        Ok(OpenedLatches { store, damage })
    }

    /// A file system came (a share was added, or the daemon found where an inode is). Returns the
    /// latches that wake with it: restore them before any client can reach the inodes.
    pub fn learn(&self, fs: KnownFs) -> Vec<LatchRecord> {
        let mut state = lock(&self.state);
        let lost = state.replace(fs);
        let dormant = mem::take(&mut state.dormant).into_keys();
        self.map.peek(|all| {
            let woken = dormant.chain(lost).filter_map(|key| {
                let value = all.get(&key)?;
                state.admit(key, value)
            });
            woken.collect()
        })
    }

    /// This dormant latch was found by its path: its inode is `key`. Returns the record to restore, if it was dormant.
    pub fn found(&self, dormant: &LatchRecord, key: FileKey) -> Option<LatchRecord> {
        let mut state = lock(&self.state);
        let mut all = state.dormant.iter();
        let name = all.find(|(_, record)| *record == dormant)?.0.clone();
        let record = state.dormant.remove(&name)?;
        state.live.insert(key, name);
        Some(LatchRecord { key, ..record })
    }

    /// Every stored latch whose file system is known.
    pub fn restore(&self) -> Vec<LatchRecord> {
        let state = lock(&self.state);
        self.map.peek(|all| {
            let live = state.live.iter().filter_map(|(key, name)| {
                let (mut record, _) = LatchRecord::decode(all.get(name)?, |fs| state.find(fs))?;
                record.key = *key;
                Some(record)
            });
            live.collect()
        })
    }

    /// Latches whose file system is not known now, so no client can reach their inodes. An administrator sees them.
    pub fn dormant(&self) -> Vec<LatchRecord> {
        let state = lock(&self.state);
        state.dormant.values().cloned().collect()
    }

    /// An administrator accepts the loss of everything dormant. Answers how many there were.
    pub fn clear_dormant(&self) -> usize {
        let dormant = mem::take(&mut lock(&self.state).dormant);
        let dormant: Vec<Vec<u8>> = dormant.into_keys().collect();
        for some in dormant.chunks(REMOVED_MAX) {
            let keys = some.iter().map(|key| MapChange::Remove(key.clone()));
            // The store does this whether or not the result is awaited.
            drop(self.map.change(keys.collect()));
        }
        dormant.len()
    }

    /// Whether more inodes are poisoned than are named, or something stored could not be read.
    pub fn has_overflow(&self) -> bool {
        self.map.peek(has_overflow)
    }

    /// Whether the last write succeeded, and none hangs: if not, a restart forgets latches.
    pub fn is_healthy(&self) -> bool {
        self.map.is_healthy()
    }

    /// Tries again to write what could not be written; a healthy store does nothing.
    pub fn try_again(&self) {
        if !self.is_healthy() {
            // The store reports its own errors.
            drop(self.map.change(Vec::new()));
        }
    }
}

impl<D: Disk> LatchStore for LatchMap<D> {
    fn set(&self, mut record: LatchRecord) -> StoreTask {
        record.limit();
        if record.is_repaired() {
            // Nothing of it is unproven, so there is nothing that a restart must know.
            return self.cleared(record.key);
        }
        let mut state = lock(&self.state);
        let name = state.live.get(&record.key).cloned().unwrap_or_else(|| {
            // Another file system may have an inode of this number.
            let mut names = (0..=u32::MAX).map(|n| key_of(record.key, n));
            let free = |all: &_| names.find(|name| !Entries::contains_key(all, name));
            self.map.peek(free).unwrap_or_default()
        });
        for coarse in [false, true] {
            if coarse {
                record.coarsen();
            }
            let value = record.encode(|dev| state.name(dev));
            let put = MapChange::Put(name.clone(), value);
            if let Some(task) = self.map.try_change(vec![put]) {
                state.live.insert(record.key, name);
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
            Some(name) => self.map.change(vec![MapChange::Remove(name)]),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn set_overflow(&self, overflow: bool) -> StoreTask {
        let put = MapChange::Put(OVERFLOW_KEY.to_vec(), vec![u8::from(overflow)]);
        self.map.change(vec![put])
    }

    fn end_of_writes(&self) -> Option<StoreTask> {
        self.map.log.end_of_writes()
    }
}

impl LatchesState {
    /// Adds a file system. Returns the latches, by their keys in the map, that no inode has any more because it has
    /// another number than before (it was mounted again), or another one's number.
    fn replace(&mut self, fs: KnownFs) -> Vec<Vec<u8>> {
        let moved = |known: &KnownFs| match known.dev == fs.dev {
            true => known.identity != fs.identity,
            false => known.identity == fs.identity && known.root == fs.root,
        };
        let moved: Vec<u64> = (self.known.iter().filter(|known| moved(known)))
            .map(|known| known.dev)
            .collect();
        let (lost, live): (BTreeMap<_, _>, BTreeMap<_, _>) = mem::take(&mut self.live)
            .into_iter()
            .partition(|(key, _)| moved.contains(&key.fs));
        self.live = live;
        self.known
            .retain(|known| known.dev != fs.dev && !moved.contains(&known.dev));
        if self.known.len() < FILE_SYSTEMS_MAX {
            self.known.push(fs);
        }
        lost.into_values().collect()
    }

    fn find(&self, (identity, root): &System) -> Option<u64> {
        let same = || self.known.iter().filter(|fs| fs.identity == *identity);
        let exact = same().find(|fs| fs.root == *root);
        // A clone of a file system has its UUID: the root decides, as it does for one that has no name at all.
        exact
            .or_else(|| same().next().filter(|_| identity.is_known()))
            .map(|fs| fs.dev)
    }

    fn name(&self, dev: u64) -> Option<System> {
        let fs = self.known.iter().find(|known| known.dev == dev)?;
        Some((fs.identity, fs.root.clone()))
    }

    /// Takes an entry: live if its file system is known, and then returned; dormant otherwise.
    fn admit(&mut self, key: Vec<u8>, value: &[u8]) -> Option<LatchRecord> {
        let (record, here) = LatchRecord::decode(value, |fs| self.find(fs))?;
        match here {
            true => _ = self.live.insert(record.key, key),
            false => _ = self.dormant.insert(key, record.clone()),
        }
        here.then_some(record)
    }
}
