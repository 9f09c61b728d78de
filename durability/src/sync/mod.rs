//! Everything that waits for the disk: the table of inodes, their syncs, and background work.
//!
//! - `table.rs` is the engine of a server: the inodes of all shares, each changed under its lock.
//! - `driver.rs` carries out the syncs of one inode for everybody who waits for one.
//! - `barrier.rs` puts an inode, its directories and outstanding moves (`moves.rs`) in order.
//! - `flusher.rs` syncs in the background what is dirty, by age, by bytes and by number.
//! - `unreachable.rs` knows the directories whose own name may be lost.
//! - `stored.rs` connects the engine to the stores of latches and of the journal.
//! - `guard.rs` suspends lazy policies while the host runs on battery.

mod barrier;
mod driver;
pub(crate) mod flusher;
mod guard;
mod moves;
mod stored;
mod table;
mod unreachable;

pub use guard::SetAside;
pub use table::Durability;
