//! The `holdfast` binary.
#![forbid(unsafe_code)]

fn main() {}
