//! The CreditCharge of requests with long buffers, command by command ([MS-SMB2] 3.3.5.2.5).

use smb_client::{CreateArgs, Options, Request, RequestBody};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, Dialect, InfoType, NotifyFilter, QueryDirectoryFlags,
    QueryDirectoryRequest, QueryInfoFlags, QueryInfoRequest, SetInfoRequest,
};

/// The most that one credit pays for, in bytes.
const CREDIT: u32 = 65_536;

/// Lengths of an answer with charges that are announced for it, and the statuses.
const AROUND_ONE_CREDIT: [(u32, u16, Status); 4] = [
    (CREDIT, 0, Status::SUCCESS),
    (CREDIT, 1, Status::SUCCESS),
    (CREDIT + 1, 0, Status::INVALID_PARAMETER),
    (CREDIT + 1, 1, Status::INVALID_PARAMETER),
];

/// A request that announces a charge, and uses up one credit whatever it announces.
fn charged<B: RequestBody>(body: &B, charge: u16) -> Request {
    Request::raw(B::COMMAND, &[])
        .mutate(|message| body.encode(message, 0))
        .overriding(|o| o.credit_charge = Some(charge))
}

#[test]
fn an_answer_of_query_info_is_paid_for() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_1_1] {
        let tree = server.tree_with(Options::dialect(dialect));
        let file = tree.create(&CreateArgs::open_if("f")).unwrap();
        let body = |output_buffer_length| QueryInfoRequest {
            info_type: InfoType::FILE,
            info_class: FileInformationClass::BASIC.0,
            output_buffer_length,
            additional_information: 0,
            flags: QueryInfoFlags::empty(),
            file_id: file.id(),
            input: &[],
        };
        for (length, charge, expected) in AROUND_ONE_CREDIT {
            let end = status(tree.call(charged(&body(length), charge)));
            assert_eq!(end, expected, "{dialect} {length} {charge}");
        }
        if tree.client().negotiated().max_transact_size > CREDIT {
            let paid = status(tree.call(Request::new(&body(CREDIT + 1))));
            assert_eq!(paid, Status::SUCCESS, "{dialect}");
        }
        let unpaid = body(CREDIT + 1);
        file.close().unwrap();
        // The open is looked up first ([MS-SMB2] 3.3.5.20).
        let closed = status(tree.call(charged(&unpaid, 1)));
        assert_eq!(closed, Status::FILE_CLOSED, "{dialect}");
    }
}

#[test]
fn an_answer_of_query_directory_is_paid_for() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let pattern = smb_wire::utf16::encode("*");
    let body = |output_buffer_length| QueryDirectoryRequest {
        info_class: FileInformationClass::NAMES.0,
        flags: QueryDirectoryFlags::RESTART_SCANS,
        file_index: 0,
        file_id: root.id(),
        pattern: &pattern,
        output_buffer_length,
    };
    for (length, charge, expected) in AROUND_ONE_CREDIT {
        let end = status(tree.call(charged(&body(length), charge)));
        assert_eq!(end, expected, "{length} {charge}");
    }
    let paid = status(tree.call(Request::new(&body(CREDIT + 1))));
    assert_eq!(paid, Status::SUCCESS);
}

#[test]
fn an_answer_of_change_notify_is_paid_for() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let body = ChangeNotifyRequest {
        flags: ChangeNotifyFlags::empty(),
        output_buffer_length: CREDIT + 1,
        file_id: root.id(),
        completion_filter: NotifyFilter::FILE_NAME,
    };
    for charge in [0, 1] {
        let end = status(tree.call(charged(&body, charge)));
        assert_eq!(end, Status::INVALID_PARAMETER, "{charge}");
    }
    let waiting = tree.send(Request::new(&body)).unwrap();
    assert!(tree.client().wait_pending(waiting).unwrap().is_some());
}

#[test]
fn the_data_of_set_info_are_paid_for() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").access(AccessMask::FILE_ALL_ACCESS);
    let file = tree.create(&args).unwrap();
    // A structure of 40 bytes that changes nothing, and more behind it, which counts for nothing else.
    let buffer = vec![0; smb_wire::codec::size(CREDIT) + 1];
    let body = |length: usize| SetInfoRequest {
        info_type: InfoType::FILE,
        info_class: FileInformationClass::BASIC.0,
        additional_information: 0,
        file_id: file.id(),
        buffer: &buffer[..length],
    };
    let (one, two) = (buffer.len() - 1, buffer.len());
    for (length, charge, expected) in [
        (one, 1, Status::SUCCESS),
        (two, 0, Status::INVALID_PARAMETER),
        (two, 1, Status::INVALID_PARAMETER),
    ] {
        let end = status(tree.call(charged(&body(length), charge)));
        assert_eq!(end, expected, "{length} {charge}");
    }
    let paid = status(tree.call(Request::new(&body(two))));
    assert_eq!(paid, Status::SUCCESS);
}
