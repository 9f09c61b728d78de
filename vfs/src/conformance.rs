//! The rules that every disk must keep, checked on each of them: the tests call [`all`] with an empty disk.
//!
//! Only behaviour that Linux promises on any file system is required. Where file systems differ (block counts, the
//! order of listings, space for attributes) the test accepts every permitted answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    Identity, Timestamp,
    disk::{Allocate, Disk, Errno, OpenHow, XattrSet},
    identity::LocalUser,
};

mod differential;
mod set_ids;

pub(crate) use set_ids::set_ids;

const ME: &Identity = &Identity::Service;

fn how(read: bool, write: bool, create: Option<u32>) -> OpenHow {
    OpenHow {
        read,
        write,
        create,
        ..OpenHow::default()
    }
}

fn no<T>(result: Result<T, Errno>, errno: i32) {
    assert_eq!(result.map(drop), Err(Errno(errno)));
}

/// A user without files or groups of his own.
pub(crate) fn stranger(uid: u32) -> Identity {
    Identity::User(Arc::new(LocalUser {
        uid,
        gid: uid,
        groups: vec![],
    }))
}

pub(crate) async fn new_file<D: Disk>(disk: &D, dir: &D::Fd, name: &[u8]) -> D::Fd {
    disk.open_at(ME, dir, name, how(true, true, Some(0o644)))
        .await
        .unwrap()
}

pub(crate) async fn new_dir<D: Disk>(disk: &D, dir: &D::Fd, name: &[u8], mode: u32) -> D::Fd {
    disk.make_dir(ME, dir, name, mode).await.unwrap();
    disk.open_at(
        ME,
        dir,
        name,
        OpenHow {
            directory: true,
            ..how(true, false, None)
        },
    )
    .await
    .unwrap()
}

pub(crate) async fn put<D: Disk>(disk: &D, fd: &D::Fd, at: u64, bytes: &[u8]) {
    let data = Bytes::copy_from_slice(bytes);
    assert_eq!(disk.write(fd, at, data, false).await, Ok(bytes.len()));
}

pub(crate) async fn get<D: Disk>(disk: &D, fd: &D::Fd, at: u64, len: usize) -> Vec<u8> {
    let mut buf = BytesMut::new();
    while buf.len() < len {
        let had = buf.len();
        buf = disk
            .read(fd, at + had as u64, len - had, buf)
            .await
            .unwrap();
        if buf.len() == had {
            break;
        }
    }
    buf.to_vec()
}

pub(crate) async fn names<D: Disk>(disk: &D, dir: &D::Fd) -> Vec<String> {
    let mut all: Vec<_> = disk
        .entries(dir, 1000)
        .await
        .unwrap()
        .into_iter()
        .map(|e| String::from_utf8(e.name.into_vec()).unwrap())
        .collect();
    all.sort();
    all
}

/// Runs every part on its own directory of `disk`.
pub(crate) async fn all<D: Disk>(disk: &D) {
    let root = disk.root();
    data(disk, &new_dir(disk, &root, b"data", 0o755).await).await;
    holes(disk, &new_dir(disk, &root, b"holes", 0o755).await).await;
    copies(disk, &new_dir(disk, &root, b"copies", 0o755).await).await;
    name_rules(disk, &new_dir(disk, &root, b"names", 0o755).await).await;
    renames(disk, &new_dir(disk, &root, b"renames", 0o755).await).await;
    links(disk, &new_dir(disk, &root, b"links", 0o755).await).await;
    attributes(disk, &new_dir(disk, &root, b"attributes", 0o755).await).await;
    xattrs(disk, &new_dir(disk, &root, b"xattrs", 0o755).await).await;
    path_only(disk, &new_dir(disk, &root, b"path", 0o755).await).await;
    syncs(disk, &new_dir(disk, &root, b"syncs", 0o755).await).await;
}

async fn data<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    put(disk, &fd, 0, b"hello").await;
    put(disk, &fd, 5, b" world").await;
    assert_eq!(get(disk, &fd, 0, 100).await, b"hello world");
    assert_eq!(get(disk, &fd, 6, 3).await, b"wor");
    assert_eq!(get(disk, &fd, 11, 3).await, b"");
    // Appended, not overwritten.
    let buf = disk
        .read(&fd, 0, 5, BytesMut::from(&b"got: "[..]))
        .await
        .unwrap();
    assert_eq!(&buf[..], b"got: hello");
    let big: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    put(disk, &fd, 4000, &big).await;
    assert_eq!(get(disk, &fd, 4000, big.len()).await, big);
    assert_eq!(disk.stat(&fd).await.unwrap().size, 304_000);
    disk.truncate(&fd, 4100).await.unwrap();
    disk.truncate(&fd, 9000).await.unwrap();
    let tail = get(disk, &fd, 4000, 9000).await;
    assert_eq!(tail.len(), 5000);
    assert_eq!(&tail[..100], &big[..100]);
    assert!(tail[100..].iter().all(|b| *b == 0), "growth reads as zeros");
    let reader = disk.reopen(ME, &fd, true, false).await.unwrap();
    no(
        disk.write(&reader, 0, Bytes::from_static(b"x"), false)
            .await,
        libc::EBADF,
    );
    no(disk.truncate(&reader, 0).await, libc::EINVAL);
    let writer = disk.reopen(ME, &fd, false, true).await.unwrap();
    no(disk.read(&writer, 0, 1, BytesMut::new()).await, libc::EBADF);
    no(disk.reopen(ME, dir, false, true).await, libc::EISDIR);
    assert_eq!(
        disk.write(&writer, 0, Bytes::from_static(b"J"), true).await,
        Ok(1)
    );
    assert_eq!(get(disk, &reader, 0, 5).await, b"Jello");
}

async fn holes<D: Disk>(disk: &D, dir: &D::Fd) {
    const M: u64 = 1 << 20;
    let fd = new_file(disk, dir, b"sparse").await;
    put(disk, &fd, M, &[7; 65_536]).await;
    assert_eq!(disk.seek(&fd, 0, true).await, Ok(M));
    assert_eq!(disk.seek(&fd, 0, false).await, Ok(0));
    assert_eq!(disk.seek(&fd, M, false).await, Ok(M + 65_536));
    no(disk.seek(&fd, M + 65_536, true).await, libc::ENXIO);
    disk.allocate(&fd, Allocate::Punch, M, 32_768)
        .await
        .unwrap();
    assert_eq!(disk.seek(&fd, 0, true).await, Ok(M + 32_768));
    assert_eq!(
        get(disk, &fd, M + 32_760, 16).await,
        [[0; 8], [7; 8]].concat()
    );
    let before = disk.stat(&fd).await.unwrap();
    disk.allocate(&fd, Allocate::Reserve, 0, 4 * M)
        .await
        .unwrap();
    let after = disk.stat(&fd).await.unwrap();
    assert_eq!(after.size, before.size, "reserving keeps the size");
    assert!(after.blocks * 512 >= 4 * M);
    assert_eq!(get(disk, &fd, 100, 4).await, [0; 4]);
}

async fn copies<D: Disk>(disk: &D, dir: &D::Fd) {
    let (from, to) = (
        new_file(disk, dir, b"from").await,
        new_file(disk, dir, b"to").await,
    );
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    put(disk, &from, 0, &bytes).await;
    let mut done = 0;
    while done < 100_000 {
        let n = disk
            .copy_range((&from, done), (&to, done + 10), 200_000)
            .await
            .unwrap();
        assert!(n > 0);
        done += n;
    }
    assert_eq!(disk.copy_range((&from, 100_000), (&to, 0), 10).await, Ok(0));
    assert_eq!(get(disk, &to, 10, 200_000).await, bytes);
    match disk.clone_range((&from, 0), (&to, 0), 65_536).await {
        Ok(()) => assert_eq!(get(disk, &to, 0, 65_536).await, bytes[..65_536]),
        Err(e) => assert!(
            [libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL].contains(&e.0),
            "{e:?}"
        ),
    }
}

async fn name_rules<D: Disk>(disk: &D, dir: &D::Fd) {
    let open = how(true, false, None);
    no(disk.open_at(ME, dir, b"none", open).await, libc::ENOENT);
    no(disk.stat_at(dir, b"none").await, libc::ENOENT);
    no(disk.open_at(ME, dir, b"", open).await, libc::ENOENT);
    no(disk.open_at(ME, dir, b"a/b", open).await, libc::EINVAL);
    no(disk.open_at(ME, dir, b"..", open).await, libc::EINVAL);
    no(disk.make_dir(ME, dir, b"..", 0o755).await, libc::EINVAL);
    no(
        disk.make_dir(ME, dir, &[b'x'; 256], 0o755).await,
        libc::ENAMETOOLONG,
    );
    let raw = [0xFF, 0xFE, b'x'];
    let fd = new_file(disk, dir, &raw).await;
    no(
        disk.open_at(ME, dir, &raw, how(true, true, Some(0o600)))
            .await,
        libc::EEXIST,
    );
    no(disk.open_at(ME, &fd, b"x", open).await, libc::ENOTDIR);
    let sub = new_dir(disk, dir, b"sub", 0o775).await;
    assert_eq!(
        disk.stat(&sub).await.unwrap().mode,
        libc::S_IFDIR | 0o775,
        "no umask"
    );
    no(disk.make_dir(ME, dir, b"sub", 0o755).await, libc::EEXIST);
    no(
        disk.open_at(ME, dir, b"sub", how(false, true, None)).await,
        libc::EISDIR,
    );
    no(
        disk.open_at(
            ME,
            dir,
            &raw,
            OpenHow {
                directory: true,
                ..open
            },
        )
        .await,
        libc::ENOTDIR,
    );
    let listed = disk.entries(dir, 10).await.unwrap();
    assert_eq!(listed.len(), 2);
    for entry in &listed {
        let stat = disk.stat_at(dir, &entry.name).await.unwrap();
        assert_eq!(
            (stat.key.ino, stat.mode >> 12),
            (entry.ino, u32::from(entry.kind))
        );
    }
    assert_eq!(
        disk.entries(dir, 10).await.unwrap(),
        listed,
        "listing starts anew"
    );
    no(disk.entries(dir, 1).await, libc::EOVERFLOW);
    removals(disk, dir, (&raw, &fd), &sub).await;
}

/// Checks removals in a directory that holds the file `raw` and the empty directory `sub`.
async fn removals<D: Disk>(disk: &D, dir: &D::Fd, (raw, fd): (&[u8], &D::Fd), sub: &D::Fd) {
    new_file(disk, sub, b"inner").await;
    no(disk.unlink(ME, dir, b"sub", true).await, libc::ENOTEMPTY);
    no(disk.unlink(ME, dir, b"sub", false).await, libc::EISDIR);
    no(disk.unlink(ME, dir, raw, true).await, libc::ENOTDIR);
    disk.unlink(ME, sub, b"inner", false).await.unwrap();
    let listing = disk.reopen(ME, sub, true, false).await.unwrap();
    disk.unlink(ME, dir, b"sub", true).await.unwrap();
    no(disk.entries(&listing, 10).await, libc::ENOENT);
    no(
        disk.open_at(ME, sub, b"late", how(true, true, Some(0o644)))
            .await,
        libc::ENOENT,
    );
    // A descriptor outlives its name.
    put(disk, fd, 0, b"alive").await;
    disk.unlink(ME, dir, raw, false).await.unwrap();
    assert_eq!(get(disk, fd, 0, 10).await, b"alive");
    assert_eq!(disk.stat(fd).await.unwrap().links, 0);
    no(disk.link(ME, fd, dir, b"back").await, libc::ENOENT);
    assert!(names(disk, dir).await.is_empty());
}

async fn renames<D: Disk>(disk: &D, dir: &D::Fd) {
    let a = new_file(disk, dir, b"a").await;
    new_file(disk, dir, b"b").await;
    no(
        disk.rename(ME, dir, b"a", dir, b"b", false).await,
        libc::EEXIST,
    );
    no(
        disk.rename(ME, dir, b"x", dir, b"y", true).await,
        libc::ENOENT,
    );
    disk.rename(ME, dir, b"a", dir, b"b", true).await.unwrap();
    assert_eq!(names(disk, dir).await, ["b"]);
    let key = disk.stat(&a).await.unwrap().key;
    assert_eq!(disk.stat_at(dir, b"b").await.unwrap().key, key);
    let one = new_dir(disk, dir, b"one", 0o755).await;
    let two = new_dir(disk, &one, b"two", 0o755).await;
    no(
        disk.rename(ME, dir, b"one", &two, b"in", true).await,
        libc::EINVAL,
    );
    no(
        disk.rename(ME, dir, b"one", dir, b"b", true).await,
        libc::ENOTDIR,
    );
    no(
        disk.rename(ME, dir, b"b", dir, b"one", true).await,
        libc::EISDIR,
    );
    disk.rename(ME, dir, b"b", &two, b"deep", false)
        .await
        .unwrap();
    new_dir(disk, dir, b"other", 0o755).await;
    let full = disk.rename(ME, dir, b"other", dir, b"one", true).await;
    // rename(2) allows both; XFS returns EEXIST.
    assert!([Err(Errno(libc::ENOTEMPTY)), Err(Errno(libc::EEXIST))].contains(&full));
    disk.rename(ME, &one, b"two", dir, b"two", false)
        .await
        .unwrap();
    disk.rename(ME, dir, b"other", dir, b"one", true)
        .await
        .unwrap();
    assert_eq!(names(disk, dir).await, ["one", "two"]);
    assert_eq!(names(disk, &two).await, ["deep"]);
}

async fn links<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    disk.link(ME, &fd, dir, b"g").await.unwrap();
    no(disk.link(ME, &fd, dir, b"g").await, libc::EEXIST);
    no(disk.link(ME, dir, dir, b"d").await, libc::EPERM);
    assert_eq!(disk.stat(&fd).await.unwrap().links, 2);
    put(disk, &fd, 0, b"both").await;
    disk.unlink(ME, dir, b"f", false).await.unwrap();
    let g = disk
        .open_at(ME, dir, b"g", how(true, false, None))
        .await
        .unwrap();
    assert_eq!(get(disk, &g, 0, 10).await, b"both");
    no(disk.read_link_at(dir, b"g").await, libc::EINVAL);
}

async fn attributes<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    let t = |secs, nanos| Some(Timestamp { secs, nanos });
    disk.set_times(ME, &fd, t(1_000_000_000, 123_000), t(999_999_999, 5_000))
        .await
        .unwrap();
    disk.set_times(ME, &fd, None, t(-86_400, 1_000))
        .await
        .unwrap();
    no(
        disk.set_times(ME, &fd, None, t(0, 1_000_000_000)).await,
        libc::EINVAL,
    );
    disk.set_mode(ME, &fd, 0o640).await.unwrap();
    let stat = disk.stat(&fd).await.unwrap();
    assert_eq!(Some(stat.accessed), t(1_000_000_000, 123_000));
    assert_eq!(Some(stat.written), t(-86_400, 1_000));
    assert_eq!(stat.mode, libc::S_IFREG | 0o640);
    disk.set_owner(ME, &fd, None, None).await.unwrap();
    disk.access(ME, &fd, 4 | 2).await.unwrap();
    let fs = disk.stat_fs(&fd).await.unwrap();
    assert!(fs.block >= 512 && fs.blocks >= fs.free, "{fs:?}");
}

async fn xattrs<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    no(disk.get_xattr(&fd, "user.a").await, libc::ENODATA);
    no(
        disk.set_xattr(ME, &fd, "user.a", b"1", XattrSet::Replace)
            .await,
        libc::ENODATA,
    );
    disk.set_xattr(ME, &fd, "user.a", b"1", XattrSet::Create)
        .await
        .unwrap();
    no(
        disk.set_xattr(ME, &fd, "user.a", b"2", XattrSet::Create)
            .await,
        libc::EEXIST,
    );
    let long = vec![b'v'; 3000];
    disk.set_xattr(ME, &fd, "user.b", &long, XattrSet::Either)
        .await
        .unwrap();
    assert_eq!(disk.get_xattr(&fd, "user.b").await.unwrap(), long);
    assert_eq!(disk.get_xattr(&fd, "user.a").await.unwrap(), b"1");
    let mut list = disk.list_xattr(&fd).await.unwrap();
    list.retain(|n| n.starts_with("user."));
    list.sort();
    assert_eq!(list, ["user.a", "user.b"]);
    disk.remove_xattr(ME, &fd, "user.a").await.unwrap();
    no(disk.remove_xattr(ME, &fd, "user.a").await, libc::ENODATA);
    no(
        disk.set_xattr(ME, &fd, "bogus", b"", XattrSet::Either)
            .await,
        libc::EOPNOTSUPP,
    );
    let huge = vec![0; 65_537];
    no(
        disk.set_xattr(ME, &fd, "user.c", &huge, XattrSet::Either)
            .await,
        libc::E2BIG,
    );
}

async fn path_only<D: Disk>(disk: &D, dir: &D::Fd) {
    let file = new_file(disk, dir, b"f").await;
    put(disk, &file, 0, b"bytes").await;
    let only = OpenHow::PATH_ONLY;
    let fd = disk.open_at(ME, dir, b"f", only).await.unwrap();
    no(disk.read(&fd, 0, 1, BytesMut::new()).await, libc::EBADF);
    no(disk.fsync(&fd).await, libc::EBADF);
    assert_eq!(
        disk.stat(&fd).await.unwrap().key,
        disk.stat(&file).await.unwrap().key
    );
    disk.set_xattr(ME, &fd, "user.p", b"v", XattrSet::Either)
        .await
        .unwrap();
    assert_eq!(disk.get_xattr(&fd, "user.p").await.unwrap(), b"v");
    assert!(
        disk.list_xattr(&fd)
            .await
            .unwrap()
            .contains(&"user.p".to_owned())
    );
    disk.remove_xattr(ME, &fd, "user.p").await.unwrap();
    disk.set_mode(ME, &fd, 0o600).await.unwrap();
    disk.set_times(ME, &fd, Some(Timestamp { secs: 5, nanos: 0 }), None)
        .await
        .unwrap();
    disk.set_owner(ME, &fd, None, None).await.unwrap();
    disk.access(ME, &fd, 4).await.unwrap();
    let stat = disk.stat(&fd).await.unwrap();
    assert_eq!((stat.mode & 0o7777, stat.accessed.secs), (0o600, 5));
    let again = disk.reopen(ME, &fd, true, false).await.unwrap();
    assert_eq!(get(disk, &again, 0, 10).await, b"bytes");
    disk.link(ME, &fd, dir, b"g").await.unwrap();
    assert_eq!(names(disk, dir).await, ["f", "g"]);
    let here = disk.open_at(ME, &disk.root(), b"path", only).await.unwrap();
    disk.open_at(ME, &here, b"f", how(true, false, None))
        .await
        .unwrap();
}

async fn syncs<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    put(disk, &fd, 0, b"x").await;
    disk.fdatasync(&fd).await.unwrap();
    disk.fsync(&fd).await.unwrap();
    disk.fsync(dir).await.unwrap();
}

/// A descriptor has the path by which it was opened, wherever that name moves, and none of the file's other names.
pub(crate) async fn paths<D: Disk>(disk: &D) {
    let root = disk.root();
    let dir = new_dir(disk, &root, b"d", 0o755).await;
    let file = new_file(disk, &dir, b"f").await;
    disk.link(ME, &file, &root, b"a").await.unwrap();
    let again = disk.reopen(ME, &file, true, false).await.unwrap();
    assert_eq!(disk.path_hint(&again).unwrap(), b"d/f");
    let moved = disk.rename(ME, &dir, b"f", &root, b"g", false);
    moved.await.unwrap();
    assert_eq!(disk.path_hint(&again).unwrap(), b"g");
    disk.unlink(ME, &root, b"g", false).await.unwrap();
    assert_eq!(disk.path_hint(&file), None);
}

/// Checks the rights that the kernel grants to other users, for disks whose service is root.
pub(crate) async fn identities<D: Disk>(disk: &D) {
    let (root, nobody) = (disk.root(), stranger(65_534));
    let open = new_dir(disk, &root, b"open", 0o777).await;
    let closed = new_dir(disk, &root, b"closed", 0o700).await;
    new_file(disk, &closed, b"secret").await;
    let make = how(true, true, Some(0o640));
    let fd = disk.open_at(&nobody, &open, b"mine", make).await.unwrap();
    let stat = disk.stat(&fd).await.unwrap();
    assert_eq!(
        (stat.uid, stat.gid, stat.mode & 0o777),
        (65_534, 65_534, 0o640)
    );
    // The service's own identity is back at once.
    let own = disk
        .stat(&new_file(disk, &open, b"ours").await)
        .await
        .unwrap();
    assert_eq!((own.uid, own.gid), (0, 0));
    for _ in 0..2 {
        no(
            disk.open_at(&nobody, &closed, b"new", make).await,
            libc::EACCES,
        );
        no(
            disk.open_at(&nobody, &closed, b"secret", how(true, false, None))
                .await,
            libc::EACCES,
        );
    }
    no(
        disk.open_at(&nobody, &open, b"ours", how(false, true, None))
            .await,
        libc::EACCES,
    );
    no(
        disk.make_dir(&nobody, &closed, b"d", 0o755).await,
        libc::EACCES,
    );
    no(
        disk.unlink(&nobody, &closed, b"secret", false).await,
        libc::EACCES,
    );
    no(
        disk.rename(&nobody, &closed, b"secret", &open, b"got", false)
            .await,
        libc::EACCES,
    );
    foreign(disk, &open, &nobody).await;
}

/// Checks that only the owner may link a file that others may not write, if `fs.protected_hardlinks` is set.
async fn foreign_links<D: Disk>(open: (&D, &D::Fd), ours: &D::Fd, nobody: &Identity) {
    let (disk, dir) = open;
    let protected = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks");
    if protected.is_ok_and(|value| value.trim() == "0") {
        return;
    }
    for mode in [0o600, 0o644, 0o4666, 0o2676] {
        disk.set_mode(ME, ours, mode).await.unwrap();
        no(disk.link(nobody, ours, dir, b"l").await, libc::EPERM);
    }
    for mode in [0o666, 0o2666] {
        disk.set_mode(ME, ours, mode).await.unwrap();
        disk.link(nobody, ours, dir, b"l").await.unwrap();
        disk.unlink(ME, dir, b"l", false).await.unwrap();
    }
    disk.set_mode(ME, ours, 0o644).await.unwrap();
}

/// Checks the rights of `nobody` on the service's file `ours` in a directory that all may write.
async fn foreign<D: Disk>(disk: &D, open: &D::Fd, nobody: &Identity) {
    let ours = disk
        .open_at(ME, open, b"ours", how(true, true, None))
        .await
        .unwrap();
    no(disk.set_mode(nobody, &ours, 0o777).await, libc::EPERM);
    no(
        disk.set_owner(nobody, &ours, Some(65_534), None).await,
        libc::EPERM,
    );
    no(
        disk.set_xattr(nobody, &ours, "user.x", b"", XattrSet::Either)
            .await,
        libc::EACCES,
    );
    no(disk.access(nobody, &ours, 2).await, libc::EACCES);
    no(disk.reopen(nobody, &ours, false, true).await, libc::EACCES);
    disk.access(nobody, &ours, 4).await.unwrap();
    foreign_links((disk, open), &ours, nobody).await;
    disk.make_dir(nobody, open, b"dir", 0o700).await.unwrap();
    assert_eq!(disk.stat_at(open, b"dir").await.unwrap().uid, 65_534);
    // Another user, and one who is in the group.
    let other = stranger(65_533);
    no(
        disk.open_at(&other, open, b"mine", how(true, false, None))
            .await,
        libc::EACCES,
    );
    let member = Identity::User(Arc::new(LocalUser {
        uid: 65_533,
        gid: 65_533,
        groups: vec![65_534],
    }));
    disk.open_at(&member, open, b"mine", how(true, false, None))
        .await
        .unwrap();
    disk.rename(&other, open, b"mine", open, b"theirs", false)
        .await
        .unwrap();
    disk.unlink(&other, open, b"theirs", false).await.unwrap();
    // Sticky: only owners may remove.
    disk.set_mode(ME, open, 0o1777).await.unwrap();
    no(disk.unlink(&other, open, b"ours", false).await, libc::EPERM);
}
