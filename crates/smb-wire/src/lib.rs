//! The bytes of SMB 2 and 3, and nothing else.
//!
//! Owns the layouts of MS-SMB2 section 2.2 (headers, messages, negotiate and create contexts,
//! transform and compression headers), the little of SMB1 a multi-protocol NEGOTIATE needs, and
//! the payloads carried inside (`fscc`, `dtyp`, `fsctl`, `rpc`).
//!
//! Invariants: decoding checks bounds and fixed values only, holds no policy, never panics and
//! allocates only in proportion to its input; numbers nobody told us about survive decoding
//! (see the newtypes made by `enum_of_the_wire!` and `flags_of_the_wire!`).
//!
//! It does no I/O, knows no clock, and depends on no other crate of ours.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

#[macro_use]
mod macros;

pub mod access_mask;
pub mod codec;
pub mod compound;
pub mod compression;
pub mod create_context;
pub mod file_attributes;
pub mod header;
pub mod ids;
pub mod msg;
pub mod negotiate_context;
pub mod smb1;
pub mod status;
pub mod transform;
pub mod utf16;

pub mod dtyp;
pub mod fscc;
pub mod fsctl;
pub mod rpc;

#[cfg(test)]
mod testing;

pub use codec::Malformed;
pub use header::{Command, Header, HeaderFlags};
pub use status::Status;
