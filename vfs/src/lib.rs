//! The file system beneath the protocol: the [`Vfs`] contract, the POSIX back end over [`Disk`], and the two
//! disks (Linux and simulated).
//!
//! This crate owns names on disk, inodes, streams, extended attributes in Samba's formats, identity on disk, and
//! the calls that make data stable. It knows no SMB message, share modes, oplocks or policies. It does not decide
//! *when* something must be stable; `durability` does.
//!
//! It names no runtime: the caller that polls the futures provides time and threads.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]
#![cfg_attr(not(test), deny(clippy::iter_over_hash_type))]

pub mod attr;
#[cfg(test)]
mod conformance;
mod credentials;
pub mod disk;
pub mod env;
pub mod error;
mod fold;
mod hash;
pub mod identity;
mod inode_locks;
pub mod linux;
mod lock;
pub mod posix;
#[allow(unsafe_code)] // The system calls that rustix lacks.
#[path = "posix/sys.rs"]
pub(crate) mod posix_sys;
pub mod requester;
mod shown;
pub mod sim;
#[cfg(test)]
pub(crate) mod testing;
mod types;
pub mod uring;
mod vfs;

pub use attr::{Attr, FileKey, FsInfo, Kind, SetAttr, StreamInfo, Timestamp};
pub use credentials::{begin_thread, give_up_set_ids};
pub use disk::Disk;
pub use env::Env;
pub use error::VfsError;
pub use fold::{fold, fold_char};
pub use identity::Identity;
pub use lock::lock;
pub use shown::shown;
pub use types::*;
pub use vfs::*;
