//! The error that ends a command, or that an administrator gets as an answer.
//!
//! Its words are for people: the reason, and after `\n  = ` a way out. It keeps the error that it was made of, but no
//! code depends on it: an error that code examines has a type of its own.

use std::fmt;

/// An [`Err`] with a reason, written as for `format!`.
macro_rules! fail {
    ($($reason:tt)+) => {
        Err($crate::Error::from(format!($($reason)+)))
    };
}

/// The reason why a command or a request failed, in words.
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Error {
    fn from(reason: E) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}
