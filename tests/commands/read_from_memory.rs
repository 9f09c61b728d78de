//! Large READs that are neither signed nor sealed, whose data the server sends from where the kernel has the file.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use smb_client::{ClientError, CreateArgs, File, Signing, Tree};
use smb_tests::HoldfastServer;
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::msg::{ReadResponse, WriteFlags};

const MIB: usize = 1 << 20;

fn tree(server: &HoldfastServer) -> Tree {
    server.tree_with(smb_client::Options::default().signing(Signing::IfRequired))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// A file that is in memory, and stable.
fn file(server: &HoldfastServer, tree: &Tree, content: &[u8]) -> File {
    std::fs::write(server.path("f"), content).unwrap();
    std::fs::File::open(server.path("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    let read = CreateArgs::open("f").access(AccessMask::FILE_GENERIC_READ);
    tree.create(&read).unwrap()
}

#[test]
fn answers_are_whole_whatever_their_place_and_length() {
    let server = HoldfastServer::lenient();
    let tree = tree(&server);
    let content = pattern(3 * MIB + 1000);
    let file = file(&server, &tree, &content);
    for (offset, length) in [
        (0, 65_536),
        (1, 65_536),
        (4095, 65_537),
        (12_345, 200_000),
        (0, MIB),
        (MIB - 7, MIB),
        (2 * MIB + 1000, MIB),
        // The end of the file.
        (2 * MIB + 1001, MIB),
        (3 * MIB, MIB),
    ] {
        let got = file.read(offset as u64, length as u32).unwrap();
        let end = content.len().min(offset + length);
        assert!(got == content[offset..end], "{offset} {length}");
    }
    // Beside another element, which makes one message of both.
    let request = |offset| tree.address(file.read_request(offset, 65_536, 0));
    let requests = vec![request(0), request(65_536)];
    for (at, reply) in tree.client().compound(requests).unwrap().iter().enumerate() {
        let response = ReadResponse::read(&reply.message).unwrap();
        assert!(response.data == &content[at * 65_536..(at + 1) * 65_536]);
    }
}

#[test]
fn a_client_that_takes_its_answers_late_gets_all_of_them() {
    let server = HoldfastServer::lenient();
    let tree = tree(&server);
    let content = pattern(4 * MIB);
    let file = file(&server, &tree, &content);
    // More than the socket takes.
    let places: Vec<usize> = (0..16).map(|at| at * 199_999).collect();
    let send = |place: &usize| {
        let request = file.read_request(*place as u64, MIB as u32, 0);
        tree.send(request).unwrap()
    };
    let sent: Vec<_> = places.iter().map(send).collect();
    std::thread::sleep(Duration::from_millis(300));
    for (place, id) in places.into_iter().zip(sent) {
        let reply = tree.client().wait(id).unwrap();
        let response = ReadResponse::read(&reply.message).unwrap();
        assert!(response.data == &content[place..place + MIB], "{place}");
    }
    tree.client().echo().unwrap();
}

/// Signed READs, unsigned ones, small ones and WRITEs of one session, all sent before the first answer is taken.
#[test]
fn answers_of_all_kinds_keep_their_order_and_their_data() {
    let server = HoldfastServer::lenient();
    let tree = tree(&server);
    let content = pattern(4 * MIB);
    let file = file(&server, &tree, &content);
    let beside = CreateArgs::open_if("beside");
    let beside = tree.create(&beside).unwrap();
    let lengths = [MIB, 4096, 65_536, 300_000];
    let mut sent = Vec::new();
    for at in 0..24 {
        let (place, length) = (at * 100_003, lengths[at % lengths.len()]);
        let mut request = file.read_request(place as u64, length as u32, 0);
        request.overrides.sign = Some(at % 3 == 0);
        sent.push((tree.send(request).unwrap(), Some(place..place + length)));
        if at % 5 == 0 {
            let request = beside.write_request(0, &content[..MIB], WriteFlags::empty());
            sent.push((tree.send(request).unwrap(), None));
        }
    }
    for (at, (id, range)) in sent.into_iter().enumerate() {
        let reply = tree.client().wait(id).unwrap();
        assert_eq!(reply.header.status, Status::SUCCESS, "{at}");
        if let Some(range) = range {
            let response = ReadResponse::read(&reply.message).unwrap();
            assert!(response.data == &content[range], "{at}");
        }
    }
}

/// An answer holds the data of the moment of the READ, even if it is received after another client's WRITE.
#[test]
fn an_answer_does_not_show_what_another_client_writes_later() {
    let server = HoldfastServer::lenient();
    let (reading, writing) = (tree(&server), tree(&server));
    let old = vec![0xAA; MIB];
    let file = file(&server, &reading, &old);
    let writer = writing.create(&CreateArgs::open("f")).unwrap();
    let id = reading.send(file.read_request(0, MIB as u32, 0)).unwrap();
    // Blocks until the answer begins to arrive; then the server reads what its socket did not take.
    let peeked = reading.client().connection().stream_mut().peek(&mut [0]);
    assert_eq!(peeked.unwrap(), 1);
    std::thread::sleep(Duration::from_millis(300));
    writer
        .write(0, &vec![0xBB; MIB], WriteFlags::empty())
        .unwrap();
    let reply = reading.client().wait(id).unwrap();
    assert!(ReadResponse::read(&reply.message).unwrap().data == old);
    assert!(file.read(0, MIB as u32).unwrap() == vec![0xBB; MIB]);
}

/// A program on the host cuts the file, lets it grow and overwrites it, while a client reads.
#[test]
fn a_file_that_changes_meanwhile_never_gives_fewer_bytes_than_announced() {
    let server = HoldfastServer::lenient();
    let path = server.path("f");
    drop(file(&server, &tree(&server), &vec![0xAA; MIB]));
    let done = AtomicBool::new(false);
    let (mut whole, mut short, mut closed) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            for round in 0u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let byte = if round % 2 == 0 { 0xAA } else { 0xBB };
                file.write_all_at(&vec![byte; MIB], 0).unwrap();
                if round % 3 == 0 {
                    file.set_len(round * 4099 % MIB as u64).unwrap();
                    std::thread::sleep(Duration::from_micros(round % 300));
                }
            }
        });
        let begun = Instant::now();
        let mut file = None;
        // On a busy machine the file is seldom whole.
        while begun.elapsed() < Duration::from_secs(if whole == 0 { 30 } else { 3 }) {
            let open = || tree(&server).create(&CreateArgs::open("f")).unwrap();
            match file.get_or_insert_with(open).read(0, MIB as u32) {
                Ok(data) => {
                    assert!(data.len() <= MIB);
                    let known = |byte: &u8| [0, 0xAA, 0xBB].contains(byte);
                    assert!(data.iter().all(known));
                    if data.len() == MIB {
                        whole += 1;
                    } else {
                        short += 1;
                    }
                }
                Err(ClientError::Disconnected) => {
                    file = None;
                    closed += 1;
                }
                Err(error) => assert_eq!(error.status(), Some(Status::END_OF_FILE), "{error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    eprintln!("{whole} whole, {short} short, {closed} connections closed");
    assert!(whole > 0);
}
