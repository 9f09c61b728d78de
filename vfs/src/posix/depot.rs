//! Samba's depot: streams as files under `.streams` in the share's root.
//!
//! `.streams/XX/YY/<device and inode in hex>/:<name>:$DATA`, everything made and opened by the
//! service (whoever may use a stream is decided by the inode that carries it; a stream's file
//! gets that inode's owner and permission bits). An inode that has streams here carries the mark
//! `user.SAMBA_STREAMS`; a folder whose inode has no mark belongs to a dead inode of the same
//! number and is emptied before use.
//!
//! Device numbers are given anew at each start (btrfs makes them up at each mount), so an inode
//! also says where its folder is, in [`PLACE`]. Samba knows no such attribute: what it made is
//! found where its rule says, as long as the device keeps its number.

use super::{
    PosixNode, PosixVfs,
    lookup::PATH_ONLY,
    name::DEPOT,
    samba_xattr::{DEPOT_MARK, depot_path, stream_file, stream_of_file},
};
use crate::{
    Identity, Node, StreamInfo, VfsError, VfsResult,
    disk::{Disk, OpenHow, Stat, XattrSet},
};

/// Streams of one inode that are listed or removed.
pub(super) const STREAMS_MAX: usize = 10_000;
/// Where the folder of an inode's streams is, from the depot on: `XX/YY/ID`.
const PLACE: &str = "user.holdfast.depot";
/// Depot folders, as Samba makes them.
const FOLDER_MODE: u32 = 0o755;

const SERVICE: Identity = Identity::Service;

impl<D: Disk> PosixVfs<D> {
    /// The folder of an inode's streams: where the inode says, else where Samba's rule does.
    async fn depot_place(&self, node: &PosixNode<D>) -> VfsResult<[String; 3]> {
        let here = depot_path(node.0.key.fs, node.0.key.ino);
        let told = self.xattr(node.fd(), PLACE).await?;
        Ok(told.and_then(|told| parse(&told, &here)).unwrap_or(here))
    }

    /// The folders from the root to the one that holds the streams of `node`'s inode, the last
    /// one last; `None` if one is missing and not to be made.
    async fn depot_folders(
        &self,
        node: &PosixNode<D>,
        make: bool,
    ) -> VfsResult<Option<Vec<D::Fd>>> {
        let [first, second, id] = self.depot_place(node).await?;
        let how = OpenHow {
            directory: true,
            ..PATH_ONLY
        };
        let mut folders = vec![self.root_node().fd().clone()];
        for component in [DEPOT, &first, &second, &id] {
            let Some(above) = folders.last() else {
                return Ok(None);
            };
            let name = component.as_bytes();
            let mut opened = self.disk.open_at(&SERVICE, above, name, how).await;
            if make
                && opened
                    .as_ref()
                    .is_err_and(|errno| errno.is(&[libc::ENOENT]))
            {
                match self.disk.make_dir(&SERVICE, above, name, FOLDER_MODE).await {
                    Err(errno) if !errno.is(&[libc::EEXIST]) => return Err(errno.into()),
                    _ => opened = self.disk.open_at(&SERVICE, above, name, how).await,
                }
            }
            match opened {
                Ok(folder) => folders.push(folder),
                Err(errno) if !make && errno.is(&[libc::ENOENT]) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Some(folders))
    }

    async fn marked(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        Ok(self.xattr(node.fd(), DEPOT_MARK).await?.is_some())
    }

    /// Writes on the inode that, and where, it has streams in the depot.
    async fn mark(&self, node: &PosixNode<D>, marked: bool) -> VfsResult<()> {
        let place = self.depot_place(node).await?.join("/");
        let told = self.xattr(node.fd(), PLACE).await?;
        let mut due = Vec::new();
        if told.as_deref() != Some(place.as_bytes()) {
            due.push((PLACE, place.as_bytes()));
        }
        if !marked {
            due.push((DEPOT_MARK, b"1"));
        }
        for (name, value) in due {
            let how = XattrSet::Either;
            self.disk
                .set_xattr(&SERVICE, node.fd(), name, value, how)
                .await?;
        }
        Ok(())
    }

    /// The folder of an inode that has streams in the depot.
    async fn depot_folder(&self, node: &PosixNode<D>) -> VfsResult<Option<D::Fd>> {
        if !self.marked(node).await? {
            return Ok(None);
        }
        let folders = self.depot_folders(node, false).await?;
        Ok(folders.and_then(|mut folders| folders.pop()))
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
        match self.disk.open_at(&SERVICE, &folder, &file, how).await {
            Ok(fd) => Ok(Some(fd)),
            Err(errno) if errno.is(&[libc::ENOENT]) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes a stream's file, empty, opened for reading and writing. `Exists` if it is there.
    pub(super) async fn depot_create(&self, node: &PosixNode<D>, stream: &str) -> VfsResult<D::Fd> {
        let file = stream_file(stream).ok_or(VfsError::NameTooLong)?;
        let marked = self.marked(node).await?;
        let folders = self.depot_folders(node, true).await?;
        let folder = folders
            .and_then(|mut folders| folders.pop())
            .ok_or(VfsError::Io)?;
        if !marked {
            self.empty_folder(&folder).await?;
        }
        self.mark(node, marked).await?;
        let base = self.disk.stat(node.fd()).await?;
        let how = OpenHow {
            read: true,
            write: true,
            create: Some(base.mode & 0o666),
            ..OpenHow::default()
        };
        let fd = self.disk.open_at(&SERVICE, &folder, &file, how).await?;
        let made = self.disk.stat(&fd).await?;
        if (made.uid, made.gid) != (base.uid, base.gid) {
            // Only root can; otherwise the file is the service's, like the inode in most cases.
            let owner = (Some(base.uid), Some(base.gid));
            match self.disk.set_owner(&SERVICE, &fd, owner.0, owner.1).await {
                Err(errno) if !errno.is(&[libc::EPERM]) => {
                    self.disk.unlink(&SERVICE, &folder, &file, false).await?;
                    return Err(errno.into());
                }
                _ => {}
            }
        }
        Ok(fd)
    }

    pub(super) async fn depot_remove(&self, node: &PosixNode<D>, stream: &str) -> VfsResult<bool> {
        let (Some(file), Some(folder)) = (stream_file(stream), self.depot_folder(node).await?)
        else {
            return Ok(false);
        };
        match self.disk.unlink(&SERVICE, &folder, &file, false).await {
            Ok(()) => Ok(true),
            Err(errno) if errno.is(&[libc::ENOENT]) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
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
            .rename(&SERVICE, &folder, &from, &folder, &to, true)
            .await?;
        Ok(())
    }

    /// The streams of an inode that lie in the depot.
    pub(super) async fn depot_streams(&self, node: &PosixNode<D>) -> VfsResult<Vec<StreamInfo>> {
        let Some(folder) = self.depot_folder(node).await? else {
            return Ok(Vec::new());
        };
        let mut streams = Vec::new();
        for (file, name) in self.depot_files(&folder).await? {
            match self.disk.stat_at(&folder, &file).await {
                Ok(stat) => streams.push(StreamInfo {
                    name,
                    size: stat.size,
                    allocated: stat.blocks.saturating_mul(512),
                }),
                Err(errno) if errno.is(&[libc::ENOENT]) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(streams)
    }

    async fn depot_files(&self, folder: &D::Fd) -> VfsResult<Vec<(Box<[u8]>, String)>> {
        let listing = self.disk.reopen(&SERVICE, folder, true, false).await?;
        let entries = self.disk.entries(&SERVICE, &listing, STREAMS_MAX).await?;
        Ok(entries
            .into_iter()
            .filter_map(|entry| {
                let name = stream_of_file(&entry.name)?.to_owned();
                Some((entry.name, name))
            })
            .collect())
    }

    async fn empty_folder(&self, folder: &D::Fd) -> VfsResult<()> {
        for (file, _) in self.depot_files(folder).await? {
            match self.disk.unlink(&SERVICE, folder, &file, false).await {
                Err(errno) if !errno.is(&[libc::ENOENT]) => return Err(errno.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes all streams of an inode whose last name is gone. `stat` is the inode before that,
    /// `settled` what has to be stable first, in order: the name may come back with a cut (a file
    /// that was to be replaced above all), and then it must have its streams. What fails is left:
    /// the mark died with the inode, so nobody takes it for another's.
    pub(super) async fn depot_forget(
        &self,
        node: &PosixNode<D>,
        stat: &Stat,
        settled: &[&PosixNode<D>],
    ) {
        let directory = stat.mode & libc::S_IFMT == libc::S_IFDIR;
        if stat.links > 1 && !directory {
            // The last name goes later, this one may be stable still.
            for dir in settled.iter().filter(|settled| settled.is_directory()) {
                self.left(node, dir).await;
            }
            return;
        }
        let left = self.left.of(node.0.key);
        self.left.forget(node.0.key);
        if !matches!(self.marked(node).await, Ok(true)) {
            return;
        }
        let Ok(Some(folders)) = self.depot_folders(node, false).await else {
            return;
        };
        // Where it was before it moved, it may come back too.
        for first in settled.iter().copied().chain(&left) {
            if let Err(error) = self.settle_name(first).await {
                tracing::debug!(%error, "streams of a removed inode stay in the depot");
                return;
            }
        }
        if let [.., above, folder] = folders.as_slice() {
            let Ok([_, _, id]) = self.depot_place(node).await else {
                return;
            };
            if let Err(error) = self.empty_folder(folder).await {
                tracing::debug!(%error, "streams of a removed inode stay in the depot");
                return;
            }
            // The hash folders stay, as with Samba.
            let _ = self.disk.unlink(&SERVICE, above, id.as_bytes(), true).await;
        }
    }

    /// Makes one inode stable. Its descriptor is a new one: who holds another hears of a failed
    /// write-back all the same.
    pub(super) async fn settle_name(&self, node: &PosixNode<D>) -> VfsResult<()> {
        let fd = self.disk.reopen(&SERVICE, node.fd(), true, false).await?;
        let synced = self.disk.fsync(&fd).await.map_err(VfsError::of_sync);
        synced.inspect_err(|error| self.sync_failed(node, *error))
    }

    /// Makes the depot's streams of an inode stable: one (by name) or all; with every folder up
    /// to the root, as any of them may be new.
    pub(super) async fn depot_sync(
        &self,
        node: &PosixNode<D>,
        only: Option<&D::Fd>,
    ) -> VfsResult<()> {
        if !self.marked(node).await.map_err(VfsError::before_sync)? {
            return Ok(());
        }
        let folders = self.depot_folders(node, false).await;
        let Some(folders) = folders.map_err(VfsError::before_sync)? else {
            return Ok(());
        };
        match (only, folders.last()) {
            (Some(fd), _) => self.disk.fsync(fd).await.map_err(VfsError::of_sync)?,
            (None, Some(folder)) => {
                let files = self.depot_files(folder).await;
                for (file, _) in files.map_err(VfsError::before_sync)? {
                    let how = OpenHow {
                        read: true,
                        ..OpenHow::default()
                    };
                    match self.disk.open_at(&SERVICE, folder, &file, how).await {
                        Ok(fd) => self.disk.fsync(&fd).await.map_err(VfsError::of_sync)?,
                        Err(errno) if errno.is(&[libc::ENOENT]) => {}
                        Err(errno) => return Err(VfsError::from(errno).before_sync()),
                    }
                }
            }
            (None, None) => {}
        }
        for (above, folder) in folders.iter().rev().enumerate() {
            let fd = self.disk.reopen(&SERVICE, folder, true, false).await;
            let fd = fd.map_err(|errno| VfsError::from(errno).before_sync())?;
            if let Err(errno) = self.disk.fsync(&fd).await {
                let error = VfsError::of_sync(errno);
                if above > 0 {
                    self.folder_failed(folder, error).await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The sync of a folder failed that more than one inode is reached through: what others owed
    /// it is lost too, in the root's case every new name there.
    async fn folder_failed(&self, folder: &D::Fd, error: VfsError) {
        match self.disk.stat(folder).await {
            Ok(stat) => {
                let folder = PosixNode::path_only(folder.clone(), &stat, false, None);
                self.sync_failed(&folder, error);
            }
            // Somebody must know.
            Err(_) => self.sync_failed(&self.root_node(), error),
        }
    }
}

/// Reads [`PLACE`]. Copying a file's attributes copies it too: then the inode number in it is
/// another's, and it does not count.
fn parse(told: &[u8], here: &[String; 3]) -> Option<[String; 3]> {
    let told = std::str::from_utf8(told).ok()?;
    let parts: Vec<&str> = told.split('/').collect();
    let hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let same = |(part, here): (&&str, &String)| part.len() == here.len() && hex(part);
    if parts.len() != here.len() || !parts.iter().zip(here).all(same) {
        return None;
    }
    let [first, second, id] = parts.as_slice() else {
        return None;
    };
    // Behind the device: 16 digits.
    (id.get(16..) == here.last()?.get(16..)).then(|| [*first, *second, *id].map(str::to_owned))
}
