//! Directories on which an automounter mounts a file system when they are opened.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{runtime::Builder, task::LocalSet, time::timeout};

use super::*;
use crate::Node;

const ME: &Identity = &Identity::Service;

/// An automounter for one directory: it fails the first request, after as many seconds as its second argument says, and
/// mounts an empty file system with the file `inside` at the second.
const AUTOMOUNTER: &str = "
import ctypes, fcntl, os, struct, subprocess, sys, threading, time
place, (asked, asks) = sys.argv[1], os.pipe()
os.setpgid(0, 0)
options = f'fd={asks},pgrp={os.getpid()},minproto=5,maxproto=5,direct'.encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b'autofs', place.encode(), b'autofs', 0, options):
    sys.exit(ctypes.get_errno())
control = os.open(place, os.O_RDONLY)
def token():
    return struct.unpack('I', os.read(asked, 1024)[8:12])[0]
def serve():
    number = token()
    time.sleep(float(sys.argv[2]))
    fcntl.ioctl(control, 0x9361, number)
    number = token()
    subprocess.run(['mount', '-i', '-t', 'tmpfs', '-o', 'size=1m', 'none', place])
    open(place + '/inside', 'w').close()
    fcntl.ioctl(control, 0x9360, number)
threading.Thread(target=serve, daemon=True).start()
print('ready', flush=True)
sys.stdin.read()
os.close(control)
for _ in range(2):
    subprocess.run(['umount', '-q', '-l', place])
os._exit(0)
";

/// The automounter, which ends when this is dropped.
struct Automounter(Child);

impl Automounter {
    /// `None` if the test cannot run here. No package helps where the kernel was built without autofs, and nobody can
    /// have automounts there.
    fn at(place: &Path, seconds: &str) -> Option<Self> {
        std::fs::create_dir(place).unwrap();
        let started = Command::new("python3")
            .args(["-c", AUTOMOUNTER])
            .args([place.as_os_str(), seconds.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            crate::testing::missing("python3");
            return None;
        };
        let mut line = String::new();
        let said = BufReader::new(child.stdout.take()?).read_line(&mut line);
        if said.is_ok() && line == "ready\n" {
            return Some(Self(child));
        }
        match child.wait().ok()?.code() {
            Some(libc::ENODEV) => println!("not run: the kernel has no autofs"),
            _ => crate::testing::missing("root"),
        }
        None
    }
}

impl Drop for Automounter {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Without that, clients would see an empty folder.
#[test]
fn a_path_through_an_automount_leads_to_the_file_system_that_belongs_there() {
    let top = tempfile::tempdir().unwrap();
    let Some(_automounter) = Automounter::at(&top.path().join("auto"), "0") else {
        return;
    };
    let disk = LinuxDisk::open(top.path()).unwrap();
    let vfs = block_on(PosixVfs::new(disk, PosixOptions::default())).unwrap();
    let root = vfs.root();
    let lookup = |path: &[&str]| {
        let path: Vec<_> = path.iter().map(|name| (*name).to_owned()).collect();
        block_on(vfs.lookup(ME, &path))
    };
    // A listing mounts nothing, nor does the observer of changes on the host.
    assert_eq!(InodeState::at(vfs.disk().root(), b"auto"), None);
    let (names, attrs) = block_on(vfs.list_looked(ME, &root, 10, 10)).unwrap();
    let place = names.iter().position(|name| name.name == "auto").unwrap();
    let again = block_on(vfs.attrs_at(ME, &root, &names));
    assert_eq!(again[place], attrs[place]);
    let before = attrs[place].clone().unwrap();
    // The automounter fails: there is nothing behind the name, rather than an empty folder.
    let failed = lookup(&["auto", "inside"]).map(drop);
    assert_eq!(failed, Err(VfsError::PathNotFound));
    // It mounts.
    let found = lookup(&["AUTO", "Inside"]).unwrap().found.unwrap().0;
    assert_ne!(found.key().fs, before.key.fs);
    let (directory, _) = lookup(&["auto"]).unwrap().found.unwrap();
    assert_eq!(directory.key().fs, found.key().fs);
    let listed = block_on(vfs.list(ME, &directory, 10)).unwrap();
    assert_eq!(listed.len(), 1);
    std::os::unix::fs::symlink("auto", top.path().join("link")).unwrap();
    let linked = lookup(&["link", "inside"]).unwrap().found.unwrap().0;
    assert_eq!(linked.key(), found.key());
}

async fn ask(disk: LinuxDisk) {
    let how = OpenHow {
        directory: true,
        ..OpenHow::PATH_ONLY
    };
    let _ = disk.open_at(ME, &disk.root(), b"auto", how).await;
}

/// Many look at a name where an automounter takes its time. Nobody else waits for it. (Before Linux 6.18 those who look
/// there hold threads of the file system above, as does the rest of a long listing.)
#[test]
fn a_slow_automounter_holds_up_nobody_else() {
    let top = tempfile::tempdir().unwrap();
    let Some(_automounter) = Automounter::at(&top.path().join("auto"), "5") else {
        return;
    };
    let disk = LinuxDisk::open(top.path()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let run = async {
        let asks = tokio::task::spawn_local(ask(disk.clone()));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let looks: Vec<_> = (0..8 * pool::IO_THREADS_MAX)
            .map(|way| tokio::task::spawn_local(mounted::look(disk.clone(), b"auto", way % 3)))
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!asks.is_finished() && looks.iter().all(|look| !look.is_finished()));
        let root = disk.root();
        let observed = root.clone();
        let observer = tokio::task::spawn_blocking(move || InodeState::at(observed, b"auto"));
        let observer = timeout(Duration::from_secs(2), observer).await;
        let other = async {
            conformance::new_file(&disk, &root, b"f").await;
            disk.pool_open(ME, &root, b"f", OpenHow::PATH_ONLY).await
        };
        let other = timeout(Duration::from_secs(2), other).await;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release
            .split('.')
            .map_while(|number| number.parse::<u32>().ok());
        let is_old = (numbers.next(), numbers.next()) < (Some(6), Some(18));
        assert!(other.is_ok_and(|opened| opened.is_ok()) || is_old);
        assert!(observer.is_ok() || is_old);
    };
    LocalSet::new().block_on(&runtime, run);
}
