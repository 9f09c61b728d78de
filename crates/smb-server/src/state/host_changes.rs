//! Changes that other programs make on the host: the server watches objects for its opens, and reports changes to
//! the clients that watch or cache them.

use std::sync::Arc;

use tokio::sync::oneshot;
use vfs::{FileKey, Vfs};

use super::{Server, breaks::perform};
use crate::{
    file::{HostChange, OpenId, Touched},
    outside::{HostWatch, Interest, Unobserved},
};

impl<V: Vfs> Server<V> {
    /// From now on `watch` is asked to observe; before the first client comes.
    pub fn set_host_watch(&self, watch: Arc<dyn HostWatch<V>>) {
        self.outside.watch_by(watch);
    }

    /// Watches for an open until it is closed. The returned channel is ready when everything below is watched, too.
    pub(crate) fn observe(
        &self,
        open: OpenId,
        node: &V::Node,
        interest: Interest,
    ) -> Result<Option<oneshot::Receiver<()>>, Unobserved> {
        let Some(observed) = self.outside.observe(node, interest) else {
            return Ok(None);
        };
        let observed = observed?;
        self.outside.keep(open, observed.guard);
        // The open may have been closed meanwhile, and nobody closes it again.
        if self.files.path_of(open).is_none() {
            self.outside.forget(open);
        }
        Ok(observed.ready)
    }

    /// As [`Server::observe`], for an open that is about to be there; `outside.forget` if it is not
    /// to be after all.
    pub(crate) fn observe_ahead(
        &self,
        open: OpenId,
        node: &V::Node,
        interest: Interest,
    ) -> Result<(), Unobserved> {
        if let Some(observed) = self.outside.observe(node, interest) {
            self.outside.keep(open, observed?.guard);
        }
        Ok(())
    }

    /// The object that was granted caching just now cannot be watched: the caching is broken again.
    pub(crate) fn unobserved(self: &Arc<Self>, key: FileKey, directory: bool) {
        let touched = if directory {
            Touched::Entries
        } else {
            Touched::Data
        };
        self.touched_outside(key, touched);
    }

    /// Others made changes below a watched directory. Call within the runtime of the
    /// environment; what belongs together (the two names of a rename) goes into one call.
    pub fn changed_outside(self: &Arc<Self>, open: OpenId, changes: &[HostChange]) {
        perform(self, self.files.changed_outside(open, changes));
    }

    /// Changes below a watched directory were lost.
    pub fn lost_outside(self: &Arc<Self>, open: OpenId) {
        perform(self, self.files.changes_lost(open));
    }

    /// Others touched an inode that somebody may cache. Call within the runtime of the
    /// environment: breaks have time-outs.
    pub fn touched_outside(self: &Arc<Self>, key: FileKey, touched: Touched) {
        perform(self, self.files.touched_outside(key, touched));
    }
}
