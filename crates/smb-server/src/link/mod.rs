//! Turns the bytes of a connection into requests and answers into bytes: framing, the credit window, received messages
//! (decrypted, split, verified) and messages to send (chained, signed, sealed).
//!
//! Everything here is plain functions over values, without waiting and without a clock.

pub(crate) mod credits;
pub(crate) mod inbound;
pub(crate) mod misbehaved;
pub(crate) mod outbound;
pub(crate) mod receive_buffer;
pub(crate) mod sealing;
