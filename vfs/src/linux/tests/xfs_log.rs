//! The log of XFS after an `fsync`, read from its device.

use std::{
    fs::{File, Permissions},
    hint::spin_loop,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use super::*;

const ME: &Identity = &Identity::Service;
const TRIES: usize = 500;
/// Files of a try.
const FILES: usize = 16;
/// Too long for an inode.
const VALUE: usize = 1500;
/// A sector of the log, in bytes.
const SECTOR: u64 = 512;

pub(super) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let out = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    out.status.success().then_some(text)
}

/// A new XFS on a loop device; unmounted when dropped.
struct Xfs {
    root: PathBuf,
    image: File,
    /// The number of its device.
    device: String,
    /// First byte and length of its log.
    log: (u64, u64),
}

impl Xfs {
    fn new(dir: &Path) -> Option<Self> {
        let (path, root) = (dir.join("image"), dir.join("root"));
        let image = File::create_new(&path).unwrap();
        image.set_len(320 << 20).unwrap();
        std::fs::create_dir(&root).unwrap();
        run("mkfs.xfs", &["-q", "-K", path.to_str()?])?;
        run(
            "mount",
            &["-t", "xfs", "-o", "loop", path.to_str()?, root.to_str()?],
        )?;
        let image = File::open(&path).unwrap();
        let mut block = [0; 256];
        image.read_exact_at(&mut block, 0).unwrap();
        let word = |at: usize| u32::from_be_bytes(block[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_be_bytes(block[at..at + 8].try_into().unwrap());
        // `struct xfs_dsb`: sb_blocksize, sb_logstart, sb_agblocks, sb_logblocks, sb_agblklog.
        let (size, start, group, blocks) = (word(4), long(48), word(84), word(96));
        let bits = block[124];
        let first = (start >> bits) * u64::from(group) + (start & ((1 << bits) - 1));
        let size = u64::from(size);
        let device = run("findmnt", &["-n", "-o", "SOURCE", root.to_str()?])?;
        Some(Self {
            device: device.trim_start_matches("/dev/").to_owned(),
            log: (first * size, u64::from(blocks) * size),
            root,
            image,
        })
    }

    /// Where the log goes on, in sectors from its start.
    fn head(&self) -> u64 {
        let path = format!("/sys/fs/xfs/{}/log/log_head_lsn", self.device);
        let head = std::fs::read_to_string(path).unwrap();
        head.trim().split_once(':').unwrap().1.parse().unwrap()
    }

    /// Whether the log has these bytes on the device, from sector `head` on.
    fn has_logged(&self, head: u64, bytes: &[u8]) -> bool {
        let (first, len) = self.log;
        let (end, mut at) = (self.head(), head);
        let mut sector = [0; SECTOR as usize];
        while at != end {
            self.image
                .read_exact_at(&mut sector, first + at * SECTOR)
                .unwrap();
            if sector.windows(bytes.len()).any(|window| window == bytes) {
                return true;
            }
            at = (at + 1) % (len / SECTOR);
        }
        false
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        run("umount", &["-l", self.root.to_str().unwrap_or_default()]);
    }
}

/// An overlayfs on a file system; unmounted when dropped.
pub(super) struct Overlay(pub(super) PathBuf);

impl Overlay {
    pub(super) fn new(root: &Path) -> Option<Self> {
        let folder = |name: &str| {
            let folder = root.join(name);
            std::fs::create_dir(&folder).unwrap();
            folder
        };
        let (lower, upper) = (folder("lower"), folder("upper"));
        let (work, merged) = (folder("work"), folder("merged"));
        let [lower, upper, work] = [&lower, &upper, &work].map(|folder| folder.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let (options, at) = (options.as_str(), merged.to_str()?);
        run("mount", &["-t", "overlay", "-o", options, "none", at])?;
        Some(Self(merged))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().unwrap_or_default()]);
    }
}

fn new_xfs() -> Option<(tempfile::TempDir, Xfs)> {
    // In memory, where there is room for it.
    for folder in ["/dev/shm".into(), std::env::temp_dir()] {
        let Ok(dir) = tempfile::tempdir_in(folder) else {
            continue;
        };
        if let Some(xfs) = Xfs::new(dir.path()) {
            return Some((dir, xfs));
        }
    }
    crate::testing::missing("root, mkfs.xfs or a loop device");
    None
}

#[test]
fn an_attribute_that_was_set_beside_another_sync_is_in_the_log_after_its_own() {
    if let Some((_dir, xfs)) = new_xfs() {
        set_attributes_beside_another_sync(&xfs, &xfs.root);
    }
}

#[test]
fn nor_is_one_missing_that_was_set_through_an_overlay() {
    let Some((_dir, xfs)) = new_xfs() else { return };
    match Overlay::new(&xfs.root) {
        Some(overlay) => set_attributes_beside_another_sync(&xfs, &overlay.0),
        None => crate::testing::missing("overlayfs on XFS"),
    }
}

#[test]
fn an_access_time_that_is_set_beside_attributes_stays() {
    let Some((_dir, xfs)) = new_xfs() else { return };
    let disk = LinuxDisk::open(&xfs.root).unwrap();
    let file = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    let (done, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut lost = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                let set = disk.set_xattr(ME, &file, "user.s", b"value", XattrSet::Either);
                // The other thread waits for this count, whatever comes of it.
                let _ = block_on(set);
                done.fetch_add(1, SeqCst);
            }
        });
        for secs in 1..=1_000 {
            let wanted = Timestamp { secs, nanos: 0 };
            let set = block_on(disk.set_times(ME, &file, Some(wanted), None));
            // The one that was under way, and the one after it, have ended then.
            let until = done.load(SeqCst) + 2;
            while done.load(SeqCst) < until {
                spin_loop();
            }
            let found = block_on(disk.stat(&file)).map(|stat| stat.accessed);
            lost += usize::from(set.is_err() || found != Ok(wanted));
        }
        ended.store(true, SeqCst);
    });
    assert_eq!(lost, 0);
}

/// While attributes of one file after the other are set, another thread syncs a file of its own. The attribute that was
/// being set then is in the log after its file was synced.
fn set_attributes_beside_another_sync(xfs: &Xfs, top: &Path) {
    let disk = LinuxDisk::open(top).unwrap();
    let root = disk.root();
    let other = File::create(top.join("other")).unwrap();
    let (at, synced) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let turn = Barrier::new(2);
    let (mut tried, mut lost) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..TRIES {
                let mode = Permissions::from_mode(0o600 + 8 * (number as u32 % 8));
                turn.wait();
                other.set_permissions(mode).unwrap();
                while at.load(SeqCst) < 2 {
                    spin_loop();
                }
                // Some moment of what the next files take.
                let until = Instant::now() + Duration::from_nanos(7919 * number as u64 % 200_000);
                while Instant::now() < until {
                    spin_loop();
                }
                synced.store(at.load(SeqCst), SeqCst);
                other.sync_all().unwrap();
                turn.wait();
            }
        });
        for number in 0..TRIES {
            let name = |file: usize| format!("{number}-{file}").into_bytes();
            let create = |file| block_on(conformance::new_file(&disk, &root, &name(file)));
            let files: Vec<_> = (0..FILES).map(create).collect();
            for file in &files {
                let set = disk.set_xattr(ME, file, "user.DOSATTRIB", b"0x20", XattrSet::Either);
                block_on(set).unwrap();
            }
            block_on(disk.sync_fs(&files[0])).unwrap();
            let (head, mark) = (xfs.head(), |file| format!("<{number:05}.{file:02}>"));
            at.store(0, SeqCst);
            turn.wait();
            for (place, file) in files.iter().enumerate() {
                at.store(place, SeqCst);
                let value = mark(place).repeat(VALUE / mark(place).len());
                let set = disk.set_xattr(ME, file, "user.s", value.as_bytes(), XattrSet::Either);
                block_on(set).unwrap();
            }
            turn.wait();
            let place = synced.load(SeqCst);
            block_on(disk.fsync(&files[place])).unwrap();
            tried += usize::from(place + 1 < FILES);
            lost += usize::from(!xfs.has_logged(head, mark(place).as_bytes()));
            for file in 0..FILES {
                block_on(disk.unlink(ME, &root, &name(file), false)).unwrap();
            }
        }
    });
    assert!(tried > TRIES / 20, "{tried}");
    assert_eq!(lost, 0, "of {tried}");
}
