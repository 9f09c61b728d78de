//! Why a workload ended.

use smb_client::ClientError;
use smb_wire::Status;

/// Why a workload ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The client library failed, or the server refused what it must carry out.
    #[error("{operation}: {source}")]
    Client {
        operation: &'static str,
        #[source]
        source: ClientError,
    },
    #[error("{operation}: the server answered {got} instead of {wanted}")]
    Status {
        operation: &'static str,
        got: Status,
        wanted: Status,
    },
    #[error("a READ of {wanted} bytes returned {got}")]
    ShortRead { got: usize, wanted: usize },
    /// The workload names a file that it has not opened: a mistake of the workload.
    #[error("the workload uses a file that is not open")]
    NotOpen,
    /// A page that was read is not what was written last.
    #[error("page {page} of {file} is {what}")]
    Page {
        file: String,
        /// Its number in the file.
        page: u64,
        /// Its fault, such as `older than what was acknowledged`.
        what: &'static str,
    },
    /// A further connection was not to be had.
    #[error("{0}")]
    Connect(String),
    #[error("the limit: {0}")]
    Io(#[from] std::io::Error),
    #[error("the server answered nothing in the measured time")]
    Nothing,
    #[error("the thread of a client panicked")]
    Panicked,
}

/// Names the operation that a client's error ended.
pub(crate) fn refused(operation: &'static str) -> impl Fn(ClientError) -> LoadError + Copy {
    move |source| LoadError::Client { operation, source }
}

/// An error unless a READ returned all that it asked for.
pub(crate) fn check_length(got: usize, wanted: usize) -> Result<(), LoadError> {
    match got == wanted {
        true => Ok(()),
        false => Err(LoadError::ShortRead { got, wanted }),
    }
}

/// An error unless data that were read are what was written there.
pub(crate) fn check_same(
    is_same: bool,
    file: impl FnOnce() -> String,
    page: u64,
) -> Result<(), LoadError> {
    match is_same {
        true => Ok(()),
        false => Err(LoadError::Page {
            file: file(),
            page,
            what: "not what was written",
        }),
    }
}

/// An error unless a WRITE wrote all that it was given: a server may answer with success and write less.
pub(crate) fn check_written(written: u32, wanted: usize) -> Result<(), ClientError> {
    match written as usize == wanted {
        true => Ok(()),
        false => Err(ClientError::Protocol("a WRITE wrote a part of its data")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_or_written_in_part_is_an_error() {
        assert!(check_length(4096, 4096).is_ok() && check_written(4096, 4096).is_ok());
        for part in [0, 1, 4095] {
            assert!(check_length(part, 4096).is_err());
            assert!(check_written(part as u32, 4096).is_err());
        }
    }
}
