//! Damaged files of latches: no damage goes unnoticed.

use std::sync::Arc;

use proptest::prelude::*;
use vfs::{
    Disk, Identity,
    disk::{Errno, OpenHow},
    sim::{Cut, Profile, SimDisk},
};

use super::{
    sim::TestEnv,
    stores::{disk, fs, newest, open, put_now, record, run, taken_now, try_open},
};
use crate::{Damage, LatchStore, Refusal, segment_name};

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

/// A segment with three latches in frames of their own, and where its zeros begin.
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

#[test]
fn damage_is_named_and_its_file_kept() {
    let (mut bad, _) = three();
    let at = bad.windows(4).position(|w| w == b"data").unwrap();
    bad[at] = b'D';
    let first = segment_name(1, "latches");
    let disk = disk_of(Profile::PosixMin, &first, bad.clone());
    let (found, damage, overflow) = reopen(&disk).unwrap();
    assert_eq!((found, damage.len(), overflow), (2, 1, true));
    let again = disk.cut(Cut::Nothing);
    assert_eq!(reopen(&again), Ok((2, vec![], true)), "until it is cleared");
    let env = Arc::new(TestEnv::default());
    let aside = run(
        &env,
        async move { taken_now(&again, "latches.refused").await },
    );
    assert_eq!(aside, bad);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), ours: bool) {
        if ours {
            bytes.splice(0..0, *b"HFM1");
        }
        let first = segment_name(1, "latches");
        let _: Reopened = reopen(&disk_of(Profile::Untracked, &first, bytes));
    }
}

#[test]
fn a_file_beyond_all_bounds_is_an_error() {
    let name = segment_name(1, "latches");
    let disk = disk_of(Profile::Untracked, &name, vec![0]);
    let on = disk.clone();
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
