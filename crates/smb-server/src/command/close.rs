//! CLOSE ([MS-SMB2] 3.3.5.10); the steps of a close are in `state/close.rs`.

use std::sync::Arc;

use smb_wire::{
    msg::{CloseFlags, CloseRequest, CloseResponse},
    status::Status,
};
use vfs::{Attr, Vfs};

use super::{Call, Handled, Reply, engine::OnDisk};
use crate::{
    command::facts,
    failure::Failure,
    state::{EndReason, Open, close},
};

/// Closes a handle. A disk error is reported, but the handle is closed all the same.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = CloseRequest::read(&call.message)?;
    let open = call.open(request.file_id)?;
    Status::FILE_CLOSED.when(!open.begin_close())?;
    open.parked.end(EndReason::Closed);
    open.quiesce(1).await;
    let mut response = CloseResponse::default();
    // [MS-SMB2] 3.3.5.10: the attributes are those before the close.
    if request.flags.contains(CloseFlags::POSTQUERY_ATTRIB)
        && let Ok(attr) = attr(call, &open).await
    {
        response.flags = CloseFlags::POSTQUERY_ATTRIB;
        response.facts = facts(&attr);
    }
    let session = Arc::clone(call.session()?);
    let receipt = close::finish(call.server(), Some(&session), &open).await?;
    Ok(Reply::changed(&response, receipt))
}

async fn attr<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<Attr, Failure> {
    OnDisk::new(call, open)?.attr().await
}
