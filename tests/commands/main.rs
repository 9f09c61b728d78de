//! One file per command of MS-SMB2: what it gives, and each status with which it refuses.
//!
//! Written from the specification; a test says which section it is about. Every test starts a
//! server of its own.

mod app_instance;
mod attributes_and_security;
mod cancel;
mod change_notify;
mod close;
mod compound;
mod compound_async;
mod create;
mod create_durable;
mod create_names;
mod credits;
mod delete_on_close;
mod directory_lease;
mod durable_meanwhile;
mod durable_reconnect;
mod echo;
mod flush;
mod host_changes;
mod ioctl;
mod lease;
mod lease_breaks;
mod lock;
mod lock_sequence;
mod lock_waits;
mod logoff;
mod negotiate;
mod oplock_break;
mod oplocks;
mod persistent;
mod persistent_breaks;
mod persistent_host;
mod pipes;
mod protection;
mod query_directory;
mod query_info;
mod read;
mod reauthentication;
mod rename;
mod rename_posix;
mod replay;
mod resilient;
mod session_bind;
mod session_races;
mod session_setup;
mod set_info;
mod share_modes;
mod short_names;
mod timestamps;
mod tree_connect;
mod tree_disconnect;
mod write;
