//! Objects whose stored descriptor cannot be read: the owner on disk can replace it, and nobody else is let in.

use smb_wire::{
    access_mask::AccessMask,
    dtyp::{Acl, SecurityDescriptor, Sid},
};
use vfs::{Attr, Vfs, VfsError};

use super::descriptor;
use crate::token::Token;

/// The rights that an owner always has ([MS-DTYP] 2.5.3.2).
pub(super) const RIGHTS_OF_OWNERS: AccessMask =
    AccessMask(AccessMask::READ_CONTROL.0 | AccessMask::WRITE_DAC.0);

/// Whether the object belongs on disk to the local user whom the token stands for. Where the server has one local user
/// for all accounts, the object may be another account's.
pub(super) fn owns(token: &Token, attr: &Attr) -> bool {
    let uid = token.local_ids().map(|(uid, _)| uid);
    token.owns_by_uid && uid == Some(attr.uid)
}

/// As [`descriptor`], for a handle by which it may be read or replaced: in place of one that cannot be read stands an
/// empty list, so that the owner begins with one that grants nothing to others.
pub(crate) async fn replaceable<V: Vfs>(
    vfs: &V,
    node: &V::Node,
    attr: &Attr,
) -> Result<SecurityDescriptor, VfsError> {
    match descriptor(vfs, node, attr, None).await {
        Err(VfsError::Corrupt) => Ok(SecurityDescriptor {
            owner: Some(Sid::unix_user(attr.uid)),
            group: Some(Sid::unix_group(attr.gid)),
            dacl: Some(Acl::new(Vec::new())),
            ..SecurityDescriptor::default()
        }),
        other => other,
    }
}
