//! Names on disks that ignore case, and on those that lack a rename which replaces nothing.

use super::*;
use crate::{
    NewSecurity,
    sim::{SimFd, SimYield},
};

/// Gives an inode another name in the root as soon as a change is about to be made.
fn link_before_a_change(disk: &SimDisk, inode: &SimFd, name: &'static [u8]) {
    let (on, inode) = (disk.clone(), inode.clone());
    let linked = std::sync::atomic::AtomicBool::new(false);
    disk.set_hook(Some(Arc::new(move |op| {
        let first = op == SimOp::Change && !linked.swap(true, std::sync::atomic::Ordering::Relaxed);
        let (on, inode) = (on.clone(), inode.clone());
        let link = async move {
            let root = on.root();
            on.link(ME, &inode, &root, name).await.unwrap();
        };
        first.then(|| Box::pin(link) as SimYield)
    })));
}

/// A disk that ignores case finds a file under both cases of its name. Here a link has the other one.
#[test]
fn a_name_changes_its_case_on_a_disk_that_ignores_it() {
    for (by_link, refuses) in [(false, false), (true, false), (false, true), (true, true)] {
        let (disk, link) = sim(SimOptions::default());
        let t = block_on(Case::new(disk.clone(), link));
        block_on(async {
            let file = t.file("f").await;
            if refuses {
                // The first change makes the other case.
                fail_once(&disk, SimOp::Change, 1, libc::EINVAL);
            }
            link_before_a_change(&disk, file.fd(), b"F");
            let changed = match by_link {
                false => t.rename("f", "F", false).await,
                true => {
                    let (root, own) = (t.vfs.root(), Some(file.key()));
                    t.vfs.link(ME, &file, &root, "F", own).await
                }
            };
            disk.set_hook(None);
            assert_eq!(changed, Ok(()), "{by_link} {refuses}");
        });
    }
}

#[test]
fn a_name_that_is_taken_meanwhile_is_no_invalid_argument() {
    let (disk, link) = sim(SimOptions::default());
    let t = block_on(Case::new(disk.clone(), link));
    block_on(async {
        let file = t.file("f").await;
        // The first change makes the name.
        fail_once(&disk, SimOp::Change, 1, libc::EINVAL);
        link_before_a_change(&disk, file.fd(), b"g");
        let renamed = t.rename("f", "g", false).await;
        disk.set_hook(None);
        assert_eq!(renamed, Err(VfsError::Exists));
    });
}

/// A disk that ignores case finds one entry by both names, so none is removed. Here the other one is there only while
/// it is opened.
#[test]
fn one_name_that_is_found_in_two_cases_is_not_removed() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    for at in 0..20 {
        let (disk, link) = sim(SimOptions::default());
        let t = block_on(Case::new(disk.clone(), link));
        block_on(async {
            let file = t.file("f").await;
            let (on, inode, looks) = (disk.clone(), file.fd().clone(), AtomicU64::new(0));
            let made = Arc::new(AtomicBool::new(false));
            disk.set_hook(Some(Arc::new(move |op| {
                if op != SimOp::Look {
                    return None;
                }
                let look = looks.fetch_add(1, Relaxed);
                let (on, inode, made) = (on.clone(), inode.clone(), Arc::clone(&made));
                let other_case = async move {
                    let root = on.root();
                    if look == at {
                        let linked = on.link(ME, &inode, &root, b"F").await;
                        made.store(linked.is_ok(), Relaxed);
                    } else if look == at + 1 && made.load(Relaxed) {
                        on.unlink(ME, &root, b"F", false).await.unwrap();
                    }
                };
                Some(Box::pin(other_case) as SimYield)
            })));
            let (root, own) = (t.vfs.root(), Some(file.key()));
            let renamed = t.vfs.rename(ME, &file, &root, "f", &root, "F", own).await;
            disk.set_hook(None);
            let links = t.vfs.links(&file).await.unwrap();
            assert!(links > 0, "{at}: {renamed:?}");
        });
    }
}

/// NFS and many file systems of FUSE refuse a rename that must replace nothing. An object with a descriptor is made
/// under a temporary name, and gets its own all the same.
#[test]
fn an_object_is_made_whole_without_a_rename_that_replaces_nothing() {
    let describe = |_: Permissions| {
        let mut bare = vec![0; 20];
        (bare[0], bare[3]) = (1, 0x80);
        bare
    };
    let make = |fails: Option<u64>, directory: bool| {
        let (disk, link) = sim(SimOptions::default());
        let t = block_on(Case::new(disk.clone(), link));
        let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counted = Arc::clone(&count);
        disk.set_hook(Some(Arc::new(move |op| {
            let change = u64::from(op == SimOp::Change);
            counted.fetch_add(change, std::sync::atomic::Ordering::Relaxed);
            None
        })));
        if let Some(after) = fails {
            fail_once(&disk, SimOp::Change, after, libc::EINVAL);
        }
        let new = NewNode {
            security: Some(NewSecurity::Of(&describe)),
            ..NewNode::default()
        };
        let there = block_on(async {
            let root = t.vfs.root();
            let made = t.vfs.create(ME, &root, "f", &new, directory).await;
            made.unwrap();
            t.names("").await
        });
        disk.set_hook(None);
        assert_eq!(there, ["f"]);
        count.load(std::sync::atomic::Ordering::Relaxed)
    };
    for directory in [false, true] {
        // The rename is the last change.
        let changes = make(None, directory);
        assert_eq!(make(Some(changes - 1), directory), changes + 1);
    }
}
