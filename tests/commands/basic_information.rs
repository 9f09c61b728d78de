//! The effects of FileBasicInformation and of other changes on times, attributes and the handles that are there
//! ([MS-FSA] 2.1.5.15.2, 2.1.5.15.12, 2.1.5.17).

use std::time::Duration;

use bytes::BytesMut;
use smb_client::{CreateArgs, File};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileBasicInformation, FileInformationClass as Class};
use smb_wire::ids::FileTime;
use smb_wire::msg::{InfoType, WriteFlags};

use super::{query_answers::open, timestamps::basic};

/// A day in the year 2001.
const THEN: FileTime = FileTime(126_000_000_000_000_000);
const KEEP: FileTime = FileTime(0);
/// -1: the time stays as it is, also later.
const FROZEN: FileTime = FileTime(u64::MAX);
/// -2: the time moves again.
const THAWED: FileTime = FileTime(u64::MAX - 1);

/// Sets the times of creation, access, write and change, and the attributes.
fn set(file: &File, times: [FileTime; 4], file_attributes: FileAttributes) {
    let mut buffer = BytesMut::new();
    FileBasicInformation {
        creation_time: times[0],
        last_access_time: times[1],
        last_write_time: times[2],
        change_time: times[3],
        file_attributes,
    }
    .encode(&mut buffer);
    file.set(Class::BASIC, &buffer).unwrap();
}

/// Waits longer than the resolution of any file system's clock.
fn tick() {
    std::thread::sleep(Duration::from_millis(30));
}

/// [MS-FSA] 2.1.5.15.2: each time that is set is a change of the file, and moves the time of that alone.
#[test]
fn a_time_that_is_set_moves_the_time_of_the_change() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let none = FileAttributes::empty();
    for name in ["f", "d", "f:s"] {
        let file = open(&tree, name);
        for place in 0..3 {
            let mut times = [KEEP; 4];
            let new = u64::try_from(place + 10 * name.len()).unwrap();
            times[place] = FileTime(THEN.0 + new);
            let before = basic(&file);
            tick();
            set(&file, times, none);
            let after = basic(&file);
            assert!(after.change_time > before.change_time, "{name} {place}");
            let found = [
                after.creation_time,
                after.last_access_time,
                after.last_write_time,
            ];
            let earlier = [
                before.creation_time,
                before.last_access_time,
                before.last_write_time,
            ];
            for (at, time) in found.into_iter().enumerate() {
                let expected = if at == place { times[at] } else { earlier[at] };
                assert_eq!(time, expected, "{name} {place} {at}");
            }
            assert_eq!(after.file_attributes, before.file_attributes);
        }
        // Nothing at all is no change.
        let before = basic(&file);
        tick();
        set(&file, [KEEP; 4], none);
        assert_eq!(basic(&file), before, "{name}");
    }
}

/// [MS-FSA] 2.1.5.15.2: Open.UserSetChangeTime.
#[test]
fn the_time_of_the_change_stays_where_a_handle_keeps_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let (none, hidden) = (FileAttributes::empty(), FileAttributes::HIDDEN);
    let before = basic(&file).change_time;
    tick();
    set(&file, [THEN, KEEP, THEN, FROZEN], none);
    assert_eq!(
        basic(&file).change_time,
        before,
        "frozen by the same request"
    );
    set(&file, [KEEP; 4], hidden);
    assert_eq!(basic(&file).change_time, before, "frozen");
    set(&file, [KEEP, KEEP, THEN, THEN], none);
    assert_eq!(basic(&file).change_time, THEN, "set by the same request");
    set(&file, [KEEP; 4], FileAttributes::NORMAL);
    assert_eq!(basic(&file).change_time, THEN, "set");
    set(&file, [KEEP, KEEP, KEEP, THAWED], none);
    assert_eq!(basic(&file).change_time, THEN, "thawed");
    set(&file, [KEEP; 4], hidden);
    assert!(basic(&file).change_time > THEN, "moved again");
    assert_eq!(basic(&file).file_attributes, hidden);
}

/// [MS-FSA] 2.1.5.1.2.1: the attribute READONLY is looked at when a file is opened, and handles that are there keep
/// their rights.
#[test]
fn a_handle_outlasts_the_attribute_that_would_refuse_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, stream) = (open(&tree, "f"), open(&tree, "f:s"));
    let other = open(&tree, "f");
    let readonly = FileAttributes::READONLY;
    set(&other, [KEEP; 4], readonly);
    for handle in [&file, &stream] {
        let written = handle.write(0, b"content", WriteFlags::empty());
        assert_eq!(written.unwrap(), 7);
        assert_eq!(status(handle.set_end_of_file(4)), Status::SUCCESS);
        assert_eq!(handle.read_all().unwrap(), b"cont");
        let deleted = status(handle.set_delete(true));
        assert_eq!(deleted, Status::CANNOT_DELETE);
    }
    // An open stream would keep the file from being renamed.
    stream.close().unwrap();
    assert_eq!(status(file.rename("g", false)), Status::SUCCESS);
    let kept = basic(&other).file_attributes;
    assert!(kept.contains(readonly), "{kept}");
    let write = CreateArgs::open("g").access(AccessMask::FILE_WRITE_DATA);
    let refused = tree.create_status(&write).unwrap();
    assert_eq!(refused, Status::ACCESS_DENIED);
}

/// [MS-FSA] 2.1.5.15.12, 2.1.5.17: only files get the attribute ARCHIVE by a new name and by a new descriptor.
#[test]
fn a_directory_is_not_marked_to_be_archived() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let directory = open(&tree, "d");
    let attributes = || basic(&directory).file_attributes;
    let plain = FileAttributes::DIRECTORY;
    assert_eq!(attributes(), plain, "made");
    tree.write_file("d\\f", b"x").unwrap();
    tree.delete("d\\f").unwrap();
    assert_eq!(attributes(), plain, "its entries");
    directory.rename("e", false).unwrap();
    assert_eq!(attributes(), plain, "its name");
    let parts = SecurityInformation::DACL.bits();
    let descriptor = directory.query_info(InfoType::SECURITY, 0, parts);
    let descriptor = descriptor.unwrap();
    let request = directory.set_info_request(InfoType::SECURITY, 0, parts, &descriptor);
    tree.call(request).unwrap();
    assert_eq!(attributes(), plain, "its descriptor");
    // A client may mark it.
    set(&directory, [KEEP; 4], FileAttributes::ARCHIVE);
    assert_eq!(attributes(), plain | FileAttributes::ARCHIVE);
    set(&directory, [KEEP; 4], FileAttributes::NORMAL);
    assert_eq!(attributes(), plain);
}
