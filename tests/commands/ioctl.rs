//! IOCTL ([MS-SMB2] 3.3.5.15).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{HoldfastServer, Outcome, SECOND, extents, outcome, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fsctl::{
    CopyChunk, CopyChunkCopy, CopyChunkResponse, DuplicateExtents, DuplicateExtentsEx,
    DuplicateExtentsFlags, FsctlCode, MarkHandleInfo, RequestResumeKeyResponse,
};
use smb_wire::ids::FileId;
use smb_wire::msg::{Dialect, IoctlResponse, LockFlags};

fn key(source: &File) -> [u8; 24] {
    let output = source
        .ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32)
        .unwrap();
    RequestResumeKeyResponse::read(&output).unwrap().resume_key
}

fn copy(source_key: [u8; 24], chunks: &[(u64, u64, u32)]) -> BytesMut {
    let chunks: Vec<CopyChunk> = chunks
        .iter()
        .map(|(source, target, length)| CopyChunk {
            source_offset: *source,
            target_offset: *target,
            length: *length,
        })
        .collect();
    let mut out = BytesMut::new();
    CopyChunkCopy {
        source_key,
        chunk_count: u32::try_from(chunks.len()).unwrap(),
        chunks,
    }
    .encode(&mut out);
    out
}

fn two(tree: &Tree) -> (File, File) {
    tree.write_file("source", b"0123456789").unwrap();
    let source = tree.create(&CreateArgs::open("source")).unwrap();
    let target = tree.create(&CreateArgs::open_if("target")).unwrap();
    (source, target)
}

#[test]
fn chunks_are_copied_by_the_server() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let input = copy(key(&source), &[(0, 5, 5), (5, 0, 5)]);
    let output = target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12).unwrap();
    let done = CopyChunkResponse::read(&output).unwrap();
    assert_eq!((done.chunks_written, done.total_bytes_written), (2, 10));
    assert_eq!(std::fs::read(server.path("target")).unwrap(), b"5678901234");
}

/// [MS-SMB2] 3.3.5.15.6 allows a TargetOffset of all ones, and [MS-FSA] 2.1.5.4 puts such a write at the end of the
/// file.
#[test]
fn chunks_without_a_target_offset_are_appended() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    target.write_all(0, b"begin").unwrap();
    let input = copy(
        key(&source),
        &[(0, u64::MAX, 2), (8, 12, 2), (2, u64::MAX, 3)],
    );
    let output = target
        .ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, &input, 12)
        .unwrap();
    let done = CopyChunkResponse::read(&output).unwrap();
    assert_eq!((done.chunks_written, done.total_bytes_written), (3, 7));
    assert_eq!(
        std::fs::read(server.path("target")).unwrap(),
        b"begin01\0\0\0\0\x0089234"
    );
    // The lock of another handle at the end of the file is one at the place of the copy.
    let other = tree.create(&CreateArgs::open("target")).unwrap();
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    other.lock(17, 1, exclusive).unwrap();
    let input = copy(key(&source), &[(0, u64::MAX, 1)]);
    let asked = target.ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, &input, 12);
    assert_eq!(status(asked), Status::FILE_LOCK_CONFLICT);
    // Other negative offsets are no places in a file.
    let input = copy(key(&source), &[(0, u64::MAX - 1, 1)]);
    let asked = target.ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, &input, 12);
    assert_eq!(status(asked), Status::INVALID_PARAMETER);
}

#[test]
fn copies_beyond_the_limits_are_answered_with_the_limits() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let key = key(&source);
    let many: Vec<_> = (0..300).map(|i| (0, i, 1)).collect();
    for chunks in [
        &[(0, 0, 0)][..],
        &[(0, 0, u32::MAX)],
        &[(0, 0, (1 << 20) + 1)],
        &many,
    ] {
        let input = copy(key, chunks);
        let asked = target.ioctl_request(FsctlCode::SRV_COPYCHUNK, &input, 12);
        let reply = tree.reply(asked).unwrap();
        assert_eq!(reply.status(), Status::INVALID_PARAMETER);
        let body = IoctlResponse::read(&reply.message).unwrap();
        let limits = CopyChunkResponse::read(body.output).unwrap();
        assert_eq!(limits.chunks_written, 256);
        assert_eq!(limits.chunk_bytes_written, 1 << 20);
        assert_eq!(limits.total_bytes_written, 16 << 20);
    }
    assert_eq!(std::fs::metadata(server.path("target")).unwrap().len(), 0);
}

#[test]
fn copies_need_a_key_and_rights() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let copying = |target: &File, key, max| {
        let input = copy(key, &[(0, 0, 5)]);
        status(target.ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, &input, max))
    };
    let good = key(&source);
    assert_eq!(
        copying(&target, [0x5a; 24], 12),
        Status::OBJECT_NAME_NOT_FOUND,
        "unknown key"
    );
    assert_eq!(
        copying(&target, good, 11),
        Status::INVALID_PARAMETER,
        "no room"
    );
    // [MS-SMB2] 3.3.5.15.6 looks for the source first.
    let nobodys = [0x5a; 24];
    assert_eq!(copying(&target, nobodys, 11), Status::OBJECT_NAME_NOT_FOUND);
    for (key, expected) in [
        (&nobodys[..], Status::OBJECT_NAME_NOT_FOUND),
        (&good, Status::INVALID_PARAMETER),
        (&good[..23], Status::INVALID_PARAMETER),
    ] {
        let cut = target.ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, key, 12);
        assert_eq!(status(cut), expected, "{} bytes", key.len());
    }
    let open = |name, access| tree.create(&CreateArgs::open(name).access(access)).unwrap();
    let reader = open("target", AccessMask::FILE_READ_DATA);
    assert_eq!(
        copying(&reader, good, 12),
        Status::ACCESS_DENIED,
        "target not writable"
    );
    let writer = open("source", AccessMask::FILE_WRITE_DATA);
    assert_eq!(
        copying(&target, key(&writer), 12),
        Status::ACCESS_DENIED,
        "source not readable"
    );
    // SRV_COPYCHUNK requires read access to the target too; SRV_COPYCHUNK_WRITE does not.
    let write_only = open("target", AccessMask::FILE_WRITE_DATA);
    let input = copy(good, &[(0, 0, 5)]);
    assert_eq!(
        status(write_only.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12)),
        Status::ACCESS_DENIED
    );
    assert_eq!(copying(&write_only, good, 12), Status::SUCCESS);
    // The source range is beyond the end.
    let input = copy(good, &[(5, 0, 100)]);
    let beyond = status(target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12));
    assert!(beyond.is_error(), "{beyond}");
}

#[test]
fn files_are_copied_between_shares() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (here, there) = (
        session.tree(smb_tests::DATA).unwrap(),
        session.tree(SECOND).unwrap(),
    );
    here.write_file("source", b"0123456789").unwrap();
    let source = here.create(&CreateArgs::open("source")).unwrap();
    let target = there.create(&CreateArgs::create("target")).unwrap();
    let input = copy(key(&source), &[(0, 0, 10)]);
    target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12).unwrap();
    assert_eq!(there.read_file("target").unwrap(), b"0123456789");
}

#[test]
fn a_device_ioctl_is_not_supported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    // Without the flag IS_FSCTL.
    let request = file
        .ioctl_request(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32)
        .mutate(|message| message[64 + 48] = 0);
    assert_eq!(status(tree.call(request)), Status::NOT_SUPPORTED);
}

/// [MS-FSA] 2.1.5.10.9 and 2.1.5.10.30.
#[test]
fn a_state_of_compression_has_two_bytes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let get = |max| file.ioctl(FsctlCode::GET_COMPRESSION, &[], max);
    assert_eq!(get(2).unwrap(), [0; 2]);
    assert_eq!(status(get(1)), Status::INVALID_PARAMETER);
    let set = |state: &[u8]| status(file.ioctl(FsctlCode::SET_COMPRESSION, state, 0));
    assert_eq!(set(&[0, 0]), Status::SUCCESS);
    for invalid in [&[][..], &[0], &[0xdd, 0]] {
        assert_eq!(set(invalid), Status::INVALID_PARAMETER, "{invalid:?}");
    }
}

/// [MS-SMB2] 3.3.5.15.19.
#[test]
fn no_copy_of_a_file_can_be_chosen() {
    let server = HoldfastServer::new();
    let mark = |options, handle_info, length| {
        let tree = server.tree_with(options);
        let file = tree.create(&CreateArgs::open_if("f")).unwrap();
        let mut input = BytesMut::new();
        MarkHandleInfo {
            handle_info,
            ..MarkHandleInfo::default()
        }
        .encode(&mut input);
        status(file.ioctl(FsctlCode::MARK_HANDLE, &input[..length], 0))
    };
    let modern = |info, length| mark(Options::default(), info, length);
    assert_eq!(modern(0x80, 23), Status::INVALID_PARAMETER);
    for unknown in [0, 0x180, 1] {
        assert_eq!(modern(unknown, 24), Status::NOT_SUPPORTED, "{unknown:#x}");
    }
    for known in [0x80, 0x100] {
        assert_eq!(modern(known, 24), Status::INVALID_DEVICE_REQUEST);
    }
    let older = mark(Options::dialect(Dialect::SMB_3_0_2), 0x80, 24);
    assert_eq!(older, Status::NOT_SUPPORTED);
}

#[test]
fn unknown_codes_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    for code in [0, 1, 0x0009_0000, 0x0009_9999, 0x0014_ffff, 0xffff_ffff] {
        let refused = status(file.ioctl(FsctlCode(code), &[0; 16], 4096));
        assert!(
            [Status::NOT_SUPPORTED, Status::INVALID_DEVICE_REQUEST].contains(&refused),
            "{code:#x}: {refused}"
        );
    }
    assert_eq!(
        status(tree.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32)),
        Status::FILE_CLOSED
    );
}

#[test]
fn buffers_outside_the_message_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let max = tree.client().negotiated().max_transact_size;
    let over = file.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], max + 1);
    assert_eq!(status(over), Status::INVALID_PARAMETER);
    let under = file.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 4);
    assert_eq!(status(under), Status::INVALID_PARAMETER);
    // InputOffset and InputCount point outside the message.
    for (at, value) in [(88, u32::MAX), (92, u32::MAX), (92, 0x10000), (88, 0x10)] {
        let spoilt = file
            .ioctl_request(FsctlCode::SET_SPARSE, &[1, 2, 3, 4], 0)
            .mutate(|m| m[at..at + 4].copy_from_slice(&value.to_le_bytes()));
        let reply = tree.reply(spoilt).unwrap();
        assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{at} {value:#x}");
    }
    // [MS-SMB2] 3.3.5.15: the input is aligned, and OutputOffset and OutputCount are ignored.
    let with = |values: [(usize, u32); 2]| {
        let request = file.ioctl_request(FsctlCode::SET_SPARSE, &[1; 12], 0);
        let request = request.mutate(|m| {
            for (at, value) in values {
                m[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        });
        tree.reply(request).unwrap().status()
    };
    assert_eq!(with([(88, 124), (92, 4)]), Status::INVALID_PARAMETER);
    assert_eq!(with([(88, 128), (92, 4)]), Status::SUCCESS);
    assert_eq!(with([(100, 0), (104, 16)]), Status::SUCCESS);
}

#[test]
fn the_negotiation_is_confirmed() {
    let server = HoldfastServer::new();
    // The client verifies the negotiation itself after the tree connect; here it is done once more
    // explicitly.
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2] {
        let tree = server.tree_with(Options::dialect(dialect));
        tree.validate_negotiate().unwrap();
    }
    let many = Options {
        dialects: vec![Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0],
        ..Options::default()
    };
    server.tree_with(many).validate_negotiate().unwrap();
}

#[test]
fn a_modified_negotiation_ends_the_connection() {
    // [MS-SMB2] 3.3.5.15.12
    let server = HoldfastServer::new();
    for (at, what) in [
        (0, "capabilities"),
        (4, "guid"),
        (20, "mode"),
        (24, "dialects"),
    ] {
        let tree = server.tree_with(Options::dialect(Dialect::SMB_3_0));
        let mut input = tree
            .client()
            .connection()
            .core()
            .validate_negotiate_input()
            .unwrap();
        input[at] ^= 0x04;
        let request = Request::ioctl(FileId::ANY, FsctlCode::VALIDATE_NEGOTIATE_INFO, &input, 24)
            .overriding(|o| o.sign = Some(true));
        assert_eq!(outcome(tree.reply(request)), Outcome::Closed, "{what}");
    }
    server.assert_serving();
}

#[test]
fn on_3_1_1_the_negotiation_is_not_validated_by_ioctl() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_3_1_1));
    let code = FsctlCode::VALIDATE_NEGOTIATE_INFO;
    let request = Request::ioctl(FileId::ANY, code, &[0; 26], 24);
    assert_eq!(outcome(tree.reply(request)), Outcome::Closed);
}

/// A file that is no longer sparse reports all of its ranges as allocated, but takes no additional
/// space.
#[test]
fn clearing_the_sparse_flag_allocates_nothing() {
    const SIZE: u64 = 1 << 30;
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.ioctl(FsctlCode::SET_SPARSE, &[1], 0).unwrap();
    file.write_all(SIZE - 4096, &[7; 4096]).unwrap();
    file.ioctl(FsctlCode::SET_SPARSE, &[0], 0).unwrap();
    let there = std::fs::metadata(server.path("f")).unwrap();
    let allocated = std::os::unix::fs::MetadataExt::blocks(&there) * 512;
    assert!(allocated < 1 << 20, "{allocated} bytes are allocated");
    let whole = [0u64.to_le_bytes(), SIZE.to_le_bytes()].concat();
    let ranges = file
        .ioctl(FsctlCode::QUERY_ALLOCATED_RANGES, &whole, 4096)
        .unwrap();
    assert_eq!(ranges, whole);
}

#[test]
fn holes_are_created_and_reported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[7; 1 << 20]).unwrap();
    file.ioctl(FsctlCode::SET_SPARSE, &[], 0).unwrap();
    let mut zero = Vec::new();
    zero.extend_from_slice(&0x4_0000u64.to_le_bytes());
    zero.extend_from_slice(&0x8_0000u64.to_le_bytes());
    file.ioctl(FsctlCode::SET_ZERO_DATA, &zero, 0).unwrap();
    let data = file.read_all().unwrap();
    assert!(data[0x4_0000..0x8_0000].iter().all(|b| *b == 0));
    assert!(
        data[..0x4_0000]
            .iter()
            .chain(&data[0x8_0000..])
            .all(|b| *b == 7)
    );
    let mut whole = Vec::new();
    whole.extend_from_slice(&0u64.to_le_bytes());
    whole.extend_from_slice(&(1u64 << 20).to_le_bytes());
    let ranges = file
        .ioctl(FsctlCode::QUERY_ALLOCATED_RANGES, &whole, 4096)
        .unwrap();
    assert!(!ranges.is_empty() && ranges.len().is_multiple_of(16));
    for bad in [&zero[..15], &[0xff; 16][..]] {
        let refused = status(file.ioctl(FsctlCode::SET_ZERO_DATA, bad, 0));
        assert_eq!(refused, Status::INVALID_PARAMETER);
    }
}

/// [MS-FSA] 2.1.5.10.39: locks are examined, and caching is broken, only where there are data to zero.
#[test]
fn zeroing_beyond_the_end_meets_no_lock() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"0123456789").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let other = server.tree();
    let locker = other.create(&CreateArgs::open("f")).unwrap();
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    locker.lock(20, 10, exclusive).unwrap();
    let zero = |from: u64, to: u64| {
        let mut input = from.to_le_bytes().to_vec();
        input.extend_from_slice(&to.to_le_bytes());
        status(file.ioctl(FsctlCode::SET_ZERO_DATA, &input, 0))
    };
    assert_eq!(zero(20, 30), Status::SUCCESS);
    assert_eq!(zero(5, 30), Status::SUCCESS);
    let left = std::fs::read(server.path("f")).unwrap();
    assert_eq!(left, b"01234\0\0\0\0\0");
    locker.lock(9, 1, exclusive).unwrap();
    assert_eq!(zero(8, 30), Status::FILE_LOCK_CONFLICT);
    assert_eq!(zero(10, 30), Status::SUCCESS);
}

/// [MS-FSA] 2.1.5.10.39.
#[test]
fn a_stream_that_is_to_be_deleted_is_not_zeroed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f:s", b"0123").unwrap();
    let stream = tree.create(&CreateArgs::open("f:s")).unwrap();
    let mut input = 0u64.to_le_bytes().to_vec();
    input.extend_from_slice(&4u64.to_le_bytes());
    stream.set_delete(true).unwrap();
    let zeroed = stream.ioctl(FsctlCode::SET_ZERO_DATA, &input, 0);
    assert_eq!(status(zeroed), Status::FILE_DELETED);
    stream.set_delete(false).unwrap();
    assert_eq!(tree.read_file("f:s").unwrap(), b"0123");
}

/// [MS-FSA] 2.1.5.10.5.
#[test]
fn an_unknown_structure_of_extents_is_not_supported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let mut extents = BytesMut::new();
    DuplicateExtentsEx {
        structure_size: DuplicateExtentsEx::STRUCTURE_SIZE + 8,
        extents: DuplicateExtents {
            source_file_id: source.id(),
            ..DuplicateExtents::default()
        },
        flags: DuplicateExtentsFlags::empty(),
    }
    .encode(&mut extents);
    let code = FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX;
    let refused = status(target.ioctl(code, &extents, 0));
    assert_eq!(refused, Status::NOT_SUPPORTED);
    let short = status(target.ioctl(code, &extents[..55], 0));
    assert_eq!(short, Status::INVALID_PARAMETER);
}

fn share(source: &File, target: &File, byte_count: i64) -> Status {
    let input = extents(source.id(), byte_count);
    status(target.ioctl(FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &input, 0))
}

/// [MS-FSA] 2.1.5.10.4.
#[test]
fn extents_are_shared_with_a_source_that_may_be_read() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("source", &[7; 5000]).unwrap();
    let writes = CreateArgs::open("source").access(AccessMask::FILE_WRITE_DATA);
    let source = tree.create(&writes).unwrap();
    let target = tree.create(&CreateArgs::create("target")).unwrap();
    // An empty range shares nothing, whatever the source is.
    assert_eq!(share(&source, &target, 0), Status::SUCCESS);
    assert_eq!(share(&source, &target, 4096), Status::INVALID_PARAMETER);
    let directory = tree.create(&CreateArgs::directory("")).unwrap();
    let refused = share(&directory, &target, 4096);
    assert_eq!(refused, Status::INVALID_PARAMETER);
}

/// [MS-FSA] 2.1.5.10.4: a range of whole clusters reaches beyond the end of a file that ends within one.
#[test]
fn extents_are_shared_up_to_the_end_of_the_source() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("source", &[7; 5000]).unwrap();
    let source = tree.create(&CreateArgs::open("source")).unwrap();
    let target = tree.create(&CreateArgs::create("target")).unwrap();
    target.set_end_of_file(5000).unwrap();
    assert_eq!(share(&source, &target, 1 << 30), Status::NOT_SUPPORTED);
    // A part of a cluster is shared at the end only, if the file system shares anything.
    let part = share(&source, &target, 4095);
    let refusals = [Status::INVALID_PARAMETER, Status::INVALID_DEVICE_REQUEST];
    assert!(refusals.contains(&part), "{part}");
    // The range ends within the last cluster, however large that is.
    let shared = share(&source, &target, 5120);
    if shared == Status::SUCCESS {
        let copied = std::fs::read(server.path("target")).unwrap();
        assert_eq!(copied, [7; 5000]);
    } else {
        // The file system of the test cannot share extents.
        assert_eq!(shared, Status::INVALID_DEVICE_REQUEST);
    }
}
