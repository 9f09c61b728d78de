//! Files on which another program has a lease.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
    time::Duration,
};

use tokio::{
    runtime::Builder,
    task::{LocalSet, spawn_local},
    time::{sleep, timeout},
};

use super::*;
use crate::{
    Attributes, Contents, IoAccess, NamedStreams, SetAttr, StreamOpen, SyncScope, Volume,
    WriteMode,
    linux::file_system::FileSystem,
    posix::{PosixNode, StreamStore},
};

const ME: &Identity = &Identity::Service;

/// A program that takes a lease and ignores the signal by which the kernel asks for it.
const HOLDER: &str = "
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
for _ in range(1000):
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        print('held', flush=True)
        break
    except BlockingIOError:
        # A process that another test is starting has the file open for a moment.
        time.sleep(0.001)
sys.stdin.read()
";

/// A program that has a lease on a file until this is dropped.
struct Holder(Child);

impl Holder {
    fn of(file: &Path) -> Option<Self> {
        let started = Command::new("python3")
            .args(["-c", HOLDER])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = Self(started.ok()?);
        let mut line = String::new();
        let said = BufReader::new(holder.0.stdout.take()?).read_line(&mut line);
        (said.is_ok() && line == "held\n").then_some(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Many wait for a program that keeps its lease. Nobody else waits who needs its file system.
#[test]
fn a_lease_of_another_program_holds_up_only_those_who_open_its_file() {
    const ASK: usize = 2 * pool::IO_THREADS_MAX;
    for remote in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let disk = LinuxDisk::open(dir.path()).unwrap();
        let root = match remote {
            true => {
                let root = std::fs::File::open(dir.path()).unwrap();
                LinuxFd::new(root.into(), false, &FileSystem::remote(4021))
            }
            false => disk.root(),
        };
        let fd = block_on(disk.open_at(ME, &root, b"f", OpenHow::PATH_ONLY)).unwrap();
        let Some(holder) = Holder::of(&path) else {
            crate::testing::missing("python3, or leases");
            return;
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let run = async move {
            let read = OpenHow {
                read: true,
                ..OpenHow::default()
            };
            let mut waiting = Vec::new();
            for number in 0..ASK {
                let (disk, root, fd) = (disk.clone(), root.clone(), fd.clone());
                waiting.push(spawn_local(async move {
                    match number % 2 {
                        0 => disk.reopen(ME, &fd, IoAccess::READ).await,
                        _ => disk.open_at(ME, &root, b"f", read).await,
                    }
                }));
            }
            sleep(Duration::from_millis(200)).await;
            assert!(waiting.iter().all(|one| !one.is_finished()));
            let listed = timeout(Duration::from_secs(20), disk.entries(&root, 10)).await;
            assert_eq!(listed.unwrap().unwrap().len(), 1);
            drop(holder);
            for one in waiting {
                let opened = timeout(Duration::from_secs(20), one).await;
                assert!(opened.unwrap().unwrap().is_ok());
            }
        };
        LocalSet::new().block_on(&runtime, run);
    }
}

/// A file "f" with a stream "s" in this store; `None` where there are no extended attributes.
pub(super) fn with_stream(
    dir: &Path,
    streams: StreamStore,
) -> Option<(Rc<PosixVfs<LinuxDisk>>, PosixNode<LinuxDisk>)> {
    std::fs::write(dir.join("f"), b"").unwrap();
    let disk = LinuxDisk::open(dir).unwrap();
    let options = PosixOptions {
        streams,
        ..PosixOptions::default()
    };
    let vfs = Rc::new(block_on(PosixVfs::new(disk, options)).unwrap());
    let found = block_on(vfs.lookup(ME, &["f".to_owned()])).unwrap();
    let (file, _) = found.found.unwrap();
    let made = block_on(vfs.open_stream(ME, &file, "s", StreamOpen::New));
    made.is_ok().then_some((vfs, file))
}

/// The file of the only stream in `.streams`.
pub(super) fn in_depot(dir: &Path) -> PathBuf {
    // Two hash folders, the folder of the inode, and the file of the stream.
    let mut at = dir.join(".streams");
    for _ in 0..4 {
        let mut within = std::fs::read_dir(&at).unwrap();
        at = within.next().unwrap().unwrap().path();
    }
    at
}

/// A rename on a file system whose renames are not atomic is synced under a lock, and waits for the lease before that.
#[test]
fn the_descriptor_for_a_sync_can_be_opened_before_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"x").unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let vfs = Rc::new(block_on(PosixVfs::new(disk, PosixOptions::default())).unwrap());
    let found = block_on(vfs.lookup(ME, &["f".to_owned()])).unwrap();
    let (file, _) = found.found.unwrap();
    let Some(holder) = Holder::of(&dir.path().join("f")) else {
        crate::testing::missing("python3, or leases");
        return;
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let run = async move {
        let (opener, unopened) = (Rc::clone(&vfs), file.clone());
        let opening = spawn_local(async move { opener.keeper(&unopened).await });
        sleep(Duration::from_millis(200)).await;
        assert!(!opening.is_finished());
        drop(holder);
        let opened = timeout(Duration::from_secs(20), opening).await;
        let keeper = opened.unwrap().unwrap().unwrap();
        assert_eq!(vfs.sync(&keeper, SyncScope::All).await, Ok(()));
        assert!(vfs.keeper(&keeper).await.is_none(), "it is open");
    };
    LocalSet::new().block_on(&runtime, run);
}

/// Other files share the lock under which a file's attributes are changed.
#[test]
fn a_lease_on_a_stream_or_its_file_holds_up_no_change_of_attributes() {
    for streams in [StreamStore::Depot, StreamStore::Xattr] {
        let dir = tempfile::tempdir().unwrap();
        let Some((vfs, file)) = with_stream(dir.path(), streams) else {
            crate::testing::missing("extended attributes");
            return;
        };
        let leased = match streams {
            StreamStore::Depot => in_depot(dir.path()),
            _ => dir.path().join("f"),
        };
        let Some(holder) = Holder::of(&leased) else {
            crate::testing::missing("python3, or leases");
            return;
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let run = async move {
            let io = IoAccess {
                read: true,
                write: true,
            };
            let existing = StreamOpen::Existing;
            let (stream, _) = vfs.open_stream(ME, &file, "s", existing).await.unwrap();
            let opened = vfs.open(ME, &stream, io).await.unwrap();
            let (writer, renamer) = (Rc::clone(&vfs), Rc::clone(&vfs));
            let writing = spawn_local(async move {
                let (data, mode) = (Bytes::from_static(b"x"), WriteMode::default());
                writer.write(&opened, 0, data, mode).await
            });
            let renaming = spawn_local(async move {
                let renamed = renamer.rename_stream(ME, &stream, "t", false).await;
                renamed.map(drop)
            });
            sleep(Duration::from_millis(200)).await;
            assert!(!renaming.is_finished());
            assert!(!writing.is_finished() || streams == StreamStore::Xattr);
            let hidden = SetAttr {
                dos_attributes: Some(2),
                ..SetAttr::default()
            };
            let set = timeout(Duration::from_secs(20), vfs.set_attr(ME, &file, &hidden)).await;
            assert_eq!(set.unwrap(), Ok(()));
            drop(holder);
            for one in [writing, renaming] {
                let ended = timeout(Duration::from_secs(20), one).await;
                assert_eq!(ended.unwrap().unwrap(), Ok(()));
            }
        };
        LocalSet::new().block_on(&runtime, run);
    }
}
