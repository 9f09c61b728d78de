//! The order in which CREATE looks at its parameters, its name and its path, and what its options and the types of
//! streams mean for files and directories ([MS-FSA] 2.1.5.1, 2.1.5.1.1, 2.1.5.1.2).

use bytes::BytesMut;
use smb_client::CreateArgs;
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileInformationClass as Class, FileLinkInformation};
use smb_wire::msg::{CreateAction, CreateDisposition, CreateOptions, ShareAccess};

use super::create_fields::{OVERWRITING, end, granted};

/// [MS-FSA] 2.1.5.1, phase 1 comes before phase 6.
#[test]
fn parameters_are_looked_at_before_the_path() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let both = CreateOptions::DIRECTORY_FILE | CreateOptions::NON_DIRECTORY_FILE;
    let read = AccessMask::FILE_READ_DATA;
    for name in ["missing\\f", "f\\g"] {
        let open = || CreateArgs::open(name);
        let on_close = open().options(CreateOptions::DELETE_ON_CLOSE);
        let over = CreateArgs::new(name, CreateDisposition::OVERWRITE);
        for (args, expected) in [
            (open(), Status::OBJECT_PATH_NOT_FOUND),
            (open().options(both), Status::INVALID_PARAMETER),
            (on_close.access(read), Status::INVALID_PARAMETER),
            (
                over.options(CreateOptions::DIRECTORY_FILE),
                Status::INVALID_PARAMETER,
            ),
            (open().share(ShareAccess(8)), Status::INVALID_PARAMETER),
            (
                open().disposition(CreateDisposition(6)),
                Status::INVALID_PARAMETER,
            ),
            (
                open().attributes(FileAttributes::DEVICE),
                Status::INVALID_PARAMETER,
            ),
            (open().access(AccessMask::empty()), Status::ACCESS_DENIED),
            (
                open().access(AccessMask(0x0400_0001)),
                Status::ACCESS_DENIED,
            ),
        ] {
            assert_eq!(end(&tree, &args), expected, "{name}: {args:?}");
        }
    }
}

/// [MS-SMB2] 3.3.5.9: "Create Context Validation" comes before "Open Execution", and a snapshot is looked for with the
/// path (3.3.5.9.4).
#[test]
fn contexts_are_looked_at_before_the_parameters() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let malformed = |args: CreateArgs| args.context(name::ALLOCATION_SIZE, b"1234");
    let earlier = |args: CreateArgs| args.context(name::TIMEWARP_TOKEN, &[1; 8]);
    for args in [
        CreateArgs::open("f").access(AccessMask::empty()),
        CreateArgs::open("f").access(AccessMask::ACCESS_SYSTEM_SECURITY),
        CreateArgs::open("a*b"),
        CreateArgs::open("f").options(CreateOptions::OPEN_BY_FILE_ID),
    ] {
        let refused = end(&tree, &malformed(args.clone()));
        assert_eq!(refused, Status::INVALID_PARAMETER, "{args:?}");
        let refused = end(&tree, &earlier(args.clone()));
        assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND, "{args:?}");
    }
}

/// [MS-SMB2] 3.3.5.9: "Path Name Validation" comes before "Create Context Validation" and "Open Execution".
#[test]
fn the_path_is_validated_before_contexts_and_access() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    let above = Status::OBJECT_PATH_SYNTAX_BAD;
    for (path, expected) in [
        ("\\f", Status::INVALID_PARAMETER),
        ("d\\..\\f", Status::INVALID_PARAMETER),
        ("d\\a*b\\..\\f", Status::INVALID_PARAMETER),
        ("..\\f", above),
        ("..", above),
    ] {
        let open = || CreateArgs::open(path);
        for args in [
            open(),
            open().context(name::TIMEWARP_TOKEN, &[1; 8]),
            open().context(name::ALLOCATION_SIZE, b"1234"),
            open().access(AccessMask::empty()),
            open().access(AccessMask(0x0400_0001)),
            open().access(AccessMask::ACCESS_SYSTEM_SECURITY),
            open().options(CreateOptions::OPEN_BY_FILE_ID),
            open().share(ShareAccess(8)),
        ] {
            assert_eq!(end(&tree, &args), expected, "{path}: {args:?}");
        }
    }
}

/// [MS-FSA] 2.1.5.1, phase 1: first what is no valid parameter, then a bit of the access that means nothing, then the
/// name.
#[test]
fn parameters_are_looked_at_in_their_order() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let (undefined, system) = (AccessMask(0x0400_0001), AccessMask(0x0100_0000));
    let over = |name| CreateArgs::new(name, CreateDisposition::OVERWRITE);
    for name in ["f", "a*b"] {
        for args in [
            CreateArgs::open(name).options(CreateOptions::DELETE_ON_CLOSE),
            CreateArgs::open(name).options(CreateOptions(0x0100_0000)),
            CreateArgs::open(name).share(ShareAccess(8)),
            over(name).options(CreateOptions::DIRECTORY_FILE),
        ] {
            for access in [undefined, system] {
                let refused = end(&tree, &args.clone().access(access));
                assert_eq!(refused, Status::INVALID_PARAMETER, "{args:?}");
            }
        }
        let refused = end(&tree, &CreateArgs::open(name).access(undefined));
        assert_eq!(refused, Status::ACCESS_DENIED, "{name}");
    }
}

/// [MS-FSA] 2.1.5.1, phases 1 and 5; [MS-FSCC] 2.1.5: the whole name must be valid, wherever its path ends.
#[test]
fn names_are_looked_at_before_the_path() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let long = "n".repeat(256);
    for name in [
        "missing\\a*b",
        "missing\\a?",
        "a*\\f",
        "f\\a|b",
        "f\\a<b",
        "d\\<\\f",
        "missing\\\u{1}",
        "a\"b\\f",
        "missing\\f:",
        "missing:s\\f",
        &format!("missing\\{long}"),
        &format!("{long}\\f"),
    ] {
        for disposition in [CreateDisposition::OPEN, CreateDisposition::CREATE] {
            let args = CreateArgs::new(name, disposition);
            let refused = end(&tree, &args);
            assert_eq!(refused, Status::OBJECT_NAME_INVALID, "{name} {disposition}");
        }
    }
    let args = CreateArgs::open("missing\\new\\").options(CreateOptions::NON_DIRECTORY_FILE);
    assert_eq!(end(&tree, &args), Status::OBJECT_NAME_INVALID);
    // As long as a name may be.
    let fits = end(&tree, &CreateArgs::open(&format!("{}\\f", &long[1..])));
    assert_eq!(fits, Status::OBJECT_PATH_NOT_FOUND);
}

/// [MS-FSA] 2.1.5.1, phase 6: a directory that is to be deleted is no part of the path of anything new.
#[test]
fn a_directory_that_is_to_be_deleted_takes_no_names() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    let directory = CreateArgs::directory("d").access(AccessMask::DELETE);
    let directory = tree.create(&directory).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let mut link = BytesMut::new();
    FileLinkInformation {
        replace_if_exists: false,
        root_directory: 0,
        file_name: "d\\g".to_owned(),
    }
    .encode(&mut link);
    directory.set_delete(true).unwrap();
    let pending = Status::DELETE_PENDING;
    for name in ["d\\f", "d\\f:s", "d::$INDEX_ALLOCATION\\f"] {
        for disposition in [CreateDisposition::OPEN_IF, CreateDisposition::CREATE] {
            let args = CreateArgs::new(name, disposition);
            assert_eq!(end(&tree, &args), pending, "{name} {disposition}");
        }
    }
    assert_eq!(status(file.rename("d\\g", false)), pending);
    assert_eq!(status(file.set(Class::LINK, &link)), pending);
    directory.set_delete(false).unwrap();
    // A handle that may delete the directory keeps new names out of it.
    directory.close().unwrap();
    file.set(Class::LINK, &link).unwrap();
    assert_eq!(tree.read_file("d\\g").unwrap(), b"x");
}

/// [MS-FSA] 2.1.5.1, phase 1: ValidDirectoryCreateOptions.
#[test]
fn directories_are_made_and_opened_with_the_options_of_directories() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for option in [
        CreateOptions::WRITE_THROUGH,
        CreateOptions::SYNCHRONOUS_IO_ALERT,
        CreateOptions::SYNCHRONOUS_IO_NONALERT,
        CreateOptions::OPEN_REMOTE_INSTANCE,
        CreateOptions::COMPLETE_IF_OPLOCKED,
        CreateOptions::OPEN_FOR_BACKUP_INTENT,
        CreateOptions::OPEN_FOR_FREE_SPACE_QUERY,
        CreateOptions::NO_COMPRESSION,
        CreateOptions::OPEN_REPARSE_POINT,
        CreateOptions::OPEN_REQUIRING_OPLOCK,
        CreateOptions::DELETE_ON_CLOSE,
    ] {
        let args = CreateArgs::create_directory("d").options(option);
        let directory = tree.create(&args).unwrap();
        assert!(server.path("d").is_dir(), "{option}");
        let again = CreateArgs::open("d").options(CreateOptions::DIRECTORY_FILE | option);
        let other = tree.create(&again).unwrap();
        let action = other.created().create_action;
        assert_eq!(action, CreateAction::OPENED, "{option}");
        other.close().unwrap();
        directory.close().unwrap();
        if server.path("d").exists() {
            tree.delete("d").unwrap();
        }
    }
}

/// [MS-FSA] 2.1.5.1, phases 5 to 7: an empty name of a stream with the type of data is the file.
#[test]
fn the_unnamed_stream_by_its_full_name_is_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let hidden = FileAttributes::HIDDEN;
    let args = CreateArgs::create("f::$DATA").attributes(hidden);
    let file = tree.create(&args.share(ShareAccess::empty())).unwrap();
    let attributes = file.created().facts.file_attributes;
    assert_eq!(attributes, hidden | FileAttributes::ARCHIVE);
    file.write_all(0, b"content").unwrap();
    for name in ["f", "f::$data"] {
        let refused = end(&tree, &CreateArgs::open(name));
        assert_eq!(refused, Status::SHARING_VIOLATION, "{name}");
    }
    file.close().unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"content");
    let collides = end(&tree, &CreateArgs::create("F::$data"));
    assert_eq!(collides, Status::OBJECT_NAME_COLLISION);
    // An overwrite is one of the whole file, and protected like it.
    tree.write_file("f:s", b"stream").unwrap();
    let over = CreateArgs::new("f::$DATA", CreateDisposition::OVERWRITE);
    assert_eq!(end(&tree, &over), Status::ACCESS_DENIED);
    assert_eq!(end(&tree, &over.attributes(hidden)), Status::SUCCESS);
    let stream = end(&tree, &CreateArgs::open("f:s"));
    assert_eq!(stream, Status::OBJECT_NAME_NOT_FOUND);
    let on_close = CreateArgs::open("f::$DATA").options(CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(end(&tree, &on_close), Status::SUCCESS);
    assert!(!server.path("f").exists());
}

/// [MS-FSA] 2.1.5.1.2: the two attributes protect a file from every overwrite that leaves one of them out, but not its
/// named streams.
#[test]
fn every_overwrite_keeps_hidden_and_system() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (hidden, system) = (FileAttributes::HIDDEN, FileAttributes::SYSTEM);
    let both = hidden | system;
    for disposition in OVERWRITING {
        let name = format!("f{}", disposition.0);
        let file = tree.create(&CreateArgs::create(&name).attributes(both));
        let file = file.unwrap();
        file.write_all(0, b"content").unwrap();
        file.close().unwrap();
        let over = |attributes| {
            let args = CreateArgs::new(&name, disposition);
            end(&tree, &args.attributes(attributes))
        };
        for attributes in [FileAttributes::NORMAL, hidden, system] {
            let refused = over(attributes);
            assert_eq!(refused, Status::ACCESS_DENIED, "{disposition} {attributes}");
        }
        assert_eq!(tree.read_file(&name).unwrap(), b"content");
        let stream = format!("{name}:s");
        tree.write_file(&stream, b"stream").unwrap();
        let stream = CreateArgs::new(&stream, disposition);
        assert_eq!(end(&tree, &stream), Status::SUCCESS, "{disposition}");
        let unindexed = FileAttributes::NOT_CONTENT_INDEXED;
        assert_eq!(over(both | unindexed), Status::SUCCESS, "{disposition}");
        let facts = tree.create(&CreateArgs::open(&name)).unwrap();
        let facts = facts.created().facts;
        let expected = both | FileAttributes::ARCHIVE;
        assert_eq!(facts.file_attributes, expected, "{disposition}");
        assert_eq!(facts.end_of_file, 0, "{disposition}");
    }
}

/// [MS-FSA] 2.1.5.1, phase 4: only a privilege makes the intent mean something, and nobody has one here.
#[test]
fn the_intent_to_back_up_grants_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let looks = Ace::allow(
        Sid::EVERYONE,
        AccessMask::FILE_READ_ATTRIBUTES,
        AceFlags::empty(),
    );
    let mut descriptor = BytesMut::new();
    SecurityDescriptor {
        dacl: Some(Acl::new(vec![looks])),
        ..SecurityDescriptor::default()
    }
    .encode(&mut descriptor)
    .unwrap();
    let args = CreateArgs::create("f").context(name::SECURITY_DESCRIPTOR, &descriptor);
    let file = tree.create(&args).unwrap();
    file.write_all(0, b"content").unwrap();
    file.close().unwrap();
    let intent = CreateOptions::OPEN_FOR_BACKUP_INTENT;
    let open = |disposition, access| {
        let args = CreateArgs::new("f", disposition).access(access);
        tree.create(&args.options(intent))
    };
    for access in [
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_WRITE_DATA,
        AccessMask::WRITE_OWNER,
        AccessMask::GENERIC_READ,
        AccessMask::GENERIC_WRITE,
    ] {
        let refused = status(open(CreateDisposition::OPEN, access));
        assert_eq!(refused, Status::ACCESS_DENIED, "{access}");
        let refused = status(open(CreateDisposition::OVERWRITE_IF, access));
        assert_eq!(refused, Status::ACCESS_DENIED, "{access}");
    }
    let most = AccessMask::MAXIMUM_ALLOWED;
    let with = granted(&open(CreateDisposition::OPEN, most).unwrap());
    let without = tree.create(&CreateArgs::open("f").access(most)).unwrap();
    assert_eq!(with, granted(&without));
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"content");
}

/// [MS-FSA] 2.1.5.1, phase 6: of the types that the object store knows, only those of data and of directories are
/// opened, whatever the disposition.
#[test]
fn other_types_of_streams_are_not_opened() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    tree.mkdir("d").unwrap();
    for name in [
        "f::$BITMAP",
        "f::$ATTRIBUTE_LIST",
        "f::$REPARSE_POINT",
        "f::$STANDARD_INFORMATION",
        "f:s:$EA",
        "d::$BITMAP",
        "d:$I30:$BITMAP",
        "d:$I30:$INDEX_ROOT",
    ] {
        for disposition in [
            CreateDisposition::OPEN,
            CreateDisposition::OPEN_IF,
            CreateDisposition::CREATE,
        ] {
            let refused = end(&tree, &CreateArgs::new(name, disposition));
            assert_eq!(refused, Status::OBJECT_NAME_INVALID, "{name} {disposition}");
        }
    }
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}
