//! A frame's requests run one after the other and their answers leave together
//! ([MS-SMB2] 3.3.5.2.7, 3.3.4.1.3).
//!
//! An element that has to wait for somebody else can only do so at the end of its chain: what is
//! ready then leaves at once with its interim answer. So can a CREATE anywhere that waits for a break:
//! what follows it waits with it. In the middle others run to their end where that is bounded by the
//! disk or a break, and are refused where it is not (as Windows does).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use bytes::BytesMut;
use smb_wire::{
    header::{Command, Header, HeaderFlags, TRANSPORT_HEADER_SIZE},
    ids::{AsyncId, FileId, MessageId, SessionId, TreeId},
    msg::{Dialect, ErrorContext, ErrorId, ErrorResponse},
    status::Status,
};
use vfs::Vfs;

use super::{
    Call, Handled, Reply,
    admit::admit,
    breaks::Granting,
    negotiate, refused,
    table::{self, Handler},
};
use crate::{
    connection::{Connection, DataInFlight},
    failure::Failure,
    link::{
        inbound::Inbound,
        misbehaved::Misbehaved,
        outbound::{self, HEADROOM, Outgoing, Unsendable},
    },
    race::{First, race},
};

/// State shared by the elements of one frame.
pub(crate) struct Chain<V: Vfs> {
    connection: Rc<Connection<V>>,
    sealed_by: Option<SessionId>,
    /// Answers not sent yet.
    ready: RefCell<Vec<Outgoing<V>>>,
    /// Credits granted by answers that did not carry them (all go into the last one).
    credits: Cell<u16>,
    /// Ids the next related element takes over.
    session: Cell<SessionId>,
    tree: Cell<Option<TreeId>>,
    file: Cell<Option<FileId>>,
    /// Why every related element fails: the element that should have given the FileId did.
    failed: Cell<Option<Status>>,
    started: Cell<bool>,
    under_way: Cell<bool>,
    /// Of answers not sent: breaks of what they grant wait for them.
    grants: RefCell<Vec<Granting<V>>>,
    /// The element being run has been answered with STATUS_PENDING.
    pending: Cell<Option<AsyncId>>,
}

impl<V: Vfs> Chain<V> {
    pub(crate) fn sealed_by(&self) -> Option<SessionId> {
        self.sealed_by
    }

    /// Puts the chain's ids into a related element ([MS-SMB2] 3.3.5.2.7.2).
    pub(super) fn relate(&self, header: &mut Header) -> Result<(), Failure> {
        let first = !self.started.replace(true);
        let needs_tree = table::needs_tree::<V>(header.command);
        if !header.flags.contains(HeaderFlags::RELATED) {
            self.session.set(header.session_id);
            self.tree.set(needs_tree.then_some(header.tree_id));
            self.file.set(None);
            self.failed.set(None);
            return Ok(());
        }
        if first {
            self.failed.set(Some(Status::INVALID_PARAMETER));
        }
        header.session_id = self.session.get();
        if needs_tree && self.tree.get().is_none() {
            // The element before has no tree to take over.
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
        self.file
            .get()
            .ok_or(Failure::Status(Status::INVALID_HANDLE))
    }

    /// The FileId that was named last.
    pub(super) fn named_file(&self) -> Option<FileId> {
        self.file.get()
    }

    /// Something of this frame came before.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.get()
    }

    pub(crate) fn set_file_id(&self, id: FileId) {
        self.file.set(Some(id));
    }

    /// The element being run grants caching: breaks wait until its answer has left.
    pub(crate) fn grants_caching(&self, granting: Granting<V>) {
        self.grants.borrow_mut().push(granting);
    }

    /// Sends the answers that breaks wait for: an element is about to wait for others, who may wait
    /// for these breaks.
    pub(super) fn release_grants(&self) -> Result<(), Unsendable> {
        if self.grants.borrow().is_empty() {
            return Ok(());
        }
        self.flush()
    }

    pub(crate) fn set_tree(&self, id: TreeId) {
        self.tree.set(Some(id));
    }

    /// Queues an answer behind those of the chain.
    fn answer(&self, call: &Call<V>, reply: Reply) {
        let mut header = call.header;
        header.status = reply.status;
        header.flags = HeaderFlags::RESPONSE
            | (call.header.flags & HeaderFlags::RELATED)
            | (call.header.flags & HeaderFlags::PRIORITY_MASK)
            | (call.header.flags & HeaderFlags::REPLAY);
        header.next_command = 0;
        header.signature = [0; 16];
        header.session_id = reply.session.unwrap_or(header.session_id);
        header.tree_id = reply.tree.unwrap_or(header.tree_id);
        header.async_id = self.pending.get();
        header.credits = 0;
        if header.async_id.is_some() {
            header.flags |= HeaderFlags::ASYNC;
        } else {
            self.credits.set(
                self.credits
                    .get()
                    .saturating_add(self.grant(call, reply.status)),
            );
        }
        let sign = self.signer(call);
        let signed = call.header.flags.contains(HeaderFlags::SIGNED);
        if header.status == Status::USER_SESSION_DELETED && signed && sign.is_none() {
            // Nobody has a key to sign this with. Clients believe it all the same, but look for
            // the flag, and for what Windows leaves there: the request's own signature.
            header.flags |= HeaderFlags::SIGNED;
            header.signature = call.header.signature;
        }
        self.ready.borrow_mut().push(Outgoing {
            head: reply.head,
            payload: reply.payload,
            header,
            sign,
        });
    }

    /// The credits that a response grants ([MS-SMB2] 3.3.1.2): as many as the request asks for, but 1 for
    /// NEGOTIATE and for a SESSION_SETUP that has not succeeded (docs/protocol-notes.md, "Credits of
    /// the first requests").
    fn grant(&self, call: &Call<V>, status: Status) -> u16 {
        let wanted = match call.header.command {
            Command::NEGOTIATE => 1,
            Command::SESSION_SETUP if status != Status::SUCCESS => 1,
            _ => call.header.credits.max(call.header.credit_charge).max(1),
        };
        self.connection.credits.borrow_mut().grant(wanted)
    }

    /// The channel that signs an answer, if it is to be signed ([MS-SMB2] 3.3.4.1.1).
    fn signer(&self, call: &Call<V>) -> Option<Rc<crate::state::Channel<V>>> {
        if self.sealed_by.is_some() {
            return None;
        }
        if let Some(channel) = call.sign_with.borrow_mut().take() {
            return Some(channel).filter(|channel| channel.signing.is_some());
        }
        let channel = call.channel.as_ref()?;
        // Also where the signature is wrong: clients take no unsigned refusal of a signed request.
        let asked = call.header.flags.contains(HeaderFlags::SIGNED);
        let wanted = asked || channel.session.must_sign();
        (wanted && channel.signing.is_some()).then(|| Rc::clone(channel))
    }

    /// Sends what is ready as one message.
    fn flush(&self) -> Result<(), Unsendable> {
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
        let sealing = match self.sealed_by {
            None => None,
            Some(id) => Some(self.connection.channel(id).ok_or(Unsendable)?),
        };
        let frame = outbound::assemble(ready, sealing.as_ref().map(|channel| &*channel.session))?;
        self.hash(hashed, &frame.head);
        self.connection.send(frame);
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
                    setup.hash_answer(message);
                }
            }
            _ => {}
        }
    }

    /// Tells the client that the element takes longer ([MS-SMB2] 3.3.4.2): the answers that are
    /// ready leave with it, and so do its credits.
    pub(super) fn interim(&self, call: &Call<V>, id: AsyncId) -> Result<(), Unsendable> {
        let mut head = outbound::blank();
        ErrorResponse::EMPTY.encode(&mut head, HEADROOM);
        self.pending.set(Some(id));
        let mut header = call.header;
        header.status = Status::PENDING;
        header.flags =
            HeaderFlags::RESPONSE | HeaderFlags::ASYNC | (call.header.flags & HeaderFlags::RELATED);
        header.next_command = 0;
        header.signature = [0; 16];
        header.async_id = Some(id);
        header.credits = 0;
        self.credits.set(
            self.credits
                .get()
                .saturating_add(self.grant(call, Status::PENDING)),
        );
        self.ready.borrow_mut().push(Outgoing {
            head,
            payload: None,
            header,
            sign: None,
        });
        self.flush()
    }

    pub(super) fn pending(&self) -> Option<AsyncId> {
        self.pending.get()
    }
}

/// Runs what one frame brought, and holds `_data` as long.
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
    let chain = Rc::new(Chain {
        connection: Rc::clone(&connection),
        sealed_by,
        ready: RefCell::new(Vec::with_capacity(count)),
        credits: Cell::new(0),
        session: Cell::new(SessionId::default()),
        tree: Cell::new(None),
        file: Cell::new(None),
        failed: Cell::new(None),
        started: Cell::new(false),
        grants: RefCell::default(),
        under_way: Cell::new(false),
        pending: Cell::new(None),
    });
    let most = connection.server.config().limits.compound_length;
    for (index, request) in requests.into_iter().enumerate() {
        let command = request.header.command;
        if let Some(Handler::Silent(handle)) = table::row(command).map(|row| &row.handler) {
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
            // Answers that are complete belong to requests that were in order, so they leave first.
            let _ = chain.flush();
            return connection.misbehaved(rule);
        }
    }
    if chain.flush().is_err() {
        connection.misbehaved(Misbehaved::Unsendable);
    }
}

/// Whether the handler of an element may run.
fn may_run<V: Vfs>(
    call: &Call<V>,
    admitted: Result<(), Failure>,
    too_many: bool,
) -> Result<(), Failure> {
    match admitted {
        Ok(()) if too_many => return Err(Status::INVALID_PARAMETER.into()),
        Ok(()) => tell_of_changes(call),
        Err(failure) => {
            let failed = &call.chain.failed;
            // [MS-SMB2] 3.3.5.2.7.2: without a session or tree there is nothing to relate to.
            failed.set(failed.get().or(Some(Status::INVALID_PARAMETER)));
            return Err(failure);
        }
    }
    Ok(())
}

/// Queues the answer of an element.
fn finish<V: Vfs>(call: &Call<V>, handled: Handled) -> Result<(), Misbehaved> {
    let (connection, chain) = (&call.connection, &call.chain);
    let creates = call.header.command == Command::CREATE;
    let reply = match handled {
        Ok(reply) => reply,
        Err(Failure::Disconnect(rule)) => return Err(rule),
        Err(Failure::Status(status)) => {
            if creates {
                chain.failed.set(Some(status));
            }
            error(connection.dialect(), status, &[])
        }
        Err(Failure::WithData(status, data)) => {
            if creates {
                chain.failed.set(Some(status));
            }
            error(connection.dialect(), status, &data)
        }
    };
    connection
        .server
        .requests
        .count(connection.id, call.header.command, reply.status);
    refused::log(call, reply.status);
    chain.answer(call, reply);
    chain.under_way.set(true);
    // Each of the following elements gets an answer of its own.
    if let Some(id) = chain.pending.take() {
        connection.waiting.borrow_mut().remove(&id);
    }
    Ok(())
}

/// Watches the objects that clients cache for changes made by others, also after a restart.
fn tell_of_changes<V: Vfs>(call: &Call<V>) {
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
    let mut work = match row.handler {
        Handler::Async(handle) => handle(call),
        Handler::AtOnce(handle) => return handle(call),
        Handler::Silent(_) => return Err(Status::INVALID_PARAMETER.into()),
    };
    let Some(patience) = row.patience else {
        return turn.run(work.as_mut()).await;
    };
    // Made only when the work has to wait: most has not.
    let patience = async {
        let span = Duration::from_millis(patience);
        call.server().env.sleep(span).await;
    };
    if let First::Left(handled) = race(turn.run(work.as_mut()), patience).await {
        return handled;
    }
    call.tell_pending();
    turn.run(work.as_mut()).await
}

/// An ERROR response ([MS-SMB2] 2.2.2).
fn error(dialect: Dialect, status: Status, data: &[u8]) -> Reply {
    let mut head = outbound::blank();
    if data.is_empty() {
        ErrorResponse::EMPTY.encode(&mut head, HEADROOM);
    } else {
        error_data(dialect, data, &mut head);
    }
    Reply {
        status,
        head,
        payload: None,
        session: None,
        tree: None,
    }
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

/// Sends an unsolicited message: a break notification ([MS-SMB2] 3.3.4.6, 3.3.4.7).
pub(crate) fn notify<V: Vfs>(
    connection: &Rc<Connection<V>>,
    session: SessionId,
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
    let seal = channel
        .as_ref()
        .map(|channel| &*channel.session)
        .filter(|session| session.encrypts());
    let frame = outbound::assemble(
        vec![Outgoing {
            head: body,
            payload: None,
            header,
            sign: None,
        }],
        seal,
    )?;
    connection.send(frame);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persistent::world::Back;

    fn size_of_future<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_frame_begins_is_small() {
        // The sizes that glibc's thread cache serves.
        let size = size_of_future(run::<Back>);
        assert!(size <= 1032, "{size}");
    }
}
