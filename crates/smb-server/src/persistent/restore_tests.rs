//! Recorded opens come back, wait, or are lost: a server over a simulated disk.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use durability::{Change, Durability, LogMapCounts, MapEntry, Policy, ShareDurability, StoreTask};
use smb_auth::{MachineSid, UserDb};
use smb_wire::{
    access_mask::AccessMask,
    dtyp::Sid,
    ids::{Guid, LeaseKey},
    msg::{Dialect, ShareAccess},
};
use vfs::{
    Disk, Env, Identity, Node, Timestamp, Vfs,
    disk::OpenHow,
    env::LocalTask,
    posix::{PosixOptions, PosixVfs},
    sim::{Fault, FaultAction, SimDisk, SimOp, SimOptions},
};

use super::super::{
    HandleStore, OWNER_BYTES_MAX, OpenRecord, Restored,
    record::{LeaseRecord, lease_key, open_key},
};
use crate::{
    config::{Encryption, ServerConfig, ShareConfig},
    file::{KeptCache, KeptLease, KeptLock, KeptOpen, LeaseState, Owner},
    limits::Limits,
    outside::{HostWatch, Interest, Observed},
    state::{Server, Share, Shares},
};

type Back = PosixVfs<SimDisk>;

const KEY: LeaseKey = LeaseKey([2; 16]);
const CLIENT: Guid = Guid([1; 16]);
const MACHINE: [u32; 3] = [1, 2, 3];
const EIO: i32 = 5;

/// Time stands still, and nothing is spawned.
struct Still;

impl Env for Still {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn realtime(&self) -> Timestamp {
        Timestamp::default()
    }
    fn fill_random(&self, out: &mut [u8]) {
        out.fill(0);
    }
    fn spawn(&self, _: LocalTask) {}
    fn sleep(&self, _: Duration) -> LocalTask {
        Box::pin(std::future::pending())
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
    panic!("it waits");
}

/// Remembers what it is told, and finishes nothing before it is asked again.
#[derive(Default)]
struct Remembers {
    groups: Mutex<Vec<Vec<Change>>>,
    /// Tasks that nobody has awaited: what one write would serve.
    waiting: Arc<Mutex<(usize, usize)>>,
}

impl HandleStore for Remembers {
    fn change(&self, changes: Vec<Change>) -> StoreTask {
        self.groups.lock().unwrap().push(changes);
        let waiting = Arc::clone(&self.waiting);
        waiting.lock().unwrap().0 += 1;
        let mut asked = false;
        Box::pin(poll_fn(move |_| {
            if !std::mem::replace(&mut asked, true) {
                return Poll::Pending;
            }
            let mut waiting = waiting.lock().unwrap();
            // All that were asked for by now are written together.
            if waiting.0 > 0 {
                *waiting = (0, waiting.1 + 1);
            }
            Poll::Ready(Ok(()))
        }))
    }
    fn is_healthy(&self) -> bool {
        true
    }
    fn counts(&self) -> LogMapCounts {
        LogMapCounts::default()
    }
}

impl Remembers {
    fn changes(&self) -> Vec<Change> {
        self.groups.lock().unwrap().concat()
    }
    fn removed(&self, key: &[u8]) -> bool {
        let gone = |change: &Change| matches!(change, Change::Remove(one) if one == key);
        self.changes().iter().any(gone)
    }
    fn writes(&self) -> usize {
        self.waiting.lock().unwrap().1
    }
}

/// Watches, or cannot.
struct Watch(bool, Mutex<Vec<Interest>>);

impl HostWatch<Back> for Watch {
    fn observe(&self, _: &<Back as Vfs>::Node, interest: Interest) -> Option<Observed> {
        self.1.lock().unwrap().push(interest);
        self.0.then(|| Observed {
            guard: Box::new(()),
            ready: None,
        })
    }
}

fn config(limits: Limits) -> ServerConfig {
    let [a, b, c] = MACHINE;
    ServerConfig {
        netbios_name: "HOLD".to_owned(),
        workgroup: "GROUP".to_owned(),
        dns_name: "hold.example".to_owned(),
        comment: String::new(),
        server_guid: Guid::default(),
        machine_sid: Sid::of(5, [21, a, b, c]),
        dialect_min: Dialect::SMB_2_0_2,
        dialect_max: Dialect::SMB_3_1_1,
        signing_required: false,
        encryption: Encryption::Offered,
        ciphers: Vec::new(),
        signing_algorithms: Vec::new(),
        allow_empty_passwords: false,
        strict_write_flags: false,
        switch_identity: false,
        service_ids: (0, 0),
        limits,
        local_groups: Default::default(),
    }
}

struct World {
    server: Arc<Server<Back>>,
    disk: SimDisk,
    store: Arc<Remembers>,
    owner: Sid,
    inode: (u64, u64),
    changed: Timestamp,
}

async fn shares(disk: &SimDisk, durability: &Arc<Durability<Back>>, late: bool) -> Shares<Back> {
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
    fn elsewhere(&self, record: OpenRecord, name: &str) -> OpenRecord {
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

    fn new(late: bool, limits: Limits) -> Self {
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

    fn record(&self, id: u64) -> OpenRecord {
        OpenRecord {
            id,
            create_guid: Guid([id as u8; 16]),
            client: CLIENT,
            share: "data".into(),
            path: vec!["f".into()],
            moving: None,
            stream: None,
            inode: self.inode,
            directory: false,
            owner: self.owner,
            user: "alice".into(),
            desired: AccessMask::FILE_READ_DATA,
            options: Default::default(),
            action: Default::default(),
            timeout_ms: 60_000,
            lease: Some((KEY, true)),
            parent_lease: None,
            app: None,
            engine: KeptOpen {
                access: AccessMask::FILE_READ_DATA,
                share: ShareAccess(7),
                cache: KeptCache::Lease,
                ..KeptOpen::default()
            },
        }
    }

    fn bring_back(&self, records: &[OpenRecord]) -> Restored {
        let entry = |key, value| MapEntry {
            key,
            value,
            doubtful: false,
        };
        let opens = records.iter();
        let mut entries: Vec<_> = opens
            .map(|record| entry(open_key(record.id), record.encode()))
            .collect();
        let kept = KeptLease {
            state: LeaseState::RWH,
            epoch: 4,
            v2: true,
            parent: None,
        };
        let lease = LeaseRecord {
            client: CLIENT,
            key: KEY,
            kept,
        };
        entries.push(entry(lease_key(CLIENT, KEY), lease.encode()));
        run(self
            .server
            .keep_opens_in(Arc::clone(&self.store) as _, entries))
    }

    /// What the lease of an open that came back has, and its epoch.
    fn lease(&self, id: u64) -> Option<(LeaseState, u16)> {
        let open = self.server.durables.find(id)?;
        let disk = open.disk().ok()?;
        let (_, lease) = self.server.files.kept(disk.place, open.engine)?;
        let (owner, kept) = lease?;
        assert_eq!(owner, Owner::Lease(CLIENT, KEY));
        Some((kept.state, kept.epoch))
    }

    /// The last run heard of changes until long after, or just before, the file's last one.
    fn heard(&self, after: bool) {
        let mut at = self.changed;
        at.secs += if after { 0 } else { -1 };
        self.server.heard_until(at);
    }

    fn watched(&self, can: bool) -> Arc<Watch> {
        let watch = Arc::new(Watch(can, Mutex::default()));
        self.server.set_host_watch(Arc::clone(&watch) as _);
        watch
    }
}

fn came(opens: usize, lost: usize, unknown: usize) -> Restored {
    Restored {
        opens,
        lost,
        unknown,
    }
}

#[test]
fn what_is_cached_is_observed_before_anybody_comes_back() {
    let world = World::new(false, Limits::default());
    let watch = world.watched(true);
    world.heard(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
    assert_eq!(world.lease(10), Some((LeaseState::RWH, 4)));
    assert_eq!(watch.1.lock().unwrap().len(), 1);
    assert_eq!(world.server.outside.observed(), 1);
    assert_eq!(world.store.changes(), [], "nothing changed");
}

#[test]
fn caching_ends_where_a_change_was_missed_or_would_be() {
    // The file changed after anybody heard of it; nobody knows until when; it cannot be watched.
    for (heard, can) in [(Some(false), true), (None, true), (Some(true), false)] {
        let world = World::new(false, Limits::default());
        world.watched(can);
        if let Some(after) = heard {
            world.heard(after);
        }
        let records = [world.record(10), world.record(11)];
        assert_eq!(world.bring_back(&records), came(2, 0, 0));
        for id in [10, 11] {
            assert_eq!(world.lease(id), Some((LeaseState(0), 5)), "{heard:?} {can}");
        }
        // The next restart knows.
        let lease = lease_key(CLIENT, KEY);
        let put = |change: &Change| matches!(change, Change::Put(key, _) if *key == lease);
        assert!(world.store.changes().iter().any(put));
    }
}

#[test]
fn an_error_that_passes_costs_no_handle_and_removals_share_writes() {
    let world = World::new(false, Limits::default());
    world.heard(true);
    let other = |id: u64, path: &str, user: &str| OpenRecord {
        path: vec![path.into()],
        user: user.into(),
        ..world.record(id)
    };
    world.disk.inject(Fault {
        on: SimOp::Look,
        after: 0,
        action: FaultAction::Fail(EIO),
    });
    let mut records = vec![world.record(10)];
    records.extend((20..60).map(|id| other(id, "gone", "alice")));
    records.push(other(70, "f", "bob"));
    records.push(world.record(80));
    assert_eq!(world.bring_back(&records), came(1, 41, 1));
    assert!(!world.server.hears_of_all());
    assert!(
        !world.store.removed(&open_key(10)),
        "the next start tries again"
    );
    for id in (20..60).chain([70]) {
        assert!(world.store.removed(&open_key(id)));
    }
    assert!(world.store.writes() <= 2, "{}", world.store.writes());
}

#[test]
fn records_of_a_share_that_is_late_wait_for_it() {
    let world = World::new(true, Limits::default());
    world.heard(true);
    world.watched(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(0, 0, 0));
    assert_eq!(world.store.changes(), []);
    assert!(!world.server.hears_of_all());
    // A reload while it is late, then it comes.
    let late = world.server.shares();
    assert_eq!(run(world.server.restore_late(&late)), came(0, 0, 0));
    assert_eq!(world.store.changes(), []);
    let there = run(shares(&world.disk, &world.server.durability, false));
    assert_eq!(run(world.server.restore_late(&there)), came(1, 0, 0));
    assert_eq!(world.lease(10), Some((LeaseState::RWH, 4)));
    assert!(world.server.hears_of_all());
}

#[test]
fn all_that_were_promised_to_wait_do_and_no_more_are_promised() {
    let limits = Limits {
        kept_opens: 5,
        kept_opens_per_user: 2,
        ..Limits::default()
    };
    let world = World::new(false, limits.clone());
    world.heard(true);
    let persistence = &world.server.persistence;
    assert!(persistence.has_room(world.owner, &limits));
    // Promised by a run with higher limits.
    let records = [10, 11, 12].map(|id| world.record(id));
    assert_eq!(world.bring_back(&records), came(3, 0, 0));
    assert_eq!(world.server.durables.len(), 3);
    assert!(!persistence.has_room(world.owner, &limits));
    let other = Sid::EVERYONE;
    assert!(persistence.has_room(other, &limits));
    let fewer = Limits {
        kept_opens: 3,
        ..limits.clone()
    };
    assert!(!persistence.has_room(other, &fewer));
    let open = world.server.durables.find(10).unwrap();
    drop(persistence.end(open.engine));
    let open = world.server.durables.find(11).unwrap();
    drop(persistence.end(open.engine));
    assert!(persistence.has_room(world.owner, &limits));
}

#[test]
fn no_owner_fills_the_store() {
    let world = World::new(false, Limits::default());
    world.heard(true);
    let lock = |at: u64| KeptLock {
        offset: at,
        length: 1,
        exclusive: false,
    };
    let many = OWNER_BYTES_MAX / (17 * 4000) + 1;
    let records: Vec<_> = (0..many as u64)
        .map(|at| {
            let mut record = world.record(10 + at);
            record.engine.locks = (0..4000).map(lock).collect();
            record.engine.cache = KeptCache::None;
            world.elsewhere(record, &format!("f{at}"))
        })
        .collect();
    assert_eq!(world.bring_back(&records), came(many, 0, 0));
    let persistence = &world.server.persistence;
    assert!(!persistence.has_room(world.owner, &Limits::default()));
    assert!(persistence.has_room(Sid::EVERYONE, &Limits::default()));
    // One lock more is refused, one less is recorded, and so is the end.
    let open = world.server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place.clone();
    let files = &world.server.files;
    let set = |offset: u64, flags: u32| {
        let element = smb_wire::msg::LockElement {
            offset,
            length: 1,
            flags: smb_wire::msg::LockFlags(flags),
        };
        let _ = files.lock(
            &place,
            open.engine,
            &[element],
            None,
            Default::default(),
            usize::MAX,
        );
        run(persistence.changed(files, open.engine).unwrap())
    };
    let before = world.store.changes().len();
    assert_eq!(set(1 << 40, 0x11), Err(vfs::VfsError::Exhausted));
    assert_eq!(world.store.changes().len(), before);
    assert_eq!(set(1 << 40, 4), Ok(()));
    let to = crate::file::SharePath::new(crate::file::ShareId(1), ["g"], str::to_uppercase);
    let key = place.key;
    let refused = run(persistence.moving(files, key, &to).unwrap());
    assert_eq!(refused, Err(vfs::VfsError::Exhausted));
    for record in &records {
        let open = world.server.durables.find(record.id).unwrap();
        run(persistence.end(open.engine).unwrap()).unwrap();
    }
    assert!(persistence.has_room(world.owner, &Limits::default()));
}
