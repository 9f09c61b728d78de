//! Assesses loop devices of this machine with real file systems. Needs root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::*;
use crate::host::loop_mount::missing;

/// Bytes of an image; XFS makes none that is smaller.
const IMAGE_BYTES: u64 = 320 << 20;

/// A mounted image, which is unmounted when dropped.
struct Mounted {
    top: tempfile::TempDir,
}

impl Mounted {
    /// `None` if this machine cannot make it.
    fn new(kind: &str, make: &[&str], options: &str) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        let image = top.path().join("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(IMAGE_BYTES).unwrap();
        let point = top.path().join("m");
        fs::create_dir(&point).unwrap();
        run(Command::new(format!("mkfs.{kind}")).args(make).arg(&image))?;
        let options = format!("loop,{options}");
        run(Command::new("mount")
            .args(["-o", &options])
            .arg(&image)
            .arg(&point))?;
        Some(Self { top })
    }

    fn share(&self) -> PathBuf {
        let share = self.top.path().join("m/share");
        fs::create_dir_all(&share).unwrap();
        share
    }

    fn look(&self) -> Assessment {
        look(&self.share())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A test may have done so.
        let _ = Command::new("umount")
            .arg(self.top.path().join("m"))
            .output();
    }
}

fn look(path: &Path) -> Assessment {
    Machine::read(Root::default()).assess(&AssessedFolder::of(path), Protection::None)
}

/// Whether the mount table begins at our root directory. If not, it prints that: in a chroot the
/// table does not show the file system of the root, and so not the devices below a file in it.
fn sees_the_root() -> bool {
    let mounts = mounts::read().unwrap();
    let seen = mounts::find(&mounts, None, Path::new("/")).is_some();
    if !seen {
        missing("the root directory in /proc/self/mountinfo, where a chroot has none");
    }
    seen
}

fn run(command: &mut Command) -> Option<()> {
    let output = command.output().ok()?;
    if !output.status.success() {
        eprintln!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then_some(())
}

#[test]
fn real_file_systems_on_loop_devices() {
    if !rustix::process::geteuid().is_root() {
        missing("root, to mount ext4, XFS and btrfs on loop devices");
        return;
    }
    if !sees_the_root() {
        return;
    }
    for (kind, make, options, more) in [
        ("ext4", &["-q"][..], "rw", &[][..]),
        (
            "ext4",
            &["-q", "-O", "^has_journal"],
            "rw",
            &[FindingKind::NoJournal],
        ),
        ("ext4", &["-q"], "nobarrier", &[FindingKind::NoBarrier]),
        (
            "ext4",
            &["-q"],
            "data=writeback",
            &[FindingKind::DataWriteback],
        ),
        ("xfs", &["-q"], "rw", &[]),
        ("btrfs", &["-q"], "rw", &[]),
        ("btrfs", &["-q"], "notreelog", &[FindingKind::NoTreeLog]),
    ] {
        let Some(mounted) = Mounted::new(kind, make, options) else {
            missing(&format!("{kind} on a loop device, {options}"));
            continue;
        };
        let found = mounted.look();
        let said = format!("{kind} {make:?} {options}: {found:#?}");
        assert_eq!(found.file_systems[0].kind, kind, "{said}");
        assert_eq!(found.devices[0].kind, "loop", "{said}");
        assert_eq!(found.verdict(), Verdict::Unprotected, "{said}");
        let of_it = |kind: FindingKind| {
            let point = mounted.top.path().join("m");
            let subject = read::clean(&point.to_string_lossy());
            found.findings.contains(&Finding { kind, subject })
        };
        let modes = [
            FindingKind::NoJournal,
            FindingKind::NoBarrier,
            FindingKind::DataWriteback,
            FindingKind::NoTreeLog,
            FindingKind::CannotSee,
            FindingKind::ExternalJournal,
            FindingKind::FileSystemNotKnown,
        ];
        for mode in modes {
            assert_eq!(of_it(mode), more.contains(&mode), "{mode:?} {said}");
        }
        // Below the loop device is the file system of the temporary folder.
        assert!(found.file_systems.len() >= 2, "{said}");
    }
}

#[test]
fn memory_and_an_overlay() {
    if !rustix::process::geteuid().is_root() {
        missing("root, to mount tmpfs and overlayfs");
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let point = top.path().join("m");
    fs::create_dir(&point).unwrap();
    let mounted = Mounted { top };
    if run(Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&point))
    .is_none()
    {
        missing("tmpfs");
        return;
    }
    let found = mounted.look();
    assert_eq!(
        found.words(),
        "cache-unknown,memory,unprotected",
        "{found:#?}"
    );
    for folder in ["l", "u", "w", "o"] {
        fs::create_dir(point.join(folder)).unwrap();
    }
    let folder = |name: &str| point.join(name).display().to_string();
    let (l, u, w) = (folder("l"), folder("u"), folder("w"));
    let options = format!("lowerdir={l},upperdir={u},workdir={w}");
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "overlay", "overlay", "-o", &options, &folder("o")]);
    if run(mount).is_none() {
        missing("overlayfs");
        return;
    }
    let found = look(&point.join("o"));
    let unmounted = Command::new("umount").arg(point.join("o")).status();
    assert!(unmounted.unwrap().success());
    assert_eq!(
        found.words(),
        "cache-unknown,memory,overlay,unprotected",
        "{found:#?}"
    );
    assert_eq!(found.file_systems.len(), 2, "{found:#?}");
}

#[test]
fn two_devices_of_one_btrfs_and_a_subvolume() {
    if !rustix::process::geteuid().is_root() {
        missing("root, to mount btrfs on loop devices");
        return;
    }
    let Some(mounted) = Mounted::new("btrfs", &["-q"], "rw") else {
        missing("btrfs on a loop device");
        return;
    };
    let point = mounted.top.path().join("m");
    let second = mounted.top.path().join("second");
    fs::File::create(&second)
        .unwrap()
        .set_len(IMAGE_BYTES)
        .unwrap();
    let attach = Command::new("losetup")
        .args(["-f", "--show"])
        .arg(&second)
        .output();
    let Some(device) = attach.ok().filter(|output| output.status.success()) else {
        missing("a second loop device");
        return;
    };
    let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
    let added = run(Command::new("btrfs")
        .args(["device", "add", &device])
        .arg(&point));
    let subvolume = point.join("sub");
    let made = run(Command::new("btrfs")
        .args(["subvolume", "create"])
        .arg(&subvolume));
    let found = look(&subvolume);
    let unmounted = Command::new("umount").arg(&point).status();
    let _ = Command::new("losetup").args(["-d", &device]).status();
    assert!(added.is_some() && made.is_some() && unmounted.unwrap().success());
    let name = read::shown_name(Path::new(&device));
    let loops = found.devices.iter().filter(|device| device.kind == "loop");
    assert_eq!(loops.count(), 2, "{found:#?}");
    assert!(
        found.devices.iter().any(|device| device.name == name),
        "{found:#?}"
    );
}

#[test]
fn this_machine_does_not_take_long() {
    if !sees_the_root() {
        return;
    }
    let begun = std::time::Instant::now();
    let found = look(Path::new("/"));
    assert!(!found.file_systems.is_empty(), "{found:#?}");
    println!("{} {}", found.words(), found.stack());
    assert!(begun.elapsed().as_secs() < 30);
}
