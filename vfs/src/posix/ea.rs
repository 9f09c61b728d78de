//! Clients' extended attributes: `user.` names, except those of Samba and of this server.
//!
//! Names of clients compare without case; an attribute that exists under the name in another case
//! is the one that is changed. Attributes of the host that no client can have are not shown: those whose names have
//! other characters, those without a value, and those of 65,536 bytes, which Linux allows.

use std::collections::{BTreeMap, HashMap};

use super::{
    PosixNode, PosixVfs, SERVICE,
    attributes::{Named, service_or},
    errno::{UNSUPPORTED, unless},
    lookup::Child,
    samba_xattr::{DOS_ATTRIB, EA_PREFIX, XATTR_NAME_MAX, is_hidden},
};
use crate::{
    Attr, ClientAttributes, DirName, Identity, VfsError, VfsResult,
    disk::{Disk, XattrSet},
    ea_size,
};

/// Longest name of a client's attribute ([MS-FSCC] 2.4.16: its length is one byte).
const EA_NAME_MAX: usize = 254;
/// Characters that no name has ([MS-FSCC] 2.4.16), besides control characters.
const FORBIDDEN: &[u8] = b"\\/:*?\"<>|,+=[];";
/// Longest value ([MS-FSCC] 2.4.16: its length is two bytes).
const EA_VALUE_MAX: usize = 65_535;
/// Most bytes of the attributes of a file that are read together: sixteen times as many as clients may give it. On the
/// host, some file systems take a hundred times as many.
const ALL_BYTES_MAX: usize = 1 << 20;
/// Most bytes of the names of an inode's attributes, each with a NUL, to which clients may add one. Linux lists none of
/// them if they have more than 65,536 (`XATTR_LIST_MAX`), which XFS allows. The rest is for other attributes.
const NAMES_MAX: usize = 60_000;
/// Attributes that are stored or read before other tasks have their turn.
pub(super) const PORTION: usize = 16;

impl<D: Disk> ClientAttributes for PosixVfs<D> {
    async fn keeps_eas(&self, node: &PosixNode<D>) -> bool {
        let asked = self.disk.get_xattr(node.fd(), DOS_ATTRIB).await;
        !asked.is_err_and(|errno| errno.unsupported())
    }

    async fn eas(&self, node: &PosixNode<D>) -> VfsResult<Vec<(String, Vec<u8>)>> {
        let mut eas = Vec::new();
        let take = |name: &str, mut value: Vec<u8>| {
            // It was read with more room than most values need, and a file may have thousands of them.
            value.shrink_to_fit();
            eas.push((name.to_owned(), value));
        };
        self.each_ea(node, take).await?;
        eas.sort();
        Ok(eas)
    }

    async fn set_eas(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        eas: &[(String, Vec<u8>)],
    ) -> VfsResult<()> {
        self.writable()?;
        let mut last = BTreeMap::new();
        for (at, (ea, value)) in eas.iter().enumerate() {
            check_ea(ea, value)?;
            last.insert(crate::fold(ea), at);
        }
        let mut stored = HashMap::new();
        let attributes = self.attribute_names(node.fd()).await?;
        let before = names_length(&attributes);
        for attribute in attributes {
            if let Some(name) = attribute.strip_prefix(EA_PREFIX) {
                stored.entry(crate::fold(name)).or_insert(attribute);
            }
        }
        let mut after = before;
        for (folded, at) in &last {
            match (stored.get(folded), eas.get(*at)) {
                (Some(gone), Some((_, value))) if value.is_empty() => after -= gone.len() + 1,
                (None, Some((ea, value))) if !value.is_empty() => {
                    after += EA_PREFIX.len() + ea.len() + 1;
                }
                _ => {}
            }
        }
        if after > before {
            check_names(after)?;
        }
        let mut changed = 0;
        for (at, (ea, value)) in eas.iter().enumerate() {
            let folded = crate::fold(ea);
            let existing = stored.get(&folded);
            if last.get(&folded) != Some(&at) || value.is_empty() && existing.is_none() {
                continue;
            }
            changed += 1;
            if changed % PORTION == 0 {
                self.options.pause.pause().await;
            }
            let fd = node.fd();
            if value.is_empty() {
                let attribute = existing.map_or("", String::as_str);
                let remove = async |by: &Identity| self.disk.remove_xattr(by, fd, attribute).await;
                // Another process may have removed it since the listing.
                unless(service_or(who, remove).await, &[libc::ENODATA])?;
                continue;
            }
            let asked = format!("{EA_PREFIX}{ea}");
            let attribute = existing.unwrap_or(&asked);
            self.set_xattr(who, fd, attribute, value, XattrSet::Either)
                .await?;
        }
        Ok(())
    }

    async fn ea_size(&self, node: &PosixNode<D>, attr: &Attr) -> VfsResult<u32> {
        let now = self.options.clock.now();
        if let Some(size) = self.attribs.find(attr.key, attr.changed, now).ea_size {
            return Ok(size);
        }
        let mut lengths: Vec<(u8, u16)> = Vec::new();
        let measure = |name: &str, value: Vec<u8>| {
            // Both fit, see `is_ea` and `is_length`.
            let name = u8::try_from(name.len()).ok();
            lengths.extend(name.zip(u16::try_from(value.len()).ok()));
        };
        self.each_ea(node, measure).await?;
        let lengths = lengths.into_iter();
        let size = ea_size(lengths.map(|(name, value)| (name.into(), value.into())));
        self.learn(attr.key, attr.changed, now, |known| {
            known.ea_size = Some(size)
        });
        Ok(size)
    }

    async fn ea_sizes_at(&self, dir: &PosixNode<D>, names: &[(&DirName, &Attr)]) -> Vec<u32> {
        let Ok(fd) = dir.directory() else {
            return vec![0; names.len()];
        };
        let now = self.options.clock.now();
        let known = |attr: &Attr| self.attribs.find(attr.key, attr.changed, now).ea_size;
        // The job must not wait for a file system that is mounted on a name.
        let here = |attr: &Attr| attr.key.fs == dir.0.key.fs;
        let known: Vec<_> = names.iter().map(|(_, attr)| known(attr)).collect();
        let unknown = names.iter().zip(&known).filter(|(_, size)| size.is_none());
        let asked: Vec<_> = unknown
            .filter(|((_, attr), _)| here(attr))
            .map(|((name, _), _)| name.on_disk().into())
            .collect();
        let mut found = match asked.is_empty() {
            true => Vec::new(),
            false => self.disk.entries_xattrs(fd, asked, is_ea).await,
        }
        .into_iter();
        let mut sizes = Vec::with_capacity(names.len());
        for ((name, attr), known) in names.iter().zip(known) {
            let size = match known {
                Some(size) => size,
                None if here(attr) => match found.next() {
                    Some(Ok(lengths)) => {
                        let full = lengths.iter().filter(|(_, value)| is_length(*value));
                        let bare = full.map(|(name, value)| {
                            (name.len().saturating_sub(EA_PREFIX.len()), *value)
                        });
                        let size = ea_size(bare);
                        self.learn(attr.key, attr.changed, now, |known| {
                            known.ea_size = Some(size)
                        });
                        size
                    }
                    _ => 0,
                },
                None => self.ea_size_mounted(dir, name, attr).await.unwrap_or(0),
            };
            sizes.push(size);
        }
        sizes
    }
}

impl<D: Disk> PosixVfs<D> {
    /// Reads the attributes of clients one after the other. Many requests may be here at once, each with the names of
    /// its file, so these are held in one piece: apart, short ones would take many times as much memory.
    async fn each_ea(
        &self,
        node: &PosixNode<D>,
        mut take: impl FnMut(&str, Vec<u8>),
    ) -> VfsResult<()> {
        let names = self.attribute_names(node.fd()).await?.join("\0");
        let mut room = ALL_BYTES_MAX;
        for (at, attribute) in (1..).zip(names.split('\0')) {
            if at % PORTION == 0 {
                self.options.pause.pause().await;
            }
            let name = attribute.strip_prefix(EA_PREFIX);
            let Some(name) = name.filter(|_| is_ea(attribute)) else {
                continue;
            };
            // It may have been removed since the listing. Windows takes a list with an empty value for damaged.
            let value = self.xattr(node.fd(), attribute).await?;
            if let Some(value) = value.filter(|value| is_length(value.len())) {
                let bytes = name.len() + value.len();
                room = room.checked_sub(bytes).ok_or(VfsError::TooLarge)?;
                take(name, value);
            }
        }
        Ok(())
    }

    /// The size for a name on which another file system is mounted.
    async fn ea_size_mounted(
        &self,
        dir: &PosixNode<D>,
        name: &DirName,
        attr: &Attr,
    ) -> VfsResult<u32> {
        let fd = dir.directory()?;
        let child = self.open_child(&SERVICE, fd, name.on_disk()).await?;
        let Some(Child::Inode(fd, stat)) = child else {
            return Ok(0);
        };
        let node = PosixNode::path_only(fd, &stat, Named::default(), None);
        self.ea_size(&node, attr).await
    }

    /// All attribute names, none if the file system does not support attributes.
    pub(super) async fn attribute_names(&self, fd: &D::Fd) -> VfsResult<Vec<String>> {
        let names = self.disk.list_xattr(fd).await;
        Ok(unless(names, &UNSUPPORTED)?.unwrap_or_default())
    }
}

pub(super) fn names_length<'a>(names: impl IntoIterator<Item = &'a String>) -> usize {
    names.into_iter().map(|name| name.len() + 1).sum()
}

/// Checks that the names of an inode's attributes can still be listed if they have this length.
pub(super) fn check_names(length: usize) -> VfsResult<()> {
    VfsError::TooLarge.when(length > NAMES_MAX)
}

/// Whether an attribute of the disk is a client's.
fn is_ea(attribute: &str) -> bool {
    // Nearly every file has a hidden one, whose characters need not be looked at.
    !is_hidden(attribute) && attribute.strip_prefix(EA_PREFIX).is_some_and(is_name)
}

/// Whether an attribute of a client can have this name.
fn is_name(ea: &str) -> bool {
    let forbidden = |byte: u8| byte < b' ' || FORBIDDEN.contains(&byte);
    !ea.is_empty() && ea.len() <= EA_NAME_MAX && !ea.bytes().any(forbidden)
}

/// Whether a client can be shown a value of this length.
fn is_length(value: usize) -> bool {
    (1..=EA_VALUE_MAX).contains(&value)
}

/// Checks that an attribute is a client's, and that its name and value can be stored.
fn check_ea(ea: &str, value: &[u8]) -> VfsResult<()> {
    let attribute = format!("{EA_PREFIX}{ea}");
    VfsError::InvalidEaName.when(!is_ea(&attribute) || attribute.len() > XATTR_NAME_MAX)?;
    VfsError::TooLarge.when(value.len() > EA_VALUE_MAX)
}
