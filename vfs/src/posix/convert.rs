//! Moves all streams of a share to the place that its options name ([`StreamStore`]).
//!
//! A conversion treats each inode as a whole: its streams are stable in the new place before anything is removed from
//! the old one, and if one of them does not fit, all stay where they were. After a power cut streams may be in both
//! places; the attribute then counts, and another conversion completes the move. It is meant for a share that nobody
//! else serves: the locks of inodes are held, but another program that has a stream open may still write to its old
//! place.

use std::collections::BTreeSet;

use bytes::BytesMut;

use super::{
    PosixNode, PosixVfs, SERVICE, StreamStore,
    attributes::Named,
    ea::{check_names, names_length},
    lookup::Child,
    name,
    samba_xattr::{stream_attribute, stream_file, stream_of_attribute},
    streams::{IN_XATTR_MAX, StreamPlace},
};
use crate::{
    Kind, StreamInfo, VfsError, VfsResult,
    disk::{Disk, RawEntry, XattrSet},
};

/// The most names of one directory that are visited.
const NAMES_MAX: usize = 100_000_000;

/// The result for the streams of one file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Streams that are in the other place now.
    pub streams: u64,
    pub bytes: u64,
    /// The folder of its streams was moved to where Samba looks for it.
    pub folder: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Converted {
    /// Files and directories whose streams were moved.
    pub inodes: u64,
    pub moved: Moved,
    /// Files and directories that could not be examined, or whose streams stay where they were.
    pub failed: u64,
    /// The depot still exists.
    pub depot: bool,
}

struct Level<F> {
    fd: F,
    path: String,
    names: std::vec::IntoIter<RawEntry>,
}

impl<D: Disk> PosixVfs<D> {
    /// Moves all streams to the place that the options name. `report` is called for every inode whose streams were moved
    /// or could not be moved, with the path below the root; a failure does not stop the others. When this returns, all
    /// of it is stable.
    pub async fn convert_streams(
        &self,
        mut report: impl FnMut(&str, VfsResult<Moved>),
    ) -> VfsResult<Converted> {
        self.writable()?;
        let mut done = Converted::default();
        let mut count = |path: &str, moved: VfsResult<Moved>| {
            match moved {
                Ok(moved) if moved == Moved::default() => return,
                Ok(moved) => {
                    done.inodes += 1;
                    done.moved.streams += moved.streams;
                    done.moved.bytes += moved.bytes;
                    done.moved.folder |= moved.folder;
                }
                Err(_) => done.failed += 1,
            }
            report(path, moved);
        };
        let root = self.root.clone();
        count(".", self.convert(&root).await);
        let mut way = vec![self.level(root.fd().clone(), String::new()).await?];
        while let Some(level) = way.last_mut() {
            let Some(entry) = level.names.next() else {
                way.pop();
                continue;
            };
            if level.path.is_empty() && name::is_reserved(true, &name::to_client(&entry.name)) {
                continue;
            }
            let shown = String::from_utf8_lossy(&entry.name);
            let path = match level.path.as_str() {
                "" => shown.into_owned(),
                above => format!("{above}/{shown}"),
            };
            let child = self.open_child(&SERVICE, &level.fd, &entry.name).await;
            let (fd, stat) = match child {
                Ok(Some(Child::Inode(fd, stat))) => (fd, stat),
                Ok(_) => continue,
                Err(error) => {
                    count(&path, Err(error));
                    continue;
                }
            };
            let node = PosixNode::path_only(fd.clone(), &stat, Named::default(), None);
            match node.0.kind {
                Kind::File => count(&path, self.convert(&node).await),
                Kind::Directory => {
                    count(&path, self.convert(&node).await);
                    match self.level(fd, path.clone()).await {
                        Ok(level) => way.push(level),
                        Err(error) => count(&path, Err(error)),
                    }
                }
                Kind::SymbolicLink | Kind::Special => {}
            }
        }
        if self.options.streams == StreamStore::Xattr {
            done.depot = !self.depot_prune().await?;
        }
        let fd = self.own_fd(&root).await?;
        self.sync_file_system(&root, &fd).await?;
        Ok(done)
    }

    async fn level(&self, fd: D::Fd, path: String) -> VfsResult<Level<D::Fd>> {
        let names = self.entries_in(&fd, NAMES_MAX).await?.into_iter();
        Ok(Level { fd, path, names })
    }

    async fn convert(&self, node: &PosixNode<D>) -> VfsResult<Moved> {
        let _inode = self.locks.inode(node.0.key).await;
        match self.options.streams {
            StreamStore::Depot => self.convert_to_depot(node).await,
            StreamStore::Xattr => self.convert_to_attributes(node).await,
        }
    }

    async fn convert_to_depot(&self, node: &PosixNode<D>) -> VfsResult<Moved> {
        let mut moved = Moved {
            folder: self.depot_bring_home(node).await?,
            ..Moved::default()
        };
        for attribute in self.attribute_names(node.fd()).await? {
            // Another program may have made one of a name that no file can have, nor a client ask for: it stays.
            let name = stream_of_attribute(&attribute).filter(|name| stream_file(name).is_some());
            let Some(name) = name else {
                continue;
            };
            let stream = node.unopened_stream(name.to_owned());
            if let StreamPlace::Xattr(data) = self.place(&stream).await? {
                self.move_to_depot(&stream, &data).await?;
                moved.streams += 1;
                moved.bytes += data.len() as u64;
            }
        }
        Ok(moved)
    }

    async fn convert_to_attributes(&self, node: &PosixNode<D>) -> VfsResult<Moved> {
        if !self.leads_to_depot(node).await? {
            return Ok(Moved::default());
        }
        VfsError::NotFound.when(self.depot_is_lost(node).await?)?;
        let streams = self.depot_streams(node).await?;
        let names = self.attribute_names(node.fd()).await?;
        let mut names: BTreeSet<String> = names.into_iter().collect();
        names.extend(streams.iter().filter_map(|one| stream_attribute(&one.name)));
        if !streams.is_empty() {
            check_names(names_length(&names))?;
        }
        let mut made = Vec::new();
        for stream in &streams {
            match self.copy_to_attribute(node, stream).await {
                Ok(Some(attribute)) => made.push(attribute),
                // The stream is in both places: the attribute counts.
                Ok(None) => {}
                Err(error) => {
                    for attribute in made {
                        self.drop_attribute(node, &attribute).await?;
                    }
                    return Err(error);
                }
            }
        }
        if !streams.is_empty() {
            self.sync_base(node, false).await?;
        }
        self.depot_leave(node).await?;
        Ok(Moved {
            streams: streams.len() as u64,
            bytes: streams.iter().map(|stream| stream.size).sum(),
            folder: false,
        })
    }

    /// Copies a stream of the depot to an attribute and returns that; `None` if the stream has one already.
    async fn copy_to_attribute(
        &self,
        node: &PosixNode<D>,
        stream: &StreamInfo,
    ) -> VfsResult<Option<String>> {
        let attribute = stream_attribute(&stream.name).ok_or(VfsError::NameTooLong)?;
        if self.xattr(node.fd(), &attribute).await?.is_some() {
            return Ok(None);
        }
        VfsError::TooLarge.when(stream.size > IN_XATTR_MAX as u64)?;
        let file = self.depot_open(node, &stream.name).await?;
        let file = file.ok_or(VfsError::NotFound)?;
        let data = self.read_all(&file, 0, IN_XATTR_MAX + 1, BytesMut::new());
        let data = data.await?;
        let how = XattrSet::Create;
        self.set_stream_attribute(node, &attribute, &data, how)
            .await?;
        Ok(Some(attribute))
    }
}
