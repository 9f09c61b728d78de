//! Persistent opens of directories ([MS-SMB2] 3.3.5.9.10, 3.3.5.9.12): on a continuously available
//! share they are granted as for files, under the same rules; smb2.persistent-open.directory-* of
//! later versions of smbtorture.

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::durable::{
    CREATE_GUID, KEY, OTHER_CLIENT, continuously_available, granted_v2, persistent,
    persistent_again, v2,
};
use smb_tests::{HoldfastServer, SOON, status, wait_until};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{DurableHandleFlags, LeaseState};
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, Guid};
use smb_wire::msg::{
    ChangeNotifyFlags, CreateAction, CreateOptions, Dialect, NotifyFilter, OplockLevel, ShareAccess,
};

const CLIENT: Guid = Guid([0x55; 16]);
const NONE: LeaseState = LeaseState(0);
const R: LeaseState = LeaseState::READ;
const RH: LeaseState = LeaseState(3);
const RWH: LeaseState = LeaseState::RWH;

fn start() -> HoldfastServer {
    let server = continuously_available();
    std::fs::create_dir(server.path("d")).unwrap();
    std::fs::write(server.path("d/before"), b"").unwrap();
    server
}

fn mine(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::dialect(Dialect::SMB_3_1_1).guid(CLIENT))
}

fn other(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::dialect(Dialect::SMB_3_1_1).guid(OTHER_CLIENT))
}

fn plain() -> CreateArgs {
    CreateArgs::directory("d")
}

fn leased(state: LeaseState) -> CreateArgs {
    plain().lease_v2(KEY, state, 0)
}

fn ask(args: CreateArgs) -> CreateArgs {
    persistent(args, CREATE_GUID, 60_000)
}

fn open(tree: &Tree, args: CreateArgs) -> File {
    let file = tree.create(&ask(args)).unwrap();
    let granted = granted_v2(&file).unwrap();
    assert!(granted.flags.contains(DurableHandleFlags::PERSISTENT));
    file
}

fn lost(server: &HoldfastServer, args: CreateArgs) -> FileId {
    let tree = mine(server);
    let id = open(&tree, args).id();
    server.lose(&tree);
    id
}

fn again(args: CreateArgs, id: FileId) -> CreateArgs {
    persistent_again(args, id, CREATE_GUID)
}

fn state_of(file: &File) -> LeaseState {
    file.created().lease().unwrap().lease_state
}

fn names(file: &File) -> Vec<String> {
    let entries = file.list("*").unwrap().into_iter();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name).collect();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

#[test]
fn a_persistent_open_is_granted_with_any_caching() {
    let server = start();
    let tree = mine(&server);
    for (asked, granted) in [(NONE, NONE), (R, R), (RH, RH), (RWH, RH)] {
        let file = open(&tree, leased(asked));
        assert_eq!(state_of(&file), granted);
        file.close().unwrap();
    }
    let file = open(&tree, plain().oplock(OplockLevel::BATCH));
    assert_eq!(file.created().oplock_level, OplockLevel::NONE);
    file.close().unwrap();
    // A new directory, and the root.
    open(&tree, CreateArgs::create_directory("new"))
        .close()
        .unwrap();
    open(&tree, CreateArgs::directory("")).close().unwrap();
    // A directory cannot be opened as merely durable.
    let durable = tree.create(&v2(leased(RH), CREATE_GUID, 0)).unwrap();
    assert_eq!(granted_v2(&durable), None);
}

#[test]
fn a_persistent_open_survives_a_lost_connection() {
    for args in [plain(), leased(R), leased(RH)] {
        let server = start();
        let id = lost(&server, args.clone());
        // Files below the directory are not reserved.
        let stranger = other(&server);
        let below = CreateArgs::create("d\\meanwhile");
        stranger.create(&below).unwrap().close().unwrap();
        let tree = mine(&server);
        let file = tree.create(&again(args, id)).unwrap();
        assert_eq!(file.id().persistent, id.persistent);
        assert_eq!(names(&file), ["before", "meanwhile"]);
    }
}

#[test]
fn the_client_is_notified_of_changes_in_the_directory() {
    let server = start();
    let id = lost(&server, leased(RH));
    let stranger = other(&server);
    let below = CreateArgs::create("d\\meanwhile");
    stranger.create(&below).unwrap().close().unwrap();
    let tree = mine(&server);
    tree.create(&again(leased(RH), id)).unwrap();
    let heard = tree.client().next_break(SOON).unwrap();
    let told = matches!(
        heard,
        Some(Break::Lease {
            current: RH,
            new: NONE,
            ..
        })
    );
    assert!(told, "{heard:?}");
    tree.acknowledge_lease(KEY, NONE).unwrap();
}

/// The watch is one of the open, which stays the same.
#[test]
fn a_change_on_the_host_is_reported_once_to_a_client_that_is_back() {
    let server = start();
    let watch = |directory: &File| {
        let flags = ChangeNotifyFlags::empty();
        let asked = directory.notify(NotifyFilter::FILE_NAME, flags, 65_536);
        let asked = asked.unwrap();
        let pending = directory.tree().client().wait_pending(asked).unwrap();
        assert!(pending.is_some(), "answered at once");
        asked
    };
    let tree = mine(&server);
    let directory = open(&tree, plain());
    watch(&directory);
    server.lose(&tree);
    let tree = mine(&server);
    let directory = tree.create(&again(plain(), directory.id())).unwrap();
    let asked = watch(&directory);
    std::fs::write(server.path("d/new"), b"").unwrap();
    let reply = tree.client().wait(asked).unwrap();
    let changes = directory.changes(reply).unwrap().into_iter();
    let names: Vec<_> = changes.map(|change| change.file_name).collect();
    assert_eq!(names, ["new"]);
}

#[test]
fn other_opens_are_treated_as_beside_a_file() {
    // smb2.persistent-open.directory-disconnect
    let server = start();
    let alone = || plain().share(ShareAccess::empty());
    let id = lost(&server, alone());
    for tree in [other(&server), mine(&server)] {
        let refused = status(tree.create(&plain()));
        assert_eq!(refused, Status::FILE_NOT_AVAILABLE);
    }
    let tree = mine(&server);
    let file = tree.create(&again(alone(), id)).unwrap();
    let refused = status(other(&server).create(&plain()));
    assert_eq!(refused, Status::SHARING_VIOLATION);
    file.close().unwrap();

    let id = lost(&server, leased(RH));
    other(&server).create(&plain()).unwrap().close().unwrap();
    let file = mine(&server).create(&again(leased(RH), id)).unwrap();
    assert_eq!(state_of(&file), RH);
}

#[test]
fn a_repeated_create_finds_the_open() {
    // 3.3.5.9.11: a directory gets no lease of version 1, so there is none whose key is compared.
    let new = || CreateArgs::create_directory("new");
    for args in [new(), new().lease(KEY, RH)] {
        let server = start();
        let tree = mine(&server);
        let id = open(&tree, args.clone()).id();
        let replay = |tree: &Tree| {
            let again = ask(args.clone()).request().flag(HeaderFlags::REPLAY);
            tree.file(&tree.call(again).unwrap()).unwrap()
        };
        assert_eq!(replay(&tree).id(), id);
        server.lose(&tree);
        let back = replay(&mine(&server));
        assert_eq!(back.id().persistent, id.persistent);
        assert_eq!(back.created().create_action, CreateAction::CREATED);
    }
}

#[test]
fn a_persistent_open_survives_the_server() {
    let mut server = start();
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::DELETE;
    let alone = || plain().access(access).share(ShareAccess::empty());
    let id = open(&mine(&server), alone()).id();
    server.kill_and_restart();
    let refused = status(other(&server).create(&plain()));
    assert_eq!(refused, Status::FILE_NOT_AVAILABLE);
    let file = mine(&server).create(&again(alone(), id)).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
    assert_eq!(names(&file), ["before"]);
    file.rename("e", false).unwrap();
    server.kill_and_restart();
    let file = mine(&server).create(&again(alone(), id)).unwrap();
    assert_eq!(names(&file), ["before"]);
    assert!(server.path("e").is_dir());
    file.close().unwrap();
    server.kill_and_restart();
    let gone = status(mine(&server).create(&again(alone(), id)));
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn a_restart_removes_the_caching() {
    // The size of an entry, for example, can change without a trace in the directory.
    let mut server = start();
    let id = open(&mine(&server), leased(RH)).id();
    let entry = server.path("d/before");
    server.kill_and_restart_after(move || std::fs::write(entry, b"grown").unwrap());
    let tree = mine(&server);
    let file = tree.create(&again(leased(RH), id)).unwrap();
    assert_eq!(state_of(&file), NONE);
}

#[test]
fn the_directory_is_deleted_when_it_is_closed_and_not_before() {
    let mut server = start();
    let doomed = || {
        CreateArgs::create_directory("doomed")
            .access(AccessMask::FILE_GENERIC_READ | AccessMask::DELETE)
            .options(CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE)
    };
    let id = open(&mine(&server), doomed()).id();
    server.kill_and_restart();
    assert!(server.path("doomed").is_dir());
    let file = mine(&server).create(&again(doomed(), id)).unwrap();
    file.close().unwrap();
    assert!(!server.path("doomed").exists());
    // It is also deleted when the open expires.
    let tree = mine(&server);
    let args = persistent(doomed(), CREATE_GUID, 500);
    tree.create(&args).unwrap();
    server.lose(&tree);
    assert!(server.path("doomed").is_dir());
    wait_until("its time is over", || !server.path("doomed").exists());
}
