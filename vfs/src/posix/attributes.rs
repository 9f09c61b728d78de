//! The attributes of an inode: the result of `statx` merged with Samba's attribute.
//!
//! Without a stored attribute the DOS bits are derived: ARCHIVE for files, and READONLY where the owner may not write.
//! An attribute that cannot be parsed counts as none, so that the file stays reachable; it is logged and replaced by
//! the next change. So does one that the service may not read: without root, that of each file that it may not read.
//! HIDDEN for a leading dot (an option) is added to either, as by Samba's `hide dot files`, and is not stored.
//!
//! The owner may change attributes, and so may a user whom the kernel lets write. The change itself is then made by
//! the service, since Linux ties times to ownership and `user.` attributes to permission bits. Where the service may
//! not make it, as root on an NFS export with `root_squash`, the user does.

use super::{
    PosixNode, PosixVfs, SERVICE, SymlinkPolicy,
    attrib_cache::InodeFacts,
    dos,
    errno::{ABSENT, REFUSED, UNSUPPORTED, unless},
    file_ids::Via,
    name,
    node::kind_of,
    samba_xattr::{
        DOS_ATTRIB,
        dos_attrib::{DosAttrib, from_nttime, to_nttime},
    },
};
use crate::{
    Attr, Attributes, FileKey, FsInfo, Identity, IoAccess, Kind, Permissions, Seen, SetAttr,
    Timestamp, VfsError, VfsResult,
    disk::{Disk, DiskResult, Errno, Stat, XattrSet},
};

/// The facts about an object that follow from the name by which it was reached.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Named {
    /// It begins with a dot.
    pub(super) dot: bool,
    pub(super) via: Via,
}

/// `access` bits.
pub(super) const R_OK: u32 = 4;
pub(super) const W_OK: u32 = 2;
pub(super) const X_OK: u32 = 1;

pub(super) const STICKY: u32 = 0o1000;
/// `f_type` of file systems without sparse files: FAT, exFAT.
const NOT_SPARSE: [u64; 2] = [0x4D44, 0x2011_BAB0];

impl<D: Disk> Attributes for PosixVfs<D> {
    async fn permissions(&self, node: &PosixNode<D>) -> VfsResult<Permissions> {
        Ok(Seen::from(&self.disk.stat(node.fd()).await?).permissions)
    }

    async fn is_readonly(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        let stat = self.disk.stat(node.fd()).await?;
        let stored = self.dos_attrib_of(node.fd(), &stat).await?;
        let bits = stored.and_then(|stored| stored.attributes);
        let bits = bits.unwrap_or_else(|| derived(&stat));
        Ok(bits & dos::READONLY != 0)
    }

    async fn set_attr(&self, who: &Identity, node: &PosixNode<D>, set: &SetAttr) -> VfsResult<()> {
        self.writable()?;
        let fd = node.fd();
        let touches_times = set.accessed.is_some() || set.written.is_some();
        let touches_dos = set.created.is_some()
            || set.dos_attributes.is_some()
            || set.archive
            || set.sparse.is_some();
        if !touches_times && !touches_dos {
            return Ok(());
        }
        let stat = self.may_change(who, fd).await?;
        // The step that may fail for lack of space comes last, and the times can be restored.
        if touches_times {
            self.store_times(who, fd, (set.accessed, set.written))
                .await?;
        }
        if !touches_dos {
            return Ok(());
        }
        let changed = self.set_dos(who, node, set, &stat).await;
        if changed.is_err() && touches_times {
            // Others may have read or written the file meanwhile.
            let accessed = set.accessed.map(|_| stat.accessed);
            let before = (accessed, set.written.map(|_| stat.written));
            let back = self.store_times(who, fd, before).await;
            back.unwrap_or_else(|errno| {
                let (errno, fs, inode) = (errno.0, stat.key.fs, stat.key.ino);
                tracing::warn!(
                    errno,
                    fs,
                    inode,
                    "times of a refused change cannot be restored"
                );
            });
        }
        changed
    }

    async fn permitted(&self, who: &Identity, node: &PosixNode<D>) -> VfsResult<IoAccess> {
        let (fd, writable) = (node.fd(), !self.options.read_only);
        Ok(IoAccess {
            read: self.allows(who, fd, R_OK).await?,
            write: writable && self.allows(who, fd, W_OK).await?,
        })
    }

    /// Checks unlink(2) by the kernel's rules, except for errors that only the removal itself finds.
    async fn may_remove(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        parent: &PosixNode<D>,
        shown: &str,
    ) -> VfsResult<()> {
        self.writable()?;
        let (dir, uid) = (parent.directory()?, self.uid(who));
        self.disk.access(who, dir, W_OK | X_OK).await?;
        let above = self.disk.stat(dir).await?;
        VfsError::AccessDenied.when(above.fixed)?;
        let sticky = above.mode & STICKY != 0 && ![0, above.uid].contains(&uid);
        let stays = |entry: &Stat| entry.fixed || (sticky && entry.uid != uid);
        let mut entry = self.disk.stat(node.fd()).await?;
        let links = self.options.symlinks == SymlinkPolicy::Follow;
        if links && (sticky || stays(&entry)) {
            // The name may be a link; the link is then removed, not its target.
            entry = match self.disk.stat_at(dir, &name::to_disk(shown)?).await {
                Err(errno) if errno.is(&[libc::ENOENT]) => return Ok(()),
                other => other?,
            };
        }
        VfsError::AccessDenied.when(stays(&entry))
    }

    fn uid(&self, who: &Identity) -> u32 {
        match who {
            Identity::Service => self.disk.service_uid(),
            Identity::User(user) => user.uid,
        }
    }

    fn volume_id(&self) -> u64 {
        self.volume_id
    }

    async fn fs_info(&self, node: &PosixNode<D>) -> VfsResult<FsInfo> {
        let fs = self.disk.stat_fs(node.fd()).await?;
        let root = self.disk.stat(self.root.fd()).await?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.block);
        Ok(FsInfo {
            total: bytes(fs.blocks),
            free: bytes(fs.free),
            available: bytes(fs.available),
            block: u32::try_from(fs.block).unwrap_or(4096),
            sparse: !NOT_SPARSE.contains(&fs.kind),
            clones: fs.clones,
            read_only: fs.read_only || self.options.read_only,
            created: birth(&root),
        })
    }

    async fn is_read_only(&self, node: &PosixNode<D>) -> VfsResult<bool> {
        Ok(self.options.read_only || self.disk.stat_fs(node.fd()).await?.read_only)
    }
}

impl<D: Disk> PosixVfs<D> {
    /// Refuses changes of a read-only share.
    pub(super) fn writable(&self) -> VfsResult<()> {
        VfsError::ReadOnly.when(self.options.read_only)
    }

    /// The attributes of an inode whose `stat` is known.
    pub(super) async fn attr_with(&self, fd: &D::Fd, stat: &Stat, named: Named) -> VfsResult<Attr> {
        let stored = self.dos_attrib_of(fd, stat).await?;
        self.learn_file_system(fd, stat.key.fs).await?;
        Ok(self.merge(stat, stored, named))
    }

    /// Queries what the ids of the inode's file system are made of, unless it is known.
    pub(super) async fn learn_file_system(&self, fd: &D::Fd, fs: u64) -> VfsResult<()> {
        if !self.file_ids.knows(fs) {
            let identity = self.disk.stat_fs(fd).await?.id;
            self.file_ids.learn(fs, identity);
        }
        Ok(())
    }

    /// The stored attribute of an inode whose `stat` was just taken.
    async fn dos_attrib_of(&self, fd: &D::Fd, stat: &Stat) -> VfsResult<Option<DosAttrib>> {
        if !matches!(kind_of(stat.mode), Kind::File | Kind::Directory) {
            return Ok(None);
        }
        let now = self.options.clock.now();
        if let Some(stored) = self.attribs.find(stat.key, stat.changed, now).dos {
            return Ok(stored);
        }
        let stored = self.dos_attrib(fd).await?;
        self.learn(stat.key, stat.changed, now, |known| {
            known.dos = Some(stored)
        });
        Ok(stored)
    }

    /// Caches a fact about an inode, which was read after `now` and after the inode's change time `changed`.
    pub(super) fn learn(
        &self,
        inode: FileKey,
        changed: Timestamp,
        now: Timestamp,
        fact: impl FnOnce(&mut InodeFacts),
    ) {
        if self.remembers(inode) {
            self.attribs.learn(inode, changed, now, fact);
        }
    }

    /// Whether the inode's times come from this machine, which need not hold for file systems mounted below the root.
    pub(super) fn remembers(&self, inode: FileKey) -> bool {
        inode.fs == self.root_key().fs && self.disk.is_local(self.root.fd())
    }

    /// The attributes of an inode that has this stored attribute.
    pub(super) fn merge(&self, stat: &Stat, stored: Option<DosAttrib>, named: Named) -> Attr {
        let kind = kind_of(stat.mode);
        let directory = kind == Kind::Directory;
        let stored_bits = stored.and_then(|stored| stored.attributes);
        let bits = stored_bits.map_or_else(
            || derived(stat),
            |bits| bits & (dos::SETTABLE | dos::SPARSE),
        );
        let hidden_by_name = self.hides_name(named) && bits & dos::HIDDEN == 0;
        let bits = match directory {
            true => bits & !dos::SPARSE | dos::DIRECTORY,
            false => bits & !dos::DIRECTORY,
        };
        let bits = bits | if hidden_by_name { dos::HIDDEN } else { 0 };
        Attr {
            key: stat.key,
            file_id: self.file_ids.of(stat.key, kind, named.via),
            kind,
            size: if kind == Kind::File { stat.size } else { 0 },
            allocated: if directory {
                0
            } else {
                stat.blocks.saturating_mul(512)
            },
            links: stat.links,
            created: stored
                .and_then(|stored| stored.created)
                .unwrap_or_else(|| birth(stat)),
            accessed: stat.accessed,
            written: stat.written,
            changed: stat.changed,
            dos_attributes: normal(bits),
            hidden_by_name,
            uid: stat.uid,
            gid: stat.gid,
            mode: stat.mode,
        }
    }

    fn hides_name(&self, named: Named) -> bool {
        named.dot && self.options.hide_dot_files
    }

    /// The attributes of an inode, from its `stat` and the stored attribute that was read after it, both after `now`.
    pub(super) fn attr_from(
        &self,
        stat: &Stat,
        blob: DiskResult<Vec<u8>>,
        named: Named,
        now: Timestamp,
    ) -> VfsResult<Attr> {
        let stored = match kind_of(stat.mode) {
            Kind::File | Kind::Directory => parsed(blob)?,
            _ => None,
        };
        self.learn(stat.key, stat.changed, now, |known| {
            known.dos = Some(stored)
        });
        Ok(self.merge(stat, stored, named))
    }

    pub(super) async fn dos_attrib(&self, fd: &D::Fd) -> VfsResult<Option<DosAttrib>> {
        parsed(self.disk.get_xattr(fd, DOS_ATTRIB).await)
    }

    pub(super) async fn store_dos_attrib(
        &self,
        who: &Identity,
        fd: &D::Fd,
        wanted: DosAttrib,
    ) -> VfsResult<()> {
        let (disk, blob, how) = (&self.disk, wanted.build(), XattrSet::Either);
        let set = async |by: &Identity| disk.set_xattr(by, fd, DOS_ATTRIB, &blob, how).await;
        let set = service_or(who, set).await;
        // A file system without extended attributes has only derived DOS attributes.
        unless(set, &UNSUPPORTED).map(drop)
    }

    /// Sets the times of the last access and of the last write.
    async fn store_times(
        &self,
        who: &Identity,
        fd: &D::Fd,
        (accessed, written): (Option<Timestamp>, Option<Timestamp>),
    ) -> DiskResult<()> {
        let set = async |by: &Identity| self.disk.set_times(by, fd, accessed, written).await;
        service_or(who, set).await
    }

    async fn set_dos(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        set: &SetAttr,
        stat: &Stat,
    ) -> VfsResult<()> {
        let fd = node.fd();
        // The lock keeps this change from undoing another change of other bits.
        let _inode = self.locks.inode(node.0.key).await;
        let old = self.dos_attrib(fd).await?;
        let kind = kind_of(stat.mode);
        let old_bits = old
            .and_then(|old| old.attributes)
            .unwrap_or_else(|| derived(stat));
        let mut bits = set.dos_attributes.unwrap_or(old_bits) & dos::SETTABLE;
        if self.hides_name(node.0.named) && old_bits & dos::HIDDEN == 0 {
            // A client that sets the attributes that it was shown adds none.
            bits &= !dos::HIDDEN;
        }
        if set.archive {
            let only = SetAttr {
                archive: true,
                ..SetAttr::default()
            };
            if kind == Kind::File {
                // The bit is stored again even if it is set, because a failed sync may have lost it.
                bits |= dos::ARCHIVE;
            } else if *set == only {
                // Only files have the ARCHIVE bit.
                return Ok(());
            }
        }
        if kind == Kind::Special {
            // Linux cannot store attributes of this object, so only the present values can be set.
            let same = bits == old_bits & dos::SETTABLE;
            let kept = same && set.created.is_none() && set.sparse.is_none();
            return VfsError::NotSupported.when(!kept);
        }
        let sparse = set.sparse.unwrap_or(old_bits & dos::SPARSE != 0);
        if kind == Kind::Directory {
            bits |= dos::DIRECTORY;
        } else if sparse {
            bits |= dos::SPARSE;
        }
        let created = set
            .created
            .or(old.and_then(|old| old.created))
            .unwrap_or_else(|| birth(stat));
        let wanted = DosAttrib {
            attributes: Some(bits),
            created: Some(created),
        };
        let stored = self.store_dos_attrib(who, fd, wanted).await;
        self.attribs.forget(node.0.key);
        stored
    }

    /// The state of an inode whose attributes `who` may change, as the owner or a writer.
    pub(super) async fn may_change(&self, who: &Identity, fd: &D::Fd) -> VfsResult<Stat> {
        let stat = self.disk.stat(fd).await?;
        let is_owner = match who {
            Identity::Service => true,
            Identity::User(user) => user.uid == stat.uid || user.uid == 0,
        };
        if !is_owner {
            self.disk.access(who, fd, W_OK).await?;
        }
        Ok(stat)
    }

    async fn allows(&self, who: &Identity, fd: &D::Fd, mode: u32) -> VfsResult<bool> {
        let allowed = self.disk.access(who, fd, mode).await;
        let refusals = [libc::EACCES, libc::EPERM, libc::EROFS, libc::ETXTBSY];
        Ok(unless(allowed, &refusals)?.is_some())
    }
}

/// Runs a call as the service; or as `who` where the service may not, as root on an NFS export with `root_squash`.
pub(super) async fn service_or<T>(
    who: &Identity,
    call: impl AsyncFn(&Identity) -> DiskResult<T>,
) -> DiskResult<T> {
    match call(&SERVICE).await {
        Err(errno) if errno.is(&REFUSED) => call(who).await,
        done => done,
    }
}

/// The attributes of an inode without stored ones.
fn derived(stat: &Stat) -> u32 {
    match kind_of(stat.mode) {
        Kind::File if stat.mode & 0o200 == 0 => dos::ARCHIVE | dos::READONLY,
        Kind::File => dos::ARCHIVE,
        _ => 0,
    }
}

/// DOS attributes and creation time that a new inode starts with.
pub(super) fn first_dos_attrib(stat: &Stat, bits: u32) -> DosAttrib {
    let directory = kind_of(stat.mode) == Kind::Directory;
    DosAttrib {
        attributes: Some(bits & dos::SETTABLE | if directory { dos::DIRECTORY } else { 0 }),
        // The time is rounded as it will be read: in steps of 100 ns.
        created: to_nttime(birth(stat)).and_then(from_nttime),
    }
}

/// The values of a stored attribute; none if there is none, or it may not be read or cannot be parsed.
fn parsed(blob: DiskResult<Vec<u8>>) -> VfsResult<Option<DosAttrib>> {
    let blob = match blob {
        Ok(blob) => blob,
        // A value longer than any that can be understood may not have been read.
        Err(Errno(libc::E2BIG)) => return Ok(None),
        Err(errno) if errno.is(&ABSENT) || errno.is(&REFUSED) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    Ok(DosAttrib::parse(&blob)
        .inspect_err(|_| tracing::debug!(bytes = blob.len(), "unreadable {DOS_ATTRIB}"))
        .ok())
}

pub(super) fn normal(bits: u32) -> u32 {
    if bits == 0 { dos::NORMAL } else { bits }
}

/// The birth time, or the oldest time that is known.
fn birth(stat: &Stat) -> Timestamp {
    stat.born
        .unwrap_or_else(|| stat.written.min(stat.changed).min(stat.accessed))
}
