//! One blocking connection: a [`ClientCore`] over a stream.
//!
//! Requests can be pipelined ([`Connection::send`], then [`Connection::wait`] in any order),
//! compounded, cancelled, and sent as raw bytes. Replies that nobody waits for yet are stored by
//! their message id. Every wait for the peer is bounded by the stream's timeout.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use smb_wire::Command;
use smb_wire::ids::{AsyncId, MessageId, SessionId};
use smb_wire::msg::CancelRequest;

use crate::core::{Break, ClientCore, Event, LoginArgs, Negotiated, Reply, SessionInfo};
use crate::error::ClientError;
use crate::options::Options;
use crate::request::Request;

/// Bytes read from the stream at once.
const READ_BYTES: usize = 256 * 1024;

pub struct Connection {
    stream: TcpStream,
    core: ClientCore,
    buffer: Vec<u8>,
    timeout: Duration,
    replies: BTreeMap<MessageId, Reply>,
    order: VecDeque<MessageId>,
    pending: BTreeMap<MessageId, AsyncId>,
    /// Breaks, and whether each came encrypted.
    breaks: VecDeque<(Break, bool)>,
    negotiated: Option<Result<(), smb_wire::Status>>,
    logins: BTreeMap<MessageId, Result<SessionInfo, ClientError>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection over `stream`, without sending anything, with the system's random numbers.
    pub fn new(stream: TcpStream, options: Options) -> Self {
        Self {
            stream,
            timeout: options.timeout,
            core: ClientCore::new(options, Box::new(system_random)),
            buffer: vec![0; READ_BYTES],
            replies: BTreeMap::new(),
            order: VecDeque::new(),
            pending: BTreeMap::new(),
            breaks: VecDeque::new(),
            negotiated: None,
            logins: BTreeMap::new(),
        }
    }

    pub fn core(&self) -> &ClientCore {
        &self.core
    }

    pub fn core_mut(&mut self) -> &mut ClientCore {
        &mut self.core
    }

    pub fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    pub fn negotiate(&mut self) -> Result<&Negotiated, ClientError> {
        self.core.begin_negotiate()?;
        let outcome = self.turn_until(|this| this.negotiated.take())?;
        outcome.map_err(ClientError::Status)?;
        self.core
            .negotiated()
            .ok_or(ClientError::Protocol("negotiation without a result"))
    }

    pub fn login(&mut self, args: LoginArgs) -> Result<SessionInfo, ClientError> {
        let ticket = self.core.begin_login(args)?;
        self.finish_login(ticket)
    }

    /// Completes a login that was started through the core; several may be in progress at once.
    pub fn finish_login(&mut self, ticket: MessageId) -> Result<SessionInfo, ClientError> {
        self.turn_until(|this| this.logins.remove(&ticket))?
    }

    /// Sends a request; if there are not enough credits, waits for them first.
    ///
    /// # Errors
    /// [`ClientError::NoCredits`] when no outstanding reply could grant more.
    pub fn send(&mut self, request: Request) -> Result<MessageId, ClientError> {
        let ids = self.send_compound(vec![request])?;
        ids.first()
            .copied()
            .ok_or(ClientError::Usage("nothing sent"))
    }

    pub fn send_compound(&mut self, requests: Vec<Request>) -> Result<Vec<MessageId>, ClientError> {
        let needed = self.core.charge(&requests);
        let forced = requests.iter().any(|r| r.overrides.ignore_credits);
        while !forced && self.core.credits() < needed && self.core.outstanding() > 0 {
            self.turn()?;
        }
        let ids = self.core.send(requests)?;
        self.write_frames()?;
        Ok(ids)
    }

    /// Waits for the final reply to a request, whatever its status.
    pub fn wait(&mut self, id: MessageId) -> Result<Reply, ClientError> {
        let reply = self.turn_until(|this| this.replies.remove(&id))?;
        self.order.retain(|other| *other != id);
        self.pending.remove(&id);
        Ok(reply)
    }

    /// Waits for STATUS_PENDING (and returns its AsyncId) or for the final reply (and returns
    /// `None`; the reply remains for [`Connection::wait`]).
    pub fn wait_pending(&mut self, id: MessageId) -> Result<Option<AsyncId>, ClientError> {
        self.turn_until(|this| match this.replies.contains_key(&id) {
            true => Some(None),
            false => this.pending.get(&id).map(|async_id| Some(*async_id)),
        })
    }

    /// Waits for the next final reply to any request.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        let id = self.turn_until(|this| this.order.front().copied())?;
        self.wait(id)
    }

    /// Sends a request and waits for its final reply with any status.
    pub fn call(&mut self, request: Request) -> Result<Reply, ClientError> {
        let id = self.send(request)?;
        self.wait(id)
    }

    pub fn cancel(&mut self, id: MessageId, session: SessionId) -> Result<(), ClientError> {
        let mut request = Request::new(&CancelRequest)
            .session(session)
            .overriding(|o| {
                o.message_id = Some(id);
                o.credits = Some(0);
            });
        request.async_id = self.pending.get(&id).copied();
        self.send(request).map(|_| ())
    }

    /// Returns a break that was received or is received within `wait`.
    pub fn next_break(&mut self, wait: Duration) -> Result<Option<Break>, ClientError> {
        Ok(self.next_break_as_sent(wait)?.map(|(broken, _)| broken))
    }

    /// As [`Connection::next_break`], and whether the break came encrypted.
    pub fn next_break_as_sent(
        &mut self,
        wait: Duration,
    ) -> Result<Option<(Break, bool)>, ClientError> {
        if self.breaks.is_empty() {
            self.listen(wait, |this| !this.breaks.is_empty())?;
        }
        Ok(self.breaks.pop_front())
    }

    /// Returns whether a break was received that [`Connection::next_break`] has not returned.
    pub fn has_break(&self) -> bool {
        !self.breaks.is_empty()
    }

    /// Returns whether a final reply to the request was received or is received within `wait`.
    pub fn answered(&mut self, id: MessageId, wait: Duration) -> Result<bool, ClientError> {
        if !self.replies.contains_key(&id) {
            self.listen(wait, |this| this.replies.contains_key(&id))?;
        }
        Ok(self.replies.contains_key(&id))
    }

    /// Returns whether STATUS_PENDING was received for a request without a final reply, as far as
    /// [`Connection::answered`] has read.
    pub fn is_pending(&self, id: MessageId) -> bool {
        self.pending.contains_key(&id)
    }

    /// Sends a message unchanged, behind a correct transport header. From then on replies without a
    /// matching request are accepted.
    pub fn send_message(&mut self, message: &[u8]) -> Result<(), ClientError> {
        self.core.send_message(message)?;
        self.write_frames()
    }

    /// Sends bytes unchanged, without a transport header.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.core.tolerate();
        self.stream.write_all(bytes)?;
        Ok(self.stream.flush()?)
    }

    /// Changes the timeout of every wait for the server.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    fn listen(&mut self, wait: Duration, done: impl Fn(&Self) -> bool) -> Result<(), ClientError> {
        // Each read gets the whole timeout, so replies to other requests may prolong the wait.
        let timeout = std::mem::replace(&mut self.timeout, wait);
        let mut outcome = Ok(());
        while outcome.is_ok() && !done(self) {
            outcome = self.turn();
        }
        self.timeout = timeout;
        match outcome {
            Err(ClientError::TimedOut) => Ok(()),
            other => other,
        }
    }

    fn write_frames(&mut self) -> Result<(), ClientError> {
        while let Some(frame) = self.core.next_frame() {
            let (mut head, mut body) = (&frame.head[..], &frame.body[..]);
            while !head.is_empty() {
                let segments = [std::io::IoSlice::new(head), std::io::IoSlice::new(body)];
                let written = match self.stream.write_vectored(&segments) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    other => other?,
                };
                ClientError::Disconnected.when(written == 0)?;
                let of_head = written.min(head.len());
                head = head.get(of_head..).unwrap_or_default();
                body = body.get(written - of_head..).unwrap_or_default();
            }
            self.stream.write_all(body)?;
        }
        Ok(self.stream.flush()?)
    }

    /// Sends and reads until there is what `found` looks for.
    fn turn_until<T>(
        &mut self,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, ClientError> {
        loop {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            self.turn()?;
        }
    }

    /// Sends the queued frames, reads once, and sorts the events.
    fn turn(&mut self) -> Result<(), ClientError> {
        self.write_frames()?;
        self.stream
            .set_read_timeout(Some(self.timeout.max(Duration::from_millis(1))))?;
        let read = loop {
            match self.stream.read(&mut self.buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        ClientError::Disconnected.when(read == 0)?;
        let fed = self.core.feed(self.buffer.get(..read).unwrap_or_default());
        while let Some(event) = self.core.next_event() {
            self.sort(event);
        }
        fed?;
        self.write_frames()
    }

    fn sort(&mut self, event: Event) {
        match event {
            Event::Reply(reply) => {
                let id = reply.header.message_id;
                self.order.push_back(id);
                self.replies.insert(id, reply);
            }
            Event::Pending {
                message_id,
                async_id,
            } => {
                self.pending.insert(message_id, async_id);
            }
            Event::Break { broken, encrypted } => self.breaks.push_back((broken, encrypted)),
            Event::SessionClosed(_) => {} // The next request on it fails.
            Event::Negotiated(outcome) => self.negotiated = Some(outcome),
            Event::Login { ticket, outcome } => {
                self.logins.insert(ticket, outcome);
            }
        }
    }

    /// Reads until the server closes the connection, discarding the data. Returns false if it is
    /// still open after the timeout.
    pub fn closed_by_server(&mut self, wait: Duration) -> Result<bool, ClientError> {
        match self.listen(wait, |_| false) {
            Ok(()) => Ok(false),
            Err(ClientError::Disconnected) => Ok(true),
            Err(other) => Err(other),
        }
    }

    pub fn echo(&mut self) -> Result<(), ClientError> {
        let reply = self.call(Request::new(&smb_wire::msg::EchoRequest))?.ok()?;
        smb_wire::msg::EchoResponse::read(&reply.message)?;
        debug_assert_eq!(reply.header.command, Command::ECHO);
        Ok(())
    }
}

/// Random bytes of the operating system. Without them nothing is secure, so the process panics.
fn system_random(buffer: &mut [u8]) {
    if getrandom::fill(buffer).is_err() {
        std::process::abort();
    }
}
