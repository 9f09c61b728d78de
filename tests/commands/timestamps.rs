//! File times as clients observe them ([MS-FSA] 2.1.4.17, 2.1.5.15.2; the cases of
//! smb2.timestamps): updated by writes, set explicitly, frozen.

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use bytes::BytesMut;
use smb_client::{CreateArgs, File};
use smb_tests::{HoldfastServer, Options, state::ea_list};
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{FileBasicInformation, FileInformationClass, FileLinkInformation};
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::FileTime;
use smb_wire::msg::{CloseFlags, CreateDisposition, InfoType};

/// A change that a test makes to a file.
type Act = fn(&File);

/// A day in the year 2001.
const THEN: FileTime = FileTime(126_000_000_000_000_000);
/// -1: do not change the time, and stop its automatic updates through this handle.
const FROZEN: FileTime = FileTime(u64::MAX);
/// -2: resume automatic updates.
const THAWED: FileTime = FileTime(u64::MAX - 1);
const KEEP: FileTime = FileTime(0);
/// Longer than the resolution of any file system's clock.
const A_TICK: Duration = Duration::from_millis(30);

pub(super) fn basic(file: &File) -> FileBasicInformation {
    let bytes = file.query(FileInformationClass::BASIC).unwrap();
    FileBasicInformation::read(&bytes).unwrap()
}

/// Sets the times of creation, access, write and change.
fn set(file: &File, times: [FileTime; 4]) {
    let mut buffer = BytesMut::new();
    FileBasicInformation {
        creation_time: times[0],
        last_access_time: times[1],
        last_write_time: times[2],
        change_time: times[3],
        ..FileBasicInformation::default()
    }
    .encode(&mut buffer);
    file.set(FileInformationClass::BASIC, &buffer).unwrap();
}

/// Writes a zero byte.
fn zero(file: &File, at: u64) {
    let mut input = bytes::BytesMut::new();
    smb_wire::fsctl::SetZeroData {
        file_offset: at.cast_signed(),
        beyond_final_zero: at.cast_signed() + 1,
    }
    .encode(&mut input);
    file.ioctl(smb_wire::fsctl::FsctlCode::SET_ZERO_DATA, &input, 0)
        .unwrap();
}

fn allocate(file: &File, size: i64) {
    let class = FileInformationClass::ALLOCATION;
    file.set(class, &size.to_le_bytes()).unwrap();
}

fn tick() {
    std::thread::sleep(A_TICK);
}

fn made(server: &HoldfastServer) -> File {
    let file = server.tree().create(&CreateArgs::create("f")).unwrap();
    tick();
    file
}

#[test]
fn a_write_updates_the_time_at_the_latest_on_close() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    file.write_all(0, b"x").unwrap();
    file.close().unwrap();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    let after = basic(&file);
    assert!(after.last_write_time > before.last_write_time);
    assert!(after.change_time > before.change_time);
    assert_eq!(after.creation_time, before.creation_time);
}

#[test]
fn a_flush_updates_the_time() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    file.write_all(0, b"x").unwrap();
    file.flush(false).unwrap();
    assert!(basic(&file).last_write_time > before.last_write_time);
}

#[test]
fn a_close_with_postquery_returns_the_new_time() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    file.write_all(0, b"xyz").unwrap();
    let told = file.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
    assert!(told.facts.last_write_time > before.last_write_time);
    assert_eq!(told.facts.end_of_file, 3);
}

#[test]
fn setting_the_end_of_file_updates_the_time_at_once() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    file.set_end_of_file(100).unwrap();
    assert!(basic(&file).last_write_time > before.last_write_time);
}

#[test]
fn a_set_time_survives_earlier_writes() {
    // rclone#7411, rsync#479: the file is written, then its time is set, then it is closed.
    let server = HoldfastServer::new();
    let file = made(&server);
    file.write_all(0, b"x").unwrap();
    set(&file, [KEEP, KEEP, THEN, KEEP]);
    assert_eq!(basic(&file).last_write_time, THEN);
    file.flush(false).unwrap();
    assert_eq!(basic(&file).last_write_time, THEN);
    file.close().unwrap();
    tick();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    assert_eq!(basic(&file).last_write_time, THEN);
}

#[test]
fn a_set_time_survives_writes_through_the_same_handle() {
    // [MS-FSA] 2.1.4.17: Open.UserSetModificationTime
    let server = HoldfastServer::new();
    let file = made(&server);
    set(&file, [KEEP, KEEP, THEN, KEEP]);
    file.write_all(0, b"later").unwrap();
    assert_eq!(basic(&file).last_write_time, THEN);
    file.close().unwrap();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    assert_eq!(basic(&file).last_write_time, THEN);
    // A write through another handle changes the time again.
    file.write_all(0, b"again").unwrap();
    file.close().unwrap();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    assert!(basic(&file).last_write_time > THEN);
}

#[test]
fn a_set_time_does_not_hide_later_writes_of_another_handle() {
    // smb2.timestamps.modern_write_time_update-1, -2: the handle does not change the time, whatever
    // its current value.
    let server = HoldfastServer::new();
    let file = made(&server);
    let other = server.tree().create(&CreateArgs::open("f")).unwrap();
    let changes: [fn(&File, u64); 3] = [
        |file, at| file.write_all(at, b"x").unwrap(),
        |file, at| file.set_end_of_file(100 + at).unwrap(),
        |file, at| zero(file, at),
    ];
    for (n, change) in (0..).zip(changes) {
        set(&file, [KEEP, KEEP, THEN, THEN]);
        tick();
        change(&file, 2 * n);
        let kept = basic(&file);
        assert_eq!(
            (kept.last_write_time, kept.change_time),
            (THEN, THEN),
            "{n}"
        );
        change(&other, 2 * n + 1);
        let newer = basic(&other);
        assert!(
            newer.last_write_time > THEN && newer.change_time > THEN,
            "{n}"
        );
        tick();
        change(&file, 2 * n);
        let after = basic(&file);
        assert_eq!(after.last_write_time, newer.last_write_time, "{n}");
        assert_eq!(after.change_time, newer.change_time, "{n}");
    }
    // The frozen state belongs to the handle.
    file.close().unwrap();
    let before = basic(&other).last_write_time;
    tick();
    other.write_all(0, b"y").unwrap();
    assert!(basic(&other).last_write_time > before);
}

#[test]
fn writes_of_many_handles_beside_a_frozen_one_update_the_time() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let others: Vec<_> = (0..3)
        .map(|_| server.tree().create(&CreateArgs::open("f")).unwrap())
        .collect();
    set(&file, [KEEP, KEEP, THEN, KEEP]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                file.write_all(0, b"x").unwrap();
            }
        });
        for (other, at) in others.iter().zip(1..) {
            scope.spawn(move || {
                for _ in 0..50 {
                    other.write_all(at, b"x").unwrap();
                    assert!(basic(other).last_write_time > THEN);
                }
            });
        }
    });
    assert!(basic(&file).last_write_time > THEN);
}

#[test]
fn a_reservation_changes_only_the_change_time() {
    // [MS-FSA] 2.1.5.15.1
    let server = HoldfastServer::new();
    let file = made(&server);
    file.write_all(0, b"x").unwrap();
    for (size, modifies) in [(1 << 20, false), (1 << 20, false), (4096, false), (0, true)] {
        let before = basic(&file);
        tick();
        allocate(&file, size);
        let after = basic(&file);
        assert!(after.change_time > before.change_time, "{size}");
        let moved = after.last_write_time > before.last_write_time;
        assert_eq!(moved, modifies, "{size}");
    }
}

#[test]
fn a_frozen_time_is_constant_and_a_resumed_one_is_updated() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file).last_write_time;
    set(&file, [KEEP, KEEP, FROZEN, KEEP]);
    file.write_all(0, b"x").unwrap();
    file.flush(false).unwrap();
    assert_eq!(basic(&file).last_write_time, before);
    tick();
    set(&file, [KEEP, KEEP, THAWED, KEEP]);
    file.write_all(0, b"y").unwrap();
    file.flush(false).unwrap();
    assert!(basic(&file).last_write_time > before);
}

/// Whether to read a file that was not read since it was written moves its access time: not with the mount option
/// `noatime`.
fn reads_move_times(server: &HoldfastServer) -> bool {
    let path = server.path("host");
    fs::write(&path, b"content").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let times = fs::FileTimes::new().set_accessed(UNIX_EPOCH);
    file.set_times(times).unwrap();
    fs::read(&path).unwrap();
    fs::metadata(&path).unwrap().accessed().unwrap() != UNIX_EPOCH
}

#[test]
fn a_read_moves_the_access_time_unless_its_handle_keeps_it() {
    // [MS-FSA] 2.1.5.15.2: Open.UserSetAccessTime
    let server = HoldfastServer::new();
    let file = made(&server);
    file.write_all(0, b"content").unwrap();
    let other = server.tree().create(&CreateArgs::open("f")).unwrap();
    let moves = reads_move_times(&server);
    let has_moved = |reader: &File| {
        reader.read_all().unwrap();
        basic(&file).last_access_time != THEN
    };
    set(&file, [KEEP, THEN, KEEP, KEEP]);
    assert!(!has_moved(&file), "set");
    set(&file, [KEEP, THAWED, KEEP, KEEP]);
    set(&file, [KEEP, FROZEN, KEEP, KEEP]);
    assert!(!has_moved(&file), "frozen");
    assert_eq!(has_moved(&other), moves, "read by another handle");
    set(&file, [KEEP, THEN, KEEP, KEEP]);
    set(&file, [KEEP, THAWED, KEEP, KEEP]);
    assert_eq!(has_moved(&file), moves, "resumed");
}

#[test]
fn extreme_times_are_preserved() {
    // smb2.timestamps.time_t_*: times that a time_t cannot represent, or that are negative in it.
    let server = HoldfastServer::new();
    let file = made(&server);
    for unix in [
        -1,
        -2,
        -1_000_000,
        0,
        1,
        4_294_967_295,
        10_000_000_000,
        15_032_385_535,
    ] {
        let time = FileTime::from_unix(unix, 0);
        set(&file, [KEEP, KEEP, time, KEEP]);
        assert_eq!(basic(&file).last_write_time, time, "{unix}");
    }
}

#[test]
fn a_resolution_of_100_ns_is_preserved() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let time = FileTime(THEN.0 + 1_234_567);
    set(&file, [time, KEEP, time, KEEP]);
    file.close().unwrap();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    let told = basic(&file);
    assert_eq!((told.creation_time, told.last_write_time), (time, time));
}

#[test]
fn reads_do_not_change_the_write_time() {
    let server = HoldfastServer::new();
    let file = made(&server);
    file.write_all(0, b"x").unwrap();
    file.close().unwrap();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    let before = basic(&file);
    tick();
    file.read_all().unwrap();
    file.flush(false).unwrap();
    file.close().unwrap();
    let file = file.tree().create(&CreateArgs::open("f")).unwrap();
    let after = basic(&file);
    assert_eq!(after.last_write_time, before.last_write_time);
    assert_eq!(after.change_time, before.change_time);
}

#[test]
fn a_rename_changes_only_the_change_time() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    file.rename("g", false).unwrap();
    let after = basic(&file);
    assert_eq!(after.last_write_time, before.last_write_time);
    assert_eq!(after.creation_time, before.creation_time);
    assert!(after.change_time > before.change_time);
}

fn link(file: &File, to: &str, replace_if_exists: bool) {
    let mut input = BytesMut::new();
    FileLinkInformation {
        replace_if_exists,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut input);
    file.set(FileInformationClass::LINK, &input).unwrap();
}

/// [MS-FSA] Open.UserSetChangeTime: changes of names, attributes and rights move a time no more than writes do.
#[test]
fn a_change_time_that_was_set_survives_every_change_through_its_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").access(AccessMask::FILE_ALL_ACCESS);
    let file = tree.create(&args).unwrap();
    set(&file, [KEEP, KEEP, KEEP, THEN]);
    let changes: [(&str, Act); 6] = [
        ("rename", |file| file.rename("g", false).unwrap()),
        ("link", |file| link(file, "another", false)),
        ("case", |file| link(file, "ANOTHER", true)),
        ("attribute", |file| {
            file.set(FileInformationClass::FULL_EA, &ea_list("NAME", b"value"))
                .unwrap();
        }),
        ("sparse", |file| {
            file.ioctl(FsctlCode::SET_SPARSE, &[1], 0).unwrap();
        }),
        ("descriptor", |file| {
            let dacl = SecurityInformation::DACL.bits();
            let bytes = file.query_info(InfoType::SECURITY, 0, dacl).unwrap();
            let request = file.set_info_request(InfoType::SECURITY, 0, dacl, &bytes);
            file.tree().call(request).unwrap();
        }),
    ];
    for (what, change) in changes {
        tick();
        change(&file);
        assert_eq!(basic(&file).change_time, THEN, "{what}");
    }
    // A handle that has set no time moves it.
    let other = tree.create(&CreateArgs::open("g")).unwrap();
    tick();
    other.rename("f", false).unwrap();
    assert!(basic(&file).change_time > THEN);
}

/// [MS-FSA] 2.1.5.5, phase 10: so does the removal of one of several names by the close of its handle.
#[test]
fn a_change_time_that_was_set_survives_the_removal_of_another_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for keeps in [true, false] {
        std::fs::hard_link(server.path("f"), server.path("g")).unwrap();
        let args = CreateArgs::open("g").access(AccessMask::FILE_ALL_ACCESS);
        let file = tree.create(&args).unwrap();
        set(&file, [KEEP, KEEP, KEEP, THEN]);
        if !keeps {
            file.close().unwrap();
        }
        tick();
        let file = match keeps {
            true => file,
            false => tree.create(&args).unwrap(),
        };
        file.set_delete(true).unwrap();
        file.close().unwrap();
        assert!(!server.path("g").exists());
        let left = tree.create(&CreateArgs::open("f")).unwrap();
        assert_eq!(basic(&left).change_time == THEN, keeps);
    }
}

#[test]
fn attributes_change_only_the_change_time() {
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    let mut buffer = BytesMut::new();
    FileBasicInformation {
        file_attributes: smb_wire::file_attributes::FileAttributes::HIDDEN,
        ..FileBasicInformation::default()
    }
    .encode(&mut buffer);
    file.set(FileInformationClass::BASIC, &buffer).unwrap();
    let after = basic(&file);
    assert_eq!(after.last_write_time, before.last_write_time);
    assert!(after.change_time > before.change_time);
}

#[test]
fn an_overwrite_updates_the_write_time_and_preserves_the_creation_time() {
    use smb_wire::msg::CreateDisposition;
    let server = HoldfastServer::new();
    let file = made(&server);
    let before = basic(&file);
    file.close().unwrap();
    let args = CreateArgs::new("f", CreateDisposition::OVERWRITE);
    let file = file.tree().create(&args).unwrap();
    let after = basic(&file);
    assert!(after.last_write_time > before.last_write_time);
    assert_eq!(after.creation_time, before.creation_time);
}

#[test]
fn listing_and_handle_agree_after_the_close() {
    let server = HoldfastServer::new();
    let file = made(&server);
    file.write_all(0, b"content").unwrap();
    set(&file, [THEN, KEEP, THEN, KEEP]);
    file.close().unwrap();
    let entry = &file.tree().list("", "f").unwrap()[0];
    assert_eq!(entry.last_write_time, THEN);
    assert_eq!(entry.creation_time, THEN);
    assert_eq!(entry.end_of_file, 7);
}

#[test]
fn a_change_of_a_named_stream_updates_the_times_of_its_file() {
    let changes: [(&str, Act); 4] = [
        ("write", |stream| stream.write_all(0, b"x").unwrap()),
        ("end of file", |stream| stream.set_end_of_file(100).unwrap()),
        ("zero", |stream| zero(stream, 0)),
        ("rename", |stream| stream.rename(":renamed", false).unwrap()),
    ];
    for place in ["xattr", "depot"] {
        let server = HoldfastServer::start(&Options {
            share: format!("streams = \"{place}\""),
            ..Options::default()
        });
        let file = made(&server);
        let stream = file.tree().create(&CreateArgs::create("f:s")).unwrap();
        for (what, change) in changes {
            let before = basic(&file);
            tick();
            change(&stream);
            let after = basic(&file);
            assert!(
                after.last_write_time > before.last_write_time
                    && after.change_time > before.change_time,
                "{place}: {what}"
            );
        }
        // A handle that has set the time or frozen it leaves it as it is; another does not.
        set(&stream, [KEEP, KEEP, THEN, KEEP]);
        stream.write_all(0, b"y").unwrap();
        assert_eq!(basic(&file).last_write_time, THEN, "{place}");
        set(&stream, [KEEP, KEEP, THAWED, KEEP]);
        stream.write_all(0, b"z").unwrap();
        let moved = basic(&file).last_write_time;
        assert!(moved > THEN, "{place}");
        set(&stream, [KEEP, KEEP, FROZEN, FROZEN]);
        let frozen = basic(&file);
        tick();
        stream.write_all(0, b"y").unwrap();
        let kept = basic(&file);
        assert_eq!(kept.last_write_time, moved, "{place}");
        assert_eq!(kept.change_time, frozen.change_time, "{place}");
        let overwrite = CreateArgs::new("f:renamed", CreateDisposition::OVERWRITE);
        file.tree().create(&overwrite).unwrap();
        assert!(basic(&file).last_write_time > moved, "{place}");
    }
}

#[test]
fn a_new_entry_changes_the_directorys_time() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let directory = tree.create(&CreateArgs::directory("d")).unwrap();
    let before = basic(&directory).last_write_time;
    tick();
    tree.write_file("d\\f", b"x").unwrap();
    let made = basic(&directory).last_write_time;
    assert!(made > before);
    tick();
    tree.delete("d\\f").unwrap();
    assert!(basic(&directory).last_write_time > made);
}
