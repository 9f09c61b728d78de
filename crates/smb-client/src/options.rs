//! What a connection offers and insists on.
//!
//! The defaults are those of a careful modern client: all dialects of SMB 2 and 3, all ciphers
//! and signing algorithms, signing when the server wants it, secure negotiation checked.

use std::net::IpAddr;
use std::time::Duration;

use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::ids::Guid;
use smb_wire::msg::{Capabilities, Dialect};

/// Whether requests are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// Every request of a session with keys; replies must be signed too.
    Required,
    /// When the server demands it.
    IfRequired,
    /// Never, whatever the server demands; for tests. (TREE_CONNECT on 3.1.1 and
    /// VALIDATE_NEGOTIATE_INFO are signed all the same, and so are new proofs of an identity.)
    Never,
}

/// Whether requests are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Never, and the capability is not offered.
    Never,
    /// When the session or the share demands it.
    IfRequired,
    /// Everything after the session is set up.
    Always,
}

/// An SMB1 NEGOTIATE sent first ([MS-SMB2] 3.2.4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiProtocol {
    /// None: SMB2 NEGOTIATE straight away.
    No,
    /// Offers "SMB 2.002" alone.
    Smb2002,
    /// Offers "SMB 2.002" and "SMB 2.???".
    Wildcard,
}

/// How to connect.
#[derive(Debug, Clone)]
pub struct Options {
    /// Dialects offered, in order.
    pub dialects: Vec<Dialect>,
    /// Whether an SMB1 NEGOTIATE comes first.
    pub multi_protocol: MultiProtocol,
    /// Signing.
    pub signing: Signing,
    /// Encryption.
    pub encryption: Encryption,
    /// Ciphers offered on 3.1.1, in order of preference; none sends no context.
    pub ciphers: Vec<Cipher>,
    /// Signing algorithms offered on 3.1.1, in order of preference; none sends no context.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// ClientGuid; `None` makes a random one.
    pub guid: Option<Guid>,
    /// Capabilities announced when a dialect of 3.x is offered.
    pub capabilities: Capabilities,
    /// How many credits to keep: each request asks for what is missing.
    pub credits: u16,
    /// Check the negotiation with VALIDATE_NEGOTIATE_INFO where the dialect calls for it.
    pub validate_negotiate: bool,
    /// Name of this computer in NTLM; may be empty.
    pub workstation: String,
    /// How long to wait for the server, for each read and write of the socket.
    pub timeout: Duration,
    /// The address of this machine to connect from; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
}

impl Options {
    /// Only this dialect.
    #[must_use]
    pub fn dialect(dialect: Dialect) -> Self {
        Self {
            dialects: vec![dialect],
            ..Self::default()
        }
    }

    /// With this signing policy.
    #[must_use]
    pub fn signing(mut self, signing: Signing) -> Self {
        self.signing = signing;
        self
    }

    /// With this encryption policy.
    #[must_use]
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// Only this cipher.
    #[must_use]
    pub fn cipher(mut self, cipher: Cipher) -> Self {
        self.ciphers = vec![cipher];
        self
    }

    /// Only this signing algorithm.
    #[must_use]
    pub fn signing_algorithm(mut self, algorithm: SigningAlgorithm) -> Self {
        self.signing_algorithms = vec![algorithm];
        self
    }

    /// With this ClientGuid.
    #[must_use]
    pub fn guid(mut self, guid: Guid) -> Self {
        self.guid = Some(guid);
        self
    }

    /// Whether 3.x is among the dialects.
    pub(crate) fn offers_3x(&self) -> bool {
        self.dialects.iter().any(|d| *d >= Dialect::SMB_3_0)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialects: vec![
                Dialect::SMB_2_0_2,
                Dialect::SMB_2_1,
                Dialect::SMB_3_0,
                Dialect::SMB_3_0_2,
                Dialect::SMB_3_1_1,
            ],
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
