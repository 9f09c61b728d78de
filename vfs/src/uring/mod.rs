//! The ring of a thread: io_uring, for the operations that wait for the device.
//!
//! [`UringWorker`] makes the ring and its owner drives it; `local` is how a disk finds it. Descriptors are held open
//! by the operation that uses them. Operations on names run under the user's registered personality.

mod operations;
#[allow(unsafe_code)] // The ring's memory.
mod sys;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use sys::OpenNumbers;
pub use worker::{PERSONALITIES_MAX, Reason, UringOptions, UringWorker, on_park, probe};
pub(crate) use worker::{ThreadRing, local};
