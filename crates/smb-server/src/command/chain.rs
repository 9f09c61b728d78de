//! The elements of one frame: the ids that they take over from each other, and their answers, which are sent together
//! ([MS-SMB2] 3.3.5.2.7, 3.3.4.1.3).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use smb_crypto::SigningKey;
use smb_wire::{
    header::{Command, Header, HeaderFlags, TRANSPORT_HEADER_SIZE},
    ids::{AsyncId, FileId, SessionId, TreeId},
    msg::{Dialect, ErrorResponse},
    status::Status,
};
use vfs::Vfs;

use super::{Call, Reply};
use crate::{
    connection::{Connection, Rest},
    failure::Failure,
    link::outbound::{self, HEADROOM, Outgoing, Seal, Unsendable},
    state::{Channel, Session, breaks::Granting},
};

/// The flags of a request that its responses repeat, the interim one included ([MS-SMB2] 3.3.4.2, 3.3.4.3).
const REPEATED: HeaderFlags = HeaderFlags::RELATED
    .union(HeaderFlags::PRIORITY_MASK)
    .union(HeaderFlags::REPLAY);

/// State shared by the elements of one frame.
pub(crate) struct Chain<V: Vfs> {
    connection: Rc<Connection<V>>,
    pub(super) sealed_by: Option<SessionId>,
    /// The channel of that session. It seals the answers even if the session has ended since and the connection keeps
    /// it no longer.
    sealing: Option<Rc<Channel<V>>>,
    /// Answers not sent yet.
    ready: RefCell<Vec<Outgoing>>,
    /// Credits granted by answers that did not carry them (all go into the last one).
    credits: Cell<u16>,
    /// Ids the next related element takes over.
    session: Cell<SessionId>,
    pub(super) tree: Cell<Option<TreeId>>,
    pub(super) file: Cell<Option<FileId>>,
    /// Why every related element fails.
    pub(super) failed: Cell<Option<Status>>,
    /// Why related elements that name a FileId fail: the CREATE that should have given it failed.
    lacks_file: Cell<Option<Status>>,
    started: Cell<bool>,
    /// An earlier element of this frame was carried out.
    pub(super) under_way: Cell<bool>,
    /// The grants in answers not sent yet: breaks of that caching wait for the answers.
    grants: RefCell<Vec<Granting<V>>>,
    /// The element being run waits or has waited: from then until its answer a CANCEL finds it by this id.
    pub(super) registered: Cell<Option<AsyncId>>,
    /// The element being run has been answered with STATUS_PENDING and that id.
    pub(super) interim_sent: Cell<bool>,
    /// The part of the answer that the socket did not take.
    pub(super) rest: Cell<Option<Rest>>,
}

/// The header of a response, without its credits, which the last one of its message carries. Encoding sets ASYNC.
fn response_header(request: Header, status: Status, async_id: Option<AsyncId>) -> Header {
    Header {
        status,
        credits: 0,
        flags: HeaderFlags::RESPONSE | (request.flags & REPEATED),
        next_command: 0,
        async_id,
        signature: [0; 16],
        ..request
    }
}

impl<V: Vfs> Chain<V> {
    pub(super) fn new(
        connection: &Rc<Connection<V>>,
        sealed_by: Option<SessionId>,
        count: usize,
    ) -> Self {
        Self {
            connection: Rc::clone(connection),
            sealed_by,
            sealing: sealed_by.and_then(|id| connection.channel(id)),
            ready: RefCell::new(Vec::with_capacity(count)),
            credits: Cell::new(0),
            session: Cell::new(SessionId::default()),
            tree: Cell::new(None),
            file: Cell::new(None),
            failed: Cell::new(None),
            lacks_file: Cell::new(None),
            started: Cell::new(false),
            grants: RefCell::default(),
            under_way: Cell::new(false),
            registered: Cell::new(None),
            interim_sent: Cell::new(false),
            rest: Cell::new(None),
        }
    }

    /// Puts the chain's ids into a related element ([MS-SMB2] 3.3.5.2.7.2).
    pub(super) fn relate(&self, header: &mut Header, needs_tree: bool) -> Result<(), Failure> {
        let first = !self.started.replace(true);
        let related = header.flags.contains(HeaderFlags::RELATED);
        if first || !related {
            self.session.set(header.session_id);
            self.tree.set(needs_tree.then_some(header.tree_id));
            self.file.set(None);
            self.failed.set(None);
            self.lacks_file.set(None);
        }
        if !related {
            return Ok(());
        }
        header.session_id = self.session.get();
        // There is no element before, or it has no tree to take over.
        if first || (needs_tree && self.tree.get().is_none()) {
            self.failed.set(Some(Status::INVALID_PARAMETER));
        }
        header.tree_id = self.tree.get().unwrap_or(header.tree_id);
        match self.failed.get() {
            Some(status) => Err(status.into()),
            None => Ok(()),
        }
    }

    /// The FileId an element means.
    pub(super) fn file_id(&self, header: &Header, said: FileId) -> Result<FileId, Failure> {
        if !header.flags.contains(HeaderFlags::RELATED) {
            // The following elements use this FileId, whether or not it is valid.
            self.file.set(Some(said));
            return Ok(said);
        }
        if let Some(status) = self.lacks_file.get() {
            return Err(status.into());
        }
        let Some(file) = self.file.get() else {
            // [MS-SMB2] 3.3.5.2.7.2: the elements after it fail as well.
            self.failed.set(Some(Status::INVALID_HANDLE));
            return Err(Status::INVALID_HANDLE.into());
        };
        Ok(file)
    }

    pub(super) fn create_failed(&self, status: Status) {
        self.file.set(None);
        self.lacks_file.set(Some(status));
    }

    /// Whether the answer of an element is a message of its own that is neither signed nor sealed.
    pub(super) fn is_alone(&self, call: &Call<V>) -> bool {
        let first = !self.under_way.get() && self.ready.borrow().is_empty();
        first && call.last && self.sealed_by.is_none() && self.signer(call).is_none()
    }

    pub(crate) fn set_file_id(&self, id: FileId) {
        self.file.set(Some(id));
        self.lacks_file.set(None);
    }

    /// The element being run grants caching: breaks wait until its answer has left.
    pub(crate) fn grants_caching(&self, granting: Granting<V>) {
        self.grants.borrow_mut().push(granting);
    }

    /// Sends the answers that breaks wait for: an element is about to wait for other clients, and those may wait for
    /// these breaks.
    pub(super) fn release_grants(&self) -> Result<(), Unsendable> {
        if self.grants.borrow().is_empty() {
            return Ok(());
        }
        self.flush()
    }

    /// Queues an answer behind those of the chain.
    pub(super) fn answer(&self, call: &Call<V>, reply: Reply) {
        if self.connection.is_closed() {
            // Nobody receives it, nor the answers before it, and no break has to wait for them.
            drop((self.ready.take(), self.grants.take()));
            return;
        }
        let mut header = response_header(call.header, reply.status, self.pending());
        header.session_id = reply.session.unwrap_or(header.session_id);
        header.tree_id = reply.tree.unwrap_or(header.tree_id);
        if header.async_id.is_none() {
            self.grant(call, reply.status);
        }
        let sign = self.signer(call);
        // [MS-SMB2] 3.3.4.1.1: an encrypted answer has no signature.
        let signed = call.header.flags.contains(HeaderFlags::SIGNED) && self.sealed_by.is_none();
        if header.status == Status::USER_SESSION_DELETED && signed && sign.is_none() {
            // There is no key to sign this answer with. Clients accept it all the same, but expect the flag and, as
            // from Windows, the request's own signature.
            header.flags |= HeaderFlags::SIGNED;
            header.signature = call.header.signature;
        }
        self.ready.borrow_mut().push(Outgoing {
            head: reply.head,
            payload: reply.payload,
            file: reply.file,
            header,
            sign,
        });
    }

    /// Grants the credits of a response ([MS-SMB2] 3.3.1.2): as many as the request asks for, but 1 before a login,
    /// and for a SESSION_SETUP that has not succeeded (docs/protocol-notes.md, "Credits of the first requests").
    fn grant(&self, call: &Call<V>, status: Status) {
        let wanted = match call.header.command {
            Command::SESSION_SETUP if status != Status::SUCCESS => 1,
            _ if self.connection.is_a_strangers() => 1,
            _ => call.header.credits.max(call.header.credit_charge).max(1),
        };
        let granted = self.connection.credits.borrow_mut().grant(wanted);
        self.credits.set(self.credits.get().saturating_add(granted));
    }

    /// The key that signs an answer, if it is to be signed ([MS-SMB2] 3.3.4.1.1).
    fn signer(&self, call: &Call<V>) -> Option<Arc<SigningKey>> {
        if self.sealed_by.is_some() {
            return None;
        }
        if let Some(channel) = call.sign_with.borrow_mut().take() {
            return channel.signing.clone();
        }
        let channel = call.channel.as_ref()?;
        // This holds even if the request's signature is wrong: clients do not accept an unsigned refusal of a signed
        // request.
        let asked = call.header.flags.contains(HeaderFlags::SIGNED);
        let wanted = asked || channel.session.signing_required;
        channel.signing.clone().filter(|_| wanted)
    }

    /// Sends the refusal of a plain request as a message of its own, which this session seals ([MS-SMB2] 3.3.4.1.4).
    pub(super) fn refuse_sealed(
        &self,
        call: &Call<V>,
        refusal: Reply,
        session: &Session<V>,
    ) -> Result<(), Unsendable> {
        self.flush()?;
        self.answer(call, refusal);
        self.flush_as(Some(session.seal().ok_or(Unsendable)?))
    }

    /// Sends the answers that are ready as one message.
    pub(super) fn flush(&self) -> Result<(), Unsendable> {
        self.flush_as(match &self.sealing {
            None if self.sealed_by.is_some() => return Err(Unsendable),
            None => None,
            Some(channel) => Some(channel.session.seal().ok_or(Unsendable)?),
        })
    }

    fn flush_as(&self, seal: Option<Seal<'_>>) -> Result<(), Unsendable> {
        let mut ready = std::mem::take(&mut *self.ready.borrow_mut());
        let Some(last) = ready.last_mut() else {
            return Ok(());
        };
        last.header.credits = self.credits.take();
        let hashed = (
            last.header.command,
            last.header.status,
            last.header.session_id,
        );
        let mut frame = outbound::assemble(ready, seal)?;
        self.hash(hashed, &frame.head);
        match frame.file.take() {
            None => self.connection.send(frame),
            Some(file) => {
                let rest = self.connection.send_from_file(frame.head, file);
                self.rest.set(rest);
            }
        }
        // Breaks that waited for these answers follow them.
        drop(self.grants.take());
        Ok(())
    }

    /// [MS-SMB2] 3.3.5.4, 3.3.5.5: the preauthentication hash covers the answers to NEGOTIATE and
    /// to each SESSION_SETUP but the last.
    fn hash(&self, (command, status, session): (Command, Status, SessionId), head: &[u8]) {
        let connection = &self.connection;
        if connection.dialect() != Dialect::SMB_3_1_1 || self.sealed_by.is_some() {
            return;
        }
        let Some(message) = head.get(TRANSPORT_HEADER_SIZE..) else {
            return;
        };
        match (command, status) {
            (Command::NEGOTIATE, Status::SUCCESS) => {
                connection.preauth.borrow_mut().update(message)
            }
            (Command::SESSION_SETUP, Status::MORE_PROCESSING_REQUIRED) => {
                if let Some(setup) = connection.setups.borrow_mut().get_mut(&session) {
                    setup.hash(message);
                }
            }
            _ => {}
        }
    }

    /// Sends STATUS_PENDING for an element that takes longer ([MS-SMB2] 3.3.4.2), with the answers that are ready and
    /// the element's credits.
    pub(super) fn interim(&self, call: &Call<V>, id: AsyncId) -> Result<(), Unsendable> {
        let mut head = outbound::blank();
        ErrorResponse::EMPTY.encode(&mut head, HEADROOM);
        self.interim_sent.set(true);
        self.grant(call, Status::PENDING);
        let header = response_header(call.header, Status::PENDING, Some(id));
        let interim = Outgoing::new(head, header);
        self.ready.borrow_mut().push(interim);
        self.flush()
    }

    pub(super) fn pending(&self) -> Option<AsyncId> {
        self.registered.get().filter(|_| self.interim_sent.get())
    }
}

#[cfg(test)]
mod tests {
    use smb_crypto::{Cipher, SealingKey};
    use smb_wire::ids::Guid;

    use super::*;
    use crate::{
        limits::ServerLimits,
        link::sealing::Sealing,
        restore::world::{Back, World, connection},
        state::Terms,
        token::Token,
    };

    /// Adds an encrypted session to the connection.
    fn session(connection: &Connection<Back>, id: u64) -> Arc<Session<Back>> {
        let id = SessionId(id);
        let key = || SealingKey::new(Cipher::Aes128Gcm, &[1; 16]).unwrap();
        let terms = Terms {
            dialect: Dialect::SMB_3_1_1,
            client_guid: Guid::default(),
            cipher: Some(Cipher::Aes128Gcm),
        };
        let guest = Token::guest(&connection.server.config());
        let mut session = Session::new(id, connection.id, None, terms, guest);
        session.encrypt_data = true;
        session.sealing = Some(Sealing::new(key(), key(), [0; 3]));
        let session = Arc::new(session);
        let channel = Channel {
            session: Arc::clone(&session),
            signing: None,
        };
        connection.add_channel(id, Rc::new(channel));
        session
    }

    #[test]
    fn an_answer_is_sealed_after_the_connection_has_dropped_its_ended_session() {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        let ended = session(&connection, 1);
        let chain = Chain::new(&connection, Some(ended.id), 1);
        assert!(ended.end());
        for id in 2..100 {
            session(&connection, id);
        }
        assert!(connection.channel(ended.id).is_none());
        let answer = Outgoing::new(outbound::blank(), Header::default());
        chain.ready.borrow_mut().push(answer);
        assert_eq!(chain.flush(), Ok(()));
    }

    #[test]
    fn the_answers_of_a_lost_connection_are_dropped() {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        let chain = Rc::new(Chain::new(&connection, None, 3));
        let call = Call::new(&chain, &connection, Header::default());
        let answer = || {
            chain.answer(&call, Reply::new(Status::SUCCESS, outbound::blank()));
            chain.ready.borrow().len()
        };
        assert_eq!([answer(), answer()], [1, 2]);
        connection.close();
        assert_eq!(answer(), 0);
    }

    /// The signature of the answer to a signed request of an ended session.
    fn repeated(sealed: bool) -> [u8; 16] {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        let ended = session(&connection, 1);
        let chain = Rc::new(Chain::new(&connection, sealed.then_some(ended.id), 1));
        let header = Header {
            flags: HeaderFlags::SIGNED,
            signature: [7; 16],
            ..Header::default()
        };
        let call = Call {
            last: true,
            ..Call::new(&chain, &connection, header)
        };
        let refused = Reply::new(Status::USER_SESSION_DELETED, outbound::blank());
        chain.answer(&call, refused);
        let answer = chain.ready.borrow_mut().remove(0);
        let signed = answer.header.flags.contains(HeaderFlags::SIGNED);
        assert_eq!(signed, !sealed);
        answer.header.signature
    }

    #[test]
    fn the_signature_of_a_request_is_repeated_in_a_plain_answer_only() {
        assert_eq!((repeated(false), repeated(true)), ([7; 16], [0; 16]));
    }
}
