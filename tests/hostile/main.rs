//! Clients that mean harm, or do not know what they do: whatever they send, the server answers
//! with an error or closes the connection, in time, changes no file it was not rightly asked to
//! change, and goes on serving everybody else.

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
