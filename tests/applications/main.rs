//! One file per program: its sequence of requests, and the answers that it needs.
//!
//! Whereas `tests/commands` tests what one command does, a test here follows a program through a
//! whole action of its user and checks what the program, or the user, then relies on. The sequences
//! are those that clients of Windows, macOS and Linux are observed to send; if a program accepts
//! more than one answer, each of them is allowed. Every test starts a server of its own.

mod caching_client;
mod databases;
mod explorer;
mod finder;
mod linux;
mod office;
mod requests;
mod robocopy;
mod security_tab;
mod storage_groups;
