//! Clients' extended attributes: `user.` names, except those of Samba and of this server.
//!
//! Names of clients compare without case; an attribute that exists under the name in another case
//! is the one that is changed.

use std::collections::HashMap;

use super::{
    PosixNode, PosixVfs,
    samba_xattr::{EA_PREFIX, XATTR_NAME_MAX, is_hidden},
};
use crate::{
    ClientAttributes, Identity, VfsError, VfsResult,
    disk::{Disk, XattrSet},
};

/// Longest name of a client's attribute ([MS-FSCC] 2.4.16: its length is one byte).
const EA_NAME_MAX: usize = 254;
/// Longest value ([MS-FSCC] 2.4.16: its length is two bytes).
const EA_VALUE_MAX: usize = 65_535;
/// Attributes that are stored or read before other tasks have their turn.
pub(super) const PORTION: usize = 16;

impl<D: Disk> ClientAttributes for PosixVfs<D> {
    async fn eas(&self, node: &PosixNode<D>) -> VfsResult<Vec<(String, Vec<u8>)>> {
        let mut eas = Vec::new();
        for (at, attribute) in (1..).zip(self.attribute_names(node.fd()).await?) {
            let Some(name) = attribute.strip_prefix(EA_PREFIX) else {
                continue;
            };
            if at % PORTION == 0 {
                self.options.pause.pause().await;
            }
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

    async fn set_eas(&self, node: &PosixNode<D>, eas: &[(String, Vec<u8>)]) -> VfsResult<()> {
        self.writable()?;
        let mut last = HashMap::with_capacity(eas.len());
        for (at, (ea, value)) in eas.iter().enumerate() {
            check_ea(ea, value)?;
            last.insert(crate::fold(ea), at);
        }
        let mut stored = HashMap::new();
        for attribute in self.attribute_names(node.fd()).await? {
            if let Some(name) = attribute.strip_prefix(EA_PREFIX) {
                stored.entry(crate::fold(name)).or_insert(attribute);
            }
        }
        let mut changed = 0;
        for (at, (ea, value)) in eas.iter().enumerate() {
            let folded = crate::fold(ea);
            let existing = stored.get(&folded);
            if last.get(&folded) != Some(&at) || value.is_empty() && existing.is_none() {
                continue;
            }
            changed += 1;
            if changed % PORTION == 0 {
                self.options.pause.pause().await;
            }
            let (service, fd) = (Identity::Service, node.fd());
            if value.is_empty() {
                let attribute = existing.map_or("", String::as_str);
                match self.disk.remove_xattr(&service, fd, attribute).await {
                    // Another process has removed it since the listing.
                    Err(errno) if errno.is(&[libc::ENODATA]) => {}
                    other => other?,
                }
                continue;
            }
            let asked = format!("{EA_PREFIX}{ea}");
            let attribute = existing.unwrap_or(&asked);
            let how = XattrSet::Either;
            let set = self.disk.set_xattr(&service, fd, attribute, value, how);
            set.await?;
        }
        Ok(())
    }
}

impl<D: Disk> PosixVfs<D> {
    /// All attribute names, none if the file system does not support attributes.
    pub(super) async fn attribute_names(&self, fd: &D::Fd) -> VfsResult<Vec<String>> {
        match self.disk.list_xattr(fd).await {
            Ok(names) => Ok(names),
            Err(errno) if errno.unsupported() => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Checks that an attribute is a client's, and that its name and value can be stored.
fn check_ea(ea: &str, value: &[u8]) -> VfsResult<()> {
    let attribute = format!("{EA_PREFIX}{ea}");
    if ea.is_empty() || ea.contains('\0') || is_hidden(&attribute) {
        return Err(VfsError::InvalidName);
    }
    if ea.len() > EA_NAME_MAX || attribute.len() > XATTR_NAME_MAX {
        return Err(VfsError::NameTooLong);
    }
    if value.len() > EA_VALUE_MAX {
        return Err(VfsError::TooLarge);
    }
    Ok(())
}
