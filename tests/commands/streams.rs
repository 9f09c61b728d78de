//! Named streams in the configured storage of the share: extended attributes, or files below
//! `.streams`.

use std::process::{Command, Output};

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, Options, binary, state::xattrs, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseState;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{CreateOptions, LockFlags, ShareAccess};

fn start(place: &str) -> HoldfastServer {
    HoldfastServer::start(&Options {
        share: format!("streams = \"{place}\""),
        ..Options::default()
    })
}

fn stream(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

/// Returns the names of the extended attributes of a file that contain a stream or refer to one.
fn attributes(server: &HoldfastServer, name: &str) -> Vec<String> {
    let all = xattrs(&server.path(name)).into_iter().map(|(name, _)| name);
    let mut all: Vec<_> = all
        .filter(|name| {
            !matches!(
                name.as_str(),
                "user.DOSATTRIB" | "security.NTACL" | "user.NTACL"
            )
        })
        .collect();
    all.sort();
    all
}

#[test]
fn all_streams_are_in_one_storage() {
    for place in ["xattr", "depot"] {
        let server = start(place);
        let tree = server.tree();
        tree.write_file("f", b"data").unwrap();
        tree.create(&CreateArgs::create_directory("d")).unwrap();
        let most = if place == "xattr" { 1000 } else { 10 << 20 };
        for name in ["f:a", "f:b", "d:c"] {
            for size in [0, 10, most] {
                stream(&tree, name).close().unwrap();
                tree.write_file(name, &vec![7; size]).unwrap();
                assert!(
                    tree.read_file(name).unwrap() == vec![7; size],
                    "{name} {size}"
                );
            }
        }
        let depot = server.path(".streams").exists();
        let found = (attributes(&server, "f"), attributes(&server, "d"), depot);
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let mark = names(&["user.DosStream./depot", "user.SAMBA_STREAMS"]);
        let expected = match place {
            "xattr" => (
                names(&["user.DosStream.a:$DATA", "user.DosStream.b:$DATA"]),
                names(&["user.DosStream.c:$DATA"]),
                false,
            ),
            _ => (mark.clone(), mark, true),
        };
        assert_eq!(found, expected, "{place}");
        // Clients do not see any of them as extended attributes.
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        let eas = file.query(FileInformationClass::FULL_EA);
        assert!(eas.is_err() || eas.unwrap().is_empty());
    }
}

/// [MS-FSA] 2.1.5.1.1 <54>: a stream that is too large is refused, as ReFS does.
#[test]
fn a_stream_that_attributes_cannot_hold_is_refused_entirely() {
    let server = start("xattr");
    let tree = server.tree();
    let file = stream(&tree, "f:s");
    file.write_all(0, b"before").unwrap();
    for size in [65_536, 1 << 20] {
        let written = file.write_all(0, &vec![1; size]);
        assert_eq!(status(written), Status::FILE_SYSTEM_LIMITATION, "{size}");
        let behind = file.write_all(size as u64, b"!");
        assert_eq!(status(behind), Status::FILE_SYSTEM_LIMITATION, "{size}");
        let end = file.set_end_of_file(size as u64);
        assert_eq!(status(end), Status::FILE_SYSTEM_LIMITATION, "{size}");
    }
    let allocation = (1u64 << 20).to_le_bytes();
    let reserved = file.set(FileInformationClass::ALLOCATION, &allocation);
    assert_eq!(status(reserved), Status::FILE_SYSTEM_LIMITATION);
    assert_eq!(file.read_all().unwrap(), b"before");
    file.flush(false).unwrap();
    let long = |len| CreateArgs::create(&format!("f:{}", "n".repeat(len)));
    tree.create(&long(234)).unwrap();
    assert_eq!(
        tree.create_status(&long(235)).unwrap(),
        Status::NAME_TOO_LONG
    );
    assert!(!server.path(".streams").exists());
}

fn convert(server: &HoldfastServer, share: &str) -> Output {
    Command::new(binary())
        .args(["convert-streams", share, "--config"])
        .arg(server.config())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Converts a share from one storage to the other and back, with streams that cannot be converted
/// in between.
#[test]
fn a_share_is_converted() {
    let mut server = start("depot");
    let write = |tree: &Tree| {
        tree.create(&CreateArgs::create_directory("d")).unwrap();
        tree.write_file("d\\f:empty", b"").unwrap();
        tree.write_file("d\\f:odd 'näme' %41 .", b"odd").unwrap();
        tree.write_file("d:of a folder", b"folder").unwrap();
        tree.write_file("big:small", b"small").unwrap();
        tree.write_file("big:large", &[1; 100_000]).unwrap();
    };
    let check = |server: &HoldfastServer| {
        let tree = server.tree();
        assert_eq!(tree.read_file("d\\f:empty").unwrap(), b"");
        assert_eq!(tree.read_file("d\\f:odd 'näme' %41 .").unwrap(), b"odd");
        assert_eq!(tree.read_file("d:of a folder").unwrap(), b"folder");
        assert_eq!(tree.read_file("big:small").unwrap(), b"small");
        assert_eq!(tree.read_file("big:large").unwrap(), [1; 100_000]);
    };
    let places = |server: &HoldfastServer| {
        ["d/f", "d", "big"].map(|name| {
            let attributes = attributes(server, name);
            (
                attributes.iter().any(|name| name.ends_with(":$DATA")),
                attributes.iter().any(|name| name == "user.SAMBA_STREAMS"),
            )
        })
    };
    write(&server.tree());
    let running = convert(&server, "data");
    assert_eq!(running.status.code(), Some(1), "{}", said(&running));
    assert!(said(&running).contains("runs"), "{}", said(&running));
    for (from, to, status, expected) in [
        (
            "depot",
            "xattr",
            1,
            [(true, false), (true, false), (false, true)],
        ),
        ("xattr", "depot", 0, [(false, true); 3]),
    ] {
        server.stop_and_restart_after(|server| {
            let config = std::fs::read_to_string(server.config()).unwrap();
            let (from, to) = (format!("\"{from}\""), format!("\"{to}\""));
            std::fs::write(server.config(), config.replace(&from, &to)).unwrap();
            let converted = convert(server, "DATA");
            let said = said(&converted);
            assert_eq!(converted.status.code(), Some(status), "{said}");
            assert!(said.contains("d/f: 2 streams, 3 bytes"), "{said}");
            assert_eq!(said.contains("big: stays as it is"), status == 1, "{said}");
            assert_eq!(places(server), expected);
            let again = convert(server, "data");
            assert_eq!(again.status.code(), Some(status));
        });
        check(&server);
    }
}

/// [MS-FSA] 2.1.5.15.12.1: after its rename the open is one of the stream under the new name, for share modes, locks
/// and deletion as well.
#[test]
fn a_renamed_stream_takes_its_state_along() {
    for place in ["xattr", "depot"] {
        let server = start(place);
        let (tree, other) = (server.tree(), server.tree());
        tree.write_file("f", b"data").unwrap();
        let access = AccessMask::FILE_ALL_ACCESS;
        let open = |tree: &Tree, name: &str, share| {
            let args = CreateArgs::open_if(name).access(access).share(share);
            tree.create(&args)
        };
        let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
        let file = open(&tree, "f:a", ShareAccess::empty()).unwrap();
        file.write_all(0, b"content").unwrap();
        file.rename(":b", false).unwrap();
        let denied = status(open(&other, "f:b", all));
        assert_eq!(denied, Status::SHARING_VIOLATION, "{place}");
        // The old name belongs to nobody, so another stream may have it.
        let new = open(&other, "f:a", ShareAccess::empty()).unwrap();
        new.close().unwrap();
        file.close().unwrap();

        let file = open(&tree, "f:b", all).unwrap();
        file.rename(":c", false).unwrap();
        let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        file.lock(0, 4, exclusive).unwrap();
        let reader = open(&other, "f:c", all).unwrap();
        assert_eq!(status(reader.read(0, 4)), Status::FILE_LOCK_CONFLICT);
        reader.close().unwrap();
        file.unlock(0, 4).unwrap();
        file.set_delete(true).unwrap();
        assert_eq!(status(open(&other, "f:c", all)), Status::DELETE_PENDING);
        assert_eq!(status(open(&other, "f:a", all)), Status::SUCCESS);
        file.close().unwrap();
        let gone = status(other.create(&CreateArgs::open("f:c")));
        assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND, "{place}");
        assert_eq!(tree.read_file("f").unwrap(), b"data");
    }
}

/// An open by a name that is just being given or taken waits, and finds the stream or does not.
#[test]
fn an_open_waits_for_the_rename_of_its_stream() {
    let server = start("xattr");
    let (tree, other) = (server.tree(), server.tree());
    let all = CreateArgs::open_if("f:a").access(AccessMask::FILE_ALL_ACCESS);
    let file = tree.create(&all).unwrap();
    let asks = CreateArgs::open("f:b").access(AccessMask::FILE_READ_ATTRIBUTES);
    std::thread::scope(|scope| {
        let renames = scope.spawn(|| {
            for to in [":b", ":a"].into_iter().cycle().take(200) {
                // The rename itself is refused while the other handle is open.
                while status(file.rename(to, false)) == Status::SHARING_VIOLATION {}
            }
        });
        while !renames.is_finished() {
            match other.create(&asks) {
                Ok(opened) => opened.close().unwrap(),
                Err(error) => assert_eq!(error.status(), Some(Status::OBJECT_NAME_NOT_FOUND)),
            }
        }
    });
}

/// Only an empty stream is replaced, so it has been written to after the rename, or the rename is refused.
#[test]
fn a_stream_that_is_written_to_meanwhile_is_not_replaced() {
    let server = start("xattr");
    let (tree, other) = (server.tree(), server.tree());
    let all = CreateArgs::open_if("f:a").access(AccessMask::FILE_ALL_ACCESS);
    tree.write_file("f", b"data").unwrap();
    for _ in 0..100 {
        tree.write_file("f:b", b"").unwrap();
        let file = tree.create(&all).unwrap();
        let wrote = std::thread::scope(|scope| {
            // Either may find the stream gone or not empty.
            scope.spawn(|| file.rename(":b", true).is_ok());
            status(other.write_file("f:b", b"kept"))
        });
        if wrote == Status::SUCCESS {
            assert_eq!(other.read_file("f:b").unwrap(), b"kept");
        }
        file.close().unwrap();
    }
}

/// Another handle would keep the old name.
#[test]
fn a_stream_that_others_have_open_is_not_renamed() {
    let server = start("xattr");
    let (tree, other) = (server.tree(), server.tree());
    tree.write_file("f", b"data").unwrap();
    let all = CreateArgs::open_if("f:a").access(AccessMask::FILE_ALL_ACCESS);
    let file = tree.create(&all).unwrap();
    let second = other.create(&CreateArgs::open("f:a")).unwrap();
    assert_eq!(status(file.rename(":b", false)), Status::SHARING_VIOLATION);
    second.close().unwrap();
    file.rename(":b", false).unwrap();
    // A rename that fails on disk leaves neither name reserved.
    tree.write_file("f:taken", b"data").unwrap();
    let refused = status(file.rename(":taken", false));
    assert_eq!(refused, Status::OBJECT_NAME_COLLISION);
    assert_eq!(tree.read_file("f:taken").unwrap(), b"data");
    file.rename(":a", false).unwrap();
    file.close().unwrap();
    assert_eq!(status(tree.read_file("f:a")), Status::SUCCESS);
}

#[test]
fn a_handle_of_a_stream_serves_its_file_wherever_the_host_moves_that() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"data").unwrap();
    let stream = stream(&tree, "f:s");
    let list = stream.query(FileInformationClass::STREAM).unwrap();
    std::fs::rename(server.path("f"), server.path("moved")).unwrap();
    assert_eq!(stream.query(FileInformationClass::STREAM).unwrap(), list);
    stream.rename(":t", false).unwrap();
    tree.create(&CreateArgs::open("moved:t")).unwrap();
}

/// [MS-FSA] 2.1.5.15.12.1.
#[test]
fn malformed_new_names_of_streams_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for on in ["f:a", "d:a"] {
        let file = stream(&tree, on);
        let long = format!(":{}:$DATA", "x".repeat(256));
        for (name, refused) in [
            (":", Status::INVALID_PARAMETER),
            ("::", Status::INVALID_PARAMETER),
            (":b:", Status::INVALID_PARAMETER),
            (":b:$DATA:", Status::INVALID_PARAMETER),
            (":b:c:$DATA", Status::INVALID_PARAMETER),
            (":b/c:$DATA", Status::INVALID_PARAMETER),
            (":b\\c:$DATA", Status::INVALID_PARAMETER),
            (long.as_str(), Status::INVALID_PARAMETER),
            (":b:$INDEX_ALLOCATION", Status::OBJECT_TYPE_MISMATCH),
            (":b:$WHAT", Status::OBJECT_TYPE_MISMATCH),
        ] {
            assert_eq!(status(file.rename(name, false)), refused, "{on} {name}");
        }
        assert_eq!(status(file.rename(":b:$DATA", false)), Status::SUCCESS);
        assert_eq!(status(file.rename(":C", false)), Status::SUCCESS);
    }
    // The unnamed stream keeps its name, and no other stream gets it.
    tree.write_file("g", b"data").unwrap();
    let unnamed = tree.create(&CreateArgs::open("g")).unwrap();
    assert_eq!(status(unnamed.rename("::$data", false)), Status::SUCCESS);
    let refused = status(unnamed.rename(":s", false));
    assert_eq!(refused, Status::INVALID_PARAMETER);
    let named = stream(&tree, "g:s");
    let onto = |replace| status(named.rename("::$DATA", replace));
    assert_eq!(onto(false), Status::OBJECT_NAME_COLLISION);
    assert_eq!(onto(true), Status::INVALID_PARAMETER);
    assert_eq!(tree.read_file("g").unwrap(), b"data");
    let directory = CreateArgs::directory("d").access(AccessMask::DELETE);
    let directory = tree.create(&directory).unwrap();
    let to = |name| status(directory.rename(name, false));
    assert_eq!(to(":b:$DATA"), Status::OBJECT_TYPE_MISMATCH);
    assert_eq!(to(":b:$INDEX_ALLOCATION"), Status::INVALID_PARAMETER);
    // A directory has no unnamed data stream.
    assert_eq!(to("::$DATA"), Status::INVALID_PARAMETER);
}

/// The file that would carry a stream is not made if the stream cannot have its name.
#[test]
fn a_stream_whose_name_is_too_long_makes_no_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["s".repeat(240), "\u{e9}".repeat(200)] {
        let new = CreateArgs::create(&format!("new:{name}"));
        assert_eq!(status(tree.create(&new)), Status::NAME_TOO_LONG);
        assert!(!server.path("new").exists());
    }
    let new = CreateArgs::create(&format!("new:{}", "s".repeat(200)));
    tree.create(&new).unwrap().close().unwrap();
    assert!(server.path("new").exists());
}

/// [MS-FSA] 2.1.5.1.1: the attributes of a file do not concern the open that makes it.
#[test]
fn a_stream_is_written_by_the_open_that_makes_its_read_only_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let new = |name: &str| CreateArgs::create(name).attributes(FileAttributes::READONLY);
    let stream = tree.create(&new("new:s")).unwrap();
    stream.write_all(0, b"once").unwrap();
    stream.close().unwrap();
    let again = CreateArgs::open("new:s").access(AccessMask::FILE_WRITE_DATA);
    assert_eq!(status(tree.create(&again)), Status::ACCESS_DENIED);
    assert_eq!(tree.read_file("new:s").unwrap(), b"once");
    let doomed = new("doomed:s").options(CreateOptions::DELETE_ON_CLOSE);
    assert_eq!(status(tree.create(&doomed)), Status::CANNOT_DELETE);
    assert!(!server.path("doomed").exists());
}

/// [MS-FSA] 2.1.5.1.2.1: READONLY refuses rights to write that the open asks for; a new stream alone is none.
#[test]
fn a_stream_of_a_read_only_file_is_made_but_not_written() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let readonly = |name: &str| CreateArgs::create(name).attributes(FileAttributes::READONLY);
    tree.create(&readonly("f")).unwrap().close().unwrap();
    let writing = CreateArgs::create("f:s").access(AccessMask::FILE_WRITE_DATA);
    assert_eq!(status(tree.create(&writing)), Status::ACCESS_DENIED);
    for name in ["f:s", "new:s"] {
        let reading = readonly(name).access(AccessMask::FILE_READ_DATA);
        tree.create(&reading).unwrap().close().unwrap();
        let again = CreateArgs::open(name).access(AccessMask::FILE_WRITE_DATA);
        assert_eq!(status(tree.create(&again)), Status::ACCESS_DENIED);
        let there = CreateArgs::open(name).access(AccessMask::FILE_READ_DATA);
        tree.create(&there).unwrap().close().unwrap();
    }
}

#[test]
fn a_new_stream_whose_open_waits_for_a_break_is_not_found_afterwards() {
    let server = HoldfastServer::new();
    let client = |number| {
        let options = smb_client::Options::default();
        server.tree_with(options.guid(Guid([number; 16])))
    };
    let (holder, other) = (client(1), client(2));
    let (key, state) = (LeaseKey([1; 16]), LeaseState::READ | LeaseState::HANDLE);
    let deleting = CreateArgs::open_if("f").access(AccessMask::FILE_READ_DATA | AccessMask::DELETE);
    let file = holder.create(&deleting.lease_v2(key, state, 0)).unwrap();
    let new = CreateArgs::create("f:s").share(ShareAccess::READ | ShareAccess::WRITE);
    let id = other.send(new.request()).unwrap();
    other.client().wait_pending(id).unwrap().unwrap();
    file.close().unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
}

/// The mark of the file can be taken back, and handles of its streams remain valid as long as they are open.
#[test]
fn a_stream_is_truncated_although_its_file_is_to_be_deleted() {
    for place in ["xattr", "depot"] {
        let server = start(place);
        let tree = server.tree();
        tree.write_file("f:s", b"content").unwrap();
        let stream = stream(&tree, "f:s");
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        file.set_delete(true).unwrap();
        stream.set_end_of_file(3).unwrap();
        assert_eq!(stream.read_all().unwrap(), b"con");
        file.set_delete(false).unwrap();
        assert_eq!(tree.read_file("f:s").unwrap(), b"con");
    }
}
