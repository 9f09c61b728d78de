//! Everything that outlives the process: the state folder, its stores, and the work after an unclean end.

pub mod atomic;
pub mod flush_journal;
pub(crate) mod latches;
pub(crate) mod persistent_store;
pub(crate) mod recovery;
pub(crate) mod sentinel;
pub mod state_dir;
pub(crate) mod stores;

use std::{io, path::Path};

use durability::{Refusal, StoreError};
use vfs::{disk::Errno, linux::LinuxDisk};

/// Opens a store in the state folder. `refused` says what it holds, and what to do where another program or version has
/// written it.
fn open_store<T>(
    folder: &Path,
    refused: &str,
    open: impl FnOnce(LinuxDisk) -> Result<T, StoreError>,
) -> io::Result<T> {
    let disk = LinuxDisk::open(folder).map_err(|errno| StoreError::new("", errno.into()));
    disk.and_then(open).map_err(|error| {
        let way_out = match error.why {
            Refusal::Disk(Errno(libc::ENOSYS)) => {
                "Holdfast needs Linux 5.6 (openat2); a container must allow its system calls"
            }
            Refusal::Disk(_) => "the state folder must be readable and writable",
            Refusal::NotOurs | Refusal::Version => refused,
        };
        io::Error::other(format!("{}/{error}\n  = {way_out}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kernel before 5.6 does, and a container with a seccomp profile of that age.
    #[test]
    fn a_kernel_without_a_system_call_is_not_taken_for_a_folder_without_rights() {
        let folder = tempfile::tempdir().unwrap();
        for (errno, way_out) in [
            (libc::ENOSYS, "\n  = Holdfast needs Linux 5.6"),
            (libc::EACCES, "\n  = the state folder must be"),
        ] {
            let why = Refusal::Disk(Errno(errno));
            let refused = |_| Err::<(), _>(StoreError::new("f", why));
            let error = open_store(folder.path(), "", refused).unwrap_err();
            assert!(error.to_string().contains(way_out), "{error}");
        }
    }
}
