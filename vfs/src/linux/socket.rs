//! An option of sockets that the standard library and rustix do not offer.

use std::{io, os::fd::BorrowedFd};

use crate::posix_sys as raw;

/// Sets the number of bytes from which on a TCP socket counts as readable (`SO_RCVLOWAT`, tcp(7)). It also does when no
/// more fit in, at the end of the stream, and after an error.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    raw::set_receive_low_water(socket, bytes).map_err(|errno| io::Error::from_raw_os_error(errno.0))
}
