//! QUERY_INFO of an object's security descriptor ([MS-SMB2] 3.3.5.20.3, [MS-FSA] 2.1.5.14). It is never truncated: if
//! the buffer is too small, the answer says how much is needed.

use bytes::{Bytes, BytesMut};
use smb_wire::{access_mask::AccessMask, dtyp::SecurityInformation, status::Status};
use vfs::Vfs;

use super::InfoAnswer;
use crate::{
    access,
    command::{Call, engine::OnDisk},
    failure::Failure,
    state::{Open, need},
};

/// Parts that READ_CONTROL allows to be read.
const READ_CONTROL_PARTS: SecurityInformation = SecurityInformation(
    SecurityInformation::OWNER.0
        | SecurityInformation::GROUP.0
        | SecurityInformation::DACL.0
        | SecurityInformation::LABEL.0
        | SecurityInformation::ATTRIBUTE.0
        | SecurityInformation::SCOPE.0
        | SecurityInformation::BACKUP.0,
);

pub(super) async fn query<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    parts: u32,
    max: usize,
) -> Result<InfoAnswer, Failure> {
    let parts = SecurityInformation(parts);
    let on = OnDisk::new(call, open)?;
    check_access(parts, open.granted)?;
    let attr = on.attr().await?;
    let sd = access::replaceable(on.vfs(), &on.disk.node, &attr).await?;
    let sd = access::shown(&on.server.config(), on.share.config.act_as, sd);
    let mut bytes = BytesMut::new();
    sd.select(parts)
        .encode(&mut bytes)
        .map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    if bytes.len() > max {
        let needed = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        return Err(Failure::WithData(
            Status::BUFFER_TOO_SMALL,
            Bytes::copy_from_slice(&needed.to_le_bytes()),
        ));
    }
    Ok(InfoAnswer::whole(bytes))
}

/// A backup reads all parts ([MS-DTYP] 2.4.7), so it needs both rights, as [MS-SMB2] 3.3.5.21.3 has it need all rights
/// to set them. An answer without any part would be kept as the backup of a descriptor.
fn check_access(parts: SecurityInformation, granted: AccessMask) -> Result<(), Failure> {
    use SecurityInformation as Part;
    let system = parts.intersects(Part::SACL | Part::BACKUP);
    let needed = AccessMask::READ_CONTROL.when(parts.intersects(READ_CONTROL_PARTS))
        | AccessMask::ACCESS_SYSTEM_SECURITY.when(system);
    need(granted, needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_with_its_right_only() {
        let denied = |parts, granted| check_access(parts, granted).is_err();
        assert!(denied(SecurityInformation::DACL, AccessMask::WRITE_DAC));
        assert!(!denied(SecurityInformation::DACL, AccessMask::READ_CONTROL));
        assert!(denied(SecurityInformation::SACL, AccessMask::READ_CONTROL));
        assert!(denied(
            SecurityInformation::BACKUP,
            AccessMask::READ_CONTROL
        ));
        assert!(!denied(SecurityInformation::empty(), AccessMask::empty()));
    }
}
