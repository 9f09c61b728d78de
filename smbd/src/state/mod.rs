//! Everything that outlives the process: the state folder, its stores, and the work after an unclean end.

pub mod atomic;
pub mod flush_journal;
pub(crate) mod latches;
pub(crate) mod persistent_store;
pub(crate) mod recovery;
pub(crate) mod sentinel;
pub mod state_dir;
pub(crate) mod stores;
