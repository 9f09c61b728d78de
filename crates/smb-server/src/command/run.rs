//! A frame's requests run one after the other and their answers leave together
//! ([MS-SMB2] 3.3.5.2.7, 3.3.4.1.3).
//!
//! An element that has to wait for another client can only do so at the end of its chain: the answers that are ready
//! then leave at once with its interim answer. A CREATE that waits for a break can do so anywhere in the chain, and the
//! elements after it wait with it. Other elements in the middle run to their end if the disk or a break bounds their
//! wait, and are refused if nothing does, as in Windows.
//!
//! `admit` makes the checks that every request must pass before its handler runs ([MS-SMB2] 3.3.5.2.4 to 3.3.5.2.11).

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::BytesMut;
use smb_wire::{
    header::{Command, HeaderFlags},
    ids::SessionId,
    msg::{ChangeNotifyResponse, Dialect, ErrorContext, ErrorId, ErrorResponse},
    status::Status,
};
use vfs::Vfs;

use super::{
    Call, Handled, Reply,
    chain::Chain,
    negotiate, refused,
    table::{self, Handler, Needs},
};
use crate::{
    connection::{Connection, DataInFlight},
    failure::Failure,
    link::{
        inbound::{Inbound, Request, Signature},
        misbehaved::Misbehaved,
        outbound::{self, HEADROOM},
    },
    race::{First, race},
    state::Session,
    turn::WAITING_WORK,
};

/// Runs the requests of one frame and holds `_data` until they are done.
pub(crate) async fn run<V: Vfs>(
    connection: Rc<Connection<V>>,
    inbound: Inbound,
    _data: DataInFlight<V>,
) {
    let (requests, sealed_by) = match inbound {
        Inbound::Smb1(message) => return negotiate::smb1(&connection, &message),
        Inbound::Chain {
            requests,
            sealed_by,
        } => (requests, sealed_by),
    };
    let count = requests.len();
    let chain = Rc::new(Chain::new(&connection, sealed_by, count));
    let most = connection.server.config().limits.compound_length;
    for (index, request) in requests.into_iter().enumerate() {
        let command = request.header.command;
        if let Some(row) = table::row(command)
            && let Handler::Silent(handle) = row.handler
        {
            // CANCEL looks at all requests of the connection that wait.
            let waiting = connection.waiting.borrow().len();
            connection.turn.did(row.work + WAITING_WORK * waiting);
            connection.turn.wait().await;
            if connection.negotiated().is_none() {
                // [MS-SMB2] 3.3.5.2.2 holds for requests without an answer, too.
                let _ = chain.flush();
                return connection.misbehaved(Misbehaved::NotNegotiated);
            }
            handle(&connection, &request);
            let count = &connection.server.requests;
            count.count(connection.id, command, Status::SUCCESS);
            continue;
        }
        let (last, too_many) = (index + 1 == count, index >= most);
        let (call, admitted) = admit(&connection, &chain, request, last);
        let handled = match may_run(&call, admitted, too_many) {
            Ok(()) => handle(&call).await,
            Err(failure) => Err(failure),
        };
        if let Err(rule) = finish(&call, handled) {
            // Complete answers belong to requests that were valid, so they are sent first.
            let _ = chain.flush();
            return connection.misbehaved(rule);
        }
    }
    if chain.flush().is_err() {
        connection.unsendable();
    }
    if let Some(rest) = chain.rest.take() {
        // In a box, because it is seldom needed and must not make every request's future larger.
        Box::pin(connection.send_rest(rest)).await;
    }
}

fn may_run<V: Vfs>(
    call: &Call<V>,
    admitted: Result<(), Failure>,
    too_many: bool,
) -> Result<(), Failure> {
    call.check_connected()?;
    admitted.inspect_err(|_| {
        let failed = &call.chain.failed;
        // [MS-SMB2] 3.3.5.2.7.2: without a session or tree a related element cannot take any over
        // (docs/protocol-notes.md, "Related requests after one whose ids name nothing").
        failed.set(failed.get().or(Some(Status::INVALID_PARAMETER)));
    })?;
    Status::INVALID_PARAMETER.when(too_many)?;
    announce_changes(call);
    Ok(())
}

/// Queues the answer of an element.
fn finish<V: Vfs>(call: &Call<V>, handled: Handled) -> Result<(), Misbehaved> {
    let (connection, chain) = (&call.connection, &call.chain);
    let sealed_by = handled.is_err().then(|| sealer(call)).flatten();
    let reply = match handled {
        Ok(reply) => reply,
        Err(Failure::Disconnect(rule)) => return Err(rule),
        Err(Failure::Status(status)) => refusal(call, status, None),
        Err(Failure::WithData(status, data)) => refusal(call, status, Some(&data)),
    };
    let requests = &connection.server.requests;
    requests.count(connection.id, call.header.command, reply.status);
    refused::log(call, reply.status);
    match sealed_by {
        None => chain.answer(call, reply),
        Some(session) => {
            if chain.refuse_sealed(call, reply, session).is_err() {
                connection.unsendable();
            }
        }
    }
    chain.under_way.set(true);
    // Each of the following elements gets an answer of its own.
    chain.interim_sent.set(false);
    if let Some(id) = chain.registered.take() {
        connection.answered(id);
    }
    Ok(())
}

/// The session that seals the refusal of a plain request, because it or the share demands encryption ([MS-SMB2]
/// 3.3.4.1.4).
fn sealer<V: Vfs>(call: &Call<V>) -> Option<&Arc<Session<V>>> {
    let session = call.session().ok().filter(|_| !call.encrypted)?;
    let command = call.header.command;
    let demanded = match &call.tree {
        _ if session.encrypt_data => command != Command::SESSION_SETUP,
        Some(tree) => tree.encrypted,
        None if table::needs_tree::<V>(command) => {
            let tables = session.tables();
            let tree = tables.trees.get(&call.header.tree_id);
            tree.is_some_and(|tree| tree.encrypted)
        }
        None => false,
    };
    let can = || !session.has_ended() && session.sealing.is_some();
    (demanded && can()).then_some(session)
}

/// The answer of an element that failed.
fn refusal<V: Vfs>(call: &Call<V>, status: Status, data: Option<&[u8]>) -> Reply {
    // [MS-SMB2] 3.3.5.2.7.2: related elements lack the id that this one should have given.
    let failed = &call.chain.failed;
    match call.header.command {
        Command::CREATE if failed.get().is_none() => call.chain.create_failed(status),
        Command::CREATE => failed.set(Some(status)),
        Command::SESSION_SETUP | Command::TREE_CONNECT => {
            failed.set(Some(Status::INVALID_PARAMETER));
        }
        _ => {}
    }
    // An ERROR response ([MS-SMB2] 2.2.2), but 3.3.4.4 and 3.3.4.17 have CHANGE_NOTIFY end with a response of its own.
    let mut head = outbound::blank();
    match (status, data) {
        (Status::NOTIFY_CLEANUP | Status::NOTIFY_ENUM_DIR, _) => {
            ChangeNotifyResponse::default().encode(&mut head, HEADROOM);
        }
        (_, None) => ErrorResponse::EMPTY.encode(&mut head, HEADROOM),
        (_, Some(data)) => error_data(call.connection.dialect(), data, &mut head),
    }
    Reply::new(status, head)
}

/// Announces that a request may change a file of a continuously available share.
fn announce_changes<V: Vfs>(call: &Call<V>) {
    let share = call.share().ok();
    if share.is_some_and(|share| share.config.continuous_availability)
        && table::row::<V>(call.header.command).is_some_and(|row| row.changes)
    {
        call.server().changes_ahead();
    }
}

/// Runs the handler; a slow disk turns into an interim answer where the command allows it.
async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let turn = &call.connection.turn;
    let row = table::row(call.header.command).ok_or(Status::INVALID_PARAMETER)?;
    turn.did(row.work);
    let begin = match row.handler {
        Handler::Async(handle) => handle,
        Handler::AtOnce(handle) => return handle(call),
        Handler::Silent(_) => return Err(Status::INVALID_PARAMETER.into()),
    };
    // Many pipelined requests may wait here when their connection is lost.
    call.worked(0).await?;
    let mut work = begin(call);
    let Some(patience) = row.patience else {
        return turn.run(work.as_mut()).await;
    };
    // The timer is made only if the handler has to wait, which most do not.
    let patience = async {
        let span = Duration::from_millis(patience);
        call.server().env.sleep(span).await;
    };
    if let First::Left(handled) = race(turn.run(work.as_mut()), patience).await {
        return handled;
    }
    call.send_pending();
    turn.run(work.as_mut()).await
}

/// [MS-SMB2] 2.2.2: from 3.1.1 on the data stand in an error context.
fn error_data(dialect: Dialect, data: &[u8], head: &mut BytesMut) {
    let mut context = BytesMut::new();
    let wrapped = dialect >= Dialect::SMB_3_1_1;
    if wrapped {
        let id = ErrorId::DEFAULT;
        ErrorContext { error_id: id, data }.encode(&mut context, 0);
    }
    ErrorResponse {
        context_count: u8::from(wrapped),
        data: if wrapped { &context } else { data },
    }
    .encode(head, HEADROOM);
}

/// The header flags that a request may have. A dialect that does not define one ignores it (docs/protocol-notes.md,
/// "Header flags of a request").
const REQUEST_FLAGS: HeaderFlags = HeaderFlags::RELATED
    .union(HeaderFlags::SIGNED)
    .union(HeaderFlags::DFS)
    .union(HeaderFlags::PRIORITY_MASK)
    .union(HeaderFlags::REPLAY);

/// Checks a request and resolves what its command needs.
///
/// The call is returned even if it is refused, because the refusal must be signed or sealed as a success would be.
fn admit<V: Vfs>(
    connection: &Rc<Connection<V>>,
    chain: &Rc<Chain<V>>,
    request: Request,
    last: bool,
) -> (Call<V>, Result<(), Failure>) {
    let mut header = request.header;
    let needs_tree = table::needs_tree::<V>(header.command);
    let related = chain.relate(&mut header, needs_tree);
    let session = header.session_id;
    let mut call = Call {
        message: request.message,
        channel: connection.channel(session),
        signed: request.signature == Signature::Good(session),
        last,
        ..Call::new(chain, connection, header)
    };
    let admitted = related.and_then(|()| check(&mut call, request.signature));
    (call, admitted)
}

fn check<V: Vfs>(call: &mut Call<V>, signature: Signature) -> Result<(), Failure> {
    let command = call.header.command;
    let Some(row) = table::row::<V>(command) else {
        // An unknown command as the first element ends the connection; behind others, which must still be answered, it
        // gets an error.
        return Err(if call.chain.under_way.get() {
            Status::INVALID_PARAMETER.into()
        } else {
            Failure::Disconnect(Misbehaved::UnknownCommand)
        });
    };
    let needs_session = row.needs.session(&call.header);
    check_order(call)?;
    let flags = call.header.flags;
    // [MS-SMB2] 3.3.5.2.6, 3.3.5.2.4.
    if !REQUEST_FLAGS.contains(flags)
        || command == Command::NEGOTIATE && flags.contains(HeaderFlags::SIGNED)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if needs_session {
        check_session(call, signature)?;
    }
    check_signature(call, signature, needs_session)?;
    if row.needs == Needs::Tree {
        check_tree(call)?;
    }
    Ok(())
}

/// NEGOTIATE must come first, and only once.
fn check_order<V: Vfs>(call: &Call<V>) -> Result<(), Failure> {
    let negotiated = call.connection.negotiated().is_some();
    match (call.header.command == Command::NEGOTIATE, negotiated) {
        (true, true) => Err(Failure::Disconnect(Misbehaved::NegotiatedTwice)),
        (false, false) => Err(Failure::Disconnect(Misbehaved::NotNegotiated)),
        _ => Ok(()),
    }
}

/// [MS-SMB2] 3.3.5.2.9.
fn check_session<V: Vfs>(call: &Call<V>, signature: Signature) -> Result<(), Failure> {
    let session = match call.session() {
        Err(_) if goes_on_in_setup(call) => return Ok(()),
        Err(_) if lacks_signature_elsewhere(call, signature) => {
            return Err(Status::ACCESS_DENIED.into());
        }
        session => session?,
    };
    session.check()?;
    Ok(Status::ACCESS_DENIED.when(session.encrypt_data && !call.encrypted)?)
}

/// [MS-SMB2] 3.3.5.2.4: whether a request without a signature names a session of another connection that requires one.
fn lacks_signature_elsewhere<V: Vfs>(call: &Call<V>, signature: Signature) -> bool {
    let session = || call.server().session(call.header.session_id);
    signature == Signature::Absent
        && !call.encrypted
        && session().is_some_and(|session| session.signing_required)
}

/// [MS-SMB2] 3.3.5.2.9: these commands are processed in a session that is in setup. CLOSE and LOCK find no tree connect
/// there.
fn goes_on_in_setup<V: Vfs>(call: &Call<V>) -> bool {
    let commands = [Command::LOGOFF, Command::CLOSE, Command::LOCK];
    commands.contains(&call.header.command) && call.connection.sets_up(call.header.session_id)
}

/// [MS-SMB2] 3.3.5.2.4. SESSION_SETUP checks its own signature (binding, re-authentication).
fn check_signature<V: Vfs>(
    call: &Call<V>,
    signature: Signature,
    needs_session: bool,
) -> Result<(), Failure> {
    match signature {
        Signature::Good(session) if session == call.header.session_id => Ok(()),
        // The key of another session proves nothing for the one that the request runs in.
        Signature::Good(_) | Signature::Bad => Err(Status::ACCESS_DENIED.into()),
        Signature::NoKey => Err(Status::NOT_SUPPORTED.into()),
        // A binding is signed with the key of a session of another connection.
        Signature::NoSession
            if call.header.session_id != SessionId::default()
                && call.header.command == Command::SESSION_SETUP =>
        {
            Ok(())
        }
        Signature::NoSession => Err(Status::USER_SESSION_DELETED.into()),
        Signature::Absent => match call.session() {
            Ok(session) if needs_session && session.signing_required && !call.encrypted => {
                Err(Status::ACCESS_DENIED.into())
            }
            _ => Ok(()),
        },
    }
}

/// [MS-SMB2] 3.3.5.2.11.
fn check_tree<V: Vfs>(call: &mut Call<V>) -> Result<(), Failure> {
    let id = call.header.tree_id;
    let session = call.session().ok();
    let tree = session.and_then(|session| session.tables().trees.get(&id).cloned());
    let tree = tree.ok_or(Status::NETWORK_NAME_DELETED)?;
    let admitted = call.is_admitted_by(&tree);
    call.tree = Some(tree);
    admitted
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        command::park,
        limits::TURN_WORK_MAX,
        restore::world::{Back, run_tasks},
    };

    fn size_of_future<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_frame_begins_is_small() {
        // The sizes that glibc's thread cache serves.
        let size = size_of_future(run::<Back>);
        assert!(size <= 1032, "{size}");
    }

    /// The status with which a SET_INFO without a body is refused that waits for its turn.
    fn refused(lost: bool) -> Status {
        let call = park::tests::call();
        call.connection.turn.did(TURN_WORK_MAX);
        let mut handled = pin!(handle(&call));
        let mut context = Context::from_waker(Waker::noop());
        assert!(handled.as_mut().poll(&mut context).is_pending());
        if lost {
            call.connection.close();
        }
        run_tasks();
        match handled.as_mut().poll(&mut context) {
            Poll::Ready(Err(Failure::Status(status))) => status,
            _ => panic!("not refused"),
        }
    }

    #[test]
    fn a_request_does_not_begin_after_its_connection_was_lost() {
        let statuses = [false, true].map(refused);
        assert_eq!(statuses, [Status::INVALID_PARAMETER, Status::CANCELLED]);
    }

    #[test]
    fn of_a_lost_connection_only_requests_that_give_something_up_are_run() {
        let mut call = park::tests::call();
        let mut runs = |lost: bool, command| {
            if lost {
                call.connection.close();
            }
            call.header.command = command;
            may_run(&call, Ok(()), false).is_ok()
        };
        assert!(runs(false, Command::WRITE));
        assert!(!runs(true, Command::WRITE));
        assert!(!runs(true, Command::QUERY_DIRECTORY));
        assert!(runs(true, Command::CLOSE));
    }
}
