//! Authentication for SMB: SPNEGO, NTLMv2, the user database and the failed-login limiter.
//!
//! A server feeds the security blobs of SESSION_SETUP to an [`Acceptor`], a client to an
//! [`Initiator`]. No I/O, no clock, no source of randomness of its own: they come in through
//! [`Env`]. Every byte of a token is a stranger's; parsers have named limits and never recurse.
//!
//! Invariants: an identity is only given for a proof that was compared in constant time; unknown
//! user and wrong password cost the same work; LM and NTLMv1 answers never authenticate; anonymous
//! is *reported*, never mapped to anybody. Policy (guest, anonymous shares, status codes) belongs
//! to the server. The `step` function is async because a Kerberos accept will block in a pool.

mod acceptor;
mod der;
mod initiator;
pub mod limiter;
mod ntlm;
mod secret;
mod spnego;
pub mod users;

pub use acceptor::{Acceptor, AcceptorParams};
pub use initiator::{Credentials, Initiator, InitiatorParams, fold_name};
pub use limiter::{LimiterConfig, LoginLimiter};
pub use secret::{NtHash, SessionKey};
pub use users::{GroupRecord, MachineSid, UserDb, UserDbError};

use core::fmt;

/// Largest security blob looked at, in bytes. SESSION_SETUP can carry at most 65535.
pub const MAX_TOKEN_LEN: usize = 65_535;

/// Who a successful authentication proved the peer to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The peer asked for a null session. It proved nothing; the server decides what it may do.
    Anonymous,
    /// A user of the database.
    User(UserIdentity),
}

/// A user as the database knows it, never as the peer spelled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserIdentity {
    /// Name in the database's spelling.
    pub name: String,
    /// NetBIOS name of the account domain (this server's computer name).
    pub domain: String,
    /// Relative identifier under the machine SID.
    pub rid: u32,
    /// Relative identifiers of the user's groups under the machine SID.
    pub group_rids: Vec<u32>,
    /// Local uid and gid the user is bound to, if any.
    pub uid_gid: Option<(u32, u32)>,
}

/// What one token led to.
#[derive(Debug)]
pub enum Step {
    /// Send this token with STATUS_MORE_PROCESSING_REQUIRED and wait for the next one.
    Continue(Vec<u8>),
    /// Authentication is complete.
    Done {
        /// Token for the final response, if the mechanism has one.
        token: Option<Vec<u8>>,
        /// Who the peer is.
        identity: Identity,
        /// The mechanism's whole session key (16 bytes for NTLM). Anonymous sessions get one
        /// too, which proves nothing and must not be used to sign.
        session_key: SessionKey,
    },
}

/// Why authentication failed. The acceptor is finished after any of them.
///
/// `UnknownUser`, `WrongPassword`, `NtlmV1Refused` and `TooManyFailures` must look alike on the
/// wire: STATUS_LOGON_FAILURE, no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No such user. The server may map it to guest.
    UnknownUser {
        /// As the peer spelled it.
        name: String,
        /// As the peer spelled it.
        domain: String,
    },
    /// The proof does not fit the user's password, or the user has none.
    WrongPassword {
        /// As the peer spelled it.
        name: String,
        /// As the peer spelled it.
        domain: String,
    },
    /// Right password, but the account is disabled (STATUS_ACCOUNT_DISABLED).
    Disabled {
        /// Name in the database's spelling.
        name: String,
    },
    /// An LM or NTLMv1 answer.
    NtlmV1Refused,
    /// The [`LoginGate`] refused the attempt; nothing was computed.
    TooManyFailures {
        /// As the peer spelled it.
        name: String,
    },
    /// The proof is right but a message integrity code (NTLM MIC or SPNEGO mechListMIC) is
    /// wrong or missing where required: somebody changed the exchange. Logon failure on the wire.
    BadMic,
    /// Malformed token (STATUS_INVALID_PARAMETER). The text says what, never with token bytes.
    InvalidToken(&'static str),
    /// No mechanism in common, or a needed option was not offered.
    NotSupported(&'static str),
    /// A token after the exchange was over, or one that does not belong here.
    OutOfSequence,
    /// The other side reported failure (initiator only).
    Rejected,
}

impl AuthError {
    /// True where the failure is one of the credentials: answer STATUS_LOGON_FAILURE.
    #[must_use]
    pub fn is_logon_failure(&self) -> bool {
        matches!(
            self,
            Self::UnknownUser { .. }
                | Self::WrongPassword { .. }
                | Self::NtlmV1Refused
                | Self::TooManyFailures { .. }
                | Self::BadMic
        )
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownUser { name, .. } => write!(f, "unknown user {name:?}"),
            Self::WrongPassword { name, .. } => write!(f, "wrong password for {name:?}"),
            Self::Disabled { name } => write!(f, "account {name:?} is disabled"),
            Self::NtlmV1Refused => f.write_str("LM or NTLMv1 answer refused"),
            Self::TooManyFailures { name } => write!(f, "too many failures for {name:?}"),
            Self::BadMic => f.write_str("message integrity code wrong or missing"),
            Self::InvalidToken(what) => write!(f, "malformed token: {what}"),
            Self::NotSupported(what) => write!(f, "not supported: {what}"),
            Self::OutOfSequence => f.write_str("token out of sequence"),
            Self::Rejected => f.write_str("rejected by the server"),
        }
    }
}

impl core::error::Error for AuthError {}

/// What a step needs from outside.
pub struct Env<'a> {
    /// Present time as FILETIME: 100 ns units since 1601-01-01 UTC.
    pub now_filetime: u64,
    /// The user database.
    pub users: &'a dyn UserStore,
    /// Cryptographic randomness.
    pub random: &'a mut dyn RandomSource,
    /// Asked before any password is compared.
    pub gate: &'a dyn LoginGate,
}

/// Where users are looked up.
pub trait UserStore: Send + Sync {
    /// The user of exactly this name, letter case aside. There is no fallback to another name.
    fn find(&self, name: &str) -> Option<UserRecord>;

    /// All users, in the order of their names. For listings only; no secrets in it.
    fn users(&self) -> Vec<Account> {
        Vec::new()
    }

    /// All groups, in the order of their names.
    fn groups(&self) -> Vec<Account> {
        Vec::new()
    }

    /// The user or group of this relative identifier.
    fn by_rid(&self, _rid: u32) -> Option<Account> {
        None
    }

    /// The user or group of this name, letter case aside.
    fn by_name(&self, name: &str) -> Option<Account> {
        self.find(name).map(|user| Account::of(&user))
    }
}

/// What may be told of a user or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name in the spelling it was created with.
    pub name: String,
    /// Relative identifier.
    pub rid: u32,
    /// A group; else a user.
    pub group: bool,
    /// Full name for display; may be empty.
    pub full_name: String,
    /// A disabled user cannot log in.
    pub disabled: bool,
    /// RIDs of the groups a user is a member of, sorted.
    pub group_rids: Vec<u32>,
    /// When the password was set, seconds since 1970; 0 = never.
    pub password_set: u64,
}

impl Account {
    /// A user without its secrets.
    #[must_use]
    pub fn of(user: &UserRecord) -> Self {
        Self {
            name: user.name.clone(),
            rid: user.rid,
            group: false,
            full_name: user.full_name.clone(),
            disabled: user.disabled,
            group_rids: user.group_rids.clone(),
            password_set: user.password_set,
        }
    }
}

impl From<&GroupRecord> for Account {
    fn from(group: &GroupRecord) -> Self {
        Self {
            name: group.name.clone(),
            rid: group.rid,
            group: true,
            full_name: String::new(),
            disabled: false,
            group_rids: Vec::new(),
            password_set: 0,
        }
    }
}

/// A source of cryptographic random bytes.
pub trait RandomSource: Send {
    /// Fills the whole buffer.
    fn fill(&mut self, buffer: &mut [u8]);
}

impl<F: FnMut(&mut [u8]) + Send> RandomSource for F {
    fn fill(&mut self, buffer: &mut [u8]) {
        self(buffer);
    }
}

/// Decides whether a login attempt may be tried. The implementation knows the peer's address and
/// usually wraps a [`LoginLimiter`] in a lock.
pub trait LoginGate: Send + Sync {
    /// Counts the attempt as failed and says whether it may be tried. One atomic action, so that
    /// parallel attempts cannot all slip through on one count.
    fn admit(&self, user: &str) -> bool;
    /// The attempt turned out to be right: its count is taken back.
    fn succeeded(&self, user: &str);
}

/// A gate that admits everything; for tests and for servers without a limiter.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl LoginGate for OpenGate {
    fn admit(&self, _user: &str) -> bool {
        true
    }
    fn succeeded(&self, _user: &str) {}
}

/// One user of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// Name in the spelling it was created with.
    pub name: String,
    /// Relative identifier, 1000 or above.
    pub rid: u32,
    /// NT hash; `None` means that nobody can log in as this user.
    pub nt_hash: Option<NtHash>,
    /// A disabled user cannot log in.
    pub disabled: bool,
    /// Full name for display; may be empty.
    pub full_name: String,
    /// RIDs of the groups the user is a member of, sorted.
    pub group_rids: Vec<u32>,
    /// Local uid and gid binding.
    pub uid_gid: Option<(u32, u32)>,
    /// When the password was set, seconds since 1970; 0 = never.
    pub password_set: u64,
}
