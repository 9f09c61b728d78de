//! Single fields of READ and WRITE and the order of their checks ([MS-SMB2] 3.3.5.12, 3.3.5.13, [MS-FSA] 2.1.5.3,
//! 2.1.5.4).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{FileInformationClass, FileStandardInformation};
use smb_wire::ids::FileId;
use smb_wire::msg::{Dialect, LockFlags, ReadResponse, WriteFlags};

const NONE: WriteFlags = WriteFlags::empty();
const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE.union(LockFlags::FAIL_IMMEDIATELY);
const CONTENT: &[u8] = b"0123456789";

/// A file of ten bytes.
fn ten(tree: &Tree) -> File {
    tree.write_file("f", CONTENT).unwrap();
    tree.create(&CreateArgs::open("f")).unwrap()
}

fn size(file: &File) -> u64 {
    let standard = file.query(FileInformationClass::STANDARD).unwrap();
    let standard = FileStandardInformation::read(&standard).unwrap();
    standard.end_of_file
}

fn put(message: &mut BytesMut, at: usize, bytes: &[u8]) {
    message[at..at + bytes.len()].copy_from_slice(bytes);
}

/// [MS-SMB2] 3.3.5.12: fewer bytes than MinimumCount are END_OF_FILE, whatever the length is; smb2.read.eof.
#[test]
fn fewer_bytes_than_the_minimum_are_the_end_of_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    for (offset, length, minimum, expected) in [
        (0, 10, 1, Status::SUCCESS),
        (10, 0, 0, Status::SUCCESS),
        (1000, 0, 0, Status::SUCCESS),
        (10, 0, 1, Status::END_OF_FILE),
        (0, 0, 1, Status::END_OF_FILE),
        (9, 2, 0, Status::SUCCESS),
        (9, 1, 2, Status::END_OF_FILE),
        (0, 1, 0x1_0000, Status::END_OF_FILE),
        (0, 1, 0xffff_fffe, Status::END_OF_FILE),
        (0, 5, 10, Status::END_OF_FILE),
    ] {
        let request = file.read_request(offset, length, minimum);
        let reply = tree.reply(request).unwrap();
        assert_eq!(reply.status(), expected, "{offset} {length} {minimum}");
    }
}

/// [MS-FSA] 2.1.5.3 reads data streams only; smb2.read.dir.
#[test]
fn a_directory_is_not_read_whatever_the_length_is() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    for (length, minimum) in [(10, 1), (10, 11), (0, 2592), (0, 0)] {
        let reply = tree.reply(root.read_request(0, length, minimum)).unwrap();
        let refused = reply.status();
        assert_eq!(refused, Status::INVALID_DEVICE_REQUEST, "{length}");
    }
}

/// [MS-SMB2] 3.3.5.12, 2.2.19: without RDMA the fields of a channel mean nothing, and unknown flags neither.
#[test]
fn fields_of_other_channels_are_ignored_by_a_read() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    // Padding, Flags (without READ_UNBUFFERED), RemainingBytes, ReadChannelInfoOffset and ReadChannelInfoLength.
    for (at, bytes) in [
        (66, &[0][..]),
        (66, &[0xff]),
        (67, &[0x02]),
        (67, &[0xfe]),
        (104, &[0xff; 4]),
        (108, &[0xff; 2]),
        (110, &[0xff; 2]),
    ] {
        let request = file.read_request(2, 3, 0).mutate(|m| put(m, at, bytes));
        let reply = tree.reply(request).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{at} {bytes:x?}");
        let response = ReadResponse::read(&reply.message).unwrap();
        assert_eq!(response.data, b"234", "{at} {bytes:x?}");
    }
}

/// [MS-SMB2] 2.2.19, 2.2.21: before 3.0 the fields of a channel are reserved, also the channel itself.
#[test]
fn a_channel_means_nothing_before_3_0() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    ten(&tree).close().unwrap();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
        let old = server.tree_with(Options::dialect(dialect));
        let file = old.create(&CreateArgs::open("f")).unwrap();
        // Channel to the length of its description.
        let read = file.read_request(2, 3, 0);
        let read = read.mutate(|m| put(m, 100, &[0xff; 12]));
        let reply = old.reply(read).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{dialect}");
        let write = file.write_request(0, b"012", NONE);
        let write = write.mutate(|m| put(m, 96, &[0xff; 12]));
        let reply = old.reply(write).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{dialect}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.12: the response has its data behind its head, and none remain.
#[test]
fn the_fields_of_a_read_response_are_those_of_no_channel() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    for dialect in Dialect::ALL {
        let other = server.tree_with(Options::dialect(dialect));
        let file = other.create(&CreateArgs::open("f")).unwrap();
        let reply = other.call(file.read_request(8, 100, 0)).unwrap();
        // DataOffset, Reserved, DataLength, DataRemaining and Flags.
        let expected = [17, 0, 80, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'8', b'9'];
        assert_eq!(reply.message[64..82], expected, "{dialect}");
    }
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.5.12: the longest READ of 2.0.2 has 64 KiB, which no credits are charged for.
#[test]
fn the_oldest_dialect_reads_no_more_than_64_kib() {
    let server = HoldfastServer::new();
    std::fs::write(server.path("f"), vec![7; 100_000]).unwrap();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_2_0_2));
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    assert_eq!(file.read(0, 65_536).unwrap().len(), 65_536);
    let refused = status(file.read(0, 65_537));
    assert_eq!(refused, Status::INVALID_PARAMETER);
}

/// [MS-SMB2] 3.3.5.12: the open and its rights are looked at before the length.
#[test]
fn a_read_checks_its_handle_before_its_length() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", CONTENT).unwrap();
    let long = tree.client().negotiated().max_read_size + 1;
    let nowhere = tree.reply(Request::read(FileId::ANY, 0, long)).unwrap();
    assert_eq!(nowhere.status(), Status::FILE_CLOSED);
    let args = CreateArgs::open("f").access(AccessMask::FILE_WRITE_DATA);
    let blind = tree.create(&args).unwrap();
    assert_eq!(status(blind.read(0, long)), Status::ACCESS_DENIED);
    assert_eq!(status(blind.read(0, 0)), Status::ACCESS_DENIED);
}

/// [MS-FSA] 2.1.5.3: locks are looked at before the end of the file.
#[test]
fn a_lock_beyond_the_end_is_met_before_the_end() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = (ten(&tree), ten(&tree));
    other.lock(100, 10, EXCLUSIVE).unwrap();
    assert_eq!(status(file.read(105, 1)), Status::FILE_LOCK_CONFLICT);
    assert_eq!(status(file.read(99, 1)), Status::END_OF_FILE);
    assert_eq!(status(file.read(5, 96)), Status::FILE_LOCK_CONFLICT);
    assert_eq!(file.read(5, 95).unwrap(), b"56789");
}

/// [MS-FSA] 2.1.5.4: a write that meets a lock beyond the end does not extend the file.
#[test]
fn a_write_that_meets_a_lock_beyond_the_end_extends_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = (ten(&tree), ten(&tree));
    other.lock(100, 10, EXCLUSIVE).unwrap();
    let refused = status(file.write(95, b"0123456789", NONE));
    assert_eq!(refused, Status::FILE_LOCK_CONFLICT);
    assert_eq!(size(&file), 10);
    assert_eq!(file.write(95, b"01234", NONE).unwrap(), 5);
    assert_eq!(size(&file), 100);
}

/// [MS-SMB2] 3.3.5.13: Remaining and the fields of the channel are zero in the response.
#[test]
fn the_fields_of_a_write_response_are_those_of_no_channel() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    ten(&tree).close().unwrap();
    for dialect in Dialect::ALL {
        let other = server.tree_with(Options::dialect(dialect));
        let file = other.create(&CreateArgs::open("f")).unwrap();
        let reply = other.call(file.write_request(0, b"abc", NONE)).unwrap();
        // Reserved, Count, Remaining, WriteChannelInfoOffset and WriteChannelInfoLength.
        let expected = [17, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(reply.message[64..80], expected, "{dialect}");
    }
}

/// [MS-SMB2] 3.3.5.13, 2.2.21: without RDMA the fields of a channel mean nothing.
#[test]
fn fields_of_other_channels_are_ignored_by_a_write() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    // RemainingBytes, WriteChannelInfoOffset and WriteChannelInfoLength.
    for (at, bytes) in [(100, &[0xff; 4][..]), (104, &[0xff; 2]), (106, &[0xff; 2])] {
        let request = file.write_request(0, b"abc", NONE);
        let reply = tree.reply(request.mutate(|m| put(m, at, bytes))).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{at}");
    }
    assert_eq!(file.read_all().unwrap(), b"abc3456789");
}

/// [MS-SMB2] 3.3.5.13: the data may begin anywhere up to 0x100 bytes behind the beginning of the header.
#[test]
fn the_data_of_a_write_may_begin_at_0x100() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    for (offset, expected) in [
        (0x78_u16, Status::SUCCESS),
        (0x100, Status::SUCCESS),
        (0x101, Status::INVALID_PARAMETER),
    ] {
        let request = file.write_request(0, b"abc", NONE).mutate(|m| {
            m.truncate(112);
            m.resize(usize::from(offset), b'-');
            m.extend_from_slice(b"abc");
            put(m, 66, &offset.to_le_bytes());
        });
        let reply = tree.reply(request).unwrap();
        assert_eq!(reply.status(), expected, "{offset:#x}");
        assert_eq!(file.read(0, 3).unwrap(), b"abc", "{offset:#x}");
    }
}

/// [MS-SMB2] 3.3.5.13: even a write of nothing needs an open with one of the rights to write.
#[test]
fn a_write_of_no_bytes_needs_its_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", CONTENT).unwrap();
    let args = CreateArgs::open("f").access(AccessMask::FILE_GENERIC_READ);
    let reader = tree.create(&args).unwrap();
    let refused = status(reader.write(0, b"", NONE));
    assert_eq!(refused, Status::ACCESS_DENIED);
    let nowhere = tree
        .reply(Request::write(FileId::ANY, 0, b"", NONE))
        .unwrap();
    assert_eq!(nowhere.status(), Status::FILE_CLOSED);
}

/// [MS-SMB2] 3.3.5.13, note 364: either of the rights to write suffices for data within and behind the file.
#[test]
fn either_right_writes_within_and_behind_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for access in [AccessMask::FILE_WRITE_DATA, AccessMask::FILE_APPEND_DATA] {
        tree.write_file("f", CONTENT).unwrap();
        let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
        assert_eq!(status(file.write(10, b"ab", NONE)), Status::SUCCESS);
        assert_eq!(status(file.write(20, b"c", NONE)), Status::SUCCESS);
        let within = status(file.write(2, b"--", NONE));
        assert_eq!(within, Status::SUCCESS, "{access}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.13: a write that is longer than the rest of its message writes nothing.
#[test]
fn a_write_longer_than_its_message_writes_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    for length in [4_u32, 0x100, 0xffff, 0x1_0000, u32::MAX] {
        let request = file.write_request(0, b"abc", NONE);
        let request = request.mutate(|m| put(m, 68, &length.to_le_bytes()));
        let refused = tree.reply(request).unwrap().status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{length:#x}");
    }
    assert_eq!(file.read_all().unwrap(), CONTENT);
}

/// [MS-FSA] 2.1.5.3, 2.1.5.4: no range ends beyond 2^63-1, and an empty one may begin there.
#[test]
fn ranges_end_at_the_greatest_offset() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = ten(&tree);
    let most = u64::MAX / 2;
    let (done, refused) = (Status::SUCCESS, Status::INVALID_PARAMETER);
    for (offset, length, read, written) in [
        (most, 0, done, done),
        (most - 1, 0, done, done),
        (most, 1, refused, refused),
        (most + 1, 0, refused, refused),
        (u64::MAX, 0, refused, refused),
    ] {
        let end = status(file.read(offset, length));
        assert_eq!(end, read, "{offset:#x} {length}");
        let data = vec![b'x'; smb_wire::codec::size(length)];
        let end = status(file.write(offset, &data, NONE));
        assert_eq!(end, written, "{offset:#x} {length}");
    }
    assert_eq!(status(file.read(most - 1, 1)), Status::END_OF_FILE);
    assert_eq!(file.read_all().unwrap(), CONTENT);
}

/// [MS-SMB2] 3.3.5.12: a read without buffering returns the same bytes, aligned or not; older dialects do not know the
/// flag.
#[test]
fn a_read_without_buffering_returns_the_same_bytes() {
    let server = HoldfastServer::new();
    ten(&server.tree()).close().unwrap();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        for (offset, length) in [(0, 10), (3, 4), (9, 100)] {
            let request = file.read_request(offset, length, 0);
            // SMB2_READFLAG_READ_UNBUFFERED.
            let reply = tree.call(request.mutate(|m| put(m, 67, &[1]))).unwrap();
            let data = ReadResponse::read(&reply.message).unwrap().data;
            let expected = file.read(offset, length).unwrap();
            assert_eq!(data, expected, "{dialect} {offset} {length}");
        }
        file.close().unwrap();
    }
}
