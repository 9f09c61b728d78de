//! FileRenameInformationEx and FileLinkInformationEx ([MS-FSCC] 2.4.43): with POSIX semantics the
//! replaced file loses its name while its handles remain valid.

use bytes::BytesMut;
use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::{HoldfastServer, SOON, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    FileAction, FileBasicInformation, FileInformationClass as Class, FileRenameInformationEx,
    FileStandardInformation, RenameFlags,
};
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{ChangeNotifyFlags, CreateOptions, InfoType, NotifyFilter, ShareAccess};

const REPLACE: RenameFlags = RenameFlags::REPLACE_IF_EXISTS;
const POSIX: RenameFlags = REPLACE.union(RenameFlags::POSIX_SEMANTICS);

fn info(to: &str, flags: RenameFlags) -> BytesMut {
    let mut buffer = BytesMut::new();
    FileRenameInformationEx {
        flags,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    buffer
}

/// Renames `from` to `to`, or adds `to` as a link.
fn set(tree: &Tree, class: Class, from: &str, to: &str, flags: RenameFlags) -> Status {
    let access = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES;
    let file = tree.create(&CreateArgs::open(from).access(access)).unwrap();
    let set = status(file.set(class, &info(to, flags)));
    file.close().unwrap();
    set
}

fn rename(tree: &Tree, from: &str, to: &str, flags: RenameFlags) -> Status {
    set(tree, Class::RENAME_EX, from, to, flags)
}

fn standard(file: &File) -> FileStandardInformation {
    FileStandardInformation::read(&file.query(Class::STANDARD).unwrap()).unwrap()
}

fn names(tree: &Tree) -> Vec<String> {
    let listed = tree.list("", "*").unwrap();
    let names = listed.into_iter().map(|entry| entry.file_name);
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

#[test]
fn an_open_file_is_replaced() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for class in [Class::RENAME_EX, Class::LINK_EX] {
        tree.write_file("new", b"new").unwrap();
        tree.write_file("f", b"old").unwrap();
        let theirs = other.create(&CreateArgs::open("f")).unwrap();
        assert_eq!(set(&tree, class, "new", "f", POSIX), Status::SUCCESS);
        // The handle remains valid, for a file without a name.
        assert_eq!(theirs.read_all().unwrap(), b"old");
        theirs.write_all(0, b"OLD and more").unwrap();
        theirs.flush(false).unwrap();
        assert_eq!(theirs.read_all().unwrap(), b"OLD and more");
        assert!(standard(&theirs).delete_pending);
        // Everybody finds the new file under the name, before and after the handle is closed.
        assert_eq!(other.read_file("f").unwrap(), b"new");
        theirs.close().unwrap();
        assert_eq!(tree.read_file("f").unwrap(), b"new");
        match class {
            Class::RENAME_EX => assert_eq!(names(&tree), ["f"]),
            _ => assert_eq!(names(&tree), ["f", "new"]),
        }
    }
}

#[test]
fn a_directory_is_renamed_although_a_file_that_was_replaced_in_it_is_open() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    let made = tree.create(&CreateArgs::create_directory("d")).unwrap();
    made.close().unwrap();
    tree.write_file("new", b"new").unwrap();
    tree.write_file("d\\f", b"old").unwrap();
    let theirs = other.create(&CreateArgs::open("d\\f")).unwrap();
    let denied = rename(&tree, "d", "e", RenameFlags::empty());
    assert_eq!(denied, Status::ACCESS_DENIED);
    assert_eq!(rename(&tree, "new", "d\\f", POSIX), Status::SUCCESS);
    let renamed = rename(&tree, "d", "e", RenameFlags::empty());
    assert_eq!(renamed, Status::SUCCESS);
    assert_eq!(theirs.read_all().unwrap(), b"old");
    theirs.close().unwrap();
    assert_eq!(tree.read_file("e\\f").unwrap(), b"new");
}

#[test]
fn a_name_is_replaced_although_another_name_of_its_file_is_to_be_deleted() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for class in [Class::RENAME_EX, Class::LINK_EX] {
        tree.write_file("new", b"new").unwrap();
        tree.write_file("f", b"old").unwrap();
        let linked = set(&tree, Class::LINK_EX, "f", "g", REPLACE);
        assert_eq!(linked, Status::SUCCESS);
        let goes = other.create(&CreateArgs::open("f")).unwrap();
        goes.set_delete(true).unwrap();
        assert_eq!(set(&tree, class, "new", "f", POSIX), Status::DELETE_PENDING);
        assert_eq!(set(&tree, class, "new", "g", POSIX), Status::SUCCESS);
        goes.close().unwrap();
        assert_eq!(tree.read_file("g").unwrap(), b"new");
        assert!(!server.path("f").exists());
    }
}

/// A handle whose name `f` another file has got. Then its own file has got it again, beside the name `g`.
fn of_an_earlier_link(tree: &Tree) -> File {
    tree.write_file("f", b"old").unwrap();
    tree.write_file("new", b"new").unwrap();
    let linked = set(tree, Class::LINK_EX, "f", "g", REPLACE);
    assert_eq!(linked, Status::SUCCESS);
    let access = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES;
    let handle = tree.create(&CreateArgs::open("f").access(access)).unwrap();
    assert_eq!(rename(tree, "new", "f", POSIX), Status::SUCCESS);
    let again = set(tree, Class::LINK_EX, "g", "f", POSIX);
    assert_eq!(again, Status::SUCCESS);
    handle
}

/// [MS-FSA] 2.1.5.5: only opens of the same link keep it from being removed.
#[test]
fn a_handle_whose_name_was_replaced_keeps_no_later_link_of_that_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let handle = of_an_earlier_link(&tree);
    tree.delete("f").unwrap();
    assert_eq!(names(&tree), ["g"]);
    handle.close().unwrap();
    assert_eq!(names(&tree), ["g"]);
}

/// [MS-FSA] 2.1.5.15.12: Open.Link.IsDeleted, also where the file has another link of that name by then.
#[test]
fn a_handle_whose_name_was_replaced_renames_no_later_link_of_that_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let theirs = of_an_earlier_link(&tree);
    let renamed = status(theirs.set(Class::RENAME_EX, &info("h", REPLACE)));
    assert_eq!(renamed, Status::ACCESS_DENIED);
    theirs.close().unwrap();
    assert_eq!(names(&tree), ["f", "g"]);
    assert_eq!(tree.read_file("f").unwrap(), b"old");
}

/// A handle without a name changes nothing that watchers see: the name is another file's. The host's own notices are off,
/// because Linux reports the truncation of a file without a name under its last one.
#[test]
fn changes_of_a_replaced_file_are_not_reported() {
    let server = HoldfastServer::start(&smb_tests::Options {
        share: "host_changes = false".to_owned(),
        ..smb_tests::Options::default()
    });
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("new", b"new").unwrap();
    tree.write_file("f", b"old").unwrap();
    let theirs = other.create(&CreateArgs::open("f")).unwrap();
    theirs.write_all(0, b"OLD").unwrap();
    assert_eq!(rename(&tree, "new", "f", POSIX), Status::SUCCESS);
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let filter = NotifyFilter::FILE_NAME | NotifyFilter::SIZE | NotifyFilter::LAST_WRITE;
    let flags = ChangeNotifyFlags::empty();
    let id = root.notify(filter, flags, 65_536).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    theirs.set_end_of_file(2).unwrap();
    theirs.close().unwrap();
    other.write_file("later", b"").unwrap();
    let seen = root.changes(tree.client().wait(id).unwrap()).unwrap();
    let first = seen.first().unwrap();
    assert_eq!(first.action, FileAction::ADDED, "{seen:?}");
    assert_eq!(first.file_name, "later");
}

#[test]
fn an_open_file_is_not_replaced_without_the_flag_or_shared_deletion() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("new", b"new").unwrap();
    tree.write_file("f", b"old").unwrap();
    for class in [Class::RENAME_EX, Class::LINK_EX] {
        let read = AccessMask::FILE_GENERIC_READ;
        for (share, flags, refused) in [
            (7, REPLACE, Status::ACCESS_DENIED),
            (
                7,
                RenameFlags::POSIX_SEMANTICS,
                Status::OBJECT_NAME_COLLISION,
            ),
            (3, POSIX, Status::SHARING_VIOLATION),
            (0, POSIX, Status::SHARING_VIOLATION),
        ] {
            let args = CreateArgs::open("f").access(read).share(ShareAccess(share));
            let theirs = other.create(&args).unwrap();
            assert_eq!(set(&tree, class, "new", "f", flags), refused, "{share}");
            assert_eq!(theirs.read_all().unwrap(), b"old");
            assert!(!standard(&theirs).delete_pending);
            theirs.close().unwrap();
        }
    }
    // An attribute-only open takes no part in sharing.
    let args = CreateArgs::open("f").access(AccessMask::FILE_READ_ATTRIBUTES);
    let theirs = other.create(&args.share(ShareAccess(0))).unwrap();
    assert_eq!(rename(&tree, "new", "f", POSIX), Status::SUCCESS);
    assert_eq!(standard(&theirs).number_of_links, 0);
    assert_eq!(tree.read_file("f").unwrap(), b"new");
}

#[test]
fn an_open_stream_prevents_the_replacement_unless_it_shares_deletion() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    for (share, answer) in [(3, Status::SHARING_VIOLATION), (7, Status::SUCCESS)] {
        tree.write_file("new", b"new").unwrap();
        tree.write_file("f:s", b"stream").unwrap();
        let args = CreateArgs::open("f:s").share(ShareAccess(share));
        let theirs = other.create(&args).unwrap();
        assert_eq!(rename(&tree, "new", "f", POSIX), answer, "{share}");
        assert_eq!(theirs.read_all().unwrap(), b"stream");
        theirs.close().unwrap();
    }
    assert_eq!(tree.read_file("f").unwrap(), b"new");
    assert_eq!(
        status(tree.create(&CreateArgs::open("f:s"))),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

#[test]
fn closing_a_replaced_file_deletes_nothing() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("new", b"new").unwrap();
    tree.write_file("f", b"old").unwrap();
    let doomed = CreateArgs::open("f").options(CreateOptions::DELETE_ON_CLOSE);
    let doomed = other.create(&doomed).unwrap();
    let marking = other.create(&CreateArgs::open("f")).unwrap();
    assert_eq!(rename(&tree, "new", "f", POSIX), Status::SUCCESS);
    marking.set_delete(true).unwrap();
    assert_eq!(
        status(marking.rename("g", false)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    marking.close().unwrap();
    doomed.close().unwrap();
    assert_eq!(tree.read_file("f").unwrap(), b"new");
    assert_eq!(names(&tree), ["f"]);
}

#[test]
fn a_file_with_a_pending_deletion_is_not_replaced() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("new", b"new").unwrap();
    tree.write_file("f", b"old").unwrap();
    let theirs = other.create(&CreateArgs::open("f")).unwrap();
    theirs.set_delete(true).unwrap();
    assert_eq!(rename(&tree, "new", "f", POSIX), Status::DELETE_PENDING);
    theirs.close().unwrap();
    assert_eq!(rename(&tree, "new", "f", POSIX), Status::SUCCESS);
}

#[test]
fn other_links_of_a_replaced_file_remain() {
    let server = HoldfastServer::new();
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("new", b"new").unwrap();
    tree.write_file("f", b"old").unwrap();
    std::fs::hard_link(server.path("f"), server.path("g")).unwrap();
    let by_f = other.create(&CreateArgs::open("f")).unwrap();
    let by_g = other.create(&CreateArgs::open("g")).unwrap();
    assert_eq!(rename(&tree, "new", "f", POSIX), Status::SUCCESS);
    assert!(standard(&by_f).delete_pending && !standard(&by_g).delete_pending);
    by_f.write_all(0, b"OLD").unwrap();
    assert_eq!(tree.read_file("g").unwrap(), b"OLD");
    by_g.set_delete(true).unwrap();
    by_g.close().unwrap();
    by_f.close().unwrap();
    assert_eq!(names(&tree), ["f"]);
    assert_eq!(tree.read_file("f").unwrap(), b"new");
}

#[test]
fn read_only_files_and_directories_are_not_replaced() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("new", b"new").unwrap();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"old").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    let mut basic = BytesMut::new();
    FileBasicInformation {
        file_attributes: FileAttributes::READONLY,
        ..FileBasicInformation::default()
    }
    .encode(&mut basic);
    file.set(Class::BASIC, &basic).unwrap();
    file.close().unwrap();
    for class in [Class::RENAME_EX, Class::LINK_EX] {
        let refused = Status::ACCESS_DENIED;
        assert_eq!(set(&tree, class, "new", "f", POSIX), refused);
        assert_eq!(set(&tree, class, "new", "d", POSIX), refused);
    }
    let ignoring = POSIX | RenameFlags::IGNORE_READONLY_ATTRIBUTE;
    assert_eq!(rename(&tree, "new", "d", ignoring), Status::ACCESS_DENIED);
    assert_eq!(rename(&tree, "new", "f", ignoring), Status::SUCCESS);
    assert_eq!(tree.read_file("f").unwrap(), b"new");
}

#[test]
fn the_caching_of_a_replaced_file_is_broken_and_can_be_granted_on_the_new_one() {
    const KEY: LeaseKey = LeaseKey([7; 16]);
    let server = HoldfastServer::new();
    let (tree, other) = (
        server.tree_with(Options::default().guid(Guid([1; 16]))),
        server.tree_with(Options::default().guid(Guid([2; 16]))),
    );
    tree.write_file("new", b"new").unwrap();
    tree.write_file("f", b"old").unwrap();
    let leased = CreateArgs::open("f").lease_v2(KEY, LeaseState(7), 0);
    let theirs = other.create(&leased).unwrap();
    let file = tree.create(&CreateArgs::open("new")).unwrap();
    let request = file.set_info_request(InfoType::FILE, Class::RENAME_EX.0, 0, &info("f", POSIX));
    let id = tree.send(request).unwrap();
    let mut left = Vec::new();
    while left.last() != Some(&0) {
        let broken = other.client().next_break(SOON).unwrap();
        let broken = broken.unwrap_or_else(|| panic!("no break after {left:?}"));
        let Break::Lease {
            key,
            new,
            ack_required,
            ..
        } = broken
        else {
            panic!("{broken:?}");
        };
        left.push(new.0);
        if ack_required {
            other.acknowledge_lease(key, new).unwrap();
        }
    }
    let mut connection = tree.client().connection();
    assert!(connection.answered(id, SOON).unwrap());
    drop(connection);
    tree.client().wait(id).unwrap().ok().unwrap();
    // The client identifies files by their names, so it uses the same key for the new file.
    let again = other.create(&leased).unwrap();
    assert_eq!(again.read_all().unwrap(), b"new");
    assert_eq!(theirs.read_all().unwrap(), b"old");
}

#[test]
fn readers_see_one_version_or_the_other() {
    const VERSIONS: usize = 60;
    let server = HoldfastServer::new();
    server.tree().write_file("f", &[0; 3000]).unwrap();
    std::thread::scope(|scope| {
        for writer in 1..=2u8 {
            let tree = server.tree();
            scope.spawn(move || {
                let temporary = format!("t{writer}");
                for version in 0..VERSIONS {
                    let content = [writer * 60 + u8::try_from(version).unwrap(); 3000];
                    tree.write_file(&temporary, &content).unwrap();
                    let renamed = rename(&tree, &temporary, "f", POSIX);
                    assert_eq!(renamed, Status::SUCCESS, "{writer} {version}");
                }
            });
        }
        for _ in 0..2 {
            let tree = server.tree();
            scope.spawn(move || {
                for _ in 0..VERSIONS * 2 {
                    let file = tree.create(&CreateArgs::open("f")).unwrap();
                    let content = file.read_all().unwrap();
                    file.close().unwrap();
                    assert_eq!(content.len(), 3000);
                    assert!(content.iter().all(|byte| *byte == content[0]));
                }
            });
        }
    });
    assert_eq!(names(&server.tree()), ["f"]);
}
