//! Writes on NFS, which may report the failure of an earlier write-back.

use super::{cuts::mount, streams::open, *};
use crate::posix::SymlinkPolicy;

/// NFS reports a failed write-back to the next write through the same descriptor; a sync through it does not report
/// that again.
#[test]
fn a_stream_that_cannot_be_written_on_nfs_may_have_lost_earlier_data() {
    for nfs in [false, true] {
        let (disk, _) = sim(SimOptions {
            nfs,
            ..SimOptions::default()
        });
        let t = block_on(mount(disk.clone(), StreamStore::Depot));
        block_on(async {
            let file = t.file("f").await;
            let stream = open(&t, &file, "s").await;
            t.write(&stream, 0, &[7; 6000]).await;
            let lost = Arc::new(std::sync::Mutex::new(Vec::new()));
            let noted = Arc::clone(&lost);
            t.vfs.on_failed_sync(Box::new(move |node, error, by| {
                noted.lock().unwrap().push((node.key(), error, by));
            }));
            fail_once(&disk, SimOp::Write, 0, libc::ENOSPC);
            let (data, mode) = (Bytes::from_static(b"more"), WriteMode::default());
            let failed = t.vfs.write(&stream, 6000, data, mode).await;
            assert_eq!(failed, Err(VfsError::NoSpace));
            let expected: Vec<_> = nfs
                .then_some((file.key(), VfsError::NoSpace, FailedBy::Write))
                .into_iter()
                .collect();
            assert_eq!(*lost.lock().unwrap(), expected);
        });
    }
}

#[test]
fn a_durable_write_that_is_too_large_on_nfs_may_be_a_failed_sync() {
    for (nfs, expected) in [(false, VfsError::TooLarge), (true, VfsError::Io)] {
        let (disk, link) = sim(SimOptions {
            nfs,
            ..SimOptions::default()
        });
        let t = block_on(Case::new(disk.clone(), link));
        block_on(async {
            let file = t.file("f").await;
            fail_once(&disk, SimOp::Write, 0, libc::EFBIG);
            let looked = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let noted = Arc::clone(&looked);
            disk.set_hook(Some(Arc::new(move |op| {
                noted.fetch_or(op == SimOp::Look, std::sync::atomic::Ordering::Relaxed);
                None
            })));
            let (data, mode) = (Bytes::from_static(b"more"), WriteMode { durable: true });
            let failed = t.vfs.write(&file, 0, data, mode).await;
            disk.set_hook(None);
            assert_eq!(failed, Err(expected));
            // A local disk that fails the query counts as no NFS: it is not queried.
            assert_eq!(looked.load(std::sync::atomic::Ordering::Relaxed), nfs);
        });
    }
}

#[test]
fn links_are_hidden_where_a_listing_does_not_say_which_names_are_links() {
    let (disk, link) = sim(SimOptions {
        nfs: true,
        ..SimOptions::default()
    });
    let options = PosixOptions {
        symlinks: SymlinkPolicy::Hide,
        ..default_options()
    };
    block_on(async {
        conformance::symlinks_hidden(Case::with(disk, link, options).await).await;
    });
}

/// The server does not know the directory any more that a path leads through: it was removed on another machine, or the
/// whole export is lost.
#[test]
fn a_directory_that_nfs_has_lost_was_removed_if_the_root_is_still_there() {
    for (lost, path, listing) in [
        (false, VfsError::PathNotFound, VfsError::NotFound),
        (true, VfsError::Io, VfsError::Io),
    ] {
        let (disk, link) = sim(SimOptions {
            nfs: true,
            ..SimOptions::default()
        });
        let t = block_on(Case::new(disk.clone(), link));
        block_on(async {
            let dir = t.dir("d").await;
            t.file("d/f").await;
            let stale = |after| fail_once(&disk, SimOp::Look, after, libc::ESTALE);
            // The directory is opened and queried first.
            stale(2);
            if lost {
                stale(3);
            }
            assert_eq!(t.find("d/f").await.map(drop), Err(path));
            // It is opened again to be listed.
            stale(1);
            if lost {
                stale(2);
            }
            let listed = t.vfs.list(ME, &dir, 10).await;
            assert_eq!(listed.map(drop), Err(listing));
            assert!(t.is_there("d/f").await);
        });
    }
}
