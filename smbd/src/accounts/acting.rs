//! Describes for administrators which user acts as which local user on disk: for `check-config`, `user add`, the
//! log at the start and the banner.
//!
//! It follows the same rule as `smb_server`'s tokens: a server that runs as root is, for each request, the local
//! user to which its user is bound, or the guest account; any other server acts as its own user.

use rustix::process::{getegid, geteuid};
use smb_auth::UserDb;

use crate::config::{Config, GuestAccount, LocalIds};

/// The most users that are named; a line says how many more there are.
const USERS_MAX: usize = 100;

/// The identity of this process on disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) own: LocalIds,
}

impl Server {
    pub(crate) fn here() -> Self {
        Self {
            own: LocalIds {
                uid: geteuid().as_raw(),
                gid: getegid().as_raw(),
            },
        }
    }

    /// Whether identities are switched.
    pub(crate) fn is_root(self) -> bool {
        self.own.uid == 0
    }

    /// The local user as which a user bound to `owner` acts.
    pub(crate) fn user(self, owner: Option<(u32, u32)>, guest: &GuestAccount) -> String {
        let owner = owner.map(|(uid, gid)| LocalIds { uid, gid });
        match (self.is_root(), owner) {
            (true, Some(owner)) => in_words(owner),
            (true, None) => format!("the guest account, {}", guest_in_words(guest)),
            (false, Some(owner)) if owner.uid != self.own.uid => format!(
                "the server itself, {}: only a server that runs as root can be {owner}",
                self.own
            ),
            (false, _) => format!("the server itself, {}", self.own),
        }
    }

    /// All that an administrator should know of a configuration and its users.
    pub(crate) fn lines(self, config: &Config, users: &UserDb) -> Vec<String> {
        let guest = &config.server.guest_account;
        let mut lines = Vec::new();
        for share in &config.shares {
            if let Some(owner) = share.owner {
                lines.push(format!(
                    "on share {} everybody acts as {}",
                    share.name,
                    in_words(owner)
                ));
            } else if share.guest {
                let guests = self.user(None, guest);
                lines.push(format!("on share {} guests act as {guests}", share.name));
            }
        }
        for user in users.users().take(USERS_MAX) {
            let acts_as = self.user(user.uid_gid, guest);
            lines.push(format!("user {} acts as {acts_as}", user.name));
        }
        let more = users.users().count().saturating_sub(USERS_MAX);
        if more > 0 {
            lines.push(format!("{more} more users: holdfast user list"));
        }
        lines
    }
}

/// The ids in words, with a warning if they are root's.
pub(crate) fn in_words(ids: LocalIds) -> String {
    let root = if ids.uid == 0 {
        ": ROOT, for whom no permission of a file counts"
    } else {
        ""
    };
    format!("{ids}{root}")
}

fn guest_in_words(guest: &GuestAccount) -> String {
    match &guest.name {
        Some(name) => format!("{name} ({})", guest.ids),
        None => in_words(guest.ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(name: Option<&str>, id: u32) -> GuestAccount {
        GuestAccount {
            name: name.map(str::to_owned),
            ids: LocalIds { uid: id, gid: id },
        }
    }

    fn server(id: u32) -> Server {
        let own = LocalIds { uid: id, gid: id };
        Server { own }
    }

    #[test]
    fn each_user_acts_as_somebody() {
        let nobody = guest(Some("nobody"), 65_534);
        let root = |owner| server(0).user(owner, &nobody);
        assert_eq!(root(Some((1000, 100))), "1000:100");
        assert!(root(Some((0, 0))).contains("0:0: ROOT"));
        assert_eq!(root(None), "the guest account, nobody (65534:65534)");
        assert!(server(0).user(None, &guest(None, 0)).contains("ROOT"));
        let plain = |owner| server(1000).user(owner, &nobody);
        for own in [None, Some((1000, 1000))] {
            assert_eq!(plain(own), "the server itself, 1000:1000");
        }
        assert!(plain(Some((5, 5))).contains("runs as root can be 5:5"));
    }
}
