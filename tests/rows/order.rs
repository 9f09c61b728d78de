//! The order of syncs and answers: writes under way, slow syncs, CANCEL, lost connections; and
//! which flags of which dialect count.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use smb_client::{CreateArgs, Options, Request, Signing};
use smb_sim::{Sim, SimClient, SimServer, write_request};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation as Parts;
use smb_wire::fscc::{FileInformationClass as Class, FileRenameInformation};
use smb_wire::fsctl::{CopyChunk, CopyChunkCopy, CopyChunkResponse, FsctlCode};
use smb_wire::ids::FileId;
use smb_wire::msg::{
    CancelRequest, CreateOptions, Dialect, InfoType, IoctlResponse, LockElement, LockFlags,
    LockRequest, QueryInfoResponse, WriteFlags,
};
use vfs::Env;
use vfs::sim::{Cut, Fault, FaultAction, Profile, SimDisk, SimOp};

use crate::world::{Actor, Contents, Times, contents, descriptor, flush, prepared, scene, served};

/// Operations of a kind take this long from now on.
fn slow(server: &SimServer, kind: SimOp, span: Duration) {
    let env = Arc::clone(server.env());
    let hook = move |op| (op == kind).then(|| env.sleep(span));
    server.disk.set_hook(Some(Arc::new(hook)));
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn kept(server: &SimServer) -> Contents {
    contents(server.cut_power(Cut::Nothing), Times::No)
}

fn live(server: &SimServer) -> Contents {
    contents(server.cut_power(Cut::Everything), Times::No)
}

fn copy_request(source_key: [u8; 24], target: FileId) -> Request {
    let chunk = |at: u64| CopyChunk {
        source_offset: at,
        target_offset: 8192 - 2 * at,
        length: 1000,
    };
    let mut input = BytesMut::new();
    CopyChunkCopy {
        source_key,
        chunk_count: 3,
        chunks: [0, 2000, 4000].map(chunk).into(),
    }
    .encode(&mut input);
    Request::ioctl(target, FsctlCode::SRV_COPYCHUNK, &input, 64)
}

/// A FLUSH covers what came before it, answered or not: WRITEs and copies, of other connections
/// too.
#[test]
fn a_flush_covers_what_was_received_before_it() {
    let base = prepared(Profile::PosixMin);
    for (copy, own) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut sim = Sim::new(11);
        let server = served(&mut sim, &base, "honor");
        let env = sim.env();
        let (before, after) = sim
            .run(async {
                let mut it = Actor::enter(&server, false).await;
                let mut other = Actor::enter(&server, false).await;
                let file = it.open(CreateArgs::open("f")).await;
                let same = other.open(CreateArgs::open("f")).await;
                let source = it.open(CreateArgs::open("g")).await;
                let key = it.resume_key(source).await;
                slow(&server, SimOp::Write, ms(100));
                let change = match copy {
                    true => copy_request(key, file),
                    false => write_request(file, 100, b"under way"),
                };
                let begun = env.monotonic();
                let change = it.client.send(change).unwrap();
                env.sleep(ms(5)).await;
                let status = match own {
                    true => it.status(flush(file, false)).await,
                    false => other.status(flush(same, false)).await,
                };
                assert_eq!(status, Status::SUCCESS);
                assert!(env.monotonic() >= begun + ms(100));
                let at_reply = (kept(&server), live(&server));
                let reply = it.client.wait(change).await.unwrap();
                assert_eq!(reply.status(), Status::SUCCESS);
                at_reply
            })
            .unwrap();
        assert_eq!(before, after, "copy {copy}, own connection {own}");
        assert_ne!(before, contents(base.cut(Cut::Everything), Times::No));
    }
}

/// A slow FLUSH says so after 20 ms; CANCEL neither ends it nor makes it claim anything.
#[test]
fn a_slow_flush_is_pending_and_cannot_be_cancelled() {
    let base = prepared(Profile::PosixMin);
    for cancel in [false, true] {
        scene(12, &base, "honor", async |server| {
            let env = server.env();
            let mut it = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            it.write(file, 0, b"slow").await;
            slow(server, SimOp::Sync, ms(300));
            let begun = env.monotonic();
            let id = it.client.send(flush(file, false)).unwrap();
            if cancel {
                // The interim answer is there by then.
                env.sleep(ms(50)).await;
                let cancel = Request::new(&CancelRequest).overriding(|o| o.message_id = Some(id));
                it.client.send(cancel).unwrap();
            }
            let reply = it.client.wait(id).await.unwrap();
            assert!(env.monotonic() >= begun + ms(300), "before the sync ended");
            assert_eq!(reply.status(), Status::SUCCESS);
            assert!(reply.header.async_id.is_some(), "never told to be pending");
            assert_eq!(kept(server), live(server));
            server.disk.set_hook(None);
            // Quick ones are answered plainly.
            it.write(file, 0, b"quick").await;
            let reply = it.reply(flush(file, false)).await;
            assert!(reply.header.async_id.is_none());
        });
    }
}

/// A slow copy says so after a second, before its client takes the server for dead.
#[test]
fn a_slow_copy_is_pending() {
    let base = prepared(Profile::PosixMin);
    scene(13, &base, "honor", async |server| {
        let mut it = Actor::enter(server, false).await;
        let file = it.open(CreateArgs::open("f")).await;
        let source = it.open(CreateArgs::open("g")).await;
        let key = it.resume_key(source).await;
        for (span, pending) in [(100, false), (400, true)] {
            slow(server, SimOp::Write, ms(span));
            let reply = it.reply(copy_request(key, file)).await;
            assert_eq!(reply.status(), Status::SUCCESS);
            assert_eq!(reply.header.async_id.is_some(), pending, "{span} ms");
        }
    });
}

/// A range that another client locks while earlier chunks are copied is not overwritten.
#[test]
fn a_copy_stops_at_a_lock_that_comes_meanwhile() {
    let base = prepared(Profile::PosixMin);
    scene(14, &base, "honor", async |server| {
        let env = server.env();
        let mut it = Actor::enter(server, false).await;
        let mut other = Actor::enter(server, false).await;
        let file = it.open(CreateArgs::open("f")).await;
        let same = other.open(CreateArgs::open("f")).await;
        let source = it.open(CreateArgs::open("g")).await;
        let key = it.resume_key(source).await;
        slow(server, SimOp::Write, ms(100));
        let copy = it.client.send(copy_request(key, file)).unwrap();
        env.sleep(ms(150)).await;
        // The target of the third chunk.
        let lock = Request::new(&LockRequest {
            lock_sequence: 0,
            file_id: same,
            locks: vec![LockElement {
                offset: 192,
                length: 1000,
                flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
            }],
        });
        assert_eq!(other.status(lock).await, Status::SUCCESS);
        let reply = it.client.wait(copy).await.unwrap();
        assert_eq!(reply.status(), Status::FILE_LOCK_CONFLICT);
        let output = IoctlResponse::read(&reply.message).unwrap().output;
        let done = CopyChunkResponse::read(output).unwrap();
        assert_eq!((done.chunks_written, done.total_bytes_written), (2, 2000));
    });
}

/// The client that asked is gone: the sync that was begun goes on, and nothing is forgotten.
#[test]
fn a_connection_that_dies_during_its_flush_takes_no_sync_along() {
    let base = prepared(Profile::PosixMin);
    scene(13, &base, "honor", async |server| {
        let env = server.env();
        let mut it = Actor::enter(server, false).await;
        let file = it.open(CreateArgs::create("d\\new")).await;
        it.write(file, 0, b"data").await;
        slow(server, SimOp::Sync, ms(100));
        it.client.send(flush(file, false)).unwrap();
        env.sleep(ms(30)).await;
        it.client.cut();
        env.sleep(ms(1000)).await;
        assert_eq!(kept(server), live(server));
        assert_eq!(server.server.durability.dirty_inodes(), 0);
    });
}

struct Through {
    dialect: Dialect,
    write: WriteFlags,
    open: CreateOptions,
    mode: u32,
    stable: bool,
}

/// Whether a WRITE of "changed" survives a cut right after its reply.
fn survives(base: &SimDisk, name: &str, case: &Through) -> bool {
    let server = scene(14, base, "honor", async |server| {
        let options = Options::dialect(case.dialect).signing(Signing::Required);
        let mut client = SimClient::enter(server, options).await.unwrap();
        let args = CreateArgs::open(name)
            .access(AccessMask::FILE_ALL_ACCESS)
            .options(case.open);
        let file_id = client.create(&args).await.unwrap();
        let mut it = Actor {
            client,
            through: false,
        };
        if case.mode != 0 {
            it.set(file_id, Class::MODE, &case.mode.to_le_bytes()).await;
        }
        let request = Request::write(file_id, 0, b"changed", case.write);
        assert_eq!(it.status(request).await, Status::SUCCESS);
    });
    let kept = kept(&server);
    assert!(kept == live(&server) || kept == contents(base.cut(Cut::Everything), Times::No));
    kept == live(&server)
}

#[test]
fn each_flag_of_each_dialect_is_kept() {
    use Dialect as D;
    let base = prepared(Profile::PosixMin);
    let (no_flag, no_option) = (WriteFlags::empty(), CreateOptions::empty());
    for dialect in D::ALL {
        let case = |write, open, mode, stable| Through {
            dialect,
            write,
            open,
            mode,
            stable,
        };
        for case in [
            case(no_flag, no_option, 0, false),
            // [MS-SMB2] 2.2.21: not in 2.0.2; the other from 3.0.2 on.
            case(
                WriteFlags::WRITE_THROUGH,
                no_option,
                0,
                dialect >= D::SMB_2_1,
            ),
            case(
                WriteFlags::WRITE_UNBUFFERED,
                no_option,
                0,
                dialect >= D::SMB_3_0_2,
            ),
            case(no_flag, CreateOptions::WRITE_THROUGH, 0, true),
            case(no_flag, CreateOptions::NO_INTERMEDIATE_BUFFERING, 0, true),
            // FileModeInformation: FILE_WRITE_THROUGH.
            case(no_flag, no_option, 2, true),
        ] {
            for name in ["f", "f:small", "f:large"] {
                let told = format!("{dialect} {name} {:?} {:?}", case.write, case.open);
                assert_eq!(survives(&base, name, &case), case.stable, "{told}");
            }
        }
    }
}

/// A mode set back ends the promise, as the client wanted.
#[test]
fn a_handle_can_stop_writing_through() {
    let base = prepared(Profile::PosixMin);
    scene(15, &base, "honor", async |server| {
        let mut it = Actor::enter(server, true).await;
        let file = it.open(CreateArgs::open("f")).await;
        it.set(file, Class::MODE, &0u32.to_le_bytes()).await;
        it.write(file, 0, b"changed").await;
        assert_ne!(kept(server), live(server));
    });
}

/// A time that the client set stays, whatever is flushed and closed after it; and it is on the
/// disk.
#[test]
fn a_time_set_before_the_flush_stays() {
    let base = prepared(Profile::PosixMin);
    let server = scene(16, &base, "honor", async |server| {
        let env = server.env();
        let mut it = Actor::enter(server, false).await;
        let file = it.open(CreateArgs::open("f")).await;
        it.write(file, 0, b"first").await;
        let when = 125_000_000_000_000_000u64.to_le_bytes();
        let keep = 0u64.to_le_bytes();
        let basic = [keep, keep, when, keep, keep].concat();
        it.set(file, Class::BASIC, &basic).await;
        it.write(file, 5, b"second").await;
        assert_eq!(it.status(flush(file, false)).await, Status::SUCCESS);
        it.close(file).await;
        env.sleep(Duration::from_secs(3)).await;
    });
    let kept = contents(server.cut_power(Cut::Nothing), Times::All);
    let live = contents(server.cut_power(Cut::Everything), Times::All);
    assert_eq!(kept["f"], live["f"]);
    // 1997-02-11, as seconds of Unix.
    assert!(live["f"].contains("secs: 855526400"), "{}", live["f"]);
}

/// A reservation that fails gives nothing back at the cost of what others have written meanwhile.
#[test]
fn a_reservation_that_fails_cuts_off_no_write() {
    let base = prepared(Profile::PosixMin);
    scene(17, &base, "honor", async |server| {
        let env = server.env();
        let mut it = Actor::enter(server, false).await;
        let mut other = Actor::enter(server, false).await;
        let file = it.open(CreateArgs::open("f")).await;
        let same = other.open(CreateArgs::open("f")).await;
        assert!(server.disk.inject(Fault {
            on: SimOp::Change,
            after: 0,
            action: FaultAction::Fail(28),
        }));
        slow(server, SimOp::Change, ms(100));
        let reserve = Request::set_info(
            file,
            InfoType::FILE,
            Class::ALLOCATION.0,
            0,
            &1_000_000u64.to_le_bytes(),
        );
        let reserve = it.client.send(reserve).unwrap();
        env.sleep(ms(10)).await;
        other.write(same, 8192, b"appended").await;
        assert_eq!(other.status(flush(same, false)).await, Status::SUCCESS);
        let reserved = it.client.wait(reserve).await.unwrap();
        assert_eq!(reserved.status(), Status::DISK_FULL);
        let read = other.client.read_at(same, 8192, 100).await.unwrap();
        assert_eq!(read, b"appended");
    });
}

/// Two changes of what is kept in one attribute at the same time: both were acknowledged, so
/// both stay.
#[test]
fn changes_at_the_same_time_undo_nothing() {
    let base = prepared(Profile::PosixMin);
    for seed in 0..40 {
        let server = scene(seed, &base, "strict-sync", async |server| {
            let env = server.env();
            let mut it = Actor::enter(server, false).await;
            let mut other = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            let same = other.open(CreateArgs::open("f")).await;
            let chance = Arc::clone(env);
            let hook = move |_| Some(chance.sleep(ms(chance.choose(5))));
            server.disk.set_hook(Some(Arc::new(hook)));
            let hidden = [&[0; 32][..], &0x22u32.to_le_bytes(), &[0; 4]].concat();
            let hidden = Request::set_info(file, InfoType::FILE, Class::BASIC.0, 0, &hidden);
            let hidden = it.client.send(hidden).unwrap();
            other.ioctl(same, FsctlCode::SET_SPARSE, &[1]).await;
            let hidden = it.client.wait(hidden).await.unwrap();
            assert_eq!(hidden.status(), Status::SUCCESS);
            // A right is taken away; somebody else names the group meanwhile.
            let part = |parts: Parts, file, bytes: &[u8]| {
                Request::set_info(file, InfoType::SECURITY, 0, parts.bits(), bytes)
            };
            let query = Request::query_info(same, InfoType::SECURITY, 0, Parts::OWNER.bits(), 4096);
            let owner = other.reply(query).await;
            let owner = QueryInfoResponse::read(&owner.message)
                .unwrap()
                .buffer
                .to_vec();
            let revoked = part(Parts::DACL, file, &descriptor(0x0012_0089));
            let revoked = it.client.send(revoked).unwrap();
            let owned = other.status(part(Parts::OWNER, same, &owner)).await;
            assert_eq!(owned, Status::SUCCESS);
            let revoked = it.client.wait(revoked).await.unwrap();
            assert_eq!(revoked.status(), Status::SUCCESS);
        });
        let left = kept(&server);
        assert!(
            left["f"].starts_with("0x222,"),
            "seed {seed}: {}",
            left["f"]
        );
        let access = format!("{:?}", 0x0012_0089u32.to_le_bytes());
        let access = access.trim_matches(['[', ']']);
        assert!(left["f"].contains(access), "seed {seed}: the right is back");
    }
}

/// A file that somebody opened while another was being moved over it is not replaced: what they
/// write and flush must be found under the name they opened.
#[test]
fn nothing_is_moved_over_what_was_just_opened() {
    let base = prepared(Profile::PosixMin);
    for class in [Class::RENAME, Class::LINK] {
        scene(18, &base, "honor", async |server| {
            let env = server.env();
            let mut it = Actor::enter(server, false).await;
            let mut other = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            slow(server, SimOp::Change, ms(100));
            let mut target = BytesMut::new();
            FileRenameInformation {
                replace_if_exists: true,
                root_directory: 0,
                file_name: "victim".to_owned(),
            }
            .encode(&mut target);
            let moved = Request::set_info(file, InfoType::FILE, class.0, 0, &target);
            let moved = it.client.send(moved).unwrap();
            env.sleep(ms(10)).await;
            let opened = other.client.create(&CreateArgs::open("victim")).await;
            if let Ok(same) = opened {
                other.write(same, 0, b"acknowledged").await;
                assert_eq!(other.status(flush(same, false)).await, Status::SUCCESS);
            }
            let moved = it.client.wait(moved).await.unwrap().status();
            server.disk.set_hook(None);
            let again = other.open(CreateArgs::open("victim")).await;
            let found = other.client.read_at(again, 0, 12).await.unwrap();
            assert!(
                opened.is_err() || found == b"acknowledged",
                "{class}: {moved}"
            );
        });
    }
}

/// A request whose change an earlier one has made is answered when that is stable, and with the error if a failed sync
/// has lost it.
#[test]
fn a_change_that_was_made_already_is_as_stable_as_one_made_now() {
    let base = prepared(Profile::PosixMin);
    for (policy, name, class, to) in [
        ("strict-sync", "f", None, ""),
        ("strict-sync", "f", Some(Class::RENAME), "moved"),
        ("strict-sync", "f", Some(Class::RENAME), "d\\moved"),
        ("honor", "d", Some(Class::RENAME), "e\\moved"),
        ("strict-sync", "f", Some(Class::LINK), "d\\link"),
        ("strict-sync", "f:large", Some(Class::RENAME), ":moved"),
    ] {
        let request = |file| {
            let Some(class) = class else {
                return Request::ioctl(file, FsctlCode::SET_SPARSE, &[1], 0);
            };
            let mut target = BytesMut::new();
            FileRenameInformation {
                replace_if_exists: class == Class::LINK,
                root_directory: 0,
                file_name: to.to_owned(),
            }
            .encode(&mut target);
            Request::set_info(file, InfoType::FILE, class.0, 0, &target)
        };
        for fails in [false, true] {
            scene(19, &base, policy, async |server| {
                let mut it = Actor::enter(server, false).await;
                let file = it.open(CreateArgs::open(name)).await;
                slow(server, SimOp::Sync, ms(100));
                assert!(
                    !fails
                        || server.disk.inject(Fault {
                            on: SimOp::Sync,
                            after: 0,
                            action: FaultAction::Fail(5),
                        })
                );
                let first = it.client.send(request(file)).unwrap();
                server.env().sleep(ms(20)).await;
                let same = if fails {
                    let failed = it.client.wait(first).await.unwrap();
                    assert_eq!(failed.status(), Status::IO_DEVICE_ERROR, "{name} {to}");
                    it.reply(request(file)).await
                } else {
                    let same = it.reply(request(file)).await;
                    assert_eq!(kept(server), live(server), "{name} {to}");
                    same
                };
                // A name is not made again; an attribute is.
                let wanted = match fails && class.is_some() {
                    true => Status::IO_DEVICE_ERROR,
                    false => Status::SUCCESS,
                };
                assert_eq!(same.status(), wanted, "{name} {to}, fails {fails}");
            });
        }
    }
}
