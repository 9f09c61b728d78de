//! The protocol core over the POSIX back end over a simulated disk.
//!
//! [`memory_server`] needs no simulation: any [`Env`] will do (the example `memory_share` runs
//! it on tokio). [`SimServer`] runs it in a [`Sim`], over connections of [`crate::pipe`], and
//! records what they carry.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use durability::{Durability, KnownFs, LATCHES, LatchMap, Policy, Rules, ShareDurability};
use smb_auth::{MachineSid, NtHash, UserDb};
use smb_server::{
    Client, Server, Share, Shares,
    config::{ServerConfig, ShareConfig},
    limits::ServerLimits,
};
use smb_wire::{dtyp::Sid, ids::Guid, msg::Dialect};
use vfs::{
    Env, Node, VfsError, Volume,
    env::Clock,
    linux::FsIdentity,
    posix::{PosixOptions, PosixVfs, StreamStore},
    sim::{Cut, Profile, SimDisk, SimOptions},
};

use crate::{
    crashes::{Fault, Neglect},
    executor::{Sim, SimEnv, Stuck},
    pipe::{self, ClientEnd},
    trace::{Passage, Trace},
};

pub type MemoryVfs = PosixVfs<SimDisk>;

/// The share of every server here.
pub const SHARE: &str = "data";
/// Another share over the same disk, see [`MemoryOptions::second`].
pub(crate) const SECOND: &str = "second";
/// The folder of the disk over which the second share may lie.
pub(crate) const FOLDER: &str = "e";
pub const USER: &str = "alice";
pub const PASSWORD: &str = "Alice-pw-1";

const MACHINE: [u32; 3] = [1, 2, 3];
/// The guest account where users have local users of their own.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// The kind of server and disk.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    pub policy: Policy,
    /// The policy of the second share; `None`: there is no such share.
    pub second: Option<Policy>,
    /// The inode of the folder `FOLDER`, if the second share lies over that and not over the whole disk.
    pub folder: Option<u64>,
    /// Files may share extents.
    pub clones: bool,
    /// The users who may log in, with their passwords.
    pub users: Vec<(String, String)>,
    /// Every session has to sign.
    pub signing_required: bool,
    /// The changes that a power loss may take.
    pub profile: Profile,
    /// Size of the disk in blocks of 4 KiB.
    pub capacity_blocks: u64,
    pub limits: ServerLimits,
    /// Named streams live in files, not in attributes.
    pub depot: bool,
    pub rules: Arc<Rules>,
    /// A security descriptor is stable before its answer.
    pub durable_acl: bool,
    /// Whether a FLUSH covers times, on [`SHARE`] and on the second share.
    pub flush_times: [bool; 2],
    /// A full sync counts as a FLUSH.
    pub ignore_full_sync: bool,
    /// Local users whom users act as on the disks, by name; empty: all are (0, 0) and nobody switches.
    pub owners: BTreeMap<String, (u32, u32)>,
    /// Shares besides [`SHARE`], each on a disk of its own.
    pub shares: Vec<(ShareConfig, SimDisk)>,
    /// Where latches are stored, a disk of its own; `None`: they end with the process.
    pub state: Option<SimDisk>,
    /// A fault of the server, to be found.
    pub planted: Option<Fault>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Honor,
            second: None,
            folder: None,
            clones: false,
            users: vec![(USER.to_owned(), PASSWORD.to_owned())],
            signing_required: true,
            profile: Profile::PosixMin,
            capacity_blocks: 1 << 18,
            limits: ServerLimits::default(),
            depot: false,
            rules: Arc::default(),
            durable_acl: false,
            flush_times: [true; 2],
            ignore_full_sync: false,
            owners: BTreeMap::new(),
            shares: Vec::new(),
            state: None,
            planted: None,
        }
    }
}

/// An empty disk with the times of `env`.
pub fn memory_disk(env: &Arc<dyn Env>, seed: u64, options: &MemoryOptions) -> SimDisk {
    let clock = Arc::clone(env);
    SimDisk::new(SimOptions {
        seed,
        profile: options.profile,
        capacity_blocks: options.capacity_blocks,
        clones: options.clones,
        clock: Some(Clock::new(move || clock.realtime())),
        ..SimOptions::default()
    })
}

/// A server of [`SHARE`], and the second share if there is one, on `disk`, and of the further shares of `options`.
pub async fn memory_server(
    env: Arc<dyn Env>,
    disk: SimDisk,
    options: &MemoryOptions,
) -> Result<Arc<Server<MemoryVfs>>, VfsError> {
    let durability = Durability::new(Arc::clone(&env), durability::Limits::default());
    #[cfg(feature = "planted-faults")]
    if let Some(Fault::Engine(fault)) = options.planted {
        durability.plant(Some(fault));
    }
    let over = |name, folder: Option<u64>| {
        let mut config = ShareConfig::new(name);
        let path = folder.map_or("/folder".to_owned(), |_| format!("/folder/{FOLDER}"));
        config.folder = options.second.map(|_| path.into_bytes());
        (config, folder.map_or(disk.clone(), |ino| disk.below(ino)))
    };
    let others = options.shares.iter().cloned();
    let first = settings(options, options.policy, false);
    let second = |policy| {
        let how = settings(options, policy, true);
        (over(SECOND, options.folder), how)
    };
    let all = std::iter::once((over(SHARE, None), first))
        .chain(options.second.map(second))
        .chain(others.map(|share| (share, first)));
    let mut shares = Vec::new();
    for (id, (of, how)) in (1..).zip(all) {
        shares.push(Arc::new(
            share(&env, &durability, id, of, how, options).await?,
        ));
    }
    if let (Some(state), Some(first)) = (&options.state, shares.first()) {
        if let Some(Fault::Store(deceit)) = options.planted {
            state.deceive(Some(deceit));
        }
        let store = latches(&env, state, first.vfs.root().key().fs).await?;
        let neglects = |what| options.planted == Some(Fault::Start(what));
        if !neglects(Neglect::LatchesForgottenAtStart) {
            for record in store.restore() {
                durability.restore_latch(&record);
            }
        }
        if !neglects(Neglect::LatchesNotStored) {
            durability.keep_latches(store);
        }
    }
    Ok(Server::new(
        env,
        durability,
        server_config(options),
        Shares::new(shares),
        Arc::new(users(options).ok_or(VfsError::InvalidArgument)?),
    ))
}

/// The settings that the engine is given for a share with this policy.
fn settings(options: &MemoryOptions, policy: Policy, second: bool) -> ShareDurability {
    let configured = ShareDurability {
        durable_acl: options.durable_acl,
        flush_times: options.flush_times[usize::from(second)],
        ignore_full_sync: options.ignore_full_sync,
        ..ShareDurability::with_policy(policy)
    };
    options
        .planted
        .map_or(configured, |fault| fault.given(configured))
}

async fn share(
    env: &Arc<dyn Env>,
    durability: &Arc<Durability<MemoryVfs>>,
    id: u32,
    (config, disk): (ShareConfig, SimDisk),
    how: ShareDurability,
    options: &MemoryOptions,
) -> Result<Share<MemoryVfs>, VfsError> {
    let clock = Arc::clone(env);
    let posix = PosixOptions {
        clock: Clock::new(move || clock.realtime()),
        streams: if options.depot {
            StreamStore::Depot
        } else {
            StreamStore::Xattr
        },
        ..PosixOptions::default()
    };
    let vfs = Arc::new(PosixVfs::new(disk, posix).await?);
    let gate = durability.share(&config.name, Arc::clone(&vfs), how);
    if !options.rules.is_empty() {
        gate.set_rules(Arc::clone(&options.rules), "simulator")
            .await;
    }
    Ok(Share {
        config,
        vfs,
        gate,
        id,
    })
}

/// The store of latches on a disk of its own.
pub(crate) async fn latches(
    env: &Arc<dyn Env>,
    state: &SimDisk,
    fs: u64,
) -> Result<Arc<LatchMap<SimDisk>>, VfsError> {
    let known = KnownFs {
        dev: fs,
        identity: FsIdentity {
            kind: 0xEF53,
            uuid: [7; 16],
            fsid: 1,
        },
        root: "/".to_owned(),
    };
    let opened = LatchMap::open(state.clone(), Arc::clone(env), vec![known], &LATCHES).await;
    let opened = opened.map_err(|_| VfsError::Io)?;
    if opened.damage.is_empty() {
        Ok(opened.store)
    } else {
        Err(VfsError::Io)
    }
}

fn users(options: &MemoryOptions) -> Option<UserDb> {
    let mut users = UserDb::new(MachineSid(MACHINE));
    for (name, password) in &options.users {
        users.add_user(name).ok()?;
        let owner = options.owners.get(name).copied().unwrap_or((0, 0));
        users.set_uid_gid(name, Some(owner)).ok()?;
        users
            .set_password(name, Some(NtHash::from_password(password)), 1)
            .ok()?;
    }
    Some(users)
}

fn server_config(options: &MemoryOptions) -> ServerConfig {
    use smb_crypto::{Cipher, SigningAlgorithm};
    let [a, b, c] = MACHINE;
    ServerConfig {
        netbios_name: "MEMORY".to_owned(),
        workgroup: "WORKGROUP".to_owned(),
        dns_name: "memory".to_owned(),
        comment: String::new(),
        apple_model: String::new(),
        server_guid: Guid(*b"holdfast-memory!"),
        machine_sid: Sid::new(5, &[21, a, b, c]).unwrap_or(Sid::NULL),
        dialect_min: Dialect::SMB_2_0_2,
        dialect_max: Dialect::SMB_3_1_1,
        signing_required: options.signing_required,
        encryption_required: false,
        ciphers: vec![
            Cipher::Aes128Gcm,
            Cipher::Aes256Gcm,
            Cipher::Aes128Ccm,
            Cipher::Aes256Ccm,
        ],
        signing_algorithms: vec![
            SigningAlgorithm::AesGmac,
            SigningAlgorithm::AesCmac,
            SigningAlgorithm::HmacSha256,
        ],
        allow_empty_passwords: false,
        anonymous_listing: true,
        administrators: None,
        switch_identity: !options.owners.is_empty(),
        guest_ids: if options.owners.is_empty() {
            (0, 0)
        } else {
            NOBODY
        },
        local_groups: BTreeMap::new(),
        local_accounts: Default::default(),
        limits: options.limits.clone(),
    }
}

/// The tables that are empty once the clients are gone and their time is over.
const OF_CLIENTS: [&str; 14] = [
    "connections",
    "sessions",
    "opens",
    "holders",
    "waiters",
    "disconnected_opens",
    "opens_by_id",
    "creates_by_guid",
    "app_instances",
    "answers_under_way",
    "breaks_under_way",
    "engine_opens",
    "engine_inodes",
    "engine_leases",
];

pub struct SimServer {
    pub server: Arc<Server<MemoryVfs>>,
    pub disk: SimDisk,
    env: Arc<SimEnv>,
    trace: Option<Rc<RefCell<Trace>>>,
    connections: std::cell::Cell<u64>,
    whole: bool,
}

impl SimServer {
    /// A server on an empty disk that answers after random times, behind a network that cuts
    /// where it likes and is recorded, with workers between which connections move.
    pub fn new(sim: &mut Sim, options: &MemoryOptions) -> Result<Self, Stuck> {
        let env: Arc<dyn Env> = sim.env();
        let disk = memory_disk(&env, sim.seed(), options);
        Self::on(sim, disk, options)
    }

    /// The same on a disk that is there, for instance the one that a cut left.
    pub fn on(sim: &mut Sim, disk: SimDisk, options: &MemoryOptions) -> Result<Self, Stuck> {
        let mut this = Self::plain(sim, disk, options)?;
        slow(&this.disk, &this.env);
        for (_, disk) in &options.shares {
            slow(disk, &this.env);
        }
        this.trace = Some(Rc::default());
        this.whole = false;
        Ok(this)
    }

    /// A server without delays, cuts and records: to measure.
    pub fn plain(sim: &mut Sim, disk: SimDisk, options: &MemoryOptions) -> Result<Self, Stuck> {
        let env = sim.env();
        let server = sim
            .run(memory_server(env.clone(), disk.clone(), options))?
            .map_err(|_| Stuck::Deadlock)?;
        Ok(Self {
            server,
            disk,
            env,
            trace: None,
            connections: std::cell::Cell::new(0),
            whole: true,
        })
    }

    /// Time, randomness and tasks.
    pub fn env(&self) -> &Arc<SimEnv> {
        &self.env
    }

    /// The tables that still have entries although no client is there and no time runs, with their numbers.
    pub fn left_over(&self) -> Vec<(&'static str, usize)> {
        let sizes = self.server.table_sizes().into_iter();
        sizes
            .filter(|(table, entries)| *entries > 0 && OF_CLIENTS.contains(table))
            .collect()
    }

    /// The messages that the network has carried.
    pub fn trace(&self) -> Trace {
        self.trace
            .as_ref()
            .map(|trace| trace.borrow().clone())
            .unwrap_or_default()
    }

    /// A new connection. Each comes from an address of its own, so that nobody's failed logins slow down another.
    #[must_use]
    pub fn connect(&self) -> ClientEnd {
        let number = self.connections.get() + 1;
        self.connections.set(number);
        let observer = self.trace.clone().map(|trace| -> pipe::Observer {
            let env = Arc::clone(&self.env);
            Rc::new(move |direction, bytes| {
                trace.borrow_mut().add(Passage {
                    at: env.monotonic(),
                    connection: number,
                    direction,
                    bytes: bytes.clone(),
                });
            })
        });
        let cutter = (!self.whole).then(|| -> pipe::Cutter {
            let env = Arc::clone(&self.env);
            Rc::new(move |waiting| cut_of(&env, waiting))
        });
        let (client, receiver, transmitter) = pipe::connect(cutter, observer);
        let low = u32::try_from(number & 0xFF_FFFF).unwrap_or(1);
        let address = Ipv4Addr::from_bits(0x7F00_0000 | low);
        let peer = SocketAddr::new(IpAddr::V4(address), 50_000);
        let served = serve(
            Arc::clone(&self.server),
            peer,
            receiver,
            transmitter,
            !self.whole,
        );
        self.env.spawn(Box::pin(served));
        client
    }

    /// The disk as the loss of power at this moment leaves it.
    pub fn cut_power(&self, cut: Cut) -> SimDisk {
        self.disk.cut(cut)
    }
}

/// Serves a connection until it ends; one that `moves` leaves its worker, and comes to another, at every third request
/// at which it can.
async fn serve(
    server: Arc<Server<MemoryVfs>>,
    peer: SocketAddr,
    mut receiver: pipe::ServerReceiver,
    transmitter: pipe::ServerTransmitter,
    moves: bool,
) {
    let requests = std::cell::Cell::new(0_u32);
    let leaves = || moves && requests.replace(requests.get().wrapping_add(1)) % 3 == 2;
    let mut next = Some((Client::New(peer), transmitter));
    while let Some((client, transmitter)) = next {
        let served = smb_server::serve(
            Arc::clone(&server),
            client,
            &mut receiver,
            transmitter,
            Box::new(|| Box::new(())),
            std::future::pending(),
            leaves,
        );
        let left = served.await;
        next = left.map(|(carried, transmitter)| (Client::Carried(carried), transmitter));
    }
}

/// Mostly all of it; now and then some.
fn cut_of(env: &SimEnv, waiting: usize) -> usize {
    if env.choose(4) > 0 {
        return waiting;
    }
    let limit = u64::try_from(waiting).unwrap_or(u64::MAX);
    usize::try_from(env.choose(limit)).unwrap_or(waiting)
}

/// Every fourth operation takes up to 30 ms, a sync up to 200 ms: past the moment at which
/// FLUSH says that it is pending.
fn slow(disk: &SimDisk, env: &Arc<SimEnv>) {
    let env = Arc::clone(env);
    disk.set_hook(Some(Arc::new(move |op| {
        if op == vfs::sim::SimOp::Answer || env.choose(4) > 0 {
            return None;
        }
        let longest = match op {
            vfs::sim::SimOp::Sync => 200_000,
            _ => 30_000,
        };
        Some(env.sleep(Duration::from_micros(env.choose(longest))))
    })));
}
