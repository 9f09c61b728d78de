//! Server side of an authentication exchange.

use std::sync::Arc;

use crate::{AuthError, Env, Step};

/// What the server says about itself, shared by all exchanges.
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
    /// Let users in whose password is the empty one. Off unless the administrator says so.
    pub allow_empty_passwords: bool,
}

/// One exchange. Make one per SESSION_SETUP sequence; it is finished after success or failure.
pub struct Acceptor {
    params: Arc<AcceptorParams>,
}

impl Acceptor {
    /// A new exchange.
    #[must_use]
    pub fn new(params: Arc<AcceptorParams>) -> Self {
        Self { params }
    }

    /// The NegTokenInit2 of the NEGOTIATE response's security buffer ([MS-SPNG] 3.2.5.2).
    #[must_use]
    pub fn negotiate_hint() -> Vec<u8> {
        Vec::new()
    }

    /// Feeds one token from the client.
    ///
    /// # Errors
    /// [`AuthError`]; the exchange is over then.
    pub async fn step(&mut self, token: &[u8], env: &mut Env<'_>) -> Result<Step, AuthError> {
        let _ = (token, env, &self.params);
        Err(AuthError::OutOfSequence)
    }
}
