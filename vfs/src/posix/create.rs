//! Creates files and directories completely or not at all.
//!
//! Attributes, extended attributes and the descriptor are stored before the call succeeds; after a
//! failure the new object is removed, and nothing else. An object with a security descriptor is
//! made under a temporary name first, so that nobody can open it without the descriptor. That name
//! is hidden from clients, and one left by a crash is removed with its directory. In an append-only
//! directory (chattr(1)) the object has its own name at once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    PosixNode, PosixVfs, SERVICE,
    attributes::{Named, first_dos_attrib, service_or},
    depot::FOLDER,
    dos,
    lookup::Child,
    name::{self, TEMPORARY_PREFIX},
    name_cache::Change,
    node::Trail,
    samba_xattr::{DOS_ATTRIB, dos_attrib::DosAttrib},
};
use crate::{
    Attr, Attributes, ClientAttributes, Creation, FileKey, Identity, IoAccess, NewModes, NewNode,
    NewSecurity, Seen, Timestamp, VfsError, VfsResult,
    disk::{Disk, DiskResult, Errno, OpenHow, Stat},
};

/// Temporary names tried before giving up.
const TEMPORARY_TRIES: usize = 16;

/// Makes temporary names that only this process uses.
#[derive(Debug)]
pub(super) struct Temporary {
    instance: String,
    next: AtomicU64,
}

impl Temporary {
    pub(super) fn new(now: Timestamp) -> Self {
        let process = std::process::id();
        Self {
            instance: format!(
                "{TEMPORARY_PREFIX}{process:x}-{:x}-{:x}-",
                now.secs, now.nanos
            ),
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}{number:x}", self.instance).into_bytes()
    }

    /// Whether a name on disk is a temporary one of another server, which is dead.
    pub(super) fn is_leftover(&self, on_disk: &[u8]) -> bool {
        on_disk.starts_with(TEMPORARY_PREFIX.as_bytes())
            && !on_disk.starts_with(self.instance.as_bytes())
    }
}

struct Made<F> {
    fd: F,
    stat: Stat,
    /// Whether its DOS attributes are stored already; `None` if that was not tried yet.
    marked: Option<DiskResult<()>>,
}

impl<D: Disk> Creation for PosixVfs<D> {
    async fn create(
        &self,
        who: &Identity,
        parent: &PosixNode<D>,
        shown: &str,
        new: &NewNode<'_>,
        directory: bool,
    ) -> VfsResult<(PosixNode<D>, Attr)> {
        self.writable()?;
        let dir = parent.directory()?;
        self.learn_file_system(dir, parent.0.key.fs).await?;
        let (_name, above) = self.locks.name_after(parent.0.key, shown, new.above).await;
        let (taken, mut seen) = self.is_taken(who, parent, shown, above).await?;
        if taken {
            return Err(self.why_taken(who, parent, shown).await);
        }
        let on_disk = name::to_disk(shown)?;
        // An append-only directory loses no name, so a temporary one would stay there.
        let hidden = new.security.is_some() && !self.disk.stat(dir).await?.fixed;
        let bits = new.dos_attributes | self.inherited_bits(parent).await?;
        let mut at: Box<[u8]> = on_disk.clone();
        let mut tries = 0;
        let made = loop {
            if hidden {
                at = self.temporary.name().into_boxed_slice();
            }
            let at = (at.as_ref(), seen.take());
            match self.make(who, parent, at, (new, bits), directory).await {
                Err(VfsError::Exists) if hidden && tries < TEMPORARY_TRIES => tries += 1,
                other => break other?,
            }
        };
        let mut present = &at;
        let finished = async {
            let stored = self.finish(who, &made, (new, bits), directory).await?;
            if hidden {
                let changes = [Change::Remove(&at), Change::Add(&on_disk)];
                let rename = self.rename_to_free(who, (dir, &*at), (dir, &*on_disk));
                self.changing(parent, &changes, rename).await?;
                present = &on_disk;
            }
            // Setting attributes and owner has changed the inode's times.
            Ok::<_, VfsError>((stored, self.disk.stat(&made.fd).await?))
        };
        let finished = finished.await;
        let (stored, stat) = match finished {
            Ok(finished) => finished,
            Err(error) => {
                self.unmake(who, parent, present, made.stat.key, directory)
                    .await;
                return Err(error);
            }
        };
        let named = Named {
            dot: shown.starts_with('.'),
            via: parent.0.named.via,
        };
        let attr = self.merge(&stat, Some(stored), named);
        if made.marked == Some(Ok(())) && self.remembers(stat.key) {
            (self.attribs).made(&stat, stored, self.options.clock.now());
        }
        let trail = directory.then(|| extend(parent, &on_disk)).flatten();
        let node = PosixNode::path_only(made.fd.clone(), &stat, named, trail);
        let node = match directory {
            true => node,
            false => node.with_fd(made.fd, IoAccess::BOTH),
        };
        Ok((node, attr))
    }

    fn new_modes(&self) -> NewModes {
        let options = &self.options;
        NewModes {
            file: options.file_mode & options.file_mask,
            directory: options.directory_mode & options.directory_mask,
        }
    }
}

impl<D: Disk> PosixVfs<D> {
    /// The DOS attributes that a new object takes over from its directory ([MS-FSA] 2.1.5.1.1). They are read each
    /// time, because every new name moves the change time by which they could be cached.
    async fn inherited_bits(&self, parent: &PosixNode<D>) -> VfsResult<u32> {
        let stored = self.dos_attrib(parent.fd()).await?;
        let bits = stored.and_then(|stored| stored.attributes);
        Ok(bits.unwrap_or(0) & dos::NOT_CONTENT_INDEXED)
    }

    async fn make(
        &self,
        who: &Identity,
        parent: &PosixNode<D>,
        (at, seen): (&[u8], Option<Seen>),
        (new, bits): (&NewNode<'_>, u32),
        directory: bool,
    ) -> VfsResult<Made<D::Fd>> {
        let options = &self.options;
        let (default, mask) = match directory {
            true => (options.directory_mode, options.directory_mask),
            false => (options.file_mode, options.file_mask),
        };
        let mode = new.mode.unwrap_or(default) & mask & 0o7777;
        let changes = [Change::Add(at)];
        let dir = parent.fd();
        let fd = if directory {
            let make = self.disk.make_dir(who, dir, at, mode);
            self.changing_seen(parent, seen, &changes, make).await?;
            let open = async |by: &Identity| self.disk.open_at(by, dir, at, FOLDER).await;
            match service_or(who, open).await {
                Ok(fd) => fd,
                Err(errno) => {
                    // Without a descriptor the directory cannot be completed. The name may lead to
                    // another one by now, but only an empty one is removed.
                    self.take_back(who, parent, at, true).await;
                    return Err(errno.into());
                }
            }
        } else {
            let mark = move |stat: &Stat| (DOS_ATTRIB, first_dos_attrib(stat, bits).build());
            let create = self.disk.create_at(who, dir, at, mode, Box::new(mark));
            let created = self.changing_seen(parent, seen, &changes, create).await?;
            if let Ok(stat) = created.stat {
                return Ok(Made {
                    fd: created.fd,
                    stat,
                    marked: Some(created.marked),
                });
            }
            created.fd
        };
        match self.disk.stat(&fd).await {
            Ok(stat) if directory && self.is_another(who, parent, &stat).await? => {
                Err(VfsError::AccessDenied)
            }
            Ok(stat) => Ok(Made {
                fd,
                stat,
                marked: None,
            }),
            Err(errno) => {
                // The query is repeated: without its result it is not known which inode may be
                // removed.
                let stat = self.disk.stat(&fd).await?;
                self.unmake(who, parent, at, stat.key, directory).await;
                Err(errno.into())
            }
        }
    }

    /// Whether a directory that was found by its new name is not the one that `who` has made: another program may have
    /// moved another user's there. A file system without owners gives all directories the same one.
    async fn is_another(
        &self,
        who: &Identity,
        parent: &PosixNode<D>,
        found: &Stat,
    ) -> VfsResult<bool> {
        // The server of a remote file system decides itself whose a new directory is.
        if found.uid == self.uid(who) || !self.disk.is_local(parent.fd()) {
            return Ok(false);
        }
        Ok(found.key.generation != 0 || found.uid != self.disk.stat(parent.fd()).await?.uid)
    }

    /// Everything that a new inode starts with.
    async fn finish(
        &self,
        who: &Identity,
        made: &Made<D::Fd>,
        (new, bits): (&NewNode<'_>, u32),
        directory: bool,
    ) -> VfsResult<DosAttrib> {
        let (fd, is) = (&made.fd, (made.stat.uid, made.stat.gid));
        if let Some((uid, gid)) = self.options.owner.filter(|owner| *owner != is) {
            self.disk
                .set_owner(&SERVICE, fd, Some(uid), Some(gid))
                .await?;
        }
        let stored = first_dos_attrib(&made.stat, bits);
        match made.marked {
            None => self.store_dos_attrib(who, fd, stored).await?,
            // On a file system without extended attributes there are only derived ones.
            Some(Err(errno)) if !errno.unsupported() => return Err(errno.into()),
            Some(_) => {}
        }
        if !new.eas.is_empty() {
            let node = PosixNode::path_only(fd.clone(), &made.stat, Named::default(), None);
            let set = self.set_eas(who, &node, &new.eas).await;
            // The descriptor may be too large as well, and clients are to know which it is.
            set.map_err(|error| match error {
                VfsError::TooLarge => VfsError::EasTooLarge,
                other => other,
            })?;
        }
        match &new.security {
            None => {}
            Some(NewSecurity::Given(descriptor)) => {
                self.store_descriptor(who, fd, descriptor.clone()).await?;
            }
            Some(NewSecurity::Of(describe)) => {
                let descriptor = describe(Seen::from(&made.stat).permissions);
                match self.store_descriptor(who, fd, descriptor).await {
                    Err(VfsError::NotSupported) | Ok(()) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if new.allocation > 0 && !directory {
            self.reserve(fd, new.allocation).await?;
        }
        Ok(stored)
    }

    /// Moves a name to one that was just seen to be free, and whose lock the caller holds.
    pub(super) async fn rename_to_free(
        &self,
        who: &Identity,
        (source, from): (&D::Fd, &[u8]),
        (target, at): (&D::Fd, &[u8]),
    ) -> DiskResult<()> {
        let disk = &self.disk;
        match disk.rename(who, (source, from), (target, at), false).await {
            // NFS and some file systems of FUSE lack RENAME_NOREPLACE. Between the look and the rename no other client
            // takes the name, since all shares have one lock for it, but a program on the host may.
            Err(errno) if errno.is(&[libc::EINVAL]) => match disk.stat_at(target, at).await {
                Err(absent) if absent.is(&[libc::ENOENT]) => {
                    disk.rename(who, (source, from), (target, at), true).await
                }
                Ok(_) => Err(Errno(libc::EEXIST)),
                Err(_) => Err(errno),
            },
            other => other,
        }
    }

    /// Removes the new object, if the name still belongs to it.
    async fn unmake(
        &self,
        who: &Identity,
        parent: &PosixNode<D>,
        at: &[u8],
        made: FileKey,
        directory: bool,
    ) {
        let child = self.service_child_or(who, parent.fd(), at).await;
        if matches!(child, Ok(Some(Child::Inode(_, stat))) if stat.key == made) {
            self.take_back(who, parent, at, directory).await;
        }
    }

    /// Opens a name by [`service_or`].
    pub(super) async fn service_child_or(
        &self,
        who: &Identity,
        dir: &D::Fd,
        on_disk: &[u8],
    ) -> VfsResult<Option<Child<D::Fd>>> {
        let how = OpenHow::PATH_ONLY;
        let open = async |by: &Identity| self.disk.open_at(by, dir, on_disk, how).await;
        self.child_of(service_or(who, open).await).await
    }

    async fn take_back(&self, who: &Identity, parent: &PosixNode<D>, at: &[u8], directory: bool) {
        let unlink = async |by: &Identity| self.disk.unlink(by, parent.fd(), at, directory).await;
        let (changes, unlink) = ([Change::Remove(at)], service_or(who, unlink));
        if let Err(errno) = self.changing(parent, &changes, unlink).await {
            let (errno, path) = (errno.0, path_of(parent, at));
            tracing::warn!(errno, path, "a new name could not be removed again");
        }
    }
}

fn extend<D: Disk>(parent: &PosixNode<D>, on_disk: &[u8]) -> Option<Trail> {
    let above = parent.0.trail.as_ref()?;
    let name = std::iter::once(Box::from(on_disk));
    Some(above.iter().cloned().chain(name).collect())
}

/// The path of a name below the root for the log, or the name alone where its folder's path is not known.
fn path_of<D: Disk>(parent: &PosixNode<D>, name: &[u8]) -> String {
    let trail = extend(parent, name);
    let path = trail.map_or_else(|| name.to_vec(), |trail| trail.join(&b'/'));
    String::from_utf8_lossy(&path).into_owned()
}
