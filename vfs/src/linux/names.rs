//! Renames, with the commits that btrfs needs.

use super::{
    calls,
    disk::LinuxDisk,
    fd::LinuxFd,
    own_changes::InodeState,
    pool::{self, ThreadGroup},
    removed,
};
use crate::{
    Identity,
    disk::{DiskResult, check_name},
};

impl LinuxDisk {
    pub(super) async fn move_name(
        &self,
        who: &Identity,
        (from, from_name): (&LinuxFd, &[u8]),
        (to, to_name): (&LinuxFd, &[u8]),
        replace: bool,
    ) -> DiskResult<()> {
        check_name(from_name)?;
        check_name(to_name)?;
        let mut moved = None;
        if self.own.is_observed() {
            let look = |dir: &LinuxFd, name: &[u8]| Ok(InodeState::at(dir, name));
            let looked = self.run_at(&Identity::Service, from, from_name, look).await;
            // An inode that cannot be queried cannot be renamed either.
            moved = looked.ok().flatten().map(|found| found.inode);
        }
        let _own = (self.own).rename((from, from_name), (to, to_name), moved);
        let noted = from.class().names_come_back;
        let (above, to_name) = (to.clone(), to_name.to_vec());
        let mut target = None;
        if noted && replace {
            let (to, to_name) = (to.clone(), to_name.clone());
            let commit = move || calls::repeat(|| removed::replacing(&to, &to_name));
            target = pool::run(from.place(ThreadGroup::Sync), Identity::Service, commit).await?;
        }
        self.run_at(who, from, from_name, move |from, from_name| {
            let moved = calls::rename((from, from_name), (&above, &to_name), replace);
            if noted {
                removed::left(from);
                removed::left(&above);
            }
            // In the same job: nothing that may fail for want of room comes after the rename.
            if moved.is_ok()
                && let Some(target) = target
            {
                target.replaced();
            }
            moved
        })
        .await
    }
}
