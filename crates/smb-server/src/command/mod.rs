//! The commands of [MS-SMB2] 3.3.5: one file each, and the table that dispatches a request to its handler. The
//! common requirements (signature, session, tree, credits) are checked once, in `admit.rs`, before any handler
//! runs.

mod admit;
mod attempts;
mod breaks;
mod call;
mod cancel;
mod chain;
mod change_notify;
mod close;
mod create;
mod durable;
mod echo;
mod engine;
mod flush;
mod ioctl;
mod kept_times;
mod lock;
mod logoff;
mod negotiate;
mod oplock_break;
mod park;
mod query_directory;
mod query_info;
mod read;
mod refused;
mod revoke;
mod rules;
mod session_bind;
mod session_setup;
mod set_info;
mod tree_connect;
mod tree_disconnect;
mod write;

use std::{future::Future, pin::Pin};

pub(crate) use call::{Call, Failure, Handled, Reply};
pub(crate) use chain::{notify, run};
pub(crate) use create::{insert, io_access, link, place};
pub(crate) use durable::{wait, watch_over};
pub(crate) use engine::{perform, share_path};
pub(crate) use logoff::disconnected;
pub use revoke::{Ended, EndedOne, Target};
pub use rules::Rules;
pub(crate) use session_setup::Setup;
use smb_wire::{header::Command, status::Status};
pub(crate) use tree_connect::admits;
use vfs::Vfs;

use crate::limits::FILE_BYTES_MAX;

/// A handler at work: on the heap, or every request would be moved about with room for the largest.
type Work<'a> = Pin<Box<dyn Future<Output = Handled> + 'a>>;

/// Sends a call to its command's handler.
fn dispatch<V: Vfs>(call: &Call<V>) -> Result<Work<'_>, Failure> {
    Ok(match call.header.command {
        Command::READ => Box::pin(read::handle(call)),
        Command::WRITE => Box::pin(write::handle(call)),
        Command::NEGOTIATE => Box::pin(negotiate::handle(call)),
        Command::SESSION_SETUP => Box::pin(session_setup::handle(call)),
        Command::LOGOFF => Box::pin(logoff::handle(call)),
        Command::TREE_CONNECT => Box::pin(tree_connect::handle(call)),
        Command::TREE_DISCONNECT => Box::pin(tree_disconnect::handle(call)),
        Command::CREATE => Box::pin(create::handle(call)),
        Command::CLOSE => Box::pin(close::handle(call)),
        Command::FLUSH => Box::pin(flush::handle(call)),
        Command::LOCK => Box::pin(lock::handle(call)),
        Command::IOCTL => Box::pin(ioctl::handle(call)),
        Command::QUERY_DIRECTORY => Box::pin(query_directory::handle(call)),
        Command::CHANGE_NOTIFY => Box::pin(change_notify::handle(call)),
        Command::QUERY_INFO => Box::pin(query_info::handle(call)),
        Command::SET_INFO => Box::pin(set_info::handle(call)),
        Command::OPLOCK_BREAK => Box::pin(oplock_break::handle(call)),
        _ => return Err(Status::INVALID_PARAMETER.into()),
    })
}

/// The requirements of a command before its handler may run ([MS-SMB2] 3.3.5.2.9, 3.3.5.2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// Nothing: NEGOTIATE, SESSION_SETUP, ECHO.
    Nothing,
    /// A session.
    Session,
    /// A session and a tree.
    Tree,
}

/// The table: what each command needs. `None`: no such command.
fn needs(command: Command) -> Option<Needs> {
    Some(match command {
        Command::NEGOTIATE | Command::SESSION_SETUP | Command::ECHO | Command::CANCEL => {
            Needs::Nothing
        }
        Command::LOGOFF | Command::TREE_CONNECT => Needs::Session,
        Command::TREE_DISCONNECT
        | Command::OPLOCK_BREAK
        | Command::CREATE
        | Command::CLOSE
        | Command::FLUSH
        | Command::READ
        | Command::WRITE
        | Command::LOCK
        | Command::IOCTL
        | Command::QUERY_DIRECTORY
        | Command::CHANGE_NOTIFY
        | Command::QUERY_INFO
        | Command::SET_INFO => Needs::Tree,
        _ => return None,
    })
}

/// The end of what is written, or of a file that is made longer or shorter ([MS-FSA] 2.1.5.4,
/// 2.1.5.15.1, 2.1.5.15.5): not beyond the largest file.
fn file_end(end: u64) -> Result<u64, Failure> {
    if end > FILE_BYTES_MAX {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(end)
}

/// The end of a byte range ([MS-FSA] 2.1.5.3, 2.1.5.4): no offset is negative, no end beyond what
/// a signed number of 64 bits can say.
fn range_end(offset: u64, length: u64) -> Result<u64, Failure> {
    offset
        .checked_add(length)
        .filter(|end| i64::try_from(*end).is_ok())
        .ok_or(Failure::Status(Status::INVALID_PARAMETER))
}
