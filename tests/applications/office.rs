//! Word, Excel and PowerPoint: the owner file, saving by way of a temporary file, the second user.

use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{CreateDisposition, CreateOptions, ShareAccess};

use crate::requests::{LONG_AGO, basic, names, open_to_delete, set_basic, streams};

const READERS: ShareAccess = ShareAccess::READ;
const READERS_AND_DELETERS: ShareAccess = ShareAccess(5);

/// Opens a document as its program does: others may read it.
fn document(tree: &Tree, name: &str) -> File {
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    let args = CreateArgs::open(name).access(access).share(READERS);
    tree.create(&args).unwrap()
}

/// Creates the owner file `~$x`, which names the user who has the document open; it is hidden, and
/// deleted with its handle.
fn owner_file(tree: &Tree, name: &str) -> File {
    let access =
        AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE;
    let args = CreateArgs::create(name)
        .access(access)
        .share(READERS_AND_DELETERS)
        .attributes(FileAttributes::HIDDEN)
        .options(CreateOptions::DELETE_ON_CLOSE | CreateOptions::NON_DIRECTORY_FILE);
    let file = tree.create(&args).unwrap();
    file.write_all(0, b"\x05alice").unwrap();
    file
}

/// Creates a temporary file and writes it through.
fn temporary(tree: &Tree, name: &str, content: &[u8]) {
    let file = tree.create(&CreateArgs::create(name)).unwrap();
    file.set_end_of_file(content.len() as u64).unwrap();
    file.write_all(0, content).unwrap();
    file.flush(false).unwrap();
    file.close().unwrap();
}

fn rename(tree: &Tree, from: &str, to: &str, replace: bool) {
    let file = open_to_delete(tree, from);
    file.rename(to, replace).unwrap();
    file.close().unwrap();
}

#[test]
fn a_second_user_learns_who_has_the_document_and_reads_it() {
    let server = HoldfastServer::new();
    let guid = |at| Options::default().guid(Guid([at; 16]));
    let (first, second) = (server.tree_with(guid(1)), server.tree_with(guid(2)));
    first.write_file("Plan.docx", b"version 1").unwrap();
    let open = document(&first, "Plan.docx");
    let owner = owner_file(&first, "~$Plan.docx");
    // The second user's Word requests write access, is refused, and offers a read-only copy.
    let write = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    let args = CreateArgs::open("Plan.docx").access(write).share(READERS);
    let refused = second.create_status(&args).unwrap();
    assert_eq!(refused, Status::SHARING_VIOLATION);
    let args = CreateArgs::open("~$Plan.docx").access(AccessMask::FILE_GENERIC_READ);
    let who = second.create(&args.share(ShareAccess(7))).unwrap();
    assert_eq!(who.read_all().unwrap(), b"\x05alice");
    assert!(basic(&who).file_attributes.contains(FileAttributes::HIDDEN));
    let args = CreateArgs::open("Plan.docx").access(AccessMask::FILE_GENERIC_READ);
    let reading = second.create(&args.share(ShareAccess(3))).unwrap();
    assert_eq!(reading.read_all().unwrap(), b"version 1");
    // The owner file is deleted when the first user closes it, even while others read it.
    reading.close().unwrap();
    who.close().unwrap();
    owner.close().unwrap();
    open.close().unwrap();
    assert_eq!(names(&second, ""), ["Plan.docx"]);
    document(&second, "Plan.docx").close().unwrap();
}

/// Word writes a new temporary file, renames the document away, renames the temporary file in its
/// place, and deletes the old one.
#[test]
fn word_saves_by_two_renames() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("Letter.docx", b"version 1").unwrap();
    let made = tree.create(&CreateArgs::open("Letter.docx")).unwrap();
    set_basic(&made, LONG_AGO, 0, FileAttributes::empty());
    made.close().unwrap();
    let owner = owner_file(&tree, "~$tter.docx");
    let open = document(&tree, "Letter.docx");
    temporary(&tree, "~WRD0001.tmp", b"version 2, longer");
    open.close().unwrap();
    rename(&tree, "Letter.docx", "~WRL0002.tmp", false);
    rename(&tree, "~WRD0001.tmp", "Letter.docx", false);
    // Word gives the new file the creation time of the old one.
    let new = tree.create(&CreateArgs::open("Letter.docx")).unwrap();
    set_basic(&new, LONG_AGO, 0, FileAttributes::empty());
    new.close().unwrap();
    let open = document(&tree, "Letter.docx");
    let old = open_to_delete(&tree, "~WRL0002.tmp");
    old.set_delete(true).unwrap();
    old.close().unwrap();
    assert_eq!(names(&tree, ""), ["Letter.docx", "~$tter.docx"]);
    assert_eq!(open.read_all().unwrap(), b"version 2, longer");
    assert_eq!(basic(&open).creation_time.0, LONG_AGO);
    open.close().unwrap();
    owner.close().unwrap();
    assert_eq!(names(&tree, ""), ["Letter.docx"]);
}

/// Excel writes a temporary file with a name of eight random letters without an extension, which
/// replaces the workbook in one rename while the owner file exists.
#[test]
fn excel_saves_by_a_rename_that_replaces() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("Sums.xlsx", b"1").unwrap();
    tree.write_file("Sums.xlsx:Zone.Identifier", b"[ZoneTransfer]")
        .unwrap();
    let owner = owner_file(&tree, "~$Sums.xlsx");
    let open = document(&tree, "Sums.xlsx");
    temporary(&tree, "A1B2C3D4", b"2");
    // A workbook is not replaced while it is open.
    let file = open_to_delete(&tree, "A1B2C3D4");
    assert_eq!(
        status(file.rename("Sums.xlsx", true)),
        Status::ACCESS_DENIED
    );
    open.close().unwrap();
    file.rename("Sums.xlsx", true).unwrap();
    file.close().unwrap();
    assert_eq!(tree.read_file("Sums.xlsx").unwrap(), b"2");
    // Streams of the old file are not transferred to the new one.
    assert_eq!(streams(&tree, "Sums.xlsx"), [("::$DATA".to_owned(), 1)]);
    owner.close().unwrap();
    assert_eq!(names(&tree, ""), ["Sums.xlsx"]);
}

/// PowerPoint uses ReplaceFile: the presentation becomes the backup and the temporary file the
/// presentation, while another user who shares deletion reads it.
#[test]
fn powerpoint_replaces_a_file_that_is_being_read() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("Talk.pptx", b"old slides").unwrap();
    let args = CreateArgs::open("Talk.pptx").access(AccessMask::FILE_GENERIC_READ);
    let shown = other.create(&args.share(ShareAccess(7))).unwrap();
    temporary(&tree, "ppt51F.tmp", b"new slides");
    rename(&tree, "Talk.pptx", "ppt51F.bak", false);
    rename(&tree, "ppt51F.tmp", "Talk.pptx", false);
    let backup = open_to_delete(&tree, "ppt51F.bak");
    backup.set_delete(true).unwrap();
    backup.close().unwrap();
    // The slide show continues with its old content, and the old file disappears with it.
    assert_eq!(shown.read_all().unwrap(), b"old slides");
    assert_eq!(tree.read_file("Talk.pptx").unwrap(), b"new slides");
    shown.close().unwrap();
    assert_eq!(names(&tree, ""), ["Talk.pptx"]);
}

/// A program that caches the document gives up its cache when the next one opens it, and loses
/// nothing.
#[test]
fn cached_writes_are_written_back_before_another_client_reads() {
    let server = HoldfastServer::new();
    let guid = |at| Options::default().guid(Guid([at; 16]));
    let (first, second) = (server.tree_with(guid(1)), server.tree_with(guid(2)));
    const KEY: LeaseKey = LeaseKey([1; 16]);
    let args = CreateArgs::create("Notes.docx").share(ShareAccess(7));
    let writing = first
        .create(&args.lease_v2(KEY, LeaseState::RWH, 0))
        .unwrap();
    let wanted = CreateArgs::open("Notes.docx").access(AccessMask::FILE_GENERIC_READ);
    let wanted = wanted
        .share(ShareAccess(7))
        .disposition(CreateDisposition::OPEN);
    let sent = second.send(wanted.request()).unwrap();
    assert!(second.client().wait_pending(sent).unwrap().is_some());
    first
        .client()
        .next_break(std::time::Duration::from_secs(10))
        .unwrap()
        .expect("a break");
    writing.write_all(0, b"cached until now").unwrap();
    first
        .acknowledge_lease(KEY, LeaseState::READ | LeaseState::HANDLE)
        .unwrap();
    let reading = second.file(&second.client().wait(sent).unwrap()).unwrap();
    assert_eq!(reading.read_all().unwrap(), b"cached until now");
}
