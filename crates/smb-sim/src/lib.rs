//! smb-sim
