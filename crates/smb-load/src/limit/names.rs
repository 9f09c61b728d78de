//! The limit's work on names: the fewest system calls possible.

use std::{
    ffi::CString,
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir};

use super::Operation;
use crate::simple::LISTED;

/// Of the folder whose names change, and of the one that is listed.
pub(super) const CHANGING: &str = "limit-names";
const STAYING: &str = "limit-listed";
/// Bytes that a folder's names are read by.
const LISTING: usize = 32 * 1024;

/// The folders of a connection, and the file that it has open.
pub(super) struct Names {
    folders: Arc<(OwnedFd, OwnedFd)>,
    open: Option<File>,
}

impl Clone for Names {
    /// For another connection, which has nothing open.
    fn clone(&self) -> Self {
        Self {
            folders: Arc::clone(&self.folders),
            open: None,
        }
    }
}

/// Makes the folders beside `file`, without the names that are left of a turn that an error ended: the next client of
/// that number creates them anew.
pub(super) fn prepare(file: &Path) -> std::io::Result<()> {
    let changing = file.with_file_name(CHANGING);
    if changing.exists() {
        std::fs::remove_dir_all(&changing)?;
    }
    std::fs::create_dir_all(&changing)?;
    let listed = file.with_file_name(STAYING);
    std::fs::create_dir_all(&listed)?;
    for number in 0..LISTED {
        File::create(listed.join(format!("entry-{number:04}")))?;
    }
    Ok(())
}

fn name(number: u64) -> CString {
    CString::new(format!("file-{number:06}")).unwrap_or_default()
}

fn renamed(number: u64) -> CString {
    CString::new(format!("to-{number:06}")).unwrap_or_default()
}

impl Names {
    /// Opens the folders beside `file`.
    pub(super) fn beside(file: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |name| rustix::fs::openat(CWD, file.with_file_name(name), flags, Mode::empty());
        Ok(Self {
            folders: Arc::new((open(CHANGING)?, open(STAYING)?)),
            open: None,
        })
    }

    pub(super) fn open_file(&self) -> Option<&File> {
        self.open.as_ref()
    }

    /// Does one of the operations with names on those of that number.
    pub(super) fn answer(&mut self, operation: Operation, number: u64) -> std::io::Result<()> {
        let folder = &self.folders.0;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match operation {
            Operation::Create => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let file = rustix::fs::openat(folder, name(number), flags, Mode::from(0o644))?;
                self.open = Some(file.into());
            }
            Operation::Open => {
                let file = rustix::fs::openat(folder, name(number), flags, Mode::empty())?;
                self.open = Some(file.into());
            }
            Operation::Close => self.open = None,
            Operation::Look => {
                let file = self.open.as_ref();
                rustix::fs::fstat(file.ok_or(std::io::ErrorKind::NotFound)?)?;
            }
            Operation::Rename => {
                rustix::fs::renameat(folder, name(number), folder, renamed(number))?;
            }
            Operation::Remove => rustix::fs::unlinkat(folder, name(number), AtFlags::empty())?,
            Operation::RemoveRenamed => {
                rustix::fs::unlinkat(folder, renamed(number), AtFlags::empty())?;
            }
            _ => list(&self.folders.1)?,
        }
        Ok(())
    }
}

/// Names and states of the folder.
fn list(folder: &OwnedFd) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); LISTING];
    let mut entries = RawDir::new(listing.as_fd(), &mut buffer);
    let mut found = 0;
    while let Some(entry) = entries.next() {
        rustix::fs::statat(folder, entry?.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        found += 1;
    }
    if found < LISTED {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_an_error_left_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("field");
        prepare(&file).unwrap();
        Names::beside(&file)
            .unwrap()
            .answer(Operation::Create, 7)
            .unwrap();
        let left = || {
            std::fs::read_dir(folder.path().join(CHANGING))
                .unwrap()
                .count()
        };
        assert_eq!(left(), 1);
        prepare(&file).unwrap();
        assert_eq!(left(), 0);
    }
}
