//! Access checks on an inode: its stored security descriptor, or one derived from the permission bits, is evaluated
//! as [MS-DTYP] 2.5.3.2 and [MS-FSA] 2.1.5.1.2.1 describe.
//!
//! The kernel's own check is applied in addition wherever the server runs as root and acts as the user.

mod derived;
#[cfg(test)]
mod tests;
mod unreadable;

use std::collections::BTreeMap;

use smb_wire::{
    access_mask::AccessMask,
    dtyp::{self, AceFlags, AceType, SecurityDescriptor, SecurityInformation, Sid},
    file_attributes::FileAttributes,
    status::Status,
};
use vfs::{
    Attr, IoAccess, Kind, Lookup, NewModes, Node, Permissions, Seen, Timestamp, Vfs, VfsError,
};

pub(crate) use self::{
    derived::{derived, effective},
    unreadable::replaceable,
};
use crate::{config::ServerConfig, failure::Failure, local_accounts, token::Token};

/// `S_IRUSR` and `S_IWUSR`.
const OWNER_BITS: u32 = 0o600;
/// `S_ISVTX`.
const STICKY: u32 = 0o1000;
/// `S_ISUID`.
const SET_UID: u32 = 0o4000;
/// `S_ISGID`: in a directory, new objects get its group.
const SET_GID: u32 = 0o2000;
/// `S_ISGID` with the group's permission to execute: a program that runs as its group. Without that
/// permission the bit once meant mandatory locking.
const SET_GID_AND_EXECUTE: u32 = 0o2010;

/// Rights that the READONLY attribute takes from MAXIMUM_ALLOWED.
const WRITE_RIGHTS: AccessMask = AccessMask(
    AccessMask::FILE_WRITE_DATA.bits()
        | AccessMask::FILE_APPEND_DATA.bits()
        | AccessMask::FILE_DELETE_CHILD.bits(),
);

/// The descriptor of an inode: stored, or derived from its permission bits. `changed`: as in [`Subject`].
pub(crate) async fn descriptor<V: Vfs>(
    vfs: &V,
    node: &V::Node,
    attr: &Attr,
    changed: Option<&Timestamp>,
) -> Result<SecurityDescriptor, VfsError> {
    let below = below(vfs, attr.is_of_directory());
    Ok(match stored(vfs, node, changed).await? {
        Some(sd) => derived::completed(sd, attr.into(), below),
        None => derived(attr.into(), below),
    })
}

/// The stored descriptor. One that cannot be parsed grants nothing: see [`unreadable`].
pub(crate) async fn stored<V: Vfs>(
    vfs: &V,
    node: &V::Node,
    changed: Option<&Timestamp>,
) -> Result<Option<SecurityDescriptor>, VfsError> {
    match vfs.security(node, changed).await {
        Ok(None) | Err(VfsError::NotSupported | VfsError::NoAttribute) => Ok(None),
        Ok(Some(bytes)) => SecurityDescriptor::read(&bytes)
            .map(Some)
            .map_err(|_| VfsError::Corrupt),
        Err(error) => Err(error),
    }
}

/// The permission bits that new objects in this directory get; `None` where the inode is no directory.
fn below<V: Vfs>(vfs: &V, directory: bool) -> Option<NewModes> {
    directory.then(|| vfs.new_modes())
}

/// All rights that a descriptor gives to a token.
pub(crate) fn maximal(sd: &SecurityDescriptor, token: &Token) -> AccessMask {
    dtyp::maximal_access(sd, &token.sids)
}

/// A directory, with its state if the lookup of the object had to query it, and the object's name in it if that is
/// known.
pub(crate) struct Parent<'a, V: Vfs> {
    node: &'a V::Node,
    seen: Option<&'a Seen>,
    name: Option<&'a str>,
}

impl<'a, V: Vfs> Parent<'a, V> {
    /// The directory, with its state if that was just queried.
    pub(crate) fn seen(node: &'a V::Node, seen: Option<&'a Seen>) -> Self {
        let name = None;
        Self { node, seen, name }
    }

    pub(crate) fn named(self, name: &'a str) -> Self {
        let name = Some(name);
        Self { name, ..self }
    }

    /// The directory that a lookup by the same request found.
    pub(crate) fn of(lookup: &'a Lookup<V::Node>) -> Option<Self> {
        Some(Self {
            node: lookup.parent.as_ref()?,
            seen: lookup.parent_seen.as_ref(),
            name: Some(&lookup.name),
        })
    }

    async fn permissions(&self, vfs: &V) -> Result<Permissions, VfsError> {
        match self.seen {
            Some(seen) => Ok(seen.permissions),
            None => vfs.permissions(self.node).await,
        }
    }

    /// The descriptor of the object, and whether that is a stored one.
    async fn descriptor(&self, vfs: &V) -> Result<(SecurityDescriptor, bool), VfsError> {
        let changed = self.seen.map(|seen| &seen.changed);
        if let Some(sd) = stored(vfs, self.node, changed).await? {
            return Ok((sd, true));
        }
        let of = self.permissions(vfs).await?;
        let owner = Sid::unix_user(of.uid);
        let directory = self.node.is_directory();
        Ok((derived::effective(owner, of, directory), false))
    }

    /// The descriptor from which new objects in this directory inherit. `None` if the stored one says no more than
    /// owner, group and permission bits do, because bits are not inherited either.
    async fn passes_on(
        &self,
        vfs: &V,
        descriptor: SecurityDescriptor,
    ) -> Result<Option<Above>, VfsError> {
        let of = self.permissions(vfs).await?;
        let below = below(vfs, self.node.is_directory());
        if derived::only_reads_owner(&descriptor, of, below).is_some() {
            return Ok(None);
        }
        // inode(7): a new object in a set-group-ID directory gets the directory's group.
        let group = (of.mode & SET_GID != 0).then(|| Sid::unix_group(of.gid));
        Ok(Some(Above { descriptor, group }))
    }
}

/// The directory's descriptor, from which a new object inherits ([MS-DTYP] 2.5.3.4).
pub(crate) struct Above {
    descriptor: SecurityDescriptor,
    /// The group of new objects there, if it is not the creator's.
    group: Option<Sid>,
}

/// The facts about the object to which access is requested.
pub(crate) struct Subject<'a, V: Vfs> {
    pub(crate) vfs: &'a V,
    pub(crate) node: &'a V::Node,
    pub(crate) attr: &'a Attr,
    /// The change time that the disk reported to this request, if a descriptor cached under it may be used.
    pub(crate) changed: Option<&'a Timestamp>,
    pub(crate) parent: Option<Parent<'a, V>>,
    /// The most the tree allows.
    pub(crate) ceiling: AccessMask,
    /// The object is a named stream of the node: no name in a directory is its own.
    pub(crate) stream: bool,
}

/// [MS-FSA] 2.1.5.1.2.1: the rights that an open of an existing object is granted.
pub(crate) async fn grant<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
    desired: AccessMask,
) -> Result<AccessMask, Failure> {
    let wanted = desired.without(AccessMask::MAXIMUM_ALLOWED).map_generic();
    let mut allowed = allowed(subject, token).await?;
    let missing = wanted.without(allowed);
    let from_parent = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES;
    let maximum = desired.contains(AccessMask::MAXIMUM_ALLOWED);
    if missing.intersects(from_parent) || maximum {
        allowed |= rights_from_parent(subject, token).await?;
    }
    let mut allowed = allowed & subject.ceiling;
    // [MS-FSA] 2.1.5.1.2.1 (docs/protocol-notes.md, "The attribute READONLY of a directory").
    if maximum && readonly(subject.attr) && subject.attr.kind != Kind::Directory {
        allowed = allowed.without(WRITE_RIGHTS);
    }
    if (wanted.contains(AccessMask::DELETE) || maximum) && is_stuck(subject, token).await? {
        allowed = allowed.without(AccessMask::DELETE);
    }
    if maximum {
        // A right that is named stays in: if the kernel refuses it, the open fails for the kernel's own reason.
        allowed = (allowed & wanted) | Box::pin(openable(subject, token, allowed)).await?;
    }
    Status::ACCESS_DENIED.when(!allowed.contains(wanted) || (maximum && allowed.is_empty()))?;
    Ok(if maximum { allowed } else { wanted })
}

/// All rights that the token could be granted (for MxAc).
pub(crate) async fn maximum<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
) -> Result<AccessMask, Failure> {
    let mut all = allowed(subject, token).await? | rights_from_parent(subject, token).await?;
    if is_stuck(subject, token).await? {
        all = all.without(AccessMask::DELETE);
    }
    let (all, attr) = (all & subject.ceiling, subject.attr);
    // Windows asks for this at every open. For the owner the kernel checks only the owner's bits, which are known here
    // (read-only mounts and immutable files aside), so most files need no call.
    if subject.vfs.uid(&token.identity) == attr.uid && attr.mode & OWNER_BITS == OWNER_BITS {
        return Ok(all);
    }
    Box::pin(openable(subject, token, all)).await
}

/// Whether the object's name must stay, whatever the descriptors say: in a sticky directory the kernel lets only the
/// owners of the object and of the directory remove or rename a name (unlink(2)).
async fn is_stuck<V: Vfs>(subject: &Subject<'_, V>, token: &Token) -> Result<bool, Failure> {
    let (vfs, Some(parent)) = (subject.vfs, &subject.parent) else {
        return Ok(false);
    };
    let uid = vfs.uid(&token.identity);
    if subject.stream || uid == 0 || uid == subject.attr.uid {
        return Ok(false);
    }
    let above = parent.permissions(vfs).await?;
    if above.mode & STICKY == 0 || above.uid == uid {
        return Ok(false);
    }
    let Some(name) = parent.name else {
        return Ok(true);
    };
    // The user may have made this name himself, as a hard link to another user's file.
    let (who, node) = (&token.identity, subject.node);
    match vfs.may_remove(who, node, parent.node, name).await {
        Ok(()) => Ok(false),
        Err(VfsError::AccessDenied) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

async fn allowed<V: Vfs>(subject: &Subject<'_, V>, token: &Token) -> Result<AccessMask, Failure> {
    let (vfs, node, attr) = (subject.vfs, subject.node, subject.attr);
    let sd = match descriptor(vfs, node, attr, subject.changed).await {
        Err(VfsError::Corrupt) if unreadable::owns(token, attr) => {
            return Ok(unreadable::RIGHTS_OF_OWNERS);
        }
        sd => sd?,
    };
    let rights = maximal(&sd, token);
    match rights.contains(AccessMask::DELETE) && is_anothers(subject, token).await? {
        true => Ok(rights.without(AccessMask::DELETE)),
        false => Ok(rights),
    }
}

/// Whether a sticky directory protects the object's name from an account that shares its uid with others: only an owner
/// may remove a name there (unlink(2)), and the kernel takes each of those accounts for the owner.
async fn is_anothers<V: Vfs>(subject: &Subject<'_, V>, token: &Token) -> Result<bool, Failure> {
    let (false, Some(parent)) = (token.owns_by_uid, &subject.parent) else {
        return Ok(false);
    };
    if parent.permissions(subject.vfs).await?.mode & STICKY == 0 {
        return Ok(false);
    }
    let sd = descriptor(subject.vfs, subject.node, subject.attr, subject.changed).await?;
    let (above, _) = parent.descriptor(subject.vfs).await?;
    let mut owners = [sd.owner, above.owner].into_iter().flatten();
    Ok(!owners.any(|owner| token.sids.contains(&owner)))
}

/// Rights on an object that follow from rights on its directory: DELETE if the token has DELETE_CHILD there,
/// READ_ATTRIBUTES if it has LIST_DIRECTORY.
async fn rights_from_parent<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
) -> Result<AccessMask, Failure> {
    let Some(parent) = &subject.parent else {
        return Ok(AccessMask::empty());
    };
    let (sd, _) = parent.descriptor(subject.vfs).await?;
    let theirs = maximal(&sd, token);
    let removes = theirs.contains(AccessMask::FILE_DELETE_CHILD);
    let removes = removes && !is_anothers(subject, token).await?;
    Ok(AccessMask::DELETE.when(removes).union(
        AccessMask::FILE_READ_ATTRIBUTES.when(theirs.contains(AccessMask::FILE_LIST_DIRECTORY)),
    ))
}

/// Whether the token may give a file another name, whatever handle it has of it. [MS-FSA] 2.1.5.15.7 requires no
/// right; the rule is that of Linux with `fs.protected_hardlinks` (proc_sys_fs(5)), even where that is not set: the
/// owner may, and so may a user who can read and write a file that does not run as its owner. A user must not be
/// able to preserve or change a file that the user cannot read.
pub(crate) async fn may_link<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
) -> Result<(), Failure> {
    let (vfs, attr) = (subject.vfs, subject.attr);
    let uid = vfs.uid(&token.identity);
    if token.owns_by_uid && (uid == 0 || uid == attr.uid) {
        return Ok(());
    }
    let sd = descriptor(vfs, subject.node, attr, subject.changed).await?;
    let owns = sd.owner.is_some_and(|owner| token.sids.contains(&owner));
    let runs_as_its_owner =
        attr.mode & SET_UID != 0 || attr.mode & SET_GID_AND_EXECUTE == SET_GID_AND_EXECUTE;
    let needed = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    if owns || (!runs_as_its_owner && maximal(&sd, token).contains(needed)) {
        return Ok(());
    }
    Err(Status::ACCESS_DENIED.into())
}

/// Whether the parent lets the token add a file or directory; if so, its stored descriptor where that is passed on.
pub(crate) async fn may_add<V: Vfs>(
    vfs: &V,
    parent: Parent<'_, V>,
    token: &Token,
    directory: bool,
) -> Result<Option<Above>, Failure> {
    let (sd, stored) = parent.descriptor(vfs).await?;
    let needed = if directory {
        AccessMask::FILE_ADD_SUBDIRECTORY
    } else {
        AccessMask::FILE_ADD_FILE
    };
    Status::ACCESS_DENIED.when(!maximal(&sd, token).contains(needed))?;
    match stored {
        true => Ok(parent.passes_on(vfs, sd).await?),
        false => Ok(None),
    }
}

/// Whether the parent's descriptor lets the token write there.
pub(crate) async fn may_write_in<V: Vfs>(
    vfs: &V,
    parent: Parent<'_, V>,
    token: &Token,
) -> Result<bool, VfsError> {
    let (sd, _) = parent.descriptor(vfs).await?;
    Ok(maximal(&sd, token).contains(AccessMask::FILE_WRITE_DATA))
}

/// The descriptor to store with a new object: one is made if the parent has a stored descriptor (`above`) or the
/// creator gives one. Otherwise none is stored, and the permission bits decide.
pub(crate) fn for_new(
    above: Option<&Above>,
    token: &Token,
    given: Option<&SecurityDescriptor>,
    directory: bool,
) -> Option<SecurityDescriptor> {
    if above.is_none() && given.is_none() {
        return None;
    }
    let theirs = above.map(|above| &above.descriptor);
    let group = above.and_then(|above| above.group);
    let (owner, group) = (token.owner_sid, group.unwrap_or(token.group_sid));
    Some(dtyp::inherit(theirs, given, directory, owner, group))
}

/// No user has SeRestorePrivilege: an owner or group can only be set to the user or one of the user's groups, or
/// stay. `same` maps a SID to the SID by which clients see that account.
pub(crate) fn may_own(
    old: &SecurityDescriptor,
    new: &SecurityDescriptor,
    parts: SecurityInformation,
    token: &Token,
    same: impl Fn(&Sid) -> Sid,
) -> Result<(), Failure> {
    let allowed = |old: Option<Sid>, new: Option<Sid>| {
        new.is_none_or(|sid| {
            old.is_some_and(|old| same(&old) == same(&sid)) || token.sids.contains(&sid)
        })
    };
    if parts.contains(SecurityInformation::OWNER) && !allowed(old.owner, new.owner) {
        return Err(Status::INVALID_OWNER.into());
    }
    if parts.contains(SecurityInformation::GROUP) && !allowed(old.group, new.group) {
        return Err(Status::INVALID_PRIMARY_GROUP.into());
    }
    Ok(())
}

/// A descriptor as clients see it on a share where everybody acts as `ids`, if that is set: accounts appear by
/// their own SIDs.
pub(crate) fn shown(
    config: &ServerConfig,
    ids: Option<(u32, u32)>,
    sd: SecurityDescriptor,
) -> SecurityDescriptor {
    let mut shown = sd.clone();
    shown.map_sids(|sid| local_accounts::shown_on(config, ids, sid));
    let (Some(before), Some(list)) = (sd.dacl, &mut shown.dacl) else {
        return shown;
    };
    // A local user's own group may be the same account: an entry that adds nothing to earlier ones is left out. It is
    // compared with their sum, because a list may have thousands of entries.
    let mut allowed: BTreeMap<(AceFlags, Sid), AccessMask> = BTreeMap::new();
    let entries = std::mem::take(&mut list.aces);
    for (ace, was) in entries.into_iter().zip(before.aces) {
        if let (AceType::ACCESS_ALLOWED, Some((mask, sid))) = (ace.ace_type, ace.access()) {
            let whose = (ace.flags, *sid);
            let known = allowed.get(&whose).copied();
            if ace != was && known.is_some_and(|known| known.contains(mask)) {
                continue;
            }
            allowed.insert(whose, known.unwrap_or_default() | mask);
        }
        list.aces.push(ace);
    }
    shown
}

pub(crate) fn readonly(attr: &Attr) -> bool {
    FileAttributes(attr.dos_attributes).contains(FileAttributes::READONLY)
}

/// The descriptors an open with these rights needs.
pub(crate) fn io_access(granted: AccessMask, directory: bool) -> IoAccess {
    let (read, write) = by_descriptor(directory);
    IoAccess {
        read: granted.intersects(read),
        write: granted.intersects(write),
    }
}

/// The rights that need a descriptor opened for reading, and those that need one for writing.
fn by_descriptor(directory: bool) -> (AccessMask, AccessMask) {
    if directory {
        // A FLUSH does not need the user's descriptor: a user who may add to a directory need not be able to read it.
        return (AccessMask::FILE_LIST_DIRECTORY, AccessMask::empty());
    }
    (
        AccessMask::FILE_READ_DATA | AccessMask::FILE_EXECUTE,
        AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA,
    )
}

/// Leaves out the rights for which the kernel would refuse to open a descriptor, so that an open with the others
/// succeeds.
async fn openable<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
    rights: AccessMask,
) -> Result<AccessMask, Failure> {
    let (vfs, node) = (subject.vfs, subject.node);
    let (read, write) = by_descriptor(subject.attr.kind == Kind::Directory && !subject.stream);
    if !rights.intersects(read | write) {
        return Ok(rights);
    }
    let may = vfs.permitted(&token.identity, node).await?;
    Ok(rights.without(read.when(!may.read) | write.when(!may.write)))
}
