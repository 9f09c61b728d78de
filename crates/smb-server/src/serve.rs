//! The loop of one connection: bytes become requests, answers become bytes ([MS-SMB2] 3.3.5.1, 3.3.5.2).
//!
//! One task reads and writes, another one empties the connection's mailbox. A request that cannot be answered at once
//! becomes a task of its own, so it goes on when the connection ends: disk operations that have begun are completed.
//! Requests that wait for a client, unless their session has another channel, or have not begun are ended then.

use std::{
    collections::VecDeque,
    future::{Future, pending, poll_fn},
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use bytes::BytesMut;
use smb_wire::{
    codec::size,
    header::{Command, Header, HeaderFlags, NETBIOS_SESSION_REQUEST, TRANSPORT_LENGTH_MAX},
    ids::{MessageId, SessionId},
};
use tokio::sync::mpsc;
use vfs::{Vfs, env::LocalTask, requester};

use crate::{
    command,
    connection::{Carried, Client, Connection, DataInFlight, Outbox, Parts},
    limits::LAST_ANSWERS_MAX,
    link::{
        inbound,
        misbehaved::Misbehaved,
        outbound::{self, Outgoing, Unsendable},
        receive_buffer::{self, FrameError, Next, ReceiveBuffer},
    },
    race::{First, race, race_aside},
    state::{Channel, EndReason, Mail, Server, Session, breaks::BREAK_TIMEOUT},
    transport::{HeldLogin, Receive, Transmit},
    turn::SMALL_WORK,
};

/// When a request and its answer have this size together, the answer leaves before the next request is read: the client
/// works on it while the server works on the next request. Other answers leave together, because a call to the socket
/// costs more than they gain.
const SENT_ALONE_MIN: usize = 32 << 10;

/// The references that the tasks of a quiet connection have to it: the loop and its cleanup, the writing half and the
/// delivery of mail.
const TASKS: usize = 4;

/// How the reading half ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Either side ended the connection.
    Closed,
    /// The connection is to leave its worker, and nothing of it is under way.
    Quiet,
}

/// Serves one connection until either side ends it or `stopping` is ready. Then its sessions without another channel
/// end, and their opens are closed or wait for the client; this returns after the closes. `authenticated` is called
/// when a user gets a session on the connection, and its result is dropped when that session ends there.
///
/// Once `leaves` is true, the connection leaves if nothing of it is under way when a request arrives. Its state and the
/// transmitter are returned then, for another worker.
pub async fn serve<V: Vfs, T: Transmit>(
    server: Arc<Server<V>>,
    client: Client<V>,
    receiver: &mut impl Receive,
    transmitter: T,
    authenticated: Box<dyn Fn() -> HeldLogin>,
    stopping: impl Future<Output = ()>,
    leaves: impl Fn() -> bool,
) -> Option<(Box<Carried<V>>, T)> {
    let direct = transmitter.direct();
    let (connection, mailbox, stuck) = client.arrive(&server, direct, authenticated);
    let mut ending = Ending(Some(Rc::clone(&connection)));
    let parts = Parts::new();
    let writing = write(Rc::clone(&connection), transmitter, Rc::clone(&parts));
    let mut writing: Option<LocalTask> = Some(Box::pin(writing));
    let delivery = |mailbox| {
        let (connection, stuck, parts) = (&connection, Arc::clone(&stuck), Rc::clone(&parts));
        let delivery = deliver(Rc::clone(connection), mailbox, stuck, parts);
        spawn(connection, delivery);
    };
    delivery(mailbox);
    let mut stopping = pin!(stopping);
    while until_quiet(
        &connection,
        receiver,
        &mut writing,
        stopping.as_mut(),
        &leaves,
    )
    .await
    {
        let Some(mailbox) = parts.mailbox(&connection).await else {
            continue;
        };
        if !connection.is_quiet(TASKS - 1) {
            connection.outbox.leaving.set(false);
            delivery(mailbox);
            continue;
        }
        if let Some(writing) = writing.take() {
            writing.await;
        }
        if let Some(transmitter) = parts.transmitter.take() {
            ending.0 = None;
            return Some((connection.carry(mailbox, stuck), transmitter));
        }
        // The writing half has ended otherwise: the socket is broken.
        connection.close();
    }
    // Queued messages are still sent. Before a login no client waits for them, and strangers must not keep places by
    // taking nothing.
    let takes = !connection.outbox.abandoned.get() && somebody_logged_in(&connection);
    if let Some(writing) = writing.filter(|_| takes) {
        send_the_rest(&connection, writing);
    }
    ending.end().await;
    None
}

/// Cleans up after a connection that no worker can continue to serve, as [`serve`] does at its end.
pub async fn lost<V: Vfs>(server: &Arc<Server<V>>, carried: Box<Carried<V>>) {
    let (connection, ..) = carried.arrive(server, None, Box::new(|| Box::new(())));
    ended(&connection).await;
}

/// Serves the connection until it ends, or is quiet and to leave; returns whether it is the latter.
async fn until_quiet<V: Vfs>(
    connection: &Rc<Connection<V>>,
    receiver: &mut impl Receive,
    writing: &mut Option<LocalTask>,
    stopping: impl Future<Output = ()>,
    leaves: &impl Fn() -> bool,
) -> bool {
    let patience = Duration::from_secs(connection.server.config().limits.setup_seconds);
    let ended = race(no_login_within(connection, patience), stopping);
    let served = both(connection, read(connection, receiver, leaves), writing);
    match race_aside(served, ended).await {
        First::Left(end) => end == End::Quiet,
        First::Right(First::Left(())) => {
            tracing::debug!(peer = %connection.peer, "connection closed: nobody logged in");
            false
        }
        First::Right(First::Right(())) => false,
    }
}

/// Sends what is queued on a connection that has ended, as far as its client takes it in time.
fn send_the_rest<V: Vfs>(connection: &Rc<Connection<V>>, writing: LocalTask) {
    connection.close();
    let owner = Rc::clone(connection);
    spawn(connection, async move {
        // Most connections have nothing left to send, and need no timer.
        let late = async { owner.server.env.sleep(LAST_ANSWERS_MAX).await };
        if let First::Right(()) = race(writing, late).await {
            tracing::debug!(peer = %owner.peer, "a client did not take its last answers in time");
            owner.abandon();
        }
    });
}

/// The cleanup at the end of a connection. It also runs if a request panics: the panic ends this connection's task
/// only, and its opens and locks must not stay until a restart.
struct Ending<V: Vfs>(Option<Rc<Connection<V>>>);

impl<V: Vfs> Ending<V> {
    async fn end(mut self) {
        if let Some(connection) = self.0.take() {
            ended(&connection).await;
        }
    }
}

impl<V: Vfs> Drop for Ending<V> {
    fn drop(&mut self) {
        // If the task is dropped at the end of the process, nothing can be awaited any more, and nothing needs to be.
        if let Some(connection) = self.0.take().filter(|_| std::thread::panicking()) {
            tracing::error!(peer = %connection.peer, "connection closed: a request of it panicked");
            connection.close();
            let owner = Rc::clone(&connection);
            spawn(&connection, async move { ended(&owner).await });
        }
    }
}

/// Cleans up after a closed connection; sessions without another channel end.
async fn ended<V: Vfs>(connection: &Rc<Connection<V>>) {
    connection.close();
    for waiting in connection.take_waiting().into_values() {
        let goes_on = |session: Arc<Session<V>>| session.adopt(connection.id, &waiting.ender);
        if !waiting.session.is_some_and(goes_on) {
            waiting.ender.end(EndReason::Gone);
        }
    }
    connection.server.remove_connection(connection.id);
    command::disconnected(connection).await;
}

/// Completes when nobody has logged in for `patience`, and otherwise never. The login of a session that has ended
/// counts too.
async fn no_login_within<V: Vfs>(connection: &Connection<V>, patience: Duration) {
    connection.server.env.sleep(patience).await;
    if somebody_logged_in(connection) {
        pending::<()>().await;
    }
}

fn somebody_logged_in<V: Vfs>(connection: &Connection<V>) -> bool {
    let somebodys = |channel: &Rc<Channel<V>>| !channel.session.lists_only(&connection.server);
    connection.channels.borrow().values().any(somebodys)
}

fn spawn<V: Vfs>(connection: &Rc<Connection<V>>, task: impl Future<Output = ()> + 'static) {
    connection.server.env.spawn(Box::pin(task));
}

/// Runs both halves until the reading one ends. Answers to requests that were just read leave in the same turn: a
/// separate task for the writing half would have to be woken for each of them.
async fn both<V: Vfs, E>(
    connection: &Connection<V>,
    reading: impl Future<Output = E>,
    writing: &mut Option<LocalTask>,
) -> E {
    let mut reading = pin!(reading);
    poll_fn(|cx| {
        connection.turn.rested();
        loop {
            connection.outbox.writer_follows.set(true);
            let read = reading.as_mut().poll(cx);
            connection.outbox.writer_follows.set(false);
            if let Some(task) = writing
                && task.as_mut().poll(cx).is_ready()
            {
                *writing = None;
            }
            if !connection.outbox.writes_between.take() {
                return read;
            }
        }
    })
    .await
}

/// The reading half: frames become requests until the connection ends, or is quiet and to leave.
async fn read<V: Vfs>(
    connection: &Rc<Connection<V>>,
    receiver: &mut impl Receive,
    leaves: &impl Fn() -> bool,
) -> End {
    let broken = |rule| {
        connection.misbehaved(rule);
        End::Closed
    };
    let mut input = ReceiveBuffer::default();
    let mut in_session = false;
    loop {
        let before = input.bytes.len();
        let next =
            receive_buffer::next_message(&mut input.bytes, input.size, connection.frame_max());
        // Skipped keep-alives are counted, too.
        let came = before.saturating_sub(input.bytes.len());
        let missing = match next {
            Ok(Next::Message(frame)) => {
                connection.mail_delivered().await;
                connection.frame_taken(frame.len());
                let went = connection.outbox.held.get();
                match frame_arrived(connection, frame) {
                    Ok((chain, bytes)) => match connection.room(bytes, receiver).await {
                        Ok(()) if connection.is_closed() => {}
                        Ok(()) => begin(connection, chain, bytes),
                        Err(rule) => connection.misbehaved(rule),
                    },
                    Err(rule) => connection.misbehaved(rule),
                }
                let answered = connection.outbox.held.get().saturating_sub(went);
                connection.turn.did(came + answered);
                if connection.is_closed() {
                    return End::Closed;
                }
                if came + answered >= SENT_ALONE_MIN {
                    connection.outbox.let_write().await;
                }
                connection.turn.rest().await;
                continue;
            }
            Ok(Next::SessionRequest) => match session_requested(connection, &mut in_session) {
                Ok(()) => continue,
                Err(rule) => return broken(rule),
            },
            Ok(Next::Missing(missing)) => {
                connection.turn.did(came);
                missing
            }
            Err(error) => return broken(Misbehaved::Framing(error)),
        };
        if input.bytes.is_empty() {
            // The wait may be long, so no buffer is held until there is something to receive.
            connection.received_all(&mut input);
            if let First::Left(()) = race(connection.closed(), receiver.ready()).await {
                return End::Closed;
            }
            if leaves() && somebody_logged_in(connection) && connection.is_quiet(TASKS) {
                return End::Quiet;
            }
        }
        let most = connection.room_to_receive(&mut input, missing, receiver);
        let most = match most.await {
            Ok(most) => most,
            Err(rule) => return broken(rule),
        };
        let receiving = receiver.receive(&mut input.bytes, most);
        match race(connection.closed(), receiving).await {
            First::Left(()) | First::Right(Ok(0) | Err(_)) => return End::Closed,
            First::Right(Ok(count)) => connection.arrived(count),
        }
        // Each receiving counts, because a client may send a byte at a time, or nothing but keep-alives.
        connection.turn.did(SMALL_WORK);
        connection.turn.rest().await;
    }
}

/// Accepts a NetBIOS session, which a client may request once, before it negotiates: a client without a login that
/// reads no answers must not pile them up.
fn session_requested<V: Vfs>(
    connection: &Connection<V>,
    in_session: &mut bool,
) -> Result<(), Misbehaved> {
    let negotiates = connection.negotiated().is_some() || connection.wildcard_answered.get();
    if negotiates || std::mem::replace(in_session, true) {
        let kind = FrameError::Type(NETBIOS_SESSION_REQUEST);
        return Err(Misbehaved::Framing(kind));
    }
    connection.send(outbound::session_accepted());
    Ok(())
}

/// The writing half.
async fn write<V: Vfs, T: Transmit>(
    connection: Rc<Connection<V>>,
    mut transmitter: T,
    parts: Rc<Parts<T>>,
) {
    let mut segments = VecDeque::new();
    while let Some(held) = connection.outbox.take(&mut segments).await {
        while !segments.is_empty() {
            if transmitter.transmit(&mut segments).await.is_err() {
                connection.abandon();
                return;
            }
            connection.flow.account.moved();
        }
        connection.outbox.sent(held);
        connection.report_untaken();
        connection.return_memory();
    }
    if connection.is_closed() {
        transmitter.finish().await;
    } else {
        parts.transmitter.set(Some(transmitter));
    }
}

/// Handles the mail of this connection.
async fn deliver<V: Vfs, T>(
    connection: Rc<Connection<V>>,
    mut mailbox: mpsc::Receiver<Mail>,
    stuck: Arc<AtomicBool>,
    parts: Rc<Parts<T>>,
) {
    let mut time_again = connection.time_again();
    loop {
        let next = race(connection.closed_for_mail(), mailbox.recv());
        let next = race(next, time_again.as_mut()).await;
        let mail = match next {
            First::Left(First::Right(Some(mail))) => mail,
            First::Left(_) => return,
            First::Right(()) => {
                connection.gives_up_soon(None);
                time_again = connection.time_again();
                continue;
            }
        };
        match mail {
            Mail::Notify {
                session,
                encrypted,
                elsewhere,
                body,
            } => {
                if elsewhere {
                    let over = connection.server.env.monotonic() + BREAK_TIMEOUT;
                    connection.gives_up_soon(Some(over));
                    time_again = connection.time_again();
                }
                if notify(&connection, session, encrypted, body).is_err() {
                    connection.close();
                }
            }
            Mail::Evict { bytes } => connection.evict(bytes),
            Mail::Close => connection.close(),
            Mail::Leave => {
                parts.mailbox.set(Some(mailbox));
                return Outbox::wake(&connection.outbox.end);
            }
        }
        if stuck.load(Ordering::Acquire) {
            // A break was lost, and this client must not continue to cache.
            tracing::warn!(
                peer = %connection.peer,
                "connection closed: breaks for its client came faster than they could be sent"
            );
            connection.close();
        }
    }
}

/// Sends an unsolicited message: a break notification ([MS-SMB2] 3.3.4.6, 3.3.4.7).
fn notify<V: Vfs>(
    connection: &Rc<Connection<V>>,
    session: SessionId,
    encrypted: bool,
    body: BytesMut,
) -> Result<(), Unsendable> {
    let header = Header {
        command: Command::OPLOCK_BREAK,
        flags: HeaderFlags::RESPONSE,
        message_id: MessageId::UNSOLICITED,
        session_id: session,
        ..Header::default()
    };
    let channel = connection.channel(session);
    let seal = match &channel {
        Some(channel) if encrypted || channel.session.encrypt_data => {
            Some(channel.session.seal().ok_or(Unsendable)?)
        }
        // The session has ended here since the message was posted, and its opens with it.
        None if session != SessionId::default() => return Ok(()),
        _ => None,
    };
    let frame = outbound::assemble(vec![Outgoing::new(body, header)], seal)?;
    connection.send(frame);
    // A break belongs to no request, so nothing has waited for room. The client can acknowledge it on another
    // connection, and cause the next one, without taking any of them here.
    if connection.has_room() {
        return Ok(());
    }
    tracing::warn!(
        peer = %connection.peer,
        "connection closed: its client does not take its breaks, and there is no memory for more"
    );
    Err(Unsendable)
}

/// Decrypts, splits, verifies and admits one frame; also returns how many bytes its requests hold while they run.
fn frame_arrived<V: Vfs>(
    connection: &Rc<Connection<V>>,
    frame: BytesMut,
) -> Result<(inbound::Inbound, usize), Misbehaved> {
    let chain = inbound::open(&**connection, frame)?;
    let facts = connection.negotiated();
    let facts = facts.map(|facts| (size(facts.io_bytes), facts.multi_credit));
    let (answer_max, multi_credit) = facts.unwrap_or_default();
    let beside_max = connection.server.memory.most_beside();
    let bytes = chain.data_bytes(answer_max, multi_credit, beside_max);
    if chain.is_compound() && bytes > TRANSPORT_LENGTH_MAX {
        // The answers would not fit one message.
        return Err(Misbehaved::TooMuchData);
    }
    Ok((chain, bytes))
}

/// Runs the requests of a frame.
fn begin<V: Vfs>(connection: &Rc<Connection<V>>, chain: inbound::Inbound, bytes: usize) {
    let data = DataInFlight::new(connection, bytes);
    let owner = Rc::clone(connection);
    let mut task: LocalTask = Box::pin(command::run(owner, chain, data));
    // Most requests finish at their first poll; only those that have to wait become tasks.
    let mut context = Context::from_waker(Waker::noop());
    let requester = connection.requester.get();
    let entered = requester::enter(requester);
    let pending = task.as_mut().poll(&mut context).is_pending();
    drop(entered);
    if pending {
        let task = requester::on_behalf_of(requester, || task);
        connection.server.env.spawn(Box::pin(task));
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
