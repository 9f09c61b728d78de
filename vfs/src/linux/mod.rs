//! A real disk: plain system calls, the ring of the polling thread if it has one, and a pool of threads.
//!
//! Data and names in memory are answered on the calling thread: reads that succeed with `RWF_NOWAIT`, opens and queries
//! that succeed with `RESOLVE_CACHED`, and attributes of inodes that are open. That is cheaper than any ring. Cold
//! reads and writes go to the thread's ring ([`crate::uring`]). Everything else that may wait for the device, and
//! everything on a thread without a ring or when the ring is full, runs on the process's pool ([`pool`]), on which
//! syncs have separate threads.
//!
//! Syncs and durable writes never go to the ring: there they would merge into fewer flushes no better than on the pool,
//! and would occupy its few kernel threads. File systems behind a network or another process have the pool only, and
//! no more of the ring's kernel threads wait for one of the others than their part (`uring/kernel_threads.rs`).
//! Extended attributes are read inline: a lookup that had to wait for the device has read their block along with the
//! inode.
//!
//! This disk needs Linux 5.6 or later.

mod calls;
mod class;
mod disk;
mod fd;
mod file_system;
mod in_memory;
mod names;
mod opens;
mod operations;
mod own_changes;
pub mod pool;
mod removed;
mod super_block;
mod syncs;
#[cfg(test)]
mod tests;
pub mod trap;
mod xattrs;
mod xfs_log;

pub use class::is_local_name;
pub use disk::LinuxDisk;
pub use fd::LinuxFd;
pub use own_changes::{InodeId, InodeState, OwnChanges};
pub use super_block::{FsIdentity, SuperBlock};

pub use crate::posix_sys::set_receive_low_water;
