//! What administrators ask: `check-config`, and `status`, `reload`, `close` and `policy` of a running server.

pub mod inquiry;
