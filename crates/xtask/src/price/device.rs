//! A file system of its own on a loop device, and what the device was asked to do.
//!
//! The image lies in the scratch folder; a cache flush of the loop device is an fsync of the image,
//! so it costs what the disk below makes it cost. Everything made here is unmade on drop.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::slow::SlowDisk;
use crate::Failure;

const IMAGE_BYTES: u64 = 1 << 30;
const SECTOR: u64 = 512;

/// Which file system, with its defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or(format!("{name}: ext4, xfs or btrfs"))
    }
}

/// The counters of the device.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Cache flushes.
    pub(crate) flushes: u64,
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
}

/// A mounted loop device.
pub(crate) struct Device {
    pub(crate) kind: Kind,
    /// `/dev/loopN`
    device: Option<String>,
    mounted: bool,
    pub(crate) mount: PathBuf,
    /// The device below the loop device, if its flushes are slowed down.
    slow: Option<SlowDisk>,
}

fn run(program: &str, args: &[&str]) -> Result<String, Failure> {
    let done = Command::new(program)
        .args(args)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{program} {}: {said}", args.join(" ")).into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

pub(super) fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or("a path that is not UTF-8".into())
}

impl Device {
    /// Makes image, device, file system and mount. With `flush`, each cache flush of the device takes
    /// at least so long.
    pub(crate) fn make(
        kind: Kind,
        scratch: &Path,
        flush: Option<Duration>,
    ) -> Result<Self, Failure> {
        let image = scratch.join(format!("{}.img", kind.name()));
        fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        let mount = scratch.join(format!("mount-{}", kind.name()));
        fs::create_dir_all(&mount)?;
        let mut this = Self {
            kind,
            device: None,
            mounted: false,
            mount,
            slow: flush.map(|time| SlowDisk::over(&image, time)).transpose()?,
        };
        let below = this.slow.as_ref().map_or(&image, |slow| &slow.export);
        let device = run("losetup", &["--find", "--show", text(below)?])?;
        this.device = Some(device.clone());
        let quiet = if kind == Kind::Ext4 { "-Fq" } else { "-fq" };
        run(&format!("mkfs.{}", kind.name()), &[quiet, &device])?;
        run("mount", &[&device, text(&this.mount)?])?;
        this.mounted = true;
        fs::set_permissions(
            &this.mount,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        Ok(this)
    }

    /// Everything written so far is on the device, and its cache is flushed.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        rustix::fs::syncfs(fs::File::open(&self.mount)?)?;
        Ok(())
    }

    /// Linux, Documentation/block/stat.rst: 5 is write I/Os, 7 write sectors, 16 flush I/Os; "the block layer
    /// combines flush requests", so these are the flushes that the device got.
    pub(crate) fn counts(&self) -> Result<Counts, Failure> {
        let device = self.device.as_deref().ok_or("no device")?;
        let name = device.trim_start_matches("/dev/");
        let line = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        counts(&line).ok_or_else(|| format!("{device}: no flush count in its stat").into())
    }

    /// Unmounts, and takes the device away.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.unmake()
    }

    fn unmake(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.mounted) {
            run("umount", &[text(&self.mount)?])?;
        }
        if let Some(device) = self.device.take() {
            run("losetup", &["--detach", &device])?;
        }
        self.slow = None;
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(failure) = self.unmake() {
            eprintln!("left behind: {failure}");
        }
    }
}

fn counts(line: &str) -> Option<Counts> {
    let fields: Vec<u64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let field = |number: usize| fields.get(number - 1).copied();
    Some(Counts {
        writes: field(5)?,
        bytes: field(7)? * SECTOR,
        flushes: field(16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernels_line() {
        let line = " 1219 1 40105 154 522 61 34884 337 0 372 738 0 0 0 0 284 247\n";
        let counts = counts(line).unwrap();
        assert_eq!((counts.writes, counts.flushes), (522, 284));
        assert_eq!(counts.bytes, 34884 * 512);
        assert!(super::counts("1 2 3").is_none());
    }
}
