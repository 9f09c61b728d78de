//! A client that does not read the answers: the server's memory that they occupy is bounded by
//! their actual size, not by the requested one.

use std::time::{Duration, Instant};

use smb_client::{ClientError, File, Options, Request};
use smb_tests::{HoldfastServer, SOON};
use smb_wire::{Command, Status, ids::MessageId};

use crate::requests::Attacker;

const LARGEST: u32 = 8 << 20;
const MIB: usize = 1 << 20;
/// Number of short answers queued behind the long ones.
const SHORT: usize = 3_000;

/// Waits until the server has finished its requests; returns the peak of its mapped memory in bytes.
fn quiet(server: &HoldfastServer) -> usize {
    let peak = || server.memory("VmPeak");
    let end = Instant::now() + SOON;
    let (mut last, mut same) = (peak(), 0);
    while same < 5 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        let now = peak();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

fn read(attacker: &Attacker, file: &File, offset: u64) -> MessageId {
    let request = attacker.tree.address(file.read_request(offset, LARGEST, 1));
    // Their credits come with the answers, which the client does not read.
    let request: Request = request.overriding(|how| how.ignore_credits = true);
    attacker.session.client().send(request).unwrap()
}

/// Each of these answers was read into a buffer of 8 MiB, which must not wait for the client.
#[test]
fn short_answers_to_large_reads_occupy_little_memory() {
    let server = HoldfastServer::new();
    let options = Options {
        credits: 4096,
        ..Options::default()
    };
    let attacker = Attacker::new(&server, options);
    std::fs::write(server.path(&attacker.name), vec![7; LARGEST as usize]).unwrap();
    let client = attacker.session.client();
    for _ in 0..4 {
        client.echo().unwrap();
    }
    // Fills the page cache, and makes the server allocate a buffer of this size once.
    let whole = attacker.file.read(0, LARGEST).unwrap();
    assert_eq!(whole.len(), LARGEST as usize);
    let before = quiet(&server);
    // More than the sockets can buffer: everything behind it is queued in the server.
    let long = [
        read(&attacker, &attacker.file, 0),
        read(&attacker, &attacker.file, 0),
    ];
    let last = u64::from(LARGEST) - 1;
    let short: Vec<_> = (0..SHORT)
        .map(|_| read(&attacker, &attacker.file, last))
        .collect();
    let grown = quiet(&server).saturating_sub(before) / MIB;
    // Address space, of which each thread's heap reserves 64 MiB. All of the answers would be 24 GiB.
    assert!(grown < 4096, "{grown} MiB for {SHORT} answers of one byte");
    for id in long.into_iter().chain(short) {
        assert_eq!(client.wait(id).unwrap().status(), Status::SUCCESS);
    }
    server.assert_serving();
}

/// A stranger's READ announces 4 GiB by its CreditCharge. It is refused before anybody waits for so much memory, so a
/// client that is slow to take its answers is not closed for it.
#[test]
fn a_credit_charge_is_not_believed_before_negotiate() {
    let server = HoldfastServer::new();
    let slow = Attacker::new(&server, Options::default());
    std::fs::write(server.path(&slow.name), vec![7; LARGEST as usize]).unwrap();
    let untaken = [
        read(&slow, &slow.file, 0),
        read(&slow, &slow.file, 0),
        read(&slow, &slow.file, 0),
    ];
    let mut strangers: Vec<_> = (0..4)
        .map(|_| server.connection(Options::default()))
        .collect();
    for stranger in &mut strangers {
        let request = Request::raw(Command::READ, &[0; 49]).overriding(|how| {
            how.ignore_credits = true;
            how.credit_charge = Some(0xffff);
        });
        stranger.send(request).unwrap();
    }
    std::thread::sleep(Duration::from_secs(3));
    for stranger in &mut strangers {
        let ended = stranger.receive();
        assert!(matches!(ended, Err(ClientError::Disconnected)), "{ended:?}");
    }
    for id in untaken {
        let answer = slow.session.client().wait(id).unwrap();
        assert_eq!(answer.status(), Status::SUCCESS);
    }
    server.assert_serving();
}
