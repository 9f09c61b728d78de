//! cifs.ko, the client of Linux: programs there may delete a file, or replace it, while it is open.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileBasicInformation, FileInformationClass as Class, FileRenameInformation};
use smb_wire::ids::{FileId, LeaseKey};
use smb_wire::msg::{CreateOptions, InfoType, ShareAccess};

use crate::requests::{names, related_close, statuses};

/// The client has one lease for each of its inodes.
const KEY: LeaseKey = LeaseKey([7; 16]);
const HIDDEN_NAME: &str = ".__smb0001";

/// Opens the file for a moment: the request has the key of the inode, and requests no caching.
fn beside(name: &str) -> CreateArgs {
    CreateArgs::open(name).lease_v2(KEY, LeaseState::empty(), 0)
}

/// Creates a file with content, which stays open.
#[track_caller]
fn in_use(tree: &Tree, args: &CreateArgs) -> File {
    let file = tree.create(args).unwrap();
    file.write_all(0, b"content").unwrap();
    file
}

fn related_set(tree: &Tree, class: Class, buffer: &[u8]) -> Request {
    let request = Request::set_info(FileId::ANY, InfoType::FILE, class.0, 0, buffer);
    tree.address(request).related()
}

/// Removes a name as unlink does. Returns the status of the open, which is also that of the close.
#[track_caller]
fn unlink(tree: &Tree, name: &str) -> Status {
    let access = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES;
    let args = beside(name)
        .access(access)
        .share(ShareAccess::DELETE)
        .options(CreateOptions::DELETE_ON_CLOSE | CreateOptions::OPEN_REPARSE_POINT);
    let requests = vec![tree.address(args.request()), related_close(tree)];
    let replies = tree.client().compound(requests).unwrap();
    assert_eq!(replies[0].status(), replies[1].status());
    replies[0].status()
}

/// Hides a file that cannot be removed yet, renames it and marks it for deletion in one message.
#[track_caller]
fn hide(tree: &Tree, open: CreateArgs) {
    let mut basic = BytesMut::new();
    FileBasicInformation {
        file_attributes: FileAttributes::ARCHIVE | FileAttributes::HIDDEN,
        ..FileBasicInformation::default()
    }
    .encode(&mut basic);
    let mut rename = BytesMut::new();
    FileRenameInformation {
        replace_if_exists: true,
        root_directory: 0,
        file_name: HIDDEN_NAME.to_owned(),
    }
    .encode(&mut rename);
    // A null character follows the name and is not part of its length.
    rename.extend_from_slice(&[0; 2]);
    let access = AccessMask::DELETE | AccessMask::FILE_WRITE_ATTRIBUTES;
    let replies = tree.client().compound(vec![
        tree.address(open.access(access).request()),
        related_set(tree, Class::BASIC, &basic),
        related_set(tree, Class::RENAME, &rename),
        related_set(tree, Class::DISPOSITION, &[1]),
        related_close(tree),
    ]);
    assert_eq!(statuses(&replies.unwrap()), [Status::SUCCESS; 5]);
}

/// The program still uses its file, whose name is free; the file disappears when the program closes it.
#[track_caller]
fn finish(tree: &Tree, file: &File) {
    file.write_all(7, b" and more").unwrap();
    assert_eq!(file.read_all().unwrap(), b"content and more");
    let again = tree.create_status(&CreateArgs::open(HIDDEN_NAME));
    assert_eq!(again.unwrap(), Status::DELETE_PENDING);
    file.close().unwrap();
    assert_eq!(names(tree, ""), ["f"]);
    assert_eq!(tree.read_file("f").unwrap(), b"new");
    // The client broke none of its own caching.
    assert!(!tree.client().connection().has_break());
}

#[test]
fn a_program_deletes_a_file_that_it_still_uses() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").lease_v2(KEY, LeaseState::RWH, 0);
    let file = in_use(&tree, &args);
    // The open does not share the reading and writing of the program.
    assert_eq!(unlink(&tree, "f"), Status::SHARING_VIOLATION);
    hide(&tree, beside("f"));
    let gone = tree.create_status(&CreateArgs::open("f"));
    assert_eq!(gone.unwrap(), Status::OBJECT_NAME_NOT_FOUND);
    tree.write_file("f", b"new").unwrap();
    finish(&tree, &file);
}

/// The client learns from ACCESS_DENIED that the file with the new name is in use.
#[test]
fn a_program_replaces_a_file_that_another_still_uses() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = in_use(&tree, &CreateArgs::create("f"));
    tree.write_file("g", b"new").unwrap();
    let refused = status(tree.rename("g", "f", true));
    assert_eq!(refused, Status::ACCESS_DENIED);
    hide(&tree, CreateArgs::open("f"));
    tree.rename("g", "f", true).unwrap();
    finish(&tree, &file);
}

#[test]
fn a_file_that_no_program_uses_is_removed_at_once() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").lease_v2(KEY, LeaseState::RWH, 0);
    in_use(&tree, &args).close().unwrap();
    assert_eq!(unlink(&tree, "f"), Status::SUCCESS);
    assert_eq!(unlink(&tree, "f"), Status::OBJECT_NAME_NOT_FOUND);
    assert!(names(&tree, "").is_empty());
}
