//! LOGOFF ([MS-SMB2] 3.3.5.6), and how a session ends in general.

use std::{rc::Rc, sync::Arc};

use smb_wire::{
    msg::{LogoffRequest, LogoffResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, revoke, tree_disconnect::Left};
use crate::{
    connection::Connection,
    state::{EndReason, Server, Session, breaks, close, disconnected},
};

/// Ends the session. Of several LOGOFFs at once exactly one succeeds.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    LogoffRequest::read(&call.message)?;
    let session = Arc::clone(call.session()?);
    if !end(call.server(), &session).await {
        return Err(Status::USER_SESSION_DELETED.into());
    }
    // The channel stays, so that later requests on the session are answered with a signed
    // USER_SESSION_DELETED. The client would not accept an unsigned one.
    Ok(Reply::read_only(&LogoffResponse))
}

/// Ends a session: it leaves all tables, and its opens are kept for the client ([`disconnected`])
/// or closed. Returns false if it had ended before.
pub(super) async fn end<V: Vfs>(server: &Arc<Server<V>>, session: &Arc<Session<V>>) -> bool {
    let revocations = server.revocations();
    let Some(Left { opens, .. }) = leave(server, session) else {
        return false;
    };
    let rest = disconnected::keep(server, session, opens).await;
    if server.revocations() != revocations {
        revoke::look_again_at_kept(server).await;
    }
    close::all(server, session, rest, EndReason::Gone).await;
    true
}

/// Removes the session from all tables. Returns its trees and opens, or `None` if it had ended
/// before.
pub(super) fn leave<V: Vfs>(server: &Server<V>, session: &Session<V>) -> Option<Left<V>> {
    if !session.end() {
        return None;
    }
    server.remove_session(session.id);
    let mut tables = session.tables();
    let trees = std::mem::take(&mut tables.trees).into_values().collect();
    let opens = tables.opens.values().cloned().collect();
    Some(Left { trees, opens })
}

/// Called when a connection is lost: sessions that have no other channel end ([MS-SMB2] 3.3.7.1).
pub(crate) async fn disconnected<V: Vfs>(connection: &Rc<Connection<V>>) {
    connection.setups.borrow_mut().clear();
    let channels = std::mem::take(&mut *connection.channels.borrow_mut());
    let sessions = channels
        .into_values()
        .map(|channel| Arc::clone(&channel.session));
    let lost: Vec<_> = sessions
        .filter(|session| session.remove_channel(connection.id))
        .collect();
    for session in lost {
        end(&connection.server, &session).await;
    }
    // Leases shared with the client's other connections live on.
    breaks::connection_lost(&connection.server, connection.id);
}
