//! What black-box tests cannot bring about: events that the kernel lost, and the thread's end.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::fs::inotify::ReadFlags;
use smb_server::{
    file::{HostChange, OpenId, Touched},
    outside::{Interest, OBSERVE_MAX},
};
use vfs::{
    FileKey,
    disk::Disk,
    sys::{OwnChanges, SysDisk},
};

use super::{
    HostChanges, Job, Listener, lock,
    read::{Event, judge},
    walk::{Told, Walk},
};

#[derive(Default, Clone)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
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

impl Listener for Heard {
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

fn key(ino: u64) -> FileKey {
    FileKey {
        ino,
        ..FileKey::default()
    }
}

#[test]
fn lost_events_mean_that_all_look_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = SysDisk::open(folder.path()).unwrap().root();
    let heard = Heard::default();
    let own = Arc::new(OwnChanges::default());
    let changes = HostChanges::start(own, heard.clone()).unwrap();
    let interests = [
        Interest::Changes {
            open: OpenId(1),
            tree: false,
        },
        Interest::Changes {
            open: OpenId(2),
            tree: true,
        },
        Interest::Caching {
            key: key(3),
            directory: false,
        },
        Interest::Caching {
            key: key(4),
            directory: true,
        },
    ];
    let guards = interests.map(|interest| changes.begin(&root, interest).unwrap());
    let lost = Event {
        watch: -1,
        flags: ReadFlags::QUEUE_OVERFLOW,
        cookie: 0,
        name: None,
    };
    judge(&changes.0, &heard, &[lost], &mut Told::new());
    assert_eq!(
        heard.take(),
        [
            "1 lost",
            "2 lost",
            "inode 3 Data",
            "inode 3 Name",
            "inode 4 Name",
            "inode 4 Entries"
        ]
    );
    assert_eq!(changes.status()["overflows"], 1);
    assert_eq!(changes.status()["watches"], 1);
    drop(guards);
    assert_eq!(changes.status()["watches"], 0);
}

#[test]
fn the_thread_ends_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let root = SysDisk::open(folder.path()).unwrap().root();
    let heard = Heard::default();
    let changes = HostChanges::start(Arc::default(), heard.clone()).unwrap();
    let interest = Interest::Changes {
        open: OpenId(1),
        tree: false,
    };
    let guard = changes.begin(&root, interest).unwrap();
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

#[test]
fn what_may_not_be_watched_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = SysDisk::open(folder.path()).unwrap().root();
    let changes = HostChanges::start(Arc::default(), Heard::default()).unwrap();
    lock(&changes.0.table).set_max(0);
    let interest = Interest::Changes {
        open: OpenId(1),
        tree: true,
    };
    assert!(changes.begin(&root, interest).is_none());
    assert_eq!(changes.status()["refused"], 1);
    assert_eq!(changes.status()["interests"], 0);
}

#[test]
fn a_walk_that_comes_late_means_look_yourself() {
    let folder = tempfile::tempdir().unwrap();
    let root = SysDisk::open(folder.path()).unwrap().root();
    let heard = Heard::default();
    let changes = HostChanges::start(Arc::default(), heard.clone()).unwrap();
    let interest = Interest::Changes {
        open: OpenId(1),
        tree: true,
    };
    let shared = &changes.0;
    let id = lock(&shared.table).begin(&shared.inotify, &root, interest);
    // Nobody waits for the walk any more when it ends.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    drop(receiver);
    let mut walk = Walk::whole(id.unwrap(), Some(sender));
    walk.begun -= 2 * OBSERVE_MAX;
    shared.order(Job::Walk(walk));
    assert_eq!(heard.wait(), ["1 lost"]);
}
