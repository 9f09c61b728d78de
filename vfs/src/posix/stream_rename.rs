//! The rename of a stream that is in an attribute: another attribute gets its bytes, and the old one is removed.
//!
//! If a step fails, the other attribute becomes again what it was, unless the old one is gone by then: a stream is
//! never left in neither.

use super::{PosixNode, PosixVfs, samba_xattr::stream_attribute};
use crate::{
    VfsError, VfsResult,
    disk::{Disk, XattrSet},
};

impl<D: Disk> PosixVfs<D> {
    /// Gives the stream `from`, whose bytes are `data`, the name `to`, and replaces a stream of that name. The caller
    /// holds the inode's lock.
    pub(super) async fn rename_attribute(
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
            let back = match &replaced {
                Some(value) => self.set_xattr(node.fd(), &attribute, value, how).await,
                None => self.drop_attribute(node, &attribute).await.map(drop),
            };
            back.unwrap_or_else(|left| {
                tracing::warn!(%left, "a stream whose rename failed has its new name, too");
            });
        }
        Err(error)
    }
}
