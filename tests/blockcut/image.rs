//! The contents of a device after a cut: the log replayed.
//!
//! A base image is carried forward flush by flush, so that a cut costs a copy of what is in use
//! and the writes since the last flush. Of those every one may have reached the medium or not,
//! and the last sectors of one may be missing: that is what a volatile cache is allowed to do.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FallocateFlags;

use crate::block_log::{BlockLog, Entry, SECTOR};
use crate::rng::Rng;

/// Zeros of this size become holes.
const GRAIN: usize = 4096;
const COPY_BYTES: usize = 1 << 20;

/// Which writes since the last completed flush reached the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// None: a cache that writes back only when asked to.
    Min,
    /// All: a cache that writes through.
    Max,
    /// Each with a chance, some torn, by this seed.
    Some(u64),
}

impl Kept {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Some(_) => "subset",
        }
    }
}

/// Makes images from a log, cuts in ascending order.
pub(crate) struct Replayer<'a> {
    log: &'a BlockLog,
    base: File,
    done: usize,
    size: u64,
    /// Bytes of the device that are written all or not.
    untorn: Range<u64>,
    buffer: Vec<u8>,
}

impl<'a> Replayer<'a> {
    pub(crate) fn new(log: &'a BlockLog, base: &Path, size: u64, untorn: Range<u64>) -> Self {
        let base = sparse(base, size);
        Self {
            log,
            base,
            done: 0,
            size,
            untorn,
            buffer: Vec::new(),
        }
    }

    /// Makes `image` what the device holds after a cut before entry `cut`.
    pub(crate) fn make(&mut self, cut: usize, kept: Kept, image: &File) {
        let flushed = self.log.flushed_before(cut);
        assert!(flushed >= self.done, "cuts must ascend");
        for at in self.done..flushed {
            let entry = self.log.entries()[at];
            apply(self.log, &entry, &self.base, &mut self.buffer);
        }
        self.done = flushed;
        self.copy_base(image);
        let mut rng = match kept {
            Kept::Min => return,
            Kept::Max => None,
            Kept::Some(seed) => Some(Rng::new(seed, 3)),
        };
        let chance = rng.as_mut().map_or(100, |rng| [10, 50, 90][rng.below(3)]);
        let log = self.log;
        // Places torn once are not torn again: pages mix two of their states, no more.
        let mut torn: Vec<(u64, u64)> = Vec::new();
        for entry in &log.entries()[flushed..cut] {
            let Some(rng) = rng.as_mut().filter(|_| !entry.is_forced()) else {
                apply(self.log, entry, image, &mut self.buffer);
                continue;
            };
            if !rng.percent(chance) {
                continue;
            }
            let place = (entry.sector, entry.sector + entry.sectors);
            let again = torn
                .iter()
                .any(|(from, to)| place.0 < *to && *from < place.1);
            let whole =
                entry.sectors <= 1 || entry.is_discard() || again || self.must_be_whole(entry);
            if !whole && rng.percent(20) {
                torn.push(place);
                self.tear_apart(entry, image, rng);
            } else {
                apply(self.log, entry, image, &mut self.buffer);
            }
        }
    }

    fn must_be_whole(&self, entry: &Entry) -> bool {
        let start = entry.sector * SECTOR;
        start < self.untorn.end && self.untorn.start < start + entry.bytes() as u64
    }

    /// A device may write a request's sectors in any order: of these about half.
    fn tear_apart(&mut self, entry: &Entry, image: &File, rng: &mut Rng) {
        self.log.read(entry, &mut self.buffer);
        let mut place = entry.sector * SECTOR;
        for piece in self.buffer.chunks(SECTOR as usize) {
            if rng.percent(50) {
                image.write_all_at(piece, place).unwrap();
            }
            place += piece.len() as u64;
        }
    }

    fn copy_base(&mut self, image: &File) {
        image.set_len(0).unwrap();
        image.set_len(self.size).unwrap();
        self.buffer.resize(COPY_BYTES, 0);
        let mut at = 0;
        // ENXIO: no data behind `at`.
        while let Ok(start) = rustix::fs::seek(&self.base, rustix::fs::SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&self.base, rustix::fs::SeekFrom::Hole(start)).unwrap();
            at = start;
            while at < end {
                let len = COPY_BYTES.min(usize::try_from(end - at).unwrap());
                let part = &mut self.buffer[..len];
                self.base.read_exact_at(part, at).unwrap();
                image.write_all_at(part, at).unwrap();
                at += len as u64;
            }
        }
    }
}

/// A file of this size that holds nothing.
pub(crate) fn sparse(path: &Path, size: u64) -> File {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap();
    file.set_len(size).unwrap();
    file
}

/// Applies a whole entry; zeros become holes.
fn apply(log: &BlockLog, entry: &Entry, image: &File, buffer: &mut Vec<u8>) {
    let start = entry.sector * SECTOR;
    if entry.is_discard() {
        punch(image, start, entry.bytes());
        return;
    }
    log.read(entry, buffer);
    let mut at = 0;
    while at < buffer.len() {
        let zero = is_zero(grain(buffer, at));
        let mut end = at;
        while end < buffer.len() && is_zero(grain(buffer, end)) == zero {
            end = buffer.len().min(end + GRAIN);
        }
        let place = start + at as u64;
        if zero {
            punch(image, place, end - at);
        } else {
            image.write_all_at(&buffer[at..end], place).unwrap();
        }
        at = end;
    }
}

fn grain(buffer: &[u8], at: usize) -> &[u8] {
    &buffer[at..buffer.len().min(at + GRAIN)]
}

fn is_zero(bytes: &[u8]) -> bool {
    // Compared with itself one further: memcmp, which is quick in a debug build too.
    bytes
        .split_first()
        .is_none_or(|(first, rest)| *first == 0 && rest == &bytes[..rest.len()])
}

fn punch(image: &File, at: u64, len: usize) {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(image, how, at, len as u64).unwrap();
}
