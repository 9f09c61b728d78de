//! The structures that give a file another name or take one away: fields that mean nothing, where a name ends, flags of
//! deletions, and objects that keep their names ([MS-FSCC] 2.1.8, 2.4.12, 2.4.28.2, 2.4.42.2, 2.4.43, [MS-FSA]
//! 2.1.5.15.3, 2.1.5.15.4, 2.1.5.15.7, 2.1.5.15.12).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options};
use smb_tests::{DATA, HoldfastServer, READ_ONLY, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{
    DispositionFlags, FileInformationClass as Class, FileLinkInformation, FileStandardInformation,
};
use smb_wire::msg::{CreateDisposition, Dialect};

/// The forms of the structure, which differ in their first four bytes.
const FORMS: [Class; 4] = [Class::RENAME, Class::RENAME_EX, Class::LINK, Class::LINK_EX];

use super::query_answers::open;

/// The structure with a new name, which has the same layout in each of its forms.
fn named(to: &str, replace_if_exists: bool) -> BytesMut {
    let mut buffer = BytesMut::new();
    FileLinkInformation {
        replace_if_exists,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut buffer);
    buffer
}

fn is_pending(file: &File) -> bool {
    let standard = file.query(Class::STANDARD).unwrap();
    FileStandardInformation::read(&standard)
        .unwrap()
        .delete_pending
}

fn dispose(file: &File, flags: u32) -> Status {
    status(file.set(Class::DISPOSITION_EX, &flags.to_le_bytes()))
}

/// [MS-FSCC] 2.4.28.2, 2.4.42.2, 2.4.43: reserved bytes can have any value.
#[test]
fn reserved_bytes_of_a_new_name_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for class in FORMS {
        tree.write_file("f", b"new").unwrap();
        tree.write_file("taken", b"old").unwrap();
        let with = |to: &str, replace| {
            let mut buffer = named(to, replace);
            // The forms with flags have four bytes of them.
            let reserved = match class {
                Class::RENAME | Class::LINK => 1..8_usize,
                _ => 4..8,
            };
            buffer[reserved].fill(0xff);
            let file = open(&tree, "f");
            let end = status(file.set(class, &buffer));
            file.close().unwrap();
            end
        };
        let collides = with("taken", false);
        assert_eq!(collides, Status::OBJECT_NAME_COLLISION, "{class}");
        assert_eq!(tree.read_file("taken").unwrap(), b"old", "{class}");
        assert_eq!(with("taken", true), Status::SUCCESS, "{class}");
        assert_eq!(tree.read_file("taken").unwrap(), b"new", "{class}");
        // A link leaves its file the other name.
        let _ = tree.delete("f");
        tree.delete("taken").unwrap();
    }
}

/// [MS-FSCC] 2.1.8: any value but zero is TRUE.
#[test]
fn any_value_but_zero_replaces_what_is_there() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for class in [Class::RENAME, Class::LINK] {
        for value in [1, 2, 0x80, 0xff] {
            tree.write_file("f", b"new").unwrap();
            tree.write_file("taken", b"old").unwrap();
            let mut buffer = named("taken", false);
            buffer[0] = value;
            let file = open(&tree, "f");
            let end = status(file.set(class, &buffer));
            assert_eq!(end, Status::SUCCESS, "{class} {value}");
            file.close().unwrap();
            let content = tree.read_file("taken").unwrap();
            assert_eq!(content, b"new", "{class} {value}");
            let _ = tree.delete("f");
            tree.delete("taken").unwrap();
        }
    }
}

/// [MS-FSCC] 2.4.28.2, 2.4.42.2: FileNameLength ends the name, and neither a zero nor the buffer does.
#[test]
fn a_new_name_ends_where_its_length_says() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for class in FORMS {
        let file = open(&tree, "f");
        let with = |length: u8| {
            let mut buffer = named("new name", false);
            buffer[16] = length;
            status(file.set(class, &buffer))
        };
        // One byte beyond the buffer, and half a character.
        for wrong in [18, 16 + 1, 5, 0] {
            let refused = with(wrong);
            assert!(refused.is_error(), "{class} {wrong}: {refused}");
        }
        assert!(!server.path("new").exists(), "{class}");
        assert_eq!(with(6), Status::SUCCESS, "{class}");
        assert!(server.path("new").exists(), "{class}");
        file.close().unwrap();
        // A zero is no character of a name.
        let file = open(&tree, "new");
        let refused = status(file.set(class, &named("a\0", false)));
        assert_eq!(refused, Status::OBJECT_NAME_INVALID, "{class}");
        file.close().unwrap();
        tree.delete("new").unwrap();
    }
}

/// [MS-SMB2] 2.2.39, [MS-FSCC] 2.4.42.2: all dialects of SMB 2 and 3 have the form with 64 bits.
#[test]
fn every_dialect_renames_and_links() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2] {
        let tree = server
            .session(Options::dialect(dialect))
            .tree(DATA)
            .unwrap();
        tree.write_file("f", b"content").unwrap();
        let file = open(&tree, "f");
        file.set(Class::LINK, &named("linked", false)).unwrap();
        file.rename("renamed", false).unwrap();
        file.close().unwrap();
        assert!(!server.path("f").exists(), "{dialect}");
        for name in ["linked", "renamed"] {
            assert_eq!(tree.read_file(name).unwrap(), b"content", "{dialect}");
            tree.delete(name).unwrap();
        }
    }
}

/// The root of a share has no name that a client could change, and is there for the others.
#[test]
fn the_root_keeps_its_name() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::DELETE;
    let root = tree.create(&CreateArgs::directory("").access(access));
    let root = root.unwrap();
    for class in FORMS {
        let refused = status(root.set(class, &named("other", true)));
        assert!(refused.is_error(), "{class}: {refused}");
    }
    assert!(status(root.set_delete(true)).is_error());
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    assert!(dispose(&root, posix.bits()).is_error());
    assert!(!is_pending(&root));
    tree.write_file("f", b"x").unwrap();
    root.close().unwrap();
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"x");
}

/// [MS-FSA] 2.1.5.15: a share that is only to be read takes no name, although a link needs no right to its file.
#[test]
fn a_share_that_is_read_takes_no_new_name() {
    let server = HoldfastServer::new();
    let tree = server.session(Options::default()).tree(READ_ONLY).unwrap();
    std::fs::write(server.share_path(READ_ONLY, "f"), b"x").unwrap();
    let most = CreateArgs::open("f").access(AccessMask::MAXIMUM_ALLOWED);
    let file = tree.create(&most).unwrap();
    let refusals = [Status::ACCESS_DENIED, Status::MEDIA_WRITE_PROTECTED];
    for class in FORMS {
        let refused = status(file.set(class, &named("g", false)));
        assert!(refusals.contains(&refused), "{class}: {refused}");
    }
    for (class, length) in [
        (Class::BASIC, 40),
        (Class::END_OF_FILE, 8),
        (Class::ALLOCATION, 8),
        (Class::DISPOSITION, 1),
        (Class::DISPOSITION_EX, 4),
        (Class::POSITION, 8),
        (Class::MODE, 4),
    ] {
        let mut buffer = vec![0; length];
        buffer[0] = 1;
        let refused = status(file.set(class, &buffer));
        assert!(refusals.contains(&refused), "{class}: {refused}");
    }
    let stream = CreateArgs::open_if("f:s").access(AccessMask::FILE_READ_DATA);
    let refused = tree.create_status(&stream).unwrap();
    assert!(refusals.contains(&refused), "{refused}");
    let granted = file.query(Class::ACCESS).unwrap();
    let granted = AccessMask(u32::from_le_bytes(granted.try_into().unwrap()));
    let changing = AccessMask::FILE_WRITE_DATA
        | AccessMask::FILE_APPEND_DATA
        | AccessMask::FILE_WRITE_EA
        | AccessMask::FILE_WRITE_ATTRIBUTES
        | AccessMask::DELETE
        | AccessMask::WRITE_DAC;
    assert!(!granted.intersects(changing), "{granted}");
    let left = std::fs::read_dir(server.share_path(READ_ONLY, "")).unwrap();
    assert_eq!(left.count(), 1);
}

/// [MS-FSCC] 2.4.12, [MS-FSA] 2.1.5.15.4: each flag that is defined is taken; without DELETE they take the mark off.
#[test]
fn the_flags_of_a_deletion_are_taken_together() {
    const IMAGE_SECTION_CHECK: u32 = 0x4;
    let server = HoldfastServer::new();
    let tree = server.tree();
    let delete = DispositionFlags::DELETE.bits();
    let posix = DispositionFlags::POSIX_SEMANTICS.bits();
    let readonly = DispositionFlags::IGNORE_READONLY_ATTRIBUTE.bits();
    for name in ["f", "f:s"] {
        let file = open(&tree, name);
        for flags in [
            delete | IMAGE_SECTION_CHECK,
            delete | posix | IMAGE_SECTION_CHECK,
            delete | readonly,
            delete | posix | readonly | IMAGE_SECTION_CHECK,
        ] {
            assert_eq!(dispose(&file, flags), Status::SUCCESS, "{name} {flags:#x}");
            assert!(is_pending(&file), "{name} {flags:#x}");
            let others = flags & !delete;
            assert_eq!(
                dispose(&file, others),
                Status::SUCCESS,
                "{name} {others:#x}"
            );
            assert!(!is_pending(&file), "{name} {others:#x}");
        }
        file.close().unwrap();
        let there = tree.create_status(&CreateArgs::open(name)).unwrap();
        assert_eq!(there, Status::SUCCESS, "{name}");
    }
    // With POSIX semantics the name is free at the close of that handle, and the others keep the file.
    let [file, other] = [(); 2].map(|()| open(&tree, "f"));
    other.write_all(0, b"content").unwrap();
    assert_eq!(dispose(&file, delete | posix), Status::SUCCESS);
    file.close().unwrap();
    let new = CreateArgs::new("f", CreateDisposition::CREATE);
    let new = tree.create(&new).unwrap();
    assert_eq!(other.read_all().unwrap(), b"content");
    assert_eq!(new.read_all().unwrap(), b"");
    assert!(is_pending(&other) && !is_pending(&new));
}
