//! Everything that waits for the disk: the table of inodes, their syncs, and background work.
//!
//! - `table.rs` is the engine of a server: the inodes of all shares, each changed under its lock.
//! - `driver.rs` carries out the syncs of one inode for all requests that wait for one.
//! - `barrier.rs` puts an inode, its directories and outstanding renames in order.
//! - `flusher.rs` syncs in the background what is dirty, by age, by bytes and by number.
//! - `planted.rs` has the faults of the engine that the tests must find.
//! - `stored.rs` connects the engine to the stores of latches and of the journal.

mod barrier;
mod driver;
mod flusher;
pub(crate) mod planted;
mod stored;
mod table;

pub use table::Durability;
