//! Between the bytes of a connection and its requests: framing, the credit window, what came in
//! (decrypted, split, verified), what goes out (chained, signed, sealed).
//!
//! Everything here is a kernel: plain functions over values, no waiting, no clock.

pub(crate) mod credits;
pub(crate) mod inbound;
pub(crate) mod misbehaved;
pub(crate) mod outbound;
pub(crate) mod receive_buffer;
pub(crate) mod sealing;
