//! Authentication for SMB: SPNEGO, NTLMv2, the user database and the failed-login limiter.
//!
//! A server passes the security blobs of SESSION_SETUP to an [`Acceptor`], a client to an
//! [`Initiator`]. The crate has no I/O, no clock and no source of randomness of its own: the caller
//! passes them in through [`AuthEnv`]. Every byte of a token may be hostile; parsers have named limits
//! and never recurse.
//!
//! Invariants: an identity is returned only for a proof that was compared in constant time; an
//! unknown user and a wrong password cost the same work; LM and NTLMv1 responses never
//! authenticate; an anonymous login is *reported*, never mapped to an account. Policy (guest,
//! anonymous shares, status codes) belongs to the server.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]
#![cfg_attr(not(test), deny(clippy::iter_over_hash_type))]

mod acceptor;
mod der;
mod initiator;
pub mod limiter;
mod ntlm;
mod params;
mod secret;
mod spnego;
pub mod users;

pub use acceptor::Acceptor;
pub use initiator::Initiator;
pub use limiter::{LimiterConfig, LoginLimiter};
pub use ntlm::keys::upper as fold_name;
pub use params::{AcceptorParams, Credentials, InitiatorParams};
pub use secret::{NtHash, SessionKey};
pub use users::{GroupRecord, MachineSid, UserDb, UserDbError};

/// Size of the largest security blob that is parsed, in bytes. SESSION_SETUP can carry at most
/// 65535.
pub const MAX_TOKEN_LEN: usize = 65_535;

/// Size of the largest mechanism list (RFC 4178 4.2.1) and of the largest NTLM NEGOTIATE ([MS-NLMP] 2.2.1.1), in bytes.
/// Both are kept until the login ends, for the sake of their MICs, and are some 100 bytes long.
pub(crate) const KEPT_MAX: usize = 1024;

/// The identity that a successful authentication proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The peer requested a null session. It proved nothing; the server decides what the session may do.
    Anonymous,
    /// A user of the database.
    User(UserIdentity),
}

/// A user as recorded in the database, never in the peer's spelling.
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
    /// The local uid and gid that the user is bound to, if any.
    pub uid_gid: Option<(u32, u32)>,
}

/// The result of processing one token.
#[derive(Debug)]
pub enum AuthStep {
    /// Send this token with STATUS_MORE_PROCESSING_REQUIRED and wait for the next one.
    Continue(Vec<u8>),
    /// Authentication is complete.
    Done {
        /// Token for the final response, if the mechanism has one.
        token: Option<Vec<u8>>,
        identity: PeerIdentity,
        /// The mechanism's whole session key (16 bytes for NTLM). Anonymous sessions get one too,
        /// but it proves nothing and must not be used for signing.
        session_key: SessionKey,
    },
}

/// The reason why authentication failed. The acceptor is finished after any of them.
///
/// `UnknownUser`, `WrongPassword`, `NtlmV1Refused` and `TooManyFailures` must be indistinguishable
/// on the wire: STATUS_LOGON_FAILURE and no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No such user. The server may map it to guest.
    #[error("unknown user {name:?}")]
    UnknownUser {
        /// In the peer's spelling.
        name: String,
        /// In the peer's spelling.
        domain: String,
    },
    /// The proof does not match the user's password, or the user has none.
    #[error("wrong password for {name:?}")]
    WrongPassword {
        /// In the peer's spelling.
        name: String,
        /// In the peer's spelling.
        domain: String,
    },
    /// The password is right, but the account is disabled (STATUS_ACCOUNT_DISABLED).
    #[error("account {name:?} is disabled")]
    Disabled {
        /// Name in the database's spelling.
        name: String,
    },
    /// The client sent an LM or NTLMv1 response.
    #[error("LM or NTLMv1 answer refused")]
    NtlmV1Refused,
    /// The [`LoginGate`] refused the attempt; no proof was computed.
    #[error("too many failures for {name:?}")]
    TooManyFailures {
        /// In the peer's spelling.
        name: String,
    },
    /// The proof is right, but a message integrity code (NTLM MIC or SPNEGO mechListMIC) is wrong, or missing where it
    /// is required: somebody modified the exchange. The status on the wire is STATUS_LOGON_FAILURE.
    #[error("message integrity code wrong or missing")]
    BadMic,
    /// The token is malformed (STATUS_INVALID_PARAMETER). The text describes the error and never contains token bytes.
    #[error("malformed token: {0}")]
    InvalidToken(&'static str),
    /// There is no common mechanism, or the peer did not offer a required option.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// The token came after the end of the exchange, or does not belong at this point.
    #[error("token out of sequence")]
    OutOfSequence,
    /// The other side reported failure (initiator only).
    #[error("rejected by the server")]
    Rejected,
}

impl AuthError {
    /// Fails with this error if `condition` holds.
    pub(crate) fn when(self, condition: bool) -> Result<(), Self> {
        match condition {
            true => Err(self),
            false => Ok(()),
        }
    }
}

/// The surroundings that a step needs: clock, randomness, user database, limiter.
pub struct AuthEnv<'a> {
    /// The current time as FILETIME: 100 ns units since 1601-01-01 UTC.
    pub now_filetime: u64,
    pub users: &'a dyn UserStore,
    /// Cryptographic randomness.
    pub random: &'a mut RandomSource<'a>,
    /// Consulted before any password is compared.
    pub gate: &'a dyn LoginGate,
}

/// A store in which users are looked up.
pub trait UserStore: Send + Sync {
    /// Returns the user of this name, ignoring case. There is no fallback to another name.
    fn find(&self, name: &str) -> Option<UserRecord>;

    /// Returns at most `most` users in the order of their names, without the first `from`, for listings. Contains no
    /// secrets.
    fn users(&self, _from: usize, _most: usize) -> Vec<Account> {
        Vec::new()
    }

    /// Returns groups in the order of their names, as [`UserStore::users`] does users.
    fn groups(&self, _from: usize, _most: usize) -> Vec<Account> {
        Vec::new()
    }

    /// Returns the user or group with this relative identifier. Clients find the SID of a name only if this knows the
    /// account that [`UserStore::by_name`] returns for it.
    fn by_rid(&self, _rid: u32) -> Option<Account> {
        None
    }

    /// Returns the user or group of this name, ignoring case.
    fn by_name(&self, name: &str) -> Option<Account> {
        self.find(name).map(|user| Account::of(&user))
    }
}

/// The public facts about a user or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name in the spelling it was created with.
    pub name: String,
    /// Relative identifier.
    pub rid: u32,
    /// True for a group, false for a user.
    pub group: bool,
    /// Full name for display; may be empty.
    pub full_name: String,
    /// A disabled user cannot log in.
    pub disabled: bool,
    /// RIDs of the groups a user is a member of, sorted.
    pub group_rids: Vec<u32>,
    /// Time of the last password change in seconds since 1970; 0 if there was none.
    pub password_set: u64,
}

impl Account {
    /// The public facts about this user, without the secrets.
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

/// A source of cryptographic random bytes; it fills the whole buffer.
pub type RandomSource<'a> = dyn FnMut(&mut [u8]) + Send + 'a;

/// Decides whether a login attempt may be tried. The implementation knows the peer's address and
/// usually wraps a [`LoginLimiter`] in a lock.
pub trait LoginGate: Send + Sync {
    /// Counts the attempt as failed and returns whether it may proceed. Both happen in one atomic
    /// step, so that parallel attempts cannot all pass on the same count.
    fn admit(&self, user: &str) -> bool;
    /// Takes the count of an attempt back that has succeeded.
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
    /// NT hash; with `None` nobody can log in as this user.
    pub nt_hash: Option<NtHash>,
    /// A disabled user cannot log in.
    pub disabled: bool,
    /// Full name for display; may be empty.
    pub full_name: String,
    /// RIDs of the groups the user is a member of, sorted.
    pub group_rids: Vec<u32>,
    /// Local uid and gid binding.
    pub uid_gid: Option<(u32, u32)>,
    /// Time of the last password change in seconds since 1970; 0 if there was none.
    pub password_set: u64,
}
