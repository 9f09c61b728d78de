//! One connection: its negotiated facts, its credits, its channels, and the loop that turns
//! bytes into requests ([MS-SMB2] 3.3.1.7, 3.3.5.1, 3.3.5.2).
//!
//! Everything here belongs to one worker and is never shared; others reach a connection only
//! through its mailbox. Requests run as tasks of the worker: a dying connection ends what is
//! parked, but lets run what the disk has begun.

mod flow;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use smb_crypto::{Cipher, PreauthHash, SigningAlgorithm};
use smb_wire::{
    header::TRANSPORT_LENGTH_MAX,
    ids::{AsyncId, Guid, MessageId, SessionId},
    msg::{Capabilities, Dialect, SecurityMode},
};
use tokio::sync::{Semaphore, mpsc};
use vfs::{Vfs, env::LocalTask};

use self::flow::Flow;
use crate::{
    command::{self, Setup},
    limits::{LISTINGS_PER_CONNECTION_MAX, MESSAGE_OVERHEAD_MAX, NEGOTIATE_BYTES_MAX},
    link::{
        credits::CreditWindow,
        framing::{self, Next},
        inbound,
        misbehaved::Misbehaved,
        outbound::Frame,
        receive_buffer::ReceiveBuffer,
    },
    memory::Seen,
    race::{First, race, race_aside},
    state::{Channel, ConnectionId, EndReason, Ender, Mail, Peer, Server, Session, SessionPhase},
    transport::{Receive, Transmit},
    turn::Turn,
};

/// Mail a connection holds before it counts as stuck and is closed.
const MAILBOX_MAX: usize = 4096;

/// How often reading makes way for mail before the next frame is taken all the same.
const MAIL_TURNS_MAX: usize = 16;

/// Segments that an empty queue keeps room for.
const SEGMENTS_KEPT_MAX: usize = 16;

/// Channels above which those of ended sessions are forgotten.
const CHANNELS_KEPT_MAX: usize = 64;

/// What NEGOTIATE settled.
#[derive(Debug, Clone)]
pub(crate) struct Negotiated {
    pub(crate) dialect: Dialect,
    pub(crate) client_guid: Guid,
    pub(crate) client_capabilities: Capabilities,
    pub(crate) client_security_mode: SecurityMode,
    pub(crate) client_dialects: Vec<Dialect>,
    pub(crate) server_capabilities: Capabilities,
    pub(crate) server_security_mode: SecurityMode,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) signing: SigningAlgorithm,
    pub(crate) multi_credit: bool,
    /// MaxTransactSize, MaxReadSize and MaxWriteSize as NEGOTIATE announced them.
    pub(crate) io_bytes: u32,
}

/// A request that waits and can be cancelled.
pub(crate) struct Waiting<V: Vfs> {
    pub(crate) message_id: MessageId,
    pub(crate) ender: Arc<Ender>,
    /// Goes on with this session where the connection is lost.
    pub(crate) session: Option<Arc<Session<V>>>,
}

/// A connection.
pub(crate) struct Connection<V: Vfs> {
    pub(crate) server: Arc<Server<V>>,
    pub(crate) id: ConnectionId,
    pub(crate) peer: SocketAddr,
    negotiated: RefCell<Option<Rc<Negotiated>>>,
    /// The multi-protocol negotiate answered 0x02FF; a real one must follow.
    pub(crate) wildcard_answered: Cell<bool>,
    pub(crate) preauth: RefCell<PreauthHash>,
    pub(crate) credits: RefCell<CreditWindow>,
    pub(crate) channels: RefCell<BTreeMap<SessionId, Rc<Channel<V>>>>,
    pub(crate) setups: RefCell<BTreeMap<SessionId, Setup>>,
    pub(crate) waiting: RefCell<BTreeMap<AsyncId, Waiting<V>>>,
    next_async: Cell<u64>,
    /// Its own mailbox, to see whether anything is in it.
    mail: mpsc::WeakSender<Mail>,
    data_in_flight: Cell<usize>,
    outbox: Outbox,
    flow: Flow,
    pub(crate) turn: Rc<Turn>,
    /// Permits of enumerations to take the names of a directory.
    pub(crate) listings: Semaphore,
    /// Tells the driver that somebody logged in.
    pub(crate) authenticated: Box<dyn Fn()>,
}

/// Messages on their way to the socket.
#[derive(Default)]
struct Outbox {
    segments: RefCell<VecDeque<Bytes>>,
    /// The bytes that the segments hold, those on their way to the socket included.
    held: Cell<usize>,
    closed: Cell<bool>,
    /// Closed without sending what is queued.
    abandoned: Cell<bool>,
    /// The reading half is being polled: the writing half comes next, in the same turn.
    writer_follows: Cell<bool>,
    /// Wait for something to send, for room, and for the end.
    writer: RefCell<Option<Waker>>,
    room: RefCell<Option<Waker>>,
    end: RefCell<Option<Waker>>,
}

impl Outbox {
    fn wake(slot: &RefCell<Option<Waker>>) {
        if let Some(waker) = slot.borrow_mut().take() {
            waker.wake();
        }
    }

    fn wait(slot: &RefCell<Option<Waker>>, cx: &Context<'_>) {
        let mut slot = slot.borrow_mut();
        match &*slot {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => *slot = Some(cx.waker().clone()),
        }
    }

    /// Waits for something to send, puts it into `queue`, which is empty, and says what it holds;
    /// `None` when closed and empty.
    async fn take(&self, queue: &mut VecDeque<Bytes>) -> Option<usize> {
        queue.shrink_to(SEGMENTS_KEPT_MAX);
        poll_fn(|cx: &mut Context<'_>| {
            if !self.segments.borrow().is_empty() {
                std::mem::swap(&mut *self.segments.borrow_mut(), queue);
                // The segments that were taken before have been sent.
                return Poll::Ready(Some(self.held.get()));
            }
            if self.closed.get() {
                return Poll::Ready(None);
            }
            Self::wait(&self.writer, cx);
            Poll::Pending
        })
        .await
    }

    fn sent(&self, held: usize) {
        self.held.set(self.held.get().saturating_sub(held));
        Self::wake(&self.room);
    }
}

impl<V: Vfs> Connection<V> {
    pub(crate) fn negotiated(&self) -> Option<Rc<Negotiated>> {
        self.negotiated.borrow().clone()
    }

    pub(crate) fn set_negotiated(&self, facts: Negotiated) {
        self.server
            .connection_negotiated(self.id, facts.dialect, facts.client_guid);
        *self.negotiated.borrow_mut() = Some(Rc::new(facts));
    }

    /// The dialect, 0 before NEGOTIATE.
    pub(crate) fn dialect(&self) -> Dialect {
        self.negotiated
            .borrow()
            .as_ref()
            .map_or(Dialect(0), |facts| facts.dialect)
    }

    pub(crate) fn channel(&self, id: SessionId) -> Option<Rc<Channel<V>>> {
        self.channels.borrow().get(&id).cloned()
    }

    /// Sessions that live on this connection.
    pub(crate) fn sessions(&self) -> usize {
        self.count_sessions(|_| true)
    }

    /// Connection.ConstrainedConnection: nobody but anonymous users has authenticated here.
    pub(crate) fn is_constrained(&self) -> bool {
        let channels = self.channels.borrow();
        (channels.values()).all(|channel| channel.session.established.anonymous)
    }

    /// Anonymous sessions that live on this connection.
    pub(crate) fn anonymous_sessions(&self) -> usize {
        self.count_sessions(|session| session.established.anonymous)
    }

    fn count_sessions(&self, counts: impl Fn(&Session<V>) -> bool) -> usize {
        let channels = self.channels.borrow();
        let sessions = channels.values().map(|channel| &channel.session);
        let live = sessions.filter(|session| session.phase() != SessionPhase::Closed);
        live.filter(|session| counts(session)).count()
    }

    /// A session works on this connection. Channels of sessions that ended are kept to answer
    /// stragglers, until they are too many.
    pub(crate) fn add_channel(&self, id: SessionId, channel: Rc<Channel<V>>) {
        let mut channels = self.channels.borrow_mut();
        if channels.len() >= CHANNELS_KEPT_MAX {
            channels.retain(|_, channel| channel.session.phase() != SessionPhase::Closed);
        }
        channels.insert(id, channel);
    }

    /// Queues a frame for the socket.
    pub(crate) fn send(&self, frame: Frame) {
        if self.outbox.closed.get() {
            return;
        }
        self.outbox.held.set(self.outbox.held.get() + frame.held);
        self.tell_untaken();
        let mut segments = self.outbox.segments.borrow_mut();
        segments.push_back(frame.head);
        segments.extend(frame.payload);
        drop(segments);
        if !self.outbox.writer_follows.get() {
            Outbox::wake(&self.outbox.writer);
        }
    }

    /// Stops reading; what is queued is still sent.
    pub(crate) fn close(&self) {
        self.outbox.closed.set(true);
        Outbox::wake(&self.outbox.writer);
        Outbox::wake(&self.outbox.room);
        Outbox::wake(&self.outbox.end);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.closed.get()
    }

    /// Closes because the peer broke a rule that costs the connection.
    pub(crate) fn misbehaved(&self, rule: Misbehaved) {
        tracing::info!(peer = %self.peer, ?rule, "connection closed: the client broke the protocol");
        self.close();
    }

    /// Registers a waiting request; `None` when there are too many.
    pub(crate) fn register(
        &self,
        message_id: MessageId,
        ender: Arc<Ender>,
        session: Option<Arc<Session<V>>>,
    ) -> Option<AsyncId> {
        let mut waiting = self.waiting.borrow_mut();
        if self.is_closed() || waiting.len() >= self.server.config().limits.parked_per_connection {
            return None;
        }
        let id = AsyncId(self.next_async.get());
        self.next_async.set(id.0 + 1);
        let entry = Waiting {
            message_id,
            ender,
            session,
        };
        waiting.insert(id, entry);
        Some(id)
    }

    async fn closed(&self) {
        poll_fn(|cx| {
            if self.outbox.closed.get() {
                return Poll::Ready(());
            }
            Outbox::wait(&self.outbox.end, cx);
            Poll::Pending
        })
        .await;
    }

    fn frame_max(&self) -> usize {
        // Strangers send little: negotiation and tokens.
        let Some(facts) = self
            .negotiated()
            .filter(|_| !self.channels.borrow().is_empty())
        else {
            return NEGOTIATE_BYTES_MAX;
        };
        let io = usize::try_from(facts.io_bytes).unwrap_or(usize::MAX);
        io.saturating_add(MESSAGE_OVERHEAD_MAX)
            .min(TRANSPORT_LENGTH_MAX)
    }
}

/// Serves one connection until either side ends it or `stopping` is ready, and closes what it left open; disk
/// operations that have begun end first. `authenticated` is called when a user has logged in.
pub async fn serve<V: Vfs>(
    server: Arc<Server<V>>,
    mut receiver: impl Receive,
    transmitter: impl Transmit,
    peer: SocketAddr,
    authenticated: Box<dyn Fn()>,
    stopping: impl Future<Output = ()>,
) {
    let id = ConnectionId(server.fresh_id());
    let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
    let mail = sender.downgrade();
    let stuck = Arc::new(AtomicBool::new(false));
    let account = server.memory.account(peer.ip());
    server.add_connection(
        id,
        Peer {
            address: peer,
            dialect: None,
            client: Guid::default(),
            logged_in: false,
            since: server.env.realtime(),
            mail: sender,
            stuck: Arc::clone(&stuck),
            account: Arc::clone(&account),
            seen: Seen::default(),
        },
    );
    let limits = server.config().limits.clone();
    let connection = Rc::new(Connection {
        server: Arc::clone(&server),
        id,
        peer,
        negotiated: RefCell::new(None),
        wildcard_answered: Cell::new(false),
        preauth: RefCell::new(PreauthHash::new()),
        credits: RefCell::new(CreditWindow::new(limits.credits)),
        channels: RefCell::new(BTreeMap::new()),
        setups: RefCell::new(BTreeMap::new()),
        waiting: RefCell::new(BTreeMap::new()),
        next_async: Cell::new(1),
        mail,
        data_in_flight: Cell::new(0),
        outbox: Outbox::default(),
        flow: Flow::new(account),
        turn: Turn::new(Arc::clone(&server.env)),
        listings: Semaphore::new(LISTINGS_PER_CONNECTION_MAX),
        authenticated,
    });
    let ending = Ending(Some(Rc::clone(&connection)));
    let writing = write(Rc::clone(&connection), transmitter);
    let mut writing: Option<LocalTask> = Some(Box::pin(writing));
    spawn(&connection, deliver(Rc::clone(&connection), mailbox, stuck));
    let patience = Duration::from_secs(limits.setup_seconds);
    let stranger = stays_a_stranger(&connection, patience);
    let ended = race(stranger, stopping);
    let served = both(&connection, read(&connection, &mut receiver), &mut writing);
    if let First::Right(First::Left(())) = race_aside(served, ended).await {
        tracing::debug!(%peer, "connection closed: nobody logged in");
    }
    if let Some(writing) = writing.filter(|_| !connection.outbox.abandoned.get()) {
        // Queued messages are still sent.
        connection.close();
        connection.server.env.spawn(writing);
    }
    ending.end().await;
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
        // Cut off at the end of the process nothing can be awaited any more, nor need it.
        if let Some(connection) = self.0.take().filter(|_| std::thread::panicking()) {
            tracing::error!(peer = %connection.peer, "connection closed: a request of it panicked");
            connection.close();
            let owner = Rc::clone(&connection);
            spawn(&connection, async move { ended(&owner).await });
        }
    }
}

/// The connection is closed and goes; sessions without another channel end.
async fn ended<V: Vfs>(connection: &Rc<Connection<V>>) {
    connection.close();
    for waiting in std::mem::take(&mut *connection.waiting.borrow_mut()).into_values() {
        let goes_on = |session: Arc<Session<V>>| session.adopt(connection.id, &waiting.ender);
        if !waiting.session.is_some_and(goes_on) {
            waiting.ender.end(EndReason::Gone);
        }
    }
    connection.server.remove_connection(connection.id);
    command::disconnected(connection).await;
}

/// Ends when nobody has logged in for so long; otherwise never. A session that ended since is a
/// login too.
async fn stays_a_stranger<V: Vfs>(connection: &Connection<V>, patience: Duration) {
    connection.server.env.sleep(patience).await;
    let somebodys = |channel: &Rc<Channel<V>>| !channel.session.lists_only(&connection.server);
    if connection.channels.borrow().values().any(somebodys) {
        std::future::pending::<()>().await;
    }
}

fn spawn<V: Vfs>(connection: &Rc<Connection<V>>, task: impl Future<Output = ()> + 'static) {
    connection.server.env.spawn(Box::pin(task));
}

/// Runs both halves until the reading one ends. Answers to what was just read leave in the same
/// turn: a task of its own for the writing half would have to be woken for each of them.
async fn both<V: Vfs>(
    connection: &Connection<V>,
    reading: impl Future<Output = ()>,
    writing: &mut Option<LocalTask>,
) {
    let mut reading = pin!(reading);
    poll_fn(|cx| {
        connection.turn.rested();
        connection.outbox.writer_follows.set(true);
        let read = reading.as_mut().poll(cx);
        connection.outbox.writer_follows.set(false);
        if let Some(task) = writing
            && task.as_mut().poll(cx).is_ready()
        {
            *writing = None;
        }
        read
    })
    .await;
}

/// The reading half: frames become requests until the stream ends or the peer breaks a rule.
async fn read<V: Vfs>(connection: &Rc<Connection<V>>, receiver: &mut impl Receive) {
    let mut input = ReceiveBuffer::default();
    loop {
        let missing = match framing::next(&mut input.bytes, input.size, connection.frame_max()) {
            Ok(Next::Message(frame)) => {
                connection.mail_delivered().await;
                connection.frame_taken(frame.len());
                let (came, went) = (frame.len(), connection.outbox.held.get());
                match frame_arrived(connection, frame) {
                    Ok((chain, bytes)) => {
                        connection.room(bytes).await;
                        if !connection.is_closed() {
                            begin(connection, chain, bytes);
                        }
                    }
                    Err(rule) => connection.misbehaved(rule),
                }
                let answered = connection.outbox.held.get().saturating_sub(went);
                connection.turn.did(came + answered);
                if connection.is_closed() {
                    return;
                }
                connection.turn.rest().await;
                continue;
            }
            Ok(Next::Missing(missing)) => missing,
            Err(error) => return connection.misbehaved(Misbehaved::Framing(error)),
        };
        if input.bytes.is_empty() {
            // Nobody knows for how long: no buffer until there is something to receive.
            connection.received_all(&mut input);
            if let First::Left(()) = race(connection.closed(), receiver.ready()).await {
                return;
            }
        }
        connection.room_to_receive(&mut input, missing).await;
        match race(connection.closed(), receiver.receive(&mut input.bytes)).await {
            First::Left(()) | First::Right(Ok(0) | Err(_)) => return,
            First::Right(Ok(count)) => connection.arrived(count),
        }
    }
}

/// The writing half.
async fn write<V: Vfs>(connection: Rc<Connection<V>>, mut transmitter: impl Transmit) {
    let mut segments = VecDeque::new();
    while let Some(held) = connection.outbox.take(&mut segments).await {
        while !segments.is_empty() {
            if transmitter.transmit(&mut segments).await.is_err() {
                connection.close();
                return;
            }
            connection.flow.account.moved();
        }
        connection.outbox.sent(held);
        connection.tell_untaken();
        connection.settle();
    }
    transmitter.finish().await;
}

/// Handles the mail of this connection.
async fn deliver<V: Vfs>(
    connection: Rc<Connection<V>>,
    mut mailbox: mpsc::Receiver<Mail>,
    stuck: Arc<AtomicBool>,
) {
    while let First::Right(Some(mail)) = race(connection.closed_for_mail(), mailbox.recv()).await {
        match mail {
            Mail::Notify { session, body } => {
                if command::notify(&connection, session, body).is_err() {
                    connection.close();
                }
            }
            Mail::Evict { bytes } => connection.evict(bytes),
            Mail::Close => connection.close(),
        }
        if stuck.load(Ordering::Acquire) {
            // A break was lost: this client must not go on caching.
            connection.close();
        }
    }
}

impl<V: Vfs> Connection<V> {
    /// Lets what lies in the mailbox go first: the answer to a request does not overtake a break
    /// that an earlier request of this connection caused.
    async fn mail_delivered(&self) {
        let mut turns = 0;
        poll_fn(|cx| {
            let waiting = |mail: mpsc::Sender<Mail>| mail.capacity() < MAILBOX_MAX;
            turns += 1;
            if turns > MAIL_TURNS_MAX || !self.mail.upgrade().is_some_and(waiting) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// The mailbox's sender goes with the server's table when the connection ends, so waiting
    /// for the end needs no wake-up of its own.
    async fn closed_for_mail(&self) {
        poll_fn(|_| {
            if self.outbox.closed.get() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// A frame and the data of its READs and WRITEs, until they are done.
pub(crate) struct DataInFlight<V: Vfs> {
    connection: Rc<Connection<V>>,
    bytes: usize,
}

impl<V: Vfs> DataInFlight<V> {
    fn new(connection: &Rc<Connection<V>>, bytes: usize) -> Self {
        let all = &connection.data_in_flight;
        all.set(all.get().saturating_add(bytes));
        Self {
            connection: Rc::clone(connection),
            bytes,
        }
    }
}

impl<V: Vfs> Drop for DataInFlight<V> {
    fn drop(&mut self) {
        let all = &self.connection.data_in_flight;
        all.set(all.get().saturating_sub(self.bytes));
        self.connection.settle();
        if std::thread::panicking() {
            // Nobody will answer the request.
            self.connection.close();
        }
        Outbox::wake(&self.connection.outbox.room);
    }
}

/// One frame: decrypted, split, verified, admitted; and how many bytes it holds while it runs.
fn frame_arrived<V: Vfs>(
    connection: &Rc<Connection<V>>,
    frame: BytesMut,
) -> Result<(inbound::Inbound, usize), Misbehaved> {
    let chain = inbound::open(connection, frame)?;
    let bytes = chain.data_bytes();
    if chain.is_compound() && bytes > TRANSPORT_LENGTH_MAX {
        // The answers would not fit one message.
        return Err(Misbehaved::TooMuchData);
    }
    Ok((chain, bytes))
}

/// Runs what a frame brought.
fn begin<V: Vfs>(connection: &Rc<Connection<V>>, chain: inbound::Inbound, bytes: usize) {
    let data = DataInFlight::new(connection, bytes);
    let owner = Rc::clone(connection);
    let mut task: LocalTask = Box::pin(command::run(owner, chain, data));
    // Most requests finish at their first poll; only what has to wait becomes a task.
    let mut context = Context::from_waker(Waker::noop());
    if task.as_mut().poll(&mut context).is_pending() {
        connection.server.env.spawn(task);
    }
}
