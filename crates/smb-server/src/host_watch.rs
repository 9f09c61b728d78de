//! Changes made by other programs on the host: which objects must be watched, and how changes are handled.
//!
//! The server does not access the disk here; a [`HostWatch`] watches. It is called for every open that watches a
//! directory or may cache something, before the client learns of either, and it watches until the open is closed.
//! It reports changes by [`crate::Server::host_changed`], [`crate::Server::host_changes_lost`] and
//! [`crate::Server::host_touched`], but not changes made by the server itself.
//!
//! Without a `HostWatch` nothing is watched. An object that a `HostWatch` cannot watch (the kernel has no more
//! watches) must not be cached: its caching is broken as soon as it is granted. Bound: one [`Observed`] for each
//! open and interest.

use std::{any::Any, collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::oneshot;
use vfs::Vfs;

use crate::{
    file::{CountedUser, OpenId},
    locks::{Mutex, RwLock},
};

/// The longest time by which STATUS_PENDING is delayed for a client that watches a tree, while watching is set up.
pub const OBSERVE_MAX: Duration = Duration::from_secs(1);

/// The reason why an object is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// An open watches the directory, and with `tree` everything below it.
    Changes {
        /// The watcher's id in reports.
        open: OpenId,
        /// The user with whom everything below is counted.
        user: CountedUser,
        /// WATCH_TREE.
        tree: bool,
    },
    /// A client may cache the file or the directory.
    Caching {
        /// It is a directory.
        directory: bool,
    },
}

impl Interest {
    /// Whether a directory is observed.
    pub fn is_of_directory(self) -> bool {
        !matches!(self, Self::Caching { directory: false })
    }
}

/// The object is observed until this is dropped.
pub struct Observed {
    /// Ends the observing when dropped.
    pub guard: Box<dyn Any + Send + Sync>,
    /// Completes when everything is observed, and fails if the object itself cannot be; `None` if it already is.
    pub ready: Option<oneshot::Receiver<()>>,
}

/// The object cannot be observed, so no host change would break its caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unobserved;

/// Observes host changes of the files of the shares.
pub trait HostWatch<V: Vfs>: Send + Sync {
    /// Begins to observe: the node itself, whose key the reports name, at once unless that may wait for its file
    /// system, and everything below it soon. It does not wait for a disk. `None` if the object cannot be observed.
    fn observe(&self, node: &V::Node, interest: Interest) -> Option<Observed>;
}

type Guards = BTreeMap<OpenId, Vec<Box<dyn Any + Send + Sync>>>;

/// The watched objects, by open.
pub(crate) struct HostWatches<V: Vfs> {
    pub(crate) watch: RwLock<Option<Arc<dyn HostWatch<V>>>>,
    guards: Mutex<Guards>,
}

impl<V: Vfs> Default for HostWatches<V> {
    fn default() -> Self {
        Self {
            watch: RwLock::new(None),
            guards: Mutex::default(),
        }
    }
}

impl<V: Vfs> HostWatches<V> {
    /// Observes for an open until [`Self::forget`] is called for it. Returns [`Observed::ready`]; `None` as well if
    /// there is no [`HostWatch`].
    pub(crate) fn observe(
        &self,
        open: OpenId,
        node: &V::Node,
        interest: Interest,
    ) -> Result<Option<oneshot::Receiver<()>>, Unobserved> {
        let watch = self.watch.read();
        let Some(watch) = &*watch else {
            return Ok(None);
        };
        let Observed { guard, ready } = watch.observe(node, interest).ok_or(Unobserved)?;
        self.guards.lock().entry(open).or_default().push(guard);
        Ok(ready)
    }

    /// The number of opens for which an object is observed.
    pub(crate) fn observed(&self) -> usize {
        self.guards.lock().len()
    }

    /// Stops observing for an open that was closed.
    pub(crate) fn forget(&self, open: OpenId) {
        let gone = self.guards.lock().remove(&open);
        drop(gone);
    }
}
