//! Sends bytes of a file from the page cache.
//!
//! `sendfile` takes no flag that forbids it to wait, so the page cache is checked first: `cachestat` must count every
//! page of the range, and single bytes read with `RWF_NOWAIT` must show that pages are up to date, that the file does
//! not end earlier, and that no writer has the inode locked. After that the calling thread would still wait for the
//! disk if a page is evicted, or if another process locks the inode or is reading pages between the probes. So the
//! bytes must be sent at once, and not while another request of the server may be doing that. `sendfile` does not wait
//! for readahead that it begins beyond the range.
//!
//! The pages go to the socket by reference. If they change before the socket has delivered them, the changed bytes are
//! sent, so the caller must know that nobody else is about to change the file.

use std::{
    future::Future,
    io::{self, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
};

use bytes::BytesMut;
use rustix::io::ReadWriteFlags;

use super::{disk::LinuxDisk, fd::LinuxFd};
use crate::{
    VfsError, VfsResult,
    disk::{Disk, InMemory},
    posix_sys as raw,
};

/// Distance between the bytes that are read. Pages that another process is just reading between two of them make the
/// sender wait for that read.
const PROBE_STEP: u64 = 512 << 10;

/// A range of a file that was wholly in memory a moment ago.
#[derive(Debug)]
pub(super) struct Cached {
    disk: LinuxDisk,
    fd: LinuxFd,
    offset: u64,
    len: usize,
}

impl Cached {
    pub(super) fn find(
        disk: &LinuxDisk,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
    ) -> Option<Box<dyn InMemory>> {
        let class = fd.class();
        let last = offset.checked_add((len as u64).checked_sub(1)?)?;
        if class.remote || i64::try_from(last).is_err() {
            return None;
        }
        let page = rustix::param::page_size() as u64;
        let pages = last / page - offset / page + 1;
        let (cached, _) = raw::cached_pages(fd.as_fd(), offset, len as u64).ok()?;
        if cached != pages {
            return None;
        }
        let flags = match class.memory {
            true => ReadWriteFlags::empty(),
            false => ReadWriteFlags::NOWAIT,
        };
        let mut at = offset;
        loop {
            let (mut byte, at_now) = ([0], at.min(last));
            let mut place = [IoSliceMut::new(&mut byte)];
            if rustix::io::preadv2(fd, &mut place, at_now, flags) != Ok(1) {
                return None;
            }
            if at_now == last {
                break;
            }
            at += PROBE_STEP;
        }
        let (disk, fd) = (disk.clone(), fd.clone());
        Some(Box::new(Self {
            disk,
            fd,
            offset,
            len,
        }))
    }
}

impl InMemory for Cached {
    fn left(&self) -> usize {
        self.len
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let sent = rustix::fs::sendfile(socket, &self.fd, Some(&mut self.offset), self.len)?;
        self.len = self.len.saturating_sub(sent);
        Ok(sent)
    }

    fn read(self: Box<Self>) -> Pin<Box<dyn Future<Output = VfsResult<BytesMut>>>> {
        Box::pin(async move {
            let mut bytes = BytesMut::with_capacity(self.len);
            while bytes.len() < self.len {
                let (have, at) = (bytes.len(), self.offset.saturating_add(bytes.len() as u64));
                bytes = (self.disk.read(&self.fd, at, self.len - have, bytes)).await?;
                if bytes.len() == have {
                    return Err(VfsError::Io);
                }
            }
            Ok(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixStream};

    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// A file of this many bytes on a file system with a disk, and what reads it.
    fn file(len: usize) -> (tempfile::TempDir, LinuxDisk, LinuxFd) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, pattern(len)).unwrap();
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        let root = disk.root();
        let on = root.file_system();
        // The kernel drops only clean pages from memory.
        rustix::fs::fsync(&fd).unwrap();
        (folder, disk, LinuxFd::new(fd, false, on))
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    /// Whether this kernel answers `cachestat`.
    fn has_cachestat(fd: &LinuxFd) -> bool {
        raw::cached_pages(fd.as_fd(), 0, 1).is_ok()
    }

    #[test]
    fn what_is_in_memory_is_found_and_sent() {
        const LEN: usize = 300_000;
        let (_folder, disk, fd) = file(LEN);
        if !has_cachestat(&fd) {
            return;
        }
        for (offset, len) in [(0, LEN), (1, LEN - 1), (5000, 70_000), (LEN - 1, 1)] {
            let mut found = Cached::find(&disk, &fd, offset as u64, len).unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let reading = std::thread::spawn(move || {
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).unwrap();
                got
            });
            while found.left() > 0 {
                assert!(found.send(ours.as_fd()).unwrap() > 0);
            }
            drop(ours);
            assert_eq!(reading.join().unwrap(), pattern(LEN)[offset..offset + len]);
        }
        let beyond = [(0, LEN + 1), (LEN, 1), (0, 0), (usize::MAX, 4096)];
        for (offset, len) in beyond {
            assert!(Cached::find(&disk, &fd, offset as u64, len).is_none());
        }
    }

    #[test]
    fn what_is_not_in_memory_is_not_found() {
        const LEN: usize = 4 << 20;
        let (_folder, disk, fd) = file(LEN);
        if !has_cachestat(&fd) {
            return;
        }
        let drop_cache = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&fd, 1 << 20, None, drop_cache).unwrap();
        let (cached, _) = raw::cached_pages(fd.as_fd(), 0, LEN as u64).unwrap();
        if cached == (LEN / rustix::param::page_size()) as u64 {
            return; // A file system in memory.
        }
        assert!(Cached::find(&disk, &fd, 0, LEN).is_none());
    }

    #[test]
    fn a_file_that_was_cut_is_neither_sent_nor_read_to_the_end() {
        const LEN: usize = 200_000;
        let (folder, disk, fd) = file(LEN);
        assert_eq!(
            std::fs::read(folder.path().join("file")).unwrap().len(),
            LEN
        );
        let Some(mut found) = Cached::find(&disk, &fd, 0, LEN) else {
            assert!(!has_cachestat(&fd), "just read, and not in memory");
            return;
        };
        rustix::fs::ftruncate(&fd, 1000).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(found.send(ours.as_fd()).unwrap(), 1000);
        assert_eq!(found.send(ours.as_fd()).unwrap(), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let read = runtime.unwrap().block_on(found.read());
        assert_eq!(read.unwrap_err(), VfsError::Io);
    }
}
