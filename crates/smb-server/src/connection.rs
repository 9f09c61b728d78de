//! One connection: its negotiated facts, its credits, its channels, and the messages on their way to its socket
//! ([MS-SMB2] 3.3.1.7). The loop that turns bytes into requests is in `serve.rs`.
//!
//! Everything here belongs to one worker and is never shared; others reach a connection only through its mailbox.

mod carried;
mod flow;
mod from_file;
mod keys;
mod waiting;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::{pending, poll_fn},
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use smb_auth::limiter::network;
use smb_crypto::{Cipher, PreauthHash, SigningAlgorithm};
use smb_wire::{
    dtyp::Sid,
    ids::{AsyncId, Guid, SessionId},
    msg::{Capabilities, Dialect, SecurityMode},
};
use tokio::sync::{Notify, Semaphore, mpsc};
use vfs::{Vfs, env::LocalTask, requester::Requester};

pub(crate) use self::carried::Parts;
pub use self::carried::{Carried, Client};
pub(crate) use self::from_file::Rest;
use self::{
    flow::Flow,
    waiting::{EarlyCancels, Waiting},
};
use crate::{
    limits::LISTINGS_PER_CONNECTION_MAX,
    link::{credits::CreditWindow, misbehaved::Misbehaved, outbound::Frame},
    memory::Account,
    state::{Channel, ConnectionId, LineAbout, Mail, Purpose, Server, Session, Setup, line_due},
    transport::{Direct, HeldLogin},
    turn::Turn,
};

/// The most messages in a connection's mailbox; a connection with more counts as stuck and is closed.
pub(crate) const MAILBOX_MAX: usize = 4096;

/// How often reading yields to the mailbox before the next frame is read in any case.
const MAIL_TURNS_MAX: usize = 16;

/// Segments that an empty queue keeps room for.
const SEGMENTS_KEPT_MAX: usize = 16;

/// The number of channels above which those of ended sessions are forgotten.
const CHANNELS_KEPT_MAX: usize = 64;

/// The results of NEGOTIATE.
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
    /// Notified when requests leave `waiting`.
    some_answered: Notify,
    next_async: Cell<u64>,
    pub(crate) early_cancels: EarlyCancels,
    /// The requester for whom the disk works: the user who logged in last, at this address.
    pub(crate) requester: Cell<Requester>,
    /// Its own mailbox, to see whether anything is in it, and to have its deliverer end.
    pub(crate) mail: mpsc::WeakSender<Mail>,
    data_in_flight: Cell<usize>,
    pub(crate) outbox: Outbox,
    direct: Option<Box<dyn Direct>>,
    /// Until when a dead link is to be noticed soon, because a break that can go on another connection was sent.
    gives_up_soon_until: Cell<Option<Duration>>,
    pub(crate) flow: Flow,
    pub(crate) turn: Rc<Turn>,
    /// Permits of enumerations to take the names of a directory.
    pub(crate) listings: Semaphore,
    /// The enumerations that have given up their permits because their disks are slow or hang.
    pub(crate) slow_listings: Cell<u32>,
    /// Informs the daemon that a user gets a session on this connection.
    pub(crate) authenticated: Box<dyn Fn() -> HeldLogin>,
}

/// Messages on their way to the socket.
#[derive(Default)]
pub(crate) struct Outbox {
    segments: RefCell<VecDeque<Bytes>>,
    /// The bytes that the segments hold, those on their way to the socket included.
    pub(crate) held: Cell<usize>,
    pub(crate) closed: Cell<bool>,
    /// The connection is closed without sending the queued messages.
    pub(crate) abandoned: Cell<bool>,
    /// A message was sent in part, and its rest is being read: nothing that is queued may leave before it.
    gap: Cell<bool>,
    /// The connection is leaving its worker: the writing half ends when nothing is left to send.
    pub(crate) leaving: Cell<bool>,
    /// The reading half is being polled: the writing half comes next, in the same turn.
    pub(crate) writer_follows: Cell<bool>,
    /// The reading half has paused until the writing half was polled.
    pub(crate) writes_between: Cell<bool>,
    /// The wakers of tasks that wait for something to send, for room, and for the end.
    writer: RefCell<Option<Waker>>,
    room: RefCell<Option<Waker>>,
    pub(crate) end: RefCell<Option<Waker>>,
}

impl Outbox {
    pub(crate) fn wake(slot: &RefCell<Option<Waker>>) {
        if let Some(waker) = slot.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until `done` returns something: it is called again whenever the slot is woken.
    pub(crate) async fn until<T>(
        slot: &RefCell<Option<Waker>>,
        mut done: impl FnMut() -> Option<T>,
    ) -> T {
        poll_fn(|cx| {
            if let Some(value) = done() {
                return Poll::Ready(value);
            }
            let mut slot = slot.borrow_mut();
            match &*slot {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *slot = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for something to send, puts it into `queue`, which is empty, and returns the number of bytes held; `None`
    /// when the connection is closed or leaving and nothing is left.
    pub(crate) async fn take(&self, queue: &mut VecDeque<Bytes>) -> Option<usize> {
        queue.shrink_to(SEGMENTS_KEPT_MAX);
        Self::until(&self.writer, || {
            let may_leave = !self.gap.get();
            if may_leave && !self.segments.borrow().is_empty() {
                std::mem::swap(&mut *self.segments.borrow_mut(), queue);
                // By now the segments taken before have been sent.
                return Some(Some(self.held.get()));
            }
            (may_leave && (self.closed.get() || self.leaving.get())).then_some(None)
        })
        .await
    }

    /// Lets the writing half send what is queued; the reading half goes on in the same turn.
    pub(crate) async fn let_write(&self) {
        let mut paused = false;
        poll_fn(|_| {
            if std::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            self.writes_between.set(true);
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn sent(&self, held: usize) {
        self.held.set(self.held.get().saturating_sub(held));
        Self::wake(&self.room);
    }
}

/// The number of a user at an address (IPv6: one /64), for all of his connections.
fn requester(peer: IpAddr, user: Option<Sid>) -> Requester {
    let mut hasher = DefaultHasher::new();
    (network(peer), user).hash(&mut hasher);
    Requester(hasher.finish())
}

impl<V: Vfs> Connection<V> {
    pub(crate) fn new(
        server: &Arc<Server<V>>,
        id: ConnectionId,
        peer: SocketAddr,
        mail: mpsc::WeakSender<Mail>,
        account: Arc<Account>,
        direct: Option<Box<dyn Direct>>,
        authenticated: Box<dyn Fn() -> HeldLogin>,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            id,
            peer,
            negotiated: RefCell::new(None),
            wildcard_answered: Cell::new(false),
            preauth: RefCell::new(PreauthHash::new()),
            credits: RefCell::new(CreditWindow::new(server.config().limits.credits)),
            channels: RefCell::new(BTreeMap::new()),
            setups: RefCell::new(BTreeMap::new()),
            waiting: RefCell::new(BTreeMap::new()),
            some_answered: Notify::new(),
            next_async: Cell::new(1),
            early_cancels: EarlyCancels::default(),
            requester: Cell::new(requester(peer.ip(), None)),
            mail,
            data_in_flight: Cell::new(0),
            outbox: Outbox::default(),
            direct,
            gives_up_soon_until: Cell::new(None),
            flow: Flow::new(account),
            turn: Turn::new(Arc::clone(&server.env)),
            listings: Semaphore::new(LISTINGS_PER_CONNECTION_MAX),
            slow_listings: Cell::new(0),
            authenticated,
        }
    }

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
        let facts = self.negotiated.borrow();
        facts.as_ref().map_or(Dialect(0), |facts| facts.dialect)
    }

    pub(crate) fn channel(&self, id: SessionId) -> Option<Rc<Channel<V>>> {
        self.channels.borrow().get(&id).cloned()
    }

    /// Whether a new session is in setup here (Session.State is InProgress).
    pub(crate) fn sets_up(&self, id: SessionId) -> bool {
        let setups = self.setups.borrow();
        let setup = setups.get(&id);
        setup.is_some_and(|setup| setup.purpose == Purpose::New)
    }

    /// Connection.ConstrainedConnection: only anonymous users have authenticated here.
    pub(crate) fn is_constrained(&self) -> bool {
        let channels = self.channels.borrow();
        (channels.values()).all(|channel| channel.session.established.anonymous)
    }

    /// How many such sessions live on this connection.
    pub(crate) fn count_sessions(&self, counts: impl Fn(&Session<V>) -> bool) -> usize {
        let channels = self.channels.borrow();
        let sessions = channels.values().map(|channel| &channel.session);
        let live = sessions.filter(|session| !session.has_ended());
        live.filter(|session| counts(session)).count()
    }

    /// Adds the channel of a session. Channels of ended sessions are kept to answer late requests, until there are too
    /// many.
    pub(crate) fn add_channel(&self, id: SessionId, channel: Rc<Channel<V>>) {
        let user = channel.session.token().user_sid;
        self.requester.set(requester(self.peer.ip(), Some(user)));
        let mut channels = self.channels.borrow_mut();
        if channels.len() >= CHANNELS_KEPT_MAX {
            channels.retain(|_, channel| !channel.session.has_ended());
        }
        channels.insert(id, channel);
    }

    /// Says until when a dead link is to be noticed soon; `None` if that is not needed any more.
    pub(crate) fn gives_up_soon(&self, until: Option<Duration>) {
        self.gives_up_soon_until.set(until);
        if let Some(direct) = &self.direct {
            direct.gives_up_soon(until.is_some());
        }
    }

    /// Completes when the time set by [`Self::gives_up_soon`] is over, and never if there is none.
    pub(crate) fn time_again(&self) -> LocalTask {
        let env = &self.server.env;
        match self.gives_up_soon_until.get() {
            Some(until) => env.sleep(until.saturating_sub(env.monotonic())),
            None => Box::pin(pending()),
        }
    }

    /// Queues a frame for the socket.
    pub(crate) fn send(&self, frame: Frame) {
        if self.outbox.closed.get() {
            return;
        }
        self.outbox.held.set(self.outbox.held.get() + frame.held);
        self.report_untaken();
        let mut segments = self.outbox.segments.borrow_mut();
        segments.push_back(frame.head);
        segments.extend(frame.payload);
        drop(segments);
        if !self.outbox.writer_follows.get() {
            Outbox::wake(&self.outbox.writer);
        }
    }

    /// Closes the connection without sending what is queued.
    pub(crate) fn abandon(&self) {
        self.outbox.abandoned.set(true);
        self.outbox.segments.borrow_mut().clear();
        self.outbox.held.set(0);
        self.report_untaken();
        self.return_memory();
        self.close();
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
        let more = |from, left_out| {
            tracing::info!(%from, left_out, "more connections closed: clients broke the protocol");
        };
        let peer = self.peer.ip();
        let due = line_due(&self.server, LineAbout::BrokenProtocol, peer, more);
        if let Some(left_out) = due {
            tracing::info!(
                peer = %self.peer, ?rule, left_out,
                "connection closed: the client broke the protocol"
            );
        }
        self.close();
    }

    /// Closes because an answer cannot be sent: its session has ended, or its keys are used up. The client has not done
    /// anything wrong, and may have closed already.
    pub(crate) fn unsendable(&self) {
        tracing::debug!(peer = %self.peer, "connection closed: an answer cannot be sent");
        self.close();
    }

    pub(crate) async fn closed(&self) {
        let closed = || self.is_closed().then_some(());
        Outbox::until(&self.outbox.end, closed).await;
    }

    /// Whether nobody has logged in yet.
    pub(crate) fn is_a_strangers(&self) -> bool {
        self.channels.borrow().is_empty()
    }
}

impl<V: Vfs> Connection<V> {
    /// Waits until the mailbox was delivered, so that the answer to a request does not overtake a break that an earlier
    /// request of this connection caused.
    pub(crate) async fn mail_delivered(&self) {
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

    /// Waits for the end of the connection. The mailbox's sender is dropped from the server's table then, so no other
    /// wake-up is needed.
    pub(crate) async fn closed_for_mail(&self) {
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

/// Counts a frame and the data of its READs and WRITEs until its requests are done.
pub(crate) struct DataInFlight<V: Vfs> {
    connection: Rc<Connection<V>>,
    bytes: usize,
}

impl<V: Vfs> DataInFlight<V> {
    pub(crate) fn new(connection: &Rc<Connection<V>>, bytes: usize) -> Self {
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
        self.connection.return_memory();
        if std::thread::panicking() {
            // The request will get no answer, or its answer will never be completed.
            if self.connection.outbox.gap.replace(false) {
                self.connection.abandon();
            }
            self.connection.close();
        }
        Outbox::wake(&self.connection.outbox.room);
    }
}
