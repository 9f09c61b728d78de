//! The fields of NEGOTIATE, SESSION_SETUP and TREE_CONNECT, and the ends of trees ([MS-SMB2] 3.3.5.4, 3.3.5.5, 3.3.5.7,
//! 3.3.5.8).

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use smb_client::core::LoginArgs;
use smb_client::{CreateArgs, Credentials, Login, Options, Reply, Request, Signing};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, PASSWORD, USER, status};
use smb_wire::Status;
use smb_wire::ids::{FileTime, Guid, SessionId};
use smb_wire::msg::{
    Capabilities, Dialect, NegotiateRequest, NegotiateResponse, SecurityMode, TreeConnectFlags,
    TreeConnectRequest,
};
use smb_wire::negotiate_context::{
    NegotiateContextList, NegotiateContextType as Type, PreauthIntegrityCapabilities,
};

/// The first message of NTLM.
pub(crate) const NTLM_NEGOTIATE: &[u8] =
    b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// One hash algorithm, SHA-512, and four bytes of salt.
pub(crate) const PREAUTH: (Type, &[u8]) = (
    Type::PREAUTH_INTEGRITY_CAPABILITIES,
    &[1, 0, 4, 0, 1, 0, 9, 9, 9, 9],
);

/// A NEGOTIATE of one dialect with these contexts.
pub(crate) fn negotiate(dialect: Dialect, contexts: &[(Type, &[u8])]) -> Request {
    let mut list = NegotiateContextList::new();
    for &(context_type, data) in contexts {
        list.push_with(context_type, |out: &mut BytesMut| {
            out.extend_from_slice(data);
        });
    }
    Request::new(&NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU,
        client_guid: Guid([7; 16]),
        dialects: vec![dialect],
        context_offset: 0,
        contexts: list.contexts(),
    })
}

/// Sends a request on a new connection.
fn ask(server: &HoldfastServer, request: Request) -> Reply {
    let mut connection = server.connection(Options::default());
    connection.call(request).unwrap()
}

fn put(request: Request, at: usize, value: u16) -> Request {
    request.mutate(|m| m[at..at + 2].copy_from_slice(&value.to_le_bytes()))
}

fn login() -> Login {
    Login::user(USER, PASSWORD, "")
}

/// [MS-SMB2] 3.3.5.4: the response has the time of now, no time of the start, and its token behind its head.
#[test]
fn the_response_of_a_negotiation_has_the_time_and_no_start() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
        let contexts: &[_] = match dialect {
            Dialect::SMB_3_1_1 => &[PREAUTH],
            _ => &[],
        };
        let reply = ask(&server, negotiate(dialect, contexts));
        let response = NegotiateResponse::read(&reply.message).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = FileTime::from_unix(now.as_secs().cast_signed(), 0);
        let minute = 60 * 10_000_000;
        let apart = now.0.abs_diff(response.system_time.0);
        assert!(apart < minute, "{dialect} {:?}", response.system_time);
        // ServerStartTime and SecurityBufferOffset.
        assert_eq!(reply.message[112..120], [0; 8], "{dialect}");
        assert_eq!(reply.message[120..122], [128, 0], "{dialect}");
    }
}

/// [MS-SMB2] 3.3.5.4: the salt of the hash is another one in each response.
#[test]
fn every_negotiation_has_a_salt_of_its_own() {
    let server = HoldfastServer::new();
    let salt = || {
        let reply = ask(&server, negotiate(Dialect::SMB_3_1_1, &[PREAUTH]));
        let response = NegotiateResponse::read(&reply.message).unwrap();
        let context = response.contexts.iter().next().unwrap().unwrap();
        let preauth = PreauthIntegrityCapabilities::read(context.data).unwrap();
        assert!(preauth.salt.len() >= 16);
        preauth.salt.to_vec()
    };
    assert_ne!(salt(), salt());
}

/// [MS-SMB2] 3.3.5.4: the server is the same for every client and dialect, and its buffers have room for 64 KiB.
#[test]
fn every_negotiation_finds_the_same_server() {
    let server = HoldfastServer::new();
    let mut guids = Vec::new();
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect));
        let found = client.negotiated();
        let sizes = [
            found.max_transact_size,
            found.max_read_size,
            found.max_write_size,
        ];
        assert!(
            sizes.iter().all(|size| *size >= 65_536),
            "{dialect} {sizes:?}"
        );
        guids.push(found.server_guid);
    }
    guids.dedup();
    assert_eq!(guids.len(), 1, "{guids:?}");
    assert_ne!(guids[0], Guid::default());
}

/// [MS-SMB2] 2.2.4, 2.2.4.1: the contexts are counted, and each begins at a multiple of eight; older dialects have
/// none.
#[test]
fn the_contexts_of_a_negotiation_are_aligned() {
    let server = HoldfastServer::new();
    let short = |reply: &Reply, at: usize| {
        usize::from(u16::from_le_bytes([
            reply.message[at],
            reply.message[at + 1],
        ]))
    };
    // NegotiateContextCount and NegotiateContextOffset.
    let (count, offset) = (64 + 6, 64 + 60);
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2] {
        let reply = ask(&server, negotiate(dialect, &[]));
        assert_eq!(short(&reply, count), 0, "{dialect}");
        assert_eq!(reply.message[offset..offset + 4], [0; 4], "{dialect}");
    }
    let contexts = [
        PREAUTH,
        // One cipher, AES-128-GCM, and one algorithm, AES-CMAC.
        (Type::ENCRYPTION_CAPABILITIES, &[1, 0, 2, 0]),
        (Type::SIGNING_CAPABILITIES, &[1, 0, 1, 0]),
    ];
    let reply = ask(&server, negotiate(Dialect::SMB_3_1_1, &contexts));
    let mut at = short(&reply, offset);
    let token_ends = short(&reply, 64 + 56) + short(&reply, 64 + 58);
    assert!(at >= token_ends, "{at}");
    let mut kinds = Vec::new();
    for _ in 0..short(&reply, count) {
        assert!(at.is_multiple_of(8), "{at}");
        kinds.push(short(&reply, at));
        // Reserved.
        assert_eq!(reply.message[at + 4..at + 8], [0; 4]);
        let end = at + 8 + short(&reply, at + 2);
        assert!(end <= reply.message.len());
        at = end.next_multiple_of(8);
    }
    kinds.sort_unstable();
    // SMB2_PREAUTH_INTEGRITY, SMB2_ENCRYPTION and SMB2_SIGNING_CAPABILITIES.
    assert_eq!(kinds, [1, 2, 8]);
}

/// [MS-SMB2] 3.3.5.4: contexts that the server does not support are ignored, whatever is in them.
#[test]
fn contexts_of_unsupported_kinds_are_not_examined() {
    let server = HoldfastServer::new();
    for context_type in [
        Type::COMPRESSION_CAPABILITIES,
        Type::RDMA_TRANSFORM_CAPABILITIES,
        Type::TRANSPORT_CAPABILITIES,
        Type::NETNAME_NEGOTIATE_CONTEXT_ID,
        Type(0x4321),
    ] {
        for data in [&b""[..], &[0; 8], &[0xff; 3]] {
            let contexts = [PREAUTH, (context_type, data)];
            let reply = ask(&server, negotiate(Dialect::SMB_3_1_1, &contexts));
            assert_eq!(reply.status(), Status::SUCCESS, "{context_type} {data:x?}");
        }
    }
}

/// [MS-SMB2] 3.3.5.2.6: as many dialects and contexts follow as are counted.
#[test]
fn a_negotiation_that_counts_more_than_it_has_is_refused() {
    let server = HoldfastServer::new();
    for count in [40, 0xffff] {
        let dialects = put(negotiate(Dialect::SMB_2_1, &[]), 66, count);
        let refused = ask(&server, dialects).status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{count} dialects");
        let contexts = put(negotiate(Dialect::SMB_3_1_1, &[PREAUTH]), 96, count);
        let refused = ask(&server, contexts).status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{count} contexts");
    }
}

/// [MS-SMB2] 3.3.5.4: only a negotiation that has succeeded is in the hash from which the keys are derived.
#[test]
fn a_negotiation_follows_one_that_was_refused() {
    let server = HoldfastServer::new();
    let mut connection = server.connection(Options::default());
    for (dialect, expected) in [
        (Dialect(0x0400), Status::NOT_SUPPORTED),
        (Dialect::SMB_3_1_1, Status::INVALID_PARAMETER),
    ] {
        let refused = connection.call(negotiate(dialect, &[])).unwrap();
        assert_eq!(refused.status(), expected, "{dialect}");
    }
    connection.negotiate().unwrap();
    let credentials = Credentials::password(USER, "", PASSWORD);
    let now = FileTime::from_unix(2_000_000_000, 0).0;
    let login = LoginArgs::new(credentials, now);
    connection.login(login).unwrap();
}

/// [MS-SMB2] 3.3.5.4: the security mode says whether the server requires signatures.
#[test]
fn the_security_mode_is_that_of_the_configuration() {
    let mode = |server: &HoldfastServer| {
        let client = server.client(Options::default());
        client.negotiated().security_mode
    };
    let both = SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED;
    assert_eq!(mode(&HoldfastServer::new()), both);
    let lenient = HoldfastServer::lenient();
    assert_eq!(mode(&lenient), SecurityMode::SIGNING_ENABLED);
}

/// [MS-SMB2] 3.3.5.2.6: the token lies within its message.
#[test]
fn a_token_outside_its_message_is_refused() {
    let server = HoldfastServer::new();
    // SecurityBufferOffset is at 12 of the body, SecurityBufferLength at 14.
    for (at, value) in [(76, 0xffff), (76, 0x1000), (78, 0xffff), (78, 0x100)] {
        let client = server.client(Options::default());
        let request = put(Request::session_setup(NTLM_NEGOTIATE), at, value);
        let refused = client.call(request).unwrap().status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{at} {value:#x}");
        client.login(USER, PASSWORD, "").unwrap();
    }
}

/// [MS-SMB2] 3.3.5.5: the session is one of the connection, unless the request binds it.
#[test]
fn a_session_of_another_connection_is_not_set_up_again() {
    // Where sessions must be signed, the missing signature is found first.
    let server = HoldfastServer::lenient();
    let tree = server.tree();
    let client = server.client(Options::default());
    let request = Request::session_setup(NTLM_NEGOTIATE).session(tree.session().id());
    let refused = client.call(request).unwrap().status();
    assert_eq!(refused, Status::USER_SESSION_DELETED);
    tree.write_file("f", b"still there").unwrap();
}

/// [MS-SMB2] 3.3.5.5.3: a session that is to replace itself stays, and one that is not there is none to replace.
#[test]
fn a_session_does_not_replace_itself() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let session = tree.session();
    let again = login().replacing(session.id());
    session.reauthenticate(&again).unwrap();
    file.write_all(0, b"still open").unwrap();
    let nobody = login().replacing(SessionId(0x1234_5678));
    let other = session.client().login_with(&nobody).unwrap();
    other.tree(DATA).unwrap().read_file("f").unwrap();
}

/// [MS-SMB2] 3.3.5.5.3: a session that is authenticated again, or gets a channel, replaces another one as a new one
/// does.
#[test]
fn a_reauthentication_and_a_binding_replace_another_session() {
    let server = HoldfastServer::new();
    let options = || {
        let options = Options::default().signing(Signing::Required);
        options.guid(Guid([8; 16]))
    };
    let session = server.session(options());
    let second = server.client(options());
    let replaces = |replace: &dyn Fn(&Login)| {
        let old = server.tree();
        old.write_file("f", b"x").unwrap();
        replace(&login().replacing(old.session().id()));
        let after = status(old.read_file("f"));
        assert_eq!(after, Status::USER_SESSION_DELETED);
    };
    replaces(&|login| session.reauthenticate(login).unwrap());
    replaces(&|login| {
        let bound = second.bind(session.secret().unwrap(), login).unwrap();
        bound.tree(DATA).unwrap();
    });
    // Another user's session stays.
    let other = server.client(Options::default());
    let other = other.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let again = login().replacing(other.id());
    session.reauthenticate(&again).unwrap();
    other.tree(DATA).unwrap().read_file("f").unwrap();
}

/// [MS-SMB2] 3.3.5.5.3: every session has an id of its own, also on one connection and for one user.
#[test]
fn every_session_has_an_id_of_its_own() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let mut ids = vec![server.session(Options::default()).id()];
    for (user, password) in [
        (USER, PASSWORD),
        (USER, PASSWORD),
        (OTHER_USER, OTHER_PASSWORD),
    ] {
        ids.push(client.login(user, password, "").unwrap().id());
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert!(!ids.contains(&SessionId(0)) && !ids.contains(&SessionId::ANY));
}

/// [MS-SMB2] 3.3.5.2.6: the path lies within its message.
#[test]
fn a_path_of_a_share_outside_its_message_is_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    // PathOffset is at 4 of the body, PathLength at 6.
    for (at, value) in [(68, 0xffff), (68, 0x1000), (70, 0xffff), (70, 0x100)] {
        let request = put(session.tree_connect(r"\\host\data"), at, value);
        let refused = session.client().call(request).unwrap().status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{at} {value:#x}");
    }
    session.tree(DATA).unwrap();
}

/// [MS-SMB2] 2.2.9, 3.3.5.7: before 3.1.1 the flags of a TREE_CONNECT are reserved.
#[test]
fn the_flags_of_a_tree_connect_are_reserved_before_3_1_1() {
    let server = HoldfastServer::new();
    let path = smb_wire::utf16::encode(r"\\host\data");
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2] {
        let session = server.session(Options::dialect(dialect));
        let request = Request::new(&TreeConnectRequest {
            flags: TreeConnectFlags(0xffff),
            path: &path,
        });
        let request = request.session(session.id());
        let reply = session.client().call(request).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS, "{dialect}");
    }
}

/// [MS-SMB2] 3.3.5.8: a TREE_DISCONNECT closes the opens of its tree, and not those of another on the same share.
#[test]
fn the_end_of_a_tree_leaves_the_opens_of_others() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (first, second) = (session.tree(DATA).unwrap(), session.tree(DATA).unwrap());
    let gone = first.create(&CreateArgs::open_if("f")).unwrap();
    let stays = second.create(&CreateArgs::open_if("f")).unwrap();
    first.disconnect().unwrap();
    assert_eq!(status(gone.read(0, 1)), Status::NETWORK_NAME_DELETED);
    stays.write_all(0, b"still open").unwrap();
    assert_eq!(
        status(gone.through(&second).read(0, 1)),
        Status::FILE_CLOSED
    );
    assert_eq!(status(first.disconnect()), Status::NETWORK_NAME_DELETED);
}
