//! What must be stable before which reply.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod gate;
mod metrics;
mod policy;
mod receipt;
mod report;
mod settings;

pub use gate::{Durability, FlushTarget, Gate};
pub use metrics::{BUCKETS, Counters, HistogramView};
pub use policy::{Barriers, Event, Flushed, Meta, RequestFlags, Wait, barriers};
pub use receipt::Receipt;
pub use report::{Exposure, LatchedInode, Limits, StopReport};
pub use settings::{Bound, InvalidPolicy, Policy, ShareDurability, parse_bytes, parse_delay};
