//! Reading, writing and making files of a [`Disk`]'s root, as the stores do it.

use bytes::{Bytes, BytesMut};
use vfs::{
    Disk, Identity,
    disk::{DiskResult, Errno, OpenHow},
};

/// Bytes read or written at a time.
const CHUNK: usize = 1 << 20;
const SERVICE: &Identity = &Identity::Service;

/// A file of the root, whole; `None` without one; EFBIG beyond `max` bytes.
pub(super) async fn read_file<D: Disk>(
    disk: &D,
    name: &[u8],
    max: u64,
) -> DiskResult<Option<Vec<u8>>> {
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let fd = match disk.open_at(SERVICE, &disk.root(), name, how).await {
        Err(Errno(libc::ENOENT)) => return Ok(None),
        fd => fd?,
    };
    let size = disk.stat(&fd).await?.size;
    if size > max {
        return Err(Errno(libc::EFBIG));
    }
    let mut buf = BytesMut::new();
    loop {
        let before = buf.len();
        buf = disk.read(&fd, before as u64, CHUNK, buf).await?;
        if buf.len() == before {
            return Ok(Some(buf.to_vec()));
        }
        if buf.len() as u64 > max {
            return Err(Errno(libc::EFBIG));
        }
    }
}

/// Writes all of `rest`; `durable` as in [`Disk::write`].
pub(super) async fn put<D: Disk>(
    disk: &D,
    fd: &D::Fd,
    mut offset: u64,
    mut rest: Bytes,
    durable: bool,
) -> DiskResult<()> {
    while !rest.is_empty() {
        let wrote = disk.write(fd, offset, rest.clone(), durable).await?;
        if wrote == 0 {
            return Err(Errno(libc::EIO));
        }
        offset += wrote as u64;
        rest = rest
            .get(wrote..)
            .map_or(Bytes::new(), |left| rest.slice_ref(left));
    }
    Ok(())
}

/// Zeros up to `end`, so that later writes there change data only and need no room.
pub(super) async fn put_zeros<D: Disk>(
    disk: &D,
    fd: &D::Fd,
    mut from: u64,
    end: u64,
) -> DiskResult<()> {
    while from < end {
        let len = (end - from).min(CHUNK as u64);
        let zeros = Bytes::from(vec![0; usize::try_from(len).unwrap_or(CHUNK)]);
        put(disk, fd, from, zeros, false).await?;
        from += len;
    }
    Ok(())
}

/// A new, empty file of the root in place of any of that name.
pub(super) async fn create<D: Disk>(disk: &D, name: &[u8]) -> DiskResult<D::Fd> {
    remove(disk, name).await?;
    let how = OpenHow {
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    disk.open_at(SERVICE, &disk.root(), name, how).await
}

/// Opens a file of the root for writing; `None` without one.
pub(super) async fn open<D: Disk>(disk: &D, name: &[u8]) -> DiskResult<Option<D::Fd>> {
    let how = OpenHow {
        read: true,
        write: true,
        ..OpenHow::default()
    };
    match disk.open_at(SERVICE, &disk.root(), name, how).await {
        Err(Errno(libc::ENOENT)) => Ok(None),
        fd => fd.map(Some),
    }
}

/// Removes a file of the root; it may be gone.
pub(super) async fn remove<D: Disk>(disk: &D, name: &[u8]) -> DiskResult<()> {
    match disk.unlink(SERVICE, &disk.root(), name, false).await {
        Ok(()) | Err(Errno(libc::ENOENT)) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Renames a file of the root over any of the new name.
pub(super) async fn rename<D: Disk>(disk: &D, from: &[u8], to: &[u8]) -> DiskResult<()> {
    let root = disk.root();
    disk.rename(SERVICE, &root, from, &root, to, true).await
}

/// Gives a file of the root a second name, in place of any file of that name: takes no room.
pub(super) async fn link<D: Disk>(disk: &D, from: &[u8], to: &[u8]) -> DiskResult<()> {
    remove(disk, to).await?;
    match open(disk, from).await? {
        Some(fd) => disk.link(SERVICE, &fd, &disk.root(), to).await,
        None => Err(Errno(libc::ENOENT)),
    }
}
