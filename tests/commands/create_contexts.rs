//! Create contexts beside those of durable opens and leases, and fields of CREATE that are ignored, refused or changed
//! by the server ([MS-SMB2] 3.3.5.9, [MS-FSA] 2.1.5.1).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseState, name};
use smb_wire::dtyp::{Ace, AceFlags, AceType, Acl, SecurityDescriptor, SecurityInformation, Sid};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::LeaseKey;
use smb_wire::msg::{
    CreateAction, CreateDisposition, CreateOptions, InfoType, OplockLevel, ShareAccess,
};

const KEY: LeaseKey = LeaseKey([0x61; 16]);
const MIB: u64 = 1 << 20;

fn number(file: &File, class: FileInformationClass) -> u32 {
    let bytes = file.query(class).unwrap();
    u32::from_le_bytes(bytes.try_into().unwrap())
}

fn attributes(tree: &Tree, name: &str) -> FileAttributes {
    let args = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
    let file = tree.create(&args).unwrap();
    file.close().unwrap();
    file.created().facts.file_attributes
}

/// [MS-SMB2] 3.3.5.9.8: the level and the context of a lease belong together.
#[test]
fn a_lease_needs_its_level_and_its_context() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let leased = CreateArgs::open_if("f").lease(KEY, LeaseState::RWH);
    let file = tree.create(&leased.oplock(OplockLevel::BATCH)).unwrap();
    assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
    assert_eq!(file.created().lease(), None);
    file.close().unwrap();
    let without = CreateArgs::open_if("f").oplock(OplockLevel::LEASE);
    let file = tree.create(&without).unwrap();
    assert_eq!(file.created().oplock_level, OplockLevel::NONE);
    assert_eq!(file.created().lease(), None);
}

/// [MS-SMB2] 3.3.5.9.1, 3.3.5.9.2: an existing file is opened as it is.
#[test]
fn attributes_and_descriptors_are_those_of_new_files() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let all = || CreateArgs::open_if("f").access(AccessMask::FILE_ALL_ACCESS);
    let list = |file: &File| {
        let parts = SecurityInformation::DACL.bits();
        file.query_info(InfoType::SECURITY, 0, parts).unwrap()
    };
    let before = tree.create(&all()).unwrap();
    let nobody = Ace::allow(
        Sid::EVERYONE,
        AccessMask::FILE_GENERIC_READ,
        AceFlags::empty(),
    );
    let mut descriptor = BytesMut::new();
    SecurityDescriptor {
        dacl: Some(Acl::new(vec![nobody])),
        ..SecurityDescriptor::default()
    }
    .encode(&mut descriptor)
    .unwrap();
    let args = all()
        .context(name::EXTENDED_ATTRIBUTES, b"\0\0\0\0\0\x01\x01\0A\0x")
        .context(name::SECURITY_DESCRIPTOR, &descriptor);
    let opened = tree.create(&args).unwrap();
    assert_eq!(opened.created().create_action, CreateAction::OPENED);
    assert_eq!(number(&opened, FileInformationClass::EA), 0);
    assert_eq!(list(&opened), list(&before));
}

/// [MS-SMB2] 3.3.5.9.1, 3.3.5.9.2: both are ignored where an existing file is opened, whatever they contain.
#[test]
fn malformed_attributes_and_descriptors_are_refused_with_a_new_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for (name, data, refused) in [
        (
            name::EXTENDED_ATTRIBUTES,
            &b"\0\0\0\0\0\x09\x01\0A\0x"[..],
            Status::INVALID_PARAMETER,
        ),
        (
            name::EXTENDED_ATTRIBUTES,
            b"\0\0\0\0\0\x01\x01\0*\0x",
            Status::INVALID_EA_NAME,
        ),
        (
            name::SECURITY_DESCRIPTOR,
            b"\x01",
            Status::INVALID_PARAMETER,
        ),
    ] {
        for args in [CreateArgs::open("f"), CreateArgs::open_if("f")] {
            let opened = tree.create(&args.context(name, data)).unwrap();
            assert_eq!(opened.created().create_action, CreateAction::OPENED);
        }
        for new in ["g", "g:s"] {
            let args = CreateArgs::open_if(new).context(name, data);
            assert_eq!(status(tree.create(&args)), refused, "{new}");
            assert!(!server.path("g").exists());
        }
        let args = CreateArgs::new("f", CreateDisposition::OVERWRITE);
        let overwritten = status(tree.create(&args.context(name, data)));
        let examined = name == name::EXTENDED_ATTRIBUTES;
        let expected = if examined { refused } else { Status::SUCCESS };
        assert_eq!(overwritten, expected);
    }
}

/// [MS-SMB2] 3.3.5.9.3.
#[test]
fn a_size_to_allocate_for_a_new_stream_is_not_allocated_to_its_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f:s").context(name::ALLOCATION_SIZE, &MIB.to_le_bytes());
    tree.create(&args).unwrap().close().unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let allocated = file.created().facts.allocation_size;
    assert!(allocated < MIB, "{allocated}");
}

/// [MS-SMB2] 3.3.5.9.3.
#[test]
fn a_size_to_allocate_is_not_the_size_of_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let sized = |args: CreateArgs, size: u64| {
        let args = args.context(name::ALLOCATION_SIZE, &size.to_le_bytes());
        tree.create(&args)
    };
    let new = sized(CreateArgs::create("f"), MIB).unwrap();
    let facts = new.created().facts;
    assert_eq!(facts.end_of_file, 0);
    // The context is optional.
    let allocated = facts.allocation_size;
    assert!(allocated == 0 || allocated >= MIB, "{allocated}");
    new.write_all(0, b"0123456789").unwrap();
    new.close().unwrap();
    for size in [0, 1, MIB] {
        let there = sized(CreateArgs::open("f"), size).unwrap();
        assert_eq!(there.created().facts.end_of_file, 10, "{size}");
        there.close().unwrap();
    }
    assert_eq!(tree.read_file("f").unwrap(), b"0123456789");
}

/// [MS-SMB2] 3.3.5.9.4: there are no snapshots.
#[test]
fn an_earlier_version_is_not_found() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let earlier = 132_223_104_000_000_000u64.to_le_bytes();
    for args in [
        CreateArgs::open("f"),
        CreateArgs::open_if("f"),
        CreateArgs::open("missing"),
        CreateArgs::open_if("missing"),
        CreateArgs::new("f", CreateDisposition::OVERWRITE),
    ] {
        let args = args.context(name::TIMEWARP_TOKEN, &earlier);
        assert_eq!(status(tree.create(&args)), Status::OBJECT_NAME_NOT_FOUND);
    }
    assert!(!server.path("missing").exists());
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"x");
}

/// [MS-SMB2] 3.3.5.9: the offset and the length of no contexts are zero, and contexts are aligned.
#[test]
fn no_contexts_have_no_offset() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let contexts = |args: CreateArgs| {
        let reply = tree.call(args.request()).unwrap();
        let word = |at: usize| u32::from_le_bytes(reply.message[at..at + 4].try_into().unwrap());
        (word(144), word(148))
    };
    assert_eq!(contexts(CreateArgs::open_if("f")), (0, 0));
    let unknown = CreateArgs::open_if("f").context(b"What", b"ever");
    assert_eq!(contexts(unknown), (0, 0));
    let asked = CreateArgs::open_if("f").context(name::QUERY_ON_DISK_ID, b"");
    let (offset, length) = contexts(asked);
    assert!(offset >= 152 && offset.is_multiple_of(8), "{offset}");
    assert!(length >= 16 + 4 + 32, "{length}");
}

/// [MS-SMB2] 3.3.5.9: the server clears these options before the file is opened.
#[test]
fn options_of_local_callers_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let ignored = CreateOptions::SYNCHRONOUS_IO_ALERT
        | CreateOptions::SYNCHRONOUS_IO_NONALERT
        | CreateOptions::COMPLETE_IF_OPLOCKED
        | CreateOptions::OPEN_FOR_FREE_SPACE_QUERY;
    // Without SYNCHRONIZE, which the first two need elsewhere.
    let args = CreateArgs::create("f")
        .access(AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA)
        .options(ignored);
    let file = tree.create(&args).unwrap();
    let mode = number(&file, FileInformationClass::MODE);
    assert_eq!(mode & ignored.bits(), 0, "{mode:#x}");
}

/// [MS-FSA] 2.1.5.1, phase 3.
#[test]
fn the_mode_of_a_handle_is_that_of_its_options() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let options = CreateOptions::WRITE_THROUGH
        | CreateOptions::SEQUENTIAL_ONLY
        | CreateOptions::NO_INTERMEDIATE_BUFFERING;
    for option in [
        CreateOptions::empty(),
        CreateOptions::WRITE_THROUGH,
        CreateOptions::SEQUENTIAL_ONLY,
        CreateOptions::NO_INTERMEDIATE_BUFFERING,
        options,
    ] {
        let other = CreateOptions::NON_DIRECTORY_FILE | CreateOptions::RANDOM_ACCESS;
        let args = CreateArgs::open_if("f").options(option | other);
        let file = tree.create(&args).unwrap();
        let mode = number(&file, FileInformationClass::MODE);
        assert_eq!(mode, option.bits(), "{option}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.9: the right to execute contains that to read.
#[test]
fn a_handle_that_may_execute_may_read() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"program").unwrap();
    let args = CreateArgs::open("f").access(AccessMask::FILE_EXECUTE);
    let file = tree.create(&args).unwrap();
    assert_eq!(file.read(0, 7).unwrap(), b"program");
}

/// [MS-FSA] 2.1.5.1, phase 1: any bit of the mask 0x0CE0FE00.
#[test]
fn reserved_bits_of_the_access_are_denied() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for bit in (0..32).map(|place| 1u32 << place) {
        if bit & 0x0ce0_fe00 == 0 {
            continue;
        }
        let access = AccessMask::FILE_GENERIC_READ | AccessMask(bit);
        let args = CreateArgs::open_if("f").access(access);
        let end = status(tree.create(&args));
        assert_eq!(end, Status::ACCESS_DENIED, "{bit:#x}");
    }
    assert!(!server.path("f").exists());
}

/// [MS-FSA] 2.1.5.1, phase 1.
#[test]
fn undefined_share_modes_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for bits in [0x8, 0xf, 0x8000_0000] {
        let args = CreateArgs::open_if("f").share(ShareAccess(bits));
        let end = status(tree.create(&args));
        assert_eq!(end, Status::INVALID_PARAMETER, "{bits:#x}");
    }
    assert!(!server.path("f").exists());
}

/// [MS-FSA] 2.1.5.1.1: nobody here has the privilege.
#[test]
fn audit_lists_are_not_opened() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("there", b"x").unwrap();
    for name in ["there", "new"] {
        let access = AccessMask::FILE_GENERIC_READ | AccessMask::ACCESS_SYSTEM_SECURITY;
        let args = CreateArgs::open_if(name).access(access);
        let end = status(tree.create(&args));
        assert!(
            [Status::ACCESS_DENIED, Status::PRIVILEGE_NOT_HELD].contains(&end),
            "{name}: {end}"
        );
    }
    assert!(!server.path("new").exists());
}

/// [MS-SMB2] 3.3.5.21.3: a CREATE brings no entries that a handle with all rights could not set afterwards.
#[test]
fn audit_entries_are_not_made_with_a_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let with = |args: CreateArgs, kind| {
        let entry = Ace::new(kind, AceFlags::empty(), AccessMask(1), Sid::EVERYONE);
        let mut descriptor = BytesMut::new();
        SecurityDescriptor {
            sacl: Some(Acl::new(vec![entry])),
            ..SecurityDescriptor::default()
        }
        .encode(&mut descriptor)
        .unwrap();
        status(tree.create(&args.context(name::SECURITY_DESCRIPTOR, &descriptor)))
    };
    for kind in [AceType::SYSTEM_AUDIT, AceType::SYSTEM_SCOPED_POLICY_ID] {
        for new in ["f", "f:s"] {
            let refused = with(CreateArgs::create(new), kind);
            assert_eq!(refused, Status::PRIVILEGE_NOT_HELD, "{new} {kind:?}");
        }
        let refused = with(CreateArgs::create_directory("f"), kind);
        assert_eq!(refused, Status::PRIVILEGE_NOT_HELD, "{kind:?}");
        assert!(!server.path("f").exists());
    }
    let label = with(CreateArgs::create("f"), AceType::SYSTEM_MANDATORY_LABEL);
    assert_eq!(label, Status::SUCCESS);
    // An existing file stays as it is ([MS-SMB2] 3.3.5.9.2).
    let opened = with(CreateArgs::open_if("f"), AceType::SYSTEM_AUDIT);
    assert_eq!(opened, Status::SUCCESS);
}

/// [MS-FSA] 2.1.5.1.1: the attributes that applications cannot set are cleared.
#[test]
fn a_new_file_has_only_attributes_that_can_be_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for cleared in [
        FileAttributes::NORMAL,
        FileAttributes::SPARSE_FILE,
        FileAttributes::REPARSE_POINT,
        FileAttributes::COMPRESSED,
    ] {
        let name = format!("f{:x}", cleared.bits());
        let args = CreateArgs::create(&name).attributes(cleared | FileAttributes::HIDDEN);
        let file = tree.create(&args).unwrap();
        let expected = FileAttributes::HIDDEN | FileAttributes::ARCHIVE;
        assert_eq!(file.created().facts.file_attributes, expected, "{cleared}");
        assert_eq!(attributes(&tree, &name), expected, "{cleared}");
    }
}

/// [MS-FSA] 2.1.5.1.2: an overwrite replaces the attributes of the file, unless it is that of a named stream.
#[test]
fn an_overwrite_replaces_the_attributes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let archive = FileAttributes::ARCHIVE;
    let hidden = FileAttributes::HIDDEN;
    let write = |name: &str, attributes, disposition| {
        let args = CreateArgs::new(name, disposition).attributes(attributes);
        tree.create(&args).unwrap().close().unwrap();
    };
    let overwrite = CreateDisposition::OVERWRITE;
    let offline = FileAttributes::OFFLINE;
    write("f", offline, CreateDisposition::CREATE);
    assert_eq!(attributes(&tree, "f"), offline | archive);
    write("f", hidden, overwrite);
    assert_eq!(attributes(&tree, "f"), hidden | archive);
    write("f:s", FileAttributes::empty(), CreateDisposition::CREATE);
    write("f:s", FileAttributes::NORMAL, overwrite);
    assert_eq!(attributes(&tree, "f"), hidden | archive);
    let unindexed = FileAttributes::NOT_CONTENT_INDEXED;
    write("f", hidden | unindexed, CreateDisposition::OVERWRITE_IF);
    assert_eq!(attributes(&tree, "f"), hidden | archive);
}

/// [MS-FSA] 2.1.5.1, phase 7.
#[test]
fn a_directory_is_not_made_where_a_file_or_stream_is() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    tree.write_file("f:s", b"x").unwrap();
    tree.mkdir("d").unwrap();
    let make = |name, disposition| {
        let args = CreateArgs::directory(name).disposition(disposition);
        status(tree.create(&args))
    };
    let create = CreateDisposition::CREATE;
    assert_eq!(make("f", create), Status::OBJECT_NAME_COLLISION);
    for disposition in [CreateDisposition::OPEN, CreateDisposition::OPEN_IF] {
        for name in ["f", "f:s", "f::$DATA", "d:s"] {
            let end = make(name, disposition);
            assert_eq!(end, Status::NOT_A_DIRECTORY, "{name} {disposition}");
        }
    }
    assert_eq!(make("d:s", create), Status::NOT_A_DIRECTORY);
    assert_eq!(make("new:s", create), Status::NOT_A_DIRECTORY);
    assert!(!server.path("new").exists());
    assert_eq!(tree.read_file("f:s").unwrap(), b"x");
}

/// [MS-FSA] 2.1.5.1.1: a file made with a named stream has its unnamed one as well.
#[test]
fn a_file_made_with_a_stream_has_an_empty_one_too() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let stream = tree.create(&CreateArgs::create("f:s")).unwrap();
    assert_eq!(stream.created().create_action, CreateAction::CREATED);
    stream.write_all(0, b"stream").unwrap();
    stream.close().unwrap();
    assert_eq!(tree.read_file("f").unwrap(), b"");
    let create = CreateArgs::create("f");
    assert_eq!(status(tree.create(&create)), Status::OBJECT_NAME_COLLISION);
    let again = CreateArgs::create("f:s");
    assert_eq!(status(tree.create(&again)), Status::OBJECT_NAME_COLLISION);
    let missing = CreateArgs::new("f:t", CreateDisposition::OVERWRITE);
    let end = status(tree.create(&missing));
    assert_eq!(end, Status::OBJECT_NAME_NOT_FOUND);
}
