//! Tests over all messages: captured bytes both ways, round trips of made-up values, and
//! rubbish, which must be refused or read but never panic.

mod captured;
mod data;
mod lease_break;
mod round_trip;
mod rubbish;
mod strategies;
