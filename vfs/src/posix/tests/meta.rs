//! Attributes, times, security descriptors, extended attributes, whole creation.

use super::{cuts::pending_once, *};
use crate::{NewSecurity, Timestamp, disk::XattrSet, posix::dos};

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

/// A descriptor with an owner and nothing else.
pub(super) fn descriptor(rid: u8) -> Vec<u8> {
    let mut sd = vec![
        1, 0, 0, 0x80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    sd.extend([1, 1, 0, 0, 0, 0, 0, 5, rid, 0, 0, 0]);
    sd
}

async fn raw<D: Disk>(t: &Case<D>, node: &PosixNode<D>, name: &str) -> Option<Vec<u8>> {
    t.vfs.disk().get_xattr(node.fd(), name).await.ok()
}

pub(super) async fn attributes<D: Disk>(t: Case<D>) {
    let new = NewNode {
        dos_attributes: dos::ARCHIVE | dos::HIDDEN,
        ..NewNode::default()
    };
    let (file, attr) = t.new_file("f", &new).await.unwrap();
    assert_eq!(attr.dos_attributes, dos::ARCHIVE | dos::HIDDEN);
    assert_eq!(t.vfs.attr(&file).await.unwrap(), attr);
    assert_eq!(t.find("f").await.unwrap().found.unwrap().1, attr);
    assert_eq!(
        (attr.size, attr.links, attr.kind),
        (0, 1, crate::Kind::File)
    );
    let blob = raw(&t, &file, "user.DOSATTRIB").await.unwrap();
    assert_eq!(blob[..16], *b"\0\0\x05\0\x05\0\0\0\x11\0\0\0\x22\0\0\0");
    let set = SetAttr {
        dos_attributes: Some(dos::READONLY | dos::DIRECTORY | dos::NORMAL | 0x400),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &file, &set).await.unwrap();
    let now = t.vfs.attr(&file).await.unwrap();
    assert_eq!(
        (now.dos_attributes, now.created),
        (dos::READONLY, attr.created)
    );
    let none = SetAttr {
        dos_attributes: Some(0),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &file, &none).await.unwrap();
    assert_eq!(t.vfs.attr(&file).await.unwrap().dos_attributes, dos::NORMAL);
    // Sparse is kept apart from what clients set.
    let sparse = SetAttr {
        sparse: Some(true),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &file, &sparse).await.unwrap();
    let hidden = SetAttr {
        dos_attributes: Some(dos::HIDDEN),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &file, &hidden).await.unwrap();
    assert_eq!(
        t.vfs.attr(&file).await.unwrap().dos_attributes,
        dos::HIDDEN | dos::SPARSE
    );
    let dir = t.dir("d").await;
    assert_eq!(
        t.vfs.attr(&dir).await.unwrap().dos_attributes,
        dos::DIRECTORY
    );
    t.vfs.set_attr(ME, &dir, &hidden).await.unwrap();
    let attr = t.vfs.attr(&dir).await.unwrap();
    assert_eq!(
        (attr.dos_attributes, attr.size),
        (dos::DIRECTORY | dos::HIDDEN, 0)
    );
    // An attribute that cannot be parsed counts as none, and is replaced by the next change.
    t.vfs
        .disk()
        .set_xattr(ME, file.fd(), "user.DOSATTRIB", b"junk", XattrSet::Either)
        .await
        .unwrap();
    assert_eq!(
        t.vfs.attr(&file).await.unwrap().dos_attributes,
        dos::ARCHIVE
    );
    t.vfs.set_attr(ME, &file, &hidden).await.unwrap();
    assert_eq!(t.vfs.attr(&file).await.unwrap().dos_attributes, dos::HIDDEN);
}

pub(super) async fn derived_attributes<D: Disk>(t: Case<D>) {
    drop(t.outside(b".dot", 0o644).await.unwrap());
    drop(t.outside(b"plain", 0o444).await.unwrap());
    let dot = t.find(".dot").await.unwrap().found.unwrap();
    assert_eq!(dot.1.dos_attributes, dos::ARCHIVE | dos::HIDDEN);
    assert_eq!(t.vfs.attr(&dot.0).await.unwrap(), dot.1);
    let plain = t.find("plain").await.unwrap().found.unwrap().1;
    assert_eq!(plain.dos_attributes, dos::ARCHIVE | dos::READONLY);
    let oldest = plain.written.min(plain.changed).min(plain.accessed);
    assert!(plain.created <= oldest.max(plain.created));
    // A change keeps what was derived.
    let created = SetAttr {
        created: Some(Timestamp {
            secs: 5,
            nanos: 700,
        }),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &dot.0, &created).await.unwrap();
    let attr = t.vfs.attr(&dot.0).await.unwrap();
    assert_eq!(attr.dos_attributes, dos::ARCHIVE | dos::HIDDEN);
    assert_eq!(
        attr.created,
        Timestamp {
            secs: 5,
            nanos: 700
        }
    );
    hidden_by_name(t).await;
}

/// The part of the attributes that follows from the name is not stored, even if a client sets what it was shown.
async fn hidden_by_name<D: Disk>(t: Case<D>) {
    let new = NewNode {
        dos_attributes: dos::ARCHIVE,
        ..NewNode::default()
    };
    let (made, attr) = t.new_file(".made", &new).await.unwrap();
    assert_eq!(attr.dos_attributes, dos::ARCHIVE | dos::HIDDEN);
    assert!(attr.hidden_by_name);
    let shown = SetAttr {
        dos_attributes: Some(attr.dos_attributes),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &made, &shown).await.unwrap();
    let again = t.vfs.attr(&made).await.unwrap();
    assert_eq!(again.dos_attributes, attr.dos_attributes);
    t.rename(".made", "made", false).await.unwrap();
    let made = t.find("made").await.unwrap().found.unwrap().1;
    assert_eq!(made.dos_attributes, dos::ARCHIVE);
    // A client that makes it hidden means the file.
    let new = NewNode {
        dos_attributes: dos::HIDDEN,
        ..NewNode::default()
    };
    let (_, attr) = t.new_file(".hidden", &new).await.unwrap();
    assert!(attr.dos_attributes == dos::HIDDEN && !attr.hidden_by_name);
}

pub(super) async fn times<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let (a, w) = (
        Timestamp {
            secs: 1000,
            nanos: 1,
        },
        Timestamp {
            secs: 1_600_000_000,
            nanos: 999_999_900,
        },
    );
    let set = SetAttr {
        accessed: Some(a),
        written: Some(w),
        created: Some(a),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &file, &set).await.unwrap();
    let attr = t.vfs.attr(&file).await.unwrap();
    assert_eq!((attr.accessed, attr.written), (a, w));
    assert_eq!(
        attr.created,
        Timestamp {
            secs: 1000,
            nanos: 0
        }
    );
    let only = SetAttr {
        written: Some(a),
        ..SetAttr::default()
    };
    t.vfs.set_attr(ME, &t.node("f").await, &only).await.unwrap();
    let attr = t.vfs.attr(&file).await.unwrap();
    assert_eq!((attr.accessed, attr.written), (a, a));
}

pub(super) async fn security<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    assert_eq!(t.vfs.security(&file, None).await.unwrap(), None);
    t.vfs.set_security(ME, &file, &descriptor(1)).await.unwrap();
    assert_eq!(
        t.vfs.security(&t.node("f").await, None).await.unwrap(),
        Some(descriptor(1))
    );
    assert_eq!(
        t.vfs.set_security(ME, &file, b"no").await.unwrap_err(),
        VfsError::InvalidArgument
    );
    let new = NewNode {
        security: Some(NewSecurity::Given(descriptor(2))),
        ..NewNode::default()
    };
    let (made, attr) = t.new_file("g", &new).await.unwrap();
    assert_eq!(
        t.vfs.security(&made, None).await.unwrap(),
        Some(descriptor(2))
    );
    assert_eq!(t.vfs.attr(&made).await.unwrap(), attr);
    let root = t.vfs.root();
    let (dir, _) = t.vfs.create(ME, &root, "d", &new, true).await.unwrap();
    assert_eq!(
        t.vfs.security(&dir, None).await.unwrap(),
        Some(descriptor(2))
    );
    t.file("d/in").await;
    // A descriptor made of the permissions follows the present ones.
    let describe = |of: Permissions| descriptor(if of.mode & 0o7777 == 0o751 { 5 } else { 6 });
    let new = NewNode {
        mode: Some(0o2751),
        security: Some(NewSecurity::Of(&describe)),
        ..NewNode::default()
    };
    let (made, _) = t.new_file("h", &new).await.unwrap();
    assert_eq!(
        t.vfs.security(&made, None).await.unwrap(),
        Some(descriptor(5))
    );
    assert_eq!(t.names("").await, ["d", "f", "g", "h"]);
    assert_eq!(t.names("d").await, ["in"]);
}

pub(super) async fn security_behind_our_back<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    t.vfs.set_security(ME, &file, &descriptor(1)).await.unwrap();
    t.vfs.disk().set_mode(ME, file.fd(), 0o640).await.unwrap();
    assert_eq!(t.vfs.security(&file, None).await.unwrap(), None);
    let name = t.vfs.options().acl;
    let name = if name == AclNamespace::User {
        "user.NTACL"
    } else {
        "security.NTACL"
    };
    t.vfs
        .disk()
        .set_xattr(ME, file.fd(), name, b"\x04\0\x04\0junk", XattrSet::Either)
        .await
        .unwrap();
    assert_eq!(
        t.vfs.security(&file, None).await.unwrap_err(),
        VfsError::Corrupt
    );
    t.vfs.set_security(ME, &file, &descriptor(3)).await.unwrap();
    assert_eq!(
        t.vfs.security(&file, None).await.unwrap(),
        Some(descriptor(3))
    );
}

async fn set_ea<D: Disk>(
    t: &Case<D>,
    file: &PosixNode<D>,
    name: &str,
    value: &[u8],
) -> VfsResult<()> {
    let ea = (name.to_owned(), value.to_vec());
    t.vfs.set_eas(ME, file, &[ea]).await
}

pub(super) async fn extended_attributes<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    assert!(t.vfs.eas(&file).await.unwrap().is_empty());
    set_ea(&t, &file, "One", b"1").await.unwrap();
    set_ea(&t, &file, "two", b"2").await.unwrap();
    set_ea(&t, &file, "ONE", b"11").await.unwrap();
    let both = vec![
        ("One".to_owned(), b"11".to_vec()),
        ("two".to_owned(), b"2".to_vec()),
    ];
    let found = t.vfs.eas(&file).await.unwrap();
    assert_eq!(found, both);
    // Thousands of requests may hold them at once.
    let is_exact = |value: &Vec<u8>| value.capacity() == value.len();
    assert!(found.iter().all(|(_, value)| is_exact(value)));
    set_ea(&t, &file, "one", b"").await.unwrap();
    set_ea(&t, &file, "absent", b"").await.unwrap();
    assert_eq!(t.vfs.eas(&file).await.unwrap(), both[1..]);
    // The last value of a name counts, and nothing is stored beside a name that is refused.
    let ea = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
    let several = [
        ea("a", b"1"),
        ea("A", b"2"),
        ea("TWO", b""),
        ea("two", b"2"),
    ];
    t.vfs.set_eas(ME, &file, &several).await.unwrap();
    let refused = [ea("b", b"1"), ea("", b"1")];
    let refused = t.vfs.set_eas(ME, &file, &refused).await;
    assert_eq!(refused.unwrap_err(), VfsError::InvalidEaName);
    let expected = [ea("A", b"2"), ea("two", b"2")];
    assert_eq!(t.vfs.eas(&file).await.unwrap(), expected);
    set_ea(&t, &file, "a", b"").await.unwrap();
    for ours in [
        "DOSATTRIB",
        "dosattrib",
        "NTACL",
        "DosStream.x:$DATA",
        "SAMBA_STREAMS",
        "holdfast.x",
        "",
        &"x".repeat(251),
    ] {
        assert_eq!(
            set_ea(&t, &file, ours, b"x").await.unwrap_err(),
            VfsError::InvalidEaName,
            "{ours}"
        );
    }
    let (stream, _) = t
        .vfs
        .open_stream(ME, &file, "s", StreamOpen::New)
        .await
        .unwrap();
    drop(stream);
    assert_eq!(t.vfs.eas(&file).await.unwrap(), both[1..]);
    // The host may have given it attributes that no client can.
    for (name, value) in [("user.a:b", "1"), ("user.a+b", "1"), ("user.empty", "")] {
        let (disk, how) = (t.vfs.disk(), XattrSet::Create);
        let set = disk.set_xattr(ME, file.fd(), name, value.as_bytes(), how);
        set.await.unwrap();
    }
    assert_eq!(t.vfs.eas(&file).await.unwrap(), both[1..]);
    let (attr, root) = (t.vfs.attr(&file).await.unwrap(), t.vfs.root());
    let expected = crate::ea_size([("two".len(), 1)]);
    assert_eq!(t.vfs.ea_size(&file, &attr).await.unwrap(), expected);
    let name = crate::DirName::same("f".into());
    let sizes = t.vfs.ea_sizes_at(&root, &[(&name, &attr)]).await;
    assert_eq!(sizes, [expected]);
}

pub(super) async fn creation_is_whole<D: Disk>(t: Case<D>) {
    let root = t.vfs.root();
    // Each of these cannot be stored; nothing may be left behind.
    let ea = NewNode {
        eas: vec![
            ("fine".into(), b"1".to_vec()),
            ("DOSATTRIB".into(), b"x".to_vec()),
        ],
        ..NewNode::default()
    };
    let sd = NewNode {
        security: Some(NewSecurity::Given(b"no descriptor".to_vec())),
        ..NewNode::default()
    };
    for new in [&ea, &sd] {
        assert!(t.vfs.create(ME, &root, "x", new, false).await.is_err());
        assert!(t.vfs.create(ME, &root, "x", new, true).await.is_err());
        let disk_root = t
            .vfs
            .disk()
            .reopen(ME, &t.vfs.disk().root(), IoAccess::READ)
            .await
            .unwrap();
        assert!(
            t.vfs
                .disk()
                .entries(&disk_root, 9)
                .await
                .unwrap()
                .is_empty()
        );
    }
    let good = NewNode {
        mode: Some(0o7751),
        eas: vec![("fine".into(), b"1".to_vec())],
        allocation: 65536,
        ..NewNode::default()
    };
    let (file, attr) = t.vfs.create(ME, &root, "x", &good, false).await.unwrap();
    assert_eq!(attr.mode & 0o7700, 0o700);
    assert_eq!(attr.size, 0);
    assert_eq!(t.vfs.eas(&file).await.unwrap().len(), 1);
    let write = IoAccess {
        read: true,
        write: true,
    };
    let again = t.vfs.open(ME, &t.node("x").await, write).await.unwrap();
    t.write(&again, 0, b"12").await;
    assert_eq!(t.read(&file).await, b"12");
}

pub(super) async fn file_system<D: Disk>(t: Case<D>) {
    let info = t.vfs.fs_info(&t.vfs.root()).await.unwrap();
    assert!(info.total >= info.free && info.free >= info.available && info.block >= 512);
    assert!(info.sparse && !info.read_only);
    let file = t.file("f").await;
    let may = t.vfs.permitted(ME, &file).await.unwrap();
    assert!(may.read && may.write);
}

pub(super) async fn read_only<D: Disk>(t: Case<D>) {
    let fd = t.outside(b"f", 0o644).await.unwrap();
    drop(fd);
    let root = t.vfs.root();
    let file = t.node("f").await;
    let no = VfsError::ReadOnly;
    assert_eq!(
        t.vfs
            .create(ME, &root, "x", &NewNode::default(), false)
            .await
            .unwrap_err(),
        no
    );
    assert_eq!(t.remove("f").await.unwrap_err(), no);
    assert_eq!(t.rename("f", "g", false).await.unwrap_err(), no);
    assert_eq!(
        t.vfs
            .set_attr(ME, &file, &SetAttr::default())
            .await
            .unwrap_err(),
        no
    );
    assert_eq!(set_ea(&t, &file, "x", b"1").await.unwrap_err(), no);
    assert_eq!(
        t.vfs
            .set_security(ME, &file, &descriptor(1))
            .await
            .unwrap_err(),
        no
    );
    assert_eq!(
        t.vfs
            .open_stream(ME, &file, "s", StreamOpen::Either)
            .await
            .unwrap_err(),
        no
    );
    let both = IoAccess {
        read: true,
        write: true,
    };
    assert_eq!(t.vfs.open(ME, &file, both).await.unwrap_err(), no);
    let read = IoAccess {
        read: true,
        write: false,
    };
    assert!(t.vfs.open(ME, &file, read).await.is_ok());
    let may = t.vfs.permitted(ME, &file).await.unwrap();
    assert!(may.read && !may.write);
}

#[test]
fn a_process_without_the_capability_is_noticed() {
    let disk = SimDisk::new(SimOptions::default());
    assert!(block_on(AclNamespace::is_writable(&disk)));
    fail_once(&disk, SimOp::Change, 0, libc::EPERM);
    assert!(!block_on(AclNamespace::is_writable(&disk)));
}

/// Somebody reads the file while a change of its attributes and its write time fails.
#[test]
fn a_refused_change_of_attributes_moves_no_time_that_it_did_not_concern() {
    let (disk, link) = sim(SimOptions::default());
    let t = block_on(Case::new(disk.clone(), link));
    block_on(async {
        let file = t.file("f").await;
        let before = t.vfs.attr(&file).await.unwrap();
        // The times, those of the other's access, and the attributes.
        fail_once(&disk, SimOp::Change, 2, libc::EIO);
        disk.set_hook(Some(Arc::new(|op| {
            (op == SimOp::Change).then(pending_once)
        })));
        let set = SetAttr {
            written: Some(at(7)),
            dos_attributes: Some(dos::HIDDEN),
            ..SetAttr::default()
        };
        let mut setting = std::pin::pin!(t.vfs.set_attr(ME, &file, &set));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..2 {
            assert!(setting.as_mut().poll(&mut context).is_pending());
        }
        disk.set_hook(None);
        let read = disk.set_times(ME, file.fd(), Some(at(9)), None).await;
        assert_eq!((read, setting.await), (Ok(()), Err(VfsError::Io)));
        let after = t.vfs.attr(&file).await.unwrap();
        let unchanged = (before.written, before.dos_attributes);
        assert_eq!((after.written, after.dos_attributes), unchanged);
        assert_eq!(after.accessed, at(9));
    });
}
