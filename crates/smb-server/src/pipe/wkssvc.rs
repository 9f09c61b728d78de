//! wkssvc ([MS-WKST] 3.2.4.1): the computer and its workgroup.

use bytes::BytesMut;
use smb_wire::rpc::{
    FaultStatus,
    wkssvc::{WkstaInfo, decode_level, encode_wksta_get_info},
};

use super::{
    srvsvc::{PLATFORM_NT, VERSION},
    world::World,
};

/// Answers one call.
pub(super) fn answer(world: &World, opnum: u16, stub: &[u8]) -> Result<BytesMut, FaultStatus> {
    let level = decode_level(opnum, stub)?;
    if !world.may_browse() {
        return Err(FaultStatus::ACCESS_DENIED);
    }
    let info = WkstaInfo {
        platform_id: PLATFORM_NT,
        computer_name: world.config.netbios_name.clone(),
        lan_group: world.config.workgroup.clone(),
        version_major: VERSION.0,
        version_minor: VERSION.1,
        logged_on_users: 1,
    };
    Ok(encode_wksta_get_info(level, &info))
}
