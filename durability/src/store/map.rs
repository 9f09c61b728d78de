//! A small map of bytes to bytes that is itself durable, in a log (`log.rs`) over any [`Disk`].
//!
//! Changes that are made together ([`LogMap::change`]) are kept or lost together, and are on stable
//! storage when their task completes. A segment holds the whole map, then groups of changes.
//! Format: `map_format.rs`.
//!
//! Invariants: the map in memory is what was asked for, whether it could be stored or not; a task
//! that answers an error says that the disk may have the change or not, and the next segment that
//! can be made has it. A caller that takes a failed change back makes another change. Bounds:
//! [`MapSpec`]; beyond them a change is refused whole and nothing happens. A file of version 0.1 is
//! read where there is one, and goes when the first segment, which says the same, is stable.
//! Does not own: what keys and values mean, whether clients are served without it.

use std::{collections::BTreeMap, fmt, mem, sync::Arc};

use vfs::{
    Disk, Env, VfsError,
    disk::{DiskResult, Errno},
};

use super::{
    folder,
    frames::{Damage, PAYLOAD_MAX},
    log::{Contents, Log, LogCounts, StoreTask},
    map_format::{MAGIC, MapEntry, ReadMap, encode_put, encode_removed, read, read_log_map},
    segments::{Segments, Shape},
};

/// Longest key in bytes.
pub const KEY_MAX: usize = 64;
/// Longest value in bytes.
pub const VALUE_MAX: usize = 128 << 10;
/// Largest file read.
const FILE_MAX: u64 = 512 << 20;
/// Bytes of a snapshot's frame, from which on the next one begins.
const SNAPSHOT_FRAME: usize = 256 << 10;

/// The properties in which one map differs from another, and its limits.
#[derive(Debug, Clone, Copy)]
pub struct MapSpec {
    /// The ending of the names of its files, and the name of its file in version 0.1.
    pub name: &'static str,
    /// The name of its contents in messages.
    pub title: &'static str,
    /// The consequence, in messages, if it cannot be written.
    pub risk: &'static str,
    /// Most entries.
    pub entries: usize,
    /// Most bytes of all keys and values, at most 64 MiB.
    pub bytes: usize,
    /// Bytes of a segment, at least; as many are set aside.
    pub segment_bytes: u64,
    /// The entry that is put when a full disk takes nothing else.
    pub last_word: Option<(&'static [u8], &'static [u8])>,
    /// Reads the file of version 0.1.
    pub read_old: fn(&[u8]) -> Result<ReadMap, Refusal>,
}

impl MapSpec {
    fn shape(&self) -> Shape {
        Shape {
            kind: self.name,
            magic: MAGIC,
            title: self.title,
            risk: self.risk,
            segment_bytes: self.segment_bytes,
            segments: 1,
            is_snapshot: true,
        }
    }
}

/// The persistent handles.
pub const HANDLES: MapSpec = MapSpec {
    name: "handles",
    title: "the store of persistent handles",
    risk: "what changes now is not known after a restart",
    entries: 200_000,
    bytes: 64 << 20,
    segment_bytes: 1 << 20,
    last_word: None,
    read_old: read_log_map,
};

/// Why a file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The disk.
    Disk(Errno),
    /// It is no file of this kind, or damaged at its head.
    NotOurs,
    /// It was written by a version of the server that this one does not know.
    Version,
}

/// A store that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// This file is no good.
    pub fn new(file: &str, why: Refusal) -> Self {
        let file = file.to_owned();
        Self { file, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno.0)),
            Self::NotOurs => f.write_str("not a file of this server, or damaged at its head"),
            Self::Version => f.write_str("written by another version of the server"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why)
    }
}

impl std::error::Error for StoreError {}

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
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
    /// Groups of changes, and what they took.
    pub log: LogCounts,
}

/// A map, and what its files held.
pub struct OpenedMap<D: Disk> {
    /// The map, with the entries that are not doubtful.
    pub map: Arc<LogMap<D>>,
    /// All entries, doubtful ones too.
    pub entries: Vec<MapEntry>,
    /// The damage in the files; with any, they are kept as `<name>.refused`.
    pub damage: Vec<Damage>,
}

/// The map in memory, as segments begin with it.
struct Live {
    all: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    last_word: Option<(&'static [u8], &'static [u8])>,
}

impl Live {
    /// The map's size after some changes: entries, bytes.
    fn after(&self, changes: &[Change]) -> (usize, usize) {
        let mut touched: BTreeMap<&[u8], usize> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(key, value) => touched.insert(key, key.len() + value.len()),
                Change::Remove(key) => touched.insert(key, 0),
            };
        }
        let (mut entries, mut bytes) = (self.all.len(), self.bytes);
        for (key, size) in touched {
            if let Some(old) = self.all.get(key) {
                entries -= 1;
                bytes = bytes.saturating_sub(key.len() + old.len());
            }
            if size > 0 {
                entries += 1;
                bytes += size;
            }
        }
        (entries, bytes)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        (_, self.bytes) = self.after(&changes);
        for change in changes {
            match change {
                Change::Put(key, value) => _ = self.all.insert(key, value),
                Change::Remove(key) => _ = self.all.remove(&key),
            }
        }
    }
}

impl Contents for Live {
    fn head(&mut self) -> Vec<Vec<u8>> {
        let (mut frames, mut out) = (Vec::new(), Vec::new());
        for (key, value) in &self.all {
            encode_put(&mut out, key, value);
            if out.len() >= SNAPSHOT_FRAME {
                frames.push(mem::take(&mut out));
            }
        }
        frames.push(out);
        frames
    }

    fn last_word(&mut self) -> Option<Vec<u8>> {
        let (key, value) = self.last_word?;
        let mut out = Vec::new();
        encode_put(&mut out, key, value);
        Some(out)
    }
}

/// See the module head.
pub struct LogMap<D: Disk> {
    log: Arc<Log<D, Live>>,
    spec: &'static MapSpec,
}

impl<D: Disk> LogMap<D> {
    /// Reads the files of the map in the folder that `disk` starts at (there may be none) and makes
    /// a new one of what they say. Doubtful entries are answered and not taken over.
    ///
    /// # Errors
    /// Of the disk; or a file is not ours: nothing has changed then.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        spec: &'static MapSpec,
    ) -> Result<OpenedMap<D>, StoreError> {
        let sound = |read: &mut ReadMap| {
            let sound = read.entries.iter().filter(|entry| !entry.doubtful);
            let sound = sound.map(|entry| (entry.key.clone(), entry.value.clone()));
            sound.collect()
        };
        let (map, read, made) = Self::open_with(disk, env, spec, sound).await?;
        made.map_err(|errno| StoreError::new(spec.name, errno.into()))?;
        Ok(OpenedMap {
            map: Arc::new(map),
            entries: read.entries,
            damage: read.damage,
        })
    }

    /// As [`LogMap::open`], with the entries that `take` makes of what was read; it may find more damage.
    /// The innermost error is that no segment could be made, and the map is there all the same.
    pub(super) async fn open_with(
        disk: D,
        env: Arc<dyn Env>,
        spec: &'static MapSpec,
        take: impl FnOnce(&mut ReadMap) -> BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(Self, ReadMap, DiskResult<()>), StoreError> {
        let segments = Segments::find(disk, spec.shape()).await;
        let mut segments = segments.map_err(|errno| StoreError::new(spec.name, errno.into()))?;
        let newest = segments.newest();
        let (mut found, mut damaged) = (ReadMap::default(), None);
        // Where both are there, the conversion did not come to its end: what either says holds.
        for (file, is_old) in [(newest.as_deref(), false), (Some(spec.name), true)] {
            let Some(file) = file else { continue };
            let bytes = folder::read_file(segments.disk(), file.as_bytes(), FILE_MAX).await;
            let bytes = bytes.map_err(|errno| StoreError::new(file, errno.into()))?;
            let Some(bytes) = bytes else { continue };
            let more = match is_old {
                true => (spec.read_old)(&bytes),
                false => read(&bytes, true),
            };
            let more = more.map_err(|why| StoreError::new(file, why))?;
            if is_old {
                segments.replace(spec.name.as_bytes());
            }
            if !more.damage.is_empty() {
                damaged = Some(file);
            }
            found.damage.extend(more.damage);
            let all = mem::take(&mut found.entries).into_iter();
            let all = all.chain(more.entries).map(|one| (one.key.clone(), one));
            found.entries = all.collect::<BTreeMap<_, _>>().into_values().collect();
        }
        let known = found.damage.len();
        let all = take(&mut found);
        if found.damage.len() > known {
            damaged = damaged.or(newest.as_deref()).or(Some(spec.name));
        }
        if let Some(file) = damaged {
            // The new segment does not repeat what could not be read, so the old file is kept.
            let aside = segments.keep_aside(file).await;
            aside.map_err(|errno| StoreError::new(file, errno.into()))?;
        }
        let live = Live {
            bytes: all.iter().map(|(key, value)| key.len() + value.len()).sum(),
            all,
            last_word: spec.last_word,
        };
        let (log, made) = Log::open(env, spec.shape(), live, segments).await;
        Ok((Self { log, spec }, found, made))
    }

    /// Makes changes, all or none; the task completes when they are on stable storage, or could
    /// not be brought there (`Io`: they are in force, and stored as soon as that can be done).
    /// Beyond a limit: `Exhausted`, and nothing happened. No changes at all wait for those before.
    pub fn change(&self, changes: Vec<Change>) -> StoreTask {
        let exhausted = || Box::pin(std::future::ready(Err(VfsError::Exhausted))) as _;
        self.try_change(changes).unwrap_or_else(exhausted)
    }

    /// As [`LogMap::change`]; `None` beyond a limit.
    pub(super) fn try_change(&self, changes: Vec<Change>) -> Option<StoreTask> {
        let mut out = Vec::new();
        let (mut fits, mut grows) = (true, false);
        for change in &changes {
            let (Change::Put(key, _) | Change::Remove(key)) = change;
            fits &= (1..=KEY_MAX).contains(&key.len());
            match change {
                Change::Put(key, value) => {
                    (fits, grows) = (fits && value.len() <= VALUE_MAX, true);
                    encode_put(&mut out, key, value);
                }
                Change::Remove(key) => encode_removed(&mut out, key),
            }
        }
        if !fits || out.len() > PAYLOAD_MAX {
            return None;
        }
        let task = self.log.append(1, false, |live| {
            let (entries, bytes) = live.after(&changes);
            let full = entries > self.spec.entries || bytes > self.spec.bytes;
            if grows && full {
                return None;
            }
            live.apply(changes);
            Some(out)
        })?;
        Some(self.log.in_time(task))
    }

    /// The end of the write that covers all calls so far; `None` if none is under way or waits.
    pub(super) fn settled(&self) -> Option<StoreTask> {
        self.log.settled()
    }

    /// Whether there is an entry of this key.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.log.peek(|live| live.all.contains_key(key))
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

    /// Groups that wait to be written, and who waits for them.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.log.queued()
    }
}
