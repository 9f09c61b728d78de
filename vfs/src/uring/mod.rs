//! The io_uring ring of a thread, for reads and writes that wait for the device.
//!
//! [`UringWorker`] makes the ring and its owner drives it; a disk finds it by `local`. The operation that uses a
//! descriptor keeps it open. Only reads and writes are made here, for which the kernel checks no identity.

mod kernel_threads;
mod operations;
#[allow(unsafe_code)] // The ring's memory.
mod sys;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use sys::HeldFd;
pub use worker::{Reason, UringOptions, UringWorker, probe};
pub(crate) use worker::{ThreadRing, local};
