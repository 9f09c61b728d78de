//! Reserved fields of requests, which a server ignores whatever is in them ([MS-SMB2] 2.2.3 to 2.2.39).

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::durable::{CREATE_GUID, granted_v1, granted_v2, v1, v2};
use smb_tests::{DATA, HoldfastServer, SOON, status};
use smb_wire::Status;
use smb_wire::create_context::{LeaseState, name};
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::{Guid, LeaseKey, MessageId};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CloseFlags, CloseResponse, Dialect, EchoRequest,
    LeaseBreak, LockElement, LockFlags, LogoffRequest, NotifyFilter, OplockBreak, OplockLevel,
    TreeDisconnectRequest,
};

use crate::setup_fields;

const KEY: LeaseKey = LeaseKey([0x6b; 16]);
/// The body of a message begins here.
const BODY: usize = 64;

/// Fills ranges of the body of a request with ones.
fn fill(request: Request, ranges: &[(usize, usize)]) -> Request {
    request.mutate(|m| {
        for (start, end) in ranges {
            m[BODY + start..BODY + end].fill(0xff);
        }
    })
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

fn negotiate(dialect: Dialect) -> Request {
    match dialect {
        Dialect::SMB_3_1_1 => setup_fields::negotiate(dialect, &[setup_fields::PREAUTH]),
        _ => setup_fields::negotiate(dialect, &[]),
    }
}

/// [MS-SMB2] 2.2.3: older dialects have a time of the client's start there, which was never used.
#[test]
fn a_negotiation_of_an_older_dialect_has_no_contexts_to_find() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2] {
        // ClientStartTime.
        let request = fill(negotiate(dialect), &[(28, 36)]);
        let reply = server.connection(Options::default()).call(request).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{dialect}");
    }
}

/// [MS-SMB2] 2.2.3, 2.2.3.1.
#[test]
fn reserved_fields_of_a_negotiation_and_its_contexts_are_ignored() {
    let server = HoldfastServer::new();
    let request = negotiate(Dialect::SMB_3_1_1);
    let at: [u8; 4] = request.message()[BODY + 28..BODY + 32].try_into().unwrap();
    let first = usize::try_from(u32::from_le_bytes(at)).unwrap() - BODY;
    // Reserved2, and Reserved of the first context.
    let request = fill(request, &[(34, 36), (first + 4, first + 8)]);
    let reply = server.connection(Options::default()).call(request).unwrap();
    assert_eq!(reply.status(), Status::SUCCESS);
}

/// [MS-SMB2] 2.2.5: of the capabilities only that of DFS has a meaning, and there are no channels here.
#[test]
fn reserved_fields_of_a_login_are_ignored() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect));
        let request = Request::session_setup(setup_fields::NTLM_NEGOTIATE).mutate(|m| {
            // The capabilities without a use, and Channel.
            m[BODY + 4] = 0x0e;
            m[BODY + 8..BODY + 12].fill(0xff);
        });
        let reply = client.call(request).unwrap();
        assert_eq!(
            reply.status(),
            Status::MORE_PROCESSING_REQUIRED,
            "{dialect}"
        );
    }
}

/// [MS-SMB2] 2.2.7, 2.2.11, 2.2.28.
#[test]
fn reserved_fields_of_requests_that_have_no_other_are_ignored() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let session = server.session(Options::dialect(dialect));
        let tree = session.tree(DATA).unwrap();
        for request in [
            Request::new(&EchoRequest),
            Request::new(&TreeDisconnectRequest),
            Request::new(&LogoffRequest),
        ] {
            let command = request.command;
            let reply = tree.reply(fill(request, &[(2, 4)])).unwrap();
            assert_eq!(reply.status(), Status::SUCCESS, "{dialect} {command}");
        }
        let after = status(session.tree(DATA));
        assert_eq!(after, Status::USER_SESSION_DELETED, "{dialect}");
    }
}

/// [MS-SMB2] 2.2.15, 3.3.5.10: attributes come back for the one flag that asks for them.
#[test]
fn a_close_returns_attributes_for_one_flag_only() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"0123456789").unwrap();
    for (flags, asks) in [(0xfffe_u16, false), (0xffff, true), (1, true), (0, false)] {
        let file = open(&tree, "f");
        // Flags, and Reserved.
        let request = file.close_request(CloseFlags::empty()).mutate(|m| {
            m[BODY + 2..BODY + 4].copy_from_slice(&flags.to_le_bytes());
            m[BODY + 4..BODY + 8].fill(0xff);
        });
        let reply = tree.call(request).unwrap();
        let response = CloseResponse::read(&reply.message).unwrap();
        let expected = if asks {
            CloseFlags::POSTQUERY_ATTRIB
        } else {
            CloseFlags::empty()
        };
        assert_eq!(response.flags, expected, "{flags:#x}");
        let size = response.facts.end_of_file;
        assert_eq!(size, if asks { 10 } else { 0 }, "{flags:#x}");
        if !asks {
            // Reserved, four times, two sizes and the attributes.
            assert_eq!(reply.message[BODY + 4..BODY + 60], [0; 56], "{flags:#x}");
        }
        assert_eq!(status(file.close()), Status::FILE_CLOSED, "{flags:#x}");
    }
}

/// [MS-SMB2] 2.2.26.1.
#[test]
fn the_reserved_field_of_a_lock_is_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = (open(&tree, "f"), open(&tree, "f"));
    let at_once = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let elements = [0, 10].map(|offset| LockElement {
        offset,
        length: 5,
        flags: at_once,
    });
    // Reserved of both elements, each of which has 24 bytes behind the 24 of the head.
    let request = fill(file.lock_request(0, &elements), &[(44, 48), (68, 72)]);
    tree.call(request).unwrap();
    for offset in [4, 14] {
        let refused = status(other.lock(offset, 1, at_once));
        assert_eq!(refused, Status::LOCK_NOT_GRANTED, "{offset}");
    }
    other.lock(5, 5, at_once).unwrap();
}

/// [MS-SMB2] 2.2.31.
#[test]
fn reserved_fields_of_an_ioctl_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let request = file.ioctl_request(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32);
    // Reserved and Reserved2.
    let reply = tree.reply(fill(request, &[(2, 4), (52, 56)])).unwrap();
    assert_eq!(reply.status(), Status::SUCCESS);
}

/// [MS-SMB2] 2.2.31.1, 2.2.31.1.1.
#[test]
fn reserved_fields_of_a_copy_and_its_chunks_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("source", b"0123456789").unwrap();
    let (source, target) = (open(&tree, "source"), open(&tree, "target"));
    let mut input = source.copy_chunks(&[(0, 0, 4), (4, 4, 6)]).unwrap();
    for reserved in [28..32, 52..56, 76..80] {
        input[reserved].fill(0xff);
    }
    target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12).unwrap();
    assert_eq!(tree.read_file("target").unwrap(), b"0123456789");
}

/// [MS-SMB2] 2.2.31.3.
#[test]
fn the_reserved_field_of_a_request_for_resiliency_is_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = open(&tree, "f");
    let mut input = 1_000_u32.to_le_bytes().to_vec();
    input.extend_from_slice(&[0xff; 4]);
    let asked = file.ioctl(FsctlCode::LMR_REQUEST_RESILIENCY, &input, 0);
    assert_eq!(status(asked), Status::SUCCESS);
}

/// [MS-SMB2] 2.2.35.
#[test]
fn the_reserved_field_of_a_notification_is_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let request = Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags::empty(),
        output_buffer_length: 4096,
        file_id: root.id(),
        completion_filter: NotifyFilter::FILE_NAME,
    });
    let id = tree.send(fill(request, &[(28, 32)])).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    tree.create(&CreateArgs::create("new")).unwrap();
    let reply = tree.client().wait(id).unwrap();
    let changes = root.changes(reply).unwrap();
    assert_eq!(changes[0].file_name, "new");
}

/// Opens the file as another client, which has to wait for the holder's break.
fn waits(holder: &Tree, other: &Tree) -> MessageId {
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    let broken = holder.client().next_break(SOON).unwrap();
    assert!(broken.is_some());
    id
}

/// [MS-SMB2] 2.2.24.1.
#[test]
fn reserved_fields_of_an_oplock_acknowledgment_are_ignored() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::create("f").oplock(OplockLevel::BATCH);
    let file = holder.create(&args).unwrap();
    let id = waits(&holder, &other);
    let request = Request::new(&OplockBreak {
        oplock_level: OplockLevel::II,
        file_id: file.id(),
    });
    // Reserved and Reserved2.
    let reply = holder.call(fill(request, &[(3, 4), (4, 8)])).unwrap();
    let response = OplockBreak::read(&reply.message).unwrap();
    assert_eq!(response.oplock_level, OplockLevel::II);
    assert_eq!(reply.message[BODY + 3..BODY + 8], [0; 5]);
    other.client().wait(id).unwrap().ok().unwrap();
}

/// [MS-SMB2] 2.2.24.2.
#[test]
fn reserved_fields_of_a_lease_acknowledgment_are_ignored() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let leased = CreateArgs::create("f").lease_v2(KEY, LeaseState::RWH, 1);
    let _file = holder.create(&leased).unwrap();
    let id = waits(&holder, &other);
    let kept = LeaseState::READ | LeaseState::HANDLE;
    let request = Request::new(&LeaseBreak {
        lease_key: KEY,
        lease_state: kept,
    });
    // Reserved, Flags and LeaseDuration.
    let reply = holder
        .call(fill(request, &[(2, 4), (4, 8), (28, 36)]))
        .unwrap();
    let response = LeaseBreak::read(&reply.message).unwrap();
    assert_eq!((response.lease_key, response.lease_state), (KEY, kept));
    assert_eq!(reply.message[BODY + 2..BODY + 8], [0; 6]);
    assert_eq!(reply.message[BODY + 28..BODY + 36], [0; 8]);
    other.client().wait(id).unwrap().ok().unwrap();
}

/// A CREATE of a new file with the context of a lease, whose data are given.
fn lease(tree: &Tree, file: &str, data: &[u8]) -> File {
    let args = CreateArgs::create(file)
        .oplock(OplockLevel::LEASE)
        .context(name::REQUEST_LEASE, data);
    tree.create(&args).unwrap()
}

/// [MS-SMB2] 2.2.13.2.8: version 1 has no flags.
#[test]
fn reserved_fields_of_a_lease_of_version_1_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut data = KEY.0.to_vec();
    data.extend_from_slice(&LeaseState::RWH.bits().to_le_bytes());
    // LeaseFlags and LeaseDuration.
    data.extend_from_slice(&[0xff; 12]);
    let file = lease(&tree, "f", &data);
    let granted = file.created().lease().unwrap();
    assert_eq!(granted.lease_state, LeaseState::RWH);
    assert!(granted.flags.is_empty() && granted.v2.is_none());
}

/// [MS-SMB2] 2.2.13.2.10.
#[test]
fn reserved_fields_of_a_lease_of_version_2_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut data = KEY.0.to_vec();
    data.extend_from_slice(&LeaseState::RWH.bits().to_le_bytes());
    // Flags, LeaseDuration, ParentLeaseKey, Epoch and Reserved.
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&[0xff; 8]);
    data.extend_from_slice(&[0; 16]);
    data.extend_from_slice(&[5, 0, 0xff, 0xff]);
    let file = lease(&tree, "f", &data);
    let raw = file.created().context(name::REQUEST_LEASE).unwrap();
    let granted = file.created().lease().unwrap();
    assert_eq!(granted.lease_state, LeaseState::RWH);
    assert!(granted.flags.is_empty() && granted.v2.is_some());
    // The response has its own reserved fields, which are zero.
    assert_eq!((&raw[24..32], &raw[50..52]), (&[0; 8][..], &[0; 2][..]));
}

/// [MS-SMB2] 2.2.13.2.3, 2.2.13.2.11.
#[test]
fn reserved_fields_of_requests_for_durability_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let batch = |name: &str| CreateArgs::create(name).oplock(OplockLevel::BATCH);
    let first = batch("one").context(name::DURABLE_HANDLE_REQUEST, &[0xff; 16]);
    assert!(granted_v1(&tree.create(&first).unwrap()));
    let plain = tree.create(&v1(batch("two"))).unwrap();
    assert!(granted_v1(&plain));
    // Timeout, Flags, Reserved and CreateGuid.
    let mut data = 30_000_u32.to_le_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&[0xff; 8]);
    data.extend_from_slice(&CREATE_GUID.0);
    let second = batch("three").context(name::DURABLE_HANDLE_REQUEST_V2, &data);
    let granted = granted_v2(&tree.create(&second).unwrap()).unwrap();
    let expected = granted_v2(
        &tree
            .create(&v2(batch("four"), Guid([9; 16]), 30_000))
            .unwrap(),
    );
    assert_eq!(Some(granted), expected);
}

/// [MS-SMB2] 2.2.13.2: where a context has no data, the offset of its data means nothing.
#[test]
fn reserved_fields_of_a_create_context_are_ignored() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").context(name::QUERY_ON_DISK_ID, b"");
    let request = args.request().mutate(|m: &mut BytesMut| {
        // CreateContextsOffset, then Reserved and DataOffset of the only context.
        let at: [u8; 4] = m[BODY + 48..BODY + 52].try_into().unwrap();
        let at = usize::try_from(u32::from_le_bytes(at)).unwrap();
        m[at + 8..at + 12].fill(0xff);
    });
    let file = tree.file(&tree.call(request).unwrap()).unwrap();
    let id = file.created().context(name::QUERY_ON_DISK_ID).unwrap();
    assert_eq!(id.len(), 32);
}
