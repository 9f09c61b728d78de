//! The store of error latches in the state folder, opened before anything is served.
//!
//! It names every file system of the shares, including those mounted below them, so that a latch finds its inode
//! again after a reboot gave the device another number; other latches are found by path. A latch that cannot be
//! matched stays in the store: no client can reach such an inode through a share. Examining the file systems may
//! wait for a disk ([`super::sentinel::look`], [`locate`]); using the result does not ([`learned`]).
//!
//! Format and writing belong to `durability::LatchMap`.

use std::{
    io,
    path::{Component, Path},
    sync::Arc,
};

use durability::{KnownFs, LATCHES, LatchMap, LatchRecord};
use vfs::{Disk, Env, FileKey, linux::LinuxDisk};

use crate::{config, host_vfs::apart, state::open_store};

/// The way out of latches that no client can repair.
const CLEAR: &str = "holdfast policy clear-latch";
/// Most dormant latches that are named one by one at the start.
const NAMED_MAX: usize = 20;

/// Opens the store in `folder` for these shares and their file systems, and logs what was wrong with it.
///
/// # Errors
/// The error, with advice; the server must not start while latches could be forgotten.
pub(crate) fn open(
    folder: &Path,
    shares: &[config::ShareSettings],
    known: Vec<KnownFs>,
    env: Arc<dyn Env>,
) -> io::Result<Arc<LatchMap<LinuxDisk>>> {
    let refused = "it says which files lost data in a failed sync. Start the version that wrote it, or move it away: \
                   then those files answer as if nothing had happened";
    let opened = open_store(folder, refused, |disk| {
        apart(|| LatchMap::open(disk, env, known, &LATCHES))
    })?;
    for damage in &opened.damage {
        tracing::error!(
            offset = damage.offset,
            why = damage.why,
            "{}: the stored latches are damaged: a file whose sync failed may not be known any \
             more; the file is kept as latches.refused",
            folder.display()
        );
    }
    if opened.store.has_overflow() {
        tracing::error!(
            "files whose sync failed in an earlier run are not known by name: every flush fails \
             until that is accepted\n  = look at what was written last, then: {CLEAR}"
        );
    }
    wake(&opened.store, locate(&opened.store, shares));
    Ok(opened.store)
}

/// Notifies the store of file systems, and of the inodes that [`locate`] has found. Returns the latches that wake:
/// restore them before anybody can reach their inodes.
pub(crate) fn learned(
    store: &LatchMap<LinuxDisk>,
    known: Vec<KnownFs>,
    located: Vec<(LatchRecord, FileKey)>,
) -> Vec<LatchRecord> {
    let known = known.into_iter();
    let mut woken: Vec<_> = known.flat_map(|known| store.learn(known)).collect();
    woken.extend(wake(store, located));
    woken
}

/// Finds inodes whose file system has no known name by their path, which may wait for a disk.
pub(crate) fn locate(
    store: &LatchMap<LinuxDisk>,
    shares: &[config::ShareSettings],
) -> Vec<(LatchRecord, FileKey)> {
    let dormant = store.dormant().into_iter();
    let located = dormant.filter_map(|dormant| {
        let is_named = |share: &&config::ShareSettings| {
            let mut names = dormant.shares.iter();
            names.any(|name| config::is_same_share(name, &share.name))
        };
        // If none of those is here, the share may have another name now.
        let anywhere = !shares.iter().any(|share| is_named(&share));
        let mut shares = shares.iter().filter(|share| anywhere || is_named(share));
        let key = shares.find_map(|share| at_path(&share.path, &dormant))?;
        Some((dormant, key))
    });
    located.collect()
}

/// Wakes the dormant latches that were located, and names the rest.
fn wake(store: &LatchMap<LinuxDisk>, located: Vec<(LatchRecord, FileKey)>) -> Vec<LatchRecord> {
    let woken = located.into_iter();
    let woken = woken.filter_map(|(dormant, key)| store.found(&dormant, key));
    let woken = woken.collect();
    for dormant in store.dormant().iter().take(NAMED_MAX) {
        tracing::warn!(
            path = dormant.path,
            shares = dormant.shares.join(", "),
            error = %dormant.error,
            "a file whose sync failed is on a file system that no share is on now; its latch \
             waits for it"
        );
    }
    woken
}

/// The inode at the record's path below `root`, if it is the one.
fn at_path(root: &Path, record: &LatchRecord) -> Option<FileKey> {
    let path = Path::new(&record.path);
    let plain = path
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    let name = path.file_name().filter(|_| plain)?;
    let folder = root.join(path.parent()?);
    let disk = LinuxDisk::open(&folder).ok()?;
    let name = name.as_encoded_bytes();
    let key = apart(|| async { disk.stat_at(&disk.root(), name).await })
        .ok()?
        .key;
    let same = key.ino == record.key.ino && key.generation == record.key.generation;
    same.then_some(key)
}

#[cfg(test)]
mod tests {
    use durability::{LatchStore, UnprovenStream, segment_name, segment_number};
    use vfs::{Timestamp, VfsError};

    use super::*;
    use crate::{
        host::loop_mount::{KINDS, LoopMount},
        runtime::env::TokioEnv,
        state::sentinel,
    };

    fn open(
        state: &Path,
        shares: &[config::ShareSettings],
        env: Arc<dyn Env>,
    ) -> io::Result<Arc<LatchMap<LinuxDisk>>> {
        super::open(state, shares, sentinel::look(shares).known(), env)
    }

    fn share(path: &Path) -> config::ShareSettings {
        let text = format!("[[share]]\nname = \"data\"\npath = {path:?}\n");
        crate::config::parse(&text, Path::new("test.toml"))
            .unwrap()
            .shares
            .remove(0)
    }

    fn key(folder: &Path, name: &str) -> FileKey {
        let disk = LinuxDisk::open(folder).unwrap();
        let name = name.as_bytes();
        apart(|| async { disk.stat_at(&disk.root(), name).await })
            .unwrap()
            .key
    }

    fn record(key: FileKey) -> LatchRecord {
        LatchRecord {
            key,
            error: VfsError::Io,
            at: Timestamp::default(),
            sequence: 1,
            unproven: vec![UnprovenStream {
                stream: String::new(),
                ranges: vec![(0, 10)],
            }],
            metadata: false,
            size: false,
            entries: false,
            file: true,
            names: vec![],
            path: "d/f".into(),
            shares: vec!["data".into()],
        }
    }

    fn runtime() -> tokio::runtime::LocalRuntime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap()
    }

    /// Stores a record, and lets the store write the mark behind it, which distinguishes damage to the last record
    /// from a torn one.
    fn set(store: &LatchMap<LinuxDisk>, record: LatchRecord) {
        runtime()
            .block_on(async {
                store.set(record).await?;
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                Ok::<_, VfsError>(())
            })
            .unwrap();
    }

    /// A file system that comes back as another device, and one that cannot be named.
    #[test]
    fn a_latch_finds_its_inode_after_a_reboot() {
        for kind in KINDS {
            let Some(mount) = LoopMount::new(kind, 400) else {
                continue;
            };
            let state = tempfile::tempdir().unwrap();
            std::fs::create_dir(mount.path().join("d")).unwrap();
            std::fs::write(mount.path().join("d/f"), "x").unwrap();
            let shares = [share(mount.path())];
            let env: Arc<dyn Env> = Arc::new(TokioEnv::new());
            let folder = mount.path().join("d");
            let before = key(&folder, "f");
            assert_ne!(before.generation, 0, "{kind}");
            let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
            set(&store, record(before));
            // Two mounts more, so that the numbers differ.
            let other = LoopMount::new("ext4", 16);
            mount.remount();
            drop(other);
            let after = key(&folder, "f");
            assert_eq!(
                (after.ino, after.generation),
                (before.ino, before.generation),
                "{kind}: over a remount"
            );
            let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
            let restored = store.restore();
            assert_eq!(restored.len(), 1, "{kind}");
            assert_eq!(restored[0].key, after, "{kind}");

            // Without its share the latch is dormant; a reload wakes it.
            let store = open(state.path(), &[], Arc::clone(&env)).unwrap();
            assert_eq!((store.restore().len(), store.dormant().len()), (0, 1));
            let known = sentinel::look(&shares).known();
            let woken = learned(&store, known, locate(&store, &shares));
            assert_eq!(woken, [record(after)]);

            // A device nobody knew: found by its path, unless another file is there.
            set(&store, record(FileKey { fs: 3, ..after }));
            let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
            assert_eq!(store.restore(), [record(after)], "{kind}");
        }
    }

    #[test]
    fn a_latch_finds_its_inode_in_a_share_that_has_another_name() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("d")).unwrap();
        std::fs::write(top.path().join("d/f"), "x").unwrap();
        let env: Arc<dyn Env> = Arc::new(TokioEnv::new());
        let there = key(&top.path().join("d"), "f");
        for name in ["DATA", "other"] {
            let state = tempfile::tempdir().unwrap();
            let mut shares = [share(top.path())];
            shares[0].name = name.to_owned();
            let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
            set(&store, record(FileKey { fs: 3, ..there }));
            let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
            assert_eq!(store.restore(), [record(there)], "{name}");
        }
    }

    #[test]
    fn what_another_file_took_the_place_of_sleeps() {
        let (state, top) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(top.path().join("d")).unwrap();
        std::fs::write(top.path().join("d/f"), "x").unwrap();
        let shares = [share(top.path())];
        let env: Arc<dyn Env> = Arc::new(TokioEnv::new());
        let before = key(&top.path().join("d"), "f");
        let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
        set(&store, record(FileKey { fs: 3, ..before }));
        std::fs::write(top.path().join("d/g"), "y").unwrap();
        std::fs::rename(top.path().join("d/g"), top.path().join("d/f")).unwrap();
        let store = open(state.path(), &shares, Arc::clone(&env)).unwrap();
        assert_eq!((store.restore().len(), store.dormant().len()), (0, 1));
        // No path leads out of the share.
        let mut out = record(before);
        out.path = "../f".into();
        assert_eq!(at_path(&top.path().join("d"), &out), None);
    }

    /// The newest segment of the store.
    fn newest(state: &Path) -> std::path::PathBuf {
        let entries = std::fs::read_dir(state).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let number = |name: std::ffi::OsString| segment_number(name.as_encoded_bytes(), "latches");
        let newest = names.filter_map(number).max().unwrap();
        state.join(segment_name(newest, "latches"))
    }

    #[test]
    fn a_damaged_entry_fails_every_flush_until_cleared() {
        let state = tempfile::tempdir().unwrap();
        let env: Arc<dyn Env> = Arc::new(TokioEnv::new());
        let store = open(state.path(), &[], Arc::clone(&env)).unwrap();
        set(
            &store,
            record(FileKey {
                ino: 5,
                ..FileKey::default()
            }),
        );
        let file = newest(state.path());
        let mut bytes = std::fs::read(&file).unwrap();
        let at = bytes.windows(3).position(|three| three == b"d/f").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let store = open(state.path(), &[], Arc::clone(&env)).unwrap();
        assert!(store.has_overflow());
        runtime()
            .block_on(async { store.set_overflow(false).await })
            .unwrap();
        assert!(!open(state.path(), &[], env).unwrap().has_overflow());
    }

    #[test]
    fn a_file_of_somebody_else_refuses_the_start_with_a_way_out() {
        let first = segment_name(1, "latches");
        for (name, text, says) in [
            ("latches", "rubbish", "latches: not a file of this server"),
            ("latches", "HFLATCH9", "version"),
            (first.as_str(), "rubbish", "not a file of this server"),
            (first.as_str(), "HFM9", "version"),
        ] {
            let state = tempfile::tempdir().unwrap();
            std::fs::write(state.path().join(name), text).unwrap();
            let error = open(state.path(), &[], Arc::new(TokioEnv::new())).map(drop);
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains(says) && error.contains("move it away"),
                "{error}"
            );
        }
    }
}
