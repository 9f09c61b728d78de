//! Describes for administrators which user acts as which local user on disk: for `check-config`, `user add`, the
//! log at the start and the banner.
//!
//! It follows the same rule as `smb_server`'s tokens: a server that runs as root is, for each request, the local
//! user to which its user is bound, or the guest account; any other server acts as its own user.

use std::{os::unix::fs::MetadataExt, path::Path};

use rustix::process::{getegid, geteuid};
use smb_auth::UserDb;
use vfs::posix::samba_xattr::sys_acl;

use crate::config::{Config, GuestAccount, LocalIds, ShareSettings, in_time};

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
                lines.extend(unwritable(share));
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

/// A warning if the owner of a share can make no files in its folder. `None` if that is not certain: the folder has an
/// access control list, or the owner may be a member of the folder's group, or the disk does not answer.
pub(crate) fn unwritable(share: &ShareSettings) -> Option<String> {
    let owner = share.owner.filter(|_| !share.read_only)?;
    let path = share.path.clone();
    let writable = in_time(&share.path, move || may_write(owner, &path))?;
    let (name, path) = (&share.name, share.path.display());
    let warning = || {
        format!(
            "warning: on share {name} nothing can be made: {path} may not be written by {owner} (`chown {owner}` it, \
             or choose another owner)"
        )
    };
    (!writable).then(warning)
}

/// Whether the permission bits of a folder, or something else that is not looked at, may let `ids` make files in it.
fn may_write(ids: LocalIds, folder: &Path) -> bool {
    /// The bits to write and to search, of any class.
    const MAKE: u32 = 0o3;
    let Ok(meta) = std::fs::metadata(folder) else {
        return true;
    };
    let class = match (meta.uid() == ids.uid, meta.gid() == ids.gid) {
        (true, _) => 6,
        (_, true) => 3,
        _ => 0,
    };
    let has = |class: u32| meta.mode() >> class & MAKE == MAKE;
    let by_group = meta.gid() != 0 && has(3);
    let has_acl = rustix::fs::getxattr(folder, sys_acl::ACCESS, &mut [0; 0][..]).is_ok();
    ids.uid == 0 || has(class) || by_group || has_acl
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

    #[test]
    fn a_folder_that_the_owner_of_its_share_cannot_write_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let text = format!("[[share]]\nname = \"s\"\npath = {path:?}\nowner = \"12345:12345\"\n");
        let warnings = |text: &str| {
            let config = crate::config::parse(text, Path::new("h.toml")).unwrap();
            config.shares.iter().find_map(unwritable)
        };
        let open_to = |mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
        open_to(0o705).unwrap();
        let warning = warnings(&text).unwrap();
        assert!(warning.contains("`chown 12345:12345`"), "{warning}");
        assert_eq!(warnings(&(text.clone() + "read_only = true\n")), None);
        open_to(0o707).unwrap();
        assert_eq!(warnings(&text), None);
        open_to(0o705).unwrap();
        let own = Server::here().own.to_string();
        assert_eq!(warnings(&text.replace("12345:12345", &own)), None);
    }
}
