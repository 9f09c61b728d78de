//! Damaged files of latches, and files that an older version wrote: no damage goes unnoticed, and the conversion loses
//! nothing.

use std::sync::Arc;

use proptest::prelude::*;
use vfs::{
    Disk, FileKey, Identity, VfsError,
    disk::{Errno, OpenHow},
    sim::{Cut, Profile, SimDisk},
};

use super::{
    sim::TestEnv,
    stores::{
        PROFILES, assert_restored_whatever_is_cut, disk, fs, newest, open, put_now, record,
        restored, run, taken_now, try_open,
    },
};
use crate::{
    Damage, KnownFs, LatchRecord, LatchStore, Refusal, segment_name,
    store::testing::{FLAGS_AT, OVERFLOW, StoredField, crc32c},
};

/// A file as early builds wrote it, of latches on one file system.
fn old_latches(records: &[LatchRecord], fs: &KnownFs, overflow: bool) -> Vec<u8> {
    let mut systems = Vec::new();
    vec![(fs.identity, fs.root.clone())].put(&mut systems);
    let count = (records.len() + usize::from(overflow)) as u32;
    let mut out = b"HFLATCH1".to_vec();
    count.put(&mut out);
    crc32c([&count.to_le_bytes(), &systems]).put(&mut out);
    out.extend(&systems);
    let mut entry = |body: &[u8]| {
        (body.len() as u32, crc32c([body])).put(&mut out);
        out.extend(body);
    };
    for record in records {
        let value = record.encode(|_| Some((fs.identity, fs.root.clone())));
        entry(value.strip_prefix(&*systems).unwrap());
    }
    if overflow {
        let mut none = LatchRecord::whole(FileKey::default(), VfsError::Io);
        none.unproven.clear();
        let mut value = none.encode(|_| None);
        // Behind the number of file systems.
        value[2 + FLAGS_AT] |= OVERFLOW;
        entry(&value[2..]);
    }
    out
}

/// Where 0.1 kept its latches.
const OLD: &str = "latches";

/// A disk with nothing but this file.
fn disk_of(profile: Profile, name: &str, bytes: Vec<u8>) -> SimDisk {
    let (disk, env) = (disk(profile), Arc::new(TestEnv::default()));
    let (on, name) = (disk.clone(), name.to_owned());
    run(&env, async move { put_now(&on, &name, bytes).await });
    disk
}

type Reopened = Result<(usize, Vec<Damage>, bool), Refusal>;

/// Live and dormant entries, damage, and whether every FLUSH fails.
fn reopen(disk: &SimDisk) -> Reopened {
    let (disk, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let inner = Arc::clone(&env);
    run(&env, async move {
        let opened = try_open(&disk, &inner, vec![fs(7, 1)]).await;
        let opened = opened.map_err(|error| error.why)?;
        let kept = opened.store.restore().len() + opened.store.dormant().len();
        Ok((kept, opened.damage, opened.store.has_overflow()))
    })
}

/// A segment with three latches in groups of their own, and where its zeros begin.
fn three() -> (Vec<u8>, usize) {
    let (disk, env) = (disk(Profile::Untracked), Arc::new(TestEnv::default()));
    let inner = Arc::clone(&env);
    let bytes = run(&env, async move {
        let store = open(&disk, &inner, vec![fs(7, 1)]).await.store;
        for ino in 1..4 {
            store.set(record(7, ino)).await.unwrap();
        }
        taken_now(&disk, &newest(&disk).await).await
    });
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (bytes, end)
}

#[test]
fn no_damage_goes_unnoticed() {
    let (good, end) = three();
    let first = segment_name(1, "latches");
    let of = |bytes: Vec<u8>| reopen(&disk_of(Profile::Untracked, &first, bytes));
    assert_eq!(of(good.clone()), Ok((3, vec![], false)));
    for at in 0..end {
        let mut bad = good.clone();
        bad[at] ^= [0x01, 0x80, 0xFF][at % 3];
        match of(bad) {
            // Padding, or the mark at the end.
            Ok((kept, damage, false)) => assert_eq!((kept, damage), (3, vec![]), "byte {at}"),
            Ok((_, damage, true)) => assert!(!damage.is_empty(), "byte {at}"),
            Err(Refusal::NotOurs | Refusal::Version) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    for len in (0..end).step_by(97).chain((0..=end).step_by(512)) {
        let cut = of(good[..len].to_vec());
        assert!(!matches!(cut, Ok((_, _, false))), "cut to {len}: {cut:?}");
    }
    let mut newer = good;
    newer[3] = b'2';
    assert_eq!(of(newer), Err(Refusal::Version));
}

fn three_of_old() -> Vec<u8> {
    let records: Vec<_> = (1..4).map(|ino| record(7, ino)).collect();
    old_latches(&records, &fs(7, 1), false)
}

#[test]
fn no_damage_to_the_file_of_an_older_version_goes_unnoticed() {
    let good = three_of_old();
    let of = |bytes: Vec<u8>| reopen(&disk_of(Profile::Untracked, OLD, bytes));
    assert_eq!(of(good.clone()), Ok((3, vec![], false)));
    let overflow = old_latches(&[record(7, 1)], &fs(7, 1), true);
    assert_eq!(of(overflow), Ok((1, vec![], true)));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= [0x01, 0x80, 0xFF][at % 3];
        match of(bad) {
            Ok((kept, damage, overflow)) => {
                assert!(!damage.is_empty() && overflow && kept < 3, "byte {at}");
            }
            Err(Refusal::NotOurs | Refusal::Version) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    for len in 0..good.len() {
        let cut = of(good[..len].to_vec());
        assert!(!matches!(cut, Ok((_, _, false))), "cut to {len}");
    }
    let mut newer = good;
    newer[7] = b'2';
    assert_eq!(of(newer), Err(Refusal::Version));
}

/// Cut at every step, and at every step of the start after that.
#[test]
fn the_file_of_an_older_version_is_converted_whatever_is_cut() {
    for profile in PROFILES {
        let before = disk_of(profile, OLD, three_of_old());
        let wanted: Vec<_> = (1..4).map(|ino| record(7, ino)).collect();
        assert_restored_whatever_is_cut(&before, &wanted, profile);
        // A repair after it does not come undone.
        let (on, env) = (before.clone(), Arc::new(TestEnv::default()));
        let inner = Arc::clone(&env);
        run(&env, async move {
            let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
            store.cleared(record(7, 2).key).await.unwrap();
        });
        let left = restored(&before.cut(Cut::Nothing), vec![fs(7, 1)]);
        assert_eq!(left, [record(7, 1), record(7, 3)]);
    }
}

/// An older server ran in between: its latches hold, and so do those from before it.
#[test]
fn what_an_older_version_left_beside_segments_is_added() {
    let disk = disk_of(Profile::PosixMin, OLD, three_of_old());
    assert_eq!(restored(&disk, vec![fs(7, 1)]).len(), 3);
    let (on, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let others: Vec<_> = (20..22).map(|ino| record(7, ino)).collect();
    let old = old_latches(&others, &fs(7, 1), true);
    run(&env, async move { put_now(&on, OLD, old).await });
    assert_eq!(reopen(&disk), Ok((5, vec![], true)));
    assert_eq!(reopen(&disk.cut(Cut::Nothing)), Ok((5, vec![], true)));
}

#[test]
fn damage_is_named_and_its_file_kept() {
    let (mut bad, _) = three();
    let at = bad.windows(4).position(|w| w == b"data").unwrap();
    bad[at] = b'D';
    let mut bad_old = three_of_old();
    let at = bad_old.windows(4).position(|w| w == b"data").unwrap();
    bad_old[at] = b'D';
    let first = segment_name(1, "latches");
    for (name, bad, kept) in [(first.as_str(), bad, 2), (OLD, bad_old, 2)] {
        let disk = disk_of(Profile::PosixMin, name, bad.clone());
        let (found, damage, overflow) = reopen(&disk).unwrap();
        assert_eq!((found, damage.len(), overflow), (kept, 1, true));
        let again = disk.cut(Cut::Nothing);
        assert_eq!(
            reopen(&again),
            Ok((kept, vec![], true)),
            "until it is cleared"
        );
        let env = Arc::new(TestEnv::default());
        let aside = run(
            &env,
            async move { taken_now(&again, "latches.refused").await },
        );
        assert_eq!(aside, bad);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), ours: bool) {
        if ours {
            bytes.splice(0..0, *b"HFLATCH1");
        }
        let first = segment_name(1, "latches");
        for name in [OLD, &first] {
            let _: Reopened = reopen(&disk_of(Profile::Untracked, name, bytes.clone()));
        }
    }
}

#[test]
fn a_file_beyond_all_bounds_is_an_error() {
    for name in [OLD, &segment_name(1, "latches")] {
        let disk = disk_of(Profile::Untracked, name, vec![0]);
        let (on, name) = (disk.clone(), name.to_owned());
        run(&Arc::new(TestEnv::default()), async move {
            let how = OpenHow {
                write: true,
                ..OpenHow::default()
            };
            let root = on.root();
            let opened = on.open_at(&Identity::Service, &root, name.as_bytes(), how);
            on.truncate(&opened.await.unwrap(), 1 << 30).await.unwrap();
        });
        assert_eq!(reopen(&disk), Err(Refusal::Disk(Errno(libc::EFBIG))));
    }
}
