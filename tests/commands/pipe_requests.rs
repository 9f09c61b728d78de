//! Requests to pipes that are unlike those to files: fields without a meaning, rights, and the codes of IOCTL for pipes
//! ([MS-SMB2] 2.2.13, 3.3.5.9, 3.3.5.12, 3.3.5.13, 3.3.5.15).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::durable::{CREATE_GUID, v2};
use smb_tests::rpc::bind;
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::dtyp::{SecurityDescriptor, Sid};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::{FsctlCode, PipeWaitRequest};
use smb_wire::ids::FileId;
use smb_wire::msg::{
    CreateAction, CreateDisposition, CreateOptions, IoctlResponse, ShareAccess, WriteFlags,
};

const NONE: WriteFlags = WriteFlags::empty();
const BIND_ACK: u8 = 12;

fn ipc(server: &HoldfastServer) -> Tree {
    server.session(Options::default()).tree("IPC$").unwrap()
}

fn args() -> CreateArgs {
    let data = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    CreateArgs::open("srvsvc").access(data)
}

/// Asserts that the pipe has somebody at its other end.
fn assert_answers(pipe: &File, what: &str) {
    let answer = pipe.ioctl(FsctlCode::PIPE_TRANSCEIVE, &bind(), 4096);
    assert_eq!(answer.unwrap()[2], BIND_ACK, "{what}");
}

/// [MS-SMB2] 2.2.13: a pipe is there, so a client may set any disposition, and the server ignores it.
#[test]
fn the_disposition_of_a_pipe_is_ignored() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    for disposition in [0, 1, 2, 3, 4, 5] {
        let args = args().disposition(CreateDisposition(disposition));
        let pipe = tree.create(&args);
        let pipe = pipe.unwrap_or_else(|error| panic!("{disposition}: {error}"));
        assert_eq!(pipe.created().create_action, CreateAction::OPENED);
        assert_answers(&pipe, "a disposition");
        pipe.close().unwrap();
    }
    let missing = CreateArgs::new("nothing", CreateDisposition::OPEN_IF);
    let refused = status(tree.create(&missing));
    assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND);
}

/// [MS-SMB2] 2.2.13, 3.3.5.9: pipes have no attributes, and every client has an instance of its own.
#[test]
fn the_attributes_and_the_share_mode_of_a_pipe_are_ignored() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let mut pipes = Vec::new();
    for attributes in [
        FileAttributes::READONLY,
        FileAttributes::DIRECTORY,
        FileAttributes::HIDDEN | FileAttributes::SYSTEM,
        FileAttributes::TEMPORARY,
    ] {
        let args = args().attributes(attributes).share(ShareAccess::empty());
        let pipe = tree.create(&args);
        let pipe = pipe.unwrap_or_else(|error| panic!("{attributes}: {error}"));
        assert_answers(&pipe, "attributes");
        pipes.push(pipe);
    }
}

/// [MS-SMB2] 3.3.5.9.1, 3.3.5.9.2: both contexts are ignored for a pipe, whatever they contain.
#[test]
fn attributes_and_descriptors_for_a_pipe_are_ignored() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let mut descriptor = BytesMut::new();
    SecurityDescriptor {
        owner: Some(Sid::EVERYONE),
        ..SecurityDescriptor::default()
    }
    .encode(&mut descriptor)
    .unwrap();
    for (name, data) in [
        (name::EXTENDED_ATTRIBUTES, &b"\0\0\0\0\0\x01\x01\0A\0x"[..]),
        (name::EXTENDED_ATTRIBUTES, b"\0\0\0\0\0\x09\x01\0A\0x"),
        (name::SECURITY_DESCRIPTOR, &descriptor),
        (name::SECURITY_DESCRIPTOR, b"\x01"),
    ] {
        let pipe = tree.create(&args().context(name, data)).unwrap();
        assert_answers(&pipe, "a context");
        pipe.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.12, 3.3.5.13.
#[test]
fn the_data_of_a_pipe_need_their_rights() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let with = |access| tree.create(&args().access(access)).unwrap();
    let writer = with(AccessMask::FILE_WRITE_DATA);
    writer.write(0, &bind(), NONE).unwrap();
    assert_eq!(status(writer.read(0, 4096)), Status::ACCESS_DENIED);
    let reader = with(AccessMask::FILE_READ_DATA);
    let refused = status(reader.write(0, &bind(), NONE));
    assert_eq!(refused, Status::ACCESS_DENIED);
}

/// [MS-SMB2] 3.3.5.12: the greatest length of a READ is that of all kinds of objects.
#[test]
fn a_read_of_a_pipe_is_limited() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = tree.create(&args()).unwrap();
    pipe.write(0, &bind(), NONE).unwrap();
    let max = tree.client().negotiated().max_read_size;
    let refused = status(tree.call(Request::read(pipe.id(), 0, max + 1)));
    assert_eq!(refused, Status::INVALID_PARAMETER);
    let reply = tree.call(Request::read(pipe.id(), 0, max)).unwrap();
    assert_eq!(reply.message[80 + 2], BIND_ACK);
}

/// [MS-SMB2] 3.3.5.15.4: a peek takes nothing out of the pipe, and its answer names the pipe.
#[test]
fn a_peek_leaves_the_answer_where_it_is() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = tree.create(&args()).unwrap();
    pipe.write(0, &bind(), NONE).unwrap();
    let code = FsctlCode::PIPE_PEEK;
    let look = || {
        let reply = tree.call(pipe.ioctl_request(code, &[], 4096)).unwrap();
        let response = IoctlResponse::read(&reply.message).unwrap();
        assert_eq!((response.ctl_code, response.file_id), (code.0, pipe.id()));
        assert_eq!((response.flags, response.input.len()), (0, 0));
        response.output.to_vec()
    };
    let first = look();
    assert_eq!(first, look());
    // Behind four numbers there are the data.
    let read = pipe.read(0, 4096).unwrap();
    assert_eq!(first[16..], read);
}

/// [MS-SMB2] 3.3.5.15.10: a wait names a pipe, but no open of one.
#[test]
fn the_answer_to_a_wait_has_no_handle_and_no_data() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let mut input = BytesMut::new();
    PipeWaitRequest {
        timeout: 10,
        timeout_specified: true,
        name: "lsarpc".to_owned(),
    }
    .encode(&mut input);
    let code = FsctlCode::PIPE_WAIT;
    let request = Request::ioctl(FileId::ANY, code, &input, 64);
    let reply = tree.call(request).unwrap();
    let response = IoctlResponse::read(&reply.message).unwrap();
    assert_eq!((response.ctl_code, response.file_id), (code.0, FileId::ANY));
    assert_eq!(response.output, b"");
}

/// [MS-SMB2] 3.3.5.15.10: a malformed name is one that no pipe has.
#[test]
fn a_wait_for_a_malformed_name_finds_no_pipe() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let wait = |length: u32, name: &[u8]| {
        // Timeout, NameLength, TimeoutSpecified and Padding.
        let mut input = 10_u64.to_le_bytes().to_vec();
        input.extend_from_slice(&length.to_le_bytes());
        input.extend_from_slice(&[1, 0]);
        input.extend_from_slice(name);
        status(tree.ioctl(FsctlCode::PIPE_WAIT, &input, 0))
    };
    let good = smb_wire::utf16::encode("srvsvc");
    assert_eq!(wait(12, &good), Status::SUCCESS);
    for (length, name, what) in [
        (0, &b""[..], "empty"),
        (11, &good[..], "odd"),
        (14, &good, "longer than the input"),
        (u32::MAX, &good, "much longer"),
        (2, b"\x00\xd8", "half of a surrogate pair"),
    ] {
        let refused = wait(length, name);
        assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND, "{what}");
    }
}

/// [MS-SMB2] 3.3.5.9: the options that the server clears have no effect on a pipe either.
#[test]
fn the_options_that_are_cleared_open_a_pipe() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    for option in [
        // FILE_SYNCHRONOUS_IO_ALERT, FILE_SYNCHRONOUS_IO_NONALERT, FILE_COMPLETE_IF_OPLOCKED and
        // FILE_OPEN_FOR_FREE_SPACE_QUERY.
        0x10,
        0x20,
        0x100,
        0x0080_0000,
    ] {
        let pipe = tree.create(&args().options(CreateOptions(option)));
        let pipe = pipe.unwrap_or_else(|error| panic!("{option:#x}: {error}"));
        assert_answers(&pipe, "an option");
        pipe.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.10: a closed pipe is one handle less, and nothing of it is left for another.
#[test]
fn an_answer_is_gone_with_its_pipe() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let pipe = tree.create(&args()).unwrap();
    pipe.write(0, &bind(), NONE).unwrap();
    let id = pipe.id();
    pipe.close().unwrap();
    for request in [
        Request::read(id, 0, 4096),
        Request::write(id, 0, &bind(), NONE),
        Request::flush(id),
        Request::ioctl(id, FsctlCode::PIPE_TRANSCEIVE, &bind(), 4096),
        Request::ioctl(id, FsctlCode::PIPE_PEEK, &[], 4096),
    ] {
        let command = request.command;
        assert_eq!(status(tree.call(request)), Status::FILE_CLOSED, "{command}");
    }
    let again = tree.create(&args()).unwrap();
    assert_answers(&again, "another pipe");
}

/// [MS-SMB2] 3.3.5.9.5, 3.3.5.9.9: the maximal access, unless the client knows it from the change time (a pipe has
/// none, which is zero), and the number that the pipe has in FileInternalInformation.
#[test]
fn the_contexts_that_query_a_pipe_are_answered() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let all = args().context(name::QUERY_ON_DISK_ID, b"");
    let pipe = tree
        .create(&all.context(name::QUERY_MAXIMAL_ACCESS, b""))
        .unwrap();
    let created = pipe.created();
    let maximal = created.context(name::QUERY_MAXIMAL_ACCESS).unwrap();
    let expected = AccessMask::FILE_ALL_ACCESS.bits().to_le_bytes();
    assert_eq!((&maximal[..4], &maximal[4..]), (&[0; 4][..], &expected[..]));
    let on_disk = created.context(name::QUERY_ON_DISK_ID).unwrap();
    assert_eq!(on_disk.len(), 32);
    let internal = pipe.query(FileInformationClass::INTERNAL).unwrap();
    assert_eq!(&on_disk[..8], &internal[..]);
    let known = args().context(name::QUERY_MAXIMAL_ACCESS, &[0; 8]);
    let pipe = tree.create(&known).unwrap();
    let maximal = pipe.created().context(name::QUERY_MAXIMAL_ACCESS).unwrap();
    let status = u32::from_le_bytes(maximal[..4].try_into().unwrap());
    assert_eq!(
        (Status(status), &maximal[4..]),
        (Status::NONE_MAPPED, &[0; 4][..])
    );
    let plain = tree.create(&args()).unwrap();
    assert!(plain.created().context(name::QUERY_ON_DISK_ID).is_none());
}

/// [MS-SMB2] 3.3.5.9, "Create Context Validation", 3.3.5.9.4, 3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.12.
#[test]
fn malformed_and_impossible_contexts_open_no_pipe() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let (invalid, absent) = (Status::INVALID_PARAMETER, Status::OBJECT_NAME_NOT_FOUND);
    for (name, data, expected) in [
        (&b"abc"[..], &b""[..], invalid),
        (name::QUERY_MAXIMAL_ACCESS, b"1234567", invalid),
        (name::REQUEST_LEASE, b"too short", invalid),
        (name::ALLOCATION_SIZE, b"1234", invalid),
        (name::DURABLE_HANDLE_REQUEST, b"", invalid),
        (name::TIMEWARP_TOKEN, &[1; 8], absent),
        (name::DURABLE_HANDLE_RECONNECT, &[1; 16], absent),
        (name::DURABLE_HANDLE_RECONNECT_V2, &[1; 36], absent),
    ] {
        let refused = tree.create_status(&args().context(name, data)).unwrap();
        assert_eq!(refused, expected, "{name:?}");
    }
    let both = v2(args(), CREATE_GUID, 0).context(name::DURABLE_HANDLE_REQUEST, &[0; 16]);
    assert_eq!(tree.create_status(&both).unwrap(), invalid);
    let unknown = args().context(b"What", b"ever");
    assert_answers(&tree.create(&unknown).unwrap(), "an unknown context");
    // Nothing is left of those that were refused.
    assert!(server.opens() <= 1);
}

/// [MS-SMB2] 2.2.13, 3.3.5.9: what is said of every open holds for a pipe too.
#[test]
fn fields_that_open_no_file_open_no_pipe() {
    let server = HoldfastServer::new();
    let tree = ipc(&server);
    let options = |bits| args().options(CreateOptions(bits));
    for (args, expected) in [
        (args().access(AccessMask(0)), Status::ACCESS_DENIED),
        (
            args().access(AccessMask(0x0020_0001)),
            Status::ACCESS_DENIED,
        ),
        (
            args().access(AccessMask::ACCESS_SYSTEM_SECURITY),
            Status::PRIVILEGE_NOT_HELD,
        ),
        (options(0x41), Status::INVALID_PARAMETER),
        (options(0x01), Status::NOT_A_DIRECTORY),
        (options(0x2000), Status::NOT_SUPPORTED),
        (options(0x0010_0000), Status::NOT_SUPPORTED),
        (CreateArgs::open("\\srvsvc"), Status::OBJECT_NAME_NOT_FOUND),
    ] {
        let refused = tree.create_status(&args).unwrap();
        assert_eq!(refused, expected, "{:?}", args.options);
    }
    // [MS-FSA] 2.1.5.2 has the options of a pipe ignored.
    let pipe = tree.create(&options(0x0100_0000)).unwrap();
    assert_answers(&pipe, "an option without a meaning");
}
