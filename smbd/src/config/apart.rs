//! Checks that shares do not contain the server's own files: the state folder with its control socket, the user file,
//! the configuration file.
//!
//! Paths are compared as the kernel resolves them, and each folder above them by device and inode, so that neither
//! links nor bind mounts hide one in the other. A path that does not exist yet counts as being in its nearest
//! existing folder. A file of the server that later comes to be inside a share is hidden from clients by the file
//! system that serves it (`vfs::posix::PosixOptions::hidden`).

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Config, ServerSettings, in_time::in_time};
use crate::Error;

/// Links that are followed on one path. The kernel follows no more.
const LINKS_MAX: usize = 40;

/// A path without links, and the folders on it, each by device and inode: those from its end up to the root, and those
/// above each link that leads to it, which leads elsewhere as soon as somebody replaces it there. Folders that do not
/// exist are left out.
struct Ancestors {
    path: PathBuf,
    folders: Vec<(u64, u64)>,
}

impl Ancestors {
    fn to(path: &Path) -> Self {
        let mut searched = Vec::new();
        let path = resolved(path, |folder| {
            searched.extend(folder.ancestors().filter_map(inode));
        });
        let folders = path.ancestors().filter_map(inode).chain(searched).collect();
        Self { path, folders }
    }

    /// Whether `folder` is this path's end or one of the folders on it.
    fn passes(&self, folder: &Self) -> bool {
        self.path.starts_with(&folder.path)
            || inode(&folder.path).is_some_and(|inode| self.folders.contains(&inode))
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// `path` with every link resolved, as far as it exists. `searched` gets each folder in which a name of it, or of a
/// link that leads to it, is found.
fn resolved(path: &Path, mut searched: impl FnMut(&Path)) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut done, mut links) = (PathBuf::new(), 0);
    let mut rest = names(&path);
    while let Some(name) = rest.pop() {
        match name.to_str() {
            Some(".") => continue,
            Some("..") => {
                done.pop();
                continue;
            }
            _ => {}
        }
        searched(&done);
        done.push(&name);
        if links < LINKS_MAX
            && let Ok(target) = fs::read_link(&done)
        {
            links += 1;
            done.pop();
            rest.extend(names(&target));
        }
    }
    done
}

/// The names of a path, the first one last.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names.map(|name| name.as_os_str().to_owned()).collect()
}

/// Whether neither of two folders lies in the other.
pub fn are_apart(one: &Path, other: &Path) -> bool {
    let (one, other) = (Ancestors::to(one), Ancestors::to(other));
    !one.passes(&other) && !other.passes(&one)
}

/// The files that must not be reachable through a share.
pub(super) struct OwnFiles {
    state_dir: PathBuf,
    users_file: PathBuf,
    /// The configuration file: a user who can change it decides which folders are served, and under which identity.
    config_file: Option<PathBuf>,
}

impl OwnFiles {
    pub(super) fn of(server: &ServerSettings, config_file: Option<PathBuf>) -> Self {
        Self {
            state_dir: server.state_dir.clone(),
            users_file: server.users_file.clone(),
            config_file,
        }
    }

    /// As [`OwnFiles::exposed`]; nothing of a share whose disk does not answer.
    pub(super) fn exposed_in_time(
        self,
        folder: &Path,
        read_only: bool,
    ) -> Option<(String, &'static str)> {
        let path = folder.to_owned();
        in_time(folder, move || self.exposed(&path, read_only)).flatten()
    }

    /// The secret that a share of `folder` would expose, and how to avoid that.
    fn exposed(&self, folder: &Path, read_only: bool) -> Option<(String, &'static str)> {
        let share = Ancestors::to(folder);
        let state = Ancestors::to(&self.state_dir);
        let shown = |path: &Path| path.display().to_string();
        let (folder, dir) = (shown(folder), shown(&self.state_dir));
        if state.passes(&share) {
            let why = "with its control socket and the hashes of passwords";
            return Some((
                format!("{folder} contains the state folder {dir}, {why}"),
                STATE,
            ));
        }
        if share.passes(&state) {
            return Some((format!("{folder} lies in the state folder {dir}"), STATE));
        }
        if Ancestors::to(&self.users_file).passes(&share) {
            let file = shown(&self.users_file);
            let why = "which holds hashes that are as good as passwords";
            return Some((
                format!("{folder} contains the user file {file}, {why}"),
                USERS,
            ));
        }
        let file = self.config_file.as_ref().filter(|_| !read_only)?;
        Ancestors::to(file).passes(&share).then(|| {
            let message = format!(
                "{folder} contains this configuration file: anybody who can change it through the \
                 share decides what is served, and under which identity"
            );
            (message, CONFIG)
        })
    }
}

/// The advice for an administrator with a configuration file.
pub(super) const STATE: &str = "set state_dir in [server] to a folder outside every share, or serve folders \
                     beside it";
const USERS: &str = "set users_file in [server] to a file outside every share";
const CONFIG: &str = "move the file out of the share, or set read_only = true for the share";
/// The advice for an administrator without a configuration file.
pub(super) const WITHOUT_FILE: &str = "serve folders beside it, or set XDG_STATE_HOME to one that \
                                       is not served";

/// Checks the same for a configuration whose state folder was replaced by that of the running server.
///
/// # Errors
/// The first share that would expose something.
pub(crate) fn check_all(config: &Config) -> Result<(), Error> {
    for share in &config.shares {
        let own = OwnFiles::of(&config.server, None);
        if let Some((message, _)) = own.exposed_in_time(&share.path, share.read_only) {
            return fail!(
                "share {}: {message}; the server uses that state folder until it is restarted\n  = \
                 restart the server, or leave state_dir as it was",
                share.name
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for folder in ["srv/data", "srv/state", "etc"] {
                fs::create_dir_all(place.at(folder)).unwrap();
            }
            place
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// The secret that a share of `folder` exposes.
        fn exposed(&self, folder: &str, state: &str, users: &str) -> Option<String> {
            let own = OwnFiles {
                state_dir: self.at(state),
                users_file: self.at(users),
                config_file: Some(self.at("etc/h.toml")),
            };
            own.exposed(&self.at(folder), false)
                .map(|(message, _)| message)
        }
    }

    #[test]
    fn neither_lies_in_the_other() {
        let place = Place::new();
        let state = |share, state| place.exposed(share, state, "etc/users");
        assert_eq!(state("srv/data", "srv/state"), None);
        for (share, kept) in [
            ("srv", "srv/state"),
            ("srv/state", "srv/state"),
            ("srv/data", "srv/data/.local/state/holdfast"),
            ("srv/data", "srv/none/../data/state"),
        ] {
            let said = state(share, kept).unwrap();
            assert!(said.contains("contains the state folder"), "{said}");
        }
        let said = state("srv/data", "srv").unwrap();
        assert!(said.contains("lies in the state folder"), "{said}");
        // A name with the same beginning is a different one.
        fs::create_dir(place.at("srv/data-2")).unwrap();
        assert_eq!(state("srv/data", "srv/data-2"), None);
        assert!(are_apart(&place.at("srv/data"), &place.at("srv/data-2")));
        assert!(!are_apart(&place.at("srv"), &place.at("srv/data")));
    }

    #[test]
    fn the_files_lie_outside_too() {
        let place = Place::new();
        let said = place.exposed("srv/data", "srv/state", "srv/data/users");
        assert!(said.unwrap().contains("contains the user file"));
        let said = place.exposed("etc", "srv/state", "srv/users");
        assert!(said.unwrap().contains("this configuration file"));
    }

    /// A client could replace the link.
    #[test]
    fn a_link_in_a_share_to_elsewhere_is_no_way_to_a_secret() {
        let place = Place::new();
        symlink(place.at("etc"), place.at("srv/data/out")).unwrap();
        fs::write(place.at("etc/users"), "").unwrap();
        symlink(place.at("etc/users"), place.at("srv/data/users")).unwrap();
        let said = place.exposed("srv/data", "srv/data/out/state", "etc/users");
        assert!(said.unwrap().contains("contains the state folder"));
        let said = place.exposed("srv/data", "srv/state", "srv/data/users");
        assert!(said.unwrap().contains("contains the user file"));
        // The other way round nothing is exposed.
        symlink(place.at("srv/data"), place.at("etc/data")).unwrap();
        assert_eq!(place.exposed("etc/data", "srv/state", "srv/users"), None);
    }

    /// One link leads to the folder of the next one, or to the next one itself.
    #[test]
    fn a_link_deep_in_a_share_is_no_way_to_a_secret_either() {
        let place = Place::new();
        fs::create_dir(place.at("srv/data/deep")).unwrap();
        symlink(place.at("etc"), place.at("srv/data/deep/out")).unwrap();
        symlink(place.at("srv/data/deep"), place.at("in")).unwrap();
        symlink("srv/data/deep/out", place.at("chain")).unwrap();
        for state in ["in/out/state", "chain/state"] {
            let said = place.exposed("srv/data", state, "etc/users").unwrap();
            assert!(said.contains("contains the state folder"), "{said}");
        }
    }

    #[test]
    fn links_lead_where_they_lead() {
        let place = Place::new();
        symlink(place.at("srv/data"), place.at("link")).unwrap();
        symlink("none/deep", place.at("srv/dangling")).unwrap();
        let state = |share, state| place.exposed(share, state, "etc/users");
        assert!(state("srv/data", "link/state").is_some());
        assert!(state("link", "srv/data/state").is_some());
        assert!(state("link", "srv/state/../data").is_some());
        assert_eq!(state("srv/data", "srv/dangling/state"), None);
    }
}
