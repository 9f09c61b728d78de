//! Information about pipes, and reads that wait or take a part of a message ([MS-SMB2] 3.3.5.12, 3.3.5.20.1,
//! 3.3.5.21.1, [MS-FSCC] 2.4.37, 2.4.38).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::rpc::bind;
use smb_tests::{HoldfastServer, MEANWHILE, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{
    FileInformationClass as Class, FilePipeInformation, FilePipeLocalInformation,
    FileStandardInformation,
};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, InfoType, NotifyFilter, QueryDirectoryFlags,
    ReadResponse, WriteFlags,
};

const NONE: WriteFlags = WriteFlags::empty();
const BIND_ACK: u8 = 12;

fn ipc(server: &HoldfastServer) -> Tree {
    server.session(Options::default()).tree("IPC$").unwrap()
}

fn open(tree: &Tree) -> File {
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    with(tree, access)
}

fn with(tree: &Tree, access: AccessMask) -> File {
    let args = CreateArgs::open("srvsvc").access(access);
    tree.create(&args).unwrap()
}

fn set_modes(pipe: &File, read_mode: u32, completion_mode: u32) -> Status {
    let mut buffer = BytesMut::new();
    FilePipeInformation {
        read_mode,
        completion_mode,
    }
    .encode(&mut buffer);
    status(pipe.set(Class::PIPE, &buffer))
}

fn modes(pipe: &File) -> (u32, u32) {
    let bytes = pipe.query(Class::PIPE).unwrap();
    let modes = FilePipeInformation::read(&bytes).unwrap();
    (modes.read_mode, modes.completion_mode)
}

fn local(pipe: &File) -> FilePipeLocalInformation {
    let bytes = pipe.query(Class::PIPE_LOCAL).unwrap();
    FilePipeLocalInformation::read(&bytes).unwrap()
}

/// [MS-FSCC] 2.4.37: clients of RPC let a pipe be read by messages, and wait for them.
#[test]
fn a_pipe_is_read_by_messages_on_request() {
    let server = HoldfastServer::new();
    let pipe = open(&ipc(&server));
    let (read_mode, completion_mode) = modes(&pipe);
    assert!(read_mode <= 1, "{read_mode}");
    assert_eq!(completion_mode, 0, "it waits");
    assert_eq!(set_modes(&pipe, 1, 0), Status::SUCCESS);
    assert_eq!(modes(&pipe), (1, 0));
}

/// [MS-FSCC] 2.4.37: other modes are refused, and so is a buffer that is too short for them.
#[test]
fn undefined_modes_of_a_pipe_are_refused() {
    let server = HoldfastServer::new();
    let pipe = open(&ipc(&server));
    let before = modes(&pipe);
    for (read_mode, completion_mode) in [(2, 0), (0, 2), (1, 2), (u32::MAX, 0)] {
        let refused = set_modes(&pipe, read_mode, completion_mode);
        assert_eq!(
            refused,
            Status::INVALID_PARAMETER,
            "{read_mode} {completion_mode}"
        );
    }
    let short = status(pipe.set(Class::PIPE, &[0; 7]));
    assert_eq!(short, Status::INFO_LENGTH_MISMATCH);
    assert_eq!(modes(&pipe), before);
}

/// [MS-SMB2] 3.3.5.20.1, 3.3.5.21.1: the modes need the rights to the attributes of the pipe.
#[test]
fn the_modes_of_a_pipe_need_their_rights() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let data = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    let pipe = with(&tree, data);
    for class in [Class::PIPE, Class::PIPE_LOCAL] {
        let refused = status(pipe.query(class));
        assert_eq!(refused, Status::ACCESS_DENIED, "{class}");
    }
    assert_eq!(set_modes(&pipe, 1, 0), Status::ACCESS_DENIED);
    pipe.close().unwrap();
    let pipe = with(&tree, data | AccessMask::FILE_WRITE_ATTRIBUTES);
    assert_eq!(set_modes(&pipe, 1, 0), Status::SUCCESS);
}

/// [MS-FSCC] 2.4.38: the client has one end of a connected pipe, and sees how much it can read.
#[test]
fn the_end_of_a_pipe_describes_itself() {
    let server = HoldfastServer::new();
    let pipe = open(&ipc(&server));
    let fresh = local(&pipe);
    // A pipe of messages in both directions, connected, of which this is the client's end.
    assert_eq!(
        (fresh.named_pipe_type, fresh.named_pipe_configuration),
        (1, 2)
    );
    assert_eq!((fresh.named_pipe_state, fresh.named_pipe_end), (3, 0));
    assert_eq!(fresh.read_data_available, 0);
    pipe.write(0, &bind(), NONE).unwrap();
    let waiting = local(&pipe).read_data_available;
    let answer = pipe.read(0, 4096).unwrap();
    assert_eq!(usize::try_from(waiting).unwrap(), answer.len());
    assert_eq!(local(&pipe).read_data_available, 0);
}

/// [MS-SMB2] 3.3.5.20.1: clients ask for the standard information of a pipe when they have opened it.
#[test]
fn a_pipe_has_standard_information() {
    let server = HoldfastServer::new();
    let pipe = open(&ipc(&server));
    let standard = pipe.query(Class::STANDARD).unwrap();
    let standard = FileStandardInformation::read(&standard).unwrap();
    assert!(!standard.directory);
    for class in [Class::STANDARD, Class::PIPE, Class::PIPE_LOCAL] {
        let request = Request::query_info(pipe.id(), InfoType::FILE, class.0, 0, 3);
        let refused = status(pipe.tree().call(request));
        assert_eq!(refused, Status::INFO_LENGTH_MISMATCH, "{class}");
    }
}

/// [MS-SMB2] 3.3.5.12: a read of an empty pipe waits, with an interim response, for what is written next.
#[test]
fn a_read_of_an_empty_pipe_waits_for_an_answer() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = open(&tree);
    let id = tree.send(pipe.read_request(0, 4096, 0)).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    let mut connection = tree.client().connection();
    assert!(!connection.answered(id, MEANWHILE).unwrap());
    drop(connection);
    pipe.write(0, &bind(), NONE).unwrap();
    let reply = tree.client().wait(id).unwrap().ok().unwrap();
    let response = ReadResponse::read(&reply.message).unwrap();
    assert_eq!(response.data[2], BIND_ACK);
}

/// [MS-SMB2] 3.3.5.16: a read that waits can be cancelled, and the pipe is as good as before.
#[test]
fn a_waiting_read_of_a_pipe_is_cancelled() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = open(&tree);
    let id = tree.send(pipe.read_request(0, 4096, 0)).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    let session = tree.session().id();
    tree.client().connection().cancel(id, session).unwrap();
    let end = tree.client().wait(id).unwrap();
    assert_eq!(end.status(), Status::CANCELLED);
    pipe.write(0, &bind(), NONE).unwrap();
    assert_eq!(pipe.read(0, 4096).unwrap()[2], BIND_ACK);
}

/// [MS-SMB2] 3.3.4.4, 3.3.5.12: a part of a message is returned with a warning, and the rest by the next read.
#[test]
fn a_part_of_a_message_is_read_with_a_warning() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = open(&tree);
    assert_eq!(set_modes(&pipe, 1, 0), Status::SUCCESS);
    pipe.write(0, &bind(), NONE).unwrap();
    let reply = tree.reply(pipe.read_request(0, 16, 0)).unwrap();
    assert_eq!(reply.status(), Status::BUFFER_OVERFLOW);
    let response = ReadResponse::read(&reply.message).unwrap();
    assert_eq!((response.data.len(), response.data[2]), (16, BIND_ACK));
    let whole = usize::from(u16::from_le_bytes([response.data[8], response.data[9]]));
    let rest = tree.reply(pipe.read_request(0, 4096, 0)).unwrap();
    assert_eq!(rest.status(), Status::SUCCESS);
    let rest = ReadResponse::read(&rest.message).unwrap();
    assert_eq!(rest.data.len(), whole - 16);
}

/// [MS-SMB2] 3.3.5.12, 3.3.5.13: a pipe has no places, so that the offsets mean nothing.
#[test]
fn the_offsets_of_reads_and_writes_mean_nothing_to_a_pipe() {
    let server = HoldfastServer::new();
    let pipe = open(&ipc(&server));
    pipe.write(1 << 40, &bind(), NONE).unwrap();
    assert_eq!(pipe.read(1 << 50, 4096).unwrap()[2], BIND_ACK);
}

/// [MS-SMB2] 3.3.5.18, 3.3.5.19: a pipe is neither listed nor watched.
#[test]
fn a_pipe_is_neither_listed_nor_watched() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = open(&tree);
    let flags = QueryDirectoryFlags::empty();
    let listed = status(pipe.query_directory(Class::NAMES, "*", flags, 4096));
    assert_eq!(listed, Status::INVALID_PARAMETER);
    let watched = tree.reply(Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags::empty(),
        output_buffer_length: 4096,
        file_id: pipe.id(),
        completion_filter: NotifyFilter::FILE_NAME,
    }));
    assert_eq!(watched.unwrap().status(), Status::INVALID_PARAMETER);
}
