//! A request while its handler runs, and the handler's answer.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use durability::{Completion, Unchanged};
use smb_wire::{
    header::{Command, Header, HeaderFlags},
    ids::{FileId, Guid, SessionId},
    msg::{self, Dialect},
    status::Status,
};
use vfs::{Attr, Node, Vfs, disk::InMemory};

use super::{chain::Chain, engine::Parking};
use crate::{
    access::Subject,
    connection::Connection,
    failure::Failure,
    file::CountedUser,
    limits::CREDIT_BYTES,
    link::outbound::{self, HEADROOM},
    memory::Held,
    state::{Channel, InFlight, QuotaPlace, QuotaUser, Server, Session, Share, TreeConnect},
    token::Token,
};

pub(crate) type Handled = Result<Reply, Failure>;

/// A successful answer (or a warning with a body).
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) head: BytesMut,
    pub(crate) payload: Option<Bytes>,
    /// Bytes of a file to send after the head, if [`Call::may_send_from_file`] allows it.
    pub(crate) file: Option<Box<dyn InMemory>>,
    /// The SessionId to answer with, where it is not the request's (SESSION_SETUP).
    pub(crate) session: Option<SessionId>,
    /// The TreeId to answer with, where it is not the request's (TREE_CONNECT).
    pub(crate) tree: Option<smb_wire::ids::TreeId>,
}

pub(crate) trait Response {
    /// Appends the body; the SMB2 header is at `start`.
    fn put(&self, out: &mut BytesMut, start: usize);
}

/// A response to a request that changes nothing a power cut could take back.
pub(crate) trait ReadOnly: Response {}

macro_rules! responses {
    ($($kind:ident: $($body:ty),+;)+) => {
        $($(
            impl Response for $body {
                fn put(&self, out: &mut BytesMut, start: usize) {
                    self.encode(out, start);
                }
            }
            responses!(@$kind $body);
        )+)+
    };
    (@reads $body:ty) => { impl ReadOnly for $body {} };
    (@changes $body:ty) => {};
}

// CREATE, CLOSE, FLUSH, WRITE, SET_INFO and IOCTL can promise something about the disk: their
// answers can only be built with a receipt of the durability engine.
responses! {
    reads: msg::NegotiateResponse<'_>, msg::SessionSetupResponse<'_>,
        msg::LogoffResponse, msg::TreeConnectResponse,
        msg::TreeDisconnectResponse, msg::EchoResponse,
        msg::LockResponse, msg::QueryDirectoryResponse<'_>,
        msg::ChangeNotifyResponse<'_>, msg::QueryInfoResponse<'_>,
        msg::OplockBreakResponse, msg::LeaseBreakResponse;
    changes: msg::CreateResponse<'_>, msg::CloseResponse,
        msg::FlushResponse, msg::WriteResponse, msg::SetInfoResponse,
        msg::IoctlResponse<'_>;
}

impl Reply {
    fn of(status: Status, body: &impl Response) -> Self {
        let mut head = outbound::blank();
        body.put(&mut head, HEADROOM);
        Self::new(status, head)
    }

    pub(super) fn new(status: Status, head: BytesMut) -> Self {
        Self {
            status,
            head,
            payload: None,
            file: None,
            session: None,
            tree: None,
        }
    }

    /// Success of something that changes nothing on disk.
    pub(crate) fn read_only(body: &impl ReadOnly) -> Self {
        Self::of(Status::SUCCESS, body)
    }

    /// A warning (or MORE_PROCESSING_REQUIRED) with a body, changing nothing on disk.
    pub(crate) fn with_status(status: Status, body: &impl ReadOnly) -> Self {
        Self::of(status, body)
    }

    /// Success of a request that may have changed the disk. It needs the engine's receipt, or the
    /// reason why nothing was changed.
    pub(crate) fn changed(body: &impl Response, completion: impl Into<Completion>) -> Self {
        Self::changed_with(Status::SUCCESS, body, completion)
    }

    /// As [`Reply::changed`], with a status other than success.
    pub(crate) fn changed_with(
        status: Status,
        body: &impl Response,
        completion: impl Into<Completion>,
    ) -> Self {
        drop(completion.into());
        Self::of(status, body)
    }

    /// Success of a request that may change the disk, but changed nothing this time.
    pub(crate) fn unchanged(body: &impl Response, reason: &'static str) -> Self {
        Self::changed(body, Unchanged::because(reason))
    }

    /// A READ's answer: the bytes read follow a head of [`outbound::for_data`].
    pub(crate) fn read(mut head: BytesMut) -> Self {
        outbound::announce_data(&mut head);
        Self::new(Status::SUCCESS, head)
    }

    /// A READ's answer whose data are sent from a file.
    pub(crate) fn from_file(file: Box<dyn InMemory>) -> Self {
        let mut reply = Self::read(outbound::for_data(0));
        outbound::announce(&mut reply.head, file.left());
        reply.file = Some(file);
        reply
    }

    /// A READ's answer whose data are in another buffer than the head.
    pub(crate) fn data(status: Status, data: Bytes) -> Self {
        let mut head = outbound::blank();
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        msg::ReadResponse::default().encode_head(&mut head, HEADROOM, length);
        Self {
            payload: Some(data),
            ..Self::new(status, head)
        }
    }
}

pub(crate) struct Call<V: Vfs> {
    pub(crate) connection: Rc<Connection<V>>,
    pub(crate) chain: Rc<Chain<V>>,
    /// In a related element the chain's ids are already filled in.
    pub(crate) header: Header,
    pub(crate) message: Bytes,
    pub(crate) channel: Option<Rc<Channel<V>>>,
    pub(crate) tree: Option<Arc<TreeConnect<V>>>,
    /// The request came signed and was verified.
    pub(crate) signed: bool,
    pub(crate) encrypted: bool,
    /// The element is the last of its frame, so its answer may come later than the others.
    pub(crate) last: bool,
    /// Set by SESSION_SETUP: sign the answer on this new channel.
    pub(crate) sign_with: RefCell<Option<Rc<Channel<V>>>>,
    /// Set by CREATE: the client can replay the request on another channel.
    pub(crate) replayable: Cell<bool>,
    /// The request has made its change and gets its own result: no CANCEL ends it any more ([MS-SMB2] 3.3.5.16).
    pub(crate) past_cancel: Cell<bool>,
    /// Taken by CREATE: the place of the new open.
    pub(crate) place: RefCell<Option<QuotaPlace>>,
    /// Incremented by CREATE each time it resumes after waiting. A fact that was read under the present number was
    /// read without waiting since.
    pub(crate) turn: Cell<u32>,
}

impl<V: Vfs> Call<V> {
    /// A request of a chain, not signed, and not known to belong to a session.
    pub(super) fn new(
        chain: &Rc<Chain<V>>,
        connection: &Rc<Connection<V>>,
        header: Header,
    ) -> Self {
        Self {
            connection: Rc::clone(connection),
            chain: Rc::clone(chain),
            header,
            message: Bytes::new(),
            channel: None,
            tree: None,
            signed: false,
            encrypted: chain.sealed_by.is_some(),
            last: false,
            sign_with: RefCell::new(None),
            replayable: Cell::new(false),
            past_cancel: Cell::new(false),
            place: RefCell::new(None),
            turn: Cell::new(0),
        }
    }

    pub(crate) fn server(&self) -> &Arc<Server<V>> {
        &self.connection.server
    }

    /// The session, for a command that requires one.
    pub(crate) fn session(&self) -> Result<&Arc<Session<V>>, Failure> {
        let channel = self.channel.as_ref();
        Ok(&channel.ok_or(Status::USER_SESSION_DELETED)?.session)
    }

    /// The tree connect, for a command that requires one.
    pub(crate) fn tree(&self) -> Result<&Arc<TreeConnect<V>>, Failure> {
        let tree = self.tree.as_ref();
        Ok(tree.ok_or(Status::NETWORK_NAME_DELETED)?)
    }

    /// Connection.ClientGuid.
    pub(crate) fn client(&self) -> Result<Guid, Failure> {
        let facts = self.connection.negotiated();
        Ok(facts.ok_or(Status::INVALID_PARAMETER)?.client_guid)
    }

    /// Refuses a request whose session or tree connect has ended while it waited: it must not create or empty anything
    /// any more. The client may have begun anew in another session, or its user may have lost the right.
    pub(super) fn check_ended(&self) -> Result<(), Failure> {
        let session = self.session()?;
        let tree = self.tree()?.id;
        Ok(session.check_tree(&session.tables(), tree)?)
    }

    /// The share of the tree; IPC$ has none.
    pub(crate) fn share(&self) -> Result<&Arc<Share<V>>, Failure> {
        let share = self.tree()?.share.as_ref();
        Ok(share.ok_or(Status::INVALID_DEVICE_REQUEST)?)
    }

    /// The identity on whose behalf the request is carried out.
    pub(crate) fn token(&self) -> Result<Arc<Token>, Failure> {
        let session = self.session()?;
        Ok(match &self.tree {
            Some(tree) => tree.token(self.server(), session),
            None => session.token(),
        })
    }

    /// The facts about a file or directory for an access check, without its directory and without the time for which a
    /// descriptor may be cached.
    pub(crate) fn subject<'a>(
        &'a self,
        node: &'a V::Node,
        attr: &'a Attr,
    ) -> Result<Subject<'a, V>, Failure> {
        Ok(Subject {
            vfs: &*self.share()?.vfs,
            node,
            attr,
            changed: None,
            parent: None,
            ceiling: self.tree()?.maximal_access,
            stream: node.stream().is_some(),
        })
    }

    /// The user for whom the file engine counts what is done for `owner`: one guest must not take the room of all
    /// others.
    pub(crate) fn counted_for(&self, owner: &Token) -> CountedUser {
        QuotaUser::of(owner, self.connection.peer.ip()).counted()
    }

    /// The user for whom the file engine counts what the request does.
    pub(crate) fn counted(&self) -> Result<CountedUser, Failure> {
        Ok(self.counted_for(&self.session()?.token()))
    }

    /// A place among the opens of the server for what the request opens; `None` if there is none for its user.
    ///
    /// # Errors
    /// The request has no session.
    pub(super) fn place_of_open(&self) -> Result<Option<QuotaPlace>, Failure> {
        let (server, config) = (self.server(), self.server().config());
        let who = QuotaUser::of(&self.session()?.token(), self.connection.peer.ip());
        let (all, each) = (config.limits.opens, config.limits.opens_per_user);
        Ok(server.opens.enter(who, all, each))
    }

    /// The entry by which the file engine may park the request.
    pub(super) fn parking(&self) -> Result<Parking<'_, V>, Failure> {
        Ok(Parking::new(self.server(), self.counted()?))
    }

    /// The open a FileId of this request stands for ([MS-SMB2] 3.3.5.2.10). In a related element
    /// the chain's id is used, whatever the request says.
    pub(crate) fn open(&self, id: FileId) -> Result<InFlight<V>, Failure> {
        let id = self.chain.file_id(&self.header, id)?;
        let open = self.session()?.tables().opens.get(&id.volatile).cloned();
        let tree = self.tree()?.id;
        let open = open.filter(|open| open.file_id == id && open.tree.id == tree);
        let mut open = open.and_then(InFlight::new).ok_or(Status::FILE_CLOSED)?;
        open.used();
        self.chain.set_file_id(id);
        self.check_channel_sequence(&mut open)?;
        Ok(open)
    }

    /// [MS-SMB2] 3.3.5.2.11: the checks of each request that uses a tree connect, whether its header names the tree or
    /// it reaches an open there in another way.
    pub(crate) fn is_admitted_by(&self, tree: &TreeConnect<V>) -> Result<(), Failure> {
        match tree.admits(self.connection.peer.ip(), self.encrypted) {
            true => Ok(()),
            false => Err(Status::ACCESS_DENIED.into()),
        }
    }

    /// [MS-SMB2] 3.3.5.2.10: requests that a client sent before it lost a channel must not take effect after those that
    /// it sent since.
    fn check_channel_sequence(&self, open: &mut InFlight<V>) -> Result<(), Failure> {
        if self.connection.dialect() < Dialect::SMB_3_0 {
            return Ok(());
        }
        let replay = self.header.flags.contains(HeaderFlags::REPLAY);
        let in_time = open.count(self.header.channel_sequence(), replay);
        match self.header.command {
            Command::WRITE | Command::SET_INFO | Command::IOCTL if !in_time => {
                Err(Status::FILE_NOT_AVAILABLE.into())
            }
            _ => Ok(()),
        }
    }

    /// Charges `bytes` to the server's memory budget.
    pub(crate) fn keep(&self, bytes: usize) -> Result<Held, Failure> {
        let held = self.connection.account().keep(bytes);
        Ok(held.ok_or(Status::INSUFFICIENT_RESOURCES)?)
    }

    /// MaxReadSize, MaxWriteSize and MaxTransactSize of the connection.
    pub(crate) fn io_max(&self) -> u32 {
        let facts = self.connection.negotiated();
        facts.map_or(0, |facts| facts.io_bytes)
    }

    /// Whether bytes of a file may be sent after the answer's head straight from the page cache: the answer must be a
    /// separate message that is neither signed nor sealed, and that leaves as soon as the handler has returned.
    pub(crate) fn may_send_from_file(&self) -> bool {
        self.chain.is_alone(self) && self.connection.may_send_from_file()
    }

    /// Counts work of a long loop and waits for the connection's next turn where this one is used
    /// up.
    pub(crate) async fn worked(&self, work: usize) -> Result<(), Failure> {
        let turn = &self.connection.turn;
        turn.did(work);
        turn.wait().await;
        self.check_connected()
    }

    /// Ends a request of a lost connection that has not begun or can stop here ([MS-SMB2] 3.3.7.1). One that only gives
    /// something up is carried out: other clients may wait for that, and where the session has another channel, an
    /// open would stay of which the client does not know.
    ///
    /// # Errors
    /// `CANCELLED` if the connection is lost.
    pub(super) fn check_connected(&self) -> Result<(), Failure> {
        let gives_up = matches!(
            self.header.command,
            Command::CLOSE | Command::OPLOCK_BREAK | Command::TREE_DISCONNECT | Command::LOGOFF
        );
        Ok(Status::CANCELLED.when(!gives_up && self.connection.is_closed())?)
    }

    /// [MS-SMB2] 3.3.5.2.5: the charge must cover the larger of the bytes sent and the bytes requested.
    pub(crate) fn check_charge(&self, sent: usize, asked: usize) -> Result<(), Failure> {
        let facts = self.connection.negotiated();
        let facts = facts.ok_or(Status::INVALID_PARAMETER)?;
        let needed = sent.max(asked).saturating_sub(1) / CREDIT_BYTES + 1;
        if facts.multi_credit && usize::from(self.header.credit_charge.max(1)) < needed {
            return Err(Status::INVALID_PARAMETER.into());
        }
        Ok(())
    }
}
