//! Setting the security descriptor ([MS-SMB2] 3.3.5.21.3, [MS-FSA] 2.1.5.17): the parts named
//! are merged into what is stored, or into what the permission bits say.

use bytes::BytesMut;
use durability::{Completion, Meta};
use smb_wire::{
    access_mask::AccessMask,
    dtyp::{SecurityDescriptor, SecurityInformation, Sid},
    msg::NotifyFilter,
    status::Status,
};
use vfs::{Node, Vfs};

use super::tell;
use crate::{
    access,
    command::{Call, engine},
    failure::Failure,
    file::Operation,
    local_accounts,
    state::{Open, need},
};

/// Stores the parts named.
pub(super) async fn set<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    parts: u32,
    buffer: &[u8],
) -> Result<Completion, Failure> {
    let parts = SecurityInformation(parts);
    let disk = open.disk()?;
    check_access(parts, open.granted)?;
    let new = SecurityDescriptor::read(buffer).map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    let share = call.share()?;
    let token = call.token()?;
    // Before what is stored is read: a right that another request takes away stays taken away.
    engine::operation(call, open, Operation::SetSecurity).await?;
    let merging = call.server().descriptors.lock(disk.node.key()).await;
    let attr = engine::attr(call, open).await?;
    let mut sd = access::descriptor(&*share.vfs, &disk.node, &attr, None).await?;
    let (config, ids) = (call.server().config(), share.config.act_as);
    let same = |sid: &Sid| local_accounts::told_on(&config, ids, sid);
    access::may_own(&sd, &new, parts, &token, same)?;
    sd.merge(&new, parts);
    let mut bytes = BytesMut::new();
    sd.encode(&mut bytes)
        .map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    let begun = share.gate.begin();
    share
        .vfs
        .set_security(&token.identity, &disk.node, &bytes)
        .await?;
    drop(merging);
    tell(call, open, NotifyFilter::SECURITY).await;
    let flags = open.flags();
    let receipt = begun
        .metadata_changed(&disk.node, Meta::Security, flags)
        .await?;
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
    fn each_part_needs_its_right() {
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
