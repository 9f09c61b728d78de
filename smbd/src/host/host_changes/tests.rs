//! Cases that black-box tests cannot cause: events that the kernel lost, and the end of the thread.

use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        Mode, OFlags,
        inotify::{CreateFlags, ReadFlags, init},
    },
    io::{Errno, FdFlags},
};
use smb_server::{
    file::{CountedUser, HostChange, OpenId, Touched},
    host_watch::{Interest, OBSERVE_MAX},
};
use tempfile::TempDir;
use vfs::{
    FileKey, Identity,
    disk::{Disk, OpenHow},
    linux::{InodeId, LinuxDisk, LinuxFd},
};

use super::{
    HostChanges, Listener,
    jobs::{JOBS_MAX, Job},
    lock,
    read::{Event, judge, look},
    table::{FULL, Table},
    walk::{LISTED_MAX, Listed, NEWS_MAX, Walk, join},
};
use crate::host::loop_mount::missing;

#[derive(Default, Clone)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }

    fn wait(&self) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(10);
        while lock(&self.0).is_empty() {
            assert!(Instant::now() < end, "nothing was heard");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.take()
    }
}

impl Listener for Recorder {
    fn changed(&self, open: OpenId, changes: &[HostChange]) {
        for change in changes {
            let text = format!("{} {} {}", open.0, change.action, change.names.join("/"));
            lock(&self.0).push(text);
        }
    }

    fn lost(&self, open: OpenId) {
        lock(&self.0).push(format!("{} lost", open.0));
    }

    fn touched(&self, key: FileKey, touched: Touched) {
        lock(&self.0).push(format!("inode {} {touched:?}", key.ino));
    }
}

/// A folder with its root, the listener of its changes, and the thread that watches it.
fn started() -> (TempDir, LinuxFd, Recorder, HostChanges) {
    let folder = tempfile::tempdir().unwrap();
    let root = LinuxDisk::open(folder.path()).unwrap().root();
    let heard = Recorder::default();
    let changes = HostChanges::start(Arc::default(), heard.clone()).unwrap();
    (folder, root, heard, changes)
}

fn interest(open: u64, tree: bool) -> Interest {
    Interest::Changes {
        open: OpenId(open),
        user: CountedUser(open),
        tree,
    }
}

fn key(ino: u64) -> FileKey {
    FileKey {
        ino,
        ..FileKey::default()
    }
}

#[test]
fn lost_events_mean_that_all_look_anew() {
    let (_folder, root, heard, changes) = started();
    let interests = [
        (7, interest(1, false)),
        (7, interest(2, true)),
        (3, Interest::Caching { directory: false }),
        (4, Interest::Caching { directory: true }),
    ];
    let begin = |(ino, interest)| changes.begin(&root, key(ino), interest).unwrap();
    let guards = interests.map(begin);
    let lost = Event {
        watch: -1,
        flags: ReadFlags::QUEUE_OVERFLOW,
        cookie: 0,
        name: None,
    };
    judge(&changes.0, &heard, &[lost], &mut Listed::new());
    // The tree's loss is reported again when it has been walked again.
    let mut said = heard.take();
    said.sort();
    said.dedup();
    assert_eq!(
        said,
        [
            "1 lost",
            "2 lost",
            "inode 3 Data",
            "inode 3 Name",
            "inode 4 Entries",
            "inode 4 Name",
        ]
    );
    assert_eq!(changes.status().overflows, 1);
    assert_eq!(changes.status().watches, 1);
    drop(guards);
    assert_eq!(changes.status().watches, 0);
}

/// The kernel has no event of it as long as the server has the directory open.
#[test]
fn the_removal_of_an_open_directory_is_noticed() {
    let (folder, _root, heard, changes) = started();
    let cached = Interest::Caching { directory: true };
    let objects = [("watched", 7, interest(1, false)), ("cached", 8, cached)];
    let _guards = objects.map(|(name, ino, interest)| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let root = LinuxDisk::open(&path).unwrap().root();
        changes.begin(&root, key(ino), interest).unwrap()
    });
    look(&changes.0, &heard);
    assert_eq!(heard.take(), [""; 0]);
    for name in ["watched", "cached"] {
        std::fs::remove_dir(folder.path().join(name)).unwrap();
    }
    // It is said at each look, because a client may wait for changes there anew. The thread may look as well.
    for _ in 0..2 {
        look(&changes.0, &heard);
        let said = heard.take();
        for gone in ["inode 7 Gone", "inode 8 Gone"] {
            assert!(said.iter().any(|one| one == gone), "{said:?}");
        }
    }
}

#[test]
fn the_thread_looks_only_while_directories_are_watched_or_cached() {
    let (_folder, root, _, changes) = started();
    let table = || lock(&changes.0.table);
    let cached = Interest::Caching { directory: false };
    let _file = changes.begin(&root, key(8), cached).unwrap();
    assert!(!table().has_directories());
    let watched = [1, 2].map(|open| changes.begin(&root, key(7), interest(open, false)).unwrap());
    assert!(table().has_directories());
    assert_eq!(table().directories().len(), 1, "each of them once");
    drop(watched);
    assert!(!table().has_directories());
}

/// The kernel marks the path of a name that is gone; another name may end as the mark does.
#[test]
fn a_name_that_ends_like_a_removed_one_is_not_lost() {
    let (folder, root, heard, changes) = started();
    let disk = LinuxDisk::open(folder.path()).unwrap();
    let at = |name: &str| folder.path().join(name);
    let _guards = [("f", 3), ("f (deleted)", 4)].map(|(name, ino)| {
        std::fs::write(at(name), b"").unwrap();
        std::fs::hard_link(at(name), at(&format!("other {ino}"))).unwrap();
        let how = OpenHow {
            path_only: true,
            ..OpenHow::default()
        };
        let file = disk.open_now(&Identity::Service, &root, name.as_bytes(), how);
        let cached = Interest::Caching { directory: false };
        changes
            .begin(&file.unwrap().unwrap(), key(ino), cached)
            .unwrap()
    });
    let permissions = std::fs::metadata(at("f (deleted)")).unwrap().permissions();
    std::fs::set_permissions(at("f (deleted)"), permissions).unwrap();
    std::fs::remove_file(at("f")).unwrap();
    assert_eq!(heard.wait(), ["inode 3 Name"]);
}

/// Each of many watchers gets each change of a busy folder.
#[test]
fn changes_for_many_watchers_take_so_much_memory_and_no_more() {
    const NAME: usize = 255;
    const EVENTS: usize = NEWS_MAX / 2 / NAME;
    let (_folder, root, heard, changes) = started();
    let _guards = [1, 2].map(|open| changes.begin(&root, key(7), interest(open, false)).unwrap());
    let created = |number: usize| Event {
        // The first watch of an instance has this number.
        watch: 1,
        flags: ReadFlags::CREATE,
        cookie: 0,
        name: Some(format!("{number:0NAME$}").into_bytes().into()),
    };
    let events: Vec<Event> = (0..EVENTS).map(created).collect();
    judge(&changes.0, &heard, &events, &mut Listed::new());
    let said = heard.take();
    assert_eq!(said[0], "1 lost");
    // The changes for the first have made room for those of the second.
    assert!(said[1..].iter().all(|one| one.starts_with("2 1 ")));
    assert_eq!(said.len(), 1 + EVENTS);
}

#[test]
fn the_thread_ends_and_nothing_is_left() {
    let (folder, root, heard, changes) = started();
    let interest = interest(1, false);
    let guard = changes.begin(&root, key(7), interest).unwrap();
    std::fs::write(folder.path().join("f"), b"").unwrap();
    assert_eq!(heard.wait(), ["1 1 f"]);
    drop(guard);
    let shared = Arc::downgrade(&changes.0);
    drop(changes);
    let end = Instant::now() + Duration::from_secs(10);
    while shared.strong_count() > 0 {
        assert!(Instant::now() < end, "the thread goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A listener that ends the thread by a panic.
struct Broken;

impl Listener for Broken {
    fn changed(&self, _: OpenId, _: &[HostChange]) {
        panic!("as a bug would");
    }

    fn lost(&self, _: OpenId) {}

    fn touched(&self, _: FileKey, _: Touched) {}
}

#[test]
fn nothing_is_watched_where_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let root = LinuxDisk::open(folder.path()).unwrap().root();
    let changes = HostChanges::start(Arc::default(), Broken).unwrap();
    let _guard = changes.begin(&root, key(7), interest(1, false)).unwrap();
    assert!(changes.is_running());
    std::fs::write(folder.path().join("f"), b"").unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while changes.begin(&root, key(7), interest(2, false)).is_some() {
        assert!(Instant::now() < end, "it is watched");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!changes.is_running());
    assert_eq!(changes.status().interests, 1);
}

#[test]
fn what_may_not_be_watched_is_refused() {
    let (_folder, root, _, changes) = started();
    lock(&changes.0.table).set_max(0);
    let interest = interest(1, true);
    assert!(changes.begin(&root, key(7), interest).is_none());
    assert_eq!(changes.status().refused, 1);
    // The kernel is not to blame.
    assert!(lock(&changes.0.reasons).contains(&FULL.raw_os_error()));
    assert_eq!(changes.status().interests, 0);
    assert!(!changes.0.own.is_observed());
}

/// The kernel has one watch for an inode. On a remote file system it is set without the lock, and that may fail.
#[test]
fn a_watch_whose_use_ends_while_it_is_set_again_ends_if_that_fails() {
    let (_folder, root, _heard, _changes) = started();
    let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    let watches = || {
        let info = format!("/proc/self/fdinfo/{}", inotify.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        info.lines()
            .filter(|line| line.starts_with("inotify "))
            .count()
    };
    let inode = InodeId::of(&root).unwrap();
    let mut table = Table::default();
    let first = table.begin(&inotify, &root, key(1), interest(1, false));
    let [second, third] = [2, 3].map(|open| table.enter(&root, key(1), interest(open, false)));
    table.begin_set(inode).unwrap();
    table.begin_set(inode).unwrap();
    table.remove(&inotify, first.unwrap());
    for (id, left) in [(second, 1), (third, 0)] {
        let set = table.end_set(&inotify, id, inode, Err(Errno::IO));
        assert_eq!(set, Err(Errno::IO));
        assert_eq!(watches(), left);
    }
}

/// Each interest in a tree has the places of all directories of the tree.
#[test]
fn the_places_of_trees_take_so_much_memory_and_no_more() {
    let (folder, root, heard, changes) = started();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    let used = || lock(&changes.0.table).used();
    let guard = changes.begin(&root, key(7), interest(1, true)).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while changes.status().watches < 3 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let whole = used();
    std::fs::rename(folder.path().join("a"), folder.path().join("longer")).unwrap();
    while used() <= whole && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(used() > whole, "the places have moved");
    drop(guard);
    assert_eq!(used(), 0);
    lock(&changes.0.table).set_places_max(0);
    let guard = changes.begin(&root, key(7), interest(2, true)).unwrap();
    // The rename may still be reported to the first.
    while !heard.wait().contains(&"2 lost".to_owned()) {}
    assert_eq!(changes.status().refused, 1);
    assert_eq!(changes.status().watches, 1);
    drop(guard);
    assert_eq!(used(), 0);
}

#[test]
fn a_tree_leaves_watches_to_other_users_and_to_what_clients_cache() {
    let (folder, root, heard, changes) = started();
    for name in ["a", "b", "c", "d", "e"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    lock(&changes.0.table).set_max(8);
    let tree = changes.begin(&root, key(7), interest(1, true)).unwrap();
    assert_eq!(heard.wait(), ["1 lost"]);
    assert_eq!(
        changes.status().watches,
        4,
        "itself, and half of the others"
    );
    let second = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(second.path().join("a/b")).unwrap();
    let second = LinuxDisk::open(second.path()).unwrap().root();
    let _second = changes.begin(&second, key(9), interest(2, true)).unwrap();
    assert_eq!(heard.wait(), ["2 lost"]);
    assert_eq!(changes.status().watches, 6);
    let others = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let cached = others.each_ref().map(|other| {
        let other = LinuxDisk::open(other.path()).unwrap().root();
        changes.begin(&other, key(8), Interest::Caching { directory: true })
    });
    assert_eq!(cached.each_ref().map(Option::is_some), [true, true, false]);
    drop((tree, cached));
    assert_eq!(lock(&changes.0.table).counts(), (2, 1));
}

#[test]
fn watches_that_the_kernel_did_not_have_before_are_used() {
    let (_folder, root, _heard, changes) = started();
    lock(&changes.0.table).set_kernels_max(0);
    let cached = changes.begin(&root, key(7), Interest::Caching { directory: true });
    assert!(cached.is_some());
}

#[test]
fn a_walk_that_comes_late_means_look_yourself() {
    let (_folder, root, heard, changes) = started();
    let interest = interest(1, true);
    let shared = &changes.0;
    let id = lock(&shared.table).begin(&shared.inotify, &root, key(7), interest);
    // Nobody waits for the walk any more when it ends.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    drop(receiver);
    let mut walk = Walk::whole(id.unwrap(), Some(sender));
    walk.begun -= 2 * OBSERVE_MAX;
    shared.order(Job::Walk(walk));
    assert_eq!(heard.wait(), ["1 lost"]);
}

/// On a file system of another host or process, the watch itself may take long.
#[test]
fn a_watch_that_comes_late_means_look_yourself() {
    let (_folder, root, heard, changes) = started();
    let shared = &changes.0;
    let interest = interest(1, false);
    let id = lock(&shared.table).begin(&shared.inotify, &root, key(7), interest);
    let (sender, receiver) = tokio::sync::oneshot::channel();
    drop(receiver);
    let mut begun = Instant::now();
    begun -= 2 * OBSERVE_MAX;
    shared.watched(id.unwrap(), sender, begun);
    assert_eq!(heard.wait(), ["1 lost"]);
}

/// A walk may visit many new directories with many entries before events are read.
#[test]
fn the_entries_of_new_directories_take_so_much_memory_and_no_more() {
    let (folder, root, heard, changes) = started();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    std::fs::write(folder.path().join("d/f"), b"").unwrap();
    let shared = &changes.0;
    let interest = interest(1, true);
    let id = lock(&shared.table).begin(&shared.inotify, &root, key(7), interest);
    let id = id.unwrap();
    let listed = (1..LISTED_MAX).map(|number| (0, number.to_string().into_bytes().into()));
    let mut listed: Listed = listed.collect();
    for said in ["1 1 d/f", "1 lost"] {
        let walk = Walk::new_directory(id, join(&Arc::default(), b"d"), true);
        assert!(walk.go_on(shared, &heard, &mut listed).is_none());
        assert_eq!(heard.take(), [said]);
        assert_eq!(listed.len(), LISTED_MAX);
    }
}

/// Something mounted on a new directory; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf, kind: &str, options: &str) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", kind, "-o", options, "none"]);
        let mounted = mount.arg(&at).status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let _ = unmount.args(["-q", "-l"]).arg(&self.0).status();
    }
}

#[test]
fn a_file_system_that_hangs_below_a_tree_keeps_no_change_from_being_seen() {
    let (folder, root, heard, changes) = started();
    let at = |name: &str| folder.path().join(name);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(server) = rustix::fs::open("/dev/fuse", flags, Mode::empty()) else {
        return missing("FUSE");
    };
    // `mount` inherits it. Nobody answers what the kernel asks there.
    rustix::io::fcntl_setfd(&server, FdFlags::empty()).unwrap();
    let number = server.as_raw_fd();
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
    let hung = Mounted::new(at("hung"), "fuse", &options);
    rustix::io::fcntl_setfd(&server, FdFlags::CLOEXEC).unwrap();
    let local = Mounted::new(at("local"), "tmpfs", "size=1m");
    if hung.is_none() || local.is_none() {
        return missing("root, or mount");
    }
    std::fs::create_dir(at("local/below")).unwrap();
    let _guard = changes.begin(&root, key(7), interest(1, true)).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while changes.status().watches < 3 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(at("local/below/f"), b"").unwrap();
    assert_eq!(heard.wait(), ["1 1 local/below/f"]);
    assert_eq!(changes.status().watches, 3);
}

/// `/proc` counts as one, as every file system does that is not known to be local.
#[test]
fn of_a_tree_on_a_remote_file_system_only_the_directory_itself_is_watched() {
    let root = LinuxDisk::open(Path::new("/proc/sys/kernel"))
        .unwrap()
        .root();
    let changes = HostChanges::start(Arc::default(), Recorder::default()).unwrap();
    let observed = changes.begin(&root, key(7), interest(1, true)).unwrap();
    // It is set by another thread.
    assert_eq!(observed.ready.unwrap().blocking_recv(), Ok(()));
    assert_eq!(changes.status().watches, 1);
    let again = changes.begin(&root, key(7), interest(2, false)).unwrap();
    assert_eq!(again.ready.unwrap().blocking_recv(), Ok(()));
    drop(observed.guard);
    assert_eq!(changes.status().watches, 1);
    drop(again.guard);
    assert_eq!(changes.status().watches, 0);
}

/// More directories are added than the thread can walk: the tree is walked again, and then the
/// client must list it itself.
#[test]
fn more_work_than_there_is_room_for_means_the_whole_tree_anew() {
    let (folder, root, heard, changes) = started();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    let shared = &changes.0;
    // The thread does nothing from now on.
    let begin = lock(&shared.table).begin(&shared.inotify, &root, key(7), interest(1, true));
    let id = begin.unwrap();
    let held = lock(&shared.table);
    for _ in 0..2 * JOBS_MAX {
        let gone: super::table::Below = Arc::new([b"gone".as_slice().into()]);
        shared.follow(Walk::new_directory(id, gone, true));
    }
    let queued = lock(&shared.jobs).queued();
    assert!(queued <= JOBS_MAX, "{queued} walks wait");
    drop(held);
    assert_eq!(heard.wait(), ["1 lost"]);
    assert_eq!(changes.status().watches, 3);
}

/// However busy the files are: directories that come are watched at once.
#[test]
fn directories_that_come_are_watched_while_files_change() {
    const DIRECTORIES: usize = 2_000;
    let (folder, root, _, changes) = started();
    let _guard = changes.begin(&root, key(7), interest(1, true)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::fs::write(folder.path().join("busy"), b"x").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for number in 0..DIRECTORIES {
            std::fs::create_dir(folder.path().join(format!("d{number}"))).unwrap();
        }
        let end = Instant::now() + Duration::from_secs(30);
        let watched = || changes.status().watches;
        while watched() <= DIRECTORIES && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(watched(), 1 + DIRECTORIES);
    });
}
