//! Compounds with an element that becomes pending ([MS-SMB2] 3.3.5.2.7.2, 3.3.4.2; the cases of
//! smb2.compound_async and smb2.compound.interim*).

use std::time::{Duration, Instant};

use smb_client::{Break, CreateArgs, File, Options, Reply, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, SOON};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::{FileId, LeaseKey, MessageId};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, InfoType, LockElement, LockFlags, LockRequest,
    NotifyFilter, OplockLevel, ShareAccess, WriteFlags,
};

fn close(file_id: FileId) -> Request {
    Request::close(file_id)
}

fn flush(file_id: FileId) -> Request {
    Request::flush(file_id)
}

fn query(file_id: FileId) -> Request {
    Request::query_info(
        file_id,
        InfoType::FILE,
        FileInformationClass::STANDARD.0,
        0,
        1024,
    )
}

fn waiting_lock(file_id: FileId) -> Request {
    Request::new(&LockRequest {
        lock_sequence: 0,
        file_id,
        locks: vec![LockElement {
            offset: 0,
            length: 10,
            flags: LockFlags::EXCLUSIVE,
        }],
    })
}

fn notify(file_id: FileId) -> Request {
    Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags::empty(),
        output_buffer_length: 4096,
        file_id,
        completion_filter: NotifyFilter::FILE_NAME,
    })
}

/// Sends a chain in which every element is related to the one before it.
fn send(tree: &Tree, requests: Vec<Request>) -> Vec<MessageId> {
    let address = |(at, request)| {
        let request = tree.address(request);
        if at == 0 { request } else { request.related() }
    };
    let requests = requests.into_iter().enumerate().map(address).collect();
    let mut connection = tree.client().connection();
    connection.send_compound(requests).unwrap()
}

/// Sends a chain whose first element waits for the break of `file`, of which its holder has been
/// notified.
fn open_that_waits(tree: &Tree, file: &File) -> Vec<MessageId> {
    let chain = vec![
        CreateArgs::open("f").request(),
        query(FileId::ANY),
        close(FileId::ANY),
    ];
    let ids = send(tree, chain);
    assert!(file.tree().client().next_break(SOON).unwrap().is_some());
    ids
}

fn wait(tree: &Tree, ids: &[MessageId]) -> Vec<Reply> {
    let wait = |id: &MessageId| tree.client().wait(*id).unwrap();
    ids.iter().map(wait).collect()
}

fn ends(replies: &[Reply]) -> Vec<Status> {
    replies.iter().map(Reply::status).collect()
}

fn answered(tree: &Tree, id: MessageId) -> bool {
    let mut connection = tree.client().connection();
    connection.answered(id, MEANWHILE / 3).unwrap()
}

fn is_pending(tree: &Tree, id: MessageId) -> bool {
    tree.client().connection().is_pending(id)
}

/// Opens the file `f` with a batch oplock on another connection.
fn held(server: &HoldfastServer) -> File {
    let args = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    server.tree().create(&args).unwrap()
}

const DONE: Status = Status::SUCCESS;

#[test]
fn elements_related_to_a_pending_open_wait_for_it() {
    // smb2.compound_async.create_lease_break_async, getinfo_middle
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let ids = open_that_waits(&tree, &file);
    // [MS-SMB2] appendix A on 3.3.5.2.7: only the CREATE is reported as pending.
    assert!(tree.client().wait_pending(ids[0]).unwrap().is_some());
    for id in &ids {
        assert!(!answered(&tree, *id));
    }
    assert!(!is_pending(&tree, ids[1]) && !is_pending(&tree, ids[2]));
    file.acknowledge_oplock(OplockLevel::NONE).unwrap();
    let replies = wait(&tree, &ids);
    assert_eq!(ends(&replies), [DONE; 3]);
    let asyncs = replies.iter().map(|reply| reply.header.async_id.is_some());
    assert_eq!(asyncs.collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(server.opens(), 1);
}

#[test]
fn an_open_that_fails_after_its_wait_fails_the_related_elements() {
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let alone = CreateArgs::open("f").share(smb_wire::msg::ShareAccess::empty());
    let chain = vec![alone.request(), query(FileId::ANY), close(FileId::ANY)];
    let ids = send(&tree, chain);
    assert!(file.tree().client().next_break(SOON).unwrap().is_some());
    file.acknowledge_oplock(OplockLevel::II).unwrap();
    let ends = ends(&wait(&tree, &ids));
    assert_eq!(ends, [Status::SHARING_VIOLATION; 3]);
}

#[test]
fn the_connection_is_served_meanwhile() {
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let chain = vec![CreateArgs::open("f").request(), close(FileId::ANY)];
    let ids = send(&tree, chain);
    assert!(file.tree().client().next_break(SOON).unwrap().is_some());
    tree.client().echo().unwrap();
    tree.write_file("g", b"meanwhile").unwrap();
    file.close().unwrap();
    assert_eq!(ends(&wait(&tree, &ids)), [DONE; 2]);
}

#[test]
fn the_last_element_may_wait() {
    // smb2.compound.interim1; docs/protocol-notes.md, "Waiting inside a compound"
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let chain = vec![
        CreateArgs::directory("").request(),
        query(FileId::ANY),
        notify(FileId::ANY),
    ];
    let ids = send(&tree, chain);
    assert!(tree.client().wait_pending(ids[2]).unwrap().is_some());
    // The answers before it need not wait for it.
    other.write_file("new", b"").unwrap();
    assert_eq!(ends(&wait(&tree, &ids)), [DONE; 3]);
}

#[test]
fn a_waiting_last_element_is_cancelled() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let chain = vec![CreateArgs::directory("").request(), notify(FileId::ANY)];
    let ids = send(&tree, chain);
    assert!(tree.client().wait_pending(ids[1]).unwrap().is_some());
    let session = tree.session().id();
    tree.client().connection().cancel(ids[1], session).unwrap();
    let replies = wait(&tree, &ids);
    assert_eq!(ends(&replies), [DONE, Status::CANCELLED]);
    // The open still exists.
    let directory = tree.file(&replies[0]).unwrap();
    directory.close().unwrap();
}

#[test]
fn an_element_that_has_not_begun_is_cancelled() {
    // [MS-SMB2] 3.3.5.16 finds it among all requests that were received.
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let chain = vec![
        tree.address(CreateArgs::open("f").request()),
        tree.address(notify(root.id())),
    ];
    let ids = tree.client().connection().send_compound(chain).unwrap();
    assert!(file.tree().client().next_break(SOON).unwrap().is_some());
    let session = tree.session().id();
    tree.client().connection().cancel(ids[1], session).unwrap();
    tree.client().echo().unwrap();
    file.acknowledge_oplock(OplockLevel::NONE).unwrap();
    let replies = wait(&tree, &ids);
    assert_eq!(ends(&replies), [DONE, Status::CANCELLED]);
}

#[test]
fn an_element_in_the_middle_waits_or_is_refused() {
    // [MS-SMB2] 3.3.5.2.7.2 lets all following elements wait; Windows refuses with INTERNAL_ERROR
    // (docs/protocol-notes.md, "Waiting inside a compound").
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let chain = vec![
        CreateArgs::directory("").request(),
        notify(FileId::ANY),
        close(FileId::ANY),
    ];
    let ids = send(&tree, chain);
    // If it is pending, this completes it.
    other.write_file("new", b"").unwrap();
    let ends = ends(&wait(&tree, &ids));
    assert_eq!(ends[0], DONE);
    match ends[1] {
        Status::INTERNAL_ERROR => assert!([DONE, Status::INTERNAL_ERROR].contains(&ends[2])),
        end => assert_eq!([end, ends[2]], [DONE; 2]),
    }
    other.write_file("newer", b"").unwrap();
    tree.client().echo().unwrap();
}

#[test]
fn a_lock_that_waits_at_the_end_is_granted_later() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let theirs = other.create(&CreateArgs::open_if("f")).unwrap();
    theirs.lock(0, 10, LockFlags(0x12)).unwrap();
    let chain = vec![CreateArgs::open("f").request(), waiting_lock(FileId::ANY)];
    let ids = send(&tree, chain);
    assert!(tree.client().wait_pending(ids[1]).unwrap().is_some());
    theirs.unlock(0, 10).unwrap();
    assert_eq!(ends(&wait(&tree, &ids)), [DONE; 2]);
    assert_eq!(
        smb_tests::status(theirs.lock(0, 1, LockFlags(0x12))),
        Status::LOCK_NOT_GRANTED
    );
}

#[test]
fn flushes_and_the_close_after_them_all_succeed() {
    // smb2.compound_async.flush_close, flush_flush
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[7; 1 << 20]).unwrap();
    let id = file.id();
    let ids = send(&tree, vec![flush(id), flush(id), close(id)]);
    assert_eq!(ends(&wait(&tree, &ids)), [DONE; 3]);
    assert_eq!(tree.read_file("f").unwrap().len(), 1 << 20);
}

#[test]
fn a_write_a_flush_and_a_close_in_one_compound_succeed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let write = file.write_request(0, &[7; 100_000], WriteFlags::empty());
    let chain = vec![
        write,
        flush(FileId::ANY),
        query(FileId::ANY),
        close(FileId::ANY),
    ];
    let ids = send(&tree, chain);
    assert_eq!(ends(&wait(&tree, &ids)), [DONE; 4]);
    assert_eq!(std::fs::read(server.path("f")).unwrap(), [7; 100_000]);
}

#[test]
fn a_pending_open_is_cancelled_together_with_the_related_elements() {
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let ids = open_that_waits(&tree, &file);
    assert!(tree.client().wait_pending(ids[0]).unwrap().is_some());
    let session = tree.session().id();
    tree.client().connection().cancel(ids[0], session).unwrap();
    assert_eq!(ends(&wait(&tree, &ids)), [Status::CANCELLED; 3]);
    file.close().unwrap();
}

#[test]
fn elements_before_a_pending_open_are_answered() {
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let directory = tree.create(&CreateArgs::directory("")).unwrap();
    let requests = [
        query(directory.id()),
        CreateArgs::open("f").request(),
        query(directory.id()),
    ];
    let requests = requests.map(|request| tree.address(request)).to_vec();
    let sent = tree.client().connection().send_compound(requests);
    let ids = sent.unwrap();
    assert!(tree.client().wait_pending(ids[1]).unwrap().is_some());
    let first = tree.client().connection().answered(ids[0], SOON);
    assert!(first.unwrap() && !answered(&tree, ids[2]));
    file.close().unwrap();
    assert_eq!(ends(&wait(&tree, &ids)), [DONE; 3]);
}

/// Opens the file `f` with handle caching on another connection.
fn cached(server: &HoldfastServer) -> File {
    let (key, rh) = (LeaseKey([1; 16]), LeaseState(3));
    let args = CreateArgs::open_if("f").lease(key, rh);
    server.tree().create(&args).unwrap()
}

fn rename(file_id: FileId) -> Request {
    Request::rename(file_id, "g", false)
}

#[test]
fn a_rename_waits_for_a_handle_break_without_an_interim_response() {
    // smb2.compound_async.rename_last, rename_middle, rename_non_compound_no_async
    let open = CreateArgs::open("f").lease(LeaseKey([2; 16]), LeaseState(0));
    let (any, rest) = (FileId::ANY, [DONE; 3]);
    for length in 1..=3 {
        let server = HoldfastServer::new();
        let (holder, tree) = (cached(&server), server.tree());
        let chain = match length {
            1 => vec![rename(tree.create(&open).unwrap().id())],
            2 => vec![open.request(), rename(any)],
            _ => vec![open.request(), rename(any), close(any)],
        };
        let ids = send(&tree, chain);
        let broken = holder.tree().client().next_break(SOON).unwrap();
        assert!(broken.is_some());
        // All answers are sent together.
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            assert!(!answered(&tree, ids[0]), "{length}");
        }
        for id in &ids {
            assert!(!answered(&tree, *id) && !is_pending(&tree, *id), "{length}");
        }
        holder.close().unwrap();
        assert_eq!(ends(&wait(&tree, &ids)), rest[..length]);
        assert!(server.path("g").exists());
    }
}

#[test]
fn a_rename_that_waits_long_is_pending_and_is_cancelled() {
    let server = HoldfastServer::new();
    let (holder, tree) = (cached(&server), server.tree());
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for told in [true, false] {
        let id = send(&tree, vec![rename(file.id())])[0];
        if told {
            assert!(tree.client().wait_pending(id).unwrap().is_some());
        } else {
            // A CANCEL that arrives before the wait begins has no effect.
            assert!(!answered(&tree, id));
        }
        let session = tree.session().id();
        tree.client().connection().cancel(id, session).unwrap();
        assert_eq!(ends(&wait(&tree, &[id])), [Status::CANCELLED]);
    }
    holder.close().unwrap();
    file.rename("g", false).unwrap();
}

#[test]
fn a_chain_whose_connection_is_lost_leaves_nothing() {
    let server = HoldfastServer::new();
    let (file, tree) = (held(&server), server.tree());
    let chain = vec![CreateArgs::open("f").request(), query(FileId::ANY)];
    send(&tree, chain);
    assert!(file.tree().client().next_break(SOON).unwrap().is_some());
    server.lose(&tree);
    file.acknowledge_oplock(OplockLevel::NONE).unwrap();
    file.close().unwrap();
    let alone = CreateArgs::open("f").share(smb_wire::msg::ShareAccess::empty());
    server.tree().create(&alone).unwrap();
    assert!(server.opens() <= 1);
}

#[test]
fn an_element_that_waits_for_the_oplock_of_one_before_it_is_answered() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let open = || CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let requests = [open(), open(), CreateArgs::open_if("g")];
    let requests = requests.map(|args| tree.address(args.request())).to_vec();
    let sent = tree.client().connection().send_compound(requests);
    let ids = sent.unwrap();
    // The first answer is sent separately: without its FileId nobody could acknowledge the break.
    let first = tree.client().wait(ids[0]).unwrap();
    let file = tree.file(&first).unwrap();
    let broken = tree.client().next_break(SOON).unwrap();
    let level = OplockLevel::II;
    let expected = Break::Oplock {
        file_id: file.id(),
        level,
    };
    assert_eq!(broken, Some(expected));
    file.acknowledge_oplock(level).unwrap();
    assert_eq!(ends(&wait(&tree, &ids[1..])), [Status::SUCCESS; 2]);
}

/// [MS-SMB2] 3.3.7.1. The compounds ask for more data than may be under way, so nothing is received after them.
#[test]
fn the_loss_of_a_client_is_noticed_while_its_compounds_wait() {
    let server = HoldfastServer::new();
    let _file = held(&server);
    let lost = server.tree_with(Options {
        credits: 4096,
        ..Options::default()
    });
    for _ in 0..4 {
        lost.client().echo().unwrap();
    }
    let alone = CreateArgs::open_if("alone").share(ShareAccess::empty());
    let own = lost.create(&alone).unwrap();
    let compound = || {
        let mut chain = vec![CreateArgs::open("f").request()];
        chain.extend((0..14).map(|_| Request::read(FileId::ANY, 0, 1 << 20)));
        send(&lost, chain)
    };
    let ids: Vec<_> = (0..6).map(|_| compound()).collect();
    let pending = lost.client().wait_pending(ids[0][0]).unwrap();
    assert!(pending.is_some());
    std::thread::sleep(MEANWHILE);
    drop((own, lost));
    let (tree, gone) = (server.tree(), Instant::now());
    while tree.create(&alone).is_err() {
        assert!(gone.elapsed() < SOON, "its open is still there");
        std::thread::sleep(MEANWHILE / 10);
    }
}
