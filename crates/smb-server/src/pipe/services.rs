//! Sends a call to its interface, and answers those of wkssvc and dssetup, which have one call each.
//!
//! Every outcome is either a stub or a fault; statuses of the services are inside their stubs.

use bytes::BytesMut;
use smb_wire::rpc::{
    FaultStatus, Interface, dssetup,
    lsarpc::LsarpcRequest,
    samr::SamrRequest,
    wkssvc::{self, WkstaInfo},
};

use super::{
    handles::Handles,
    lsarpc, samr,
    srvsvc::{self, PLATFORM_NT, VERSION},
    world::World,
};

/// A stub, or a fault.
pub(super) type Answer = Result<BytesMut, FaultStatus>;

pub(super) fn answer(
    interface: Interface,
    world: &World,
    handles: &mut Handles,
    opnum: u16,
    stub: &[u8],
) -> Answer {
    match interface {
        Interface::Srvsvc => srvsvc::answer(world, opnum, stub),
        Interface::Wkssvc => workstation(world, opnum, stub),
        Interface::Lsarpc => lsarpc::answer(world, handles, LsarpcRequest::decode(opnum, stub)?),
        Interface::Dssetup => domain(world, opnum, stub),
        Interface::Samr => samr::answer(world, handles, SamrRequest::decode(opnum, stub)?),
    }
}

/// wkssvc ([MS-WKST] 3.2.4.1): the computer and its workgroup.
fn workstation(world: &World, opnum: u16, stub: &[u8]) -> Answer {
    let level = wkssvc::decode_level(opnum, stub)?;
    if !world.may_browse() {
        return Err(FaultStatus::ACCESS_DENIED);
    }
    let info = WkstaInfo {
        platform_id: PLATFORM_NT,
        computer_name: &world.config.netbios_name,
        lan_group: &world.config.workgroup,
        version_major: VERSION.0,
        version_minor: VERSION.1,
        logged_on_users: 1,
    };
    Ok(wkssvc::encode_wksta_get_info(level, &info))
}

/// dssetup ([MS-DSSP] 3.2.5.1): the server is in a workgroup, not in a domain.
fn domain(world: &World, opnum: u16, stub: &[u8]) -> Answer {
    let level = dssetup::decode_level(opnum, stub)?;
    // [MS-DSSP] 3.2.5.1, note 13.
    if !world.may_look_up() {
        return Err(FaultStatus::ACCESS_DENIED);
    }
    let workgroup = &world.config.workgroup;
    Ok(dssetup::encode_primary_domain_information(level, workgroup))
}
