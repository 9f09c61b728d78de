//! QUERY_INFO ([MS-SMB2] 3.3.5.20).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{QueryOnDiskIdResponse, name};
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{
    FileAllInformation, FileBasicInformation, FileFsAttributeInformation,
    FileFsFullSizeInformation, FileFsSectorSizeInformation, FileFsSizeInformation,
    FileFsVolumeInformation, FileIdInformation, FileInformationClass, FileInternalInformation,
    FileNetworkOpenInformation, FileStandardInformation, FsInformationClass, read_stream_list,
};
use smb_wire::ids::FileId;
use smb_wire::msg::{CreateOptions, InfoType};

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

fn ask(file: &File, kind: InfoType, class: u8, additional: u32, max: u32) -> Status {
    let request = Request::query_info(file.id(), kind, class, additional, max);
    file.tree().reply(request).unwrap().status()
}

#[test]
fn the_classes_agree_about_a_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, &[1; 5000]).unwrap();
    let get = |class| file.query(class).unwrap();
    let standard = FileStandardInformation::read(&get(FileInformationClass::STANDARD)).unwrap();
    assert_eq!((standard.end_of_file, standard.number_of_links), (5000, 1));
    assert!(!standard.delete_pending && !standard.directory);
    assert!(standard.allocation_size >= 5000);
    let basic = FileBasicInformation::read(&get(FileInformationClass::BASIC)).unwrap();
    let network = get(FileInformationClass::NETWORK_OPEN);
    let network = FileNetworkOpenInformation::read(&network).unwrap();
    assert_eq!(network.facts.end_of_file, 5000);
    assert_eq!(network.facts.creation_time, basic.creation_time);
    assert_eq!(network.facts.last_write_time, basic.last_write_time);
    let all = FileAllInformation::read(&get(FileInformationClass::ALL)).unwrap();
    let mut expected = bytes::BytesMut::new();
    basic.encode(&mut expected);
    standard.encode(&mut expected);
    assert_eq!(get(FileInformationClass::ALL)[..64], expected[..64]);
    drop(all);
    for (class, len) in [
        (FileInformationClass::INTERNAL, 8),
        (FileInformationClass::EA, 4),
        (FileInformationClass::ACCESS, 4),
        (FileInformationClass::POSITION, 8),
        (FileInformationClass::MODE, 4),
        (FileInformationClass::ALIGNMENT, 4),
        (FileInformationClass::ATTRIBUTE_TAG, 8),
    ] {
        assert_eq!(get(class).len(), len, "{class}");
    }
}

#[test]
fn the_mode_has_no_option_that_concerns_the_client_alone() {
    // 3.3.5.9: the server sets such options to zero.
    let server = HoldfastServer::new();
    let options = CreateOptions::SYNCHRONOUS_IO_NONALERT | CreateOptions::SEQUENTIAL_ONLY;
    let args = CreateArgs::open_if("f").options(options);
    let file = server.tree().create(&args).unwrap();
    let mode = file.query(FileInformationClass::MODE).unwrap();
    assert_eq!(mode, CreateOptions::SEQUENTIAL_ONLY.bits().to_le_bytes());
}

#[test]
fn granted_access_is_returned() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_READ_ATTRIBUTES;
    let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
    let told = file.query(FileInformationClass::ACCESS).unwrap();
    let told = AccessMask(u32::from_le_bytes(told.try_into().unwrap()));
    assert!(
        told.contains(access) && !told.contains(AccessMask::FILE_WRITE_DATA),
        "{told}"
    );
}

#[test]
fn streams_are_listed() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"main").unwrap();
    tree.write_file("f:extra", b"stream").unwrap();
    let file = open(&tree, "f");
    let list = file.query(FileInformationClass::STREAM).unwrap();
    let mut streams: Vec<_> = read_stream_list(&list)
        .unwrap()
        .into_iter()
        .map(|stream| (stream.name, stream.size))
        .collect();
    streams.sort();
    assert_eq!(
        streams,
        [("::$DATA".to_owned(), 4), (":extra:$DATA".to_owned(), 6)]
    );
}

#[test]
fn the_file_system_describes_itself() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let get =
        |class: FsInformationClass| root.query_info(InfoType::FILESYSTEM, class.0, 0).unwrap();
    let volume = FileFsVolumeInformation::read(&get(FsInformationClass::VOLUME)).unwrap();
    assert!(volume.supports_objects, "as NTFS, whose name it has");
    let attribute = get(FsInformationClass::ATTRIBUTE);
    let attribute = FileFsAttributeInformation::read(&attribute).unwrap();
    assert!(attribute.maximum_component_name_length >= 255);
    let size = FileFsSizeInformation::read(&get(FsInformationClass::SIZE)).unwrap();
    let full = FileFsFullSizeInformation::read(&get(FsInformationClass::FULL_SIZE)).unwrap();
    assert_eq!(size.total_allocation_units, full.total_allocation_units);
    assert_eq!(size.bytes_per_sector, full.bytes_per_sector);
    assert!(full.caller_available_allocation_units <= full.total_allocation_units);
    assert_eq!(get(FsInformationClass::DEVICE).len(), 8);
    let sectors = get(FsInformationClass::SECTOR_SIZE);
    let sectors = FileFsSectorSizeInformation::read(&sectors).unwrap();
    let physical = [
        sectors.physical_bytes_per_sector_for_atomicity,
        sectors.physical_bytes_per_sector_for_performance,
        sectors.file_system_effective_physical_bytes_per_sector_for_atomicity,
    ];
    assert_eq!(physical, [sectors.logical_bytes_per_sector; 3]);
}

#[test]
fn security_is_returned_to_handles_with_read_control() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let file = open(&tree, "f");
    let wanted = SecurityInformation::OWNER | SecurityInformation::DACL;
    let descriptor = file
        .query_info(InfoType::SECURITY, 0, wanted.bits())
        .unwrap();
    smb_wire::dtyp::SecurityDescriptor::read(&descriptor).unwrap();
    // A buffer that is too small gets the required size, and no part of the descriptor.
    let request = Request::query_info(file.id(), InfoType::SECURITY, 0, wanted.bits(), 4);
    let reply = tree.reply(request).unwrap();
    assert_eq!(reply.status(), Status::BUFFER_TOO_SMALL);
    let blind = CreateArgs::open("f").access(AccessMask::FILE_READ_DATA);
    let blind = tree.create(&blind).unwrap();
    assert_eq!(
        ask(&blind, InfoType::SECURITY, 0, wanted.bits(), 4096),
        Status::ACCESS_DENIED
    );
    let sacl = SecurityInformation::SACL.bits();
    assert_eq!(
        ask(&file, InfoType::SECURITY, 0, sacl, 4096),
        Status::ACCESS_DENIED
    );
}

#[test]
fn buffers_that_are_too_small_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("a-file", b"x").unwrap();
    tree.write_file("a-file:some-stream", b"x").unwrap();
    let file = open(&tree, "a-file");
    for (class, short) in [
        (FileInformationClass::BASIC, 39),
        (FileInformationClass::STANDARD, 21),
        (FileInformationClass::ALL, 99),
        (FileInformationClass::NETWORK_OPEN, 55),
        (FileInformationClass::INTERNAL, 7),
        (FileInformationClass::BASIC, 0),
    ] {
        assert_eq!(
            ask(&file, InfoType::FILE, class.0, 0, short),
            Status::INFO_LENGTH_MISMATCH,
            "{class} {short}"
        );
    }
    assert_eq!(
        ask(&file, InfoType::FILE, FileInformationClass::STREAM.0, 0, 40),
        Status::BUFFER_OVERFLOW
    );
    for (class, short, cut) in [
        (FsInformationClass::ATTRIBUTE, 15, 16),
        (FsInformationClass::VOLUME, 23, 24),
    ] {
        let kind = InfoType::FILESYSTEM;
        assert_eq!(
            ask(&file, kind, class.0, 0, short),
            Status::INFO_LENGTH_MISMATCH,
            "{class}"
        );
        let end = ask(&file, kind, class.0, 0, cut);
        assert!(
            end == Status::BUFFER_OVERFLOW || end == Status::SUCCESS,
            "{class}: {end}"
        );
    }
    let max = tree.client().negotiated().max_transact_size;
    assert_eq!(
        ask(
            &file,
            InfoType::FILE,
            FileInformationClass::BASIC.0,
            0,
            max + 1
        ),
        Status::INVALID_PARAMETER
    );
}

/// [MS-SMB2] 3.3.5.20.
#[test]
fn the_length_of_an_input_counts_only_where_there_is_one() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let long = |kind, class| {
        let request = Request::query_info(file.id(), kind, class, 0, 4096);
        let request = request.mutate(|m| m[76..80].copy_from_slice(&0xffff_u32.to_le_bytes()));
        tree.reply(request).unwrap().status()
    };
    let basic = FileInformationClass::BASIC.0;
    assert_eq!(long(InfoType::FILE, basic), Status::SUCCESS);
    let size = FsInformationClass::SIZE.0;
    assert_eq!(long(InfoType::FILESYSTEM, size), Status::SUCCESS);
    let all_eas = FileInformationClass::FULL_EA.0;
    assert_eq!(long(InfoType::FILE, all_eas), Status::INVALID_PARAMETER);
    assert_eq!(long(InfoType::QUOTA, 0), Status::INVALID_PARAMETER);
}

#[test]
fn invalid_requests_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let missing = Request::query_info(
        FileId::ANY,
        InfoType::FILE,
        FileInformationClass::BASIC.0,
        0,
        100,
    );
    assert_eq!(status(tree.call(missing)), Status::FILE_CLOSED);
    for class in [0, 0x63, 0xff] {
        assert_eq!(
            ask(&file, InfoType::FILE, class, 0, 4096),
            Status::INVALID_INFO_CLASS,
            "file {class}"
        );
        assert_eq!(
            ask(&file, InfoType::FILESYSTEM, class, 0, 4096),
            Status::INVALID_INFO_CLASS,
            "file system {class}"
        );
    }
    // [MS-SMB2] 3.3.5.20.2, and what Windows has for a label, the path of a driver and a class without a document.
    let volume = |class, max| ask(&file, InfoType::FILESYSTEM, class, 0, max);
    for max in [1, 4096] {
        assert_eq!(volume(2, max), Status::INVALID_INFO_CLASS, "{max}");
        assert_eq!(volume(10, max), Status::NOT_SUPPORTED, "{max}");
    }
    for class in [9, 12] {
        assert_eq!(volume(class, 1), Status::INFO_LENGTH_MISMATCH, "{class}");
        assert_eq!(volume(class, 4096), Status::NOT_SUPPORTED, "{class}");
    }
    for kind in [0, 5, 0xff] {
        assert_eq!(
            ask(&file, InfoType(kind), 4, 0, 4096),
            Status::INVALID_PARAMETER,
            "type {kind}"
        );
    }
    // [MS-SMB2] 3.3.5.20.1, notes 415 and 416: classes of listings, classes that can only be set, and local ones.
    for class in [
        1, 2, 3, 10, 11, 12, 13, 19, 20, 27, 31, 36, 37, 38, 39, 40, 50,
    ] {
        let end = ask(&file, InfoType::FILE, class, 0, 4096);
        assert_eq!(end, Status::INVALID_INFO_CLASS, "{class}");
    }
    for class in [9, 26, 29, 33, 41, 43, 44, 46, 47, 49, 51, 53, 54] {
        let end = ask(&file, InfoType::FILE, class, 0, 4096);
        assert_eq!(end, Status::NOT_SUPPORTED, "{class}");
    }
    let end = ask(&file, InfoType::FILE, 52, 0, 4096);
    assert_eq!(end, Status::INFO_LENGTH_MISMATCH);
    // [MS-FSA] 2.1.5.12.24.
    let quotas = ask(&file, InfoType::FILE, 32, 0, 4096);
    assert_eq!(quotas, Status::INVALID_PARAMETER);
}

#[test]
fn attributes_need_the_right_to_read_them() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let blind = CreateArgs::open("f").access(AccessMask::FILE_WRITE_DATA);
    let blind = tree.create(&blind).unwrap();
    for class in [
        FileInformationClass::BASIC,
        FileInformationClass::ALL,
        FileInformationClass::NETWORK_OPEN,
        FileInformationClass::ATTRIBUTE_TAG,
    ] {
        assert_eq!(
            ask(&blind, InfoType::FILE, class.0, 0, 4096),
            Status::ACCESS_DENIED,
            "{class}"
        );
    }
    // Standard information needs no right.
    assert_eq!(
        ask(
            &blind,
            InfoType::FILE,
            FileInformationClass::STANDARD.0,
            0,
            4096
        ),
        Status::SUCCESS
    );
}

/// Clients know a file by its id and its volume, which they get in several ways.
#[test]
fn every_way_gives_the_same_ids() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let ids = |at: &str| {
        let args = CreateArgs::open(at).context(name::QUERY_ON_DISK_ID, b"");
        let file = tree.create(&args).unwrap();
        let answer = file.created().context(name::QUERY_ON_DISK_ID).unwrap();
        let disk = QueryOnDiskIdResponse::read(answer).unwrap();
        let id = file.query(FileInformationClass::ID).unwrap();
        let id = FileIdInformation::read(&id).unwrap();
        let internal = file.query(FileInformationClass::INTERNAL).unwrap();
        let internal = FileInternalInformation::read(&internal).unwrap();
        let volume = file.query_info(InfoType::FILESYSTEM, FsInformationClass::VOLUME.0, 0);
        let volume = FileFsVolumeInformation::read(&volume.unwrap()).unwrap();
        let serial = volume.volume_serial_number;
        assert_eq!(id.volume_serial_number as u32, serial, "{at}");
        assert_eq!(id.volume_serial_number, disk.volume_id, "{at}");
        assert_eq!(id.file_id, u128::from(disk.disk_file_id).to_le_bytes());
        assert_eq!(internal.index_number, disk.disk_file_id, "{at}");
        let listed = tree.list("", "*").unwrap();
        let entry = listed.iter().find(|entry| entry.file_name == at);
        if let Some(entry) = entry {
            assert_eq!(entry.file_id, disk.disk_file_id, "{at}");
        }
        (serial, disk.disk_file_id)
    };
    tree.mkdir("d").unwrap();
    tree.write_file("f", b"x").unwrap();
    std::os::unix::fs::symlink("d", server.path("link")).unwrap();
    let all = ["", "d", "f", "link"].map(ids);
    assert!(all.iter().all(|(serial, _)| *serial == all[0].0));
    assert_ne!(all[1].1, all[3].1, "a directory has one name");
}
