//! Tests of streams that are not in the place that the share's options name: they are found there, and converted.

use super::{
    cuts::mount,
    streams::{folder_in_depot, in_depot, names, open},
    users::open_to_all,
    *,
};
use crate::posix::{Converted, Moved, samba_xattr::depot_path};

/// A stream as Samba's `streams_xattr` keeps it.
pub(super) async fn in_attribute<D: Disk>(
    t: &Case<D>,
    node: &PosixNode<D>,
    name: &str,
    data: &[u8],
) {
    let (name, how) = (
        format!("user.DosStream.{name}:$DATA"),
        crate::disk::XattrSet::Create,
    );
    let value = [data, b"\0"].concat();
    let set = t.vfs.disk().set_xattr(ME, node.fd(), &name, &value, how);
    set.await.unwrap();
}

/// A stream as Samba's `streams_depot` keeps it.
pub(super) async fn as_samba<D: Disk>(t: &Case<D>, node: &PosixNode<D>, name: &str, data: &[u8]) {
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

/// Samba can keep a long stream in several attributes (`max xattrs per stream`).
pub(super) async fn in_several_attributes<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    for (name, value) in [
        ("user.DosStream.long:$DATA", &b"first\x01"[..]),
        ("user.DosStreamExt.1.long:$DATA", b"second"),
        ("user.DosStream.alone:$DATA", b"first\x01"),
    ] {
        let how = crate::disk::XattrSet::Create;
        let set = t.vfs.disk().set_xattr(ME, file.fd(), name, value, how);
        set.await.unwrap();
    }
    let (long, alone) = (
        open(&t, &file, "long").await,
        open(&t, &file, "alone").await,
    );
    let refused = VfsError::NotSupported;
    let read = t.vfs.read(&long, 0, 9, BytesMut::new()).await;
    assert_eq!(read.unwrap_err(), refused);
    let data = Bytes::from_static(b"x");
    let written = t.vfs.write(&long, 0, data, WriteMode::default()).await;
    assert_eq!(written.unwrap_err(), refused);
    assert_eq!(t.vfs.attr(&long).await.unwrap_err(), refused);
    assert_eq!(t.read(&alone).await, b"first\x01");
    t.vfs.remove_stream(ME, &long).await.unwrap();
    assert_eq!(names(&t, &file).await, [("alone".to_owned(), 6)]);
}

/// Streams in the depot of a share that keeps streams in attributes are read and written there.
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

/// Files and folders whose streams are in either place, and in both: their place afterwards, and the report.
pub(super) async fn converted<D: Disk>(t: Case<D>) {
    let dir = t.dir("d").await;
    let (mixed, samba) = (t.file("d/mixed").await, t.file("samba").await);
    t.file("plain").await;
    in_attribute(&t, &mixed, "x", b"1").await;
    // No file can have this name, so it is in its place.
    in_attribute(&t, &mixed, "a/b", b"0").await;
    as_samba(&t, &mixed, "y", &[2; 1000]).await;
    // A move that was cut off: the attribute counts.
    as_samba(&t, &mixed, "x", b"stale").await;
    as_samba(&t, &samba, "empty", b"").await;
    in_attribute(&t, &dir, "of a folder", b"3").await;
    as_samba(&t, &t.vfs.root(), "of the root", b"4").await;
    let reports = std::cell::RefCell::new(Vec::new());
    let report =
        |path: &str, moved: VfsResult<Moved>| reports.borrow_mut().push((path.to_owned(), moved));
    let done = t.vfs.convert_streams(report).await.unwrap();
    let mut paths: Vec<_> = reports.take().into_iter().map(|(path, _)| path).collect();
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
    let foreign = "user.DosStream.a/b:$DATA";
    assert!(t.vfs.disk().get_xattr(mixed.fd(), foreign).await.is_ok());
    assert_eq!(t.gone_outside(b".streams").await, attributes);
    // There is nothing left to do.
    let again = t.vfs.convert_streams(report).await.unwrap();
    assert_eq!((again, reports.take()), (Converted::default(), Vec::new()));
}

/// A stream that does not fit into attributes stays whole in its place, and is reported.
pub(super) async fn not_converted<D: Disk>(t: Case<D>) {
    let (big, name) = (t.file("big").await, t.file("name").await);
    as_samba(&t, &big, "a", b"1").await;
    as_samba(&t, &big, "b", &[2; 70_000]).await;
    let long = "n".repeat(240);
    as_samba(&t, &name, &long, b"3").await;
    let mut reports = Vec::new();
    let report = |path: &str, moved| reports.push((path.to_owned(), moved));
    let done = t.vfs.convert_streams(report).await.unwrap();
    reports.sort_by(|a, b| a.0.cmp(&b.0));
    let failed = [
        ("big".to_owned(), Err(VfsError::TooLarge)),
        ("name".to_owned(), Err(VfsError::NameTooLong)),
    ];
    assert!(reports == failed && done.failed == 2 && done.inodes == 0 && done.depot);
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

/// After a restart the device has another number: the folder is found by the inode's attribute.
pub(super) async fn after_a_restart<D: Disk>(t: Case<D>) {
    let disk = t.vfs.disk();
    let file = t.file("f").await;
    let stream = open(&t, &file, "big").await;
    t.write(&stream, 0, &[b'B'; 5000]).await;
    let place = "user.DosStream./depot";
    let here = depot_path(file.key().fs, file.key().ino);
    let noted = disk.get_xattr(file.fd(), place).await.unwrap();
    assert_eq!(noted, here.join("/").into_bytes());
    // As if it had been made when the device had another number.
    let there = depot_path(file.key().fs ^ 0x17, file.key().ino);
    for depth in 1..4 {
        let path = format!(".streams/{}", there[..depth].join("/"));
        make_folder(&t, &path).await;
    }
    let old = folder(&t, &format!(".streams/{}", here.join("/"))).await;
    let new = folder(&t, &format!(".streams/{}", there.join("/"))).await;
    let name = b":big:$DATA";
    disk.rename(ME, (&old, name), (&new, name), false)
        .await
        .unwrap();
    let how = crate::disk::XattrSet::Either;
    let noted = there.join("/");
    disk.set_xattr(ME, file.fd(), place, noted.as_bytes(), how)
        .await
        .unwrap();
    let file = t.node("f").await;
    assert_eq!(names(&t, &file).await, [("big".to_owned(), 5000)]);
    let again = open(&t, &file, "big").await;
    assert_eq!(t.read(&again).await, [b'B'; 5000]);
    let second = open(&t, &file, "second").await;
    t.write(&second, 0, &[b'S'; 5000]).await;
    assert_eq!(names(&t, &file).await.len(), 2);
    // A copy of a file with its attributes does not get the streams of the original.
    let copy = t.file("copy").await;
    for (name, value) in [(place, noted.as_bytes()), ("user.SAMBA_STREAMS", b"1")] {
        disk.set_xattr(ME, copy.fd(), name, value, how)
            .await
            .unwrap();
    }
    assert!(names(&t, &copy).await.is_empty());
    open(&t, &copy, "own").await;
    assert_eq!(names(&t, &file).await.len(), 2);
    assert!(t.vfs.eas(&file).await.unwrap().is_empty());
    brought_home(&t, &file, &here, &noted).await;
}

/// A sync of a file whose folder is elsewhere searches for the folder once.
#[test]
fn a_folder_elsewhere_is_found_as_quickly() {
    let disk = SimDisk::new(SimOptions::default());
    block_on(async {
        let t = mount(disk.clone(), StreamStore::Depot).await;
        let file = t.file("f").await;
        t.write(&open(&t, &file, "s").await, 0, b"data").await;
        let cost = async || {
            let before = disk.counts().0;
            t.vfs.sync(&file, SyncScope::All).await.unwrap();
            disk.counts().0 - before
        };
        let at_home = cost().await;
        let FileKey { fs, ino, .. } = file.key();
        let (here, there) = (depot_path(fs, ino), depot_path(fs ^ 0x17, ino));
        for depth in 1..3 {
            let path = format!(".streams/{}", there[..depth].join("/"));
            make_folder(&t, &path).await;
        }
        let old = folder(&t, &format!(".streams/{}", here[..2].join("/"))).await;
        let new = folder(&t, &format!(".streams/{}", there[..2].join("/"))).await;
        let (from, to) = (here[2].as_bytes(), there[2].as_bytes());
        let moved = disk.rename(ME, (&old, from), (&new, to), false);
        moved.await.unwrap();
        let (how, noted) = (crate::disk::XattrSet::Either, there.join("/"));
        let place = "user.DosStream./depot";
        let set = disk.set_xattr(ME, file.fd(), place, noted.as_bytes(), how);
        set.await.unwrap();
        assert_eq!(cost().await, at_home);
        assert_eq!(names(&t, &file).await, [("s".to_owned(), 4)]);
    });
}

/// A share over the same folder may have made the depot.
#[test]
fn a_sync_looks_for_streams_in_the_depot_once_a_share_has_one() {
    let disk = SimDisk::new(SimOptions::default());
    block_on(async {
        let t = mount(disk.clone(), StreamStore::Depot).await;
        let beside = mount(disk.clone(), StreamStore::Xattr).await;
        t.file("f").await;
        let file = beside.node("f").await;
        let cost = async || {
            let before = disk.counts().0;
            beside.vfs.sync(&file, SyncScope::All).await.unwrap();
            disk.counts().0 - before
        };
        let alone = cost().await;
        open(&t, &t.file("g").await, "s").await;
        assert!(cost().await > alone);
    });
}

#[test]
fn streams_whose_names_cannot_be_listed_together_stay_in_the_depot() {
    let (disk, link) = sim(SimOptions {
        xattr_space: 1 << 20,
        ..SimOptions::default()
    });
    block_on(async {
        let t = Case::new(disk, link).await;
        let file = t.file("f").await;
        for number in 0..500 {
            as_samba(&t, &file, &format!("{number:0100}"), b"").await;
        }
        let report = |_: &str, moved| assert_eq!(moved, Err(VfsError::TooLarge));
        let done = t.vfs.convert_streams(report).await.unwrap();
        assert_eq!((done.failed, done.depot), (1, true));
        assert_eq!(names(&t, &file).await.len(), 500);
    });
}

/// Samba made the folder of the streams of alice's file as bob. No stream is made there that would not be opened.
#[test]
fn streams_in_another_users_folder_have_the_permissions_of_their_file() {
    let disk = SimDisk::new(SimOptions::default());
    block_on(async {
        let t = mount(disk.clone(), StreamStore::Depot).await;
        let (alice, _, root) = open_to_all(&t).await;
        let new = NewNode::default();
        let file = t.vfs.create(&alice, &root, "f", &new, false).await;
        let file = file.unwrap().0;
        let size = async |stream: &str, how: StreamOpen| {
            let opened = t.vfs.open_stream(&alice, &file, stream, how).await;
            let attr = t.vfs.attr(&opened?.0).await;
            attr.map(|attr| attr.size)
        };
        let (made, found) = (StreamOpen::New, StreamOpen::Existing);
        assert_eq!(size("one", made).await, Ok(0));
        let (folder, bob) = (folder_in_depot(&t, &file).await.unwrap(), Some(4002));
        disk.set_owner(ME, &folder, bob, bob).await.unwrap();
        assert_eq!(size("two", made).await, Ok(0));
        assert_eq!(size("two", found).await, Ok(0));
        // An ACL permits more than the bits show.
        let (how, acl) = (crate::disk::XattrSet::Either, "system.posix_acl_access");
        let set = disk.set_xattr(ME, file.fd(), acl, b"bob's", how);
        set.await.unwrap();
        assert_eq!(size("two", found).await, Err(VfsError::AccessDenied));
        assert_eq!(size("three", made).await, Err(VfsError::AccessDenied));
        assert!(disk.stat_at(&folder, b":three:$DATA").await.is_err());
        // Without the mark it is the folder of a dead inode, and the service takes it over.
        let mark = "user.SAMBA_STREAMS";
        disk.remove_xattr(ME, file.fd(), mark).await.unwrap();
        assert_eq!(size("three", made).await, Ok(0));
        assert_eq!(size("three", found).await, Ok(0));
        assert_eq!(disk.stat(&folder).await.unwrap().uid, 0);
        assert!(disk.stat_at(&folder, b":two:$DATA").await.is_err());
    });
}

/// A file system may be read-only although the share is not: a snapshot is, and one whose disk has failed.
#[test]
fn a_stream_in_the_depot_of_a_file_system_that_is_read_only_is_read() {
    let disk = SimDisk::new(SimOptions::default());
    block_on(async {
        let t = mount(disk.clone(), StreamStore::Depot).await;
        let file = t.file("f").await;
        t.write(&open(&t, &file, "s").await, 0, b"data").await;
        disk.set_read_only(true);
        let found = t
            .vfs
            .open_stream(ME, &file, "s", StreamOpen::Existing)
            .await;
        let (stream, _) = found.unwrap();
        let both = IoAccess {
            read: true,
            write: true,
        };
        let refused = t.vfs.open(ME, &stream, both).await;
        assert_eq!(refused.unwrap_err(), VfsError::ReadOnly);
        assert_eq!(t.read(&t.opened(&stream, false).await).await, b"data");
    });
}

/// The place of an inode on a file system below the root may be that of an inode of the root's own, which had the same
/// device number at an earlier start.
#[test]
fn the_folder_of_an_inode_on_another_file_system_is_not_emptied() {
    let disk = SimDisk::new(SimOptions::default());
    block_on(async {
        let t = mount(disk.clone(), StreamStore::Depot).await;
        let (file, other) = (t.file("f").await, t.file("other").await);
        // As if `other` had the number of `f` on a file system below the root.
        let mut stat = disk.stat(other.fd()).await.unwrap();
        stat.key = FileKey {
            fs: stat.key.fs ^ 0x17,
            ino: file.key().ino,
            generation: 7,
        };
        let below = PosixNode::path_only(other.fd().clone(), &stat, Named::default(), None);
        as_samba(&t, &below, "kept", b"1").await;
        let mark = "user.SAMBA_STREAMS";
        disk.remove_xattr(ME, other.fd(), mark).await.unwrap();
        let place = depot_path(below.key().fs, below.key().ino).join("/");
        let there = folder(&t, &format!(".streams/{place}")).await;
        let (how, label) = (crate::disk::XattrSet::Either, "user.holdfast.generation");
        for (name, value) in [("user.DosStream./depot", place.as_bytes()), (mark, b"1")] {
            let set = disk.set_xattr(ME, file.fd(), name, value, how);
            set.await.unwrap();
        }
        let make = async || {
            let made = t.vfs.open_stream(ME, &below, "new", StreamOpen::New);
            made.await.map(drop)
        };
        assert_eq!(make().await, Err(VfsError::NotSupported));
        assert_eq!(names(&t, &file).await, [("kept".to_owned(), 1)]);
        let set = disk.set_xattr(ME, &there, label, b"0000000000000008", how);
        set.await.unwrap();
        assert_eq!(make().await, Err(VfsError::NotSupported));
        assert!(disk.stat_at(&there, b":kept:$DATA").await.is_ok());
        // The label says that the streams are those that the same inode had.
        let set = disk.set_xattr(ME, &there, label, b"0000000000000007", how);
        set.await.unwrap();
        assert_eq!(make().await, Ok(()));
        assert_eq!(names(&t, &below).await, [("new".to_owned(), 0)]);
        // An inode of the same file system had the number before, and was removed on the host.
        let system = disk.stat_fs(other.fd()).await.unwrap().id;
        for (id, made) in [(system ^ 1, Err(VfsError::NotSupported)), (system, Ok(()))] {
            let foreign = format!("0000000000000008-{id:016X}");
            let set = disk.set_xattr(ME, &there, label, foreign.as_bytes(), how);
            set.await.unwrap();
            let newer = t.vfs.open_stream(ME, &below, "newer", StreamOpen::New);
            assert_eq!(newer.await.map(drop), made);
        }
        assert_eq!(names(&t, &below).await, [("newer".to_owned(), 0)]);
    });
}

/// The owner of a file notes that its streams are in a folder which is that of another inode.
pub(super) async fn of_another_inode<D: Disk>(t: Case<D>) {
    let (disk, file) = (t.vfs.disk(), t.file("f").await);
    let there = depot_path(file.key().fs ^ 0x17, file.key().ino);
    make_folder(&t, ".streams").await;
    for depth in 1..4 {
        let path = format!(".streams/{}", there[..depth].join("/"));
        make_folder(&t, &path).await;
    }
    let foreign = folder(&t, &format!(".streams/{}", there.join("/"))).await;
    let create = crate::disk::OpenHow {
        write: true,
        create: Some(0o644),
        ..Default::default()
    };
    let secret = b":secret:$DATA";
    drop(disk.open_at(ME, &foreign, secret, create).await.unwrap());
    let (how, noted) = (crate::disk::XattrSet::Either, there.join("/"));
    for (fd, name, value) in [
        (
            &foreign,
            "user.holdfast.generation",
            &b"0000000000000007"[..],
        ),
        (file.fd(), "user.DosStream./depot", noted.as_bytes()),
        (file.fd(), "user.SAMBA_STREAMS", b"1"),
    ] {
        disk.set_xattr(ME, fd, name, value, how).await.unwrap();
    }
    assert!(names(&t, &file).await.is_empty());
    open(&t, &file, "own").await;
    assert_eq!(names(&t, &file).await, [("own".to_owned(), 0)]);
    assert!(in_depot(&t, &file).await);
    t.vfs.convert_streams(|_, _| {}).await.unwrap();
    // Its own place may have the folder of an inode that was removed on the host.
    let here = depot_path(file.key().fs, file.key().ino);
    let here = folder(&t, &format!(".streams/{}", here.join("/"))).await;
    let label = "user.holdfast.generation";
    let set = disk.set_xattr(ME, &here, label, b"0000000000000007", how);
    set.await.unwrap();
    assert!(names(&t, &file).await.is_empty());
    open(&t, &file, "new").await;
    assert_eq!(names(&t, &file).await, [("new".to_owned(), 0)]);
    // A removal takes the streams of no other inode along.
    let set = disk.set_xattr(ME, &here, label, b"0000000000000007", how);
    set.await.unwrap();
    t.remove("f").await.unwrap();
    assert!(disk.stat_at(&here, b":new:$DATA").await.is_ok());
    assert!(disk.stat_at(&foreign, secret).await.is_ok());
}

/// Converts a share where the folder of `file`'s streams is at the given place: afterwards it is where Samba looks for
/// it.
async fn brought_home<D: Disk>(t: &Case<D>, file: &PosixNode<D>, here: &[String; 3], noted: &str) {
    let (disk, place, how) = (
        t.vfs.disk(),
        "user.DosStream./depot",
        crate::disk::XattrSet::Either,
    );
    // Under the name that the place had before, too.
    disk.remove_xattr(ME, file.fd(), place).await.unwrap();
    let before = "user.holdfast.depot";
    disk.set_xattr(ME, file.fd(), before, noted.as_bytes(), how)
        .await
        .unwrap();
    assert_eq!(names(t, file).await.len(), 2);
    let other = t.file("other").await;
    let big = open(t, &other, "big").await;
    t.write(&big, 0, &[b'B'; 5000]).await;
    // The folder that the file had under the old number is gone, as after a conversion.
    let above = folder(t, &format!(".streams/{}", here[..2].join("/"))).await;
    disk.unlink(ME, &above, here[2].as_bytes(), true)
        .await
        .unwrap();
    let done = t.vfs.convert_streams(|_, _| {}).await.unwrap();
    assert!(
        done.moved.folder && done.inodes == 1 && done.failed == 0,
        "{done:?}"
    );
    assert!(in_depot(t, file).await);
    assert_eq!(names(t, file).await.len(), 2);
    assert!(disk.get_xattr(file.fd(), before).await.is_err());
    // The conversion was interrupted before the inode's attribute was changed.
    disk.set_xattr(ME, file.fd(), place, noted.as_bytes(), how)
        .await
        .unwrap();
    open(t, file, "third").await;
    assert_eq!(names(t, file).await.len(), 3);
    t.remove("f").await.unwrap();
    assert!(!in_depot(t, file).await && in_depot(t, &other).await);
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
