//! Orders that chance would not find: an operation of the disk is held until others are done.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use smb_client::{CreateArgs, Options, Request, Signing};
use smb_sim::{SHARE, SimClient};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::FileInformationClass,
    ids::Guid,
    msg::{CancelRequest, CreateOptions, Dialect, OplockLevel, ShareAccess},
};
use vfs::{
    Directories, Env, Identity, Paths, Volume,
    sim::{Fault, FaultAction, SimOp},
};

use crate::world::{World, rename, set, watch_names};

/// Holds operations of the disk.
#[derive(Clone, Default)]
pub(crate) struct Holds {
    /// Which operations are to be held, the next one last.
    wanted: Arc<Mutex<Vec<SimOp>>>,
    /// How many are, or were.
    held: Arc<AtomicUsize>,
    /// How many may go on.
    released: Arc<AtomicUsize>,
}

impl Holds {
    /// Holds the next operation of each kind, in this order.
    pub(crate) fn begin(world: &World, kinds: &[SimOp]) -> Self {
        let this = Self::default();
        this.wanted.lock().unwrap().extend(kinds.iter().rev());
        let holds = this.clone();
        let env = Arc::clone(&world.env);
        world.server.disk.set_hook(Some(Arc::new(move |op| {
            let mut wanted = holds.wanted.lock().unwrap();
            // One after the other: what is held next comes after what was let go.
            let number = holds.held.load(Ordering::SeqCst);
            let free = number == holds.released.load(Ordering::SeqCst);
            if !free || wanted.last() != Some(&op) {
                return None;
            }
            wanted.pop();
            holds.held.store(number + 1, Ordering::SeqCst);
            let released = Arc::clone(&holds.released);
            let env = Arc::clone(&env);
            Some(Box::pin(async move {
                while released.load(Ordering::SeqCst) <= number {
                    env.sleep(Duration::from_micros(10)).await;
                }
            }))
        })));
        this
    }

    /// Until the operation of this number (from 1) is held.
    pub(crate) async fn held(&self, world: &World, number: usize) {
        for _ in 0..1_000 {
            if self.held.load(Ordering::SeqCst) >= number {
                return;
            }
            world.env.sleep(Duration::from_micros(10)).await;
        }
        panic!("nothing is held");
    }

    pub(crate) fn release(&self) {
        self.released.fetch_add(1, Ordering::SeqCst);
    }
}

/// The host gives a file that may still be on the way to its maker another name, `u`, by which nothing keeps others from
/// it. False if the file is not there yet.
pub(crate) async fn gets_second_name(world: &World, name: &str) -> bool {
    let shares = world.server.server.shares();
    let (vfs, me) = (&shares.find(SHARE).unwrap().vfs, Identity::Service);
    let lookup = vfs.lookup(&me, &[name.to_owned()]).await.unwrap();
    let Some((node, _)) = lookup.found else {
        return false;
    };
    let linked = vfs.link(&me, &node, &vfs.root(), "u", None).await;
    linked.unwrap();
    true
}

fn stay_free() -> CreateArgs {
    CreateArgs::open("t").access(AccessMask::FILE_READ_ATTRIBUTES)
}

#[test]
fn what_is_deleted_beside_a_rename_over_it_that_fails_goes() {
    let mut world = World::new(1);
    world.play(async |world| {
        world.make("t").await;
        world.make("g").await;
        let file = world.first().create(&CreateArgs::open("g")).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change]);
        assert!(world.server.disk.inject(Fault {
            on: SimOp::Change,
            after: 0,
            action: FaultAction::Fail(5),
        }));
        let renames = world.apart(async move |mut client, _| {
            let refused = client.call(rename(file, "t", true)).await;
            assert!(refused.is_err(), "the disk refused");
            client
        });
        holds.held(world, 1).await;
        let args = CreateArgs::open("t").access(AccessMask::DELETE);
        let mut second = world.second();
        let marked = second.create(&args).await.unwrap();
        let mark = set(marked, FileInformationClass::DISPOSITION, &[1]);
        second.call(mark).await.unwrap();
        second.close(marked).await.unwrap();
        holds.release();
        world.back(renames.await);
        let left = world.third().create(&stay_free()).await.unwrap_err();
        assert_eq!(left.status(), Some(Status::OBJECT_NAME_NOT_FOUND));
    });
}

#[test]
fn nobody_waits_behind_a_creation_that_waits_for_a_break() {
    let mut world = World::new(2);
    world.play(async |world| {
        // The creation itself, then the look after it.
        let holds = Holds::begin(world, &[SimOp::Change, SimOp::Look]);
        let creates = world.apart(async move |mut client, _| {
            client.create(&CreateArgs::open_if("t")).await.unwrap();
            client
        });
        holds.held(world, 1).await;
        // Behind the claim on the name.
        let behind = CreateArgs::open_if("t").access(AccessMask::FILE_READ_ATTRIBUTES);
        let behind = world.third().send(behind.request()).unwrap();
        world.env.sleep(Duration::from_millis(1)).await;
        holds.release();
        holds.held(world, 2).await;
        assert!(gets_second_name(world, "t").await);
        let faster = CreateArgs::open("u").oplock(OplockLevel::BATCH);
        world.second().create(&faster).await.unwrap();
        holds.release();
        let begun = world.env.monotonic();
        let answer = world.third().wait(behind).await.unwrap();
        assert_eq!(answer.status(), Status::SUCCESS);
        let waited = world.env.monotonic() - begun;
        assert!(waited < Duration::from_secs(5), "{waited:?}");
        // The faster one never answers; its time is over some day.
        world.back(creates.await);
    });
}

#[test]
fn a_file_made_by_its_unnamed_stream_is_its_makers_first() {
    let mut world = World::new(3);
    world.play(async |world| {
        let holds = Holds::begin(world, &[SimOp::Change]);
        let alone = CreateArgs::open_if("t::$DATA").share(ShareAccess::empty());
        let mut second = world.second();
        let makes = second.send(alone.request()).unwrap();
        holds.held(world, 1).await;
        // Behind the claim on the name.
        let mut third = world.third();
        let behind = third.send(CreateArgs::open_if("t").request()).unwrap();
        world.env.sleep(Duration::from_millis(1)).await;
        holds.release();
        let made = second.wait(makes).await.unwrap();
        assert_eq!(made.status(), Status::SUCCESS);
        let refused = third.wait(behind).await.unwrap();
        assert_eq!(refused.status(), Status::SHARING_VIOLATION);
    });
}

#[test]
fn a_file_that_is_on_disk_already_is_its_makers_first() {
    for (seed, made, opened) in [
        (5, "t", "t"),
        (5, "t", "t::$DATA"),
        // An open that may delete the file goes beside no stream that forbids this.
        (8, "t:s", "t"),
    ] {
        let mut world = World::new(seed);
        world.play(async |world| {
            // The creation of the file itself, then the look after it.
            let holds = Holds::begin(world, &[SimOp::Change, SimOp::Look]);
            let alone = CreateArgs::create(made).share(ShareAccess::empty());
            let mut second = world.second();
            let makes = second.send(alone.request()).unwrap();
            holds.held(world, 1).await;
            holds.release();
            holds.held(world, 2).await;
            // Nothing claims the name for this one, which finds it.
            let mut third = world.third();
            let finds = third.send(CreateArgs::open(opened).request()).unwrap();
            world.env.sleep(Duration::from_millis(1)).await;
            holds.release();
            let answer = second.wait(makes).await.unwrap();
            assert_eq!(answer.status(), Status::SUCCESS, "{made}");
            let refused = third.wait(finds).await.unwrap();
            assert_eq!(refused.status(), Status::SHARING_VIOLATION, "{opened}");
        });
    }
}

#[test]
fn a_stream_that_is_on_disk_already_is_its_makers_first() {
    let mut world = World::new(10);
    world.play(async |world| {
        world.make("t").await;
        // The creation of the stream, then the look after it.
        let holds = Holds::begin(world, &[SimOp::Change, SimOp::Look]);
        let alone = CreateArgs::create("t:s").share(ShareAccess::empty());
        let mut second = world.second();
        let makes = second.send(alone.request()).unwrap();
        holds.held(world, 1).await;
        holds.release();
        holds.held(world, 2).await;
        let mut third = world.third();
        let finds = third.send(CreateArgs::open("t:s").request()).unwrap();
        world.env.sleep(Duration::from_millis(1)).await;
        holds.release();
        let made = second.wait(makes).await.unwrap();
        assert_eq!(made.status(), Status::SUCCESS);
        let refused = third.wait(finds).await.unwrap();
        assert_eq!(refused.status(), Status::SHARING_VIOLATION);
    });
}

/// [MS-FSA] 2.1.5.15.12 refuses the rename of a file that has an open stream. If it came in between, the stream's
/// CREATE would make another file of the old name.
#[test]
fn a_file_whose_stream_is_being_made_keeps_its_name() {
    let mut world = World::new(11);
    world.play(async |world| {
        world.make("t").await;
        let mut third = world.third();
        let file = third.create(&CreateArgs::open("t")).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change]);
        let mut second = world.second();
        let makes = second.send(CreateArgs::create("t:s").request()).unwrap();
        holds.held(world, 1).await;
        // Behind the claim on the stream.
        let renames = third.send(rename(file, "u", false)).unwrap();
        world.env.sleep(Duration::from_millis(1)).await;
        holds.release();
        let made = second.wait(makes).await.unwrap();
        assert_eq!(made.status(), Status::SUCCESS);
        let refused = third.wait(renames).await.unwrap();
        assert_eq!(refused.status(), Status::ACCESS_DENIED);
    });
}

#[test]
fn a_cancel_ends_the_wait_behind_a_creation() {
    let mut world = World::new(9);
    world.play(async |world| {
        let holds = Holds::begin(world, &[SimOp::Change]);
        let mut second = world.second();
        let makes = second.send(CreateArgs::create("t").request()).unwrap();
        holds.held(world, 1).await;
        // Behind the claim on the name.
        let mut third = world.third();
        let behind = third.send(CreateArgs::open_if("t").request()).unwrap();
        world.env.sleep(Duration::from_millis(1)).await;
        let cancel = Request::new(&CancelRequest).overriding(|overrides| {
            overrides.message_id = Some(behind);
            overrides.credits = Some(0);
        });
        // It takes no answer and no id.
        let _ = third.send(cancel);
        world.env.sleep(Duration::from_millis(1)).await;
        holds.release();
        let made = second.wait(makes).await.unwrap();
        assert_eq!(made.status(), Status::SUCCESS);
        let cancelled = third.wait(behind).await.unwrap();
        assert_eq!(cancelled.status(), Status::CANCELLED);
    });
}

#[test]
fn who_watches_is_notified_of_a_file_that_its_maker_does_not_get() {
    let mut world = World::new(4);
    world.play(async |world| {
        world.make("f").await;
        let mut third = world.third();
        let watches = watch_names(&mut third).await;
        // The creation itself, then looks, until the file is there and its maker does not have it yet.
        let mut kinds = vec![SimOp::Look; 6];
        kinds[0] = SimOp::Change;
        let holds = Holds::begin(world, &kinds);
        let mut first = world.first();
        let makes = first.send(CreateArgs::open_if("t").request()).unwrap();
        let faster = CreateArgs::open("u").share(ShareAccess::empty());
        for number in 1.. {
            holds.held(world, number).await;
            let found = gets_second_name(world, "t").await;
            if found {
                world.second().create(&faster).await.unwrap();
            }
            holds.release();
            if found {
                break;
            }
        }
        let refused = first.wait(makes).await.unwrap();
        assert_eq!(refused.status(), Status::SHARING_VIOLATION);
        let seen = third.wait(watches).await.unwrap();
        assert_eq!(seen.status(), Status::SUCCESS);
    });
}

#[test]
fn a_stream_of_a_file_that_is_being_replaced_is_opened_afterwards() {
    let mut world = World::new(7);
    world.play(async |world| {
        world.make("t").await;
        world.make("g").await;
        let mut second = world.second();
        let made = second.create(&CreateArgs::open_if("t:s")).await.unwrap();
        second.close(made).await.unwrap();
        let mut first = world.first();
        let file = first.create(&CreateArgs::open("g")).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change]);
        let renames = first.send(rename(file, "t", true)).unwrap();
        holds.held(world, 1).await;
        let opens = second.send(CreateArgs::open("t:s").request()).unwrap();
        world.env.sleep(Duration::from_millis(1)).await;
        holds.release();
        let renamed = first.wait(renames).await.unwrap();
        assert_eq!(renamed.status(), Status::SUCCESS);
        // The file that has the name by now has no such stream.
        let opened = second.wait(opens).await.unwrap();
        assert_eq!(opened.status(), Status::OBJECT_NAME_NOT_FOUND);
    });
}

/// A client with two trees, each with an open: the disk will never finish the close of the first one.
async fn client_of_two_trees(world: &World) -> SimClient {
    let options = Options::dialect(Dialect::SMB_3_1_1)
        .signing(Signing::Required)
        .guid(Guid([9; 16]));
    let mut client = SimClient::enter(&world.server, options).await.unwrap();
    let goes = CreateArgs::create("goes").options(CreateOptions::DELETE_ON_CLOSE);
    client.create(&goes).await.unwrap();
    client.open_tree(SHARE).await.unwrap();
    let alone = CreateArgs::create("t").share(ShareAccess::empty());
    client.create(&alone).await.unwrap();
    client
}

/// The other tree's open is closed soon.
async fn assert_free(world: &World) {
    for _ in 0..1_000 {
        match world.third().create(&CreateArgs::open("t")).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.status(), Some(Status::SHARING_VIOLATION)),
        }
        world.env.sleep(Duration::from_millis(1)).await;
    }
    panic!("the open of the healthy tree stays");
}

#[test]
fn a_disk_that_hangs_keeps_no_open_of_another_tree() {
    let mut world = World::new(5);
    world.play(async |world| {
        let client = client_of_two_trees(world).await;
        let holds = Holds::begin(world, &[SimOp::Change]);
        client.cut();
        holds.held(world, 1).await;
        assert_free(world).await;
        holds.release();
    });
}

#[test]
fn a_disk_that_hangs_does_not_delay_the_login_that_replaces_a_session() {
    let mut world = World::new(6);
    world.play(async |world| {
        let client = client_of_two_trees(world).await;
        let holds = Holds::begin(world, &[SimOp::Change]);
        let options = Options::dialect(Dialect::SMB_3_1_1).guid(Guid([9; 16]));
        let mut new = SimClient::connect(&world.server, options).await.unwrap();
        let before = world.env.monotonic();
        new.replace(client.session()).await.unwrap();
        let took = world.env.monotonic().saturating_sub(before);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_free(world).await;
        holds.release();
    });
}
