//! How many entries the engine's tables have, for `holdfast status` and for tests that look for leftovers. They are
//! counted on request, one shard after the other, so the figures of a busy server are not of one moment.

use super::files::Files;

impl Files {
    /// Each table with its entries.
    pub fn sizes(&self) -> [(&'static str, usize); 6] {
        let (mut inodes, mut opens) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            inodes += shard.len();
            opens += shard.values().map(|inode| inode.opens.len()).sum::<usize>();
        }
        [
            ("engine_inodes", inodes),
            ("engine_opens", opens),
            ("engine_leases", self.leases.lock().len()),
            ("engine_paths", self.paths.lock().len()),
            ("engine_watchers", self.watches.lock().len()),
            ("engine_claims", self.claims.len()),
        ]
    }
}
