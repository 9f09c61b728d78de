//! Security descriptors, stored as Samba's `acl_xattr` does.
//!
//! The caller decides by the descriptor in force whether `who` may set one; here the service stores it, or the user
//! where the service may not. A stored descriptor whose hash differs from that of the present POSIX permissions is
//! stale and counts as absent. Versions 1 to 3 have no hash that could be checked without Samba's own mapping, so they
//! count as valid.

use super::{
    AclNamespace, PosixNode, PosixVfs,
    attributes::service_or,
    errno::{ABSENT, unless},
    samba_xattr::{NTACL_SECURITY, NTACL_USER, dos_attrib::to_nttime, ntacl::NtAcl, sys_acl},
};
use crate::{
    Descriptors, Identity, Timestamp, VfsError, VfsResult,
    disk::{Disk, StatFs, XFS, XattrSet},
};

impl<D: Disk> Descriptors for PosixVfs<D> {
    async fn keeps_descriptors(&self, node: &PosixNode<D>) -> bool {
        let asked = self.disk.get_xattr(node.fd(), self.ntacl()).await;
        !asked.is_err_and(|errno| errno.unsupported())
    }

    async fn security(
        &self,
        node: &PosixNode<D>,
        changed: Option<&Timestamp>,
    ) -> VfsResult<Option<Vec<u8>>> {
        let (key, now) = (node.0.key, self.options.clock.now());
        let changed = match changed {
            Some(changed) => *changed,
            None => self.disk.stat(node.fd()).await?.changed,
        };
        if self.attribs.find(key, changed, now).no_descriptor {
            return Ok(None);
        }
        let Some(stored) = self.xattr(node.fd(), self.ntacl()).await? else {
            self.learn(key, changed, now, |known| known.no_descriptor = true);
            return Ok(None);
        };
        let acl = NtAcl::parse(&stored).inspect_err(|_| {
            tracing::debug!(bytes = stored.len(), "unreadable {}", self.ntacl());
        })?;
        if let Some(hash) = acl.sys_acl_hash
            && hash != self.permissions_hash(node.fd()).await?
        {
            return Ok(None);
        }
        Ok(Some(acl.descriptor))
    }

    async fn set_security(&self, who: &Identity, node: &PosixNode<D>, sd: &[u8]) -> VfsResult<()> {
        self.writable()?;
        self.store_descriptor(who, node.fd(), sd.to_vec()).await
    }
}

impl<D: Disk> PosixVfs<D> {
    fn ntacl(&self) -> &'static str {
        match self.options.acl {
            AclNamespace::Security => NTACL_SECURITY,
            AclNamespace::User => NTACL_USER,
        }
    }

    /// Stores a descriptor, with the hash of the present POSIX permissions.
    pub(super) async fn store_descriptor(
        &self,
        who: &Identity,
        fd: &D::Fd,
        descriptor: Vec<u8>,
    ) -> VfsResult<()> {
        let acl = NtAcl {
            descriptor,
            sys_acl_hash: Some(self.permissions_hash(fd).await?),
        };
        let now = to_nttime(self.options.clock.now()).unwrap_or(0);
        let blob = acl.build(now)?;
        // This is queried first, so that nothing can fail after the descriptor was stored.
        let key = self.disk.stat(fd).await?.key;
        let stored = self
            .set_xattr(who, fd, self.ntacl(), &blob, XattrSet::Either)
            .await;
        // The cached attributes are dropped regardless of the times on this file system.
        self.attribs.forget(key);
        stored
    }

    async fn permissions_hash(&self, fd: &D::Fd) -> VfsResult<[u8; 32]> {
        let stat = self.disk.stat(fd).await?;
        let access = self.xattr(fd, sys_acl::ACCESS).await?;
        let default = if stat.mode & libc::S_IFMT == libc::S_IFDIR {
            self.xattr(fd, sys_acl::DEFAULT).await?
        } else {
            None
        };
        sys_acl::hash(&stat, access.as_deref(), default.as_deref())
    }

    /// An attribute, `None` if absent or if the file system has no such attributes.
    pub(super) async fn xattr(&self, fd: &D::Fd, name: &str) -> VfsResult<Option<Vec<u8>>> {
        unless(self.disk.get_xattr(fd, name).await, &ABSENT)
    }

    /// Stores an attribute by [`service_or`]. `TooLarge` if the file system has room, but none in the attributes of the
    /// inode.
    pub(super) async fn set_xattr(
        &self,
        who: &Identity,
        fd: &D::Fd,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> VfsResult<()> {
        let set = async |by: &Identity| self.disk.set_xattr(by, fd, name, value, how).await;
        let Err(errno) = service_or(who, set).await else {
            return Ok(());
        };
        if errno.is(&[libc::ENOSPC])
            && let Ok(fs) = self.disk.stat_fs(fd).await
            && is_inode_full(&fs)
        {
            return Err(VfsError::TooLarge);
        }
        Err(errno.into())
    }
}

/// Whether ENOSPC means that the attributes of an inode have no room, as on ext4 and btrfs, and not that the file
/// system has none. On XFS they have room for every attribute, and a change is refused while some free blocks are left.
fn is_inode_full(fs: &StatFs) -> bool {
    fs.kind != XFS && fs.available > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BTRFS;

    #[test]
    fn the_file_system_is_full_where_no_inode_can_be() {
        let full = |kind, available| {
            is_inode_full(&StatFs {
                kind,
                available,
                ..StatFs::default()
            })
        };
        assert!(full(BTRFS, 20) && !full(BTRFS, 0));
        assert!(!full(XFS, 20) && !full(XFS, 0));
    }
}
