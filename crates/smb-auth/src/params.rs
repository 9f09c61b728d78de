//! The two sides of an exchange: how the server introduces itself, and who the client is.

use crate::secret::NtHash;

/// The names by which the server introduces itself, and its settings; shared by all exchanges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptorParams {
    /// NetBIOS computer name, upper case, at most 15 characters.
    pub netbios_computer: String,
    /// NetBIOS domain or workgroup name, upper case.
    pub netbios_domain: String,
    /// DNS name of the computer.
    pub dns_computer: String,
    /// DNS name of the domain; may be empty.
    pub dns_domain: String,
    /// Admits users whose password is empty. Off unless the administrator turns it on.
    pub allow_empty_passwords: bool,
}

/// The account to log in with.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A null session.
    Anonymous,
    /// A user with a password hash.
    User {
        /// User name.
        user: String,
        /// Domain; may be empty.
        domain: String,
        /// NT hash of the password.
        hash: NtHash,
    },
}

impl Credentials {
    /// Credentials of a user with a password.
    pub fn password(user: &str, domain: &str, password: &str) -> Self {
        Self::User {
            user: user.to_owned(),
            domain: domain.to_owned(),
            hash: NtHash::from_password(password),
        }
    }
}

/// The parameters of the client's side.
#[derive(Clone, Debug)]
pub struct InitiatorParams {
    /// The account to log in with.
    pub credentials: Credentials,
    /// Name of the client computer; may be empty.
    pub workstation: String,
    /// Service principal name of the server (`cifs/host`), for the server to check.
    pub target_spn: Option<String>,
}
