//! Renames as the engine follows them: the paths and links of opens, those of leases, and the paths of watchers.

use vfs::FileKey;

use super::{
    files::Files,
    names::Paths,
    share_path::SharePath,
    types::{Link, OpenId},
};

/// A rename that happened on disk.
pub struct Renamed {
    /// The object that has the new name.
    pub key: FileKey,
    /// It is a directory.
    pub directory: bool,
    /// The name that it had.
    pub from: Link,
    /// The name that it has.
    pub to: Link,
    /// The open that renamed it.
    pub open: OpenId,
    /// The number under which the new name was announced.
    pub rename: OpenId,
}

impl Files {
    /// Follows a rename that happened on disk, announced by [`Files::expect`]. Moves the entry from the present path of
    /// the open to the present path of the new name, and returns both paths, because directories above may have moved
    /// meanwhile. Everything below a directory moves along.
    pub fn arrived(&self, done: &Renamed) -> Option<(SharePath, SharePath)> {
        let renamed = self.relinked(done.key, done.open, &done.from, &done.to);
        let mut paths = self.paths.lock();
        let (from, to) = (paths.path_of(done.open)?, paths.coming(done.rename)?);
        self.follow(&mut paths, done.key, (&from, &to), done.directory);
        self.join(&mut paths, renamed, (&done.from, &done.to), &to);
        Some((from, to))
    }

    /// Lets those opens of a renamed link follow that know it by a path other than the renaming request did. If their
    /// share is known to show the new name, they get that path, also if it did not show the old name. Otherwise another
    /// path leads to the directory, such as a symbolic link, and they get the new name in it if the directory stays.
    fn join(
        &self,
        paths: &mut Paths,
        renamed: Vec<OpenId>,
        (from, link): (&Link, &Link),
        to: &SharePath,
    ) {
        let elsewhere = self.watches.lock().elsewhere(to);
        for open in renamed {
            let Some(path) = paths.path_of(open).filter(|path| !path.same(to)) else {
                continue;
            };
            let mut shown = elsewhere.iter();
            let shown = shown.find(|shown| shown.share == path.share).cloned();
            let beside = || {
                path.renamed(&from.name, to)
                    .filter(|_| from.parent == link.parent)
            };
            if let Some(path) = shown.or_else(beside) {
                paths.set_path(open, path);
            }
        }
    }

    /// Moves the paths of opens, in every share that shows both paths, and those of watchers. In a share that shows
    /// only the old path, opens and watchers are no longer found by it. Opens and watchers must follow renames in the
    /// same order, so the lock of the paths is held.
    fn follow(
        &self,
        paths: &mut Paths,
        key: FileKey,
        (from, to): (&SharePath, &SharePath),
        directory: bool,
    ) {
        let mut watches = self.watches.lock();
        for (from, to) in watches.elsewhere_moved(from, to) {
            match to {
                Some(to) => paths.rename(key, &from, &to),
                None => paths.leave_share(key, &from),
            }
        }
        paths.rename(key, from, to);
        // Only directories are watched, or are folders of shares.
        if directory {
            watches.rename(key, from, to);
        }
    }

    /// Announces that a rename will create this path. Until [`Files::dismiss`], the path moves along with the
    /// directories above it. A request that looked the path up earlier then checks [`Files::has_directory_moved`].
    pub fn expect(&self, rename: OpenId, path: &SharePath) {
        self.paths.lock().expect(rename, path.clone());
    }

    /// Called when the rename is over, whether or not it succeeded.
    pub fn dismiss(&self, rename: OpenId) {
        self.paths.lock().dismiss(rename);
    }

    /// The present path of the rename's new name.
    pub fn coming(&self, rename: OpenId) -> Option<SharePath> {
        self.paths.lock().coming(rename)
    }

    /// Returns the opens of the link.
    fn relinked(&self, key: FileKey, by: OpenId, from: &Link, to: &Link) -> Vec<OpenId> {
        self.name_gone(key);
        self.with(key, |inode| {
            inode.rename_link(from, to);
            let opens = inode.opens.iter();
            let renamed = opens
                .filter(|(_, open)| open.link == *to)
                .map(|(open, _)| *open);
            let renamed = renamed.collect();
            let own = inode.stream_of(by);
            let own = own.and_then(|(stream, _)| stream.holder_of(by)?.owner.lease());
            // [MS-SMB2] 3.3.5.21.1: the lease follows its file's name. The lease of the open that renames the file
            // stays bound to it (Lease.FileDeleteOnClose is cleared), unless the name is already going.
            self.each_lease(inode, |lease, bound| {
                if bound.place.key == key && bound.link == *from {
                    bound.link = to.clone();
                    bound.delete_on_close &= own != Some(lease) || inode.is_going(to);
                }
            });
            renamed
        })
    }
}

#[cfg(test)]
impl Files {
    /// As [`Files::arrived`], for a directory or file, with the given paths. The first open at `from` renames it.
    pub(crate) fn renamed(&self, key: FileKey, from: (&SharePath, &Link), to: (&SharePath, &Link)) {
        let by = self.opens_at(from.0).first().copied().unwrap_or_default();
        let renamed = self.relinked(key, by, from.1, to.1);
        let mut paths = self.paths.lock();
        self.follow(&mut paths, key, (from.0, to.0), true);
        self.join(&mut paths, renamed, (from.1, to.1), to.0);
    }
}
