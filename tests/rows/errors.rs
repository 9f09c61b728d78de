//! Syncs and other steps that fail: which status each command answers, and which inodes are poisoned.

use smb_client::{CreateArgs, Created, Request};
use smb_sim::{SimServer, write_request};
use smb_tests::state::ea_list;
use smb_wire::Status;
use smb_wire::create_context::name;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass as Class;
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::FileId;
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CreateDisposition, EchoRequest, InfoType, NotifyFilter,
    ShareAccess,
};
use vfs::sim::{Fault, FaultAction, Profile, SimOp};

use crate::events::{NEW, OVER, act, target};
use crate::world::{Actor, close, flush, opened, prepared, scene};

/// Linux's numbers, and what each is on the wire.
const ERRORS: [(i32, Status); 4] = [
    (5, Status::IO_DEVICE_ERROR),
    (28, Status::DISK_FULL),
    (122, Status::DISK_FULL),
    (30, Status::MEDIA_WRITE_PROTECTED),
];

/// The errors that drivers leave in the page cache for the next fsync (`blk_status_to_errno`), and
/// those of network file systems: ENODATA (a medium error!), EILSEQ, EREMOTEIO, ENOLINK, EBADE,
/// EOPNOTSUPP, EBUSY, ENOMEM, ENODEV, ETIMEDOUT, ENXIO, ESTALE, EINVAL.
const DEVICES_SAY: [i32; 13] = [61, 84, 121, 67, 52, 95, 16, 12, 19, 110, 6, 116, 22];

/// The sync after `after` others fails.
fn fail(server: &SimServer, after: u64, errno: i32) {
    let fault = Fault {
        on: SimOp::Sync,
        after,
        action: FaultAction::Fail(errno),
    };
    assert!(server.disk.inject(fault));
}

fn set_end(file_id: FileId, end: u64) -> Request {
    Request::set_info(
        file_id,
        InfoType::FILE,
        Class::END_OF_FILE.0,
        0,
        &end.to_le_bytes(),
    )
}

#[test]
fn each_error_has_its_status_and_every_handle_reports_it() {
    let base = prepared(Profile::PosixMin);
    for (errno, status) in ERRORS {
        scene(3, &base, "honor", async |server| {
            let mut it = Actor::enter(server, false).await;
            let mut other = Actor::enter(server, false).await;
            let (file, elsewhere) = (
                it.open(CreateArgs::open("f")).await,
                other.open(CreateArgs::open("f")).await,
            );
            it.write(file, 0, b"lost").await;
            fail(server, 0, errno);
            assert_eq!(it.status(flush(file, false)).await, status);
            // The disk says yes from now on, which proves nothing.
            assert_eq!(other.status(flush(elsewhere, false)).await, status);
            assert_eq!(other.status(flush(elsewhere, true)).await, status);
            let root = other.open(CreateArgs::directory("")).await;
            assert_eq!(other.status(flush(root, false)).await, status);
            other.through = true;
            let through = other.open(CreateArgs::open("f")).await;
            let write = write_request(through, 5000, b"through");
            assert_eq!(other.status(write).await, status);
            // An error of CLOSE leaves no handle behind.
            for (actor, file) in [(&mut other, elsewhere), (&mut it, file)] {
                assert_eq!(actor.status(close(file)).await, status);
                assert_eq!(actor.status(close(file)).await, Status::FILE_CLOSED);
            }
            assert_eq!(other.status(close(through)).await, status);
            let alone = CreateArgs::open("f").share(ShareAccess::empty());
            let file = it.client.create(&alone).await.unwrap();
            // The lost data are written again, and that is stable.
            it.write(file, 0, b"lost").await;
            assert_eq!(it.status(flush(file, false)).await, Status::SUCCESS);
            assert_eq!(it.status(close(file)).await, Status::SUCCESS);
            assert!(server.server.durability.poisoned().is_empty());
        });
    }
}

#[test]
fn under_strict_sync_the_reply_of_the_change_itself_has_the_error() {
    let base = prepared(Profile::PosixMin);
    for (errno, status) in ERRORS {
        scene(4, &base, "strict-sync", async |server| {
            let mut it = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            fail(server, 0, errno);
            assert_eq!(it.status(write_request(file, 0, b"x")).await, status);
            let file = it.open(CreateArgs::open("g")).await;
            fail(server, 0, errno);
            assert_eq!(it.status(set_end(file, 77)).await, status);
            // The stream moves while nobody has its last word.
            let stream = it.open(CreateArgs::open("victim")).await;
            fail(server, 0, errno);
            assert_eq!(it.status(set_end(stream, 1)).await, status);
            assert_eq!(it.status(close(stream)).await, status);
        });
    }
}

/// A size that is not known to be stable has changed all the same.
#[test]
fn watchers_learn_of_a_size_whose_sync_failed() {
    let base = prepared(Profile::PosixMin);
    scene(6, &base, "strict-sync", async |server| {
        let mut it = Actor::enter(server, false).await;
        let mut other = Actor::enter(server, false).await;
        let root = other.open(CreateArgs::directory("")).await;
        let watch = Request::new(&ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: 1024,
            file_id: root,
            completion_filter: NotifyFilter::SIZE,
        });
        let watch = other.client.send(watch).unwrap();
        // The server has taken the request.
        let echo = other.status(Request::new(&EchoRequest)).await;
        assert_eq!(echo, Status::SUCCESS);
        let file = it.open(CreateArgs::open("f")).await;
        fail(server, 0, 5);
        let refused = it.status(set_end(file, 77)).await;
        assert_eq!(refused, Status::IO_DEVICE_ERROR);
        let seen = other.client.wait(watch).await.unwrap();
        assert_eq!(seen.status(), Status::SUCCESS);
    });
}

/// A CREATE that failed took its file back. Nothing of that may be left for the file that gets
/// the inode's number next.
#[test]
fn a_create_that_failed_leaves_no_latch_and_nothing_dirty() {
    let base = prepared(Profile::PosixMin);
    scene(5, &base, "strict-sync", async |server| {
        let mut it = Actor::enter(server, false).await;
        for (args, again) in [
            (CreateArgs::create("new"), CreateArgs::create("new")),
            (
                CreateArgs::create_directory("newdir"),
                CreateArgs::create_directory("newdir"),
            ),
        ] {
            fail(server, 0, 5);
            assert_eq!(it.status(args.request()).await, Status::IO_DEVICE_ERROR);
            assert!(server.server.durability.poisoned().is_empty());
            for (_, exposed) in server.server.durability.exposures() {
                assert_eq!((exposed.inodes, exposed.poisoned_inodes), (0, 0));
            }
            let file = opened(it.reply(again.request()).await).unwrap();
            it.close(file).await;
        }
    });
}

/// The kernel failed to write something back before anybody asked.
#[test]
fn a_failed_write_back_is_reported_by_the_flush_after_the_close() {
    for policy in ["honor", "treat-host-as-stable-storage", "bounded:10s,4MiB"] {
        let base = prepared(Profile::PosixMin);
        scene(6, &base, policy, async |server| {
            let mut it = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            it.write(file, 0, b"changed").await;
            it.close(file).await;
            assert!(server.disk.fail_write_back(5).is_some());
            // A descriptor opened now does not see the error; the one that was kept does.
            let file = it.open(CreateArgs::open("f")).await;
            let full = it.status(flush(file, true)).await;
            assert_eq!(full, Status::IO_DEVICE_ERROR, "{policy}");
            let plain = it.status(flush(file, false)).await;
            assert_eq!(plain, Status::IO_DEVICE_ERROR, "{policy}");
            let closed = it.status(close(file)).await;
            assert_eq!(closed, Status::IO_DEVICE_ERROR, "{policy}");
        });
    }
}

/// After the error a share that answered before the disk is as honest as any.
#[test]
fn a_share_whose_promise_broke_honors_from_then_on() {
    for policy in ["treat-host-as-stable-storage", "bounded:10s,4MiB"] {
        let base = prepared(Profile::PosixMin);
        scene(7, &base, policy, async |server| {
            let mut it = Actor::enter(server, false).await;
            let file = it.open(CreateArgs::open("f")).await;
            it.write(file, 0, b"x").await;
            fail(server, 0, 5);
            let broken = it.status(flush(file, true)).await;
            assert_eq!(broken, Status::IO_DEVICE_ERROR);
            let other = act(&mut it, "create below new directories").await;
            let before = server.disk.counts().1;
            assert_eq!(it.status(flush(other, false)).await, Status::SUCCESS);
            let syncs = server.disk.counts().1 - before;
            assert!(syncs >= 4, "{policy}: file, two directories, root: {syncs}");
        });
    }
}

#[test]
fn whatever_number_a_sync_fails_with_it_is_a_failed_disk() {
    let base = prepared(Profile::PosixMin);
    for errno in DEVICES_SAY {
        for through in [false, true] {
            scene(8, &base, "honor", async |server| {
                let mut it = Actor::enter(server, through).await;
                let file = it.open(CreateArgs::open("f")).await;
                let first = match through {
                    true => write_request(file, 0, b"lost"),
                    false => {
                        it.write(file, 0, b"lost").await;
                        flush(file, false)
                    }
                };
                fail(server, 0, errno);
                let told = format!("errno {errno}, write-through {through}");
                assert_eq!(it.status(first).await, Status::IO_DEVICE_ERROR, "{told}");
                let again = it.status(flush(file, false)).await;
                assert_eq!(again, Status::IO_DEVICE_ERROR, "{told}: not poisoned");
            });
        }
    }
}

/// EAGAIN says that the sync was never begun: nothing is lost, and asking again does it.
#[test]
fn a_sync_that_was_not_begun_is_no_failed_disk() {
    let base = prepared(Profile::PosixMin);
    for through in [false, true] {
        scene(9, &base, "honor", async |server| {
            let mut it = Actor::enter(server, through).await;
            let file = it.open(CreateArgs::open("f")).await;
            if !through {
                it.write(file, 0, b"kept").await;
            }
            fail(server, 0, 11);
            let first = match through {
                true => write_request(file, 0, b"kept"),
                false => flush(file, false),
            };
            assert_eq!(it.status(first).await, Status::INSUFFICIENT_RESOURCES);
            assert!(server.server.durability.poisoned().is_empty());
            assert_eq!(it.status(flush(file, false)).await, Status::SUCCESS);
        });
    }
}

/// Unproven changes of a file do not matter once another file has its name.
#[test]
fn a_latch_ends_with_the_file_that_is_replaced_or_deleted() {
    let base = prepared(Profile::PosixMin);
    for event in ["rename over another", "link over another", "delete"] {
        scene(10, &base, "honor", async |server| {
            let mut it = Actor::enter(server, true).await;
            let name = if event == "delete" { "d\\in" } else { "victim" };
            let file = it.open(CreateArgs::open(name)).await;
            fail(server, 0, 5);
            let write = write_request(file, 0, b"lost");
            assert_eq!(it.status(write).await, Status::IO_DEVICE_ERROR);
            assert_eq!(it.status(close(file)).await, Status::IO_DEVICE_ERROR);
            assert_eq!(server.server.durability.poisoned().len(), 1);
            act(&mut it, event).await;
            assert!(server.server.durability.poisoned().is_empty(), "{event}");
        });
    }
}

/// [MS-SMB2] 3.3.5.9.1: a program then makes the file without. Until it knows, nothing is made or emptied.
#[test]
fn extended_attributes_that_the_disk_lacks_have_their_status() {
    let base = prepared(Profile::PosixMin);
    let eas = ea_list("NEW", b"new");
    scene(11, &base, "honor", async |server| {
        let mut it = Actor::enter(server, false).await;
        for (args, after) in [
            // The name and the DOS attributes are made before.
            (CreateArgs::create("new"), 2),
            // The DOS attributes are changed before.
            (CreateArgs::new("f", CreateDisposition::OVERWRITE), 1),
        ] {
            assert!(server.disk.inject(Fault {
                on: SimOp::Change,
                after,
                action: FaultAction::Fail(95),
            }));
            let request = args.context(name::EXTENDED_ATTRIBUTES, &eas).request();
            assert_eq!(it.status(request).await, Status::EAS_NOT_SUPPORTED);
        }
        let new = it.status(CreateArgs::open("new").request()).await;
        assert_eq!(new, Status::OBJECT_NAME_NOT_FOUND);
        let old = it.reply(CreateArgs::open("f").request()).await;
        let old = Created::read(&old.message).unwrap();
        assert_eq!(old.facts.end_of_file, 8192);
    });
}

/// [MS-FSA] 2.1.4.17: what a failed sharing of extents may have changed counts as a change.
#[test]
fn a_file_that_failed_to_share_extents_is_to_be_archived() {
    let base = prepared(Profile::PosixMin);
    scene(12, &base, "honor", async |server| {
        let mut it = Actor::enter(server, false).await;
        let source = it.open(CreateArgs::open("g")).await;
        let file = it.open(CreateArgs::open("f")).await;
        let mut basic = vec![0; 40];
        basic[32..36].copy_from_slice(&FileAttributes::NORMAL.0.to_le_bytes());
        it.set(file, Class::BASIC, &basic).await;
        assert!(server.disk.inject(Fault {
            on: SimOp::Change,
            after: 0,
            action: FaultAction::Fail(5),
        }));
        let mut input = source.persistent.to_le_bytes().to_vec();
        for number in [source.volatile, 4096, 0, 4096] {
            input.extend_from_slice(&number.to_le_bytes());
        }
        let shares = Request::ioctl(file, FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &input, 64);
        assert_eq!(it.status(shares).await, Status::IO_DEVICE_ERROR);
        it.close(file).await;
        let now = it.reply(CreateArgs::open("f").request()).await;
        let now = Created::read(&now.message).unwrap().facts;
        assert!(now.file_attributes.contains(FileAttributes::ARCHIVE));
    });
}

/// [MS-FSA] 2.1.5.5: the file that loses one of its names gets FILE_ATTRIBUTE_ARCHIVE, and strict-sync makes that
/// stable before the answer to the rename.
#[test]
fn a_rename_over_one_of_several_names_has_the_error_of_each_sync() {
    let base = prepared(Profile::PosixMin);
    let (mut ended, mut lost_attributes) = (false, false);
    for after in 0..20 {
        scene(13, &base, "strict-sync", async |server| {
            let mut it = Actor::enter(server, false).await;
            let victim = it.open(CreateArgs::open("victim")).await;
            it.set(victim, Class::LINK, &target("d\\link", NEW)).await;
            it.close(victim).await;
            let victim = it.open(CreateArgs::open("victim")).await;
            let mut basic = vec![0; 40];
            basic[32..36].copy_from_slice(&FileAttributes::NORMAL.0.to_le_bytes());
            it.set(victim, Class::BASIC, &basic).await;
            it.close(victim).await;
            let file = it.open(CreateArgs::open("f")).await;
            fail(server, after, 5);
            let over = target("victim", OVER);
            let request = Request::set_info(file, InfoType::FILE, Class::RENAME.0, 0, &over);
            let status = it.status(request).await;
            let poisoned = server.server.durability.poisoned();
            ended = poisoned.is_empty();
            lost_attributes |= poisoned.iter().any(|one| one.metadata);
            let wanted = match ended {
                true => Status::SUCCESS,
                false => Status::IO_DEVICE_ERROR,
            };
            assert_eq!(status, wanted, "after {after} syncs");
        });
        if ended {
            break;
        }
    }
    assert!(ended && lost_attributes);
}
