//! READ ([MS-SMB2] 3.3.5.12, [MS-FSA] 2.1.5.3).

use smb_client::{CreateArgs, Options, Request};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{Channel, LockFlags, ReadFlags, ReadRequest, ReadResponse};

use crate::checks;

fn request(file_id: FileId, offset: u64, length: u32) -> ReadRequest<'static> {
    ReadRequest {
        padding: 0x50,
        flags: ReadFlags::empty(),
        length,
        offset,
        file_id,
        minimum_count: 0,
        channel: Channel::NONE,
        remaining_bytes: 0,
        channel_info: &[],
    }
}

#[test]
fn a_read_returns_the_existing_data() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let content: Vec<u8> = (0..100_000u32).map(|i| i.to_le_bytes()[1]).collect();
    std::fs::write(server.path("f"), &content).unwrap();
    let file = tree
        .create(&CreateArgs::open("f").access(AccessMask::FILE_GENERIC_READ))
        .unwrap();
    assert_eq!(file.read(0, 10).unwrap(), content[..10]);
    assert_eq!(file.read(99_990, 100).unwrap(), content[99_990..]);
    assert_eq!(file.read_all().unwrap(), content);
    let reply = tree.call(file.read_request(0, 10, 10)).unwrap();
    let response = ReadResponse::read(&reply.message).unwrap();
    assert_eq!((response.data_remaining, response.data.len()), (0, 10));
}

#[test]
fn a_read_beyond_the_end_gives_end_of_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", &[1; 100]).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for (offset, length, minimum, expected) in [
        (100, 1, 0, Status::END_OF_FILE),
        (1000, 10, 0, Status::END_OF_FILE),
        (90, 20, 10, Status::SUCCESS),
        (90, 20, 11, Status::END_OF_FILE),
        (0, 0, 0, Status::SUCCESS),
    ] {
        let reply = tree
            .reply(file.read_request(offset, length, minimum))
            .unwrap();
        assert_eq!(reply.status(), expected, "{offset} {length} {minimum}");
    }
}

#[test]
fn the_right_to_read_is_needed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"secret").unwrap();
    let access = AccessMask::FILE_WRITE_DATA | AccessMask::FILE_READ_ATTRIBUTES;
    let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
    assert_eq!(status(file.read(0, 6)), Status::ACCESS_DENIED);
}

#[test]
fn invalid_lengths_and_offsets_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let max = tree.client().negotiated().max_read_size;
    // The charge is right; only the length is invalid.
    let reply = tree.reply(file.read_request(0, max + 1, 0)).unwrap();
    assert_eq!(reply.status(), Status::INVALID_PARAMETER);
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64] {
        let reply = tree.reply(file.read_request(offset, 10, 0)).unwrap();
        assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{offset:#x}");
    }
}

#[test]
fn the_charge_must_cover_the_length() {
    // [MS-SMB2] 3.3.5.2.5
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", &[0; 70_000]).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for (length, charge, expected) in [
        (65_536, 0, Status::SUCCESS),
        (65_537, 0, Status::INVALID_PARAMETER),
        (65_537, 1, Status::INVALID_PARAMETER),
        (65_537, 2, Status::SUCCESS),
    ] {
        // The request uses one credit, although its header announces the charge: the ids must not
        // advance further.
        let body = request(file.id(), 0, length);
        let asked = if charge < 2 {
            Request::raw(smb_wire::Command::READ, &[]).mutate(|message| {
                body.encode(message, 0);
            })
        } else {
            Request::new(&body)
        };
        let reply = tree
            .reply(asked.overriding(|o| o.credit_charge = Some(charge)))
            .unwrap();
        assert_eq!(reply.status(), expected, "{length} {charge}");
    }
}

#[test]
fn unknown_handles_and_directories_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    // The handle is looked up before the length is checked.
    for length in [1, tree.client().negotiated().max_read_size + 1] {
        let reply = tree
            .reply(Request::new(&request(FileId::ANY, 0, length)))
            .unwrap();
        assert_eq!(reply.status(), Status::FILE_CLOSED, "{length}");
    }
    let directory = tree.create(&CreateArgs::directory("")).unwrap();
    assert_eq!(status(directory.read(0, 1)), Status::INVALID_DEVICE_REQUEST);
}

#[test]
fn channels_of_other_transports_are_refused_and_ignored_where_there_are_none() {
    // [MS-SMB2] 2.2.19
    checks::refuses_channels_of_rdma(|file_id, channel, remaining_bytes| {
        Request::new(&ReadRequest {
            channel,
            remaining_bytes,
            channel_info: &[0; 16],
            ..request(file_id, 0, 1)
        })
    });
}

#[test]
fn a_read_conflicts_with_another_clients_exclusive_lock() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let [mine, other] = checks::opened_twice(&tree);
    mine.lock(10, 10, LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY)
        .unwrap();
    assert_eq!(status(other.read(0, 11)), Status::FILE_LOCK_CONFLICT);
    assert_eq!(other.read(0, 10).unwrap().len(), 10);
    assert_eq!(mine.read(0, 30).unwrap().len(), 30);
    mine.unlock(10, 10).unwrap();
    assert_eq!(other.read(0, 30).unwrap().len(), 30);
}

#[test]
fn large_reads_are_returned_completely() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let max = tree.client().negotiated().max_read_size.min(4 << 20);
    let content: Vec<u8> = (0..max).map(|i| (i >> 12).to_le_bytes()[0]).collect();
    std::fs::write(server.path("f"), &content).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    // The client may not have enough credits for the first request; it waits for them.
    tree.client().echo().unwrap();
    assert!(file.read(0, max).unwrap() == content);
}

/// The size of pieces that the server may send directly from the page cache; they are requested
/// often enough for this, and without protection of the answers.
const PIECE: u32 = 65_536;

#[test]
fn data_are_the_same_with_every_protection() {
    use smb_client::{Encryption, Signing};
    let server = HoldfastServer::new();
    let content: Vec<u8> = (0..1u32 << 20)
        .map(|i| ((i * 7) >> 3).to_le_bytes()[0])
        .collect();
    std::fs::write(server.path("f"), &content).unwrap();
    let at = |offset: usize| &content[offset..offset + PIECE as usize];
    for options in [
        Options::default(),
        Options::default().signing(Signing::Required),
        Options::default().encryption(Encryption::Always),
    ] {
        let tree = server.tree_with(options);
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        for turn in 0..12 {
            let offset = turn * 70_001;
            assert!(
                file.read(offset as u64, PIECE).unwrap() == at(offset),
                "{offset}"
            );
        }
        // Two READs in one message, between other requests.
        let read = |offset| file.read_request(offset, PIECE, 0);
        let requests = vec![file.read_request(5, 10, 0), read(4096), read(9999)];
        tree.client().echo().unwrap();
        let requests = requests.into_iter().map(|request| tree.address(request));
        let replies = tree.client().compound(requests.collect()).unwrap();
        for (reply, expected) in replies.iter().zip([&content[5..15], at(4096), at(9999)]) {
            let response = ReadResponse::read(&reply.message).unwrap();
            assert!(response.data == expected);
        }
    }
}

#[test]
fn a_read_after_a_change_returns_the_new_data() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    for turn in 0..8u8 {
        let content = vec![turn; 3 * PIECE as usize];
        if turn % 2 == 0 {
            file.write_all(0, &content).unwrap();
        } else {
            std::fs::write(server.path("f"), &content).unwrap();
        }
        for offset in [0, 1, u64::from(2 * PIECE)] {
            assert!(file.read(offset, PIECE).unwrap() == content[..PIECE as usize]);
        }
        // Less than a piece remains.
        let short = file.read(u64::from(2 * PIECE) + 1, PIECE).unwrap();
        assert_eq!(short.len(), PIECE as usize - 1);
        std::fs::File::options()
            .write(true)
            .open(server.path("f"))
            .unwrap()
            .set_len(u64::from(PIECE) - 1)
            .unwrap();
        assert_eq!(file.read(0, PIECE).unwrap().len(), PIECE as usize - 1);
        assert_eq!(
            status(file.read(u64::from(PIECE), PIECE)),
            Status::END_OF_FILE
        );
    }
}

#[test]
fn answers_that_are_read_late_are_complete() {
    let server = HoldfastServer::new();
    let content: Vec<u8> = (0..8u32 << 20)
        .map(|i| (i >> 9).to_le_bytes()[0] ^ 0x5a)
        .collect();
    std::fs::write(server.path("f"), &content).unwrap();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let at = |number: usize| number * 60_001 % (7 << 20);
    for _ in 0..3 {
        // More than any socket can buffer.
        let sent: Vec<_> = (0..100)
            .map(|number| {
                let read = file.read_request(at(number) as u64, PIECE, 0);
                tree.send(read).unwrap()
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(100));
        for (number, id) in sent.into_iter().enumerate() {
            let reply = tree.client().wait(id).unwrap();
            let response = ReadResponse::read(&reply.message).unwrap();
            assert!(response.data == &content[at(number)..][..PIECE as usize]);
        }
    }
}

#[test]
fn a_client_that_reads_no_answers_does_not_block_others() {
    let server = HoldfastServer::new();
    std::fs::write(server.path("f"), vec![9; 1 << 20]).unwrap();
    let trees: Vec<_> = (0..12).map(|_| server.tree()).collect();
    let files: Vec<_> = trees
        .iter()
        .map(|tree| tree.create(&CreateArgs::open("f")).unwrap())
        .collect();
    // All clients request more data than is sent to a client that does not read.
    for (tree, file) in trees.iter().zip(&files) {
        for number in 0..100 {
            tree.send(file.read_request(number * 4096, PIECE, 0))
                .unwrap();
        }
    }
    let tree = server.tree();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for _ in 0..20 {
        assert!(file.read(77, PIECE).unwrap() == vec![9; PIECE as usize]);
    }
}
