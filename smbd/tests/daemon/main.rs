//! The daemon from outside: what an administrator sets, asks and orders, with the real binary.

mod hosts;
mod kept;
mod limits;
mod metrics;
mod reload;
mod rules;
mod shutdown;
mod status;
mod support;
