//! LOGOFF ([MS-SMB2] 3.3.5.6), and how a session ends in general.

use std::{pin::pin, rc::Rc, sync::Arc};

use smb_wire::{
    msg::{LogoffRequest, LogoffResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, revoke, tree_disconnect::Detached};
use crate::{
    connection::Connection,
    limits::CLOSES_WAIT,
    race::{First, race},
    state::{
        EndReason, Server, Session, breaks,
        close::{self, Closing},
        disconnected,
    },
};

/// Ends the session. Of several LOGOFFs at once exactly one succeeds.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    LogoffRequest::read(&call.message)?;
    let (connection, id) = (&call.connection, call.header.session_id);
    if connection.sets_up(id) {
        // [MS-SMB2] 3.3.5.2.9: a session that is in setup has no opens and no tree connects.
        connection.setups.borrow_mut().remove(&id);
        return Ok(Reply::read_only(&LogoffResponse));
    }
    let session = Arc::clone(call.session()?);
    let Some(closing) = end(call.server(), &session).await else {
        return Err(Status::USER_SESSION_DELETED.into());
    };
    // This wait has no bound: like the answer to a CLOSE, this one says that the opens are closed, that their
    // DELETE_ON_CLOSE is carried out and, under `strict-sync`, that all of it is stable.
    closing.ended().await;
    // The client has no key for an answer that comes after this one.
    connection.all_answered(id).await;
    // The channel stays, so that later requests on the session are answered with a signed
    // USER_SESSION_DELETED. The client would not accept an unsigned one.
    Ok(Reply::read_only(&LogoffResponse))
}

/// Ends a session: it leaves all tables, and its opens are kept for the client ([`disconnected`])
/// or closed, which this does not wait for. Returns `None` if it had ended before.
pub(super) async fn end<V: Vfs>(
    server: &Arc<Server<V>>,
    session: &Arc<Session<V>>,
) -> Option<Closing> {
    let revocations = server.revocations();
    let Detached { opens, .. } = leave(server, session)?;
    let closes = disconnected::keep(server, session, opens);
    let closing = close::in_tasks(server, session, closes);
    if server.revocations() != revocations {
        revoke::look_again_at_kept(server).await;
    }
    Some(closing)
}

/// Ends a session whose client could not authenticate again: all its opens are closed, durable ones too ([MS-SMB2]
/// 3.3.5.5.3), which this does not wait for.
pub(super) fn expel<V: Vfs>(server: &Arc<Server<V>>, session: &Arc<Session<V>>) {
    if let Some(Detached { opens, .. }) = leave(server, session) {
        close::in_tasks(server, session, close::begin(opens, EndReason::Gone));
    }
}

/// Removes the session from all tables. Returns its trees and opens, or `None` if it had ended
/// before.
pub(super) fn leave<V: Vfs>(server: &Server<V>, session: &Session<V>) -> Option<Detached<V>> {
    if !session.end() {
        return None;
    }
    server.remove_session(session.id);
    let mut tables = session.tables();
    let trees = std::mem::take(&mut tables.trees).into_values().collect();
    let opens = tables.opens.values().cloned().collect();
    drop(tables);
    Some(Detached::new(trees, opens))
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
    let mut closing = Vec::new();
    for session in lost {
        closing.extend(end(&connection.server, &session).await);
    }
    let mut closed = pin!(async move {
        for closing in closing {
            closing.ended().await;
        }
    });
    let hangs = connection.server.env.sleep(CLOSES_WAIT);
    let in_time = race(closed.as_mut(), hangs).await;
    // Leases shared with the client's other connections live on. A break of an open that is closed has no one left to
    // ask, so the closes come first, unless a disk hangs.
    breaks::connection_lost(&connection.server, connection.id);
    // A server that stops waits for its connections, and so for these closes.
    if let First::Right(()) = in_time {
        closed.await;
    }
}
