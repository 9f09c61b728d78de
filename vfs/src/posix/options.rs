//! The administrator's choices for one share's files.
//!
//! These are plain values that the daemon fills in.

use std::path::PathBuf;

use serde::Deserialize;

use crate::{
    Identity,
    disk::{Disk, XattrSet},
    env::{Clock, Pause},
};

/// An attribute that no file has.
const PROBE: &str = "security.NTACL.probe";

/// The treatment of symbolic links; a configuration has these names, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SymlinkPolicy {
    /// Followed by the server itself, component by component, as long as they stay within the
    /// share; a target that leaves the root is refused (`SymbolicLink`).
    #[default]
    Follow,
    /// Neither listed nor found.
    Hide,
    /// Listed by name; every use is refused (`SymbolicLink`).
    Refuse,
}

/// The namespace in which security descriptors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AclNamespace {
    /// `security.NTACL`, as Samba has it: only root may write it, so users of the host cannot
    /// forge one.
    #[default]
    Security,
    /// `user.NTACL`: for a server that is not root. A user who may write the file may forge
    /// it.
    User,
}

impl AclNamespace {
    /// Whether this process may write `security.` attributes on a disk. That needs CAP_SYS_ADMIN outside of every user
    /// namespace, which root in a container does not have. Nothing is stored: the kernel checks the right before it
    /// finds that there is no such attribute to be replaced.
    pub async fn is_writable<D: Disk>(disk: &D) -> bool {
        let (root, service) = (disk.root(), &Identity::Service);
        let probe = disk.set_xattr(service, &root, PROBE, b"", XattrSet::Replace);
        let refused = (probe.await).is_err_and(|errno| errno.is(&[libc::EPERM, libc::EACCES]));
        // An immutable directory gives the same error to everybody.
        !refused || disk.stat(&root).await.is_ok_and(|stat| stat.fixed)
    }
}

/// The place where named streams are stored. Those in the other place are found as well. A configuration has these
/// names, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamStore {
    /// In attributes (Samba's `streams_xattr`), as far as the file system has room for them.
    #[default]
    Xattr,
    /// In the depot (Samba's `streams_depot`).
    Depot,
}

#[derive(Clone)]
pub struct PosixOptions {
    /// The root's path on the host: an absolute target of a link that begins with it is within the share. If it is
    /// empty, no absolute target is.
    pub root_path: PathBuf,
    pub symlinks: SymlinkPolicy,
    /// A leading dot means HIDDEN, whatever DOS attributes are stored.
    pub hide_dot_files: bool,
    /// Names have short (8.3) forms, by which they are found, too.
    pub short_names: bool,
    /// Permission bits of a new file unless the request brings its own.
    pub file_mode: u32,
    /// Permission bits of a new directory unless the request brings its own.
    pub directory_mode: u32,
    /// The permission bits that a new file can have; all others are removed.
    pub file_mask: u32,
    /// The permission bits that a new directory can have; all others are removed.
    pub directory_mask: u32,
    /// Owner and group of everything created, instead of the user's own (needs root).
    pub owner: Option<(u32, u32)>,
    /// Directories, by device and inode, that are hidden from clients wherever they are below the
    /// root.
    pub hidden: Vec<(u64, u64)>,
    pub acl: AclNamespace,
    pub streams: StreamStore,
    /// Nothing may be changed through this share.
    pub read_only: bool,
    /// Wall-clock time, to judge how recent the times of directories are, and to set the times that are stored.
    pub clock: Clock,
    /// The means by which loops over the names of a directory let other tasks have their turn.
    pub pause: Pause,
}

impl Default for PosixOptions {
    fn default() -> Self {
        Self {
            root_path: PathBuf::new(),
            symlinks: SymlinkPolicy::default(),
            hide_dot_files: true,
            short_names: true,
            file_mode: 0o644,
            directory_mode: 0o755,
            file_mask: 0o777,
            directory_mask: 0o7777,
            owner: None,
            hidden: Vec::new(),
            acl: AclNamespace::default(),
            streams: StreamStore::default(),
            read_only: false,
            clock: Clock::default(),
            pause: Pause::default(),
        }
    }
}
