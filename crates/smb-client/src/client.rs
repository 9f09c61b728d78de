//! The high-level interface: connect, log in, open a tree.
//!
//! [`Client`], [`Session`], [`Tree`] and [`crate::File`] share one connection behind a lock that is
//! held during one call; clones are handles to the same object. Dropping a handle closes nothing on
//! the server; dropping the last one closes the connection.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smb_auth::Credentials;
use smb_wire::ids::{AsyncId, FileTime, MessageId, SessionId, TreeId};
use smb_wire::msg::{LogoffRequest, SessionFlags, ShareFlags, TreeConnectResponse};
use socket2::{Domain, Socket, Type};

use crate::connection::Connection;
use crate::core::{Break, LoginArgs, LoginKind, Negotiated, Reply, SessionSecret};
use crate::error::ClientError;
use crate::options::{Encryption, Options};
use crate::request::Request;
use crate::tree::Tree;

/// A negotiated connection.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Mutex<Connection>>,
    negotiated: Arc<Negotiated>,
    options: Arc<Options>,
}

#[derive(Clone, Debug)]
#[must_use]
pub struct Login {
    pub credentials: Credentials,
    /// The session that the new one replaces; 0 for none.
    pub previous_session_id: SessionId,
}

impl Login {
    pub fn user(user: &str, password: &str, domain: &str) -> Self {
        Self {
            credentials: Credentials::password(user, domain, password),
            previous_session_id: SessionId(0),
        }
    }

    pub fn anonymous() -> Self {
        Self {
            credentials: Credentials::Anonymous,
            previous_session_id: SessionId(0),
        }
    }

    pub fn replacing(mut self, previous: SessionId) -> Self {
        self.previous_session_id = previous;
        self
    }

    fn args(&self, kind: LoginKind) -> LoginArgs {
        LoginArgs {
            previous_session_id: self.previous_session_id,
            kind,
            ..LoginArgs::new(self.credentials.clone(), now())
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let secs = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    FileTime::from_unix(secs, since.subsec_nanos()).0
}

/// Connects from a given address of this machine.
pub fn connect_from(source: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

impl Client {
    /// Connects and negotiates.
    pub fn connect(addr: impl ToSocketAddrs, options: Options) -> Result<Self, ClientError> {
        Self::over(Self::open(addr, options.clone())?, options)
    }

    /// Negotiates on a connection that was created with these options.
    pub fn over(mut connection: Connection, options: Options) -> Result<Self, ClientError> {
        let negotiated = connection.negotiate()?.clone();
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
            negotiated: Arc::new(negotiated),
            options: Arc::new(options),
        })
    }

    /// Connects without sending anything.
    pub fn open(addr: impl ToSocketAddrs, options: Options) -> Result<Connection, ClientError> {
        let addr = addr
            .to_socket_addrs()?
            .next()
            .ok_or(ClientError::Usage("no such address"))?;
        let stream = match options.source {
            None => TcpStream::connect_timeout(&addr, options.timeout)?,
            Some(source) => connect_from(source, addr)?,
        };
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(options.timeout))?;
        Ok(Connection::new(stream, options))
    }

    /// Locks the connection for one or more steps; other handles wait meanwhile.
    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn login(&self, user: &str, password: &str, domain: &str) -> Result<Session, ClientError> {
        self.login_with(&Login::user(user, password, domain))
    }

    pub fn login_with(&self, login: &Login) -> Result<Session, ClientError> {
        self.setup(login, LoginKind::New)
    }

    /// Binds this connection to a session as another channel.
    pub fn bind(&self, secret: SessionSecret, login: &Login) -> Result<Session, ClientError> {
        self.setup(login, LoginKind::Bind(secret))
    }

    fn setup(&self, login: &Login, kind: LoginKind) -> Result<Session, ClientError> {
        let info = self.connection().login(login.args(kind))?;
        Ok(Session {
            client: self.clone(),
            id: info.session_id,
            flags: info.flags,
        })
    }

    /// Sends a request and waits for its final reply with any status.
    pub fn call(&self, request: Request) -> Result<Reply, ClientError> {
        self.connection().call(request)
    }

    /// Sends a request without waiting for the reply.
    pub fn send(&self, request: Request) -> Result<MessageId, ClientError> {
        self.connection().send(request)
    }

    /// Sends a compound and waits for all its replies, whatever their status.
    pub fn compound(&self, requests: Vec<Request>) -> Result<Vec<Reply>, ClientError> {
        let mut connection = self.connection();
        let ids = connection.send_compound(requests)?;
        ids.into_iter().map(|id| connection.wait(id)).collect()
    }

    /// Waits for the final reply to a request, whatever its status.
    pub fn wait(&self, id: MessageId) -> Result<Reply, ClientError> {
        self.connection().wait(id)
    }

    pub fn wait_pending(&self, id: MessageId) -> Result<Option<AsyncId>, ClientError> {
        self.connection().wait_pending(id)
    }

    /// Returns a break that was received or is received within `wait`.
    pub fn next_break(&self, wait: Duration) -> Result<Option<Break>, ClientError> {
        self.connection().next_break(wait)
    }

    pub fn echo(&self) -> Result<(), ClientError> {
        self.connection().echo()
    }
}

#[derive(Clone, Debug)]
pub struct Session {
    client: Client,
    id: SessionId,
    flags: SessionFlags,
}

impl Session {
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    pub fn flags(&self) -> SessionFlags {
        self.flags
    }

    /// Returns the secret that another connection needs to bind this session; `None` without keys.
    pub fn secret(&self) -> Option<SessionSecret> {
        self.client.connection().core().session_secret(self.id)
    }

    pub fn reauthenticate(&self, login: &Login) -> Result<(), ClientError> {
        self.client
            .connection()
            .login(login.args(LoginKind::Reauthenticate(self.id)))
            .map(|_| ())
    }

    /// Opens a share of the server, and verifies the negotiation if the dialect requires it.
    ///
    /// # Errors
    /// The server's refusal; [`ClientError::Protocol`] if somebody tampered with the negotiation.
    pub fn tree(&self, share: &str) -> Result<Tree, ClientError> {
        let tree = self.tree_at(&format!("\\\\127.0.0.1\\{share}"))?;
        if self.client.options.validate_negotiate {
            tree.validate_negotiate()?;
        }
        Ok(tree)
    }

    /// Opens a share by its whole path, `\\server\share`.
    pub fn tree_at(&self, path: &str) -> Result<Tree, ClientError> {
        let reply = self.client.call(self.tree_connect(path))?.ok()?;
        let response = TreeConnectResponse::read(&reply.message)?;
        let encrypt = response.share_flags.contains(ShareFlags::ENCRYPT_DATA)
            && self.client.options.encryption != Encryption::Never;
        Ok(Tree::new(
            self.clone(),
            reply.header.tree_id,
            response,
            encrypt,
        ))
    }

    /// The request that opens a share by its whole path.
    pub fn tree_connect(&self, path: &str) -> Request {
        Request::tree_connect(path).session(self.id)
    }

    /// Creates a handle for a tree of this session whose id is already known.
    pub fn tree_of(&self, id: TreeId, response: TreeConnectResponse) -> Tree {
        Tree::new(self.clone(), id, response, false)
    }

    pub fn logoff(&self) -> Result<(), ClientError> {
        self.client
            .call(Request::new(&LogoffRequest).session(self.id))?
            .ok()
            .map(|_| ())
    }
}
