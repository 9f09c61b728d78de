//! Reads the kernel's own file systems without trusting them.
//!
//! Their contents may be anything (a container's `/sys`, a test's folder, a future kernel): reads and listings are
//! bounded, only regular files are read and without waiting, and no link is followed out of the tree. A value that
//! cannot be read is `None`; nothing here is an error.

use std::{
    fs::OpenOptions,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Longest value that is read, in bytes: sysfs gives a page.
const VALUE_BYTES_MAX: u64 = 4 << 10;
/// Longest table that is read (`mountinfo`, `cpuinfo`), in bytes.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// Most entries of one folder that are read.
const ENTRIES_MAX: usize = 4_096;
/// Longest name that is shown, in characters.
const SHOWN_MAX: usize = 64;

/// Where the kernel's file systems are; another place in tests.
#[derive(Debug, Clone)]
pub struct Root {
    /// `/sys`
    pub sys: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
}

impl Default for Root {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            proc: "/proc".into(),
        }
    }
}

impl Root {
    /// The kernel's path of a folder, if it lies within `sys`.
    pub(super) fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let top = self.sys.canonicalize().ok()?;
        let found = path.canonicalize().ok()?;
        (found.starts_with(&top) && found.is_dir()).then_some(found)
    }
}

/// A short value without the white space around it.
pub(super) fn value(path: &Path) -> Option<String> {
    bounded(path, VALUE_BYTES_MAX).map(|text| text.trim().to_owned())
}

/// A long text. If it is cut off, its end is in the middle of a line.
pub(super) fn table(path: &Path) -> Option<String> {
    bounded(path, TABLE_BYTES_MAX)
}

fn bounded(path: &Path, most: u64) -> Option<String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The names in a folder, sorted; `None` if there is no such folder.
pub(super) fn names(path: &Path) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(path).ok()?;
    let mut names: Vec<String> = entries
        .take(ENTRIES_MAX)
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Some(names)
}

/// The last part of a path, for people.
pub(super) fn shown_name(path: &Path) -> String {
    clean(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// A word of the kernel's that can stand in a log line: no spaces, no control characters.
pub(super) fn clean(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_graphic() && c != '"' && c != '\\' {
            c
        } else {
            '_'
        }
    };
    text.trim().chars().take(SHOWN_MAX).map(plain).collect()
}
