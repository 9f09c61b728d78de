//! The server, its players, and what they believe together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smb_client::{Break, CreateArgs, Created, Options, Reply, Request, Signing};
use smb_sim::{MemoryOptions, Message, Sim, SimClient, SimEnv, SimRng, SimServer, write_request};
use smb_wire::Status;
use smb_wire::create_context::{LeaseFlags, LeaseState, name};
use smb_wire::ids::{FileId, Guid};
use smb_wire::msg::{Dialect, OplockLevel, ReadResponse, ShareAccess};
use vfs::Env;

use super::player::{Asked, Belief, Handle, Player, Whose};
use super::requests::{self, Wish};

const STEPS: usize = 60;
/// Requests of one player under way.
const ASKED_MAX: usize = 4;
const OPENS_MAX: usize = 5;
const W: u32 = 4;
const R: u32 = 1;

/// The counts of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) grants: u64,
    pub(crate) breaks: u64,
    pub(crate) compared: u64,
    pub(crate) cuts: u64,
    pub(crate) requests: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.breaks += other.breaks;
        self.compared += other.compared;
        self.cuts += other.cuts;
        self.requests += other.requests;
    }
}

/// An acknowledgment that is due at a time.
struct Due {
    at: Duration,
    whose: Whose,
    file_id: FileId,
    state: LeaseState,
}

pub(crate) struct World {
    server: SimServer,
    env: Arc<SimEnv>,
    rng: SimRng,
    players: Vec<Option<Player>>,
    beliefs: BTreeMap<Whose, Belief>,
    /// The last epoch of each lease, also of those given up.
    epochs: BTreeMap<u8, u16>,
    /// Leases ever granted.
    known: BTreeSet<u8>,
    due: Vec<Due>,
    /// Keys that named two files at once: breaks of either come under the one name.
    rebound: BTreeSet<Whose>,
    /// Machines with more than one connection: what comes by one may overtake the other.
    shared: BTreeSet<u8>,
    tally: Tally,
    told: bool,
}

fn has(state: LeaseState, bits: u32) -> bool {
    state.0 & bits != 0
}

fn state_of(level: OplockLevel) -> LeaseState {
    LeaseState(match level {
        OplockLevel::II => 1,
        OplockLevel::EXCLUSIVE => 5,
        OplockLevel::BATCH => 7,
        _ => 0,
    })
}

fn options(machine: u8) -> Options {
    Options::dialect(Dialect::SMB_3_1_1)
        .signing(Signing::IfRequired)
        .guid(Guid([machine + 1; 16]))
}

impl World {
    /// One seed.
    pub(crate) fn run(sim: &mut Sim, told: bool) -> Tally {
        let options = MemoryOptions {
            signing_required: false,
            ..MemoryOptions::default()
        };
        let server = SimServer::new(sim, &options).unwrap();
        let env = sim.env();
        let mut world = Self {
            server,
            rng: SimRng::new(sim.seed()),
            env,
            players: Vec::new(),
            beliefs: BTreeMap::new(),
            epochs: BTreeMap::new(),
            known: BTreeSet::new(),
            rebound: BTreeSet::new(),
            due: Vec::new(),
            shared: BTreeSet::new(),
            tally: Tally::default(),
            told,
        };
        sim.run(world.live()).unwrap();
        world.tally
    }

    async fn live(&mut self) {
        let mut maker = SimClient::enter(&self.server, options(9)).await.unwrap();
        let made = maker
            .create(&CreateArgs::create_directory(requests::DIRECTORY))
            .await
            .unwrap();
        maker.close(made).await.unwrap();
        maker.cut();
        let machines: &[u8] = [&[0, 1][..], &[0, 1, 2], &[0, 1, 0]][self.rng.index(3)];
        if machines == [0, 1, 0] {
            self.shared.insert(0);
        }
        for machine in machines {
            self.join(*machine).await;
        }
        for _ in 0..STEPS {
            let who = self.rng.index(self.players.len());
            self.act(who).await;
            let pause = match self.rng.below(40) {
                0 => 40_000,
                1..=4 => 1_000,
                _ => self.rng.below(20),
            };
            self.pass(Duration::from_millis(pause)).await;
        }
        self.settle().await;
        self.compare().await;
        self.leave().await;
    }

    async fn join(&mut self, machine: u8) {
        let client = SimClient::enter(&self.server, options(machine)).await;
        self.players.push(Some(Player {
            client: client.unwrap(),
            machine,
            opens: Vec::new(),
            asked: BTreeMap::new(),
            known: BTreeSet::new(),
        }));
    }

    /// Time goes on in slices, and everybody listens after each.
    async fn pass(&mut self, span: Duration) {
        let end = self.env.monotonic() + span;
        loop {
            let left = end.saturating_sub(self.env.monotonic());
            self.env.sleep(left.min(Duration::from_millis(500))).await;
            self.listen();
            self.acknowledge();
            self.check();
            if left.is_zero() {
                return;
            }
        }
    }

    /// Nobody caches what another may change; nobody changes what another caches.
    fn check(&self) {
        for (whose, belief) in &self.beliefs {
            for (other, theirs) in &self.beliefs {
                let apart = whose == other || belief.file != theirs.file;
                let conflict = has(belief.state, W) && !theirs.state.is_empty();
                assert!(
                    apart || !conflict,
                    "{whose:?} {belief:?} beside {other:?} {theirs:?}"
                );
            }
        }
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.told {
            println!("{:>12?} {what}", self.env.monotonic());
        }
    }

    fn player(&mut self, who: usize) -> &mut Player {
        self.players[who].as_mut().unwrap()
    }

    fn ask(&mut self, who: usize, request: Request, asked: Asked) {
        self.say(format_args!("player {who} asks {asked:?}"));
        self.tally.requests += 1;
        self.player(who).send(request, asked);
    }

    /// One random thing.
    async fn act(&mut self, who: usize) {
        let Some(player) = &self.players[who] else {
            if self.rng.below(3) == 0 {
                self.rejoin(who).await;
            }
            return;
        };
        if self.rng.below(60) == 0 {
            return self.cut(who);
        }
        if player.asked.len() >= ASKED_MAX {
            return;
        }
        let handles = player.opens.len();
        if handles == 0 || (handles < OPENS_MAX && self.rng.below(3) == 0) {
            return self.open(who);
        }
        let at = self.rng.index(handles);
        let handle = self.player(who).opens[at];
        match self.rng.below(12) {
            0..=2 => self.close(who, at),
            3..=6 => self.look(who, handle),
            _ if handle.directory => self.look(who, handle),
            7 => {
                let request = requests::rename(&mut self.rng, handle.id);
                self.ask(who, request, Asked::Other);
            }
            8 => {
                let request = requests::set_end(&mut self.rng, handle.id);
                self.change(who, handle, request);
            }
            9 if self.rng.below(3) == 0 => {
                self.ask(who, requests::delete(handle.id), Asked::Other);
            }
            _ => {
                let data = self.rng.draw().to_le_bytes();
                let request = write_request(handle.id, self.rng.below(16), &data);
                self.change(who, handle, request);
            }
        }
    }

    fn open(&mut self, who: usize) {
        let machine = self.player(who).machine;
        let directory = self.rng.below(5) == 0;
        let wish = if directory {
            Wish::Lease(machine * 16 + 8, LeaseState(3), true)
        } else {
            requests::wish(&mut self.rng, machine)
        };
        let lease = match wish {
            Wish::Lease(key, ..) => Some(key),
            _ => None,
        };
        let epoch = lease.map_or(0, |key| self.epochs.get(&key).copied().unwrap_or(0));
        let (args, overwrites) = if directory {
            (requests::open_directory(wish, epoch), false)
        } else {
            let parent = (self.rng.below(4) == 0).then_some(machine * 16 + 8);
            if parent.is_some() {
                // A client that spares its own lease knows its own change of the directory.
                self.forget(Some(Whose::Lease(machine * 16 + 8)));
                return self.open_plain(who);
            }
            requests::open(&mut self.rng, wish, epoch, None)
        };
        if overwrites {
            self.forget(lease.map(Whose::Lease));
        }
        self.ask(who, args.request(), Asked::Open { lease, overwrites });
    }

    fn open_plain(&mut self, who: usize) {
        let (args, overwrites) = requests::open(&mut self.rng, Wish::Nothing, 0, None);
        let asked = Asked::Open {
            lease: None,
            overwrites,
        };
        self.ask(who, args.request(), asked);
    }

    fn look(&mut self, who: usize, handle: Handle) {
        let under = handle.whose.and_then(|whose| {
            let belief = self.beliefs.get(&whose)?;
            has(belief.state, R).then_some((whose, belief.generation))
        });
        let listing = handle.directory;
        let request = if listing {
            requests::list(handle.id)
        } else {
            Request::read(handle.id, 0, 64)
        };
        self.ask(who, request, Asked::Look { under, listing });
    }

    fn change(&mut self, who: usize, handle: Handle, request: Request) {
        self.forget(handle.whose);
        self.ask(who, request, Asked::Change(handle.whose));
    }

    fn forget(&mut self, whose: Option<Whose>) {
        if let Some(belief) = whose.and_then(|whose| self.beliefs.get_mut(&whose)) {
            belief.forget();
        }
    }

    fn close(&mut self, who: usize, at: usize) {
        let handle = self.player(who).opens.remove(at);
        self.closed(who, handle);
        self.ask(who, close_request(handle.id), Asked::Other);
    }

    fn closed(&mut self, who: usize, handle: Handle) {
        let Some(whose) = handle.whose else {
            return;
        };
        if let Some(belief) = self.beliefs.get_mut(&whose) {
            belief.opens.remove(&(who, handle.id.volatile));
            if belief.opens.is_empty() {
                self.beliefs.remove(&whose);
                self.due.retain(|due| due.whose != whose);
            }
        }
    }

    fn cut(&mut self, who: usize) {
        self.say(format_args!("player {who} is cut off"));
        self.tally.cuts += 1;
        let player = self.players[who].take().unwrap();
        player.client.cut();
        // Caching granted by answers that it did not receive may be broken when it is back.
        for asked in player.asked.values() {
            if let Asked::Open { lease, .. } = asked {
                self.known.extend(*lease);
            }
        }
        for handle in player.opens {
            self.closed(who, handle);
        }
    }

    async fn rejoin(&mut self, who: usize) {
        let machine = match who {
            2 if self.shared.contains(&0) => 0,
            other => u8::try_from(other).unwrap(),
        };
        // Its leases may linger on the server, and come back with it.
        let mut client = None;
        let joining = SimClient::enter(&self.server, options(machine));
        client.replace(joining.await.unwrap());
        self.players[who] = client.map(|client| Player {
            client,
            machine,
            opens: Vec::new(),
            asked: BTreeMap::new(),
            known: BTreeSet::new(),
        });
    }

    fn listen(&mut self) {
        for who in 0..self.players.len() {
            while let Some(player) = &mut self.players[who]
                && let Some(heard) = player.client.next_message().expect("an orderly server")
            {
                match heard {
                    Message::Reply(reply) => self.answered(who, &reply),
                    Message::Break(broken) => self.broken(who, broken),
                }
            }
        }
    }

    fn answered(&mut self, who: usize, reply: &Reply) {
        let asked = self.player(who).asked.remove(&reply.header.message_id);
        let asked = asked.expect("an answer to a question, and one only");
        self.say(format_args!(
            "player {who} hears {} of {asked:?}",
            reply.status()
        ));
        let done = reply.status() == Status::SUCCESS;
        match asked {
            Asked::Open { lease, overwrites } if done => {
                let created = Created::read(&reply.message).unwrap();
                if overwrites {
                    self.forget(lease.map(Whose::Lease));
                }
                self.granted(who, &created);
            }
            Asked::Look {
                under: Some((whose, generation)),
                listing,
            } if done || reply.status() == Status::END_OF_FILE => {
                let seen = match (done, listing) {
                    (false, _) => Vec::new(),
                    (true, true) => requests::names(reply),
                    (true, false) => ReadResponse::read(&reply.message).unwrap().data.to_vec(),
                };
                if let Some(belief) = self.beliefs.get_mut(&whose)
                    && belief.generation == generation
                {
                    belief.cached = Some(seen);
                }
            }
            Asked::Change(whose) => self.forget(whose),
            _ => {}
        }
    }

    fn granted(&mut self, who: usize, created: &Created) {
        let file_id = created.file_id;
        let disk_id = created.context(name::QUERY_ON_DISK_ID).unwrap();
        let file = u64::from_le_bytes(disk_id[..8].try_into().unwrap());
        self.player(who).known.insert(file_id.volatile);
        let lease = created.lease();
        self.say(format_args!(
            "    file {file}, {:?} {lease:?}",
            created.oplock_level
        ));
        let whose = match (created.oplock_level, lease) {
            (OplockLevel::LEASE, Some(lease)) => Some(Whose::Lease(lease.lease_key.0[0])),
            (OplockLevel::NONE, _) => None,
            _ => Some(Whose::Oplock(who, file_id.volatile)),
        };
        let directory = created
            .facts
            .file_attributes
            .contains(smb_wire::file_attributes::FileAttributes::DIRECTORY);
        self.player(who).opens.push(Handle {
            id: file_id,
            directory,
            whose,
        });
        let Some(whose) = whose else {
            return;
        };
        self.tally.grants += 1;
        let fresh = !self.beliefs.contains_key(&whose);
        let new = || Belief::new(file);
        let belief = self.beliefs.entry(whose).or_insert_with(new);
        if belief.file != file {
            // [MS-SMB2] 3.3.5.9.8: the key of a file that is to be deleted may be bound again. The
            // client lets go of the old one.
            *belief = Belief::new(file);
            self.rebound.insert(whose);
            let handles = self.players.iter_mut().flatten();
            for handle in handles.flat_map(|player| &mut player.opens) {
                if handle.whose == Some(whose) && handle.id != file_id {
                    handle.whose = None;
                }
            }
        }
        belief.opens.insert((who, file_id.volatile));
        let Some(lease) = lease else {
            belief.state = state_of(created.oplock_level);
            return;
        };
        let number = lease.lease_key.0[0];
        self.known.insert(number);
        let breaking = lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS);
        let last = self.epochs.get(&number).copied();
        let stale = match (lease.v2, last) {
            (Some(v2), Some(last)) => v2.epoch.wrapping_sub(last) > 0x8000,
            _ => false,
        };
        if let Some(v2) = lease.v2.filter(|_| !stale) {
            self.epochs.insert(number, v2.epoch);
        }
        if breaking || stale {
            // It knows of the break already, or will: nothing is raised.
            belief.secretly |= fresh || belief.state != lease.lease_state;
        } else {
            if !lease.lease_state.contains(belief.state) || belief.state != lease.lease_state {
                belief.generation += 1;
            }
            belief.state = lease.lease_state;
            belief.secretly = false;
        }
    }

    fn broken(&mut self, who: usize, broken: Break) {
        self.tally.breaks += 1;
        self.say(format_args!("player {who} hears {broken:?}"));
        match broken {
            Break::Oplock { file_id, level } => {
                let known = self.player(who).known.contains(&file_id.volatile);
                assert!(known, "a break before the oplock it breaks");
                let whose = Whose::Oplock(who, file_id.volatile);
                let Some(belief) = self.beliefs.get(&whose) else {
                    return;
                };
                let acknowledged = belief.state.0 != R;
                self.lose(whose, file_id, state_of(level), acknowledged);
            }
            Break::Lease {
                key,
                current,
                new,
                epoch,
                ack_required,
            } => {
                let number = key.0[0];
                let machine = number / 16;
                let whose = Whose::Lease(number);
                let alone = !self.shared.contains(&machine) && !self.rebound.contains(&whose);
                if alone {
                    assert!(self.known.contains(&number), "a break before the lease");
                }
                if let Some(belief) = self.beliefs.get(&whose)
                    && alone
                    && !belief.secretly
                {
                    // Less it may believe: answers to two CREATEs of a lease can change places.
                    let less = current.contains(belief.state);
                    assert!(less, "{current:?} {whose:?} {belief:?}");
                }
                if epoch != 0 {
                    self.epochs.insert(number, epoch);
                }
                self.lose(whose, FileId::default(), new, ack_required);
            }
        }
    }

    /// The remaining state is `new`: acknowledged soon, late or never.
    fn lose(&mut self, whose: Whose, file_id: FileId, new: LeaseState, acknowledged: bool) {
        let never = self.rng.below(12) == 0;
        let soon = self.rng.below(3) > 0;
        let delay = if soon { 5 } else { 5_000 };
        let less = self.rng.below(4) == 0;
        let at = self.env.monotonic() + Duration::from_millis(self.rng.below(delay));
        if !acknowledged || never {
            if let Some(belief) = self.beliefs.get_mut(&whose) {
                // A client that never answers has nothing left when the time is over.
                let left = if acknowledged { LeaseState(0) } else { new };
                belief.lower(left);
                belief.secretly |= acknowledged;
            }
            return;
        }
        if !self.beliefs.contains_key(&whose) && self.shared.is_empty() {
            // Closed meanwhile: the CLOSE is the answer.
            return;
        }
        let state = if less { LeaseState(0) } else { new };
        self.due.push(Due {
            at,
            whose,
            file_id,
            state,
        });
    }

    fn acknowledge(&mut self) {
        let now = self.env.monotonic();
        let (due, later) = std::mem::take(&mut self.due)
            .into_iter()
            .partition(|due: &Due| due.at <= now);
        self.due = later;
        for due in due {
            let by = match due.whose {
                Whose::Oplock(who, _) => self.players[who].is_some().then_some(who),
                Whose::Lease(number) => self.players.iter().position(|player| {
                    player
                        .as_ref()
                        .is_some_and(|player| player.machine == number / 16)
                }),
            };
            let Some(by) = by else {
                continue;
            };
            if let Some(belief) = self.beliefs.get_mut(&due.whose) {
                belief.lower(due.state);
                if self.shared.contains(&0) {
                    belief.secretly = true;
                }
            }
            let request = match due.whose {
                Whose::Lease(number) => requests::acknowledge_lease(number, due.state),
                Whose::Oplock(..) => {
                    let level = if has(due.state, R) {
                        OplockLevel::II
                    } else {
                        OplockLevel::NONE
                    };
                    requests::acknowledge_oplock(due.file_id, level)
                }
            };
            self.ask(by, request, Asked::Acknowledgment);
        }
    }

    /// Nobody asks any more: everything is answered, though some never acknowledged.
    async fn settle(&mut self) {
        for _ in 0..300 {
            self.pass(Duration::from_millis(500)).await;
            let mut alive = self.players.iter().flatten();
            if self.due.is_empty() && alive.all(|player| player.asked.is_empty()) {
                break;
            }
        }
        for (who, player) in self.players.iter().enumerate() {
            let left = player.iter().flat_map(|player| &player.asked).next();
            assert!(left.is_none(), "player {who} waits for ever for {left:?}");
        }
        // Breaks that the last answers caused.
        self.pass(Duration::from_secs(2)).await;
    }

    /// Compares the cached data at rest with the disk.
    async fn compare(&mut self) {
        let held: Vec<_> = self
            .beliefs
            .iter()
            .filter(|(_, belief)| has(belief.state, R) && belief.cached.is_some())
            .flat_map(|(whose, belief)| belief.opens.first().map(|open| (*whose, *open)))
            .collect();
        for (whose, (who, volatile)) in held {
            let Some(player) = &self.players[who] else {
                continue;
            };
            let handle = player
                .opens
                .iter()
                .find(|open| open.id.volatile == volatile);
            let handle = *handle.unwrap();
            let before = self.beliefs[&whose].cached.clone();
            self.look(who, handle);
            self.pass(Duration::from_secs(1)).await;
            let after = self.beliefs[&whose].cached.clone();
            assert_eq!(before, after, "{whose:?} caches what is not so");
            self.tally.compared += 1;
        }
    }

    /// Everybody closes and goes; then everything can be had alone.
    async fn leave(&mut self) {
        for who in 0..self.players.len() {
            while let Some(player) = &self.players[who]
                && !player.opens.is_empty()
            {
                self.close(who, 0);
                self.pass(Duration::from_millis(200)).await;
            }
        }
        self.settle().await;
        for player in std::mem::take(&mut self.players).into_iter().flatten() {
            player.client.cut();
        }
        self.env.sleep(Duration::from_secs(1)).await;
        let report = self.server.server.report();
        assert!(report.sessions.is_empty(), "{:?}", report.sessions);
        let mut last = SimClient::enter(&self.server, options(9)).await.unwrap();
        let directory = last
            .create(&requests::open_directory(Wish::Nothing, 0))
            .await
            .unwrap();
        last.close(directory).await.unwrap();
        for name in ["d\\a", "d\\b", "d\\c"] {
            let args = CreateArgs::open_if(name)
                .share(ShareAccess::empty())
                .oplock(OplockLevel::BATCH);
            let reply = last.call(args.request()).await.unwrap();
            let created = Created::read(&reply.message).unwrap();
            assert_eq!(created.oplock_level, OplockLevel::BATCH, "{name}");
            last.close(created.file_id).await.unwrap();
        }
        last.cut();
        self.env.sleep(Duration::from_secs(1)).await;
        let report = self.server.server.report();
        assert!(report.connections.is_empty(), "{:?}", report.connections);
    }
}

fn close_request(file_id: FileId) -> Request {
    Request::close(file_id)
}
