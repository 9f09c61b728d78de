//! Breaks and interim responses as they are on the wire: messages that a client has to accept unsigned, and recognizes
//! by their headers ([MS-SMB2] 3.3.4.2, 3.3.4.6, 3.3.4.7).

use std::io::Read;

use smb_client::{Client, CreateArgs, Options, Signing, Tree};
use smb_tests::{HoldfastServer, SOON};
use smb_wire::create_context::LeaseState;
use smb_wire::header::{Header, HeaderFlags, TRANSPORT_HEADER_SIZE, transport_length};
use smb_wire::ids::{LeaseKey, MessageId, SessionId, TreeId};
use smb_wire::msg::{
    ChangeNotifyFlags, Dialect, LeaseBreakFlags, LeaseBreakNotification, NotifyFilter, OplockBreak,
    OplockLevel, WriteFlags,
};
use smb_wire::{Command, Status};

const KEY: LeaseKey = LeaseKey([0x11; 16]);

/// A client that signs everything.
fn signing(server: &HoldfastServer, dialect: Dialect) -> Tree {
    server.tree_with(Options::dialect(dialect).signing(Signing::Required))
}

/// Reads the next message from the socket of a client that has read all before it.
fn next_message(client: &Client) -> Vec<u8> {
    let mut connection = client.connection();
    let stream = connection.stream_mut();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut head = [0; TRANSPORT_HEADER_SIZE];
    stream.read_exact(&mut head).unwrap();
    let mut message = vec![0; transport_length(head).1];
    stream.read_exact(&mut message).unwrap();
    message
}

/// Asserts that a message is an unsigned break of no tree, and of this session.
#[track_caller]
fn assert_break(message: &[u8], session: SessionId) {
    let header = Header::read(message).unwrap();
    assert_eq!(header.command, Command::OPLOCK_BREAK);
    assert_eq!(header.message_id, MessageId::UNSOLICITED);
    assert_eq!(header.flags, HeaderFlags::RESPONSE);
    assert_eq!((header.session_id, header.tree_id), (session, TreeId(0)));
    assert_eq!((header.status, header.next_command), (Status::SUCCESS, 0));
}

/// [MS-SMB2] 3.3.4.6.
#[test]
fn a_break_of_an_oplock_names_its_session_and_no_tree() {
    let server = HoldfastServer::new();
    let other = server.tree();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_3_1_1] {
        let holder = signing(&server, dialect);
        let args = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
        let file = holder.create(&args).unwrap();
        let id = other.send(CreateArgs::open("f").request()).unwrap();
        let message = next_message(holder.client());
        assert_break(&message, holder.session().id());
        let body = OplockBreak::read(&message).unwrap();
        assert_eq!(
            (body.file_id, body.oplock_level),
            (file.id(), OplockLevel::II)
        );
        file.close().unwrap();
        let reply = other.client().wait(id).unwrap().ok().unwrap();
        other.file(&reply).unwrap().close().unwrap();
    }
}

/// [MS-SMB2] 3.3.4.7: leases belong to no session. The end of read caching alone needs no acknowledgment, and version 1
/// counts no epochs.
#[test]
fn a_break_of_a_lease_names_neither_session_nor_tree() {
    let server = HoldfastServer::new();
    let other = server.tree();
    for (v2, epochs) in [(false, (0, 0)), (true, (9, 10))] {
        let holder = signing(&server, Dialect::SMB_3_1_1);
        let args = CreateArgs::open_if("f");
        let args = match v2 {
            true => args.lease_v2(KEY, LeaseState(3), 7),
            false => args.lease(KEY, LeaseState(3)),
        };
        let file = holder.create(&args).unwrap();
        let writer = other.create(&CreateArgs::open("f")).unwrap();
        // Handle caching makes an acknowledgment necessary.
        writer.write(0, b"x", WriteFlags::empty()).unwrap();
        let message = next_message(holder.client());
        assert_break(&message, SessionId(0));
        let body = LeaseBreakNotification::read(&message).unwrap();
        assert_eq!(body.lease_key, KEY);
        assert_eq!(body.flags, LeaseBreakFlags::ACK_REQUIRED);
        assert_eq!(body.current_lease_state, LeaseState(3));
        assert_eq!(body.new_lease_state, LeaseState(0));
        assert_eq!(body.new_epoch, epochs.0, "{v2}");
        holder.acknowledge_lease(KEY, LeaseState(0)).unwrap();
        file.close().unwrap();
        let args = CreateArgs::open_if("f");
        let args = match v2 {
            true => args.lease_v2(KEY, LeaseState::READ, 8),
            false => args.lease(KEY, LeaseState::READ),
        };
        let file = holder.create(&args).unwrap();
        writer.write(0, b"y", WriteFlags::empty()).unwrap();
        let message = next_message(holder.client());
        assert_break(&message, SessionId(0));
        let body = LeaseBreakNotification::read(&message).unwrap();
        assert_eq!(body.flags, LeaseBreakFlags::empty());
        assert_eq!(body.current_lease_state, LeaseState::READ);
        assert_eq!(body.new_lease_state, LeaseState(0));
        assert_eq!(body.new_epoch, epochs.1, "{v2}");
        writer.close().unwrap();
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.4.2.
#[test]
fn an_interim_response_is_an_unsigned_error_without_data() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_3_1_1] {
        let tree = signing(&server, dialect);
        let root = tree.create(&CreateArgs::directory("")).unwrap();
        let names = NotifyFilter::FILE_NAME;
        let id = root.notify(names, ChangeNotifyFlags::empty(), 4096);
        let message = next_message(tree.client());
        let header = Header::read(&message).unwrap();
        assert_eq!(header.command, Command::CHANGE_NOTIFY);
        assert_eq!(header.status, Status::PENDING);
        assert_eq!(header.flags, HeaderFlags::RESPONSE | HeaderFlags::ASYNC);
        assert_eq!(header.message_id, id.unwrap());
        assert_eq!(header.session_id, tree.session().id());
        assert!(header.async_id.is_some_and(|id| id.0 != 0), "{dialect}");
        assert_eq!(header.next_command, 0);
        // StructureSize, ErrorContextCount, Reserved and ByteCount.
        assert_eq!(message[64..72], [9, 0, 0, 0, 0, 0, 0, 0], "{dialect}");
    }
}
