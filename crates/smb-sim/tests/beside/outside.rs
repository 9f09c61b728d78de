//! Changes that others make to the files beside the server, and when they are watched.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use smb_client::{CreateArgs, Created, Request};
use smb_server::host_watch::{HostWatch, Interest, Observed};
use smb_sim::MemoryVfs;
use smb_wire::{
    Status,
    access_mask::AccessMask,
    create_context::LeaseState,
    ids::LeaseKey,
    msg::{CancelRequest, ChangeNotifyFlags, ChangeNotifyRequest, NotifyFilter},
};
use tokio::sync::oneshot;
use vfs::{Contents, Env, Volume};

use crate::world::World;

/// Changes what it is to observe just before it does, as others may; never ready with the rest.
#[derive(Default)]
struct Changing {
    vfs: Mutex<Option<Arc<MemoryVfs>>>,
    never: Mutex<Vec<oneshot::Sender<()>>>,
}

impl HostWatch<MemoryVfs> for Changing {
    fn observe(&self, node: &<MemoryVfs as Volume>::Node, interest: Interest) -> Option<Observed> {
        let mut ready = None;
        match interest {
            Interest::Caching { .. } => {
                let vfs = self.vfs.lock().unwrap().clone().unwrap();
                let mut changed = pin!(vfs.set_size(node, 20));
                let mut context = Context::from_waker(Waker::noop());
                // A disk without hook answers at once.
                let changed = changed.as_mut().poll(&mut context);
                assert_eq!(changed, Poll::Ready(Ok(())));
            }
            Interest::Changes { .. } => {
                let (sender, receiver) = oneshot::channel();
                self.never.lock().unwrap().push(sender);
                ready = Some(receiver);
            }
        }
        Some(Observed {
            guard: Box::new(()),
            ready,
        })
    }
}

fn watched(world: &World) {
    let watch = Changing::default();
    let share = Arc::clone(world.server.server.shares().find("data").unwrap());
    *watch.vfs.lock().unwrap() = Some(Arc::clone(&share.vfs));
    world.server.server.set_host_watch(Arc::new(watch));
}

#[test]
fn what_changed_before_it_was_observed_is_in_the_answer() {
    let mut world = World::new(4);
    world.play(async |world| {
        watched(world);
        world.make("t").await;
        let args = CreateArgs::open("t").lease_v2(LeaseKey([1; 16]), LeaseState::RWH, 0);
        let reply = world.first().call(args.request()).await.unwrap();
        let created = Created::read(&reply.message).unwrap();
        assert_eq!(
            created.facts.end_of_file, 20,
            "nobody will break the lease of the old size"
        );
    });
}

#[test]
fn changes_that_came_before_the_cancel_are_reported() {
    let mut world = World::new(5);
    world.play(async |world| {
        watched(world);
        let args = CreateArgs::create_directory("d").access(AccessMask::FILE_GENERIC_READ);
        let directory = world.first().create(&args).await.unwrap();
        let watch = Request::new(&ChangeNotifyRequest {
            flags: ChangeNotifyFlags::WATCH_TREE,
            output_buffer_length: 4_096,
            file_id: directory,
            completion_filter: NotifyFilter::FILE_NAME,
        });
        let waiting = world.first().send(watch).unwrap();
        world.env.sleep(Duration::from_millis(10)).await;
        let made = world.second().create(&CreateArgs::create("d\\f")).await;
        made.unwrap();
        let cancel = Request::new(&CancelRequest).overriding(|overrides| {
            overrides.message_id = Some(waiting);
            overrides.credits = Some(0);
        });
        // It takes no answer and no id.
        let _ = world.first().send(cancel);
        let answer = world.first().wait(waiting).await.unwrap();
        assert_eq!(answer.status(), Status::SUCCESS, "the change is lost");
    });
}
