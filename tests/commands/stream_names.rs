//! The names of streams, which may have characters that names of files may not, and the streams of what is overwritten,
//! renamed and listed ([MS-FSCC] 2.1.5.3, [MS-FSA] 2.1.5.1, 2.1.5.12.29).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::fscc::{FileInformationClass as Class, read_stream_list};
use smb_wire::msg::{CreateDisposition, CreateOptions};

/// The streams of an object by name and size, in the order of their names.
fn streams(file: &File) -> Vec<(String, u64)> {
    let list = file.query(Class::STREAM).unwrap();
    if list.is_empty() {
        return Vec::new();
    }
    let entries = read_stream_list(&list).unwrap().into_iter();
    let mut found: Vec<_> = entries.map(|entry| (entry.name, entry.size)).collect();
    found.sort();
    found
}

fn streams_of(tree: &Tree, name: &str) -> Vec<(String, u64)> {
    let file = tree.create(&CreateArgs::open(name)).unwrap();
    let found = streams(&file);
    file.close().unwrap();
    found
}

fn owned(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    let entry = |&(name, size): &(&str, u64)| (name.to_owned(), size);
    list.iter().map(entry).collect()
}

/// [MS-FSCC] 2.1.5.3: only the separators and the zero are no characters of a stream's name; smb2.streams.names2.
#[test]
fn a_stream_may_have_a_name_that_no_file_may_have() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"main").unwrap();
    let legal = ['*', '?', '"', '<', '>', '|', '\u{1}', '\u{1f}', ' ', '.'];
    for character in legal {
        let name = format!("f:a{character}b");
        let made = status(tree.write_file(&name, b"stream"));
        assert_eq!(made, Status::SUCCESS, "{name:?}");
        assert_eq!(tree.read_file(&name).unwrap(), b"stream", "{name:?}");
    }
    assert_eq!(streams_of(&tree, "f").len(), legal.len() + 1);
    for character in ['\\', '/', '\0'] {
        let name = format!("f:c{character}d");
        let refused = tree.create_status(&CreateArgs::create(&name)).unwrap();
        assert_eq!(refused, Status::OBJECT_NAME_INVALID, "{name:?}");
    }
}

/// [MS-FSCC] 2.1.5.3: the name of a stream has 255 characters at most.
#[test]
fn the_name_of_a_stream_is_limited() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let long = format!("f:{}", "n".repeat(256));
    let refused = tree.create_status(&CreateArgs::create(&long)).unwrap();
    assert_eq!(refused, Status::OBJECT_NAME_INVALID);
    assert!(!server.path("f").exists());
}

/// [MS-FSA] 2.1.5.1: streams are found in any letter case, and keep that in which they were made.
#[test]
fn a_stream_keeps_the_case_of_its_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f:Stream", b"one").unwrap();
    let again = tree.create_status(&CreateArgs::create("F:STREAM:$data"));
    assert_eq!(again.unwrap(), Status::OBJECT_NAME_COLLISION);
    tree.write_file("f:sTREAM", b"other").unwrap();
    let expected = owned(&[("::$DATA", 0), (":Stream:$DATA", 5)]);
    assert_eq!(streams_of(&tree, "f"), expected);
}

/// [MS-FSA] 2.1.5.12.29: a list has the streams of the whole object, through whichever of them it was asked for.
#[test]
fn every_handle_lists_the_streams_of_its_object() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"main").unwrap();
    tree.write_file("f:a", b"12345").unwrap();
    tree.write_file("f:b", b"").unwrap();
    let expected = owned(&[("::$DATA", 4), (":a:$DATA", 5), (":b:$DATA", 0)]);
    for name in ["f", "f:a", "f:b", "f::$DATA"] {
        assert_eq!(streams_of(&tree, name), expected, "{name}");
    }
}

/// [MS-FSA] 2.1.5.12.29: a directory has no unnamed stream of data.
#[test]
fn a_directory_lists_its_named_streams_alone() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    assert!(streams_of(&tree, "d").is_empty());
    tree.write_file("d:s", b"stream").unwrap();
    assert_eq!(streams_of(&tree, "d"), owned(&[(":s:$DATA", 6)]));
}

/// [MS-FSA] 2.1.5.1.2: an overwrite of a stream concerns it alone, and one of the file all of its streams;
/// smb2.streams.create-disposition.
#[test]
fn an_overwrite_of_a_file_removes_its_streams() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for disposition in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        tree.write_file("f", b"main").unwrap();
        tree.write_file("f:a", b"stream").unwrap();
        tree.write_file("f:b", b"stream").unwrap();
        let over = |name| {
            let args = CreateArgs::new(name, disposition);
            tree.create(&args).unwrap().close().unwrap();
        };
        over("f:a");
        let expected = owned(&[("::$DATA", 4), (":a:$DATA", 0), (":b:$DATA", 6)]);
        assert_eq!(streams_of(&tree, "f"), expected, "{disposition}");
        over("f");
        let expected = owned(&[("::$DATA", 0)]);
        assert_eq!(streams_of(&tree, "f"), expected, "{disposition}");
    }
}

/// [MS-FSA] 2.1.5.5: the file takes its streams along when it is deleted.
#[test]
fn a_deleted_file_leaves_no_streams_to_the_next_of_its_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f:s", b"stream").unwrap();
    let args = CreateArgs::open("f").options(CreateOptions::DELETE_ON_CLOSE);
    tree.create(&args).unwrap().close().unwrap();
    let gone = status(tree.read_file("f:s"));
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
    tree.write_file("f", b"new").unwrap();
    assert_eq!(streams_of(&tree, "f"), owned(&[("::$DATA", 3)]));
}

/// [MS-FSA] 2.1.5.1.1: neither a missing file nor a missing stream is opened, and neither leaves the other behind.
#[test]
fn a_missing_stream_is_made_by_the_dispositions_that_make_files() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for name in ["new:s", "old:s"] {
        for (disposition, expected) in [
            (CreateDisposition::OPEN, Status::OBJECT_NAME_NOT_FOUND),
            (CreateDisposition::OVERWRITE, Status::OBJECT_NAME_NOT_FOUND),
            (CreateDisposition::OPEN_IF, Status::SUCCESS),
            (CreateDisposition::OVERWRITE_IF, Status::SUCCESS),
            (CreateDisposition::SUPERSEDE, Status::SUCCESS),
            (CreateDisposition::CREATE, Status::SUCCESS),
        ] {
            if name == "old:s" {
                tree.write_file("old", b"main").unwrap();
            }
            let end = tree.create_status(&CreateArgs::new(name, disposition));
            assert_eq!(end.unwrap(), expected, "{name} {disposition}");
            let file = &name[..3];
            let there = server.path(file).exists();
            let made = expected == Status::SUCCESS;
            assert_eq!(there, made || file == "old", "{name} {disposition}");
            if there {
                tree.delete(file).unwrap();
            }
        }
    }
}

/// [MS-FSA] 2.1.5.12.17: a stream has the id of its file, and a rename changes none.
#[test]
fn a_stream_has_the_id_of_its_file_wherever_that_is() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"main").unwrap();
    tree.write_file("f:s", b"stream").unwrap();
    let id = |name: &str| {
        let file = tree.create(&CreateArgs::open(name)).unwrap();
        let id = file.query(Class::INTERNAL).unwrap();
        file.close().unwrap();
        id
    };
    let before = id("f");
    assert_eq!(id("f:s"), before);
    tree.rename("f", "d\\g", false).unwrap();
    assert_eq!(id("d\\g"), before);
    assert_eq!(id("d\\g:s"), before);
    tree.write_file("f", b"another").unwrap();
    assert_ne!(id("f"), before);
}
