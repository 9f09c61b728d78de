//! The watchers of directories that CHANGE_NOTIFY makes ([MS-FSA] 2.1.4.1, 2.1.5.11; [MS-SMB2] 3.3.5.19).
//!
//! Owns one watcher for each open that ever sent the request, with the changes that have not been reported to it
//! and the requests it has parked. Filter, tree flag and queue bound are those of the first request. Changes of one
//! report are queued together before anybody is woken, so that both names of a rename arrive in one reply; parked
//! requests are served first-in first-out.
//!
//! Invariant: a watcher has parked requests only while its queue is empty and has not overflowed, or while it is
//! being decided whether the user of the oldest request may see the changes that it got. Bounds: [`QUEUE_BYTES_MAX`]
//! and [`PARKED_MAX`] per watcher, and the server's memory budget; when a queue exceeds one of them, its client must
//! list the directory again. [`WATCHERS_PER_USER_MAX`] bounds the watchers of a directory, and [`TREES_PER_USER_MAX`]
//! those of trees. Queued changes are counted as they will be encoded ([MS-FSCC] 2.7.1).

mod change;
mod host_change;
mod reach;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb_wire::Status;
use smb_wire::msg::NotifyFilter;
use vfs::FileKey;

use crate::{
    limits::NOTIFY_MEMORY,
    memory::{Account, Held, Portion},
};

use super::files::Files;
use super::share_path::{IndexKey, ShareId, SharePath};
use super::types::{CountedUser, Effects, OpenId, Outcome, Place, WaiterId};

pub use change::Change;
pub use host_change::{HostChange, Touched};

/// Most bytes of changes a watcher queues, whatever its first request's buffer could hold.
pub(super) const QUEUE_BYTES_MAX: usize = 65_536;
/// Requests parked on one watcher; one more gives INSUFFICIENT_RESOURCES.
pub(super) const PARKED_MAX: usize = 256;
/// Watchers of one directory that a user may have: each of them costs everybody who changes something there. One more
/// gives INSUFFICIENT_RESOURCES.
pub(super) const WATCHERS_PER_USER_MAX: usize = 2_048;
/// Watchers of trees that a user may have: a change reaches those of all directories above it. One more gives
/// INSUFFICIENT_RESOURCES.
pub(super) const TREES_PER_USER_MAX: usize = 8 * WATCHERS_PER_USER_MAX;

/// A change of an object, to be reported to the watchers of the directories above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// The object (for a stream: its file).
    pub path: SharePath,
    /// Its directory, which may be watched by another path, too.
    pub parent: Option<FileKey>,
    /// The stream, for the stream actions.
    pub stream: Option<String>,
    /// The action's number, see [`Change`].
    pub action: u32,
    /// The kinds of change; watchers interested in any of them get a report.
    pub filter: NotifyFilter,
}

/// A CHANGE_NOTIFY request.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    /// The directory's open.
    pub open: OpenId,
    /// The directory's place in the engine.
    pub place: Place,
    /// Which changes; fixed by the open's first request.
    pub filter: NotifyFilter,
    /// Whether changes at any depth below the directory count; fixed by the open's first request.
    pub tree: bool,
    /// OutputBufferLength: bytes of changes the reply may carry; with 0 it says only that something changed.
    pub buffer: usize,
    /// The waiter that is woken with `Changes` or `Failed`.
    pub waiter: WaiterId,
    /// Its place among the requests that wait.
    pub turn: Turn,
    /// The account to which the queue is charged; fixed by the open's first request.
    pub(crate) account: Arc<Account>,
    /// The user whose watchers count together; fixed by the open's first request.
    pub user: CountedUser,
}

/// The place of a CHANGE_NOTIFY request among those of its open ([MS-FSA] 2.1.5.11.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The request came last.
    Last,
    /// The request was already served, as this waiter, but only with changes that its user may not see, so it is still
    /// the oldest.
    Again(WaiterId),
}

/// The result of a CHANGE_NOTIFY request.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Watching {
    /// Answer now.
    Done(Outcome),
    /// Parked.
    Pending,
}

#[derive(Debug)]
struct Parked {
    waiter: WaiterId,
    buffer: usize,
}

#[derive(Debug)]
struct Watcher {
    path: SharePath,
    key: FileKey,
    user: CountedUser,
    filter: NotifyFilter,
    tree: bool,
    queue_max: usize,
    queue: VecDeque<Change>,
    queued: usize,
    /// The memory of the queue, and the part of it that is charged to the server's budget.
    memory: usize,
    held: Held,
    overflowed: bool,
    parked: VecDeque<Parked>,
    /// A request that was served, but it is not decided yet whether it may see any of the changes. No other is served
    /// before that.
    deciding: Option<WaiterId>,
}

impl Watcher {
    /// Thousands of watchers may be reached by one change and have no use for its long name, so it is copied here.
    fn push(&mut self, action: u32, name: &str) {
        // Repeated writes to one file are one change.
        let same = |last: &Change| last.action == action && last.name == name;
        let repeats = action == Change::MODIFIED && self.queue.back().is_some_and(same);
        if self.overflowed || repeats {
            return;
        }
        let name = name.to_owned();
        let change = Change { action, name };
        self.queued = self.queued.next_multiple_of(4) + change.encoded_len();
        self.memory += size_of::<Change>() + change.name.capacity();
        self.queue.push_back(change);
        let charged = self.memory.saturating_sub(NOTIFY_MEMORY);
        if self.queued > self.queue_max || !self.held.resize(charged, Portion::Half) {
            // [MS-SMB2] 3.3.5.19: there are too many changes, so the client must list the directory again.
            self.forget();
            self.overflowed = true;
        }
    }

    fn forget(&mut self) {
        self.queue.clear();
        self.queued = 0;
        self.memory = 0;
        self.held.resize(0, Portion::Half);
        self.overflowed = false;
    }

    /// Serves one request. Not every user may see changes deeper than the directory's own entries: see
    /// [`Files::decided`].
    fn serve(&mut self, waiter: WaiterId, buffer: usize) -> Outcome {
        let outcome = self.take(buffer);
        if let Outcome::Changes(changes) = &outcome
            && changes.iter().any(|change| change.name.contains('\\'))
        {
            self.deciding = Some(waiter);
        }
        outcome
    }

    fn may_serve(&self) -> bool {
        self.deciding.is_none() && (self.overflowed || !self.queue.is_empty())
    }

    /// The changes for a reply of at most `buffer` bytes; the queue is empty after it.
    fn take(&mut self, buffer: usize) -> Outcome {
        let fits = !self.overflowed && self.queued <= buffer;
        let news = std::mem::take(&mut self.queue);
        self.forget();
        if fits {
            Outcome::Changes(news.into())
        } else {
            Outcome::Failed(Status::NOTIFY_ENUM_DIR)
        }
    }

    fn deliver(&mut self, effects: &mut Effects) {
        while self.may_serve() {
            let Some(parked) = self.parked.pop_front() else {
                return;
            };
            let outcome = self.serve(parked.waiter, parked.buffer);
            effects.wake(parked.waiter, outcome);
        }
    }

    fn end(&mut self, status: Status, effects: &mut Effects) {
        for parked in self.parked.drain(..) {
            effects.wake(parked.waiter, Outcome::Failed(status));
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    by_open: BTreeMap<OpenId, Watcher>,
    by_path: BTreeSet<IndexKey>,
    /// The watchers of trees among them. A change concerns no others in directories further up than its own.
    tree_paths: BTreeSet<IndexKey>,
    by_key: BTreeSet<(FileKey, OpenId)>,
    /// The number of watchers of a directory that each user has.
    of_users: BTreeMap<(FileKey, CountedUser), usize>,
    /// The number of watchers of trees that each user has.
    trees: BTreeMap<CountedUser, usize>,
    /// The folders that several shares show, by their path in each of them: that path, and one in another share.
    same_folders: BTreeMap<IndexKey, Vec<(SharePath, SharePath)>>,
}

impl Watches {
    pub(super) fn len(&self) -> usize {
        self.by_open.len()
    }

    fn watch(&mut self, request: &WatchRequest, path: SharePath, outside: bool) -> Watching {
        if !self.by_open.contains_key(&request.open) {
            let (directory, user) = ((request.place.key, request.user), request.user);
            let mine = self.of_users.get(&directory).copied().unwrap_or(0);
            let trees = self.trees.get(&user).copied().unwrap_or(0);
            if mine >= WATCHERS_PER_USER_MAX || (request.tree && trees >= TREES_PER_USER_MAX) {
                return Watching::Done(Outcome::Failed(Status::INSUFFICIENT_RESOURCES));
            }
            *self.of_users.entry(directory).or_default() += 1;
            if request.tree {
                *self.trees.entry(user).or_default() += 1;
            }
            if !outside {
                self.index(path.key(request.open), request.tree);
            }
            self.by_key.insert((request.place.key, request.open));
        }
        let watcher = self.by_open.entry(request.open).or_insert_with(|| Watcher {
            path,
            key: request.place.key,
            user: request.user,
            filter: request.filter,
            tree: request.tree,
            queue_max: request.buffer.min(QUEUE_BYTES_MAX),
            queue: VecDeque::new(),
            queued: 0,
            memory: 0,
            held: request.account.nothing(),
            overflowed: false,
            parked: VecDeque::new(),
            deciding: None,
        });
        if let Turn::Again(served) = request.turn
            && watcher.deciding == Some(served)
        {
            watcher.deciding = None;
        }
        if watcher.may_serve() {
            return Watching::Done(watcher.serve(request.waiter, request.buffer));
        }
        if watcher.parked.len() >= PARKED_MAX {
            return Watching::Done(Outcome::Failed(Status::INSUFFICIENT_RESOURCES));
        }
        let parked = Parked {
            waiter: request.waiter,
            buffer: request.buffer,
        };
        match request.turn {
            Turn::Last => watcher.parked.push_back(parked),
            Turn::Again(_) => watcher.parked.push_front(parked),
        }
        Watching::Pending
    }

    /// Records that watched directories at or below `from` are at or below `to` now, also in other shares that show
    /// both, and so are the folders of other shares. A share that does not show `to` has lost them.
    pub(super) fn rename(&mut self, key: FileKey, from: &SharePath, to: &SharePath) {
        for (from, to) in self.elsewhere_moved(from, to) {
            match to {
                Some(to) => self.follow(key, &from, &to),
                None => self.leave_share(key, &from),
            }
        }
        self.follow(key, from, to);
        self.come_back(key, to);
    }

    /// As [`Watches::rename`], in the share of the paths.
    fn follow(&mut self, key: FileKey, from: &SharePath, to: &SharePath) {
        self.move_folders(from, Some(to));
        for (open, tree) in self.take_moving(key, from) {
            if let Some(watcher) = self.by_open.get_mut(&open)
                && let Some(path) = watcher.path.moved(from, to)
            {
                watcher.path = path.clone();
                self.index(path.key(open), tree);
            }
        }
    }

    fn remove(&mut self, open: OpenId) -> Option<Watcher> {
        let watcher = self.by_open.remove(&open)?;
        self.by_path.remove(&watcher.path.key(open));
        self.by_key.remove(&(watcher.key, open));
        forget_one(&mut self.of_users, &(watcher.key, watcher.user));
        if watcher.tree {
            self.tree_paths.remove(&watcher.path.key(open));
            forget_one(&mut self.trees, &watcher.user);
        }
        Some(watcher)
    }

    /// Ends the waiting requests of this directory.
    fn end(&mut self, directory: FileKey, status: Status, effects: &mut Effects) {
        let all = (directory, OpenId(0))..=(directory, OpenId(u64::MAX));
        for (_, open) in self.by_key.range(all) {
            if let Some(watcher) = self.by_open.get_mut(open) {
                watcher.end(status, effects);
            }
        }
    }
}

fn forget_one<K: Ord>(counts: &mut BTreeMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}

impl Files {
    /// Handles a CHANGE_NOTIFY request. The caller must check at every request that the open is a directory with
    /// FILE_LIST_DIRECTORY.
    pub fn watch(&self, request: &WatchRequest) -> Watching {
        // This runs under the inode's lock, so that no watcher is made after its open was closed.
        let watching = self.with_inode(request.place.key, false, |inode| {
            if inode.open_mut(request.open).is_none() {
                return Watching::Done(Outcome::Failed(Status::FILE_CLOSED));
            }
            // [MS-FSA] 2.1.5.11: a handle that deletes the directory has nothing to wait for.
            if inode.is_marked_deleted(request.open) {
                return Watching::Done(Outcome::Failed(Status::DELETE_PENDING));
            }
            // A rename moves paths and watchers under the lock of the paths, so it misses no new watcher.
            let paths = self.paths.lock();
            let Some(path) = paths.path_of(request.open) else {
                return Watching::Done(Outcome::Failed(Status::FILE_CLOSED));
            };
            let mut watches = self.watches.lock();
            let before = watches.len();
            let watching = watches.watch(request, path, paths.is_outside(request.open));
            if watches.len() > before {
                self.watchers.fetch_add(1, Ordering::SeqCst);
            }
            watching
        });
        watching.unwrap_or(Watching::Done(Outcome::Failed(Status::FILE_CLOSED)))
    }

    /// Reports changes to watchers, in order. Changes that belong together (both names of a rename) must be passed in
    /// one call.
    pub fn changed(&self, reports: &[Reported]) -> Effects {
        let mut effects = Effects::default();
        if self.watchers.load(Ordering::SeqCst) == 0 {
            return effects;
        }
        let mut watches = self.watches.lock();
        let mut reached = Vec::new();
        for reported in reports {
            watches.queue(reported, &mut reached);
        }
        reached.sort_unstable();
        reached.dedup();
        for open in reached {
            if let Some(watcher) = watches.by_open.get_mut(&open) {
                watcher.deliver(&mut effects);
            }
        }
        effects
    }

    /// Withdraws a parked CHANGE_NOTIFY. Returns true if it was still parked.
    pub fn cancel_watch(&self, open: OpenId, waiter: WaiterId) -> bool {
        let mut watches = self.watches.lock();
        let Some(watcher) = watches.by_open.get_mut(&open) else {
            return false;
        };
        let before = watcher.parked.len();
        watcher.parked.retain(|parked| parked.waiter != waiter);
        before != watcher.parked.len()
    }

    /// Called when a request that was served with changes has used them or has ended: the next request is served.
    pub fn decided(&self, open: OpenId, waiter: WaiterId) -> Effects {
        let mut effects = Effects::default();
        let mut watches = self.watches.lock();
        if let Some(watcher) = watches.by_open.get_mut(&open)
            && watcher.deciding == Some(waiter)
        {
            watcher.deciding = None;
            watcher.deliver(&mut effects);
        }
        effects
    }

    /// Ends the parked requests of a directory's handle that closes.
    pub(super) fn close_watch(&self, open: OpenId, effects: &mut Effects) {
        if self.watchers.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(mut watcher) = self.watches.lock().remove(open) {
            self.watchers.fetch_sub(1, Ordering::SeqCst);
            watcher.end(Status::NOTIFY_CLEANUP, effects);
        }
    }

    /// Ends the requests that wait at a directory that was marked for deletion ([MS-FSA] 2.1.5.15.3).
    pub(super) fn directory_deleted(&self, key: FileKey, effects: &mut Effects) {
        if self.watchers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut watches = self.watches.lock();
        watches.end(key, Status::DELETE_PENDING, effects);
    }
}
