//! Requests that keep the server busy for long: other clients of the same worker are served
//! meanwhile, because each connection only gets its turn.

use std::time::{Duration, Instant};

use smb_client::{CreateArgs, Options, Request, Tree};
use smb_tests::{HoldfastServer, rpc};
use smb_wire::{
    Status,
    fscc::FileInformationClass,
    ids::MessageId,
    msg::{QueryDirectoryFlags, QueryDirectoryRequest, WriteFlags},
};

use crate::requests::Attacker;

/// Number of names in the listed folder, each of the maximal length.
const NAMES: usize = 20_000;
/// Depth of the opened path.
const DEPTH: usize = 250;
/// The longest time that another client may wait, unless the machine is so slow that a quarter of the whole attack
/// takes longer. In one piece the work took many times as long.
const WAIT_MAX: Duration = Duration::from_secs(1);

fn fill(server: &HoldfastServer) {
    let folder = server.path("many");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..NAMES {
        let name = format!("{}{number:05}", "a".repeat(239));
        std::fs::File::create(folder.join(name)).unwrap();
    }
    std::fs::create_dir_all(server.path(&["d"; DEPTH].join("/"))).unwrap();
}

fn client(credits: u16) -> Options {
    Options {
        credits,
        timeout: Duration::from_secs(120),
        ..Options::default()
    }
}

/// Six listings with the most expensive patterns on two connections, and opens of a deep path on
/// two others.
struct Attack {
    by: Vec<Attacker>,
    sent: Vec<(usize, MessageId)>,
}

impl Attack {
    fn begin(server: &HoldfastServer) -> Self {
        let mut by: Vec<_> = (0..2).map(|_| Attacker::new(server, client(256))).collect();
        // Connections are assigned to the workers in turn, so each of the two workers gets one of
        // these.
        let openers = [
            Attacker::new(server, client(256)),
            Attacker::new(server, client(256)),
        ];
        let mut sent = Vec::new();
        for (index, attacker) in by.iter().enumerate() {
            for pattern in [
                "*a".repeat(120) + "b",
                "*a".repeat(127) + "b",
                "*?<a>".repeat(51),
            ] {
                let args = CreateArgs::directory("many");
                let folder = attacker.tree.create(&args).unwrap();
                let class = FileInformationClass::NAMES;
                let flags = QueryDirectoryFlags::empty();
                let request = Request::query_directory(folder.id(), class, &pattern, flags, 65_536);
                let request = attacker.tree.address(request);
                sent.push((index, attacker.session.client().send(request).unwrap()));
                std::mem::forget(folder);
            }
        }
        for opener in openers {
            let path = ["d"; DEPTH].join("\\");
            let index = by.len();
            for _ in 0..96 {
                let request = CreateArgs::directory(&path).request();
                let request: Request = opener.tree.address(request);
                sent.push((index, opener.session.client().send(request).unwrap()));
            }
            by.push(opener);
        }
        Self { by, sent }
    }

    /// Waits for all answers, in a thread of its own.
    fn end(self) -> usize {
        let mut answers = 0;
        for (index, id) in &self.sent {
            let client = self.by[*index].session.client();
            client.wait(*id).unwrap();
            answers += 1;
        }
        answers
    }
}

/// Sends ECHOs of all clients until the attack has ended; returns the longest time that one took.
fn longest_echo(clients: &[Tree], ended: impl Fn() -> bool) -> Duration {
    let (mut longest, mut served) = (Duration::ZERO, 0);
    while !ended() {
        for client in clients {
            let begun = Instant::now();
            client.client().echo().unwrap();
            longest = longest.max(begun.elapsed());
            served += 1;
        }
    }
    assert!(served > 0, "the attack was over before anybody else asked");
    longest
}

#[test]
fn others_are_served_while_long_requests_run() {
    let server = HoldfastServer::new();
    fill(&server);
    // Enough clients for every worker.
    let others: Vec<_> = (0..4).map(|_| server.tree()).collect();
    let attacked = Instant::now();
    let attack = Attack::begin(&server);
    let expected = attack.sent.len();
    let attack = std::thread::spawn(move || attack.end());
    let longest = longest_echo(&others, || attack.is_finished());
    assert_eq!(attack.join().unwrap(), expected);
    let whole = attacked.elapsed();
    println!("the longest ECHO took {longest:?}, beside an attack of {whole:?}");
    assert!(
        longest < WAIT_MAX.max(whole / 4),
        "an ECHO took {longest:?} of {whole:?}"
    );
    server.assert_serving();
}

#[test]
fn a_pattern_is_no_longer_than_a_name() {
    let server = HoldfastServer::new();
    let attacker = Attacker::new(&server, Options::default());
    let ask = |pattern: &[u8]| {
        let request = Request::new(&QueryDirectoryRequest {
            info_class: FileInformationClass::NAMES.0,
            flags: QueryDirectoryFlags::RESTART_SCANS,
            file_index: 0,
            file_id: attacker.root.id(),
            pattern,
            output_buffer_length: 4096,
        });
        attacker
            .tree
            .reply(attacker.tree.address(request))
            .unwrap()
            .status()
    };
    let units =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    assert_eq!(ask(&units(&"*".repeat(255))), Status::SUCCESS);
    for length in [256, 241 * 2, 30_001] {
        let long = ask(&units(&"*".repeat(length)));
        assert_eq!(long, Status::OBJECT_NAME_INVALID, "{length}");
    }
    // An earlier search continues unchanged.
    assert_eq!(ask(&units("play*")), Status::SUCCESS);
}

/// A WRITE to a pipe with as many requests as it holds: each is answered in the connection's turns.
#[test]
fn others_are_served_while_a_pipe_takes_requests() {
    /// A request to srvsvc that is refused: no such operation, and 40 bytes of arguments.
    fn request() -> Vec<u8> {
        let mut out = vec![5, 0, 0, 3, 0x10, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0];
        out.extend_from_slice(&[40, 0, 0, 0, 0, 0, 99, 0]);
        out.resize(64, 0);
        out
    }
    let server = HoldfastServer::new();
    let others: Vec<_> = (0..4).map(|_| server.tree()).collect();
    let mut sent = Vec::new();
    // Each of the two workers has one of these.
    for _ in 0..2 {
        let session = server.session(client(256));
        let pipes = session.tree("IPC$").unwrap();
        for _ in 0..2 {
            session.client().echo().unwrap();
        }
        let pipe = pipes.create(&CreateArgs::open("srvsvc")).unwrap();
        pipe.write(0, &rpc::bind(), WriteFlags::empty()).unwrap();
        assert!(!pipe.read(0, 4096).unwrap().is_empty());
        let requests = request().repeat((8 << 20) / 64);
        let write = pipe.write_request(0, &requests, WriteFlags::empty());
        let id = session.client().send(pipes.address(write)).unwrap();
        sent.push((session, pipes, pipe, id));
    }
    let attacked = Instant::now();
    let attack = std::thread::spawn(move || {
        for (session, _, pipe, id) in &sent {
            let answer = session.client().wait(*id).unwrap();
            assert_eq!(answer.status(), Status::SUCCESS);
            assert!(!pipe.read(0, 4096).unwrap().is_empty());
        }
    });
    let longest = longest_echo(&others, || attack.is_finished());
    attack.join().unwrap();
    let whole = attacked.elapsed();
    println!("the longest ECHO took {longest:?}, beside WRITEs of {whole:?}");
    // In one piece, a WRITE takes nearly as long as all this, or half of it if one worker carries out both.
    assert!(longest < whole / 3, "an ECHO took {longest:?} of {whole:?}");
    server.assert_serving();
}
