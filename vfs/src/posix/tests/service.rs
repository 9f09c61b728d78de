//! Tests of what the service itself may not do: reach the inodes of others without root, or as root on an NFS export
//! with `root_squash`, and remove names from an append-only directory.

use std::process::Command;

use super::{meta::descriptor, users::user, *};
use crate::{NewSecurity, posix::dos};

/// A server without root.
async fn without_root() -> (SimDisk, Case<SimDisk>) {
    let (disk, link) = sim(SimOptions {
        root_owner: (7, 7),
        service: (7, 7),
        ..SimOptions::default()
    });
    (disk.clone(), Case::new(disk, link).await)
}

#[test]
fn a_file_that_the_service_may_not_read_is_shown() {
    block_on(async {
        let (disk, t) = without_root().await;
        let file = t.file("f").await;
        let hidden = SetAttr {
            dos_attributes: Some(dos::HIDDEN),
            ..SetAttr::default()
        };
        t.vfs.set_attr(ME, &file, &hidden).await.unwrap();
        disk.set_mode(ME, file.fd(), 0).await.unwrap();
        let attr = t.find("f").await.unwrap().found.unwrap().1;
        assert_eq!(attr.dos_attributes, dos::ARCHIVE | dos::READONLY);
        assert!(t.vfs.is_readonly(&file).await.unwrap());
        let (names, attrs) = t.vfs.list_looked(ME, &t.vfs.root(), 9, 9).await.unwrap();
        assert_eq!((names.len(), attrs), (1, vec![Ok(attr)]));
        t.remove("f").await.unwrap();
    });
}

#[test]
fn a_file_that_the_service_may_only_write_is_synced() {
    block_on(async {
        let (disk, t) = without_root().await;
        let file = t.file("f").await;
        disk.set_mode(ME, file.fd(), 0o200).await.unwrap();
        let write = IoAccess {
            read: false,
            write: true,
        };
        let found = t.node("f").await;
        let file = t.vfs.open(ME, &found, write).await.unwrap();
        t.write(&file, 0, b"data").await;
        for (node, scope) in [
            (&file, SyncScope::Data),
            (&file, SyncScope::All),
            (&found, SyncScope::All),
        ] {
            assert_eq!(t.vfs.sync(node, scope).await, Ok(()));
        }
    });
}

/// An export with `root_squash`: root is nobody there.
async fn without_rights() -> Case<SimDisk> {
    let (disk, link) = sim(SimOptions {
        nfs: true,
        root_mode: 0o777,
        service: (65_534, 65_534),
        ..SimOptions::default()
    });
    let options = PosixOptions {
        acl: AclNamespace::User,
        ..default_options()
    };
    Case::with(disk, link, options).await
}

#[test]
fn a_user_describes_his_files_where_root_is_nobody() {
    block_on(async {
        let t = without_rights().await;
        let (vfs, root, alice, bob) = (&t.vfs, t.vfs.root(), &user(4001, &[]), &user(4002, &[]));
        let ea = |value: &[u8]| vec![("e".to_owned(), value.to_vec())];
        let new = NewNode {
            security: Some(NewSecurity::Given(descriptor(1))),
            eas: ea(b"1"),
            ..NewNode::default()
        };
        let file = vfs.create(alice, &root, "f", &new, false).await.unwrap().0;
        assert_eq!(vfs.eas(&file).await, Ok(ea(b"1")));
        assert_eq!(vfs.security(&file, None).await, Ok(Some(descriptor(1))));
        vfs.set_security(alice, &file, &descriptor(2))
            .await
            .unwrap();
        vfs.set_eas(alice, &file, &ea(b"2")).await.unwrap();
        // Others may still set nothing.
        let refused = Err(VfsError::AccessDenied);
        assert_eq!(vfs.set_eas(bob, &file, &ea(b"3")).await, refused);
        assert_eq!(vfs.set_security(bob, &file, &descriptor(3)).await, refused);
        assert_eq!(vfs.eas(&file).await, Ok(ea(b"2")));
        assert_eq!(vfs.security(&file, None).await, Ok(Some(descriptor(2))));
        vfs.set_eas(alice, &file, &ea(b"")).await.unwrap();
        assert_eq!(vfs.eas(&file).await, Ok(vec![]));
    });
}

#[test]
fn a_creation_that_fails_leaves_nothing_where_root_is_nobody() {
    block_on(async {
        let t = without_rights().await;
        let (vfs, root, alice) = (&t.vfs, t.vfs.root(), &user(4001, &[]));
        let closed = NewNode {
            mode: Some(0o700),
            ..NewNode::default()
        };
        let dir = vfs.create(alice, &root, "d", &closed, true).await;
        let dir = dir.unwrap().0;
        for directory in [false, true] {
            let large = NewNode {
                allocation: 1 << 50,
                eas: vec![("e".into(), vec![7; 60_000])],
                ..closed.clone()
            };
            let failed = vfs.create(alice, &dir, "f", &large, directory).await;
            assert!(failed.is_err());
            assert_eq!(vfs.list(alice, &dir, 9).await, Ok(vec![]));
        }
    });
}

#[test]
fn a_user_keeps_files_to_himself_where_root_is_nobody() {
    block_on(async {
        let t = without_rights().await;
        let (vfs, root, alice) = (&t.vfs, t.vfs.root(), &user(4001, &[]));
        let new = |mode| NewNode {
            mode: Some(mode),
            ..NewNode::default()
        };
        let dir = vfs.create(alice, &root, "d", &new(0o700), true).await;
        let dir = dir.unwrap().0;
        let below = vfs.create(alice, &dir, "sub", &new(0o700), true).await;
        below.unwrap();
        let file = vfs.create(alice, &dir, "f", &new(0o600), false).await;
        let file = file.unwrap().0;
        t.write(&file, 0, b"hers").await;
        let at = Timestamp { secs: 7, nanos: 0 };
        let set = SetAttr {
            written: Some(at),
            dos_attributes: Some(dos::HIDDEN),
            ..SetAttr::default()
        };
        vfs.set_attr(alice, &file, &set).await.unwrap();
        for node in [&file, &dir] {
            assert_eq!(vfs.sync(node, SyncScope::All).await, Ok(()));
        }
        let (names, attrs) = vfs.list_looked(alice, &dir, 9, 9).await.unwrap();
        let of_file = names.iter().position(|name| name.name == "f").unwrap();
        assert_eq!((names.len(), attrs.len()), (2, 2));
        let attr = attrs[of_file].as_ref().unwrap();
        assert_eq!((attr.size, attr.written), (4, at));
        assert_eq!(vfs.attrs_at(alice, &dir, &names).await, attrs);
        let moved = vfs.rename(alice, &file, &dir, "f", &dir, "g", None);
        moved.await.unwrap();
        vfs.remove(alice, &file, &dir, "g").await.unwrap();
        let left = vfs.list(alice, &dir, 9).await.unwrap();
        assert_eq!(left.len(), 1);
    });
}

/// An object with a descriptor is otherwise made under a temporary name.
#[test]
fn an_append_only_directory_gets_no_name_that_stays() {
    if !crate::testing::root() {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("d");
    std::fs::create_dir(&path).unwrap();
    let chattr = |set: &str| {
        let output = Command::new("chattr").arg(set).arg(&path).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !chattr("+a") {
        return crate::testing::missing("chattr, or file system that keeps what it sets");
    }
    let disk = LinuxDisk::open(top.path()).unwrap();
    let made = block_on(async {
        let t = Case::new(disk, Box::new(|_, _| ())).await;
        let dir = t.node("d").await;
        let new = NewNode {
            security: Some(NewSecurity::Given(descriptor(1))),
            ..NewNode::default()
        };
        let file = t.vfs.create(ME, &dir, "f", &new, false).await;
        let below = t.vfs.create(ME, &dir, "sub", &new, true).await;
        let mut stored = Vec::new();
        for made in [file, below] {
            stored.push(t.vfs.security(&made.unwrap().0, None).await);
        }
        (stored, t.names("d").await)
    });
    let on_disk = std::fs::read_dir(&path).unwrap().count();
    assert!(chattr("-a"));
    let stored: VfsResult<_> = Ok(Some(descriptor(1)));
    assert_eq!(made.0, [stored.clone(), stored]);
    assert_eq!((made.1.len(), on_disk), (2, 2));
}
