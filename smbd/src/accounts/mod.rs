//! The user database: the file, its meaning, where passwords come from, and which local user an account acts as.

pub(crate) mod acting;
pub mod password;
pub mod user_file;
pub mod users;
