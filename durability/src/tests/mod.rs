//! Tests of the engine on a fake file system, under an executor that picks ready tasks at
//! random from a seed, in simulated time.

#![allow(unused_must_use)] // Receipts: what the tests look at is the disk.

mod again;
mod bound;
mod bursts;
mod captured;
mod costs;
mod damage;
mod ended;
mod fake;
mod flush;
mod guard;
mod held;
mod hung;
mod journals;
mod kept;
mod latch;
mod limits;
mod log_maps;
mod lost_directories;
mod lost_names;
mod moves;
mod opens;
mod planted;
mod policy_table;
mod promises;
mod properties;
mod repairs;
mod rows;
mod shares;
mod shorthand;
mod sim;
mod stores;
mod storing;
mod stress;
mod times;
