//! Renames of files with other opens ([MS-FSA] 2.1.5.15.12, 2.1.4.2; the cases of smb2.rename).
//! Formats and errors of the request are tested in `set_info.rs`.

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{CreateOptions, OplockLevel, ShareAccess};

use crate::change_notify::one_in_all;

const ALL: ShareAccess = ShareAccess(7);
const NO_DELETE: ShareAccess = ShareAccess(3);

fn with_delete(tree: &Tree, name: &str, share: ShareAccess) -> File {
    let access = AccessMask::DELETE | AccessMask::FILE_READ_DATA | AccessMask::FILE_READ_ATTRIBUTES;
    let args = CreateArgs::open(name).access(access).share(share);
    tree.create(&args).unwrap()
}

#[test]
fn a_rename_needs_the_right_to_delete() {
    // smb2.rename.simple_nodelete, share_delete_no_delete_access
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for share in [ALL, NO_DELETE, ShareAccess::empty()] {
        let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
        let args = CreateArgs::open("f").access(access).share(share);
        let file = tree.create(&args).unwrap();
        assert_eq!(status(file.rename("g", false)), Status::ACCESS_DENIED);
        file.close().unwrap();
    }
    assert!(server.path("f").exists() && !server.path("g").exists());
}

#[test]
fn the_share_mode_of_the_renaming_handle_is_ignored() {
    // smb2.rename.no_sharing, share_delete_and_delete_access,
    // no_share_delete_but_delete_access
    let server = HoldfastServer::new();
    let tree = server.tree();
    for share in (0..8).map(ShareAccess) {
        tree.write_file("f", b"x").unwrap();
        let file = with_delete(&tree, "f", share);
        file.rename("g", false).unwrap();
        file.close().unwrap();
        assert!(!server.path("f").exists() && server.path("g").exists());
        tree.delete("g").unwrap();
    }
}

#[test]
fn the_handle_follows_its_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"content").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    for name in ["g", "d\\h", "f"] {
        file.rename(name, false).unwrap();
        file.write_all(0, b"CONTENT").unwrap();
        assert_eq!(file.read_all().unwrap(), b"CONTENT");
        assert_eq!(tree.read_file(name).unwrap(), b"CONTENT");
    }
    // A new file at the old name is another file.
    file.rename("g", false).unwrap();
    tree.write_file("f", b"another").unwrap();
    assert_eq!(file.read_all().unwrap(), b"CONTENT");
}

#[test]
fn other_handles_follow_it_too() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("f", b"content").unwrap();
    let theirs = other.create(&CreateArgs::open("f")).unwrap();
    tree.rename("f", "g", false).unwrap();
    assert_eq!(theirs.read_all().unwrap(), b"content");
    theirs.set_delete(true).unwrap();
    theirs.close().unwrap();
    assert!(!server.path("g").exists());
}

#[test]
fn a_replaced_file_must_not_be_open() {
    // [MS-FSA] 2.1.5.15.12: an open target is not removed.
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("f", b"new").unwrap();
    tree.write_file("g", b"old").unwrap();
    let theirs = other.create(&CreateArgs::open("g")).unwrap();
    assert_eq!(status(tree.rename("f", "g", true)), Status::ACCESS_DENIED);
    assert_eq!(theirs.read_all().unwrap(), b"old");
    theirs.close().unwrap();
    tree.rename("f", "g", true).unwrap();
    assert_eq!(tree.read_file("g").unwrap(), b"new");
}

#[test]
fn the_handle_caching_of_a_replaced_file_is_broken() {
    // Its oplock is broken first; the holder closes the file, and the rename continues.
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("f", b"new").unwrap();
    tree.write_file("g", b"old").unwrap();
    let cached = other
        .create(&CreateArgs::open("g").oplock(OplockLevel::BATCH))
        .unwrap();
    let file = with_delete(&tree, "f", ALL);
    let request = smb_client::Request::rename(file.id(), "g", true);
    let id = tree.send(request).unwrap();
    let broken = other.client().next_break(smb_tests::SOON).unwrap();
    assert!(broken.is_some());
    cached.close().unwrap();
    tree.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(tree.read_file("g").unwrap(), b"new");
}

#[test]
fn a_directory_with_open_files_is_not_renamed() {
    // smb2.rename.rename_dir_openfile
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.mkdir("d").unwrap();
    tree.mkdir("d\\e").unwrap();
    tree.write_file("d\\e\\f", b"x").unwrap();
    let theirs = other.create(&CreateArgs::open("d\\e\\f")).unwrap();
    assert_eq!(
        status(tree.rename("d", "moved", false)),
        Status::ACCESS_DENIED
    );
    theirs.close().unwrap();
    tree.rename("d", "moved", false).unwrap();
    assert_eq!(tree.read_file("moved\\e\\f").unwrap(), b"x");
}

/// [MS-FSA] 2.1.4.2: a file that was moved out of the directory is not below it, whatever moved it.
#[test]
fn a_directory_is_renamed_when_its_open_files_were_moved_away() {
    let (folder, _server, [all, one]) = one_in_all();
    let at = |name: &str| folder.path().join(name);
    one.mkdir("e").unwrap();
    for name in ["e\\host", "e\\share", "e\\gone", "e\\stays"] {
        one.write_file(name, b"x").unwrap();
    }
    let open = |name: &str| one.create(&CreateArgs::open(name)).unwrap();
    let [_host, _share, _gone] = ["e\\host", "e\\share", "e\\gone"].map(open);
    let stays = open("e\\stays");
    std::fs::rename(at("d/e/host"), at("d/host")).unwrap();
    std::fs::remove_file(at("d/e/gone")).unwrap();
    // Another file that has the name is not the one that is open.
    std::fs::write(at("d/e/gone"), "new").unwrap();
    all.rename("d\\e\\share", "share", false).unwrap();
    assert_eq!(status(one.rename("e", "f", false)), Status::ACCESS_DENIED);
    assert_eq!(
        status(all.rename("d\\e", "f", false)),
        Status::ACCESS_DENIED
    );
    stays.close().unwrap();
    one.rename("e", "f", false).unwrap();
    all.rename("d\\f", "g", false).unwrap();
    assert!(at("g/stays").exists());
}

#[test]
fn the_case_alone_can_change() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("name", b"x").unwrap();
    tree.rename("name", "NAME", false).unwrap();
    let listed = tree.list("", "name").unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].file_name, "NAME");
    tree.rename("NAME", "NAME", false).unwrap();
    assert_eq!(tree.read_file("name").unwrap(), b"x");
}

#[test]
fn a_file_with_a_pending_deletion_is_not_renamed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let file = with_delete(&tree, "f", ALL);
    file.set_delete(true).unwrap();
    assert_eq!(status(file.rename("g", false)), Status::ACCESS_DENIED);
    file.set_delete(false).unwrap();
    file.rename("g", false).unwrap();
}

#[test]
fn delete_on_close_remains_after_a_rename() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree
        .create(&CreateArgs::create("f").options(CreateOptions::DELETE_ON_CLOSE))
        .unwrap();
    file.rename("g", false).unwrap();
    tree.write_file("f", b"another").unwrap();
    file.close().unwrap();
    assert!(!server.path("g").exists());
    assert_eq!(tree.read_file("f").unwrap(), b"another");
}

#[test]
fn locks_remain_after_a_rename() {
    use smb_wire::msg::LockFlags;
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("f", &[0; 100]).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    file.lock(0, 10, LockFlags(0x12)).unwrap();
    file.rename("g", false).unwrap();
    let theirs = other.create(&CreateArgs::open("g")).unwrap();
    assert_eq!(
        status(theirs.lock(0, 1, LockFlags(0x12))),
        Status::LOCK_NOT_GRANTED
    );
}

#[test]
fn streams_remain_after_a_rename() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    tree.write_file("f:s", b"stream").unwrap();
    tree.rename("f", "g", false).unwrap();
    assert_eq!(tree.read_file("g:s").unwrap(), b"stream");
    assert_eq!(
        status(tree.create(&CreateArgs::open("f:s"))),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

#[test]
fn a_file_is_not_renamed_onto_its_other_link_with_a_pending_deletion() {
    // The close of the other handle would remove the last name of the renamed file.
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("a", b"content").unwrap();
    std::fs::hard_link(server.path("a"), server.path("b")).unwrap();
    let theirs = with_delete(&tree, "b", ALL);
    let file = with_delete(&tree, "a", ALL);
    theirs.set_delete(true).unwrap();
    assert_eq!(status(file.rename("b", true)), Status::DELETE_PENDING);
    theirs.close().unwrap();
    file.close().unwrap();
    assert!(!server.path("b").exists());
    assert_eq!(tree.read_file("a").unwrap(), b"content");
}

/// [MS-FSA] 2.1.5.1 strips trailing backslashes; jcifs-ng sends one with the new name of every directory.
#[test]
fn the_new_name_of_a_directory_may_end_in_a_backslash() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.mkdir("above").unwrap();
    tree.write_file("f", b"x").unwrap();
    tree.rename("d", "e\\", false).unwrap();
    tree.rename("e", "above\\e\\", false).unwrap();
    assert!(server.path("above/e").is_dir() && !server.path("d").exists());
    let refused = status(tree.rename("f", "g\\", false));
    assert_eq!(refused, Status::OBJECT_NAME_INVALID);
}

/// The buffer of a name of one letter is shorter than [MS-FSCC] 2.4.42.2 says. go-smb2, impacket and jcifs-ng send it
/// so.
#[test]
fn a_name_of_one_letter_needs_no_padding() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("file", b"x").unwrap();
    let file = with_delete(&tree, "file", ALL);
    let mut buffer = [0; 22];
    buffer[16] = 2;
    buffer[20] = b'1';
    let class = FileInformationClass::RENAME;
    file.set(class, &buffer).unwrap();
    assert!(server.path("1").exists());
    let refused = status(file.set(class, &buffer[..21]));
    assert_eq!(refused, Status::INFO_LENGTH_MISMATCH);
}

/// [MS-FSA] 2.1.1.6: an open is of a link, also when that has moved and another one has its former name.
#[test]
fn a_rename_moves_the_link_of_the_handle_wherever_another_share_has_moved_it() {
    let (folder, _server, [all, one]) = one_in_all();
    let at = |name: &str| folder.path().join(name);
    let link = |from: &str, to: &str| std::fs::hard_link(at(from), at(to)).unwrap();
    one.mkdir("e").unwrap();
    all.write_file("d\\f", b"x").unwrap();
    let file = with_delete(&all, "d\\f", ALL);
    one.rename("f", "e\\g", false).unwrap();
    link("d/e/g", "d/f");
    file.rename("d\\h", false).unwrap();
    assert!(at("d/f").exists() && at("d/h").exists() && !at("d/e/g").exists());
    one.rename("h", "e\\h", false).unwrap();
    file.rename("top", false).unwrap();
    assert!(at("top").exists() && !at("d/e/h").exists());
    file.close().unwrap();
    // The share of the handle does not show where its link went.
    let file = with_delete(&one, "f", ALL);
    all.rename("d\\f", "out", false).unwrap();
    link("out", "d/f");
    let refused = status(file.rename("g", false));
    assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND);
    assert!(at("d/f").exists() && at("out").exists() && !at("d/g").exists());
    // Now it shows it again.
    all.rename("out", "d\\back", false).unwrap();
    file.rename("g", false).unwrap();
    assert!(at("d/f").exists() && at("d/g").exists() && !at("d/back").exists());
    file.close().unwrap();
}

/// [MS-FSA] 2.1.4.2: it does not matter through which share something is open below a directory.
#[test]
fn a_directory_with_files_open_through_another_share_is_not_renamed() {
    let (folder, _server, [all, one]) = one_in_all();
    one.mkdir("e").unwrap();
    one.write_file("e\\f", b"x").unwrap();
    let refused = |tree: &Tree, from: &str| {
        assert_eq!(
            status(tree.rename(from, "moved", false)),
            Status::ACCESS_DENIED,
            "{from}"
        );
    };
    let theirs = one.create(&CreateArgs::open("e\\f")).unwrap();
    refused(&all, "d\\e");
    refused(&all, "d");
    theirs.close().unwrap();
    let theirs = all.create(&CreateArgs::open("d\\e\\f")).unwrap();
    refused(&one, "e");
    theirs.close().unwrap();
    one.rename("e", "g", false).unwrap();
    assert!(folder.path().join("d/g/f").exists());
}
