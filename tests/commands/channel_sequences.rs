//! The ChannelSequence of requests that name a file ([MS-SMB2] 3.3.5.2.10).

use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::HoldfastServer;
use smb_wire::Status;
use smb_wire::fscc::FileInformationClass;
use smb_wire::fsctl::FsctlCode;
use smb_wire::header::HeaderFlags;
use smb_wire::msg::{CloseFlags, Dialect, InfoType, LockElement, LockFlags, WriteFlags};

use crate::checks;

fn send(tree: &Tree, mut request: Request, sequence: u16) -> Status {
    request.channel_sequence = sequence;
    tree.reply(request).unwrap().status()
}

fn write(file: &File, sequence: u16) -> Status {
    let request = file.write_request(0, b"x", WriteFlags::empty());
    send(file.tree(), request, sequence)
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

#[test]
fn only_changes_with_an_old_sequence_are_refused() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = open(&tree, "f");
        assert_eq!(write(&file, 10), Status::SUCCESS);
        let key = FsctlCode::SRV_REQUEST_RESUME_KEY;
        for (request, what) in [
            (file.write_request(0, b"y", WriteFlags::empty()), "WRITE"),
            (checks::hide(&file), "SET_INFO"),
            (file.ioctl_request(key, &[], 32), "IOCTL"),
        ] {
            let end = send(&tree, request, 9);
            assert_eq!(end, Status::FILE_NOT_AVAILABLE, "{dialect} {what}");
        }
        let class = FileInformationClass::STANDARD.0;
        let lock = LockElement {
            offset: 0,
            length: 1,
            flags: LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY,
        };
        for (request, what) in [
            (file.read_request(0, 1, 0), "READ"),
            (
                Request::query_info(file.id(), InfoType::FILE, class, 0, 100),
                "QUERY_INFO",
            ),
            (file.flush_request(false), "FLUSH"),
            (file.lock_request(0, &[lock]), "LOCK"),
            (file.close_request(CloseFlags::empty()), "CLOSE"),
        ] {
            let end = send(&tree, request, 9);
            assert_eq!(end, Status::SUCCESS, "{dialect} {what}");
        }
        assert_eq!(tree.read_file("f").unwrap(), b"x");
    }
}

#[test]
fn a_sequence_is_newer_up_to_half_of_the_numbers() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    for (sequence, expected) in [
        (0x8000, Status::FILE_NOT_AVAILABLE),
        (0x7fff, Status::SUCCESS),
        (0xffff, Status::FILE_NOT_AVAILABLE),
        (0x7ffe, Status::FILE_NOT_AVAILABLE),
        (0xfffe, Status::SUCCESS),
        (0x7ffe, Status::FILE_NOT_AVAILABLE),
        // The numbers begin again.
        (0x7ffd, Status::SUCCESS),
        (0x7ffd, Status::SUCCESS),
    ] {
        assert_eq!(write(&file, sequence), expected, "{sequence:#x}");
    }
}

#[test]
fn any_request_that_names_the_file_makes_older_ones_old() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let class = FileInformationClass::STANDARD.0;
    for at in 0..3 {
        let file = open(&tree, "f");
        let request = match at {
            0 => file.read_request(0, 1, 0),
            1 => Request::query_info(file.id(), InfoType::FILE, class, 0, 100),
            _ => file.flush_request(false),
        };
        assert_eq!(send(&tree, request, 2), Status::SUCCESS, "{at}");
        assert_eq!(write(&file, 1), Status::FILE_NOT_AVAILABLE, "{at}");
        assert_eq!(write(&file, 2), Status::SUCCESS, "{at}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.9: an open begins with the sequence of its CREATE.
#[test]
fn every_open_has_a_sequence_of_its_own() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut request = CreateArgs::open_if("f").request();
    request.channel_sequence = 7;
    let reply = tree.call(request).unwrap();
    let file = tree.file(&reply).unwrap();
    let other = open(&tree, "f");
    assert_eq!(write(&file, 6), Status::FILE_NOT_AVAILABLE);
    assert_eq!(write(&file, 7), Status::SUCCESS);
    assert_eq!(write(&other, 0), Status::SUCCESS);
    assert_eq!(write(&other, 6), Status::SUCCESS);
    assert_eq!(write(&file, 8), Status::SUCCESS);
    assert_eq!(write(&other, 6), Status::SUCCESS);
}

/// A replay is carried out if no request with an earlier sequence is still unanswered.
#[test]
fn replays_are_refused_with_an_old_sequence_only() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let replay = |sequence| {
        let request = file.write_request(0, b"x", WriteFlags::empty());
        send(&tree, request.flag(HeaderFlags::REPLAY), sequence)
    };
    assert_eq!(write(&file, 3), Status::SUCCESS);
    assert_eq!(replay(3), Status::SUCCESS);
    assert_eq!(replay(2), Status::FILE_NOT_AVAILABLE);
    assert_eq!(replay(4), Status::SUCCESS);
    assert_eq!(write(&file, 3), Status::FILE_NOT_AVAILABLE);
}

#[test]
fn before_3_0_there_are_no_sequences() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = open(&tree, "f");
        for sequence in [5, 4, 0] {
            assert_eq!(write(&file, sequence), Status::SUCCESS, "{dialect}");
            let replay = file.read_request(0, 1, 0).flag(HeaderFlags::REPLAY);
            assert_eq!(send(&tree, replay, sequence), Status::SUCCESS, "{dialect}");
        }
        file.close().unwrap();
    }
}
