//! Change times that clients set. Linux has no call to set the change time, so the time that a
//! client set is remembered here together with the kernel's at that moment. It is shown until the
//! kernel's time changes, that is until something else changes the inode.
//!
//! The table is in memory only and bounded; an inode that is forgotten shows the kernel's time again.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use vfs::{Attr, FileKey, Timestamp};

use crate::locks::Mutex;

const REMEMBERED_MAX: usize = 4096;

/// File system and inode number; the kernel's change time distinguishes generations.
type Inode = (u64, u64);

#[derive(Debug, Clone, Copy)]
struct Entry {
    set: Timestamp,
    kernel: Timestamp,
}

/// The change times that clients set, by inode.
#[derive(Debug, Default)]
pub(crate) struct ChangeTimes {
    entries: Mutex<BTreeMap<Inode, Entry>>,
    any: AtomicBool,
}

fn inode(key: FileKey) -> Inode {
    (key.fs, key.ino)
}

impl ChangeTimes {
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Shows `set` for the inode as long as the kernel's change time is that of `attr`.
    pub(crate) fn remember(&self, attr: &Attr, set: Timestamp) {
        let mut entries = self.entries.lock();
        if entries.len() >= REMEMBERED_MAX && !entries.contains_key(&inode(attr.key)) {
            entries.pop_first();
        }
        let kernel = attr.changed;
        entries.insert(inode(attr.key), Entry { set, kernel });
        self.any.store(true, Ordering::Release);
    }

    /// Puts the remembered time into `attr`, if it is still valid.
    pub(crate) fn apply(&self, attr: &mut Attr) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut entries = self.entries.lock();
        match entries.get(&inode(attr.key)) {
            Some(entry) if entry.kernel == attr.changed => attr.changed = entry.set,
            // A listing may have read these attributes long before the time was set.
            Some(entry) if attr.changed < entry.kernel => {}
            Some(_) => {
                entries.remove(&inode(attr.key));
                self.any.store(!entries.is_empty(), Ordering::Release);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use vfs::Kind;

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    fn attr(ino: u64, changed: i64) -> Attr {
        Attr {
            key: FileKey {
                fs: 1,
                ino,
                generation: 0,
            },
            file_id: ino,
            hidden_by_name: false,
            kind: Kind::File,
            size: 0,
            allocated: 0,
            links: 1,
            created: at(0),
            accessed: at(0),
            written: at(0),
            changed: at(changed),
            dos_attributes: 0,
            uid: 0,
            gid: 0,
            mode: 0,
        }
    }

    fn shown(times: &ChangeTimes, mut attr: Attr) -> i64 {
        times.apply(&mut attr);
        attr.changed.secs
    }

    #[test]
    fn a_set_time_holds_until_the_kernels_moves() {
        let times = ChangeTimes::default();
        times.remember(&attr(7, 100), at(5));
        assert_eq!(shown(&times, attr(7, 100)), 5);
        assert_eq!(shown(&times, attr(8, 100)), 100);
        assert_eq!(shown(&times, attr(7, 99)), 99, "read before it was set");
        assert_eq!(shown(&times, attr(7, 100)), 5, "and not forgotten by that");
        assert_eq!(shown(&times, attr(7, 101)), 101);
        assert_eq!(shown(&times, attr(7, 100)), 100, "forgotten by then");
    }

    #[test]
    fn memory_is_bounded() {
        let times = ChangeTimes::default();
        for ino in 0..REMEMBERED_MAX as u64 + 10 {
            times.remember(&attr(ino, 1), at(5));
        }
        assert_eq!(times.entries.lock().len(), REMEMBERED_MAX);
    }
}
