//! The durable map over the simulated disk: cuts at every step, failing disks, decayed bytes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use vfs::{
    Disk, Env, Identity, VfsError,
    disk::OpenHow,
    sim::{Cut, Fault, FaultAction, Profile, SimDisk, SimOp},
};

use super::{
    sim::{TestEnv, ms},
    stores::{PROFILES, add_cuts, disk, run},
};
use crate::{
    Shape, segment_name, segment_number,
    store::{
        HANDLES, KEY_MAX, LogMap, MapChange, MapSpec, OpenedMap, QUEUE_MAX, ReadMap, Refusal,
        StoreError, VALUE_MAX, read_log_map,
        testing::{ALIGN, MAGIC, encode, group_bytes},
    },
};

const SPEC: MapSpec = MapSpec {
    shape: Shape {
        kind: "map",
        ..HANDLES.shape
    },
    ..HANDLES
};

type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

fn put(key: u8, value: u8) -> MapChange {
    MapChange::Put(vec![key], vec![value; usize::from(value)])
}

fn remove(key: u8) -> MapChange {
    MapChange::Remove(vec![key])
}

async fn open_with(
    disk: &SimDisk,
    env: &Arc<TestEnv>,
    spec: &'static MapSpec,
) -> Result<OpenedMap<SimDisk>, StoreError> {
    LogMap::open(disk.clone(), Arc::clone(env) as Arc<dyn Env>, spec).await
}

async fn open(disk: &SimDisk, env: &Arc<TestEnv>) -> OpenedMap<SimDisk> {
    let opened = open_with(disk, env, &SPEC).await;
    opened.unwrap()
}

fn plain(read: &ReadMap) -> Plain {
    let entries = read.entries.iter();
    entries
        .map(|entry| (entry.key.clone(), entry.value.clone()))
        .collect()
}

/// The newest segment.
async fn newest(disk: &SimDisk) -> String {
    let listed = disk.entries(&disk.root(), 100).await.unwrap();
    let numbers = listed
        .iter()
        .filter_map(|one| segment_number(&one.name, SPEC.shape.kind));
    segment_name(numbers.max().unwrap(), SPEC.shape.kind)
}

async fn bytes_of(disk: &SimDisk) -> Option<Vec<u8>> {
    let name = newest(disk).await;
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let root = disk.root();
    let opened = disk.open_at(&Identity::Service, &root, name.as_bytes(), how);
    let fd = opened.await.ok()?;
    let read = disk.read(&fd, 0, 16 << 20, Default::default()).await;
    Some(read.unwrap().to_vec())
}

/// The entries that a server finds if it starts on this disk.
fn found(disk: &SimDisk) -> Plain {
    let (disk, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let inner = Arc::clone(&env);
    run(&env, async move {
        let opened = open(&disk, &inner).await;
        assert_eq!(opened.damage, []);
        assert!(opened.entries.iter().all(|entry| !entry.doubtful));
        let entries = opened.entries.into_iter();
        entries.map(|entry| (entry.key, entry.value)).collect()
    })
}

#[test]
fn what_was_confirmed_survives_every_cut_and_every_crash_of_the_process() {
    for profile in PROFILES {
        let disk = disk(profile);
        // Images of every moment, with how many groups had been confirmed by then.
        type Images = Vec<(SimDisk, usize)>;
        let images: Arc<Mutex<Images>> = Arc::default();
        let confirmed: Arc<Mutex<usize>> = Arc::default();
        let (into, seen, from) = (Arc::clone(&images), Arc::clone(&confirmed), disk.clone());
        disk.set_hook(Some(Arc::new(move |_| {
            let confirmed = *seen.lock().unwrap();
            let mut images = into.lock().unwrap();
            let seed = Cut::Seed(images.len() as u64);
            for cut in [Cut::Nothing, Cut::Everything, seed] {
                images.push((from.cut(cut), confirmed));
            }
            images.push((from.crash_process(), confirmed));
            None
        })));
        let groups: Vec<Vec<MapChange>> = vec![
            vec![put(1, 10), put(2, 20)],
            vec![put(1, 11)],
            vec![remove(2), put(3, 30)],
            vec![],
            vec![put(2, 21), remove(1)],
            vec![remove(9)],
        ];
        // The map after each group.
        let mut states = vec![Plain::new()];
        for group in &groups {
            let mut next = states.last().unwrap().clone();
            for change in group.clone() {
                match change {
                    MapChange::Put(key, value) => _ = next.insert(key, value),
                    MapChange::Remove(key) => _ = next.remove(&key),
                }
            }
            states.push(next);
        }
        let env = Arc::new(TestEnv::default());
        let (inner, on) = (Arc::clone(&env), disk.clone());
        run(&env, async move {
            let mut map = open(&on, &inner).await.map;
            for (number, group) in groups.into_iter().enumerate() {
                if number % 2 == 0 {
                    // A new file, within the history.
                    map = open(&on, &inner).await.map;
                }
                map.change(group).await.unwrap();
                *confirmed.lock().unwrap() += 1;
            }
        });
        disk.set_hook(None);
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 80, "{}", images.len());
        for (image, confirmed) in images {
            let now = found(&image);
            // At most one group was under way: whole, or not at all.
            let next = states.get(confirmed + 1);
            assert!(
                now == states[confirmed] || Some(&now) == next,
                "{profile:?}: after {confirmed}: {now:?}"
            );
        }
    }
}

/// The one file of early builds becomes a segment, whatever is cut.
#[test]
fn the_file_of_an_older_version_is_taken_over() {
    let bytes = file(&[vec![put(1, 1), put(2, 2)], vec![remove(1), put(3, 3)]]);
    let wanted: Plain = [(vec![2], vec![2; 2]), (vec![3], vec![3; 3])].into();
    for profile in PROFILES {
        let disk = disk(profile);
        let env = Arc::new(TestEnv::default());
        let (on, inner, bytes) = (disk.clone(), Arc::clone(&env), bytes.clone());
        let images: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
        let (into, from) = (Arc::clone(&images), disk.clone());
        run(&env, async move {
            let (me, root) = (&Identity::Service, on.root());
            let how = OpenHow {
                write: true,
                create: Some(0o600),
                ..OpenHow::default()
            };
            let fd = on.open_at(me, &root, b"map", how).await.unwrap();
            on.write(&fd, 0, bytes.into(), false).await.unwrap();
            on.fsync(&fd).await.unwrap();
            on.fsync(&root).await.unwrap();
            on.set_hook(Some(Arc::new(move |_| {
                add_cuts(&mut into.lock().unwrap(), &from);
                None
            })));
            let map = open(&on, &inner).await.map;
            assert!(on.stat_at(&root, b"map").await.is_err(), "still there");
            map.change(vec![]).await.unwrap();
            on.set_hook(None);
        });
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 30, "{}", images.len());
        for image in images {
            assert_eq!(found(&image), wanted, "{profile:?}");
        }
    }
}

#[test]
fn a_full_file_is_followed_by_one_with_room() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let map = open(&on, &inner).await.map;
        let mut largest = 0;
        for i in 0..100u8 {
            let big = MapChange::Put(vec![i % 4], vec![i; 40_000]);
            map.change(vec![big]).await.unwrap();
            largest = largest.max(bytes_of(&on).await.unwrap().len());
        }
        let counts = map.counts();
        assert!((3..12).contains(&counts.log.segments), "{counts:?}");
        assert_eq!((counts.entries, counts.bytes), (4, 4 * 40_001));
        assert!(largest < 3 << 20, "{largest}");
    });
    let now = found(&disk.cut(Cut::Nothing));
    assert_eq!(now.len(), 4);
    assert_eq!(now[&vec![3]], vec![99; 40_000]);
}

#[test]
fn all_who_wait_share_one_write() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let map = open(&on, &inner).await.map;
        let before = map.counts().log.writes;
        let tasks: Vec<_> = (0..50).map(|i| map.change(vec![put(i, 1)])).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(map.counts().log.records, 50);
        assert!(map.counts().log.writes - before <= 2, "{:?}", map.counts());
    });
    assert_eq!(found(&disk.cut(Cut::Nothing)).len(), 50);
}

#[test]
fn a_disk_that_fails_is_reported_and_caught_up_with() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let map = open(&on, &inner).await.map;
        let fail = |on_op, times| {
            for _ in 0..times {
                on.inject(Fault {
                    on: on_op,
                    after: 0,
                    action: FaultAction::Fail(libc::EIO),
                });
            }
        };
        // One failed write: a new file takes it.
        fail(SimOp::Write, 1);
        map.change(vec![put(1, 1)]).await.unwrap();
        assert!(map.is_healthy());
        assert_eq!(map.counts().log.segments, 2);
        // The new one fails, too: that is reported, and the change is in force and stored later.
        fail(SimOp::Write, 2);
        assert_eq!(map.change(vec![put(2, 2)]).await, Err(VfsError::Io));
        assert!(!map.is_healthy());
        assert_eq!(map.counts().entries, 2);
        assert_eq!(
            map.change(vec![put(3, 3)]).await,
            Err(VfsError::Io),
            "resting"
        );
        on.clear_faults();
        assert_eq!(found(&on.cut(Cut::Nothing)).len(), 1);
        inner.sleep(ms(11_000)).await;
        inner.sleep(ms(1_000)).await;
        assert!(map.is_healthy());
        assert_eq!(found(&on.cut(Cut::Nothing)).len(), 3);
        // A change that is taken back before it could be stored is never seen.
        fail(SimOp::Write, 2);
        assert_eq!(map.change(vec![put(4, 4)]).await, Err(VfsError::Io));
        assert_eq!(map.change(vec![remove(4)]).await, Err(VfsError::Io));
        on.clear_faults();
        inner.sleep(ms(12_000)).await;
        assert_eq!(found(&on.cut(Cut::Nothing)).len(), 3);
    });
}

#[test]
fn beyond_its_limits_it_takes_nothing_and_gives_room_back() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let inner = Arc::clone(&env);
    run(&env, async move {
        const SMALL: MapSpec = MapSpec {
            entries: 3,
            bytes: 100,
            ..SPEC
        };
        let map = open_with(&disk, &inner, &SMALL).await.unwrap().map;
        map.change(vec![put(1, 10), put(2, 10), put(3, 10)])
            .await
            .unwrap();
        for refused in [
            vec![put(4, 1)],
            vec![put(1, 90)],
            vec![remove(1), put(4, 1), put(5, 1)],
            vec![MapChange::Put(Vec::new(), vec![1])],
            vec![MapChange::Put(vec![1; KEY_MAX + 1], vec![1])],
            vec![MapChange::Put(vec![1], vec![1; VALUE_MAX + 1])],
        ] {
            assert_eq!(map.change(refused).await, Err(VfsError::Exhausted));
        }
        let counts = map.counts();
        assert_eq!((counts.entries, counts.bytes), (3, 33));
        map.change(vec![remove(1), put(4, 1)]).await.unwrap();
        map.change(vec![put(2, 12)]).await.unwrap();
        map.change(vec![remove(2), remove(3), remove(4)])
            .await
            .unwrap();
        let counts = map.counts();
        assert_eq!((counts.entries, counts.bytes), (0, 0));
    });
}

fn file(groups: &[Vec<MapChange>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let mut out = Vec::new();
        for change in group {
            match change {
                MapChange::Put(key, value) => encode(&mut out, key, Some(value)),
                MapChange::Remove(key) => encode(&mut out, key, None),
            }
        }
        bytes.extend(group_bytes(MAGIC, 7, number as u32, &out));
    }
    bytes.resize(bytes.len() + 2048, 0);
    bytes
}

#[test]
fn a_torn_tail_is_dropped_and_a_bad_middle_casts_doubt() {
    let groups = [
        vec![put(1, 1), put(2, 2)],
        vec![put(3, 3)],
        vec![put(2, 5)],
        vec![put(4, 4)],
    ];
    let bytes = file(&groups);
    let read = read_log_map(&bytes).unwrap();
    assert_eq!((read.entries.len(), read.torn), (4, None));
    let mut torn = bytes.clone();
    torn[3 * ALIGN + 26..].fill(0);
    let read = read_log_map(&torn).unwrap();
    assert_eq!((read.entries.len(), read.damage.len()), (3, 0));
    assert_eq!(read.torn, Some(3 * ALIGN as u64));
    // A whole group that decayed to nothing is missed, too.
    for spoil in [1, ALIGN] {
        let mut bad = bytes.clone();
        bad[ALIGN..ALIGN + spoil].fill(0);
        let read = read_log_map(&bad).unwrap();
        assert_eq!(read.damage.len(), 1);
        let doubtful: Vec<(u8, bool)> = read
            .entries
            .iter()
            .map(|entry| (entry.key[0], entry.doubtful))
            .collect();
        assert_eq!(doubtful, [(1, true), (2, false), (4, false)]);
    }
    let mut newer = bytes;
    newer[3] = b'2';
    assert_eq!(read_log_map(&newer), Err(Refusal::Version));
    for strange in [&b"rubbish"[..], b"", b"HF"] {
        assert_eq!(read_log_map(strange), Err(Refusal::NotOurs));
    }
}

#[test]
fn a_damaged_file_is_kept_aside_and_its_doubtful_entries_are_not_taken() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let inner = Arc::clone(&env);
    run(&env, async move {
        let map = open(&disk, &inner).await.map;
        for i in 1..6 {
            map.change(vec![put(i, i)]).await.unwrap();
        }
        let how = OpenHow {
            write: true,
            read: true,
            ..OpenHow::default()
        };
        let (me, root) = (&Identity::Service, disk.root());
        let name = newest(&disk).await;
        let fd = disk.open_at(me, &root, name.as_bytes(), how).await.unwrap();
        let at = 3 * ALIGN as u64 + 30;
        disk.write(&fd, at, vec![0xAA].into(), false).await.unwrap();
        let opened = open(&disk, &inner).await;
        assert_eq!(opened.damage.len(), 1);
        let doubtful = opened.entries.iter().filter(|entry| entry.doubtful);
        assert_eq!(doubtful.count(), 2);
        assert_eq!(opened.map.counts().entries, 2);
        assert!(disk.stat_at(&root, b"map.refused").await.is_ok());
        // The next start finds nothing wrong.
        let again = open(&disk, &inner).await;
        assert_eq!((again.entries.len(), again.damage.len()), (2, 0));
        // A file that is not ours is left alone.
        let name = newest(&disk).await;
        let fd = disk.open_at(me, &root, name.as_bytes(), how).await.unwrap();
        disk.write(&fd, 0, vec![b'X'; 8].into(), false)
            .await
            .unwrap();
        let refused = open_with(&disk, &inner, &SPEC).await;
        assert_eq!(refused.err().unwrap().why, Refusal::NotOurs);
    });
}

/// The disk answers no write until this is taken away again.
fn hang(disk: &SimDisk) {
    disk.set_hook(Some(Arc::new(|call| {
        (call == SimOp::Write).then(|| Box::pin(std::future::pending()) as _)
    })));
}

#[test]
fn a_writer_or_a_retry_that_dies_with_its_worker_is_missed_by_nobody() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    let map = run(&env, async move {
        let map = open(&on, &inner).await.map;
        hang(&on);
        let told = map.change(vec![put(1, 1)]);
        inner.sleep(ms(1)).await;
        drop(told);
        map
    });
    // Its worker is gone.
    assert!(!map.is_healthy(), "nobody knows what was written");
    let (on, inner, again) = (disk.clone(), Arc::clone(&env), Arc::clone(&map));
    run(&env, async move {
        on.set_hook(None);
        let fail = Fault {
            on: SimOp::Write,
            after: 0,
            action: FaultAction::Fail(libc::EIO),
        };
        on.inject(fail);
        assert_eq!(again.change(vec![put(2, 2)]).await, Err(VfsError::Io));
        // So is the task that was to try again.
        let _ = inner;
    });
    let (inner, again) = (Arc::clone(&env), Arc::clone(&map));
    run(&env, async move {
        // The log is at rest now.
        assert_eq!(again.change(vec![]).await, Err(VfsError::Io));
        inner.sleep(ms(12_000)).await;
        assert!(again.is_healthy(), "nobody tries again");
    });
    assert_eq!(found(&disk.cut(Cut::Nothing)).len(), 2);
    // A writer that has never run.
    run(&env, {
        let map = Arc::clone(&map);
        async move { drop(map.change(vec![put(3, 3)])) }
    });
    let again = Arc::clone(&map);
    run(&env, async move { again.change(vec![]).await.unwrap() });
    assert_eq!(found(&disk.cut(Cut::Nothing)).len(), 3);
}

#[test]
fn a_worker_may_end_once_the_store_is_at_rest() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    let map = run(&env, async move {
        let map = open(&on, &inner).await.map;
        on.set_hook(Some(Arc::new(move |call| {
            (call == SimOp::Write).then(|| inner.sleep(ms(5)))
        })));
        // The mark behind its group is not written yet when this is answered.
        map.change(vec![put(1, 1)]).await.unwrap();
        map.at_rest().await;
        map
    });
    assert!(map.is_healthy(), "its writer died");
    let again = Arc::clone(&map);
    run(
        &env,
        async move { again.change(vec![remove(1)]).await.unwrap() },
    );
    assert_eq!(map.counts().log.segments, 1, "a segment was given up");
}

#[test]
fn a_disk_that_hangs_is_waited_for_in_bounds_and_nothing_is_forgotten() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let map = open(&on, &inner).await.map;
        map.change(vec![put(1, 1), put(2, 2)]).await.unwrap();
        let gate: Arc<Mutex<Option<Arc<tokio::sync::Semaphore>>>> = Arc::default();
        let passes = Arc::new(tokio::sync::Semaphore::new(0));
        *gate.lock().unwrap() = Some(Arc::clone(&passes));
        on.set_hook(Some(Arc::new(move |call| {
            let passes = gate.lock().unwrap().clone()?;
            (call == SimOp::Write)
                .then(|| Box::pin(async move { passes.acquire().await.unwrap().forget() }) as _)
        })));
        let first = map.change(vec![put(3, 3)]);
        inner.sleep(ms(1)).await;
        // A task that only waits for what came before has no place of its own.
        let waiting: Vec<_> = (0..100).map(|_| map.change(vec![])).collect();
        assert_eq!(map.queued(), (1, 100));
        drop(waiting);
        (0..100).for_each(|_| drop(map.change(vec![])));
        assert!(map.queued().1 <= 128, "{:?}", map.queued());
        for _ in 0..QUEUE_MAX + 10 {
            drop(map.change(vec![remove(1)]));
        }
        assert!(map.queued().0 <= QUEUE_MAX);
        // Beyond the bound the error is reported at once; the change holds and is not forgotten.
        assert_eq!(map.change(vec![remove(2)]).await, Err(VfsError::Io));
        assert_eq!(map.change(vec![put(4, 4)]).await, Err(VfsError::Io));
        assert_eq!(map.counts().entries, 2);
        passes.add_permits(1 << 20);
        first.await.unwrap();
        map.change(vec![]).await.unwrap();
    });
    disk.set_hook(None);
    let now = found(&disk.cut(Cut::Nothing));
    assert_eq!(now.keys().collect::<Vec<_>>(), [&vec![3], &vec![4]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let _ = read_log_map(&bytes);
        let _ = read_log_map(&group_bytes(MAGIC, 1, 0, &bytes));
    }

    /// One changed byte never makes up an entry, and every entry that it may concern is doubtful.
    #[test]
    fn one_byte_lies_about_nothing(
        groups in prop::collection::vec(
            prop::collection::vec((0u8..6, 0u8..20, any::<bool>()), 0..4), 2..6),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let groups: Vec<Vec<MapChange>> = groups
            .iter()
            .map(|group| group.iter().map(|(key, value, is_put)| {
                if *is_put { put(*key, *value) } else { remove(*key) }
            }).collect())
            .collect();
        let bytes = file(&groups);
        let at = at.index(bytes.len() - 2048);
        let whole = plain(&read_log_map(&bytes).unwrap());
        let before_last = plain(&read_log_map(&file(&groups[..groups.len() - 1])).unwrap());
        let mut bad = bytes;
        bad[at] ^= flip;
        let Ok(read) = read_log_map(&bad) else {
            prop_assert!(at < ALIGN);
            return Ok(());
        };
        if read.damage.is_empty() {
            // Padding, or the last group.
            let now = plain(&read);
            prop_assert!(now == whole || (read.torn.is_some() && now == before_last));
        }
        for entry in read.entries.iter().filter(|entry| !entry.doubtful) {
            if !read.damage.is_empty() {
                prop_assert_eq!(whole.get(&entry.key), Some(&entry.value));
            }
        }
    }
}
