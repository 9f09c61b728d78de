//! DELETE_ON_CLOSE and pending deletion ([MS-FSA] 2.1.5.1, 2.1.5.5, 2.1.5.15.3; the cases of
//! smb2.delete-on-close-perms).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, Options, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::dtyp::{Acl, SecurityDescriptor};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{DispositionFlags, FileInformationClass};
use smb_wire::msg::{CreateDisposition, CreateOptions, ShareAccess};

const DISPOSITIONS: [CreateDisposition; 4] = [
    CreateDisposition::CREATE,
    CreateDisposition::OPEN_IF,
    CreateDisposition::OVERWRITE_IF,
    CreateDisposition::SUPERSEDE,
];

fn deleted_on_close(name: &str, disposition: CreateDisposition) -> CreateArgs {
    CreateArgs::new(name, disposition).options(CreateOptions::DELETE_ON_CLOSE)
}

fn pending(file: &File) -> bool {
    let standard = file.query(FileInformationClass::STANDARD).unwrap();
    standard[20] != 0
}

#[test]
fn a_new_file_is_gone_after_its_close() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for disposition in DISPOSITIONS {
        let file = tree.create(&deleted_on_close("f", disposition)).unwrap();
        file.write_all(0, b"x").unwrap();
        assert!(server.path("f").exists());
        file.close().unwrap();
        assert!(!server.path("f").exists(), "{disposition:?}");
    }
}

/// Adobe Acrobat makes its temporary files so that nobody else can open them.
#[test]
fn a_new_file_that_nobody_may_open_is_gone_after_its_close() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let nobody = SecurityDescriptor {
        dacl: Some(Acl::new(Vec::new())),
        ..SecurityDescriptor::default()
    };
    let mut descriptor = BytesMut::new();
    nobody.encode(&mut descriptor).unwrap();
    let args = deleted_on_close("f", CreateDisposition::CREATE);
    let args = args.context(name::SECURITY_DESCRIPTOR, &descriptor);
    let file = tree.create(&args).unwrap();
    file.write_all(0, b"x").unwrap();
    let denied = tree.create_status(&CreateArgs::open("f")).unwrap();
    assert_eq!(denied, Status::ACCESS_DENIED);
    file.close().unwrap();
    assert!(!server.path("f").exists());
}

#[test]
fn an_existing_file_is_gone_after_its_close() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for disposition in DISPOSITIONS
        .into_iter()
        .chain([CreateDisposition::OPEN, CreateDisposition::OVERWRITE])
    {
        tree.write_file("f", b"content").unwrap();
        let end = tree.create(&deleted_on_close("f", disposition));
        if disposition == CreateDisposition::CREATE {
            assert_eq!(status(end), Status::OBJECT_NAME_COLLISION);
            assert_eq!(tree.read_file("f").unwrap(), b"content");
            continue;
        }
        end.unwrap().close().unwrap();
        assert!(!server.path("f").exists(), "{disposition:?}");
    }
}

#[test]
fn without_the_right_to_delete_it_is_refused_and_nothing_is_created() {
    // [MS-FSA] 2.1.5.1: DELETE_ON_CLOSE without DELETE or GENERIC_ALL in the desired access
    let server = HoldfastServer::new();
    let tree = server.tree();
    for disposition in DISPOSITIONS {
        for access in [
            AccessMask::FILE_READ_DATA,
            AccessMask::FILE_GENERIC_WRITE,
            AccessMask::GENERIC_WRITE,
        ] {
            let args = deleted_on_close("f", disposition).access(access);
            assert_eq!(
                status(tree.create(&args)),
                Status::INVALID_PARAMETER,
                "{disposition:?} {access:?}"
            );
            assert!(!server.path("f").exists());
        }
    }
    tree.write_file("f", b"content").unwrap();
    let args =
        deleted_on_close("f", CreateDisposition::OVERWRITE_IF).access(AccessMask::FILE_WRITE_DATA);
    assert_eq!(status(tree.create(&args)), Status::INVALID_PARAMETER);
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}

#[test]
fn a_read_only_file_is_not_deleted_by_delete_on_close() {
    // A new file: CANNOT_DELETE, and nothing is created; an existing one: CANNOT_DELETE, and it
    // remains.
    let server = HoldfastServer::new();
    let tree = server.tree();
    for disposition in [CreateDisposition::CREATE, CreateDisposition::OPEN_IF] {
        let args = deleted_on_close("f", disposition).attributes(FileAttributes::READONLY);
        assert_eq!(status(tree.create(&args)), Status::CANNOT_DELETE);
        assert!(!server.path("f").exists(), "{disposition:?}");
    }
    let args = CreateArgs::create("f").attributes(FileAttributes::READONLY);
    tree.create(&args).unwrap().close().unwrap();
    let access = AccessMask::DELETE | AccessMask::FILE_READ_DATA;
    for disposition in [CreateDisposition::OPEN, CreateDisposition::OPEN_IF] {
        let args = deleted_on_close("f", disposition).access(access);
        assert_eq!(status(tree.create(&args)), Status::CANNOT_DELETE);
        assert!(server.path("f").exists());
    }
}

#[test]
fn the_deletion_becomes_pending_when_that_handle_is_closed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree
        .create(&deleted_on_close("f", CreateDisposition::CREATE))
        .unwrap();
    let other = tree.create(&CreateArgs::open("f")).unwrap();
    assert!(!pending(&other));
    // Before the close the file can be opened.
    tree.create(&CreateArgs::open("f"))
        .unwrap()
        .close()
        .unwrap();
    file.close().unwrap();
    assert!(pending(&other));
    assert_eq!(
        status(tree.create(&CreateArgs::open("f"))),
        Status::DELETE_PENDING
    );
    other.write_all(0, b"still mine").unwrap();
    assert_eq!(other.read_all().unwrap(), b"still mine");
    other.close().unwrap();
    assert!(!server.path("f").exists());
}

/// Creates a file that is deleted with its handle, and opens another handle of it.
fn delete_on_close_and_other(tree: &Tree) -> (File, File) {
    let file = tree.create(&deleted_on_close("f", CreateDisposition::CREATE));
    (file.unwrap(), tree.create(&CreateArgs::open("f")).unwrap())
}

#[test]
fn if_the_other_handles_close_first_the_file_is_deleted_with_its_own_handle() {
    let server = HoldfastServer::new();
    let (file, other) = delete_on_close_and_other(&server.tree());
    other.close().unwrap();
    assert!(server.path("f").exists());
    file.close().unwrap();
    assert!(!server.path("f").exists());
}

#[test]
fn a_pending_deletion_can_be_revoked_through_another_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = delete_on_close_and_other(&tree);
    file.close().unwrap();
    other.set_delete(false).unwrap();
    assert!(!pending(&other));
    tree.create(&CreateArgs::open("f")).unwrap();
    other.close().unwrap();
    assert!(server.path("f").exists());
}

#[test]
fn the_file_is_deleted_when_the_connection_is_lost() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree
        .create(&deleted_on_close("f", CreateDisposition::CREATE))
        .unwrap();
    file.write_all(0, b"x").unwrap();
    server.lose(&tree);
    smb_tests::wait_until("it is deleted", || !server.path("f").exists());
}

#[test]
fn every_disposition_is_refused_during_a_pending_deletion() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    file.set_delete(true).unwrap();
    for disposition in [
        CreateDisposition::OPEN,
        CreateDisposition::OPEN_IF,
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        let end = status(tree.create(&CreateArgs::new("f", disposition)));
        assert_eq!(end, Status::DELETE_PENDING, "{disposition:?}");
    }
    // The name exists until the deletion is complete.
    let end = status(tree.create(&CreateArgs::create("f")));
    let taken = [Status::OBJECT_NAME_COLLISION, Status::DELETE_PENDING];
    assert!(taken.contains(&end), "{end}");
    assert_eq!(file.read_all().unwrap(), b"content");
    file.set_delete(false).unwrap();
    file.close().unwrap();
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}

fn directory_deleted_on_close() -> CreateArgs {
    CreateArgs::open("d")
        .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
        .options(CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE)
}

/// Makes a directory, opens it, and puts a file into it.
fn filled(tree: &Tree, args: &CreateArgs) -> File {
    tree.mkdir("d").unwrap();
    let directory = tree.create(args).unwrap();
    tree.write_file("d\\f", b"x").unwrap();
    directory
}

#[test]
fn a_directory_that_is_not_empty_is_not_deleted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = directory_deleted_on_close();
    let directory = filled(&tree, &args);
    directory.close().unwrap();
    assert!(server.path("d/f").exists());
    tree.delete("d\\f").unwrap();
    tree.create(&args).unwrap().close().unwrap();
    assert!(!server.path("d").exists());
}

/// Sets FILE_DELETE_ON_CLOSE of a handle anew with FileDispositionInformationEx ([MS-FSCC] 2.4.12).
fn set_on_close(file: &File, flags: DispositionFlags) -> Status {
    let flags = (flags | DispositionFlags::ON_CLOSE).bits();
    status(file.set(FileInformationClass::DISPOSITION_EX, &flags.to_le_bytes()))
}

#[test]
fn delete_on_close_is_set_again_only_on_what_may_be_deleted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let delete = DispositionFlags::DELETE;
    let mut readonly = [0; 40];
    readonly[32..36].copy_from_slice(&FileAttributes::READONLY.bits().to_le_bytes());
    let ignore = DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
    for (name, flags, answer) in [
        ("kept", delete, Status::CANNOT_DELETE),
        ("gone", delete | ignore, Status::SUCCESS),
    ] {
        let args = deleted_on_close(name, CreateDisposition::CREATE);
        let file = tree.create(&args).unwrap();
        let cleared = set_on_close(&file, DispositionFlags::empty());
        assert_eq!(cleared, Status::SUCCESS);
        file.set(FileInformationClass::BASIC, &readonly).unwrap();
        assert_eq!(set_on_close(&file, flags), answer);
        file.close().unwrap();
        assert_eq!(server.path(name).exists(), name == "kept");
    }
    let directory = filled(&tree, &directory_deleted_on_close());
    let refused = set_on_close(&directory, delete);
    assert_eq!(refused, Status::DIRECTORY_NOT_EMPTY);
    directory.close().unwrap();
    assert!(server.path("d/f").exists());
}

/// [MS-FSCC] 2.4.12: FILE_DELETE_ON_CLOSE is set again with or without POSIX semantics, which concern links only.
#[test]
fn delete_on_close_takes_posix_semantics() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (delete, posix) = (DispositionFlags::DELETE, DispositionFlags::POSIX_SEMANTICS);
    for (asked, gone) in [
        (&[delete][..], false),
        (&[delete | posix], true),
        (&[delete | posix, delete], false),
        (&[posix, delete | posix], true),
    ] {
        let (file, other) = delete_on_close_and_other(&tree);
        for flags in asked {
            assert_eq!(set_on_close(&file, *flags), Status::SUCCESS);
        }
        assert!(!pending(&other), "{asked:?}");
        file.close().unwrap();
        assert_eq!(!server.path("f").exists(), gone, "{asked:?}");
        assert!(pending(&other), "{asked:?}");
        other.write_all(0, b"still mine").unwrap();
        assert_eq!(other.read_all().unwrap(), b"still mine");
        if gone {
            assert_eq!(alone(&tree), Status::SUCCESS, "the name is free");
            tree.delete("f").unwrap();
        }
        other.close().unwrap();
        assert!(!server.path("f").exists(), "{asked:?}");
    }
    tree.write_file("f", b"content").unwrap();
    let args = deleted_on_close("f:s", CreateDisposition::CREATE);
    let stream = tree.create(&args).unwrap();
    let other = tree.create(&CreateArgs::open("f:s")).unwrap();
    assert_eq!(set_on_close(&stream, delete | posix), Status::SUCCESS);
    stream.close().unwrap();
    assert!(pending(&other));
    other.close().unwrap();
    let end = status(tree.create(&CreateArgs::open("f:s")));
    assert_eq!(end, Status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}

#[test]
fn nothing_is_created_in_a_directory_whose_deletion_is_pending() {
    // [MS-FSA] 2.1.5.1.1: the deletion of the parent is pending.
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let args = CreateArgs::open("d")
        .access(AccessMask::DELETE)
        .options(CreateOptions::DIRECTORY_FILE);
    let directory = tree.create(&args).unwrap();
    directory.set_delete(true).unwrap();
    let end = status(tree.create(&CreateArgs::create("d\\f")));
    assert_eq!(end, Status::DELETE_PENDING);
    directory.close().unwrap();
    assert!(!server.path("d").exists());
}

#[test]
fn setting_the_disposition_needs_the_right_to_delete() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
    assert_eq!(status(file.set_delete(true)), Status::ACCESS_DENIED);
    assert!(!pending(&file));
    file.close().unwrap();
    assert!(server.path("f").exists());
}

#[test]
fn a_stream_is_deleted_alone() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    let stream = tree
        .create(&deleted_on_close("f:s", CreateDisposition::CREATE))
        .unwrap();
    stream.write_all(0, b"stream").unwrap();
    stream.close().unwrap();
    assert_eq!(
        status(tree.create(&CreateArgs::open("f:s"))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}

#[test]
fn a_hard_link_keeps_the_data() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    std::fs::hard_link(server.path("f"), server.path("g")).unwrap();
    tree.delete("f").unwrap();
    assert!(!server.path("f").exists());
    assert_eq!(tree.read_file("g").unwrap(), b"content");
}

/// Opens the file without any sharing and returns the status.
fn alone(tree: &Tree) -> Status {
    let args = CreateArgs::open_if("f").share(ShareAccess::empty());
    tree.create_status(&args).unwrap()
}

#[test]
fn a_name_is_free_at_once_after_the_last_close() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for _ in 0..20 {
        let file = tree
            .create(&deleted_on_close("f", CreateDisposition::CREATE))
            .unwrap();
        file.close().unwrap();
        assert_eq!(alone(&tree), Status::SUCCESS);
        tree.delete("f").unwrap();
    }
}

#[test]
fn a_file_renamed_through_another_share_is_deleted_and_a_missing_one_is_not_reported_as_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name| {
        let path = folder.path().display();
        format!("[[share]]\nname = \"{name}\"\npath = \"{path}\"\n")
    };
    let server = HoldfastServer::start(&Options {
        tables: ["one", "same"].map(table).concat(),
        ..Options::default()
    });
    let tree = |name| {
        let session = server.session(smb_client::Options::default());
        session.tree(name).unwrap()
    };
    let (one, same) = (tree("one"), tree("same"));
    let there = |name| folder.path().join(name).exists();
    let closed_beside = |meanwhile: &dyn Fn()| {
        one.write_file("f", b"content").unwrap();
        let file = one
            .create(&deleted_on_close("f", CreateDisposition::OPEN))
            .unwrap();
        meanwhile();
        file.close()
    };
    closed_beside(&|| same.rename("f", "G", false).unwrap()).unwrap();
    assert!(!there("f") && !there("G"));
    // Another link to the file in the folder is not the deleted one.
    same.mkdir("d").unwrap();
    closed_beside(&|| {
        std::fs::hard_link(folder.path().join("f"), folder.path().join("g")).unwrap();
        same.rename("f", "d\\g", false).unwrap();
    })
    .unwrap();
    assert!(there("g") && !there("d/g"));
    let on_the_host = |to: &str| {
        let renamed = std::fs::rename(folder.path().join("f"), folder.path().join(to));
        renamed.unwrap();
    };
    let closed = closed_beside(&|| on_the_host("h"));
    assert_eq!(status(closed), Status::OBJECT_NAME_NOT_FOUND);
    assert!(there("h"));
    closed_beside(&|| std::fs::remove_file(folder.path().join("f")).unwrap()).unwrap();
    // The same after a rename of the parent folders.
    one.mkdir("e").unwrap();
    one.write_file("e\\f", b"content").unwrap();
    let file = one.create(&deleted_on_close("e\\f", CreateDisposition::OPEN));
    std::fs::remove_dir_all(folder.path().join("e")).unwrap();
    file.unwrap().close().unwrap();
}

/// Links of the host that lead nowhere, or out of the share, are in no listing. A directory that holds nothing else is
/// empty for its clients.
#[test]
fn a_directory_of_links_that_nobody_sees_can_be_deleted() {
    use std::os::unix::fs::symlink;
    let server = HoldfastServer::new();
    let tree = server.tree();
    for how in ["marked", "on close"] {
        let path = server.path(how);
        std::fs::create_dir(&path).unwrap();
        symlink("/usr/bin/python3", path.join("python")).unwrap();
        symlink("nothing", path.join("dangling")).unwrap();
        assert_eq!(tree.list(how, "*").unwrap().len(), 2, "only the dots");
        let plain = status(tree.list(how, "python").map(drop));
        assert_eq!(plain, Status::NO_SUCH_FILE);
        let access = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES;
        let args = CreateArgs::directory(how).access(access);
        if how == "marked" {
            let directory = tree.create(&args).unwrap();
            directory.set_delete(true).unwrap();
            directory.close().unwrap();
        } else {
            let both = CreateOptions::DELETE_ON_CLOSE | CreateOptions::DIRECTORY_FILE;
            tree.create(&args.options(both)).unwrap().close().unwrap();
        }
        assert!(!path.exists(), "{how}");
    }
    // One that clients see is a name like any other.
    std::fs::create_dir(server.path("d")).unwrap();
    std::fs::write(server.path("file"), b"x").unwrap();
    symlink("../file", server.path("d/link")).unwrap();
    let args = CreateArgs::directory("d").access(AccessMask::DELETE);
    let refused = status(tree.create(&args).unwrap().set_delete(true));
    assert_eq!(refused, Status::DIRECTORY_NOT_EMPTY);
}
