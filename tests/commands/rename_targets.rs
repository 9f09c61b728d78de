//! The target of a rename or link ([MS-FSA] 2.1.5.15.12, 2.1.5.15.7): its directory is opened, an
//! existing file must be removed, and handle caching is broken.

use bytes::BytesMut;
use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, SOON, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::{FileInformationClass, FileLinkInformation, FileRenameInformation};
use smb_wire::ids::{Guid, LeaseKey, MessageId};
use smb_wire::msg::{InfoType, ShareAccess};

const KEY: LeaseKey = LeaseKey([0x11; 16]);
const R: LeaseState = LeaseState(1);
const RH: LeaseState = LeaseState(3);
const READ: AccessMask = AccessMask::FILE_READ_DATA;
const DELETE: AccessMask = AccessMask::DELETE;

struct World {
    server: HoldfastServer,
    holder: Tree,
    other: Tree,
}

impl World {
    /// Creates the directory `d`, and the file `f` beside it.
    fn new() -> Self {
        let server = HoldfastServer::new();
        let holder = server.tree_with(Options::default().guid(Guid([1; 16])));
        let other = server.tree_with(Options::default().guid(Guid([2; 16])));
        holder.mkdir("d").unwrap();
        holder.write_file("f", b"content").unwrap();
        Self {
            server,
            holder,
            other,
        }
    }

    fn source(&self, name: &str) -> File {
        let access = DELETE | AccessMask::FILE_READ_ATTRIBUTES;
        let args = CreateArgs::open(name).access(access);
        self.other.create(&args).unwrap()
    }

    /// Asserts that the handle caching of [`KEY`] is broken.
    #[track_caller]
    fn assert_asked(&self, held: LeaseState) {
        let broken = self.holder.client().next_break(SOON).unwrap();
        let Some(Break::Lease {
            key, current, new, ..
        }) = broken
        else {
            panic!("{broken:?}");
        };
        let left = LeaseState(held.0 & !2);
        assert_eq!((key, current, new), (KEY, held, left));
    }

    fn is_answered(&self, id: MessageId) -> bool {
        let mut connection = self.other.client().connection();
        connection.answered(id, MEANWHILE / 3).unwrap()
    }

    fn end(&self, id: MessageId) -> Status {
        self.other.client().wait(id).unwrap().status()
    }
}

/// Sends a rename or a link.
fn send(file: &File, to: &str, class: FileInformationClass) -> MessageId {
    let mut buffer = BytesMut::new();
    if class == FileInformationClass::LINK {
        FileLinkInformation {
            replace_if_exists: true,
            root_directory: 0,
            file_name: to.into(),
        }
        .encode(&mut buffer);
    } else {
        FileRenameInformation {
            replace_if_exists: true,
            root_directory: 0,
            file_name: to.into(),
        }
        .encode(&mut buffer);
    }
    let request = file.set_info_request(InfoType::FILE, class.0, 0, &buffer);
    file.tree().send(request).unwrap()
}

const BOTH: [FileInformationClass; 2] = [FileInformationClass::RENAME, FileInformationClass::LINK];

/// [MS-FSA] 2.1.5.15.7, 2.1.5.15.12: rights and the kind of the object are checked before the name.
#[test]
fn an_object_that_gets_no_new_name_is_refused_whatever_the_name() {
    let world = World::new();
    let read = CreateArgs::open("f").access(READ);
    let blind = world.other.create(&read).unwrap();
    let (directory, file) = (world.source("d"), world.source("f"));
    let [rename, link] = BOTH;
    let end = |file, class| world.end(send(file, "a*", class));
    assert_eq!(end(&blind, rename), Status::ACCESS_DENIED);
    assert_eq!(end(&directory, link), Status::FILE_IS_A_DIRECTORY);
    for class in BOTH {
        assert_eq!(end(&file, class), Status::OBJECT_NAME_INVALID, "{class:?}");
    }
}

/// [MS-FSA] 2.1.5.15.7, 2.1.5.15.12: a name that the file has already is replaced by the one asked for.
#[test]
fn another_name_of_the_file_gets_the_case_that_is_asked_for() {
    for class in BOTH {
        let world = World::new();
        let path = |name| world.server.path(name);
        std::fs::hard_link(path("f"), path("g")).unwrap();
        let file = world.source("f");
        let id = send(&file, "G", class);
        assert_eq!(world.end(id), Status::SUCCESS, "{class:?}");
        assert!(path("G").exists() && !path("g").exists(), "{class:?}");
        let stays = class == FileInformationClass::LINK;
        assert_eq!(path("f").exists(), stays, "{class:?}");
    }
}

#[test]
fn another_name_of_the_file_that_is_being_deleted_is_refused() {
    for class in BOTH {
        let world = World::new();
        std::fs::hard_link(world.server.path("f"), world.server.path("g")).unwrap();
        let (file, going) = (world.source("f"), world.source("g"));
        going.set_delete(true).unwrap();
        let id = send(&file, "g", class);
        assert_eq!(world.end(id), Status::DELETE_PENDING, "{class:?}");
    }
}

#[test]
fn a_cached_handle_that_may_delete_the_target_directory_is_broken() {
    // smb2.dirlease.rename_dst_parent
    for class in BOTH {
        let world = World::new();
        let args = CreateArgs::directory("d").access(DELETE);
        let args = args.lease_v2(KEY, LeaseState::RWH, 0);
        let directory = world.holder.create(&args).unwrap();
        assert_eq!(directory.created().lease().unwrap().lease_state, RH);
        let file = world.source("f");
        let id = send(&file, "d\\g", class);
        world.assert_asked(RH);
        world.holder.acknowledge_lease(KEY, R).unwrap();
        assert_eq!(world.end(id), Status::SHARING_VIOLATION, "{class:?}");
        // The holder has the lease again, and closes the handle this time.
        let again = world.holder.create(&args).unwrap();
        let lease = again.created().lease().unwrap();
        assert_eq!((lease.lease_state, lease.v2.unwrap().epoch), (RH, 3));
        again.close().unwrap();
        let id = send(&file, "d\\g", class);
        world.assert_asked(RH);
        directory.close().unwrap();
        assert_eq!(world.end(id), Status::SUCCESS, "{class:?}");
        assert!(world.server.path("d/g").exists());
    }
}

#[test]
fn an_open_of_the_target_directory_without_shared_writing_prevents_new_names() {
    let world = World::new();
    let open = |share| {
        let args = CreateArgs::directory("d").access(READ).share(share);
        world.holder.create(&args).unwrap()
    };
    for class in BOTH {
        let file = world.source("f");
        let keeps = open(ShareAccess::READ | ShareAccess::DELETE);
        let id = send(&file, "d\\g", class);
        assert_eq!(world.end(id), Status::SHARING_VIOLATION, "{class:?}");
        keeps.close().unwrap();
        let shares = open(ShareAccess::READ | ShareAccess::WRITE);
        let id = send(&file, "d\\g", class);
        assert_eq!(world.end(id), Status::SUCCESS, "{class:?}");
        shares.close().unwrap();
        file.close().unwrap();
        world.holder.write_file("f", b"content").unwrap();
    }
    // A directory can be moved to a place where another client may delete, but not where nobody may
    // write.
    world.holder.mkdir("e").unwrap();
    let keeps = open(ShareAccess::READ | ShareAccess::DELETE);
    let moved = world.other.rename("e", "d\\e", false);
    assert_eq!(status(moved), Status::SHARING_VIOLATION);
    keeps.close().unwrap();
    let args = CreateArgs::directory("d").access(DELETE);
    let _deletes = world.holder.create(&args).unwrap();
    world.other.rename("e", "d\\e", false).unwrap();
}

#[test]
fn the_handle_caching_of_streams_of_both_files_is_broken() {
    for (cached, class) in [
        ("f:s", FileInformationClass::RENAME),
        ("g:s", FileInformationClass::RENAME),
        ("g:s", FileInformationClass::LINK),
    ] {
        let world = World::new();
        world.holder.write_file("f:s", b"stream").unwrap();
        world.holder.write_file("g:s", b"stream").unwrap();
        let args = CreateArgs::open(cached).lease_v2(KEY, RH, 0);
        let stream = world.holder.create(&args).unwrap();
        let file = world.source("f");
        let id = send(&file, "g", class);
        world.assert_asked(RH);
        world.holder.acknowledge_lease(KEY, R).unwrap();
        // The handle is really open.
        assert_eq!(world.end(id), Status::ACCESS_DENIED, "{cached} {class:?}");
        stream.close().unwrap();
        let stream = world.holder.create(&args).unwrap();
        let id = send(&file, "g", class);
        world.assert_asked(RH);
        stream.close().unwrap();
        assert_eq!(world.end(id), Status::SUCCESS, "{cached} {class:?}");
    }
}

/// Whether a handle below the directory is cached, and whether its holder closes it when the
/// caching is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Handle {
    Open,
    Kept,
    Closed,
}

#[test]
fn cached_handles_below_a_directory_are_broken_one_after_the_other() {
    // smb2.lease.rename_dir_openfile; [MS-FSA] 2.1.5.15.12, note 186
    use Handle::{Closed, Kept, Open};
    for (handles, comes_in, end) in [
        ([Closed, Closed], false, Status::SUCCESS),
        ([Open, Open], false, Status::ACCESS_DENIED),
        ([Kept, Closed], false, Status::ACCESS_DENIED),
        ([Closed, Kept], false, Status::ACCESS_DENIED),
        ([Closed, Open], false, Status::ACCESS_DENIED),
        ([Closed, Closed], true, Status::ACCESS_DENIED),
    ] {
        let world = World::new();
        let mut cached = Vec::new();
        for (handle, at) in handles.into_iter().zip(1u8..) {
            let key = LeaseKey([at; 16]);
            let name = format!("d\\{at}");
            let args = CreateArgs::open_if(&name);
            let args = if handle == Open {
                args
            } else {
                args.lease_v2(key, RH, 0)
            };
            cached.push((handle, key, world.holder.create(&args).unwrap()));
        }
        let directory = world.source("d");
        let id = send(&directory, "e", FileInformationClass::RENAME);
        let what = format!("{handles:?} {comes_in}");
        let mut newcomer = None;
        while !world.is_answered(id) {
            let broken = world.holder.client().next_break(MEANWHILE / 3).unwrap();
            let Some(Break::Lease { key, .. }) = broken else {
                continue;
            };
            // No other caching is broken meanwhile.
            let other = world.holder.client().next_break(MEANWHILE / 3).unwrap();
            assert_eq!(other, None, "{what}");
            let asked = cached.iter().find(|(_, known, _)| *known == key);
            let (handle, _, file) = asked.unwrap();
            if *handle == Closed {
                file.close().unwrap();
            } else {
                world.holder.acknowledge_lease(key, R).unwrap();
            }
            if comes_in && newcomer.is_none() {
                let args = CreateArgs::open_if("d\\new");
                newcomer = Some(world.holder.create(&args).unwrap());
            }
        }
        assert_eq!(world.end(id), end, "{what}");
    }
}
