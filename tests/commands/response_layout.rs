//! The layout of responses: their sizes, reserved fields and offsets ([MS-SMB2] 2.2.2 to 2.2.40), read as bytes.

use smb_client::{CreateArgs, File, Options, Reply, Request, Session, Tree};
use smb_tests::durable::{CREATE_GUID, v2};
use smb_tests::{DATA, HoldfastServer};
use smb_wire::Status;
use smb_wire::create_context::{LeaseState, name};
use smb_wire::fscc::FileInformationClass as Class;
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::{FileId, LeaseKey};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CloseFlags, Dialect, EchoRequest, InfoType,
    LockElement, LockFlags, LockRequest, LogoffRequest, NotifyFilter, OplockBreak, OplockLevel,
    QueryDirectoryFlags, TreeDisconnectRequest, WriteFlags,
};

/// The body of a message begins here.
const BODY: usize = 64;
const KEY: LeaseKey = LeaseKey([0x4c; 16]);

fn short(reply: &Reply, at: usize) -> u16 {
    u16::from_le_bytes(reply.message[BODY + at..BODY + at + 2].try_into().unwrap())
}

fn long(reply: &Reply, at: usize) -> usize {
    let bytes = reply.message[BODY + at..BODY + at + 4].try_into().unwrap();
    usize::try_from(u32::from_le_bytes(bytes)).unwrap()
}

fn sessions(server: &HoldfastServer) -> impl Iterator<Item = (Dialect, Session)> {
    let each = |dialect| (dialect, server.session(Options::dialect(dialect)));
    Dialect::ALL.into_iter().map(each)
}

fn open(tree: &Tree) -> File {
    tree.create(&CreateArgs::open_if("f")).unwrap()
}

fn lock_of(file_id: FileId) -> Request {
    Request::new(&LockRequest {
        lock_sequence: 0,
        file_id,
        locks: vec![LockElement {
            offset: 0,
            length: 1,
            flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
        }],
    })
}

fn search(file_id: FileId) -> Request {
    let flags = QueryDirectoryFlags::empty();
    Request::query_directory(file_id, Class::NAMES, "*", flags, 4096)
}

/// [MS-SMB2] 2.2.10: the only response of its kind that is read before there is a tree.
#[test]
fn the_response_of_a_tree_connect_has_16_bytes() {
    let server = HoldfastServer::new();
    for (dialect, session) in sessions(&server) {
        let request = session.tree_connect(r"\\127.0.0.1\data");
        let reply = session.client().call(request).unwrap().ok().unwrap();
        assert_eq!(reply.message.len(), BODY + 16, "{dialect}");
        assert_eq!(short(&reply, 0), 16, "{dialect}");
        // Reserved.
        assert_eq!(reply.message[BODY + 3], 0, "{dialect}");
    }
}

/// [MS-SMB2] 2.2.8, 2.2.12, 2.2.18, 2.2.27, 2.2.29, 2.2.40: what a response has beside its size is reserved.
#[test]
fn responses_without_data_have_nothing_but_their_size() {
    let server = HoldfastServer::new();
    for (dialect, session) in sessions(&server) {
        let tree = session.tree(DATA).unwrap();
        let file = open(&tree);
        let end = 10_u64.to_le_bytes();
        for (request, body) in [
            (Request::new(&EchoRequest), &[4, 0, 0, 0][..]),
            (Request::flush(file.id()), &[4, 0, 0, 0]),
            (lock_of(file.id()), &[4, 0, 0, 0]),
            (
                file.set_info_request(InfoType::FILE, Class::END_OF_FILE.0, 0, &end),
                &[2, 0],
            ),
            (Request::new(&TreeDisconnectRequest), &[4, 0, 0, 0]),
            (Request::new(&LogoffRequest), &[4, 0, 0, 0]),
        ] {
            let command = request.command;
            let reply = tree.call(request).unwrap();
            assert_eq!(reply.message[BODY..], *body, "{dialect} {command}");
        }
    }
}

/// [MS-SMB2] 2.2.14, 2.2.16, 2.2.20, 2.2.22, 2.2.32, 2.2.38, 2.2.34: the size is that of the structure, whatever the
/// response has behind it.
#[test]
fn responses_with_data_name_the_size_of_their_structure() {
    let server = HoldfastServer::new();
    for (dialect, session) in sessions(&server) {
        let tree = session.tree(DATA).unwrap();
        tree.write_file("f", b"0123456789").unwrap();
        let (file, root) = (open(&tree), CreateArgs::directory(""));
        let root = tree.create(&root).unwrap();
        let standard = Class::STANDARD.0;
        for (request, size) in [
            (CreateArgs::open("f").request(), 89),
            (Request::read(file.id(), 0, 10), 17),
            (Request::write(file.id(), 0, b"x", WriteFlags::empty()), 17),
            (
                Request::query_info(file.id(), InfoType::FILE, standard, 0, 100),
                9,
            ),
            (search(root.id()), 9),
            (
                file.ioctl_request(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32),
                49,
            ),
            (file.close_request(CloseFlags::POSTQUERY_ATTRIB), 60),
        ] {
            let command = request.command;
            let reply = tree.call(request).unwrap();
            assert_eq!(short(&reply, 0), size, "{dialect} {command}");
        }
    }
}

/// [MS-SMB2] 2.2.14, 2.2.16, 2.2.20, 2.2.22, 2.2.32: the server sets reserved fields to zero.
#[test]
fn reserved_fields_of_responses_are_zero() {
    let server = HoldfastServer::new();
    for (dialect, session) in sessions(&server) {
        let tree = session.tree(DATA).unwrap();
        tree.write_file("f", b"0123456789").unwrap();
        let file = open(&tree);
        for (request, reserved) in [
            // Reserved2.
            (CreateArgs::open("f").request(), &[(60, 64)][..]),
            // Reserved, and DataRemaining with Reserved2 or Flags.
            (Request::read(file.id(), 0, 10), &[(3, 4), (8, 16)]),
            // Reserved, Remaining, and the fields of other channels.
            (
                Request::write(file.id(), 0, b"x", WriteFlags::empty()),
                &[(2, 4), (8, 16)],
            ),
            // Reserved, InputCount, Flags and Reserved2.
            (
                file.ioctl_request(FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32),
                &[(2, 4), (28, 32), (40, 48)],
            ),
            (file.close_request(CloseFlags::POSTQUERY_ATTRIB), &[(4, 8)]),
        ] {
            let command = request.command;
            let reply = tree.call(request).unwrap();
            for (start, end) in reserved {
                let field = &reply.message[BODY + start..BODY + end];
                let zero = field.iter().all(|byte| *byte == 0);
                assert!(zero, "{dialect} {command} {start}: {field:?}");
            }
        }
    }
}

/// [MS-SMB2] 3.3.5.12, 3.3.5.18, 3.3.5.19, 3.3.5.20.1: the data begin where the structure has its Buffer, and the
/// message ends with them.
#[test]
fn the_data_of_a_response_are_its_end() {
    let server = HoldfastServer::new();
    for (dialect, session) in sessions(&server) {
        let tree = session.tree(DATA).unwrap();
        tree.write_file("f", b"0123456789").unwrap();
        let file = open(&tree);
        let root = tree.create(&CreateArgs::directory("")).unwrap();
        let read = tree.call(Request::read(file.id(), 2, 5)).unwrap();
        let (offset, length) = (usize::from(read.message[BODY + 2]), long(&read, 4));
        assert_eq!((offset, length), (BODY + 16, 5), "{dialect}");
        assert_eq!(read.message[offset..], b"23456"[..], "{dialect}");
        let standard = Class::STANDARD.0;
        let query = Request::query_info(file.id(), InfoType::FILE, standard, 0, 100);
        let notify = root.notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096);
        let new = CreateArgs::create("f2");
        tree.create(&new).unwrap().close().unwrap();
        let changes = tree.client().wait(notify.unwrap()).unwrap();
        for (reply, what) in [
            (tree.call(query).unwrap(), "QUERY_INFO"),
            (tree.call(search(root.id())).unwrap(), "QUERY_DIRECTORY"),
            (changes, "CHANGE_NOTIFY"),
        ] {
            let (offset, length) = (usize::from(short(&reply, 2)), long(&reply, 4));
            assert_eq!(offset, BODY + 8, "{dialect} {what}");
            assert!(length > 0, "{dialect} {what}");
            assert_eq!(offset + length, reply.message.len(), "{dialect} {what}");
        }
        tree.delete("f2").unwrap();
    }
}

/// [MS-SMB2] 2.2.2: a refusal has the structure of an error, whatever the command is.
#[test]
fn every_refusal_is_an_error_without_data() {
    let server = HoldfastServer::new();
    let nothing = FileId::ANY;
    for (dialect, session) in sessions(&server) {
        let tree = session.tree(DATA).unwrap();
        for request in [
            CreateArgs::open("missing").request(),
            Request::close(nothing),
            Request::flush(nothing),
            Request::read(nothing, 0, 1),
            Request::write(nothing, 0, b"x", WriteFlags::empty()),
            lock_of(nothing),
            Request::ioctl(nothing, FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32),
            search(nothing),
            Request::new(&ChangeNotifyRequest {
                flags: ChangeNotifyFlags::empty(),
                output_buffer_length: 100,
                file_id: nothing,
                completion_filter: NotifyFilter::FILE_NAME,
            }),
            Request::query_info(nothing, InfoType::FILE, Class::BASIC.0, 0, 100),
            Request::set_info(nothing, InfoType::FILE, Class::BASIC.0, 0, &[0; 40]),
            Request::new(&OplockBreak {
                oplock_level: OplockLevel::NONE,
                file_id: nothing,
            }),
        ] {
            let command = request.command;
            let reply = tree.reply(request).unwrap();
            assert!(reply.status().is_error(), "{dialect} {command}");
            // StructureSize, ErrorContextCount, Reserved and ByteCount.
            let head = &reply.message[BODY..BODY + 8];
            assert_eq!(*head, [9, 0, 0, 0, 0, 0, 0, 0], "{dialect} {command}");
        }
    }
}

/// [MS-SMB2] 2.2.13.2, 3.3.5.9: the contexts of a response are a chain, each of them aligned and answered once.
#[test]
fn all_contexts_of_one_request_are_answered_once() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::create("f").lease_v2(KEY, LeaseState::RWH, 1);
    let args = v2(args, CREATE_GUID, 0)
        .context(name::QUERY_MAXIMAL_ACCESS, b"")
        .context(name::QUERY_ON_DISK_ID, b"")
        .context(b"none", b"of these");
    let reply = tree.call(args.request()).unwrap();
    let (first, length) = (long(&reply, 80), long(&reply, 84));
    assert!(first.is_multiple_of(8) && first >= BODY + 88);
    assert!(first + length <= reply.message.len());
    let mut names = Vec::new();
    let mut at = first;
    loop {
        assert!(at.is_multiple_of(8), "{at}");
        let next = long(&reply, at - BODY);
        let name = at + usize::from(short(&reply, at - BODY + 4));
        let name_length = usize::from(short(&reply, at - BODY + 6));
        let reserved = short(&reply, at - BODY + 8);
        let data = usize::from(short(&reply, at - BODY + 10));
        assert_eq!(reserved, 0);
        assert!(data.is_multiple_of(8), "{data}");
        names.push(reply.message[name..name + name_length].to_vec());
        if next == 0 {
            break;
        }
        at += next;
    }
    names.sort();
    let expected = [
        name::DURABLE_HANDLE_REQUEST_V2,
        name::QUERY_MAXIMAL_ACCESS,
        name::QUERY_ON_DISK_ID,
        name::REQUEST_LEASE,
    ];
    assert_eq!(names, expected);
}

/// [MS-SMB2] 3.3.5.5.3: a login that goes on has a token, and the id of the session that it begins.
#[test]
fn the_first_response_of_a_login_has_a_token() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect));
        let token = b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let reply = client.call(Request::session_setup(token)).unwrap();
        assert_eq!(reply.status(), Status::MORE_PROCESSING_REQUIRED);
        // StructureSize and SessionFlags.
        assert_eq!((short(&reply, 0), short(&reply, 2)), (9, 0), "{dialect}");
        let (offset, length) = (short(&reply, 4), short(&reply, 6));
        let (offset, length) = (usize::from(offset), usize::from(length));
        assert!(offset >= BODY + 8 && length > 0, "{dialect}");
        assert!(offset + length <= reply.message.len(), "{dialect}");
        let id = reply.header.session_id.0;
        assert!(id != 0 && id != u64::MAX, "{dialect}");
    }
}
