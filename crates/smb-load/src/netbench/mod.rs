//! NetBench's Enterprise Disk Mix.

pub mod caching;
pub mod client;
mod content;
mod files;
pub mod mix;
pub mod operation;
mod queries;
pub mod replay;
pub mod script;
pub mod worker;
