//! robocopy of Windows (`/E /COPY:DATS /DCOPY:DAT`, `/Z`) copies a tree with its attributes and
//! times.

use smb_client::{CreateArgs, File, Tree};
use smb_tests::HoldfastServer;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::SecurityDescriptorControl;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::FileInformationClass as Class;
use smb_wire::msg::{CreateDisposition, CreateOptions, ShareAccess};

use crate::requests::{LONG_AGO, basic, entries, listed, set_basic, set_entries, standard};

const BACKUP: CreateOptions = CreateOptions::OPEN_FOR_BACKUP_INTENT;

fn folder(tree: &Tree, name: &str, disposition: CreateDisposition) -> File {
    let access = AccessMask::FILE_LIST_DIRECTORY
        | AccessMask::FILE_READ_ATTRIBUTES
        | AccessMask::FILE_WRITE_ATTRIBUTES
        | AccessMask::READ_CONTROL
        | AccessMask::WRITE_DAC
        | AccessMask::SYNCHRONIZE;
    let args = CreateArgs::directory(name)
        .disposition(disposition)
        .access(access)
        .options(BACKUP | CreateOptions::DIRECTORY_FILE);
    tree.create(&args).unwrap()
}

fn target(tree: &Tree, name: &str, disposition: CreateDisposition) -> File {
    let access = AccessMask::FILE_GENERIC_READ
        | AccessMask::FILE_GENERIC_WRITE
        | AccessMask::WRITE_DAC
        | AccessMask::DELETE;
    let args = CreateArgs::new(name, disposition)
        .access(access)
        .share(ShareAccess::empty())
        .options(BACKUP | CreateOptions::NON_DIRECTORY_FILE | CreateOptions::SEQUENTIAL_ONLY);
    tree.create(&args).unwrap()
}

/// Copies the files first, then sets the times of their folders, deepest first: no later step may
/// change them again.
#[test]
fn a_copied_tree_keeps_its_times_and_attributes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (top, below) = ("copy", "copy\\below");
    for name in [top, below] {
        folder(&tree, name, CreateDisposition::CREATE)
            .close()
            .unwrap();
    }
    let times = |at: u64| LONG_AGO + at * 10_000_000;
    let attributes = [
        FileAttributes::ARCHIVE,
        FileAttributes::READONLY | FileAttributes::ARCHIVE,
        FileAttributes::HIDDEN | FileAttributes::SYSTEM,
    ];
    for (at, wanted) in attributes.into_iter().enumerate() {
        let file = target(
            &tree,
            &format!("copy\\below\\{at}"),
            CreateDisposition::CREATE,
        );
        file.set_end_of_file(100_000).unwrap();
        file.write_all(0, &vec![b'x'; 100_000]).unwrap();
        set_basic(&file, times(1), times(at as u64 + 2), wanted);
        file.close().unwrap();
    }
    let hidden = FileAttributes::DIRECTORY | FileAttributes::HIDDEN | FileAttributes::SYSTEM;
    for (name, at) in [(below, 8), (top, 9)] {
        let open = folder(&tree, name, CreateDisposition::OPEN);
        set_basic(&open, times(1), times(at), hidden);
        open.close().unwrap();
    }
    // The next run compares these, and copies files again that differ.
    for (at, (entry, wanted)) in listed(&tree, below).iter().zip(attributes).enumerate() {
        assert_eq!(entry.last_write_time.0, times(at as u64 + 2), "{at}");
        assert_eq!(entry.creation_time.0, times(1), "{at}");
        assert_eq!(entry.end_of_file, 100_000, "{at}");
        assert_eq!(entry.file_attributes, wanted, "{at}");
    }
    for (name, at) in [(below, 8), (top, 9)] {
        let open = folder(&tree, name, CreateDisposition::OPEN);
        let found = basic(&open);
        assert_eq!(
            (found.creation_time.0, found.last_write_time.0),
            (times(1), times(at))
        );
        assert_eq!(found.file_attributes, hidden, "{name}");
    }
}

/// `/COPY:S` copies the entries of the source, and inherits nothing in addition.
#[test]
fn descriptors_are_copied() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("source", b"x").unwrap();
    let access = AccessMask::READ_CONTROL | AccessMask::FILE_READ_ATTRIBUTES;
    let source = tree
        .create(&CreateArgs::open("source").access(access))
        .unwrap();
    let copied = entries(&source);
    let file = target(&tree, "copy", CreateDisposition::CREATE);
    set_entries(&file, &copied, SecurityDescriptorControl::DACL_PROTECTED).unwrap();
    assert_eq!(entries(&file), copied);
    file.close().unwrap();
    assert_eq!(tree.read_file("copy").unwrap(), b"");
}

/// `/Z` resumes an interrupted copy, which it recognises by its times.
#[test]
fn an_interrupted_copy_is_resumed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at >> 8) as u8).collect();
    let file = target(&tree, "big", CreateDisposition::OVERWRITE_IF);
    file.set(Class::ALLOCATION, &(data.len() as u64).to_le_bytes())
        .unwrap();
    file.set_end_of_file(data.len() as u64).unwrap();
    file.write_all(0, &data[..1_000_000]).unwrap();
    // The year 1980 marks an incomplete copy.
    let unfinished = 119_600_064_000_000_000;
    set_basic(&file, 0, unfinished, FileAttributes::empty());
    file.close().unwrap();
    let file = target(&tree, "big", CreateDisposition::OPEN);
    assert_eq!(basic(&file).last_write_time.0, unfinished);
    assert_eq!(standard(&file).end_of_file, data.len() as u64);
    file.write_all(1_000_000, &data[1_000_000..]).unwrap();
    set_basic(&file, LONG_AGO, LONG_AGO, FileAttributes::ARCHIVE);
    file.close().unwrap();
    assert_eq!(tree.read_file("big").unwrap(), data);
    assert_eq!(listed(&tree, "")[0].last_write_time.0, LONG_AGO);
}
