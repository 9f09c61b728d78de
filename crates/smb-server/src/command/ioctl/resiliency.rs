//! FSCTL_LMR_REQUEST_RESILIENCY ([MS-SMB2] 3.3.5.15.9): the open is kept for its client over the
//! loss of its connection, whatever it caches.

use std::time::Duration;

use smb_wire::{
    fsctl::LmrRequestResiliency,
    msg::{Dialect, IoctlRequest},
    status::Status,
};
use vfs::Vfs;

use super::Answer;
use crate::{
    command::Call,
    failure::Failure,
    state::{Endurance, InFlight},
};

/// MaxResiliencyTimeout: the longest a client may ask for.
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// The timeout if the client leaves it to the server (note 401).
const TIMEOUT: Duration = Duration::from_secs(120);

/// Makes the open resilient; it is not durable any more.
pub(super) fn request<V: Vfs>(
    call: &Call<V>,
    request: &IoctlRequest<'_>,
    open: &InFlight<V>,
) -> Result<Answer, Failure> {
    Status::INVALID_DEVICE_REQUEST.when(call.connection.dialect() < Dialect::SMB_2_1)?;
    let asked = LmrRequestResiliency::read(request.input)?;
    let timeout = match Duration::from_millis(asked.timeout_ms.into()) {
        Duration::ZERO => TIMEOUT,
        timeout if timeout > TIMEOUT_MAX => return Err(Status::INVALID_PARAMETER.into()),
        timeout => timeout,
    };
    // Pipes have no state that could outlive a connection.
    open.disk()?;
    let mut state = open.state();
    // A persistent open stays persistent, because it outlives more than a resilient one.
    if !state.endurance.is_persistent() {
        state.endurance = Endurance::Resilient { timeout };
    }
    drop(state);
    call.server().durables.endures(open);
    Ok(Answer::done(durability::Unchanged::because(
        "only the open changed",
    )))
}
