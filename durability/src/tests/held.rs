//! Tests of the descriptors of a file that are held between its last handle and its sync: they do
//! not keep the file from being executed, and report failed write-back as the handle would have.

use std::sync::Arc;

use bytes::Bytes;
use vfs::{
    Attributes, Contents, Creation, Disk, Env, Identity, IoAccess, NamedStreams, Node, Paths,
    Range, SetAttr, StreamOpen, VfsError, Volume,
    disk::{Errno, OpenHow},
    posix::{PosixNode, PosixOptions, PosixVfs, StreamStore},
    sim::{Fault, FaultAction, Profile, SimDisk, SimOp, SimOptions},
};

use super::{
    flush::{PLAIN, THROUGH},
    opens::opener,
    sim::{TestEnv, ms},
    stores::{disk, run},
};
use crate::*;

const ME: &Identity = &Identity::Service;
const EIO: i32 = 5;
const EACCES: i32 = 13;
/// EFBIG, ENOSPC and EDQUOT.
const FULL: [i32; 3] = [27, 28, 122];

type Files = PosixVfs<SimDisk>;
type File = PosixNode<SimDisk>;

/// A share with the file `f`, of two blocks that are on disk.
struct Place {
    disk: SimDisk,
    vfs: Arc<Files>,
    engine: Arc<Durability<Files>>,
    gate: Arc<Gate<Files>>,
}

impl Place {
    async fn new(env: &Arc<TestEnv>, policy: Policy) -> Self {
        Self::on(disk(Profile::Journal), PosixOptions::default(), env, policy).await
    }

    async fn on(disk: SimDisk, options: PosixOptions, env: &Arc<TestEnv>, policy: Policy) -> Self {
        let vfs = Arc::new(Files::new(disk.clone(), options).await.unwrap());
        let engine = Durability::<Files>::new(Arc::clone(env) as Arc<dyn Env>, Limits::default());
        let settings = ShareDurability::with_policy(policy);
        let gate = engine.share("s", Arc::clone(&vfs), settings);
        let root = vfs.root();
        let made = vfs.create(ME, &root, "f", &Default::default(), false).await;
        let file = made.unwrap().0;
        let data = Bytes::from(vec![7; 8192]);
        vfs.write(&file, 0, data, Default::default()).await.unwrap();
        disk.sync_all();
        Self {
            disk,
            vfs,
            engine,
            gate,
        }
    }

    /// A handle on the file, for reading and writing.
    async fn open(&self) -> (File, OpenPolicy<Files>) {
        let found = self.vfs.lookup(ME, &["f".to_owned()]).await.unwrap();
        let found = found.found.unwrap().0;
        let access = IoAccess {
            read: true,
            write: true,
        };
        let open = self.gate.opened(&found, opener("f"));
        (self.vfs.open(ME, &found, access).await.unwrap(), open)
    }

    async fn close(&self, (file, open): (File, OpenPolicy<Files>)) {
        self.gate.closed(&file, PLAIN).await.unwrap();
        drop((open, file));
    }

    /// Changes contents as a client does, the way `number` says.
    async fn change(&self, file: &File, number: usize) {
        let (gate, vfs) = (&self.gate, &self.vfs);
        match number {
            0 => {
                let data = Bytes::from(vec![1; 4096]);
                drop(gate.write(file, 0, data, PLAIN).await.unwrap());
            }
            1 => {
                gate.watch_write_back(file).await;
                let begun = gate.begin(file);
                vfs.set_size(file, 5000).await.unwrap();
                drop(begun.resized(file, Some(5000), PLAIN).await.unwrap());
            }
            _ => {
                let mut change = gate.changing(file);
                gate.watch_write_back(file).await;
                let range = Range {
                    offset: 100,
                    len: 100,
                };
                vfs.zero(file, range).await.unwrap();
                change.touched(range);
                drop(change.end(PLAIN).await.unwrap());
            }
        }
    }

    /// The next operation of this kind fails.
    fn fail(&self, on: SimOp, errno: i32) {
        let action = FaultAction::Fail(errno);
        let after = 0;
        assert!(self.disk.inject(Fault { on, after, action }));
    }

    fn forbids_execution(&self, file: &File) -> Option<bool> {
        let held = |inode: &crate::dirty::Inode<Files>| inode.held_forbids_execution();
        self.engine.peek(file.key(), held)
    }
}

/// Runs a test at a share whose policy is `honor`.
fn placed<F: Future<Output = ()> + 'static>(test: impl FnOnce(Place) -> F + 'static) {
    let env = Arc::new(TestEnv::default());
    let at = Arc::clone(&env);
    run(&env, async move {
        test(Place::new(&at, Policy::Honor).await).await;
    });
}

fn lazy() -> [Policy; 3] {
    let bound = Bound::new(ms(60_000), 1 << 30).unwrap();
    [
        Policy::Honor,
        Policy::TreatHostAsStableStorage,
        Policy::Bounded(bound),
    ]
}

#[test]
fn a_failed_write_back_that_another_saw_is_reported_after_the_close() {
    for policy in lazy() {
        for number in 0..3 {
            let env = Arc::new(TestEnv::default());
            let at = Arc::clone(&env);
            run(&env, async move {
                let place = Place::new(&at, policy).await;
                let handle = place.open().await;
                let node = handle.0.clone();
                place.change(&node, number).await;
                assert!(place.disk.fail_write_back(EIO).is_some());
                // Somebody else on the host opens the file and syncs it, which reports the failure:
                // a descriptor that is opened from now on sees it no more.
                let root = place.disk.root();
                let how = OpenHow {
                    write: true,
                    ..OpenHow::default()
                };
                let other = place.disk.open_at(ME, &root, b"f", how).await.unwrap();
                assert_eq!(place.disk.fsync(&other).await, Err(Errno(EIO)));
                let late = place.disk.open_at(ME, &root, b"f", how).await.unwrap();
                assert_eq!(place.disk.fsync(&late).await, Ok(()));
                place.close(handle).await;
                assert_eq!(place.forbids_execution(&node), Some(false), "{policy}");
                let report = place.engine.sync_all().await;
                assert_eq!(report.failed, 1, "{policy}, change {number}");
                assert_eq!(place.gate.poisoned().len(), 1);
            });
        }
    }
}

/// The service may not read the file, and holds a node that was opened for its attributes alone.
#[test]
fn a_failed_write_back_after_a_new_size_is_reported_without_another_descriptor() {
    placed(|place| async move {
        let found = place.vfs.lookup(ME, &["f".to_owned()]).await.unwrap();
        let bare = found.found.unwrap().0;
        let set = place.gate.meta_changed(&bare, Meta::Attributes, PLAIN);
        drop(set.await.unwrap());
        let handle = place.open().await;
        place.fail(SimOp::Look, EACCES);
        place.change(&handle.0, 1).await;
        assert!(place.disk.fail_write_back(EIO).is_some());
        let how = OpenHow {
            write: true,
            ..OpenHow::default()
        };
        let root = place.disk.root();
        let other = place.disk.open_at(ME, &root, b"f", how).await.unwrap();
        assert_eq!(place.disk.fsync(&other).await, Err(Errno(EIO)));
        place.close(handle).await;
        assert_eq!(place.engine.sync_all().await.failed, 1);
    });
}

/// A WRITE on NFS reports the failure of an earlier write-back, and its descriptor does not report it again. The
/// service may not read the file, so no other descriptor is held.
#[test]
fn a_failed_write_back_that_a_write_reported_fails_the_flush() {
    for errno in FULL {
        placed(move |place| async move {
            let (file, open) = place.open().await;
            place.fail(SimOp::Look, EACCES);
            place.change(&file, 0).await;
            assert_eq!(place.forbids_execution(&file), Some(true));
            assert!(place.disk.fail_write_back(errno).is_some());
            // A write of the simulated disk reports nothing of the past: this sync does it in its place.
            assert_eq!(place.disk.fsync(file.fd()).await, Err(Errno(errno)));
            place.fail(SimOp::Write, errno);
            let error = VfsError::from(Errno(errno));
            let data = Bytes::from(vec![2; 4096]);
            let written = place.gate.write(&file, 4096, data, PLAIN).await;
            assert_eq!(written.unwrap_err(), error);
            let flushed = place.gate.flush(&file, FlushTarget::File, PLAIN).await;
            assert_eq!(flushed.unwrap_err(), error);
            // Both are written again.
            let data = Bytes::from(vec![3; 8192]);
            place.gate.write(&file, 0, data, PLAIN).await.unwrap();
            let flushed = place.gate.flush(&file, FlushTarget::File, PLAIN).await;
            assert!(flushed.is_ok());
            drop(open);
        });
    }
}

/// The call may have failed by itself. The changes that were dirty besides count as lost then, but may still be in the
/// page cache, and a bound may have been promised for them.
#[test]
fn what_was_dirty_beside_a_failed_write_through_is_synced_at_once() {
    let env = Arc::new(TestEnv::default());
    let at = Arc::clone(&env);
    run(&env, async move {
        let place = Place::new(&at, Policy::Honor).await;
        let (file, open) = place.open().await;
        place.change(&file, 0).await;
        assert_ne!(place.disk.pending(), 0);
        place.fail(SimOp::Write, 122);
        let data = Bytes::from(vec![2; 4096]);
        let written = place.gate.write(&file, 4096, data, THROUGH).await;
        assert_eq!(written.unwrap_err(), VfsError::QuotaExceeded);
        at.sleep(ms(1)).await;
        assert_eq!(place.disk.pending(), 0);
        assert_eq!(place.gate.poisoned().len(), 1);
        drop(open);
    });
}

/// As a WRITE does, so does a copy or a range of zeros that is written.
#[test]
fn a_failed_write_back_that_another_change_reported_fails_the_flush() {
    placed(|place| async move {
        let (file, open) = place.open().await;
        place.fail(SimOp::Look, EACCES);
        place.change(&file, 0).await;
        assert!(place.disk.fail_write_back(28).is_some());
        assert_eq!(place.disk.fsync(file.fd()).await, Err(Errno(28)));
        let mut change = place.gate.changing(&file);
        let range = Range {
            offset: 4096,
            len: 4096,
        };
        change.failed(range, VfsError::NoSpace);
        drop(change.end(PLAIN).await.unwrap());
        let flushed = place.gate.flush(&file, FlushTarget::File, PLAIN).await;
        assert_eq!(flushed.unwrap_err(), VfsError::NoSpace);
        drop(open);
    });
}

/// Any file system may be full, and a failure of write-back is left to the descriptor that is held for the sync.
#[test]
fn a_full_disk_poisons_no_file_that_another_descriptor_is_held_of() {
    placed(|place| async move {
        let (file, open) = place.open().await;
        place.change(&file, 0).await;
        assert_eq!(place.forbids_execution(&file), Some(false));
        place.fail(SimOp::Write, 28);
        let data = Bytes::from(vec![2; 4096]);
        let written = place.gate.write(&file, 4096, data, PLAIN).await;
        assert_eq!(written.unwrap_err(), VfsError::NoSpace);
        let flushed = place.gate.flush(&file, FlushTarget::File, PLAIN).await;
        assert!(flushed.is_ok());
        drop(open);
    });
}

/// A full disk fails the write of a stream in the depot, which on NFS may have reported the failure of an earlier
/// write-back instead: that can have lost only what is dirty, or an earlier part of the same change (a copy).
#[test]
fn a_full_disk_poisons_no_stream_on_nfs_that_is_clean() {
    for (dirty, in_parts) in [(false, false), (true, false), (false, true)] {
        let env = Arc::new(TestEnv::default());
        let at = Arc::clone(&env);
        run(&env, async move {
            let disk = SimDisk::new(SimOptions {
                nfs: true,
                ..SimOptions::default()
            });
            let options = PosixOptions {
                streams: StreamStore::Depot,
                ..PosixOptions::default()
            };
            let place = Place::on(disk, options, &at, Policy::Honor).await;
            let (file, open) = place.open().await;
            let made = place.vfs.open_stream(ME, &file, "s", StreamOpen::New).await;
            let stream = made.unwrap().0;
            if dirty {
                place.change(&stream, 0).await;
            }
            place.fail(SimOp::Write, 28);
            let data = Bytes::from(vec![2; 4096]);
            if in_parts {
                let change = place.gate.changing(&stream);
                let written = place.vfs.write(&stream, 4096, data, Default::default());
                assert_eq!(written.await, Err(VfsError::NoSpace));
                drop(change);
            } else {
                let written = place.gate.write(&stream, 4096, data, PLAIN).await;
                assert_eq!(written.unwrap_err(), VfsError::NoSpace);
            }
            assert_eq!(place.gate.poisoned().len(), usize::from(dirty || in_parts));
            drop(open);
        });
    }
}

/// The first folder of the depot needs a sync of the whole file system. That reports the failed write-back of any file,
/// and no later server process sees it.
#[test]
fn a_failed_sync_of_the_file_system_poisons_everything_dirty_on_it() {
    for policy in lazy() {
        let env = Arc::new(TestEnv::default());
        let at = Arc::clone(&env);
        run(&env, async move {
            let options = PosixOptions {
                streams: StreamStore::Depot,
                ..PosixOptions::default()
            };
            let place = Place::on(disk(Profile::Journal), options, &at, policy).await;
            let root = place.vfs.root();
            let new = Default::default();
            let clean = place.vfs.create(ME, &root, "clean", &new, false).await;
            let clean = clean.unwrap().0;
            place.disk.sync_all();
            let (file, open) = place.open().await;
            place.change(&file, 0).await;
            let under_way = place.gate.begin(&clean);
            place.fail(SimOp::Sync, EIO);
            let made = place.vfs.open_stream(ME, &file, "s", StreamOpen::New).await;
            assert_eq!(made.err(), Some(VfsError::Io));
            let unproven = |node: &File| {
                let all = place.gate.poisoned().into_iter();
                let mut own = all.filter(|poisoned| poisoned.key == node.key());
                own.next().map(|poisoned| poisoned.unproven_bytes())
            };
            assert_eq!((unproven(&file), unproven(&clean)), (Some(4096), None));
            // It may have dropped a change that nobody had marked yet.
            under_way
                .metadata_changed(&clean, Meta::Attributes, PLAIN)
                .await;
            assert_eq!(unproven(&clean), Some(0), "{policy}");
            drop(open);
        });
    }
}

#[test]
fn a_sync_beside_a_change_leaves_what_is_held() {
    placed(|place| async move {
        let handle = place.open().await;
        let node = handle.0.clone();
        place.change(&node, 0).await;
        let mut change = place.gate.changing(&node);
        place.gate.watch_write_back(&node).await;
        // Background work syncs in this way: it does not wait for what is under way.
        let synced = place.engine.sync_one(node.key(), None).await;
        assert_eq!(synced, Ok(()));
        let range = Range { offset: 0, len: 1 };
        place.vfs.zero(&node, range).await.unwrap();
        change.touched(range);
        drop(change.end(PLAIN).await.unwrap());
        place.disk.fail_write_back(EIO).unwrap();
        place.close(handle).await;
        assert_eq!(place.forbids_execution(&node), Some(false));
        assert_eq!(place.engine.sync_all().await.failed, 1);
    });
}

#[test]
fn metadata_alone_forbids_nobody_to_run_the_file() {
    placed(|place| async move {
        let handle = place.open().await;
        let node = handle.0.clone();
        let begun = place.gate.begin(&node);
        let hidden = SetAttr {
            dos_attributes: Some(2),
            ..SetAttr::default()
        };
        place.vfs.set_attr(ME, &node, &hidden).await.unwrap();
        drop(
            begun
                .metadata_changed(&node, Meta::Attributes, PLAIN)
                .await
                .unwrap(),
        );
        place.close(handle).await;
        assert_eq!(place.forbids_execution(&node), Some(false));
        assert_eq!(place.engine.sync_all().await.failed, 0);
        assert_eq!(place.forbids_execution(&node), None, "nothing is held");
    });
}

/// One descriptor for each handle, however often it is synced in between.
#[test]
fn what_is_held_is_opened_once_for_a_handle() {
    placed(|place| async move {
        let (node, open) = place.open().await;
        let first = place.vfs.keeper(&node).await.unwrap();
        for _ in 0..3 {
            place.change(&node, 0).await;
            assert_eq!(place.engine.sync_all().await.failed, 0);
            let before = place.disk.counts();
            assert!(place.vfs.keeper(&node).await.is_some());
            assert_eq!(place.disk.counts(), before, "nothing is opened");
        }
        assert!(!first.forbids_execution());
        assert!(place.vfs.keeper(&first).await.is_none());
        drop(open);
    });
}
