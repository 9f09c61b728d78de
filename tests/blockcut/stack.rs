//! The device under test: a file system on a loop device on a file that the storage daemon
//! exports through FUSE and whose every write and flush it logs.
//!
//! Dropping a [`Stack`] or a [`Checked`] unmounts, detaches and ends what it began. After a
//! SIGKILL the namespaces of `tests/blockcut/run` do so.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::block_log::BlockLog;
use crate::image::sparse;

/// Bytes of the device; XFS wants 300 MiB.
pub(crate) const DEVICE_BYTES: u64 = 320 << 20;
/// Room for the log, sparse.
const LOG_BYTES: u64 = 8 << 30;
const DAEMON_MAX: Duration = Duration::from_secs(20);

/// A file system to be tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(crate) const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fs| fs.name() == text)
    }

    /// As a large device would get it: ext4 takes 1 KiB blocks for a small one.
    fn mkfs(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => (
                "mkfs.ext4",
                &[
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-E",
                    "nodiscard,lazy_itable_init=0",
                ],
            ),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        }
    }

    /// The options that mounting a copy needs.
    fn mount_options(self) -> &'static str {
        match self {
            Self::Xfs => "nouuid",
            _ => "defaults",
        }
    }

    /// Where the one structure lies that is longer than a sector and must be written whole or not,
    /// in bytes: the superblock, which has one checksum, and of which mount reads no copy.
    pub(crate) fn untorn(self) -> Range<u64> {
        match self {
            Self::Ext4 => 1024..2048,
            Self::Xfs => 0..0,
            Self::Btrfs => 64 << 10..68 << 10,
        }
    }
}

/// Runs a program; what it said is the error.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!(
        "{program} {}: {} {}",
        args.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A loop device; detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(file: &Path) -> Result<Self, String> {
        run("losetup", &["--show", "-f", text(file)]).map(Self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", &["-d", &self.0]) {
            eprintln!("{error}");
        }
    }
}

/// A mounted file system; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(fs: FileSystem, device: &str, at: &Path) -> Result<Self, String> {
        let options = fs.mount_options();
        run("mount", &["-t", fs.name(), "-o", options, device, text(at)])?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A process that held a file open may have been killed only just now.
        let until = Instant::now() + Duration::from_secs(5);
        while let Err(error) = run("umount", &[text(&self.0)]) {
            if Instant::now() > until {
                eprintln!("{error}");
                let _ = run("umount", &["-l", text(&self.0)]);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Daemon {
    child: Child,
    export: PathBuf,
}

impl Daemon {
    fn start(dir: &Path) -> Result<Self, String> {
        let (disk, log, export) = (dir.join("disk"), dir.join("log"), dir.join("export"));
        sparse(&disk, DEVICE_BYTES);
        sparse(&log, LOG_BYTES);
        sparse(&export, 0);
        let file = |name, path: &Path, more: &str| {
            format!(
                "driver=file,node-name={name},filename={}{more}",
                path.display()
            )
        };
        let logged = "driver=blklogwrites,node-name=logged,file=device,log=log,log-sector-size=512,log-super-update-interval=1";
        let fuse = format!(
            "type=fuse,id=fuse,node-name=logged,mountpoint={},writable=on",
            export.display()
        );
        let child = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &file("disk", &disk, ",discard=unmap")])
            .args([
                "--blockdev",
                "driver=raw,node-name=device,file=disk,discard=unmap",
            ])
            .args(["--blockdev", &file("log", &log, "")])
            .args(["--blockdev", logged])
            .args(["--export", &fuse])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("qemu-storage-daemon: {error}"))?;
        let mut daemon = Self { child, export };
        let until = Instant::now() + DAEMON_MAX;
        while std::fs::metadata(&daemon.export).map_or(0, |meta| meta.len()) != DEVICE_BYTES {
            if Instant::now() > until || daemon.child.try_wait().is_ok_and(|end| end.is_some()) {
                return Err("qemu-storage-daemon exports nothing".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = run("kill", &["-TERM", &pid]);
        let until = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().is_ok_and(|end| end.is_none()) {
            if Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // After SIGKILL the export is still mounted.
        let _ = Command::new("umount")
            .arg(&self.export)
            .stderr(Stdio::null())
            .status();
    }
}

/// The running device with its file system.
pub(crate) struct Stack {
    // Dropped in this order.
    mount: Option<Mount>,
    device: Option<Loop>,
    daemon: Option<Daemon>,
    fs: FileSystem,
    dir: PathBuf,
}

impl Stack {
    /// Makes a device in `dir`, a new file system on it, and mounts it.
    pub(crate) fn up(fs: FileSystem, dir: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(dir.join("live")).map_err(|error| error.to_string())?;
        let daemon = Daemon::start(dir)?;
        let device = Loop::attach(&daemon.export)?;
        let (program, options) = fs.mkfs();
        let mut args = options.to_vec();
        args.push(&device.0);
        run(program, &args)?;
        let mount = Mount::new(fs, &device.0, &dir.join("live"))?;
        Ok(Self {
            mount: Some(mount),
            device: Some(device),
            daemon: Some(daemon),
            fs,
            dir: dir.to_owned(),
        })
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("live")
    }

    pub(crate) fn log(&self) -> Result<BlockLog, String> {
        BlockLog::open(&self.dir.join("log"))
    }

    /// Takes everything down; the log's file stays.
    pub(crate) fn down(&mut self) {
        self.mount = None;
        if let Some(device) = self.device.take() {
            // The kernel remembers btrfs devices by their file system's id.
            if self.fs == FileSystem::Btrfs {
                let _ = run("btrfs", &["device", "scan", "--forget", &device.0]);
            }
        }
        self.daemon = None;
        let _ = std::fs::remove_file(self.dir.join("disk"));
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.down();
    }
}

/// A device for images, to which one after the other is written.
pub(crate) struct Bench {
    device: Loop,
    image: File,
    fs: FileSystem,
    at: PathBuf,
}

impl Bench {
    pub(crate) fn new(fs: FileSystem, dir: &Path) -> Result<Self, String> {
        let path = dir.join("image");
        let image = sparse(&path, DEVICE_BYTES);
        let at = dir.join("check");
        std::fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        Ok(Self {
            device: Loop::attach(&path)?,
            image,
            fs,
            at,
        })
    }

    /// The image's file; write to it only while it is not mounted.
    pub(crate) fn image(&self) -> &File {
        &self.image
    }

    /// Mounts the image, which recovers it.
    pub(crate) fn mount(&self) -> Result<Checked, String> {
        Mount::new(self.fs, &self.device.0, &self.at).map(Checked)
    }
}

/// A mounted image.
pub(crate) struct Checked(Mount);

impl Checked {
    pub(crate) fn root(&self) -> &Path {
        &self.0.0
    }
}
