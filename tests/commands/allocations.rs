//! The space that is reserved for a file, apart from its size ([MS-FSA] 2.1.5.5, 2.1.5.15.1, 2.1.5.15.5, [MS-SMB2]
//! 3.3.5.9.3).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::create_context::name;
use smb_wire::fscc::{
    FileFsSizeInformation, FileInformationClass as Class, FileStandardInformation,
    FsInformationClass,
};
use smb_wire::msg::{CreateOptions, InfoType};

const MIB: u64 = 1 << 20;

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

/// The allocated and the used bytes of a file.
fn sizes(file: &File) -> (u64, u64) {
    let standard = file.query(Class::STANDARD).unwrap();
    let standard = FileStandardInformation::read(&standard).unwrap();
    (standard.allocation_size, standard.end_of_file)
}

fn allocate(file: &File, size: u64) -> Status {
    status(file.set(Class::ALLOCATION, &size.to_le_bytes()))
}

fn cluster(file: &File) -> u64 {
    let size = file.query_info(InfoType::FILESYSTEM, FsInformationClass::SIZE.0, 0);
    let size = FileFsSizeInformation::read(&size.unwrap()).unwrap();
    u64::from(size.sectors_per_allocation_unit) * u64::from(size.bytes_per_sector)
}

/// [MS-FSA] 2.1.5.15.1: a reservation is reported, and leaves the data and the size alone.
#[test]
fn a_reservation_is_reported_and_changes_no_data() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    file.write_all(0, b"0123456789").unwrap();
    assert_eq!(allocate(&file, MIB), Status::SUCCESS);
    let (allocated, end) = sizes(&file);
    assert!(allocated >= MIB, "{allocated}");
    assert_eq!(end, 10);
    assert_eq!(file.read_all().unwrap(), b"0123456789");
}

/// [MS-FSA] 2.1.5.15.1: an allocation below the size of the file cuts it at a cluster.
#[test]
fn an_allocation_cuts_the_file_at_a_cluster() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let cluster = cluster(&file);
    let whole = vec![7; usize::try_from(3 * cluster + 5).unwrap()];
    file.write_all(0, &whole).unwrap();
    for (asked, expected) in [
        (3 * cluster + 1, 3 * cluster + 5),
        (3 * cluster, 3 * cluster),
        (cluster + 1, 2 * cluster),
        (1, cluster),
        (0, 0),
    ] {
        assert_eq!(allocate(&file, asked), Status::SUCCESS, "{asked}");
        assert_eq!(sizes(&file).1, expected, "{asked}");
    }
}

/// [MS-SMB2] 3.3.5.9.3: a size to allocate concerns neither a directory nor a file that is there.
#[test]
fn a_size_to_allocate_is_none_of_a_directory() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let sized = |args: CreateArgs| args.context(name::ALLOCATION_SIZE, &MIB.to_le_bytes());
    let directory = tree.create(&sized(CreateArgs::create_directory("d")));
    assert_eq!(directory.unwrap().created().facts.end_of_file, 0);
    let again = sized(CreateArgs::directory("d")).options(CreateOptions::DIRECTORY_FILE);
    assert_eq!(tree.create_status(&again).unwrap(), Status::SUCCESS);
    tree.write_file("f", b"x").unwrap();
    let file = tree.create(&sized(CreateArgs::open("f"))).unwrap();
    assert!(file.created().facts.allocation_size < MIB);
}

/// [MS-FSA] 2.1.5.15.1: a stream that is to be deleted is neither cut nor extended, and that is no error.
#[test]
fn a_stream_that_is_to_be_deleted_is_not_cut() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let stream = open(&tree, "f:s");
    stream.write_all(0, b"0123456789").unwrap();
    stream.set_delete(true).unwrap();
    assert_eq!(allocate(&stream, 0), Status::SUCCESS);
    assert_eq!(sizes(&stream).1, 10);
    stream.set_delete(false).unwrap();
    assert_eq!(stream.read_all().unwrap(), b"0123456789");
}
