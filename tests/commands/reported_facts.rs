//! The times, sizes and attributes of an object, which CREATE, CLOSE, QUERY_INFO and QUERY_DIRECTORY report alike
//! ([MS-SMB2] 3.3.5.9, 3.3.5.10, 3.3.5.18, 3.3.5.20.1, [MS-FSA] 2.1.5.6.3, 2.1.5.12).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::HoldfastServer;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    DirectoryEntries, DirectoryFormat, FileAttributeTagInformation, FileBasicInformation,
    FileFacts, FileInformationClass as Class, FileNetworkOpenInformation, FileStandardInformation,
};
use smb_wire::msg::{CloseFlags, CreateDisposition, CreateOptions, QueryDirectoryFlags};

/// All classes of a listing but that of names alone.
const LISTINGS: [Class; 10] = [
    Class::DIRECTORY,
    Class::FULL_DIRECTORY,
    Class::BOTH_DIRECTORY,
    Class::ID_FULL_DIRECTORY,
    Class::ID_BOTH_DIRECTORY,
    Class::ID_EXTD_DIRECTORY,
    Class::ID_64_EXTD_DIRECTORY,
    Class::ID_64_EXTD_BOTH_DIRECTORY,
    Class::ID_ALL_EXTD_DIRECTORY,
    Class::ID_ALL_EXTD_BOTH_DIRECTORY,
];

fn facts(file: &File) -> FileFacts {
    let network = file.query(Class::NETWORK_OPEN).unwrap();
    FileNetworkOpenInformation::read(&network).unwrap().facts
}

fn standard(file: &File) -> FileStandardInformation {
    FileStandardInformation::read(&file.query(Class::STANDARD).unwrap()).unwrap()
}

/// Opens an object to be read.
fn open(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ);
    tree.create(&args).unwrap()
}

/// A share with a file, a directory, a stream of each, and a hidden file.
fn fill(tree: &Tree) {
    tree.write_file("f", &[1; 5000]).unwrap();
    tree.mkdir("d").unwrap();
    tree.write_file("f:s", b"stream").unwrap();
    tree.write_file("d:s", b"stream").unwrap();
    let hidden = CreateArgs::create("hidden").attributes(FileAttributes::HIDDEN);
    tree.create(&hidden).unwrap().close().unwrap();
}

/// [MS-SMB2] 3.3.5.9, 3.3.5.10: an open reports what a query returns, and so does its close.
#[test]
fn an_open_a_query_and_a_close_report_the_same() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    for name in ["", "f", "d", "f:s", "d:s", "hidden"] {
        let file = open(&tree, name);
        let queried = facts(&file);
        assert_eq!(file.created().facts, queried, "{name}");
        let closed = file.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
        assert_eq!(closed.flags, CloseFlags::POSTQUERY_ATTRIB, "{name}");
        assert_eq!(closed.facts, queried, "{name}");
    }
}

/// [MS-SMB2] 3.3.5.9: that holds for what an open makes or empties as well.
#[test]
fn an_open_reports_what_it_has_made() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    for args in [
        CreateArgs::create("new"),
        CreateArgs::create_directory("new-d"),
        CreateArgs::create("f:new"),
        CreateArgs::create("other:new"),
        CreateArgs::new("f", CreateDisposition::OVERWRITE),
        CreateArgs::new("f", CreateDisposition::SUPERSEDE),
        CreateArgs::new("f:s", CreateDisposition::OVERWRITE_IF),
    ] {
        let file = tree.create(&args).unwrap();
        assert_eq!(file.created().facts, facts(&file), "{args:?}");
        assert_eq!(file.created().facts.end_of_file, 0, "{args:?}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.10: a CLOSE after which the file is gone reports it as it was.
#[test]
fn a_close_that_deletes_reports_the_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").options(CreateOptions::DELETE_ON_CLOSE);
    let file = tree.create(&args).unwrap();
    file.write_all(0, b"0123456789").unwrap();
    let closed = file.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
    assert_eq!(closed.flags, CloseFlags::POSTQUERY_ATTRIB);
    assert_eq!(closed.facts.end_of_file, 10);
    assert_eq!(
        closed.facts.creation_time,
        file.created().facts.creation_time
    );
    assert!(!server.path("f").exists());
}

/// [MS-SMB2] 3.3.5.10: the size of a stream is its own, and so is that in the response of its close.
#[test]
fn the_close_of_a_stream_reports_its_size() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    let stream = tree.create(&CreateArgs::open("f:s")).unwrap();
    stream.write_all(0, b"a longer stream").unwrap();
    let closed = stream.close_with(CloseFlags::POSTQUERY_ATTRIB).unwrap();
    assert_eq!(closed.facts.end_of_file, 15);
    assert!(closed.facts.allocation_size >= 15);
}

/// [MS-FSA] 2.1.5.12.5, 2.1.5.12.6, 2.1.5.12.21: the attributes are the same in all classes, and never none.
#[test]
fn every_class_has_the_same_attributes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    let normal = CreateArgs::open("hidden");
    let file = tree.create(&normal).unwrap();
    let mut none = [0; 40];
    none[32..36].copy_from_slice(&FileAttributes::NORMAL.bits().to_le_bytes());
    file.set(Class::BASIC, &none).unwrap();
    file.close().unwrap();
    for name in ["", "f", "d", "f:s", "hidden"] {
        let file = open(&tree, name);
        let basic = file.query(Class::BASIC).unwrap();
        let basic = FileBasicInformation::read(&basic).unwrap().file_attributes;
        let tag = file.query(Class::ATTRIBUTE_TAG).unwrap();
        let tag = FileAttributeTagInformation::read(&tag).unwrap();
        assert_eq!((tag.file_attributes, tag.reparse_tag), (basic, 0), "{name}");
        assert_eq!(facts(&file).file_attributes, basic, "{name}");
        assert!(!basic.is_empty(), "{name}");
        assert_eq!(basic == FileAttributes::NORMAL, name == "hidden", "{name}");
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.12.27: a directory has no size, and its streams are not directories.
#[test]
fn only_the_directory_itself_is_one() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    for (name, directory, end_of_file) in [
        ("", true, 0),
        ("d", true, 0),
        ("d:s", false, 6),
        ("f", false, 5000),
        ("f:s", false, 6),
    ] {
        let file = open(&tree, name);
        let standard = standard(&file);
        let found = (standard.directory, standard.end_of_file);
        assert_eq!(found, (directory, end_of_file), "{name}");
        assert!(!standard.delete_pending, "{name}");
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.12.3: FileAllInformation consists of the answers of the single classes.
#[test]
fn all_information_is_that_of_the_single_classes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    let unbuffered = CreateOptions::NO_INTERMEDIATE_BUFFERING | CreateOptions::WRITE_THROUGH;
    for args in [
        CreateArgs::open("f").options(unbuffered),
        CreateArgs::open("d"),
        CreateArgs::open("d:s"),
    ] {
        let file = tree.create(&args).unwrap();
        let all = file.query(Class::ALL).unwrap();
        for (class, at) in [
            (Class::BASIC, 0),
            (Class::STANDARD, 40),
            (Class::INTERNAL, 64),
            (Class::EA, 72),
            (Class::ACCESS, 76),
            (Class::MODE, 88),
            (Class::ALIGNMENT, 92),
        ] {
            let one = file.query(class).unwrap();
            assert_eq!(all[at..at + one.len()], one, "{class}");
        }
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.6.3: a listing of any class reports what a query of the object returns.
#[test]
fn every_listing_reports_what_a_query_returns() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    fill(&tree);
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    for class in LISTINGS {
        let flags = QueryDirectoryFlags::RESTART_SCANS;
        let bytes = root.query_directory(class, "*", flags, 65_536).unwrap();
        let format = DirectoryFormat::of(class).unwrap();
        let entries: Vec<_> = DirectoryEntries::new(format, &bytes)
            .map(|entry| entry.unwrap())
            .filter(|entry| !entry.file_name.starts_with('.'))
            .collect();
        assert_eq!(entries.len(), 3, "{class}");
        for entry in entries {
            let name = entry.file_name;
            let file = open(&tree, &name);
            let listed = FileFacts {
                creation_time: entry.creation_time,
                last_access_time: entry.last_access_time,
                last_write_time: entry.last_write_time,
                change_time: entry.change_time,
                allocation_size: entry.allocation_size,
                end_of_file: entry.end_of_file,
                file_attributes: entry.file_attributes,
            };
            assert_eq!(listed, facts(&file), "{class} {name}");
            let id = file.query(Class::INTERNAL).unwrap();
            let known = entry.file_id == 0 || entry.file_id.to_le_bytes() == id[..];
            assert!(known, "{class} {name}");
            file.close().unwrap();
        }
    }
}
