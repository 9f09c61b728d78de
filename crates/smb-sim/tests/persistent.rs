//! Persistent opens from seeds: the loss of a lease is stored before the answer to the request that caused it, or
//! to one that found it lost already (`smb-server`'s `persistent`). The store takes its time; two clients change a
//! file that a third caches by a persistent open.
//!
//! `SEED=n cargo test -p smb-sim --test persistent one_seed` runs one seed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use durability::{MapChange, MapCounts, StoreTask};
use smb_client::{CreateArgs, Options, Request, Signing};
use smb_server::{HandleStore, Share, Shares};
use smb_sim::{MemoryOptions, SHARE, Sim, SimClient, SimEnv, SimServer, write_request};
use smb_wire::{
    access_mask::AccessMask,
    create_context::{DurableHandleFlags, DurableHandleRequestV2, LeaseState},
    fscc::{FileInformationClass, FileRenameInformation},
    fsctl::{FsctlCode, SetZeroData},
    ids::{FileId, Guid, LeaseKey},
    msg::{Dialect, InfoType, ShareAccess},
};
use vfs::{
    Env, Identity, NamedStreams, Paths,
    posix::{PosixOptions, PosixVfs},
    sim::{Cut, Fault, FaultAction, Profile, SimOp},
};

/// Seeds of the test; each is a world of its own.
const SEEDS: u64 = 200;
/// How long the store takes for a write.
const WRITE: Duration = Duration::from_millis(50);

/// Stores in order, and slowly on request.
struct Store {
    env: Arc<SimEnv>,
    slow: AtomicBool,
    /// When what was given to it is stored, and whether it is about a lease.
    given: Mutex<Vec<(Duration, bool)>>,
}

impl HandleStore for Store {
    fn change(&self, changes: Vec<MapChange>) -> StoreTask {
        let lease = |change: &MapChange| match change {
            MapChange::Put(key, _) => key.first() == Some(&b'l'),
            MapChange::Remove(_) => false,
        };
        let mut at = self.env.monotonic();
        if self.slow.load(Ordering::SeqCst) {
            at += WRITE;
        }
        let mut given = self.given.lock().unwrap();
        at = at.max(given.last().map_or(at, |(last, _)| *last));
        given.push((at, changes.iter().any(lease)));
        drop(given);
        let env = Arc::clone(&self.env);
        Box::pin(async move {
            env.sleep(at.saturating_sub(env.monotonic())).await;
            Ok(())
        })
    }

    fn is_healthy(&self) -> bool {
        true
    }

    fn counts(&self) -> MapCounts {
        MapCounts::default()
    }
}

impl Store {
    /// Something about a lease is not stored yet.
    fn is_behind(&self) -> bool {
        let now = self.env.monotonic();
        let given = self.given.lock().unwrap();
        given.iter().any(|(at, lease)| *lease && *at > now)
    }
}

/// How the file is changed.
#[derive(Debug, Clone, Copy)]
enum How {
    Write,
    EndOfFile,
    Zero,
    Copy,
}

fn options(client: u8) -> Options {
    Options::dialect(Dialect::SMB_3_1_1)
        .signing(Signing::Required)
        .guid(Guid([client; 16]))
}

fn everybody(name: &str) -> CreateArgs {
    let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    CreateArgs::open_if(name).share(all)
}

fn cached() -> CreateArgs {
    persistent("f").lease_v2(LeaseKey([0x33; 16]), LeaseState::READ, 0)
}

fn persistent(name: &str) -> CreateArgs {
    everybody(name).durable_v2(DurableHandleRequestV2 {
        timeout_ms: 60_000,
        flags: DurableHandleFlags::PERSISTENT,
        create_guid: Guid([0x44; 16]),
    })
}

fn control(code: FsctlCode, file_id: FileId, input: &[u8]) -> Request {
    Request::ioctl(file_id, code, input, 64)
}

/// A client that changes the file, and the change.
async fn changer(server: &SimServer, number: u8, how: How) -> (SimClient, Request) {
    let mut client = SimClient::enter(server, options(number)).await.unwrap();
    let file = client.create(&everybody("f")).await.unwrap();
    let request = match how {
        How::Write => write_request(file, 0, &[number; 100]),
        How::EndOfFile => Request::set_info(
            file,
            InfoType::FILE,
            FileInformationClass::END_OF_FILE.0,
            0,
            &100_u64.to_le_bytes(),
        ),
        How::Zero => {
            let mut input = BytesMut::new();
            SetZeroData {
                file_offset: 0,
                beyond_final_zero: 100,
            }
            .encode(&mut input);
            control(FsctlCode::SET_ZERO_DATA, file, &input)
        }
        How::Copy => {
            let source = client.create(&everybody("source")).await.unwrap();
            client.write_at(source, 0, &[number; 100]).await.unwrap();
            client.copy_request(source, file, 100).await.unwrap()
        }
    };
    (client, request)
}

/// The shares are continuously available from now on.
fn make_available(server: &SimServer) {
    let available = |share: &Arc<Share<_>>| {
        let mut config = share.config.clone();
        config.continuous_availability = true;
        let (vfs, gate, id) = (Arc::clone(&share.vfs), Arc::clone(&share.gate), share.id);
        Arc::new(Share {
            config,
            vfs,
            gate,
            id,
        })
    };
    let shares: Vec<_> = server.server.shares().iter().map(available).collect();
    server.server.set_shares(Shares::new(shares));
}

/// One world: whether somebody was answered although what the lease lost was not stored, and
/// whether the second request came while that was on its way.
fn run(seed: u64) -> bool {
    let mut sim = Sim::new(seed);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    let env = sim.env();
    let store = Arc::new(Store {
        env: Arc::clone(&env),
        slow: AtomicBool::new(false),
        given: Mutex::default(),
    });
    make_available(&server);
    let hows = [How::Write, How::EndOfFile, How::Zero, How::Copy];
    sim.run(async {
        let kept = Arc::clone(&store) as Arc<dyn HandleStore>;
        server.server.keep_opens_in(kept, Vec::new()).await;
        let mut first = SimClient::enter(&server, options(9)).await.unwrap();
        let file = first.create(&everybody("f")).await.unwrap();
        first.write_at(file, 0, &[9; 200]).await.unwrap();
        first.close(file).await.unwrap();
        let mut holder = SimClient::enter(&server, options(1)).await.unwrap();
        holder.create(&cached()).await.unwrap();
        assert_eq!(server.server.persistent_opens().unwrap().0, 1);
        let how = hows[env.choose(4) as usize];
        let (mut one, first) = changer(&server, 2, How::Write).await;
        let (mut other, second) = changer(&server, 3, how).await;
        store.slow.store(true, Ordering::SeqCst);
        let (at, env2) = (Arc::clone(&store), Arc::clone(&env));
        let one = env.start(async move {
            one.call(first).await.unwrap();
            assert!(!at.is_behind(), "SEED={seed}: the first");
            one
        });
        env.sleep(Duration::from_micros(env2.choose(100_000))).await;
        let meanwhile = store.is_behind();
        other.call(second).await.unwrap();
        assert!(!store.is_behind(), "SEED={seed}: {how:?} is answered");
        one.await;
        meanwhile
    })
    .unwrap()
}

#[test]
fn what_a_lease_lost_is_stored_before_anybody_sees_what_took_it() {
    let meanwhile = (0..SEEDS).filter(|seed| run(*seed)).count();
    assert!(meanwhile > 20, "{meanwhile} of {SEEDS} met");
}

/// Replays one seed.
#[test]
fn one_seed() {
    if let Ok(seed) = std::env::var("SEED") {
        run(seed.parse().unwrap());
    }
}

/// A continuously available server on a disk that keeps no more than was synced, and the store of its records.
fn available(sim: &mut Sim) -> (SimServer, Arc<Store>) {
    let memory = MemoryOptions {
        profile: Profile::PosixMin,
        depot: true,
        ..MemoryOptions::default()
    };
    let server = SimServer::new(sim, &memory).unwrap();
    make_available(&server);
    let store = Arc::new(Store {
        env: sim.env(),
        slow: AtomicBool::new(false),
        given: Mutex::default(),
    });
    (server, store)
}

/// Cuts the power. The file must be there afterwards; the answer is its first stream.
fn stream_after_cut(sim: &mut Sim, server: &SimServer, file: &str) -> Option<String> {
    let left = server.cut_power(Cut::Nothing);
    sim.kill();
    let found = Sim::new(6).run(async {
        let vfs = PosixVfs::new(left, PosixOptions::default()).await.unwrap();
        let path = [file.to_owned()];
        let found = vfs.lookup(&Identity::Service, &path).await.unwrap().found;
        let streams = vfs.streams(&found.unwrap().0).await.unwrap();
        streams.into_iter().next().map(|stream| stream.name)
    });
    found.unwrap()
}

/// The record of a persistent open is stable before the answer to its CREATE, and is worth nothing without the file.
#[test]
fn what_a_persistent_open_has_made_is_stable_before_its_answer() {
    for (name, stream) in [("f", None), ("f:new", Some("new"))] {
        let mut sim = Sim::new(5);
        let (server, store) = available(&mut sim);
        sim.run(async {
            server.server.keep_opens_in(store, Vec::new()).await;
            let mut holder = SimClient::enter(&server, options(1)).await.unwrap();
            holder.create(&persistent(name)).await.unwrap();
            assert_eq!(server.server.persistent_opens().unwrap().0, 1);
        })
        .unwrap();
        let found = stream_after_cut(&mut sim, &server, "f");
        assert_eq!(found.as_deref(), stream, "{name}");
    }
}

/// After the answer to a rename the record of a persistent open has the new name alone, so that name must be stable,
/// also if another client renames the file.
#[test]
fn a_new_name_of_a_persistent_open_is_stable_before_its_answer() {
    for (from, to, stream) in [("f", "g", None), ("f:old", ":new", Some("new"))] {
        let mut sim = Sim::new(5);
        let (server, store) = available(&mut sim);
        sim.run(async {
            server.server.keep_opens_in(store, Vec::new()).await;
            let mut holder = SimClient::enter(&server, options(1)).await.unwrap();
            let mut client = SimClient::enter(&server, options(2)).await.unwrap();
            let all = AccessMask::FILE_ALL_ACCESS;
            let mut file = holder.create(&persistent(from).access(all)).await.unwrap();
            assert_eq!(server.server.persistent_opens().unwrap().0, 1);
            assert_eq!(server.server.durability.sync_all().await.failed, 0);
            let renaming = match stream {
                Some(_) => &mut holder,
                None => {
                    file = client.create(&everybody(from).access(all)).await.unwrap();
                    &mut client
                }
            };
            let mut target = BytesMut::new();
            FileRenameInformation {
                replace_if_exists: false,
                root_directory: 0,
                file_name: to.to_owned(),
            }
            .encode(&mut target);
            let class = FileInformationClass::RENAME.0;
            let rename = Request::set_info(file, InfoType::FILE, class, 0, &target);
            renaming.call(rename).await.unwrap();
        })
        .unwrap();
        let file = if stream.is_some() { "f" } else { to };
        let found = stream_after_cut(&mut sim, &server, file);
        assert_eq!(found.as_deref(), stream, "{from}");
    }
}

/// The record has room for two names, so a rename that is not stable must become so before the next one is made.
#[test]
fn a_stream_whose_rename_is_not_stable_gets_no_third_name() {
    let mut sim = Sim::new(5);
    let (server, store) = available(&mut sim);
    sim.run(async {
        server.server.keep_opens_in(store, Vec::new()).await;
        let mut holder = SimClient::enter(&server, options(1)).await.unwrap();
        let args = persistent("f:old").access(AccessMask::FILE_ALL_ACCESS);
        let stream = holder.create(&args).await.unwrap();
        assert_eq!(server.server.durability.sync_all().await.failed, 0);
        assert!(server.disk.inject(Fault {
            on: SimOp::Sync,
            after: 0,
            action: FaultAction::Fail(5),
        }));
        for to in [":new", ":third"] {
            let renamed = holder.call(Request::rename(stream, to, false)).await;
            assert!(renamed.is_err(), "{to}");
        }
        let shares = server.server.shares();
        let vfs = &shares.find(SHARE).unwrap().vfs;
        let found = vfs.lookup(&Identity::Service, &["f".to_owned()]).await;
        let (file, _) = found.unwrap().found.unwrap();
        let streams = vfs.streams(&file).await.unwrap();
        let names: Vec<_> = streams.iter().map(|stream| &*stream.name).collect();
        assert_eq!(names, ["new"]);
    })
    .unwrap();
}
