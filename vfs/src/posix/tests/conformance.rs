//! Tests of names, bytes, directories and links against the contract of `Vfs`.

use super::*;

pub(super) async fn names<D: Disk>(t: Case<D>) {
    t.file("Foo.txt").await;
    let found = t.find("foo.TXT").await.unwrap();
    assert_eq!(
        (found.name.as_str(), found.path),
        ("Foo.txt", vec!["Foo.txt".to_owned()])
    );
    assert_eq!(found.parent.unwrap().key(), t.vfs.root().key());
    let absent = t.find("none").await.unwrap();
    assert!(absent.found.is_none() && absent.name == "none" && absent.parent.is_some());
    let root = t.find("").await.unwrap();
    assert!(root.parent.is_none() && root.name.is_empty() && root.found.is_some());
    t.dir("Sub").await;
    t.file("sub/In").await;
    let found = t.find("SUB/in").await.unwrap();
    assert_eq!(found.path, ["Sub", "In"]);
    for path in ["none/x", "Foo.txt/x"] {
        assert_eq!(
            t.find(path).await.unwrap_err(),
            VfsError::PathNotFound,
            "{path}"
        );
    }
    for bad in [
        "a:b",
        "x*",
        "..",
        ".",
        ".streams",
        ".STREAMS",
        ".holdfast-tmp-1",
        "dot.",
        "sp ",
    ] {
        assert_eq!(
            t.find(bad).await.unwrap_err(),
            VfsError::InvalidName,
            "{bad}"
        );
        let made = t
            .vfs
            .create(ME, &t.vfs.root(), bad, &NewNode::default(), false)
            .await;
        assert_eq!(made.unwrap_err(), VfsError::InvalidName, "{bad}");
    }
    // The name is reserved only in the root.
    t.file("sub/.streams").await;
    assert_eq!(
        t.find(&"x".repeat(256)).await.unwrap_err(),
        VfsError::NameTooLong
    );
    let root = t.vfs.root();
    let new = NewNode::default();
    let taken = t.vfs.create(ME, &root, "FOO.txt", &new, false).await;
    assert_eq!(taken.unwrap_err(), VfsError::Exists);
    let taken = t.vfs.create(ME, &root, "sUb", &new, true).await;
    assert_eq!(taken.unwrap_err(), VfsError::Exists);
    let file = t.node("Foo.txt").await;
    let below = t.vfs.create(ME, &file, "x", &new, false).await;
    assert_eq!(below.unwrap_err(), VfsError::NotADirectory);
}

pub(super) async fn case<D: Disk>(t: Case<D>) {
    for name in ["One", "one"] {
        drop(t.outside(name.as_bytes(), 0o644).await.unwrap());
    }
    // An exact match wins; otherwise either will do.
    assert_eq!(t.find("One").await.unwrap().name, "One");
    assert_eq!(t.find("one").await.unwrap().name, "one");
    assert!(t.is_there("ONE").await);
    t.file("Größe").await;
    assert_eq!(t.find("gRÖßE").await.unwrap().name, "Größe");
    assert!(!t.is_there("GRÖSSE").await);
}

pub(super) async fn bytes_that_are_no_text<D: Disk>(t: Case<D>) {
    drop(t.outside(b"caf\xe9:1.", 0o644).await.unwrap());
    let shown = "caf\u{EFE9}\u{F022}1\u{F029}";
    assert_eq!(t.names("").await, [shown]);
    let node = t.node(shown).await;
    t.rename(shown, "plain", false).await.unwrap();
    assert_eq!(t.node("plain").await.key(), node.key());
    t.rename("plain", "b\u{EFFF}\u{F021}", false).await.unwrap();
    assert!(!t.gone_outside(b"b\xff*").await);
}

pub(super) async fn data<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    t.write(&file, 0, b"hello").await;
    t.write(&file, 10, b"world").await;
    assert_eq!(t.read(&file).await, b"hello\0\0\0\0\0world");
    let part = t
        .vfs
        .read(&file, 3, 4, BytesMut::from(&b"<"[..]))
        .await
        .unwrap();
    assert_eq!(&part[..], b"<lo\0\0");
    assert!(
        t.vfs
            .read(&file, 99, 4, BytesMut::new())
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        t.vfs
            .read(&file, u64::MAX, 4, BytesMut::new())
            .await
            .unwrap()
            .is_empty()
    );
    t.vfs.set_size(&file, 4).await.unwrap();
    t.vfs.set_size(&file, 6).await.unwrap();
    assert_eq!(t.read(&file).await, b"hell\0\0");
    let durable = WriteMode { durable: true };
    t.vfs
        .write(&file, 6, Bytes::from_static(b"!"), durable)
        .await
        .unwrap();
    assert_eq!(t.vfs.attr(&file).await.unwrap().size, 7);
    for scope in [SyncScope::Data, SyncScope::All] {
        t.vfs.sync(&file, scope).await.unwrap();
        // A node without I/O access and the root can be synced.
        t.vfs.sync(&t.node("f").await, scope).await.unwrap();
        t.vfs.sync(&t.vfs.root(), scope).await.unwrap();
    }
    let far = t
        .vfs
        .write(&file, u64::MAX - 1, Bytes::from_static(b"xx"), durable)
        .await;
    assert_eq!(far.unwrap_err(), VfsError::TooLarge);
    access_as_opened(t, file).await;
}

/// `file` holds seven bytes.
async fn access_as_opened<D: Disk>(t: Case<D>, file: PosixNode<D>) {
    let closed = t.node("F").await;
    let refused = t.vfs.read(&closed, 0, 1, BytesMut::new()).await;
    assert_eq!(refused.unwrap_err(), VfsError::AccessDenied);
    let reader = t.opened(&closed, false).await;
    assert_eq!(t.read(&reader).await, b"hell\0\0!");
    let refused = t
        .vfs
        .write(&reader, 0, Bytes::from_static(b"x"), WriteMode::default())
        .await;
    assert_eq!(refused.unwrap_err(), VfsError::AccessDenied);
    assert_eq!(
        t.vfs.set_size(&reader, 1).await.unwrap_err(),
        VfsError::AccessDenied
    );
    assert_eq!(reader.key(), file.key());
}

pub(super) async fn holes<D: Disk>(t: Case<D>) {
    let file = t.file("f").await;
    let whole = Range {
        offset: 0,
        len: 1 << 30,
    };
    assert!(t.vfs.allocated(&file, whole, 10).await.unwrap().is_empty());
    t.write(&file, 1 << 20, &[7; 1 << 16]).await;
    let found = t.vfs.allocated(&file, whole, 10).await.unwrap();
    assert_eq!(
        found,
        [Range {
            offset: 1 << 20,
            len: 1 << 16
        }]
    );
    t.write(&file, 0, &[7; 8192]).await;
    assert_eq!(t.vfs.allocated(&file, whole, 10).await.unwrap().len(), 2);
    assert_eq!(t.vfs.allocated(&file, whole, 1).await.unwrap().len(), 1);
    let size = t.vfs.attr(&file).await.unwrap().size;
    t.vfs
        .zero(
            &file,
            Range {
                offset: 4096,
                len: 100,
            },
        )
        .await
        .unwrap();
    t.vfs
        .zero(
            &file,
            Range {
                offset: 1 << 20,
                len: 1 << 40,
            },
        )
        .await
        .unwrap();
    t.vfs
        .zero(
            &file,
            Range {
                offset: 1 << 40,
                len: 5,
            },
        )
        .await
        .unwrap();
    assert_eq!(t.vfs.attr(&file).await.unwrap().size, size);
    let data = t.read(&file).await;
    assert!(data[..4096].iter().all(|b| *b == 7) && data[4196..8192].iter().all(|b| *b == 7));
    assert!(data[4096..4196].iter().all(|b| *b == 0));
    assert!(
        t.vfs
            .allocated(&file, whole, 10)
            .await
            .unwrap()
            .iter()
            .all(|r| r.offset < 8192)
    );
    let small = t.file("g").await;
    t.vfs.allocate(&small, 1 << 20).await.unwrap();
    let attr = t.vfs.attr(&small).await.unwrap();
    assert!(attr.size == 0 && attr.allocated >= 1 << 20);
    t.vfs.allocate(&small, 0).await.unwrap();
}

pub(super) async fn copies<D: Disk>(t: Case<D>) {
    let (from, to) = (t.file("from").await, t.file("to").await);
    let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    t.write(&from, 0, &data).await;
    assert_eq!(
        t.vfs.copy((&from, 100), (&to, 5), 200_000).await.unwrap(),
        200_000
    );
    assert_eq!(t.read(&to).await[5..], data[100..200_100]);
    assert_eq!(
        t.vfs.copy((&from, 299_000), (&to, 0), 5000).await.unwrap(),
        1000
    );
    // Within one file; overlapping gives one of the orders, never an error.
    assert_eq!(
        t.vfs
            .copy((&from, 0), (&from, 300_000), 1000)
            .await
            .unwrap(),
        1000
    );
    assert_eq!(t.read(&from).await[300_000..], data[..1000]);
    assert_eq!(t.vfs.copy((&from, 0), (&from, 10), 100).await.unwrap(), 100);
    match t.vfs.clone_range((&from, 0), (&to, 0), 4096).await {
        Ok(()) => assert_eq!(t.read(&to).await[..4096], t.read(&from).await[..4096]),
        Err(error) => assert_eq!(error, VfsError::NotSupported),
    }
}

pub(super) async fn listing<D: Disk>(t: Case<D>) {
    t.dir("d").await;
    for name in ["a", "B", "c"] {
        t.file(&format!("d/{name}")).await;
    }
    assert_eq!(t.names("d").await, ["B", "a", "c"]);
    let dir = t.node("d").await;
    assert_eq!(t.vfs.list(ME, &dir, 3).await.unwrap().len(), 3);
    let two = t.vfs.list(ME, &dir, 2).await;
    assert_eq!(two.unwrap_err(), VfsError::TooLarge);
    let opened = t.opened(&dir, true).await;
    for _ in 0..2 {
        let listed = t.vfs.list(ME, &opened, 10).await.unwrap();
        for name in &listed {
            let attr = attr_at(&t, &dir, name).await.unwrap();
            assert_eq!(
                attr,
                t.find(&format!("d/{}", name.name))
                    .await
                    .unwrap()
                    .found
                    .unwrap()
                    .1
            );
        }
        assert_eq!(listed.len(), 3);
    }
    for number in 0..9 {
        t.file(&format!("d/more-{number}")).await;
    }
    let listed = t.vfs.list(ME, &dir, 20).await.unwrap();
    let before = t.vfs.attrs_at(ME, &dir, &listed).await;
    looked_at(&t, &dir, &listed).await;
    for (name, attr) in listed.iter().zip(&before) {
        assert_eq!(*attr, attr_at(&t, &dir, name).await);
    }
    t.remove("d/B").await.unwrap();
    // A name that was removed does not affect the others.
    for ((name, before), now) in listed
        .iter()
        .zip(before)
        .zip(t.vfs.attrs_at(ME, &dir, &listed).await)
    {
        match name.name.as_str() {
            "B" => assert_eq!(now, Err(VfsError::NotFound)),
            _ => assert_eq!(now, before),
        }
    }
    let gone = listed.iter().find(|n| n.name == "B").unwrap();
    assert_eq!(
        attr_at(&t, &dir, gone).await.unwrap_err(),
        VfsError::NotFound
    );
    let file = t.node("d/a").await;
    assert_eq!(
        t.vfs.list(ME, &file, 9).await.unwrap_err(),
        VfsError::NotADirectory
    );
    assert_eq!(t.names("").await, ["d"]);
}

pub(super) async fn renames<D: Disk>(t: Case<D>) {
    let a = t.file("a").await;
    t.write(&a, 0, b"A").await;
    t.rename("a", "A", false).await.unwrap();
    assert_eq!(t.names("").await, ["A"]);
    t.rename("A", "A", false).await.unwrap();
    let b = t.file("Bee").await;
    assert_eq!(
        t.rename("A", "bee", false).await.unwrap_err(),
        VfsError::Exists
    );
    t.rename("a", "bee", true).await.unwrap();
    assert_eq!(t.names("").await, ["bee"]);
    assert_eq!(t.node("BEE").await.key(), a.key());
    assert_eq!(t.read(&b).await, b"");
    // The node must still be at the name.
    t.file("other").await;
    let root = t.vfs.root();
    let wrong = t.vfs.rename(ME, &a, &root, "other", &root, "x", None).await;
    assert_eq!(wrong.unwrap_err(), VfsError::NotFound);
    let gone = t.vfs.rename(ME, &a, &root, "gone", &root, "x", None).await;
    assert_eq!(gone.unwrap_err(), VfsError::NotFound);
    let bad = t.vfs.rename(ME, &a, &root, "bee", &root, "x:y", None).await;
    assert_eq!(bad.unwrap_err(), VfsError::InvalidName);
    let ours = t
        .vfs
        .rename(ME, &a, &root, "bee", &root, ".Streams", None)
        .await;
    assert_eq!(ours.unwrap_err(), VfsError::InvalidName);
    t.dir("d").await;
    assert_eq!(
        t.rename("d", "bee", true).await.unwrap_err(),
        VfsError::NotADirectory
    );
    assert_eq!(
        t.rename("bee", "D", true).await.unwrap_err(),
        VfsError::IsADirectory
    );
    // Only the inode that was seen by the name is replaced.
    let other = t.node("other").await.key();
    for (to, seen) in [("Bee", None), ("bee", Some(b.key())), ("free", Some(other))] {
        let from = t.node("other").await;
        let refused = t.vfs.rename(ME, &from, &root, "other", &root, to, seen);
        assert_eq!(refused.await.unwrap_err(), VfsError::Exists, "{to}");
    }
    // Two names of one inode: the old one is removed.
    t.vfs.link(ME, &a, &root, "twin", None).await.unwrap();
    t.rename("bee", "Twin", true).await.unwrap();
    assert_eq!(t.names("").await, ["Twin", "d", "other"]);
}

pub(super) async fn renames_between_directories<D: Disk>(t: Case<D>) {
    t.dir("x").await;
    t.dir("y").await;
    t.file("x/f").await;
    t.dir("x/sub").await;
    t.rename("x/f", "y/g", false).await.unwrap();
    t.rename("x/SUB", "y/Sub2", false).await.unwrap();
    assert_eq!(t.names("y").await, ["Sub2", "g"]);
    assert!(t.names("x").await.is_empty());
    assert!(t.rename("y", "y/sub2/z", false).await.is_err());
    assert_eq!(t.names("y/Sub2").await.len(), 0);
    t.file("x/f").await;
    t.rename("y/g", "x/F", true).await.unwrap();
    assert_eq!(
        (t.names("x").await, t.names("y").await),
        (vec!["F".into()], vec!["Sub2".into()])
    );
    // An empty directory may be replaced by another.
    t.dir("x/d1").await;
    t.rename("x/d1", "y/SUB2", true).await.unwrap();
    assert_eq!(t.names("y").await, ["SUB2"]);
}

pub(super) async fn links<D: Disk>(t: Case<D>) {
    let root = t.vfs.root();
    let a = t.file("a").await;
    t.write(&a, 0, b"A").await;
    t.vfs.link(ME, &a, &root, "b", None).await.unwrap();
    assert_eq!(t.vfs.attr(&a).await.unwrap().links, 2);
    assert_eq!(t.node("B").await.key(), a.key());
    let c = t.file("c").await;
    assert_eq!(
        t.vfs.link(ME, &a, &root, "C", None).await.unwrap_err(),
        VfsError::Exists
    );
    t.vfs.link(ME, &a, &root, "C", Some(c.key())).await.unwrap();
    assert_eq!(t.names("").await, ["C", "a", "b"]);
    assert_eq!(t.vfs.attr(&c).await.unwrap().links, 0);
    let dir = t.dir("d").await;
    assert!(t.vfs.link(ME, &dir, &root, "e", None).await.is_err());
    assert_eq!(
        t.vfs
            .link(ME, &a, &root, "d", Some(dir.key()))
            .await
            .unwrap_err(),
        VfsError::IsADirectory
    );
    let other = t.file("other").await;
    for (to, seen) in [("other", Some(c.key())), ("free", Some(c.key()))] {
        let refused = t.vfs.link(ME, &a, &root, to, seen).await;
        assert_eq!(refused.unwrap_err(), VfsError::Exists, "{to}");
    }
    assert_eq!(t.node("other").await.key(), other.key());
    t.remove("a").await.unwrap();
    assert_eq!(t.vfs.attr(&a).await.unwrap().links, 2);
}

pub(super) async fn removal<D: Disk>(t: Case<D>) {
    let root = t.vfs.root();
    let a = t.file("a").await;
    let b = t.file("b").await;
    t.write(&a, 0, b"still").await;
    assert_eq!(
        t.vfs.remove(ME, &b, &root, "a").await.unwrap_err(),
        VfsError::NotFound
    );
    t.vfs.remove(ME, &a, &root, "A").await.unwrap();
    assert!(!t.is_there("a").await && t.is_there("b").await);
    // A held node lives on.
    assert_eq!(t.read(&a).await, b"still");
    assert_eq!(t.vfs.attr(&a).await.unwrap().links, 0);
    assert_eq!(
        t.vfs.remove(ME, &a, &root, "a").await.unwrap_err(),
        VfsError::NotFound
    );
    let again = t.file("a").await;
    assert_ne!(again.key(), a.key());
}

pub(super) async fn removal_of_directories<D: Disk>(t: Case<D>) {
    let dir = t.dir("d").await;
    t.file("d/f").await;
    assert_eq!(t.remove("d").await.unwrap_err(), VfsError::NotEmpty);
    t.remove("d/f").await.unwrap();
    // A temporary file that a dead server left is no entry.
    let left = b".holdfast-tmp-dead-1";
    let how = crate::disk::OpenHow {
        create: Some(0o600),
        write: true,
        ..Default::default()
    };
    drop(t.vfs.disk().open_at(ME, dir.fd(), left, how).await.unwrap());
    t.vfs
        .disk()
        .make_dir(ME, dir.fd(), b".holdfast-tmp-dead-2", 0o700)
        .await
        .unwrap();
    assert!(t.names("d").await.is_empty());
    t.remove("d").await.unwrap();
    assert!(t.names("").await.is_empty());
    let new = NewNode::default();
    let below = t.vfs.create(ME, &dir, "x", &new, false).await;
    assert_eq!(below.unwrap_err(), VfsError::NotFound);
}

/// An own change right after the creation, perhaps in the same tick of the clock, shows at once.
pub(super) async fn attributes_changed_at_once<D: Disk>(t: Case<D>) {
    for number in 0..50_u32 {
        let name = format!("f{number}");
        let node = t.file(&name).await;
        assert_eq!(t.vfs.attr(&node).await.unwrap().dos_attributes, 0x80);
        let set = crate::SetAttr {
            dos_attributes: Some(0x22),
            ..crate::SetAttr::default()
        };
        t.vfs.set_attr(ME, &node, &set).await.unwrap();
        let by_name = t.find(&name).await.unwrap().found.unwrap().1;
        assert_eq!(by_name.dos_attributes, 0x22, "{name}");
        let set = crate::SetAttr {
            dos_attributes: Some(0x1),
            ..crate::SetAttr::default()
        };
        t.vfs.set_attr(ME, &node, &set).await.unwrap();
        assert!(t.vfs.is_readonly(&node).await.unwrap(), "{name}");
    }
}

/// Attributes are cached, but a change by another process shows at once.
pub(super) async fn attributes_changed_outside<D: Disk>(t: Case<D>) {
    let root = t.vfs.root();
    for number in 0..8 {
        t.file(&format!("f{number}")).await;
    }
    // The times are now old enough for the cache.
    std::thread::sleep(std::time::Duration::from_millis(30));
    let names = t.vfs.list(ME, &root, 100).await.unwrap();
    for bits in [0x2, 0x4, 0x6, 0x20] {
        for round in 0..3 {
            let listed = t.vfs.attrs_at(ME, &root, &names).await;
            if round == 1 {
                let blob = samba_xattr::dos_attrib::DosAttrib {
                    attributes: Some(bits),
                    created: None,
                };
                let (node, how) = (t.node("f3").await, crate::disk::XattrSet::Either);
                let (disk, name) = (t.vfs.disk(), samba_xattr::DOS_ATTRIB);
                let blob = blob.build();
                let set = disk.set_xattr(ME, node.fd(), name, &blob, how);
                set.await.unwrap();
            }
            let now = t.vfs.attr(&t.node("f3").await).await.unwrap();
            if round > 0 {
                assert_eq!(now.dos_attributes, bits, "by itself");
            }
            let is = names.iter().position(|name| name.name == "f3").unwrap();
            if round == 2 {
                assert_eq!(listed[is].as_ref().unwrap().dos_attributes, bits, "listed");
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
}

pub(super) async fn symlinks<D: Disk>(t: Case<D>) {
    t.dir("d").await;
    t.dir("d/e").await;
    let file = t.file("d/e/f").await;
    for (name, target) in [
        ("to-file", "d/e/f"),
        ("to-dir", "./d//e/"),
        ("chain", "to-dir/../e/f"),
        ("up", ".."),
        ("up-far", "d/../../etc"),
        ("abs", "/etc/passwd"),
        ("loop", "loop"),
        ("dangling", "d/none"),
        ("here", "."),
        ("ours", ".streams"),
    ] {
        (t.link)(name, target);
    }
    for path in [
        "to-file",
        "TO-FILE",
        "to-dir/f",
        "chain",
        "here/d/e/f",
        "here/to-dir/F",
    ] {
        assert_eq!(t.node(path).await.key(), file.key(), "{path}");
    }
    assert_eq!(t.find("TO-DIR/F").await.unwrap().path, ["to-dir", "f"]);
    for path in [
        "up", "up-far", "abs", "loop", "ours", "up/x", "abs/x", "loop/x",
    ] {
        let error = t.find(path).await.unwrap_err();
        assert_eq!(error, VfsError::SymbolicLink, "{path}");
    }
    assert!(!t.is_there("dangling").await);
    let taken = t
        .vfs
        .create(ME, &t.vfs.root(), "dangling", &NewNode::default(), false)
        .await;
    assert_eq!(taken.unwrap_err(), VfsError::SymbolicLink);
    // Another lookup would not find the link, so the error does not say that another request was
    // faster.
    let over = t.rename("d/e/f", "dangling", false).await;
    assert_eq!(over.unwrap_err(), VfsError::SymbolicLink);
    let root = t.vfs.root();
    let linked = t.vfs.link(ME, &file, &root, "dangling", None).await;
    assert_eq!(linked.unwrap_err(), VfsError::SymbolicLink);
    assert_eq!(t.node("here").await.key(), t.vfs.root().key());
    // Links are listed with the attributes of their targets.
    let root = t.vfs.root();
    let names = t.vfs.list(ME, &root, 100).await.unwrap();
    let together = t.vfs.attrs_at(ME, &root, &names).await;
    looked_at(&t, &root, &names).await;
    for (name, attr) in names.iter().zip(together) {
        assert_eq!(attr, attr_at(&t, &root, name).await, "{}", name.name);
        match name.name.as_str() {
            "to-file" | "chain" => assert_eq!(attr.unwrap().key, file.key()),
            "d" | "to-dir" | "here" => assert_eq!(attr.unwrap().kind, crate::Kind::Directory),
            "dangling" => assert_eq!(attr.unwrap_err(), VfsError::NotFound),
            _ => assert_eq!(attr.unwrap_err(), VfsError::SymbolicLink, "{}", name.name),
        }
    }
    // The link is removed, not its target.
    t.remove("to-file").await.unwrap();
    assert!(!t.is_there("to-file").await && t.is_there("d/e/f").await);
    t.rename("chain", "renamed", false).await.unwrap();
    assert_eq!(t.node("renamed").await.key(), file.key());
    // A file over a link: the target is untouched.
    t.file("new").await;
    t.rename("new", "renamed", true).await.unwrap();
    assert!(t.is_there("d/e/f").await);
    assert_ne!(t.node("renamed").await.key(), file.key());
    link_to_directory(&t).await;
}

/// The removal of a symbolic link to a directory leaves the directory, and says so.
async fn link_to_directory<D: Disk>(t: &Case<D>) {
    let (dir, root) = (t.node("to-dir").await, t.vfs.root());
    let removed = t.vfs.remove(ME, &dir, &root, "to-dir").await.unwrap();
    assert_eq!(removed, crate::RemovedName::SymbolicLink);
    assert!(!t.is_there("to-dir").await && t.is_there("d/e").await);
}

/// Paths as deep as they may be, one deeper, and links in them that lead up far and back.
pub(super) async fn deep<D: Disk>(t: Case<D>) {
    let deepest: Vec<String> = (0..crate::PATH_DEPTH_MAX).map(|n| n.to_string()).collect();
    let (last, above) = deepest.split_last().unwrap();
    let (mut at, mut middle) = (t.vfs.root(), None);
    for (depth, name) in above.iter().enumerate() {
        let new = NewNode::default();
        at = t.vfs.create(ME, &at, name, &new, true).await.unwrap().0;
        if depth == 19 {
            middle = Some(at.clone());
        }
    }
    let middle = middle.unwrap();
    let file = t
        .vfs
        .create(ME, &at, last, &NewNode::default(), false)
        .await;
    let file = file.unwrap().0;
    let found = t.vfs.lookup(ME, &deepest).await.unwrap();
    assert_eq!(found.path, deepest);
    assert_eq!(found.found.unwrap().0.key(), file.key());
    let parent = t.vfs.lookup_parent(ME, &deepest).await.unwrap().unwrap();
    assert_eq!(parent.key(), at.key());
    // The path is that of the kernel, even if another program gave the name.
    let parent = t.vfs.parent_of(&file).await.unwrap().unwrap();
    assert_eq!(parent.key(), at.key());
    let top = t.vfs.parent_of(&middle).await.unwrap().unwrap();
    assert_ne!(top.key(), at.key());
    assert!(t.vfs.parent_of(&t.vfs.root()).await.unwrap().is_none());
    let beyond = [&deepest[..], &["x".to_owned()]].concat();
    for error in [
        t.vfs.lookup(ME, &beyond).await.unwrap_err(),
        t.vfs.lookup_parent(ME, &beyond).await.unwrap_err(),
    ] {
        assert_eq!(error, VfsError::NameTooLong);
    }
    // The links lead through a directory at depth 30, beyond those that are kept open, up to the
    // one at depth 20, to the root and out of it.
    let below = |n: usize| deepest[..n].join("/");
    let up = |n: usize| format!("{}{}", below(30), "/..".repeat(n));
    for (name, target) in [
        ("up", up(10)),
        ("over", up(10) + "/20/21"),
        ("root", up(30)),
        ("out", up(31)),
        ("long", "0/../".repeat(600)),
        ("first", "0/../".repeat(300) + "second"),
        ("second", "0/../".repeat(300)),
    ] {
        (t.link)(name, &target);
    }
    assert_eq!(t.node("up").await.key(), middle.key());
    let again = t.node(&below(23)).await.key();
    assert_eq!(t.node("up/20/21/22").await.key(), again);
    assert_eq!(t.node("over/22").await.key(), again);
    assert_eq!(t.node("root").await.key(), t.vfs.root().key());
    assert_eq!(t.node("second").await.key(), t.vfs.root().key());
    // The total cost of links is bounded.
    for name in ["out", "long", "first"] {
        let error = t.find(name).await.unwrap_err();
        assert_eq!(error, VfsError::SymbolicLink, "{name}");
    }
}

/// The attributes that come with a listing are those of its first names.
async fn looked_at<D: Disk>(t: &Case<D>, dir: &PosixNode<D>, listed: &[crate::DirName]) {
    let all = t.vfs.attrs_at(ME, dir, listed).await;
    for most in [0, 1, 5, listed.len(), 100] {
        let (names, attrs) = t.vfs.list_looked(ME, dir, 100, most).await.unwrap();
        assert_eq!(names, listed);
        // A name that a listing leaves out may have been queried instead.
        assert!(attrs.len() <= most && (attrs.len() == listed.len() || most < 100));
        assert_eq!(attrs[..], all[..attrs.len()]);
    }
}

/// One name by itself.
async fn attr_at<D: Disk>(
    t: &Case<D>,
    dir: &PosixNode<D>,
    name: &crate::DirName,
) -> crate::VfsResult<crate::Attr> {
    let mut one = t.vfs.attrs_at(ME, dir, std::slice::from_ref(name)).await;
    one.remove(0)
}

pub(super) async fn symlinks_hidden<D: Disk>(t: Case<D>) {
    t.file("f").await;
    (t.link)("l", "f");
    assert!(!t.is_there("l").await);
    assert_eq!(t.names("").await, ["f"]);
    t.file("g").await;
    (t.link)("a", "g");
    let root = t.vfs.root();
    let names = t.vfs.list(ME, &root, 10).await.unwrap();
    looked_at(&t, &root, &names).await;
}

pub(super) async fn symlinks_refused<D: Disk>(t: Case<D>) {
    t.file("f").await;
    (t.link)("l", "f");
    assert_eq!(t.find("l").await.unwrap_err(), VfsError::SymbolicLink);
    assert_eq!(t.find("L/x").await.unwrap_err(), VfsError::SymbolicLink);
    let root = t.vfs.root();
    let names = t.vfs.list(ME, &root, 10).await.unwrap();
    let link = names.iter().find(|n| n.name == "l").unwrap();
    assert_eq!(
        attr_at(&t, &root, link).await.unwrap_err(),
        VfsError::SymbolicLink
    );
}
