//! Hyper-V's disks, SQL Server's files and the locks of Access: unbuffered, written through, shared
//! by byte ranges.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, Options, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::{
    FileFsSectorSizeInformation, FileInformationClass as Class, FsInformationClass,
};
use smb_wire::fsctl::{FsctlCode, read_allocated_ranges};
use smb_wire::msg::{CreateDisposition, CreateOptions, LockFlags, ShareAccess, WriteFlags};

use crate::requests::{file_system, standard};

const MIB: u64 = 1 << 20;
const DIRECT: CreateOptions = CreateOptions(0x0A);

/// Opens with NO_INTERMEDIATE_BUFFERING and WRITE_THROUGH, as Hyper-V and SQL Server do.
fn direct(tree: &Tree, name: &str, share: ShareAccess) -> Result<File, smb_client::ClientError> {
    let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE;
    let args = CreateArgs::new(name, CreateDisposition::OPEN_IF)
        .access(access)
        .share(share)
        .options(DIRECT | CreateOptions::NON_DIRECTORY_FILE);
    tree.create(&args)
}

fn range(from: u64, to: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&from.to_le_bytes());
    out[8..].copy_from_slice(&to.to_le_bytes());
    out
}

/// Starts a server with a durability policy. A disk works in the same way under each of them; the
/// difference is what a power failure can lose.
fn server(durability: &str) -> HoldfastServer {
    HoldfastServer::start(&Options {
        share: format!("durability = \"{durability}\"\n"),
        ..Options::default()
    })
}

#[test]
fn a_virtual_disk_is_made_used_and_backed_up() {
    for durability in ["honor", "strict-sync"] {
        let server = server(durability);
        let tree = server.tree();
        let disk = direct(&tree, "vm.vhdx", ShareAccess::READ).unwrap();
        let sectors = file_system(&disk, FsInformationClass::SECTOR_SIZE);
        let sectors = FileFsSectorSizeInformation::read(&sectors).unwrap();
        // The disk's writes are aligned to this size.
        assert_eq!(4096 % sectors.logical_bytes_per_sector, 0);
        disk.ioctl(FsctlCode::SET_SPARSE, &[1], 0).unwrap();
        disk.set_end_of_file(64 * MIB).unwrap();
        let page = vec![0xA5; MIB as usize];
        let through = WriteFlags::WRITE_THROUGH | WriteFlags::WRITE_UNBUFFERED;
        for at in [0, 8 * MIB, 63 * MIB] {
            assert_eq!(disk.write(at, &page, through).unwrap(), page.len() as u32);
        }
        disk.write(4096, &[1; 4096], through).unwrap();
        let told = disk.ioctl(FsctlCode::QUERY_ALLOCATED_RANGES, &range(0, 64 * MIB), 4096);
        let told = read_allocated_ranges(&told.unwrap()).unwrap();
        let lengths = told.iter().map(|range| range.length as u64).sum::<u64>();
        assert!((3 * MIB..8 * MIB).contains(&lengths), "{told:?}");
        // The guest trims blocks that it has deleted.
        disk.ioctl(FsctlCode::SET_ZERO_DATA, &range(8 * MIB, 9 * MIB), 0)
            .unwrap();
        assert!(
            disk.read(8 * MIB, 4096)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0)
        );
        // A backup may read at the same time, and nobody else may write.
        let args = CreateArgs::open("vm.vhdx").access(AccessMask::FILE_GENERIC_READ);
        let backup = tree.create(&args.share(ShareAccess(3))).unwrap();
        assert_eq!(backup.read(4096, 4096).unwrap(), [1; 4096]);
        let second = status(direct(&tree, "vm.vhdx", ShareAccess(3)));
        assert_eq!(second, Status::SHARING_VIOLATION);
        backup.close().unwrap();
        disk.flush(false).unwrap();
        assert_eq!(standard(&disk).end_of_file, 64 * MIB);
        disk.close().unwrap();
    }
}

/// SQL Server zeroes a new file itself if it may not set the valid data length, then opens it
/// exclusively.
#[test]
fn a_database_file_is_zeroed_and_its_pages_are_written() {
    let server = server("honor");
    let tree = server.tree();
    let data = direct(&tree, "data.mdf", ShareAccess::empty()).unwrap();
    data.set_end_of_file(8 * MIB).unwrap();
    let valid = status(data.set(Class::VALID_DATA_LENGTH, &(8 * MIB).to_le_bytes()));
    assert_ne!(
        valid,
        Status::SUCCESS,
        "what was never written would be shown"
    );
    assert_eq!(standard(&data).end_of_file, 8 * MIB);
    let zeroes = vec![0; MIB as usize];
    for at in 0..8 {
        data.write(at * MIB, &zeroes, WriteFlags::WRITE_THROUGH)
            .unwrap();
    }
    for (at, page) in [(0_u64, 1_u8), (7, 2), (1023, 3)] {
        let through = WriteFlags::WRITE_THROUGH;
        data.write(at * 8192, &[page; 8192], through).unwrap();
    }
    data.flush(false).unwrap();
    let other = status(direct(&tree, "data.mdf", ShareAccess(7)));
    assert_eq!(other, Status::SHARING_VIOLATION);
    assert_eq!(data.read(1023 * 8192, 8192).unwrap(), [3; 8192]);
    data.close().unwrap();
    let mut on_disk = std::fs::read(server.path("data.mdf")).unwrap();
    assert_eq!(on_disk.len() as u64, 8 * MIB);
    on_disk.retain(|byte| *byte != 0);
    assert_eq!(on_disk.len(), 3 * 8192);
}

/// Access: each user holds a lock far behind the end of the lock file, and takes page locks for
/// writing.
#[test]
fn users_of_an_access_file_see_each_others_locks() {
    const USERS: u64 = 0x1000_0001;
    const NOW: LockFlags = LockFlags::FAIL_IMMEDIATELY;
    let exclusive = LockFlags::EXCLUSIVE | NOW;
    let server = HoldfastServer::new();
    let users = [server.tree(), server.tree()];
    let open = |tree: &Tree, name: &str| {
        let args = CreateArgs::open_if(name).share(ShareAccess(7));
        tree.create(&args).unwrap()
    };
    let locks: Vec<File> = users.iter().map(|tree| open(tree, "db.laccdb")).collect();
    let data: Vec<File> = users.iter().map(|tree| open(tree, "db.accdb")).collect();
    for (at, lock) in locks.iter().enumerate() {
        lock.write_all(at as u64 * 64, format!("USER{at}").as_bytes())
            .unwrap();
        lock.lock(USERS + at as u64, 1, exclusive).unwrap();
    }
    // A refused lock shows which users are present.
    let refused = status(locks[1].lock(USERS, 1, exclusive));
    assert_eq!(refused, Status::LOCK_NOT_GRANTED);
    data[0].lock(4096, 4096, exclusive).unwrap();
    let refused = status(data[1].write(4096, &[1; 8], WriteFlags::empty()));
    assert_eq!(refused, Status::FILE_LOCK_CONFLICT);
    let refused = status(data[1].read(8000, 500));
    assert_eq!(refused, Status::FILE_LOCK_CONFLICT);
    data[0].write_all(4096, &[2; 4096]).unwrap();
    data[0].unlock(4096, 4096).unwrap();
    assert_eq!(data[1].read(4096, 4096).unwrap(), [2; 4096]);
    // The locks are released when their handle is closed.
    locks[0].close().unwrap();
    locks[1].lock(USERS, 1, exclusive).unwrap();
    let mut size = BytesMut::new();
    size.extend_from_slice(&0_u64.to_le_bytes());
    data[1].set(Class::ALLOCATION, &size).unwrap();
    assert_eq!(standard(&data[1]).end_of_file, 0);
}
