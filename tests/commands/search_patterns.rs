//! The patterns of QUERY_DIRECTORY: what each wildcard matches, which patterns are none, and which of them a search
//! keeps ([MS-FSA] 2.1.4.3, 2.1.4.4, 2.1.5.6.3, [MS-SMB2] 3.3.5.18).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::fscc::{DirectoryEntries, DirectoryFormat, FileInformationClass as Class};
use smb_wire::msg::QueryDirectoryFlags as Flags;

const NONE: Flags = Flags::empty();
const ONE: Flags = Flags::RETURN_SINGLE_ENTRY;
const RESTART: Flags = Flags::RESTART_SCANS;
const REOPEN: Flags = Flags::REOPEN;

/// The root of a share with these files.
fn root(server: &HoldfastServer, tree: &Tree, names: &[&str]) -> File {
    for name in names {
        std::fs::write(server.path(name), b"x").unwrap();
    }
    tree.create(&CreateArgs::directory("")).unwrap()
}

/// The names that a search finds, sorted.
fn ask(directory: &File, pattern: &str, flags: Flags) -> Result<Vec<String>, Status> {
    let format = DirectoryFormat::of(Class::NAMES).unwrap();
    match directory.query_directory(Class::NAMES, pattern, flags, 65_536) {
        Ok(bytes) => {
            let entries = DirectoryEntries::new(format, &bytes);
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name).collect();
            names.sort();
            Ok(names)
        }
        Err(error) => Err(error.status().unwrap_or_else(|| panic!("{error}"))),
    }
}

/// [MS-FSA] 2.1.4.4.
#[test]
fn each_wildcard_matches_what_it_stands_for() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a", "a.b", "ab", "abc", "abcd"]);
    let all = &[".", "..", "a", "a.b", "ab", "abc", "abcd"][..];
    for (pattern, expected) in [
        // Both match everything, whether there is a dot in the name or not.
        ("*", all),
        ("*.*", all),
        // A question mark is one character, also a dot.
        ("?", &[".", "a"]),
        ("??", &["..", "ab"]),
        ("???", &["a.b", "abc"]),
        ("a?", &["ab"]),
        ("a??", &["a.b", "abc"]),
        ("?b", &["ab"]),
        ("*b", &["a.b", "ab"]),
        ("a*c", &["abc"]),
        ("*b*", &["a.b", "ab", "abc", "abcd"]),
        // DOS_QM is one character, or nothing at a dot and at the end.
        (">>>", &["a", "ab", "abc"]),
        ("a>", &["a", "ab"]),
        (">.>", &[".", "a.b"]),
        // Clients send it where a program asks for three letters and an extension.
        (">>>\">>>", &[".", "a", "a.b", "ab", "abc"]),
        // DOS_DOT is a dot, or nothing at the end.
        ("a\"b", &["a.b"]),
        ("ab\"", &["ab"]),
        // DOS_STAR does not go beyond the last dot.
        ("a<", &["a", "ab", "abc", "abcd"]),
        ("<.b", &["a.b"]),
    ] {
        let found = ask(&directory, pattern, REOPEN);
        assert_eq!(found.unwrap(), expected, "{pattern}");
    }
}

/// [MS-FSA] 2.1.5.6.3: names are compared without their case, beyond ASCII as well.
#[test]
fn patterns_have_no_case() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["Größe 1", "GRÖSSE 2", "ДОМ"]);
    for (pattern, expected) in [
        ("grö*", &["GRÖSSE 2", "Größe 1"][..]),
        ("GRÖ*1", &["Größe 1"]),
        ("*ösSe*", &["GRÖSSE 2"]),
        ("до?", &["ДОМ"]),
        ("дом", &["ДОМ"]),
    ] {
        let found = ask(&directory, pattern, REOPEN);
        assert_eq!(found.unwrap(), expected, "{pattern}");
    }
}

/// [MS-FSA] 2.1.5.6.3, [MS-FSCC] 2.1.5.2: a pattern is a component of a path, and no longer than one.
#[test]
fn a_pattern_is_no_longer_than_a_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a"]);
    let long = "n".repeat(256);
    for pattern in [long.as_str(), &format!("*{}", &long[1..])] {
        let refused = ask(&directory, pattern, NONE);
        assert_eq!(refused, Err(Status::OBJECT_NAME_INVALID));
    }
    // A refused pattern has not begun the search.
    let missing = ask(&directory, &long[1..], NONE);
    assert_eq!(missing, Err(Status::NO_SUCH_FILE));
}

/// [MS-FSA] 2.1.5.6.3: the pattern of the first request is kept, also if it finds nothing.
#[test]
fn only_the_first_request_of_a_search_says_that_there_is_no_such_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a1", "a2", "b1"]);
    let ended = Err(Status::NO_MORE_FILES);
    assert_eq!(ask(&directory, "z*", NONE), Err(Status::NO_SUCH_FILE));
    assert_eq!(ask(&directory, "a*", NONE), ended, "the pattern stays");
    assert_eq!(ask(&directory, "", RESTART), ended, "and so with a restart");
    let all = ask(&directory, "a*", RESTART).unwrap();
    assert_eq!(all, ["a1", "a2"]);
    assert_eq!(ask(&directory, "b*", NONE), ended);
    // A single entry is one of the whole search.
    let mut found = ask(&directory, "a*", REOPEN | ONE).unwrap();
    assert_eq!(found.len(), 1);
    found.extend(ask(&directory, "b*", NONE).unwrap());
    found.sort();
    assert_eq!(found, all);
    let again = ask(&directory, "b*", REOPEN | RESTART);
    assert_eq!(again.unwrap(), ["b1"]);
    // [MS-SMB2] 3.3.5.18: the status for a file is the server's choice.
    let file = tree.create(&CreateArgs::open("a1")).unwrap();
    let refused = status(file.query_directory(Class::NAMES, "*", REOPEN, 4096));
    assert!(refused.is_error(), "{refused}");
}

/// [MS-FSA] 2.1.5.5: a name is listed until the last handle of a file that is to be deleted is closed.
#[test]
fn a_name_is_listed_until_it_is_gone() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a1"]);
    let [file, other] = [(); 2].map(|()| tree.create(&CreateArgs::open("a1")).unwrap());
    file.set_delete(true).unwrap();
    let listed = || ask(&directory, "a*", REOPEN);
    assert_eq!(listed().unwrap(), ["a1"]);
    file.close().unwrap();
    assert_eq!(listed().unwrap(), ["a1"]);
    other.close().unwrap();
    assert_eq!(listed(), Err(Status::NO_SUCH_FILE));
}
