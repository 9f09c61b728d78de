//! Named streams in both stores.

use super::conversions::{as_samba, in_attribute};
use super::*;
use crate::posix::{
    depot::STREAMS_MAX,
    samba_xattr::{depot_path, stream_file},
    streams::IN_XATTR_MAX,
};

pub(super) async fn open<D: Disk>(t: &Case<D>, node: &PosixNode<D>, name: &str) -> PosixNode<D> {
    let (stream, _) = t
        .vfs
        .open_stream(ME, node, name, StreamOpen::Either)
        .await
        .unwrap();
    t.opened(&stream, true).await
}

pub(super) async fn names<D: Disk>(t: &Case<D>, node: &PosixNode<D>) -> Vec<(String, u64)> {
    let streams = t.vfs.streams(node).await.unwrap();
    streams.into_iter().map(|s| (s.name, s.size)).collect()
}

/// Whether the depot has a folder for the inode.
pub(super) async fn in_depot<D: Disk>(t: &Case<D>, node: &PosixNode<D>) -> bool {
    folder_in_depot(t, node).await.is_some()
}

/// The depot's folder of the inode.
pub(super) async fn folder_in_depot<D: Disk>(t: &Case<D>, node: &PosixNode<D>) -> Option<D::Fd> {
    let disk = t.vfs.disk();
    let how = crate::disk::OpenHow {
        path_only: true,
        ..Default::default()
    };
    let mut at = disk.root();
    let [a, b, c] = depot_path(node.key().fs, node.key().ino);
    for name in [".streams", &a, &b, &c] {
        at = disk.open_at(ME, &at, name.as_bytes(), how).await.ok()?;
    }
    Some(at)
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
    // Other programs can make attributes of such names; no client could open what is listed.
    for bad in ["a:b", "a/b", "a\\b"] {
        in_attribute(&t, &file, bad, b"").await;
    }
    assert_eq!(names(&t, &file).await.len(), 2);
    t.vfs.remove_stream(ME, &empty).await.unwrap();
    let read = t.vfs.read(&empty, 0, 1, BytesMut::new()).await;
    assert_eq!(read.unwrap_err(), VfsError::NotFound);
    assert!(!in_depot(&t, &file).await);
}

/// A stream that an attribute cannot hold is refused, and the old stream stays.
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

/// Adds streams until the attributes of the inode are full (on ext4 and the simulated disk; others
/// have room for all).
pub(super) async fn many<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let mut made = 0;
    for i in 0..40 {
        let name = format!("s{i:02}");
        let opened = t.vfs.open_stream(ME, &file, &name, StreamOpen::New).await;
        let written = match opened {
            Ok((stream, _)) => {
                let stream = t.opened(&stream, true).await;
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
    // Clients do not see the depot.
    assert_eq!(t.names("").await, ["f"]);
    assert_eq!(
        t.vfs
            .copy((&other, 0), (&stream, 0), 1 << 16)
            .await
            .unwrap(),
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

/// The future of a write to a file does not hold that of a write to a stream, which is much larger.
pub(super) async fn futures<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let plain = t.vfs.write(&file, 0, Bytes::new(), WriteMode::default());
    let of_stream = t.vfs.stream_write(&file, 0, Bytes::new());
    assert!(size_of_val(&plain) < size_of_val(&of_stream));
}

/// [MS-FSA] 2.1.4.17: the change of a stream is one of its file.
pub(super) async fn times<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let mut stream = open(&t, &file, "0").await;
    let long_ago = Timestamp {
        secs: 1_000_000_000,
        nanos: 0,
    };
    let back = SetAttr {
        written: Some(long_ago),
        ..SetAttr::default()
    };
    for keeps in [false, true] {
        t.vfs.keep_write_time(&stream, keeps);
        for how in ["rename", "write", "size", "zero"] {
            t.vfs.set_attr(ME, &file, &back).await.unwrap();
            match how {
                "rename" => {
                    let to = format!("renamed {keeps}");
                    let renamed = t.vfs.rename_stream(ME, &stream, &to, false).await;
                    stream = renamed.unwrap();
                }
                "write" => t.write(&stream, 0, b"changed").await,
                "size" => t.vfs.set_size(&stream, 3).await.unwrap(),
                _ => {
                    let range = Range { offset: 0, len: 2 };
                    t.vfs.zero(&stream, range).await.unwrap();
                }
            }
            let written = t.vfs.attr(&file).await.unwrap().written;
            assert_eq!(written == long_ago, keeps, "{how}: {written:?}");
        }
    }
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
    // A stream replaces one in the other place, and one there replaces another.
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

/// A file has as many streams as can be listed, and is removed with all that others made besides.
pub(super) async fn most_in_the_depot<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    open(&t, &file, "0").await;
    let folder = folder_in_depot(&t, &file).await.unwrap();
    let from_outside = async |number: usize| {
        let how = crate::disk::OpenHow {
            write: true,
            create: Some(0o644),
            ..Default::default()
        };
        let name = stream_file(&number.to_string()).unwrap();
        let disk = t.vfs.disk();
        disk.open_at(ME, &folder, &name, how).await.unwrap();
    };
    for number in 1..STREAMS_MAX {
        from_outside(number).await;
    }
    let one_more = t.vfs.open_stream(ME, &file, "more", StreamOpen::Either);
    assert_eq!(one_more.await.unwrap_err(), VfsError::TooLarge);
    assert_eq!(names(&t, &file).await.len(), STREAMS_MAX);
    from_outside(STREAMS_MAX).await;
    // One of them can be opened although there are too many to be listed.
    open(&t, &file, "77").await;
    t.remove("f").await.unwrap();
    assert!(!in_depot(&t, &file).await);
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

/// Linux lists no attributes of an inode whose names are too long together.
#[test]
fn clients_give_a_file_no_more_names_than_can_be_listed() {
    let (disk, link) = sim(SimOptions {
        xattr_space: 1 << 20,
        ..SimOptions::default()
    });
    block_on(async {
        let t = Case::new(disk, link).await;
        let file = t.file("f").await;
        let open = |number: u64, how| {
            let (name, vfs, file) = (format!("{number:0100}"), &t.vfs, &file);
            async move { vfs.open_stream(ME, file, &name, how).await }
        };
        let mut made = 0;
        let refused = loop {
            match open(made, StreamOpen::New).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert!(refused == VfsError::TooLarge && made > 400, "{made}");
        let (last, _) = open(made - 1, StreamOpen::Existing).await.unwrap();
        let renamed = t
            .vfs
            .rename_stream(ME, &last, &"x".repeat(234), false)
            .await;
        assert_eq!(renamed.map(drop), Err(VfsError::TooLarge));
        let ea = |name: u64, value: &[u8]| (format!("{name:0150}"), value.to_vec());
        let refused = t.vfs.set_eas(ME, &file, &[ea(1, b"1")]).await;
        assert_eq!(refused, Err(VfsError::TooLarge));
        let all = t.vfs.streams(&file).await.unwrap();
        assert_eq!(all.len() as u64, made);
        // A name that goes makes room for another one.
        t.vfs.remove_stream(ME, &last).await.unwrap();
        t.vfs.set_eas(ME, &file, &[ea(1, b"1")]).await.unwrap();
        let change = [ea(1, b""), ea(2, b"2")];
        t.vfs.set_eas(ME, &file, &change).await.unwrap();
        assert_eq!(t.vfs.eas(&file).await, Ok(vec![ea(2, b"2")]));
    });
}
