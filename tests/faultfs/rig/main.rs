//! The real daemon on a file system that loses what was not synced and fails when asked to.
//!
//! Needs root and /dev/fuse; without them each test says `missing: ...` and passes, unless
//! `HOLDFAST_REQUIRE_ROOT=1`. `FAULTFS_CASES=N` and `FAULTFS_SEED=N` make longer and other runs of
//! the power cuts, `FAULTFS_ALL=1` fails every call and not a sample, `FAULTFS_TRACE=1` says what
//! each case did, `FAULTFS_ERRORS=1` lets syncs fail before the power does.

mod cuts;
mod failed_sync;
mod mount;
mod player;
mod recorder;
mod refused;
mod server;
mod slow_sync;
mod snapshot;
mod space;
mod unclean;
mod view;
mod workload;

use std::time::Duration;

use smb_client::{ClientError, CreateArgs, File, Tree};
use smb_wire::Status;

use mount::Mount;
use server::Server;

/// A mount and a server of it. Nothing runs yet.
struct Rig {
    // Dropped first: it holds the mount.
    server: Server,
    mount: Mount,
}

impl Rig {
    /// With these lines in `[server]` and in the share's table. `None`, said, where it cannot be.
    fn new(server: &str, share: &str) -> Option<Self> {
        if !mount::possible() {
            return None;
        }
        let mount = Mount::new();
        Some(Self {
            server: Server::prepare(&mount.path).with(server, share),
            mount,
        })
    }

    /// The same, started.
    fn started(server: &str, share: &str) -> Option<Self> {
        let mut this = Self::new(server, share)?;
        this.server.start();
        Some(this)
    }

    /// Kills the server and starts it anew.
    fn restart(&mut self) {
        self.server.kill();
        self.server.start();
    }
}

/// How a request ended; SUCCESS when it gave something.
#[track_caller]
fn status<T>(result: Result<T, ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(ClientError::Status(status)) => status,
        Err(other) => panic!("{other}"),
    }
}

/// A file, made if it is not there.
#[track_caller]
fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

/// Long enough for whatever should happen soon.
const SOON: Duration = Duration::from_secs(10);
