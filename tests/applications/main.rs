//! One file per program: what it puts on the wire, step by step, and what it needs as the answer.
//!
//! Where `tests/commands` asks what one command does, a test here follows a program through a
//! whole action of its user and judges by what the program, or the user, then relies on. The
//! sequences are those that clients of Windows and macOS are seen to send; where a program goes on after
//! more than one answer, each of them is allowed. Every test starts a server of its own.

mod databases;
mod explorer;
mod finder;
mod office;
mod requests;
mod robocopy;
mod security_tab;
