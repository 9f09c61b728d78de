//! How a connection protects its messages.

use serde::{Deserialize, Serialize};
use smb_client::{Client, Encryption, Options, Signing};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_wire::msg::Dialect;

/// How a connection protects its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// As client and server agree by themselves.
    #[default]
    Plain,
    /// Signed by AES-CMAC, with SMB 3.0.
    Cmac,
    /// Signed by AES-GMAC, with SMB 3.1.1.
    Gmac,
    /// Encrypted by AES-128-GCM, with SMB 3.1.1.
    Gcm,
}

impl Protection {
    /// The options of a client that asks for it.
    pub fn options(self, options: Options) -> Options {
        let timeout = options.timeout;
        let asked = match self {
            Self::Plain => return options,
            Self::Cmac => Options::dialect(Dialect::SMB_3_0).signing(Signing::Required),
            Self::Gmac => Options::dialect(Dialect::SMB_3_1_1)
                .signing(Signing::Required)
                .signing_algorithm(SigningAlgorithm::AesGmac),
            Self::Gcm => Options::dialect(Dialect::SMB_3_1_1)
                .encryption(Encryption::Always)
                .cipher(Cipher::Aes128Gcm),
        };
        Options { timeout, ..asked }
    }

    /// Whether the server agreed: another algorithm would be another measurement.
    pub fn is_agreed(self, client: &Client) -> bool {
        let negotiated = client.negotiated();
        match self {
            Self::Plain => !negotiated.server_requires_signing,
            Self::Cmac => negotiated.signing_algorithm == SigningAlgorithm::AesCmac,
            Self::Gmac => negotiated.signing_algorithm == SigningAlgorithm::AesGmac,
            Self::Gcm => negotiated.cipher == Some(Cipher::Aes128Gcm),
        }
    }
}
