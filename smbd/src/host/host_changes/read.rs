//! Reads the kernel's events and turns them into reports.
//!
//! Events are read until none is left, between the two halves of draining the server's own changes. Events of own
//! changes are dropped, and the others are reported, in order, with one call for each watcher. After a round with
//! events the thread rests for [`REST`]: a busy file costs one check every few milliseconds instead of one for each
//! write.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::MaybeUninit,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, StatxFlags,
        inotify::{ReadFlags, Reader},
    },
    io::Errno,
};
use smb_server::{
    file::{Change, HostChange, OpenId, Touched},
    host_watch::Interest,
};
use smb_wire::msg::NotifyFilter;
use tokio::{
    net::unix::pipe::Receiver,
    runtime::{Builder, LocalOptions},
};
use vfs::{
    FileKey,
    linux::{InodeId, InodeState, LinuxFd},
};

use super::{
    Listener, Shared,
    jobs::Job,
    lock,
    table::{Below, Seen},
    walk::{self, Listed, Walk},
};

/// Between two rounds.
const REST: Duration = Duration::from_millis(5);
/// The time for other jobs in each round.
const JOBS_FOR: Duration = Duration::from_millis(10);
/// How long an own change that has ended waits for its drain.
const DRAIN_AGAIN: Duration = Duration::from_millis(10);
/// Between two looks for directories that were removed.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Events of one round; the rest is for the next.
const ROUND_MAX: usize = 65_536;
/// Bytes read at once.
const BUFFER: usize = 64 * 1_024;
/// The second half of a rename is usually queued no later than this after the first.
const OTHER_HALF: Duration = Duration::from_millis(1);
/// The kernel usually marks a name as gone no later than this after it has reported that the inode lost a link.
const NAME_MARKED: Duration = Duration::from_millis(1);

pub(super) struct Event {
    pub(super) watch: i32,
    pub(super) flags: ReadFlags,
    pub(super) cookie: u32,
    pub(super) name: Option<Box<[u8]>>,
}

impl Event {
    fn is(&self, flags: ReadFlags) -> bool {
        self.flags.intersects(flags)
    }
}

/// The report of this thread's end.
pub(super) const NOT_SEEN: &str = "changes made on this host are not seen any more: clients may show old contents\n  = \
                        restart the server";

/// The thread.
pub(super) fn run(shared: &Shared, listener: &dyn Listener) {
    // The server's reaction to a report needs a runtime: breaks have time-outs.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "{NOT_SEEN}"),
    };
    runtime.block_on(async {
        // The descriptor's readiness is that of a pipe. (`AsyncFd` would need unsafe code for the same.)
        let twin = shared.inotify.try_clone();
        match twin.and_then(|twin| Receiver::from_file_unchecked(twin.into())) {
            Ok(readable) => rounds(shared, listener, &readable).await,
            Err(error) => tracing::error!(%error, "{NOT_SEEN}"),
        }
    });
}

async fn rounds(shared: &Shared, listener: &dyn Listener, readable: &Receiver) {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut told = Listed::new();
    let mut again = false;
    let mut looked = Instant::now();
    while !shared.ended.load(Ordering::SeqCst) {
        let work = !lock(&shared.jobs).is_empty();
        let looks = lock(&shared.table).has_directories();
        tokio::select! {
            biased;
            ready = readable.readable() => match ready {
                Ok(()) => {}
                Err(error) => return tracing::error!(%error, "{NOT_SEEN}"),
            },
            () = shared.wake.notified() => {}
            () = std::future::ready(()), if work => {}
            () = tokio::time::sleep(DRAIN_AGAIN), if again => {}
            () = tokio::time::sleep(LOOK_AGAIN), if looks => {}
        }
        let drain = shared.own.begin_drain();
        let (events, all) = read(shared, &mut buffer);
        // The buffer is too small for an event, so this only checks whether there is one and waits again if not.
        let _ = readable.try_read(&mut [0; 1]);
        judge(shared, listener, &events, &mut told);
        if all {
            told.clear();
        }
        let begun = Instant::now();
        while job(shared, listener, &mut told) && begun.elapsed() < JOBS_FOR {}
        if looked.elapsed() >= LOOK_AGAIN {
            look(shared, listener);
            looked = Instant::now();
        }
        again = if all {
            shared.own.end_drain(drain)
        } else {
            shared.wake.notify_one();
            true
        };
        if events.is_empty() {
            // This gives the time-outs of breaks, and other tasks of the runtime, a turn.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(REST).await;
        }
    }
}

/// Reports the directories that were removed, of which there was no event. The server says so once for each look: a
/// client may wait for changes of such a directory anew.
pub(super) fn look(shared: &Shared, listener: &dyn Listener) {
    let directories = lock(&shared.table).directories();
    for (key, _) in directories.iter().filter(|(_, root)| is_removed(root)) {
        listener.touched(*key, Touched::Gone);
    }
}

/// Whether a directory has no name any more. The kernel's path is looked at first, because some file systems (9p, GFS2,
/// OCFS2) ask another host for the number of links all the same. That decides as well, because the kernel forgets names
/// of remote file systems that are still there; and alone it would not do, because some of FUSE count no links.
fn is_removed(directory: &LinuxFd) -> bool {
    directory.has_lost_name() && has_no_links(directory)
}

/// Whether an inode has no names, as far as this machine knows.
fn has_no_links(fd: &LinuxFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let links = rustix::fs::statx(fd, c"", flags, StatxFlags::NLINK);
    links.is_ok_and(|found| found.stx_nlink == 0)
}

/// Does one slice of the other jobs, and returns whether there was any.
fn job(shared: &Shared, listener: &dyn Listener, told: &mut Listed) -> bool {
    let next = lock(&shared.jobs).next();
    match next {
        Some(Job::Walk(walk)) => {
            if let Some(rest) = walk.go_on(shared, listener, told) {
                lock(&shared.jobs).go_on(rest);
            }
        }
        Some(Job::Forget(id)) => shared.forget(id),
        None => return false,
    }
    true
}

/// Reads the kernel's events, at most [`ROUND_MAX`], and returns whether these were all.
fn read(shared: &Shared, buffer: &mut [MaybeUninit<u8>]) -> (Vec<Event>, bool) {
    let mut events: Vec<Event> = Vec::new();
    let mut waited = false;
    let mut reader = Reader::new(&shared.inotify, buffer);
    while events.len() < ROUND_MAX {
        match reader.next() {
            Ok(event) => events.push(Event {
                watch: event.wd(),
                flags: event.events(),
                cookie: event.cookie(),
                name: event.file_name().map(|name| name.to_bytes().into()),
            }),
            Err(Errno::INTR) => {}
            Err(_) => {
                let half = events.last();
                if waited || !half.is_some_and(|event| event.is(ReadFlags::MOVED_FROM)) {
                    return (events, true);
                }
                waited = true;
                std::thread::sleep(OTHER_HALF);
            }
        }
    }
    (events, false)
}

/// The reports of a round.
#[derive(Default)]
struct News {
    changes: BTreeMap<OpenId, Vec<HostChange>>,
    /// About the memory of the changes.
    memory: usize,
    lost: BTreeSet<OpenId>,
    touched: BTreeSet<(FileKey, Touched)>,
}

impl News {
    /// Adds a change for a watcher. Where the changes for all take too much memory, its client must list the directory
    /// again instead: thousands of opens may watch one busy directory.
    fn add(&mut self, open: OpenId, change: HostChange) {
        if self.lost.contains(&open) {
            return;
        }
        self.memory = self.memory.saturating_add(walk::memory_of(&change));
        self.changes.entry(open).or_default().push(change);
        if self.memory > walk::NEWS_MAX {
            let dropped = self.changes.remove(&open).unwrap_or_default();
            let freed: usize = dropped.iter().map(walk::memory_of).sum();
            self.memory = self.memory.saturating_sub(freed);
            self.lost.insert(open);
        }
    }
}

pub(super) fn judge(shared: &Shared, listener: &dyn Listener, events: &[Event], told: &mut Listed) {
    let mut news = News::default();
    let may_lose_name = |event: &Event| event.name.is_none() && event.is(ReadFlags::ATTRIB);
    if events.iter().any(may_lose_name) {
        std::thread::sleep(NAME_MARKED);
    }
    for (at, event) in events.iter().enumerate() {
        if event.is(ReadFlags::QUEUE_OVERFLOW) {
            overflow(shared, &mut news);
        } else if event.is(ReadFlags::IGNORED) {
            lock(&shared.table).ended(event.watch);
        } else {
            let around = Around {
                before: events.get(..at).unwrap_or_default(),
                after: events.get(at + 1..).unwrap_or_default(),
            };
            one(shared, event, around, told, &mut news);
        }
    }
    for open in &news.lost {
        listener.lost(*open);
    }
    for (open, changes) in &news.changes {
        if !news.lost.contains(open) {
            listener.changed(*open, changes);
        }
    }
    for (key, touched) in news.touched {
        listener.touched(key, touched);
    }
}

/// Handles lost events: all clients must list their directories again, and trees are walked again.
fn overflow(shared: &Shared, news: &mut News) {
    shared.overflows.fetch_add(1, Ordering::Relaxed);
    for seen in lock(&shared.table).all() {
        match seen.interest {
            Interest::Changes { open, tree, .. } => {
                news.lost.insert(open);
                if tree {
                    shared.walk_anew(seen.id);
                }
            }
            Interest::Caching { directory } => {
                let touched: &[Touched] = if directory {
                    &[Touched::Entries, Touched::Name]
                } else {
                    &[Touched::Data, Touched::Name]
                };
                let touched = touched.iter().map(|how| (seen.key, *how));
                news.touched.extend(touched);
            }
        }
    }
}

/// An event with the others of the same round.
#[derive(Clone, Copy)]
struct Around<'a> {
    before: &'a [Event],
    after: &'a [Event],
}

fn one(shared: &Shared, event: &Event, around: Around<'_>, told: &mut Listed, news: &mut News) {
    let Some((inode, seen)) = lock(&shared.table).seen(event.watch) else {
        return;
    };
    let Some(name) = &event.name else {
        return itself(shared, event, &seen, news);
    };
    if walk::is_hidden(name) {
        return;
    }
    let ours = is_ours(shared, event, inode, name, &seen);
    let again = event.is(ReadFlags::CREATE) && told.remove(&(event.watch, name.clone()));
    for seen in &seen {
        let here = walk::join(&seen.below, name);
        let other = other_half(shared, event, around, seen);
        if event.is(ReadFlags::ISDIR) && seen.is_tree() {
            follow(shared, event, seen, &here, other.as_ref(), ours);
        }
        if ours || again {
            continue;
        }
        match seen.interest {
            Interest::Changes { open, .. } => {
                let same = other.is_some_and(|other| is_beside(&other, &here));
                if let Some(change) = change(event, &here, same) {
                    news.add(open, change);
                }
            }
            Interest::Caching { directory } => {
                if directory {
                    news.touched.insert((seen.key, Touched::Entries));
                }
            }
        }
    }
}

/// Handles an event of a watched inode itself.
fn itself(shared: &Shared, event: &Event, seen: &[Seen], news: &mut News) {
    for seen in seen {
        let (key, Interest::Caching { directory }) = (seen.key, seen.interest) else {
            continue;
        };
        // A removed name is a change of attributes, and the server breaks caching for its own removals: caching the
        // handles of a file without a name helps no client.
        if event.is(ReadFlags::ATTRIB) && !directory {
            if has_no_links(&seen.root) {
                news.touched.insert((key, Touched::Gone));
            } else if seen.root.has_lost_name() {
                // It has another name, and another file may have the one by which it was opened.
                news.touched.insert((key, Touched::Name));
            }
        }
        if event.is(ReadFlags::UNMOUNT) {
            news.touched.insert((key, Touched::Gone));
        }
        let is_own = |now| shared.own.is_inode(now);
        if !shared.own.is_empty() && InodeState::of(&seen.root).is_some_and(is_own) {
            continue;
        }
        if event.is(ReadFlags::MODIFY) && !directory {
            news.touched.insert((key, Touched::Data));
        }
        if event.is(ReadFlags::MOVE_SELF) {
            news.touched.insert((key, Touched::Name));
        }
    }
}

/// Whether the server itself made the change, according to the name or to its inode.
fn is_ours(shared: &Shared, event: &Event, dir: InodeId, name: &[u8], seen: &[Seen]) -> bool {
    // The contents of an entry are changed by its descriptor, and not by its name.
    if !event.is(ReadFlags::MODIFY) && shared.own.is_name(dir, name) {
        return true;
    }
    if !event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) || shared.own.is_empty() {
        return false;
    }
    let Some(seen) = seen.first() else {
        return false;
    };
    let is_own = |now| shared.own.is_inode(now);
    if seen.root.is_remote() {
        // The thread must not wait for another host, not even to open the directory: an entry that only that host knows
        // counts as changed by others. There is nothing below the directory, because trees there are not walked.
        return InodeState::cached_at(&seen.root, name).is_some_and(is_own);
    }
    let folder = walk::directory(&seen.root, &seen.below);
    // If there is no entry, it was removed or moved since, which has an event of its own.
    let child = folder.ok().and_then(|folder| InodeState::at(folder, name));
    child.is_none_or(is_own)
}

/// Whether two places are in one directory.
fn is_beside(one: &Below, other: &Below) -> bool {
    one.split_last().map(|(_, above)| above) == other.split_last().map(|(_, above)| above)
}

/// The place of the other half of a rename, for the same interest.
fn other_half(shared: &Shared, event: &Event, around: Around<'_>, seen: &Seen) -> Option<Below> {
    let (wanted, among) = if event.is(ReadFlags::MOVED_FROM) {
        (ReadFlags::MOVED_TO, around.after)
    } else if event.is(ReadFlags::MOVED_TO) {
        (ReadFlags::MOVED_FROM, around.before)
    } else {
        return None;
    };
    // Both halves are adjacent, except for events of the same moment.
    const NEAR: usize = 64;
    let pairs = |other: &&Event| other.is(wanted) && other.cookie == event.cookie;
    let other = if wanted == ReadFlags::MOVED_TO {
        among.iter().take(NEAR).find(pairs)
    } else {
        among.iter().rev().take(NEAR).find(pairs)
    }?;
    let name = other.name.as_ref()?;
    let (_, uses) = lock(&shared.table).seen(other.watch)?;
    let same = uses.into_iter().find(|other| other.id == seen.id)?;
    Some(walk::join(&same.below, name))
}

/// Handles a directory that was added to or left a watched tree.
fn follow(
    shared: &Shared,
    event: &Event,
    seen: &Seen,
    here: &Below,
    other: Option<&Below>,
    ours: bool,
) {
    if event.is(ReadFlags::CREATE) {
        let walk = Walk::new_directory(seen.id, here.clone(), !ours);
        shared.follow(walk);
    } else if event.is(ReadFlags::MOVED_FROM) {
        let mut table = lock(&shared.table);
        match other {
            Some(other) => table.moved(seen.id, here, other),
            None => table.left(&shared.inotify, seen.id, here),
        }
    } else if event.is(ReadFlags::MOVED_TO) && other.is_none() {
        let walk = Walk::new_directory(seen.id, here.clone(), false);
        shared.follow(walk);
    }
}

/// The event as an action of [MS-FSCC] 2.7.1.
fn change(event: &Event, here: &Below, beside: bool) -> Option<HostChange> {
    let names = walk::name_filter(event.is(ReadFlags::ISDIR));
    let attributes = NotifyFilter::ATTRIBUTES
        | NotifyFilter::LAST_WRITE
        | NotifyFilter::LAST_ACCESS
        | NotifyFilter::CREATION
        | NotifyFilter::EA
        | NotifyFilter::SECURITY;
    let (action, filter) = if event.is(ReadFlags::CREATE) {
        (Change::ADDED, names)
    } else if event.is(ReadFlags::DELETE) {
        (Change::REMOVED, names)
    } else if event.is(ReadFlags::MOVED_FROM) {
        let renamed = Change::RENAMED_OLD_NAME;
        (if beside { renamed } else { Change::REMOVED }, names)
    } else if event.is(ReadFlags::MOVED_TO) {
        let renamed = Change::RENAMED_NEW_NAME;
        (if beside { renamed } else { Change::ADDED }, names)
    } else if event.is(ReadFlags::MODIFY) {
        (
            Change::MODIFIED,
            NotifyFilter::LAST_WRITE | NotifyFilter::SIZE,
        )
    } else if event.is(ReadFlags::ATTRIB) {
        (Change::MODIFIED, attributes)
    } else {
        return None;
    };
    Some(HostChange {
        names: walk::shown(here),
        action,
        filter,
    })
}
