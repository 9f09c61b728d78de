//! The owners of the folders with streams. This server makes them as the service, and Samba as its users.

use super::FOLDER_MODE;
use crate::{
    VfsResult,
    disk::Disk,
    posix::{PosixNode, PosixVfs, SERVICE, samba_xattr::sys_acl},
};

impl<D: Disk> PosixVfs<D> {
    /// Whether a file may have been put into the folder of a file's streams by a user who gains something by that:
    /// Samba makes these folders as its users, each of whom can move another user's file into his own, and
    /// administrators let groups write all that is in a share. The service that opens a stream may open that file.
    pub(super) async fn may_be_planted(
        &self,
        node: &PosixNode<D>,
        (folder, file): (&D::Fd, &D::Fd),
    ) -> VfsResult<bool> {
        let (above, own) = (self.disk.stat(folder).await?, self.disk.stat(file).await?);
        // Neither Samba nor this server makes anything else for a stream.
        if own.mode & libc::S_IFMT != libc::S_IFREG {
            return Ok(true);
        }
        let owners = [0, self.disk.service_uid(), own.uid];
        let by_owner_alone = above.mode & 0o022 == 0 && owners.contains(&above.uid);
        // Where everybody may use the file, as on a file system without owners, nobody gains anything.
        if by_owner_alone || own.mode & 0o006 == 0o006 {
            return Ok(false);
        }
        // Nor does anybody where all who may use the file that carries the stream may use this one as well.
        let base = self.disk.stat(node.fd()).await?;
        let permits_less = base.mode & !own.mode & 0o666 != 0;
        if permits_less || (own.uid, own.gid) != (base.uid, base.gid) {
            return Ok(true);
        }
        let acl = self.xattr(node.fd(), sys_acl::ACCESS).await?;
        Ok(self.xattr(file, sys_acl::ACCESS).await? != acl)
    }

    /// Gives a folder that Samba made as one of its users, for another inode, to the service, so that no user puts
    /// anything into it.
    pub(super) async fn take_over(&self, folder: &D::Fd) -> VfsResult<()> {
        let (stat, service) = (self.disk.stat(folder).await?, self.disk.service_uid());
        if stat.mode & 0o022 == 0 && [0, service].contains(&stat.uid) {
            return Ok(());
        }
        let given = async {
            let owner = Some(service);
            self.disk.set_owner(&SERVICE, folder, owner, None).await?;
            self.disk.set_mode(&SERVICE, folder, FOLDER_MODE).await
        };
        // A service that is not root cannot; a stream that it would not open is then not made.
        given.await.unwrap_or_else(|errno| {
            tracing::debug!(errno = errno.0, "a folder of .streams stays a user's");
        });
        Ok(())
    }
}
