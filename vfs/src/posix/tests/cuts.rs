//! Power losses and failures at every step: what was stable stays, what failed leaves nothing.

use super::{streams::open, *};
use crate::NewSecurity;
use crate::sim::{Cut, Profile};

const FIRST: &[u8] = b"stable since the flush";

pub(super) async fn remount(disk: SimDisk) -> Case<SimDisk> {
    mount(disk, StreamStore::Xattr).await
}

pub(super) async fn mount(disk: SimDisk, streams: StreamStore) -> Case<SimDisk> {
    let options = PosixOptions {
        streams,
        ..default_options()
    };
    Case::with(disk, Box::new(|_, _| {}), options).await
}

/// Where a stream of this size can be.
fn store_of(data: &[u8]) -> StreamStore {
    match data.len() {
        0..1000 => StreamStore::Xattr,
        _ => StreamStore::Depot,
    }
}

/// The one stream of `f`, whatever its name.
async fn only_stream(t: &Case<SimDisk>) -> Vec<u8> {
    let file = t.node("f").await;
    let all = t.vfs.streams(&file).await.unwrap();
    let name = &all.first().expect("a stream that was stable is gone").name;
    t.read(&open(t, &file, name).await).await
}

async fn with_stable_stream(profile: Profile, data: &[u8]) -> (Case<SimDisk>, PosixNode<SimDisk>) {
    let (disk, _) = sim(SimOptions {
        profile,
        ..SimOptions::default()
    });
    let t = mount(disk, store_of(data)).await;
    let file = t.file("f").await;
    let stream = open(&t, &file, "s").await;
    t.write(&stream, 0, data).await;
    t.vfs.sync(&stream, SyncScope::All).await.unwrap();
    t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
    (t, stream)
}

/// Cuts before each operation that `during` makes, and after the last.
fn cuts<F: Future<Output = ()>>(
    profile: Profile,
    data: &[u8],
    during: impl FnOnce(Rc<Case<SimDisk>>, PosixNode<SimDisk>) -> F,
) -> Vec<SimDisk> {
    let (t, stream) = block_on(with_stable_stream(profile, data));
    let t = Rc::new(t);
    let cuts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (disk, kept) = (t.vfs.disk().clone(), Arc::clone(&cuts));
    let take = move || {
        let mut kept = kept.lock().unwrap();
        kept.push(disk.cut(Cut::Nothing));
        kept.push(disk.cut(Cut::Everything));
        for _ in 0..40 {
            let seed = kept.len() as u64;
            kept.push(disk.cut(Cut::Seed(seed)));
        }
    };
    let hooked = take.clone();
    t.vfs.disk().set_hook(Some(Arc::new(move |op| {
        if !matches!(op, SimOp::Look | SimOp::Read) {
            hooked();
        }
        None
    })));
    block_on(during(Rc::clone(&t), stream));
    t.vfs.disk().set_hook(None);
    take();
    let cuts = std::mem::take(&mut *cuts.lock().unwrap());
    assert!(cuts.len() > 16, "nothing was cut");
    cuts
}

/// The same, and what the one stream of `f` holds after each.
fn cut_everywhere<F: Future<Output = ()>>(
    profile: Profile,
    data: &[u8],
    during: impl FnOnce(Rc<Case<SimDisk>>, PosixNode<SimDisk>) -> F,
    check: impl Fn(&[u8]),
) {
    for disk in cuts(profile, data, during) {
        check(&block_on(async { only_stream(&remount(disk).await).await }));
    }
}

/// No descriptor syncs it, and what a client set is stable all the same.
#[test]
fn the_times_of_a_special_file_are_stable_when_it_is_synced() {
    for folder in [false, true] {
        let (disk, _) = sim(SimOptions {
            profile: Profile::PosixMin,
            ..SimOptions::default()
        });
        block_on(async {
            let t = remount(disk.clone()).await;
            let (dir, path) = match folder {
                true => (t.dir("d").await, "d/p"),
                false => (t.vfs.root(), "p"),
            };
            disk.special(dir.fd(), b"p", libc::S_IFIFO).unwrap();
            t.vfs.sync(&dir, SyncScope::All).await.unwrap();
            t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
            let node = t.node(path).await;
            let at = Timestamp { secs: 7, nanos: 0 };
            let set = SetAttr {
                written: Some(at),
                ..SetAttr::default()
            };
            t.vfs.set_attr(ME, &node, &set).await.unwrap();
            t.vfs.sync(&node, SyncScope::All).await.unwrap();
            let after = remount(disk.cut(Cut::Nothing)).await;
            let node = after.node(path).await;
            assert_eq!(after.vfs.attr(&node).await.unwrap().written, at);
        });
    }
}

/// As above: the service may not open it.
#[test]
fn the_times_of_a_directory_that_cannot_be_opened_are_stable_when_it_is_synced() {
    let (disk, _) = sim(SimOptions {
        profile: Profile::PosixMin,
        ..SimOptions::default()
    });
    block_on(async {
        let t = remount(disk.clone()).await;
        t.dir("d").await;
        t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
        let node = t.node("d").await;
        let at = Timestamp { secs: 7, nanos: 0 };
        let set = SetAttr {
            written: Some(at),
            ..SetAttr::default()
        };
        t.vfs.set_attr(ME, &node, &set).await.unwrap();
        fail_once(&disk, SimOp::Look, 0, libc::EACCES);
        t.vfs.sync(&node, SyncScope::All).await.unwrap();
        let after = remount(disk.cut(Cut::Nothing)).await;
        let node = after.node("d").await;
        assert_eq!(after.vfs.attr(&node).await.unwrap().written, at);
    });
}

/// Nor may it read the extended attributes of it, among them the depot's mark.
#[test]
fn a_directory_that_a_service_without_root_may_not_read_is_synced() {
    let (disk, _) = sim(SimOptions {
        root_owner: (7, 7),
        service: (7, 7),
        ..SimOptions::default()
    });
    block_on(async {
        let t = remount(disk.clone()).await;
        let nodes = [t.dir("d").await, t.dir("d/in").await];
        for node in &nodes {
            disk.set_mode(ME, node.fd(), 0o300).await.unwrap();
        }
        for node in &nodes {
            t.vfs.sync(node, SyncScope::All).await.unwrap();
        }
    });
}

/// A file that a power cut brings back, because its removal was not stable, has its streams, even
/// at the place before a move that was not stable either.
#[test]
fn a_file_that_was_replaced_or_removed_is_whole_or_gone() {
    let big = vec![b'b'; 6000];
    let how = [(true, false), (false, false), (true, true), (false, true)];
    for profile in [Profile::PosixMin, Profile::Journal, Profile::LogTree] {
        for (replace, moved) in how {
            let old = Rc::new(std::cell::Cell::new(None));
            let found = Rc::clone(&old);
            let during = |t: Rc<Case<SimDisk>>, stream: PosixNode<SimDisk>| async move {
                found.set(Some(stream.key().ino));
                let (name, other) = if moved { ("d/f", "d/g") } else { ("f", "g") };
                if moved {
                    t.dir("d").await;
                    t.rename("f", "d/f", false).await.unwrap();
                }
                if replace {
                    t.file(other).await;
                    t.rename(other, name, true).await.unwrap();
                } else {
                    t.remove(name).await.unwrap();
                }
            };
            let (mut whole, mut gone) = (0, 0);
            for disk in cuts(profile, &big, during) {
                block_on(async {
                    let t = remount(disk).await;
                    let mut back = false;
                    for place in ["f", "d/f"] {
                        let found = t.find(place).await.ok().and_then(|looked| looked.found);
                        if let Some((file, ..)) = found
                            && Some(file.key().ino) == old.get()
                        {
                            back = true;
                            let all = t.vfs.streams(&file).await.unwrap();
                            let name = &all.first().expect("the stream is gone").name;
                            let data = t.read(&open(&t, &file, name).await).await;
                            assert_eq!(data, big, "{profile:?} {replace} {moved}");
                        }
                    }
                    whole += usize::from(back);
                    gone += usize::from(!back);
                });
            }
            assert!(
                whole > 0 && gone > 0,
                "{profile:?} {replace} {moved}: {whole} {gone}"
            );
        }
    }
}

#[test]
fn a_stable_stream_survives_its_move_to_the_depot() {
    for profile in [Profile::PosixMin, Profile::Journal, Profile::LogTree] {
        cut_everywhere(
            profile,
            FIRST,
            |t, _| async move {
                let t = mount(t.vfs.disk().clone(), StreamStore::Depot).await;
                let stream = open(&t, &t.node("f").await, "s").await;
                t.write(&stream, FIRST.len() as u64, &[9; 5000]).await;
            },
            |data| assert_eq!(data.get(..FIRST.len()), Some(FIRST), "{profile:?}"),
        );
    }
}

/// This is tested in both directions, and a repeated conversion completes the first.
#[test]
fn a_stable_stream_survives_conversions() {
    let medium = vec![b'm'; 2000];
    for profile in [Profile::PosixMin, Profile::Journal, Profile::LogTree] {
        for data in [FIRST, &medium] {
            let other = match store_of(data) {
                StreamStore::Xattr => StreamStore::Depot,
                StreamStore::Depot => StreamStore::Xattr,
            };
            let convert = |t: Rc<Case<SimDisk>>, _| async move {
                let t = mount(t.vfs.disk().clone(), other).await;
                let done = t.vfs.convert_streams(|_, _| {}).await.unwrap();
                assert_eq!((done.moved.streams, done.failed), (1, 0));
            };
            for disk in cuts(profile, data, convert) {
                block_on(async {
                    assert_eq!(only_stream(&remount(disk.clone()).await).await, data);
                    let t = mount(disk, other).await;
                    let done = t.vfs.convert_streams(|_, _| {}).await.unwrap();
                    assert!(done.moved.streams <= 1 && done.failed == 0);
                    assert_eq!(only_stream(&t).await, data, "{profile:?}");
                    let there = t.vfs.disk().list_xattr(t.node("f").await.fd()).await;
                    let attribute = |name: &String| name == "user.DosStream.s:$DATA";
                    let attributes = other == StreamStore::Xattr;
                    assert_eq!(there.unwrap().iter().any(attribute), attributes);
                });
            }
        }
    }
}

#[test]
fn a_stable_stream_survives_renames() {
    let big = vec![b'b'; 6000];
    for profile in [Profile::PosixMin, Profile::Journal, Profile::LogTree] {
        for data in [FIRST, &big] {
            // On the weakest disk that POSIX permits, no rename(2) is atomic.
            if profile == Profile::PosixMin && store_of(data) == StreamStore::Depot {
                continue;
            }
            let renames = |t: Rc<Case<SimDisk>>, stream| async move {
                let stream = t
                    .vfs
                    .rename_stream(ME, &stream, "other", false)
                    .await
                    .unwrap();
                t.vfs
                    .rename_stream(ME, &stream, "Third", false)
                    .await
                    .unwrap();
            };
            cut_everywhere(profile, data, renames, |got| {
                assert_eq!(got, data, "{profile:?}")
            });
        }
    }
}

/// Each operation of a rename fails in turn: the streams stay as they were, or the rename succeeds all the same.
#[test]
fn a_stream_whose_rename_fails_keeps_its_one_name() {
    for replaced in [None, Some("t"), Some("T")] {
        for on in [SimOp::Change, SimOp::Sync] {
            let failures = (0..10).filter(|after| renamed_with_a_fault(replaced, on, *after));
            assert!(failures.count() > 0, "{replaced:?} {on:?}");
        }
    }
}

/// The streams of `f` and their bytes.
async fn all_streams(t: &Case<SimDisk>) -> Vec<(String, Vec<u8>)> {
    let file = t.node("f").await;
    let mut all = Vec::new();
    for one in t.vfs.streams(&file).await.unwrap() {
        let data = t.read(&open(t, &file, &one.name).await).await;
        all.push((one.name, data));
    }
    all.sort_by_key(|(name, _)| name.to_lowercase());
    all
}

/// Renames a stream to `t` while an operation fails. Returns whether the rename failed.
fn renamed_with_a_fault(replaced: Option<&str>, on: SimOp, after: u64) -> bool {
    block_on(async {
        let disk = SimDisk::new(SimOptions::default());
        let t = remount(disk.clone()).await;
        let file = t.file("f").await;
        let stream = open(&t, &file, "s").await;
        t.write(&stream, 0, b"its bytes").await;
        if let Some(other) = replaced {
            t.write(&open(&t, &file, other).await, 0, b"other").await;
        }
        t.vfs.sync(&file, SyncScope::All).await.unwrap();
        t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
        fail_once(&disk, on, after, libc::EIO);
        let renamed = t.vfs.rename_stream(ME, &stream, "t", true).await;
        disk.clear_faults();
        let left = all_streams(&t).await;
        let as_before = |name: &str, data: &[u8]| (name.to_owned(), data.to_vec());
        let Ok(renamed) = renamed else {
            let mut before = vec![as_before("s", b"its bytes")];
            before.extend(replaced.map(|other| as_before(other, b"other")));
            assert_eq!(left, before, "{replaced:?} {on:?} {after}");
            // They were stable, and still are.
            let cut = remount(disk.cut(Cut::Nothing)).await;
            let left = all_streams(&cut).await;
            assert_eq!(left, before, "{replaced:?} {on:?} {after}");
            return true;
        };
        let name = renamed.stream().unwrap();
        assert!(name.eq_ignore_ascii_case("t"));
        assert_eq!(
            left,
            [as_before(name, b"its bytes")],
            "{replaced:?} {on:?} {after}"
        );
        false
    })
}

/// The stream that is replaced lies in an attribute, which would count before the depot.
#[test]
fn a_stable_stream_survives_a_rename_over_another_in_an_attribute() {
    let big = vec![b'b'; 6000];
    // On the weakest disk that POSIX permits, no rename(2) is atomic.
    for profile in [Profile::Journal, Profile::LogTree] {
        let rename = |t: Rc<Case<SimDisk>>, stream: PosixNode<SimDisk>| async move {
            let small = remount(t.vfs.disk().clone()).await;
            let file = small.node("f").await;
            let old = open(&small, &file, "t").await;
            small.write(&old, 0, b"old").await;
            small.vfs.sync(&old, SyncScope::All).await.unwrap();
            let renamed = t.vfs.rename_stream(ME, &stream, "t", true).await.unwrap();
            t.vfs.sync(&renamed, SyncScope::All).await.unwrap();
        };
        for disk in cuts(profile, &big, rename) {
            block_on(async {
                let t = remount(disk).await;
                let file = t.node("f").await;
                let all = t.vfs.streams(&file).await.unwrap();
                let there = all.iter().any(|stream| stream.name == "s");
                let name = if there { "s" } else { "t" };
                assert_eq!(
                    t.read(&open(&t, &file, name).await).await,
                    big,
                    "{profile:?}"
                );
            });
        }
    }
}

#[test]
fn a_flushed_stream_in_the_depot_is_stable() {
    let big = vec![b'b'; 100_000];
    for profile in [Profile::PosixMin, Profile::Journal, Profile::LogTree] {
        let (t, _) = block_on(with_stable_stream(profile, &big));
        let after = t.vfs.disk().cut(Cut::Nothing);
        assert_eq!(
            block_on(async { only_stream(&remount(after).await).await }),
            big
        );
    }
}

/// Each operation of a creation fails in turn: nothing is left, and then it works.
#[test]
fn creation_fails_at_every_step() {
    let sd = [
        1, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let new = NewNode {
        dos_attributes: 2,
        security: Some(NewSecurity::Given(sd.to_vec())),
        eas: vec![("a".into(), b"1".to_vec())],
        allocation: 8192,
        ..NewNode::default()
    };
    for directory in [false, true] {
        let mut failures = 0;
        for after in 0..100 {
            let (disk, link) = sim(SimOptions::default());
            let t = block_on(Case::new(disk, link));
            let root = t.vfs.root();
            fail_once(t.vfs.disk(), SimOp::Change, after, libc::EIO);
            let made = block_on(t.vfs.create(ME, &root, "x", &new, directory));
            t.vfs.disk().clear_faults();
            let dir = block_on(t.vfs.disk().reopen(ME, root.fd(), IoAccess::READ)).unwrap();
            let left = block_on(t.vfs.disk().entries(&dir, 9)).unwrap();
            if made.is_ok() {
                assert_eq!(left.len(), 1);
                break;
            }
            failures += 1;
            assert_eq!(made.unwrap_err(), VfsError::Io);
            assert!(left.is_empty(), "step {after} left {left:?}");
        }
        assert!(failures >= 4, "{failures}");
    }
}

/// The first stream in a share's depot puts a name into the root. That must not make stable that
/// another name was moved out of the root before its new place is stable.
#[test]
fn a_new_depot_takes_no_name_away() {
    let (disk, _) = sim(SimOptions::default());
    let t = Rc::new(block_on(mount(disk.clone(), StreamStore::Depot)));
    let file = block_on(async {
        let file = t.file("f").await;
        t.vfs.sync(&file, SyncScope::All).await.unwrap();
        t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
        t.dir("d").await;
        t.rename("f", "d/f", false).await.unwrap();
        file
    });
    let cuts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (on, kept) = (disk.clone(), Arc::clone(&cuts));
    disk.set_hook(Some(Arc::new(move |_| {
        kept.lock().unwrap().push(on.cut(Cut::Nothing));
        None
    })));
    block_on(async {
        let stream = open(&t, &file, "s").await;
        t.write(&stream, 0, &[7; 5000]).await;
    });
    disk.set_hook(None);
    let mut cuts = std::mem::take(&mut *cuts.lock().unwrap());
    cuts.push(disk.cut(Cut::Nothing));
    for (number, disk) in cuts.into_iter().enumerate() {
        let found = block_on(async {
            let t = remount(disk).await;
            let mut found = 0;
            for place in ["f", "d/f"] {
                let looked = t.find(place).await.ok().and_then(|looked| looked.found);
                found += usize::from(looked.is_some());
            }
            found
        });
        assert!(found > 0, "gone before operation {number}");
    }
}

/// If storing a descriptor fails, the old one stays.
#[test]
fn a_descriptor_that_is_refused_is_not_stored() {
    for after in 0..100 {
        let (disk, link) = sim(SimOptions::default());
        let t = block_on(Case::new(disk.clone(), link));
        let done = block_on(async {
            let file = t.file("f").await;
            fail_once(&disk, SimOp::Look, after, libc::EIO);
            let descriptor = super::meta::descriptor(1);
            let stored = t.vfs.set_security(ME, &file, &descriptor).await;
            disk.clear_faults();
            let is = t.vfs.security(&file, None).await.unwrap();
            assert_eq!(is.is_some(), stored.is_ok(), "{after}: {stored:?}");
            stored.is_ok()
        });
        if done {
            assert!(after > 0);
            return;
        }
    }
    panic!("never stored");
}

/// A step that is pending once.
pub(super) fn pending_once() -> crate::sim::SimYield {
    let mut first = true;
    Box::pin(std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    }))
}

/// The folder of a file's streams may be removed while a sync of the file reads it: nothing is left to
/// be made stable then, and the sync has not failed.
#[test]
fn a_sync_beside_the_removal_of_its_file_succeeds() {
    let big = vec![b'b'; 6000];
    let mut met = 0;
    for steps in 0..60 {
        block_on(async {
            let (t, _stream) = with_stable_stream(Profile::PosixMin, &big).await;
            let file = t.node("f").await;
            t.vfs
                .disk()
                .set_hook(Some(Arc::new(|_| Some(pending_once()))));
            let mut sync = std::pin::pin!(t.vfs.sync(&file, SyncScope::All));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let ended = (0..steps).any(|_| sync.as_mut().poll(&mut context).is_ready());
            t.vfs.disk().set_hook(None);
            if !ended {
                t.remove("f").await.unwrap();
                assert_eq!(sync.await, Ok(()), "removed at step {steps}");
                met += 1;
            }
        });
    }
    assert!(met > 5, "{met}");
}

/// A file that gets another name while its last one is removed or replaced keeps its streams.
#[test]
fn a_link_made_beside_the_removal_keeps_the_streams() {
    let big = vec![b'b'; 6000];
    let mut met = 0;
    for (steps, replace) in (0..60).flat_map(|steps| [(steps, false), (steps, true)]) {
        block_on(async {
            let (t, stream) = with_stable_stream(Profile::Journal, &big).await;
            let (file, root) = (t.node("f").await, t.vfs.root());
            let other = t.file("other").await;
            t.vfs
                .disk()
                .set_hook(Some(Arc::new(|_| Some(pending_once()))));
            let removal = async {
                match replace {
                    false => t.vfs.remove(ME, &file, &root, "f").await.map(drop),
                    true => {
                        let (replaced, vfs) = (Some(file.key()), &t.vfs);
                        vfs.rename(ME, &other, &root, "other", &root, "f", replaced)
                            .await
                    }
                }
            };
            let mut removal = std::pin::pin!(removal);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let ended = (0..steps).any(|_| removal.as_mut().poll(&mut context).is_ready());
            t.vfs.disk().set_hook(None);
            if !ended && t.vfs.link(ME, &file, &root, "g", None).await.is_ok() {
                assert_eq!(removal.await, Ok(()), "linked at step {steps}");
                assert_eq!(t.read(&stream).await, big, "linked at step {steps}");
                assert_eq!(t.read(&open(&t, &t.node("g").await, "s").await).await, big);
                met += 1;
            }
        });
    }
    assert!(met > 5, "{met}");
}

/// A removal or replacement syncs the file system before the streams go, and a name may be made meanwhile.
#[test]
fn a_removed_name_is_free_before_the_streams_of_its_file_are_gone() {
    for name in ["f", "other"] {
        removed_beside_a_creation(name);
    }
}

/// Removes `f`, or replaces it by `other`, and makes a file of the name that this frees.
fn removed_beside_a_creation(name: &str) {
    block_on(async {
        let (t, _stream) = with_stable_stream(Profile::Journal, &[b'b'; 6000]).await;
        let (file, root, new) = (t.node("f").await, t.vfs.root(), NewNode::default());
        let other = t.file("other").await;
        let hook = |op: SimOp| (op == SimOp::Sync).then(pending_once);
        t.vfs.disk().set_hook(Some(Arc::new(hook)));
        let removal = async {
            if name == "f" {
                return t.vfs.remove(ME, &file, &root, "f").await.map(drop);
            }
            let (replaced, vfs) = (Some(file.key()), &t.vfs);
            vfs.rename(ME, &other, &root, name, &root, "f", replaced)
                .await
        };
        let mut removal = std::pin::pin!(removal);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(removal.as_mut().poll(&mut context).is_pending());
        let mut creation = std::pin::pin!(t.new_file(name, &new));
        let made = creation.as_mut().poll(&mut context);
        assert!(matches!(made, std::task::Poll::Ready(Ok(_))));
        removal.await.unwrap();
        assert!(t.is_there(name).await);
    });
}

/// Folders of the depot are shared: one whose sync failed for the stream of one inode does not
/// lose that of another which is synced later.
#[test]
fn a_depot_folder_that_failed_loses_no_other_stream() {
    let big = vec![b'b'; 6000];
    let mut failed = 0;
    for after in 0..12 {
        let (disk, _) = sim(SimOptions::default());
        let t = block_on(mount(disk.clone(), StreamStore::Depot));
        block_on(async {
            let (one, two) = (t.file("one").await, t.file("two").await);
            t.vfs.sync(&t.vfs.root(), SyncScope::All).await.unwrap();
            fail_once(&disk, SimOp::Sync, after, libc::EIO);
            let how = StreamOpen::Either;
            let opened = t.vfs.open_stream(ME, &one, "s", how).await;
            failed += usize::from(opened.is_err());
            if let Ok((stream, _)) = opened {
                let stream = t.opened(&stream, true).await;
                let data = Bytes::copy_from_slice(&big);
                let plain = WriteMode::default();
                let written = t.vfs.write(&stream, 0, data, plain).await;
                failed += usize::from(written.is_err());
                failed += usize::from(t.vfs.sync(&stream, SyncScope::All).await.is_err());
            }
            disk.clear_faults();
            let stream = open(&t, &two, "s").await;
            t.write(&stream, 0, &big).await;
            t.vfs.sync(&stream, SyncScope::All).await.unwrap();
            let t = remount(disk.cut(Cut::Nothing)).await;
            let two = t.node("two").await;
            assert_eq!(t.read(&open(&t, &two, "s").await).await, big, "{after}");
        });
    }
    assert!(failed > 5, "{failed}");
}

/// A file system without extended attributes is distinguished from one whose disk fails.
#[test]
fn a_file_system_without_attributes_is_recognised() {
    let (disk, link) = sim(SimOptions::default());
    let t = block_on(Case::new(disk.clone(), link));
    block_on(async {
        let root = t.vfs.root();
        assert!(t.vfs.keeps_eas(&root).await && t.vfs.keeps_descriptors(&root).await);
        for (errno, keeps) in [(libc::EOPNOTSUPP, false), (libc::EIO, true)] {
            let fail = || {
                fail_once(&disk, SimOp::Look, 0, errno);
            };
            fail();
            assert_eq!(t.vfs.keeps_eas(&root).await, keeps);
            fail();
            assert_eq!(t.vfs.keeps_descriptors(&root).await, keeps);
        }
    });
}
