//! A small map of bytes to bytes that is itself durable, in a log (`log.rs`) over any [`Disk`].
//!
//! Changes that are made together ([`LogMap::change`]) are kept or lost together, and are on stable storage when their
//! task completes. A segment holds the whole map, then groups of changes. Format: `map_format.rs`.
//!
//! Invariants: the map in memory is what was asked for, whether it could be stored or not. If a task fails, the disk
//! may have the change or not, and the next segment that can be made has it; a caller that wants to undo it makes
//! another change. Limits: [`MapSpec`]; a change beyond them is refused as a whole and nothing happens. A file of
//! early builds is read if there is one, and removed when the first segment, which holds the same, is stable. The owner
//! knows what keys and values mean, and whether clients are served without the map.

use std::{collections::BTreeMap, mem, sync::Arc};

use vfs::{Disk, Env, VfsError, disk::Errno};

use super::{
    groups::{Damage, PAYLOAD_MAX},
    log::{Contents, Log, LogCounts, StoreTask},
    map_format::{MAGIC, MapEntry, ReadMap, encode, read, read_log_map},
    segments::{Segments, Shape},
};

/// Longest key in bytes.
pub const KEY_MAX: usize = 64;
/// Longest value in bytes.
pub const VALUE_MAX: usize = 128 << 10;
const FILE_MAX: u64 = 512 << 20;
/// Bytes of a snapshot's group after which the next group begins.
const SNAPSHOT_GROUP: usize = 256 << 10;

/// A reader of one kind of file.
pub(crate) type ReadFile = fn(&[u8]) -> Result<ReadMap, Refusal>;
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The properties in which one map differs from another, and its limits.
#[derive(Debug, Clone, Copy)]
pub struct MapSpec {
    /// Its log.
    pub shape: Shape,
    /// Most entries.
    pub entries: usize,
    /// Most bytes of all keys and values, at most 64 MiB.
    pub bytes: usize,
    /// The entry that is put when a full disk takes nothing else. A map with such an entry opens, unhealthy, even if
    /// its first segment cannot be made; without one, opening fails.
    pub overflow_entry: Option<(&'static [u8], &'static [u8])>,
    /// Picks the entries that the map begins with from those that were read; it may find more damage.
    pub take: fn(&mut ReadMap) -> Entries,
    /// Reads the single file in which early builds stored the map.
    pub read_old: ReadFile,
}

impl Shape {
    pub(super) const fn of_map(
        kind: &'static str,
        title: &'static str,
        risk: &'static str,
    ) -> Self {
        Self {
            kind,
            magic: MAGIC,
            title,
            risk,
            segment_bytes: 1 << 20,
            segments: 1,
            is_snapshot: true,
        }
    }
}

/// The persistent handles.
pub const HANDLES: MapSpec = MapSpec {
    shape: Shape::of_map(
        "handles",
        "the store of persistent handles",
        "what changes now is not known after a restart",
    ),
    entries: 200_000,
    bytes: 64 << 20,
    overflow_entry: None,
    take: without_doubt,
    read_old: read_log_map,
};

fn without_doubt(read: &mut ReadMap) -> Entries {
    let sound = read.entries.iter().filter(|entry| !entry.doubtful);
    let sound = sound.map(|entry| (entry.key.clone(), entry.value.clone()));
    sound.collect()
}

/// Why a file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The disk.
    #[error("{0}")]
    Disk(Errno),
    /// It is no file of this kind, or damaged at its head.
    #[error("not a file of this server, or damaged at its head")]
    NotOurs,
    /// It was written by a version of the server that this one does not know.
    #[error("written by another version of the server")]
    Version,
}

/// A store that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct StoreError {
    /// The file in the state folder.
    pub file: String,
    /// The reason why it cannot be used.
    pub why: Refusal,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Disk(errno)
    }
}

impl StoreError {
    /// This file cannot be used, for this reason.
    pub fn new(file: &str, why: Refusal) -> Self {
        let file = file.to_owned();
        Self { file, why }
    }
}

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapChange {
    /// The key has this value from now on.
    Put(Vec<u8>, Vec<u8>),
    /// The key is gone.
    Remove(Vec<u8>),
}

/// The figures of a map, and those of its log since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MapCounts {
    /// Entries now.
    pub entries: usize,
    /// Bytes of keys and values now.
    pub bytes: usize,
    /// The groups of changes (as records), and the writes and segments that they took.
    pub log: LogCounts,
}

/// A map, and what its files held.
pub struct OpenedMap<D: Disk> {
    /// The map, with the entries that [`MapSpec::take`] picked.
    pub map: Arc<LogMap<D>>,
    /// The entries that were read, doubtful ones too, except those that [`MapSpec::take`] removed.
    pub entries: Vec<MapEntry>,
    /// The damage in the files. If there is any, the damaged file is kept as `<kind>.refused`.
    pub damage: Vec<Damage>,
}

/// The map in memory, as segments begin with it.
pub(super) struct Live {
    all: Entries,
    bytes: usize,
    overflow_entry: Option<(&'static [u8], &'static [u8])>,
}

impl Live {
    /// Makes a change, and returns the change that undoes it.
    fn apply(&mut self, change: MapChange) -> MapChange {
        let (old, key) = match change {
            MapChange::Put(key, value) => {
                self.bytes += key.len() + value.len();
                (self.all.insert(key.clone(), value), key)
            }
            MapChange::Remove(key) => (self.all.remove(&key), key),
        };
        let Some(old) = old else {
            return MapChange::Remove(key);
        };
        self.bytes = self.bytes.saturating_sub(key.len() + old.len());
        MapChange::Put(key, old)
    }
}

impl Contents for Live {
    fn head(&mut self) -> Vec<Vec<u8>> {
        let (mut groups, mut out) = (Vec::new(), Vec::new());
        for (key, value) in &self.all {
            encode(&mut out, key, Some(value));
            if out.len() >= SNAPSHOT_GROUP {
                groups.push(mem::take(&mut out));
            }
        }
        groups.push(out);
        groups
    }

    fn overflow_entry(&mut self) -> Option<Vec<u8>> {
        let (key, value) = self.overflow_entry?;
        let mut out = Vec::new();
        encode(&mut out, key, Some(value));
        Some(out)
    }
}

/// See the module head.
pub struct LogMap<D: Disk> {
    pub(super) log: Arc<Log<D, Live>>,
    spec: &'static MapSpec,
}

impl<D: Disk> LogMap<D> {
    /// Reads the map's files in the root folder of `disk`, and writes what [`MapSpec::take`] picks to a new one.
    ///
    /// # Errors
    /// Errors of the disk, or a file that this version cannot read. Nothing that was stored is lost then.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        spec: &'static MapSpec,
    ) -> Result<OpenedMap<D>, StoreError> {
        let kind = spec.shape.kind;
        let segments = Segments::find(disk, spec.shape).await;
        let mut segments = segments.map_err(|errno| StoreError::new(kind, errno.into()))?;
        let newest = segments.newest();
        let mut found = ReadMap::default();
        let mut damaged = None;
        // If both files exist, the conversion was cut off, or an older server ran in between. The entries of both hold.
        let read_new: ReadFile = |file| read(file, true);
        let files = [(Some(kind), spec.read_old), (newest.as_deref(), read_new)];
        for (file, read) in files {
            let Some(file) = file else { continue };
            let failed = |why| StoreError::new(file, why);
            let bytes = segments.folder.read(file, FILE_MAX).await;
            let Some(bytes) = bytes.map_err(|errno| failed(errno.into()))? else {
                continue;
            };
            let more = read(&bytes).map_err(failed)?;
            if !more.damage.is_empty() {
                damaged = Some(file);
            }
            found.damage.extend(more.damage);
            found.entries.extend(more.entries);
        }
        let entries = &mut found.entries;
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries.dedup_by(|later, first| later.key == first.key);
        let known = found.damage.len();
        let all = (spec.take)(&mut found);
        if found.damage.len() > known {
            damaged = damaged.or(newest.as_deref()).or(Some(kind));
        }
        if let Some(file) = damaged {
            // The new segment does not repeat what could not be read, so the old file is kept.
            let aside = segments.keep_aside(file).await;
            aside.map_err(|errno| StoreError::new(file, errno.into()))?;
        }
        let live = Live {
            bytes: all.iter().map(|(key, value)| key.len() + value.len()).sum(),
            all,
            overflow_entry: spec.overflow_entry,
        };
        let (log, made) = Log::open(env, spec.shape, live, segments).await;
        if let Err(errno) = made
            && spec.overflow_entry.is_none()
        {
            return Err(StoreError::new(kind, errno.into()));
        }
        Ok(OpenedMap {
            map: Arc::new(Self { log, spec }),
            entries: found.entries,
            damage: found.damage,
        })
    }

    /// Makes changes, all or none. The task completes when they are on stable storage, or fails with
    /// `Io` if they are not: they are in force, and stored as soon as that is possible. Beyond a limit
    /// it fails with `Exhausted` and nothing happened. With no changes it waits for those before.
    pub fn change(&self, changes: Vec<MapChange>) -> StoreTask {
        let exhausted = || Box::pin(std::future::ready(Err(VfsError::Exhausted))) as _;
        self.try_change(changes).unwrap_or_else(exhausted)
    }

    /// As [`LogMap::change`], but `None` if the changes go beyond a limit.
    pub(super) fn try_change(&self, changes: Vec<MapChange>) -> Option<StoreTask> {
        let mut out = Vec::new();
        let (mut fits, mut grows) = (true, false);
        for change in &changes {
            let (key, value) = match change {
                MapChange::Put(key, value) => (key, Some(value.as_slice())),
                MapChange::Remove(key) => (key, None),
            };
            fits &= (1..=KEY_MAX).contains(&key.len());
            fits &= value.is_none_or(|value| value.len() <= VALUE_MAX);
            grows |= value.is_some();
            encode(&mut out, key, value);
        }
        if !fits || out.len() > PAYLOAD_MAX {
            return None;
        }
        let task = self.log.append(1, false, |live| {
            let changes = changes.into_iter();
            let back: Vec<MapChange> = changes.map(|change| live.apply(change)).collect();
            let full = live.all.len() > self.spec.entries || live.bytes > self.spec.bytes;
            if grows && full {
                for change in back.into_iter().rev() {
                    live.apply(change);
                }
                return None;
            }
            Some(out)
        })?;
        Some(self.log.in_time(task))
    }

    /// Waits for the changes so far and the end of their writer, as long as a reply may wait: its worker may end then.
    pub async fn at_rest(&self) {
        self.log.at_rest().await;
    }

    pub(super) fn peek<T>(&self, look: impl FnOnce(&Entries) -> T) -> T {
        self.log.peek(|live| look(&live.all))
    }

    /// The last write succeeded, and none hangs.
    pub fn is_healthy(&self) -> bool {
        self.log.is_healthy()
    }

    /// The figures of the map and of its log.
    pub fn counts(&self) -> MapCounts {
        let (entries, bytes) = self.log.peek(|live| (live.all.len(), live.bytes));
        MapCounts {
            entries,
            bytes,
            log: self.log.counts(),
        }
    }

    /// The number of groups that wait to be written, and of tasks that wait for them.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.log.queued()
    }
}
