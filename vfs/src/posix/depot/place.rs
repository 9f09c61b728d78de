//! The place of the folder with an inode's streams, as the inode itself notes it.
//!
//! The owner of a file may set its attributes on the host, and so note the place of another file's folder: that of a
//! file with the same inode number on a file system that is mounted below the root. A noted place therefore counts only
//! if the folder there is not labelled with another inode. So does the place of Samba's rule: where a file is removed
//! on the host, its folder stays, and the owner of the next file with the same number may set the mark. A folder that
//! an older version or Samba made has no label and counts; it gets one with the next stream that is made in it. On a
//! file system that is mounted below the root, the label also names the file system: it shows that the inode with the
//! folder's number is dead if another one of that file system has the number.

use super::Found;
use crate::{
    VfsResult,
    disk::{Disk, XattrSet},
    posix::{PosixNode, PosixVfs, SERVICE, samba_xattr::depot_path},
};

/// The attribute with the path of the folder of an inode's streams below the depot: `XX/YY/ID`. Samba treats every
/// attribute under `user.DosStream.` as a stream, so it does not show it among the extended attributes, and with its
/// depot it does not look for streams in attributes. No stream has a `/` in its name.
pub(super) const PLACE: &str = "user.DosStream./depot";
/// The earlier name of [`PLACE`], which inodes written by old versions may still have.
pub(super) const OLD_PLACE: &str = "user.holdfast.depot";
/// The attribute of a folder with the generation of the inode that has it; its number is in the folder's name. Below
/// the root, the identity of its file system follows, as far as it has one.
const LABEL: &str = "user.holdfast.generation";
/// The length of the generation in it.
const GENERATION_DIGITS: usize = 16;

/// The inode that a folder is labelled with, as seen from the inode at whose place it is.
pub(super) enum Label {
    Missing,
    Own,
    /// Another inode of the same file system below the root. It is dead, because this one has its number.
    Predecessors,
    /// Another inode.
    Foreign,
}

impl<D: Disk> PosixVfs<D> {
    /// The place of the folder of an inode's streams: the one that the inode notes, or else that of Samba's rule.
    pub(super) async fn depot_place(&self, node: &PosixNode<D>) -> VfsResult<[String; 3]> {
        let noted = self.noted_folder(node).await?;
        let here = || depot_path(node.0.key.fs, node.0.key.ino);
        Ok(noted.map_or_else(here, |(place, _)| place))
    }

    /// The folder that holds the streams of `node`'s inode; `None` if there is none.
    pub(super) async fn depot_find(&self, node: &PosixNode<D>) -> VfsResult<Option<Found<D>>> {
        if let Some((_, found)) = self.noted_folder(node).await? {
            return Ok(Some(found));
        }
        // The folder is there, too, if a conversion was interrupted before the inode's attribute was changed.
        let here = depot_path(node.0.key.fs, node.0.key.ino);
        self.depot_at(&here).await
    }

    /// The place that the inode notes, and the folder there, if it is not the place of Samba's rule and the folder no
    /// other inode's.
    pub(super) async fn noted_folder(
        &self,
        node: &PosixNode<D>,
    ) -> VfsResult<Option<([String; 3], Found<D>)>> {
        let here = depot_path(node.0.key.fs, node.0.key.ino);
        let noted = self.noted_place(node).await?;
        let Some(noted) = noted.filter(|noted| *noted != here) else {
            return Ok(None);
        };
        let Some(found) = self.depot_at(&noted).await? else {
            return Ok(None);
        };
        let foreign = self.is_of_another(node, &found.folder).await?;
        Ok((!foreign).then_some((noted, found)))
    }

    /// The place of its folder that the inode notes. It is valid only on the root's file system: a snapshot below the
    /// root has inodes with the same numbers and the same attribute, but the folder is not theirs.
    pub(super) async fn noted_place(&self, node: &PosixNode<D>) -> VfsResult<Option<[String; 3]>> {
        if node.0.key.fs != self.root.0.key.fs {
            return Ok(None);
        }
        let here = depot_path(node.0.key.fs, node.0.key.ino);
        for name in [PLACE, OLD_PLACE] {
            let noted = self.xattr(node.fd(), name).await?;
            if let Some(place) = noted.and_then(|noted| parse(&noted, &here)) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Whether a folder is labelled with another inode.
    pub(super) async fn is_of_another(
        &self,
        node: &PosixNode<D>,
        folder: &D::Fd,
    ) -> VfsResult<bool> {
        let label = self.label_on(folder, node).await?;
        Ok(matches!(label, Label::Predecessors | Label::Foreign))
    }

    /// The label of a folder, as seen from an inode.
    pub(super) async fn label_on(&self, folder: &D::Fd, node: &PosixNode<D>) -> VfsResult<Label> {
        let Some(label) = self.xattr(folder, LABEL).await? else {
            return Ok(Label::Missing);
        };
        let alone = generation_of(node);
        if alone.is_empty() {
            // A file system without generations labels nothing: a folder with a label is that of an inode elsewhere.
            return Ok(Label::Foreign);
        }
        let own = self.label_of(node).await?;
        // Older versions did not name the file system.
        if [alone.as_bytes(), own.as_bytes()].contains(&&*label) {
            return Ok(Label::Own);
        }
        let system = own.as_bytes().get(GENERATION_DIGITS..);
        let named = system.is_some_and(|system| !system.is_empty());
        Ok(match named && label.get(GENERATION_DIGITS..) == system {
            true => Label::Predecessors,
            false => Label::Foreign,
        })
    }

    /// The label of an inode; empty if its file system has no generations.
    async fn label_of(&self, node: &PosixNode<D>) -> VfsResult<String> {
        let alone = generation_of(node);
        if alone.is_empty() || node.0.key.fs == self.root.0.key.fs {
            return Ok(alone);
        }
        let system = self.disk.stat_fs(node.fd()).await?.id;
        // It is the device number where the file system has no identity that lasts.
        Ok(match system == node.0.key.fs {
            true => alone,
            false => format!("{alone}-{system:016X}"),
        })
    }

    /// Labels the folder of an inode's streams, or removes another inode's label where the inode has none.
    pub(super) async fn label(&self, node: &PosixNode<D>, folder: &D::Fd) -> VfsResult<()> {
        let own = self.label_of(node).await?;
        if own.is_empty() {
            if self.xattr(folder, LABEL).await?.is_some() {
                self.disk.remove_xattr(&SERVICE, folder, LABEL).await?;
            }
            return Ok(());
        }
        let (label, how) = (own.as_bytes(), XattrSet::Either);
        self.set_xattr(&SERVICE, folder, LABEL, label, how).await
    }

    pub(super) async fn store_place(
        &self,
        node: &PosixNode<D>,
        place: &[String; 3],
    ) -> VfsResult<()> {
        let place = place.join("/");
        let (how, place) = (XattrSet::Either, place.as_bytes());
        self.set_xattr(&SERVICE, node.fd(), PLACE, place, how).await
    }
}

/// The part of an inode's label that every file system has; empty if it has no generations.
fn generation_of<D: Disk>(node: &PosixNode<D>) -> String {
    match node.0.key.generation {
        0 => String::new(),
        generation => format!("{generation:016X}"),
    }
}

/// Reads [`PLACE`]. If a file's attributes are copied, this one is copied too; the inode number in it is then another
/// file's, and it is ignored.
fn parse(noted: &[u8], here: &[String; 3]) -> Option<[String; 3]> {
    let noted = std::str::from_utf8(noted).ok()?;
    let parts: Vec<&str> = noted.split('/').collect();
    let hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let same = |(part, here): (&&str, &String)| part.len() == here.len() && hex(part);
    if parts.len() != here.len() || !parts.iter().zip(here).all(same) {
        return None;
    }
    let [first, second, id] = parts.as_slice() else {
        return None;
    };
    // The inode number follows the 16 digits of the device.
    (id.get(16..) == here.last()?.get(16..)).then(|| [*first, *second, *id].map(str::to_owned))
}
