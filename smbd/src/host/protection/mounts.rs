//! `/proc/self/mountinfo` (proc(5)): finds the file system of a path, and its mount options.
//!
//! One line a mount, fields between single spaces, awkward bytes in octal. A line that cannot be
//! parsed is left out; if the table was truncated, a mount may not be found.

use std::path::{Path, PathBuf};

use super::read::{self, Root};
use crate::state::unclean;

/// Most mounts that are kept.
const MOUNTS_MAX: usize = 65_536;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    /// Major and minor number of the device; major 0 has no block device of that number.
    pub(super) device: (u32, u32),
    pub(super) point: PathBuf,
    pub(super) kind: String,
    pub(super) source: String,
    /// Options of the mount and of the file system.
    pub(super) options: Vec<String>,
}

/// Every mount, in the order in which they were made.
pub(super) fn read(root: &Root) -> Vec<Mount> {
    let text = read::table(&root.proc.join("self/mountinfo")).unwrap_or_default();
    // A text that was cut off ends without a line feed.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(parse).take(MOUNTS_MAX).collect()
}

/// The mount of this number, or else the one that the path is below.
pub(super) fn find<'a>(mounts: &'a [Mount], id: Option<u64>, path: &Path) -> Option<&'a Mount> {
    let by_id = id.and_then(|id| mounts.iter().find(|mount| mount.id == id));
    let below = || {
        mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            // The last of several mounts on one point hides the others.
            .max_by_key(|mount| mount.point.components().count())
    };
    by_id.or_else(below)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &str) -> Option<Mount> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ');
    let id = mount.next()?.parse().ok()?;
    let (major, minor) = mount.nth(1)?.split_once(':')?;
    let point = unescape(mount.nth(1)?);
    let per_mount = mount.next()?;
    let mut system = system.split(' ');
    let kind = system.next()?.to_owned();
    let source = unescape(system.next()?);
    let per_system = system.next().unwrap_or("");
    let options = per_mount.split(',').chain(per_system.split(','));
    Some(Mount {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        point: point.into(),
        kind,
        source,
        options: options.map(unescape).collect(),
    })
}

/// Replaces escapes such as `\040` by their characters.
fn unescape(text: &str) -> String {
    let path = unclean::unescape(text.as_bytes());
    path.to_string_lossy().into_owned()
}

impl Mount {
    /// Whether an option is set, as it is written.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }

    /// The value of `key=value`.
    pub(super) fn value_of(&self, key: &str) -> Option<&str> {
        self.options
            .iter()
            .find_map(|one| one.strip_prefix(key)?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = r"36 35 98:7 /a /m\040n rw,noatime master:1 shared:2 - ext4 /dev/x\134y rw,data=writeback";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.device), (36, (98, 7)));
        assert_eq!(mount.point, Path::new("/m n"));
        assert_eq!((&*mount.kind, &*mount.source), ("ext4", r"/dev/x\y"));
        assert!(mount.has("noatime") && mount.has("data=writeback") && !mount.has("data"));
        assert_eq!(mount.value_of("data"), Some("writeback"));
        for bad in [
            "",
            "36 35 98:7 /a /b rw",
            "x 35 98:7 /a /b rw - ext4 /dev/a rw",
            "36 35 98 /a /b rw - ext4 /dev/a rw",
            "36 35 98:7 /a - ext4 /dev/a rw",
            "36 35 98:7 /a /b rw - ext4",
            "36 35 99999999999:7 /a /b rw - ext4 /dev/a rw",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_last_and_longest_mount_above_a_path_counts() {
        let of = |id: u64, point: &str| Mount {
            id,
            device: (0, 0),
            point: point.into(),
            kind: String::new(),
            source: String::new(),
            options: Vec::new(),
        };
        let mounts = [of(1, "/"), of(2, "/srv"), of(3, "/srv/a"), of(4, "/srv")];
        let found = |id, path| find(&mounts, id, Path::new(path)).unwrap().id;
        assert_eq!(found(None, "/srv/a/b"), 3);
        assert_eq!(found(None, "/srv/ab"), 4);
        assert_eq!(found(None, "/srvx"), 1);
        assert_eq!(found(Some(2), "/srv/a"), 2);
        assert_eq!(found(Some(99), "/srv/a"), 3);
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r"a\040b\011\134"), "a b\t\\");
        assert_eq!(unescape(r"\9 \04"), r"\9 \04");
        assert_eq!(unescape(r"\"), r"\");
    }
}
