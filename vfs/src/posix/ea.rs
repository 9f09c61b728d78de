//! Clients' extended attributes: `user.` names, except those of Samba and of this server.
//!
//! Names of clients compare without case; an attribute that exists under the name in another case
//! is the one that is changed.

use super::{
    PosixNode, PosixVfs,
    samba_xattr::{EA_PREFIX, XATTR_NAME_MAX, is_hidden},
};
use crate::{
    Identity, VfsError, VfsResult,
    disk::{Disk, XattrSet},
};

/// Longest name of a client's attribute ([MS-FSCC] 2.4.16: its length is one byte).
const EA_NAME_MAX: usize = 254;
/// Longest value ([MS-FSCC] 2.4.16: its length is two bytes).
const EA_VALUE_MAX: usize = 65_535;

impl<D: Disk> PosixVfs<D> {
    pub(super) async fn do_eas(&self, node: &PosixNode<D>) -> VfsResult<Vec<(String, Vec<u8>)>> {
        let mut eas = Vec::new();
        for attribute in self.attribute_names(node.fd()).await? {
            let Some(name) = attribute.strip_prefix(EA_PREFIX) else {
                continue;
            };
            if is_hidden(&attribute) || name.is_empty() {
                continue;
            }
            // It may have been removed since the listing.
            if let Some(value) = self.xattr(node.fd(), &attribute).await? {
                eas.push((name.to_owned(), value));
            }
        }
        eas.sort();
        Ok(eas)
    }

    /// All attribute names, none if the file system does not support attributes.
    pub(super) async fn attribute_names(&self, fd: &D::Fd) -> VfsResult<Vec<String>> {
        match self.disk.list_xattr(fd).await {
            Ok(names) => Ok(names),
            Err(errno) if errno.unsupported() => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) async fn do_set_ea(
        &self,
        node: &PosixNode<D>,
        ea: &str,
        value: &[u8],
    ) -> VfsResult<()> {
        self.writable()?;
        let asked = format!("{EA_PREFIX}{ea}");
        if ea.is_empty() || ea.contains('\0') || is_hidden(&asked) {
            return Err(VfsError::InvalidName);
        }
        if ea.len() > EA_NAME_MAX || asked.len() > XATTR_NAME_MAX {
            return Err(VfsError::NameTooLong);
        }
        if value.len() > EA_VALUE_MAX {
            return Err(VfsError::TooLarge);
        }
        let folded = crate::fold(&asked);
        let existing = self
            .attribute_names(node.fd())
            .await?
            .into_iter()
            .find(|attribute| crate::fold(attribute) == folded);
        let service = Identity::Service;
        match (value.is_empty(), existing) {
            (true, None) => Ok(()),
            (true, Some(attribute)) => Ok(self
                .disk
                .remove_xattr(&service, node.fd(), &attribute)
                .await?),
            (false, existing) => {
                let attribute = existing.unwrap_or(asked);
                let how = XattrSet::Either;
                Ok(self
                    .disk
                    .set_xattr(&service, node.fd(), &attribute, value, how)
                    .await?)
            }
        }
    }
}
