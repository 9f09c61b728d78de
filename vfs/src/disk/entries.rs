//! Queries the names of a directory one by one, for each [`Disk`] that has no call of its own for all of them.
//!
//! Only the other operations of the disk are used. Links are not followed, and the service asks.

use super::{Disk, DiskResult, EntryAttrs, Errno, OpenHow, Wanted};
use crate::Identity;

/// Does [`Disk::entries_attrs`] for one name by the disk's other operations.
pub(crate) async fn entry_attrs<D: Disk + ?Sized>(
    disk: &D,
    dir: &D::Fd,
    name: &[u8],
    wanted: &Wanted,
) -> DiskResult<EntryAttrs> {
    let how = OpenHow::PATH_ONLY;
    match disk.open_at(&Identity::Service, dir, name, how).await {
        Ok(fd) => {
            let stat = disk.stat(&fd).await?;
            let value = match (wanted.known)(&stat) {
                true => None,
                false => Some(disk.get_xattr(&fd, wanted.attribute).await),
            };
            Ok((stat, value))
        }
        Err(Errno(libc::ELOOP)) => {
            let stat = disk.stat_at(dir, name).await?;
            Ok((stat, Some(Err(Errno(libc::ENODATA)))))
        }
        Err(errno) => Err(errno),
    }
}
