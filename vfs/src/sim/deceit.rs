//! Syncs that a simulated disk reports as done but does not carry out as requested.
//!
//! A test sets one [`Deceit`] to make the server behave as one that forgets a sync, weakens it, or ignores its
//! error, without any change of the server. The [`super::SyncObserver`] gets the true result; only the caller is
//! deceived.
//!
//! A disk never deceives by itself, and the disk that a crash leaves is honest again.

use super::{
    effects::Scope,
    image::{Image, ROOT},
    state::State,
};
use crate::{disk::DiskResult, posix::name::DEPOT};

/// One way to report syncs wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deceit {
    /// `fsync` of a file does no more than `fdatasync`.
    FsyncIsFdatasync,
    /// `fsync` and `fdatasync` of a file are not done.
    FileSyncSkipped,
    /// `fdatasync` of a file is not done.
    DataSyncSkipped,
    /// `fsync` of a directory is not done.
    DirectorySyncSkipped,
    /// Syncs of files in the depot, where large streams are kept, are not done.
    DepotFileSyncSkipped,
    /// Syncs of the depot's directories are not done.
    DepotDirectorySyncSkipped,
    /// `RWF_DSYNC` is ignored.
    DsyncIgnored,
    /// A sync uses a descriptor that is opened for it, which does not report earlier failures that were reported to
    /// another descriptor.
    FreshDescriptor,
    /// The error of `fsync` and `fdatasync` is not passed on.
    SyncErrorSwallowed,
    /// The error of the sync within a durable write is not passed on.
    DsyncErrorSwallowed,
    /// `fsync` and `fdatasync` return at once and are done when the next one comes.
    OneSyncLate,
}

impl Deceit {
    pub const ALL: [Self; 11] = [
        Self::FsyncIsFdatasync,
        Self::FileSyncSkipped,
        Self::DataSyncSkipped,
        Self::DirectorySyncSkipped,
        Self::DepotFileSyncSkipped,
        Self::DepotDirectorySyncSkipped,
        Self::DsyncIgnored,
        Self::FreshDescriptor,
        Self::SyncErrorSwallowed,
        Self::DsyncErrorSwallowed,
        Self::OneSyncLate,
    ];
}

pub(super) struct Synced {
    /// The result that the caller gets.
    pub(super) reported: DiskResult<()>,
    /// The true result; `None` if nothing happened.
    pub(super) real: Option<DiskResult<()>>,
}

impl State {
    /// Carries out `fsync` or `fdatasync`, subject to the disk's deceit.
    pub(super) fn sync_as_deceived(&mut self, serial: u64, ino: u64, scope: Scope) -> Synced {
        let honest = |real| Synced {
            reported: real,
            real: Some(real),
        };
        let skipped = Synced {
            reported: Ok(()),
            real: None,
        };
        let directory = self.live.get(ino).is_some_and(|node| node.is_dir());
        match self.deceit {
            Some(Deceit::FsyncIsFdatasync) if !directory => {
                honest(self.sync(serial, ino, Scope::Data))
            }
            Some(Deceit::FileSyncSkipped) if !directory => skipped,
            Some(Deceit::DataSyncSkipped) if !directory && scope == Scope::Data => skipped,
            Some(Deceit::DirectorySyncSkipped) if directory => skipped,
            Some(Deceit::DepotFileSyncSkipped) if !directory && self.live.in_depot(ino) => skipped,
            Some(Deceit::DepotDirectorySyncSkipped) if directory && self.live.in_depot(ino) => {
                skipped
            }
            Some(Deceit::FreshDescriptor) => {
                let fresh = self.hold(ino, None);
                let real = self.sync(fresh, ino, scope);
                self.release(fresh);
                honest(real)
            }
            Some(Deceit::SyncErrorSwallowed) => Synced {
                reported: Ok(()),
                real: Some(self.sync(serial, ino, scope)),
            },
            Some(Deceit::OneSyncLate) => {
                let late = self.late.replace((serial, ino, scope));
                if let Some((serial, ino, scope)) = late {
                    // Nobody waits for this sync's error any more.
                    let _ = self.sync(serial, ino, scope);
                }
                skipped
            }
            _ => honest(self.sync(serial, ino, scope)),
        }
    }
}

impl Image {
    /// Whether an inode is in the depot or is its folder.
    fn in_depot(&self, ino: u64) -> bool {
        let root = self.get(ROOT);
        let depot = root.and_then(|root| root.entries.get(DEPOT.as_bytes()));
        let mut next: Vec<u64> = depot.copied().into_iter().collect();
        // This is a tree, because directories have no further links.
        while let Some(at) = next.pop() {
            if at == ino {
                return true;
            }
            next.extend(
                self.get(at)
                    .into_iter()
                    .flat_map(|node| node.entries.values()),
            );
        }
        false
    }
}
