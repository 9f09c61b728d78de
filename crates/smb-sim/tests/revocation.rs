//! An administrator disables a user in the middle of everything, from seeds: logins, tree connects,
//! CREATEs, WRITEs, lost connections and reconnects to durable opens are under way.
//!
//! Invariants: from the moment in which the revocation has ended the user has no session, and
//! soon nothing of him is open or waits; another user gets his files, with what was acknowledged;
//! when he is enabled again he works as before; in the end nothing is left.
//!
//! `SEED=n cargo test -p smb-sim --test revocation one_seed` runs one seed.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use smb_auth::{UserRecord, UserStore};
use smb_client::{ClientError, CreateArgs, Options, Signing};
use smb_server::{AccessRules, Target};
use smb_sim::{MemoryOptions, PASSWORD, SHARE, Sim, SimClient, SimEnv, SimServer, USER};
use smb_wire::{
    Status,
    create_context::{DurableHandleFlags, DurableHandleReconnectV2, DurableHandleRequestV2},
    ids::{FileId, Guid},
    msg::{Dialect, OplockLevel, ShareAccess},
};
use vfs::Env;

const SEEDS: u64 = 24;
const OTHER: &str = "bob";
/// Clients of the user, each with a file of its own.
const CLIENTS: u8 = 3;
/// Times that the user is disabled, or what he has closed, in a run.
const ROUNDS: u64 = 3;

/// The same users, but one is disabled.
struct Disabled(Arc<dyn UserStore>);

impl UserStore for Disabled {
    fn find(&self, name: &str) -> Option<UserRecord> {
        let mut record = self.0.find(name)?;
        record.disabled |= record.name == USER;
        Some(record)
    }
}

/// The requests and refusals over all seeds, which show that the worlds differ.
#[derive(Debug, Default)]
struct Tally {
    returns: u64,
    ended: u64,
    refused: u64,
    sessions_ended: usize,
    opens_ended: usize,
}

struct World {
    server: SimServer,
    env: Arc<SimEnv>,
    seed: u64,
    stop: Cell<bool>,
    /// Of each client: the last value that was acknowledged, and the one under way.
    values: RefCell<Vec<(u64, u64)>>,
    tally: RefCell<Tally>,
}

fn options(client: u8) -> Options {
    Options::dialect(Dialect::SMB_3_1_1)
        .signing(Signing::Required)
        .guid(Guid([client + 1; 16]))
}

fn file_of(client: u8) -> String {
    format!("of {client}")
}

impl World {
    async fn pause(&self, most_us: u64) {
        let pause = self.env.choose(most_us);
        self.env.sleep(Duration::from_micros(pause)).await;
    }

    fn args(client: u8) -> CreateArgs {
        CreateArgs::open_if(&file_of(client))
            .share(ShareAccess::empty())
            .oplock(OplockLevel::BATCH)
    }

    fn first(&self, client: u8, create_guid: Guid) -> CreateArgs {
        Self::args(client).durable_v2(DurableHandleRequestV2 {
            timeout_ms: 60_000,
            flags: DurableHandleFlags::empty(),
            create_guid,
        })
    }

    fn again(&self, client: u8, create_guid: Guid, file_id: FileId) -> CreateArgs {
        Self::args(client).durable_v2_again(DurableHandleReconnectV2 {
            file_id,
            create_guid,
            flags: DurableHandleFlags::empty(),
        })
    }

    /// The user's work over one connection. The open is lost with the connection, and the user reconnects to it on
    /// the next.
    async fn work(&self, client: u8, open: &mut Option<(FileId, Guid)>) -> Result<(), ClientError> {
        let mut here = SimClient::enter(&self.server, options(client)).await?;
        let file = match *open {
            Some((id, guid)) => {
                *open = None;
                let back = here.create(&self.again(client, guid, id)).await?;
                *open = Some((back, guid));
                self.tally.borrow_mut().returns += 1;
                back
            }
            None => {
                let mut guid = [0; 16];
                self.env.fill_random(&mut guid);
                let made = here.create(&self.first(client, Guid(guid))).await?;
                *open = Some((made, Guid(guid)));
                made
            }
        };
        for _ in 0..self.env.choose(6) {
            let at = usize::from(client);
            let next = self.values.borrow()[at].1 + 1;
            self.values.borrow_mut()[at].1 = next;
            here.write_at(file, 0, &next.to_le_bytes()).await?;
            self.values.borrow_mut()[at].0 = next;
            self.pause(2_000).await;
        }
        here.cut();
        Ok(())
    }

    async fn client(self: Rc<Self>, client: u8) {
        let mut open = None;
        while !self.stop.get() {
            if let Err(error) = self.work(client, &mut open).await {
                self.refused(&error);
                open = None;
            }
            self.pause(20_000).await;
        }
    }

    fn refused(&self, error: &ClientError) {
        let mut tally = self.tally.borrow_mut();
        match error.status() {
            Some(
                Status::USER_SESSION_DELETED
                | Status::NETWORK_NAME_DELETED
                | Status::FILE_CLOSED
                | Status::OBJECT_NAME_NOT_FOUND,
            ) => tally.ended += 1,
            Some(Status::ACCOUNT_DISABLED) => tally.refused += 1,
            // His own open of before is being closed.
            Some(Status::SHARING_VIOLATION) => {}
            _ => panic!("SEED={}: {error}", self.seed),
        }
    }

    fn sessions_of_user(&self) -> usize {
        let report = self.server.server.report();
        report
            .sessions
            .iter()
            .filter(|one| one.user == USER)
            .count()
    }

    /// Disables the user, looks, and enables him again.
    async fn disable(&self) {
        let server = &self.server.server;
        let users = server.users();
        server.set_users(Arc::new(Disabled(Arc::clone(&users))));
        let ended = server.revoke(&AccessRules::of(server)).await;
        {
            let mut tally = self.tally.borrow_mut();
            tally.sessions_ended += ended.sessions;
            tally.opens_ended += ended.opens;
        }
        for _ in 0..10 {
            assert_eq!(self.sessions_of_user(), 0, "SEED={}", self.seed);
            self.env.sleep(Duration::from_millis(100)).await;
        }
        let waiting = server.report().waiting_count;
        assert_eq!(waiting, 0, "SEED={}", self.seed);
        self.look_at_files().await;
        server.set_users(users);
    }

    /// Another user gets the files for himself, with all that was acknowledged.
    async fn look_at_files(&self) {
        let mut other = SimClient::connect(&self.server, options(CLIENTS))
            .await
            .unwrap();
        other.login(OTHER, PASSWORD).await.unwrap();
        other.open_tree(SHARE).await.unwrap();
        for client in 0..CLIENTS {
            let (acknowledged, sent) = self.values.borrow()[usize::from(client)];
            let alone = CreateArgs::open_if(&file_of(client)).share(ShareAccess::empty());
            let file = other.create(&alone).await;
            let file = file.unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
            let mut there = [0; 8];
            if let Ok(read) = other.read_at(file, 0, 8).await {
                there.copy_from_slice(&read);
            }
            let there = u64::from_le_bytes(there);
            assert!((acknowledged..=sent).contains(&there), "SEED={}", self.seed);
            other.close(file).await.unwrap();
        }
        other.logoff().await.unwrap();
        other.cut();
    }

    async fn administrator(&self) {
        for _ in 0..ROUNDS {
            self.pause(60_000).await;
            if self.env.choose(3) > 0 {
                self.disable().await;
                continue;
            }
            let target = match self.env.choose(2) {
                0 => Target::User(USER.to_lowercase()),
                _ => Target::Share(SHARE.to_uppercase()),
            };
            let ended = self.server.server.end(&target).await;
            let mut tally = self.tally.borrow_mut();
            tally.sessions_ended += ended.sessions;
            tally.opens_ended += ended.opens;
        }
    }

    fn assert_nothing_left(&self) {
        let left = self.server.left_over();
        assert!(left.is_empty(), "SEED={}: {left:?}", self.seed);
    }
}

fn run(seed: u64) -> Tally {
    let mut sim = Sim::new(seed);
    let mut memory = MemoryOptions::default();
    memory.users.push((OTHER.to_owned(), PASSWORD.to_owned()));
    let server = SimServer::new(&mut sim, &memory).unwrap();
    let env = sim.env();
    sim.run(async {
        let world = Rc::new(World {
            server,
            env: Arc::clone(&env),
            seed,
            stop: Cell::new(false),
            values: RefCell::new(vec![(0, 0); usize::from(CLIENTS)]),
            tally: RefCell::default(),
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| env.start(Rc::clone(&world).client(client)))
            .collect();
        world.administrator().await;
        world.stop.set(true);
        for client in clients {
            client.await;
        }
        env.sleep(Duration::from_secs(120)).await;
        world.look_at_files().await;
        env.sleep(Duration::from_secs(1)).await;
        world.assert_nothing_left();
        world.tally.take()
    })
    .unwrap()
}

#[test]
fn nothing_of_a_disabled_user_stays() {
    let mut sum = Tally::default();
    for seed in 0..SEEDS {
        let tally = run(seed);
        sum.returns += tally.returns;
        sum.ended += tally.ended;
        sum.refused += tally.refused;
        sum.sessions_ended += tally.sessions_ended;
        sum.opens_ended += tally.opens_ended;
    }
    // The worlds differed enough to mean something.
    let counts = [sum.returns, sum.ended, sum.refused];
    let ended = [sum.sessions_ended, sum.opens_ended];
    assert!(counts.iter().all(|n| *n > SEEDS / 4), "{sum:?}");
    assert!(ended.iter().all(|n| *n > SEEDS as usize / 4), "{sum:?}");
}

/// Replays one seed.
#[test]
fn one_seed() {
    if let Ok(seed) = std::env::var("SEED") {
        println!("{:?}", run(seed.parse().unwrap()));
    }
}
