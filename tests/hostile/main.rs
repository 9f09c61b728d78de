//! Malicious and broken clients: for everything that they send, the server answers with an error or
//! closes the connection, in time, changes no file without authorisation, and continues to serve
//! other clients.

mod buffers;
mod chains;
mod fields;
mod frames;
mod fsctl_matrix;
mod identities;
mod memory;
mod open_matrix;
mod open_model;
mod random;
mod rename_matrix;
mod requests;
mod turns;
mod untaken;
