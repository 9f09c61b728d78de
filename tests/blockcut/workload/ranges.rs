//! Ends that are set and ranges that are filled with zeros.

use smb_wire::fsctl::FsctlCode;

use super::{Client, FILE_MAX, WRITE_MAX, size_of};
use crate::record::{Cell, Contents, DATA, Kind, UNIT, Value};

impl Client<'_> {
    pub(super) fn set_end(&mut self, at: usize) -> Option<()> {
        let handle = self.opened(at)?;
        let object = self.files[at].object;
        let promise = self.promise(object, self.files[at].through);
        let old = self.files[at].forks[0].len();
        let new = self.rng.below(FILE_MAX.min(old + 8));
        let known = &mut self.files[at].forks[0];
        known.resize(new, Contents::Zero);
        let mut effects = vec![(Cell::Size(object, DATA), size_of(known))];
        // The bytes behind the end are zero when the file grows again.
        for unit in new..old {
            let cell = Cell::Unit(object, DATA, unit as u32);
            effects.push((cell, Value::Contents(Contents::Zero)));
        }
        effects.extend(self.written(object));
        self.act(Kind::SetEof, effects, promise, || {
            handle.set_end_of_file((new * UNIT) as u64)
        })
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
        let effects = self.put(at, DATA, from, &vec![Contents::Zero; count]);
        let mut range = [0; 16];
        range[..8].copy_from_slice(&((from * UNIT) as u64).to_le_bytes());
        range[8..].copy_from_slice(&(((from + count) * UNIT) as u64).to_le_bytes());
        self.act(Kind::Zero, effects, promise, || {
            handle.ioctl(FsctlCode::SET_ZERO_DATA, &range, 0).map(drop)
        })
    }
}
