//! Truncations, zeros and reservations: what they leave on the disk, and what a full or simple file system makes of
//! them.

use super::{
    cuts::{pending_once, remount},
    *,
};
use crate::sim::{Cut, Profile};

/// A simulated disk with this profile, and the back end on it.
fn on(profile: Profile) -> (SimDisk, Case<SimDisk>) {
    let (disk, link) = sim(SimOptions {
        profile,
        ..SimOptions::default()
    });
    let t = block_on(Case::new(disk.clone(), link));
    (disk, t)
}

/// A file is truncated, which is made stable, and grows again: after a power cut none of the
/// removed data reappear.
#[test]
fn a_cut_file_never_shows_what_was_cut_off() {
    for profile in [Profile::PosixMin, Profile::Journal, Profile::LogTree] {
        // The second time it grows by a write beyond its end.
        for by_writing in [false, true] {
            let (disk, t) = on(profile);
            block_on(async {
                let file = t.file("f").await;
                t.write(&file, 0, &[7; 6000]).await;
                t.vfs.sync(&file, SyncScope::All).await.unwrap();
                t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
                t.vfs.set_size(&file, 5000).await.unwrap();
                t.vfs.sync(&file, SyncScope::All).await.unwrap();
                match by_writing {
                    false => t.vfs.set_size(&file, 20_000).await.unwrap(),
                    true => t.write(&file, 12_288, &[7; 4096]).await,
                }
            });
            let mut grown = 0;
            for seed in 0..200 {
                let left = disk.cut(Cut::Seed(seed));
                block_on(async {
                    let t = remount(left).await;
                    let file = t.node("f").await;
                    let data = t.read(&t.opened(&file, false).await).await;
                    grown += usize::from(data.len() > 5000);
                    assert!(data[..5000].iter().all(|b| *b == 7), "{profile:?} {seed}");
                    let hole = data.get(5000..data.len().min(12_288)).unwrap_or_default();
                    assert!(
                        hole.iter().all(|b| *b == 0),
                        "{profile:?} {by_writing} {seed}"
                    );
                });
            }
            assert!(grown > 10, "{profile:?}: {grown}");
        }
    }
}

#[test]
fn a_truncation_that_fails_removes_nothing() {
    let (disk, t) = on(Profile::LogTree);
    block_on(async {
        let file = t.file("f").await;
        t.write(&file, 0, &[7; 6000]).await;
        fail_once(&disk, SimOp::Change, 0, libc::ENOSPC);
        let failed = t.vfs.set_size(&file, 5000).await;
        assert_eq!(failed, Err(VfsError::NoSpace));
        assert_eq!(t.read(&file).await, [7; 6000]);
        t.vfs.set_size(&file, 5000).await.unwrap();
        assert_eq!(t.read(&file).await, [7; 5000]);
    });
}

#[test]
fn a_truncation_that_fails_keeps_data_written_beside_it() {
    let (disk, t) = on(Profile::LogTree);
    block_on(async {
        let file = t.file("f").await;
        t.write(&file, 0, &[7; 6000]).await;
        fail_once(&disk, SimOp::Change, 0, libc::ENOSPC);
        disk.set_hook(Some(Arc::new(|op| {
            (op == SimOp::Change).then(pending_once)
        })));
        let mut truncation = std::pin::pin!(t.vfs.set_size(&file, 5000));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(truncation.as_mut().poll(&mut context).is_pending());
        t.write(&file, 5500, &[0; 100]).await;
        assert_eq!(truncation.await, Err(VfsError::NoSpace));
        disk.set_hook(None);
        let expected = [vec![7_u8; 5500], vec![0; 100], vec![7; 400]].concat();
        assert_eq!(t.read(&file).await, expected);
    });
}

/// A full disk may have no room for the zeros; the file is truncated all the same.
#[test]
fn a_truncation_succeeds_whose_tail_cannot_be_zeroed() {
    let (disk, t) = on(Profile::LogTree);
    block_on(async {
        let file = t.file("f").await;
        t.write(&file, 0, &[7; 6000]).await;
        fail_once(&disk, SimOp::Change, 1, libc::ENOSPC);
        t.vfs.set_size(&file, 5000).await.unwrap();
        assert_eq!(t.read(&file).await, [7; 5000]);
    });
}

/// A file system that cannot punch holes: a hole is not filled to make it read as zeros.
#[test]
fn zeroing_allocates_nothing() {
    let (disk, t) = on(Profile::PosixMin);
    block_on(async {
        let file = t.file("f").await;
        t.write(&file, 0, &[7; 8192]).await;
        t.write(&file, 64 << 20, &[7; 8192]).await;
        for after in 0..2 {
            fail_once(&disk, SimOp::Change, after, libc::EOPNOTSUPP);
        }
        let range = Range {
            offset: 4096,
            len: 1 << 40,
        };
        t.vfs.zero(&file, range).await.unwrap();
        disk.clear_faults();
        let attr = t.vfs.attr(&file).await.unwrap();
        assert_eq!(attr.size, (64 << 20) + 8192);
        assert!(attr.allocated <= 16384, "{}", attr.allocated);
        let at = |offset| t.vfs.read(&file, offset, 8192, BytesMut::new());
        let (start, end) = (at(0).await.unwrap(), at(64 << 20).await.unwrap());
        assert!(start[..4096].iter().all(|b| *b == 7) && start[4096..].iter().all(|b| *b == 0));
        assert!(end.len() == 8192 && end.iter().all(|b| *b == 0));
    });
}

#[test]
fn zeros_are_written_in_pieces() {
    let (disk, t) = on(Profile::PosixMin);
    block_on(async {
        let file = t.file("f").await;
        t.write(&file, 0, &vec![7; 200_000]).await;
        fail_once(&disk, SimOp::Change, 0, libc::EOPNOTSUPP);
        let range = Range {
            offset: 1,
            len: 199_998,
        };
        t.vfs.zero(&file, range).await.unwrap();
        let data = t.read(&file).await;
        assert_eq!(data.len(), 200_000);
        assert_eq!((data[0], data[199_999]), (7, 7));
        assert!(data[1..199_999].iter().all(|b| *b == 0));
    });
}

/// A new file that asks for more space than there is takes none, not even for a moment.
#[test]
fn a_reservation_beyond_the_free_space_is_not_tried() {
    let changes = |allocation| {
        let (disk, t) = on(Profile::PosixMin);
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&count);
        disk.set_hook(Some(Arc::new(move |op| {
            let change = u32::from(op == SimOp::Change);
            counted.fetch_add(change, std::sync::atomic::Ordering::Relaxed);
            None
        })));
        let new = NewNode {
            allocation,
            ..NewNode::default()
        };
        block_on(async {
            match t.new_file("f", &new).await {
                Ok(_) => t.remove("f").await.unwrap(),
                Err(error) => assert_eq!(error, VfsError::NoSpace),
            }
            assert!(!t.is_there("f").await);
        });
        disk.set_hook(None);
        count.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!(changes(1 << 40), changes(0));
    assert_eq!(changes(8192), changes(0) + 1);
}

/// On a file system that cannot reserve space, the size is only a hint, also for a file that exists already.
#[test]
fn a_reservation_that_the_file_system_lacks_does_nothing() {
    let (disk, t) = on(Profile::PosixMin);
    block_on(async {
        let file = t.file("f").await;
        t.write(&file, 0, &[7; 8192]).await;
        fail_once(&disk, SimOp::Change, 0, libc::EOPNOTSUPP);
        t.vfs.allocate(&file, 1 << 20).await.unwrap();
        let attr = t.vfs.attr(&file).await.unwrap();
        assert!(attr.size == 8192 && attr.allocated < 1 << 20);
        // The fault has hit the reservation: the next one is made.
        t.vfs.allocate(&file, 1 << 20).await.unwrap();
        assert!(t.vfs.attr(&file).await.unwrap().allocated >= 1 << 20);
    });
}
