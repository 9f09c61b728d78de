//! After a failed sync the server must report the true status, and no success until the file has
//! been repaired.
//!
//! The file system behaves like Linux: it reports a failure once to each descriptor and marks the
//! lost pages clean, so every later fsync succeeds. A server that trusts this later success reports
//! false successes to its clients.

use smb_client::{File, Tree};
use smb_wire::{
    Status,
    fscc::{EaEntry, FileInformationClass, encode_ea_list},
    msg::WriteFlags,
};

use crate::{Rig, open, status};

/// The error of the disk, and the status that a client must get.
const ERRORS: [(&str, Status); 4] = [
    ("EIO", Status::IO_DEVICE_ERROR),
    ("ENOSPC", Status::DISK_FULL),
    ("EDQUOT", Status::DISK_FULL),
    ("EROFS", Status::MEDIA_WRITE_PROTECTED),
];
const DIRTY: u64 = 8192;

/// No request that promises anything about the file succeeds, from any client.
#[track_caller]
fn assert_poisoned(rig: &Rig, name: &str, held: Option<&File>, told: Status, when: &str) {
    if let Some(held) = held {
        assert_eq!(status(held.flush(false)), told, "{when}: the same handle");
    }
    for (user, who) in [(0, "a new connection"), (1, "another user")] {
        let tree = rig.server.tree_of(user);
        let file = open(&tree, name);
        assert_eq!(status(file.flush(false)), told, "{when}: FLUSH by {who}");
        assert_eq!(status(file.flush(true)), told, "{when}: full sync by {who}");
        let through = file.write(0, b"through", WriteFlags::WRITE_THROUGH);
        assert_eq!(status(through), told, "{when}: write-through by {who}");
        assert_eq!(status(file.close()), told, "{when}: CLOSE by {who}");
    }
}

#[track_caller]
fn assert_repaired(tree: &Tree, name: &str, when: &str) {
    let file = open(tree, name);
    assert_eq!(status(file.flush(false)), Status::SUCCESS, "{when}: FLUSH");
    let through = file.write(0, b"through", WriteFlags::WRITE_THROUGH);
    assert_eq!(status(through), Status::SUCCESS, "{when}: write-through");
    assert_eq!(status(file.close()), Status::SUCCESS, "{when}: CLOSE");
}

/// A file whose name and metadata are stable, with `DIRTY` bytes that are not.
fn dirty(tree: &Tree, name: &str) -> File {
    let file = open(tree, name);
    file.write_all(0, &[1; 100]).unwrap();
    file.flush(false).unwrap();
    file.write_all(0, &[2; DIRTY as usize]).unwrap();
    file
}

fn latches_until_rewritten(io: &str) {
    let server = format!("file_io = \"{io}\"");
    let Some(mut rig) = Rig::started(&server, "durability = \"honor\"") else {
        return;
    };
    for (errno, told) in ERRORS {
        let tree = rig.server.tree();
        let file = dirty(&tree, errno);
        let rule = rig
            .mount
            .send(&format!("rule fsync,fdatasync /{errno} 1 1 {errno}"));
        assert_eq!(
            status(file.flush(false)),
            told,
            "{errno}: the failing FLUSH"
        );
        assert_eq!(rig.mount.hits(&rule), 1, "{errno}: the fault was met");
        assert_poisoned(&rig, errno, Some(&file), told, errno);
        // Half of it is not all of it.
        file.write_all(0, &[3; DIRTY as usize / 2]).unwrap();
        assert_poisoned(&rig, errno, Some(&file), told, "half repaired");
        file.write_all(0, &[4; DIRTY as usize]).unwrap();
        assert_eq!(status(file.flush(false)), Status::SUCCESS, "rewritten");
        assert_repaired(&rig.server.tree_of(1), errno, "repaired");
        assert_eq!(status(file.close()), Status::SUCCESS);
        // Data reported as stable are stable: all that was not synced is gone now.
        rig.mount.send("cut nothing");
        rig.server.kill();
        rig.mount.send("thaw");
        rig.mount.send("clear");
        rig.server.start();
        let data = rig.server.tree().read_file(errno).unwrap();
        let stable = data.starts_with(b"through") && data[7..] == [4; DIRTY as usize - 7];
        assert!(
            stable,
            "{errno}: what was repaired was lost: {} bytes, {:?}, {}",
            data.len(),
            &data[..data.len().min(16)],
            rig.mount.trace()
        );
        rig.server.assert_sound();
    }
}

#[test]
fn a_failed_fsync_is_reported_to_everybody_until_all_is_rewritten_threads() {
    latches_until_rewritten("threads");
}

#[test]
fn a_failed_fsync_is_reported_to_everybody_until_all_is_rewritten_auto() {
    latches_until_rewritten("auto");
}

#[test]
fn a_failed_sync_of_the_directory_is_one_of_the_file() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    for (errno, told) in ERRORS {
        let file = open(&tree, errno);
        file.write_all(0, b"new").unwrap();
        let rule = rig.mount.send(&format!("rule fsyncdir / 1 1 {errno}"));
        assert_eq!(
            status(file.flush(false)),
            told,
            "{errno}: the failing FLUSH"
        );
        assert_eq!(rig.mount.hits(&rule), 1);
        assert_poisoned(&rig, errno, Some(&file), told, errno);
        // Rewriting says nothing about the name.
        file.write_all(0, b"all").unwrap();
        assert_poisoned(&rig, errno, Some(&file), told, "rewritten");
        let (cleared, said) = rig.server.holdfast(&["policy", "clear-latch", "data"]);
        assert!(cleared, "{said}");
        assert_repaired(&tree, errno, "cleared");
        assert_eq!(status(file.close()), Status::SUCCESS);
    }
    rig.server.assert_sound();
}

#[test]
fn a_failed_write_through_latches_and_clear_latch_ends_it() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    for (errno, told) in ERRORS {
        let file = dirty(&tree, errno);
        file.flush(false).unwrap();
        rig.mount.send(&format!("rule sync /{errno} 1 1 {errno}"));
        let through = file.write(0, &[7; DIRTY as usize], WriteFlags::WRITE_THROUGH);
        assert_eq!(status(through), told, "{errno}: the failing write");
        assert_poisoned(&rig, errno, Some(&file), told, errno);
        let (cleared, said) = rig.server.holdfast(&["policy", "clear-latch", "data"]);
        assert!(cleared, "{said}");
        assert_repaired(&tree, errno, "cleared");
        file.close().unwrap();
    }
    rig.server.assert_sound();
}

#[test]
fn write_back_that_failed_when_nobody_looked_is_reported() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    for (errno, told) in ERRORS {
        // The client's handle is closed before the kernel fails, and opened after.
        let file = dirty(&tree, errno);
        file.close().unwrap();
        rig.mount.send(&format!("fail-write-back {errno}"));
        let file = open(&tree, errno);
        assert_eq!(status(file.flush(false)), told, "{errno}: the first FLUSH");
        assert_poisoned(&rig, errno, Some(&file), told, errno);
        file.write_all(0, &[5; DIRTY as usize]).unwrap();
        assert_eq!(status(file.flush(false)), Status::SUCCESS, "rewritten");
        assert_repaired(&tree, errno, "repaired");
        file.close().unwrap();
    }
    rig.server.assert_sound();
}

#[test]
fn a_stream_shares_its_files_latch() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    let file = dirty(&tree, "base");
    file.flush(false).unwrap();
    let stream = open(&tree, "base:stream");
    stream.write_all(0, b"in the stream").unwrap();
    rig.mount.send("rule sync * 1 1 EIO");
    let told = Status::IO_DEVICE_ERROR;
    assert_eq!(status(stream.flush(false)), told);
    assert_poisoned(&rig, "base", Some(&file), told, "the base file");
    assert_poisoned(&rig, "base:stream", Some(&stream), told, "the stream");
    rig.server.assert_sound();
}

#[test]
fn a_failed_sync_of_a_directory_above_is_one_of_the_file() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    tree.mkdir("d").unwrap();
    let file = open(&tree, "d\\f");
    file.write_all(0, b"new").unwrap();
    let told = Status::IO_DEVICE_ERROR;
    rig.mount.send("rule fsyncdir / 1 1 EIO");
    assert_eq!(
        status(file.flush(false)),
        told,
        "the name of d is not stable"
    );
    assert_eq!(status(file.flush(false)), told, "the same handle");
    file.write_all(0, b"all").unwrap();
    assert_eq!(
        status(file.flush(false)),
        told,
        "rewritten, and d still lost"
    );
    let file = open(&rig.server.tree_of(1), "d\\f");
    assert_eq!(status(file.flush(false)), told, "another user");
    let other = open(&tree, "d\\g");
    assert_eq!(status(other.flush(false)), told, "another file of d");
}

#[test]
fn other_metadata_repairs_none_that_was_lost() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    let tree = rig.server.tree();
    let file = open(&tree, "f");
    file.flush(false).unwrap();
    let entry = EaEntry {
        name: b"NOTE".to_vec(),
        value: b"lost".to_vec(),
        ..EaEntry::default()
    };
    let (list, _) = encode_ea_list(&[entry], 4096);
    file.set(FileInformationClass::FULL_EA, &list).unwrap();
    let told = Status::IO_DEVICE_ERROR;
    rig.mount.send("rule fsync,fdatasync /f 1 1 EIO");
    assert_eq!(status(file.flush(false)), told);
    let stream = open(&tree, "f:stream");
    stream.write_all(0, b"something else").unwrap();
    assert_eq!(
        status(stream.flush(false)),
        told,
        "a stream is made and flushed"
    );
    assert_eq!(
        status(file.flush(false)),
        told,
        "the attribute is not rewritten"
    );
    file.set(FileInformationClass::FULL_EA, &list).unwrap();
    assert_eq!(status(file.flush(false)), Status::SUCCESS, "rewritten");
}

#[test]
fn latches_outlive_the_server() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    for (errno, told) in ERRORS {
        let file = dirty(&rig.server.tree(), errno);
        rig.mount
            .send(&format!("rule fsync,fdatasync /{errno} 1 1 {errno}"));
        assert_eq!(
            status(file.flush(false)),
            told,
            "{errno}: the failing FLUSH"
        );
        rig.restart();
        assert_poisoned(&rig, errno, None, told, "after kill -9");
        assert!(rig.server.stop().code().is_some());
        rig.server.start();
        assert_poisoned(&rig, errno, None, told, "after an orderly restart");
        let (cleared, said) = rig.server.holdfast(&["policy", "clear-latch", "data"]);
        assert!(cleared, "{said}");
        // Once `clear-latch` has answered, its effect survives a kill.
        rig.restart();
        assert_repaired(&rig.server.tree(), errno, "cleared and killed");
    }
    rig.server.assert_sound();
}
