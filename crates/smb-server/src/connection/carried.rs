//! A connection on its way from one worker to another.
//!
//! A connection belongs to one worker. While nothing of it is under way, its state can be taken out as a value, with
//! which another worker continues. The server, its sessions and other connections know it only by its id and its
//! mailbox, which stay the same.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use smb_crypto::PreauthHash;
use smb_wire::ids::{Guid, SessionId};
use tokio::sync::mpsc;
use vfs::{Vfs, requester::Requester};

use super::{Connection, MAILBOX_MAX, Negotiated, Outbox, waiting::EarlyCancels};
use crate::{
    link::credits::CreditWindow,
    memory::{Account, Seen},
    state::{Channel, ConnectionId, Mail, Peer, Server},
    transport::{Direct, HeldLogin},
};

/// The state of a connection that has left its worker. It must be given to [`crate::serve`] again or to
/// [`crate::lost`], which end its sessions and close its opens.
pub struct Carried<V: Vfs> {
    id: ConnectionId,
    peer: SocketAddr,
    negotiated: Option<Negotiated>,
    preauth: PreauthHash,
    credits: CreditWindow,
    channels: BTreeMap<SessionId, Channel<V>>,
    next_async: u64,
    early_cancels: EarlyCancels,
    requester: Requester,
    gives_up_soon_until: Option<Duration>,
    mail: mpsc::WeakSender<Mail>,
    account: Arc<Account>,
    pub(crate) mailbox: mpsc::Receiver<Mail>,
    pub(crate) stuck: Arc<AtomicBool>,
}

/// A connection on the worker that serves it, its mailbox, and the mark of the mailbox's overflow.
type Arrived<V> = (Rc<Connection<V>>, mpsc::Receiver<Mail>, Arc<AtomicBool>);

/// A client that a worker serves.
pub enum Client<V: Vfs> {
    /// A new connection from this address.
    New(SocketAddr),
    /// A connection that another worker has served until now.
    Carried(Box<Carried<V>>),
}

impl<V: Vfs> Client<V> {
    pub(crate) fn arrive(
        self,
        server: &Arc<Server<V>>,
        direct: Option<Box<dyn Direct>>,
        authenticated: Box<dyn Fn() -> HeldLogin>,
    ) -> Arrived<V> {
        let peer = match self {
            Self::New(peer) => peer,
            Self::Carried(carried) => return carried.arrive(server, direct, authenticated),
        };
        let id = ConnectionId(server.fresh_id());
        let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        let mail = sender.downgrade();
        let stuck = Arc::new(AtomicBool::new(false));
        let account = server.memory.account(peer.ip());
        let known = Peer {
            address: peer,
            dialect: None,
            client: Guid::default(),
            users: BTreeSet::new(),
            since: server.env.realtime(),
            mail: sender,
            stuck: Arc::clone(&stuck),
            account: Arc::clone(&account),
            seen: Seen::default(),
        };
        server.add_connection(id, known);
        let connection = Connection::new(server, id, peer, mail, account, direct, authenticated);
        (Rc::new(connection), mailbox, stuck)
    }
}

/// The parts that the tasks of a connection give back when it leaves its worker.
pub(crate) struct Parts<T> {
    pub(crate) mailbox: Cell<Option<mpsc::Receiver<Mail>>>,
    pub(crate) transmitter: Cell<Option<T>>,
}

impl<T> Parts<T> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            mailbox: Cell::new(None),
            transmitter: Cell::new(None),
        })
    }

    /// Ends the delivery of mail and returns the mailbox; `None` if the connection is closed first, or its mailbox is full.
    pub(crate) async fn mailbox<V: Vfs>(
        &self,
        connection: &Connection<V>,
    ) -> Option<mpsc::Receiver<Mail>> {
        connection.mail.upgrade()?.try_send(Mail::Leave).ok()?;
        connection.outbox.leaving.set(true);
        Outbox::until(&connection.outbox.end, || {
            let mailbox = self.mailbox.take();
            (mailbox.is_some() || connection.is_closed()).then_some(mailbox)
        })
        .await
    }
}

impl<V: Vfs> Connection<V> {
    /// Whether nothing of the connection is under way, apart from what its `tasks` references to it are for: no request
    /// runs or waits, no login has begun, and all answers have been sent.
    pub(crate) fn is_quiet(self: &Rc<Self>, tasks: usize) -> bool {
        Rc::strong_count(self) == tasks
            && self.outbox.held.get() == 0
            && self.setups.borrow().is_empty()
            && self.waiting.borrow().is_empty()
            && !self.is_closed()
    }

    /// Takes the state out of a connection of which nothing is under way, and which is not used again.
    pub(crate) fn carry(
        &self,
        mailbox: mpsc::Receiver<Mail>,
        stuck: Arc<AtomicBool>,
    ) -> Box<Carried<V>> {
        let channels = self.channels.take().into_iter();
        let owned = |channel: &Channel<V>| Channel {
            session: Arc::clone(&channel.session),
            signing: channel.signing.clone(),
        };
        let none_left = CreditWindow::new(1);
        Box::new(Carried {
            id: self.id,
            peer: self.peer,
            negotiated: self.negotiated().map(|facts| (*facts).clone()),
            preauth: self.preauth.replace(PreauthHash::new()),
            credits: self.credits.replace(none_left),
            channels: channels
                .map(|(id, channel)| (id, owned(&channel)))
                .collect(),
            next_async: self.next_async.get(),
            early_cancels: self.early_cancels.take_all(),
            requester: self.requester.get(),
            gives_up_soon_until: self.gives_up_soon_until.get(),
            mail: self.mail.clone(),
            account: Arc::clone(self.account()),
            mailbox,
            stuck,
        })
    }
}

impl<V: Vfs> Carried<V> {
    /// The connection on the worker that continues with it.
    pub(crate) fn arrive(
        self: Box<Self>,
        server: &Arc<Server<V>>,
        direct: Option<Box<dyn Direct>>,
        authenticated: Box<dyn Fn() -> HeldLogin>,
    ) -> Arrived<V> {
        let channels = self.channels.into_iter();
        let channels = channels.map(|(id, channel)| (id, Rc::new(channel)));
        let fresh = Connection::new(
            server,
            self.id,
            self.peer,
            self.mail,
            self.account,
            direct,
            authenticated,
        );
        let connection = Connection {
            negotiated: self.negotiated.map(Rc::new).into(),
            preauth: self.preauth.into(),
            credits: self.credits.into(),
            channels: channels.collect::<BTreeMap<_, _>>().into(),
            next_async: self.next_async.into(),
            early_cancels: self.early_cancels,
            requester: self.requester.into(),
            gives_up_soon_until: self.gives_up_soon_until.into(),
            ..fresh
        };
        (Rc::new(connection), self.mailbox, self.stuck)
    }
}
