//! smb-crypto
