//! WRITE ([MS-SMB2] 3.3.5.13, [MS-FSA] 2.1.5.4).

use smb_client::{CreateArgs, Options, Request};
use smb_tests::{HoldfastServer, Outcome, outcome, status};
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{
    Channel, CreateOptions, Dialect, LockFlags, WriteFlags, WriteRequest, WriteResponse,
};
use smb_wire::{Command, Status};

use crate::checks;

fn request(file_id: FileId, offset: u64, data: &[u8]) -> WriteRequest<'_> {
    WriteRequest {
        offset,
        file_id,
        channel: Channel::NONE,
        remaining_bytes: 0,
        flags: WriteFlags::empty(),
        channel_info: &[],
        data,
    }
}

#[test]
fn data_are_written_at_their_offset() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    assert_eq!(file.write(0, b"hello", WriteFlags::empty()).unwrap(), 5);
    assert_eq!(file.write(2, b"LL", WriteFlags::empty()).unwrap(), 2);
    // A hole reads as zeros.
    assert_eq!(file.write(8, b"!", WriteFlags::empty()).unwrap(), 1);
    file.close().unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"heLLo\0\0\0!");
}

/// Holes of a named stream, and data beyond an end that was moved back and forth, read as zeros.
#[test]
fn holes_of_a_stream_are_zeros() {
    for place in ["xattr", "depot"] {
        holes_of_a_stream(place);
    }
}

fn holes_of_a_stream(place: &str) {
    let server = HoldfastServer::start(&smb_tests::Options {
        share: format!("streams = \"{place}\""),
        ..smb_tests::Options::default()
    });
    let tree = server.tree();
    let stream = tree.create(&CreateArgs::create("f:s")).unwrap();
    stream.write_all(0, b"secret").unwrap();
    stream.set_end_of_file(1).unwrap();
    stream.set_end_of_file(6).unwrap();
    stream.write_all(9, b"!").unwrap();
    assert_eq!(stream.read_all().unwrap(), b"s\0\0\0\0\0\0\0\0!");
    let far = if place == "xattr" { 1000 } else { 200_000 };
    stream.write_all(far as u64, b"!").unwrap();
    let mut whole = vec![0; far + 1];
    (whole[0], whole[9], whole[far]) = (b's', b'!', b'!');
    assert!(stream.read_all().unwrap() == whole, "not zeros in the hole");
}

#[test]
fn every_flag_is_accepted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    for flags in [
        WriteFlags::WRITE_THROUGH,
        WriteFlags::WRITE_THROUGH | WriteFlags::WRITE_UNBUFFERED,
        WriteFlags::WRITE_UNBUFFERED,
        WriteFlags(0x8000_0000),
    ] {
        assert_eq!(file.write(0, b"abc", flags).unwrap(), 3, "{flags}");
    }
    let through = CreateArgs::open("f")
        .options(CreateOptions::WRITE_THROUGH | CreateOptions::NO_INTERMEDIATE_BUFFERING);
    let file = tree.create(&through).unwrap();
    assert_eq!(file.write(0, b"xyz", WriteFlags::empty()).unwrap(), 3);
}

#[test]
fn a_write_of_no_bytes_changes_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, b"abc").unwrap();
    let reply = tree
        .call(Request::new(&request(file.id(), 1000, b"")))
        .unwrap();
    assert_eq!(WriteResponse::read(&reply.message).unwrap().count, 0);
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"abc");
}

#[test]
fn one_of_the_two_write_rights_is_needed() {
    checks::needs_a_write_right(|file| status(file.write(10, b"x", WriteFlags::empty())));
}

#[test]
fn invalid_lengths_and_offsets_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    for offset in [
        u64::MAX,
        u64::MAX - 1,
        u64::MAX - 5,
        1 << 63,
        i64::MAX as u64,
    ] {
        assert_eq!(
            status(file.write(offset, b"xy", WriteFlags::empty())),
            Status::INVALID_PARAMETER,
            "{offset:#x}"
        );
    }
    assert_eq!(std::fs::metadata(server.path("f")).unwrap().len(), 0);
    let max = tree.client().negotiated().max_write_size;
    let data = vec![7; smb_wire::codec::size(max) + 1];
    let reply = tree.reply(file.write_request(0, &data, WriteFlags::empty()));
    match smb_tests::outcome(reply) {
        smb_tests::Outcome::Answered(status) => assert_eq!(status, Status::INVALID_PARAMETER),
        // [MS-SMB2] 3.3.5.2: a message that exceeds the maximal size allows this.
        smb_tests::Outcome::Closed => {}
    }
    assert_eq!(std::fs::metadata(server.path("f")).unwrap().len(), 0);
}

#[test]
fn a_message_above_68_kib_ends_a_connection_without_multi_credit() {
    // [MS-SMB2] 3.3.5.2
    let server = HoldfastServer::new();
    for (excess, expected) in [
        (0, Outcome::Answered(Status::INVALID_PARAMETER)),
        (1, Outcome::Closed),
    ] {
        let tree = server.tree_with(Options::dialect(Dialect::SMB_2_0_2));
        let file = tree.create(&CreateArgs::open_if("f")).unwrap();
        let head = usize::from(WriteRequest::DATA_OFFSET);
        let data = vec![1; (68 << 10) - head + excess];
        let reply = tree.reply(Request::new(&request(file.id(), 0, &data)));
        assert_eq!(outcome(reply), expected, "{excess}");
    }
}

#[test]
fn data_outside_the_message_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let good = || Request::new(&request(file.id(), 0, b"0123456789"));
    // Length beyond the message; DataOffset above 0x100; DataOffset inside the header.
    for (at, value) in [
        (68, 11u16),
        (68, 0xffff),
        (66, 0x101),
        (66, 0x7000),
        (66, 8),
    ] {
        let spoilt = good().mutate(|m| m[at..at + 2].copy_from_slice(&value.to_le_bytes()));
        let reply = tree.reply(spoilt).unwrap();
        assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{at} {value:#x}");
    }
    assert_eq!(std::fs::metadata(server.path("f")).unwrap().len(), 0);
    tree.call(good()).unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"0123456789");
}

#[test]
fn the_charge_must_cover_the_data() {
    // [MS-SMB2] 3.3.5.2.5
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let data = vec![1; 65_537];
    for (charge, expected) in [
        (0, Status::INVALID_PARAMETER),
        (1, Status::INVALID_PARAMETER),
        (2, Status::SUCCESS),
    ] {
        let body = request(file.id(), 0, &data);
        let asked = if charge < 2 {
            Request::raw(Command::WRITE, &[]).mutate(|message| body.encode(message, 0))
        } else {
            Request::new(&body)
        };
        let reply = tree
            .reply(asked.overriding(|o| o.credit_charge = Some(charge)))
            .unwrap();
        assert_eq!(reply.status(), expected, "{charge}");
    }
}

#[test]
fn unknown_handles_and_directories_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let reply = tree
        .reply(Request::new(&request(FileId::ANY, 0, b"x")))
        .unwrap();
    assert_eq!(reply.status(), Status::FILE_CLOSED);
    // The handle is looked up before the charge is checked.
    let data = vec![0; 65_537];
    let body = request(FileId::ANY, 0, &data);
    let unpaid = Request::raw(Command::WRITE, &[])
        .mutate(|message| body.encode(message, 0))
        .overriding(|o| o.credit_charge = Some(1));
    let reply = tree.reply(unpaid).unwrap();
    assert_eq!(reply.status(), Status::FILE_CLOSED);
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_ADD_FILE;
    let directory = tree
        .create(&CreateArgs::directory("").access(access))
        .unwrap();
    assert_eq!(
        status(directory.write(0, b"x", WriteFlags::empty())),
        Status::INVALID_DEVICE_REQUEST
    );
}

#[test]
fn channels_of_other_transports_are_refused_and_ignored_where_there_are_none() {
    // [MS-SMB2] 2.2.21
    checks::refuses_channels_of_rdma(|file_id, channel, remaining_bytes| {
        Request::new(&WriteRequest {
            channel,
            remaining_bytes,
            channel_info: &[0; 16],
            ..request(file_id, 0, b"")
        })
    });
}

#[test]
fn writes_conflict_with_locks() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let [mine, other] = checks::opened_twice(&tree);
    let none = WriteFlags::empty();
    for flags in [LockFlags::EXCLUSIVE, LockFlags::SHARED] {
        mine.lock(10, 10, flags | LockFlags::FAIL_IMMEDIATELY)
            .unwrap();
        assert_eq!(
            status(other.write(19, b"xx", none)),
            Status::FILE_LOCK_CONFLICT
        );
        other.write(20, b"xx", none).unwrap();
        // [MS-FSA] 2.1.4.10: a shared lock also prevents writes of its own handle.
        let own = status(mine.write(10, b"x", none));
        let expected = if flags == LockFlags::SHARED {
            Status::FILE_LOCK_CONFLICT
        } else {
            Status::SUCCESS
        };
        assert_eq!(own, expected);
        // A write of no bytes conflicts with no lock.
        other.write(15, b"", none).unwrap();
        mine.unlock(10, 10).unwrap();
    }
}

#[test]
fn writes_to_a_read_only_share_are_refused() {
    let server = HoldfastServer::new();
    std::fs::write(server.share_path(smb_tests::READ_ONLY, "f"), b"as it was").unwrap();
    let tree = server
        .session(Options::default())
        .tree(smb_tests::READ_ONLY)
        .unwrap();
    let refused = status(tree.create(&CreateArgs::open("f").access(AccessMask::FILE_WRITE_DATA)));
    assert!(
        [Status::ACCESS_DENIED, Status::MEDIA_WRITE_PROTECTED].contains(&refused),
        "{refused}"
    );
    let file = tree
        .create(&CreateArgs::open("f").access(AccessMask::FILE_GENERIC_READ))
        .unwrap();
    assert_eq!(
        status(file.write(0, b"no", WriteFlags::empty())),
        Status::ACCESS_DENIED
    );
    assert_eq!(
        std::fs::read(server.share_path(smb_tests::READ_ONLY, "f")).unwrap(),
        b"as it was"
    );
}

#[test]
fn sixteen_concurrent_writes_all_succeed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let ids: Vec<_> = (0..16u8)
        .map(|i| {
            let data = vec![i; 4096];
            let at = u64::from(i) * 4096;
            tree.send(file.write_request(at, &data, WriteFlags::empty()))
                .unwrap()
        })
        .collect();
    for id in ids {
        tree.client().wait(id).unwrap().ok().unwrap();
    }
    let data = std::fs::read(server.path("f")).unwrap();
    assert_eq!(data.len(), 65_536);
    assert!(
        data.iter()
            .enumerate()
            .all(|(at, byte)| at / 4096 == usize::from(*byte))
    );
}
