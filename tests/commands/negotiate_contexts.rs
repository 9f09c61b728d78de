//! Contexts of NEGOTIATE that are repeated, cut or not there, and capabilities that only those get who ask ([MS-SMB2]
//! 3.3.5.4).

use bytes::BytesMut;
use smb_client::{Options, Request};
use smb_tests::{HoldfastServer, Outcome, outcome};
use smb_wire::Status;
use smb_wire::ids::Guid;
use smb_wire::msg::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use smb_wire::negotiate_context::{NegotiateContextList, NegotiateContextType as Type};

/// One hash algorithm, SHA-512, and four bytes of salt.
const PREAUTH: &[u8] = &[1, 0, 4, 0, 1, 0, 9, 9, 9, 9];

/// Negotiates 3.1.1 with these contexts on a new connection.
fn ask(server: &HoldfastServer, contexts: &[(Type, &[u8])]) -> Outcome {
    let mut list = NegotiateContextList::new();
    for &(context_type, data) in contexts {
        list.push_with(context_type, |out: &mut BytesMut| {
            out.extend_from_slice(data);
        });
    }
    let request = Request::new(&NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU,
        client_guid: Guid([7; 16]),
        dialects: vec![Dialect::SMB_3_1_1],
        context_offset: 0,
        contexts: list.contexts(),
    });
    outcome(server.connection(Options::default()).call(request))
}

/// A context that the server does not support must still not be repeated.
#[test]
fn contexts_of_known_types_are_not_repeated() {
    let server = HoldfastServer::new();
    let preauth = (Type::PREAUTH_INTEGRITY_CAPABILITIES, PREAUTH);
    for (context_type, data) in [
        (
            Type::COMPRESSION_CAPABILITIES,
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0][..],
        ),
        (
            Type::RDMA_TRANSFORM_CAPABILITIES,
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        ),
    ] {
        let context = (context_type, data);
        let once = ask(&server, &[preauth, context]);
        assert_eq!(once, Outcome::Answered(Status::SUCCESS), "{context_type}");
        let twice = ask(&server, &[preauth, context, context]);
        let refused = Outcome::Answered(Status::INVALID_PARAMETER);
        assert_eq!(twice, refused, "{context_type}");
    }
    // Contexts that are to be ignored may be repeated.
    let name = (Type::NETNAME_NEGOTIATE_CONTEXT_ID, &b"h\0"[..]);
    let unknown = (Type(0x4321), &b"data"[..]);
    let many = ask(&server, &[name, unknown, preauth, unknown, name]);
    assert_eq!(many, Outcome::Answered(Status::SUCCESS));
}

#[test]
fn contexts_shorter_than_their_structure_are_refused() {
    let server = HoldfastServer::new();
    let preauth = (Type::PREAUTH_INTEGRITY_CAPABILITIES, PREAUTH);
    let refused = Outcome::Answered(Status::INVALID_PARAMETER);
    for short in [0, 1, 2, 3] {
        let cut = (Type::PREAUTH_INTEGRITY_CAPABILITIES, &PREAUTH[..short]);
        assert_eq!(ask(&server, &[cut]), refused, "{short}");
    }
    for context_type in [Type::ENCRYPTION_CAPABILITIES, Type::SIGNING_CAPABILITIES] {
        for data in [&[][..], &[1]] {
            let end = ask(&server, &[preauth, (context_type, data)]);
            assert_eq!(end, refused, "{context_type} {data:?}");
        }
    }
}

/// Channels, persistent opens and directory leases are announced to clients that announce them.
#[test]
fn capabilities_are_not_announced_to_clients_without_them() {
    let server = HoldfastServer::new();
    let offered = Capabilities::MULTI_CHANNEL
        | Capabilities::PERSISTENT_HANDLES
        | Capabilities::DIRECTORY_LEASING
        | Capabilities::NOTIFICATIONS;
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1] {
        let mut options = Options::dialect(dialect);
        options.capabilities = Capabilities::LARGE_MTU;
        let got = server.client(options).negotiated().capabilities;
        assert!(!got.intersects(offered), "{dialect} {got}");
        assert!(got.contains(Capabilities::LARGE_MTU), "{dialect} {got}");
    }
}

/// [MS-SMB2] 2.2.3: where an older dialect is chosen, the fields of the contexts are reserved.
#[test]
fn older_dialects_have_no_contexts() {
    let server = HoldfastServer::new();
    let none = NegotiateContextList::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2] {
        let request = Request::new(&NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LARGE_MTU,
            client_guid: Guid([7; 16]),
            dialects: vec![dialect],
            context_offset: 0,
            contexts: none.contexts(),
        });
        // NegotiateContextOffset, NegotiateContextCount and Reserved2.
        let request = request.mutate(|m| m[92..100].fill(0xff));
        let answer = outcome(server.connection(Options::default()).call(request));
        assert_eq!(answer, Outcome::Answered(Status::SUCCESS), "{dialect}");
    }
}

/// [MS-SMB2] 2.2.3.1.1, 3.3.5.2.6: HashAlgorithmCount numbers and SaltLength bytes follow.
#[test]
fn a_hash_context_has_what_it_counts() {
    let server = HoldfastServer::new();
    let (done, refused) = (Status::SUCCESS, Status::INVALID_PARAMETER);
    for (data, expected) in [
        (&[1, 0, 0, 0, 1, 0][..], done),
        (&[2, 0, 1, 0, 7, 0, 1, 0, 9], done),
        (&[2, 0, 0, 0, 1, 0], refused),
        (&[1, 0, 5, 0, 1, 0, 9, 9, 9, 9], refused),
        (&[1, 0, 0xff, 0xff, 1, 0], refused),
        (&[0xff, 0xff, 0, 0, 1, 0], refused),
    ] {
        let answer = ask(&server, &[(Type::PREAUTH_INTEGRITY_CAPABILITIES, data)]);
        assert_eq!(answer, Outcome::Answered(expected), "{data:x?}");
    }
}
