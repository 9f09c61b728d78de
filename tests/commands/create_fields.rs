//! Single fields of CREATE and of its contexts, bit by bit, and the parts of a path ([MS-SMB2] 2.2.13, 3.3.5.9,
//! [MS-FSA] 2.1.5.1).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{CreateDisposition, CreateOptions, ImpersonationLevel};

pub(super) const OVERWRITING: [CreateDisposition; 3] = [
    CreateDisposition::SUPERSEDE,
    CreateDisposition::OVERWRITE,
    CreateDisposition::OVERWRITE_IF,
];

pub(super) fn end(tree: &Tree, args: &CreateArgs) -> Status {
    tree.create_status(args).unwrap()
}

pub(super) fn granted(file: &File) -> AccessMask {
    let access = file.query(FileInformationClass::ACCESS).unwrap();
    AccessMask(u32::from_le_bytes(access.try_into().unwrap()))
}

/// [MS-SMB2] 2.2.13, [MS-FSA] 2.1.5.1: each option alone, with the answers that smb2.create.gentest expects.
#[test]
fn each_option_alone_has_its_answer() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let unsupported = CreateOptions::OPEN_BY_FILE_ID
        | CreateOptions::RESERVE_OPFILTER
        | CreateOptions::TREE_CONNECTION;
    for bit in (0..32).map(|place| 1u32 << place) {
        let option = CreateOptions(bit);
        if option == CreateOptions::DELETE_ON_CLOSE {
            continue;
        }
        let expected = if option == CreateOptions::DIRECTORY_FILE {
            Status::NOT_A_DIRECTORY
        } else if unsupported.contains(option) {
            Status::NOT_SUPPORTED
        } else if bit >= 0x0100_0000 {
            Status::INVALID_PARAMETER
        } else {
            Status::SUCCESS
        };
        let args = CreateArgs::open_if("f").access(AccessMask::MAXIMUM_ALLOWED);
        assert_eq!(end(&tree, &args.options(option)), expected, "{bit:#x}");
    }
    assert_eq!(tree.read_file("f").unwrap(), b"x");
}

/// [MS-FSA] 2.1.5.1: attributes that no file can have are refused even where none are set.
#[test]
fn impossible_attributes_are_refused_by_every_disposition() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for disposition in (0..6).map(CreateDisposition) {
        for attribute in [FileAttributes::VOLUME, FileAttributes::DEVICE] {
            let args = CreateArgs::new("f", disposition).attributes(attribute);
            let refused = end(&tree, &args);
            assert_eq!(refused, Status::INVALID_PARAMETER, "{disposition}");
        }
    }
    assert_eq!(tree.read_file("f").unwrap(), b"x");
}

/// [MS-FSA] 2.1.5.1, phase 1; [MS-FSCC] 2.6: a bit without a name is refused, also where nothing is made, and one that
/// names an attribute which files have elsewhere is ignored.
#[test]
fn attributes_have_only_bits_with_a_name() {
    const NAMED: u32 = 0x005e_ffb7;
    const KEPT: u32 = 0x7fb7;
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for bit in (0..32).map(|place| 1u32 << place) {
        let attributes = FileAttributes(bit);
        let open = CreateArgs::open("f").attributes(attributes);
        let name = format!("f{bit:x}");
        let made = tree.create(&CreateArgs::create(&name).attributes(attributes));
        if bit & NAMED == 0 {
            assert_eq!(status(made), Status::INVALID_PARAMETER, "{bit:#x}");
            assert_eq!(end(&tree, &open), Status::INVALID_PARAMETER, "{bit:#x}");
            assert!(!server.path(&name).exists(), "{bit:#x}");
            continue;
        }
        let facts = made.unwrap().created().facts;
        if bit & KEPT == 0 {
            let found = facts.file_attributes;
            assert_eq!(found, FileAttributes::ARCHIVE, "{bit:#x}");
        }
        assert_eq!(end(&tree, &open), Status::SUCCESS, "{bit:#x}");
    }
}

/// [MS-FSA] 2.1.5.1.1: the attributes decide neither whether the new object is a directory nor whether it is made.
#[test]
fn each_attribute_alone_makes_a_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for attribute in [
        FileAttributes::READONLY,
        FileAttributes::HIDDEN,
        FileAttributes::SYSTEM,
        FileAttributes::DIRECTORY,
        FileAttributes::ARCHIVE,
        FileAttributes::NORMAL,
        FileAttributes::TEMPORARY,
        FileAttributes::SPARSE_FILE,
        FileAttributes::REPARSE_POINT,
        FileAttributes::COMPRESSED,
        FileAttributes::OFFLINE,
        FileAttributes::NOT_CONTENT_INDEXED,
    ] {
        let name = format!("f{:x}", attribute.bits());
        let args = CreateArgs::create(&name).attributes(attribute);
        let file = tree.create(&args).unwrap();
        let attributes = file.created().facts.file_attributes;
        assert!(attributes.contains(FileAttributes::ARCHIVE), "{attribute}");
        let directory = attributes.contains(FileAttributes::DIRECTORY);
        assert!(!directory && server.path(&name).is_file(), "{attribute}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 2.2.13: the server ignores SecurityFlags, SmbCreateFlags and Reserved.
#[test]
fn reserved_fields_of_a_create_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for (field, bytes) in [
        ("SecurityFlags", 66..67usize),
        ("SmbCreateFlags", 72..80),
        ("Reserved", 80..88),
    ] {
        let request = CreateArgs::open_if("f").request();
        let request = request.mutate(|m| m[bytes].fill(0xff));
        let reply = tree.reply(request).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{field}");
    }
}

/// [MS-SMB2] 2.2.13: a client may let the server act for it in any way on files.
#[test]
fn every_impersonation_level_opens_a_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for level in [
        ImpersonationLevel::ANONYMOUS,
        ImpersonationLevel::IDENTIFICATION,
        ImpersonationLevel::IMPERSONATION,
        ImpersonationLevel::DELEGATE,
    ] {
        let mut args = CreateArgs::open_if("f");
        args.impersonation_level = level;
        assert_eq!(end(&tree, &args), Status::SUCCESS, "{level}");
    }
}

/// [MS-SMB2] 3.3.5.2.6: the list of contexts lies within its message.
#[test]
fn contexts_outside_the_message_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = || CreateArgs::create("f").context(b"AbCd", b"12345678");
    // CreateContextsOffset is at 48 of the body, CreateContextsLength at 52.
    for (at, value) in [
        (112, u32::MAX),
        (112, 0x1_0000),
        (116, u32::MAX),
        (116, 0x1_0000),
    ] {
        let spoilt = args()
            .request()
            .mutate(|m| m[at..at + 4].copy_from_slice(&value.to_le_bytes()));
        let reply = tree.reply(spoilt).unwrap();
        let refused = reply.status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{at} {value:#x}");
    }
    assert!(!server.path("f").exists());
    assert_eq!(end(&tree, &args()), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.9.5, 2.2.13.2.5: a request for the maximal access has a time or nothing.
#[test]
fn a_request_for_the_maximal_access_has_one_of_two_sizes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let ask = |size: usize| {
        let args = CreateArgs::open("f");
        end(
            &tree,
            &args.context(name::QUERY_MAXIMAL_ACCESS, &vec![0; size]),
        )
    };
    for size in [0, 8] {
        assert_eq!(ask(size), Status::SUCCESS, "{size}");
    }
    for size in [1, 4, 7, 9, 16] {
        assert_eq!(ask(size), Status::INVALID_PARAMETER, "{size}");
    }
}

/// [MS-FSA] 2.1.5.1.2: a directory is never overwritten, whatever the options say about its kind.
#[test]
fn a_directory_is_not_overwritten_by_a_request_that_leaves_its_kind_open() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d\\f", b"x").unwrap();
    for disposition in OVERWRITING {
        let over = |name| CreateArgs::new(name, disposition);
        let refused = end(&tree, &over("d"));
        assert_eq!(refused, Status::OBJECT_NAME_COLLISION, "{disposition}");
        let root = end(&tree, &over(""));
        assert_eq!(root, Status::ACCESS_DENIED, "{disposition}");
        let file = over("d").options(CreateOptions::NON_DIRECTORY_FILE);
        let refused = end(&tree, &file);
        assert_eq!(refused, Status::FILE_IS_A_DIRECTORY, "{disposition}");
    }
    assert_eq!(tree.read_file("d\\f").unwrap(), b"x");
}

/// [MS-FSA] 2.1.5.1, phases 5 and 6: a part of the path has no stream.
#[test]
fn a_stream_is_no_part_of_a_path() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("d\\f", b"x").unwrap();
    tree.write_file("d:s", b"x").unwrap();
    let invalid = Status::OBJECT_NAME_INVALID;
    for name in ["d:s\\f", "d:s:$DATA\\f", "d:\\f", "d::$DATA\\f", "d:\\"] {
        let refused = end(&tree, &CreateArgs::open(name));
        assert_eq!(refused, invalid, "{name}");
    }
}

/// [MS-FSA] 2.1.5.1, phases 5 and 6: a stream that is named wrongly is an invalid name, and nothing is made.
#[test]
fn a_wrong_name_of_a_stream_is_an_invalid_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in [
        "f:",
        "f:s:",
        "f::",
        "f:s:$WHAT",
        "f:s:$BITMAP",
        "f:a:b:c",
        "f:s:$DATA:",
    ] {
        let refused = end(&tree, &CreateArgs::create(name));
        assert_eq!(refused, Status::OBJECT_NAME_INVALID, "{name}");
    }
    assert!(!server.path("f").exists());
}

/// [MS-FSA] 2.1.5.1.2.1: the attribute READONLY takes rights to the data from MAXIMUM_ALLOWED, and denies them if
/// they are named.
#[test]
fn the_maximum_of_a_read_only_file_leaves_out_its_data() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").attributes(FileAttributes::READONLY);
    tree.create(&args).unwrap().close().unwrap();
    let open = |access| tree.create(&CreateArgs::open("f").access(access));
    let most = granted(&open(AccessMask::MAXIMUM_ALLOWED).unwrap());
    let data =
        AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA | AccessMask::FILE_DELETE_CHILD;
    assert!(!most.intersects(data), "{most}");
    let others = AccessMask::FILE_READ_DATA
        | AccessMask::FILE_WRITE_ATTRIBUTES
        | AccessMask::FILE_WRITE_EA
        | AccessMask::DELETE;
    assert!(most.contains(others), "{most}");
    let write = AccessMask::FILE_WRITE_DATA;
    for denied in [
        AccessMask::MAXIMUM_ALLOWED | write,
        AccessMask::GENERIC_WRITE,
        AccessMask::GENERIC_ALL,
    ] {
        assert_eq!(status(open(denied)), Status::ACCESS_DENIED, "{denied}");
    }
    assert_eq!(status(open(AccessMask::GENERIC_READ)), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.9: the granted access is the desired one, with generic rights replaced.
#[test]
fn a_handle_has_exactly_the_rights_that_it_names() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for access in [
        AccessMask::FILE_READ_ATTRIBUTES,
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_WRITE_DATA | AccessMask::SYNCHRONIZE,
        AccessMask::DELETE,
        AccessMask::READ_CONTROL | AccessMask::WRITE_DAC,
    ] {
        let args = CreateArgs::open("f").access(access);
        let file = tree.create(&args).unwrap();
        assert_eq!(granted(&file), access);
        file.close().unwrap();
    }
    let args = CreateArgs::open("f").access(AccessMask::GENERIC_READ);
    let file = tree.create(&args).unwrap();
    assert_eq!(granted(&file), AccessMask::FILE_GENERIC_READ);
}
