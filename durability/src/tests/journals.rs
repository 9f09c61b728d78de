//! The journal over the simulated disk: no acknowledged flush is missing after any cut, and the
//! exposure records bound what was acknowledged.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::BytesMut;
use proptest::prelude::*;
use vfs::{
    Disk, Env, FileKey, Identity, Timestamp,
    disk::OpenHow,
    sim::{Cut, Fault, FaultAction, Profile, SimDisk, SimOp},
};

use super::{
    sim::{TestEnv, join, ms},
    stores::{PROFILES, disk, run},
};
use crate::{
    share::lock,
    store::testing::{ALIGN, JOURNAL, PAYLOAD_MAX, group_bytes},
    *,
};

pub(super) const SMALL: Shape = Shape {
    segment_bytes: 64 << 10,
    segments: 3,
    ..FLUSHES
};

pub(super) fn about() -> StartRecord {
    StartRecord {
        boot: "boot".into(),
        server: "1".into(),
        shares: vec![ShareRoot {
            name: "data".into(),
            root: "/srv".into(),
        }],
        ..StartRecord::default()
    }
}

async fn open(disk: &SimDisk, env: &Arc<TestEnv>, shape: Shape) -> Arc<JournalFile<SimDisk>> {
    let env: Arc<dyn Env> = Arc::clone(env) as _;
    JournalFile::open(disk.clone(), env, shape, about())
        .await
        .unwrap()
}

/// As [`open`], with the exposure of a share to record.
async fn open_with_source(disk: &SimDisk, env: &Arc<TestEnv>) -> Arc<JournalFile<SimDisk>> {
    let journal = open(disk, env, SMALL).await;
    let source = DirtySource(Mutex::default(), Arc::clone(env));
    journal.set_source(Arc::new(source));
    journal
}

fn flush(n: u64) -> FlushRecord {
    FlushRecord {
        at: Timestamp::default(),
        share: "data".into(),
        key: FileKey {
            fs: 0,
            ino: n,
            generation: 1,
        },
        stream: String::new(),
        path: format!("f{n}"),
        size: 1,
        sequence: n,
        policy: Policy::Honor,
        bytes: 1,
        directory: false,
    }
}

pub(super) async fn segments(disk: &SimDisk) -> Vec<Segment> {
    let (me, root) = (&Identity::Service, disk.root());
    let listed = disk.entries(&root, 1000).await.unwrap();
    let mut numbers: Vec<(u64, Box<[u8]>)> = listed
        .into_iter()
        .filter_map(|entry| Some((segment_number(&entry.name, FLUSHES.kind)?, entry.name)))
        .collect();
    numbers.sort();
    let mut all = Vec::new();
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    for (_, name) in numbers {
        let fd = disk.open_at(me, &root, &name, how).await.unwrap();
        let mut buf = BytesMut::new();
        loop {
            let before = buf.len();
            buf = disk.read(&fd, before as u64, 1 << 20, buf).await.unwrap();
            if buf.len() == before {
                break;
            }
        }
        all.push(read_segment(&buf));
    }
    all
}

/// Every record in order; damage fails the test.
fn records(disk: &SimDisk) -> Vec<JournalRecord> {
    let (disk, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let all = run(&env, async move { segments(&disk).await });
    let mut records = Vec::new();
    for segment in all {
        assert_eq!(segment.damage, []);
        records.extend(segment.records);
    }
    records
}

fn flushed(records: &[JournalRecord]) -> BTreeSet<u64> {
    let flushes = records.iter().filter_map(|record| match record {
        JournalRecord::Flushed(flush) => Some(flush.sequence),
        _ => None,
    });
    flushes.collect()
}

#[test]
fn no_acknowledged_flush_is_missing_after_any_cut() {
    for profile in PROFILES {
        let disk = disk(profile);
        type Images = Vec<(SimDisk, BTreeSet<u64>, BTreeSet<u64>)>;
        let images: Arc<Mutex<Images>> = Arc::default();
        // Synced, and acknowledged.
        let seen: Arc<Mutex<(BTreeSet<u64>, BTreeSet<u64>)>> = Arc::default();
        let (into, told, from) = (Arc::clone(&images), Arc::clone(&seen), disk.clone());
        let step = Arc::new(Mutex::new(0_u64));
        disk.set_hook(Some(Arc::new(move |op| {
            *lock(&step) += 1;
            if !matches!(op, SimOp::Write | SimOp::Sync | SimOp::Change) || lock(&told).0.is_empty()
            {
                return None;
            }
            let (synced, acknowledged) = lock(&told).clone();
            let cut = match *lock(&step) {
                step if step % 2 == 0 => Cut::Nothing,
                step => Cut::Seed(step),
            };
            lock(&into).push((from.cut(cut), synced, acknowledged));
            None
        })));
        let env = Arc::new(TestEnv::default());
        let (on, inner, told) = (disk.clone(), Arc::clone(&env), Arc::clone(&seen));
        run(&env, async move {
            let journal = open(&on, &inner, SMALL).await;
            // 8 clients of 20 flushes each, enough for the third segment to be made.
            let client = |client: u64| {
                let (journal, told) = (Arc::clone(&journal), Arc::clone(&told));
                Box::pin(async move {
                    for n in 0..20 {
                        let mut record = flush(client * 20 + n);
                        record.path = "x".repeat(800);
                        lock(&told).0.insert(record.sequence);
                        journal.flushed(record).await.unwrap();
                        lock(&told).1.insert(client * 20 + n);
                    }
                }) as vfs::env::LocalTask
            };
            join(&inner, (0..8).map(client).collect()).await;
            assert!(journal.counts().segments >= 3);
            assert!(journal.counts().writes < 100, "{:?}", journal.counts());
        });
        disk.set_hook(None);
        let images = std::mem::take(&mut *lock(&images));
        assert!(images.len() > 25, "{}", images.len());
        for (image, synced, acknowledged) in images {
            let found = flushed(&records(&image));
            assert!(found.is_superset(&acknowledged), "{profile:?}");
            assert!(found.is_subset(&synced), "claims what was not done");
        }
        assert_eq!(flushed(&records(&disk.cut(Cut::Nothing))).len(), 160);
    }
}

#[test]
fn a_failed_segment_is_left_and_a_dead_disk_holds_nobody_back() {
    let disk = disk(PROFILES[0]);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let journal = open(&on, &inner, SMALL).await;
        let fault = |on_op, after| Fault {
            on: on_op,
            after,
            action: FaultAction::Fail(libc::EIO),
        };
        journal.flushed(flush(1)).await.unwrap();
        on.inject(fault(SimOp::Sync, 0));
        journal.flushed(flush(2)).await.unwrap();
        assert_eq!(journal.counts().segments, 2);
        assert!(journal.is_healthy());
        // The new segment fails too.
        on.inject(fault(SimOp::Sync, 0));
        on.inject(fault(SimOp::Sync, 0));
        journal.flushed(flush(3)).await.unwrap_err();
        assert!(!journal.is_healthy());
        assert_eq!(journal.counts().failed, 1);
        // This fails at once, without a request to the disk.
        let before = on.counts().1;
        journal.flushed(flush(5)).await.unwrap_err();
        assert_eq!(on.counts().1, before);
        inner.sleep(ms(1500)).await;
        journal.flushed(flush(4)).await.unwrap();
        assert!(journal.is_healthy() && on.counts().1 > before);
        journal.stop(true).await.unwrap();
    });
    let all = records(&disk.cut(Cut::Nothing));
    // The third record may have reached the disk all the same.
    assert!(flushed(&all).is_superset(&BTreeSet::from([1, 2, 4])));
    let gap = |record: &JournalRecord| matches!(record, JournalRecord::Gap { lost: 2, .. });
    assert!(all.iter().any(gap), "the gap is told");
    assert!(matches!(
        all.last(),
        Some(JournalRecord::Stop { stable: true, .. })
    ));
}

#[test]
fn a_disk_that_hangs_holds_back_one_reply_and_loses_nothing() {
    let disk = disk(PROFILES[0]);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let journal = open_with_source(&on, &inner).await;
        let clock = Arc::clone(&inner);
        on.set_hook(Some(Arc::new(move |_| Some(clock.sleep(ms(20_000))))));
        let begun = inner.monotonic();
        journal.flushed(flush(1)).await.unwrap_err();
        assert_eq!(inner.monotonic() - begun, ms(5000));
        journal.flushed(flush(2)).await.unwrap_err();
        let cover = journal.cover("data", 1, inner.monotonic()).unwrap();
        cover.await.unwrap_err();
        assert_eq!(inner.monotonic() - begun, ms(5000));
        assert!(!journal.is_healthy());
        on.set_hook(None);
        inner.sleep(ms(30_000)).await;
        journal.flushed(flush(3)).await.unwrap();
        assert!(journal.is_healthy());
        assert_eq!(journal.counts().failed, 0);
    });
    assert_eq!(flushed(&records(&disk.cut(Cut::Nothing))).len(), 3);
}

#[test]
fn old_segments_go_and_a_new_run_begins_a_new_one() {
    let disk = disk(PROFILES[0]);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let journal = open(&on, &inner, SMALL).await;
        for n in 0..600 {
            journal.flushed(flush(n)).await.unwrap();
        }
        assert!(segments(&on).await.len() <= SMALL.segments);
        let journal = open(&on, &inner, SMALL).await;
        journal.flushed(flush(600)).await.unwrap();
        let all = segments(&on).await;
        assert!(all.len() <= SMALL.segments);
        let mut starts = all.iter().map(|segment| match segment.records.first() {
            Some(JournalRecord::Start(start)) => (start.first, start.run),
            other => panic!("{other:?}"),
        });
        assert!(starts.next_back().unwrap().0);
        let numbers: Vec<u64> = all.iter().map(|segment| segment.number.unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]));
    });
}

#[test]
fn promised_flushes_are_noted_soon_and_wait_for_nobody() {
    let disk = disk(PROFILES[0]);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let journal = open(&on, &inner, SMALL).await;
        let groups = journal.counts().writes;
        for n in 0..20 {
            journal.promised(flush(n));
        }
        inner.sleep(ms(300)).await;
        assert_eq!(journal.counts().writes - groups, 1);
    });
    let all = records(&disk.cut(Cut::Nothing));
    let promised = all
        .iter()
        .filter(|record| matches!(record, JournalRecord::Promised(_)));
    assert_eq!(promised.count(), 20);
}

/// A share with the exposure that the test sets.
#[derive(Default)]
struct DirtySource(Mutex<(u64, Duration)>, Arc<TestEnv>);

impl ExposureSource for DirtySource {
    fn exposure_of(&self, share: &str) -> Option<ExposureRecord> {
        let (bytes, since) = *lock(&self.0);
        Some(ExposureRecord {
            at: Timestamp {
                secs: self.1.monotonic().as_secs() as i64,
                nanos: self.1.monotonic().subsec_nanos(),
            },
            share: share.to_owned(),
            policy: Policy::TreatHostAsStableStorage,
            exposure: Exposure {
                bytes,
                inodes: bytes.min(1),
                oldest_age: if bytes == 0 {
                    Duration::ZERO
                } else {
                    self.1.monotonic() - since
                },
                ..Exposure::default()
            },
            allowance: bytes,
            lease: Duration::ZERO,
            files: Vec::new(),
        })
    }
}

/// The bound that the last exposure record gives: bytes, from when, until when.
pub(super) fn bound(records: &[JournalRecord]) -> Option<(u64, Duration, Duration)> {
    records.iter().rev().find_map(|record| match record {
        JournalRecord::Exposure(record) => {
            let at = Duration::new(record.at.secs as u64, record.at.nanos);
            let oldest = at.saturating_sub(record.exposure.oldest_age);
            Some((record.allowance, oldest, at + record.lease))
        }
        _ => None,
    })
}

#[test]
fn what_is_acknowledged_is_always_within_the_last_durable_record() {
    for profile in PROFILES {
        let disk = disk(profile);
        let env = Arc::new(TestEnv::default());
        let (on, inner) = (disk.clone(), Arc::clone(&env));
        run(&env, async move {
            let journal = open(&on, &inner, SMALL).await;
            let source = Arc::new(DirtySource(Mutex::default(), Arc::clone(&inner)));
            journal.set_source(Arc::clone(&source) as _);
            let mut waited = 0;
            // Writes of 1 MiB, 20 ms apart, with syncs and with pauses longer than the lease.
            for n in 0..400_u64 {
                let now = inner.monotonic();
                let bytes = {
                    let mut dirty = lock(&source.0);
                    if n % 90 == 89 {
                        *dirty = (0, now);
                    }
                    if dirty.0 == 0 {
                        dirty.1 = now;
                    }
                    dirty.0 += 1 << 20;
                    dirty.0
                };
                if let Some(task) = journal.cover("data", bytes, now) {
                    waited += 1;
                    task.await.unwrap();
                }
                // The reply leaves: the worst legal image must allow for it.
                let image = on.cut(Cut::Nothing);
                let mut all = Vec::new();
                for segment in segments(&image).await {
                    all.extend(segment.records);
                }
                let (allowance, oldest, until) = bound(&all).expect("a record");
                assert!(bytes <= allowance, "{profile:?} {n}: {bytes} > {allowance}");
                assert!(now <= until, "{n}: {now:?} > {until:?}");
                assert!(oldest <= lock(&source.0).1 + ms(1), "{n}: {oldest:?}");
                inner.sleep(ms(20)).await;
                if n % 130 == 129 {
                    inner.sleep(LEASE * 2).await;
                }
            }
            assert!((1..60).contains(&waited), "{waited}");
            // Everything is synced: the last record says so, and after it no more are written.
            *lock(&source.0) = (0, inner.monotonic());
            inner.sleep(LEASE * 4).await;
            let mut all = Vec::new();
            for segment in segments(&on.cut(Cut::Nothing)).await {
                all.extend(segment.records);
            }
            let (allowance, oldest, until) = bound(&all).unwrap();
            assert_eq!(allowance, 0);
            assert_eq!(oldest, until);
            let groups = journal.counts().writes;
            inner.sleep(LEASE * 10).await;
            assert_eq!(journal.counts().writes, groups);
            // The next change is covered by a new record.
            assert!(journal.cover("data", 1, inner.monotonic()).is_some());
        });
    }
}

#[test]
fn a_change_that_nothing_bounds_is_not_covered() {
    let disk = disk(PROFILES[0]);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let journal = open_with_source(&on, &inner).await;
        for _ in 0..2 {
            on.inject(Fault {
                on: SimOp::Sync,
                after: 0,
                action: FaultAction::Fail(libc::EIO),
            });
        }
        let task = journal.cover("data", 1, inner.monotonic()).unwrap();
        task.await.unwrap_err();
        assert!(journal.cover("data", 1, inner.monotonic()).is_some());
        inner.sleep(ms(1500)).await;
        let task = journal.cover("data", 1, inner.monotonic()).unwrap();
        task.await.unwrap();
        assert!(journal.cover("data", 1, inner.monotonic()).is_none());
    });
}

/// The lease of a record begins when the exposure is looked at, and not when the record is stored.
#[test]
fn a_record_that_is_stored_too_late_covers_nothing() {
    let disk = disk(PROFILES[0]);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let journal = open_with_source(&on, &inner).await;
        let clock = Arc::clone(&inner);
        // The record is stored before a reply may wait no longer.
        let slow = move |op: SimOp| (op == SimOp::Write).then(|| clock.sleep(LEASE + ms(500)));
        on.set_hook(Some(Arc::new(slow)));
        let task = journal.cover("data", 1, inner.monotonic()).unwrap();
        task.await.unwrap_err();
        on.set_hook(None);
        inner.sleep(ms(10_000)).await;
        let task = journal.cover("data", 1, inner.monotonic()).unwrap();
        task.await.unwrap();
    });
}

/// A disk that is full for a while, and one that takes segments and no groups: neither removes a
/// segment that holds flushes, and no file is left over.
#[test]
fn segments_that_fail_push_out_none_that_hold_flushes() {
    for (on_op, after) in [(SimOp::Write, 0), (SimOp::Sync, 0), (SimOp::Change, 1)] {
        let disk = disk(Profile::PosixMin);
        let env = Arc::new(TestEnv::default());
        let (on, at) = (disk.clone(), Arc::clone(&env));
        let (files, all) = run(&env, async move {
            let journal = open(&on, &at, SMALL).await;
            journal.flushed(flush(1)).await.unwrap();
            for _ in 0..6 {
                for times in [4, 8] {
                    for n in 0..times {
                        let action = FaultAction::Fail(libc::ENOSPC);
                        on.inject(Fault {
                            on: on_op,
                            after: after + n,
                            action,
                        });
                    }
                    let _ = journal.flushed(flush(2)).await;
                    on.clear_faults();
                    at.sleep(ms(1100)).await;
                }
            }
            at.sleep(ms(2000)).await;
            journal.flushed(flush(3)).await.unwrap();
            let names = on.entries(&on.root(), 100).await;
            (names.unwrap().len(), segments(&on).await)
        });
        let of = |record: &JournalRecord| match record {
            JournalRecord::Flushed(flush) => Some(flush.sequence),
            _ => None,
        };
        let kept = all.iter().flat_map(|one| &one.records).filter_map(of);
        let kept: BTreeSet<u64> = kept.collect();
        assert!(
            kept.contains(&1) && kept.contains(&3),
            "{on_op:?}: {kept:?}"
        );
        assert!(files <= SMALL.segments + 1, "{on_op:?}: {files} files");
    }
}

fn start() -> JournalRecord {
    JournalRecord::Start(StartRecord {
        run: [3; 16],
        first: true,
        ..about()
    })
}

fn grouped(segment: u64, number: u32, payload: &[u8]) -> Vec<u8> {
    group_bytes(JOURNAL, segment, number, payload)
}

/// A segment of `n` groups of two records each, and 2 KiB of zeros.
fn segment(n: u32) -> (Vec<u8>, Vec<JournalRecord>) {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    for number in 0..n {
        let mut both = vec![
            JournalRecord::Flushed(flush(u64::from(number) * 2)),
            JournalRecord::Flushed(flush(u64::from(number) * 2 + 1)),
        ];
        if number == 0 {
            both.insert(0, start());
        }
        let payload: Vec<u8> = both.iter().flat_map(JournalRecord::encode).collect();
        bytes.extend(grouped(5, number, &payload));
        records.extend(both);
    }
    bytes.resize(bytes.len() + 2048, 0);
    (bytes, records)
}

#[test]
fn what_was_written_is_read() {
    let (bytes, records) = segment(6);
    let read = read_segment(&bytes);
    assert_eq!(read.number, Some(5));
    assert_eq!(read.records, records);
    assert_eq!((read.damage, read.torn), (vec![], None));
    assert_eq!(read_segment(&[]), Segment::default());
    assert_eq!(read_segment(&[0; 4096]), Segment::default());
}

#[test]
fn a_torn_end_is_no_damage() {
    let (bytes, records) = segment(4);
    let last = bytes.len() - 2048 - ALIGN;
    for cut in [1, 24, 100, 180] {
        let mut torn = bytes.clone();
        torn[last + cut..].fill(0);
        let read = read_segment(&torn);
        assert_eq!(read.records, records[..7], "{cut}");
        assert_eq!((read.damage, read.torn), (vec![], Some(last as u64)));
    }
    // The file is shorter than it was made.
    let read = read_segment(&bytes[..last + 100]);
    assert_eq!(read.records, records[..7]);
    assert_eq!(read.torn, Some(last as u64));
}

#[test]
fn a_bad_middle_is_reported_and_the_rest_is_read() {
    let (bytes, records) = segment(4);
    let at = (bytes.len() - 2048) / 4;
    let middle = at.div_ceil(ALIGN) * ALIGN;
    let mut bad = bytes.clone();
    bad[middle + 40] ^= 1;
    let read = read_segment(&bad);
    assert_eq!(read.damage.len(), 1);
    assert_eq!(read.damage[0].offset, middle as u64);
    assert_eq!(read.records.len(), records.len() - 2);
    // A group of another segment (an old file's blocks) is not taken.
    let mut old = bytes;
    let strange = grouped(4, 1, &JournalRecord::Flushed(flush(9)).encode());
    old[middle..middle + strange.len()].copy_from_slice(&strange);
    assert_eq!(read_segment(&old).damage.len(), 1);
    let mut newer = segment(1).0;
    newer[3] = b'3';
    assert!(read_segment(&newer).other_version);
}

#[test]
fn what_only_looks_like_groups_costs_no_more_than_the_bound() {
    // Every sector begins with a head that claims the longest payload.
    let mut bytes = vec![0x55; 4 << 20];
    for at in (0..bytes.len()).step_by(ALIGN) {
        bytes[at..at + 4].copy_from_slice(JOURNAL);
        bytes[at + 4..at + 8].copy_from_slice(&(PAYLOAD_MAX as u32).to_le_bytes());
    }
    let read = read_segment(&bytes);
    assert_eq!(read.damage.len(), 1);
    assert!(read.records.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        read_segment(&bytes);
        let grouped = grouped(1, 0, &bytes);
        read_segment(&grouped);
    }

    /// One changed byte loses at most its group, and never makes up a record.
    #[test]
    fn one_byte_costs_one_group(at in 0usize..2048, flip in 1u8..) {
        // The digit of the version.
        prop_assume!(at != 3);
        let (mut bytes, records) = segment(4);
        bytes[at] ^= flip;
        let read = read_segment(&bytes);
        prop_assert!(read.records.len() + 3 >= records.len());
        prop_assert!(read.records.iter().all(|record| records.contains(record)));
        if read.records.len() < records.len() {
            prop_assert!(!read.damage.is_empty() || read.torn.is_some());
        }
    }
}
