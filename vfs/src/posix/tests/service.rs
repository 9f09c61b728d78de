//! Inodes that the service itself may not reach, on the simulated disk: those of others for a server without root.

use super::*;
use crate::posix::dos;

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
