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
