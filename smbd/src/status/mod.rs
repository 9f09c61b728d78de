//! The answers of the control socket in words for people, and the policy of an open explained.

pub(crate) mod changes;
pub(crate) mod check;
pub mod explain;
pub(crate) mod overview;
pub(crate) mod shares;
pub(crate) mod text;
