//! The server's state, and the order in which it may be locked.
//!
//! Nouns and fields are those of [MS-SMB2] 3.3.1: `Server` (global), `Session`, `TreeConnect`, `Open`, `Channel`.
//! The state of one connection lives in `connection.rs` without any lock.
//!
//! The lock order is server maps, session tables, open, file engine. No two of the server's maps are locked at once,
//! and no lock is held over an await.

pub(crate) mod archive;
pub(crate) mod breaks;
mod change_times;
pub(crate) mod close;
pub(crate) mod disconnected;
mod durable;
mod ender;
mod host_changes;
mod ids;
mod large_listings;
mod log_throttle;
mod name_turns;
pub(crate) mod notices;
mod open;
mod origin;
mod quota;
pub(crate) mod records;
mod requests;
mod sequence;
mod server;
mod session;
mod setup;
mod share;

pub(crate) use change_times::ChangeTimes;
pub(crate) use durable::{Durables, Keeping, Known};
pub(crate) use ender::{EndReason, Ender, ParkedRequest, ParkedRequests};
pub(crate) use ids::ConnectionId;
pub(crate) use large_listings::LargeListings;
pub(crate) use log_throttle::{Due, LineAbout, LogThrottle, line_due, share_line_due};
pub(crate) use name_turns::{NameTurns, Renaming, STILL_MAX, Still};
pub(crate) use open::{
    At, DirectoryCursor, Disk, InFlight, KeepsTimes, NewOpen, Open, OpenKind, need,
};
pub(crate) use origin::{AppInstance, Endurance, LeaseName, Origin};
pub(crate) use quota::{Quota, QuotaPlace, QuotaUser};
pub(crate) use requests::COMMANDS;
pub use requests::{CommandCount, Requests};
pub(crate) use sequence::ChannelSequence;
pub use server::Server;
pub(crate) use server::{Login, Mail, Peer};
pub(crate) use session::{Channel, Session, Terms, TreeConnect};
pub(crate) use setup::{Purpose, Setup};
pub use share::{Share, Shares};
