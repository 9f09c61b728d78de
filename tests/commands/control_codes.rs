//! The checks of single control codes of IOCTL: handles, lengths and kinds of objects ([MS-SMB2] 3.3.5.15, [MS-FSA]
//! 2.1.5.10).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{HoldfastServer, Outcome, extents, outcome, status};
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileBasicInformation, FileInformationClass};
use smb_wire::fsctl::{
    AllocatedRange, CopyChunkResponse, DuplicateExtents, DuplicateExtentsEx, DuplicateExtentsFlags,
    FsctlCode, PipeWaitRequest, SetZeroData,
};
use smb_wire::ids::FileId;
use smb_wire::msg::{Dialect, IoctlFlags, IoctlRequest, IoctlResponse};
use smb_wire::{Command, Status};

/// A request for the key of a file, which needs no input and returns 32 bytes.
fn key_request(file_id: FileId) -> IoctlRequest<'static> {
    IoctlRequest {
        ctl_code: FsctlCode::SRV_REQUEST_RESUME_KEY.0,
        file_id,
        input: &[],
        max_input_response: 0,
        output_count: 0,
        max_output_response: 32,
        flags: IoctlFlags::IS_FSCTL,
    }
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

fn range(file_offset: i64, length: i64) -> BytesMut {
    let mut out = BytesMut::new();
    AllocatedRange {
        file_offset,
        length,
    }
    .encode(&mut out);
    out
}

fn zeros(file_offset: i64, beyond_final_zero: i64) -> BytesMut {
    let mut out = BytesMut::new();
    SetZeroData {
        file_offset,
        beyond_final_zero,
    }
    .encode(&mut out);
    out
}

/// [MS-SMB2] 3.3.5.15: codes that concern no file must not name one.
#[test]
fn codes_without_a_file_refuse_a_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_3_0_2));
    let file = open(&tree, "f");
    let negotiated = tree
        .client()
        .connection()
        .core()
        .validate_negotiate_input()
        .unwrap();
    for (code, input) in [
        (FsctlCode::DFS_GET_REFERRALS, &[0; 8][..]),
        (FsctlCode::DFS_GET_REFERRALS_EX, &[0; 8]),
        (FsctlCode::QUERY_NETWORK_INTERFACE_INFO, &[]),
        (FsctlCode::PIPE_WAIT, &[0; 16]),
        (FsctlCode::VALIDATE_NEGOTIATE_INFO, &negotiated),
    ] {
        let request = file
            .ioctl_request(code, input, 4096)
            .overriding(|o| o.sign = Some(true));
        let end = outcome(tree.reply(request));
        assert_eq!(end, Outcome::Answered(Status::INVALID_PARAMETER), "{code}");
    }
}

/// [MS-SMB2] 3.3.5.15.2: the server is not capable of DFS.
#[test]
fn referrals_need_a_driver() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut input = vec![4, 0];
    input.extend_from_slice(&smb_wire::utf16::encode("\\host\\data"));
    input.extend_from_slice(&[0, 0]);
    for code in [
        FsctlCode::DFS_GET_REFERRALS,
        FsctlCode::DFS_GET_REFERRALS_EX,
    ] {
        let end = status(tree.ioctl(code, &input, 4096));
        assert_eq!(end, Status::FS_DRIVER_REQUIRED, "{code}");
    }
}

/// [MS-SMB2] 3.3.5.15: the flags have one value.
#[test]
fn other_flags_beside_that_of_an_fsctl_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let with = |flags| {
        let request = Request::new(&IoctlRequest {
            flags: IoctlFlags(flags),
            ..key_request(file.id())
        });
        status(tree.call(request))
    };
    for flags in [0, 2, 3, 0x8000_0001] {
        assert_eq!(with(flags), Status::NOT_SUPPORTED, "{flags:#x}");
    }
    assert_eq!(with(1), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.15, 3.3.5.2.5: the larger of both sums is paid for, and each length is limited.
#[test]
fn every_length_is_limited_and_paid_for() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let max = tree.client().negotiated().max_transact_size;
    let request = Request::new(&IoctlRequest {
        max_input_response: max + 1,
        ..key_request(file.id())
    });
    assert_eq!(status(tree.call(request)), Status::INVALID_PARAMETER);
    // The body is not known to the client, which therefore uses up a single credit.
    let with = |max_input_response, output_count, max_output_response| {
        let body = IoctlRequest {
            max_input_response,
            output_count,
            max_output_response,
            ..key_request(file.id())
        };
        let request = Request::raw(Command::IOCTL, &[]).mutate(|m| body.encode(m, 0));
        let request = request.overriding(|o| o.credit_charge = Some(1));
        status(tree.call(request))
    };
    assert_eq!(with(0, 0, 65_536), Status::SUCCESS);
    assert_eq!(with(0, 0, 65_537), Status::INVALID_PARAMETER);
    assert_eq!(with(65_505, 0, 32), Status::INVALID_PARAMETER);
    assert_eq!(with(65_504, 0, 32), Status::SUCCESS);
    assert_eq!(with(0, 65_537, 32), Status::INVALID_PARAMETER);
    assert_eq!(with(0, 65_536, 32), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.15.5, 3.3.5.15.11: the response repeats the code and the handle.
#[test]
fn the_response_repeats_the_code_and_the_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let key = FsctlCode::SRV_REQUEST_RESUME_KEY;
    let reply = tree.call(file.ioctl_request(key, &[], 100)).unwrap();
    let response = IoctlResponse::read(&reply.message).unwrap();
    assert_eq!((response.ctl_code, response.file_id), (key.0, file.id()));
    assert_eq!((response.flags, response.output.len()), (0, 32));
    let short = status(file.ioctl(key, &[], 31));
    assert_eq!(short, Status::INVALID_PARAMETER);
    let interfaces = FsctlCode::QUERY_NETWORK_INTERFACE_INFO;
    let request = Request::ioctl(FileId::ANY, interfaces, &[], 65_536);
    let reply = tree.call(request).unwrap();
    let response = IoctlResponse::read(&reply.message).unwrap();
    let expected = (interfaces.0, FileId::ANY);
    assert_eq!((response.ctl_code, response.file_id), expected);
}

/// [MS-SMB2] 3.3.5.15: there are no shared virtual disks.
#[test]
fn codes_of_shared_virtual_disks_are_invalid_requests() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for code in [0x0009_0300, 0x0009_0304, 0x0009_0364] {
        let end = status(file.ioctl(FsctlCode(code), &[0; 64], 4096));
        assert_eq!(end, Status::INVALID_DEVICE_REQUEST, "{code:#x}");
    }
}

/// [MS-SMB2] 3.3.5.15.1.
#[test]
fn a_list_of_no_snapshots_needs_16_bytes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let code = FsctlCode::SRV_ENUMERATE_SNAPSHOTS;
    for short in [0, 12, 15] {
        let end = status(file.ioctl(code, &[], short));
        assert_eq!(end, Status::INVALID_PARAMETER, "{short}");
    }
    for room in [16, 65_536] {
        // Two numbers, and the size of a list that consists of its terminator (note 383).
        let list = file.ioctl(code, &[], room).unwrap();
        assert_eq!(list[..], [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}

/// [MS-SMB2] 3.3.5.15.3, 3.3.5.15.4 and notes 385 and 389.
#[test]
fn a_file_is_no_pipe() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for code in [FsctlCode::PIPE_TRANSCEIVE, FsctlCode::PIPE_PEEK] {
        let end = status(file.ioctl(code, b"input", 4096));
        assert!(
            [Status::NOT_SUPPORTED, Status::INVALID_DEVICE_REQUEST].contains(&end),
            "{code}: {end}"
        );
    }
    assert_eq!(file.read_all().unwrap(), b"");
}

/// [MS-SMB2] 3.3.5.15.10.
#[test]
fn only_pipes_that_exist_are_waited_for() {
    let server = HoldfastServer::new();
    let tree = server.session(Options::default()).tree("IPC$").unwrap();
    let wait = |name: &str| {
        let mut input = BytesMut::new();
        PipeWaitRequest {
            timeout: 10,
            timeout_specified: true,
            name: name.to_owned(),
        }
        .encode(&mut input);
        status(tree.ioctl(FsctlCode::PIPE_WAIT, &input, 0))
    };
    for name in ["no such pipe", "srvsvc2", "a\\b"] {
        assert_eq!(wait(name), Status::OBJECT_NAME_NOT_FOUND, "{name}");
    }
    assert_eq!(wait("srvsvc"), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.15.12: nobody can suppress the answer by leaving no room for it.
#[test]
fn a_validation_without_room_for_its_answer_ends_the_connection() {
    let server = HoldfastServer::new();
    for (max, expected) in [
        (24, Outcome::Answered(Status::SUCCESS)),
        (23, Outcome::Closed),
        (0, Outcome::Closed),
    ] {
        let tree = server.tree_with(Options::dialect(Dialect::SMB_3_0_2));
        let input = tree
            .client()
            .connection()
            .core()
            .validate_negotiate_input()
            .unwrap();
        let code = FsctlCode::VALIDATE_NEGOTIATE_INFO;
        let request =
            Request::ioctl(FileId::ANY, code, &input, max).overriding(|o| o.sign = Some(true));
        assert_eq!(outcome(tree.reply(request)), expected, "{max}");
    }
}

/// [MS-SMB2] 3.3.5.15.6, 3.3.5.15.6.2.
#[test]
fn a_list_of_chunks_that_is_cut_or_too_long_is_answered_with_the_limits() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("source", b"0123456789").unwrap();
    let source = open(&tree, "source");
    let target = open(&tree, "target");
    let mut cut = source.copy_chunks(&[(0, 0, 5)]).unwrap();
    cut[24] = 2;
    let large: Vec<_> = (0..17).map(|at| (0, at << 20, 1 << 20)).collect();
    let large = source.copy_chunks(&large).unwrap();
    let negative = source.copy_chunks(&[(0, 0, 1), (0, 1 << 63, 1)]).unwrap();
    for (input, what) in [(&cut, "cut"), (&large, "large"), (&negative, "negative")] {
        let request = target.ioctl_request(FsctlCode::SRV_COPYCHUNK, input, 12);
        let reply = tree.reply(request).unwrap();
        assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{what}");
        let body = IoctlResponse::read(&reply.message).unwrap();
        let limits = CopyChunkResponse::read(body.output).unwrap();
        assert_eq!(limits, CopyChunkResponse::LIMITS, "{what}");
    }
    assert_eq!(target.read_all().unwrap(), b"");
}

/// [MS-SMB2] 3.3.5.15.6: a key is of use within its session only.
#[test]
fn the_source_of_another_session_is_not_found() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    other.write_file("source", b"0123456789").unwrap();
    let source = open(&other, "source");
    let target = open(&tree, "target");
    let input = source.copy_chunks(&[(0, 0, 5)]).unwrap();
    let copied = target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12);
    assert_eq!(status(copied), Status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(target.read_all().unwrap(), b"");
}

/// [MS-SMB2] 3.3.5.15.6: one of the rights to write suffices.
#[test]
fn chunks_are_copied_with_the_right_to_append() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("source", b"0123456789").unwrap();
    tree.write_file("target", b"").unwrap();
    let source = open(&tree, "source");
    let append = CreateArgs::open("target").access(AccessMask::FILE_APPEND_DATA);
    let target = tree.create(&append).unwrap();
    let input = source.copy_chunks(&[(2, 0, 5)]).unwrap();
    let copied = target.ioctl(FsctlCode::SRV_COPYCHUNK_WRITE, &input, 12);
    assert_eq!(status(copied), Status::SUCCESS);
    assert_eq!(tree.read_file("target").unwrap(), b"23456");
}

/// [MS-SMB2] 3.3.5.15.17, 3.3.5.15.18.
#[test]
fn the_source_of_extents_is_an_open_of_the_session() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let target = open(&tree, "target");
    let foreign = open(&other, "source").id();
    for source_file_id in [FileId::ANY, foreign] {
        let mut extended = BytesMut::new();
        DuplicateExtentsEx {
            structure_size: DuplicateExtentsEx::STRUCTURE_SIZE,
            extents: DuplicateExtents {
                source_file_id,
                source_file_offset: 0,
                target_file_offset: 0,
                byte_count: 4096,
            },
            flags: DuplicateExtentsFlags::empty(),
        }
        .encode(&mut extended);
        for (code, input) in [
            (
                FsctlCode::DUPLICATE_EXTENTS_TO_FILE,
                extents(source_file_id, 4096),
            ),
            (FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX, extended),
        ] {
            let whole = status(target.ioctl(code, &input, 0));
            assert_eq!(whole, Status::INVALID_HANDLE, "{code}");
            let cut = status(target.ioctl(code, &input[..input.len() - 1], 0));
            assert_eq!(cut, Status::INVALID_PARAMETER, "{code}");
        }
    }
}

/// [MS-FSA] 2.1.5.10.22.
#[test]
fn impossible_ranges_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, &[1; 4096]).unwrap();
    let code = FsctlCode::QUERY_ALLOCATED_RANGES;
    for (offset, length) in [(-1, 1), (0, -1), (1, i64::MAX), (i64::MAX, 1)] {
        let end = status(file.ioctl(code, &range(offset, length), 4096));
        assert_eq!(end, Status::INVALID_PARAMETER, "{offset} {length}");
    }
    let good = range(10, 20);
    let cut = status(file.ioctl(code, &good[..15], 4096));
    assert_eq!(cut, Status::INVALID_PARAMETER);
    assert_eq!(
        status(file.ioctl(code, &good, 15)),
        Status::BUFFER_TOO_SMALL
    );
    // Nothing needs no room.
    assert_eq!(file.ioctl(code, &range(10, 0), 0).unwrap(), b"");
    // The range of a file that is not sparse is returned as it was asked for.
    assert_eq!(file.ioctl(code, &good, 16).unwrap(), good[..]);
    let directory = tree.create(&CreateArgs::directory("")).unwrap();
    let end = status(directory.ioctl(code, &good, 4096));
    assert_eq!(end, Status::INVALID_PARAMETER);
}

/// [MS-FSA] 2.1.5.10.22: the ranges that fit are returned.
#[test]
fn ranges_that_do_not_fit_give_an_overflow() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.ioctl(FsctlCode::SET_SPARSE, &[1], 0).unwrap();
    file.write_all(0, &[1; 65_536]).unwrap();
    file.write_all(8 << 20, &[1; 65_536]).unwrap();
    let asked = range(0, 16 << 20);
    let code = FsctlCode::QUERY_ALLOCATED_RANGES;
    let whole = file.ioctl(code, &asked, 4096).unwrap();
    if whole.len() < 32 {
        smb_tests::missing("a file system with holes");
        return;
    }
    let reply = tree.reply(file.ioctl_request(code, &asked, 31)).unwrap();
    assert_eq!(reply.status(), Status::BUFFER_OVERFLOW);
    let response = IoctlResponse::read(&reply.message).unwrap();
    assert_eq!(response.output, &whole[..16]);
}

/// [MS-FSA] 2.1.5.10.22: a buffer gets as many ranges as it holds, and an overflow only if there are more.
#[test]
fn a_file_may_have_thousands_of_ranges() {
    const RANGES: usize = 4100;
    const STRIDE: usize = 128 << 10;
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.ioctl(FsctlCode::SET_SPARSE, &[1], 0).unwrap();
    let there = std::fs::File::options().write(true).open(server.path("f"));
    let there = there.unwrap();
    for at in (0..RANGES).map(|at| (at * STRIDE) as u64) {
        std::os::unix::fs::FileExt::write_all_at(&there, &[1], at).unwrap();
    }
    let asked = range(0, i64::try_from(RANGES * STRIDE).unwrap());
    let answer = |max: usize| {
        let code = FsctlCode::QUERY_ALLOCATED_RANGES;
        let request = file.ioctl_request(code, &asked, u32::try_from(max).unwrap());
        let reply = tree.reply(request).unwrap();
        let response = IoctlResponse::read(&reply.message).unwrap();
        (reply.status(), response.output.len())
    };
    let whole = RANGES * AllocatedRange::MIN;
    if answer(1 << 20).1 == AllocatedRange::MIN {
        smb_tests::missing("a file system with holes");
        return;
    }
    assert_eq!(answer(1 << 20), (Status::SUCCESS, whole));
    assert_eq!(answer(whole), (Status::SUCCESS, whole));
    let fewer = (Status::BUFFER_OVERFLOW, whole - AllocatedRange::MIN);
    assert_eq!(answer(whole - 1), fewer);
    // As many as the file system is asked for at once.
    assert_eq!(answer(8192), (Status::BUFFER_OVERFLOW, 8192));
}

/// [MS-FSA] 2.1.5.10.38.
#[test]
fn a_file_becomes_sparse_with_one_of_two_rights() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let sparse = || {
        let basic = file.query(FileInformationClass::BASIC).unwrap();
        let basic = FileBasicInformation::read(&basic).unwrap();
        basic.file_attributes.contains(FileAttributes::SPARSE_FILE)
    };
    let set = |access, input: &[u8]| {
        let args = CreateArgs::open("f").access(access);
        let file = tree.create(&args).unwrap();
        status(file.ioctl(FsctlCode::SET_SPARSE, input, 0))
    };
    // Windows also takes FILE_APPEND_DATA.
    for refused in [AccessMask::FILE_READ_DATA, AccessMask::FILE_WRITE_EA] {
        assert_eq!(set(refused, &[1]), Status::ACCESS_DENIED, "{refused}");
    }
    assert!(!sparse());
    for enough in [
        AccessMask::FILE_WRITE_DATA,
        AccessMask::FILE_WRITE_ATTRIBUTES,
    ] {
        assert_eq!(set(enough, &[1]), Status::SUCCESS, "{enough}");
        assert!(sparse());
        assert_eq!(set(enough, &[0]), Status::SUCCESS, "{enough}");
        assert!(!sparse());
    }
    tree.mkdir("d").unwrap();
    let directory = open(&tree, "d");
    let end = status(directory.ioctl(FsctlCode::SET_SPARSE, &[1], 0));
    assert_eq!(end, Status::INVALID_PARAMETER);
}

/// [MS-FSA] 2.1.5.10.39.
#[test]
fn a_range_to_zero_must_not_be_backward() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    let code = FsctlCode::SET_ZERO_DATA;
    for (from, to) in [(5, 4), (-1, 4), (0, -1), (-2, -1)] {
        let end = status(file.ioctl(code, &zeros(from, to), 0));
        assert_eq!(end, Status::INVALID_PARAMETER, "{from} {to}");
    }
    assert_eq!(status(file.ioctl(code, &zeros(4, 4), 0)), Status::SUCCESS);
    assert_eq!(file.read_all().unwrap(), b"0123456789");
    tree.mkdir("d").unwrap();
    let directory = open(&tree, "d");
    let end = status(directory.ioctl(code, &zeros(0, 4), 0));
    assert_eq!(end, Status::INVALID_PARAMETER);
}
