//! Windows Explorer: a window on a folder, copies, new folders, deletions.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Reply, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{
    LeaseState, QueryMaximalAccessResponse, QueryOnDiskIdResponse, name,
};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    DirectoryEntries, DirectoryFormat, FileAction, FileFsAttributeInformation,
    FileFsFullSizeInformation, FileFsSizeInformation, FileFsVolumeInformation,
    FileInformationClass as Class, FileInternalInformation, FileNetworkOpenInformation,
    FileObjectIdBuffer, FileSystemAttributes, FsInformationClass as FsClass, OwnedDirectoryEntry,
};
use smb_wire::fsctl::{
    CopyChunk, CopyChunkCopy, CopyChunkResponse, FsctlCode, RequestResumeKeyResponse, SnapshotArray,
};
use smb_wire::ids::{FileId, LeaseKey, MessageId};
use smb_wire::msg::{
    ChangeNotifyFlags, CloseFlags, CreateDisposition, CreateOptions, InfoType, NotifyFilter,
    QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse, QueryInfoResponse,
    ShareAccess, WriteFlags,
};
use smb_wire::utf16;

use crate::requests::{
    LONG_AGO, asking, basic, delete, file_system, granted, leased, names, open_to_delete,
    related_close, related_query, set_basic, standard, statuses, streams,
};

const ROOT: LeaseKey = LeaseKey([0x10; 16]);
const MIB: u32 = 1 << 20;

/// The window's own open of its folder.
fn window(tree: &Tree, folder: &str) -> File {
    let access = AccessMask::FILE_LIST_DIRECTORY
        | AccessMask::FILE_READ_ATTRIBUTES
        | AccessMask::SYNCHRONIZE;
    let args = CreateArgs::directory(folder).access(access);
    let args = asking(args).lease_v2(ROOT, LeaseState::RWH, 0);
    tree.create(&args).unwrap()
}

fn related_listing(tree: &Tree, pattern: &str) -> Request {
    tree.address(Request::new(&QueryDirectoryRequest {
        info_class: Class::ID_BOTH_DIRECTORY.0,
        flags: QueryDirectoryFlags::empty(),
        file_index: 0,
        file_id: FileId::ANY,
        pattern: &utf16::encode(pattern),
        output_buffer_length: MIB,
    }))
    .related()
}

fn queried(reply: &Reply) -> &[u8] {
    QueryInfoResponse::read(&reply.message).unwrap().buffer
}

#[test]
fn the_root_is_opened_and_the_volume_looked_at() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = window(&tree, "");
    let created = root.created();
    assert_eq!(created.facts.file_attributes, FileAttributes::DIRECTORY);
    // Without R the window queries at each refresh, without H it opens the folder again.
    assert_eq!(granted(&root), LeaseState::READ | LeaseState::HANDLE);
    let maximal = created.context(name::QUERY_MAXIMAL_ACCESS).unwrap();
    let maximal = QueryMaximalAccessResponse::read(maximal).unwrap();
    assert_eq!(maximal.query_status, Status::SUCCESS);
    let create = AccessMask::FILE_ADD_FILE | AccessMask::FILE_ADD_SUBDIRECTORY;
    assert!(
        maximal.maximal_access.contains(create),
        "no New in the menu"
    );
    let on_disk = created.context(name::QUERY_ON_DISK_ID).unwrap();
    let on_disk = QueryOnDiskIdResponse::read(on_disk).unwrap();
    let internal = root.query(Class::INTERNAL).unwrap();
    let internal = FileInternalInformation::read(&internal).unwrap();
    assert_eq!(on_disk.disk_file_id, internal.index_number);
    // One compound queries the volume.
    let open = CreateArgs::open("").access(AccessMask::FILE_READ_ATTRIBUTES);
    let replies = tree.client().compound(vec![
        tree.address(asking(open).request()),
        related_query(&tree, InfoType::FILESYSTEM, FsClass::VOLUME.0, 4096),
        related_query(&tree, InfoType::FILESYSTEM, FsClass::ATTRIBUTE.0, 4096),
        related_query(&tree, InfoType::FILE, Class::NETWORK_OPEN.0, 56),
        related_close(&tree),
    ]);
    let replies = replies.unwrap();
    assert_eq!(statuses(&replies), [Status::SUCCESS; 5]);
    FileFsVolumeInformation::read(queried(&replies[1])).unwrap();
    let attribute = FileFsAttributeInformation::read(queried(&replies[2])).unwrap();
    // The security tab, alternate streams, shortcuts and long names depend on these attributes.
    let needed = FileSystemAttributes::PERSISTENT_ACLS
        | FileSystemAttributes::NAMED_STREAMS
        | FileSystemAttributes::SUPPORTS_OBJECT_IDS
        | FileSystemAttributes::UNICODE_ON_DISK
        | FileSystemAttributes::CASE_PRESERVED_NAMES;
    assert!(attribute.file_system_attributes.contains(needed));
    assert_eq!(attribute.maximum_component_name_length, 255);
    assert_eq!(attribute.file_system_name, "NTFS");
    let network = FileNetworkOpenInformation::read(queried(&replies[3])).unwrap();
    assert_eq!(network.facts.creation_time, created.facts.creation_time);
    // Both classes must report the same free space.
    let size = file_system(&root, FsClass::SIZE);
    let size = FileFsSizeInformation::read(&size).unwrap();
    let full = file_system(&root, FsClass::FULL_SIZE);
    let full = FileFsFullSizeInformation::read(&full).unwrap();
    assert_eq!(size.total_allocation_units, full.total_allocation_units);
    assert_eq!(size.bytes_per_sector, full.bytes_per_sector);
    assert!(full.caller_available_allocation_units <= full.total_allocation_units);
    assert!(size.available_allocation_units > 0);
    for class in [FsClass::DEVICE, FsClass::SECTOR_SIZE, FsClass::OBJECT_ID] {
        assert!(!file_system(&root, class).is_empty(), "{class}");
    }
    // The tab "Previous Versions" first queries only the number of versions.
    let snapshots = root.ioctl(FsctlCode::SRV_ENUMERATE_SNAPSHOTS, &[], 16);
    let snapshots = SnapshotArray::read(&snapshots.unwrap()).unwrap();
    let none = SnapshotArray {
        snapshot_array_size: 2,
        ..SnapshotArray::default()
    };
    assert_eq!(snapshots, none);
}

#[test]
fn a_folder_is_listed_in_one_round_trip() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("folder").unwrap();
    for at in 0..300 {
        let bytes = vec![b'x'; at];
        let path = format!("folder/A file with a long name {at:03}.docx");
        std::fs::write(server.path(&path), bytes).unwrap();
    }
    let args = asking(CreateArgs::directory("folder")).lease_v2(ROOT, LeaseState::RWH, 0);
    let replies = tree.client().compound(vec![
        tree.address(args.request()),
        related_listing(&tree, "*"),
        related_listing(&tree, "*"),
    ]);
    let replies = replies.unwrap();
    let ends = [Status::SUCCESS, Status::SUCCESS, Status::NO_MORE_FILES];
    assert_eq!(statuses(&replies), ends);
    let folder = tree.file(&replies[0]).unwrap();
    let bytes = QueryDirectoryResponse::read(&replies[1].message).unwrap();
    let format = DirectoryFormat::of(Class::ID_BOTH_DIRECTORY).unwrap();
    let all = DirectoryEntries::new(format, bytes.buffer);
    let all: Vec<OwnedDirectoryEntry> = all.map(Result::unwrap).collect();
    assert_eq!(all.len(), 302);
    assert_eq!((&*all[0].file_name, &*all[1].file_name), (".", ".."));
    let mut files = all[2..].to_vec();
    files.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    for (at, entry) in files.iter().enumerate() {
        assert_eq!(entry.end_of_file, at as u64, "{}", entry.file_name);
        assert!(!entry.file_attributes.contains(FileAttributes::DIRECTORY));
    }
    // A listing and an open report the same file.
    let one = format!("folder\\{}", files[7].file_name);
    let one = tree.create(&CreateArgs::open(&one)).unwrap();
    let internal = one.query(Class::INTERNAL).unwrap();
    let internal = FileInternalInformation::read(&internal).unwrap();
    assert_eq!(internal.index_number, files[7].file_id);
    assert_eq!(
        one.created().facts.last_write_time,
        files[7].last_write_time
    );
    // All of this was served from the cache: no query has broken the lease.
    folder.close().unwrap();
}

#[test]
fn missing_names_have_the_status_that_clients_cache() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("folder").unwrap();
    let probes = [
        "desktop.ini",
        "AutoRun.inf",
        "Thumbs.db",
        "folder\\desktop.ini",
    ];
    for probe in probes {
        let args = asking(CreateArgs::open(probe).access(AccessMask::FILE_GENERIC_READ));
        let args = leased(args, LeaseKey([0x20; 16]), ROOT);
        let replies = tree.client().compound(vec![
            tree.address(args.request()),
            related_query(&tree, InfoType::FILE, Class::NETWORK_OPEN.0, 56),
            related_close(&tree),
        ]);
        // The redirector caches the name as missing because of this very status.
        let missed = [Status::OBJECT_NAME_NOT_FOUND; 3];
        assert_eq!(statuses(&replies.unwrap()), missed, "{probe}");
    }
    let below = CreateArgs::open("nowhere\\desktop.ini");
    let missed = tree.create_status(&asking(below)).unwrap();
    assert_eq!(missed, Status::OBJECT_PATH_NOT_FOUND);
    let folder = tree.create(&CreateArgs::directory("folder")).unwrap();
    assert_eq!(status(folder.list("*.url")), Status::NO_SUCH_FILE);
}

/// Copies like CopyFileEx: the space is requested at once, the end of file is set first, the times
/// last.
#[test]
fn a_file_is_copied_to_the_server() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let content: Vec<u8> = (0..3_400_000u32).map(|at| (at / 7) as u8).collect();
    let size = content.len() as u64;
    let args = CreateArgs::create("Setup.exe")
        .access(
            AccessMask::FILE_GENERIC_WRITE | AccessMask::FILE_READ_ATTRIBUTES | AccessMask::DELETE,
        )
        .share(ShareAccess(0))
        .attributes(FileAttributes::ARCHIVE)
        .options(CreateOptions::SEQUENTIAL_ONLY | CreateOptions::NON_DIRECTORY_FILE)
        .context(name::ALLOCATION_SIZE, &size.to_le_bytes());
    let file = tree.create(&leased(asking(args), LeaseKey([1; 16]), ROOT));
    let file = file.unwrap();
    assert_eq!(granted(&file), LeaseState::RWH);
    file.set_end_of_file(size).unwrap();
    assert!(standard(&file).allocation_size >= size);
    // Concurrent writes, which may arrive in any order.
    let pieces = content.chunks(MIB as usize).enumerate().rev();
    let sent: Vec<MessageId> = pieces
        .map(|(at, piece)| {
            let offset = at as u64 * u64::from(MIB);
            tree.send(file.write_request(offset, piece, WriteFlags::empty()))
        })
        .collect::<Result<_, _>>()
        .unwrap();
    for id in sent {
        assert_eq!(tree.client().wait(id).unwrap().status(), Status::SUCCESS);
    }
    // The zone identifier of a download moves the times of the file ([MS-FSA] 2.1.4.17), which are set afterwards.
    let mark = b"[ZoneTransfer]\r\nZoneId=3\r\n";
    let stream = "Setup.exe:Zone.Identifier:$DATA";
    tree.write_file(stream, mark).unwrap();
    set_basic(&file, LONG_AGO, LONG_AGO + 1, FileAttributes::empty());
    let closed = file.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
    assert_eq!(closed.facts.last_write_time.0, LONG_AGO + 1);
    assert_eq!(closed.facts.end_of_file, size);
    let again = tree.create(&CreateArgs::open("Setup.exe")).unwrap();
    let kept = basic(&again);
    assert_eq!(kept.creation_time.0, LONG_AGO);
    assert_eq!(kept.last_write_time.0, LONG_AGO + 1);
    assert_eq!(kept.file_attributes, FileAttributes::ARCHIVE);
    assert!(again.read_all().unwrap() == content);
    again.close().unwrap();
    assert_eq!(tree.read_file(stream).unwrap(), mark);
    let expected = [
        ("::$DATA".to_owned(), size),
        (":Zone.Identifier:$DATA".to_owned(), mark.len() as u64),
    ];
    assert_eq!(streams(&tree, "Setup.exe"), expected);
    // The button "Unblock" in the properties.
    assert_eq!(delete(&tree, "Setup.exe:Zone.Identifier"), Status::SUCCESS);
    assert_eq!(streams(&tree, "Setup.exe"), expected[..1]);
    assert!(tree.read_file("Setup.exe").unwrap() == content);
}

#[test]
fn a_file_is_copied_within_the_share() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let content: Vec<u8> = (0..2_500_000u32).map(|at| (at / 3) as u8).collect();
    tree.write_file("source", &content).unwrap();
    let access = AccessMask::FILE_GENERIC_READ;
    let source = CreateArgs::open("source").access(access);
    let source = tree.create(&asking(source)).unwrap();
    let size = source.created().facts.end_of_file;
    let target = CreateArgs::create("source - Copy")
        .access(access | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE)
        .share(ShareAccess(0))
        .context(name::ALLOCATION_SIZE, &size.to_le_bytes());
    let target = tree.create(&asking(target)).unwrap();
    target.set_end_of_file(size).unwrap();
    let key = source.ioctl(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32);
    let key = RequestResumeKeyResponse::read(&key.unwrap()).unwrap();
    let offsets = (0..size).step_by(MIB as usize);
    let chunks: Vec<CopyChunk> = offsets
        .map(|offset| CopyChunk {
            source_offset: offset,
            target_offset: offset,
            length: MIB.min((size - offset) as u32),
        })
        .collect();
    let count = chunks.len() as u32;
    let mut input = BytesMut::new();
    CopyChunkCopy {
        source_key: key.resume_key,
        chunk_count: count,
        chunks,
    }
    .encode(&mut input);
    let done = target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12).unwrap();
    let done = CopyChunkResponse::read(&done).unwrap();
    assert_eq!(done.chunks_written, count);
    assert_eq!(u64::from(done.total_bytes_written), size);
    set_basic(&target, 0, LONG_AGO, FileAttributes::empty());
    target.close().unwrap();
    assert!(tree.read_file("source - Copy").unwrap() == content);
    let target = tree.create(&CreateArgs::open("source - Copy")).unwrap();
    assert_eq!(target.created().facts.last_write_time.0, LONG_AGO);
}

fn watch(window: &File) -> MessageId {
    let filter = NotifyFilter::FILE_NAME
        | NotifyFilter::DIR_NAME
        | NotifyFilter::ATTRIBUTES
        | NotifyFilter::SIZE
        | NotifyFilter::LAST_WRITE
        | NotifyFilter::SECURITY;
    window
        .notify(filter, ChangeNotifyFlags::empty(), 2048)
        .unwrap()
}

/// Reads notifications until this one is received; the window sends a new request after each.
#[track_caller]
fn wait_for(window: &File, mut id: MessageId, action: FileAction, name: &str) -> MessageId {
    loop {
        let reply = window.tree().client().wait(id).unwrap();
        let changes = window.changes(reply).unwrap();
        id = watch(window);
        if changes
            .iter()
            .any(|c| c.action == action && c.file_name == name)
        {
            return id;
        }
    }
}

#[test]
fn a_second_window_sees_folders_created_changed_and_deleted() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let theirs = other.create(&CreateArgs::directory("")).unwrap();
    let id = watch(&theirs);
    // A change of the other connection may otherwise be made first.
    other.client().wait_pending(id).unwrap().unwrap();
    let make = |name: &str| {
        let access = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        let args = CreateArgs::create_directory(name).access(access);
        tree.create_status(&asking(args)).unwrap()
    };
    assert_eq!(make("New folder"), Status::SUCCESS);
    let id = wait_for(&theirs, id, FileAction::ADDED, "New folder");
    // Explorer tries the next number if the name exists, also in another case.
    assert_eq!(make("NEW FOLDER"), Status::OBJECT_NAME_COLLISION);
    assert_eq!(make("New folder (2)"), Status::SUCCESS);
    let id = wait_for(&theirs, id, FileAction::ADDED, "New folder (2)");
    let folder = open_to_delete(&tree, "New folder");
    folder.rename("Bilder 2024 – Köln", false).unwrap();
    folder.close().unwrap();
    let renamed = FileAction::RENAMED_NEW_NAME;
    let id = wait_for(&theirs, id, renamed, "Bilder 2024 – Köln");
    let folder = open_to_delete(&tree, "New folder (2)");
    let taken = folder.rename("Bilder 2024 – Köln", false);
    assert_eq!(status(taken), Status::OBJECT_NAME_COLLISION);
    folder.rename("NEW folder (2)", false).unwrap();
    folder.close().unwrap();
    let id = wait_for(&theirs, id, renamed, "NEW folder (2)");
    assert_eq!(names(&tree, ""), ["Bilder 2024 – Köln", "NEW folder (2)"]);
    assert_eq!(delete(&tree, "New folder (2)"), Status::SUCCESS);
    wait_for(&theirs, id, FileAction::REMOVED, "NEW folder (2)");
    assert_eq!(names(&other, ""), ["Bilder 2024 – Köln"]);
}

#[test]
fn a_folder_is_deleted_with_all_its_content() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.mkdir("old").unwrap();
    tree.write_file("old\\plain", b"plain").unwrap();
    tree.write_file("old\\read", b"read").unwrap();
    let read_only = CreateArgs::new("old\\protected", CreateDisposition::CREATE)
        .attributes(FileAttributes::READONLY);
    tree.create(&read_only).unwrap().close().unwrap();
    // Another client's preview pane, which permits deletion.
    let reader = CreateArgs::open("old\\read").access(AccessMask::FILE_GENERIC_READ);
    let reader = other.create(&reader).unwrap();
    assert_eq!(delete(&tree, "old"), Status::DIRECTORY_NOT_EMPTY);
    for entry in names(&tree, "old") {
        let name = format!("old\\{entry}");
        assert_eq!(delete(&tree, &name), Status::SUCCESS, "{name}");
        // The name is free at once, even if somebody still reads the file.
        let gone = tree.create_status(&CreateArgs::open(&name)).unwrap();
        assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND, "{name}");
    }
    assert_eq!(reader.read_all().unwrap(), b"read");
    assert_eq!(delete(&tree, "old"), Status::SUCCESS);
    reader.close().unwrap();
    assert!(names(&tree, "").is_empty());
}

#[test]
fn a_shortcut_finds_its_file_by_object_id() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let id = |name: &str| {
        let args = CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ);
        let file = tree.create(&args).unwrap();
        let made = file.ioctl(FsctlCode::CREATE_OR_GET_OBJECT_ID, &[], 64);
        let had = file.ioctl(FsctlCode::GET_OBJECT_ID, &[], 64);
        let short = file.ioctl(FsctlCode::GET_OBJECT_ID, &[], 63);
        assert_eq!(status(short), Status::INVALID_PARAMETER);
        file.close().unwrap();
        let [made, had] = [made, had].map(|told| FileObjectIdBuffer::read(&told.unwrap()).unwrap());
        assert_eq!(had, made);
        made.object_id
    };
    let first = id("f");
    tree.rename("f", "g", false).unwrap();
    assert_eq!(id("g"), first);
    tree.write_file("f", b"x").unwrap();
    assert_ne!(id("f"), first);
}
