//! Compares promised files with the files that exist now.
//!
//! A file is identified by inode number and birth time, so a file renamed since is found (by walking the share
//! once), and a file that took its place is not mistaken for it. Links are not followed.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Component, Path, PathBuf},
    time::UNIX_EPOCH,
};

use vfs::FileKey;

use super::{
    report::{FileNow, FileReport},
    runs::LastFlush,
};

/// Most entries of a share that are walked to find renamed files.
const WALK_MAX: usize = 2_000_000;

/// Answers a line for each file, and whether the share could be looked at whole.
pub(super) fn check(root: &Path, files: &[&LastFlush]) -> (Vec<FileReport>, bool) {
    let mut missing = Missing::new();
    let mut found: Vec<Option<Metadata>> = Vec::new();
    for file in files.iter() {
        let key = file.record.key;
        let here = at_path(root, &file.record.path).filter(|meta| is(meta, key));
        if here.is_none() {
            missing.entry(key.ino).or_default().push(key);
        }
        found.push(here);
    }
    let (elsewhere, whole) = if missing.is_empty() {
        (BTreeMap::new(), true)
    } else {
        walk(root, &missing)
    };
    let lines = files.iter().zip(found).map(|(file, here)| {
        let (now, meta, path) = match (here, elsewhere.get(&file.record.key)) {
            (Some(meta), _) => (FileNow::Present, Some(meta), None),
            (None, Some((path, meta))) => {
                (FileNow::Renamed, Some(meta.clone()), Some(path.as_path()))
            }
            // The share could not be walked to its end.
            _ if !whole => (FileNow::NotFound, None, None),
            _ => (FileNow::Gone, None, None),
        };
        line(file, now, meta, path)
    });
    (lines.collect(), whole)
}

fn at_path(root: &Path, path: &str) -> Option<Metadata> {
    let path = Path::new(path);
    let plain = path
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    let full = if path.as_os_str().is_empty() {
        root.to_owned()
    } else {
        root.join(path)
    };
    plain.then(|| fs::symlink_metadata(full).ok()).flatten()
}

/// Whether it is the inode. Generations are birth times, or 0 where those prove nothing.
fn is(meta: &Metadata, key: FileKey) -> bool {
    let born = || {
        let since = meta.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    };
    meta.ino() == key.ino && (key.generation == 0 || born() == Some(key.generation))
}

/// The inodes to look for, by their numbers: file systems mounted below a share may use the same ones.
type Missing = BTreeMap<u64, Vec<FileKey>>;

type Found = BTreeMap<FileKey, (PathBuf, Metadata)>;

fn walk(root: &Path, missing: &Missing) -> (Found, bool) {
    let mut found = BTreeMap::new();
    let mut whole = true;
    let mut left = WALK_MAX;
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            whole = false;
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                whole = false;
                break;
            };
            left = left.saturating_sub(1);
            if left == 0 {
                return (found, false);
            }
            for key in missing.get(&entry.ino()).into_iter().flatten() {
                // A device may have another number since a restart: one of the same number only takes precedence.
                if let Ok(meta) = entry.metadata()
                    && is(&meta, *key)
                    && (meta.dev() == key.fs || !found.contains_key(key))
                {
                    let path = entry.path();
                    let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    found.insert(*key, (path, meta));
                }
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) => {}
                Err(_) => whole = false,
            }
        }
    }
    (found, whole)
}

/// Only the unnamed stream's size is looked at: streams are kept in attributes or elsewhere.
fn line(
    file: &LastFlush,
    found: FileNow,
    meta: Option<Metadata>,
    path_now: Option<&Path>,
) -> FileReport {
    let record = &file.record;
    let sized = record.stream.is_empty() && !record.directory;
    let size_now = meta.filter(|_| sized).map(|meta| meta.len());
    let smaller = size_now.is_some_and(|now| now < record.size);
    let now = if smaller { FileNow::Smaller } else { found };
    FileReport {
        path: record.path.clone(),
        stream: record.stream.clone(),
        inode: record.key.ino,
        device: super::device(record.key),
        flushed_s: record.at.secs,
        flushed_ms: super::runs::millis(record.at),
        policy: record.policy.to_string(),
        before_the_disk: file.promised,
        size: record.size,
        size_now,
        path_now: path_now.map(|path| path.to_string_lossy().into_owned()),
        now,
        suspect: !matches!(now, FileNow::Present | FileNow::Renamed),
    }
}
