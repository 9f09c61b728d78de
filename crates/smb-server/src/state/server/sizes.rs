//! The number of entries in the server's tables, which must not grow on a server that runs long.

use vfs::Vfs;

use super::Server;

impl<V: Vfs> Server<V> {
    /// The name of each table whose size depends on clients, with its present number of entries.
    pub fn table_sizes(&self) -> Vec<(&'static str, usize)> {
        let (answers, sent) = self.pending_breaks.sizes();
        let [found, creates, instances] = self.durables.sizes();
        let mut sizes = vec![
            ("connections", self.connections.lock().len()),
            ("sessions", self.sessions.lock().len()),
            ("opens", self.opens.len()),
            ("holders", self.holders.len()),
            ("waiters", self.waiters.lock().len()),
            ("failed_logins", self.limiter.lock().entries()),
            ("answers_under_way", answers),
            ("breaks_under_way", sent),
            ("opens_by_id", found),
            ("disconnected_opens", self.durables.len()),
            ("creates_by_guid", creates),
            ("app_instances", instances),
            ("observed", self.host_watches.observed()),
            ("change_times", self.change_times.len()),
        ];
        sizes.extend(self.files.sizes());
        sizes.push(("dirty_inodes", self.durability.dirty_inodes()));
        sizes
    }
}
