//! Syncs that a simulated disk answers and does not do as asked.
//!
//! A test sets one [`Deceit`] to make the server behave as one that forgets a sync, weakens it, or
//! does not listen to its error, without a line changed in the server. What a sync really came to
//! is what the [`super::SyncObserver`] hears; only the caller is deceived.
//!
//! Owns the list of deceits and their effect on a sync. A disk never deceives by itself, and the
//! disk that a crash leaves is honest again.

use super::{
    effects::Scope,
    image::{Image, ROOT},
    state::State,
};
use crate::{disk::DiskResult, posix::name::DEPOT};

/// One way to answer syncs wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deceit {
    /// `fsync` of a file does no more than `fdatasync`.
    FsyncIsFdatasync,
    /// `fsync` and `fdatasync` of a file are not done.
    FileSyncSkipped,
    /// `fsync` of a directory is not done.
    DirectorySyncSkipped,
    /// Syncs of files in the depot, where large streams are kept, are not done.
    DepotFileSyncSkipped,
    /// Syncs of the depot's directories are not done.
    DepotDirectorySyncSkipped,
    /// `RWF_DSYNC` is ignored.
    DsyncIgnored,
    /// A sync goes through a descriptor that is opened for it: it hears of no earlier failure that
    /// somebody else was told of.
    FreshDescriptor,
    /// The error of `fsync` and `fdatasync` is not passed on.
    SyncErrorSwallowed,
    /// The error of the sync within a durable write is not passed on.
    DsyncErrorSwallowed,
    /// `fsync` and `fdatasync` are answered at once and done when the next one comes.
    OneSyncLate,
}

impl Deceit {
    /// Every deceit.
    pub const ALL: [Self; 10] = [
        Self::FsyncIsFdatasync,
        Self::FileSyncSkipped,
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

/// What a sync came to.
pub(super) struct Synced {
    /// What the caller is told.
    pub(super) told: DiskResult<()>,
    /// What really happened; `None` if nothing did.
    pub(super) real: Option<DiskResult<()>>,
}

impl State {
    /// `fsync` or `fdatasync`, as honest as the disk is.
    pub(super) fn sync_as_deceived(&mut self, serial: u64, ino: u64, scope: Scope) -> Synced {
        let honest = |real| Synced {
            told: real,
            real: Some(real),
        };
        let skipped = Synced {
            told: Ok(()),
            real: None,
        };
        let directory = self.live.get(ino).is_some_and(|node| node.is_dir());
        match self.deceit {
            Some(Deceit::FsyncIsFdatasync) if !directory => {
                honest(self.sync(serial, ino, Scope::Data))
            }
            Some(Deceit::FileSyncSkipped) if !directory => skipped,
            Some(Deceit::DirectorySyncSkipped) if directory => skipped,
            Some(Deceit::DepotFileSyncSkipped) if !directory && self.live.in_depot(ino) => skipped,
            Some(Deceit::DepotDirectorySyncSkipped) if directory && self.live.in_depot(ino) => {
                skipped
            }
            Some(Deceit::FreshDescriptor) => {
                let fresh = self.hold(ino);
                let real = self.sync(fresh, ino, scope);
                self.release(fresh);
                honest(real)
            }
            Some(Deceit::SyncErrorSwallowed) => Synced {
                told: Ok(()),
                real: Some(self.sync(serial, ino, scope)),
            },
            Some(Deceit::OneSyncLate) => {
                let late = self.late.replace((serial, ino, scope));
                if let Some((serial, ino, scope)) = late {
                    // Nobody waits for the error any more.
                    let _ = self.sync(serial, ino, scope);
                }
                skipped
            }
            _ => honest(self.sync(serial, ino, scope)),
        }
    }
}

impl Image {
    /// Whether an inode is in the depot, or its folder.
    fn in_depot(&self, ino: u64) -> bool {
        let root = self.get(ROOT);
        let depot = root.and_then(|root| root.entries.get(DEPOT.as_bytes()));
        let mut next: Vec<u64> = depot.copied().into_iter().collect();
        // A tree, as directories have no further links.
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
