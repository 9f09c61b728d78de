//! Named streams in both stores.

use super::*;
use crate::posix::{Converted, Moved, samba_xattr::depot_path, streams::IN_XATTR_MAX};

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
    t.vfs.remove_stream(ME, &empty).await.unwrap();
    let read = t.vfs.read(&empty, 0, 1, BytesMut::new()).await;
    assert_eq!(read.unwrap_err(), VfsError::NotFound);
    assert!(!in_depot(&t, &file).await);
}

/// A stream that an attribute cannot hold is refused, and what there was stays.
pub(super) async fn limits<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let stream = open(&t, &file, "big").await;
    t.write(&stream, 0, b"before").await;
    let write = |offset, len| {
        let data = Bytes::from(vec![1; len]);
        t.vfs.write(&stream, offset, data, WriteMode::default())
    };
    for (offset, len) in [
        (0, IN_XATTR_MAX + 1),
        (IN_XATTR_MAX as u64, 1),
        (1 << 40, 1),
        (1 << 63, 1),
    ] {
        let written = write(offset, len).await;
        assert_eq!(written.unwrap_err(), VfsError::TooLarge, "{offset} {len}");
    }
    for size in [IN_XATTR_MAX as u64 + 1, 1 << 40, u64::MAX] {
        let set = t.vfs.set_size(&stream, size).await;
        assert_eq!(set.unwrap_err(), VfsError::TooLarge, "{size}");
        let allocated = t.vfs.allocate(&stream, size.max(1 << 17)).await;
        assert_eq!(allocated.unwrap_err(), VfsError::TooLarge, "{size}");
    }
    t.vfs.allocate(&stream, 1 << 16).await.unwrap();
    assert_eq!(t.read(&stream).await, b"before");
    let long = |len| "n".repeat(len);
    open(&t, &file, &long(234)).await;
    let how = StreamOpen::Either;
    let over = t.vfs.open_stream(ME, &file, &long(235), how).await;
    assert_eq!(over.unwrap_err(), VfsError::NameTooLong);
    let renamed = t.vfs.rename_stream(ME, &stream, &long(235), false).await;
    assert_eq!(renamed.unwrap_err(), VfsError::NameTooLong);
    assert!(!in_depot(&t, &file).await);
}

/// Until the attributes of the inode are full. (ext4, and the simulated disk; others take all.)
pub(super) async fn many<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let mut made = 0;
    for i in 0..40 {
        let name = format!("s{i:02}");
        let opened = t.vfs.open_stream(ME, &file, &name, StreamOpen::New).await;
        let written = match opened {
            Ok((stream, _)) => {
                let io = IoAccess {
                    read: true,
                    write: true,
                };
                let stream = t.vfs.open(ME, &stream, io).await.unwrap();
                let data = Bytes::from(vec![i; 500]);
                let written = t.vfs.write(&stream, 0, data, WriteMode::default()).await;
                if written.is_err() {
                    assert!(t.read(&stream).await.is_empty());
                    t.vfs.remove_stream(ME, &stream).await.unwrap();
                }
                written
            }
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            assert_eq!(error, VfsError::TooLarge);
            break;
        }
        made += 1;
    }
    assert!(made > 4, "{made}");
    let all = names(&t, &file).await;
    assert_eq!(all.len(), made);
    for (i, (name, size)) in all.iter().enumerate() {
        assert_eq!((name.as_str(), *size), (format!("s{i:02}").as_str(), 500));
        let stream = open(&t, &file, name).await;
        assert!(t.read(&stream).await.iter().all(|b| usize::from(*b) == i));
    }
    assert!(!in_depot(&t, &file).await);
}

/// In a share that keeps streams in the depot, one in an attribute moves when it is changed.
pub(super) async fn moving<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    for how in ["write", "size", "rename"] {
        in_attribute(&t, &file, how, b"attribute").await;
        let stream = open(&t, &file, how).await;
        let early = open(&t, &file, how).await;
        assert_eq!(t.read(&stream).await, b"attribute");
        match how {
            "write" => t.write(&stream, 9, &[2; 100_000]).await,
            "size" => t.vfs.set_size(&stream, 1 << 20).await.unwrap(),
            _ => {
                let renamed = t.vfs.rename_stream(ME, &stream, "renamed", false).await;
                assert_eq!(t.read(&renamed.unwrap()).await, b"attribute");
                continue;
            }
        }
        // Handles opened before see it, and one opened after.
        for stream in [&stream, &early, &open(&t, &file, how).await] {
            let data = t.read(stream).await;
            assert!(data.len() > 100_000 && data.starts_with(b"attribute"));
        }
        t.write(&early, 0, b"early").await;
        assert!(t.read(&stream).await.starts_with(b"earlybute"));
    }
    let left = t.vfs.disk().list_xattr(file.fd()).await.unwrap();
    assert!(
        !left.iter().any(|name| name.ends_with(":$DATA")),
        "{left:?}"
    );
    let all = names(&t, &file).await;
    let all: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(all, ["renamed", "size", "write"]);
}

/// A stream as Samba's `streams_xattr` keeps it.
async fn in_attribute<D: Disk>(t: &Case<D>, node: &PosixNode<D>, name: &str, data: &[u8]) {
    let (name, how) = (
        format!("user.DosStream.{name}:$DATA"),
        crate::disk::XattrSet::Create,
    );
    let value = [data, b"\0"].concat();
    let set = t.vfs.disk().set_xattr(ME, node.fd(), &name, &value, how);
    set.await.unwrap();
}

/// A stream as Samba's `streams_depot` keeps it.
async fn as_samba<D: Disk>(t: &Case<D>, node: &PosixNode<D>, name: &str, data: &[u8]) {
    let disk = t.vfs.disk();
    let way = depot_path(node.key().fs, node.key().ino);
    make_folder(t, ".streams").await;
    for depth in 1..4 {
        make_folder(t, &format!(".streams/{}", way[..depth].join("/"))).await;
    }
    let folder = folder(t, &format!(".streams/{}", way.join("/"))).await;
    let how = crate::disk::OpenHow {
        read: true,
        write: true,
        create: Some(0o644),
        ..Default::default()
    };
    let name = format!(":{name}:$DATA");
    let fd = disk.open_at(ME, &folder, name.as_bytes(), how).await;
    let fd = fd.unwrap();
    t.vfs
        .write_all(&fd, 0, Bytes::copy_from_slice(data), false)
        .await
        .unwrap();
    let how = crate::disk::XattrSet::Either;
    disk.set_xattr(ME, node.fd(), "user.SAMBA_STREAMS", b"1", how)
        .await
        .unwrap();
}

pub(super) async fn growing<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let stream = open(&t, &file, "big").await;
    let early = open(&t, &file, "big").await;
    t.write(&stream, 0, &[1; 100_000]).await;
    assert!(in_depot(&t, &file).await);
    for stream in [&stream, &early, &open(&t, &file, "BIG").await] {
        assert_eq!(t.read(stream).await, [1; 100_000]);
    }
    t.write(&early, 0, b"early").await;
    assert_eq!(t.read(&stream).await[..6], *b"early\x01");
    assert_eq!(names(&t, &file).await, [("big".to_owned(), 100_000)]);
    t.vfs.set_size(&stream, 3).await.unwrap();
    assert_eq!(t.read(&early).await, b"ear");
    let durable = WriteMode { durable: true };
    t.vfs
        .write(&stream, 0, Bytes::from_static(b"d"), durable)
        .await
        .unwrap();
    t.vfs.sync(&stream, SyncScope::All).await.unwrap();
    t.vfs.sync(&file, SyncScope::Data).await.unwrap();
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
    let all = Range {
        offset: 0,
        len: 1 << 40,
    };
    t.vfs.zero(&stream, all).await.unwrap();
    assert_eq!(t.read(&stream).await, vec![0; 1 << 16]);
    let long = "n".repeat(240);
    let stream = open(&t, &file, &long).await;
    t.write(&stream, 0, b"long").await;
    assert_eq!(t.read(&open(&t, &file, &long).await).await, b"long");
    let how = StreamOpen::Either;
    let over = t.vfs.open_stream(ME, &file, &"n".repeat(250), how).await;
    assert_eq!(over.unwrap_err(), VfsError::NameTooLong);
}

/// In either store: `one` and `two` are as large as both take.
pub(super) async fn renamed<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let (small, big) = (open(&t, &file, "small").await, open(&t, &file, "big").await);
    t.write(&small, 0, b"S").await;
    t.write(&big, 0, &[b'B'; 1000]).await;
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
    assert_eq!(t.read(&big).await.len(), 1000);
    assert_eq!(
        names(&t, &file).await,
        [("large".to_owned(), 1000), ("tiny".to_owned(), 1)]
    );
    let big = t.vfs.rename_stream(ME, &big, "TINY", true).await.unwrap();
    assert_eq!(names(&t, &file).await, [("TINY".to_owned(), 1000)]);
    drop(big);
    // Over one that is in the other place, and one there over another.
    t.vfs
        .remove_stream(ME, &open(&t, &file, "TINY").await)
        .await
        .unwrap();
    for (from, to) in [("here", "there"), ("there", "here")] {
        let here = open(&t, &file, "here").await;
        t.write(&here, 0, b"here").await;
        match t.vfs.options().streams {
            StreamStore::Xattr => as_samba(&t, &file, "there", b"there").await,
            StreamStore::Depot => in_attribute(&t, &file, "there", b"there").await,
        }
        drop(here);
        let stream = open(&t, &file, from).await;
        let renamed = t.vfs.rename_stream(ME, &stream, to, true).await.unwrap();
        assert_eq!(t.read(&renamed).await, from.as_bytes());
        assert_eq!(names(&t, &file).await, [(to.to_owned(), from.len() as u64)]);
        t.vfs.remove_stream(ME, &renamed).await.unwrap();
        assert!(names(&t, &file).await.is_empty());
    }
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

/// What is in the depot of a share that keeps streams in attributes is read and written there.
pub(super) async fn found_in_the_depot<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    in_attribute(&t, &file, "both", b"attribute").await;
    as_samba(&t, &file, "big", &[7; 100_000]).await;
    as_samba(&t, &file, "both", b"stale").await;
    let all = [("big".to_owned(), 100_000), ("both".to_owned(), 9)];
    assert_eq!(names(&t, &file).await, all);
    let big = open(&t, &file, "BIG").await;
    t.write(&big, 100_000, b"more").await;
    t.vfs.sync(&big, SyncScope::All).await.unwrap();
    assert!(t.read(&big).await.ends_with(b"\x07more"));
    let both = open(&t, &file, "both").await;
    assert_eq!(t.read(&both).await, b"attribute");
    t.vfs.remove_stream(ME, &both).await.unwrap();
    assert_eq!(names(&t, &file).await, [("big".to_owned(), 100_004)]);
    t.vfs.remove_stream(ME, &big).await.unwrap();
    assert!(names(&t, &file).await.is_empty());
}

/// Files and folders whose streams are in either place, and in both: where all go together, with
/// what is said of it.
pub(super) async fn converted<D: Disk>(t: Case<D>) {
    let dir = t.dir("d").await;
    let (mixed, samba) = (t.file("d/mixed").await, t.file("samba").await);
    t.file("plain").await;
    in_attribute(&t, &mixed, "x", b"1").await;
    as_samba(&t, &mixed, "y", &[2; 1000]).await;
    // A move that was cut off: the attribute counts.
    as_samba(&t, &mixed, "x", b"stale").await;
    as_samba(&t, &samba, "empty", b"").await;
    in_attribute(&t, &dir, "of a folder", b"3").await;
    as_samba(&t, &t.vfs.root(), "of the root", b"4").await;
    let told = std::cell::RefCell::new(Vec::new());
    let tell =
        |path: &str, moved: VfsResult<Moved>| told.borrow_mut().push((path.to_owned(), moved));
    let done = t.vfs.convert_streams(tell).await.unwrap();
    let mut paths: Vec<_> = told.take().into_iter().map(|(path, _)| path).collect();
    paths.sort();
    let attributes = t.vfs.options().streams == StreamStore::Xattr;
    match attributes {
        true => assert_eq!(paths, [".", "d/mixed", "samba"]),
        false => assert_eq!(paths, ["d", "d/mixed"]),
    }
    assert_eq!((done.inodes, done.failed), (paths.len() as u64, 0));
    assert!(!done.depot);
    for (node, stream, data) in [
        (&mixed, "x", &b"1"[..]),
        (&mixed, "y", &[2; 1000]),
        (&samba, "empty", b""),
        (&dir, "of a folder", b"3"),
        (&t.vfs.root(), "of the root", b"4"),
    ] {
        assert_eq!(
            t.read(&open(&t, node, stream).await).await,
            data,
            "{stream}"
        );
        let attribute = format!("user.DosStream.{stream}:$DATA");
        let there = t.vfs.disk().get_xattr(node.fd(), &attribute).await;
        assert_eq!(there.is_ok(), attributes, "{stream}");
        assert_eq!(in_depot(&t, node).await, !attributes, "{stream}");
        let left = t.vfs.disk().list_xattr(node.fd()).await.unwrap();
        let mark = left.iter().any(|name| name == "user.SAMBA_STREAMS");
        assert_eq!(mark, !attributes, "{left:?}");
        assert!(
            !left.iter().any(|name| name.contains("holdfast")),
            "{left:?}"
        );
    }
    assert_eq!(t.gone_outside(b".streams").await, attributes);
    // There is nothing left to do.
    let again = t.vfs.convert_streams(tell).await.unwrap();
    assert_eq!((again, told.take()), (Converted::default(), Vec::new()));
}

/// What does not fit into attributes stays whole where it was, and is told.
pub(super) async fn not_converted<D: Disk>(t: Case<D>) {
    let (big, name) = (t.file("big").await, t.file("name").await);
    as_samba(&t, &big, "a", b"1").await;
    as_samba(&t, &big, "b", &[2; 70_000]).await;
    let long = "n".repeat(240);
    as_samba(&t, &name, &long, b"3").await;
    let mut told = Vec::new();
    let tell = |path: &str, moved| told.push((path.to_owned(), moved));
    let done = t.vfs.convert_streams(tell).await.unwrap();
    told.sort_by(|a, b| a.0.cmp(&b.0));
    let failed = [
        ("big".to_owned(), Err(VfsError::TooLarge)),
        ("name".to_owned(), Err(VfsError::NameTooLong)),
    ];
    assert!(told == failed && done.failed == 2 && done.inodes == 0 && done.depot);
    for node in [&big, &name] {
        let left = t.vfs.disk().list_xattr(node.fd()).await.unwrap();
        assert!(
            !left.iter().any(|name| name.ends_with(":$DATA")),
            "{left:?}"
        );
    }
    let sizes = [("a".to_owned(), 1), ("b".to_owned(), 70_000)];
    assert_eq!(names(&t, &big).await, sizes);
    assert_eq!(names(&t, &name).await, [(long, 1)]);
}

/// The number of a device is another one after a restart: the folder is where the inode says.
pub(super) async fn after_a_restart<D: Disk>(t: Case<D>) {
    let disk = t.vfs.disk();
    let file = t.file("f").await;
    let stream = open(&t, &file, "big").await;
    t.write(&stream, 0, &[b'B'; 5000]).await;
    let place = "user.DosStream./depot";
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
    assert!(t.vfs.eas(&file).await.unwrap().is_empty());
    // Under the name that the place had before, too; and then where Samba looks for it.
    disk.remove_xattr(ME, file.fd(), place).await.unwrap();
    let before = "user.holdfast.depot";
    disk.set_xattr(ME, file.fd(), before, told.as_bytes(), how)
        .await
        .unwrap();
    assert_eq!(names(&t, &file).await.len(), 2);
    let other = t.file("other").await;
    let big = open(&t, &other, "big").await;
    t.write(&big, 0, &[b'B'; 5000]).await;
    // The folder that the file had under the old number is gone, as after a conversion.
    let above = folder(&t, &format!(".streams/{}", here[..2].join("/"))).await;
    disk.unlink(ME, &above, here[2].as_bytes(), true)
        .await
        .unwrap();
    let done = t.vfs.convert_streams(|_, _| {}).await.unwrap();
    assert!(
        done.moved.folder && done.inodes == 1 && done.failed == 0,
        "{done:?}"
    );
    assert!(in_depot(&t, &file).await);
    assert_eq!(names(&t, &file).await.len(), 2);
    assert!(disk.get_xattr(file.fd(), before).await.is_err());
    // As if it had been cut off before the inode said so.
    disk.set_xattr(ME, file.fd(), place, told.as_bytes(), how)
        .await
        .unwrap();
    open(&t, &file, "third").await;
    assert_eq!(names(&t, &file).await.len(), 3);
    t.remove("f").await.unwrap();
    assert!(!in_depot(&t, &file).await && in_depot(&t, &other).await);
}

async fn folder<D: Disk>(t: &Case<D>, path: &str) -> D::Fd {
    let how = crate::disk::OpenHow {
        path_only: true,
        ..Default::default()
    };
    let mut at = t.vfs.disk().root();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let opened = t.vfs.disk().open_at(ME, &at, name.as_bytes(), how).await;
        at = opened.unwrap();
    }
    at
}

async fn make_folder<D: Disk>(t: &Case<D>, path: &str) {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let above = folder(t, above).await;
    let made = t
        .vfs
        .disk()
        .make_dir(ME, &above, name.as_bytes(), 0o755)
        .await;
    assert!(made.is_ok() || made.unwrap_err().is(&[libc::EEXIST]));
}
