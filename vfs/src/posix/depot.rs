//! Samba's depot: streams as files under `.streams` in the share's root.
//!
//! `.streams/XX/YY/<device and inode in hex>/:<name>:$DATA`, and everything is created and opened by the service (the
//! inode that carries a stream decides who may use it; a stream's file gets that inode's owner and permission bits). An
//! inode that has streams here carries the mark `user.SAMBA_STREAMS`; a folder whose inode has no mark, or that is
//! labelled with another inode, belongs to a dead inode of the same number and is emptied before use. Below the root
//! that is certain only if the label names the same file system ([`PosixVfs::clear_folder`]).
//!
//! Device numbers are assigned at each start (by btrfs at each mount), so an inode also stores the place of its
//! folder, in [`PLACE`]. Samba does not know this attribute and shows it to no client. A folder that Samba made is
//! found by Samba's rule, as long as the device keeps its number. The owner of a file can set its attributes, so a
//! folder says whose it is ([`place`]).
//!
//! Invariant: a folder that can be found here is stable, together with its whole path from the root, before anything is
//! put into it. A sync of a stream then concerns only its own inode.

mod owners;
mod place;

use std::sync::atomic::Ordering::SeqCst;

use self::place::{Label, OLD_PLACE, PLACE};
use super::{
    PosixNode, PosixVfs, SERVICE,
    errno::unless,
    name::DEPOT,
    samba_xattr::{DEPOT_MARK, depot_path, stream_file},
};
use crate::{
    IoAccess, VfsError, VfsResult,
    disk::{Disk, OpenHow, Stat, XattrSet},
};

/// The most streams of one inode that are listed or removed.
pub(super) const STREAMS_MAX: usize = 10_000;
/// Streams that are removed with their file; a folder with more stays.
const REMOVED_MAX: usize = 1 << 20;
/// The most entries that are read of a folder of the depot; each of its two levels has 256.
const FOLDERS_MAX: usize = 10_000;
/// Depot folders, as Samba makes them.
const FOLDER_MODE: u32 = 0o755;

pub(super) const FOLDER: OpenHow = OpenHow {
    directory: true,
    ..OpenHow::PATH_ONLY
};

/// The folder of an inode's streams, and its name in the one above.
struct Found<D: Disk> {
    above: D::Fd,
    name: String,
    folder: D::Fd,
}

impl<D: Disk> PosixVfs<D> {
    /// Whether the inode is marked to have a folder that cannot be found: Samba made it under another device number, or
    /// the inode belongs to a snapshot. The mark must stay then, because only the mark shows that the folder does not
    /// belong to a dead inode.
    pub(super) async fn depot_is_lost(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        Ok(self.marked(node).await?
            && self.noted_place(node).await?.is_none()
            && self.depot_find(node).await?.is_none())
    }

    /// A folder of the depot and the one above; `None` if there is none.
    async fn depot_at(&self, [first, second, id]: &[String; 3]) -> VfsResult<Option<Found<D>>> {
        self.locks.use_depot();
        let mut above = None;
        let mut at = self.root.fd().clone();
        for component in [DEPOT, first, second, id] {
            let name = component.as_bytes();
            match self.disk.open_at(&SERVICE, &at, name, FOLDER).await {
                Ok(folder) => above = Some(std::mem::replace(&mut at, folder)),
                Err(errno) if errno.is(&[libc::ENOENT]) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        let name = id.clone();
        Ok(above.map(|above| Found {
            above,
            name,
            folder: at,
        }))
    }

    /// As [`Self::depot_find`], but creates a missing folder. A folder that it returns is stable.
    async fn depot_make(&self, node: &PosixNode<D>) -> VfsResult<D::Fd> {
        let _folders = self.locks.folders(self.root_key().fs).await;
        if let Some(found) = self.depot_find(node).await? {
            return Ok(found.folder);
        }
        let [first, second, id] = depot_path(node.0.key.fs, node.0.key.ino);
        self.open_or_make_path(&[DEPOT, &first, &second, &id]).await
    }

    /// Opens the last of some nested folders, the first of them in the root; missing ones are made. The
    /// caller holds the lock of folders.
    async fn open_or_make_path(&self, path: &[&str]) -> VfsResult<D::Fd> {
        let mut at = self.root.fd().clone();
        for component in path {
            let name = component.as_bytes();
            at = match self.disk.open_at(&SERVICE, &at, name, FOLDER).await {
                Err(errno) if errno.is(&[libc::ENOENT]) => {
                    self.depot_add(&at, name, *component == DEPOT).await?
                }
                opened => opened?,
            };
        }
        Ok(at)
    }

    /// Whether the inode has an attribute that concerns the depot.
    pub(super) async fn leads_to_depot(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        let names = self.attribute_names(node.fd()).await?;
        let leads = |name: &String| [DEPOT_MARK, PLACE, OLD_PLACE].contains(&name.as_str());
        Ok(names.iter().any(leads))
    }

    /// Moves the folder of an inode's streams to the place of Samba's rule, and returns whether it was elsewhere. A
    /// power cut leaves it in one of the two places.
    pub(super) async fn depot_bring_home(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        if !self.marked(node).await? {
            return Ok(false);
        }
        let here = depot_path(node.0.key.fs, node.0.key.ino);
        let noted = self.noted_place(node).await?;
        let named_anew = self.xattr(node.fd(), OLD_PLACE).await?.is_some();
        if noted.is_none_or(|noted| noted == here) && !named_anew {
            return Ok(false);
        }
        let place = self.depot_place(node).await?;
        let found = match place == here {
            true => None,
            false => self.depot_at(&place).await?,
        };
        if let Some(Found { above, name, .. }) = &found {
            let _folders = self.locks.folders(self.root_key().fs).await;
            let [first, second, id] = &here;
            let home = self.open_or_make_path(&[DEPOT, first, second]).await?;
            let (from, to) = (name.as_bytes(), id.as_bytes());
            let moved = self
                .disk
                .rename(&SERVICE, (above, from), (&home, to), false);
            moved.await?;
            // The new name must be stable before the removal of the old one is.
            for folder in [&home, above] {
                let listener = self.disk.reopen(&SERVICE, folder, IoAccess::READ).await?;
                let synced = self.disk.sync_dir(&listener).await;
                synced.map_err(VfsError::of_sync)?;
            }
        }
        self.store_place(node, &here).await?;
        self.sync_base(node, false).await?;
        self.drop_attribute(node, OLD_PLACE).await?;
        Ok(found.is_some())
    }

    /// Removes the folder of an inode's streams, which are elsewhere by now, and the attributes that lead to it.
    pub(super) async fn depot_leave(&self, node: &PosixNode<D>) -> VfsResult<()> {
        if self.marked(node).await?
            && let Some(found) = self.depot_own(node).await?
        {
            self.empty_folder(&found.folder).await?;
            // The folder stays if it holds anything else.
            self.remove_empty(&found.above, found.name.as_bytes())
                .await?;
        }
        // The mark is removed first and made stable. Without it the other attributes have no effect; as long as it
        // exists, the place shows that the folder was removed and not lost.
        if self.drop_attribute(node, DEPOT_MARK).await? {
            self.sync_base(node, false).await?;
        }
        for name in [PLACE, OLD_PLACE] {
            self.drop_attribute(node, name).await?;
        }
        Ok(())
    }

    /// Removes the empty folders of the depot, and the depot itself if it is then empty. Returns whether it is gone.
    pub(super) async fn depot_prune(&self) -> VfsResult<bool> {
        let _folders = self.locks.folders(self.root_key().fs).await;
        let root = self.root.fd().clone();
        let depot = (self.disk).open_at(&SERVICE, &root, DEPOT.as_bytes(), FOLDER);
        let Some(depot) = unless(depot.await, &[libc::ENOENT])? else {
            return Ok(true);
        };
        for first in self.folders_in(&depot).await? {
            let within = self.disk.open_at(&SERVICE, &depot, &first, FOLDER).await?;
            for second in self.folders_in(&within).await? {
                self.remove_empty(&within, &second).await?;
            }
            self.remove_empty(&depot, &first).await?;
        }
        self.remove_empty(&root, DEPOT.as_bytes()).await
    }

    async fn folders_in(&self, folder: &D::Fd) -> VfsResult<Vec<Box<[u8]>>> {
        let entries = self.entries_in(folder, FOLDERS_MAX).await?;
        let folders = entries
            .into_iter()
            .filter(|entry| entry.kind == libc::DT_DIR);
        Ok(folders.map(|entry| entry.name).collect())
    }

    async fn remove_empty(&self, above: &D::Fd, name: &[u8]) -> VfsResult<bool> {
        match self.disk.unlink(&SERVICE, above, name, true).await {
            Err(errno) if errno.is(&[libc::ENOTEMPTY, libc::EEXIST]) => Ok(false),
            Err(errno) if !errno.is(&[libc::ENOENT]) => Err(errno.into()),
            _ => Ok(true),
        }
    }

    /// Makes a folder of the depot and its name stable, or removes it again: other folders are reached through it, and
    /// it could not be detected later that its name was lost. The caller holds the lock of folders.
    async fn depot_add(&self, above: &D::Fd, name: &[u8], in_root: bool) -> VfsResult<D::Fd> {
        VfsError::Io.when(self.depot_broken.load(SeqCst))?;
        // This descriptor is opened first, so that it gets every failure from now on.
        let listener = self.disk.reopen(&SERVICE, above, IoAccess::READ).await?;
        let made = self.disk.make_dir(&SERVICE, above, name, FOLDER_MODE);
        unless(made.await, &[libc::EEXIST])?;
        // A sync of the root would also make stable that names were moved out of it, perhaps before their new places
        // are stable, and the order is not known here. That of the file system makes all of it stable in one step.
        let synced = match in_root {
            true => self.sync_file_system(&self.root, &listener).await,
            false => {
                let synced = self.disk.sync_dir(&listener).await;
                synced.map_err(VfsError::of_sync)
            }
        };
        if let Err(error) = synced {
            if let Err(left) = self.disk.unlink(&SERVICE, above, name, true).await {
                let (errno, name) = (left.0, String::from_utf8_lossy(name));
                tracing::error!(errno, %name, "a folder of .streams that is not stable stays");
                self.depot_broken.store(true, SeqCst);
            }
            return Err(error);
        }
        Ok(self.disk.open_at(&SERVICE, above, name, FOLDER).await?)
    }

    async fn marked(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        Ok(self.xattr(node.fd(), DEPOT_MARK).await?.is_some())
    }

    /// Stores on the inode that it has streams in the depot, and where. It does so even if the attributes exist,
    /// because a failed sync may have lost what can still be read.
    pub(super) async fn mark(&self, node: &PosixNode<D>) -> VfsResult<()> {
        let place = self.depot_place(node).await?;
        self.store_place(node, &place).await?;
        let (fd, how) = (node.fd(), XattrSet::Either);
        self.set_xattr(&SERVICE, fd, DEPOT_MARK, b"1", how).await
    }

    /// The folder of an inode that has streams in the depot.
    pub(super) async fn depot_folder(&self, node: &PosixNode<D>) -> VfsResult<Option<D::Fd>> {
        if !self.marked(node).await? {
            return Ok(None);
        }
        // Few inodes have the mark, and the futures of READ and FLUSH need not carry the search.
        let own = Box::pin(self.depot_own(node)).await?;
        Ok(own.map(|found| found.folder))
    }

    /// As [`Self::depot_find`], but a folder that is labelled with another inode is not this one's.
    async fn depot_own(&self, node: &PosixNode<D>) -> VfsResult<Option<Found<D>>> {
        if let Some((_, found)) = self.noted_folder(node).await? {
            return Ok(Some(found));
        }
        let here = depot_path(node.0.key.fs, node.0.key.ino);
        let Some(found) = self.depot_at(&here).await? else {
            return Ok(None);
        };
        let foreign = self.is_of_another(node, &found.folder).await?;
        Ok((!foreign).then_some(found))
    }

    /// Opens a stream's file for reading and writing; `None` if there is none.
    pub(super) async fn depot_open(
        &self,
        node: &PosixNode<D>,
        stream: &str,
    ) -> VfsResult<Option<D::Fd>> {
        let (Some(file), Some(folder)) = (stream_file(stream), self.depot_folder(node).await?)
        else {
            return Ok(None);
        };
        let how = OpenHow {
            read: true,
            write: !self.options.read_only,
            ..OpenHow::default()
        };
        let opened = match self.disk.open_at(&SERVICE, &folder, &file, how).await {
            // The file system may be read-only although the share is not: a snapshot, or after an error.
            Err(errno) if errno.is(&[libc::EROFS]) => {
                let how = OpenHow {
                    write: false,
                    ..how
                };
                self.disk.open_at(&SERVICE, &folder, &file, how).await
            }
            opened => opened,
        };
        let Some(fd) = unless(opened, &[libc::ENOENT])? else {
            return Ok(None);
        };
        VfsError::AccessDenied.when(self.may_be_planted(node, (&folder, &fd)).await?)?;
        Ok(Some(fd))
    }

    /// Makes an empty file for a stream, opened for reading and writing. `Exists` if there is one.
    pub(super) async fn depot_create(&self, node: &PosixNode<D>, stream: &str) -> VfsResult<D::Fd> {
        let file = stream_file(stream).ok_or(VfsError::NameTooLong)?;
        let marked = self.marked(node).await?;
        let folder = self.depot_make(node).await?;
        if !marked || self.is_of_another(node, &folder).await? {
            self.clear_folder(node, &folder).await?;
        }
        self.label(node, &folder).await?;
        self.mark(node).await?;
        let base = self.disk.stat(node.fd()).await?;
        let how = OpenHow::new_file(base.mode & 0o666);
        let made = async {
            let fd = self.disk.open_at(&SERVICE, &folder, &file, how).await?;
            let made = self.disk.stat(&fd).await?;
            if (made.uid, made.gid) != (base.uid, base.gid) {
                let (uid, gid) = (Some(base.uid), Some(base.gid));
                let given = self.disk.set_owner(&SERVICE, &fd, uid, gid).await;
                // Only root can do this; otherwise the file belongs to the service, as the inode does in most cases.
                unless(given, &[libc::EPERM])?;
            }
            // One that may be planted could not be opened again.
            VfsError::AccessDenied.when(self.may_be_planted(node, (&folder, &fd)).await?)?;
            Ok::<_, VfsError>(fd)
        };
        let made = made.await;
        if made.as_ref().is_err_and(|error| *error != VfsError::Exists) {
            // The kernel may have made the file and failed then.
            let _ = self.disk.unlink(&SERVICE, &folder, &file, false).await;
        }
        made
    }

    pub(super) async fn depot_remove(&self, node: &PosixNode<D>, stream: &str) -> VfsResult<bool> {
        let (Some(file), Some(folder)) = (stream_file(stream), self.depot_folder(node).await?)
        else {
            return Ok(false);
        };
        let gone = self.disk.unlink(&SERVICE, &folder, &file, false).await;
        Ok(unless(gone, &[libc::ENOENT])?.is_some())
    }

    pub(super) async fn depot_rename(
        &self,
        node: &PosixNode<D>,
        from: &str,
        to: &str,
    ) -> VfsResult<()> {
        let from = stream_file(from).ok_or(VfsError::NotFound)?;
        let to = stream_file(to).ok_or(VfsError::NameTooLong)?;
        let folder = self.depot_folder(node).await?.ok_or(VfsError::NotFound)?;
        self.disk
            .rename(&SERVICE, (&folder, &from), (&folder, &to), true)
            .await?;
        Ok(())
    }

    /// Empties the folder at an inode's place of the streams of another inode. An inode on a file system that is
    /// mounted below the root may have the number and the device number that an inode of the root's had at an earlier
    /// start. That one is perhaps alive and notes the folder as its own, so nothing is removed there unless the label
    /// allows it.
    async fn clear_folder(&self, node: &PosixNode<D>, folder: &D::Fd) -> VfsResult<()> {
        let certain = node.0.key.fs == self.root.0.key.fs || {
            let label = self.label_on(folder, node).await?;
            matches!(label, Label::Own | Label::Predecessors)
        };
        if !certain && !self.depot_entries(folder, REMOVED_MAX).await?.is_empty() {
            return Err(VfsError::NotSupported);
        }
        self.take_over(folder).await?;
        self.empty_folder(folder).await
    }

    /// Removes all but directories from a folder.
    async fn empty_folder(&self, folder: &D::Fd) -> VfsResult<()> {
        // Others may have made more than this server does.
        let mut entries = self.depot_entries(folder, REMOVED_MAX).await?;
        entries.retain(|entry| entry.kind != libc::DT_DIR);
        for entry in entries {
            let gone = self.disk.unlink(&SERVICE, folder, &entry.name, false).await;
            unless(gone, &[libc::ENOENT])?;
        }
        Ok(())
    }

    /// Removes all streams of an inode whose last name was removed. `stat` is the inode before that. A power cut may
    /// bring the name back (above all that of a replaced file), here or where it was before a move, and the file must
    /// then have its streams; so everything is made stable first. After a failure the streams stay; no other inode
    /// takes them for its own, because the mark was removed with the inode.
    pub(super) async fn depot_forget(&self, node: &PosixNode<D>, stat: &Stat) {
        if !matches!(self.marked(node).await, Ok(true)) {
            return;
        }
        // The links are counted after the removal, because a client or the host may have made one since `stat` was
        // taken. Some file systems count none of a directory's.
        let directory = stat.mode & libc::S_IFMT == libc::S_IFDIR;
        let unnamed =
            directory || matches!(self.disk.stat(node.fd()).await, Ok(now) if now.links == 0);
        if !unnamed {
            return;
        }
        if let Err(error) = self.depot_clear(node).await {
            tracing::debug!(%error, "streams of a removed inode stay in the depot");
        }
    }

    async fn depot_clear(&self, node: &PosixNode<D>) -> VfsResult<()> {
        let Some(found) = self.depot_own(node).await? else {
            return Ok(());
        };
        // The name may have been on a file system that is mounted below the root.
        let is_here = node.0.key.fs == self.root.0.key.fs;
        let on = if is_here { &self.root } else { node };
        let fd = self.own_fd(on).await?;
        self.sync_file_system(on, &fd).await?;
        self.empty_folder(&found.folder).await?;
        // The hash folders stay, as with Samba.
        let (above, name) = (&found.above, found.name.as_bytes());
        Ok(self.disk.unlink(&SERVICE, above, name, true).await?)
    }

    /// Makes the depot's streams of an inode stable: one (by its file) or all, with their names.
    /// The folders above them have been stable since they were made.
    ///
    /// Every FLUSH calls this, so the mark is asked for only once a share has a depot, from its start or since a folder
    /// of it was looked for. Samba does not serve the share at the same time.
    pub(super) async fn depot_sync(
        &self,
        node: &PosixNode<D>,
        only: Option<&D::Fd>,
    ) -> VfsResult<()> {
        if !self.locks.uses_depot() {
            return Ok(());
        }
        let folder = match self.depot_folder(node).await {
            // The service may write this file and not read it, and so not its mark either. None of its streams can have
            // changed since that is so, and each that changed before is synced through its own node.
            Err(VfsError::AccessDenied) if only.is_none() => return Ok(()),
            folder => folder.map_err(VfsError::before_sync)?,
        };
        let Some(folder) = folder else {
            return Ok(());
        };
        match only {
            Some(fd) => self.disk.fsync(fd).await.map_err(VfsError::of_sync)?,
            None => {
                let names = self.depot_names(&folder, STREAMS_MAX).await;
                let names = names.map_err(VfsError::before_sync)?;
                for file in names.iter().filter_map(|name| stream_file(name)) {
                    let how = OpenHow {
                        read: true,
                        ..OpenHow::default()
                    };
                    match self.disk.open_at(&SERVICE, &folder, &file, how).await {
                        Ok(fd) => self.disk.fsync(&fd).await.map_err(VfsError::of_sync)?,
                        Err(errno) if errno.is(&[libc::ENOENT]) => {}
                        Err(errno) => return Err(VfsError::from(errno).before_sync()),
                    }
                }
            }
        }
        let fd = self.disk.reopen(&SERVICE, &folder, IoAccess::READ).await;
        let fd = fd.map_err(|errno| VfsError::from(errno).before_sync())?;
        self.disk.sync_dir(&fd).await.map_err(VfsError::of_sync)
    }
}
