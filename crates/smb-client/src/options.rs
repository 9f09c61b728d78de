//! The offer and the requirements of a connection.
//!
//! The defaults are those of a careful modern client: all dialects of SMB 2 and 3, all ciphers and
//! signing algorithms, signing if the server wants it, secure negotiation verified.

use std::net::IpAddr;
use std::time::Duration;

use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::ids::Guid;
use smb_wire::msg::{Capabilities, Dialect};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// Every request of a session with keys is signed, and its reply must be signed too.
    Required,
    /// Requests are signed if the server requires it.
    IfRequired,
    /// Requests are never signed, even if the server requires it; for tests. (TREE_CONNECT on
    /// 3.1.1, VALIDATE_NEGOTIATE_INFO and reauthentication are signed all the same.)
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Requests are never encrypted, and the capability is not offered.
    Never,
    /// Requests are encrypted if the session or the share requires it.
    IfRequired,
    /// All requests after the session setup are encrypted.
    Always,
}

/// An SMB1 NEGOTIATE sent first ([MS-SMB2] 3.2.4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiProtocol {
    /// None: the first message is an SMB2 NEGOTIATE.
    No,
    /// Offers "SMB 2.002" alone.
    Smb2002,
    /// Offers "SMB 2.002" and "SMB 2.???".
    Wildcard,
}

#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub dialects: Vec<Dialect>,
    /// Whether an SMB1 NEGOTIATE comes first.
    pub multi_protocol: MultiProtocol,
    pub signing: Signing,
    pub encryption: Encryption,
    /// Ciphers offered on 3.1.1, in order of preference; an empty list sends no context.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms offered on 3.1.1, in order of preference; an empty list sends no context.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// The ClientGuid; `None` chooses a random one.
    pub guid: Option<Guid>,
    /// Capabilities announced if a dialect of 3.x is offered.
    pub capabilities: Capabilities,
    /// The number of credits to hold: each request asks for the missing ones.
    pub credits: u16,
    /// Verify the negotiation with VALIDATE_NEGOTIATE_INFO if the dialect requires it.
    pub validate_negotiate: bool,
    /// Name of this computer in NTLM; may be empty.
    pub workstation: String,
    /// The timeout of each read and write of the socket.
    pub timeout: Duration,
    /// The local address to connect from; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
}

impl Options {
    /// Offers only this dialect.
    pub fn dialect(dialect: Dialect) -> Self {
        Self {
            dialects: vec![dialect],
            ..Self::default()
        }
    }

    pub fn signing(mut self, signing: Signing) -> Self {
        self.signing = signing;
        self
    }

    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// Offers only this cipher.
    pub fn cipher(mut self, cipher: Cipher) -> Self {
        self.ciphers = vec![cipher];
        self
    }

    /// Offers only this signing algorithm.
    pub fn signing_algorithm(mut self, algorithm: SigningAlgorithm) -> Self {
        self.signing_algorithms = vec![algorithm];
        self
    }

    pub fn guid(mut self, guid: Guid) -> Self {
        self.guid = Some(guid);
        self
    }

    pub(crate) fn offers_3x(&self) -> bool {
        self.dialects.iter().any(|d| *d >= Dialect::SMB_3_0)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialects: Dialect::ALL.to_vec(),
            multi_protocol: MultiProtocol::No,
            signing: Signing::IfRequired,
            encryption: Encryption::IfRequired,
            ciphers: vec![
                Cipher::Aes128Gcm,
                Cipher::Aes128Ccm,
                Cipher::Aes256Gcm,
                Cipher::Aes256Ccm,
            ],
            signing_algorithms: vec![
                SigningAlgorithm::AesGmac,
                SigningAlgorithm::AesCmac,
                SigningAlgorithm::HmacSha256,
            ],
            guid: None,
            capabilities: Capabilities::LEASING
                | Capabilities::LARGE_MTU
                | Capabilities::MULTI_CHANNEL
                | Capabilities::PERSISTENT_HANDLES
                | Capabilities::DIRECTORY_LEASING,
            credits: 256,
            validate_negotiate: true,
            workstation: String::new(),
            timeout: Duration::from_secs(30),
            source: None,
        }
    }
}
