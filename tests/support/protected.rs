//! The ways to protect messages whose costs are counted.

use smb_client::{Encryption, Options, Signing};
use smb_crypto::SigningAlgorithm;

/// The options of a client for each way, by its name in the tables.
pub fn protected() -> [(&'static str, Options); 3] {
    let signed = |algorithm| {
        Options::default()
            .signing(Signing::Required)
            .signing_algorithm(algorithm)
    };
    let sealed = Options::default().encryption(Encryption::Always);
    [
        ("signed-gmac", signed(SigningAlgorithm::AesGmac)),
        ("signed-cmac", signed(SigningAlgorithm::AesCmac)),
        ("sealed-gcm", sealed),
    ]
}
