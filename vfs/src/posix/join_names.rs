//! A rename to another name of the same inode, which becomes one name.
//!
//! A disk that ignores case (FAT, ext4 with casefold) or has short names finds one entry by several names. The rename
//! changes that entry then: to remove the old name would remove the file.

use super::{PosixNode, PosixVfs, SERVICE, name_cache::Change, node::kind_of};
use crate::{
    Identity, Kind, VfsResult,
    disk::{Disk, Stat},
};

/// The most entries of a directory that are searched for two names.
const ENTRIES_MAX: usize = 1 << 20;

impl<D: Disk> PosixVfs<D> {
    /// Removes `from`, whose inode is found as `is`, too, and has the state `stat`. The other name gets the case of
    /// `wanted`. The holder of both names' locks calls this.
    pub(super) async fn join_names(
        &self,
        who: &Identity,
        (parent, from): (&PosixNode<D>, &[u8]),
        (to_parent, is, wanted): (&PosixNode<D>, &[u8], &[u8]),
        stat: &Stat,
    ) -> VfsResult<()> {
        let same_directory = parent.0.key == to_parent.0.key;
        if same_directory && !self.are_two(parent, [from, is], stat).await? {
            return self
                .move_name(who, parent, from, to_parent, (wanted, None), false)
                .await;
        }
        // rename(2) would do nothing and leave both.
        let unlink = self.disk.unlink(who, parent.fd(), from, false);
        self.changing(parent, &[Change::Remove(from)], unlink)
            .await?;
        self.fix_case(who, to_parent, is, wanted).await;
        Ok(())
    }

    /// Whether two names of one inode are two entries of the directory.
    async fn are_two(&self, dir: &PosixNode<D>, names: [&[u8]; 2], stat: &Stat) -> VfsResult<bool> {
        if stat.links < 2 || kind_of(stat.mode) == Kind::Directory {
            return Ok(false);
        }
        let listing = self.listing(&SERVICE, dir).await?;
        let entries = self.disk.entries(&listing, ENTRIES_MAX).await?;
        let has = |name: &[u8]| entries.iter().any(|entry| *entry.name == *name);
        Ok(names.into_iter().all(has))
    }
}
