//! The flags, fields and statuses of QUERY_DIRECTORY ([MS-SMB2] 3.3.5.18, [MS-FSA] 2.1.5.6.3).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{DirectoryEntries, DirectoryFormat, FileInformationClass as Class};
use smb_wire::ids::FileId;
use smb_wire::msg::{
    ErrorResponse, QueryDirectoryFlags as Flags, QueryDirectoryRequest, QueryDirectoryResponse,
};

const NONE: Flags = Flags::empty();
const ONE: Flags = Flags::RETURN_SINGLE_ENTRY;
const RESTART: Flags = Flags::RESTART_SCANS;

/// The root of a share with these files.
fn root(server: &HoldfastServer, tree: &Tree, names: &[&str]) -> File {
    for name in names {
        std::fs::write(server.path(name), b"x").unwrap();
    }
    tree.create(&CreateArgs::directory("")).unwrap()
}

fn names(bytes: &[u8], class: Class) -> Vec<String> {
    let format = DirectoryFormat::of(class).unwrap();
    let entries = DirectoryEntries::new(format, bytes);
    entries.map(|entry| entry.unwrap().file_name).collect()
}

fn ask(directory: &File, pattern: &str, flags: Flags) -> Result<Vec<String>, Status> {
    match directory.query_directory(Class::NAMES, pattern, flags, 65_536) {
        Ok(bytes) => Ok(names(&bytes, Class::NAMES)),
        Err(error) => Err(error.status().unwrap_or_else(|| panic!("{error}"))),
    }
}

/// [MS-SMB2] 3.3.5.18, note 410: the index of an entry is ignored.
#[test]
fn the_index_of_a_search_is_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a", "b"]);
    let pattern = smb_wire::utf16::encode("*");
    let search = |file_index, flags| {
        let request = Request::new(&QueryDirectoryRequest {
            info_class: Class::NAMES.0,
            flags,
            file_index,
            file_id: directory.id(),
            pattern: &pattern,
            output_buffer_length: 4096,
        });
        let reply = tree.call(request).unwrap();
        let response = QueryDirectoryResponse::read(&reply.message).unwrap();
        names(response.buffer, Class::NAMES)
    };
    let indexed = Flags::INDEX_SPECIFIED;
    let all = search(0, RESTART);
    assert_eq!(all.len(), 4);
    assert_eq!(search(u32::MAX, RESTART | indexed), all);
    assert_eq!(search(2, RESTART | ONE), all[..1]);
    assert_eq!(search(0, ONE | indexed), all[1..2]);
    assert_eq!(search(0, indexed), all[2..]);
}

/// [MS-SMB2] 3.3.5.18: the classes with ids of 64 and 128 bits are supported or not, but never unknown.
#[test]
fn the_newer_classes_of_listings_are_known() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a", "b"]);
    for class in [
        Class::ID_EXTD_DIRECTORY,
        Class::ID_64_EXTD_DIRECTORY,
        Class::ID_64_EXTD_BOTH_DIRECTORY,
        Class::ID_ALL_EXTD_DIRECTORY,
        Class::ID_ALL_EXTD_BOTH_DIRECTORY,
    ] {
        match directory.query_directory(class, "*", RESTART, 65_536) {
            Ok(bytes) => {
                let mut found = names(&bytes, class);
                found.sort();
                assert_eq!(found, [".", "..", "a", "b"], "{class}");
            }
            Err(error) => assert_eq!(error.status(), Some(Status::NOT_SUPPORTED), "{class}"),
        }
    }
}

/// [MS-SMB2] 3.3.5.18: classes of files are no classes of listings.
#[test]
fn classes_of_files_are_not_listed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a"]);
    for class in [
        Class::BASIC,
        Class::STANDARD,
        Class::ALL,
        Class::NETWORK_OPEN,
        Class::STREAM,
        Class::ID,
        Class::RENAME,
    ] {
        let refused = status(directory.query_directory(class, "*", RESTART, 65_536));
        assert_eq!(refused, Status::INVALID_INFO_CLASS, "{class}");
    }
    // The search has not begun.
    assert_eq!(ask(&directory, "a", NONE).unwrap(), ["a"]);
}

/// [MS-SMB2] 3.3.5.18: the open and its rights are looked at before the class.
#[test]
fn a_search_checks_its_handle_before_its_class() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let unknown = Class(0xfe);
    let ask = |file_id| {
        let request = Request::query_directory(file_id, unknown, "*", NONE, 4096);
        tree.reply(request).unwrap().status()
    };
    assert_eq!(ask(FileId::ANY), Status::FILE_CLOSED);
    let args = CreateArgs::directory("").access(AccessMask::FILE_READ_ATTRIBUTES);
    let blind = tree.create(&args).unwrap();
    assert_eq!(ask(blind.id()), Status::ACCESS_DENIED);
    let args = CreateArgs::directory("").access(AccessMask::FILE_LIST_DIRECTORY);
    let lists = tree.create(&args).unwrap();
    assert_eq!(ask(lists.id()), Status::INVALID_INFO_CLASS);
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    assert_eq!(ask(file.id()), Status::INVALID_PARAMETER);
}

/// [MS-FSA] 2.1.5.6.3, [MS-FSCC] 2.1.5: a pattern has only the characters of names and wildcards.
#[test]
fn patterns_with_forbidden_characters_are_invalid_names() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a"]);
    for pattern in ["a:b", "a|b", "*:*", "a\u{1}", "\u{1f}", "a\\", "\\a"] {
        let refused = ask(&directory, pattern, NONE);
        assert_eq!(refused, Err(Status::OBJECT_NAME_INVALID), "{pattern:?}");
    }
    assert_eq!(ask(&directory, "a*", NONE).unwrap(), ["a"]);
}

/// [MS-SMB2] 3.3.5.2.6: the pattern lies within its message.
#[test]
fn a_pattern_outside_its_message_is_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a"]);
    let good = || Request::query_directory(directory.id(), Class::NAMES, "a*", NONE, 4096);
    // FileNameOffset is at 24 of the body, FileNameLength at 26.
    for (at, value) in [(88, 0xffff_u16), (88, 0x1000), (90, 0xffff), (90, 0x100)] {
        let spoilt = good().mutate(|m| m[at..at + 2].copy_from_slice(&value.to_le_bytes()));
        let refused = tree.reply(spoilt).unwrap().status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{at} {value:#x}");
    }
    assert_eq!(tree.reply(good()).unwrap().status(), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.18: a scan that is restarted with a single entry continues behind that entry.
#[test]
fn a_restarted_scan_continues_behind_its_first_entry() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a", "b", "c"]);
    let all = ask(&directory, "*", NONE).unwrap();
    assert_eq!(ask(&directory, "*", NONE), Err(Status::NO_MORE_FILES));
    for _ in 0..2 {
        assert_eq!(ask(&directory, "*", RESTART | ONE).unwrap(), all[..1]);
    }
    assert_eq!(ask(&directory, "*", ONE).unwrap(), all[1..2]);
    assert_eq!(ask(&directory, "*", NONE).unwrap(), all[2..]);
    assert_eq!(ask(&directory, "*", NONE), Err(Status::NO_MORE_FILES));
}

/// [MS-FSA] 2.1.5.6.3: the position of a scan is that of its open.
#[test]
fn every_open_scans_by_itself() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let first = root(&server, &tree, &["a1", "a2", "b1"]);
    let second = root(&server, &tree, &[]);
    let one = ask(&first, "a*", ONE).unwrap();
    assert_eq!(ask(&second, "b*", NONE).unwrap(), ["b1"]);
    let other = ask(&first, "a*", ONE).unwrap();
    assert_ne!(one, other);
    assert_eq!(ask(&first, "a*", ONE), Err(Status::NO_MORE_FILES));
    assert_eq!(ask(&second, "b*", NONE), Err(Status::NO_MORE_FILES));
}

/// [MS-SMB2] 3.3.4.4: a listing that does not fit is an error without data, unlike a query.
#[test]
fn a_name_that_does_not_fit_is_answered_without_data() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = root(&server, &tree, &["a-long-name"]);
    let request = Request::query_directory(directory.id(), Class::NAMES, "a*", NONE, 20);
    let reply = tree.reply(request).unwrap();
    assert_eq!(reply.status(), Status::BUFFER_OVERFLOW);
    let error = ErrorResponse::read(&reply.message).unwrap();
    assert_eq!(error, ErrorResponse::EMPTY);
}
