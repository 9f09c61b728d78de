//! For tests: a server over a simulated disk, whose time stands still, and a store of handles that remembers its
//! calls. Tasks of the server run when the test says so ([`run_tasks`]).

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use durability::{Durability, MapChange, MapCounts, MapEntry, Policy, ShareDurability, StoreTask};
use smb_auth::{MachineSid, UserDb};
use smb_wire::{
    access_mask::AccessMask,
    dtyp::Sid,
    ids::{Guid, LeaseKey, SessionId},
    msg::ShareAccess,
};
use tokio::sync::mpsc;
use vfs::{
    Disk, Env, Identity, Node, Paths, Timestamp, VfsError, Volume,
    disk::OpenHow,
    env::LocalTask,
    posix::{PosixOptions, PosixVfs},
    sim::{SimDisk, SimOptions},
};

use super::Restored;
use crate::{
    config::{ServerConfig, ShareConfig},
    connection::Connection,
    file::{LeaseState, Owner, SavedCache, SavedLease, SavedOpen},
    host_watch::{HostWatch, Interest, Observed},
    limits::ServerLimits,
    persistent::{
        HandleStore, OpenRecord,
        record::{encode_lease, lease_key, open_key},
    },
    pipe,
    state::{ConnectionId, Open, Server, Share, Shares},
    transport::{Direct, HeldLogin},
};

pub(crate) type Back = PosixVfs<SimDisk>;

/// The first connection of a server, which sends what `direct` takes directly.
pub(crate) fn connection(
    server: &Arc<Server<Back>>,
    direct: Option<Box<dyn Direct>>,
) -> Rc<Connection<Back>> {
    let (mail, _) = mpsc::channel(1);
    let peer = ([127, 0, 0, 1], 1000).into();
    let account = server.memory.account([127, 0, 0, 1].into());
    let id = ConnectionId(1);
    let authenticated = Box::new(|| -> HeldLogin { Box::new(()) });
    let mail = mail.downgrade();
    Rc::new(Connection::new(
        server,
        id,
        peer,
        mail,
        account,
        direct,
        authenticated,
    ))
}

pub(crate) const KEY: LeaseKey = LeaseKey([2; 16]);
pub(crate) const CLIENT: Guid = Guid([1; 16]);
const MACHINE: [u32; 3] = [1, 2, 3];
/// The time of the clock.
pub(crate) const NOW: Timestamp = Timestamp {
    secs: 1_800_000_000,
    nanos: 0,
};

thread_local! {
    /// Sleeping tasks wake at once.
    pub(crate) static HASTE: Cell<bool> = const { Cell::new(false) };
    static SPAWNED: RefCell<Vec<LocalTask>> = const { RefCell::new(Vec::new()) };
}

/// Time stands still, and spawned tasks wait for [`run_tasks`].
struct Still;

impl Env for Still {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn realtime(&self) -> Timestamp {
        NOW
    }
    fn fill_random(&self, out: &mut [u8]) {
        out.fill(0);
    }
    fn spawn(&self, task: LocalTask) {
        SPAWNED.with_borrow_mut(|all| all.push(task));
    }
    fn sleep(&self, _: Duration) -> LocalTask {
        match HASTE.get() {
            true => Box::pin(std::future::ready(())),
            false => Box::pin(std::future::pending()),
        }
    }
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
    panic!("it waits");
}

/// Runs the spawned tasks as far as they get, and returns the number of those that still wait.
pub(crate) fn run_tasks() -> usize {
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<LocalTask> = Vec::new();
    for _ in 0..100 {
        waiting.append(&mut SPAWNED.take());
        waiting.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
    }
    let count = waiting.len();
    SPAWNED.with_borrow_mut(|all| all.append(&mut waiting));
    count
}

/// A store that remembers its calls and completes none before it is polled again.
#[derive(Default)]
pub(crate) struct Remembers {
    groups: Mutex<Vec<Vec<MapChange>>>,
    /// Tasks that nobody has awaited and that one write would serve.
    waiting: Arc<Mutex<(usize, usize)>>,
    /// Nothing can be written.
    pub(crate) broken: Arc<AtomicBool>,
    /// Nothing is written in time, but no error is reported yet.
    pub(crate) slow: Arc<AtomicBool>,
}

impl HandleStore for Remembers {
    fn change(&self, changes: Vec<MapChange>) -> StoreTask {
        self.groups.lock().unwrap().push(changes);
        let waiting = Arc::clone(&self.waiting);
        let (broken, slow) = (Arc::clone(&self.broken), Arc::clone(&self.slow));
        waiting.lock().unwrap().0 += 1;
        let mut asked = false;
        Box::pin(poll_fn(move |_| {
            if !std::mem::replace(&mut asked, true) {
                return Poll::Pending;
            }
            let mut waiting = waiting.lock().unwrap();
            // All changes requested so far are written together.
            if waiting.0 > 0 {
                *waiting = (0, waiting.1 + 1);
            }
            let failed = broken.load(Ordering::SeqCst) || slow.load(Ordering::SeqCst);
            Poll::Ready(if failed { Err(VfsError::Io) } else { Ok(()) })
        }))
    }
    fn is_healthy(&self) -> bool {
        !self.broken.load(Ordering::SeqCst)
    }
    fn counts(&self) -> MapCounts {
        MapCounts::default()
    }
}

impl Remembers {
    pub(crate) fn changes(&self) -> Vec<MapChange> {
        self.groups.lock().unwrap().concat()
    }
    pub(crate) fn removed(&self, key: &[u8]) -> bool {
        let gone = |change: &MapChange| matches!(change, MapChange::Remove(one) if one == key);
        self.changes().iter().any(gone)
    }
    pub(crate) fn writes(&self) -> usize {
        self.waiting.lock().unwrap().1
    }
}

/// A [`HostWatch`] that can watch or cannot.
pub(crate) struct Watch(bool, pub(crate) Mutex<Vec<Interest>>);

impl HostWatch<Back> for Watch {
    fn observe(&self, _: &<Back as Volume>::Node, interest: Interest) -> Option<Observed> {
        self.1.lock().unwrap().push(interest);
        self.0.then(|| Observed {
            guard: Box::new(()),
            ready: None,
        })
    }
}

fn config(limits: ServerLimits) -> ServerConfig {
    let [a, b, c] = MACHINE;
    ServerConfig {
        machine_sid: Sid::of(5, [21, a, b, c]),
        anonymous_listing: true,
        limits,
        ..pipe::tests::config()
    }
}

pub(crate) struct World {
    pub(crate) server: Arc<Server<Back>>,
    pub(crate) disk: SimDisk,
    pub(crate) store: Arc<Remembers>,
    pub(crate) owner: Sid,
    inode: (u64, u64),
    changed: Timestamp,
}

pub(crate) async fn shares(
    disk: &SimDisk,
    durability: &Arc<Durability<Back>>,
    late: bool,
) -> Shares<Back> {
    let mut all = Vec::new();
    let names = if late {
        &["other"][..]
    } else {
        &["data", "other"][..]
    };
    for (id, name) in (1..).zip(names) {
        let vfs = PosixVfs::new(disk.clone(), PosixOptions::default());
        let vfs = Arc::new(vfs.await.unwrap());
        let wanted = ShareDurability::with_policy(Policy::Honor);
        let gate = durability.share(name, Arc::clone(&vfs), wanted);
        let mut config = ShareConfig::new(name);
        (config.continuous_availability, config.host_changes) = (true, true);
        all.push(Arc::new(Share {
            config,
            vfs,
            gate,
            id,
        }));
    }
    let shares = Shares::new(all);
    if late {
        shares.with_late(["data"])
    } else {
        shares
    }
}

async fn make(disk: &SimDisk, name: &str) {
    let how = OpenHow {
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    let (me, root) = (&Identity::Service, disk.root());
    let made = disk.open_at(me, &root, name.as_bytes(), how).await;
    drop(made.unwrap());
}

impl World {
    /// The same open of another file.
    pub(crate) fn elsewhere(&self, record: OpenRecord, name: &str) -> OpenRecord {
        let path = vec![name.to_owned()];
        let shares = self.server.shares();
        let vfs = &shares.find("other").unwrap().vfs;
        let key = run(async {
            make(&self.disk, name).await;
            let found = vfs.lookup(&Identity::Service, &path).await.unwrap().found;
            found.unwrap().0.key()
        });
        OpenRecord {
            inode: (key.ino, key.generation),
            path,
            lease: None,
            ..record
        }
    }

    pub(crate) fn new(late: bool, limits: ServerLimits) -> Self {
        run(async {
            let disk = SimDisk::new(SimOptions::default());
            make(&disk, "f").await;
            let durability = Durability::new(Arc::new(Still), durability::Limits::default());
            let shares = shares(&disk, &durability, late).await;
            let vfs = &shares.find("other").unwrap().vfs;
            let found = vfs.lookup(&Identity::Service, &["f".to_owned()]).await;
            let (node, attr) = found.unwrap().found.unwrap();
            let key = node.key();
            let mut users = UserDb::new(MachineSid(MACHINE));
            let rid = users.add_user("alice").unwrap();
            users.set_uid_gid("alice", Some((0, 0))).unwrap();
            let config = config(limits);
            let owner = config.machine_sid.child(rid).unwrap();
            let server = Server::new(Arc::new(Still), durability, config, shares, Arc::new(users));
            Self {
                server,
                disk,
                store: Arc::default(),
                owner,
                inode: (key.ino, key.generation),
                changed: attr.changed,
            }
        })
    }

    pub(crate) fn record(&self, id: u64) -> OpenRecord {
        OpenRecord {
            id,
            create_guid: Guid([id as u8; 16]),
            client: CLIENT,
            share: "data".into(),
            path: vec!["f".into()],
            moving: Vec::new(),
            stream: None,
            stream_to: None,
            inode: self.inode,
            directory: false,
            owner: self.owner,
            user: "alice".into(),
            desired: AccessMask::FILE_READ_DATA,
            read_unasked: false,
            options: Default::default(),
            action: Default::default(),
            timeout_ms: 60_000,
            lease: Some((KEY, true)),
            parent_lease: None,
            app: None,
            engine: SavedOpen {
                access: AccessMask::FILE_READ_DATA,
                share: ShareAccess(7),
                cache: SavedCache::Lease,
                ..SavedOpen::default()
            },
        }
    }

    pub(crate) fn bring_back(&self, records: &[OpenRecord]) -> Restored {
        self.bring_back_breaking(records, None)
    }

    /// As [`World::bring_back`], with a break in flight that leaves this state of the lease.
    pub(crate) fn bring_back_breaking(
        &self,
        records: &[OpenRecord],
        left: Option<LeaseState>,
    ) -> Restored {
        let entry = |key, value| MapEntry {
            key,
            value,
            doubtful: false,
        };
        let opens = records.iter();
        let mut entries: Vec<_> = opens
            .map(|record| entry(open_key(record.id), record.encode()))
            .collect();
        let kept = SavedLease {
            state: LeaseState::RWH,
            left,
            epoch: 4,
            v2: true,
            parent: None,
        };
        entries.push(entry(lease_key(CLIENT, KEY), encode_lease(&kept)));
        run(self
            .server
            .keep_opens_in(Arc::clone(&self.store) as _, entries))
    }

    /// The open with which a client continues after it has reconnected to `old`.
    pub(crate) fn reconnect(&self, old: &Open<Back>) -> Arc<Open<Back>> {
        let (tree, volatile) = (Arc::clone(&old.tree), self.server.fresh_file_id().volatile);
        let open = Open::reconnected(old, SessionId::default(), tree, volatile, 0);
        let open = Arc::new(open.unwrap());
        self.server.durables.renewed(old, &open);
        open
    }

    /// The state of the lease of an open that was restored, and its epoch.
    pub(crate) fn lease(&self, id: u64) -> Option<(LeaseState, u16)> {
        let open = self.server.durables.find(id)?;
        let disk = open.disk().ok()?;
        let (_, lease) = self.server.files.kept(&disk.place, open.engine)?;
        let (owner, kept) = lease?;
        assert_eq!(owner, Owner::Lease(CLIENT, KEY));
        Some((kept.state, kept.epoch))
    }

    /// Configures that only this server changes the files of its shares.
    pub(crate) fn keep_to_ourselves(&self) {
        self.configure(|config| config.host_changes = false);
    }

    /// Configures that it is known on which folder the shares are.
    pub(crate) fn show_one_folder(&self) {
        self.configure(|config| config.folder = Some(b"/srv".to_vec()));
    }

    fn configure(&self, change: impl Fn(&mut ShareConfig)) {
        let changed = |share: &Arc<Share<Back>>| {
            let mut config = share.config.clone();
            change(&mut config);
            Arc::new(Share {
                config,
                vfs: Arc::clone(&share.vfs),
                gate: Arc::clone(&share.gate),
                id: share.id,
            })
        };
        let all: Vec<_> = self.server.shares().iter().map(changed).collect();
        self.server.set_shares(Shares::new(all));
    }

    /// Sets that the last run saw changes until long after the file's last change, or until just before it.
    pub(crate) fn changes_seen(&self, after: bool) {
        let mut at = self.changed;
        at.secs += if after { 0 } else { -1 };
        self.server.seen_until(at);
    }

    pub(crate) fn watched(&self, can: bool) -> Arc<Watch> {
        let watch = Arc::new(Watch(can, Mutex::default()));
        self.server.set_host_watch(Arc::clone(&watch) as _);
        watch
    }
}

pub(crate) fn came(opens: usize, lost: usize, unknown: usize) -> Restored {
    Restored {
        opens,
        lost,
        unknown,
    }
}
