//! Secrets: the NT hash of a password and session keys.
//!
//! Invariants: bytes are wiped on drop, `Debug` shows none of them, comparison takes constant time.
//! A password itself is never stored: [`NtHash::from_password`] wipes its UTF-16 copy. The NT hash
//! is equivalent to the password for NTLM and must be protected like it.

use core::fmt;
use md4::{Digest, Md4};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// NTOWFv1 of a password: MD4 of its UTF-16LE form ([MS-NLMP] 3.3.1).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct NtHash([u8; 16]);

impl NtHash {
    /// Computes the hash of a password.
    pub fn from_password(password: &str) -> Self {
        let mut utf16: Zeroizing<Vec<u8>> = Zeroizing::new(Vec::with_capacity(password.len() * 2));
        utf16.extend(password.encode_utf16().flat_map(u16::to_le_bytes));
        Self(Md4::digest(utf16.as_slice()).into())
    }

    /// Creates a hash from its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Parses 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut hash = Self([0; 16]);
        let read = base16ct::mixed::decode(text, &mut hash.0).ok()?.len();
        (read == hash.0.len()).then_some(hash)
    }

    /// 32 lower-case hexadecimal digits, for the user file.
    pub fn to_hex(&self) -> Zeroizing<String> {
        // The string is made at its final length, since a growing one would leave copies behind.
        Zeroizing::new(base16ct::lower::encode_string(&self.0))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether this is the hash of the empty password.
    pub fn is_empty_password(&self) -> bool {
        *self == Self::from_password("")
    }
}

impl PartialEq for NtHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for NtHash {}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(hidden)")
    }
}

/// The session key a mechanism agreed on: 16 bytes for NTLM, up to 32 for Kerberos.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKey(Vec<u8>);

impl SessionKey {
    /// Creates a key from its bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The whole key (`Session.FullSessionKey`), from which `smb_crypto::derive_keys` derives the keys.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for SessionKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SessionKey {}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({} bytes, hidden)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // [MS-NLMP] 4.2.2.1.2 NTOWFv1("Password").
        let hash = NtHash::from_password("Password");
        assert_eq!(&*hash.to_hex(), "a4f49c406510bdcab6824ee7c30fd852");
        assert_eq!(
            NtHash::from_hex("A4F49C406510BDCAB6824EE7C30FD852"),
            Some(hash)
        );
        assert!(
            NtHash::from_hex("31d6cfe0d16ae931b73c59d7e0c089c0")
                .unwrap()
                .is_empty_password()
        );
        assert!(!NtHash::from_password(" ").is_empty_password());
    }

    #[test]
    fn hex_refuses_other_lengths_and_letters() {
        for bad in [
            "",
            "a4",
            "a4f49c406510bdcab6824ee7c30fd8521",
            "a4f49c406510bdcab6824ee7c30fd85211",
            "+4f49c406510bdcab6824ee7c30fd852",
            "a4f49c406510bdcab6824ee7c30fd85é",
        ] {
            assert_eq!(NtHash::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(
            format!("{:?}", NtHash::from_bytes([0x5a; 16])),
            "NtHash(hidden)"
        );
        let key = SessionKey::new(vec![0x5a; 16]);
        assert_eq!(format!("{key:?}"), "SessionKey(16 bytes, hidden)");
    }
}
