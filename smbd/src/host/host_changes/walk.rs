//! Follows trees: watches for everything below a watched directory.
//!
//! A walk proceeds in slices, so that events are read meanwhile. A directory is watched first and listed afterwards, so
//! that no new entry is missed; the entries of a directory that an event reported are reported, too, because they may
//! be older than the watch. Links are never followed, and no name leads out of the watched directory. File systems that
//! wait for another host or process are not entered, and trees on them not walked: while this thread waited for one, no
//! client would learn of changes anywhere, and nothing would end what it caches. If a walk, or the watch in place of
//! one, ends after its client has got STATUS_PENDING, or makes up for lost events, the client must list the directory
//! itself.

use std::{
    collections::HashSet,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Instant,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use smb_server::{
    file::{Change, HostChange},
    host_watch::{Interest, OBSERVE_MAX},
};
use smb_wire::msg::NotifyFilter;
use tokio::sync::oneshot;
use vfs::{
    linux::{InodeId, LinuxFd, is_local_name},
    posix::name,
};

use super::{
    Listener, Shared, lock,
    table::{Below, FULL, UseId, WATCHES_MAX},
};
use crate::host::mounts;

/// Directories visited before events are read again.
const SLICE: usize = 128;

/// Most memory of the changes of one round of events or one directory, in bytes.
pub(super) const NEWS_MAX: usize = 16 << 20;
/// The memory of a change, and of each of its names, besides the names' bytes.
const CHANGE_MEMORY: usize = 64;
const NAME_MEMORY: usize = 48;

/// Most names that listings report before all events are read.
pub(super) const LISTED_MAX: usize = 65_536;

/// Names that a listing has reported already, by watch; their events are not reported again.
pub(super) type Listed = HashSet<(i32, Box<[u8]>)>;

/// A walk under way.
pub(super) struct Walk {
    id: UseId,
    /// The directories to visit: a name in the one above, or that one itself.
    due: Vec<(Below, Option<Box<[u8]>>)>,
    aloud: bool,
    /// Changes may have gone unseen until the end of this walk.
    unseen: bool,
    /// There were more entries than can be reported.
    missed: bool,
    /// The mount below the interest's directory that it met last, and whether it enters it.
    mount: Option<(u64, bool)>,
    done: Option<oneshot::Sender<()>>,
    pub(super) begun: Instant,
}

impl Walk {
    /// Through everything below an interest's directory.
    pub(super) fn whole(id: UseId, done: Option<oneshot::Sender<()>>) -> Self {
        Self {
            id,
            due: vec![(Below::default(), None)],
            aloud: false,
            unseen: false,
            missed: false,
            mount: None,
            done,
            begun: Instant::now(),
        }
    }

    /// A walk of everything once more, because the kernel dropped events.
    pub(super) fn anew(id: UseId) -> Self {
        Self {
            unseen: true,
            ..Self::whole(id, None)
        }
    }

    /// The end of a walk that had nothing to visit: only the interest's own directory is watched.
    pub(super) fn over(id: UseId, done: oneshot::Sender<()>, begun: Instant) -> Self {
        Self {
            due: Vec::new(),
            begun,
            ..Self::whole(id, Some(done))
        }
    }

    pub(super) fn id(&self) -> UseId {
        self.id
    }

    /// Whether it is made because events were lost.
    pub(super) fn is_anew(&self) -> bool {
        self.unseen
    }

    /// A walk through a directory that was added, and everything below it. With `aloud`, its entries are reported.
    pub(super) fn new_directory(id: UseId, below: Below, aloud: bool) -> Self {
        Self {
            due: vec![(below, None)],
            aloud,
            ..Self::whole(id, None)
        }
    }

    /// Continues the walk for a slice, and returns the rest.
    pub(super) fn go_on(
        mut self,
        shared: &Shared,
        listener: &dyn Listener,
        told: &mut Listed,
    ) -> Option<Self> {
        for _ in 0..SLICE {
            let Some((above, name)) = self.due.pop() else {
                let unheard = self.done.take().is_some_and(|done| done.send(()).is_err());
                let late = unheard && self.begun.elapsed() >= OBSERVE_MAX;
                let user = lock(&shared.table).root_of(self.id);
                if (late || self.unseen || self.missed)
                    && let Some((_, Interest::Changes { open, .. })) = user
                {
                    // The client got STATUS_PENDING before everything was watched.
                    listener.lost(open);
                }
                return None;
            };
            let below = name.map_or_else(|| Arc::clone(&above), |name| join(&above, &name));
            let (root, interest) = lock(&shared.table).root_of(self.id)?;
            match self.visit(shared, &root, &below, told) {
                Ok(news) => {
                    if let (Interest::Changes { open, .. }, false) = (interest, news.is_empty()) {
                        listener.changed(open, &news);
                    }
                }
                // The directory was removed or moved meanwhile, which is another event, or the service may not read it,
                // or it is not entered.
                Err(
                    Errno::NOENT
                    | Errno::NOTDIR
                    | Errno::LOOP
                    | Errno::ACCESS
                    | Errno::PERM
                    | Errno::XDEV,
                ) => {}
                Err(error) => {
                    shared.refused(error);
                    if let Interest::Changes { open, .. } = interest {
                        listener.lost(open);
                    }
                    self.due.clear();
                }
            }
        }
        Some(self)
    }

    fn visit(
        &mut self,
        shared: &Shared,
        root: &LinuxFd,
        below: &Below,
        told: &mut Listed,
    ) -> Result<Vec<HostChange>, Errno> {
        let fd = self.enter(root, below)?;
        let added = {
            let mut table = lock(&shared.table);
            table.add(&shared.inotify, self.id, fd.as_fd(), Arc::clone(below))?
        };
        let Some(watch) = added else {
            return Ok(Vec::new());
        };
        let inode = InodeId::of(&fd);
        let (mut news, mut memory) = (Vec::new(), 0);
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_hidden(name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&fd, name),
                kind => kind,
            };
            let directory = kind == FileType::Directory;
            let ours = inode.is_some_and(|inode| shared.own.is_name(inode, name));
            if self.aloud && !ours {
                let change = HostChange {
                    names: shown(&join(below, name)),
                    action: Change::ADDED,
                    filter: name_filter(directory),
                };
                memory += memory_of(&change);
                if memory > NEWS_MAX || told.len() >= LISTED_MAX {
                    (self.aloud, self.missed) = (false, true);
                } else {
                    news.push(change);
                    told.insert((watch, name.into()));
                }
            }
            if directory {
                if self.due.len() >= WATCHES_MAX {
                    return Err(FULL);
                }
                self.due.push((Arc::clone(below), Some(name.into())));
            }
        }
        Ok(news)
    }

    /// Opens a directory below `root` to list it; XDEV if it is on a file system that is not entered.
    fn enter(&mut self, root: &LinuxFd, below: &Below) -> Result<OwnedFd, Errno> {
        let found = match look(root, below, ResolveFlags::NO_XDEV) {
            Err(Errno::XDEV) => {
                let mounted = directory(root, below)?;
                let mount = mounts::id_of(&mounted, Path::new("")).ok_or(Errno::XDEV)?;
                let known = self.mount.filter(|(known, _)| *known == mount);
                // The kernel's table may be long, and a tree may have many directories on one mount.
                let enters = match known {
                    Some((_, enters)) => enters,
                    None => is_local(mount)?,
                };
                self.mount = Some((mount, enters));
                enters.then_some(mounted).ok_or(Errno::XDEV)?
            }
            found => found?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&found, c".", flags, Mode::empty(), ResolveFlags::BENEATH)
    }
}

fn kind_of(dir: &OwnedFd, name: &[u8]) -> FileType {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}

/// Opens a directory below `root` with `O_PATH`, and so without waiting for a file system that is mounted on it. With
/// `O_DIRECTORY`, the mount point of an automounter would make it mount something.
pub(super) fn directory(root: &LinuxFd, below: &Below) -> Result<OwnedFd, Errno> {
    look(root, below, ResolveFlags::empty())
}

fn look(root: &LinuxFd, below: &Below, more: ResolveFlags) -> Result<OwnedFd, Errno> {
    let path = if below.is_empty() {
        b".".to_vec()
    } else {
        below.join(&b'/')
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags, Mode::empty(), resolve | more)
}

/// Whether the file system of a mount is a local one, by the kernel's table of mounts.
fn is_local(mount: u64) -> Result<bool, Errno> {
    // This error is none of those for which a directory is left out without a report.
    let mounts = mounts::read().map_err(|_| Errno::IO)?;
    let found = mounts.iter().find(|one| one.id == mount);
    Ok(found.is_some_and(|found| is_local_name(found.kind.as_bytes())))
}

/// Whether clients never see the name.
pub(super) fn is_hidden(on_disk: &[u8]) -> bool {
    // It is not known here whether this is the share's root, but no other folder has such a name.
    on_disk.starts_with(b".") && name::is_reserved(true, &name::to_client(on_disk))
}

/// A name in a directory.
pub(super) fn join(below: &Below, name: &[u8]) -> Below {
    below.iter().cloned().chain([name.into()]).collect()
}

/// The path as clients see it.
pub(super) fn shown(below: &Below) -> Vec<String> {
    below.iter().map(|name| name::to_client(name)).collect()
}

/// About the memory of a change.
pub(super) fn memory_of(change: &HostChange) -> usize {
    let names = change.names.iter().map(|name| name.len() + NAME_MEMORY);
    CHANGE_MEMORY + names.sum::<usize>()
}

/// The filter for a name that is made or removed.
pub(super) fn name_filter(directory: bool) -> NotifyFilter {
    if directory {
        NotifyFilter::DIR_NAME
    } else {
        NotifyFilter::FILE_NAME
    }
}
