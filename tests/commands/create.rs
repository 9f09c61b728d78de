//! CREATE ([MS-SMB2] 3.3.5.9, [MS-FSA] 2.1.5.1): dispositions, access, sharing, options,
//! contexts. Names are in `create_names`.

use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::state::{assert_same, on_host, settled};
use smb_tests::{HoldfastServer, READ_ONLY, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseState, name};
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::{FileId, FileTime, LeaseKey};
use smb_wire::msg::{
    CreateAction, CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel, ShareAccess,
};

use crate::checks;

const NOTHING: ShareAccess = ShareAccess::empty();

fn attempt(tree: &Tree, args: &CreateArgs) -> Result<CreateAction, Status> {
    match tree.create(args) {
        Ok(file) => {
            file.close().unwrap();
            Ok(file.created().create_action)
        }
        Err(error) => Err(error.status().unwrap_or_else(|| panic!("{error}"))),
    }
}

#[test]
fn dispositions_on_existing_and_missing_files() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for (disposition, there, not_there) in [
        (
            CreateDisposition::SUPERSEDE,
            Ok(CreateAction::SUPERSEDED),
            Ok(CreateAction::CREATED),
        ),
        (
            CreateDisposition::OPEN,
            Ok(CreateAction::OPENED),
            Err(Status::OBJECT_NAME_NOT_FOUND),
        ),
        (
            CreateDisposition::CREATE,
            Err(Status::OBJECT_NAME_COLLISION),
            Ok(CreateAction::CREATED),
        ),
        (
            CreateDisposition::OPEN_IF,
            Ok(CreateAction::OPENED),
            Ok(CreateAction::CREATED),
        ),
        (
            CreateDisposition::OVERWRITE,
            Ok(CreateAction::OVERWRITTEN),
            Err(Status::OBJECT_NAME_NOT_FOUND),
        ),
        (
            CreateDisposition::OVERWRITE_IF,
            Ok(CreateAction::OVERWRITTEN),
            Ok(CreateAction::CREATED),
        ),
    ] {
        std::fs::write(server.path("there"), b"content").unwrap();
        let _ = std::fs::remove_file(server.path("not"));
        let new = |name| CreateArgs::new(name, disposition);
        assert_eq!(attempt(&tree, &new("there")), there, "{disposition}");
        let kept = std::fs::read(server.path("there")).unwrap();
        let empties = [
            CreateDisposition::SUPERSEDE,
            CreateDisposition::OVERWRITE,
            CreateDisposition::OVERWRITE_IF,
        ]
        .contains(&disposition);
        assert_eq!(kept.is_empty(), empties, "{disposition}");
        assert_eq!(attempt(&tree, &new("not")), not_there, "{disposition}");
        assert_eq!(server.path("not").exists(), not_there.is_ok());
    }
}

#[test]
fn directories_are_created_opened_and_not_overwritten() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory =
        |disposition| CreateArgs::new("d", disposition).options(CreateOptions::DIRECTORY_FILE);
    assert_eq!(
        attempt(&tree, &directory(CreateDisposition::OPEN)),
        Err(Status::OBJECT_NAME_NOT_FOUND)
    );
    assert_eq!(
        attempt(&tree, &directory(CreateDisposition::CREATE)),
        Ok(CreateAction::CREATED)
    );
    assert!(server.path("d").is_dir());
    assert_eq!(
        attempt(&tree, &directory(CreateDisposition::CREATE)),
        Err(Status::OBJECT_NAME_COLLISION)
    );
    assert_eq!(
        attempt(&tree, &directory(CreateDisposition::OPEN_IF)),
        Ok(CreateAction::OPENED)
    );
    for disposition in [
        CreateDisposition::SUPERSEDE,
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
    ] {
        assert_eq!(
            attempt(&tree, &directory(disposition)),
            Err(Status::INVALID_PARAMETER),
            "{disposition}"
        );
    }
}

#[test]
fn files_and_directories_are_distinguished() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"").unwrap();
    tree.mkdir("d").unwrap();
    let open = |name, options| attempt(&tree, &CreateArgs::open(name).options(options));
    assert_eq!(
        open("f", CreateOptions::DIRECTORY_FILE),
        Err(Status::NOT_A_DIRECTORY)
    );
    assert_eq!(
        open("d", CreateOptions::NON_DIRECTORY_FILE),
        Err(Status::FILE_IS_A_DIRECTORY)
    );
    assert_eq!(
        open(
            "f",
            CreateOptions::DIRECTORY_FILE | CreateOptions::NON_DIRECTORY_FILE
        ),
        Err(Status::INVALID_PARAMETER)
    );
    assert_eq!(
        open("f", CreateOptions::NON_DIRECTORY_FILE),
        Ok(CreateAction::OPENED)
    );
    assert_eq!(open("d", CreateOptions::empty()), Ok(CreateAction::OPENED));
}

#[test]
fn the_answer_describes_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    std::fs::write(server.path("f"), [0; 12_345]).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let created = file.created();
    assert_eq!(created.facts.end_of_file, 12_345);
    assert!(created.facts.allocation_size >= 12_345);
    assert_ne!(created.facts.last_write_time, FileTime::ZERO);
    assert_ne!(file.id(), FileId::ANY);
    assert!(
        !created
            .facts
            .file_attributes
            .contains(FileAttributes::DIRECTORY)
    );
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    assert!(
        root.created()
            .facts
            .file_attributes
            .contains(FileAttributes::DIRECTORY)
    );
    assert_eq!(root.created().facts.end_of_file, 0);
}

#[test]
fn sharing_is_checked_in_both_directions() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let (read, write, delete) = (
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_WRITE_DATA,
        AccessMask::DELETE,
    );
    let (append, execute) = (AccessMask::FILE_APPEND_DATA, AccessMask::FILE_EXECUTE);
    let attributes = AccessMask::FILE_READ_ATTRIBUTES;
    let (r, w) = (ShareAccess::READ, ShareAccess::WRITE);
    let (rw, all) = (r | w, r | w | ShareAccess::DELETE);
    let check = |(first, first_share), (second, second_share), fits| {
        let args = |access, share| CreateArgs::open("f").access(access).share(share);
        let held = tree.create(&args(first, first_share)).unwrap();
        let end = tree.create_status(&args(second, second_share)).unwrap();
        let expected = if fits {
            Status::SUCCESS
        } else {
            Status::SHARING_VIOLATION
        };
        assert_eq!(
            end, expected,
            "{first}/{first_share} {second}/{second_share}"
        );
        held.close().unwrap();
    };
    check((read, all), (write, all), true);
    check((read, NOTHING), (read, all), false);
    check((read, all), (read, NOTHING), false);
    check((read, r), (read, r), true);
    check((read, r), (write, all), false);
    check((write, all), (read, r), false);
    check((write, all), (read, rw), true);
    check((append, all), (read, r), false);
    check((execute, all), (write, w), false);
    check((delete, all), (read, rw), false);
    check((read, rw), (delete, all), false);
    // Opens that only access attributes conflict with nothing.
    check((attributes, NOTHING), (write, NOTHING), true);
    check((read, NOTHING), (attributes, NOTHING), true);
}

#[test]
fn a_refused_open_changes_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"precious").unwrap();
    let held = tree
        .create(&CreateArgs::open("f").share(ShareAccess::READ))
        .unwrap();
    let overwrite = CreateArgs::new("f", CreateDisposition::OVERWRITE_IF);
    assert_eq!(attempt(&tree, &overwrite), Err(Status::SHARING_VIOLATION));
    held.close().unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"precious");
}

/// Nothing is made and taken away again for it: the times of the file and of its folder would show
/// this, and so would a watch on the host.
#[test]
fn what_is_refused_is_not_made_first() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let key = LeaseKey([7; 16]);
    let leased = |name: &str| CreateArgs::open_if(name).lease(key, LeaseState::RWH);
    let held = tree.create(&leased("f")).unwrap();
    let look = || settled(|| on_host(&server.path("")));
    let before = look();
    // [MS-SMB2] 3.3.5.9.8: the key is that of another file, or of another stream of this one.
    for name in ["new", "f:new", "new:new"] {
        let refused = attempt(&tree, &leased(name));
        assert_eq!(refused, Err(Status::INVALID_PARAMETER), "{name}");
        assert_same(&before, &look(), name);
    }
    held.set(FileInformationClass::DISPOSITION, &[1]).unwrap();
    let before = look();
    let refused = attempt(&tree, &CreateArgs::open_if("f:new"));
    assert_eq!(refused, Err(Status::DELETE_PENDING));
    assert_same(&before, &look(), "a stream of what is deleted");
    held.close().unwrap();
    assert!(!server.path("f").exists());
    let made = tree.create(&leased("new:new")).unwrap();
    made.close().unwrap();
}

#[test]
fn undefined_values_of_fields_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let open = || CreateArgs::open("f");
    let check = |args: &CreateArgs, expected: Status, what: &str| {
        assert_eq!(tree.create_status(args).unwrap(), expected, "{what}");
    };
    for level in [4, 0xffff_ffff] {
        let mut args = open();
        args.impersonation_level = ImpersonationLevel(level);
        check(&args, Status::BAD_IMPERSONATION_LEVEL, "impersonation");
    }
    for disposition in [6, 0xffff_ffff] {
        check(
            &open().disposition(CreateDisposition(disposition)),
            Status::INVALID_PARAMETER,
            "disposition",
        );
    }
    check(
        &open().access(AccessMask::empty()),
        Status::ACCESS_DENIED,
        "no access asked",
    );
    for bits in [0x0000_0200, 0x0400_0000, 0x0800_0000] {
        check(
            &open().access(AccessMask(bits | 1)),
            Status::ACCESS_DENIED,
            "unknown access",
        );
    }
    for bits in [0x0100_0000, 0x8000_0000] {
        check(
            &open().options(CreateOptions(bits)),
            Status::INVALID_PARAMETER,
            "unknown option",
        );
    }
    for option in [
        CreateOptions::OPEN_BY_FILE_ID,
        CreateOptions::RESERVE_OPFILTER,
        CreateOptions::TREE_CONNECTION,
    ] {
        check(
            &open().options(option),
            Status::NOT_SUPPORTED,
            "unsupported",
        );
    }
    for attribute in [FileAttributes::VOLUME, FileAttributes::DEVICE] {
        check(
            &CreateArgs::create("g").attributes(attribute),
            Status::INVALID_PARAMETER,
            "attribute",
        );
    }
    assert!(!server.path("g").exists());
}

/// [MS-SMB2] 3.3.5.9 takes the right to append away from a request without buffering that names it; generic rights
/// contain it all the same.
#[test]
fn an_open_without_buffering_does_not_name_appending() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let open = |access| {
        let options = CreateOptions::NO_INTERMEDIATE_BUFFERING;
        tree.create(&CreateArgs::open("f").access(access).options(options))
    };
    let append = AccessMask::FILE_APPEND_DATA;
    assert_eq!(
        status(open(append)),
        Status::ACCESS_DENIED,
        "nothing is left"
    );
    let granted = |access| {
        let file = open(access).unwrap();
        let bytes = file.query(FileInformationClass::ACCESS).unwrap();
        AccessMask(u32::from_le_bytes(bytes.try_into().unwrap()))
    };
    let read = AccessMask::FILE_READ_DATA;
    assert_eq!(granted(read | append), read);
    assert!(granted(AccessMask::GENERIC_WRITE).contains(append));
}

/// [MS-FSA] 2.1.5.1.1: only a new directory must not be temporary.
#[test]
fn an_existing_directory_is_opened_whatever_the_attributes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("there").unwrap();
    let open = |name, disposition| {
        let args = CreateArgs::directory(name).disposition(disposition);
        status(tree.create(&args.attributes(FileAttributes::TEMPORARY)))
    };
    let open_if = CreateDisposition::OPEN_IF;
    assert_eq!(open("there", CreateDisposition::OPEN), Status::SUCCESS);
    assert_eq!(open("there", open_if), Status::SUCCESS);
    assert_eq!(open("new", open_if), Status::INVALID_PARAMETER);
    assert!(!server.path("new").exists());
}

/// [MS-FSA] 2.1.5.1, phase 7.
#[test]
fn a_file_is_not_made_where_a_directory_is() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let options = CreateOptions::NON_DIRECTORY_FILE;
    let args = CreateArgs::create("d").options(options);
    assert_eq!(status(tree.create(&args)), Status::FILE_IS_A_DIRECTORY);
    let args = CreateArgs::create("d");
    assert_eq!(status(tree.create(&args)), Status::OBJECT_NAME_COLLISION);
}

#[test]
fn delete_on_close_needs_the_right_to_delete() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let without = CreateArgs::open("f")
        .access(AccessMask::FILE_READ_DATA)
        .options(CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(attempt(&tree, &without), Err(Status::INVALID_PARAMETER));
    // [MS-FSA] 2.1.5.1: the request must name the right; MAXIMUM_ALLOWED does not.
    let most = without.access(AccessMask::MAXIMUM_ALLOWED);
    assert_eq!(attempt(&tree, &most), Err(Status::INVALID_PARAMETER));
    assert!(server.path("f").exists());
    let with = CreateArgs::open("f")
        .access(AccessMask::MAXIMUM_ALLOWED | AccessMask::DELETE)
        .options(CreateOptions::DELETE_ON_CLOSE);
    attempt(&tree, &with).unwrap();
    assert!(!server.path("f").exists());
}

#[test]
fn read_only_files_are_not_written_or_deleted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let make = CreateArgs::create("f")
        .attributes(FileAttributes::READONLY)
        .access(AccessMask::FILE_WRITE_DATA | AccessMask::FILE_READ_ATTRIBUTES);
    let file = tree.create(&make).unwrap();
    // The open that created the file may write.
    file.write_all(0, b"x").unwrap();
    file.close().unwrap();
    for access in [AccessMask::FILE_WRITE_DATA, AccessMask::FILE_APPEND_DATA] {
        let open = CreateArgs::open("f").access(access);
        assert_eq!(
            attempt(&tree, &open),
            Err(Status::ACCESS_DENIED),
            "{access}"
        );
    }
    let delete = CreateArgs::open("f")
        .access(AccessMask::DELETE)
        .options(CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(attempt(&tree, &delete), Err(Status::CANNOT_DELETE));
    let read = CreateArgs::open("f").access(AccessMask::FILE_GENERIC_READ);
    attempt(&tree, &read).unwrap();
    let all = tree
        .create(&CreateArgs::open("f").access(AccessMask::MAXIMUM_ALLOWED))
        .unwrap();
    assert_eq!(
        status(all.write(0, b"y", smb_wire::msg::WriteFlags::empty())),
        Status::ACCESS_DENIED
    );
}

/// [MS-FSA] 2.1.5.1.2.1: READONLY protects a directory itself but not its entries, and the streams
/// of a file.
#[test]
fn read_only_directories_and_streams_of_read_only_files_are_not_deleted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let readonly = |args: CreateArgs| tree.create(&args.attributes(FileAttributes::READONLY));
    readonly(CreateArgs::create_directory("d")).unwrap();
    let file = readonly(CreateArgs::create("f")).unwrap();
    file.close().unwrap();
    tree.write_file("d\\f", b"comes").unwrap();
    tree.write_file("d:s", b"comes").unwrap();
    tree.delete("d\\f").unwrap();
    let delete = |name| {
        CreateArgs::open(name)
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE)
    };
    for name in ["d", "d:s", "f"] {
        assert_eq!(attempt(&tree, &delete(name)), Err(Status::CANNOT_DELETE));
    }
    let stream = CreateArgs::create("f:s");
    assert_eq!(attempt(&tree, &stream), Err(Status::ACCESS_DENIED));
    assert_eq!(tree.read_file("d:s").unwrap(), b"comes");
    // The maximal access to a read-only directory includes its entries, which can be created and
    // deleted.
    let most = CreateArgs::open("d").access(AccessMask::MAXIMUM_ALLOWED);
    let told = tree.create(&most).unwrap();
    let told = told.query(FileInformationClass::ACCESS).unwrap();
    let told = AccessMask(u32::from_le_bytes(told.try_into().unwrap()));
    let adding = AccessMask::FILE_ADD_FILE
        | AccessMask::FILE_ADD_SUBDIRECTORY
        | AccessMask::FILE_DELETE_CHILD;
    assert!(told.contains(adding | AccessMask::DELETE), "{told}");
}

#[test]
fn an_overwrite_must_not_lose_hidden_and_system() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for attribute in [FileAttributes::HIDDEN, FileAttributes::SYSTEM] {
        let name = format!("f{}", attribute.bits());
        attempt(&tree, &CreateArgs::create(&name).attributes(attribute)).unwrap();
        let overwrite = CreateArgs::new(&name, CreateDisposition::OVERWRITE);
        assert_eq!(attempt(&tree, &overwrite), Err(Status::ACCESS_DENIED));
        attempt(&tree, &overwrite.attributes(attribute)).unwrap();
    }
}

#[test]
fn attributes_of_new_files_are_stored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let asked = FileAttributes::HIDDEN | FileAttributes::SYSTEM;
    let file = tree
        .create(&CreateArgs::create("f").attributes(asked))
        .unwrap();
    let expected = asked | FileAttributes::ARCHIVE;
    assert_eq!(file.created().facts.file_attributes, expected);
    file.close().unwrap();
    let again = tree.create(&CreateArgs::open("f")).unwrap();
    assert_eq!(again.created().facts.file_attributes, expected);
    // [MS-FSA] 2.1.5.1.1: a directory gets ARCHIVE as any other attribute.
    for (name, asked) in [("d", asked), ("e", asked | FileAttributes::ARCHIVE)] {
        let new = CreateArgs::create_directory(name).attributes(asked);
        let directory = tree.create(&new).unwrap();
        let found = directory.created().facts.file_attributes;
        assert_eq!(found, asked | FileAttributes::DIRECTORY, "{name}");
    }
}

#[test]
fn maximal_access_and_disk_id_are_returned_on_request() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let args = CreateArgs::open("f")
        .access(AccessMask::FILE_READ_ATTRIBUTES)
        .context(name::QUERY_MAXIMAL_ACCESS, b"")
        .context(name::QUERY_ON_DISK_ID, b"");
    let file = tree.create(&args).unwrap();
    let maximal = file.created().context(name::QUERY_MAXIMAL_ACCESS).unwrap();
    assert_eq!(maximal.len(), 8);
    assert_eq!(maximal[..4], [0; 4]);
    let access = AccessMask(u32::from_le_bytes(maximal[4..].try_into().unwrap()));
    assert!(
        access.contains(AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA),
        "{access}"
    );
    let disk_id = file.created().context(name::QUERY_ON_DISK_ID).unwrap();
    assert_eq!(disk_id.len(), 32);
    let internal = file.query(FileInformationClass::INTERNAL).unwrap();
    assert_eq!(disk_id[..8], internal[..8]);
    // [MS-SMB2] 3.3.5.9.5: nothing has changed since the client knew the rights.
    let changed = file.query(FileInformationClass::BASIC).unwrap()[24..32].to_vec();
    let earlier = (u64::from_le_bytes(changed[..].try_into().unwrap()) - 1).to_le_bytes();
    for (time, status) in [
        (&changed[..], Status::NONE_MAPPED),
        (&earlier, Status::SUCCESS),
    ] {
        let args = CreateArgs::open("f")
            .access(AccessMask::FILE_READ_ATTRIBUTES)
            .context(name::QUERY_MAXIMAL_ACCESS, time);
        let file = tree.create(&args).unwrap();
        let answer = file.created().context(name::QUERY_MAXIMAL_ACCESS).unwrap();
        assert_eq!(answer[..4], status.0.to_le_bytes());
        assert_eq!(answer[4..] == [0; 4], status != Status::SUCCESS);
    }
}

/// [MS-FSA] 2.1.5.1: some options are of files only.
#[test]
fn a_directory_is_not_opened_with_the_options_of_files() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for option in [
        CreateOptions::SEQUENTIAL_ONLY,
        CreateOptions::NO_INTERMEDIATE_BUFFERING,
        CreateOptions::NO_EA_KNOWLEDGE,
        CreateOptions::RANDOM_ACCESS,
        CreateOptions::OPEN_NO_RECALL,
    ] {
        let args = CreateArgs::create("d").options(CreateOptions::DIRECTORY_FILE | option);
        assert_eq!(
            attempt(&tree, &args),
            Err(Status::INVALID_PARAMETER),
            "{option}"
        );
    }
    let args = CreateArgs::create("d")
        .options(CreateOptions::DIRECTORY_FILE | CreateOptions::OPEN_FOR_BACKUP_INTENT);
    assert_eq!(attempt(&tree, &args), Ok(CreateAction::CREATED));
}

/// [MS-SMB2] 2.2.13.
#[test]
fn a_client_that_knows_no_extended_attributes_sets_none() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut ea = vec![0, 0, 0, 0, 0, 1, 1, 0];
    ea.extend_from_slice(b"A\0x");
    let args = |options| {
        CreateArgs::create("f")
            .options(options)
            .context(name::EXTENDED_ATTRIBUTES, &ea)
    };
    let refused = attempt(&tree, &args(CreateOptions::NO_EA_KNOWLEDGE));
    assert_eq!(refused, Err(Status::ACCESS_DENIED));
    let made = attempt(&tree, &args(CreateOptions::empty()));
    assert_eq!(made, Ok(CreateAction::CREATED));
}

/// [MS-FSA] 2.1.5.1.1: the creator of a file gets all rights of its handle, whatever the new descriptor says.
#[test]
fn the_maximum_of_a_new_file_is_everything() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let reads = Ace::allow(
        Sid::EVERYONE,
        AccessMask::FILE_GENERIC_READ,
        AceFlags::empty(),
    );
    let sd = SecurityDescriptor {
        dacl: Some(Acl::new(vec![reads])),
        ..SecurityDescriptor::default()
    };
    let mut bytes = bytes::BytesMut::new();
    sd.encode(&mut bytes).unwrap();
    let most = |args: CreateArgs| {
        let args = args.access(AccessMask::MAXIMUM_ALLOWED);
        tree.create(&args).unwrap()
    };
    let granted = |file: &File| {
        let access = file.query(FileInformationClass::ACCESS).unwrap();
        AccessMask(u32::from_le_bytes(access.try_into().unwrap()))
    };
    let file = most(CreateArgs::create("f").context(name::SECURITY_DESCRIPTOR, &bytes));
    assert_eq!(granted(&file), AccessMask::FILE_ALL_ACCESS);
    assert_eq!(status(file.write_all(0, b"written")), Status::SUCCESS);
    let directory = CreateArgs::create_directory("d");
    let directory = most(directory.context(name::SECURITY_DESCRIPTOR, &bytes));
    assert_eq!(granted(&directory), AccessMask::FILE_ALL_ACCESS);
    drop((file, directory));
    // Later the descriptor decides.
    let again = most(CreateArgs::open("f"));
    assert!(!granted(&again).contains(AccessMask::FILE_WRITE_DATA));
}

#[test]
fn contexts_of_wrong_form_are_refused_and_unknown_ones_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let with =
        |name: &[u8], data: &[u8]| attempt(&tree, &CreateArgs::open("f").context(name, data));
    assert_eq!(with(b"What", b"ever"), Ok(CreateAction::OPENED));
    for (name, data) in [
        (name::DURABLE_HANDLE_REQUEST_V2, &[0; 31][..]),
        (name::DURABLE_HANDLE_REQUEST, &[0; 15]),
        (name::DURABLE_HANDLE_RECONNECT, &[0; 15]),
        (name::DURABLE_HANDLE_RECONNECT_V2, &[0; 35]),
        (name::ALLOCATION_SIZE, &[0; 7]),
        (name::TIMEWARP_TOKEN, &[0; 7]),
        (b"Abc", b""),
    ] {
        assert_eq!(
            with(name, data),
            Err(Status::INVALID_PARAMETER),
            "{}",
            String::from_utf8_lossy(name)
        );
    }
}

#[test]
fn invalid_context_chains_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let args = CreateArgs::open("f")
        .context(b"AbCd", b"12345678")
        .context(b"EfGh", b"12345678");
    let whole = args.request();
    let start = whole
        .message()
        .windows(4)
        .position(|w| w == b"AbCd")
        .unwrap()
        - 16;
    for (field, value) in [
        (0, 1u32), // Next is unaligned
        (0, 8),
        (0, 0xffff_fff8),
        (4, 0x0004_ffff),  // NameOffset
        (12, 0xffff_ffff), // DataLength
        (12, 0x1000),
    ] {
        let at = start + field;
        let spoilt = args
            .request()
            .mutate(|m| m[at..at + 4].copy_from_slice(&value.to_le_bytes()));
        let reply = tree.reply(spoilt).unwrap();
        assert_eq!(
            reply.status(),
            Status::INVALID_PARAMETER,
            "{field} {value:#x}"
        );
    }
    attempt(&tree, &args).unwrap();
}

#[test]
fn nothing_is_created_on_a_read_only_share() {
    let server = HoldfastServer::new();
    let tree = server.session(Options::default()).tree(READ_ONLY).unwrap();
    std::fs::write(server.share_path(READ_ONLY, "f"), b"x").unwrap();
    for args in [
        CreateArgs::create("new"),
        CreateArgs::create_directory("new"),
        CreateArgs::open_if("new"),
        CreateArgs::new("f", CreateDisposition::OVERWRITE),
        CreateArgs::new("f", CreateDisposition::SUPERSEDE),
        CreateArgs::open("f")
            .access(AccessMask::DELETE)
            .options(CreateOptions::DELETE_ON_CLOSE),
    ] {
        let refused = attempt(&tree, &args).unwrap_err();
        assert!(
            [Status::ACCESS_DENIED, Status::MEDIA_WRITE_PROTECTED].contains(&refused),
            "{refused}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(server.share_path(READ_ONLY, ""))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 1);
    assert_eq!(
        std::fs::read(server.share_path(READ_ONLY, "f")).unwrap(),
        b"x"
    );
    let read = CreateArgs::open("f").access(AccessMask::FILE_GENERIC_READ);
    attempt(&tree, &read).unwrap();
}

#[test]
fn oplocks_are_granted_to_a_single_opener() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    checks::grants_each_oplock(&tree, |_, _| {});
    let first = tree.create(&CreateArgs::open("f")).unwrap();
    let second = tree
        .create(&CreateArgs::open("f").oplock(OplockLevel::BATCH))
        .unwrap();
    assert_eq!(second.created().oplock_level, OplockLevel::II);
    first.close().unwrap();
    let directory = tree
        .create(&CreateArgs::directory("").oplock(OplockLevel::BATCH))
        .unwrap();
    assert_eq!(directory.created().oplock_level, OplockLevel::NONE);
}

#[test]
fn a_name_that_is_being_deleted_is_delete_pending() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.set_delete(true).unwrap();
    assert_eq!(
        attempt(&tree, &CreateArgs::open("f")),
        Err(Status::DELETE_PENDING)
    );
    assert_eq!(
        attempt(&tree, &CreateArgs::open_if("f")),
        Err(Status::DELETE_PENDING)
    );
    file.set_delete(false).unwrap();
    attempt(&tree, &CreateArgs::open("f")).unwrap();
}

#[test]
fn a_tree_needs_its_own_session() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let request: Request = CreateArgs::create("f").request();
    let reply = tree
        .client()
        .call(request.session(tree.session().id()))
        .unwrap();
    assert_eq!(reply.status(), Status::NETWORK_NAME_DELETED);
    assert!(!server.path("f").exists());
}
