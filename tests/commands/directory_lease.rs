//! Directory leases ([MS-SMB2] 3.3.5.9.11, 3.3.4.7; [MS-FSA] 2.1.4.12 with PARENT_OBJECT,
//! 2.1.4.12.2, 2.1.5.15): R and H on a directory are broken by changes of its entries, except for
//! changes through opens that name the lease as their parent's.

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, SOON, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseContext, LeaseFlags, LeaseState, LeaseV2};
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{
    Capabilities, CreateDisposition, CreateOptions, Dialect, OplockLevel, ShareAccess, WriteFlags,
};

const KEY: LeaseKey = LeaseKey([0x11; 16]);
const FILE_KEY: LeaseKey = LeaseKey([0x22; 16]);
const RH: LeaseState = LeaseState(3);
const NONE: LeaseState = LeaseState(0);

/// A directory `d` with the file `f`, leased by a client that continues to receive breaks.
struct Leased {
    server: HoldfastServer,
    holder: Tree,
    other: Tree,
    directory: File,
}

fn leased(tree: &Tree, epoch: u16) -> File {
    let args = CreateArgs::directory("d").lease_v2(KEY, LeaseState::RWH, epoch);
    tree.create(&args).unwrap()
}

impl Leased {
    fn new() -> Self {
        Self::on(HoldfastServer::new())
    }

    fn on(server: HoldfastServer) -> Self {
        let holder = server.tree_with(Options::default().guid(Guid([1; 16])));
        let other = server.tree_with(Options::default().guid(Guid([2; 16])));
        holder.mkdir("d").unwrap();
        holder.write_file("d\\f", b"content").unwrap();
        let directory = leased(&holder, 7);
        let lease = directory.created().lease().unwrap();
        assert_eq!((lease.lease_state, lease.v2.unwrap().epoch), (RH, 8));
        Self {
            server,
            holder,
            other,
            directory,
        }
    }

    /// Asserts that the lease was broken to nothing with an acknowledgment required, and takes it
    /// again.
    fn assert_broken(&mut self, what: &str) {
        let broken = self.holder.client().next_break(SOON).unwrap();
        let Some(Break::Lease {
            key: KEY,
            current: RH,
            new: NONE,
            ack_required: true,
            epoch,
        }) = broken
        else {
            panic!("{what}: {broken:?}");
        };
        self.holder.acknowledge_lease(KEY, NONE).unwrap();
        self.assert_kept(what);
        let again = leased(&self.holder, 0);
        let lease = again.created().lease().unwrap();
        assert_eq!(
            (lease.lease_state, lease.v2.unwrap().epoch),
            (RH, epoch.wrapping_add(1)),
            "{what}"
        );
        again.close().unwrap();
    }

    fn assert_kept(&self, what: &str) {
        let broken = self.holder.client().next_break(MEANWHILE).unwrap();
        assert_eq!(broken, None, "{what}");
    }
}

/// Requests a lease on a file that names the lease of its directory.
fn child(name: &str, parent: LeaseKey, disposition: CreateDisposition) -> CreateArgs {
    CreateArgs::new(name, disposition).lease_context(&LeaseContext {
        lease_key: FILE_KEY,
        lease_state: RH,
        flags: LeaseFlags::PARENT_LEASE_KEY_SET,
        v2: Some(LeaseV2 {
            parent_lease_key: parent,
            epoch: 1,
        }),
    })
}

#[test]
fn directory_leases_exist_from_3_0_on() {
    let server = HoldfastServer::new();
    for (dialect, offered) in [
        (Dialect::SMB_2_0_2, Capabilities::empty()),
        (Dialect::SMB_2_1, Capabilities::LEASING),
        (
            Dialect::SMB_3_0,
            Capabilities::LEASING | Capabilities::DIRECTORY_LEASING,
        ),
        (
            Dialect::SMB_3_1_1,
            Capabilities::LEASING | Capabilities::DIRECTORY_LEASING,
        ),
    ] {
        let client = server.client(Options::dialect(dialect));
        let both = Capabilities::LEASING | Capabilities::DIRECTORY_LEASING;
        let said = client.negotiated().capabilities;
        assert_eq!(said & both, offered, "{dialect:?}");
    }
}

#[test]
fn version_one_and_oplocks_are_not_granted_on_directories() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let directory = CreateArgs::directory("d");
    for args in [
        directory.clone().lease(KEY, RH),
        directory.clone().oplock(OplockLevel::BATCH),
        directory.clone().oplock(OplockLevel::II),
    ] {
        let open = tree.create(&args).unwrap();
        assert_eq!(open.created().oplock_level, OplockLevel::NONE);
        assert!(open.created().lease().is_none());
        open.close().unwrap();
    }
    // 2.1 does not know version two either.
    let old = server.tree_with(Options::dialect(Dialect::SMB_2_1));
    let open = old.create(&directory.lease_v2(KEY, RH, 1)).unwrap();
    assert_eq!(open.created().oplock_level, OplockLevel::NONE);
}

#[test]
fn states_without_write_caching_are_granted_as_requested() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for (asked, granted) in [
        (LeaseState::READ, LeaseState::READ),
        (RH, RH),
        (LeaseState::READ | LeaseState::WRITE, LeaseState::READ),
        (LeaseState::RWH, RH),
        (LeaseState::HANDLE, NONE),
    ] {
        let args = CreateArgs::directory("d").lease_v2(KEY, asked, 1);
        let open = tree.create(&args).unwrap();
        let lease = open.created().lease().unwrap();
        assert_eq!(lease.lease_state, granted, "{asked:?}");
        open.close().unwrap();
    }
}

#[test]
fn created_and_deleted_names_break_the_lease() {
    let mut world = Leased::new();
    let new = world.other.create(&CreateArgs::create("d\\new")).unwrap();
    world.assert_broken("a file is created");
    new.close().unwrap();
    world.assert_kept("nothing was written to it");
    world.other.mkdir("d\\sub").unwrap();
    world.assert_broken("a directory is created");
    world.other.rename("d\\new", "d\\newer", false).unwrap();
    world.assert_broken("an entry is renamed");
    world.other.rename("d\\newer", "gone", false).unwrap();
    world.assert_broken("an entry is moved out");
    world.other.rename("gone", "d\\back", false).unwrap();
    world.assert_broken("an entry is moved in");
    world.other.delete("d\\back").unwrap();
    world.assert_broken("an entry is deleted");
    world.directory.close().unwrap();
}

#[test]
fn changes_of_listed_facts_of_an_entry_break_the_lease() {
    let mut world = Leased::new();
    let open = world.other.create(&CreateArgs::open("d\\f")).unwrap();
    world.assert_kept("a file is opened");
    open.write(0, b"more", WriteFlags::empty()).unwrap();
    world.assert_kept("a file that stays open is written");
    open.set_end_of_file(100).unwrap();
    world.assert_broken("its size is set");
    let mut times = bytes::BytesMut::new();
    smb_wire::fscc::FileBasicInformation {
        file_attributes: smb_wire::file_attributes::FileAttributes::HIDDEN,
        ..Default::default()
    }
    .encode(&mut times);
    open.set(FileInformationClass::BASIC, &times).unwrap();
    world.assert_broken("its attributes are set");
    for (input, kept) in [([1], false), ([1], true), ([0], false)] {
        open.ioctl(FsctlCode::SET_SPARSE, &input, 0).unwrap();
        match kept {
            true => world.assert_kept("it is sparse already"),
            false => world.assert_broken("it becomes sparse, or is no longer so"),
        }
    }
    // smb2.dirlease.setbtime, setatime, setmtime, setctime
    for which in 0..4 {
        let time = |at| smb_wire::ids::FileTime(u64::from(which == at) * 126_000_000_000_000_000);
        let mut times = bytes::BytesMut::new();
        smb_wire::fscc::FileBasicInformation {
            creation_time: time(0),
            last_access_time: time(1),
            last_write_time: time(2),
            change_time: time(3),
            ..Default::default()
        }
        .encode(&mut times);
        open.set(FileInformationClass::BASIC, &times).unwrap();
        world.assert_broken(&format!("one of its times is set, {which}"));
    }
    open.close().unwrap();
    world.assert_broken("what was written is closed");
    let args = CreateArgs::new("d\\f", CreateDisposition::OVERWRITE)
        .attributes(smb_wire::file_attributes::FileAttributes::HIDDEN);
    world.other.create(&args).unwrap().close().unwrap();
    world.assert_broken("it is overwritten");
}

/// Listings show FILE_ATTRIBUTE_ARCHIVE, which a change of a named stream sets, too.
#[test]
fn a_change_of_a_stream_that_sets_the_archive_attribute_breaks_the_lease() {
    let mut world = Leased::new();
    let stream = world.other.create(&CreateArgs::open_if("d\\f:s")).unwrap();
    world.assert_kept("a named stream is made");
    let file = world.other.create(&CreateArgs::open("d\\f")).unwrap();
    let clear = || {
        let mut attributes = bytes::BytesMut::new();
        smb_wire::fscc::FileBasicInformation {
            file_attributes: smb_wire::file_attributes::FileAttributes::HIDDEN,
            ..Default::default()
        }
        .encode(&mut attributes);
        file.set(FileInformationClass::BASIC, &attributes).unwrap();
    };
    clear();
    world.assert_broken("a backup clears it");
    stream.write_all(0, b"more").unwrap();
    world.assert_broken("a write of the stream sets it");
    stream.write_all(0, b"again").unwrap();
    stream.close().unwrap();
    world.assert_kept("it is set already");
    clear();
    world.assert_broken("a backup clears it again");
    let args = CreateArgs::open("d\\f:s").disposition(CreateDisposition::OVERWRITE);
    world.other.create(&args).unwrap().close().unwrap();
    world.assert_broken("an overwrite of the stream sets it");
}

/// The listing is that of the directory that has the entry, whatever its path has become on the host.
#[test]
fn a_directory_that_was_moved_on_the_host_loses_the_lease_with_its_entry() {
    let world = Leased::on(HoldfastServer::start(&smb_tests::Options {
        share: "host_changes = false".to_owned(),
        ..smb_tests::Options::default()
    }));
    let open = world.other.create(&CreateArgs::open("d\\f")).unwrap();
    std::fs::rename(world.server.path("d"), world.server.path("moved")).unwrap();
    world.assert_kept("nobody sees that");
    open.set_end_of_file(3).unwrap();
    let broken = world.holder.client().next_break(SOON).unwrap();
    assert!(
        matches!(broken, Some(Break::Lease { key: KEY, .. })),
        "{broken:?}"
    );
}

#[test]
fn changes_below_an_entry_do_not_break_the_lease() {
    let world = Leased::new();
    world.holder.mkdir("sub").unwrap();
    world.other.write_file("sub\\x", b"elsewhere").unwrap();
    world.assert_kept("another directory");
    world.other.write_file("d\\f:stream", b"named").unwrap();
    world.assert_kept("a named stream");
}

#[test]
fn opens_that_name_the_lease_as_their_parents_do_not_break_it() {
    let mut world = Leased::new();
    let open_if = CreateDisposition::OPEN_IF;
    let open = world.holder.create(&child("d\\new", KEY, open_if)).unwrap();
    let lease = open.created().lease().unwrap();
    assert!(lease.flags.contains(LeaseFlags::PARENT_LEASE_KEY_SET));
    assert_eq!(lease.v2.unwrap().parent_lease_key, KEY);
    world.assert_kept("created under the key");
    open.write_all(0, b"content").unwrap();
    open.set_end_of_file(3).unwrap();
    open.rename("d\\newer", false).unwrap();
    world.assert_kept("changed under the key");
    open.set_delete(true).unwrap();
    open.close().unwrap();
    world.assert_kept("deleted under the key");
    // Only the key is compared, not the client that names it ([MS-SMB2] appendix A on 3.3.1.4).
    let open = world.other.create(&child("d\\new", KEY, open_if)).unwrap();
    open.set_end_of_file(5).unwrap();
    world.assert_kept("changed by another client under the key");
    open.close().unwrap();
    // Another key of the same client is another lease.
    let wrong = LeaseKey([0x77; 16]);
    let open = world
        .holder
        .create(&child("d\\more", wrong, open_if))
        .unwrap();
    world.assert_broken("a wrong key");
    open.close().unwrap();
}

#[test]
fn the_client_itself_breaks_it_without_the_key() {
    let mut world = Leased::new();
    world.holder.write_file("d\\new", b"").unwrap();
    world.assert_broken("created without the key");
}

#[test]
fn queries_break_nothing() {
    let world = Leased::new();
    let names = world.other.list("d", "*").unwrap();
    assert_eq!(names.len(), 3);
    let stat = AccessMask::FILE_READ_ATTRIBUTES;
    let args = CreateArgs::directory("d").access(stat);
    world.other.create(&args).unwrap().close().unwrap();
    let lease = CreateArgs::directory("d").lease_v2(FILE_KEY, LeaseState::RWH, 1);
    let second = world.other.create(&lease).unwrap();
    assert_eq!(second.created().lease().unwrap().lease_state, RH);
    world.assert_kept("listed, looked at and leased by another");
    // A third client breaks both.
    let third = world.server.tree();
    third.write_file("d\\new", b"").unwrap();
    for tree in [&world.holder, &world.other] {
        let broken = tree.client().next_break(SOON).unwrap();
        assert!(broken.is_some());
    }
}

#[test]
fn nobody_waits_for_the_acknowledgement() {
    let world = Leased::new();
    // Neither client acknowledges its break.
    world.other.write_file("d\\new", b"").unwrap();
    world.other.write_file("d\\newer", b"").unwrap();
    assert_eq!(world.other.list("d", "n*").unwrap().len(), 2);
}

#[test]
fn a_sharing_conflict_breaks_handle_caching() {
    let world = Leased::new();
    let alone = CreateArgs::directory("d").share(ShareAccess::empty());
    let id = world.other.send(alone.request()).unwrap();
    let broken = world.holder.client().next_break(SOON).unwrap();
    assert!(
        matches!(
            broken,
            Some(Break::Lease {
                current: RH,
                new: LeaseState::READ,
                ack_required: true,
                ..
            })
        ),
        "{broken:?}"
    );
    let other = world.other.client();
    assert!(!other.connection().answered(id, MEANWHILE).unwrap());
    world.directory.close().unwrap();
    other.wait(id).unwrap().ok().unwrap();
}

#[test]
fn deleting_the_directory_breaks_handle_caching() {
    let world = Leased::new();
    world.holder.delete("d\\f").unwrap();
    world.holder.client().next_break(SOON).unwrap().unwrap();
    world.holder.acknowledge_lease(KEY, NONE).unwrap();
    let again = leased(&world.holder, 0);
    again.close().unwrap();
    let args = CreateArgs::open("d")
        .access(AccessMask::DELETE)
        .options(CreateOptions::DIRECTORY_FILE);
    let open = world.other.create(&args).unwrap();
    let mut buffer = bytes::BytesMut::new();
    smb_wire::fscc::FileDispositionInformation {
        delete_pending: true,
    }
    .encode(&mut buffer);
    let class = FileInformationClass::DISPOSITION;
    let info = smb_wire::msg::InfoType::FILE;
    let request = open.set_info_request(info, class.0, 0, &buffer);
    let id = world.other.send(request).unwrap();
    let broken = world.holder.client().next_break(SOON).unwrap();
    assert!(
        matches!(
            broken,
            Some(Break::Lease {
                new: LeaseState::READ,
                ..
            })
        ),
        "{broken:?}"
    );
    world.directory.close().unwrap();
    world.other.client().wait(id).unwrap().ok().unwrap();
}

/// The key of a second lease on `d`, held by the client that deletes.
const OTHER_KEY: LeaseKey = LeaseKey([0x33; 16]);

/// Asserts which of the two leases on `d` a deletion breaks: the one of a client that only watches,
/// and the one that the deleting opens name as their parent's. `mark` and `last` say whether the
/// open that marks the file for deletion, and the one that is closed last, name it.
fn assert_deletion_breaks(mark: bool, last: bool, on_close: bool) {
    let what = format!("marked {mark}, closed {last}, at the open {on_close}");
    let world = Leased::new();
    let deleter = &world.other;
    let args = CreateArgs::directory("d").lease_v2(OTHER_KEY, RH, 0);
    let _directory = deleter.create(&args).unwrap();
    let open = |key: u8, named: bool, on_close: bool| {
        let parent = if named { OTHER_KEY } else { FILE_KEY };
        let lease = LeaseContext {
            lease_key: LeaseKey([key; 16]),
            lease_state: LeaseState(1),
            flags: LeaseFlags::PARENT_LEASE_KEY_SET,
            v2: Some(LeaseV2 {
                parent_lease_key: parent,
                epoch: 1,
            }),
        };
        let args = CreateArgs::open("d\\f").lease_context(&lease);
        let args = if on_close {
            args.options(CreateOptions::DELETE_ON_CLOSE)
        } else {
            args
        };
        deleter.create(&args).unwrap()
    };
    if mark && last {
        let one = open(0x44, true, on_close);
        if !on_close {
            one.set_delete(true).unwrap();
        }
        one.close().unwrap();
    } else {
        let marking = open(0x44, mark, on_close);
        let closing = open(0x55, last, false);
        if !on_close {
            marking.set_delete(true).unwrap();
        }
        marking.close().unwrap();
        world.assert_kept(&what);
        closing.close().unwrap();
    }
    let onlooker = world.holder.client().next_break(SOON).unwrap();
    assert!(onlooker.is_some(), "{what}");
    let spared = mark && last;
    let span = if spared { MEANWHILE } else { SOON };
    let own = deleter.client().next_break(span).unwrap();
    assert_eq!(own.is_none(), spared, "{what}");
}

#[test]
fn a_deletion_spares_the_lease_that_the_marking_and_the_last_open_both_name() {
    // smb2.dirlease.unlink_same_set_and_close, unlink_different_set_and_close, and both tests of
    // initial deletion
    for on_close in [false, true] {
        assert_deletion_breaks(true, true, on_close);
        // The client that closes last has not deleted the file itself, so its listing still shows
        // it.
        assert_deletion_breaks(false, true, on_close);
        assert_deletion_breaks(true, false, on_close);
    }
}

#[test]
fn a_key_of_a_directory_cannot_be_used_for_a_file() {
    let world = Leased::new();
    let args = CreateArgs::open("d\\f").lease_v2(KEY, RH, 1);
    assert_eq!(
        status(world.holder.create(&args)),
        Status::INVALID_PARAMETER
    );
}
