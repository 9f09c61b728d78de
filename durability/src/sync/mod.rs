//! Everything that waits for the disk: the table of inodes, their syncs, and background work.

mod barrier;
mod driver;
mod flusher;
pub(crate) mod planted;
mod stored;
mod table;

pub use table::Durability;
