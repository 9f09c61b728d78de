//! The file systems of a share: that of its folder, and those mounted below.
//!
//! A mount that the kernel's table does not show is neither synced after an unclean end nor watched, so an error is
//! never taken for an empty table.

use std::{
    io,
    path::{Path, PathBuf},
};

use vfs::linux::SuperBlock;

use crate::host::mounts::{self, Mount};

/// Types of file systems that keep nothing beyond the life of the kernel, or are no store of files at all. Every other
/// type counts as one that keeps things, because no list has the names of all network, cluster and stacked file
/// systems, and to sync one that keeps nothing does no harm.
const KEEP_NOTHING: &str = "\
    autofs bdev binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devpts devtmpfs \
    efivarfs functionfs fusectl hugetlbfs mqueue nfsd nsfs pipefs proc pstore ramfs resctrl \
    rootfs rpc_pipefs securityfs selinuxfs smackfs sockfs sysfs tmpfs tracefs xenfs";

/// The file systems of a share that can be opened, each with a path at which it is found. May wait for their disks.
pub(crate) fn file_systems(share: &str, path: &Path) -> Vec<(SuperBlock, String)> {
    let below = mounts_below(path).unwrap_or_else(|error| {
        tracing::warn!(
            %error,
            share,
            "file systems mounted below are not known: they are not watched for failed write-back, and a latch of a \
             file there may not be found"
        );
        Vec::new()
    });
    let folders = std::iter::once(path.to_owned()).chain(below);
    let opened = folders.filter_map(|folder| match SuperBlock::open(&folder) {
        Ok(block) => Some((block, folder.to_string_lossy().into_owned())),
        // Opening the share itself reports the error.
        Err(errno) => {
            tracing::debug!(errno = errno.0, "{}", folder.display());
            None
        }
    });
    opened.collect()
}

/// The places below a folder at which file systems with persistent contents are mounted.
///
/// # Errors
/// The folder is not there, or the kernel's table cannot be read.
pub(super) fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let full = folder.canonicalize()?;
    let mounts = mounts::read()?.into_iter().filter(keeps_things);
    let mut below: Vec<PathBuf> = mounts.map(|mount| mount.point).collect();
    below.retain(|point| point.starts_with(&full) && *point != full);
    Ok(below)
}

/// Whether the file system of a mount has persistent contents.
fn keeps_things(mount: &Mount) -> bool {
    let mut others = KEEP_NOTHING.split_ascii_whitespace();
    !others.any(|kind| kind == mount.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_keep_things_are_distinguished_from_those_that_do_not() {
        let table = b"36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - ext4 /dev/sda1 rw\n\
            37 35 0:5 / /proc rw - proc proc rw\n\
            38 35 0:9 / /srv/n rw shared:3 master:2 - nfs4 host:/x rw\n\
            39 35 0:8 / /tmp/\\13 rw - tmpfs none rw\nrubbish\n\
            40 35 0:7 / /srv/f rw - fuse daemon rw\n\
            41 35 0:6 / /srv/l rw - lustre host:/l rw\n\
            42 35 0:4 / /srv/e rw - ecryptfs /secret rw\n\
            43 35 0:3 / /srv/u rw - ubifs ubi0:data rw\n";
        let keep = ["/mnt/a b", "/srv/n", "/srv/f", "/srv/l", "/srv/e", "/srv/u"];
        let mounts = mounts::parse(table);
        assert_eq!(mounts.len(), keep.len() + 2);
        let kept = mounts.into_iter().filter(keeps_things);
        let kept: Vec<PathBuf> = kept.map(|mount| mount.point).collect();
        assert_eq!(kept, keep.map(PathBuf::from));
    }
}
