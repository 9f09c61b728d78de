//! The user database: the file, its meaning, the sources of passwords, and the local user as which an account acts.

pub(crate) mod acting;
pub mod password;
pub mod user_file;
pub mod users;
