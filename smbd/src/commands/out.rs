//! The output of the commands.

use std::io::{self, Write};

use crate::Error;

/// Writes to standard output. That nobody reads it any more (`holdfast status | head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail!("the answer could not be written: {error}")
        }
        _ => Ok(()),
    }
}
