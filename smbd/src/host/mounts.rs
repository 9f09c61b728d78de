//! The kernel's mount table, `/proc/self/mountinfo` (proc(5)), which is read without accessing any file system.
//!
//! One line a mount, fields between single spaces, awkward bytes in octal. A line that cannot be parsed is left out.

use std::{
    ffi::OsString,
    fs, io,
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, StatxFlags, statx};

const TABLE: &str = "/proc/self/mountinfo";
/// Most mounts that are kept.
const MOUNTS_MAX: usize = 100_000;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// Major and minor number of the device; major 0 has no block device of that number.
    pub(crate) device: (u32, u32),
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: String,
    /// Options of the mount and of the file system.
    pub(crate) options: Vec<String>,
}

/// Every mount, in the order in which they were made.
///
/// # Errors
/// The table cannot be read, which is no empty one. The error is of no kind that a wrong configuration gives.
pub(crate) fn read() -> io::Result<Vec<Mount>> {
    fs::read(TABLE)
        .map(|table| parse(&table))
        .map_err(|error| io::Error::other(format!("{TABLE}: {error}")))
}

/// Every mount point.
///
/// # Errors
/// As [`read`].
pub(crate) fn mount_points() -> io::Result<Vec<PathBuf>> {
    Ok(read()?.into_iter().map(|mount| mount.point).collect())
}

/// The mount point among these on which a path lies, as it is written. A link may lead elsewhere.
pub(crate) fn mount_point<'a>(path: &Path, points: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let above = points.iter().filter(|point| path.starts_with(point));
    above.max_by_key(|point| point.as_os_str().len())
}

/// The mount of this number, or else the one that the path is below.
pub(crate) fn find<'a>(mounts: &'a [Mount], id: Option<u64>, path: &Path) -> Option<&'a Mount> {
    let by_id = id.and_then(|id| mounts.iter().find(|mount| mount.id == id));
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // The last of several mounts on one point hides the others.
    by_id.or_else(|| above.max_by_key(|mount| mount.point.as_os_str().len()))
}

/// The number of the mount on which a path below a folder is, or the folder itself if the path is empty; `None` before
/// Linux 5.8.
pub(crate) fn id_of(folder: impl AsFd, path: &Path) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(folder, path, flags, StatxFlags::MNT_ID).ok()?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_known.then_some(found.stx_mnt_id)
}

/// The mounts of a table. One that was cut off ends in the middle of a line, which is left out.
pub(crate) fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split_inclusive(|byte| *byte == b'\n');
    let whole = lines.filter_map(|line| parse_line(line.strip_suffix(b"\n")?));
    whole.take(MOUNTS_MAX).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| unescape(field).to_string_lossy().into_owned();
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let (major, minor) = device.split_once(':')?;
    let point = unescape(fields.nth(1)?);
    let per_mount = fields.next()?;
    // Optional fields follow, up to a hyphen.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (text(fields.next()?), text(fields.next()?));
    let options = [per_mount, fields.next().unwrap_or_default()];
    let options = options
        .into_iter()
        .flat_map(|all| all.split(|byte| *byte == b','));
    Some(Mount {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        point,
        kind,
        source,
        options: options.map(text).collect(),
    })
}

/// A field as it was: `\040` is a blank, and so on.
fn unescape(field: &[u8]) -> PathBuf {
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
    PathBuf::from(OsString::from_vec(out))
}

impl Mount {
    /// Whether an option is set, as it is written.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }

    /// The value of `key=value`.
    pub(crate) fn value_of(&self, key: &str) -> Option<&str> {
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
        let mount = parse_line(line.as_bytes()).unwrap();
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
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad}");
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
    fn a_line_that_was_cut_off_is_left_out() {
        let line = "36 35 98:7 /a /b rw - ext4 /dev/a rw,data=ordered";
        assert_eq!(
            parse(format!("{line}\nrubbish\n{line}").as_bytes()).len(),
            1
        );
    }

    #[test]
    fn the_deepest_mount_point_holds_a_path() {
        let points = ["/", "/mnt", "/mnt/a"].map(PathBuf::from);
        let on = |path: &str| mount_point(Path::new(path), &points).unwrap().to_str();
        assert_eq!(on("/mnt/a/b"), Some("/mnt/a"));
        assert_eq!(on("/mnt/ab"), Some("/mnt"));
        assert_eq!(on("/srv"), Some("/"));
    }

    #[test]
    fn escapes() {
        let of = |field: &str| unescape(field.as_bytes());
        assert_eq!(of(r"a\040b\011\134"), Path::new("a b\t\\"));
        for same in [r"\9 \04", r"\", r"x\", r"\999"] {
            assert_eq!(of(same), Path::new(same));
        }
    }
}
