//! Tests of all messages: captured bytes in both directions, round trips of random values, and
//! invalid bytes, which must be refused or decoded but never cause a panic.

mod captured;
mod contexts;
mod data;
mod lease_break;
mod round_trip;
mod rubbish;
mod strategies;
