//! The daemon from outside: what an administrator sets, asks and orders, with the real binary.

mod accounts;
mod apart;
mod balance;
mod close;
mod failed_start;
mod failing;
mod hosts;
mod kept;
mod limits;
mod log;
mod metrics;
mod reload;
mod revocation;
mod rules;
mod sandbox;
mod schema;
mod shutdown;
mod status;
mod support;
mod unread;

use support::loop_mount;
