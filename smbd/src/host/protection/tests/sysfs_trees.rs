//! Assesses fake trees: each storage stack as `/sys` and `/proc` show it, and hostile contents.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::*;

/// `/sys` and `/proc` in a folder.
struct Tree {
    top: tempfile::TempDir,
    mounts: String,
}

impl Tree {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for folder in ["sys/dev/block", "sys/class/block", "proc/self"] {
            fs::create_dir_all(top.path().join(folder)).unwrap();
        }
        let mounts = String::new();
        Self { top, mounts }
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.top.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.top.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.top.path().join(to), path).unwrap();
        self
    }

    /// A device in `sys/devices/PATH`, whose last part is its name.
    fn node(&self, number: &str, path: &str) -> String {
        let dir = format!("sys/devices/{path}");
        let name = path.rsplit('/').next().unwrap();
        fs::create_dir_all(self.top.path().join(&dir)).unwrap();
        self.link(&format!("sys/dev/block/{number}"), &dir);
        self.link(&format!("sys/class/block/{name}"), &dir);
        dir
    }

    /// With a queue: `cache` is the text of `write_cache`.
    fn disk(&self, number: &str, path: &str, cache: &str, fua: &str) -> String {
        let dir = self.node(number, path);
        self.file(&format!("{dir}/queue/write_cache"), cache);
        self.file(&format!("{dir}/queue/fua"), fua);
        self.file(&format!("{dir}/queue/rotational"), "0");
        dir
    }

    /// A layer above others.
    fn layer(&self, number: &str, name: &str, cache: &str, slaves: &[&str]) -> String {
        let dir = self.disk(number, &format!("virtual/block/{name}"), cache, "0");
        let what = if name.starts_with("md") {
            "md/level"
        } else {
            "dm/name"
        };
        self.file(&format!("{dir}/{what}"), &format!("{name}-name"));
        for slave in slaves {
            let to = fs::canonicalize(self.top.path().join("sys/class/block").join(slave));
            let link = self.top.path().join(format!("{dir}/slaves/{slave}"));
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(to.unwrap(), link).unwrap();
        }
        dir
    }

    fn mount(&mut self, number: &str, point: &str, rest: &str) -> &Self {
        let id = self.mounts.lines().count() + 20;
        self.mounts += &format!("{id} 1 {number} / {point} rw,relatime - {rest}\n");
        fs::write(self.top.path().join("proc/self/mountinfo"), &self.mounts).unwrap();
        self
    }

    fn root(&self) -> Root {
        Root {
            sys: self.top.path().join("sys"),
            proc: self.top.path().join("proc"),
        }
    }

    fn look_as(&self, path: &str, asserted: Protection) -> Assessment {
        let place = AssessedFolder {
            path: PathBuf::from(path),
            mount_id: None,
        };
        Machine::read(self.root()).assess(&place, asserted)
    }

    fn look(&self, path: &str) -> Assessment {
        self.look_as(path, Protection::None)
    }

    fn words(&self, path: &str) -> String {
        self.look(path).words()
    }
}

const THROUGH: &str = "write through";
const BACK: &str = "write back";
const NVME: &str = "pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1";
const SATA: &str = "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda";
const SATB: &str = "pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb";

#[test]
fn an_nvme_disk_by_its_word() {
    let mut tree = Tree::new();
    let dir = tree.disk("259:0", NVME, THROUGH, "1");
    tree.mount("259:0", "/", "xfs /dev/nvme0n1 rw,inode64");
    let found = tree.look("/srv/x");
    assert_eq!(found.words(), "write-through,fua,protected");
    assert_eq!(found.stack(), "xfs on /; nvme0n1");
    assert!(!found.is_alarming() && found.sentences().is_empty());
    tree.file(&format!("{dir}/queue/write_cache"), BACK);
    let found = tree.look("/srv/x");
    assert_eq!(found.words(), "volatile-cache,fua,unprotected");
    assert!(found.is_alarming() && !found.is_contradictory());
    // The administrator knows more: a drive with capacitors.
    let found = tree.look_as("/srv/x", Protection::Plp);
    assert_eq!(found.words(), "volatile-cache,fua,asserted-plp,protected");
    assert!(!found.is_alarming());
    tree.file(&format!("{dir}/queue/write_cache"), "write sideways");
    assert_eq!(tree.words("/srv/x"), "cache-unknown,fua,cannot-see,unknown");
}

#[test]
fn a_partition_has_its_disks_cache_and_the_drive_the_last_word() {
    let mut tree = Tree::new();
    let disk = tree.disk("8:0", SATA, BACK, "0");
    let part = tree.node("8:1", &format!("{SATA}/sda1"));
    tree.file(&format!("{part}/partition"), "1");
    tree.file("proc/fs/ext4/sda1/options", "rw\nbarrier\ndata=ordered");
    tree.file("proc/fs/jbd2/sda1-8/info", "");
    tree.file("sys/fs/ext4/sda1/journal_task", "412");
    tree.mount("8:1", "/", "ext4 /dev/sda1 rw");
    assert_eq!(tree.words("/"), "volatile-cache,no-fua,unprotected");
    assert_eq!(tree.look("/").stack(), "ext4 on /; sda");
    let kind = format!("{disk}/device/scsi_disk/0:0:0:0/cache_type");
    tree.file(&format!("{disk}/queue/write_cache"), THROUGH);
    tree.file(&kind, "write through");
    assert_eq!(tree.words("/"), "write-through,no-fua,protected");
    // Somebody wrote "write through" to the queue of a drive that is not.
    tree.file(&kind, "write back");
    let found = tree.look("/");
    assert_eq!(
        found.words(),
        "write-through,no-fua,cache-contradicts,unprotected"
    );
    assert!(found.is_contradictory());
    assert!(found.sentences()[0].contains("SYNCS DO NOT REACH THE DISK"));
}

#[test]
fn ext4s_journal_and_barriers() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, THROUGH, "0");
    tree.mount("8:0", "/", "ext4 /dev/sda rw");
    let options = "proc/fs/ext4/sda/options";
    let task = "sys/fs/ext4/sda/journal_task";
    // Nothing reports anything.
    assert_eq!(tree.words("/"), "write-through,no-fua,cannot-see,unknown");
    tree.file(task, "<none>").file(options, "rw\nbarrier");
    let torn = "write-through,no-fua,no-journal,unprotected";
    assert_eq!(tree.words("/"), torn);
    // An old kernel has no journal_task.
    fs::remove_file(tree.top.path().join(task)).unwrap();
    fs::create_dir_all(tree.top.path().join("proc/fs/jbd2")).unwrap();
    assert_eq!(tree.words("/"), torn);
    tree.file(options, "rw\nbarrier\ndata=ordered");
    let elsewhere = "write-through,no-fua,external-journal,unknown";
    assert_eq!(tree.words("/"), elsewhere);
    tree.file("proc/fs/jbd2/sda-8/info", "");
    assert_eq!(tree.words("/"), "write-through,no-fua,protected");
    tree.file(options, "rw\nnobarrier\ndata=writeback");
    assert_eq!(
        tree.words("/"),
        "write-through,no-fua,data-writeback,no-barrier,unprotected"
    );
    tree.file(options, "rw\nbarrier\ndata=ordered");
    tree.mount("8:0", "/", "ext4 /dev/sda rw,noload");
    assert_eq!(tree.words("/"), torn);
    tree.mount("8:0", "/", "ext3 /dev/sda rw,barrier=0");
    assert!(tree.look("/").is_contradictory());
    tree.mount("8:0", "/", "ext2 /dev/sda rw");
    assert_eq!(tree.words("/"), torn);
    tree.mount("8:0", "/", "reiser9 /dev/sda rw");
    assert_eq!(
        tree.words("/"),
        "write-through,no-fua,file-system-not-known,unknown"
    );
}

#[test]
fn crypt_on_lvm_on_md_on_two_disks() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, THROUGH, "0");
    let second = tree.disk("8:16", SATB, THROUGH, "1");
    let part = tree.node("8:17", &format!("{SATB}/sdb1"));
    tree.file(&format!("{part}/partition"), "1");
    let md = tree.layer("9:0", "md0", THROUGH, &["sda", "sdb1"]);
    tree.layer("253:0", "dm-0", THROUGH, &["md0"]);
    let crypt = tree.layer("253:1", "dm-1", THROUGH, &["dm-0"]);
    tree.mount("253:1", "/srv", "xfs /dev/mapper/crypt rw");
    let found = tree.look("/srv/share");
    assert_eq!(found.words(), "write-through,no-fua,protected");
    assert_eq!(found.stack(), "xfs on /srv; dm-1, dm-0, md0, sda, sdb");
    // One volatile disk, and flushes that pass through every layer.
    for dir in [&second, &md, &crypt] {
        tree.file(&format!("{dir}/queue/write_cache"), BACK);
    }
    tree.file("sys/devices/virtual/block/dm-0/queue/write_cache", BACK);
    assert_eq!(tree.words("/srv"), "volatile-cache,no-fua,unprotected");
    // A layer that takes no flush hides the volatile disk from the file system.
    tree.file(&format!("{md}/queue/write_cache"), THROUGH);
    let found = tree.look("/srv");
    assert_eq!(
        found.words(),
        "volatile-cache,no-fua,flush-not-passed-on,unprotected"
    );
    assert!(
        found
            .sentences()
            .iter()
            .any(|line| line.starts_with("md0 takes no flush"))
    );
    tree.file(&format!("{md}/md/level"), "raid5");
    tree.file(&format!("{md}/md/consistency_policy"), "resync");
    assert!(tree.words("/srv").contains("write-hole"));
    tree.file(&format!("{md}/md/consistency_policy"), "ppl");
    assert!(!tree.words("/srv").contains("write-hole"));
}

#[test]
fn a_loop_on_ext4() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, THROUGH, "0");
    tree.file("sys/fs/ext4/sda/journal_task", "9");
    let dir = tree.disk("7:3", "virtual/block/loop3", BACK, "0");
    tree.mount("8:0", "/", "ext4 /dev/sda rw,data=ordered");
    tree.mount("7:3", "/mnt", "xfs /dev/loop3 rw");
    assert!(tree.words("/mnt").contains("cannot-see"), "not bound");
    tree.file(&format!("{dir}/loop/backing_file"), "/images/a b.img");
    let found = tree.look("/mnt/x");
    assert_eq!(
        found.words(),
        "write-through,no-fua,volatile-cache,loop,unprotected"
    );
    assert_eq!(found.stack(), "xfs on /mnt, ext4 on /; loop3, sda");
    // Without flushes the file is never synced.
    tree.file(&format!("{dir}/queue/write_cache"), THROUGH);
    assert!(tree.look("/mnt").is_contradictory());
    // A file on the file system that is in it.
    tree.file(&format!("{dir}/loop/backing_file"), "/mnt/self (deleted)");
    let found = tree.look("/mnt");
    assert_eq!(found.file_systems.len(), 1);
    assert_eq!(found.verdict(), Verdict::Unprotected);
}

#[test]
fn btrfs_on_two_devices() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, THROUGH, "1");
    let second = tree.disk("8:16", SATB, BACK, "1");
    tree.layer("253:0", "dm-0", BACK, &["sdb"]);
    let of = |name: &str| format!("sys/fs/btrfs/c391-73/devices/{name}");
    tree.file("sys/fs/btrfs/features/compress_zstd", "1");
    tree.link(&of("sda"), &format!("sys/devices/{SATA}"));
    tree.link(&of("dm-0"), "sys/devices/virtual/block/dm-0");
    // The number belongs to no device, and a subvolume has yet another one.
    tree.mount(
        "0:39",
        "/srv",
        "btrfs /dev/mapper/dm-0-name rw,space_cache=v2",
    );
    let found = tree.look("/srv/s");
    assert_eq!(found.words(), "volatile-cache,fua,unprotected");
    assert_eq!(found.stack(), "btrfs on /srv; dm-0, sdb, sda");
    tree.mount("0:39", "/srv", "btrfs /dev/sda rw,notreelog,nobarrier");
    let words = tree.words("/srv");
    assert!(words.contains("no-barrier,no-tree-log"), "{words}");
    tree.mount("0:39", "/srv", "btrfs /dev/sda rw,notreelog");
    tree.file(&format!("{second}/queue/write_cache"), THROUGH);
    assert_eq!(
        tree.words("/srv"),
        "write-through,fua,no-tree-log,protected"
    );
    // This fails for a device that is in no btrfs, and for one of which a part is missing.
    tree.mount("0:39", "/srv", "btrfs /dev/sdx rw");
    assert_eq!(tree.words("/srv"), "cache-unknown,cannot-see,unknown");
    tree.mount("0:39", "/srv", "btrfs /dev/sda rw");
    tree.link(&of("sdz"), "sys/devices/gone");
    assert_eq!(tree.words("/srv"), "cache-unknown,cannot-see,unknown");
}

#[test]
fn what_is_elsewhere_cannot_be_seen() {
    let mut tree = Tree::new();
    for (line, words) in [
        (
            "nfs4 host:/export rw,vers=4.2",
            "network-file-system,unknown",
        ),
        ("cifs //host/share rw", "network-file-system,unknown"),
        ("9p hostshare rw", "network-file-system,unknown"),
        ("ceph 1.2.3.4:/ rw", "network-file-system,unknown"),
        ("fuse.sshfs host: rw", "fuse,unknown"),
        ("fuseblk /dev/sdb1 rw", "fuse,unknown"),
        ("zfs tank/data rw", "file-system-not-known,unknown"),
        ("tmpfs tmpfs rw", "memory,unprotected"),
        ("ramfs none rw", "memory,unprotected"),
    ] {
        tree.mount("0:50", "/srv", line);
        assert_eq!(
            tree.words("/srv/x"),
            format!("cache-unknown,{words}"),
            "{line}"
        );
    }
    assert_eq!(
        Tree::new().words("/srv"),
        "cache-unknown,cannot-see,unknown",
        "no mount table"
    );
    // A UPS keeps neither memory (it shuts the host down) nor the other machine.
    assert_eq!(
        tree.look_as("/srv", Protection::Ups).words(),
        "cache-unknown,memory,asserted-ups,unprotected"
    );
    tree.mount("0:50", "/srv", "nfs h:/ rw");
    let found = tree.look_as("/srv", Protection::Ups);
    assert_eq!(found.verdict(), Verdict::Unknown);
    assert!(found.is_contradictory());
    let last = found.sentences().pop().unwrap();
    assert!(last.contains("\"ups\" cannot hold"), "{last}");
}

#[test]
fn an_overlay_is_looked_through() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, BACK, "0");
    tree.mount("8:0", "/", "xfs /dev/sda rw");
    tree.mount(
        "0:44",
        "/srv",
        r"overlay overlay rw,lowerdir=/l,upperdir=/u\040p/er,workdir=/w",
    );
    let found = tree.look("/srv");
    assert_eq!(found.words(), "volatile-cache,no-fua,overlay,unprotected");
    assert_eq!(found.stack(), "overlay on /srv, xfs on /; sda");
    tree.mount(
        "0:44",
        "/srv",
        "overlay overlay rw,lowerdir=/l,upperdir=/u,volatile",
    );
    assert!(tree.look("/srv").is_contradictory());
    // Over itself.
    tree.mount("0:44", "/srv", "overlay overlay rw,upperdir=/srv/u");
    assert_eq!(tree.words("/srv"), "cache-unknown,overlay,unknown");
}

#[test]
fn who_stands_behind_a_disk() {
    let through = |number: &str, path: &str| {
        let mut tree = Tree::new();
        let dir = tree.disk(number, path, THROUGH, "0");
        tree.mount(number, "/", "xfs /dev/x rw");
        (tree, dir)
    };
    let words = |path: &str| through("8:0", path).0.words("/");
    let seen = |rest: &str| format!("write-through,no-fua,{rest},unknown");
    assert_eq!(
        words("pci0/0000:00:02.0/virtio1/block/vda"),
        seen("virtual")
    );
    assert_eq!(words("vbd-51712/block/xvda"), seen("virtual"));
    let azure = "LNXSYSTM:00/VMBUS:01/f8b3781a/host0/target0:0:0/0:0:0:0/block/sda";
    assert_eq!(words(azure), seen("virtual"));
    let iscsi = "platform/host2/session1/target2:0:0/2:0:0:0/block/sdb";
    assert_eq!(words(iscsi), seen("network-device"));
    assert_eq!(words("virtual/block/nbd0"), seen("network-device"));
    let usb = "pci0/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdc";
    assert_eq!(words(usb), seen("usb-bridge"));
    assert_eq!(
        words("virtual/block/zram0"),
        "write-through,no-fua,memory,unprotected"
    );
    for (file, text, word) in [
        ("device/model", "Amazon Elastic Block Store", "virtual"),
        ("device/vendor", "VMware", "virtual"),
        ("device/transport", "tcp", "network-device"),
    ] {
        let (tree, dir) = through("259:0", NVME);
        tree.file(&format!("{dir}/device/transport"), "pcie");
        assert_eq!(tree.words("/"), "write-through,no-fua,protected");
        tree.file(&format!("{dir}/{file}"), text);
        assert_eq!(tree.words("/"), seen(word));
    }
    let (tree, _) = through("8:0", SATA);
    let host = "sys/devices/pci0000:00/0000:00:17.0/ata1/host0/scsi_host/host0/proc_name";
    tree.file(host, "ahci");
    assert_eq!(tree.words("/"), "write-through,no-fua,protected");
    tree.file(host, "megaraid_sas");
    assert_eq!(tree.words("/"), seen("raid-controller"));
    // A guest cannot distinguish a real disk from another.
    let (tree, _) = through("8:0", SATA);
    tree.file(
        "proc/cpuinfo",
        "processor : 0\nflags\t\t: fpu hypervisor lm",
    );
    assert_eq!(tree.words("/"), seen("virtual"));
    let (tree, _) = through("8:0", SATA);
    tree.file("sys/class/dmi/id/product_name", "KVM Virtual Machine");
    assert_eq!(tree.words("/"), seen("virtual"));
}

#[test]
fn f2fs_without_checkpoints_ignores_syncs() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, BACK, "0");
    tree.mount("8:0", "/", "f2fs /dev/sda rw,checkpoint_merge");
    assert!(!tree.words("/").contains("sync-ignored"));
    let options = "rw,checkpoint=disable:0,nocheckpoint_merge";
    tree.mount("8:0", "/", &format!("f2fs /dev/sda {options}"));
    let words = tree.words("/");
    assert!(words.contains("sync-ignored"), "{words}");
}

#[test]
fn where_no_policy_is_kept() {
    let mut tree = Tree::new();
    let dir = tree.disk("8:0", SATA, BACK, "0");
    let broken = |tree: &Tree, policy: &str| broken_promise(policy, &tree.look("/"));
    tree.mount("8:0", "/", "xfs /dev/sda rw");
    assert_eq!(
        broken(&tree, "honor"),
        None,
        "a volatile cache keeps what is flushed"
    );
    tree.mount("8:0", "/", "xfs /dev/sda rw,nobarrier");
    assert!(
        broken(&tree, "honor")
            .unwrap()
            .contains("NOT KEPT HERE: / is mounted without")
    );
    assert_eq!(
        broken(&tree, "treat-host-as-stable-storage"),
        None,
        "it promises nothing"
    );
    let plp = tree.look_as("/", Protection::Plp);
    assert_eq!(broken_promise("honor", &plp), None);
    tree.file(&format!("{dir}/queue/write_cache"), THROUGH);
    assert_eq!(broken(&tree, "honor"), None, "nothing to flush");
    tree.mount("0:9", "/", "tmpfs tmpfs rw");
    assert!(broken(&tree, "strict-sync").unwrap().contains("memory"));
}

#[test]
fn xfs_with_a_log_elsewhere() {
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, THROUGH, "0");
    tree.disk("8:16", SATB, BACK, "0");
    tree.mount("8:0", "/", "xfs /dev/sda rw,logdev=/dev/sdb");
    assert_eq!(tree.words("/"), "volatile-cache,no-fua,unprotected");
}

#[test]
fn on_a_battery() {
    let mut tree = Tree::new();
    tree.disk("259:0", NVME, THROUGH, "1");
    tree.mount("259:0", "/", "xfs /dev/nvme0n1 rw");
    let supply = |name: &str, kind: &str, file: &str, text: &str| {
        tree.file(&format!("sys/class/power_supply/{name}/type"), kind);
        tree.file(&format!("sys/class/power_supply/{name}/{file}"), text);
    };
    supply("ups0", "UPS", "status", "Charging");
    supply("mouse", "Battery", "status", "Discharging");
    supply("mouse", "Battery", "scope", "Device");
    supply("AC0", "Mains", "online", "0");
    supply("AC1", "Mains", "online", "1");
    assert_eq!(tree.words("/"), "write-through,fua,protected");
    supply("AC1", "Mains", "online", "0");
    assert_eq!(tree.words("/"), "write-through,fua,on-battery,protected");
    supply("ups0", "UPS", "status", "Discharging");
    let found = tree.look_as("/", Protection::Ups);
    assert_eq!(
        found.words(),
        "write-through,fua,on-battery,asserted-ups,protected"
    );
    assert!(found.is_alarming(), "a UPS that runs down");
    assert!(found.sentences()[0].contains("ups0 says that THE MACHINE RUNS ON A BATTERY"));
}

#[test]
fn what_the_machine_runs_on() {
    // Each supply: name, type, online, status; `-`: no such file.
    let power = |supplies: &[[&str; 4]]| {
        let tree = Tree::new();
        for [name, rest @ ..] in supplies {
            for (file, text) in ["type", "online", "status"].iter().zip(rest) {
                if *text != "-" {
                    tree.file(&format!("sys/class/power_supply/{name}/{file}"), text);
                }
            }
        }
        Power::read(&tree.root())
    };
    let battery = |name: &str| Power::Battery(name.to_owned());
    assert_eq!(power(&[]), Power::Unknown);
    let folder = Tree::new();
    fs::create_dir_all(folder.top.path().join("sys/class/power_supply")).unwrap();
    assert_eq!(Power::read(&folder.root()), Power::Unknown);
    // A server with a UPS alone.
    let ups = |status| power(&[["ups", "UPS", "-", status]]);
    assert_eq!(ups("Discharging"), battery("ups"));
    for status in ["Full", "Charging", "Not charging"] {
        assert_eq!(ups(status), Power::Mains, "{status}");
    }
    assert_eq!(ups("Unknown"), Power::Unknown);
    assert_eq!(ups("-"), Power::Unknown);
    // A laptop.
    let laptop = |online, status| {
        power(&[
            ["AC", "Mains", online, "-"],
            ["BAT0", "Battery", "-", status],
        ])
    };
    assert_eq!(laptop("1", "Charging"), Power::Mains);
    assert_eq!(laptop("0", "Discharging"), battery("BAT0"));
    assert_eq!(laptop("0", "Unknown"), battery("AC"));
    assert_eq!(laptop("1", "Discharging"), Power::Mains, "a weak adapter");
    assert_eq!(laptop("-", "Discharging"), battery("BAT0"));
    assert_eq!(
        laptop("-", "Full"),
        Power::Unknown,
        "the adapter does not say"
    );
    // One of two power supplies of a server is off.
    let two = |a, b| power(&[["PS0", "Mains", a, "-"], ["PS1", "Mains", b, "-"]]);
    assert_eq!(two("0", "1"), Power::Mains);
    assert_eq!(two("0", "0"), battery("PS0"));
    assert_eq!(two("0", "-"), Power::Unknown);
    // By USB; an unused port reports nothing.
    let usb = |online| {
        power(&[
            ["BAT0", "Battery", "-", "Discharging"],
            ["ucsi", "USB", online, "-"],
        ])
    };
    assert_eq!(usb("1"), Power::Mains);
    assert_eq!(usb("0"), battery("BAT0"));
    // A UPS feeds the adapter.
    let both = power(&[
        ["AC", "Mains", "1", "-"],
        ["ups", "UPS", "-", "Discharging"],
    ]);
    assert_eq!(both, battery("ups"));
}

#[test]
fn trees_without_end() {
    let mut tree = Tree::new();
    // Layers in a ring.
    let a = tree.layer("253:0", "dm-0", BACK, &[]);
    let b = tree.layer("253:1", "dm-1", BACK, &["dm-0"]);
    let slave = format!("{a}/slaves/dm-1");
    tree.link(&slave, &b);
    tree.mount("253:0", "/", "xfs /dev/dm-0 rw");
    assert!(tree.words("/").contains("cannot-see"));
    // A tall stack of layers.
    let mut tree = Tree::new();
    tree.disk("8:0", SATA, THROUGH, "0");
    let mut below = "sda".to_owned();
    for storey in 0..60 {
        let name = format!("dm-{storey}");
        tree.layer(&format!("253:{storey}"), &name, THROUGH, &[&below]);
        below = name;
    }
    tree.mount("253:59", "/", "xfs /dev/dm-59 rw");
    let found = tree.look("/");
    assert_eq!(found.verdict(), Verdict::Unknown);
    assert!(found.devices.len() < 30);
    // A partition of a partition of ... itself cannot be; a wide stripe can.
    let mut tree = Tree::new();
    let names: Vec<String> = (0..600).map(|n| format!("sd{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        tree.disk(&format!("8:{n}"), &format!("pci0/{name}"), THROUGH, "0");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    tree.layer("9:0", "md0", THROUGH, &names);
    tree.mount("9:0", "/", "xfs /dev/md0 rw");
    let found = tree.look("/");
    assert_eq!(found.verdict(), Verdict::Unknown);
    assert!(found.devices.len() <= 512);
}

#[test]
fn hostile_files() {
    let mut tree = Tree::new();
    let dir = tree.disk("8:0", SATA, THROUGH, "0");
    tree.mount("8:0", "/", "xfs /dev/sda rw");
    let cache = tree.top.path().join(format!("{dir}/queue/write_cache"));
    let begun = Instant::now();
    // Too long, no text, a folder, a pipe that nobody writes to.
    fs::write(&cache, vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(tree.look("/").verdict(), Verdict::Unknown);
    fs::write(&cache, [0xFF, 0, 0xFE]).unwrap();
    assert_eq!(tree.look("/").verdict(), Verdict::Unknown);
    fs::remove_file(&cache).unwrap();
    fs::create_dir(&cache).unwrap();
    assert_eq!(tree.look("/").verdict(), Verdict::Unknown);
    fs::remove_dir(&cache).unwrap();
    rustix::fs::mknodat(
        CWD,
        &cache,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(tree.look("/").verdict(), Verdict::Unknown);
    assert!(begun.elapsed() < Duration::from_secs(30));
    // A link that leads out of the tree.
    let tree = {
        let mut tree = Tree::new();
        symlink("/", tree.top.path().join("sys/dev/block/8:0")).unwrap();
        tree.mount("8:0", "/", "xfs /dev/sda rw");
        tree
    };
    assert_eq!(tree.words("/"), "cache-unknown,cannot-see,unknown");
    // A mount table of garbage, and one that is cut off.
    let table = tree.top.path().join("proc/self/mountinfo");
    for text in ["\0\u{1b}[31m\n\n - \n", "20 1 8:0 / / rw - xfs /dev/sda rw"] {
        fs::write(&table, text).unwrap();
        assert_eq!(tree.words("/"), "cache-unknown,cannot-see,unknown");
    }
    // Nothing of it reaches a terminal as it is.
    fs::write(
        &table,
        "20 1 0:9 / /\\033[31mx rw - \u{1b}]0;evil nfs:/\\012y rw\n",
    )
    .unwrap();
    let found = tree.look(Path::new("/\u{1b}[31mx/s").to_str().unwrap());
    let status = serde_json::to_string(&found.status()).unwrap();
    let said = format!("{} {:?} {status}", found.stack(), found.sentences());
    assert!(!said.contains(|c: char| c.is_control()), "{said}");
}
