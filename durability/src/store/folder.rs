//! Reading, writing and making files of a [`Disk`]'s root, as the stores do it.

use bytes::{Buf, Bytes, BytesMut};
use vfs::{
    Disk, Identity,
    disk::{DiskResult, Errno, OpenHow, RawEntry},
};

/// Bytes read or written at a time.
const CHUNK: usize = 1 << 20;
const SERVICE: &Identity = &Identity::Service;

/// The folder that a disk starts at.
pub(super) struct Folder<D: Disk>(pub(super) D);

impl<D: Disk> Folder<D> {
    pub(super) async fn entries(&self, max: usize) -> DiskResult<Vec<RawEntry>> {
        self.0.entries(&self.0.root(), max).await
    }

    /// The contents of a file; `None` if there is none. Fails with EFBIG if it has more than `max` bytes.
    pub(super) async fn read(&self, name: &str, max: u64) -> DiskResult<Option<Vec<u8>>> {
        let Some(fd) = self.open(name).await? else {
            return Ok(None);
        };
        if self.0.stat(&fd).await?.size > max {
            return Err(Errno(libc::EFBIG));
        }
        let mut buf = BytesMut::new();
        loop {
            let before = buf.len();
            buf = self.0.read(&fd, before as u64, CHUNK, buf).await?;
            if buf.len() == before {
                return Ok(Some(buf.to_vec()));
            }
            if buf.len() as u64 > max {
                return Err(Errno(libc::EFBIG));
            }
        }
    }

    /// Writes all of `rest`; `durable` as in [`Disk::write`].
    pub(super) async fn put(
        &self,
        fd: &D::Fd,
        mut offset: u64,
        mut rest: Bytes,
        durable: bool,
    ) -> DiskResult<()> {
        while !rest.is_empty() {
            let wrote = self.0.write(fd, offset, rest.clone(), durable).await?;
            if wrote == 0 {
                return Err(Errno(libc::EIO));
            }
            offset += wrote as u64;
            rest.advance(wrote.min(rest.len()));
        }
        Ok(())
    }

    /// Zeros up to `end`, so that later writes there change data only and need no room; all of the file is stable then.
    pub(super) async fn fill(&self, fd: &D::Fd, mut from: u64, end: u64) -> DiskResult<()> {
        while from < end {
            let len = (end - from).min(CHUNK as u64);
            let zeros = Bytes::from(vec![0; usize::try_from(len).unwrap_or(CHUNK)]);
            self.put(fd, from, zeros, false).await?;
            from += len;
        }
        self.0.fsync(fd).await
    }

    /// A new, empty file in place of any of that name.
    pub(super) async fn create(&self, name: &str) -> DiskResult<D::Fd> {
        self.remove(name).await?;
        let how = OpenHow {
            write: true,
            create: Some(0o600),
            ..OpenHow::default()
        };
        let root = self.0.root();
        self.0.open_at(SERVICE, &root, name.as_bytes(), how).await
    }

    /// Opens a file for reading and writing; `None` if there is none.
    pub(super) async fn open(&self, name: &str) -> DiskResult<Option<D::Fd>> {
        let how = OpenHow {
            read: true,
            write: true,
            ..OpenHow::default()
        };
        let root = self.0.root();
        match self.0.open_at(SERVICE, &root, name.as_bytes(), how).await {
            Err(Errno(libc::ENOENT)) => Ok(None),
            fd => fd.map(Some),
        }
    }

    /// Removes a file; that it does not exist is no error.
    pub(super) async fn remove(&self, name: &str) -> DiskResult<()> {
        let root = self.0.root();
        match self.0.unlink(SERVICE, &root, name.as_bytes(), false).await {
            Err(Errno(libc::ENOENT)) => Ok(()),
            gone => gone,
        }
    }

    pub(super) async fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        let (root, from, to) = (self.0.root(), from.as_bytes(), to.as_bytes());
        self.0
            .rename(SERVICE, (&root, from), (&root, to), true)
            .await
    }

    /// Gives a file a second name, in place of any file of that name. Needs no free space for data.
    pub(super) async fn link(&self, from: &str, to: &str) -> DiskResult<()> {
        self.remove(to).await?;
        let fd = self.open(from).await?.ok_or(Errno(libc::ENOENT))?;
        self.0
            .link(SERVICE, &fd, &self.0.root(), to.as_bytes())
            .await
    }

    pub(super) async fn sync(&self) -> DiskResult<()> {
        self.0.sync_dir(&self.0.root()).await
    }
}
