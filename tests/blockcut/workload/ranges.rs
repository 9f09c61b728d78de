//! Ends that are set, and ranges that are filled with zeros or cloned from another file.

use bytes::BytesMut;
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::{DuplicateExtents, FsctlCode};

use super::{Client, FILE_MAX, WRITE_MAX, size_of};
use crate::record::{Cell, Contents, DATA, Kind, UNIT, Value};

/// Units of a cluster, in which space is allocated and shared.
const CLUSTER: usize = 8;

impl Client<'_> {
    pub(super) fn set_end(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let object = self.files[at].object;
        let promise = self.promise(object, self.files[at].through);
        let old = self.files[at].forks[0].len();
        let new = self.rng.below(FILE_MAX.min(old + 8));
        let effects = self.resized(at, new);
        self.act(Kind::SetEof, effects, promise, || {
            handle.set_end_of_file((new * UNIT) as u64)
        })
    }

    /// FileAllocationInformation ([MS-FSCC] 2.4.4) of whole clusters: cuts a file that is longer, and reserves space
    /// for one that is not.
    pub(super) fn allocate(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let object = self.files[at].object;
        let promise = self.promise(object, self.files[at].through);
        let old = self.files[at].forks[0].len();
        let new = self.rng.below(FILE_MAX.min(old + 2 * CLUSTER)) / CLUSTER * CLUSTER;
        let effects = match new < old {
            true => self.resized(at, new),
            false => Vec::new(),
        };
        self.act(Kind::Allocate, effects, promise, || {
            let bytes = (new * UNIT) as u64;
            handle.set(FileInformationClass::ALLOCATION, &bytes.to_le_bytes())
        })
    }

    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE ([MS-FSCC] 2.3.7): clusters of one file become those of another, too.
    pub(super) fn duplicate(&mut self) {
        if self.files.len() < 2 {
            return self.create();
        }
        let (from, to) = (
            self.rng.below(self.files.len()),
            self.rng.below(self.files.len()),
        );
        let clusters = |at: usize| self.files[at].forks[0].len() / CLUSTER;
        let (most, room) = (clusters(from).min(WRITE_MAX / CLUSTER), clusters(to));
        // A file that is not sparse gets no extents of one that is ([MS-FSA] 2.1.5.10.4).
        if from == to || most == 0 || room == 0 || self.files[from].sparse {
            return;
        }
        let (Some(source), Some(target)) = (self.opened(from), self.opened(to)) else {
            return;
        };
        // Opening the second may have closed the first.
        if self.files[from].handle.is_none() {
            return;
        }
        let units = most.min(room) * CLUSTER;
        let place = self.rng.below(room - units / CLUSTER + 1) * CLUSTER;
        let contents = self.files[from].forks[0][..units].to_vec();
        let effects = self.put(to, DATA, place, &contents);
        self.files[to].mixed = true;
        let promise = self.promise(self.files[to].object, self.files[to].through);
        self.source = Some(self.files[from].object);
        let mut input = BytesMut::new();
        DuplicateExtents {
            source_file_id: source.id(),
            source_file_offset: 0,
            target_file_offset: (place * UNIT) as i64,
            byte_count: (units * UNIT) as i64,
        }
        .encode(&mut input);
        let done = self.act(Kind::Duplicate, effects, promise, || {
            let code = FsctlCode::DUPLICATE_EXTENTS_TO_FILE;
            target.ioctl(code, &input, 0).map(drop)
        });
        if done.is_none() || self.rng.percent(60) && self.flush(to).is_none() {
            self.files.swap_remove(to);
        }
    }

    /// Gives the unnamed data another length as the client knows them; the cells that change.
    fn resized(&mut self, at: usize, new: usize) -> Vec<(Cell, Value)> {
        let object = self.files[at].object;
        let old = self.files[at].forks[0].len();
        let known = &mut self.files[at].forks[0];
        known.resize(new, Contents::Zero);
        let mut effects = vec![(Cell::Size(object, DATA), size_of(known))];
        // The bytes behind the end are zero when the file grows again.
        for unit in new..old {
            let cell = Cell::Unit(object, DATA, unit as u32);
            effects.push((cell, Value::Contents(Contents::Zero)));
        }
        effects.extend(self.written(object));
        effects
    }

    /// FSCTL_SET_ZERO_DATA ([MS-FSCC] 2.3.85) somewhere in a file, which keeps its length.
    pub(super) fn zero(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let object = self.files[at].object;
        let promise = self.promise(object, self.files[at].through);
        let size = self.files[at].forks[0].len();
        if size == 0 {
            return Some(());
        }
        let from = self.rng.below(size);
        let count = 1 + self.rng.below(WRITE_MAX.min(size - from));
        let was_zero = self.files[at].forks[0][from..from + count]
            .iter()
            .all(|unit| *unit == Contents::Zero);
        let mut effects = self.put(at, DATA, from, &vec![Contents::Zero; count]);
        if was_zero {
            // On btrfs a hole that is made where one is already leaves the time of the last write as it is.
            effects.retain(|(cell, _)| !matches!(cell, Cell::Written(_)));
        }
        let mut range = [0; 16];
        range[..8].copy_from_slice(&((from * UNIT) as u64).to_le_bytes());
        range[8..].copy_from_slice(&(((from + count) * UNIT) as u64).to_le_bytes());
        self.act(Kind::Zero, effects, promise, || {
            handle.ioctl(FsctlCode::SET_ZERO_DATA, &range, 0).map(drop)
        })
    }
}
