//! dssetup ([MS-DSSP] 3.2.5.1): the server is in a workgroup, not in a domain.

use bytes::BytesMut;
use smb_wire::rpc::{
    FaultStatus,
    dssetup::{decode_level, encode_primary_domain_information},
};

use super::world::World;

/// Answers one call.
pub(super) fn answer(world: &World, opnum: u16, stub: &[u8]) -> Result<BytesMut, FaultStatus> {
    let level = decode_level(opnum, stub)?;
    // [MS-DSSP] 3.2.5.1, note 13.
    if !world.may_look_up() {
        return Err(FaultStatus::ACCESS_DENIED);
    }
    let workgroup = &world.config.workgroup;
    Ok(encode_primary_domain_information(level, workgroup))
}
