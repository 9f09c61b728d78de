//! The caching client of `holdfast bench`: what it keeps to itself never makes its data wrong, also while two of them
//! contend for a file.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use smb_client::CreateArgs;
use smb_load::{
    Worker,
    netbench::{
        caching::CachingClient,
        client::Client,
        mix::Mix,
        worker::{Class, MixWorker},
    },
    redirector::Redirector,
};
use smb_tests::{HoldfastServer, rng::Rng, wait_until};
use smb_wire::msg::CreateDisposition;

const DOCUMENTS: u32 = 8;
const DRAWS: usize = 3000;

#[test]
fn the_mix_needs_fewer_requests_with_a_cache() {
    let server = HoldfastServer::new();
    let plain = Client::prepare(server.tree(), "plain", DOCUMENTS).unwrap();
    let before = plain.sent();
    let (mut plain, mut mix) = (plain, Mix::new(1, DOCUMENTS));
    for _ in 0..DRAWS {
        let draw = mix.next(0).unwrap();
        plain.perform(&draw.first).unwrap();
        if let Some(second) = draw.second {
            plain.perform(&second).unwrap();
        }
    }
    let by_plain = plain.sent() - before;
    let prepared = Client::prepare(server.tree(), "caching", DOCUMENTS).unwrap();
    let mut caching = CachingClient::new(prepared).unwrap();
    let (before, mut mix) = (caching.sent(), Mix::new(1, DOCUMENTS));
    for _ in 0..DRAWS {
        let draw = mix.next(0).unwrap();
        caching.perform(&draw.first).unwrap();
        if let Some(second) = draw.second {
            caching.perform(&second).unwrap();
        }
    }
    caching.settle().unwrap();
    let by_caching = caching.sent() - before;
    assert!(
        by_caching * 10 < by_plain * 9,
        "{by_caching} requests instead of {by_plain}"
    );
    // Both did the same, so both folders have the same files with the same data.
    let tree = server.tree();
    let names = |folder: &str| {
        let entries = tree.list(folder, "*").unwrap().into_iter();
        let names = entries.map(|entry| entry.file_name.to_string());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    assert_eq!(names("plain"), names("caching"));
    for name in names("plain") {
        let read = |folder: &str| tree.read_file(&format!("{folder}\\{name}")).unwrap();
        assert!(read("plain") == read("caching"), "{name}");
    }
}

#[test]
fn a_worker_sends_what_it_has_held_back_at_its_end() {
    let server = HoldfastServer::new();
    let prepared = Client::prepare(server.tree(), "worker", DOCUMENTS).unwrap();
    let mix = Arc::new(Mutex::new(Mix::new(1, DOCUMENTS)));
    let mut worker = MixWorker::new(prepared, Class::Caching, 0, mix).unwrap();
    for _ in 0..100 {
        worker.turn(&mut |_| ()).unwrap();
    }
    let before = worker.sent();
    worker.end().unwrap();
    // At least the files that the mix has open all the time are closed.
    assert!(worker.sent() > before);
}

/// Adds to a number in a file under a lock, over and over, with opens that overlap.
fn count(server: &HoldfastServer, times: u64) {
    let mut files = Redirector::new(server.tree());
    for _ in 0..times {
        files.open("counter", CreateDisposition::OPEN).unwrap();
        files.lock("counter", 1000, 1).unwrap();
        let bytes = files.read("counter", 4090, 8).unwrap();
        let number = u64::from_le_bytes(bytes.try_into().unwrap()) + 1;
        files.write("counter", 4090, &number.to_le_bytes()).unwrap();
        files.unlock("counter", 1000, 1).unwrap();
        files.close("counter").unwrap();
    }
    files.settle().unwrap();
}

#[test]
fn two_clients_that_contend_lose_no_write() {
    let server = HoldfastServer::new();
    server
        .tree()
        .write_file("counter", &vec![0; 10_000])
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| count(&server, 150));
        }
    });
    let data = server.tree().read_file("counter").unwrap();
    assert_eq!(data[4090..4098], 300_u64.to_le_bytes());
    assert_eq!(data.len(), 10_000);
}

/// One client writes and caches while another, without a cache, looks and changes: each sees the last write.
#[test]
fn a_break_brings_the_data_to_the_server_and_the_cache_up_to_date() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut rng = Rng::new(17);
    let mut model = vec![0_u8; 60_000];
    tree.write_file("shared", &model).unwrap();
    let mut files = Redirector::new(server.tree());
    for round in 0..12_u8 {
        files.open("shared", CreateDisposition::OPEN).unwrap();
        let sent = files.sent();
        for _ in 0..20 {
            let at = rng.below(59_000) as usize;
            let data = vec![round; 1 + rng.below(900) as usize];
            files.write("shared", at as u64, &data).unwrap();
            model[at..at + data.len()].copy_from_slice(&data);
            let at = rng.below(50_000) as usize;
            let seen = files.read("shared", at as u64, 10_000).unwrap();
            assert!(seen == model[at..at + 10_000], "round {round}");
        }
        assert!(files.sent() - sent <= 40, "nothing was cached");
        // The other client's open waits for the write-back, which happens while this one waits for something.
        let other = thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let file = tree.create(&CreateArgs::open("shared")).unwrap();
                let data = file.read_all().unwrap();
                file.write_all(100, &[round ^ 0xFF; 5000]).unwrap();
                file.close().unwrap();
                data
            });
            while !opening.is_finished() {
                files.serve().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            opening.join().unwrap()
        });
        assert!(
            other == model,
            "round {round}: the other client saw old data"
        );
        model[100..5100].fill(round ^ 0xFF);
        // A WRITE waits for no client that only reads, so the break may come a moment later; then nothing old is left.
        wait_until("the break", || {
            files.read("shared", 0, 60_000).unwrap() == model
        });
        files.close("shared").unwrap();
        // With a delayed close the lease would stay what the other client left of it.
        files.settle().unwrap();
    }
}
