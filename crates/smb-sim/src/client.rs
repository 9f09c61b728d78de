//! The sans-IO client over a connection in memory, with which tests write their sessions.
//!
//! One request after the other, or several under way: [`SimClient::send`], then
//! [`SimClient::wait`] in any order.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use smb_auth::Credentials;
use smb_client::{
    ClientError, CreateArgs, Created, Options, Reply, Request,
    core::{Break, ClientCore, Event, LoginArgs, LoginKind, SessionInfo},
};
use smb_wire::{
    fsctl::FsctlCode,
    ids::{FileId, FileTime, MessageId, SessionId, TreeId},
    msg::{IoctlResponse, LogoffRequest, ReadResponse, WriteFlags, WriteResponse},
};
use vfs::Env;

use crate::{
    executor::SimEnv,
    pipe::ClientEnd,
    server::{PASSWORD, SHARE, SimServer, USER},
};

#[derive(Debug)]
pub enum Message {
    Reply(Reply),
    Break(Break),
}

/// A client of a [`SimServer`].
///
/// # Errors
/// Where a function says nothing else: the server's status, and all others.
pub struct SimClient {
    core: ClientCore,
    end: ClientEnd,
    env: Arc<SimEnv>,
    session: SessionId,
    tree: TreeId,
    replies: BTreeMap<MessageId, Reply>,
}

impl SimClient {
    pub async fn connect(server: &SimServer, options: Options) -> Result<Self, ClientError> {
        let env = Arc::clone(server.env());
        let random = Arc::clone(&env);
        let mut this = Self {
            core: ClientCore::new(options, Box::new(move |out| random.fill_random(out))),
            end: server.connect(),
            env,
            session: SessionId(0),
            tree: TreeId(0),
            replies: BTreeMap::new(),
        };
        this.core.begin_negotiate()?;
        loop {
            if let Event::Negotiated(outcome) = this.event().await? {
                outcome.map_err(ClientError::Status)?;
                return Ok(this);
            }
        }
    }

    /// Connects, logs in as [`USER`] and opens [`SHARE`].
    pub async fn enter(server: &SimServer, options: Options) -> Result<Self, ClientError> {
        let mut this = Self::connect(server, options).await?;
        this.login(USER, PASSWORD).await?;
        this.open_tree(SHARE).await?;
        Ok(this)
    }

    /// Logs in; what follows belongs to that session.
    pub async fn login(&mut self, user: &str, password: &str) -> Result<SessionInfo, ClientError> {
        self.log_in(self.login_args(user, password)).await
    }

    /// Logs in as [`USER`], with a session that replaces another one (PreviousSessionId).
    pub async fn replace(&mut self, previous: SessionId) -> Result<SessionInfo, ClientError> {
        let args = LoginArgs {
            previous_session_id: previous,
            ..self.login_args(USER, PASSWORD)
        };
        self.log_in(args).await
    }

    fn login_args(&self, user: &str, password: &str) -> LoginArgs {
        let now = self.env.realtime();
        let now = FileTime::from_unix(now.secs, now.nanos).0;
        LoginArgs::new(Credentials::password(user, "", password), now)
    }

    async fn log_in(&mut self, args: LoginArgs) -> Result<SessionInfo, ClientError> {
        let ticket = self.core.begin_login(args)?;
        loop {
            match self.event().await? {
                Event::Login { ticket: t, outcome } if t == ticket => {
                    let info = outcome?;
                    self.session = info.session_id;
                    return Ok(info);
                }
                other => self.sort(other),
            }
        }
    }

    /// Another connection that becomes a channel of this session, for the same tree
    /// ([MS-SMB2] 3.2.4.2.3.1). A wrong `password` is refused.
    pub async fn channel(
        &self,
        server: &SimServer,
        options: Options,
        password: &str,
    ) -> Result<Self, ClientError> {
        let secret = self.core.session_secret(self.session);
        let secret = secret.ok_or(ClientError::Usage("no session to bind"))?;
        let options = options.guid(self.core.guid());
        let mut this = Self::connect(server, options).await?;
        let args = LoginArgs {
            kind: LoginKind::Bind(secret),
            ..this.login_args(USER, password)
        };
        this.log_in(args).await?;
        this.tree = self.tree;
        Ok(this)
    }

    /// Proves anew who this session's user is.
    pub async fn reauthenticate(&mut self, password: &str) -> Result<SessionInfo, ClientError> {
        let args = LoginArgs {
            kind: LoginKind::Reauthenticate(self.session),
            ..self.login_args(USER, password)
        };
        self.log_in(args).await
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// Opens a share; what follows belongs to it.
    pub async fn open_tree(&mut self, share: &str) -> Result<(), ClientError> {
        let connect = Request::tree_connect(&format!("\\\\memory\\{share}"));
        let reply = self.call(connect).await?;
        self.tree = reply.header.tree_id;
        Ok(())
    }

    /// Chooses the tree, opened before, for everything that follows.
    pub fn choose_tree(&mut self, tree: TreeId) {
        self.tree = tree;
    }

    /// Sends a request of this session and tree.
    pub fn send(&mut self, request: Request) -> Result<MessageId, ClientError> {
        let (session, tree) = (self.session, self.tree);
        let ids = self.core.send(vec![request.session(session).tree(tree)])?;
        self.write()?;
        ids.first()
            .copied()
            .ok_or(ClientError::Usage("nothing sent"))
    }

    /// The final reply to a request, whatever its status.
    pub async fn wait(&mut self, id: MessageId) -> Result<Reply, ClientError> {
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return Ok(reply);
            }
            let event = self.event().await?;
            self.sort(event);
        }
    }

    /// Sends a request and waits for its success.
    pub async fn call(&mut self, request: Request) -> Result<Reply, ClientError> {
        let id = self.send(request)?;
        self.wait(id).await?.ok()
    }

    pub async fn create(&mut self, args: &CreateArgs) -> Result<FileId, ClientError> {
        let reply = self.call(args.request()).await?;
        Ok(Created::read(&reply.message)?.file_id)
    }

    pub async fn write_at(
        &mut self,
        file: FileId,
        offset: u64,
        data: &[u8],
    ) -> Result<u32, ClientError> {
        let reply = self.call(write_request(file, offset, data)).await?;
        Ok(WriteResponse::read(&reply.message)?.count)
    }

    /// Makes a request that copies the first bytes of one file to another on the server.
    pub async fn copy_request(
        &mut self,
        source: FileId,
        target: FileId,
        length: u32,
    ) -> Result<Request, ClientError> {
        let asked = Request::ioctl(source, FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 64);
        let reply = self.call(asked).await?;
        let output = IoctlResponse::read(&reply.message)?.output;
        let input = Request::copy_chunks(output, &[(0, 0, length)])?;
        let code = FsctlCode::SRV_COPYCHUNK_WRITE;
        Ok(Request::ioctl(target, code, &input, 64))
    }

    pub async fn read_at(
        &mut self,
        file: FileId,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let reply = self.call(Request::read(file, offset, length)).await?;
        Ok(ReadResponse::read(&reply.message)?.data.to_vec())
    }

    pub async fn flush(&mut self, file: FileId) -> Result<(), ClientError> {
        self.call(Request::flush(file)).await.map(drop)
    }

    pub async fn close(&mut self, file: FileId) -> Result<(), ClientError> {
        self.call(Request::close(file)).await.map(drop)
    }

    pub async fn logoff(&mut self) -> Result<(), ClientError> {
        self.call(Request::new(&LogoffRequest)).await.map(drop)
    }

    /// Breaks the connection; whatever is under way stays so.
    pub fn cut(self) {
        self.end.cut();
    }

    pub fn core(&mut self) -> &mut ClientCore {
        &mut self.core
    }

    pub fn end(&self) -> &ClientEnd {
        &self.end
    }

    /// The frame of a request of this session and tree, not sent.
    pub fn frame(&mut self, request: Request) -> Result<(MessageId, Bytes), ClientError> {
        let (session, tree) = (self.session, self.tree);
        let ids = self.core.send(vec![request.session(session).tree(tree)])?;
        let frame = self.core.next_frame();
        match (ids.first(), frame) {
            (Some(id), Some(mut frame)) => {
                frame.head.unsplit(frame.body);
                Ok((*id, frame.head.freeze()))
            }
            _ => Err(ClientError::Usage("nothing sent")),
        }
    }

    /// Takes bytes that came otherwise than by waiting here.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.core.feed(bytes)?;
        while let Some(event) = self.core.next_event() {
            self.sort(event);
        }
        Ok(())
    }

    pub fn take(&mut self, id: MessageId) -> Option<Reply> {
        self.replies.remove(&id)
    }

    /// The next thing the server said, without waiting: a final reply or a break, in the order in which they came.
    pub fn next_message(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            match self.core.next_event() {
                Some(Event::Reply(reply)) => return Ok(Some(Message::Reply(reply))),
                Some(Event::Break { broken, .. }) => return Ok(Some(Message::Break(broken))),
                Some(_) => {}
                None => match self.end.take() {
                    Some(bytes) => self.core.feed(&bytes)?,
                    None => return Ok(None),
                },
            }
        }
    }

    fn sort(&mut self, event: Event) {
        if let Event::Reply(reply) = event {
            self.replies.insert(reply.header.message_id, reply);
        }
    }

    fn write(&mut self) -> Result<(), ClientError> {
        while let Some(mut frame) = self.core.next_frame() {
            frame.head.unsplit(frame.body);
            self.end
                .send(frame.head)
                .map_err(|_| ClientError::Disconnected)?;
        }
        Ok(())
    }

    async fn event(&mut self) -> Result<Event, ClientError> {
        loop {
            self.write()?;
            if let Some(event) = self.core.next_event() {
                return Ok(event);
            }
            let bytes = self.end.receive().await.ok_or(ClientError::Disconnected)?;
            self.core.feed(&bytes)?;
        }
    }
}

pub fn write_request(file: FileId, offset: u64, data: &[u8]) -> Request {
    Request::write(file, offset, data, WriteFlags::empty())
}
