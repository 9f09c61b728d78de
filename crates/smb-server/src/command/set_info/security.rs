//! Setting the security descriptor ([MS-SMB2] 3.3.5.21.3, [MS-FSA] 2.1.5.17): the parts named
//! are merged into the stored descriptor, or into the one derived from the permission bits.

use bytes::BytesMut;
use durability::{Meta, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    dtyp::{SecurityDescriptor, SecurityInformation, Sid},
    msg::NotifyFilter,
    status::Status,
};
use vfs::{Node, Vfs};

use super::{Changed, report_change};
use crate::{
    access,
    command::{
        engine::OnDisk,
        modified::{self, KeptChange},
    },
    failure::Failure,
    file::Operation,
    local_accounts,
    state::need,
};

/// The parts that a request can set ([MS-SMB2] 2.2.39). The bits that protect a list from inheritance qualify the list
/// that is set together with them.
const PARTS: SecurityInformation = SecurityInformation(0x0001_007f);

pub(super) async fn set<V: Vfs>(on: &OnDisk<'_, V>, parts: u32, buffer: &[u8]) -> Changed {
    let parts = SecurityInformation(parts);
    check_access(parts, on.open.granted)?;
    let new = SecurityDescriptor::read(buffer).map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    // [MS-FSA] 2.1.5.17.
    Status::INVALID_OWNER
        .when(parts.contains(SecurityInformation::OWNER) && new.owner.is_none())?;
    if !parts.intersects(PARTS) {
        // [MS-SMB2] 3.3.5.21.3: other flags are ignored. No right is needed to set nothing, so nothing is changed.
        return Ok(Unchanged::because("no part was named").into());
    }
    let token = on.token()?;
    // The lock is taken before the stored descriptor is read, so that this merge does not restore a
    // right that another request takes away.
    on.operation(Operation::SetSecurity).await?;
    let turn = modified::turn(on.disk.quick).await;
    let merging = on.server.merges.inode(on.disk.node.key()).await;
    let attr = on.attr().await?;
    let mut sd = access::replaceable(on.vfs(), &on.disk.node, &attr).await?;
    let (config, ids) = (on.server.config(), on.share.config.act_as);
    let same = |sid: &Sid| local_accounts::shown_on(&config, ids, sid);
    access::may_own(&sd, &new, parts, &token, same)?;
    sd.merge(&new, parts);
    let mut bytes = BytesMut::new();
    sd.encode(&mut bytes)
        .map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    let kept = KeptChange::begin(on, turn).await;
    let (vfs, node) = (on.vfs(), &on.disk.node);
    let begun = on.share.gate.begin(node);
    vfs.set_security(&token.identity, node, &bytes).await?;
    drop(merging);
    let ended = kept.end(on).await;
    report_change(on, NotifyFilter::SECURITY);
    let marked = begun.metadata_changed(node, Meta::Security, on.open.flags());
    let receipt = marked.await?;
    ended?;
    Ok(receipt.into())
}

/// [MS-SMB2] 3.3.5.21.3: the rights that each part needs.
fn check_access(parts: SecurityInformation, granted: AccessMask) -> Result<(), Failure> {
    use SecurityInformation as Part;
    let system = Part::SACL | Part::SCOPE;
    let owner = Part::OWNER | Part::GROUP | Part::LABEL;
    let dac = Part::DACL | Part::ATTRIBUTE;
    let backup = parts.contains(Part::BACKUP);
    let needed = AccessMask::ACCESS_SYSTEM_SECURITY.when(backup || parts.intersects(system))
        | AccessMask::WRITE_OWNER.when(backup || parts.intersects(owner))
        | AccessMask::WRITE_DAC.when(backup || parts.intersects(dac));
    need(granted, needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_set_with_its_right_only() {
        use SecurityInformation as Part;
        let denied = |parts, granted| check_access(parts, granted).is_err();
        assert!(denied(Part::DACL, AccessMask::WRITE_OWNER));
        assert!(!denied(Part::DACL, AccessMask::WRITE_DAC));
        assert!(denied(Part::OWNER, AccessMask::WRITE_DAC));
        assert!(!denied(Part::OWNER | Part::GROUP, AccessMask::WRITE_OWNER));
        assert!(denied(Part::SACL, AccessMask::FILE_ALL_ACCESS));
        assert!(denied(Part::BACKUP, AccessMask::FILE_ALL_ACCESS));
    }
}
