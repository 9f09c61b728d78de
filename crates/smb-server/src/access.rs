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
use vfs::{Attr, Kind, Vfs, VfsError};

use crate::{command::Failure, state::Token};

/// Rights of which MAXIMUM_ALLOWED is deprived by the READONLY attribute.
const WRITE_RIGHTS: AccessMask = AccessMask(
    AccessMask::FILE_WRITE_DATA.bits()
        | AccessMask::FILE_APPEND_DATA.bits()
        | AccessMask::FILE_DELETE_CHILD.bits(),
);

/// The descriptor of an inode: stored, or derived from its permission bits.
pub(crate) async fn descriptor<V: Vfs>(
    vfs: &V,
    node: &V::Node,
    attr: &Attr,
) -> Result<SecurityDescriptor, VfsError> {
    match stored(vfs, node).await? {
        Some(sd) => Ok(sd),
        None => Ok(derived(attr)),
    }
}

/// The stored descriptor. One that cannot be understood opens nothing: only its owner, as Linux
/// knows him, may replace it.
pub(crate) async fn stored<V: Vfs>(
    vfs: &V,
    node: &V::Node,
) -> Result<Option<SecurityDescriptor>, VfsError> {
    match vfs.security(node).await {
        Ok(None) | Err(VfsError::NotSupported | VfsError::NoAttribute) => Ok(None),
        Ok(Some(bytes)) => SecurityDescriptor::read(&bytes)
            .map(Some)
            .map_err(|_| VfsError::Corrupt),
        Err(error) => Err(error),
    }
}

/// What the permission bits say, as a descriptor: owner, group, everyone.
pub(crate) fn derived(attr: &Attr) -> SecurityDescriptor {
    let (owner, group) = (Sid::unix_user(attr.uid), Sid::unix_group(attr.gid));
    let entry = |sid, mask| Ace::allow(sid, mask, AceFlags::empty());
    SecurityDescriptor {
        control: SecurityDescriptorControl::empty(),
        owner: Some(owner),
        group: Some(group),
        sacl: None,
        dacl: Some(Acl::new(vec![
            entry(owner, owner_rights(attr)),
            entry(group, rights(attr, attr.mode >> 3)),
            entry(Sid::EVERYONE, rights(attr, attr.mode)),
        ])),
    }
}

/// The owner may always change permissions and attributes, and remove what is his.
fn owner_rights(attr: &Attr) -> AccessMask {
    let bits = attr.mode >> 6;
    if bits & 0o6 == 0o6 {
        return AccessMask::FILE_ALL_ACCESS;
    }
    rights(attr, bits)
        | AccessMask::WRITE_DAC
        | AccessMask::WRITE_OWNER
        | AccessMask::DELETE
        | AccessMask::FILE_WRITE_ATTRIBUTES
}

/// Rights that three permission bits stand for. Reading a file includes running it: a client
/// that may read could copy and run it anyway, and Windows asks for both.
fn rights(attr: &Attr, bits: u32) -> AccessMask {
    let directory = attr.kind == Kind::Directory;
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

/// What is known about the object an access is asked to.
pub(crate) struct Subject<'a, V: Vfs> {
    pub(crate) vfs: &'a V,
    pub(crate) node: &'a V::Node,
    pub(crate) attr: &'a Attr,
    pub(crate) parent: Option<&'a V::Node>,
    /// The most the tree allows.
    pub(crate) ceiling: AccessMask,
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
    let allowed = allowed & subject.ceiling;
    if !allowed.contains(wanted) {
        return Err(Status::ACCESS_DENIED.into());
    }
    if !maximum {
        return Ok(wanted);
    }
    let mut granted = allowed;
    if readonly(subject.attr) {
        granted = granted.without(WRITE_RIGHTS) | wanted;
    }
    if granted.is_empty() {
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(granted)
}

/// Everything the token could be granted (for MxAc).
pub(crate) async fn maximum<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
) -> Result<AccessMask, Failure> {
    let all = allowed(subject, token).await? | parents_gift(subject, token).await?;
    Ok(all & subject.ceiling)
}

async fn allowed<V: Vfs>(subject: &Subject<'_, V>, token: &Token) -> Result<AccessMask, Failure> {
    let sd = descriptor(subject.vfs, subject.node, subject.attr).await?;
    Ok(maximal(&sd, token))
}

/// DELETE may come from the parent's DELETE_CHILD, READ_ATTRIBUTES from its LIST_DIRECTORY.
async fn parents_gift<V: Vfs>(
    subject: &Subject<'_, V>,
    token: &Token,
) -> Result<AccessMask, Failure> {
    let Some(parent) = subject.parent else {
        return Ok(AccessMask::empty());
    };
    let attr = subject.vfs.attr(parent).await?;
    let sd = descriptor(subject.vfs, parent, &attr).await?;
    let theirs = maximal(&sd, token);
    Ok(AccessMask::DELETE
        .when(theirs.contains(AccessMask::FILE_DELETE_CHILD))
        .union(
            AccessMask::FILE_READ_ATTRIBUTES.when(theirs.contains(AccessMask::FILE_LIST_DIRECTORY)),
        ))
}

/// Whether the parent lets the token add a file or directory.
///
/// # Errors
/// `ACCESS_DENIED`.
pub(crate) async fn may_add<V: Vfs>(
    vfs: &V,
    parent: &V::Node,
    token: &Token,
    directory: bool,
) -> Result<(), Failure> {
    let attr = vfs.attr(parent).await?;
    let sd = descriptor(vfs, parent, &attr).await?;
    let needed = if directory {
        AccessMask::FILE_ADD_SUBDIRECTORY
    } else {
        AccessMask::FILE_ADD_FILE
    };
    if maximal(&sd, token).contains(needed) {
        Ok(())
    } else {
        Err(Status::ACCESS_DENIED.into())
    }
}

/// The descriptor to store with a new object: inherited where the parent has a stored one or
/// the creator gives one; else none, and the permission bits speak.
pub(crate) async fn for_new<V: Vfs>(
    vfs: &V,
    parent: &V::Node,
    token: &Token,
    given: Option<&SecurityDescriptor>,
    directory: bool,
) -> Result<Option<SecurityDescriptor>, Failure> {
    let theirs = stored(vfs, parent).await?;
    if theirs.is_none() && given.is_none() {
        return Ok(None);
    }
    Ok(Some(dtyp::inherit(
        theirs.as_ref(),
        given,
        directory,
        token.user_sid,
        token.group_sid,
    )))
}

/// READONLY is set (on directories it means nothing).
pub(crate) fn readonly(attr: &Attr) -> bool {
    attr.kind != Kind::Directory
        && FileAttributes(attr.dos_attributes).contains(FileAttributes::READONLY)
}
