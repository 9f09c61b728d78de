//! Persistent opens after the end of the server process ([MS-SMB2] 3.3.5.9.12): mostly it is killed without warning,
//! and its successor restores the opens from their records.

use smb_client::CreateArgs;
use smb_tests::durable::{
    CREATE_GUID, KEY, continuously_available, granted_v2, modern, options, persistent,
    persistent_again, v2, v2_again,
};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, cut, wait_until};
use smb_wire::Status;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{CreateOptions, LockElement, LockFlags, OplockLevel, ShareAccess};

use super::persistent::{
    RH, RWH, again, batch, end, is_persistent, leased, open, other, plain, sent_again,
};

const EXCLUSIVE: LockFlags = LockFlags(0x12);

/// Opens persistently; then the server is killed and restarted.
fn killed(server: &mut HoldfastServer, args: CreateArgs) -> FileId {
    let id = open(&modern(server), args).id();
    server.kill_and_restart();
    id
}

#[test]
fn a_persistent_open_survives_the_server() {
    let mut server = continuously_available();
    let id = killed(&mut server, plain());
    let file = modern(&server).create(&again(plain(), id)).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
    assert_eq!(file.created().facts.end_of_file, 6);
    assert_eq!(file.read_all().unwrap(), b"before");
    file.write_all(6, b"after").unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"beforeafter");
    assert_eq!(
        end(modern(&server).create(&again(plain(), id))),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

#[test]
fn a_persistent_open_survives_repeated_restarts() {
    let mut server = continuously_available();
    let mut id = killed(&mut server, plain());
    for round in 0..3u8 {
        let file = modern(&server).create(&again(plain(), id)).unwrap();
        file.write_all(6 + u64::from(round), &[round]).unwrap();
        id = file.id();
        server.kill_and_restart();
    }
    // Also if the client did not reconnect in between.
    server.kill_and_restart();
    let file = modern(&server).create(&again(plain(), id)).unwrap();
    assert_eq!(file.read_all().unwrap(), b"before\0\x01\x02");
}

#[test]
fn cached_state_survives_the_server() {
    for args in [
        batch(),
        plain().oplock(OplockLevel::EXCLUSIVE),
        leased(RH),
        leased(RWH),
    ] {
        let mut server = continuously_available();
        let id = killed(&mut server, args.clone());
        let file = modern(&server).create(&again(args.clone(), id)).unwrap();
        assert_eq!(file.created().oplock_level, args.oplock_level, "{args:?}");
    }
    for state in [RH, RWH] {
        let mut server = continuously_available();
        let id = killed(&mut server, leased(state));
        let file = modern(&server).create(&again(leased(state), id)).unwrap();
        let lease = file.created().lease().unwrap();
        assert_eq!((lease.lease_key, lease.lease_state), (KEY, state));
    }
}

#[test]
fn a_lease_is_broken_after_the_restart_like_any_other() {
    let mut server = continuously_available();
    let id = killed(&mut server, leased(RWH));
    let tree = modern(&server);
    let file = tree.create(&again(leased(RWH), id)).unwrap();
    assert_eq!(file.created().lease().unwrap().lease_state, RWH);
    let stranger = other(&server);
    let pending = stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(tree.client().next_break(smb_tests::SOON).unwrap().is_some());
    tree.acknowledge_lease(KEY, RH).unwrap();
    stranger.client().wait(pending).unwrap().ok().unwrap();
}

#[test]
fn the_share_mode_survives_the_server() {
    let mut server = continuously_available();
    let alone = || plain().share(ShareAccess::empty());
    let id = killed(&mut server, alone());
    let stranger = other(&server);
    assert_eq!(
        end(stranger.create(&CreateArgs::open("f"))),
        Status::FILE_NOT_AVAILABLE
    );
    let file = modern(&server).create(&again(alone(), id)).unwrap();
    assert_eq!(
        end(stranger.create(&CreateArgs::open("f"))),
        Status::SHARING_VIOLATION
    );
    file.close().unwrap();
    stranger.create(&CreateArgs::open("f")).unwrap();
}

#[test]
fn locks_survive_the_server() {
    let mut server = continuously_available();
    let tree = modern(&server);
    let file = open(&tree, plain());
    file.lock(0, 10, EXCLUSIVE).unwrap();
    file.lock(100, 10, LockFlags(0x11)).unwrap();
    file.lock(200, 10, EXCLUSIVE).unwrap();
    file.unlock(200, 10).unwrap();
    // 3.3.5.14.2: the locks before bad flags stay.
    let array =
        [(300, EXCLUSIVE), (310, LockFlags(0x13)), (320, EXCLUSIVE)].map(|(offset, flags)| {
            LockElement {
                offset,
                length: 10,
                flags,
            }
        });
    let failed = tree.call(file.lock_request(0, &array));
    assert_eq!(end(failed), Status::INVALID_PARAMETER);
    server.kill_and_restart();
    let file = modern(&server).create(&again(plain(), file.id())).unwrap();
    let theirs = other(&server).create(&CreateArgs::open("f")).unwrap();
    assert_eq!(end(theirs.lock(0, 1, EXCLUSIVE)), Status::LOCK_NOT_GRANTED);
    assert_eq!(
        end(theirs.lock(105, 1, EXCLUSIVE)),
        Status::LOCK_NOT_GRANTED
    );
    theirs.lock(105, 1, LockFlags(0x11)).unwrap();
    theirs.lock(200, 10, EXCLUSIVE).unwrap();
    assert_eq!(
        end(theirs.lock(300, 1, EXCLUSIVE)),
        Status::LOCK_NOT_GRANTED
    );
    theirs.lock(320, 1, EXCLUSIVE).unwrap();
    file.unlock(0, 10).unwrap();
    theirs.lock(0, 1, EXCLUSIVE).unwrap();
}

#[test]
fn a_lock_repeated_after_the_restart_is_not_executed_again() {
    // 3.3.5.14: its response may have been lost with the server.
    let mut server = continuously_available();
    let tree = modern(&server);
    let file = open(&tree, plain());
    let element = LockElement {
        offset: 0,
        length: 10,
        flags: EXCLUSIVE,
    };
    let sequence = (4 << 4) | 9;
    tree.call(file.lock_request(sequence, &[element])).unwrap();
    server.kill_and_restart();
    let tree = modern(&server);
    let file = tree.create(&again(plain(), file.id())).unwrap();
    tree.call(file.lock_request(sequence, &[element])).unwrap();
    let new = file.lock_request(sequence + 1, &[element]);
    assert_eq!(end(tree.call(new)), Status::LOCK_NOT_GRANTED);
}

#[test]
fn after_the_restart_a_reconnect_is_checked_in_the_same_way() {
    let mut server = continuously_available();
    let id = killed(&mut server, leased(RWH));
    let tree = modern(&server);
    let right = || again(leased(RWH), id);
    assert_eq!(
        end(tree.create(&v2_again(leased(RWH), id, CREATE_GUID))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    assert_eq!(
        end(tree.create(&again(plain(), id))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    let key = plain().lease_v2(LeaseKey([1; 16]), RWH, 0);
    assert_eq!(
        end(tree.create(&again(key, id))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    let name = CreateArgs::open_if("g").lease_v2(KEY, RWH, 0);
    assert_eq!(
        end(tree.create(&again(name, id))),
        Status::INVALID_PARAMETER
    );
    assert_eq!(
        end(other(&server).create(&right())),
        Status::OBJECT_NAME_NOT_FOUND
    );
    let thief = server.client(options());
    let thief = thief.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let thief = thief.tree(DATA).unwrap();
    assert_eq!(end(thief.create(&right())), Status::ACCESS_DENIED);
    tree.create(&right()).unwrap();
}

#[test]
fn after_the_restart_the_create_guid_alone_finds_the_open() {
    let mut server = continuously_available();
    let id = killed(&mut server, plain());
    let wrong = FileId {
        persistent: id.persistent ^ 0x40,
        ..id
    };
    let file = modern(&server).create(&again(plain(), wrong)).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
}

#[test]
fn after_the_restart_a_repeated_create_finds_the_open() {
    let mut server = continuously_available();
    let id = killed(&mut server, plain());
    let tree = modern(&server);
    let mismatch = sent_again(&tree, plain().share(ShareAccess::READ));
    assert_eq!(end(mismatch), Status::CONTEXT_MISMATCH);
    let file = sent_again(&tree, plain()).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
    assert_eq!(file.read_all().unwrap(), b"before");
}

#[test]
fn a_closed_open_is_not_restored() {
    let mut server = continuously_available();
    let file = open(&modern(&server), plain());
    file.close().unwrap();
    server.kill_and_restart();
    assert_eq!(
        end(modern(&server).create(&again(plain(), file.id()))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    other(&server).create(&CreateArgs::open("f")).unwrap();
}

#[test]
fn a_durable_open_is_not_restored() {
    let mut server = continuously_available();
    let tree = modern(&server);
    let file = tree.create(&v2(batch(), CREATE_GUID, 60_000)).unwrap();
    assert!(granted_v2(&file).is_some());
    server.kill_and_restart();
    assert_eq!(
        end(modern(&server).create(&v2_again(batch(), file.id(), CREATE_GUID))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    // Nothing keeps the file open.
    let alone = CreateArgs::open("f").share(ShareAccess::empty());
    other(&server).create(&alone).unwrap();
}

#[test]
fn after_the_restart_the_timeout_runs() {
    let mut server = continuously_available();
    let tree = modern(&server);
    let doomed = plain().options(CreateOptions::DELETE_ON_CLOSE);
    let args = persistent(doomed, CREATE_GUID, 1000);
    let file = tree.create(&args).unwrap();
    server.kill_and_restart();
    // The expiry of its timeout closes it and deletes the file.
    wait_until("it is closed", || !server.path("f").exists());
    assert_eq!(
        end(modern(&server).create(&again(plain(), file.id()))),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

#[test]
fn a_pending_deletion_survives_the_server() {
    // durable-v2-open.persistent-deleteonclose-reconnect, over a restart.
    for by_option in [true, false] {
        let mut server = continuously_available();
        let args = if by_option {
            plain().options(CreateOptions::DELETE_ON_CLOSE)
        } else {
            plain()
        };
        let file = open(&modern(&server), args.clone());
        if !by_option {
            file.set_delete(true).unwrap();
        }
        server.kill_and_restart();
        assert!(server.path("f").exists());
        let file = modern(&server).create(&again(args, file.id())).unwrap();
        assert_eq!(file.read_all().unwrap(), b"before");
        file.close().unwrap();
        assert!(!server.path("f").exists(), "by option: {by_option}");
    }
}

#[test]
fn a_deletion_that_was_taken_back_does_not_come_back_with_the_server() {
    let mut server = continuously_available();
    let file = open(&modern(&server), plain());
    file.set_delete(true).unwrap();
    file.set_delete(false).unwrap();
    server.kill_and_restart();
    let file = modern(&server).create(&again(plain(), file.id())).unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"before");
}

#[test]
fn a_deletion_that_another_handle_has_promised_survives_the_server() {
    for by_option in [true, false] {
        let mut server = continuously_available();
        let file = open(&modern(&server), plain());
        let args = CreateArgs::open("f");
        let args = if by_option {
            args.options(CreateOptions::DELETE_ON_CLOSE)
        } else {
            args
        };
        let deletes = other(&server).create(&args).unwrap();
        if !by_option {
            deletes.set_delete(true).unwrap();
        }
        deletes.close().unwrap();
        server.kill_and_restart();
        let file = modern(&server).create(&again(plain(), file.id())).unwrap();
        assert!(server.path("f").exists());
        file.close().unwrap();
        assert!(!server.path("f").exists(), "by option: {by_option}");
    }
}

#[test]
fn a_file_renamed_through_it_is_found_under_its_new_name() {
    let mut server = continuously_available();
    let file = open(&modern(&server), plain());
    file.rename("g", false).unwrap();
    server.kill_and_restart();
    let file = modern(&server).create(&again(plain(), file.id())).unwrap();
    file.write_all(0, b"BEFORE").unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(server.path("g")).unwrap(), b"BEFORE");
    assert!(!server.path("f").exists());
}

#[test]
fn another_file_of_the_same_name_is_not_reopened() {
    // Changed on the host while the server was down.
    let mut server = continuously_available();
    let id = open(&modern(&server), plain()).id();
    std::fs::rename(server.path("f"), server.path("elsewhere")).unwrap();
    std::fs::write(server.path("f"), b"another").unwrap();
    server.kill_and_restart();
    match modern(&server).create(&again(plain(), id)) {
        Ok(file) => {
            // The open was found by the file's identity: it is the same file.
            assert_eq!(file.read_all().unwrap(), b"before");
        }
        Err(error) => assert!(end::<()>(Err(error)).is_error()),
    }
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"another");
}

#[test]
fn a_missing_file_does_not_prevent_the_start() {
    let mut server = continuously_available();
    let id = open(&modern(&server), plain()).id();
    std::fs::remove_file(server.path("f")).unwrap();
    server.kill_and_restart();
    let refused = end(modern(&server).create(&again(plain(), id)));
    assert!(refused.is_error(), "{refused}");
    assert!(!server.path("f").exists());
    // The name can be used again.
    other(&server).create(&CreateArgs::create("f")).unwrap();
}

#[test]
fn many_persistent_opens_survive_the_server() {
    let mut server = continuously_available();
    let tree = modern(&server);
    let name = |n: u8| CreateArgs::open_if(&format!("f{n}"));
    let ids: Vec<FileId> = (0..40)
        .map(|n| {
            let args = persistent(name(n), Guid([n + 1; 16]), 60_000);
            let file = tree.create(&args).unwrap();
            file.write_all(0, &[n]).unwrap();
            file.id()
        })
        .collect();
    server.kill_and_restart();
    let tree = modern(&server);
    for (n, id) in (0u8..).zip(ids) {
        let args = persistent_again(name(n), id, Guid([n + 1; 16]));
        let file = tree.create(&args).unwrap();
        assert_eq!(file.read_all().unwrap(), [n]);
        file.close().unwrap();
    }
    assert!(server.opens() == 0);
}

#[test]
fn an_open_that_is_answered_before_the_kill_is_restored() {
    // The record is stable before the response is sent: a client with the response finds the open.
    let mut server = continuously_available();
    for round in 1..=5u8 {
        let tree = modern(&server);
        let ids: Vec<_> = (0..20u8)
            .map(|n| {
                let args = CreateArgs::open_if(&format!("f{n}"));
                let args = persistent(args, Guid([n + 1; 16]), 60_000);
                tree.send(args.request()).unwrap()
            })
            .collect();
        // A few responses are received before the server is killed.
        let seen: Vec<FileId> = ids[..usize::from(round) * 3]
            .iter()
            .map(|id| {
                let reply = tree.client().wait(*id).unwrap();
                tree.file(&reply.ok().unwrap()).unwrap().id()
            })
            .collect();
        cut(tree.client());
        server.kill_and_restart();
        let tree = modern(&server);
        for (n, id) in (0u8..).zip(seen) {
            let args = CreateArgs::open_if(&format!("f{n}"));
            let args = persistent_again(args, id, Guid([n + 1; 16]));
            tree.create(&args).unwrap().close().unwrap();
        }
        for n in 0..20u8 {
            let name = format!("f{n}");
            let args = persistent(CreateArgs::open_if(&name), Guid([n + 1; 16]), 60_000);
            let again = tree.call(args.request().flag(HeaderFlags::REPLAY)).unwrap();
            tree.file(&again).unwrap().close().unwrap();
        }
    }
}

#[test]
fn a_persistent_open_survives_a_regular_stop() {
    let mut server = continuously_available();
    let file = open(&modern(&server), plain().share(ShareAccess::empty()));
    file.lock(0, 10, EXCLUSIVE).unwrap();
    server.stop_and_restart();
    let file = modern(&server).create(&again(plain(), file.id())).unwrap();
    assert_eq!(file.read_all().unwrap(), b"before");
    file.unlock(0, 10).unwrap();
}

#[test]
fn a_pending_deletion_survives_a_regular_stop() {
    let mut server = continuously_available();
    let doomed = plain().options(CreateOptions::DELETE_ON_CLOSE);
    let file = open(&modern(&server), doomed);
    server.stop_and_restart();
    assert!(server.path("f").exists());
    let file = modern(&server).create(&again(plain(), file.id())).unwrap();
    file.close().unwrap();
    assert!(!server.path("f").exists());
}

#[test]
fn two_opens_of_one_lease_survive_the_server() {
    let mut server = continuously_available();
    let tree = modern(&server);
    let opens = [Guid([1; 16]), Guid([2; 16])].map(|guid| {
        let file = tree.create(&persistent(leased(RWH), guid, 60_000)).unwrap();
        assert!(is_persistent(&file));
        (file.id(), guid)
    });
    server.kill_and_restart();
    let tree = modern(&server);
    for (id, guid) in opens {
        let args = persistent_again(leased(RWH), id, guid);
        let file = tree.create(&args).unwrap();
        assert_eq!(file.created().lease().unwrap().lease_state, RWH);
    }
}

#[test]
fn two_opens_that_share_survive_the_server() {
    let mut server = continuously_available();
    let (first, second) = (modern(&server), other(&server));
    let mine = first
        .create(&persistent(plain(), Guid([1; 16]), 60_000))
        .unwrap();
    let theirs = second
        .create(&persistent(plain(), Guid([2; 16]), 60_000))
        .unwrap();
    mine.lock(0, 10, EXCLUSIVE).unwrap();
    theirs.lock(10, 10, EXCLUSIVE).unwrap();
    server.kill_and_restart();
    let mine = modern(&server)
        .create(&persistent_again(plain(), mine.id(), Guid([1; 16])))
        .unwrap();
    let theirs = other(&server)
        .create(&persistent_again(plain(), theirs.id(), Guid([2; 16])))
        .unwrap();
    assert_eq!(end(mine.lock(10, 1, EXCLUSIVE)), Status::LOCK_NOT_GRANTED);
    assert_eq!(end(theirs.lock(0, 1, EXCLUSIVE)), Status::LOCK_NOT_GRANTED);
    mine.unlock(0, 10).unwrap();
    theirs.unlock(10, 10).unwrap();
}

#[test]
fn locks_match_their_responses_after_a_kill_at_any_time() {
    // A granted lock is held after the restart, a released one is not.
    let mut server = continuously_available();
    for round in 0..4u64 {
        let tree = modern(&server);
        let guid = Guid([u8::try_from(round).unwrap() + 1; 16]);
        let file = tree.create(&persistent(plain(), guid, 60_000)).unwrap();
        for n in 0..10 + round * 3 {
            file.lock(n * 10, 10, EXCLUSIVE).unwrap();
            if n % 3 == 0 {
                file.unlock(n * 10, 10).unwrap();
            }
        }
        server.kill_and_restart();
        let tree = modern(&server);
        let file = tree
            .create(&persistent_again(plain(), file.id(), guid))
            .unwrap();
        for n in 0..10 + round * 3 {
            let expected = if n % 3 == 0 {
                Status::RANGE_NOT_LOCKED
            } else {
                Status::SUCCESS
            };
            assert_eq!(end(file.unlock(n * 10, 10)), expected, "{n}");
        }
        file.close().unwrap();
    }
}

#[test]
fn a_truncated_record_affects_no_other_record() {
    // A power failure during the write of the second record: the first one is complete.
    use std::os::unix::fs::FileExt;
    let mut server = continuously_available();
    let tree = modern(&server);
    let id = open(&tree, plain()).id();
    let entries = std::fs::read_dir(server.state_dir()).unwrap();
    let segment = |name: &str| !name.starts_with("spare") && name.ends_with(".handles");
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let path = paths.find(|path| segment(&path.file_name().unwrap().to_string_lossy()));
    let path = path.expect("a segment of handles");
    let one = std::fs::read(&path).unwrap();
    let args = || CreateArgs::open_if("g");
    let second = persistent(args(), Guid([2; 16]), 60_000);
    let second = tree.create(&second).unwrap().id();
    // Not before the server is dead: a record behind the second one would show that it was complete.
    server.kill_and_restart_after(|| {
        let two = std::fs::read(&path).unwrap();
        let differs = |at: &usize| one.get(*at) != two.get(*at);
        let first = (0..two.len()).find(differs).unwrap();
        let last = (0..two.len()).rfind(differs).unwrap();
        let cut = first + (last - first) / 2;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&vec![0; last + 1 - cut], cut as u64)
            .unwrap();
    });
    let tree = modern(&server);
    let file = tree.create(&again(plain(), id)).unwrap();
    assert_eq!(file.read_all().unwrap(), b"before");
    // The second open may exist or not; the server works in both cases.
    let again = persistent_again(args(), second, Guid([2; 16]));
    let end = end(tree.create(&again));
    assert!(
        [Status::SUCCESS, Status::OBJECT_NAME_NOT_FOUND].contains(&end),
        "{end}"
    );
}

#[test]
fn the_records_of_closed_opens_are_bounded() {
    let server = continuously_available();
    let tree = modern(&server);
    let kept = || -> u64 {
        let entries = std::fs::read_dir(server.state_dir()).unwrap();
        let len =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
        entries.map(len).sum()
    };
    for n in 0..600u16 {
        let [low, high] = n.to_le_bytes();
        let mut guid = [7; 16];
        guid[..2].copy_from_slice(&[low, high]);
        let args = persistent(plain(), Guid(guid), 60_000);
        let file = tree.create(&args).unwrap();
        file.close().unwrap();
    }
    // A segment and a spare of 1 MiB each, for handles and for latches.
    assert!(kept() < 5 << 20, "{} bytes", kept());
}

#[test]
fn a_stream_survives_the_server() {
    let mut server = continuously_available();
    let tree = modern(&server);
    tree.write_file("f", b"base").unwrap();
    let args = || CreateArgs::open_if("f:s");
    let file = tree
        .create(&persistent(args(), CREATE_GUID, 60_000))
        .unwrap();
    file.write_all(0, b"stream").unwrap();
    assert!(is_persistent(&file));
    server.kill_and_restart();
    let file = modern(&server).create(&again(args(), file.id())).unwrap();
    assert_eq!(file.read_all().unwrap(), b"stream");
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"base");
}

#[test]
fn a_file_is_found_after_its_directory_was_moved() {
    // The directory is moved on the host while the server is down: the file is found by its
    // identity, or not at all.
    let mut server = continuously_available();
    let tree = modern(&server);
    tree.mkdir("d").unwrap();
    let args = || CreateArgs::open_if("d\\f");
    let file = tree
        .create(&persistent(args(), CREATE_GUID, 60_000))
        .unwrap();
    file.write_all(0, b"before").unwrap();
    std::fs::rename(server.path("d"), server.path("e")).unwrap();
    server.kill_and_restart();
    match modern(&server).create(&again(args(), file.id())) {
        Ok(file) => {
            file.write_all(0, b"BEFORE").unwrap();
            assert_eq!(std::fs::read(server.path("e/f")).unwrap(), b"BEFORE");
        }
        Err(error) => assert!(end::<()>(Err(error)).is_error()),
    }
    assert!(!server.path("d").exists());
}

#[test]
fn an_application_instance_takes_over_a_restored_open() {
    // 3.3.5.9.13 for a virtual machine that moved to another host while the server was down. By the
    // first paragraph of 3.3.5.9 the name would not be available, and then the instance could not
    // move.
    use smb_tests::durable::app_instance;
    let mut server = continuously_available();
    let tree = modern(&server);
    let instance = Guid([0xa1; 16]);
    let alone = || plain().share(ShareAccess::empty());
    let args = |guid| app_instance(persistent(alone(), Guid([guid; 16]), 60_000), instance);
    let file = tree.create(&args(1)).unwrap();
    file.write_all(0, b"before").unwrap();
    server.kill_and_restart();
    let taken = other(&server).create(&args(2)).unwrap();
    assert_eq!(taken.read_all().unwrap(), b"before");
    let back = persistent_again(alone(), file.id(), Guid([1; 16]));
    assert_eq!(
        end(modern(&server).create(&back)),
        Status::OBJECT_NAME_NOT_FOUND
    );
}
