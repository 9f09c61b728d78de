//! Named pipes of IPC$: what they are for, and what they are not ([MS-SMB2] 3.3.5.9, 3.3.5.12).

use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::rpc::bind;
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fsctl::FsctlCode;
use smb_wire::msg::{CreateDisposition, WriteFlags};

fn ipc(server: &HoldfastServer) -> Tree {
    server.session(Options::default()).tree("IPC$").unwrap()
}

fn open(tree: &Tree, name: &str) -> File {
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    tree.create(&CreateArgs::open(name).access(access)).unwrap()
}

const BIND_ACK: u8 = 12;

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
fn an_answer_too_long_is_given_in_parts() {
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
fn pipes_that_are_not_there() {
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
fn a_pipe_is_not_written_through() {
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

/// What the handle may not read the answer of is not carried out: the second request would meet
/// that answer and be told that the pipe is busy.
#[test]
fn half_the_rights_of_a_transceive_write_nothing() {
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
