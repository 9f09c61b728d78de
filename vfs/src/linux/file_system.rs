//! The file systems that descriptors are open on, each with its class.
//!
//! Another file system may be mounted anywhere below the root of a share. A descriptor opened below another one is on
//! the same file system unless the open crossed a mount point. Opens are made so that they fail there (`opens.rs`), and
//! only then is the file system queried (`LinuxDisk::pool_open`), so this costs no call otherwise.
//!
//! The table holds no file system open, because that would prevent unmounting. An entry is valid while a descriptor
//! refers to it; that descriptor also keeps the device number from being given to another file system.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, RwLock, Weak,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire},
        },
    },
};

use super::{
    calls,
    class::Class,
    pool::{Place, ThreadGroup},
    super_block,
};
use crate::{disk::DiskResult, lock};

/// The most file systems in the table; those beyond it are queried at each mount point that is crossed.
const FILE_SYSTEMS_MAX: usize = 256;

static OPEN: Mutex<BTreeMap<u64, Weak<FileSystem>>> = Mutex::new(BTreeMap::new());

/// Locks that the inodes of a file system share while their times are set.
pub(super) const TIMES_LOCKS: usize = 32;

/// A file system that descriptors are open on.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Its device number; subvolumes of btrfs that are not mounted themselves count as the one above them.
    pub(super) device: u64,
    pub(super) class: Class,
    /// The reasons why a write would wait: each [`LongCall`], and that `RWF_NOWAIT` does not work, as on ext4.
    writes_wait: AtomicUsize,
    /// A call that starts write-back is under way.
    pub(super) starting: AtomicBool,
    /// By inode: held alone while times are set, and by many while access times are set to what they are
    /// (`xfs_log.rs`).
    pub(super) times: [RwLock<()>; TIMES_LOCKS],
}

impl FileSystem {
    /// The file system with a device number, if a descriptor on it is open.
    pub(super) fn known(device: u64) -> Option<Arc<Self>> {
        lock(&OPEN).get(&device)?.upgrade()
    }

    /// The place on the pool for a call that waits for it.
    pub(super) fn place(&self, group: ThreadGroup) -> Place {
        group.of(self.device).local(!self.class.remote)
    }

    /// The file system of a descriptor. This may wait for it.
    pub(super) fn of(fd: impl AsFd) -> DiskResult<Arc<Self>> {
        let device = calls::device_under(&fd)?;
        if let Some(known) = Self::known(device) {
            return Ok(known);
        }
        super_block::forget(device);
        let class = Class::of(fd)?;
        let new = Arc::new(Self {
            device,
            class,
            writes_wait: AtomicUsize::new(usize::from(class.remote)),
            starting: AtomicBool::default(),
            times: Default::default(),
        });
        let mut open = lock(&OPEN);
        if let Some(known) = open.get(&device).and_then(Weak::upgrade) {
            return Ok(known);
        }
        open.remove(&device);
        if open.len() >= FILE_SYSTEMS_MAX {
            open.retain(|_, one| one.strong_count() > 0);
        }
        if open.len() < FILE_SYSTEMS_MAX {
            open.insert(device, Arc::downgrade(&new));
        }
        Ok(new)
    }

    #[cfg(test)]
    pub(super) fn remote(device: u64) -> Arc<Self> {
        let class = Class {
            remote: true,
            ..Class::default()
        };
        Self::with(device, class)
    }

    #[cfg(test)]
    pub(super) fn with(device: u64, class: Class) -> Arc<Self> {
        Arc::new(Self {
            device,
            class,
            writes_wait: AtomicUsize::new(usize::from(!class.memory)),
            starting: AtomicBool::default(),
            times: Default::default(),
        })
    }

    /// Whether a write that begins now is known to wait.
    pub(super) fn writes_wait(&self) -> bool {
        self.writes_wait.load(Acquire) > 0
    }

    /// Records that a write with `RWF_NOWAIT` was refused.
    pub(super) fn set_writes_wait(&self) {
        self.writes_wait.fetch_add(1, AcqRel);
    }
}

/// A call under way that allocates or frees many blocks of a file, and has the inode's lock meanwhile. It counts in
/// memory, where a write waits for that lock: it has no `RWF_NOWAIT`.
pub(super) struct LongCall(Arc<FileSystem>);

impl LongCall {
    /// To be made before the call, and to be dropped on its thread.
    pub(super) fn begin(on: &Arc<FileSystem>) -> Self {
        on.writes_wait
            .fetch_add(usize::from(on.class.memory), AcqRel);
        Self(Arc::clone(on))
    }
}

impl Drop for LongCall {
    fn drop(&mut self) {
        let on = &self.0;
        on.writes_wait
            .fetch_sub(usize::from(on.class.memory), AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::{LinuxDisk, LinuxFd};

    #[test]
    fn writes_in_memory_leave_the_worker_while_a_call_may_hold_their_lock() {
        let folder = tempfile::tempdir().unwrap();
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let class = Class {
            memory: true,
            ..Class::default()
        };
        let on = FileSystem::with(4011, class);
        let file = std::fs::File::create(folder.path().join("f")).unwrap();
        let fd = LinuxFd::new(file.into(), false, &on);
        let written = || disk.try_write(&fd, 0, b"x", false);
        assert_eq!(written(), Some(Ok(1)));
        let calls = [LongCall::begin(&on), LongCall::begin(&on)];
        assert_eq!(written(), None);
        drop(calls);
        crate::testing::block_on(crate::Disk::truncate(&disk, &fd, 4)).unwrap();
        assert_eq!(written(), Some(Ok(1)));
    }
}
