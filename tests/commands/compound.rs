//! Compounds ([MS-SMB2] 3.3.5.2.7): related chains, their errors, and invalid compounds.

use smb_client::{ClientError, CreateArgs, File, Options, Reply, Request, Tree};
use smb_tests::{HoldfastServer, Outcome, outcome};
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::FsctlCode;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, SessionId, TreeId};
use smb_wire::msg::{
    Capabilities, CreateOptions, EchoRequest, InfoType, ReadResponse, SecurityMode,
    SessionSetupFlags, SessionSetupRequest, WriteFlags,
};
use smb_wire::{Command, Status};

const ANY: FileId = FileId::ANY;

fn close(file_id: FileId) -> Request {
    Request::close(file_id)
}

fn query(file_id: FileId) -> Request {
    Request::query_info(
        file_id,
        InfoType::FILE,
        FileInformationClass::STANDARD.0,
        0,
        100,
    )
}

fn write(file_id: FileId, data: &[u8]) -> Request {
    Request::write(file_id, 0, data, WriteFlags::empty())
}

fn read(file_id: FileId, length: u32) -> Request {
    Request::read(file_id, 0, length)
}

fn flush(file_id: FileId) -> Request {
    Request::flush(file_id)
}

/// Builds a related element with the ids that clients send: all ones.
fn related(request: Request) -> Request {
    request.session(SessionId::ANY).tree(TreeId::ANY).related()
}

fn run(tree: &Tree, requests: Vec<Request>) -> Vec<Status> {
    let replies = tree.client().compound(requests).unwrap();
    replies.iter().map(|reply| reply.status()).collect()
}

/// Opens a new file.
fn opened(server: &HoldfastServer) -> (Tree, File) {
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    (tree, file)
}

#[test]
fn a_related_chain_works_on_the_file_it_opened() {
    let server = HoldfastServer::new();
    for options in [
        Options::default(),
        Options::dialect(smb_wire::msg::Dialect::SMB_2_1),
    ] {
        let tree = server.tree_with(options);
        let replies = tree
            .client()
            .compound(vec![
                tree.address(CreateArgs::open_if("f").request()),
                related(write(ANY, b"chained!")),
                related(flush(ANY)),
                related(query(ANY)),
                related(read(ANY, 100)),
                related(close(ANY)),
            ])
            .unwrap();
        for (index, reply) in replies.iter().enumerate() {
            assert_eq!(reply.status(), Status::SUCCESS, "{index}");
            let flagged = reply.header.flags.contains(HeaderFlags::RELATED);
            assert_eq!(flagged, index != 0, "{index}");
        }
        assert_eq!(
            ReadResponse::read(&replies[4].message).unwrap().data,
            b"chained!"
        );
    }
}

#[test]
fn a_failed_create_fails_the_elements_that_need_its_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let statuses = run(
        &tree,
        vec![
            tree.address(CreateArgs::open("missing").request()),
            related(query(ANY)),
            related(close(ANY)),
        ],
    );
    assert_eq!(statuses, [Status::OBJECT_NAME_NOT_FOUND; 3]);
}

/// [MS-SMB2] 3.3.5.2.7.2: only elements that need a FileId fail with the CREATE.
#[test]
fn elements_that_need_no_handle_are_carried_out_after_a_failed_create() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let statuses = run(
        &tree,
        vec![
            tree.address(CreateArgs::open("missing").request()),
            related(query(ANY)),
            related(Request::new(&EchoRequest)),
            // It names no FileId: all ones stand for none.
            related(Request::ioctl(ANY, FsctlCode::DFS_GET_REFERRALS, &[], 0)),
            related(Request::ioctl(ANY, FsctlCode::GET_COMPRESSION, &[], 2)),
            related(CreateArgs::open("f").request()),
            related(query(ANY)),
            related(CreateArgs::open("missing").request()),
            related(close(ANY)),
        ],
    );
    let (done, missing) = (Status::SUCCESS, Status::OBJECT_NAME_NOT_FOUND);
    let refused = Status::FS_DRIVER_REQUIRED;
    let expected = [
        missing, missing, done, refused, missing, done, done, missing, missing,
    ];
    assert_eq!(statuses, expected);
}

#[test]
fn a_failed_element_in_the_middle_does_not_stop_the_close() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let mut bad = query(ANY);
    bad = bad.mutate(|m| m[64 + 3] = 0xfe);
    let statuses = run(
        &tree,
        vec![
            tree.address(CreateArgs::open("f").request()),
            related(bad),
            related(close(ANY)),
        ],
    );
    assert_eq!(statuses[0], Status::SUCCESS);
    assert_eq!(statuses[1], Status::INVALID_INFO_CLASS);
    assert_eq!(statuses[2], Status::SUCCESS);
    // The file is really closed: an exclusive open succeeds.
    let alone = CreateArgs::open("f").share(smb_wire::msg::ShareAccess::empty());
    tree.create(&alone).unwrap();
}

#[test]
fn the_first_element_cannot_be_related() {
    let server = HoldfastServer::new();
    let (tree, file) = opened(&server);
    let statuses = run(
        &tree,
        vec![
            tree.address(query(file.id())).related(),
            related(query(ANY)),
        ],
    );
    assert_eq!(statuses, [Status::INVALID_PARAMETER; 2]);
    file.close().unwrap();
}

#[test]
fn unrelated_elements_are_independent() {
    let server = HoldfastServer::new();
    let (tree, file) = opened(&server);
    let statuses = run(
        &tree,
        vec![
            tree.address(query(ANY)),
            tree.address(query(file.id())),
            tree.address(CreateArgs::open("missing").request()),
            tree.address(close(file.id())),
        ],
    );
    assert_eq!(
        statuses,
        [
            Status::FILE_CLOSED,
            Status::SUCCESS,
            Status::OBJECT_NAME_NOT_FOUND,
            Status::SUCCESS
        ]
    );
}

#[test]
fn a_chain_can_begin_with_a_handle() {
    let server = HoldfastServer::new();
    let (tree, file) = opened(&server);
    let statuses = run(
        &tree,
        vec![
            tree.address(write(file.id(), b"abc")),
            related(flush(ANY)),
            related(close(ANY)),
        ],
    );
    assert_eq!(statuses, [Status::SUCCESS; 3]);
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"abc");
}

#[test]
fn a_related_element_needs_a_handle_before_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let statuses = run(
        &tree,
        vec![
            tree.address(Request::new(&EchoRequest)).tree(TreeId(0)),
            related(query(ANY)),
        ],
    );
    // [MS-SMB2] 2.2.1.2: an ECHO has no TreeId.
    assert_eq!(statuses, [Status::SUCCESS, Status::INVALID_PARAMETER]);
}

/// [MS-SMB2] 3.3.5.2.7.2 (docs/protocol-notes.md, "Related requests after one whose ids name nothing").
#[test]
fn ids_that_name_nothing_are_not_taken_over() {
    let server = HoldfastServer::new();
    let (tree, file) = opened(&server);
    let nowhere = tree.address(query(file.id())).tree(TreeId(0x7777));
    let nobody = tree.address(query(file.id())).session(SessionId(0x7777));
    for (first, refused) in [
        (nowhere, Status::NETWORK_NAME_DELETED),
        (nobody, Status::USER_SESSION_DELETED),
    ] {
        let statuses = run(&tree, vec![first, related(query(ANY)), related(close(ANY))]);
        let invalid = Status::INVALID_PARAMETER;
        assert_eq!(statuses, [refused, invalid, invalid]);
    }
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.5.2.7.2: an element that lacks an id fails together with all after it.
#[test]
fn all_elements_after_one_that_lacks_an_id_fail() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let path = |share: &str| format!("\\\\server\\{share}");
    let connect = || tree.session().tree_connect(&path(smb_tests::DATA));
    let create = || related(CreateArgs::create("made").request());
    let statuses = run(&tree, vec![connect(), related(query(ANY)), create()]);
    let lacks = Status::INVALID_HANDLE;
    assert_eq!(statuses, [Status::SUCCESS, lacks, lacks]);
    // Neither a session nor a tree comes of a request that fails.
    let invalid = Status::INVALID_PARAMETER;
    let missing = tree.session().tree_connect(&path("none"));
    let statuses = run(&tree, vec![missing, create()]);
    assert_eq!(statuses, [Status::BAD_NETWORK_NAME, invalid]);
    let setup = Request::new(&SessionSetupRequest {
        flags: SessionSetupFlags::empty(),
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        previous_session_id: SessionId(0),
        security_buffer: b"no token",
    });
    let statuses = run(&tree, vec![setup, related(connect())]);
    assert!(statuses[0].is_error(), "{}", statuses[0]);
    assert_eq!(statuses[1], invalid);
    assert!(!server.path("made").exists());
}

#[test]
fn opening_deleting_and_closing_in_one_message_deletes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let doomed = CreateArgs::open("f").options(CreateOptions::DELETE_ON_CLOSE);
    let statuses = run(
        &tree,
        vec![tree.address(doomed.request()), related(close(ANY))],
    );
    assert_eq!(statuses, [Status::SUCCESS; 2]);
    assert!(!server.path("f").exists());
}

/// A library in Go asks for the descriptors of as many files at once as its 128 credits allow.
#[test]
fn descriptors_of_many_files_are_answered_in_one_message() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let one = |_| {
        let open = CreateArgs::open("f").access(AccessMask::READ_CONTROL);
        let descriptor = Request::query_info(ANY, InfoType::SECURITY, 0, 7, 65_536);
        [
            tree.address(open.request()),
            related(descriptor),
            related(close(ANY)),
        ]
    };
    let statuses = run(&tree, (0..42).flat_map(one).collect());
    assert_eq!(statuses, [Status::SUCCESS; 126]);
}

/// Asserts that a request is answered with an error, or that the connection is closed.
#[track_caller]
fn assert_refused(result: Result<Reply, ClientError>, what: &str) {
    if let Outcome::Answered(status) = outcome(result) {
        assert!(status.is_error(), "{what}: {status}");
    }
}

#[test]
fn invalid_next_command_offsets_are_refused() {
    let server = HoldfastServer::new();
    for next in [1, 7, 8, 56, 63, 0xffff_fff8, 0xffff_ffff] {
        let tree = server.tree();
        let request = Request::new(&EchoRequest).overriding(|o| o.next_command = Some(next));
        assert_refused(tree.client().call(request), &format!("{next:#x}"));
    }
    server.assert_serving();
}

/// An element without a complete header is no request, and gets no reply.
#[test]
fn a_last_element_shorter_than_a_header_is_no_message() {
    let server = HoldfastServer::new();
    for length in 1..64 {
        let client = server.client(Options::default());
        // The first element is an ECHO with its padding.
        let mut body = vec![4, 0, 0, 0, 0, 0, 0, 0];
        body.extend((0..length).map(|at| b"\xfeSMB\x40\0".get(at).copied().unwrap_or(0)));
        let request = Request::raw(Command::ECHO, &body);
        assert_refused(
            client.call(request.overriding(|o| o.next_command = Some(72))),
            &format!("{length}"),
        );
    }
    server.assert_serving();
}

#[test]
fn an_unknown_command_is_refused() {
    let server = HoldfastServer::new();
    for command in [0x13, 0x14, 0xff, 0xffff] {
        let tree = server.tree();
        let request = tree.address(Request::raw(Command(command), &[4, 0, 0, 0]));
        assert_refused(tree.client().call(request), &format!("{command:#x}"));
    }
    server.assert_serving();
}
