//! CANCEL ([MS-SMB2] 3.3.5.16): it gets no answer, and it ends a request that waits, but not one
//! that is being carried out.

use vfs::Vfs;

use crate::{
    connection::Connection,
    link::inbound::{Request, Signature},
    state::EndReason,
};

/// Handles a CANCEL, also an unsigned one (docs/protocol-notes.md, "An unsigned CANCEL").
pub(super) fn handle<V: Vfs>(connection: &Connection<V>, request: &Request) {
    if matches!(
        request.signature,
        Signature::Bad | Signature::NoSession | Signature::NoKey
    ) {
        return;
    }
    let header = &request.header;
    let Some(id) = header.async_id else {
        return connection.cancel(header.message_id);
    };
    if let Some(waiting) = connection.waiting.borrow().get(&id) {
        waiting.ender.end(EndReason::Cancelled);
    }
}
