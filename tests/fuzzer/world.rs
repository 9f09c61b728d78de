//! The two worlds that cases run in, as the cases see them: users, shares, names, connections, time.

use std::time::Duration;

use bytes::Bytes;

use crate::judge::Vault;

/// A user: name, password, uid and gid on disk.
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) password: &'static str,
    pub(crate) uid: u32,
}

/// The users. Each has a private share of his name.
pub(crate) const USERS: [User; 3] = [
    User {
        name: "ann",
        password: "Ann-pw-1",
        uid: 61_001,
    },
    User {
        name: "ben",
        password: "Ben-pw-2",
        uid: 61_002,
    },
    User {
        name: "cid",
        password: "Cid-pw-3",
        uid: 61_003,
    },
];

/// The share that all use, with private files among the others.
pub(crate) const COMMON: &str = "common";
/// The share that nobody can change.
pub(crate) const FIXED: &str = "fixed";
/// The file in it.
pub(crate) const FIXED_FILE: &str = "readable";

/// The text that is in every private file of a user, in the names of some, and nowhere else.
pub(crate) fn marker(user: usize) -> String {
    format!("~Mark-of-{}-5e1f~", USERS[user].name)
}

/// The content of a private file.
pub(crate) fn secret(user: usize) -> Vec<u8> {
    marker(user).repeat(200).into_bytes()
}

/// Private files in a user's own share. The folder's permissions are its owner's alone.
pub(crate) fn in_own_share(user: usize) -> [String; 2] {
    [
        format!("secret-{}", marker(user)),
        "plain-secret".to_owned(),
    ]
}

/// Private files in the common share: one by its permission bits, one by its descriptor alone, one
/// in a folder by its permission bits.
pub(crate) fn in_common(user: usize) -> [String; 3] {
    let name = USERS[user].name;
    [
        format!("{name}-secret"),
        by_descriptor(user),
        format!("{}/secret-{}", private_folder(user), marker(user)),
    ]
}

/// Whether a file in a private folder of `owner` is one that he makes and changes: everything of his
/// but what was there first. (A request whose tree is another than it was made for leaves any name.)
/// Files of somebody else have no business there.
pub(crate) fn is_changing(path: &str, uid: u32, owner: &User) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut users = 0..USERS.len();
    let is_secret = |user: usize| in_own_share(user).iter().any(|secret| secret == name);
    let secret = users.any(|user| USERS[user].uid == owner.uid && is_secret(user));
    uid == owner.uid && !secret
}

/// The one that a descriptor alone makes private.
pub(crate) fn by_descriptor(user: usize) -> String {
    format!("{}-described", USERS[user].name)
}

/// The private folder in the common share.
pub(crate) fn private_folder(user: usize) -> String {
    format!("{}-only", USERS[user].name)
}

/// The folder of the common share in which everybody may do everything.
pub(crate) const OPEN: &str = "open";

/// The result of a read from a connection.
pub(crate) enum Taken {
    Bytes(Bytes),
    Nothing,
    Ended,
}

/// The client's end of a connection; dropping it ends it.
pub(crate) trait Wire {
    /// Sends; false when the connection is gone.
    fn send(&mut self, bytes: Bytes) -> bool;
    /// Takes what has come, without waiting.
    fn take(&mut self) -> Taken;
}

/// A server and its folders.
pub(crate) trait World {
    /// Its connections.
    type Wire: Wire;

    /// A new connection.
    fn connect(&mut self) -> Option<Self::Wire>;
    /// Time since any moment.
    fn now(&self) -> Duration;
    /// The time of day as FILETIME.
    fn filetime(&self) -> u64;
    /// Lets the server work.
    async fn pause(&mut self, span: Duration);
    /// How long an answer may take that does not depend on others.
    fn patience(&self) -> Duration;
    /// How long an answer to ECHO on a new connection may take.
    fn echo_max(&self) -> Duration;
    /// Everything about the private files and the read-only share.
    async fn vault(&mut self) -> Vault;
}
