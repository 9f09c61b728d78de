//! Scans that several requests continue: of extended attributes by QUERY_INFO and of directories by QUERY_DIRECTORY
//! ([MS-SMB2] 3.3.5.20.1, 3.3.5.18, [MS-FSA] 2.1.5.12.12, 2.1.5.6.3).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{
    DirectoryEntries, DirectoryFormat, EaEntry, FileInformationClass as Class, encode_ea_list,
    encode_get_ea_list, read_ea_list,
};
use smb_wire::msg::{
    InfoType, QueryDirectoryFlags, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse,
};

const NO_FLAGS: QueryInfoFlags = QueryInfoFlags::empty();
const SINGLE: QueryInfoFlags = QueryInfoFlags::RETURN_SINGLE_ENTRY;
const RESTART: QueryInfoFlags = QueryInfoFlags::RESTART_SCAN;
const INDEX: QueryInfoFlags = QueryInfoFlags::INDEX_SPECIFIED;

/// A query of extended attributes.
struct Query<'a> {
    flags: QueryInfoFlags,
    index: u32,
    names: &'a [u8],
    max: u32,
}

const WHOLE: Query<'static> = Query {
    flags: RESTART,
    index: 0,
    names: &[],
    max: 4096,
};

/// The names and values of attributes.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the status, and the attributes in the response.
fn ask(file: &File, query: &Query<'_>) -> (Status, Attributes) {
    let request = Request::new(&QueryInfoRequest {
        info_type: InfoType::FILE,
        info_class: Class::FULL_EA.0,
        output_buffer_length: query.max,
        additional_information: query.index,
        flags: query.flags,
        file_id: file.id(),
        input: query.names,
    });
    let reply = file.tree().reply(request).unwrap();
    let status = reply.status();
    if status != Status::SUCCESS && status != Status::BUFFER_OVERFLOW {
        return (status, Vec::new());
    }
    let answer = QueryInfoResponse::read(&reply.message).unwrap();
    let entries = read_ea_list(answer.buffer).unwrap();
    let entries = entries.into_iter().map(|entry| (entry.name, entry.value));
    (status, entries.collect())
}

/// A file with three extended attributes.
fn with_attributes(tree: &Tree) -> File {
    let args = CreateArgs::create("f").access(AccessMask::FILE_ALL_ACCESS);
    let file = tree.create(&args).unwrap();
    let entries = [
        EaEntry::new(*b"ONE", *b"first value"),
        EaEntry::new(*b"TWO", *b"second value"),
        EaEntry::new(*b"THREE", *b"third value"),
    ];
    let (list, encoded) = encode_ea_list(&entries, 4096);
    assert_eq!(encoded, 3);
    file.set(Class::FULL_EA, &list).unwrap();
    file
}

/// [MS-FSA] 2.1.5.12.12: a handle continues where it stopped, and only whole attributes are returned.
#[test]
fn a_scan_of_attributes_continues_and_begins_again() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = with_attributes(&tree);
    let (end, whole) = ask(&file, &WHOLE);
    assert_eq!((end, whole.len()), (Status::SUCCESS, 3));
    // Room for one attribute and a part of the next.
    let part = |flags| {
        let query = Query {
            flags,
            max: 40,
            ..WHOLE
        };
        ask(&file, &query)
    };
    assert_eq!(
        part(RESTART),
        (Status::BUFFER_OVERFLOW, whole[..1].to_vec())
    );
    assert_eq!(
        part(NO_FLAGS),
        (Status::BUFFER_OVERFLOW, whole[1..2].to_vec())
    );
    assert_eq!(part(NO_FLAGS), (Status::SUCCESS, whole[2..].to_vec()));
    let (end, nothing) = part(NO_FLAGS);
    assert!(
        [Status::NO_MORE_EAS, Status::NO_EAS_ON_FILE].contains(&end),
        "{end}"
    );
    assert!(nothing.is_empty());
    assert_eq!(part(RESTART).1, whole[..1]);
    // Another handle has its own position.
    let args = CreateArgs::open("f").access(AccessMask::FILE_READ_EA);
    let other = tree.create(&args).unwrap();
    let query = Query {
        flags: NO_FLAGS,
        ..WHOLE
    };
    assert_eq!(ask(&other, &query).1, whole);
}

/// [MS-SMB2] 3.3.5.20.1.
#[test]
fn single_attributes_are_returned_one_by_one() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = with_attributes(&tree);
    let whole = ask(&file, &WHOLE).1;
    let single = |flags| {
        let query = Query {
            flags: SINGLE | flags,
            ..WHOLE
        };
        let (end, entries) = ask(&file, &query);
        // Whether a single attribute that is not the last overflows is not said.
        assert!(
            [Status::SUCCESS, Status::BUFFER_OVERFLOW].contains(&end),
            "{end}"
        );
        entries
    };
    assert_eq!(single(RESTART), whole[..1]);
    assert_eq!(single(NO_FLAGS), whole[1..2]);
    assert_eq!(single(NO_FLAGS), whole[2..]);
    assert_eq!(single(RESTART), whole[..1]);
}

/// [MS-SMB2] 3.3.5.20.1: indexes begin with 1, and an index makes the restart meaningless.
#[test]
fn a_scan_of_attributes_begins_at_an_index() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = with_attributes(&tree);
    let whole = ask(&file, &WHOLE).1;
    let from = |flags, index| {
        let query = Query {
            flags: INDEX | flags,
            index,
            ..WHOLE
        };
        ask(&file, &query)
    };
    assert_eq!(from(NO_FLAGS, 1), (Status::SUCCESS, whole.clone()));
    assert_eq!(from(NO_FLAGS, 2), (Status::SUCCESS, whole[1..].to_vec()));
    assert_eq!(from(RESTART, 3), (Status::SUCCESS, whole[2..].to_vec()));
    assert_eq!(from(SINGLE, 2).1, whole[1..2]);
    for index in [5, u32::MAX] {
        let (end, _) = from(NO_FLAGS, index);
        assert_eq!(end, Status::NONEXISTENT_EA_ENTRY, "{index}");
    }
}

/// [MS-SMB2] 3.3.5.20.1: a list of names makes the position, the index and the restart meaningless.
#[test]
fn named_attributes_are_returned_in_the_order_of_the_list() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = with_attributes(&tree);
    let names = |names: &[&[u8]]| {
        let mut out = BytesMut::new();
        encode_get_ea_list(names, &mut out);
        out
    };
    let list = names(&[b"THREE", b"ONE"]);
    let expected = [
        (b"THREE".to_vec(), b"third value".to_vec()),
        (b"ONE".to_vec(), b"first value".to_vec()),
    ];
    for (flags, index) in [(NO_FLAGS, 0), (RESTART, 0), (INDEX, 2), (NO_FLAGS, 0)] {
        let query = Query {
            flags,
            index,
            names: &list,
            max: 4096,
        };
        let (end, entries) = ask(&file, &query);
        assert_eq!(end, Status::SUCCESS, "{flags} {index}");
        assert_eq!(entries, expected, "{flags} {index}");
    }
}

/// [MS-FSA] 2.1.5.12.12.
#[test]
fn a_file_without_attributes_says_so() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    assert_eq!(ask(&file, &WHOLE), (Status::NO_EAS_ON_FILE, Vec::new()));
}

/// [MS-FSA] 2.1.5.6.3.1 to 2.1.5.6.3.11: the fixed part must fit, and a name need not.
#[test]
fn entries_of_every_class_need_room_for_their_fixed_part() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("a name", b"x").unwrap();
    let none = QueryDirectoryFlags::empty();
    for (class, fixed) in [
        (Class::DIRECTORY, 64),
        (Class::FULL_DIRECTORY, 68),
        (Class::BOTH_DIRECTORY, 94),
        (Class::ID_BOTH_DIRECTORY, 104),
        (Class::ID_FULL_DIRECTORY, 80),
        (Class::ID_EXTD_DIRECTORY, 88),
        (Class::NAMES, 12),
    ] {
        let root = tree.create(&CreateArgs::directory("")).unwrap();
        let ask = |max| status(root.query_directory(class, "a*", none, max));
        assert_eq!(ask(fixed - 1), Status::INFO_LENGTH_MISMATCH, "{class}");
        assert_eq!(ask(fixed), Status::BUFFER_OVERFLOW, "{class}");
        assert_eq!(ask(fixed + 11), Status::BUFFER_OVERFLOW, "{class}");
        assert_eq!(ask(fixed + 12), Status::SUCCESS, "{class}");
        root.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.6.3, [MS-FSCC] 2.4: entries begin at multiples of 8, and the last one has no next.
#[test]
fn entries_are_aligned() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["a", "ab", "abc", "abcd", "abcde"] {
        std::fs::write(server.path(name), b"").unwrap();
    }
    for class in [Class::NAMES, Class::DIRECTORY, Class::ID_BOTH_DIRECTORY] {
        let root = tree.create(&CreateArgs::directory("")).unwrap();
        let flags = QueryDirectoryFlags::empty();
        let bytes = root.query_directory(class, "a*", flags, 4096).unwrap();
        let (mut at, mut count) = (0, 1);
        loop {
            let next = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            if next == 0 {
                break;
            }
            assert!(next.is_multiple_of(8), "{class} {next}");
            at += usize::try_from(next).unwrap();
            count += 1;
        }
        assert_eq!(count, 5, "{class}");
        root.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.6.3: the position belongs to the handle, whatever the class.
#[test]
fn a_scan_of_a_directory_continues_with_another_class() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["a1", "a2", "a3"] {
        std::fs::write(server.path(name), b"").unwrap();
    }
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let single = QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    let next = |class, flags| {
        let bytes = root.query_directory(class, "a*", flags, 4096).unwrap();
        let entries = DirectoryEntries::new(DirectoryFormat::of(class).unwrap(), &bytes);
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name).collect();
        assert_eq!(names.len(), 1);
        names[0].clone()
    };
    let first = next(Class::NAMES, single);
    let mut seen = vec![
        first.clone(),
        next(Class::ID_BOTH_DIRECTORY, single),
        next(Class::DIRECTORY, single),
    ];
    let restart = QueryDirectoryFlags::RESTART_SCANS;
    assert_eq!(next(Class::FULL_DIRECTORY, single | restart), first);
    seen.sort();
    assert_eq!(seen, ["a1", "a2", "a3"]);
}
