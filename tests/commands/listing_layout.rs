//! The bytes of listings and of lists of streams: where each entry begins and ends, which entries a buffer holds, and
//! where a search goes on after one that held none ([MS-FSCC] 2.4.8 to 2.4.24, 2.4.49, [MS-FSA] 2.1.5.6.3,
//! 2.1.5.12.29).

use smb_client::{CreateArgs, File, Reply, Request, Tree};
use smb_tests::HoldfastServer;
use smb_wire::Status;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{DirectoryEntries, DirectoryFormat, FileInformationClass as Class};
use smb_wire::msg::{InfoType, QueryDirectoryFlags as Flags, QueryInfoResponse};

const NONE: Flags = Flags::empty();
const RESTART: Flags = Flags::RESTART_SCANS;

/// Each class of listings, with the bytes before the name in its entries.
const LISTINGS: [(Class, usize); 11] = [
    (Class::NAMES, 12),
    (Class::DIRECTORY, 64),
    (Class::FULL_DIRECTORY, 68),
    (Class::BOTH_DIRECTORY, 94),
    (Class::ID_FULL_DIRECTORY, 80),
    (Class::ID_BOTH_DIRECTORY, 104),
    (Class::ID_EXTD_DIRECTORY, 88),
    (Class::ID_64_EXTD_DIRECTORY, 80),
    (Class::ID_64_EXTD_BOTH_DIRECTORY, 106),
    (Class::ID_ALL_EXTD_DIRECTORY, 96),
    (Class::ID_ALL_EXTD_BOTH_DIRECTORY, 122),
];

/// Reserved bytes of entries.
const RESERVED: [(Class, std::ops::Range<usize>); 4] = [
    (Class::BOTH_DIRECTORY, 69..70),
    (Class::ID_BOTH_DIRECTORY, 69..70),
    (Class::ID_BOTH_DIRECTORY, 94..96),
    (Class::ID_FULL_DIRECTORY, 68..72),
];

/// A directory with these files.
fn filled(server: &HoldfastServer, tree: &Tree, names: &[&str]) -> File {
    tree.mkdir("d").unwrap();
    for name in names {
        std::fs::write(server.path("d").join(name), b"x").unwrap();
    }
    tree.create(&CreateArgs::directory("d")).unwrap()
}

fn names(class: Class, bytes: &[u8]) -> Vec<String> {
    let format = DirectoryFormat::of(class).unwrap();
    let entries = DirectoryEntries::new(format, bytes);
    entries.map(|entry| entry.unwrap().file_name).collect()
}

fn word(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..at + 4].try_into().unwrap();
    usize::try_from(u32::from_le_bytes(word)).unwrap()
}

/// The positions of the entries of a list. Asserts that each begins at the first multiple of 8 behind the one before,
/// with zeros in between, and that nothing follows the last.
fn positions(bytes: &[u8], length_at: usize, fixed: usize, what: &str) -> Vec<usize> {
    let mut found = vec![0];
    loop {
        let at = found[found.len() - 1];
        let next = word(bytes, at);
        let end = at + fixed + word(bytes, at + length_at);
        if next == 0 {
            assert_eq!(bytes.len(), end, "{what}: behind the last entry");
            return found;
        }
        assert_eq!(at + next, end.next_multiple_of(8), "{what}: {next}");
        let padding = &bytes[end..at + next];
        assert!(padding.iter().all(|byte| *byte == 0), "{what}: {padding:?}");
        found.push(at + next);
    }
}

fn ask_streams(file: &File, max: u32) -> Reply {
    let request = Request::query_info(file.id(), InfoType::FILE, Class::STREAM.0, 0, max);
    file.tree().reply(request).unwrap()
}

fn buffer(reply: &Reply) -> Vec<u8> {
    let answer = QueryInfoResponse::read(&reply.message).unwrap();
    answer.buffer.to_vec()
}

/// [MS-FSCC] 2.4.8 to 2.4.24, 2.4.33.
#[test]
fn entries_follow_each_other_without_a_gap() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = filled(&server, &tree, &["a", "ab", "abc", "abcd", "abcde"]);
    for (class, fixed) in LISTINGS {
        let bytes = directory.query_directory(class, "a*", RESTART, 4096);
        let bytes = bytes.unwrap();
        let length_at = if class == Class::NAMES { 8 } else { 60 };
        let entries = positions(&bytes, length_at, fixed, &class.to_string());
        assert_eq!(entries.len(), 5, "{class}");
        for at in entries {
            for (_, range) in RESERVED.iter().filter(|(of, _)| *of == class) {
                let reserved = &bytes[at + range.start..at + range.end];
                assert!(reserved.iter().all(|byte| *byte == 0), "{class} {range:?}");
            }
        }
    }
}

/// [MS-FSA] 2.1.5.6.3: a buffer holds as many entries as fit, and an entry that does not fit comes next.
#[test]
fn a_buffer_holds_exactly_the_entries_that_fit() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = filled(&server, &tree, &["a1", "a2", "b"]);
    for (class, fixed) in LISTINGS {
        let whole = u32::try_from((fixed + 4).next_multiple_of(8) + fixed + 4).unwrap();
        let ask = |flags, max| match directory.query_directory(class, "a*", flags, max) {
            Ok(bytes) => Ok(names(class, &bytes)),
            Err(error) => Err(error.status().unwrap()),
        };
        let both = ask(RESTART, whole).unwrap();
        assert_eq!(both.len(), 2, "{class}");
        assert_eq!(ask(NONE, whole), Err(Status::NO_MORE_FILES), "{class}");
        assert_eq!(ask(RESTART, whole - 1).unwrap(), both[..1], "{class}");
        // Neither a buffer without room for any entry nor one without room for the name moves the search.
        let fixed = u32::try_from(fixed).unwrap();
        let short = ask(NONE, fixed - 1);
        assert_eq!(short, Err(Status::INFO_LENGTH_MISMATCH), "{class}");
        let cut = ask(NONE, fixed + 3);
        assert_eq!(cut, Err(Status::BUFFER_OVERFLOW), "{class}");
        assert_eq!(ask(NONE, fixed + 4).unwrap(), both[1..], "{class}");
        assert_eq!(ask(NONE, whole), Err(Status::NO_MORE_FILES), "{class}");
    }
}

/// [MS-FSA] 2.1.5.6.3: the names of the directory and of its parent come first where the pattern lets them; [MS-FSCC]
/// 2.4.22: the id of the parent may be left out.
#[test]
fn the_first_two_entries_are_the_directory_and_its_parent() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let directory = filled(&server, &tree, &["!", "a"]);
    let class = Class::ID_BOTH_DIRECTORY;
    let format = DirectoryFormat::of(class).unwrap();
    let id = |file: &File| {
        let bytes = file.query(Class::INTERNAL).unwrap();
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    for pattern in ["*", "*.*", ""] {
        let bytes = directory.query_directory(class, pattern, Flags::REOPEN, 4096);
        let bytes = bytes.unwrap();
        let entries = DirectoryEntries::new(format, &bytes).map(Result::unwrap);
        let entries: Vec<_> = entries.collect();
        let (own, parent) = (&entries[0], &entries[1]);
        assert_eq!((own.file_name.as_str(), own.file_id), (".", id(&directory)));
        assert_eq!(parent.file_name, "..");
        assert!([0, id(&root)].contains(&parent.file_id), "{pattern}");
        for entry in [own, parent] {
            let attributes = entry.file_attributes;
            assert!(attributes.contains(FileAttributes::DIRECTORY), "{pattern}");
            assert_eq!(entry.end_of_file, 0, "{pattern}");
        }
        assert_eq!(entries.len(), 4, "{pattern}");
    }
    let one = Flags::REOPEN | Flags::RETURN_SINGLE_ENTRY;
    let bytes = directory.query_directory(class, "a*", one, 4096).unwrap();
    assert_eq!(names(class, &bytes), ["a"]);
}

/// [MS-FSA] 2.1.5.12.29, [MS-FSCC] 2.4.49.
#[test]
fn a_list_of_streams_has_whole_entries() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"0123456789").unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    // "::$DATA" has 14 bytes behind the fixed 24; the structure with one letter of a name has 32.
    let least = ask_streams(&file, 31).status();
    assert_eq!(least, Status::INFO_LENGTH_MISMATCH);
    for cut in [32, 37] {
        let reply = ask_streams(&file, cut);
        assert_eq!(reply.status(), Status::BUFFER_OVERFLOW, "{cut}");
        assert!(buffer(&reply).is_empty(), "{cut}");
    }
    let reply = ask_streams(&file, 38);
    assert_eq!(reply.status(), Status::SUCCESS);
    assert_eq!(buffer(&reply).len(), 38);
    for stream in ["f:a", "f:ab", "f:abc"] {
        tree.write_file(stream, b"stream").unwrap();
    }
    let whole = buffer(&ask_streams(&file, 4096));
    let entries = positions(&whole, 4, 24, "streams");
    assert_eq!(entries.len(), 4);
    for at in &entries {
        let (size, allocated) = (word(&whole, at + 8), word(&whole, at + 16));
        assert!(allocated >= size, "{allocated}");
    }
    // The last entry has no next, wherever the list is cut.
    for count in 1..entries.len() {
        let most = u32::try_from(entries[count]).unwrap();
        for max in [most, most + 24] {
            let reply = ask_streams(&file, max);
            assert_eq!(reply.status(), Status::BUFFER_OVERFLOW, "{max}");
            let found = positions(&buffer(&reply), 4, 24, "cut");
            assert_eq!(found, entries[..count], "{max}");
        }
    }
}

/// [MS-FSA] 2.1.5.12.29: a directory without streams has an empty list, which needs room all the same.
#[test]
fn a_list_without_streams_is_empty() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let directory = tree.create(&CreateArgs::directory("d")).unwrap();
    let short = ask_streams(&directory, 31).status();
    assert_eq!(short, Status::INFO_LENGTH_MISMATCH);
    for max in [32, 4096] {
        let reply = ask_streams(&directory, max);
        assert_eq!(reply.status(), Status::SUCCESS, "{max}");
        assert!(buffer(&reply).is_empty(), "{max}");
    }
    tree.write_file("d:s", b"stream").unwrap();
    assert_eq!(buffer(&ask_streams(&directory, 4096)).len(), 24 + 16);
}
