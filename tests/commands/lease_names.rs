//! The file to which the key of a lease belongs, while that file is renamed or deleted ([MS-SMB2] 3.3.5.9.8,
//! 3.3.5.9.11, 3.3.5.21.1).

use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::HoldfastServer;
use smb_tests::durable::{CLIENT_GUID, KEY};
use smb_wire::Status;
use smb_wire::create_context::{LeaseFlags, LeaseState};
use smb_wire::ids::LeaseKey;
use smb_wire::msg::{CreateOptions, OplockLevel};

const OTHER_KEY: LeaseKey = LeaseKey([0x34; 16]);

fn modern(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::default().guid(CLIENT_GUID))
}

fn leased(args: CreateArgs) -> CreateArgs {
    args.lease_v2(KEY, LeaseState::RWH, 1)
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&leased(CreateArgs::open_if(name))).unwrap()
}

/// [MS-SMB2] 3.3.5.21.1: the key follows its file to a new name, and leaves the old one.
#[test]
fn the_key_follows_its_file_to_another_name() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = open(&tree, "f");
    file.rename("g", false).unwrap();
    let again = tree.create(&leased(CreateArgs::open("g"))).unwrap();
    assert_eq!(again.created().lease().unwrap().lease_key, KEY);
    let old = tree.create_status(&leased(CreateArgs::open_if("f")));
    assert_eq!(old.unwrap(), Status::INVALID_PARAMETER);
    assert!(!server.path("f").exists());
}

/// [MS-SMB2] 3.3.5.9.11: the case of the name is not compared.
#[test]
fn the_name_of_a_leased_file_is_found_in_any_case() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = open(&tree, "Name");
    let again = tree.create(&leased(CreateArgs::open("nAME"))).unwrap();
    assert_eq!(again.created().oplock_level, OplockLevel::LEASE);
    again.close().unwrap();
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.5.9.8: the key belongs to no file any longer once the last of its opens is closed.
#[test]
fn a_key_is_free_when_its_last_open_is_closed() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let (first, second) = (open(&tree, "f"), open(&tree, "f"));
    let other = || {
        let args = leased(CreateArgs::open_if("g"));
        tree.create_status(&args).unwrap()
    };
    assert_eq!(other(), Status::INVALID_PARAMETER);
    first.close().unwrap();
    assert_eq!(other(), Status::INVALID_PARAMETER);
    second.close().unwrap();
    assert_eq!(other(), Status::SUCCESS);
}

/// [MS-SMB2] 3.3.5.9.8: the key of a file that is to be deleted may name another one.
#[test]
fn the_key_of_a_file_that_is_to_be_deleted_may_name_another() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = open(&tree, "f");
    file.set_delete(true).unwrap();
    let other = tree.create_status(&leased(CreateArgs::open_if("g")));
    assert_ne!(other.unwrap(), Status::INVALID_PARAMETER);
    file.close().unwrap();
    let args = leased(CreateArgs::open_if("h")).options(CreateOptions::DELETE_ON_CLOSE);
    let file = tree.create(&args).unwrap();
    let other = tree.create_status(&leased(CreateArgs::open_if("i")));
    assert_ne!(other.unwrap(), Status::INVALID_PARAMETER);
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.5.9.11: a lease that is granted at once is not breaking, and has the key of the request.
#[test]
fn the_lease_of_a_response_repeats_the_key() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for state in [LeaseState::RWH, LeaseState::empty()] {
        let args = CreateArgs::open_if("f").lease_v2(OTHER_KEY, state, 7);
        let file = tree.create(&args).unwrap();
        let lease = file.created().lease().unwrap();
        assert_eq!(file.created().oplock_level, OplockLevel::LEASE);
        assert_eq!((lease.lease_key, lease.lease_state), (OTHER_KEY, state));
        let breaking = lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS);
        assert!(!breaking, "{state}");
        file.close().unwrap();
    }
}
