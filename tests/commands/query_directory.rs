//! QUERY_DIRECTORY ([MS-SMB2] 3.3.5.18, [MS-FSA] 2.1.5.6.3).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{DirectoryEntries, DirectoryFormat, FileInformationClass};
use smb_wire::ids::FileId;
use smb_wire::msg::{QueryDirectoryFlags, QueryDirectoryRequest};

const NAMES: FileInformationClass = FileInformationClass::NAMES;
const NONE: QueryDirectoryFlags = QueryDirectoryFlags::empty();
const RESTART: QueryDirectoryFlags = QueryDirectoryFlags::RESTART_SCANS;

fn root(tree: &Tree) -> File {
    tree.create(&CreateArgs::directory("")).unwrap()
}

fn names(bytes: &[u8]) -> Vec<String> {
    DirectoryEntries::new(DirectoryFormat::of(NAMES).unwrap(), bytes)
        .map(|entry| entry.unwrap().file_name)
        .collect()
}

fn ask(directory: &File, pattern: &str, flags: QueryDirectoryFlags) -> Result<Vec<String>, Status> {
    match directory.query_directory(NAMES, pattern, flags, 65_536) {
        Ok(bytes) => Ok(names(&bytes)),
        Err(error) => Err(error.status().unwrap_or_else(|| panic!("{error}"))),
    }
}

fn fill(server: &HoldfastServer, names: &[&str]) {
    for name in names {
        std::fs::write(server.path(name), b"x").unwrap();
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn everything_is_listed_once() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let expected: Vec<String> = (0..500).map(|i| format!("file number {i:04}")).collect();
    for name in &expected {
        std::fs::write(server.path(name), b"").unwrap();
    }
    let directory = root(&tree);
    let mut seen = Vec::new();
    // Small buffers, so that many requests are needed.
    while let Ok(bytes) = directory.query_directory(NAMES, "*", NONE, 1024) {
        seen.extend(names(&bytes));
    }
    assert_eq!(seen[..2], [".", ".."]);
    assert_eq!(sorted(seen.split_off(2)), expected);
    assert_eq!(ask(&directory, "*", NONE), Err(Status::NO_MORE_FILES));
}

#[test]
fn every_class_returns_the_same_names() {
    let server = HoldfastServer::new();
    fill(&server, &["one", "two"]);
    let tree = server.tree();
    for class in [
        FileInformationClass::DIRECTORY,
        FileInformationClass::FULL_DIRECTORY,
        FileInformationClass::BOTH_DIRECTORY,
        FileInformationClass::ID_BOTH_DIRECTORY,
        FileInformationClass::ID_FULL_DIRECTORY,
        FileInformationClass::NAMES,
    ] {
        let directory = root(&tree);
        let bytes = directory.query_directory(class, "*", NONE, 65_536).unwrap();
        let format = DirectoryFormat::of(class).unwrap();
        let entries: Vec<_> = DirectoryEntries::new(format, &bytes)
            .map(|entry| entry.unwrap())
            .collect();
        let seen = entries.iter().map(|e| e.file_name.clone()).collect();
        assert_eq!(sorted(seen), [".", "..", "one", "two"], "{class}");
        if class != NAMES {
            let one = entries.iter().find(|e| e.file_name == "one").unwrap();
            assert_eq!(one.end_of_file, 1, "{class}");
        }
        directory.close().unwrap();
    }
}

#[test]
fn patterns_select_names() {
    let server = HoldfastServer::new();
    fill(&server, &["a.txt", "ab.txt", "b.TXT", "c", "d.tar.gz"]);
    let tree = server.tree();
    for (pattern, expected) in [
        ("a*", &["a.txt", "ab.txt"][..]),
        ("*.txt", &["a.txt", "ab.txt", "b.TXT"]),
        ("?.txt", &["a.txt", "b.TXT"]),
        ("A.TXT", &["a.txt"]),
        // The parent's own name has two dots.
        ("*.*.*", &["..", "d.tar.gz"]),
        ("c", &["c"]),
        // DOS_STAR matches up to the final dot.
        ("<.gz", &["d.tar.gz"]),
        // Behind the final dot it matches everything. Clients send this for `a.*.`.
        ("a\"<", &["a.txt"]),
        // DOS_DOT matches a dot, or nothing at the end.
        ("c\"", &["c"]),
        // DOS_QM matches a character, or nothing before a dot.
        (">>.txt", &["a.txt", "ab.txt", "b.TXT"]),
    ] {
        let directory = root(&tree);
        let seen = ask(&directory, pattern, NONE).unwrap();
        assert_eq!(sorted(seen), expected, "{pattern}");
        directory.close().unwrap();
    }
}

#[test]
fn an_unsuccessful_first_search_and_the_end_have_different_statuses() {
    let server = HoldfastServer::new();
    fill(&server, &["a"]);
    let tree = server.tree();
    let directory = root(&tree);
    assert_eq!(ask(&directory, "zzz*", NONE), Err(Status::NO_SUCH_FILE));
    directory.close().unwrap();
    let directory = root(&tree);
    assert_eq!(ask(&directory, "a", NONE).unwrap(), ["a"]);
    assert_eq!(ask(&directory, "a", NONE), Err(Status::NO_MORE_FILES));
    assert_eq!(ask(&directory, "zzz", RESTART), Err(Status::NO_MORE_FILES));
}

#[test]
fn single_entries_and_restarts_are_supported() {
    let server = HoldfastServer::new();
    fill(&server, &["a", "b", "c"]);
    let tree = server.tree();
    let directory = root(&tree);
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let one = ask(&directory, "*", single).unwrap();
        assert_eq!(one.len(), 1);
        seen.extend(one);
    }
    assert_eq!(ask(&directory, "*", single), Err(Status::NO_MORE_FILES));
    assert_eq!(sorted(seen.clone()), [".", "..", "a", "b", "c"]);
    assert_eq!(ask(&directory, "*", RESTART).unwrap(), seen);
    // A restart may change the pattern or not.
    assert_eq!(ask(&directory, "b", RESTART).unwrap(), ["b"]);
    let reopen = QueryDirectoryFlags::REOPEN;
    assert_eq!(ask(&directory, "c", reopen).unwrap(), ["c"]);
    // REOPEN starts a new search ([MS-SMB2] 3.3.5.18), which may find nothing at all.
    assert_eq!(ask(&directory, "zzz", reopen), Err(Status::NO_SUCH_FILE));
    assert_eq!(ask(&directory, "zzz", NONE), Err(Status::NO_MORE_FILES));
    assert_eq!(ask(&directory, "z*", reopen), Err(Status::NO_SUCH_FILE));
    assert_eq!(ask(&directory, "b", reopen).unwrap(), ["b"]);
}

#[test]
fn the_first_pattern_is_used_for_the_whole_search() {
    // [MS-FSA] 2.1.5.6.3
    let server = HoldfastServer::new();
    fill(&server, &["a1", "a2", "b1"]);
    let tree = server.tree();
    let directory = root(&tree);
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    let mut seen = ask(&directory, "a*", single).unwrap();
    seen.extend(ask(&directory, "b*", NONE).unwrap());
    assert_eq!(sorted(seen), ["a1", "a2"]);
}

/// [MS-FSA] 2.1.5.6.3: a pattern is looked at only where it counts; without one the first call lists everything.
#[test]
fn a_pattern_that_does_not_count_is_not_examined() {
    let server = HoldfastServer::new();
    fill(&server, &["a1", "a2"]);
    let tree = server.tree();
    let directory = root(&tree);
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    assert_eq!(ask(&directory, "a*", single).unwrap(), ["a1"]);
    assert_eq!(ask(&directory, "a/b", NONE).unwrap(), ["a2"]);
    let invalid = ask(&directory, "a/b", RESTART);
    assert_eq!(invalid, Err(Status::OBJECT_NAME_INVALID));
    // The refused pattern has not replaced the one in force.
    assert_eq!(sorted(ask(&directory, "", RESTART).unwrap()), ["a1", "a2"]);
    let directory = root(&tree);
    let all = sorted(ask(&directory, "", NONE).unwrap());
    assert_eq!(all, [".", "..", "a1", "a2"]);
}

/// [MS-FSA] 2.1.5.6.3: the size of the buffer is checked first, and leaves no pattern behind.
#[test]
fn a_buffer_without_room_for_an_entry_is_refused_before_the_search() {
    let server = HoldfastServer::new();
    fill(&server, &["a"]);
    let tree = server.tree();
    let directory = root(&tree);
    let asked = directory.query_directory(NAMES, "none*", NONE, 11);
    assert_eq!(status(asked), Status::INFO_LENGTH_MISMATCH);
    assert_eq!(ask(&directory, "a*", NONE).unwrap(), ["a"]);
}

#[test]
fn buffers_that_are_too_small_are_refused() {
    let server = HoldfastServer::new();
    fill(&server, &["a-name-of-some-length"]);
    let tree = server.tree();
    for (max, expected) in [
        (
            0,
            &[Status::INFO_LENGTH_MISMATCH, Status::INVALID_PARAMETER][..],
        ),
        (11, &[Status::INFO_LENGTH_MISMATCH]),
        (20, &[Status::BUFFER_OVERFLOW, Status::INFO_LENGTH_MISMATCH]),
    ] {
        let directory = root(&tree);
        let asked = Request::query_directory(directory.id(), NAMES, "a*", NONE, max);
        let end = tree.reply(asked).unwrap().status();
        assert!(expected.contains(&end), "{max}: {end}");
    }
    let directory = root(&tree);
    let asked = directory.query_directory(NAMES, "a*", NONE, 20);
    assert_eq!(status(asked), Status::BUFFER_OVERFLOW);
    // The entry that did not fit is not skipped.
    let again = ask(&directory, "a*", NONE).unwrap();
    assert_eq!(again, ["a-name-of-some-length"]);
    assert_eq!(ask(&directory, "a*", NONE), Err(Status::NO_MORE_FILES));
    let directory = root(&tree);
    let max = tree.client().negotiated().max_transact_size;
    let over = directory.query_directory(NAMES, "*", NONE, max + 1);
    assert_eq!(status(over), Status::INVALID_PARAMETER);
}

#[test]
fn invalid_requests_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    // The handle is looked up before the length is checked.
    for length in [4096, tree.client().negotiated().max_transact_size + 1] {
        let missing = Request::new(&QueryDirectoryRequest {
            info_class: NAMES.0,
            flags: NONE,
            file_index: 0,
            file_id: FileId::ANY,
            pattern: b"*\0",
            output_buffer_length: length,
        });
        assert_eq!(status(tree.call(missing)), Status::FILE_CLOSED, "{length}");
    }
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    assert_eq!(
        ask(&file, "*", NONE),
        Err(Status::INVALID_PARAMETER),
        "not a directory"
    );
    let blind = CreateArgs::directory("").access(AccessMask::FILE_READ_ATTRIBUTES);
    let blind = tree.create(&blind).unwrap();
    assert_eq!(ask(&blind, "*", NONE), Err(Status::ACCESS_DENIED));
    for pattern in ["a\\b", "a/b"] {
        let directory = root(&tree);
        assert_eq!(
            ask(&directory, pattern, NONE),
            Err(Status::OBJECT_NAME_INVALID),
            "{pattern}"
        );
    }
    for (class, expected) in [
        (FileInformationClass(0xfe), Status::INVALID_INFO_CLASS),
        (FileInformationClass(0), Status::INVALID_INFO_CLASS),
    ] {
        let end = root(&tree).query_directory(class, "*", NONE, 4096);
        assert_eq!(status(end), expected, "{class}");
    }
}

#[test]
fn a_name_is_found_in_a_directory_that_was_moved() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    fill(&server, &["d/f"]);
    let directory = tree.create(&CreateArgs::directory("d")).unwrap();
    std::fs::rename(server.path("d"), server.path("e")).unwrap();
    assert_eq!(ask(&directory, "F", NONE).unwrap(), ["f"]);
    // Another directory has its path.
    std::fs::create_dir(server.path("d")).unwrap();
    fill(&server, &["d/g"]);
    assert_eq!(ask(&directory, "f", RESTART).unwrap(), ["f"]);
    assert_eq!(ask(&directory, "g", RESTART), Err(Status::NO_MORE_FILES));
}

#[test]
fn deleting_while_listing_loses_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for i in 0..200 {
        std::fs::write(server.path(&format!("f{i:03}")), b"").unwrap();
    }
    let directory = root(&tree);
    let mut count = 0;
    while let Ok(bytes) = directory.query_directory(NAMES, "f*", NONE, 512) {
        for name in names(&bytes) {
            tree.delete(&name).unwrap();
            count += 1;
        }
    }
    assert_eq!(count, 200);
    assert_eq!(tree.list("", "*").unwrap().len(), 2);
}
