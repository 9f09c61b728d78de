//! A client of SMB 2 and 3 for the verification and benchmark tools and for black-box tests.
//!
//! It has three layers, each usable alone: [`core::ClientCore`] turns requests into frames and
//! frames into events, without sockets, clock or randomness of its own; [`Connection`] drives it
//! over a blocking stream and lets requests be pipelined, compounded and deliberately corrupted;
//! [`Client`], [`Session`], [`Tree`] and [`File`] are the high-level interface.
//!
//! Invariants: a reply whose required signature or encryption is missing or wrong is an error,
//! never data; a nonce never repeats under a session key, not even across channels; message ids and
//! credits follow [MS-SMB2] 3.2.4.1.2 unless a request overrides them. Where a function says nothing else, its error is
//! the server's status, or any other [`ClientError`].
//!
//! It does not cache, does not resolve DFS paths and does not reconnect by itself.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]

pub mod core;

mod client;
mod connection;
mod create;
mod error;
mod file;
mod options;
mod request;
mod tree;

pub use client::{Client, Login, Session, connect_from};
pub use connection::Connection;
pub use create::{CreateArgs, Created};
pub use error::ClientError;
pub use file::File;
pub use options::{Encryption, MultiProtocol, Options, Signing};
pub use request::{Overrides, Request, RequestBody};
pub use tree::Tree;

pub use smb_auth::Credentials;

pub use crate::core::{Break, Negotiated, Reply, SessionSecret};
