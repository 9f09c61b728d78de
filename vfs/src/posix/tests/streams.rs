//! Named streams in both stores.

use super::*;
use crate::posix::{samba_xattr::depot_path, streams::IN_XATTR_MAX};

async fn open<D: Disk>(t: &Case<D>, node: &PosixNode<D>, name: &str) -> PosixNode<D> {
    let (stream, _) = t
        .vfs
        .open_stream(ME, node, name, StreamOpen::Either)
        .await
        .unwrap();
    let io = IoAccess {
        read: true,
        write: true,
    };
    t.vfs.open(ME, &stream, io).await.unwrap()
}

async fn names<D: Disk>(t: &Case<D>, node: &PosixNode<D>) -> Vec<(String, u64)> {
    let streams = t.vfs.streams(node).await.unwrap();
    streams.into_iter().map(|s| (s.name, s.size)).collect()
}

/// Whether the depot has a folder for the inode.
async fn in_depot<D: Disk>(t: &Case<D>, node: &PosixNode<D>) -> bool {
    let disk = t.vfs.disk();
    let how = crate::disk::OpenHow {
        path_only: true,
        ..Default::default()
    };
    let mut at = disk.root();
    let [a, b, c] = depot_path(node.key().fs, node.key().ino);
    for name in [".streams", &a, &b, &c] {
        match disk.open_at(ME, &at, name.as_bytes(), how).await {
            Ok(fd) => at = fd,
            Err(_) => return false,
        }
    }
    true
}

pub(super) async fn small<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    t.write(&file, 0, b"main").await;
    assert_eq!(
        t.vfs
            .open_stream(ME, &file, "s", StreamOpen::Existing)
            .await
            .unwrap_err(),
        VfsError::NotFound
    );
    let (stream, made) = t
        .vfs
        .open_stream(ME, &file, "Zone", StreamOpen::New)
        .await
        .unwrap();
    assert!(made && stream.stream() == Some("Zone") && !stream.is_directory());
    assert_eq!(stream.key(), file.key());
    t.write(&stream, 2, b"abc").await;
    let raw = t
        .vfs
        .disk()
        .get_xattr(file.fd(), "user.DosStream.Zone:$DATA")
        .await
        .unwrap();
    assert_eq!(raw, b"\0\0abc\0");
    let (again, made) = t
        .vfs
        .open_stream(ME, &t.node("f").await, "ZONE", StreamOpen::Either)
        .await
        .unwrap();
    assert!(!made && again.stream() == Some("Zone"));
    // Not opened for I/O yet.
    assert_eq!(
        t.vfs.read(&again, 0, 9, BytesMut::new()).await.unwrap_err(),
        VfsError::AccessDenied
    );
    let again = open(&t, &file, "zone").await;
    assert_eq!(t.read(&again).await, b"\0\0abc");
    assert_eq!(
        &t.vfs.read(&again, 3, 1, BytesMut::new()).await.unwrap()[..],
        b"b"
    );
    assert_eq!(
        t.vfs
            .open_stream(ME, &file, "zone", StreamOpen::New)
            .await
            .unwrap_err(),
        VfsError::Exists
    );
    t.vfs.set_size(&again, 3).await.unwrap();
    t.vfs.set_size(&again, 4).await.unwrap();
    assert_eq!(t.read(&stream).await, b"\0\0a\0");
    t.vfs
        .zero(&again, Range { offset: 2, len: 9 })
        .await
        .unwrap();
    assert_eq!(t.read(&stream).await, b"\0\0\0\0");
    let attr = t.vfs.attr(&stream).await.unwrap();
    assert_eq!((attr.size, attr.kind), (4, crate::Kind::File));
    assert_eq!(names(&t, &file).await, [("Zone".to_owned(), 4)]);
    assert_eq!(t.read(&file).await, b"main");
    names_and_sync(t, file, again).await;
}

/// `again` is the only stream of `file`.
async fn names_and_sync<D: Disk>(t: Case<D>, file: PosixNode<D>, again: PosixNode<D>) {
    let durable = WriteMode { durable: true };
    t.vfs
        .write(&again, 0, Bytes::from_static(b"d"), durable)
        .await
        .unwrap();
    t.vfs.sync(&again, SyncScope::Data).await.unwrap();
    for bad in ["", "a:b", "a/b", "a\\b", "a\0"] {
        let opened = t.vfs.open_stream(ME, &file, bad, StreamOpen::Either).await;
        assert_eq!(opened.unwrap_err(), VfsError::InvalidName, "{bad}");
    }
    let empty = open(&t, &file, "empty").await;
    assert!(t.read(&empty).await.is_empty());
    assert_eq!(names(&t, &file).await.len(), 2);
    assert!(!in_depot(&t, &file).await);
}

pub(super) async fn growing<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let stream = open(&t, &file, "big").await;
    let early = open(&t, &file, "big").await;
    t.write(&stream, 0, &[1; IN_XATTR_MAX]).await;
    assert!(!in_depot(&t, &file).await);
    t.write(&stream, IN_XATTR_MAX as u64, &[2; 100_000]).await;
    assert!(in_depot(&t, &file).await);
    assert!(
        t.vfs
            .disk()
            .get_xattr(file.fd(), "user.DosStream.big:$DATA")
            .await
            .is_err()
    );
    // Handles opened before see it, and one opened after.
    for stream in [&stream, &early, &open(&t, &file, "BIG").await] {
        let data = t.read(stream).await;
        assert_eq!(data.len(), IN_XATTR_MAX + 100_000);
        assert!(
            data[..IN_XATTR_MAX].iter().all(|b| *b == 1)
                && data[IN_XATTR_MAX..].iter().all(|b| *b == 2)
        );
    }
    t.write(&early, 0, b"early").await;
    assert_eq!(t.read(&stream).await[..6], *b"early\x01");
    assert_eq!(
        names(&t, &file).await,
        [("big".to_owned(), IN_XATTR_MAX as u64 + 100_000)]
    );
    t.vfs.set_size(&stream, 3).await.unwrap();
    assert_eq!(t.read(&early).await, b"ear");
    let durable = WriteMode { durable: true };
    t.vfs
        .write(&stream, 0, Bytes::from_static(b"d"), durable)
        .await
        .unwrap();
    t.vfs.sync(&stream, SyncScope::All).await.unwrap();
    t.vfs.sync(&file, SyncScope::Data).await.unwrap();
    // Another moves by its size being set, with what it has.
    let other = open(&t, &file, "other").await;
    t.write(&other, 0, b"xyz").await;
    t.vfs.set_size(&other, 1 << 16).await.unwrap();
    let data = t.read(&other).await;
    assert!(data.len() == 1 << 16 && data.starts_with(b"xyz\0"));
    t.vfs.allocate(&other, 1 << 20).await.unwrap();
    assert_eq!(
        t.vfs
            .allocated(&other, Range { offset: 0, len: 9 }, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    // The depot is nobody's to see.
    assert_eq!(t.names("").await, ["f"]);
    assert_eq!(
        t.vfs.copy(&other, 0, &stream, 0, 1 << 16).await.unwrap(),
        1 << 16
    );
    assert_eq!(t.read(&stream).await, data);
}

pub(super) async fn many<D: Disk>(t: Case<D>) {
    // More than fits into the attributes of an ext4 inode: the rest goes to the depot unasked.
    let file = t.file("f").await;
    for i in 0..40 {
        let stream = open(&t, &file, &format!("s{i:02}")).await;
        t.write(&stream, 0, &[i; 500]).await;
    }
    let all = names(&t, &file).await;
    assert_eq!(all.len(), 40);
    for (i, (name, size)) in all.iter().enumerate() {
        assert_eq!((name.as_str(), *size), (format!("s{i:02}").as_str(), 500));
        let stream = open(&t, &file, name).await;
        assert!(t.read(&stream).await.iter().all(|b| usize::from(*b) == i));
    }
    let long = "n".repeat(240);
    let stream = open(&t, &file, &long).await;
    t.write(&stream, 0, b"long").await;
    assert_eq!(t.read(&open(&t, &file, &long).await).await, b"long");
    let over = t
        .vfs
        .open_stream(ME, &file, &"n".repeat(250), StreamOpen::Either)
        .await;
    assert_eq!(over.unwrap_err(), VfsError::NameTooLong);
}

pub(super) async fn renamed<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let (small, big) = (open(&t, &file, "small").await, open(&t, &file, "big").await);
    t.write(&small, 0, b"S").await;
    t.write(&big, 0, &[b'B'; 5000]).await;
    let taken = t.vfs.rename_stream(ME, &small, "BIG", false).await;
    assert_eq!(taken.unwrap_err(), VfsError::Exists);
    let small = t
        .vfs
        .rename_stream(ME, &small, "SMALL", false)
        .await
        .unwrap();
    assert_eq!(names(&t, &file).await[0].0, "SMALL");
    let small = t
        .vfs
        .rename_stream(ME, &small, "tiny", false)
        .await
        .unwrap();
    assert_eq!(
        (small.stream(), t.read(&small).await),
        (Some("tiny"), b"S".to_vec())
    );
    let big = t.vfs.rename_stream(ME, &big, "large", false).await.unwrap();
    assert_eq!(t.read(&big).await.len(), 5000);
    assert_eq!(
        names(&t, &file).await,
        [("large".to_owned(), 5000), ("tiny".to_owned(), 1)]
    );
    // Each over the other's kind of store.
    let big = t.vfs.rename_stream(ME, &big, "TINY", true).await.unwrap();
    assert_eq!(names(&t, &file).await, [("TINY".to_owned(), 5000)]);
    let small = open(&t, &file, "small").await;
    t.write(&small, 0, b"S2").await;
    t.vfs.rename_stream(ME, &small, "TINY", true).await.unwrap();
    assert_eq!(names(&t, &file).await, [("TINY".to_owned(), 2)]);
    drop(big);
}

pub(super) async fn removed<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let (small, big) = (open(&t, &file, "small").await, open(&t, &file, "big").await);
    t.write(&big, 0, &[b'B'; 5000]).await;
    t.vfs.remove_stream(ME, &small).await.unwrap();
    assert_eq!(
        t.vfs.remove_stream(ME, &small).await.unwrap_err(),
        VfsError::NotFound
    );
    assert_eq!(
        t.vfs.read(&small, 0, 1, BytesMut::new()).await.unwrap_err(),
        VfsError::NotFound
    );
    assert_eq!(names(&t, &file).await, [("big".to_owned(), 5000)]);
    t.vfs.remove_stream(ME, &big).await.unwrap();
    assert!(names(&t, &file).await.is_empty());
    // The streams go with the inode's last name.
    let big = open(&t, &file, "big").await;
    t.write(&big, 0, &[b'B'; 5000]).await;
    t.vfs
        .link(ME, &file, &t.vfs.root(), "g", None)
        .await
        .unwrap();
    t.remove("f").await.unwrap();
    assert!(in_depot(&t, &file).await);
    t.file("new").await;
    t.rename("new", "G", true).await.unwrap();
    assert!(!in_depot(&t, &file).await);
    assert!(names(&t, &t.node("g").await).await.is_empty());
}

pub(super) async fn of_directories<D: Disk>(t: Case<D>) {
    let dir = t.dir("d").await;
    let stream = open(&t, &dir, "s").await;
    assert!(!stream.is_directory());
    t.write(&stream, 0, &[7; 10_000]).await;
    let attr = t.vfs.attr(&stream).await.unwrap();
    assert_eq!((attr.size, attr.kind), (10_000, crate::Kind::File));
    assert_eq!(attr.dos_attributes & 0x10, 0);
    assert!(in_depot(&t, &dir).await);
    t.remove("d").await.unwrap();
    assert!(!in_depot(&t, &dir).await);
}

pub(super) async fn all_in_the_depot<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let stream = open(&t, &file, "s").await;
    t.write(&stream, 0, b"x").await;
    assert!(in_depot(&t, &file).await);
    assert_eq!(
        t.vfs
            .disk()
            .get_xattr(file.fd(), "user.SAMBA_STREAMS")
            .await
            .unwrap(),
        b"1"
    );
    // A folder without the mark belonged to a dead inode.
    t.vfs
        .disk()
        .remove_xattr(ME, file.fd(), "user.SAMBA_STREAMS")
        .await
        .unwrap();
    assert!(names(&t, &file).await.is_empty());
    open(&t, &file, "t").await;
    assert_eq!(names(&t, &file).await, [("t".to_owned(), 0)]);
}

/// The number of a device is another one after a restart: the folder is where the inode says.
pub(super) async fn after_a_restart<D: Disk>(t: Case<D>) {
    let disk = t.vfs.disk();
    let file = t.file("f").await;
    let stream = open(&t, &file, "big").await;
    t.write(&stream, 0, &[b'B'; 5000]).await;
    let place = "user.holdfast.depot";
    let here = depot_path(file.key().fs, file.key().ino);
    let told = disk.get_xattr(file.fd(), place).await.unwrap();
    assert_eq!(told, here.join("/").into_bytes());
    // As if it had been made when the device had another number.
    let there = depot_path(file.key().fs ^ 0x17, file.key().ino);
    for depth in 1..4 {
        let path = format!(".streams/{}", there[..depth].join("/"));
        make_folder(&t, &path).await;
    }
    let old = folder(&t, &format!(".streams/{}", here.join("/"))).await;
    let new = folder(&t, &format!(".streams/{}", there.join("/"))).await;
    let name = b":big:$DATA";
    disk.rename(ME, &old, name, &new, name, false)
        .await
        .unwrap();
    let how = crate::disk::XattrSet::Either;
    let told = there.join("/");
    disk.set_xattr(ME, file.fd(), place, told.as_bytes(), how)
        .await
        .unwrap();
    let file = t.node("f").await;
    assert_eq!(names(&t, &file).await, [("big".to_owned(), 5000)]);
    let again = open(&t, &file, "big").await;
    assert_eq!(t.read(&again).await, [b'B'; 5000]);
    let second = open(&t, &file, "second").await;
    t.write(&second, 0, &[b'S'; 5000]).await;
    assert_eq!(names(&t, &file).await.len(), 2);
    // A copy of a file with its attributes is not led to the other's streams.
    let copy = t.file("copy").await;
    for (name, value) in [(place, told.as_bytes()), ("user.SAMBA_STREAMS", b"1")] {
        disk.set_xattr(ME, copy.fd(), name, value, how)
            .await
            .unwrap();
    }
    assert!(names(&t, &copy).await.is_empty());
    open(&t, &copy, "own").await;
    assert_eq!(names(&t, &file).await.len(), 2);
    t.remove("f").await.unwrap();
    assert!(
        disk.open_at(ME, &new, name, Default::default())
            .await
            .is_err()
    );
}

async fn folder<D: Disk>(t: &Case<D>, path: &str) -> D::Fd {
    let how = crate::disk::OpenHow {
        path_only: true,
        ..Default::default()
    };
    let mut at = t.vfs.disk().root();
    for name in path.split('/') {
        let opened = t.vfs.disk().open_at(ME, &at, name.as_bytes(), how).await;
        at = opened.unwrap();
    }
    at
}

async fn make_folder<D: Disk>(t: &Case<D>, path: &str) {
    let (above, name) = path.rsplit_once('/').unwrap();
    let above = folder(t, above).await;
    let made = t
        .vfs
        .disk()
        .make_dir(ME, &above, name.as_bytes(), 0o755)
        .await;
    assert!(made.is_ok() || made.unwrap_err().is(&[libc::EEXIST]));
}
