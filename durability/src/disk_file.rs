//! Reading and writing a whole file of a [`Disk`]'s root, as the stores do it.

use bytes::{Bytes, BytesMut};
use vfs::{
    Disk, Identity,
    disk::{DiskResult, Errno, OpenHow},
};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// A file of the root, whole; `None` without one; EFBIG beyond `max` bytes.
pub(crate) async fn read_file<D: Disk>(
    disk: &D,
    name: &[u8],
    max: u64,
) -> DiskResult<Option<Vec<u8>>> {
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let fd = match disk
        .open_at(&Identity::Service, &disk.root(), name, how)
        .await
    {
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
pub(crate) async fn put<D: Disk>(
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

/// Zeros up to `end`, so that later writes there change data only.
pub(crate) async fn put_zeros<D: Disk>(
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
