//! Who may do what with an inode: the stored security descriptor, or one derived from the
//! permission bits, checked as [MS-DTYP] 2.5.3.2 and [MS-FSA] 2.1.5.1.2.1 say.
//!
//! The kernel's own check comes on top wherever the server runs as root and acts as the user.

use smb_wire::{
    access_mask::AccessMask,
    dtyp::{self, Ace, AceFlags, Acl, SecurityDescriptor, SecurityDescriptorControl, Sid},
    file_attributes::FileAttributes,
    status::Status,
};
use vfs::{Attr, Kind, Lookup, Node, Permissions, Seen, Timestamp, Vfs, VfsError};

use crate::{command::Failure, state::Token};

/// `S_ISVTX`.
const STICKY: u32 = 0o1000;
/// `S_ISUID`; `S_ISGID` where the group may execute, elsewhere it says something else.
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2010;

/// Rights of which MAXIMUM_ALLOWED is deprived by the READONLY attribute.
const WRITE_RIGHTS: AccessMask = AccessMask(
    AccessMask::FILE_WRITE_DATA.bits()
        | AccessMask::FILE_APPEND_DATA.bits()
        | AccessMask::FILE_DELETE_CHILD.bits(),
);

/// The descriptor of an inode: stored, or derived from its permission bits. `changed`: as in
/// [`Subject`].
pub(crate) async fn descriptor<V: Vfs>(
    vfs: &V,
    node: &V::Node,
    attr: &Attr,
    changed: Option<&Timestamp>,
) -> Result<SecurityDescriptor, VfsError> {
    match stored(vfs, node, changed).await? {
        Some(sd) => Ok(sd),
        None => Ok(derived(attr.into(), attr.kind == Kind::Directory)),
    }
}

/// The stored descriptor. One that cannot be understood opens nothing: only its owner, as Linux
/// knows him, may replace it.
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

/// What the permission bits say, as a descriptor: owner, group, everyone.
pub(crate) fn derived(of: Permissions, directory: bool) -> SecurityDescriptor {
    derived_for(Sid::unix_user(of.uid), of, directory)
}

/// The same with this account as the owner, who shares his uid with others.
pub(crate) fn derived_for(owner: Sid, of: Permissions, directory: bool) -> SecurityDescriptor {
    let group = Sid::unix_group(of.gid);
    let rights = |bits| rights(directory, bits);
    let entry = |sid, mask| Ace::allow(sid, mask, AceFlags::empty());
    SecurityDescriptor {
        control: SecurityDescriptorControl::empty(),
        owner: Some(owner),
        group: Some(group),
        sacl: None,
        dacl: Some(Acl::new(vec![
            entry(owner, owner_rights(directory, of.mode >> 6)),
            entry(group, rights(of.mode >> 3)),
            entry(Sid::EVERYONE, rights(of.mode)),
        ])),
    }
}

/// The owner may always change permissions and attributes, and remove what is his.
fn owner_rights(directory: bool, bits: u32) -> AccessMask {
    if bits & 0o6 == 0o6 {
        return AccessMask::FILE_ALL_ACCESS;
    }
    rights(directory, bits)
        | AccessMask::WRITE_DAC
        | AccessMask::WRITE_OWNER
        | AccessMask::DELETE
        | AccessMask::FILE_WRITE_ATTRIBUTES
}

/// Rights that three permission bits stand for. Reading a file includes running it: a client
/// that may read could copy and run it anyway, and Windows asks for both.
fn rights(directory: bool, bits: u32) -> AccessMask {
    let mut mask =
        AccessMask::READ_CONTROL | AccessMask::SYNCHRONIZE | AccessMask::FILE_READ_ATTRIBUTES;
    if bits & 0o4 != 0 {
        mask |= AccessMask::FILE_GENERIC_READ;
        if !directory {
            mask |= AccessMask::FILE_EXECUTE;
        }
    }
    if bits & 0o2 != 0 {
        mask = mask | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE;
        if directory {
            mask |= AccessMask::FILE_DELETE_CHILD;
        }
    }
    if bits & 0o1 != 0 {
        mask |= AccessMask::FILE_EXECUTE;
    }
    mask
}

/// Everything a token may do according to a descriptor.
pub(crate) fn maximal(sd: &SecurityDescriptor, token: &Token) -> AccessMask {
    dtyp::maximal_access(sd, &dtyp::Token::new(&token.sids))
}

/// A directory, with its state where the lookup that led there had to look at it, and the name of the
/// object in it where that is known.
pub(crate) struct Parent<'a, V: Vfs> {
    node: &'a V::Node,
    seen: Option<&'a Seen>,
    name: Option<&'a str>,
}

impl<'a, V: Vfs> Parent<'a, V> {
    /// With its state, if that was just seen.
    pub(crate) fn seen(node: &'a V::Node, seen: Option<&'a Seen>) -> Self {
        let name = None;
        Self { node, seen, name }
    }

    /// By this name the object is in it.
    pub(crate) fn named(self, name: &'a str) -> Self {
        let name = Some(name);
        Self { name, ..self }
    }

    /// The one of a lookup by the same request.
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

    /// Its descriptor, and whether that is a stored one.
    async fn descriptor(&self, vfs: &V) -> Result<(SecurityDescriptor, bool), VfsError> {
        let changed = self.seen.map(|seen| &seen.changed);
        if let Some(sd) = stored(vfs, self.node, changed).await? {
            return Ok((sd, true));
        }
        let permissions = self.permissions(vfs).await?;
        Ok((derived(permissions, self.node.is_directory()), false))
    }

    /// Whether a stored descriptor says no more than the permission bits and whose the directory
    /// is. As little is passed on to what is made in it as bits are.
    async fn only_tells_owner(&self, vfs: &V, sd: &SecurityDescriptor) -> Result<bool, VfsError> {
        let Some(owner) = sd.owner else {
            return Ok(false);
        };
        let of = self.permissions(vfs).await?;
        let bits = derived_for(owner, of, self.node.is_directory());
        Ok((&sd.group, &sd.dacl, &sd.sacl) == (&bits.group, &bits.dacl, &bits.sacl))
    }
}

/// What is known about the object an access is asked to.
pub(crate) struct Subject<'a, V: Vfs> {
    pub(crate) vfs: &'a V,
    pub(crate) node: &'a V::Node,
    pub(crate) attr: &'a Attr,
    /// The change time that the disk told this request, if its descriptor of then will do.
    pub(crate) changed: Option<&'a Timestamp>,
    pub(crate) parent: Option<Parent<'a, V>>,
    /// The most the tree allows.
    pub(crate) ceiling: AccessMask,
    /// The object is a named stream of the node: no name in a directory is its own.
    pub(crate) stream: bool,
}

/// [MS-FSA] 2.1.5.1.2.1: what an open of an existing object is granted.
///
/// # Errors
/// `ACCESS_DENIED`.
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
        allowed |= parents_gift(subject, token).await?;
    }
    let mut allowed = allowed & subject.ceiling;
    if maximum && readonly(subject.attr) {
        allowed = allowed.without(WRITE_RIGHTS);
    }
    if (wanted.contains(AccessMask::DELETE) || maximum) && is_stuck(subject, token).await? {
        allowed = allowed.without(AccessMask::DELETE);
    }
    if !allowed.contains(wanted) {
        return Err(Status::ACCESS_DENIED.into());
    }
    if !maximum {
        return Ok(wanted);
    }
    if allowed.is_empty() {
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(allowed)
}

/// Everything the token could be granted (for MxAc).
pub(crate) async fn maximum<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
) -> Result<AccessMask, Failure> {
    let mut all = allowed(subject, token).await? | parents_gift(subject, token).await?;
    if is_stuck(subject, token).await? {
        all = all.without(AccessMask::DELETE);
    }
    Ok(all & subject.ceiling)
}

/// Whether the object's name stays whatever descriptors say: out of a sticky directory the kernel lets
/// the owners of object and directory take names, and nobody else (unlink(2)).
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
    // The name may be a link of his own to what is another's.
    let (who, node) = (&token.identity, subject.node);
    match vfs.may_remove(who, node, parent.node, name).await {
        Ok(()) => Ok(false),
        Err(VfsError::AccessDenied) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

async fn allowed<V: Vfs>(subject: &Subject<'_, V>, token: &Token) -> Result<AccessMask, Failure> {
    let sd = descriptor(subject.vfs, subject.node, subject.attr, subject.changed).await?;
    let rights = maximal(&sd, token);
    match rights.contains(AccessMask::DELETE) && is_anothers(subject, token).await? {
        true => Ok(rights.without(AccessMask::DELETE)),
        false => Ok(rights),
    }
}

/// Whether a sticky directory keeps the object's name from an account whose uid others have: it lets
/// only owners take names, and for the kernel each of those accounts is one (unlink(2)).
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

/// DELETE may come from the parent's DELETE_CHILD, READ_ATTRIBUTES from its LIST_DIRECTORY.
async fn parents_gift<V: Vfs>(
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

/// Whether the token may give a file one more name, whatever handle it has of it. [MS-FSA]
/// 2.1.5.15.7 asks for no right; the rule is that of Linux with `fs.protected_hardlinks`
/// (proc_sys_fs(5)), wherever that is not set, too: the owner may, and who may read and write a file
/// that does not run as its owner. What one cannot read is not to be kept from going, nor changed.
///
/// # Errors
/// `ACCESS_DENIED`.
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
    let runs_as_its_owner = attr.mode & SET_UID != 0 || attr.mode & SET_GID == SET_GID;
    let needed = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
    if owns || (!runs_as_its_owner && maximal(&sd, token).contains(needed)) {
        return Ok(());
    }
    Err(Status::ACCESS_DENIED.into())
}

/// Whether the parent lets the token add a file or directory; if so, its stored descriptor where
/// that is passed on.
///
/// # Errors
/// `ACCESS_DENIED`.
pub(crate) async fn may_add<V: Vfs>(
    vfs: &V,
    parent: Parent<'_, V>,
    token: &Token,
    directory: bool,
) -> Result<Option<SecurityDescriptor>, Failure> {
    let (sd, stored) = parent.descriptor(vfs).await?;
    let needed = if directory {
        AccessMask::FILE_ADD_SUBDIRECTORY
    } else {
        AccessMask::FILE_ADD_FILE
    };
    if !maximal(&sd, token).contains(needed) {
        return Err(Status::ACCESS_DENIED.into());
    }
    let passed_on = stored && !parent.only_tells_owner(vfs, &sd).await?;
    Ok(passed_on.then_some(sd))
}

/// The descriptor to store with a new object: inherited where the parent has a stored one
/// (`theirs`) or the creator gives one; else none, and the permission bits speak.
pub(crate) fn for_new(
    theirs: Option<&SecurityDescriptor>,
    token: &Token,
    given: Option<&SecurityDescriptor>,
    directory: bool,
) -> Option<SecurityDescriptor> {
    if theirs.is_none() && given.is_none() {
        return None;
    }
    let (user, group) = (token.user_sid, token.group_sid);
    Some(dtyp::inherit(theirs, given, directory, user, group))
}

/// READONLY is set.
pub(crate) fn readonly(attr: &Attr) -> bool {
    FileAttributes(attr.dos_attributes).contains(FileAttributes::READONLY)
}
