//! Changes that other processes of this machine make to the files of the shares.
//!
//! One inotify instance and one thread for the process. It observes the directories that a client watches (with
//! WATCH_TREE everything below on local file systems), and the files and directories that a client may cache. Nothing
//! else is observed, so an idle server costs nothing. A watch is set before the client gets any answer that depends on
//! it, and removed with its open. No worker waits for a disk for that.
//!
//! inotify does not report who made a change, so the server's own changes are recognised by [`OwnChanges`] and left
//! out. It does not see writes through memory mappings (inotify(7)), changes by other clients of a remote file system,
//! and files that the service's own user may not read. It reports the removal of a directory only when nobody has it
//! open any more, so the thread looks at the directories of its interests every other second.
//!
//! `table` has the watches and the interests that use them, `read` evaluates the kernel's events, `walk` follows trees,
//! and `jobs` decides the order. Bounds: [`table::WATCHES_MAX`] and the memory of their places, [`jobs::JOBS_MAX`] and
//! the kernel's fs.inotify.max_user_watches.

mod jobs;
mod read;
mod table;
#[cfg(test)]
mod tests;
mod walk;

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use rustix::{fs::inotify, io::Errno};
use smb_server::{
    Server,
    file::{HostChange, OpenId, Touched},
    host_watch::{HostWatch, Interest, Observed},
};
use tokio::sync::{Notify, oneshot};
use vfs::{
    FileKey, Node, Volume,
    linux::{InodeId, LinuxFd, OwnChanges},
};

use crate::{answers::HostChangesStatus, host_vfs::HostVfs, lock};
use jobs::{Job, Jobs};
use table::{Table, UseId};
use walk::Walk;

/// Watches of one interest that are removed at once; the thread removes the others later.
const REMOVED_AT_ONCE: usize = 16;

/// Receives the reports.
pub(crate) trait Listener: Send + Sync {
    /// Reports host changes below an open that watches; see [`Server::host_changed`].
    fn changed(&self, open: OpenId, changes: &[HostChange]);
    /// Reports that host changes below an open that watches were missed; see [`Server::host_changes_lost`].
    fn lost(&self, open: OpenId);
    /// Reports that a file which clients cache was changed on the host, or that a directory which they cache or watch
    /// was removed; see [`Server::host_touched`].
    fn touched(&self, key: FileKey, touched: Touched);
}

impl Listener for Weak<Server<HostVfs>> {
    fn changed(&self, open: OpenId, changes: &[HostChange]) {
        if let Some(server) = self.upgrade() {
            server.host_changed(open, changes);
        }
    }

    fn lost(&self, open: OpenId) {
        if let Some(server) = self.upgrade() {
            server.host_changes_lost(open);
        }
    }

    fn touched(&self, key: FileKey, touched: Touched) {
        if let Some(server) = self.upgrade() {
            server.host_touched(key, touched);
        }
    }
}

struct Shared {
    inotify: OwnedFd,
    own: Arc<OwnChanges>,
    table: Mutex<Table>,
    jobs: Mutex<Jobs>,
    wake: Notify,
    ended: AtomicBool,
    overflows: AtomicU64,
    refused: AtomicU64,
    /// The reasons that were logged.
    reasons: Mutex<BTreeSet<i32>>,
}

impl Shared {
    fn order(&self, job: Job) {
        // There is at most one walk and one end for each interest.
        lock(&self.jobs).order(job);
        self.wake.notify_one();
    }

    fn follow(&self, walk: Walk) {
        lock(&self.jobs).follow(walk);
        self.wake.notify_one();
    }

    /// Events of an interest are lost: its tree is walked once more.
    fn walk_anew(&self, id: UseId) {
        lock(&self.jobs).anew(id);
        self.wake.notify_one();
    }

    /// Sets the watch of an interest's own inode, without the lock that others need.
    fn watch_apart(&self, id: UseId, root: &LinuxFd) -> Result<(), Errno> {
        let inode = InodeId::of(root).ok_or(Errno::BADF)?;
        lock(&self.table).begin_set(inode)?;
        let watch = table::set(&self.inotify, root.as_fd());
        lock(&self.table).end_set(&self.inotify, id, inode, watch)
    }

    /// Called when the watch of an interest's own inode is set, which was asked for at `begun`. If nobody waits for it
    /// any more, it may be too late, which is judged as at the end of a walk.
    fn watched(&self, id: UseId, ready: oneshot::Sender<()>, begun: Instant) {
        if ready.is_closed() {
            self.order(Job::Walk(Walk::over(id, ready, begun)));
        } else {
            let _ = ready.send(());
        }
    }

    fn forget(&self, id: UseId) {
        let mut table = lock(&self.table);
        table.remove(&self.inotify, id);
        if table.is_empty() {
            self.own.observe(false);
        }
    }

    /// Logs each reason only the first time: once the watches have run out, this happens again and again.
    fn refused(&self, error: Errno) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if lock(&self.reasons).insert(error.raw_os_error()) {
            let remedy = match error {
                table::FULL => {
                    "; clients watch more than this server or fs.inotify.max_user_watches allows"
                }
                Errno::NOSPC => "; raise fs.inotify.max_user_watches",
                _ => "",
            };
            tracing::warn!(%error, "changes made on this host are not seen everywhere{remedy}");
        }
    }
}

/// The observer of host changes; its thread ends when this is dropped.
pub(crate) struct HostChanges(Arc<Shared>);

impl HostChanges {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel gives no inotify instance (fs.inotify.max_user_instances) or no thread.
    pub(crate) fn start(
        own: Arc<OwnChanges>,
        listener: impl Listener + 'static,
    ) -> io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            inotify: inotify::init(flags)?,
            own,
            table: Mutex::default(),
            jobs: Mutex::default(),
            wake: Notify::new(),
            ended: AtomicBool::new(false),
            overflows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reasons: Mutex::default(),
        });
        let waking = Arc::downgrade(&shared);
        shared.own.set_wake(move || {
            if let Some(shared) = waking.upgrade() {
                shared.wake.notify_one();
            }
        });
        let reading = Arc::clone(&shared);
        thread::Builder::new()
            .name("host-changes".to_owned())
            .spawn(move || {
                let _ends = Ends(&reading);
                read::run(&reading, &listener);
            })?;
        Ok(Self(shared))
    }

    /// Whether the thread still reads the kernel's events.
    pub(crate) fn is_running(&self) -> bool {
        !self.0.ended.load(Ordering::SeqCst)
    }

    /// Figures for the administrator.
    pub(crate) fn status(&self) -> HostChangesStatus {
        let (watches, interests) = lock(&self.0.table).counts();
        HostChangesStatus {
            watches,
            interests,
            overflows: self.0.overflows.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
        }
    }

    fn begin(&self, root: &LinuxFd, key: FileKey, interest: Interest) -> Option<Observed> {
        if root.is_remote() {
            return self.begin_apart(root, key, interest);
        }
        let added = {
            let mut table = lock(&self.0.table);
            // This precedes the watch, so that the server's own changes from now on are in their table. The lock keeps
            // the end of the last interest, on another thread, from turning it off again.
            self.0.own.observe(true);
            let added = table.begin(&self.0.inotify, root, key, interest);
            if table.is_empty() {
                self.0.own.observe(false);
            }
            added
        };
        let id = match added {
            Ok(id) => id,
            Err(error) => {
                self.0.refused(error);
                return None;
            }
        };
        if !self.is_running() {
            // Nobody reads the events of this watch, so nothing may be cached that depends on it.
            self.0.forget(id);
            return None;
        }
        let mut ready = None;
        if let Interest::Changes { tree: true, .. } = interest {
            let (sender, receiver) = oneshot::channel();
            ready = Some(receiver);
            self.0.order(Job::Walk(Walk::whole(id, Some(sender))));
        } else if interest.is_of_directory() {
            // The thread may be waiting for an event alone.
            self.0.wake.notify_one();
        }
        Some(self.observed(id, ready))
    }

    /// As [`Self::begin`] on a file system of another host or process. The kernel may wait for it before it sets a
    /// watch, so that is done where other calls wait for it. Of a tree only the directory itself is observed, because
    /// the thread must not wait as a walk would (`walk`).
    fn begin_apart(&self, root: &LinuxFd, key: FileKey, interest: Interest) -> Option<Observed> {
        let interest = match interest {
            Interest::Changes { open, user, .. } => Interest::Changes {
                open,
                user,
                tree: false,
            },
            Interest::Caching { .. } => interest,
        };
        let id = {
            let mut table = lock(&self.0.table);
            // As in `begin`.
            self.0.own.observe(true);
            table.enter(root, key, interest)
        };
        let (sender, receiver) = oneshot::channel();
        let (begun, shared) = (Instant::now(), Arc::clone(&self.0));
        root.post(move |root| match shared.watch_apart(id, root) {
            Err(error) => shared.refused(error),
            // Nobody reads the events of this watch.
            Ok(()) if shared.ended.load(Ordering::SeqCst) => {}
            Ok(()) => shared.watched(id, sender, begun),
        });
        // The thread may be waiting for an event alone.
        self.0.wake.notify_one();
        Some(self.observed(id, Some(receiver)))
    }

    fn observed(&self, id: UseId, ready: Option<oneshot::Receiver<()>>) -> Observed {
        let guard = Guard {
            shared: Arc::clone(&self.0),
            id,
        };
        Observed {
            guard: Box::new(guard),
            ready,
        }
    }
}

/// Records the end of the thread, also by an error or a panic.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("{}", read::NOT_SEEN);
        }
        self.0.ended.store(true, Ordering::SeqCst);
    }
}

impl Drop for HostChanges {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.wake.notify_one();
    }
}

impl HostWatch<HostVfs> for HostChanges {
    fn observe(&self, node: &<HostVfs as Volume>::Node, interest: Interest) -> Option<Observed> {
        self.begin(node.fd(), node.key(), interest)
    }
}

/// An open's interest in host changes, which ends when this is dropped.
struct Guard {
    shared: Arc<Shared>,
    id: UseId,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let many = lock(&self.shared.table).watches_of(self.id) > REMOVED_AT_ONCE;
        if many {
            self.shared.order(Job::Forget(self.id));
        } else {
            self.shared.forget(self.id);
        }
    }
}
