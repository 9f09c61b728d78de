//! A FUSE file system that loses what was not synced, and fails when asked to.
//!
//! Beneath it is the simulator's own disk ([`vfs::sim::SimDisk`]: live and durable image,
//! profiles, power cuts, errors reported once): this crate only maps FUSE calls to it and adds
//! [`rules`], a frozen state after a cut, and a control socket ([`control`]). So the simulated
//! server and the real one are judged by one model.
//!
//! Nothing is cached by the kernel: files are opened with `FOPEN_DIRECT_IO`, names and attributes
//! are good for 0 s. `RWF_DSYNC` arrives as `O_DSYNC` in the flags of a write. Permissions are
//! checked by the kernel (`default_permissions`). No locks, no POSIX ACLs, no clones.
//!
//! The binary `faultfs` mounts it; see `control` for what its socket understands.

#![forbid(unsafe_code)]

pub mod control;
pub mod fs;
pub mod kind;
pub mod rules;
pub mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use world::World;

/// The file system's state, shared by the FUSE side and the control socket.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// Shares `world`.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    /// The state, for one step.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
