//! The answers of IOCTL: their layout, codes that no server passes on, and copies that fail on the way ([MS-SMB2]
//! 3.3.5.15).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{DATA, HoldfastServer, Outcome, outcome, status};
use smb_wire::access_mask::AccessMask;
use smb_wire::fsctl::{
    CopyChunkResponse, FsctlCode, RequestResumeKeyResponse, ValidateNegotiateInfoRequest,
    ValidateNegotiateInfoResponse,
};
use smb_wire::ids::{FileId, Guid};
use smb_wire::msg::{Dialect, IoctlFlags, IoctlRequest, IoctlResponse, LockFlags};
use smb_wire::{Malformed, Status};

/// STATUS_INVALID_VIEW_SIZE ([MS-ERREF] 2.3.1).
const INVALID_VIEW_SIZE: Status = Status(0xc000_001f);
const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE.union(LockFlags::FAIL_IMMEDIATELY);

fn full(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

/// A source of ten bytes and an empty target.
fn two(tree: &Tree) -> (File, File) {
    tree.write_file("source", b"0123456789").unwrap();
    (full(tree, "source"), full(tree, "target"))
}

/// Copies chunks, and returns the status and the data of the response, which an error has as well.
fn copy(target: &File, input: &BytesMut) -> (Status, Result<CopyChunkResponse, Malformed>) {
    let request = target.ioctl_request(FsctlCode::SRV_COPYCHUNK, input, 12);
    let reply = target.tree().reply(request).unwrap();
    let body = IoctlResponse::read(&reply.message);
    let answer = body.and_then(|body| CopyChunkResponse::read(body.output));
    (reply.status(), answer)
}

/// The chunks and bytes that a response reports as written.
fn written(answer: Result<CopyChunkResponse, Malformed>) -> (u32, u32) {
    let answer = answer.unwrap();
    (answer.chunks_written, answer.total_bytes_written)
}

/// [MS-SMB2] 3.3.5.15.8, note 397: codes that concern the host itself are not passed on.
#[test]
fn codes_of_the_host_are_not_supported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    for code in [
        0x0009_0000,
        0x0009_0004,
        0x0009_0008,
        0x0009_000c,
        0x0009_0010,
        0x0009_0014,
        0x0009_003b,
        0x0009_0054,
        0x0009_005c,
        0x0009_0068,
        0x0009_006f,
        0x0009_0074,
        0x0009_00b3,
        0x0009_00bb,
        0x0009_00e7,
        0x0009_00f4,
        0x0009_00f8,
        0x0009_01f0,
        0x0009_01f4,
        0x0009_01f8,
        0x0009_0200,
        0x0009_0230,
        0x0009_0234,
        0x0009_0238,
        0x0009_023c,
        0x0009_0240,
        0x0009_0248,
        0x0009_025c,
        0x0009_0284,
        0x0009_4148,
        0x0009_4160,
        0x0009_416c,
        0x0009_4170,
        0x0009_418c,
        0x0009_41e4,
        0x0009_8144,
        0x0009_8150,
        0x0009_8154,
        0x0009_8158,
        0x0009_815c,
        0x0009_8164,
        0x0009_8168,
        0x0009_8178,
        0x0009_817c,
        0x0011_0000,
    ] {
        let refused = status(file.ioctl(FsctlCode(code), &[0; 64], 4096));
        assert_eq!(refused, Status::NOT_SUPPORTED, "{code:#x}");
    }
}

/// [MS-SMB2] 3.3.5.15: that a request is an FSCTL is checked before its code and its handle.
#[test]
fn the_flag_is_checked_before_the_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    let ask = |ctl_code: FsctlCode, file_id, flags| {
        let request = Request::new(&IoctlRequest {
            ctl_code: ctl_code.0,
            file_id,
            input: &[],
            max_input_response: 0,
            output_count: 0,
            max_output_response: 32,
            flags: IoctlFlags(flags),
        });
        status(tree.call(request))
    };
    let key = FsctlCode::SRV_REQUEST_RESUME_KEY;
    assert_eq!(ask(key, FileId::ANY, 0), Status::NOT_SUPPORTED);
    assert_eq!(ask(key, FileId::ANY, 1), Status::FILE_CLOSED);
    let referrals = FsctlCode::DFS_GET_REFERRALS;
    assert_eq!(ask(referrals, file.id(), 0), Status::NOT_SUPPORTED);
    assert_eq!(ask(referrals, file.id(), 1), Status::INVALID_PARAMETER);
}

/// [MS-SMB2] 3.3.5.15.5, 3.3.5.15.8: no input comes back, and the output is aligned behind the head of the response.
#[test]
fn the_output_is_aligned_and_no_input_comes_back() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    for (code, input) in [
        (FsctlCode::SRV_REQUEST_RESUME_KEY, &b""[..]),
        (FsctlCode::SRV_REQUEST_RESUME_KEY, b"an input"),
        (FsctlCode::GET_COMPRESSION, b""),
        (FsctlCode::SRV_ENUMERATE_SNAPSHOTS, b""),
        (FsctlCode::SET_SPARSE, b"\x01"),
    ] {
        let reply = tree.call(file.ioctl_request(code, input, 64)).unwrap();
        let word = |at: usize| u32::from_le_bytes(reply.message[at..at + 4].try_into().unwrap());
        // InputCount, OutputOffset, OutputCount and Flags.
        let (input_count, offset, count, flags) = (word(92), word(96), word(100), word(104));
        assert_eq!((input_count, flags), (0, 0), "{code}");
        if count != 0 {
            assert!(offset >= 112 && offset.is_multiple_of(8), "{code} {offset}");
            let end = usize::try_from(offset + count).unwrap();
            assert!(end <= reply.message.len(), "{code}");
        }
    }
}

/// [MS-SMB2] 3.3.5.15.5: the key is one of the open, with no context behind it.
#[test]
fn every_open_has_a_key_of_its_own() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (first, second) = (full(&tree, "f"), full(&tree, "f"));
    let ask = |file: &File| {
        let code = FsctlCode::SRV_REQUEST_RESUME_KEY;
        let answer = file.ioctl(code, &[], 32).unwrap();
        assert_eq!(answer.len(), 32);
        assert_eq!(answer[24..28], [0; 4], "the length of a context");
        RequestResumeKeyResponse::read(&answer).unwrap().resume_key
    };
    assert_ne!(ask(&first), ask(&second));
}

/// [MS-SMB2] 3.3.5.15.6: a copy that succeeds reports no part of a chunk.
#[test]
fn a_copy_reports_its_chunks_and_bytes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let input = source.copy_chunks(&[(0, 0, 3), (3, 3, 4), (9, 7, 1)]);
    let (end, done) = copy(&target, &input.unwrap());
    assert_eq!(end, Status::SUCCESS);
    let expected = CopyChunkResponse {
        chunks_written: 3,
        chunk_bytes_written: 0,
        total_bytes_written: 8,
    };
    assert_eq!(done.unwrap(), expected);
    assert_eq!(tree.read_file("target").unwrap(), b"01234569");
}

/// [MS-SMB2] 3.3.5.15.6.1: a chunk beyond the end of the source ends the copy behind the chunks before it, with the
/// status of Windows that smb2.ioctl.copy_chunk_src_exceed expects.
#[test]
fn a_chunk_beyond_the_end_of_the_source_ends_the_copy() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let input = source.copy_chunks(&[(5, 0, 6)]).unwrap();
    let (end, done) = copy(&target, &input);
    assert_eq!(end, INVALID_VIEW_SIZE);
    assert_eq!(written(done), (0, 0));
    let input = source.copy_chunks(&[(0, 0, 4), (5, 4, 6)]).unwrap();
    let (end, done) = copy(&target, &input);
    assert_eq!(end, INVALID_VIEW_SIZE);
    assert_eq!(written(done), (1, 4));
    assert_eq!(tree.read_file("target").unwrap(), b"0123");
}

/// [MS-SMB2] 3.3.5.15.6: all ranges are compared with the locks of others before anything is copied.
#[test]
fn a_copy_that_meets_a_lock_copies_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    target.write_all(0, b"----------").unwrap();
    let chunks = source.copy_chunks(&[(0, 0, 5), (5, 5, 5)]).unwrap();
    for name in ["source", "target"] {
        let other = full(&tree, name);
        other.lock(9, 1, EXCLUSIVE).unwrap();
        let (end, done) = copy(&target, &chunks);
        assert_eq!(end, Status::FILE_LOCK_CONFLICT, "{name}");
        assert_eq!(written(done), (0, 0), "{name}");
        other.close().unwrap();
        assert_eq!(tree.read_file("target").unwrap(), b"----------", "{name}");
    }
    assert_eq!(copy(&target, &chunks).0, Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.15.6: source and target may be one file, and one handle.
#[test]
fn a_file_is_copied_into_itself() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, _target) = two(&tree);
    let input = source.copy_chunks(&[(0, 10, 10)]).unwrap();
    assert_eq!(copy(&source, &input).0, Status::SUCCESS);
    assert_eq!(tree.read_file("source").unwrap(), b"01234567890123456789");
}

/// [MS-SMB2] 3.3.5.15.6: a key names an open, and ends with it.
#[test]
fn the_key_of_a_closed_source_is_not_found() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    let input = source.copy_chunks(&[(0, 0, 4)]).unwrap();
    source.close().unwrap();
    let copied = target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12);
    assert_eq!(status(copied), Status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(tree.read_file("target").unwrap(), b"");
}

/// [MS-SMB2] 3.3.5.15, note 377: where there is no input, its offset means nothing.
#[test]
fn the_offset_of_no_input_is_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    for offset in [0, 1, 0x40, 0x7c, 0xffff, u32::MAX] {
        let request = file.ioctl_request(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32);
        let request = request.mutate(|m| m[88..92].copy_from_slice(&offset.to_le_bytes()));
        let end = tree.reply(request).unwrap().status();
        assert_eq!(end, Status::SUCCESS, "{offset:#x}");
    }
}

/// The input of a validation of what this client has offered, with these dialects.
fn validation(tree: &Tree, dialects: &[Dialect]) -> BytesMut {
    let connection = tree.client().connection();
    let core = connection.core();
    let mut input = BytesMut::new();
    ValidateNegotiateInfoRequest {
        capabilities: core.capabilities().bits(),
        // A client that offers 2.0.2 alone has none.
        guid: match dialects {
            [Dialect::SMB_2_0_2] => Guid::default(),
            _ => core.guid(),
        },
        security_mode: core.security_mode().bits(),
        dialects: dialects.iter().map(|dialect| dialect.0).collect(),
    }
    .encode(&mut input);
    input
}

/// [MS-SMB2] 3.3.5.15.12: on older dialects a validation shows that nobody has taken a newer one out of the offer, and
/// the dialects are compared as they were offered.
#[test]
fn the_offer_of_any_older_dialect_is_validated() {
    let server = HoldfastServer::new();
    let (oldest, old, new) = (Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0);
    let done = Outcome::Answered(Status::SUCCESS);
    for (offered, dialects, expected) in [
        (&[oldest][..], &[oldest][..], done),
        (&[old], &[old], done),
        (&[old], &[old, new], Outcome::Closed),
        (&[old, new], &[old, new], done),
        (&[old, new], &[new, old], Outcome::Closed),
        (&[old, new], &[new], Outcome::Closed),
    ] {
        let tree = server.tree_with(Options {
            dialects: offered.to_vec(),
            ..Options::default()
        });
        let input = validation(&tree, dialects);
        let code = FsctlCode::VALIDATE_NEGOTIATE_INFO;
        let request = Request::ioctl(FileId::ANY, code, &input, 24);
        let end = outcome(tree.reply(request.overriding(|o| o.sign = Some(true))));
        assert_eq!(end, expected, "{offered:?} {dialects:?}");
    }
}

/// [MS-SMB2] 3.3.5.15.12: the answer repeats what the negotiation had, and concerns no file.
#[test]
fn a_validation_is_answered_with_the_negotiation() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_0_2] {
        let tree = server.tree_with(Options::dialect(dialect));
        let input = validation(&tree, &[dialect]);
        let code = FsctlCode::VALIDATE_NEGOTIATE_INFO;
        let request = Request::ioctl(FileId::ANY, code, &input, 64);
        let request = request.overriding(|o| o.sign = Some(true));
        let reply = tree.call(request).unwrap();
        let response = IoctlResponse::read(&reply.message).unwrap();
        let expected = (code.0, FileId::ANY, 0);
        let found = (response.ctl_code, response.file_id, response.flags);
        assert_eq!(found, expected, "{dialect}");
        assert_eq!(response.output.len(), 24, "{dialect}");
        let answer = ValidateNegotiateInfoResponse::read(response.output).unwrap();
        let negotiated = tree.client().negotiated();
        assert_eq!(answer.capabilities, negotiated.capabilities.bits());
        assert_eq!(answer.guid, negotiated.server_guid);
        assert_eq!(answer.security_mode, negotiated.security_mode.bits());
        assert_eq!(answer.dialect, dialect.0);
    }
}

/// [MS-SMB2] 3.3.5.15.7: there are no hashes of contents, whatever is asked about them.
#[test]
fn hashes_of_contents_are_not_supported() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full(&tree, "f");
    let directory = tree.create(&CreateArgs::directory("")).unwrap();
    // HashType, HashVersion, HashRetrievalType, Length and Offset.
    let mut input = BytesMut::new();
    for number in [1_u32, 1, 1, 4096, 0, 0] {
        input.extend_from_slice(&number.to_le_bytes());
    }
    for object in [&file, &directory] {
        for (input, room) in [(&input[..], 4096), (&input[..23], 4096), (&[], 0)] {
            let refused = status(object.ioctl(FsctlCode::SRV_READ_HASH, input, room));
            assert_eq!(refused, Status::NOT_SUPPORTED, "{} {room}", input.len());
        }
    }
}

/// [MS-SMB2] 3.3.5.15.6: the chunks are copied in their order, so a chunk may read what one before it has written.
#[test]
fn chunks_are_copied_one_after_the_other() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, _target) = two(&tree);
    let input = source.copy_chunks(&[(0, 4, 2), (4, 8, 2), (8, 0, 2)]);
    let (end, done) = copy(&source, &input.unwrap());
    assert_eq!(end, Status::SUCCESS);
    assert_eq!(written(done), (3, 6));
    assert_eq!(tree.read_file("source").unwrap(), b"0123016701");
}

/// [MS-SMB2] 3.3.5.15.6: a copy that is refused for its limits copies none of the chunks that are within them.
#[test]
fn a_copy_beyond_its_limits_copies_no_chunk() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (source, target) = two(&tree);
    for last in [0, (1 << 20) + 1] {
        let input = source.copy_chunks(&[(0, 0, 4), (4, 4, last)]).unwrap();
        let (end, limits) = copy(&target, &input);
        assert_eq!(end, Status::INVALID_PARAMETER, "{last}");
        assert_eq!(limits.unwrap(), CopyChunkResponse::LIMITS, "{last}");
        assert_eq!(tree.read_file("target").unwrap(), b"", "{last}");
    }
}

/// [MS-SMB2] 3.3.5.15.6: a copy that a pipe takes part in is refused with the limits of copies.
#[test]
fn pipes_are_not_copied() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (tree, ipc) = (session.tree(DATA).unwrap(), session.tree("IPC$").unwrap());
    let (source, target) = two(&tree);
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    let pipe = CreateArgs::open("srvsvc").access(access);
    let pipe = ipc.create(&pipe).unwrap();
    for (from, to) in [(&source, &pipe), (&pipe, &target)] {
        let input = from.copy_chunks(&[(0, 0, 4)]).unwrap();
        let (end, limits) = copy(to, &input);
        assert_eq!(end, Status::INVALID_PARAMETER);
        assert_eq!(limits.unwrap(), CopyChunkResponse::LIMITS);
    }
    assert_eq!(tree.read_file("target").unwrap(), b"");
}
