//! Sends a call to its interface.
//!
//! Every outcome is either a stub or a fault; statuses of the services are inside their stubs.

use bytes::BytesMut;
use smb_wire::rpc::{self, FaultStatus, Interface};

use super::{dssetup, handles::Handles, lsarpc, samr, srvsvc, wkssvc, world::World};

/// A stub, or a fault.
pub(super) type Answer = Result<BytesMut, FaultStatus>;

/// Answers one call.
pub(super) fn answer(
    interface: Interface,
    world: &World,
    handles: &mut Handles,
    opnum: u16,
    stub: &[u8],
) -> Answer {
    match interface {
        Interface::Srvsvc => srvsvc::answer(world, opnum, stub),
        Interface::Wkssvc => wkssvc::answer(world, opnum, stub),
        Interface::Lsarpc => lsarpc::answer(
            world,
            handles,
            rpc::lsarpc::LsarpcRequest::decode(opnum, stub)?,
        ),
        Interface::Dssetup => dssetup::answer(world, opnum, stub),
        Interface::Samr => {
            samr::answer(world, handles, rpc::samr::SamrRequest::decode(opnum, stub)?)
        }
    }
}
