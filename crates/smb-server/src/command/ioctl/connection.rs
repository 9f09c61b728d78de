//! Control codes about the connection: FSCTL_VALIDATE_NEGOTIATE_INFO ([MS-SMB2] 3.3.5.15.12) and
//! FSCTL_QUERY_NETWORK_INTERFACE_INFO (2.2.32.5, 3.3.5.15.11).

use bytes::BytesMut;
use smb_wire::{
    codec::size,
    fsctl::{
        NetworkInterfaceInfo, ValidateNegotiateInfoRequest, ValidateNegotiateInfoResponse,
        encode_network_interfaces,
    },
    msg::{Dialect, IoctlRequest},
    status::Status,
};
use vfs::Vfs;

use super::IoctlAnswer;
use crate::{command::Call, failure::Failure, link::misbehaved::Misbehaved};

const TAMPERED: Failure = Failure::Disconnect(Misbehaved::NegotiateTampered);

/// Compares the request with NEGOTIATE, and repeats the answer to it: with this signed request a client of 3.0 or 3.0.2
/// checks whether somebody changed the unsigned NEGOTIATE. Any difference ends the connection, because no status could
/// be trusted.
pub(super) fn validate<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
) -> Result<IoctlAnswer, Failure> {
    let facts = call.connection.negotiated().ok_or(TAMPERED)?;
    let max = size(request.max_output_response);
    if facts.dialect == Dialect::SMB_3_1_1 || max < ValidateNegotiateInfoResponse::MIN {
        return Err(TAMPERED);
    }
    let theirs = ValidateNegotiateInfoRequest::read(request.input).map_err(|_| TAMPERED)?;
    let dialects = theirs.dialects.iter().copied();
    if !dialects.eq(facts.client_dialects.iter().map(|dialect| dialect.0))
        || theirs.guid != facts.client_guid
        || theirs.security_mode != facts.client_security_mode.bits()
        || theirs.capabilities != facts.client_capabilities.bits()
    {
        return Err(TAMPERED);
    }
    let mut out = BytesMut::new();
    ValidateNegotiateInfoResponse {
        capabilities: facts.server_capabilities.bits(),
        guid: call.server().config().server_guid,
        security_mode: facts.server_security_mode.bits(),
        dialect: facts.dialect.0,
    }
    .encode(&mut out);
    Ok(IoctlAnswer::of_query(out))
}

/// The addresses at which a client may open further channels, with their speed and capabilities. The list is the
/// daemon's; nothing is looked up here.
pub(super) fn interfaces<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
) -> Result<IoctlAnswer, Failure> {
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
    Ok(IoctlAnswer::of_query(out))
}
