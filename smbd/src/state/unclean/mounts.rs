//! The kernel's mount table: lists mount points without accessing any file system; only [`file_systems`] opens them.

use std::{
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use vfs::linux::SuperBlock;

/// The kernel's mount table. A mount that it does not show is neither synced after an unclean end nor watched, so an
/// error is never taken for an empty table.
const TABLE: &str = "/proc/self/mountinfo";
/// Most lines of the kernel's mount table that are read.
const MOUNTS_MAX: usize = 100_000;
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
    let table = read(TABLE)?;
    let mut mounts = mounts(&table, KEEP_NOTHING);
    mounts.retain(|mount| mount.starts_with(&full) && *mount != full);
    Ok(mounts)
}

/// Every mount point.
pub(crate) fn mount_points() -> io::Result<Vec<PathBuf>> {
    Ok(mounts(&read(TABLE)?, ""))
}

/// A table of the kernel. Its error is of no kind that a wrong configuration gives.
fn read(table: &str) -> io::Result<Vec<u8>> {
    fs::read(table).map_err(|error| io::Error::other(format!("{table}: {error}")))
}

/// The mount point among these on which a path lies, as it is written. A link may lead elsewhere.
pub(crate) fn mount_point<'a>(path: &Path, points: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let above = points.iter().filter(|point| path.starts_with(point));
    above.max_by_key(|point| point.as_os_str().len())
}

/// Mount points in the kernel's table (`proc(5)`), except those of file systems of the types `without`.
fn mounts(table: &[u8], without: &str) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n').take(MOUNTS_MAX);
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let point = fields.nth(4)?;
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            let kind = std::str::from_utf8(kind).ok()?;
            let is_left_out = without.split_ascii_whitespace().any(|one| one == kind);
            (!is_left_out).then(|| unescape(point))
        })
        .collect()
}

/// A field of the kernel's mount tables as it was: `\040` is a blank, and so on.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = match code {
            Some(_) => after.get(3..).unwrap_or_default(),
            None => after,
        };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
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
        assert_eq!(mounts(table, KEEP_NOTHING), keep.map(PathBuf::from));
        assert_eq!(mounts(table, "").len(), keep.len() + 2);
        assert_eq!(unescape(b"x\\"), PathBuf::from("x\\"));
        assert_eq!(unescape(b"\\999\\134"), PathBuf::from("\\999\\"));
    }

    #[test]
    fn a_table_that_cannot_be_read_is_no_empty_one() {
        let error = read("/proc/self/gone").unwrap_err();
        assert!(!crate::config::is_mistake(&error), "{error}");
        assert!(!mount_points().unwrap().is_empty());
    }

    #[test]
    fn the_deepest_mount_point_holds_a_path() {
        let points = ["/", "/mnt", "/mnt/a"].map(PathBuf::from);
        let on = |path: &str| mount_point(Path::new(path), &points).unwrap().to_str();
        assert_eq!(on("/mnt/a/b"), Some("/mnt/a"));
        assert_eq!(on("/mnt/ab"), Some("/mnt"));
        assert_eq!(on("/srv"), Some("/"));
    }
}
