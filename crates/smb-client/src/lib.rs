//! smb-client
