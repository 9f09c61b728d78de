//! NetBench's Enterprise Disk Mix.

pub mod client;
mod files;
pub mod mix;
pub mod operation;
pub mod worker;
