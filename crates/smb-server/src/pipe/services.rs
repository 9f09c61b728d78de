//! Sends a call to its interface.
//!
//! Every outcome is either a stub or a fault; statuses of the services are inside their stubs.

use bytes::BytesMut;
use smb_wire::rpc::{FaultStatus, Interface};

use super::{handles::Handles, lsarpc, samr, srvsvc, wkssvc, world::World};

/// Answers one call.
pub(super) fn answer(
    interface: Interface,
    world: &World,
    handles: &mut Handles,
    opnum: u16,
    stub: &[u8],
) -> Result<BytesMut, FaultStatus> {
    match interface {
        Interface::Srvsvc => srvsvc::answer(world, opnum, stub),
        Interface::Wkssvc => wkssvc::answer(world, opnum, stub),
        Interface::Lsarpc => lsarpc::answer(world, handles, opnum, stub),
        Interface::Samr => samr::answer(world, handles, opnum, stub),
    }
}
