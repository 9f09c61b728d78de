//! The rules that every disk must keep, checked on each of them: the tests call [`all`] with an empty disk.
//!
//! Only behaviour that Linux promises on any file system is required. Where file systems differ (block counts, the
//! order of listings, space for attributes) the test accepts every permitted answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    Identity, IoAccess, Timestamp,
    disk::{Allocate, Disk, Errno, OpenHow, XattrSet},
    identity::LocalUser,
};

/// The result of a call of the disk, which must succeed.
macro_rules! ok {
    ($call:expr) => {
        $call.await.unwrap()
    };
}

/// Checks that a call fails with this number.
macro_rules! no {
    ($call:expr, $errno:ident) => {
        assert_eq!($call.await.map(drop), Err(Errno(libc::$errno)))
    };
}

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

/// A user without files or groups of his own.
pub(crate) fn stranger(uid: u32) -> Identity {
    Identity::User(Arc::new(LocalUser {
        uid,
        gid: uid,
        groups: vec![],
    }))
}

pub(crate) async fn new_file<D: Disk>(disk: &D, dir: &D::Fd, name: &[u8]) -> D::Fd {
    ok!(disk.open_at(ME, dir, name, how(true, true, Some(0o644))))
}

pub(crate) async fn new_dir<D: Disk>(disk: &D, dir: &D::Fd, name: &[u8], mode: u32) -> D::Fd {
    ok!(disk.make_dir(ME, dir, name, mode));
    ok!(disk.open_at(
        ME,
        dir,
        name,
        OpenHow {
            directory: true,
            ..how(true, false, None)
        },
    ))
}

pub(crate) async fn put<D: Disk>(disk: &D, fd: &D::Fd, at: u64, bytes: &[u8]) {
    let data = Bytes::copy_from_slice(bytes);
    assert_eq!(disk.write(fd, at, data, false).await, Ok(bytes.len()));
}

pub(crate) async fn get<D: Disk>(disk: &D, fd: &D::Fd, at: u64, len: usize) -> Vec<u8> {
    let mut buf = BytesMut::new();
    while buf.len() < len {
        let had = buf.len();
        buf = ok!(disk.read(fd, at + had as u64, len - had, buf));
        if buf.len() == had {
            break;
        }
    }
    buf.to_vec()
}

pub(crate) async fn names<D: Disk>(disk: &D, dir: &D::Fd) -> Vec<String> {
    let mut all: Vec<_> = ok!(disk.entries(dir, 1000))
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
    let buf = ok!(disk.read(&fd, 0, 5, BytesMut::from(&b"got: "[..])));
    assert_eq!(&buf[..], b"got: hello");
    let big: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    put(disk, &fd, 4000, &big).await;
    assert_eq!(get(disk, &fd, 4000, big.len()).await, big);
    assert_eq!(ok!(disk.stat(&fd)).size, 304_000);
    ok!(disk.truncate(&fd, 4100));
    ok!(disk.truncate(&fd, 9000));
    let tail = get(disk, &fd, 4000, 9000).await;
    assert_eq!(tail.len(), 5000);
    assert_eq!(&tail[..100], &big[..100]);
    assert!(tail[100..].iter().all(|b| *b == 0), "growth reads as zeros");
    let reader = ok!(disk.reopen(ME, &fd, IoAccess::READ));
    no!(
        disk.write(&reader, 0, Bytes::from_static(b"x"), false),
        EBADF
    );
    no!(disk.truncate(&reader, 0), EINVAL);
    let writer = ok!(disk.reopen(ME, &fd, IoAccess::WRITE));
    no!(disk.read(&writer, 0, 1, BytesMut::new()), EBADF);
    no!(disk.reopen(ME, dir, IoAccess::WRITE), EISDIR);
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
    no!(disk.seek(&fd, M + 65_536, true), ENXIO);
    ok!(disk.allocate(&fd, Allocate::Punch, M, 32_768));
    assert_eq!(disk.seek(&fd, 0, true).await, Ok(M + 32_768));
    assert_eq!(
        get(disk, &fd, M + 32_760, 16).await,
        [[0; 8], [7; 8]].concat()
    );
    let before = ok!(disk.stat(&fd));
    ok!(disk.allocate(&fd, Allocate::Reserve, 0, 4 * M));
    let after = ok!(disk.stat(&fd));
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
        let n = ok!(disk.copy_range((&from, done), (&to, done + 10), 200_000));
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
    no!(disk.open_at(ME, dir, b"none", open), ENOENT);
    no!(disk.stat_at(dir, b"none"), ENOENT);
    no!(disk.open_at(ME, dir, b"", open), ENOENT);
    no!(disk.open_at(ME, dir, b"a/b", open), EINVAL);
    no!(disk.open_at(ME, dir, b"..", open), EINVAL);
    no!(disk.make_dir(ME, dir, b"..", 0o755), EINVAL);
    no!(disk.make_dir(ME, dir, &[b'x'; 256], 0o755), ENAMETOOLONG);
    let raw = [0xFF, 0xFE, b'x'];
    let fd = new_file(disk, dir, &raw).await;
    no!(
        disk.open_at(ME, dir, &raw, how(true, true, Some(0o600))),
        EEXIST
    );
    no!(disk.open_at(ME, &fd, b"x", open), ENOTDIR);
    let sub = new_dir(disk, dir, b"sub", 0o775).await;
    assert_eq!(ok!(disk.stat(&sub)).mode, libc::S_IFDIR | 0o775, "no umask");
    no!(disk.make_dir(ME, dir, b"sub", 0o755), EEXIST);
    no!(
        disk.open_at(ME, dir, b"sub", how(false, true, None)),
        EISDIR
    );
    no!(
        disk.open_at(
            ME,
            dir,
            &raw,
            OpenHow {
                directory: true,
                ..open
            },
        ),
        ENOTDIR
    );
    let listed = ok!(disk.entries(dir, 10));
    assert_eq!(listed.len(), 2);
    for entry in &listed {
        let stat = ok!(disk.stat_at(dir, &entry.name));
        assert_eq!(
            (stat.key.ino, stat.mode >> 12),
            (entry.ino, u32::from(entry.kind))
        );
    }
    assert_eq!(ok!(disk.entries(dir, 10)), listed, "listing starts anew");
    no!(disk.entries(dir, 1), EOVERFLOW);
    removals(disk, dir, (&raw, &fd), &sub).await;
}

/// Checks removals in a directory that holds the file `raw` and the empty directory `sub`.
async fn removals<D: Disk>(disk: &D, dir: &D::Fd, (raw, fd): (&[u8], &D::Fd), sub: &D::Fd) {
    new_file(disk, sub, b"inner").await;
    no!(disk.unlink(ME, dir, b"sub", true), ENOTEMPTY);
    no!(disk.unlink(ME, dir, b"sub", false), EISDIR);
    no!(disk.unlink(ME, dir, raw, true), ENOTDIR);
    ok!(disk.unlink(ME, sub, b"inner", false));
    let listing = ok!(disk.reopen(ME, sub, IoAccess::READ));
    ok!(disk.unlink(ME, dir, b"sub", true));
    no!(disk.entries(&listing, 10), ENOENT);
    no!(
        disk.open_at(ME, sub, b"late", how(true, true, Some(0o644))),
        ENOENT
    );
    // A descriptor outlives its name.
    put(disk, fd, 0, b"alive").await;
    ok!(disk.unlink(ME, dir, raw, false));
    assert_eq!(get(disk, fd, 0, 10).await, b"alive");
    assert_eq!(ok!(disk.stat(fd)).links, 0);
    no!(disk.link(ME, fd, dir, b"back"), ENOENT);
    assert!(names(disk, dir).await.is_empty());
}

async fn renames<D: Disk>(disk: &D, dir: &D::Fd) {
    let a = new_file(disk, dir, b"a").await;
    new_file(disk, dir, b"b").await;
    no!(disk.rename(ME, (dir, b"a"), (dir, b"b"), false), EEXIST);
    no!(disk.rename(ME, (dir, b"x"), (dir, b"y"), true), ENOENT);
    ok!(disk.rename(ME, (dir, b"a"), (dir, b"b"), true));
    assert_eq!(names(disk, dir).await, ["b"]);
    let key = ok!(disk.stat(&a)).key;
    assert_eq!(ok!(disk.stat_at(dir, b"b")).key, key);
    let one = new_dir(disk, dir, b"one", 0o755).await;
    let two = new_dir(disk, &one, b"two", 0o755).await;
    no!(disk.rename(ME, (dir, b"one"), (&two, b"in"), true), EINVAL);
    no!(disk.rename(ME, (dir, b"one"), (dir, b"b"), true), ENOTDIR);
    no!(disk.rename(ME, (dir, b"b"), (dir, b"one"), true), EISDIR);
    ok!(disk.rename(ME, (dir, b"b"), (&two, b"deep"), false));
    new_dir(disk, dir, b"other", 0o755).await;
    let full = disk.rename(ME, (dir, b"other"), (dir, b"one"), true).await;
    // rename(2) allows both; XFS returns EEXIST.
    assert!([Err(Errno(libc::ENOTEMPTY)), Err(Errno(libc::EEXIST))].contains(&full));
    ok!(disk.rename(ME, (&one, b"two"), (dir, b"two"), false));
    ok!(disk.rename(ME, (dir, b"other"), (dir, b"one"), true));
    assert_eq!(names(disk, dir).await, ["one", "two"]);
    assert_eq!(names(disk, &two).await, ["deep"]);
}

async fn links<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    ok!(disk.link(ME, &fd, dir, b"g"));
    no!(disk.link(ME, &fd, dir, b"g"), EEXIST);
    no!(disk.link(ME, dir, dir, b"d"), EPERM);
    assert_eq!(ok!(disk.stat(&fd)).links, 2);
    put(disk, &fd, 0, b"both").await;
    ok!(disk.unlink(ME, dir, b"f", false));
    let g = ok!(disk.open_at(ME, dir, b"g", how(true, false, None)));
    assert_eq!(get(disk, &g, 0, 10).await, b"both");
    no!(disk.read_link_at(dir, b"g"), EINVAL);
}

async fn attributes<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    let t = |secs, nanos| Some(Timestamp { secs, nanos });
    ok!(disk.set_times(ME, &fd, t(1_000_000_000, 123_000), t(999_999_999, 5_000)));
    ok!(disk.set_times(ME, &fd, None, t(-86_400, 1_000)));
    no!(disk.set_times(ME, &fd, None, t(0, 1_000_000_000)), EINVAL);
    ok!(disk.set_mode(ME, &fd, 0o640));
    let stat = ok!(disk.stat(&fd));
    assert_eq!(Some(stat.accessed), t(1_000_000_000, 123_000));
    assert_eq!(Some(stat.written), t(-86_400, 1_000));
    assert_eq!(stat.mode, libc::S_IFREG | 0o640);
    ok!(disk.set_owner(ME, &fd, None, None));
    ok!(disk.access(ME, &fd, 4 | 2));
    let fs = ok!(disk.stat_fs(&fd));
    assert!(fs.block >= 512 && fs.blocks >= fs.free, "{fs:?}");
}

async fn xattrs<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    no!(disk.get_xattr(&fd, "user.a"), ENODATA);
    no!(
        disk.set_xattr(ME, &fd, "user.a", b"1", XattrSet::Replace),
        ENODATA
    );
    ok!(disk.set_xattr(ME, &fd, "user.a", b"1", XattrSet::Create));
    no!(
        disk.set_xattr(ME, &fd, "user.a", b"2", XattrSet::Create),
        EEXIST
    );
    let long = vec![b'v'; 3000];
    ok!(disk.set_xattr(ME, &fd, "user.b", &long, XattrSet::Either));
    assert_eq!(ok!(disk.get_xattr(&fd, "user.b")), long);
    assert_eq!(ok!(disk.get_xattr(&fd, "user.a")), b"1");
    let mut list = ok!(disk.list_xattr(&fd));
    list.retain(|n| n.starts_with("user."));
    list.sort();
    assert_eq!(list, ["user.a", "user.b"]);
    ok!(disk.remove_xattr(ME, &fd, "user.a"));
    no!(disk.remove_xattr(ME, &fd, "user.a"), ENODATA);
    no!(
        disk.set_xattr(ME, &fd, "bogus", b"", XattrSet::Either),
        EOPNOTSUPP
    );
    let huge = vec![0; 65_537];
    no!(
        disk.set_xattr(ME, &fd, "user.c", &huge, XattrSet::Either),
        E2BIG
    );
}

async fn path_only<D: Disk>(disk: &D, dir: &D::Fd) {
    let file = new_file(disk, dir, b"f").await;
    put(disk, &file, 0, b"bytes").await;
    let only = OpenHow::PATH_ONLY;
    let fd = ok!(disk.open_at(ME, dir, b"f", only));
    no!(disk.read(&fd, 0, 1, BytesMut::new()), EBADF);
    no!(disk.fsync(&fd), EBADF);
    assert_eq!(ok!(disk.stat(&fd)).key, ok!(disk.stat(&file)).key);
    ok!(disk.set_xattr(ME, &fd, "user.p", b"v", XattrSet::Either));
    assert_eq!(ok!(disk.get_xattr(&fd, "user.p")), b"v");
    assert!(ok!(disk.list_xattr(&fd)).contains(&"user.p".to_owned()));
    ok!(disk.remove_xattr(ME, &fd, "user.p"));
    ok!(disk.set_mode(ME, &fd, 0o600));
    ok!(disk.set_times(ME, &fd, Some(Timestamp { secs: 5, nanos: 0 }), None));
    ok!(disk.set_owner(ME, &fd, None, None));
    ok!(disk.access(ME, &fd, 4));
    let stat = ok!(disk.stat(&fd));
    assert_eq!((stat.mode & 0o7777, stat.accessed.secs), (0o600, 5));
    let again = ok!(disk.reopen(ME, &fd, IoAccess::READ));
    assert_eq!(get(disk, &again, 0, 10).await, b"bytes");
    ok!(disk.link(ME, &fd, dir, b"g"));
    assert_eq!(names(disk, dir).await, ["f", "g"]);
    let here = ok!(disk.open_at(ME, &disk.root(), b"path", only));
    ok!(disk.open_at(ME, &here, b"f", how(true, false, None)));
}

async fn syncs<D: Disk>(disk: &D, dir: &D::Fd) {
    let fd = new_file(disk, dir, b"f").await;
    put(disk, &fd, 0, b"x").await;
    ok!(disk.fdatasync(&fd));
    ok!(disk.fsync(&fd));
    ok!(disk.fsync(dir));
}

/// A descriptor has the path by which it was opened, wherever that name moves, and none of the file's other names.
pub(crate) async fn paths<D: Disk>(disk: &D) {
    let root = disk.root();
    let dir = new_dir(disk, &root, b"d", 0o755).await;
    let file = new_file(disk, &dir, b"f").await;
    ok!(disk.link(ME, &file, &root, b"a"));
    let again = ok!(disk.reopen(ME, &file, IoAccess::READ));
    assert_eq!(disk.path_hint(&again).unwrap(), b"d/f");
    let moved = disk.rename(ME, (&dir, b"f"), (&root, b"g"), false);
    moved.await.unwrap();
    assert_eq!(disk.path_hint(&again).unwrap(), b"g");
    ok!(disk.unlink(ME, &root, b"g", false));
    assert_eq!(disk.path_hint(&file), None);
}

/// Checks the rights that the kernel grants to other users, for disks whose service is root.
pub(crate) async fn identities<D: Disk>(disk: &D) {
    let (root, nobody) = (disk.root(), stranger(65_534));
    let open = new_dir(disk, &root, b"open", 0o777).await;
    let closed = new_dir(disk, &root, b"closed", 0o700).await;
    new_file(disk, &closed, b"secret").await;
    let make = how(true, true, Some(0o640));
    let fd = ok!(disk.open_at(&nobody, &open, b"mine", make));
    let stat = ok!(disk.stat(&fd));
    assert_eq!(
        (stat.uid, stat.gid, stat.mode & 0o777),
        (65_534, 65_534, 0o640)
    );
    // The service's own identity is back at once.
    let own = ok!(disk.stat(&new_file(disk, &open, b"ours").await));
    assert_eq!((own.uid, own.gid), (0, 0));
    for _ in 0..2 {
        no!(disk.open_at(&nobody, &closed, b"new", make), EACCES);
        no!(
            disk.open_at(&nobody, &closed, b"secret", how(true, false, None)),
            EACCES
        );
    }
    no!(
        disk.open_at(&nobody, &open, b"ours", how(false, true, None)),
        EACCES
    );
    no!(disk.make_dir(&nobody, &closed, b"d", 0o755), EACCES);
    no!(disk.unlink(&nobody, &closed, b"secret", false), EACCES);
    no!(
        disk.rename(&nobody, (&closed, b"secret"), (&open, b"got"), false),
        EACCES
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
        ok!(disk.set_mode(ME, ours, mode));
        no!(disk.link(nobody, ours, dir, b"l"), EPERM);
    }
    for mode in [0o666, 0o2666] {
        ok!(disk.set_mode(ME, ours, mode));
        ok!(disk.link(nobody, ours, dir, b"l"));
        ok!(disk.unlink(ME, dir, b"l", false));
    }
    ok!(disk.set_mode(ME, ours, 0o644));
}

/// Checks the rights of `nobody` on the service's file `ours` in a directory that all may write.
async fn foreign<D: Disk>(disk: &D, open: &D::Fd, nobody: &Identity) {
    let ours = ok!(disk.open_at(ME, open, b"ours", how(true, true, None)));
    no!(disk.set_mode(nobody, &ours, 0o777), EPERM);
    no!(disk.set_owner(nobody, &ours, Some(65_534), None), EPERM);
    no!(
        disk.set_xattr(nobody, &ours, "user.x", b"", XattrSet::Either),
        EACCES
    );
    no!(disk.access(nobody, &ours, 2), EACCES);
    no!(disk.reopen(nobody, &ours, IoAccess::WRITE), EACCES);
    ok!(disk.access(nobody, &ours, 4));
    foreign_links((disk, open), &ours, nobody).await;
    ok!(disk.make_dir(nobody, open, b"dir", 0o700));
    assert_eq!(ok!(disk.stat_at(open, b"dir")).uid, 65_534);
    // Another user, and one who is in the group.
    let other = stranger(65_533);
    no!(
        disk.open_at(&other, open, b"mine", how(true, false, None)),
        EACCES
    );
    let member = Identity::User(Arc::new(LocalUser {
        uid: 65_533,
        gid: 65_533,
        groups: vec![65_534],
    }));
    ok!(disk.open_at(&member, open, b"mine", how(true, false, None)));
    ok!(disk.rename(&other, (open, b"mine"), (open, b"theirs"), false));
    ok!(disk.unlink(&other, open, b"theirs", false));
    // Sticky: only owners may remove.
    ok!(disk.set_mode(ME, open, 0o1777));
    no!(disk.unlink(&other, open, b"ours", false), EPERM);
}
