//! How many entries the engine's tables have, for `holdfast status` and for tests that look for leftovers. They are
//! counted on request, one shard after the other, so the figures of a busy server are not of one moment.

use super::files::Files;

/// Entries of the engine's tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Inodes with an open.
    pub inodes: usize,
    /// Opens.
    pub opens: usize,
    /// Leases, by client and key.
    pub leases: usize,
    /// Opens whose path is known.
    pub paths: usize,
    /// Watchers of directories.
    pub watchers: usize,
    /// Claims on names.
    pub claims: usize,
}

impl Files {
    /// Counts the entries of the tables.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for shard in &self.shards {
            let shard = shard.lock();
            sizes.inodes += shard.len();
            sizes.opens += shard.values().map(|inode| inode.opens.len()).sum::<usize>();
        }
        sizes.leases = self.leases.lock().len();
        sizes.paths = self.paths.lock().len();
        sizes.watchers = self.watches.lock().len();
        sizes.claims = self.claims.lock().len();
        sizes
    }
}
