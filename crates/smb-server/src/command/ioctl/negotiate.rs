//! FSCTL_VALIDATE_NEGOTIATE_INFO ([MS-SMB2] 3.3.5.15.12): with this signed request a client of 3.0
//! or 3.0.2 checks whether somebody changed the unsigned NEGOTIATE.
//!
//! Any difference ends the connection, because no status could be trusted.

use bytes::BytesMut;
use smb_wire::{
    codec::size,
    fsctl::{ValidateNegotiateInfoRequest, ValidateNegotiateInfoResponse},
    msg::{Dialect, IoctlRequest},
};
use vfs::Vfs;

use super::Answer;
use crate::{command::Call, failure::Failure, link::misbehaved::Misbehaved};

const TAMPERED: Failure = Failure::Disconnect(Misbehaved::NegotiateTampered);

/// Compares the request with NEGOTIATE, and repeats the answer to it.
pub(super) fn validate<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
) -> Result<Answer, Failure> {
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
    Ok(Answer::of_query(out))
}
