//! smb-server
