//! NetBench's Enterprise Disk Mix.

pub mod client;
mod files;
pub mod mix;
pub mod operation;
mod random;
mod share;
pub mod worker;
