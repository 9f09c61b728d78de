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
    if !open.begin_close() {
        return Err(Status::FILE_CLOSED.into());
    }
    open.end_parked(EndReason::Closed);
    open.quiesce(1).await;
    // [MS-SMB2] 3.3.5.10: the attributes are those before the close.
    let asked = request.flags.contains(CloseFlags::POSTQUERY_ATTRIB);
    let attr = if asked {
        attr(call, &open).await.ok()
    } else {
        None
    };
    let session = Arc::clone(call.session()?);
    let receipt = close::finish(call.server(), Some(&session), &open).await?;
    Ok(Reply::changed(&response(attr.as_ref()), receipt))
}

async fn attr<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<Attr, Failure> {
    OnDisk::new(call, open)?.attr().await
}

fn response(attr: Option<&Attr>) -> CloseResponse {
    let Some(attr) = attr else {
        return CloseResponse::default();
    };
    CloseResponse {
        flags: CloseFlags::POSTQUERY_ATTRIB,
        facts: facts(attr),
    }
}
