//! Answers of CREATE to flags, contexts and sizes that are seldom sent ([MS-SMB2] 3.3.5.9).

use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{DATA, HoldfastServer, missing, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::fscc::{FileFsSizeInformation, FileInformationClass, FsInformationClass};
use smb_wire::header::HeaderFlags;
use smb_wire::msg::{CreateAction, CreateDisposition, Dialect, InfoType, ShareAccess};

/// Bytes of the head of a message and of the fixed part of a CREATE.
const FIXED: usize = 64 + 56;

fn create(tree: &Tree, request: Request) -> Status {
    tree.reply(request).unwrap().status()
}

/// The bytes of the whole volume, and of a GiB more.
fn more_than_there_is(tree: &Tree) -> u64 {
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let class = FsInformationClass::SIZE.0;
    let size = root.query_info(InfoType::FILESYSTEM, class, 0).unwrap();
    let size = FileFsSizeInformation::read(&size).unwrap();
    let unit = u64::from(size.sectors_per_allocation_unit) * u64::from(size.bytes_per_sector);
    size.total_allocation_units * unit + (1 << 30)
}

/// [MS-SMB2] 3.3.5.9: without a DFS namespace a path is never normalized.
#[test]
fn a_path_is_taken_as_it_is_whatever_the_flag_of_dfs_says() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let session = server.session(Options::dialect(dialect));
        let tree = session.tree(DATA).unwrap();
        let flagged = |args: CreateArgs| args.request().flag(HeaderFlags::DFS);
        let made = create(&tree, flagged(CreateArgs::open_if("f")));
        assert_eq!(made, Status::SUCCESS, "{dialect}");
        assert!(server.path("f").exists());
        let whole = CreateArgs::open(r"127.0.0.1\data\f");
        let missed = create(&tree, flagged(whole));
        assert_eq!(missed, Status::OBJECT_PATH_NOT_FOUND, "{dialect}");
    }
}

/// [MS-SMB2] 3.3.5.9, "Path Name Validation": StructureSize counts a byte of the buffer.
#[test]
fn a_create_is_not_shorter_than_its_structure() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = || CreateArgs::directory("").request();
    let cut = |length: usize| root().mutate(|m| m.truncate(length));
    assert_eq!(create(&tree, cut(FIXED + 1)), Status::SUCCESS);
    assert_eq!(create(&tree, cut(FIXED)), Status::INVALID_PARAMETER);
}

/// [MS-SMB2] 3.3.5.9: a buffer does not begin within the fixed part of its message.
#[test]
fn a_name_within_the_fixed_part_is_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for offset in [0_u16, 0x40, 0x6c, 0x76] {
        let request = CreateArgs::create("name").request();
        // NameOffset.
        let request = request.mutate(|m| m[108..110].copy_from_slice(&offset.to_le_bytes()));
        let refused = create(&tree, request);
        assert_eq!(refused, Status::INVALID_PARAMETER, "{offset:#x}");
    }
    assert_eq!(tree.list("", "*").unwrap().len(), 2);
}

/// [MS-SMB2] 3.3.5.9: the name has whole letters.
#[test]
fn a_name_of_an_odd_length_is_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let request = CreateArgs::create("name").request();
    // NameLength.
    let request = request.mutate(|m| m[110..112].copy_from_slice(&7_u16.to_le_bytes()));
    assert_eq!(create(&tree, request), Status::INVALID_PARAMETER);
    assert_eq!(tree.list("", "*").unwrap().len(), 2);
}

/// [MS-SMB2] 3.3.5.9.3: the space is reserved, or there is no file.
#[test]
fn a_file_for_which_there_is_no_space_is_not_made() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let size = more_than_there_is(&tree);
    if size > 8 << 40 {
        missing("a volume of less than 8 TiB");
        return;
    }
    for disposition in [
        CreateDisposition::CREATE,
        CreateDisposition::OPEN_IF,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        let args = CreateArgs::new("f", disposition);
        let args = args.context(name::ALLOCATION_SIZE, &size.to_le_bytes());
        assert_eq!(
            status(tree.create(&args)),
            Status::DISK_FULL,
            "{disposition}"
        );
        assert!(!server.path("f").exists(), "{disposition}");
    }
    // The size is that of a file that is created.
    tree.write_file("f", b"x").unwrap();
    let there = CreateArgs::open_if("f").context(name::ALLOCATION_SIZE, &size.to_le_bytes());
    let there = tree.create(&there).unwrap();
    assert_eq!(there.created().create_action, CreateAction::OPENED);
}

fn described(tree: &Tree, name: &str, access: AccessMask) -> File {
    let args = CreateArgs::open_if(name)
        .access(access)
        .context(name::QUERY_MAXIMAL_ACCESS, b"")
        .context(name::QUERY_ON_DISK_ID, b"");
    tree.create(&args).unwrap()
}

/// [MS-SMB2] 3.3.5.9.5, 3.3.5.9.9: objects of all kinds have an id on the disk, and rights.
#[test]
fn directories_and_streams_have_an_id_and_rights() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    let mut volumes = Vec::new();
    let mut ids = Vec::new();
    for object in ["", "d", "f", "f:s", "d:s"] {
        let file = described(&tree, object, AccessMask::FILE_READ_ATTRIBUTES);
        let id = file.created().context(name::QUERY_ON_DISK_ID).unwrap();
        let internal = file.query(FileInformationClass::INTERNAL).unwrap();
        assert_eq!((id.len(), &id[..8]), (32, &internal[..8]), "{object:?}");
        ids.push(id[..8].to_vec());
        volumes.push(id[8..16].to_vec());
        let maximal = file.created().context(name::QUERY_MAXIMAL_ACCESS).unwrap();
        assert_eq!(
            (maximal.len(), &maximal[..4]),
            (8, &[0; 4][..]),
            "{object:?}"
        );
        let maximal = AccessMask(u32::from_le_bytes(maximal[4..].try_into().unwrap()));
        let expected = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
        assert!(maximal.contains(expected), "{object:?} {maximal}");
    }
    volumes.dedup();
    assert_eq!(volumes.len(), 1, "one volume");
    // A stream is a part of its file.
    assert_eq!((&ids[2], &ids[1]), (&ids[3], &ids[4]));
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
}

/// [MS-SMB2] 3.3.5.9.5: the maximal access is that of the user, whatever the open has asked for.
#[test]
fn the_maximal_access_does_not_depend_on_the_desired_one() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let maximal = |access| {
        let file = described(&tree, "f", access);
        let context = file.created().context(name::QUERY_MAXIMAL_ACCESS);
        let context = context.unwrap().to_vec();
        file.close().unwrap();
        context
    };
    let expected = maximal(AccessMask::FILE_ALL_ACCESS);
    for access in [
        AccessMask::FILE_READ_ATTRIBUTES,
        AccessMask::FILE_WRITE_DATA,
        AccessMask::DELETE,
        AccessMask::MAXIMUM_ALLOWED,
    ] {
        assert_eq!(maximal(access), expected, "{access}");
    }
}

/// [MS-SMB2] 3.3.5.9: an open that fails is none: it neither shares nor refuses anything.
#[test]
fn an_open_with_a_malformed_context_leaves_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for (context, data) in [
        (name::QUERY_MAXIMAL_ACCESS, &[0; 7][..]),
        (name::DURABLE_HANDLE_REQUEST_V2, &[0; 31]),
        (name::ALLOCATION_SIZE, &[0; 7]),
        (b"abc", b""),
    ] {
        let args = CreateArgs::open("f").share(ShareAccess::empty());
        let args = args.context(context, data);
        let refused = status(tree.create(&args));
        assert_eq!(refused, Status::INVALID_PARAMETER, "{context:x?}");
        assert_eq!(server.opens(), 0, "{context:x?}");
        let alone = CreateArgs::open("f").share(ShareAccess::empty());
        tree.create(&alone).unwrap().close().unwrap();
    }
}
