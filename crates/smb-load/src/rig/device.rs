//! A file system of its own on a loop device, and what the device was asked to do.
//!
//! The image lies in the scratch folder; a cache flush of the loop device is an fsync of the image,
//! so it costs what the disk below makes it cost. Everything made here is unmade on drop.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use super::{
    Failure, left_behind,
    slow::{SlowDisk, Speed},
};

/// Bytes of an image; only what is written takes room.
const IMAGE_BYTES: u64 = 16 << 30;
const SECTOR: u64 = 512;

/// Which file system, with its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    #[default]
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Cache flushes.
    pub flushes: u64,
    pub writes: u64,
    pub bytes: u64,
}

/// The traits of a device besides its file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setting<'a> {
    /// It is as slow as this.
    pub speed: Option<Speed>,
    /// Mount options; the defaults if empty.
    pub options: &'a str,
}

/// A mounted loop device.
pub struct Device {
    /// `/dev/loopN`
    device: Option<String>,
    mounted: bool,
    pub mount: PathBuf,
    /// The device below the loop device, if its flushes are slowed down.
    slow: Option<SlowDisk>,
}

/// Runs a program; its output.
pub fn run(program: &str, args: &[&str]) -> Result<String, Failure> {
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
    /// Makes image, device, file system and mount.
    pub fn make(kind: Kind, scratch: &Path, setting: Setting<'_>) -> Result<Self, Failure> {
        let image = scratch.join(format!("{}.img", kind.name()));
        fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        let mount = scratch.join(format!("mount-{}", kind.name()));
        fs::create_dir_all(&mount)?;
        let mut this = Self {
            device: None,
            mounted: false,
            mount,
            slow: setting
                .speed
                .map(|speed| SlowDisk::over(&image, speed))
                .transpose()?,
        };
        let below = this.slow.as_ref().map_or(&image, |slow| &slow.export);
        let device = run("losetup", &["--find", "--show", text(below)?])?;
        this.device = Some(device.clone());
        let quiet = if kind == Kind::Ext4 { "-Fq" } else { "-fq" };
        run(&format!("mkfs.{}", kind.name()), &[quiet, &device])?;
        // ext4 would fill its tables of inodes in the background, among the writes that are counted.
        let options = match (kind, setting.options) {
            (Kind::Ext4, "") => "noinit_itable".to_owned(),
            (Kind::Ext4, options) => format!("{options},noinit_itable"),
            (_, "") => "defaults".to_owned(),
            (_, options) => options.to_owned(),
        };
        run("mount", &["-o", &options, &device, text(&this.mount)?])?;
        this.mounted = true;
        fs::set_permissions(
            &this.mount,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        Ok(this)
    }

    /// Everything written so far is on the device, and its cache is flushed.
    pub fn sync(&self) -> Result<(), Failure> {
        rustix::fs::syncfs(fs::File::open(&self.mount)?)?;
        Ok(())
    }

    /// Linux, Documentation/block/stat.rst: 5 is write I/Os, 7 write sectors, 16 flush I/Os; "the block layer
    /// combines flush requests", so these are the flushes that the device got.
    pub fn counts(&self) -> Result<Counts, Failure> {
        let device = self.device.as_deref().ok_or("no device")?;
        let name = device.trim_start_matches("/dev/");
        let line = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        counts(&line).ok_or_else(|| format!("{device}: no flush count in its stat").into())
    }

    /// Unmounts, and takes the device away.
    pub fn end(mut self) -> Result<(), Failure> {
        self.unmake()
    }

    fn unmake(&mut self) -> Result<(), Failure> {
        // A step that fails is tried once more when this value goes; nothing that it stands on is taken away before.
        if self.mounted {
            run("umount", &[text(&self.mount)?])?;
            self.mounted = false;
        }
        if let Some(device) = &self.device {
            run("losetup", &["--detach", device])?;
            self.device = None;
        }
        self.slow = None;
        Ok(())
    }
}

/// Takes away the mounts and loop devices that a program which was killed left in `scratch`.
pub fn clear(scratch: &Path) -> Result<(), Failure> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for (source, place) in mounts_below(&mounts, scratch) {
        run("umount", &[text(&place)?])?;
        // The export below the device may be gone, and with it the name by which the list below knows it.
        if source.starts_with("/dev/loop") {
            run("losetup", &["--detach", source])?;
        }
    }
    let devices = run(
        "losetup",
        &["--list", "--noheadings", "--output", "NAME,BACK-FILE"],
    );
    for line in devices.unwrap_or_default().lines() {
        if let Some((device, image)) = line.trim().split_once(' ')
            && Path::new(image.trim()).starts_with(scratch)
        {
            run("losetup", &["--detach", device])?;
        }
    }
    Ok(())
}

/// Everything that is mounted: source, place, file system and options (proc_pid_mounts(5)).
pub fn mounted(mounts: &str) -> impl DoubleEndedIterator<Item = (&str, PathBuf, &str, &str)> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (source, place) = (fields.next()?, unescaped(fields.next()?));
        Some((source, place.into(), fields.next()?, fields.next()?))
    })
}

/// Source and place of what is mounted in a folder, the last one first: not in one whose name only begins alike.
fn mounts_below<'a>(mounts: &'a str, folder: &Path) -> Vec<(&'a str, PathBuf)> {
    let below = mounted(mounts)
        .rev()
        .filter(|(_, place, ..)| place.starts_with(folder));
    below.map(|(source, place, ..)| (source, place)).collect()
}

/// A path as it is: the kernel's list has these characters in octal digits.
fn unescaped(field: &str) -> String {
    let mut field = field.to_owned();
    for (digits, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        field = field.replace(digits, character);
    }
    field
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(failure) = self.unmake() {
            left_behind(failure);
        }
    }
}

/// The counters in the line of a device's `stat`.
pub fn counts(line: &str) -> Option<Counts> {
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
    fn a_folder_whose_name_begins_alike_stays_mounted() {
        let mounts = "/dev/loop0 /r/scratch/mount ext4 rw 0 0\n/dev/sda1 /r/scratch-old ext4 rw 0 0\n\
                      /dev/loop1 /r/scratch/mount/b xfs rw 0 0\n";
        let wanted = [
            ("/dev/loop1", PathBuf::from("/r/scratch/mount/b")),
            ("/dev/loop0", PathBuf::from("/r/scratch/mount")),
        ];
        assert_eq!(mounts_below(mounts, Path::new("/r/scratch")), wanted);
    }

    #[test]
    fn a_mount_in_a_folder_with_a_space_in_its_name_is_found() {
        let mounts = "/dev/loop0 /r/my\\040results/scratch/a\\134b ext4 rw 0 0\n";
        let found = mounts_below(mounts, Path::new("/r/my results/scratch"));
        let place = PathBuf::from("/r/my results/scratch/a\\b");
        assert_eq!(found, [("/dev/loop0", place)]);
    }

    #[test]
    fn fields_of_the_kernels_line() {
        let line = " 1219 1 40105 154 522 61 34884 337 0 372 738 0 0 0 0 284 247\n";
        let counts = counts(line).unwrap();
        assert_eq!((counts.writes, counts.flushes), (522, 284));
        assert_eq!(counts.bytes, 34884 * 512);
        assert!(super::counts("1 2 3").is_none());
    }
}
