//! Extended attributes and security descriptors through QUERY_INFO, SET_INFO and CREATE.

use std::os::unix::fs::MetadataExt;

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{
    HoldfastServer,
    state::{all_attributes, xattrs},
    status,
};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{
    DirectoryEntries, DirectoryFormat, FileBasicInformation, FileInformationClass,
};
use smb_wire::msg::{
    CreateDisposition, InfoType, QueryDirectoryFlags, QueryInfoFlags, QueryInfoRequest,
    QueryInfoResponse,
};

/// Builds a FILE_FULL_EA_INFORMATION list ([MS-FSCC] 2.4.15).
fn list(attributes: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for (index, (name, value)) in attributes.iter().enumerate() {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, 0, u8::try_from(name.len()).unwrap()]);
        out.extend_from_slice(&u16::try_from(value.len()).unwrap().to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend_from_slice(value);
        if index + 1 < attributes.len() {
            out.resize(out.len().next_multiple_of(4), 0);
            let next = u32::try_from(out.len() - start).unwrap();
            out[start..start + 4].copy_from_slice(&next.to_le_bytes());
        }
    }
    out
}

fn full_access(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

fn has(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn attributes_are_set_returned_and_removed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let set = |attributes: &[(&str, &[u8])]| {
        status(file.set(FileInformationClass::FULL_EA, &list(attributes)))
    };
    assert_eq!(
        set(&[("ONE", b"first"), ("TWO", b"second")]),
        Status::SUCCESS
    );
    let told = all_attributes(&file).unwrap();
    assert!(has(&told, b"first") && has(&told, b"second"));
    let size = file.query(FileInformationClass::EA).unwrap();
    assert_ne!(u32::from_le_bytes(size.try_into().unwrap()), 0);
    // An attribute without a value is removed.
    assert_eq!(set(&[("ONE", b"")]), Status::SUCCESS);
    let told = all_attributes(&file).unwrap();
    assert!(!has(&told, b"first") && has(&told, b"second"));
}

/// [MS-SMB2] 3.3.5.20.1.
#[test]
fn an_attribute_that_is_asked_for_by_its_index_leaves_the_scan_where_it_is() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let three: [(&str, &[u8]); 3] = [("ONE", b"1"), ("TWO", b"22"), ("THREE", b"333")];
    file.set(FileInformationClass::FULL_EA, &list(&three))
        .unwrap();
    let request = |flags: QueryInfoFlags, index, max| {
        Request::new(&QueryInfoRequest {
            info_type: InfoType::FILE,
            info_class: FileInformationClass::FULL_EA.0,
            output_buffer_length: max,
            additional_information: index,
            flags: flags | QueryInfoFlags::RETURN_SINGLE_ENTRY,
            file_id: file.id(),
            input: &[],
        })
    };
    let query = |flags, index| {
        let reply = tree.call(request(flags, index, 1024)).unwrap();
        QueryInfoResponse::read(&reply.message)
            .unwrap()
            .buffer
            .to_vec()
    };
    let (scan, at) = (QueryInfoFlags::empty(), QueryInfoFlags::INDEX_SPECIFIED);
    let [first, second, third] = [1, 2, 3].map(|index| query(at, index));
    assert!(first != second && second != third);
    assert_eq!(query(scan, 0), first);
    assert_eq!(query(at, 3), third);
    assert_eq!(query(scan, 0), second);
    // A scan begins anew even if nothing fits into the answer.
    let restart = QueryInfoFlags::RESTART_SCAN;
    let short = status(tree.call(request(restart, 0, 8)));
    assert_eq!(short, Status::BUFFER_TOO_SMALL);
    assert_eq!(query(scan, 0), first);
    assert_eq!(query(restart, 0), first);
}

#[test]
fn a_create_can_bring_attributes_for_a_new_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f")
        .access(AccessMask::FILE_ALL_ACCESS)
        .context(name::EXTENDED_ATTRIBUTES, &list(&[("NEW", b"from create")]));
    let file = tree.create(&args).unwrap();
    let told = all_attributes(&file).unwrap();
    assert!(has(&told, b"from create"));
}

/// [MS-FSCC] 2.4.16.
#[test]
fn a_create_with_attributes_of_wrong_form_makes_no_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let good = list(&[("NAME", b"value")]);
    let create = |at: usize, byte: u8| {
        let mut list = good.clone();
        list[at] = byte;
        let new = CreateArgs::create("f").context(name::EXTENDED_ATTRIBUTES, &list);
        status(tree.create(&new))
    };
    // A flag without a meaning, a wildcard, and a byte that is no text.
    for (at, byte) in [(4, 1), (8, b'*'), (8, 0xff)] {
        assert_eq!(create(at, byte), Status::INVALID_EA_NAME, "{at} {byte}");
        assert!(!server.path("f").exists());
    }
    // A name of the server's own, and one that Linux has no room for.
    for own in ["DOSATTRIB", &"n".repeat(251)] {
        let list = list(&[("GOOD", b"value"), (own, b"value")]);
        let new = CreateArgs::create("f").context(name::EXTENDED_ATTRIBUTES, &list);
        let refused = status(tree.create(&new));
        assert_eq!(refused, Status::INVALID_EA_NAME, "{own}");
        assert!(!server.path("f").exists());
    }
    // FILE_NEED_EA.
    assert_eq!(create(4, 0x80), Status::SUCCESS);
}

/// [MS-FSA] 2.1.5.15.6: a file has 64 KiB less 5 bytes of attributes at most, also of those that a CREATE brings.
#[test]
fn a_create_brings_no_more_attributes_than_a_file_may_have() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("there", b"kept").unwrap();
    // Each of them alone is allowed.
    let half = vec![b'v'; 32_768];
    let both = list(&[("A", &half), ("B", &half)]);
    let create = |file: &str, disposition| {
        let args = CreateArgs::new(file, disposition);
        status(tree.create(&args.context(name::EXTENDED_ATTRIBUTES, &both)))
    };
    for (file, disposition) in [
        ("new", CreateDisposition::CREATE),
        ("new:s", CreateDisposition::OPEN_IF),
        ("there", CreateDisposition::OVERWRITE),
        ("there", CreateDisposition::SUPERSEDE),
    ] {
        let refused = create(file, disposition);
        assert_eq!(refused, Status::EA_TOO_LARGE, "{file} {disposition}");
    }
    assert!(!server.path("new").exists());
    assert_eq!(tree.read_file("there").unwrap(), b"kept");
    // An existing file gets none of them ([MS-SMB2] 3.3.5.9.1).
    let opened = create("there", CreateDisposition::OPEN_IF);
    assert_eq!(opened, Status::SUCCESS);
}

#[test]
fn attributes_of_wrong_form_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let good = list(&[("NAME", b"value")]);
    for (at, byte) in [(0, 3u8), (0, 0xfc), (5, 0xff), (6, 0xff)] {
        let mut bad = good.clone();
        bad[at] = byte;
        let refused = status(file.set(FileInformationClass::FULL_EA, &bad));
        assert!(
            [
                Status::EA_LIST_INCONSISTENT,
                Status::INVALID_EA_NAME,
                Status::INVALID_PARAMETER
            ]
            .contains(&refused),
            "{at}: {refused}"
        );
    }
    for cut in [1, 7, 8] {
        let refused = status(file.set(FileInformationClass::FULL_EA, &good[..cut]));
        assert_eq!(refused, Status::EA_LIST_INCONSISTENT, "{cut}");
    }
    let blind = tree
        .create(&CreateArgs::open("f").access(AccessMask::FILE_READ_DATA))
        .unwrap();
    assert_eq!(
        status(blind.set(FileInformationClass::FULL_EA, &good)),
        Status::ACCESS_DENIED
    );
    assert_eq!(
        status(blind.query(FileInformationClass::FULL_EA)),
        Status::ACCESS_DENIED
    );
}

fn descriptor(file: &File, parts: SecurityInformation) -> Vec<u8> {
    file.query_info(InfoType::SECURITY, 0, parts.bits())
        .unwrap()
}

fn set_descriptor(file: &File, parts: SecurityInformation, bytes: &[u8]) -> Status {
    let request = file.set_info_request(InfoType::SECURITY, 0, parts.bits(), bytes);
    status(file.tree().call(request))
}

#[test]
fn a_descriptor_reads_back_as_it_was_set() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let dacl = SecurityInformation::DACL;
    let before = descriptor(&file, dacl);
    let parsed = SecurityDescriptor::read(&before).unwrap();
    assert!(parsed.dacl.is_some());
    assert_eq!(set_descriptor(&file, dacl, &before), Status::SUCCESS);
    let after = SecurityDescriptor::read(&descriptor(&file, dacl)).unwrap();
    assert_eq!(after.dacl, parsed.dacl);
    let whole = SecurityInformation::OWNER | SecurityInformation::GROUP | dacl;
    let whole = SecurityDescriptor::read(&descriptor(&file, whole)).unwrap();
    assert!(whole.owner.is_some() && whole.group.is_some());
}

#[test]
fn descriptors_need_rights_and_a_valid_form() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let dacl = SecurityInformation::DACL;
    let good = descriptor(&file, dacl);
    let blind = tree
        .create(&CreateArgs::open("f").access(AccessMask::FILE_READ_DATA))
        .unwrap();
    assert_eq!(set_descriptor(&blind, dacl, &good), Status::ACCESS_DENIED);
    for bad in [&good[..good.len().min(19)], &[0xff; 40]] {
        let refused = set_descriptor(&file, dacl, bad);
        assert!(refused.is_error(), "{refused}");
    }
    let mut buffer = BytesMut::from(&good[..]);
    // The DACL's offset is outside the buffer.
    buffer[16..20].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    assert!(set_descriptor(&file, dacl, &buffer).is_error());
    let same = SecurityDescriptor::read(&descriptor(&file, dacl)).unwrap();
    assert_eq!(same.dacl, SecurityDescriptor::read(&good).unwrap().dacl);
}

/// [MS-DTYP] 2.4.7: a backup reads all parts, also those that nobody may read here.
#[test]
fn a_backup_of_a_descriptor_is_not_an_empty_one() {
    let server = HoldfastServer::new();
    let file = full_access(&server.tree(), "f");
    let asked = file.query_info(InfoType::SECURITY, 0, SecurityInformation::BACKUP.bits());
    assert_eq!(status(asked), Status::ACCESS_DENIED);
}

/// [MS-FSA] 2.1.5.17 and [MS-SMB2] 3.3.5.21.3: the descriptor belongs to the file, whichever of its streams is open,
/// and an owner that is named must be there.
#[test]
fn a_descriptor_is_set_through_a_stream() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let stream = full_access(&tree, "f:stream");
    let list = SecurityInformation::DACL;
    let before = descriptor(&file, list);
    let set = SecurityDescriptor {
        dacl: Some(Acl::new(Vec::new())),
        ..SecurityDescriptor::read(&before).unwrap()
    };
    let mut bytes = BytesMut::new();
    set.encode(&mut bytes).unwrap();
    assert_eq!(set_descriptor(&stream, list, &bytes), Status::SUCCESS);
    let now = SecurityDescriptor::read(&descriptor(&file, list)).unwrap();
    assert_eq!(now.dacl.unwrap().aces, []);
    assert_eq!(descriptor(&stream, list), descriptor(&file, list));
    let both = list | SecurityInformation::OWNER;
    assert_eq!(set_descriptor(&file, both, &bytes), Status::INVALID_OWNER);
}

/// The entries that new objects inherit stay when another part is set through a stream of the directory.
#[test]
fn a_stream_of_a_directory_has_the_whole_descriptor() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let directory = tree.create(&CreateArgs::directory("d")).unwrap();
    let stream = full_access(&tree, "d:stream");
    let (list, group) = (SecurityInformation::DACL, SecurityInformation::GROUP);
    let entries = |file: &File| {
        let descriptor = SecurityDescriptor::read(&descriptor(file, list)).unwrap();
        descriptor.dacl.unwrap().aces
    };
    let before = entries(&directory);
    assert_eq!(entries(&stream), before);
    let same = descriptor(&directory, group);
    assert_eq!(set_descriptor(&stream, group, &same), Status::SUCCESS);
    assert_eq!(entries(&directory), before);
}

/// [MS-SMB2] 3.3.5.21.3: flags that name no part are ignored. A handle without any right to change the descriptor must
/// not change it by them.
#[test]
fn a_set_that_names_no_part_changes_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let dacl = SecurityInformation::DACL;
    let before = descriptor(&full_access(&tree, "f"), dacl);
    let stored = xattrs(&server.path("f"));
    let changed = std::fs::metadata(server.path("f")).unwrap().ctime_nsec();
    let blind = tree
        .create(&CreateArgs::open("f").access(AccessMask::FILE_READ_ATTRIBUTES))
        .unwrap();
    for parts in [0, 0x8000_0000, 0x4000_0000, 0x2000_0000, 0xf000_0000] {
        let set = set_descriptor(&blind, SecurityInformation(parts), &before);
        assert_eq!(set, Status::SUCCESS, "{parts:#x}");
    }
    assert_eq!(descriptor(&full_access(&tree, "f"), dacl), before);
    assert_eq!(xattrs(&server.path("f")), stored);
    let after = std::fs::metadata(server.path("f")).unwrap().ctime_nsec();
    assert_eq!(after, changed);
    assert_eq!(
        set_descriptor(&blind, SecurityInformation(0x8000_0004), &before),
        Status::ACCESS_DENIED
    );
}

/// A very long list, queried with every buffer size around each boundary: the server returns all of
/// it, or only the required size ([MS-SMB2] 3.3.5.20.3).
#[test]
fn a_long_list_is_returned_entirely_or_not_at_all() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = full_access(&tree, "f");
    let dacl = SecurityInformation::DACL;
    let mut sd = SecurityDescriptor::read(&descriptor(&file, dacl)).unwrap();
    // As many entries as the file system can store.
    let set = [1000u32, 500, 200, 100].into_iter().find(|count| {
        let user = |n| {
            Ace::allow(
                Sid::unix_user(100_000 + n),
                AccessMask::FILE_READ_DATA,
                AceFlags::empty(),
            )
        };
        let mut aces: Vec<_> = (0..*count).map(user).collect();
        aces.push(Ace::allow(
            Sid::EVERYONE,
            AccessMask::FILE_ALL_ACCESS,
            AceFlags::empty(),
        ));
        sd.dacl = Some(Acl::new(aces));
        let mut bytes = BytesMut::new();
        sd.encode(&mut bytes).unwrap();
        set_descriptor(&file, dacl, &bytes) == Status::SUCCESS
    });
    assert!(set.is_some(), "not even 100 entries are kept");
    let whole = descriptor(&file, dacl);
    let told = SecurityDescriptor::read(&whole).unwrap();
    assert_eq!(told.dacl, sd.dacl);
    let len = u32::try_from(whole.len()).unwrap();
    let around = (0..64)
        .chain((64..len).step_by(251))
        .chain(len - 40..len + 40);
    for max in around.chain([65_536]) {
        let request =
            smb_client::Request::query_info(file.id(), InfoType::SECURITY, 0, dacl.bits(), max);
        let reply = tree.reply(tree.address(request)).unwrap();
        if max >= len {
            assert_eq!(reply.status(), Status::SUCCESS, "{max}");
            let answer = QueryInfoResponse::read(&reply.message).unwrap();
            assert_eq!(answer.buffer, &whole[..], "{max}");
        } else {
            assert_eq!(reply.status(), Status::BUFFER_TOO_SMALL, "{max}");
            let needed = len.to_le_bytes();
            assert!(has(&reply.message, &needed), "{max}");
            assert!(!has(&reply.message, &whole[whole.len() - 32..]), "{max}");
        }
    }
    // The server still evaluates it.
    assert_eq!(status(tree.create(&CreateArgs::open("f"))), Status::SUCCESS);
}

/// [MS-FSCC] 2.4.10: a listing shows the size of the extended attributes in every class that has the field.
#[test]
fn listings_show_the_size_of_extended_attributes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    let inside = CreateArgs::directory("d").access(AccessMask::FILE_WRITE_EA);
    let inside = tree.create(&inside).unwrap();
    // More than are read one by one.
    for at in 0..9 {
        tree.write_file(&format!("none {at}"), b"x").unwrap();
        let file = tree.create(&CreateArgs::create(&format!("some {at}")));
        let class = FileInformationClass::FULL_EA;
        let value = vec![b'v'; 10 + at];
        let eas = list(&[("FIRST", &value), ("B", b"b")]);
        file.unwrap().set(class, &eas).unwrap();
    }
    let eas = list(&[("DIR", b"value")]);
    inside.set(FileInformationClass::FULL_EA, &eas).unwrap();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    for class in [
        FileInformationClass::FULL_DIRECTORY,
        FileInformationClass::BOTH_DIRECTORY,
        FileInformationClass::ID_FULL_DIRECTORY,
        FileInformationClass::ID_BOTH_DIRECTORY,
        FileInformationClass::ID_EXTD_DIRECTORY,
    ] {
        // Twice, because the second listing may go by what the first one has read.
        for _ in 0..2 {
            let flags = QueryDirectoryFlags::REOPEN;
            let bytes = root.query_directory(class, "*", flags, 65_536).unwrap();
            let format = DirectoryFormat::of(class).unwrap();
            let entries = DirectoryEntries::new(format, &bytes).map(Result::unwrap);
            let mut seen = 0;
            for entry in entries {
                let expected = match entry.file_name.as_str() {
                    "d" => 4 + 5 + 3 + 5,
                    name => match name.strip_prefix("some ") {
                        None => 0,
                        Some(at) => 4 + 5 + 5 + 10 + at.parse::<u32>().unwrap() + 5 + 1 + 1,
                    },
                };
                assert_eq!(entry.ea_size, expected, "{class} {}", entry.file_name);
                seen += 1;
            }
            assert_eq!(seen, 2 + 1 + 18);
        }
    }
    // A change is seen at once.
    let file = tree.create(&CreateArgs::open("some 0")).unwrap();
    let eas = list(&[("FIRST", b""), ("B", b"")]);
    file.set(FileInformationClass::FULL_EA, &eas).unwrap();
    assert_eq!(tree.list("", "some 0").unwrap()[0].ea_size, 0);
}

/// [MS-FSA] 2.1.5.1.1: new objects take NOT_CONTENT_INDEXED from their directory, and from nothing else.
#[test]
fn the_index_leaves_out_what_is_made_in_a_directory_it_leaves_out() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let unindexed = FileAttributes::NOT_CONTENT_INDEXED;
    let has = |name: &str| {
        let args = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
        let facts = tree.create(&args).unwrap().created().facts;
        facts.file_attributes.contains(unindexed)
    };
    let asked = CreateArgs::create_directory("d").attributes(unindexed);
    let directory = tree.create(&asked).unwrap();
    assert!(!has("d"));
    let mut basic = BytesMut::new();
    FileBasicInformation {
        file_attributes: unindexed,
        ..FileBasicInformation::default()
    }
    .encode(&mut basic);
    tree.write_file("d\\before", b"x").unwrap();
    directory.set(FileInformationClass::BASIC, &basic).unwrap();
    tree.write_file("d\\after", b"x").unwrap();
    tree.mkdir("d\\below").unwrap();
    tree.write_file("d\\below\\f", b"x").unwrap();
    assert!(has("d") && !has("d\\before"));
    assert!(has("d\\after") && has("d\\below") && has("d\\below\\f"));
}
