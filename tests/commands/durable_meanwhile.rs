//! Durable opens while their connection is lost ([MS-SMB2] 3.3.4.6, 3.3.4.7, 3.3.6.2): operations
//! of other clients close them or leave them open, and their timeout expires.

use std::time::Duration;

use smb_client::{CreateArgs, File, Tree};
use smb_tests::durable::{v2, v2_again};
use smb_tests::{HoldfastServer, SOON, status, wait_until};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::msg::{CreateOptions, Dialect, ShareAccess};

use super::durable_reconnect::{
    CREATE_GUID, EXCLUSIVE, KEY, Lost, OTHER_KEY, RH, RWH, batch, leased, modern, other,
};

/// Lets another client act while the open is disconnected, and asserts that it does not have to
/// wait.
fn meanwhile(lost: &Lost, what: impl FnOnce(&Tree)) {
    let tree = other(&lost.server);
    let started = std::time::Instant::now();
    what(&tree);
    assert!(
        started.elapsed() < SOON,
        "the client waited for a lost connection"
    );
}

#[test]
fn a_disconnected_open_still_takes_part_in_sharing() {
    // The conflict breaks the handle caching of the open; since nobody answers, it is closed
    // (3.3.4.7).
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let alone = leased("f", RWH).share(ShareAccess::empty());
    let file = tree.create(&v2(alone, CREATE_GUID, 0)).unwrap();
    let lost = Lost {
        id: file.id(),
        server,
    };
    lost.server.lose(&tree);
    meanwhile(&lost, |tree| {
        tree.create(&CreateArgs::open("f")).unwrap();
    });
    lost.assert_gone(leased("f", RWH));
}

#[test]
fn another_open_closes_a_disconnected_open_with_a_batch_oplock() {
    // 3.3.4.6: the notification cannot be sent, so the open is closed.
    let lost = Lost::new(batch("f"));
    meanwhile(&lost, |tree| {
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        assert_eq!(file.read_all().unwrap(), b"before");
    });
    lost.assert_gone(batch("f"));
}

#[test]
fn another_open_closes_a_disconnected_open_with_write_caching() {
    // 3.3.4.7; durable-v2-open.purge-disconnected-rwh-with-rwh-open: the break to RH cannot be sent
    // and is completed with NONE, so H is lost as well.
    for theirs in [RH, RWH] {
        let lost = Lost::new(leased("f", RWH));
        meanwhile(&lost, |tree| {
            let args = CreateArgs::open("f").lease_v2(OTHER_KEY, theirs, 0);
            tree.create(&args).unwrap();
        });
        lost.assert_gone(leased("f", RWH));
    }
}

#[test]
fn another_open_leaves_a_disconnected_open_without_write_caching() {
    // durable-v2-open.keep-disconnected-rh-with-rh-open, -with-rwh-open
    for theirs in [RH, RWH] {
        let lost = Lost::new(leased("f", RH));
        meanwhile(&lost, |tree| {
            let args = CreateArgs::open("f").lease_v2(OTHER_KEY, theirs, 0);
            let file = tree.create(&args).unwrap();
            assert_eq!(file.created().lease().unwrap().lease_state, RH);
        });
        let file = lost.back(leased("f", RH));
        assert_eq!(file.created().lease().unwrap().lease_state, RH);
    }
}

#[test]
fn an_attribute_only_open_leaves_a_disconnected_open() {
    // durable-v2-open.keep-disconnected-rwh-with-stat-open
    for args in [leased("f", RWH), leased("f", RH), batch("f")] {
        let lost = Lost::new(args.clone());
        meanwhile(&lost, |tree| {
            let stat = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
            let file = tree.create(&CreateArgs::open("f").access(stat)).unwrap();
            file.close().unwrap();
        });
        lost.back(args);
    }
}

#[test]
fn an_open_without_sharing_closes_a_disconnected_open() {
    // durable-v2-open.purge-disconnected-rh-with-share-none-open
    let lost = Lost::new(leased("f", RH));
    meanwhile(&lost, |tree| {
        let alone = CreateArgs::open("f").share(ShareAccess::empty());
        tree.create(&alone).unwrap();
    });
    lost.assert_gone(leased("f", RH));
}

#[test]
fn a_write_of_another_client_closes_a_disconnected_open() {
    // durable-v2-open.purge-disconnected-rh-with-write: RH to NONE
    let lost = Lost::new(leased("f", RH));
    meanwhile(&lost, |tree| {
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        file.write_all(0, b"BEFORE").unwrap();
    });
    lost.assert_gone(leased("f", RH));
}

#[test]
fn a_rename_by_another_client_closes_a_disconnected_open() {
    // durable-v2-open.purge-disconnected-rh-with-rename: RH to R
    let lost = Lost::new(leased("f", RH));
    meanwhile(&lost, |tree| {
        tree.rename("f", "g", false).unwrap();
    });
    lost.assert_gone(leased("f", RH));
}

#[test]
fn an_open_with_the_same_lease_key_closes_nothing() {
    let lost = Lost::new(leased("f", RWH));
    let tree = modern(&lost.server);
    let second = tree.create(&leased("f", RWH)).unwrap();
    assert_eq!(second.created().lease().unwrap().lease_state, RWH);
    second.write_all(0, b"BEFORE").unwrap();
    let file = tree.create(&lost.again(leased("f", RWH))).unwrap();
    assert_eq!(file.read_all().unwrap(), b"BEFORE");
}

/// Opens a file under a lease, runs `act` and loses the connection. Returns `None` if the open was
/// not preserved.
fn lost_after(
    state: LeaseState,
    act: impl FnOnce(&HoldfastServer, &File),
) -> (HoldfastServer, Option<File>) {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree
        .create(&v2(leased("f", state), CREATE_GUID, 0))
        .unwrap();
    file.write_all(0, &[1; 100]).unwrap();
    act(&server, &file);
    server.lose(&tree);
    let again = v2_again(leased("f", state), file.id(), CREATE_GUID);
    let back = modern(&server).create(&again);
    let back = match back {
        Ok(file) => Some(file),
        Err(error) => {
            let refused = status::<()>(Err(error));
            assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND);
            None
        }
    };
    (server, back)
}

#[test]
fn an_open_with_locks_but_without_write_caching_is_not_preserved() {
    // durable-v2-open.lock-noW-lease: without write caching nothing would protect the locked range.
    let (server, back) = lost_after(RH, |_, file| file.lock(0, 10, EXCLUSIVE).unwrap());
    assert!(back.is_none());
    let theirs = other(&server).create(&CreateArgs::open("f")).unwrap();
    theirs.lock(0, 10, EXCLUSIVE).unwrap();
    assert_eq!(theirs.read(0, 10).unwrap(), [1; 10]);
}

#[test]
fn an_open_whose_locks_were_released_is_preserved() {
    let (_server, back) = lost_after(RH, |_, file| {
        file.lock(0, 10, EXCLUSIVE).unwrap();
        file.unlock(0, 10).unwrap();
    });
    assert!(back.is_some());
}

#[test]
fn locks_are_preserved_as_long_as_write_caching_is_held() {
    let (_server, back) = lost_after(RWH, |_, file| file.lock(0, 10, EXCLUSIVE).unwrap());
    let file = back.unwrap();
    let again = file.lock(5, 10, EXCLUSIVE);
    assert_eq!(status(again), Status::LOCK_NOT_GRANTED);

    let (server, back) = lost_after(RWH, |server, file| {
        file.lock(0, 10, EXCLUSIVE).unwrap();
        // Another client breaks the write caching.
        let stranger = other(server);
        let waiting = stranger.send(CreateArgs::open("f").request()).unwrap();
        assert!(file.tree().client().next_break(SOON).unwrap().is_some());
        file.tree().acknowledge_lease(KEY, RH).unwrap();
        stranger.client().wait(waiting).unwrap().ok().unwrap();
    });
    assert!(back.is_none());
    let theirs = other(&server).create(&CreateArgs::open("f")).unwrap();
    theirs.lock(0, 10, EXCLUSIVE).unwrap();
}

/// Opens a file with DELETE_ON_CLOSE and a timeout, and loses the connection.
fn delete_on_close(timeout_ms: u32) -> Lost {
    let args = batch("f").options(CreateOptions::DELETE_ON_CLOSE);
    Lost::opened(&v2(args, CREATE_GUID, timeout_ms), Dialect::SMB_3_1_1)
}

#[test]
fn a_delete_on_close_file_is_deleted_when_the_reconnected_open_is_closed() {
    // durable-open.delete_on_close2
    let lost = delete_on_close(60_000);
    assert!(lost.server.path("f").exists());
    let file = lost.back(batch("f"));
    assert_eq!(file.read_all().unwrap(), b"before");
    assert!(lost.server.path("f").exists());
    file.close().unwrap();
    assert!(!lost.server.path("f").exists());
}

#[test]
fn a_delete_on_close_file_is_deleted_when_another_client_opens_it() {
    // durable-open.delete_on_close1
    let lost = delete_on_close(60_000);
    meanwhile(&lost, |tree| {
        let file = tree.create(&CreateArgs::open_if("f")).unwrap();
        assert_eq!(file.created().facts.end_of_file, 0);
        assert_eq!(
            file.created().create_action,
            smb_wire::msg::CreateAction::CREATED
        );
    });
    lost.assert_gone(batch("f"));
    assert!(lost.server.path("f").exists());
}

#[test]
fn a_disconnected_open_is_closed_after_its_timeout() {
    // 3.3.6.2
    let lost = delete_on_close(300);
    // The deletion of the file shows that it was closed.
    wait_until("the scavenger closes it", || {
        !lost.server.path("f").exists()
    });
    lost.assert_gone(batch("f"));
    assert!(!lost.server.path("f").exists());
}

#[test]
fn a_disconnected_open_is_not_closed_before_its_timeout() {
    // "The server MUST guarantee that the open is not closed before the timer expires."
    let started = std::time::Instant::now();
    let lost = delete_on_close(1500);
    wait_until("the scavenger closes it", || {
        !lost.server.path("f").exists()
    });
    assert!(started.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn a_reconnect_stops_the_timer_and_another_loss_restarts_it() {
    // CVE-2026-31718: the timer of the first loss must not close the reconnected open.
    let mut lost = delete_on_close(3_000);
    let file = lost.back(batch("f"));
    std::thread::sleep(Duration::from_millis(4_000));
    assert_eq!(file.read_all().unwrap(), b"before");
    lost.id = file.id();
    let again = std::time::Instant::now();
    lost.server.lose(file.tree());
    wait_until("the scavenger closes it", || {
        !lost.server.path("f").exists()
    });
    assert!(again.elapsed() >= Duration::from_millis(3_000));
}

#[test]
fn a_reconnect_at_the_last_moment_succeeds_or_fails_entirely() {
    // CVE-2026-31718: the reconnect and the expiry happen at the same moment.
    for round in 0..8u64 {
        let lost = delete_on_close(150);
        std::thread::sleep(Duration::from_millis(90 + 15 * round));
        let tree = modern(&lost.server);
        match tree.create(&lost.again(batch("f"))) {
            Ok(file) => {
                std::thread::sleep(Duration::from_millis(200));
                assert_eq!(file.read_all().unwrap(), b"before");
                file.close().unwrap();
            }
            Err(error) => assert_eq!(status::<()>(Err(error)), Status::OBJECT_NAME_NOT_FOUND),
        }
        wait_until("deleted either way", || !lost.server.path("f").exists());
    }
}

#[test]
fn an_expired_open_releases_its_name_locks_and_share_mode() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = leased("f", RWH).share(ShareAccess::empty());
    let file = tree.create(&v2(args, CREATE_GUID, 200)).unwrap();
    file.lock(0, 10, EXCLUSIVE).unwrap();
    server.lose(&tree);
    std::thread::sleep(Duration::from_millis(400));
    // The key of the lease can be used for another file, the CreateGuid for another open.
    let tree = modern(&server);
    wait_until("the key is free", || {
        let args = v2(leased("g", RWH), CREATE_GUID, 0);
        tree.create(&args).is_ok_and(|file| file.close().is_ok())
    });
    let alone = CreateArgs::open("f").share(ShareAccess::empty());
    let file = other(&server).create(&alone).unwrap();
    file.lock(0, 10, EXCLUSIVE).unwrap();
}
