//! FLUSH ([MS-SMB2] 3.3.5.11).

use smb_client::{CreateArgs, Options, Request};
use smb_tests::{DATA, HoldfastServer, READ_ONLY, SECOND, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{FlushRequest, FlushResponse, WriteFlags};

use crate::checks;

#[test]
fn files_are_flushed_with_and_without_full_sync() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, b"data").unwrap();
    for full in [false, true] {
        let reply = tree.call(file.flush_request(full)).unwrap();
        FlushResponse::read(&reply.message).unwrap();
    }
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"data");
    file.close().unwrap();
}

#[test]
fn one_of_the_two_write_rights_is_needed() {
    checks::needs_a_write_right(|file| status(file.flush(false)));
}

#[test]
fn directories_need_a_right_to_add() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let base = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    for (access, expected) in [
        (AccessMask::FILE_LIST_DIRECTORY, Status::ACCESS_DENIED),
        (AccessMask::FILE_ADD_FILE, Status::SUCCESS),
        (AccessMask::FILE_ADD_SUBDIRECTORY, Status::SUCCESS),
    ] {
        let directory = tree
            .create(&CreateArgs::directory("d").access(base | access))
            .unwrap();
        assert_eq!(status(directory.flush(false)), expected, "{access}");
        directory.close().unwrap();
    }
}

#[test]
fn unknown_handles_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for file_id in [
        FileId::ANY,
        FileId {
            persistent: 1,
            volatile: 1,
        },
    ] {
        let request = Request::flush(file_id);
        assert_eq!(status(tree.call(request)), Status::FILE_CLOSED);
    }
}

#[test]
fn any_reserved_value_is_a_flush() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    for reserved in [0, 1, 0x7fff, 0xffff] {
        let request = Request::new(&FlushRequest {
            reserved,
            file_id: file.id(),
        });
        tree.call(request).unwrap();
    }
}

#[test]
fn streams_stored_in_attributes_are_flushed() {
    streams_are_flushed(&HoldfastServer::new(), 1000);
}

#[test]
fn streams_stored_in_the_depot_are_flushed() {
    let options = smb_tests::Options {
        share: "streams = \"depot\"".to_owned(),
        ..smb_tests::Options::default()
    };
    streams_are_flushed(&HoldfastServer::start(&options), 100_000);
}

fn streams_are_flushed(server: &HoldfastServer, most: usize) {
    let tree = server.tree();
    tree.write_file("f", b"data").unwrap();
    for (name, size) in [("f:small", 10), ("f:large", most)] {
        let stream = tree.create(&CreateArgs::create(name)).unwrap();
        stream.write_all(0, &vec![1; size]).unwrap();
        for full in [false, true] {
            stream.flush(full).unwrap();
        }
        stream.close().unwrap();
        let read = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_EA;
        let stream = tree.create(&CreateArgs::open(name).access(read)).unwrap();
        assert_eq!(status(stream.flush(false)), Status::ACCESS_DENIED);
    }
}

#[test]
fn the_root_of_the_share_is_flushed_like_any_directory() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"dirty").unwrap();
    let root = |access| {
        let args = CreateArgs::directory("").access(access);
        tree.create(&args).unwrap()
    };
    let reads = root(AccessMask::FILE_GENERIC_READ);
    assert_eq!(status(reads.flush(false)), Status::ACCESS_DENIED);
    assert_eq!(status(reads.flush(true)), Status::ACCESS_DENIED);
    let adds = root(AccessMask::FILE_ADD_FILE);
    adds.flush(false).unwrap();
    adds.flush(true).unwrap();
}

/// No handle of a read-only share can have the required rights, which 3.3.5.11 checks first.
#[test]
fn on_a_read_only_share_nothing_can_be_flushed() {
    let server = HoldfastServer::new();
    std::fs::write(server.share_path(READ_ONLY, "f"), b"as it was").unwrap();
    let tree = server.session(Options::default()).tree(READ_ONLY).unwrap();
    for args in [CreateArgs::open("f"), CreateArgs::directory("")] {
        let file = tree
            .create(&args.access(AccessMask::FILE_GENERIC_READ))
            .unwrap();
        for full in [false, true] {
            assert_eq!(status(file.flush(full)), Status::ACCESS_DENIED);
        }
    }
}

#[test]
fn a_handle_of_another_session_or_tree_is_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (tree, second) = (session.tree(DATA).unwrap(), session.tree(SECOND).unwrap());
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let id = file.id();
    let flush = |file_id| Request::flush(file_id);
    assert_eq!(status(second.call(flush(id))), Status::FILE_CLOSED);
    assert_eq!(status(server.tree().call(flush(id))), Status::FILE_CLOSED);
    for wrong in [
        FileId {
            persistent: id.persistent ^ 1,
            ..id
        },
        FileId {
            volatile: id.volatile ^ 1,
            ..id
        },
    ] {
        assert_eq!(status(tree.call(flush(wrong))), Status::FILE_CLOSED);
    }
    tree.call(flush(id)).unwrap();
}

/// The flush of a pipe waits for its reader, which here has read everything before the WRITE's
/// reply.
#[test]
fn a_pipe_is_flushed() {
    let server = HoldfastServer::new();
    let tree = server.session(Options::default()).tree("IPC$").unwrap();
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    let open = || tree.create(&CreateArgs::open("srvsvc").access(access));
    let pipe = open().unwrap();
    for full in [false, true] {
        pipe.flush(full).unwrap();
    }
    // A part of a PDU is read although it cannot be answered yet.
    pipe.write(0, &[5, 0, 11, 3, 0x10, 0, 0, 0], WriteFlags::empty())
        .unwrap();
    pipe.flush(false).unwrap();
    pipe.close().unwrap();
    assert_eq!(status(pipe.flush(false)), Status::FILE_CLOSED);
    // Data that are no RPC (a fragment shorter than its header) break the pipe, and a flush returns
    // an error.
    let pipe = open().unwrap();
    let short = [5, 0, 11, 3, 0x10, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0];
    pipe.write(0, &short, WriteFlags::empty()).unwrap();
    assert_eq!(status(pipe.flush(false)), Status::PIPE_BROKEN);
}
