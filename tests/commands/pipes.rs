//! Named pipes of IPC$: supported and unsupported operations ([MS-SMB2] 3.3.5.9, 3.3.5.12).

use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::durable::{CREATE_GUID, v2};
use smb_tests::rpc::{bind, bind_in};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::fsctl::FsctlCode;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::LeaseKey;
use smb_wire::msg::{
    Channel, CreateDisposition, ImpersonationLevel, OplockLevel, ReadFlags, ReadRequest, WriteFlags,
};

fn ipc(server: &HoldfastServer) -> Tree {
    server.session(Options::default()).tree("IPC$").unwrap()
}

fn open(tree: &Tree, name: &str) -> File {
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    tree.create(&CreateArgs::open(name).access(access)).unwrap()
}

const FAULT: u8 = 3;
const BIND_ACK: u8 = 12;
const BIND_NAK: u8 = 13;

/// Asserts that the answer has the id of the call, in our byte order, and is of a certain type.
fn assert_refused(answer: &[u8], kind: u8) {
    assert_eq!(answer[2], kind, "{answer:?}");
    assert_eq!(answer[4], 0x10, "{answer:?}");
    assert_eq!(answer[12..16], [7, 0, 0, 0], "{answer:?}");
}

#[test]
fn a_big_endian_bind_is_refused_at_once() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let big_endian = bind_in(false, 7);
    for name in ["srvsvc", "wkssvc", "lsarpc", "samr"] {
        let pipe = open(&tree, name);
        let transceive = FsctlCode::PIPE_TRANSCEIVE;
        let answer = pipe.ioctl(transceive, &big_endian, 4096).unwrap();
        assert_refused(&answer, BIND_NAK);
        let again = pipe.ioctl(transceive, &bind(), 4096);
        assert_eq!(status(again), Status::PIPE_BROKEN);
        let peeked = pipe.ioctl(FsctlCode::PIPE_PEEK, &[], 4096);
        assert_eq!(status(peeked), Status::PIPE_BROKEN);
        pipe.close().unwrap();
        let pipe = open(&tree, name);
        pipe.write(0, &big_endian, WriteFlags::empty()).unwrap();
        assert_refused(&pipe.read(0, 4096).unwrap(), BIND_NAK);
        pipe.close().unwrap();
    }
}

/// A TRANSCEIVE always gets an answer, even if its input has none: half of a PDU, the first
/// fragment of a call, an orphaned call, the end of an authentication.
#[test]
fn a_transceive_is_always_answered() {
    const ORPHANED: u8 = 19;
    const AUTH3: u8 = 16;
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pdu = |kind: u8, flags: u8, length: u8| {
        let mut pdu = vec![
            5, 0, kind, flags, 0x10, 0, 0, 0, length, 0, 0, 0, 7, 0, 0, 0,
        ];
        pdu.resize(24, 0);
        pdu
    };
    let whole = 3;
    for (sent, kind) in [
        (pdu(0, whole, 200), FAULT),
        (pdu(0, 1, 24), FAULT),
        (pdu(ORPHANED, whole, 24), FAULT),
        (pdu(AUTH3, whole, 24), FAULT),
        (pdu(0, whole, 15), FAULT),
    ] {
        let pipe = open(&tree, "srvsvc");
        let transceive = FsctlCode::PIPE_TRANSCEIVE;
        pipe.ioctl(transceive, &bind(), 4096).unwrap();
        let answer = pipe.ioctl(transceive, &sent, 4096).unwrap();
        assert_eq!(answer[2], kind, "{sent:?}: {answer:?}");
        pipe.close().unwrap();
    }
    let pipe = open(&tree, "srvsvc");
    let half = pipe.ioctl(FsctlCode::PIPE_TRANSCEIVE, &bind()[..40], 4096);
    assert_eq!(half.unwrap()[2], BIND_NAK);
}

#[test]
fn a_bind_is_answered_by_transceive_and_by_read() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = open(&tree, "srvsvc");
    let answer = pipe
        .ioctl(FsctlCode::PIPE_TRANSCEIVE, &bind(), 4096)
        .unwrap();
    assert_eq!(answer[2], BIND_ACK);
    pipe.close().unwrap();
    let pipe = open(&tree, "SRVSVC");
    let written = pipe.write(0, &bind(), WriteFlags::empty()).unwrap();
    assert_eq!(usize::try_from(written).unwrap(), bind().len());
    assert_eq!(pipe.read(0, 4096).unwrap()[2], BIND_ACK);
}

#[test]
fn an_answer_that_is_too_long_is_returned_in_parts() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = open(&tree, "srvsvc");
    let request = pipe.ioctl_request(FsctlCode::PIPE_TRANSCEIVE, &bind(), 16);
    let reply = tree.reply(request).unwrap();
    assert_eq!(reply.status(), Status::BUFFER_OVERFLOW);
    let first = smb_wire::msg::IoctlResponse::read(&reply.message).unwrap();
    assert_eq!((first.output.len(), first.output[2]), (16, BIND_ACK));
    let total = usize::from(u16::from_le_bytes([first.output[8], first.output[9]]));
    assert_eq!(pipe.read(0, 4096).unwrap().len(), total - 16);
}

#[test]
fn unknown_pipes_are_refused() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    for name in ["nothing", "..", "srvsvc\\x", "data"] {
        let refused = tree.create_status(&CreateArgs::open(name)).unwrap();
        assert!(refused.is_error(), "{name}: {refused}");
    }
    assert_eq!(
        tree.create_status(&CreateArgs::open("nothing")).unwrap(),
        Status::OBJECT_NAME_NOT_FOUND
    );
    let made = tree
        .create_status(&CreateArgs::new("new", CreateDisposition::CREATE))
        .unwrap();
    assert!(made.is_error(), "{made}");
}

#[test]
fn write_through_to_a_pipe_is_refused() {
    // [MS-SMB2] 3.3.5.13
    let server = HoldfastServer::new();
    let pipe = open(&ipc(&server), "srvsvc");
    for flags in [WriteFlags::WRITE_THROUGH, WriteFlags::WRITE_UNBUFFERED] {
        assert_eq!(
            status(pipe.write(0, &bind(), flags)),
            Status::INVALID_PARAMETER,
            "{flags}"
        );
    }
}

/// [MS-SMB2] 3.3.5.9, 3.3.5.12, 3.3.5.15.4.
#[test]
fn a_pipe_is_not_a_file() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let args = CreateArgs {
        impersonation_level: ImpersonationLevel::DELEGATE,
        ..CreateArgs::open("srvsvc")
    };
    let refused = tree.create_status(&args).unwrap();
    assert_eq!(refused, Status::BAD_IMPERSONATION_LEVEL);
    let pipe = open(&tree, "srvsvc");
    let peek = |max| {
        let request = pipe.ioctl_request(FsctlCode::PIPE_PEEK, &[], max);
        tree.reply(request).unwrap().status()
    };
    assert_eq!(peek(0), Status::SUCCESS);
    pipe.write(0, &bind(), WriteFlags::empty()).unwrap();
    assert_eq!(peek(0), Status::BUFFER_OVERFLOW);
    assert_eq!(peek(8), Status::BUFFER_TOO_SMALL);
    assert_eq!(peek(4096), Status::SUCCESS);
    let body = ReadRequest {
        padding: 0,
        flags: ReadFlags::READ_UNBUFFERED,
        length: 4096,
        offset: 0,
        file_id: pipe.id(),
        minimum_count: 0,
        channel: Channel::NONE,
        remaining_bytes: 0,
        channel_info: &[],
    };
    let refused = tree.reply(Request::new(&body)).unwrap();
    assert_eq!(refused.status(), Status::INVALID_PARAMETER);
    assert_eq!(pipe.read(0, 4096).unwrap()[2], BIND_ACK);
}

/// A TRANSCEIVE through a handle without read access is not executed: a second request would
/// otherwise find the unread answer and fail with PIPE_BUSY.
#[test]
fn a_transceive_without_all_its_rights_writes_nothing() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    for access in [AccessMask::FILE_WRITE_DATA, AccessMask::FILE_READ_DATA] {
        let args = CreateArgs::open("srvsvc").access(access);
        let pipe = tree.create(&args).unwrap();
        for _ in 0..2 {
            let answer = pipe.ioctl(FsctlCode::PIPE_TRANSCEIVE, &bind(), 4096);
            assert_eq!(status(answer), Status::ACCESS_DENIED, "{access}");
        }
    }
}

#[test]
fn the_length_of_a_pipes_name_is_even() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let mut args = CreateArgs::open("srvsvc");
    args.name.push(0);
    assert_eq!(
        tree.create_status(&args).unwrap(),
        Status::INVALID_PARAMETER
    );
}

/// [MS-SMB2] 3.3.5.9, "Oplock Acquisition": oplocks and leases are for files.
#[test]
fn a_pipe_is_not_cached() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    let args = || CreateArgs::open("srvsvc").access(access);
    let (key, state) = (LeaseKey([0x33; 16]), LeaseState::RWH);
    for args in [
        args().oplock(OplockLevel::BATCH),
        args().oplock(OplockLevel::II),
        args().lease(key, state),
        args().lease_v2(key, state, 1),
    ] {
        let pipe = tree.create(&args).unwrap();
        assert_eq!(pipe.created().oplock_level, OplockLevel::NONE);
        assert!(pipe.created().lease().is_none());
        pipe.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.9, 3.3.5.9.10: only opens of files can be replayed, and have a CreateGuid of their own.
#[test]
fn the_create_guid_of_a_pipe_is_never_a_duplicate() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    let args = v2(CreateArgs::open("srvsvc").access(access), CREATE_GUID, 0);
    let (first, second) = (tree.create(&args).unwrap(), tree.create(&args).unwrap());
    let reply = tree.call(args.request().flag(HeaderFlags::REPLAY)).unwrap();
    let third = tree.file(&reply).unwrap();
    // Each is a pipe of its own.
    for pipe in [first, second, third] {
        let answer = pipe.ioctl(FsctlCode::PIPE_TRANSCEIVE, &bind(), 4096);
        assert_eq!(answer.unwrap()[2], BIND_ACK);
        pipe.close().unwrap();
    }
}
