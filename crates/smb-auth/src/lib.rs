//! smb-auth
