//! Bytes that earlier builds wrote: the formats on disk stay readable and stay the same.

use std::time::Duration;

use hex_literal::hex;
use vfs::{FileKey, Timestamp, VfsError, linux::FsIdentity};

use crate::{
    Bound, ExposedFile, Exposure, ExposureRecord, FlushRecord, JournalRecord, LatchRecord, Policy,
    ShareRoot, StartRecord, UnprovenStream, read_segment, store::testing::group_bytes,
};

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 77 }
}

fn key(ino: u64) -> FileKey {
    FileKey {
        fs: 0x1f,
        ino,
        generation: 9,
    }
}

fn flush() -> FlushRecord {
    FlushRecord {
        at: at(5),
        share: "data".into(),
        key: key(3),
        stream: "s".into(),
        path: "d/\u{e4}".into(),
        size: 10,
        sequence: 11,
        policy: Policy::Honor,
        bytes: 12,
        directory: true,
    }
}

fn bounded() -> Policy {
    Policy::Bounded(Bound {
        max_delay: Duration::from_millis(50),
        max_bytes: 4 << 20,
    })
}

/// One record of each kind, with its bytes.
#[allow(clippy::too_many_lines)] // A table.
fn journal() -> Vec<(JournalRecord, &'static [u8])> {
    let start = StartRecord {
        at: at(-1),
        run: [7; 16],
        boot: "b".into(),
        server: "1.0".into(),
        first: true,
        shares: vec![ShareRoot {
            name: "data".into(),
            root: "/srv".into(),
        }],
    };
    let exposure = ExposureRecord {
        at: at(6),
        share: "data".into(),
        policy: bounded(),
        exposure: Exposure {
            bytes: 1,
            inodes: 2,
            oldest_age: Duration::from_millis(3),
            unproven_bytes: 4,
            poisoned_inodes: 5,
            ..Exposure::default()
        },
        allowance: 32 << 20,
        lease: Duration::from_secs(3),
        files: vec![ExposedFile {
            key: key(8),
            path: "p".into(),
            bytes: 6,
        }],
    };
    let stop = JournalRecord::Stop {
        at: at(7),
        stable: true,
    };
    vec![
        (
            JournalRecord::Start(start),
            &hex!(
                "0133000000ffffffffffffffff4d000000070707070707070707070707070707070100
                 620300312e3001010004006461746104002f737276"
            ),
        ),
        (
            JournalRecord::Flushed(flush()),
            &hex!(
                "025d00000005000000000000004d000000040064617461030000000000000009000000
                 000000000100730400642fc3a40a000000000000000b00000000000000000000000000
                 00000000000000000000000c00000000000000011f00000000000000"
            ),
        ),
        (
            JournalRecord::Promised(flush()),
            &hex!(
                "035d00000005000000000000004d000000040064617461030000000000000009000000
                 000000000100730400642fc3a40a000000000000000b00000000000000000000000000
                 00000000000000000000000c00000000000000011f00000000000000"
            ),
        ),
        (
            JournalRecord::Exposure(exposure),
            &hex!(
                "048000000006000000000000004d000000040064617461033200000000000000000040
                 0000000000010000000000000002000000000000000300000000000000040000000000
                 000005000000000000000000000200000000b80b000000000000010008000000000000
                 00090000000000000001007006000000000000001f00000000000000"
            ),
        ),
        (stop, &hex!("050d00000007000000000000004d00000001")),
        (
            JournalRecord::Gap { at: at(8), lost: 2 },
            &hex!("061400000008000000000000004d0000000200000000000000"),
        ),
    ]
}

#[test]
fn journal_records_have_the_captured_bytes() {
    for (record, captured) in journal() {
        assert_eq!(record.encode(), captured, "{record:?}");
        let read = JournalRecord::read(&mut &*record.encode());
        assert_eq!(read, Some(Some(record)));
    }
}

/// The bodies of early builds end before the devices.
#[test]
fn journal_records_of_early_builds_name_no_device() {
    for (record, _) in journal() {
        let mut without = record.clone();
        let key = match &mut without {
            JournalRecord::Flushed(flush) | JournalRecord::Promised(flush) => &mut flush.key,
            JournalRecord::Exposure(exposure) => &mut exposure.files[0].key,
            _ => continue,
        };
        key.fs = 0;
        let mut early = record.encode();
        early.truncate(early.len() - 8);
        let len = early.len() as u32 - 5;
        early[1..5].copy_from_slice(&len.to_le_bytes());
        assert_eq!(
            read_segment(&group_bytes(b"HFJ1", 1, 0, &early)).records,
            [without]
        );
    }
}

#[test]
fn the_age_of_an_exposure_is_rounded_up() {
    for (record, _) in journal() {
        let JournalRecord::Exposure(mut record) = record else {
            continue;
        };
        record.exposure.oldest_age = Duration::from_micros(2001);
        let read = JournalRecord::read(&mut &*JournalRecord::Exposure(record.clone()).encode());
        record.exposure.oldest_age = Duration::from_millis(3);
        assert_eq!(read, Some(Some(JournalRecord::Exposure(record))));
    }
}

#[test]
fn a_latch_has_the_captured_bytes() {
    let fs = |n| {
        let identity = FsIdentity {
            kind: 0xEF53,
            uuid: [n; 16],
            fsid: u64::from(n),
        };
        (identity, format!("/srv/{n}"))
    };
    let on = |fs, ino| FileKey { fs, ..key(ino) };
    let mut record = LatchRecord {
        key: on(1, 4),
        error: VfsError::NoSpace,
        at: at(9),
        sequence: 13,
        unproven: vec![UnprovenStream {
            stream: "s".into(),
            ranges: vec![(0, 4096), (8192, u64::MAX)],
        }],
        metadata: true,
        size: false,
        entries: false,
        file: true,
        names: vec![on(1, 1), on(0, 2), on(2, 3)],
        path: "a/b".into(),
        shares: vec!["data".into(), "more".into()],
    };
    let bytes = record.encode(|dev| u8::try_from(dev).ok().filter(|n| *n > 0).map(fs));
    assert_eq!(
        bytes,
        hex!(
            "020053ef00000000000001010101010101010101010101010101010000000000000006
             002f7372762f3153ef0000000000000202020202020202020202020202020202000000
             0000000006002f7372762f320000040000000000000009000000000000000209000000
             000000004d0000000d0000000000000011010001007302000000000000000000001000
             00000000000020000000000000ffffffffffffffff0300000001000000000000000900
             000000000000ffff020000000000000009000000000000000100030000000000000009
             000000000000000300612f62020004006461746104006d6f7265"
        )
    );
    // One of the names is on no file system of ours.
    record.entries = true;
    let read = LatchRecord::decode(&bytes, |known| (1..3).find(|dev| fs(*dev as u8) == *known));
    assert_eq!(read, Some((record, true)));
}
