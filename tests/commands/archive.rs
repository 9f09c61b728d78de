//! FILE_ATTRIBUTE_ARCHIVE: a backup clears it, and every later change sets it again ([MS-FSA] 2.1.4.17).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{
    HoldfastServer,
    state::{ea_list, xattrs},
    status,
};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileBasicInformation, FileInformationClass, FileLinkInformation};
use smb_wire::fsctl::{FsctlCode, SetZeroData};
use smb_wire::ids::FileTime;
use smb_wire::msg::{CreateDisposition, InfoType};

fn basic(attributes: FileAttributes) -> Vec<u8> {
    let keep = FileTime(0);
    let mut out = bytes::BytesMut::new();
    FileBasicInformation {
        creation_time: keep,
        last_access_time: keep,
        last_write_time: keep,
        change_time: keep,
        file_attributes: attributes,
    }
    .encode(&mut out);
    out.to_vec()
}

fn set(file: &File, attributes: FileAttributes) {
    file.set(FileInformationClass::BASIC, &basic(attributes))
        .unwrap();
}

/// Clears the attribute as a backup does.
fn clear(tree: &Tree, name: &str) {
    let access = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::FILE_WRITE_ATTRIBUTES;
    let file = tree.create(&CreateArgs::open(name).access(access)).unwrap();
    set(&file, FileAttributes::NORMAL);
    file.close().unwrap();
    assert!(!archive(tree, name), "{name}");
}

/// Whether the file has the attribute.
fn archive(tree: &Tree, name: &str) -> bool {
    let args = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
    let file = tree.create(&args).unwrap();
    let attributes = file.created().facts.file_attributes;
    file.close().unwrap();
    attributes.contains(FileAttributes::ARCHIVE)
}

fn all(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

fn zero(file: &File) {
    let mut input = bytes::BytesMut::new();
    SetZeroData {
        file_offset: 0,
        beyond_final_zero: 2,
    }
    .encode(&mut input);
    file.ioctl(FsctlCode::SET_ZERO_DATA, &input, 0).unwrap();
}

fn link(file: &File, to: &str) {
    let mut input = bytes::BytesMut::new();
    FileLinkInformation {
        replace_if_exists: true,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut input);
    file.set(FileInformationClass::LINK, &input).unwrap();
}

fn set_descriptor(file: &File) {
    let dacl = SecurityInformation::DACL.bits();
    let bytes = file.query_info(InfoType::SECURITY, 0, dacl).unwrap();
    let request = file.set_info_request(InfoType::SECURITY, 0, dacl, &bytes);
    assert_eq!(status(file.tree().call(request)), Status::SUCCESS);
}

/// A change of a file through a handle.
type Change = fn(&File);

#[test]
fn every_change_sets_it_again() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    assert!(archive(&tree, "f"));
    let changes: [(&str, Change); 9] = [
        ("write", |file| file.write_all(0, b"new").unwrap()),
        ("end of file", |file| file.set_end_of_file(3).unwrap()),
        ("allocation", |file| {
            let size = 8192_u64.to_le_bytes();
            file.set(FileInformationClass::ALLOCATION, &size).unwrap();
        }),
        ("zero", zero),
        ("copy", |file| {
            file.write_all(0, b"content").unwrap();
            clear(file.tree(), "f");
            let chunks = file.copy_chunks(&[(0, 4, 2)]).unwrap();
            file.ioctl(FsctlCode::SRV_COPYCHUNK, &chunks, 12).unwrap();
        }),
        ("rename", |file| {
            file.rename("g", false).unwrap();
            file.rename("f", false).unwrap();
        }),
        ("link", |file| link(file, "another name")),
        ("attribute", |file| {
            file.set(FileInformationClass::FULL_EA, &ea_list("NAME", b"value"))
                .unwrap();
        }),
        ("descriptor", set_descriptor),
    ];
    for (what, change) in changes {
        clear(&tree, "f");
        let file = all(&tree, "f");
        change(&file);
        file.close().unwrap();
        assert!(archive(&tree, "f"), "{what}");
        // The change may come through a handle that was opened before.
        let file = all(&tree, "f");
        clear(&tree, "f");
        if what != "link" {
            change(&file);
            assert!(archive(&tree, "f"), "{what}");
        }
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.5, phase 10: a deletion does, and a replacing rename (2.1.5.15.12) deletes by the same rules. A
/// replacing link (2.1.5.15.7) takes the name away without them.
#[test]
fn the_removal_of_one_of_several_names_sets_it_again() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    let other_name = || {
        let file = all(&tree, "f");
        link(&file, "g");
        file.close().unwrap();
        clear(&tree, "f");
    };
    other_name();
    tree.delete("g").unwrap();
    assert!(archive(&tree, "f"), "deleted");
    other_name();
    tree.write_file("h", b"other").unwrap();
    tree.rename("h", "g", true).unwrap();
    assert!(archive(&tree, "f"), "replaced");
    tree.delete("g").unwrap();
    other_name();
    tree.write_file("h", b"other").unwrap();
    let file = all(&tree, "h");
    link(&file, "g");
    file.close().unwrap();
    assert!(!archive(&tree, "f"), "replaced by a link");
    assert_eq!(tree.read_file("g").unwrap(), b"other");
    assert_eq!(tree.read_file("f").unwrap(), b"content");
}

#[test]
fn changes_of_streams_set_it_again() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    clear(&tree, "f");
    let stream = all(&tree, "f:s");
    assert!(archive(&tree, "f"), "made");
    clear(&tree, "f");
    stream.write_all(0, b"content").unwrap();
    assert!(archive(&tree, "f"), "written");
    clear(&tree, "f");
    stream.rename(":t", false).unwrap();
    assert!(archive(&tree, "f"), "renamed");
    stream.close().unwrap();
    clear(&tree, "f");
    let args = CreateArgs::open("f:t").disposition(CreateDisposition::OVERWRITE);
    tree.create(&args).unwrap().close().unwrap();
    assert!(archive(&tree, "f"), "overwritten");
}

#[test]
fn it_stays_clear_without_a_change_and_where_a_client_clears_it_last() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"content").unwrap();
    clear(&tree, "f");
    let file = all(&tree, "f");
    file.read(0, 3).unwrap();
    file.close().unwrap();
    assert!(!archive(&tree, "f"), "read");
    let file = all(&tree, "f");
    file.write_all(0, b"new").unwrap();
    set(&file, FileAttributes::HIDDEN);
    file.close().unwrap();
    assert!(!archive(&tree, "f"), "cleared last");
    // Other attributes stay.
    let file = all(&tree, "f");
    file.write_all(0, b"again").unwrap();
    file.close().unwrap();
    let args = CreateArgs::open("f").access(AccessMask::FILE_READ_ATTRIBUTES);
    let attributes = tree.create(&args).unwrap().created().facts.file_attributes;
    assert_eq!(attributes, FileAttributes::ARCHIVE | FileAttributes::HIDDEN);
}

/// A file that was made on the host has the attribute anyway, and nothing is stored for it.
#[test]
fn nothing_is_stored_where_it_is_set_by_default() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    std::fs::write(server.path("f"), b"content").unwrap();
    let file = all(&tree, "f");
    file.write_all(0, b"new").unwrap();
    file.close().unwrap();
    assert!(archive(&tree, "f"));
    let stored = xattrs(&server.path("f"));
    assert!(stored.iter().all(|(name, _)| name != "user.DOSATTRIB"));
}
