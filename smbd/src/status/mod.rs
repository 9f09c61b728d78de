//! Answers the questions of administrators: `check-config`, and `status`, `reload`, `close` and `policy` of a running server.

pub mod inquiry;
