//! FLUSH ([MS-SMB2] 3.3.5.11).

use smb_client::{CreateArgs, Request};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{FlushRequest, FlushResponse};

#[test]
fn files_are_flushed_plainly_and_fully() {
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
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let base = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    for (access, expected) in [
        (AccessMask::FILE_READ_DATA, Status::ACCESS_DENIED),
        (AccessMask::FILE_WRITE_ATTRIBUTES, Status::ACCESS_DENIED),
        (AccessMask::FILE_WRITE_DATA, Status::SUCCESS),
        (AccessMask::FILE_APPEND_DATA, Status::SUCCESS),
    ] {
        let file = tree
            .create(&CreateArgs::open("f").access(base | access))
            .unwrap();
        assert_eq!(status(file.flush(false)), expected, "{access}");
        file.close().unwrap();
    }
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
fn handles_that_are_not_there_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for file_id in [
        FileId::ANY,
        FileId {
            persistent: 1,
            volatile: 1,
        },
    ] {
        let request = Request::new(&FlushRequest {
            reserved: 0,
            file_id,
        });
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
