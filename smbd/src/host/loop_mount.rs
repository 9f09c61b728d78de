//! For tests as root: a separate file system on a loop device, and the number of its flushes.

#![allow(dead_code)] // Not each of those who include it needs all.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// The file systems that shares are usually on.
pub(crate) const KINDS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// A mounted image; unmounted and gone with the value.
pub(crate) struct LoopMount {
    point: PathBuf,
    device: String,
    /// A tmpfs that holds the image, for [`LoopMount::starve`].
    below: Option<PathBuf>,
    image: PathBuf,
    _folder: tempfile::TempDir,
}

/// Prints that a test cannot run here; with `HOLDFAST_REQUIRE_ROOT=1` (`tests/run`) it fails.
#[track_caller]
pub(crate) fn missing(what: &str) {
    assert!(
        std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_none_or(|value| value != "1"),
        "HOLDFAST_REQUIRE_ROOT=1, but there is no {what}"
    );
    eprintln!("missing: {what}");
}

fn run(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

impl LoopMount {
    /// An empty file system of that kind; `None` if it cannot be made (not root, no loop device), which [`missing`]
    /// reports.
    pub(crate) fn new(kind: &str, mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        Self::make(kind, mib, folder, None).or_else(|| Self::none(kind))
    }

    /// As [`LoopMount::new`], with the image on a tmpfs that can run full.
    pub(crate) fn on_tmpfs(kind: &str, mib: u64) -> Option<Self> {
        Self::made_on_tmpfs(kind, mib).or_else(|| Self::none(kind))
    }

    fn none(kind: &str) -> Option<Self> {
        missing(&format!("root, loop device or mkfs.{kind}"));
        None
    }

    fn made_on_tmpfs(kind: &str, mib: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let folder = tempfile::tempdir().ok()?;
        let below = folder.path().join("below");
        fs::create_dir(&below).ok()?;
        let text = below.to_str()?;
        run("mount", &["-t", "tmpfs", "-o", "size=900m", "none", text]).then_some(())?;
        Self::make(kind, mib, folder, Some(below))
    }

    fn make(
        kind: &str,
        mib: u64,
        folder: tempfile::TempDir,
        below: Option<PathBuf>,
    ) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let image = below.as_deref().unwrap_or(folder.path()).join("image");
        let point = folder.path().join("mounted");
        let mut made = Self {
            point,
            device: String::new(),
            below,
            image,
            _folder: folder,
        };
        File::create(&made.image).ok()?.set_len(mib << 20).ok()?;
        fs::create_dir(&made.point).ok()?;
        let (image, point) = (made.image.to_str()?, made.point.to_str()?);
        run(&format!("mkfs.{kind}"), &["-q", image]).then_some(())?;
        run("mount", &["-o", "loop", image, point]).then_some(())?;
        let table = fs::read_to_string("/proc/self/mounts").ok()?;
        let line = table.lines().find(|line| line.contains(point))?;
        made.device = line.split(' ').next()?.strip_prefix("/dev/")?.to_owned();
        Some(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// Flushes of the device so far: the 16th number of `Documentation/block/stat.rst`.
    pub(crate) fn flushes(&self) -> u64 {
        let text = fs::read_to_string(format!("/sys/block/{}/stat", self.device)).unwrap();
        let mut numbers = text.split_whitespace();
        numbers.nth(15).unwrap().parse().unwrap()
    }

    /// Unmounts and mounts again.
    pub(crate) fn remount(&self) {
        self.unmount();
        self.mount();
    }

    pub(crate) fn unmount(&self) {
        assert!(run("umount", &[self.point.to_str().unwrap()]));
    }

    /// Mounts again what was unmounted.
    pub(crate) fn mount(&self) {
        let (image, point) = (self.image.to_str().unwrap(), self.point.to_str().unwrap());
        assert!(run("mount", &["-o", "loop", image, point]));
    }

    pub(crate) fn make_read_only(&self) {
        let point = self.point.to_str().unwrap();
        assert!(run("mount", &["-o", "remount,ro", point]));
    }

    /// Has ext4 behave as if it had met an error.
    pub(crate) fn abort(&self) {
        let point = self.point.to_str().unwrap();
        assert!(run("mount", &["-o", "remount,errors=remount-ro", point]));
        assert!(run("mount", &["-o", "remount,abort", point]));
    }

    /// From now on about so many KiB more can be written to the image: then write-back fails.
    pub(crate) fn starve(&self, kib: u64) {
        use std::os::unix::fs::MetadataExt;
        let below = self.below.as_ref().unwrap();
        let used = fs::metadata(&self.image).unwrap().blocks() / 2;
        let size = format!("remount,size={}k", used + kib);
        assert!(run("mount", &["-o", &size, below.to_str().unwrap()]));
    }
}

impl LoopMount {
    /// There is room again.
    pub(crate) fn feed(&self) {
        let below = self.below.as_ref().unwrap().to_str().unwrap();
        assert!(run("mount", &["-o", "remount,size=900m", below]));
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        for point in std::iter::once(&self.point).chain(&self.below) {
            let Some(text) = point.to_str() else { continue };
            // The loop device is released a little later.
            for _ in 0..50 {
                let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
                if !mounts
                    .lines()
                    .any(|line| line.split(' ').nth(1) == Some(text))
                {
                    break;
                }
                if !run("umount", &[text]) {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        }
    }
}
