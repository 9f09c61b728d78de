//! Makes the shares of the server from those of a configuration: opens their folders, and keeps what stays the same.
//!
//! Everything here may wait for a disk; nothing is put into force.

use std::{io, path::Path, sync::Arc};

use durability::{Durability, Gate};
use rustix::{
    fs::{Access, AtFlags, CWD, Mode, OFlags, accessat},
    io::Errno,
};
use smb_auth::UserDb;
use smb_server::{Share, Shares, config::ShareConfig};
use vfs::{
    Volume,
    linux::{LinuxDisk, OwnChanges},
    posix::{AclNamespace, PosixVfs, StreamStore, SymlinkPolicy, name::DEPOT},
};

use super::promises;
use crate::{
    config::{self, Config},
    host_vfs::{HostVfs, apart},
    runtime::settings,
};

/// The state from which a reload starts.
pub(super) struct Before<'a> {
    pub(super) shares: Arc<Shares<HostVfs>>,
    pub(super) config: &'a [config::ShareSettings],
    /// Shares whose paths lead to other folders than those that are served.
    pub(super) replaced: &'a [String],
    /// The highest number that a share was given.
    pub(super) numbers: u32,
}

/// The shares made from a configuration.
pub(super) struct Built {
    pub(super) shares: Shares<HostVfs>,
    /// Gates that sessions use already, with their new settings.
    pub(super) changed: Vec<(Arc<Gate<HostVfs>>, config::ShareSettings)>,
    /// Gates of new shares, which may have the settings of an earlier share of that name.
    pub(super) fresh: Vec<(Arc<Gate<HostVfs>>, config::ShareSettings)>,
    /// The highest number that a share was given.
    pub(super) numbers: u32,
}

/// Opens the folders and names the shares. A share that stays and shows no less keeps its number, and so the file
/// engine's state of its opens; if the options of its files are the same, it also keeps its file system and its gate.
pub(super) fn build_shares(
    config: &Config,
    users: &UserDb,
    durability: &Arc<Durability<HostVfs>>,
    use_ring: bool,
    own: &Arc<OwnChanges>,
    before: &Before<'_>,
) -> io::Result<Built> {
    promises::check_groups(config, users)?;
    let hidden = settings::hidden(config);
    let mut next = before.numbers;
    let mut built = Built {
        shares: Shares::default(),
        changed: Vec::new(),
        fresh: Vec::new(),
        numbers: 0,
    };
    let mut shares = Vec::new();
    for share in &config.shares {
        let known = before.shares.find(&share.name);
        let was = before.config.iter().find(|was| was.name == share.name);
        let known = known.zip(was);
        if let Some((known, _)) = known {
            let gate = Arc::clone(&known.gate);
            built.changed.push((gate, share.clone()));
        }
        let same_folder = |was: &config::ShareSettings| {
            was.path == share.path && !before.replaced.contains(&share.name)
        };
        let id = match known {
            Some((known, was)) if same_folder(was) && !shows_less(was, share) => known.id,
            _ => {
                next += 1;
                next
            }
        };
        let (vfs, gate) = match known {
            Some((known, was))
                if same_folder(was)
                    && settings::same_files(was, share)
                    && known.vfs.options().hidden == hidden =>
            {
                (Arc::clone(&known.vfs), Arc::clone(&known.gate))
            }
            _ => {
                let vfs = Arc::new(open_folder(share, &hidden, use_ring, own)?);
                let gate = durability.share(&share.name, Arc::clone(&vfs), share.durability);
                if known.is_none() {
                    let gate = Arc::clone(&gate);
                    built.fresh.push((gate, share.clone()));
                }
                (vfs, gate)
            }
        };
        shares.push(Arc::new(Share {
            config: ShareConfig {
                folder: vfs.root().fd().path(),
                ..settings::share(share, users)?
            },
            vfs,
            gate,
            id,
        }));
    }
    let late = config.late.iter().map(|share| share.name.as_str());
    built.shares = Shares::new(shares).with_late(late);
    built.numbers = next;
    Ok(built)
}

/// Whether a share now keeps something from its users that it has shown so far. Then their tree connects end, because a
/// tree connect keeps the settings of the time when it was made.
fn shows_less(was: &config::ShareSettings, now: &config::ShareSettings) -> bool {
    let listings = now.access_based_enumeration && !was.access_based_enumeration;
    let links = now.symlinks != was.symlinks && now.symlinks != SymlinkPolicy::Follow;
    listings || links
}

fn open_folder(
    share: &config::ShareSettings,
    hidden: &[(u64, u64)],
    use_ring: bool,
    own: &Arc<OwnChanges>,
) -> io::Result<HostVfs> {
    let path: &Path = &share.path;
    let failed = |error: String| {
        io::Error::other(format!("share {}: {}: {error}", share.name, path.display()))
    };
    let opened = LinuxDisk::open(path).map_err(io::Error::from);
    let disk = opened
        .and_then(|disk| may_change(share).map(|()| disk))
        .map_err(|error| failed(opening(error)))?
        .with_rings(use_ring)
        .reporting_to(Arc::clone(own));
    if share.streams == StreamStore::Xattr && path.join(DEPOT).is_dir() {
        tracing::warn!(
            "share {}: {DEPOT} holds named streams; they are served, and new ones go to attributes. \
             Samba shows those of one place only: say streams = \"depot\", or let \
             `holdfast convert-streams` move them",
            share.name
        );
    }
    let options = settings::files(share, hidden);
    let name = share.name.clone();
    let opened = move || async move {
        if options.acl == AclNamespace::Security && !AclNamespace::is_writable(&disk).await {
            tracing::warn!(
                "share {name}: this process may set no attributes of security. there (as root it needs CAP_SYS_ADMIN), so \
                 clients can store no security descriptors, and users without an owner can make no files: give it that \
                 capability, or run it as another user"
            );
        }
        PosixVfs::new(disk, options).await
    };
    apart(opened).map_err(|error| failed(error.to_string()))
}

/// Fails where permission bits let the process change something in the folder of a share and Landlock does not: the
/// folder took the place of another, below that of the configuration file, where everything may be read. File systems
/// without files that have no name are not asked.
fn may_change(share: &config::ShareSettings) -> io::Result<()> {
    let path = &share.path;
    let change = Access::WRITE_OK | Access::EXEC_OK;
    if share.read_only || accessat(CWD, path, change, AtFlags::EACCESS).is_err() {
        return Ok(());
    }
    let nameless = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::open(path, nameless, Mode::RUSR | Mode::WUSR) {
        Err(error @ Errno::ACCESS) => Err(error.into()),
        _ => Ok(()),
    }
}

/// An error of opening a folder, in words.
fn opening(error: io::Error) -> String {
    match error.kind() {
        // Landlock names folders by their inodes, and one that was made or mounted there later has another.
        io::ErrorKind::PermissionDenied => format!(
            "{error}\n  = the service must be allowed to open it; if it was made or mounted there after the start, \
             restart the server (not needed where `folders` of [sandbox] names the folder above)"
        ),
        io::ErrorKind::NotFound if !Path::new("/proc/self/fd").exists() => {
            "/proc, through which the server opens files, is not mounted\n  = mount -t proc proc /proc, in a chroot \
             within it"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// The object at the path of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtPath {
    /// The folder that is served, as far as its disk answers.
    Served,
    Other,
    Nothing,
}

/// Compares the object at the path of a share with the folder that is served.
pub(super) fn at_path(vfs: &Arc<HostVfs>, path: &Path) -> AtPath {
    let (served, folder) = (Arc::clone(vfs), path.to_owned());
    let found = config::in_time(path, move || {
        let root = served.root();
        let served = rustix::fs::fstat(root.fd()).ok()?;
        match rustix::fs::stat(&folder) {
            Ok(there) if (served.st_dev, served.st_ino) == (there.st_dev, there.st_ino) => None,
            Ok(_) => Some(AtPath::Other),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(AtPath::Nothing),
            Err(_) => None,
        }
    });
    found.flatten().unwrap_or(AtPath::Served)
}
