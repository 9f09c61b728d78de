//! FSCTL_QUERY_NETWORK_INTERFACE_INFO ([MS-SMB2] 2.2.32.5, 3.3.5.15.11): the addresses at which a
//! client may open further channels, with their speed and capabilities.
//!
//! The list is the daemon's; nothing is looked up here.

use smb_wire::{
    codec::size,
    fsctl::{NetworkInterfaceInfo, encode_network_interfaces},
    msg::{Dialect, IoctlRequest},
    status::Status,
};
use vfs::Vfs;

use super::Answer;
use crate::{command::Call, failure::Failure};

pub(super) fn query<V: Vfs>(call: &Call<V>, request: &IoctlRequest<'_>) -> Result<Answer, Failure> {
    // 3.3.5.15.11 requires that the server supports it, not that the client announced it.
    Status::NOT_SUPPORTED.when(call.connection.dialect() < Dialect::SMB_3_0)?;
    let who = &call.session()?.established;
    let all = call.server().interfaces();
    let interfaces: &[NetworkInterfaceInfo] = match who.anonymous || who.guest {
        // A binding is signed with the key of a user's session, so they can open no further channel (3.3.5.5.2) and
        // get no address. That is no error: 3.3.5.15.11 has none for a session without a user.
        true => &[],
        false => &all,
    };
    let room = size(request.max_output_response);
    let (out, fitted) = encode_network_interfaces(interfaces, room);
    Status::BUFFER_TOO_SMALL.when(fitted < interfaces.len())?;
    Ok(Answer::of_query(out))
}
