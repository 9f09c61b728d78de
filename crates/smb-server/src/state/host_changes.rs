//! Changes that other programs make on the host: the server watches objects for its opens, and reports changes to
//! the clients that watch or cache them.

use std::sync::Arc;

use tokio::sync::oneshot;
use vfs::{FileKey, Vfs};

use super::{Server, breaks::perform};
use crate::{
    file::{HostChange, OpenId, Touched},
    host_watch::{HostWatch, Interest, Unobserved},
};

impl<V: Vfs> Server<V> {
    /// Sets the [`HostWatch`] that observes objects; to be called before the first client connects.
    pub fn set_host_watch(&self, watch: Arc<dyn HostWatch<V>>) {
        *self.host_watches.watch.write() = Some(watch);
    }

    /// Watches for an open until it is closed. The returned channel is ready when everything below is watched, too.
    pub(crate) fn observe(
        &self,
        open: OpenId,
        node: &V::Node,
        interest: Interest,
    ) -> Result<Option<oneshot::Receiver<()>>, Unobserved> {
        let ready = self.host_watches.observe(open, node, interest)?;
        // The open may have been closed meanwhile, and no later close would remove this.
        if self.files.path_of(open).is_none() {
            self.host_watches.forget(open);
        }
        Ok(ready)
    }

    /// As [`Server::observe`], for an open that is not in the tables yet. If it will not be made after all, the caller
    /// must call `host_watches.forget`.
    pub(crate) async fn observe_ahead(
        &self,
        open: OpenId,
        node: &V::Node,
        interest: Interest,
    ) -> Result<(), Unobserved> {
        match self.host_watches.observe(open, node, interest)? {
            Some(ready) => ready.await.map_err(|_| Unobserved),
            None => Ok(()),
        }
    }

    /// Breaks the caching that was just granted, because the object cannot be watched.
    pub(crate) fn unobserved(self: &Arc<Self>, key: FileKey, directory: bool) {
        let touched = if directory {
            Touched::Entries
        } else {
            Touched::Data
        };
        self.host_touched(key, touched);
    }

    /// Reports host changes below a watched directory. It must be called within the runtime of the environment, and
    /// changes that belong together (both names of a rename) in one call.
    pub fn host_changed(self: &Arc<Self>, open: OpenId, changes: &[HostChange]) {
        perform(self, self.files.host_changed(open, changes));
    }

    /// Reports that changes below a watched directory were lost.
    pub fn host_changes_lost(self: &Arc<Self>, open: OpenId) {
        perform(self, self.files.changes_lost(open));
    }

    /// Reports that another program on the host touched an inode that a client may cache. It must be called within the
    /// runtime of the environment, because breaks have time-outs.
    pub fn host_touched(self: &Arc<Self>, key: FileKey, touched: Touched) {
        perform(self, self.files.host_touched(key, touched));
    }
}
