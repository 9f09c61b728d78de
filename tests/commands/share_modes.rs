//! All combinations of access and share modes of two opens ([MS-FSA] 2.1.5.1.2.2).

use smb_client::{CreateArgs, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{CreateDisposition, CreateOptions, ShareAccess};

const READ: AccessMask = AccessMask::FILE_READ_DATA;
const WRITE: AccessMask = AccessMask::FILE_WRITE_DATA;
const APPEND: AccessMask = AccessMask::FILE_APPEND_DATA;
const EXECUTE: AccessMask = AccessMask::FILE_EXECUTE;
const DELETE: AccessMask = AccessMask::DELETE;
/// Rights to the metadata of a file, not to its data.
const ABOUT: AccessMask = AccessMask(
    AccessMask::FILE_READ_ATTRIBUTES.0
        | AccessMask::FILE_WRITE_ATTRIBUTES.0
        | AccessMask::FILE_READ_EA.0
        | AccessMask::FILE_WRITE_EA.0
        | AccessMask::READ_CONTROL.0
        | AccessMask::SYNCHRONIZE.0,
);
const ALL: u32 = 7;

fn shares() -> impl Iterator<Item = ShareAccess> {
    (0..=ALL).map(ShareAccess)
}

/// The rule of the specification: if two opens both access data, neither may have access that the
/// other does not share.
fn conflict(first: (AccessMask, ShareAccess), second: (AccessMask, ShareAccess)) -> bool {
    let touches = READ | EXECUTE | WRITE | APPEND | DELETE;
    if !first.0.intersects(touches) || !second.0.intersects(touches) {
        return false;
    }
    let denied = |share: ShareAccess, access: AccessMask| {
        [
            (ShareAccess::READ, READ | EXECUTE),
            (ShareAccess::WRITE, WRITE | APPEND),
            (ShareAccess::DELETE, DELETE),
        ]
        .into_iter()
        .any(|(shared, uses)| !share.contains(shared) && access.intersects(uses))
    };
    denied(first.1, second.0) || denied(second.1, first.0)
}

/// Opens and closes in one message; returns the status of the open.
fn attempt(tree: &Tree, name: &str, access: AccessMask, share: ShareAccess) -> Status {
    let open = CreateArgs::open(name).access(access).share(share);
    let close = Request::close(FileId::ANY);
    let requests = vec![tree.address(open.request()), tree.address(close).related()];
    let replies = tree.client().compound(requests).unwrap();
    replies[0].status()
}

fn matrix(name: &str, held: &Tree, tried: &Tree, accesses: &[AccessMask]) {
    for first in accesses.iter().copied() {
        for first_share in shares() {
            let open = CreateArgs::open(name).access(first).share(first_share);
            let file = held.create(&open).unwrap();
            for second in accesses.iter().copied() {
                for second_share in shares() {
                    let expected = if conflict((first, first_share), (second, second_share)) {
                        Status::SHARING_VIOLATION
                    } else {
                        Status::SUCCESS
                    };
                    assert_eq!(
                        attempt(tried, name, second, second_share),
                        expected,
                        "{first:?} {first_share:?}, then {second:?} {second_share:?}"
                    );
                }
            }
            file.close().unwrap();
        }
    }
}

#[test]
fn every_access_beside_every_other() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    matrix(
        "f",
        &held,
        &tried,
        &[READ, EXECUTE, WRITE, APPEND, DELETE, ABOUT],
    );
}

#[test]
fn opens_of_one_connection_are_checked_in_the_same_way() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    matrix("f", &tree, &tree, &[READ, WRITE, DELETE]);
}

#[test]
fn directories_share_like_files() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.mkdir("d").unwrap();
    matrix("d", &held, &tried, &[READ, WRITE, DELETE, ABOUT]);
}

#[test]
fn a_stream_has_its_own_share_mode() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    held.write_file("f:s", b"stream").unwrap();
    matrix("f:s", &held, &tried, &[READ, WRITE, DELETE]);
    // An exclusive open of one stream does not exclude opens of the other.
    let alone = |name: &str| {
        let args = CreateArgs::open(name).access(READ | WRITE);
        args.share(ShareAccess::empty())
    };
    let base = held.create(&alone("f")).unwrap();
    let stream = tried.create(&alone("f:s")).unwrap();
    assert_eq!(status(tried.create(&alone("f"))), Status::SHARING_VIOLATION);
    assert_eq!(
        status(held.create(&alone("f:s"))),
        Status::SHARING_VIOLATION
    );
    base.close().unwrap();
    stream.close().unwrap();
}

#[test]
fn the_share_modes_of_all_holders_are_checked() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    let open = |share| {
        let args = CreateArgs::open("f").access(READ).share(share);
        held.create(&args).unwrap()
    };
    let all = open(ShareAccess(ALL));
    let readers = open(ShareAccess::READ);
    let try_write = || attempt(&tried, "f", WRITE, ShareAccess(ALL));
    assert_eq!(try_write(), Status::SHARING_VIOLATION);
    readers.close().unwrap();
    assert_eq!(try_write(), Status::SUCCESS);
    all.close().unwrap();
}

#[test]
fn maximum_allowed_counts_as_the_granted_access() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    let readers = CreateArgs::open("f").access(READ).share(ShareAccess::READ);
    let file = held.create(&readers).unwrap();
    let max = AccessMask::MAXIMUM_ALLOWED;
    assert_eq!(
        attempt(&tried, "f", max, ShareAccess(ALL)),
        Status::SHARING_VIOLATION
    );
    file.close().unwrap();
    assert_eq!(attempt(&tried, "f", max, ShareAccess(ALL)), Status::SUCCESS);
}

#[test]
fn generic_rights_count_as_the_mapped_rights() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    let alone = |access| {
        CreateArgs::open("f")
            .access(access)
            .share(ShareAccess::empty())
    };
    let file = held.create(&alone(READ)).unwrap();
    for generic in [
        AccessMask::GENERIC_READ,
        AccessMask::GENERIC_WRITE,
        AccessMask::GENERIC_EXECUTE,
        AccessMask::GENERIC_ALL,
    ] {
        assert_eq!(
            attempt(&tried, "f", generic, ShareAccess(ALL)),
            Status::SHARING_VIOLATION,
            "{generic:?}"
        );
    }
    file.close().unwrap();
}

#[test]
fn an_overwrite_that_may_not_write_beside_others_changes_nothing() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    let readers = CreateArgs::open("f").access(READ).share(ShareAccess::READ);
    let _file = held.create(&readers).unwrap();
    for disposition in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        let args = CreateArgs::new("f", disposition).access(WRITE);
        assert_eq!(
            status(tried.create(&args)),
            Status::SHARING_VIOLATION,
            "{disposition:?}"
        );
        assert_eq!(std::fs::read(server.path("f")).unwrap(), b"content");
    }
}

/// Overwriting dispositions, and the access that they imply beside writing.
const OVERWRITING: [(CreateDisposition, ShareAccess); 3] = [
    (CreateDisposition::OVERWRITE, ShareAccess(0)),
    (CreateDisposition::OVERWRITE_IF, ShareAccess(0)),
    (CreateDisposition::SUPERSEDE, ShareAccess::DELETE),
];

#[test]
fn an_overwrite_counts_as_a_write_with_any_desired_access() {
    // [MS-FSA] 2.1.5.1.2: the right to write, or to delete for SUPERSEDE, is added to the requested
    // ones.
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    for name in ["f", "f:s"] {
        for (disposition, deletes) in OVERWRITING {
            for access in [READ, AccessMask::FILE_READ_ATTRIBUTES, ABOUT] {
                for share in shares() {
                    held.write_file(name, b"content").unwrap();
                    let open = CreateArgs::open(name).access(READ).share(share);
                    let file = held.create(&open).unwrap();
                    let reads = access.intersects(READ) && !share.contains(ShareAccess::READ);
                    let expected = if !share.contains(ShareAccess::WRITE | deletes) || reads {
                        Status::SHARING_VIOLATION
                    } else {
                        Status::SUCCESS
                    };
                    let args = CreateArgs::new(name, disposition).access(access);
                    let what = format!("{name} {disposition:?} {access:?} {share:?}");
                    let opened = tried.create(&args).and_then(|file| file.close());
                    assert_eq!(status(opened), expected, "{what}");
                    let left = held.read_file(name);
                    if expected != Status::SUCCESS && share.contains(ShareAccess::READ) {
                        assert_eq!(left.unwrap(), b"content", "{what}");
                    }
                    file.close().unwrap();
                }
            }
        }
    }
}

#[test]
fn after_an_overwrite_only_the_desired_access_counts_for_sharing() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    // The overwriting open takes part in sharing: it does not share with the existing reader.
    let alone = CreateArgs::new("f", CreateDisposition::OVERWRITE)
        .access(AccessMask::FILE_READ_ATTRIBUTES)
        .share(ShareAccess::WRITE);
    let reader = CreateArgs::open("f").access(READ);
    let file = held.create(&reader).unwrap();
    assert_eq!(status(tried.create(&alone)), Status::SHARING_VIOLATION);
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"content");
    file.close().unwrap();
    // After the overwrite it only reads.
    let overwrite = CreateArgs::new("f", CreateDisposition::OVERWRITE).access(READ);
    let _overwritten = tried.create(&overwrite).unwrap();
    assert_eq!(
        attempt(&held, "f", READ, ShareAccess::READ),
        Status::SUCCESS
    );
}

#[test]
fn an_overwrite_does_not_delete_a_stream_against_its_share_mode() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    for (disposition, _) in OVERWRITING {
        held.write_file("f", b"content").unwrap();
        held.write_file("f:s", b"stream").unwrap();
        let open = CreateArgs::open("f:s").access(READ);
        let keeps = open.clone().share(ShareAccess::READ | ShareAccess::WRITE);
        let stream = held.create(&keeps).unwrap();
        let args = CreateArgs::new("f", disposition).access(READ);
        let refused = status(tried.create(&args));
        assert_eq!(refused, Status::SHARING_VIOLATION, "{disposition:?}");
        assert_eq!(std::fs::read(server.path("f")).unwrap(), b"content");
        assert_eq!(stream.read(0, 100).unwrap(), b"stream");
        stream.close().unwrap();
        // If its deletion is shared, the stream is deleted with its last handle.
        let stream = held.create(&open).unwrap();
        tried.create(&args).unwrap().close().unwrap();
        assert_eq!(stream.read(0, 100).unwrap(), b"stream", "{disposition:?}");
        assert_eq!(
            status(tried.create(&CreateArgs::open("f:s"))),
            Status::DELETE_PENDING
        );
        stream.close().unwrap();
        assert_eq!(
            status(tried.create(&CreateArgs::open("f:s"))),
            Status::OBJECT_NAME_NOT_FOUND
        );
    }
}

#[test]
fn an_open_stream_without_shared_deletion_excludes_delete_access_to_the_file() {
    // [MS-FSA] 2.1.5.1.2.1.
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f:s", b"stream").unwrap();
    let delete = CreateArgs::open("f").access(DELETE);
    let keeps = CreateArgs::open("f:s")
        .access(READ)
        .share(ShareAccess::READ);
    for (first, second) in [(&delete, &keeps), (&keeps, &delete)] {
        let file = held.create(first).unwrap();
        assert_eq!(status(tried.create(second)), Status::SHARING_VIOLATION);
        file.close().unwrap();
    }
    let _file = held.create(&delete).unwrap();
    assert_eq!(
        attempt(&tried, "f:s", READ, ShareAccess(ALL)),
        Status::SUCCESS
    );
    assert_eq!(
        attempt(&tried, "f:s", ABOUT, ShareAccess(0)),
        Status::SUCCESS
    );
}

#[test]
fn delete_on_close_needs_the_others_to_share_deletion() {
    let server = HoldfastServer::new();
    let (held, tried) = (server.tree(), server.tree());
    held.write_file("f", b"content").unwrap();
    let args = CreateArgs::open("f")
        .access(READ)
        .share(ShareAccess::READ | ShareAccess::WRITE);
    let file = held.create(&args).unwrap();
    let delete = CreateArgs::open("f")
        .access(DELETE)
        .options(CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(status(tried.create(&delete)), Status::SHARING_VIOLATION);
    file.close().unwrap();
    assert!(server.path("f").exists());
    tried.create(&delete).unwrap().close().unwrap();
    assert!(!server.path("f").exists());
}
