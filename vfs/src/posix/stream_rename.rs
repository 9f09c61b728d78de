//! The rename of a stream. In the depot that is a rename of its file. In attributes, another one gets the stream's
//! bytes, and the old one is removed.
//!
//! If a step fails, the other attribute becomes again what it was, unless the old one is gone by then: a stream is
//! never left in neither.

use std::sync::atomic::Ordering::SeqCst;

use super::{
    PosixNode, PosixVfs, SERVICE, StreamStore, node::Stream, samba_xattr::stream_attribute,
    streams::StreamPlace,
};
use crate::{
    VfsError, VfsResult,
    disk::{Disk, XattrSet},
};

impl<D: Disk> PosixVfs<D> {
    /// Gives a stream the name `to`, and replaces one of exactly that name. The caller holds the inode's lock.
    pub(super) async fn move_stream(
        &self,
        node: &PosixNode<D>,
        to: &str,
    ) -> VfsResult<PosixNode<D>> {
        let stream = Self::base_of(node)?;
        let depot = match (self.place(node).await?, self.options.streams) {
            (StreamPlace::Xattr(value), StreamStore::Xattr) => {
                self.rename_attribute(node, (&stream.name, to), &value)
                    .await?;
                None
            }
            (place, _) => {
                let fd = match place {
                    StreamPlace::Depot(fd) => fd,
                    StreamPlace::Xattr(value) => self.move_to_depot(node, &value).await?,
                };
                // An attribute of that name would count before the depot, so it is moved there first. The rename then
                // replaces it in one step, and a power cut leaves one of the two streams under the name.
                if let Some(value) = self.in_attribute(node, to).await? {
                    let old = node.unopened_stream(to.to_owned());
                    self.move_to_depot(&old, &value).await?;
                    self.sync_base(&old, false).await?;
                }
                self.depot_rename(node, &stream.name, to).await?;
                Some(fd)
            }
        };
        let renamed = Stream::new(to.to_owned(), stream.io, depot);
        let keeps = stream.keeps_write_time.load(SeqCst);
        renamed.keeps_write_time.store(keeps, SeqCst);
        Ok(node.with_stream(renamed))
    }

    /// Renames a stream in an attribute; `data` are its bytes.
    async fn rename_attribute(
        &self,
        node: &PosixNode<D>,
        (from, to): (&str, &str),
        data: &[u8],
    ) -> VfsResult<()> {
        let attribute = stream_attribute(to).ok_or(VfsError::NameTooLong)?;
        let replaced = self.xattr(node.fd(), &attribute).await?;
        let how = XattrSet::Either;
        let steps = async {
            // The new attribute is made stable first, so that a power cut leaves both names, never none.
            self.set_stream_attribute(node, &attribute, data, how)
                .await?;
            self.sync_base(node, false).await?;
            self.drop_stream(node, from).await
        };
        let Err(error) = steps.await else {
            // A file of the new name in the depot has not counted since the attribute was set.
            let gone = self.depot_remove(node, to).await.map(drop);
            gone.unwrap_or_else(|left| {
                tracing::debug!(%left, "a replaced stream stays in the depot");
            });
            return Ok(());
        };
        // The old attribute may be gone although its removal has failed.
        if matches!(self.attribute_there(node, from).await, Ok(Some(_))) {
            let back = async {
                match &replaced {
                    Some(value) => {
                        let fd = node.fd();
                        self.set_xattr(&SERVICE, fd, &attribute, value, how).await?;
                    }
                    None => {
                        self.drop_attribute(node, &attribute).await?;
                    }
                }
                // The new bytes may be stable, and a FLUSH may have promised those of the replaced stream.
                self.sync_base(node, false).await
            };
            back.await.unwrap_or_else(|left| {
                tracing::warn!(%left, "a stream whose rename failed may have its new name, too");
            });
        }
        Err(error)
    }
}
