//! smb-wire
