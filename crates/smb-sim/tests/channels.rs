//! Several channels of one session, from seeds: SESSION_SETUP, LOGOFF, TREE_DISCONNECT, CLOSE and
//! the loss of connections against each other (CVE-2023-32250, -32254, -32258, CVE-2026-31476,
//! CVE-2026-23226).
//!
//! `SEED=n cargo test -p smb-sim --test channels one_seed` runs one seed.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use smb_client::{ClientError, CreateArgs, Encryption, Options, Request, Signing};
use smb_sim::{MemoryOptions, PASSWORD, Sim, SimClient, SimEnv, SimServer, write_request};
use smb_wire::{
    Status,
    ids::FileId,
    msg::{CloseFlags, CloseRequest, Dialect, LogoffRequest, ShareAccess, TreeDisconnectRequest},
};
use vfs::Env;

/// Seeds of the test; each is a world of its own.
const SEEDS: u64 = 400;
/// Handles opened before the race.
const FILES: u64 = 3;

fn options(seed: u64) -> Options {
    let dialect = [Dialect::SMB_3_0, Dialect::SMB_3_1_1][(seed % 2) as usize];
    let options = Options::dialect(dialect).signing(Signing::Required);
    match seed % 4 {
        3 => options.encryption(Encryption::Always),
        _ => options,
    }
}

/// The successes, by kind.
#[derive(Default)]
struct Tally {
    logoffs: u64,
    disconnects: u64,
    closes: BTreeMap<u64, u64>,
    binds: u64,
    refused_binds: u64,
}

struct World {
    server: SimServer,
    env: Arc<SimEnv>,
    seed: u64,
    files: Vec<FileId>,
    tally: RefCell<Tally>,
}

/// The statuses that a request may get while its session, tree or handle ends.
const ENDS: [Status; 6] = [
    Status::SUCCESS,
    Status::USER_SESSION_DELETED,
    Status::NETWORK_NAME_DELETED,
    Status::FILE_CLOSED,
    Status::CANCELLED,
    Status::SHARING_VIOLATION,
];

impl World {
    async fn ask(&self, channel: &mut SimClient, request: Request) -> Option<Status> {
        let id = channel.send(request).ok()?;
        match channel.wait(id).await {
            Ok(reply) => {
                let status = reply.status();
                let seed = self.seed;
                assert!(ENDS.contains(&status), "SEED={seed}: {status}");
                Some(status)
            }
            // The session's keys are gone: this connection's answers cannot be read any more.
            Err(ClientError::Disconnected) => None,
            Err(other) => panic!("SEED={}: {other}", self.seed),
        }
    }

    async fn close(&self, channel: &mut SimClient) {
        let at = self.env.choose(FILES);
        let request = CloseRequest {
            flags: CloseFlags::empty(),
            file_id: self.files[at as usize],
        };
        if self.ask(channel, Request::new(&request)).await == Some(Status::SUCCESS) {
            *self.tally.borrow_mut().closes.entry(at).or_default() += 1;
        }
    }

    async fn bind(self: &Rc<Self>, channel: &SimClient, password: &str) {
        let bound = channel
            .channel(&self.server, options(self.seed), password)
            .await;
        let seed = self.seed;
        let mut tally = self.tally.borrow_mut();
        match bound {
            Ok(_) if password == PASSWORD => tally.binds += 1,
            Ok(_) => panic!("SEED={seed}: bound with a wrong password"),
            Err(ClientError::Status(Status::LOGON_FAILURE)) if password != PASSWORD => {
                tally.refused_binds += 1;
            }
            Err(ClientError::Status(Status::USER_SESSION_DELETED)) => {}
            Err(other) => panic!("SEED={seed}: {other}"),
        }
    }

    /// One channel's part; now and then its connection is cut in the middle.
    async fn run(self: Rc<Self>, mut channel: SimClient, ends: bool) {
        for _ in 0..self.env.choose(6) + 1 {
            let pause = self.env.choose(3_000);
            self.env.sleep(Duration::from_micros(pause)).await;
            match self.env.choose(if ends { 10 } else { 7 }) {
                0 | 1 => self.close(&mut channel).await,
                2 => {
                    let file = self.files[self.env.choose(FILES) as usize];
                    let request = write_request(file, 0, &[7; 4000]);
                    self.ask(&mut channel, request).await;
                }
                3 => {
                    let name = format!("new {}", self.env.choose(3));
                    let request = CreateArgs::open_if(&name).request();
                    self.ask(&mut channel, request).await;
                }
                4 => self.bind(&channel, PASSWORD).await,
                5 => self.bind(&channel, "wrong").await,
                6 => {
                    // May fail because the session is gone; must not take it along.
                    let _ = channel.reauthenticate(PASSWORD).await;
                }
                7 => {
                    let request = Request::new(&TreeDisconnectRequest);
                    if self.ask(&mut channel, request).await == Some(Status::SUCCESS) {
                        self.tally.borrow_mut().disconnects += 1;
                    }
                }
                8 => {
                    let request = Request::new(&LogoffRequest);
                    if self.ask(&mut channel, request).await == Some(Status::SUCCESS) {
                        self.tally.borrow_mut().logoffs += 1;
                    }
                    // The client has thrown its keys away.
                    break;
                }
                _ => {
                    let name = format!("cut {}", self.env.choose(3));
                    let _ = channel.send(CreateArgs::open_if(&name).request());
                    break;
                }
            }
        }
        channel.cut();
    }
}

/// Runs one seed; returns what succeeded.
fn race(seed: u64, ends: bool) -> Tally {
    let mut sim = Sim::new(seed);
    let memory = MemoryOptions::default();
    let server = SimServer::new(&mut sim, &memory).unwrap();
    let env = sim.env();
    let tally = sim
        .run(async {
            let mut first = SimClient::enter(&server, options(seed)).await.unwrap();
            let mut files = Vec::new();
            for at in 0..FILES {
                let args = CreateArgs::create(&format!("file {at}"));
                files.push(first.create(&args).await.unwrap());
            }
            let mut channels = Vec::new();
            for _ in 0..env.choose(3) + 1 {
                let bound = first.channel(&server, options(seed), PASSWORD).await;
                channels.push(bound.unwrap());
            }
            assert_eq!(server.server.report().sessions.len(), 1);
            channels.push(first);
            let world = Rc::new(World {
                server,
                env: Arc::clone(&env),
                seed,
                files,
                tally: RefCell::default(),
            });
            let tasks: Vec<_> = channels
                .into_iter()
                .map(|channel| env.start(Rc::clone(&world).run(channel, ends)))
                .collect();
            for task in tasks {
                task.await;
            }
            env.sleep(Duration::from_secs(5)).await;
            nothing_is_left(&world).await;
            world.tally.take()
        })
        .unwrap();
    assert!(tally.logoffs <= 1, "SEED={seed}");
    assert!(tally.disconnects <= 1, "SEED={seed}");
    assert!(tally.closes.values().all(|n| *n == 1), "SEED={seed}");
    tally
}

async fn nothing_is_left(world: &World) {
    let (seed, server) = (world.seed, &world.server);
    let report = server.server.report();
    assert!(report.sessions.is_empty(), "SEED={seed}: {report:?}");
    assert!(report.connections.is_empty(), "SEED={seed}: {report:?}");
    let mut next = SimClient::enter(server, options(0)).await.unwrap();
    for at in 0..FILES {
        let alone = CreateArgs::open(&format!("file {at}")).share(ShareAccess::empty());
        let file = next.create(&alone).await;
        let file = file.unwrap_or_else(|error| panic!("SEED={seed}: file {at}: {error}"));
        next.close(file).await.unwrap();
    }
    next.logoff().await.unwrap();
    next.cut();
    world.env.sleep(Duration::from_secs(1)).await;
}

#[test]
fn channels_that_end_a_session_race_for_it() {
    let mut sum = Tally::default();
    for seed in 0..SEEDS {
        let tally = race(seed, true);
        sum.logoffs += tally.logoffs;
        sum.disconnects += tally.disconnects;
        sum.binds += tally.binds;
        sum.refused_binds += tally.refused_binds;
    }
    // The worlds differed enough to mean something.
    let all = [sum.logoffs, sum.disconnects, sum.binds, sum.refused_binds];
    assert!(all.iter().all(|n| *n > SEEDS / 20), "{all:?}");
}

#[test]
fn channels_that_come_and_go_leave_the_session_alone() {
    for seed in 0..SEEDS / 2 {
        race(seed, false);
    }
}

/// Replays one seed.
#[test]
fn one_seed() {
    if let Ok(seed) = std::env::var("SEED") {
        race(seed.parse().unwrap(), true);
    }
}
