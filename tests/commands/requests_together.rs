//! Requests that are sent together, in one message or one behind the other: the layout of the responses and the ids of
//! related elements ([MS-SMB2] 3.3.4.1.3, 3.3.5.2.7.2).

use smb_client::{CreateArgs, Encryption, Options, Reply, Request, Signing, Tree};
use smb_tests::HoldfastServer;
use smb_wire::Status;
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::{FileId, SessionId, TreeId};
use smb_wire::msg::{InfoType, ReadResponse, WriteFlags};

const ANY: FileId = FileId::ANY;

fn related(request: Request) -> Request {
    request.session(SessionId::ANY).tree(TreeId::ANY).related()
}

fn standard(file_id: FileId) -> Request {
    let class = FileInformationClass::STANDARD.0;
    Request::query_info(file_id, InfoType::FILE, class, 0, 100)
}

fn write(data: &[u8]) -> Request {
    related(Request::write(ANY, 0, data, WriteFlags::empty()))
}

fn run(tree: &Tree, requests: Vec<Request>) -> Vec<Reply> {
    tree.client().compound(requests).unwrap()
}

fn statuses(replies: &[Reply]) -> Vec<Status> {
    replies.iter().map(Reply::status).collect()
}

/// [MS-SMB2] 3.3.4.1.3: each response of a chain but the last is padded to 8 bytes, and names the distance to the next.
#[test]
fn the_responses_of_a_chain_are_aligned() {
    let server = HoldfastServer::new();
    for options in [
        Options::default().signing(Signing::Required),
        Options::default().encryption(Encryption::Always),
    ] {
        let tree = server.tree_with(options);
        let replies = run(
            &tree,
            vec![
                tree.address(CreateArgs::open_if("f").request()),
                write(b"abc"),
                related(Request::read(ANY, 0, 3)),
                related(Request::read(ANY, 0, 1)),
                related(Request::close(ANY)),
            ],
        );
        assert_eq!(statuses(&replies), [Status::SUCCESS; 5]);
        let (last, others) = replies.split_last().unwrap();
        assert_eq!(last.header.next_command, 0);
        for reply in others {
            let next = reply.header.next_command;
            assert!(next > 64 && next.is_multiple_of(8), "{next}");
        }
        let read = |at: usize| ReadResponse::read(&replies[at].message).unwrap().data;
        assert_eq!((read(2), read(3)), (&b"abc"[..], &b"a"[..]));
    }
}

/// [MS-SMB2] 3.3.5.2.7.2: a related element uses the ids of the element before it, whatever ids it names.
#[test]
fn the_ids_of_a_related_element_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let wrong = FileId {
        persistent: 1,
        volatile: 2,
    };
    let element = |request: Request| {
        let request = request.session(SessionId(0x77)).tree(TreeId(0x88));
        request.related()
    };
    let replies = run(
        &tree,
        vec![
            tree.address(CreateArgs::create("f").request()),
            element(standard(wrong)),
            element(Request::close(wrong)),
        ],
    );
    assert_eq!(statuses(&replies), [Status::SUCCESS; 3]);
}

/// [MS-SMB2] 3.3.5.2.7.2: the handle of a chain is that of its last CREATE.
#[test]
fn a_second_create_changes_the_handle_of_the_chain() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let replies = run(
        &tree,
        vec![
            tree.address(CreateArgs::create("one").request()),
            write(b"first"),
            related(CreateArgs::create("two").request()),
            write(b"second"),
            related(Request::close(ANY)),
        ],
    );
    assert_eq!(statuses(&replies), [Status::SUCCESS; 5]);
    assert_eq!(std::fs::read(server.path("one")).unwrap(), b"first");
    assert_eq!(std::fs::read(server.path("two")).unwrap(), b"second");
    // The first file is still open.
    let first = tree.file(&replies[0]).unwrap();
    first.close().unwrap();
}

/// [MS-SMB2] 3.3.5.2.7.2: behind a CLOSE the chain has the handle that was closed.
#[test]
fn elements_behind_a_close_have_a_closed_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let replies = run(
        &tree,
        vec![
            tree.address(CreateArgs::create("f").request()),
            related(Request::close(ANY)),
            related(standard(ANY)),
            related(CreateArgs::open("f").request()),
            related(standard(ANY)),
            related(Request::close(ANY)),
        ],
    );
    let done = Status::SUCCESS;
    let closed = Status::FILE_CLOSED;
    assert_eq!(statuses(&replies), [done, done, closed, done, done, done]);
}

/// [MS-SMB2] 3.3.4.1.2, 3.3.5.2.3: every element uses up credits and ids of its own, in one message as well.
#[test]
fn the_elements_of_a_chain_have_consecutive_ids() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let replies = run(
        &tree,
        vec![
            tree.address(CreateArgs::open_if("f").request()),
            related(standard(ANY)),
            related(Request::close(ANY)),
        ],
    );
    let ids: Vec<_> = replies.iter().map(|r| r.header.message_id.0).collect();
    assert_eq!(ids, [ids[0], ids[0] + 1, ids[0] + 2]);
    tree.client().echo().unwrap();
}

/// [MS-FSA] 2.1.5.1: of many requests to make one file, one succeeds; smb2.create.multi.
#[test]
fn one_of_many_creates_makes_the_file() {
    let server = HoldfastServer::new();
    let trees = [server.tree(), server.tree()];
    let sent: Vec<_> = (0..20)
        .map(|at| {
            let tree = &trees[at % 2];
            (tree, tree.send(CreateArgs::create("f").request()).unwrap())
        })
        .collect();
    let mut made = 0;
    for (tree, id) in sent {
        match tree.client().wait(id).unwrap().status() {
            Status::SUCCESS => made += 1,
            other => assert_eq!(other, Status::OBJECT_NAME_COLLISION),
        }
    }
    assert_eq!(made, 1);
}
