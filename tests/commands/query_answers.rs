//! The values of answers of QUERY_INFO about file systems and descriptors, and the flags that select them ([MS-SMB2]
//! 3.3.5.20, [MS-FSA] 2.1.5.13, 2.1.5.14).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::dtyp::{SecurityDescriptor, SecurityInformation};
use smb_wire::fscc::{
    DeviceType, FileFsAttributeInformation, FileFsDeviceInformation, FileFsFullSizeInformation,
    FileFsSectorSizeInformation, FileFsSizeInformation, FileInformationClass as Class,
    FileStandardInformation, FsInformationClass as Fs,
};
use smb_wire::ids::FileId;
use smb_wire::msg::InfoType;

pub(super) fn open(tree: &Tree, name: &str) -> File {
    let args = CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    tree.create(&args).unwrap()
}

pub(super) fn volume(file: &File, class: Fs) -> Vec<u8> {
    file.query_info(InfoType::FILESYSTEM, class.0, 0).unwrap()
}

pub(super) fn descriptor(file: &File, parts: u32) -> Vec<u8> {
    file.query_info(InfoType::SECURITY, 0, parts).unwrap()
}

/// [MS-SMB2] 3.3.5.20.2: journals, opens by id and transactions are not offered over the network.
#[test]
fn the_file_system_offers_nothing_that_only_local_callers_can_use() {
    const USN_JOURNAL: u32 = 0x0200_0000;
    const OPEN_BY_FILE_ID: u32 = 0x0100_0000;
    const TRANSACTIONS: u32 = 0x0020_0000;
    let server = HoldfastServer::new();
    let tree = server.tree();
    let attributes = volume(&open(&tree, "f"), Fs::ATTRIBUTE);
    let attributes = FileFsAttributeInformation::read(&attributes).unwrap();
    let attributes = attributes.file_system_attributes.bits();
    for cleared in [USN_JOURNAL, OPEN_BY_FILE_ID, TRANSACTIONS] {
        assert_eq!(attributes & cleared, 0, "{attributes:#x}");
    }
}

/// [MS-FSA] 2.1.5.13.4: a share of files is on a disk that is mounted.
#[test]
fn the_device_is_a_disk() {
    const REMOTE_DEVICE: u32 = 0x10;
    const IS_MOUNTED: u32 = 0x20;
    let server = HoldfastServer::new();
    let tree = server.tree();
    let device = volume(&open(&tree, "f"), Fs::DEVICE);
    let device = FileFsDeviceInformation::read(&device).unwrap();
    assert_eq!(device.device_type, DeviceType::DISK);
    let known = device.characteristics.bits() & !REMOTE_DEVICE;
    assert_eq!(known & IS_MOUNTED, IS_MOUNTED);
}

/// [MS-FSA] 2.1.5.13.3, 2.1.5.13.7, 2.1.5.13.10: the classes name the same sectors and clusters, in which files count.
#[test]
fn sectors_and_clusters_are_the_same_in_all_classes() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, &[1; 5000]).unwrap();
    file.flush(false).unwrap();
    let size = FileFsSizeInformation::read(&volume(&file, Fs::SIZE)).unwrap();
    let full = FileFsFullSizeInformation::read(&volume(&file, Fs::FULL_SIZE)).unwrap();
    let sectors = FileFsSectorSizeInformation::read(&volume(&file, Fs::SECTOR_SIZE)).unwrap();
    assert_eq!(size.bytes_per_sector, sectors.logical_bytes_per_sector);
    assert_eq!(full.bytes_per_sector, size.bytes_per_sector);
    let cluster = (size.sectors_per_allocation_unit, size.bytes_per_sector);
    let same = (full.sectors_per_allocation_unit, full.bytes_per_sector);
    assert_eq!(cluster, same);
    assert!(size.bytes_per_sector.is_power_of_two() && cluster.0.is_power_of_two());
    assert!(size.available_allocation_units <= size.total_allocation_units);
    let standard = file.query(Class::STANDARD).unwrap();
    let standard = FileStandardInformation::read(&standard).unwrap();
    let cluster = u64::from(cluster.0) * u64::from(cluster.1);
    let allocated = standard.allocation_size;
    assert!(
        allocated >= 5000 && allocated.is_multiple_of(cluster),
        "{allocated}"
    );
}

/// [MS-SMB2] 3.3.5.20.2: the volume is described alike through every object on it.
#[test]
fn the_volume_is_the_same_through_every_object() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    tree.write_file("f:s", b"x").unwrap();
    let read = |name: &str| {
        let args = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
        tree.create(&args).unwrap()
    };
    let root = read("");
    for class in [Fs::VOLUME, Fs::ATTRIBUTE, Fs::DEVICE, Fs::SECTOR_SIZE] {
        let expected = volume(&root, class);
        for name in ["d", "f", "f:s"] {
            assert_eq!(volume(&read(name), class), expected, "{class} {name}");
        }
    }
}

/// [MS-FSA] 2.1.5.13: questions about the volume need no right to the file.
#[test]
fn questions_about_the_volume_need_no_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    for access in [AccessMask::DELETE, AccessMask::READ_CONTROL] {
        let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
        for class in [
            Fs::VOLUME,
            Fs::SIZE,
            Fs::FULL_SIZE,
            Fs::DEVICE,
            Fs::ATTRIBUTE,
        ] {
            let asked = file.query_info(InfoType::FILESYSTEM, class.0, 0);
            assert_eq!(status(asked), Status::SUCCESS, "{access} {class}");
        }
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.14: a descriptor has the parts that were asked for, and no others.
#[test]
fn a_descriptor_has_only_the_parts_that_were_asked_for() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let parts = [
        SecurityInformation::OWNER,
        SecurityInformation::GROUP,
        SecurityInformation::DACL,
    ];
    for bits in 0..8_u32 {
        let found = SecurityDescriptor::read(&descriptor(&file, bits)).unwrap();
        let has = [
            found.owner.is_some(),
            found.group.is_some(),
            found.dacl.is_some(),
        ];
        let asked = parts.map(|part| bits & part.bits() != 0);
        assert_eq!(has, asked, "{bits}");
        assert_eq!(found.sacl, None, "{bits}");
    }
}

/// [MS-SMB2] 3.3.5.20.3: bits of AdditionalInformation without a meaning are ignored.
#[test]
fn unknown_parts_of_a_descriptor_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let owner = SecurityInformation::OWNER.bits();
    let expected = descriptor(&file, owner);
    for unknown in [0x100, 0x0080_0000, 0x0200_0000] {
        assert_eq!(descriptor(&file, owner | unknown), expected, "{unknown:#x}");
    }
}

/// [MS-FSA] 2.1.5.14: owner, group and list need READ_CONTROL, and nothing else needs to be granted.
#[test]
fn a_descriptor_is_read_with_one_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let ask = |access, parts: SecurityInformation| {
        let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
        status(file.query_info(InfoType::SECURITY, 0, parts.bits()))
    };
    for part in [
        SecurityInformation::OWNER,
        SecurityInformation::GROUP,
        SecurityInformation::DACL,
    ] {
        let granted = ask(AccessMask::READ_CONTROL, part);
        assert_eq!(granted, Status::SUCCESS, "{part}");
        let others = AccessMask::FILE_READ_DATA
            | AccessMask::FILE_READ_ATTRIBUTES
            | AccessMask::WRITE_DAC
            | AccessMask::WRITE_OWNER;
        assert_eq!(ask(others, part), Status::ACCESS_DENIED, "{part}");
    }
}

/// [MS-SMB2] 3.3.5.20: the open is looked up before the length, and that before the kind of information.
#[test]
fn a_query_checks_its_handle_before_its_length_and_kind() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let max = tree.client().negotiated().max_transact_size;
    let ask = |file_id, kind: u8, class, max| {
        let request = Request::query_info(file_id, InfoType(kind), class, 0, max);
        tree.reply(request).unwrap().status()
    };
    assert_eq!(ask(FileId::ANY, 9, 0xff, max + 1), Status::FILE_CLOSED);
    let long = ask(file.id(), InfoType::FILE.0, 0xff, max + 1);
    assert_eq!(long, Status::INVALID_PARAMETER);
    let unknown = ask(file.id(), InfoType::FILE.0, 0xff, 4096);
    assert_eq!(unknown, Status::INVALID_INFO_CLASS);
}

/// [MS-FSA] 2.1.5.12.1: the access of a handle is that which it was granted, also through another handle of the file.
#[test]
fn the_access_is_that_of_the_handle() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let handles = [
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_WRITE_DATA,
        AccessMask::DELETE | AccessMask::SYNCHRONIZE,
    ]
    .map(|access| {
        let args = CreateArgs::open("f").access(access);
        (access, tree.create(&args).unwrap())
    });
    for (access, file) in &handles {
        let found = file.query(Class::ACCESS).unwrap();
        assert_eq!(found, access.bits().to_le_bytes(), "{access}");
    }
}
