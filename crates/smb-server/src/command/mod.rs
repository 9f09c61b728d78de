//! The commands of [MS-SMB2] 3.3.5: one file each, and the table (`table.rs`) that leads a request to its handler.
//! The common requirements (signature, session, tree, credits) are checked once, in `run.rs`, before any handler
//! runs.

mod attempts;
mod call;
mod cancel;
mod chain;
mod change_notify;
mod close;
mod create;
mod eas;
mod echo;
mod engine;
mod flush;
mod ioctl;
mod listing;
mod lock;
mod logoff;
mod modified;
mod negotiate;
mod oplock_break;
mod park;
mod pipe;
mod query_directory;
mod query_info;
mod read;
mod refused;
mod revoke;
mod rules;
mod run;
mod session_bind;
mod session_setup;
mod set_info;
mod table;
mod tree_connect;
mod tree_disconnect;
mod write;

pub(crate) use call::{Call, Handled, Reply};
pub(crate) use logoff::disconnected;
pub use revoke::{Ended, EndedOne};
pub use rules::AccessRules;
pub(crate) use run::run;
use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    file_attributes::FileAttributes,
    fscc::FileFacts,
    ids::{FileId, FileTime},
    status::Status,
};
use vfs::{Attr, Timestamp, Vfs};

use crate::{failure::Failure, limits::FILE_BYTES_MAX, state::InFlight};

/// A time in the form that clients see.
fn file_time(at: Timestamp) -> FileTime {
    FileTime::from_unix(at.secs, at.nanos)
}

/// Times, sizes and attributes in the form that clients see.
fn facts(attr: &Attr) -> FileFacts {
    FileFacts {
        creation_time: file_time(attr.created),
        last_access_time: file_time(attr.accessed),
        last_write_time: file_time(attr.written),
        change_time: file_time(attr.changed),
        allocation_size: attr.allocated,
        end_of_file: attr.size,
        file_attributes: FileAttributes(attr.dos_attributes),
    }
}

/// The text before the first `separator`, and the text after it if there is one.
fn split(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// The open directory of a request whose answer takes at most `output` bytes, if its handle has the right to list it.
fn directory<V: Vfs>(call: &Call<V>, id: FileId, output: u32) -> Result<InFlight<V>, Failure> {
    // [MS-SMB2] 3.3.5.18, 3.3.5.19: the open is looked up before the length is checked.
    let open = call.open(id)?;
    Status::INVALID_PARAMETER.when(output > call.io_max())?;
    call.check_charge(0, size(output))?;
    Status::INVALID_PARAMETER.when(!open.is_directory())?;
    // CVE-2020-14318: the handle's right is checked at every request.
    open.need(AccessMask::FILE_LIST_DIRECTORY)?;
    Ok(open)
}

/// A position or length that the wire has as a signed number.
fn unsigned(number: i64) -> Result<u64, Status> {
    u64::try_from(number).map_err(|_| Status::INVALID_PARAMETER)
}

/// Checks the end of a write or the new end of a file ([MS-FSA] 2.1.5.4, 2.1.5.15.1, 2.1.5.15.5): it must not lie
/// beyond the largest file size.
fn file_end(end: u64) -> Result<u64, Failure> {
    Status::INVALID_PARAMETER.when(end > FILE_BYTES_MAX)?;
    Ok(end)
}

/// The end of a byte range ([MS-FSA] 2.1.5.3, 2.1.5.4). Neither its offset nor its end may exceed a signed 64-bit
/// number.
fn range_end(offset: u64, length: u64) -> Result<u64, Failure> {
    offset
        .checked_add(length)
        .filter(|end| i64::try_from(*end).is_ok())
        .ok_or(Failure::Status(Status::INVALID_PARAMETER))
}
