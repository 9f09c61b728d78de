//! TREE_CONNECT ([MS-SMB2] 3.3.5.7).

use smb_client::{Encryption, Options, Request, Signing};
use smb_tests::{DATA, HoldfastServer, Outcome, READ_ONLY, SEALED, SECOND, outcome, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::{SessionId, TreeId};
use smb_wire::msg::{Dialect, ShareFlags, ShareType, TreeConnectFlags, TreeConnectRequest};

#[test]
fn a_share_returns_its_properties() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let tree = session.tree(DATA).unwrap();
    assert_ne!(tree.id(), TreeId(0));
    let info = tree.info();
    assert_eq!(info.share_type, ShareType::DISK);
    assert!(
        info.maximal_access.contains(
            AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA | AccessMask::DELETE
        )
    );
    assert!(!info.share_flags.contains(ShareFlags::ENCRYPT_DATA));
}

#[test]
fn each_connect_is_a_tree_of_its_own() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let first = session.tree(DATA).unwrap();
    let again = session.tree(DATA).unwrap();
    let second = session.tree(SECOND).unwrap();
    assert!(first.id() != again.id() && again.id() != second.id());
    second.write_file("f", b"second").unwrap();
    assert_eq!(status(first.read_file("f")), Status::OBJECT_NAME_NOT_FOUND);
    first.disconnect().unwrap();
    again.write_file("f", b"again").unwrap();
    assert_eq!(second.read_file("f").unwrap(), b"second");
}

#[test]
fn share_names_ignore_case_and_the_host_name_is_ignored() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    for path in [
        r"\\127.0.0.1\DATA",
        r"\\127.0.0.1\Data",
        r"\\localhost\data",
        r"\\some-alias\data",
    ] {
        session.tree_at(path).unwrap();
    }
}

#[test]
fn ipc_is_a_pipe_share() {
    let server = HoldfastServer::new();
    let tree = server.session(Options::default()).tree("IPC$").unwrap();
    assert_eq!(tree.info().share_type, ShareType::PIPE);
}

#[test]
fn unknown_shares_are_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    for share in ["nowhere", "data ", "dat", "..", "data\\sub", "*", "C$"] {
        let path = format!("\\\\127.0.0.1\\{share}");
        let refused = status(session.tree_at(&path));
        assert!(
            [
                Status::BAD_NETWORK_NAME,
                Status::INVALID_PARAMETER,
                Status::OBJECT_NAME_INVALID
            ]
            .contains(&refused),
            "{share:?}: {refused}"
        );
    }
    let long = "x".repeat(300);
    let refused = status(session.tree_at(&format!("\\\\h\\{long}")));
    assert!(
        [Status::BAD_NETWORK_NAME, Status::INVALID_PARAMETER].contains(&refused),
        "{refused}"
    );
}

fn connect(path: &[u8]) -> Request {
    Request::new(&TreeConnectRequest {
        flags: TreeConnectFlags::empty(),
        path,
    })
}

#[test]
fn malformed_paths_are_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let wide = smb_wire::utf16::encode;
    for path in [
        wide(""),
        wide("\\"),
        wide("\\\\"),
        wide("\\\\host"),
        wide("\\\\host\\"),
        b"\\\\127.0.0.1\\data!".to_vec(),
        vec![0xd8; 7],
    ] {
        let reply = session
            .client()
            .call(connect(&path).session(session.id()))
            .unwrap();
        let refused = reply.status();
        assert!(
            [
                Status::INVALID_PARAMETER,
                Status::BAD_NETWORK_NAME,
                Status::ILLEGAL_CHARACTER,
            ]
            .contains(&refused),
            "{path:x?}: {refused}"
        );
    }
}

/// [MS-SMB2] 3.3.5.7, 2.2.9: the server's name is not empty, and shorter than 256 characters.
#[test]
fn a_path_without_a_server_is_malformed() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    session
        .tree_at(&format!(r"\\{}\data", "h".repeat(255)))
        .unwrap();
    for name in [String::new(), "h".repeat(256)] {
        for share in ["data", "IPC$", "nowhere"] {
            let refused = status(session.tree_at(&format!(r"\\{name}\{share}")));
            assert_eq!(refused, Status::INVALID_PARAMETER, "{share}");
        }
    }
}

#[test]
fn a_tree_connect_needs_a_session() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let path = smb_wire::utf16::encode(r"\\127.0.0.1\data");
    for id in [SessionId(0), SessionId(4711)] {
        let reply = client.call(connect(&path).session(id));
        assert_eq!(
            outcome(reply),
            Outcome::Answered(Status::USER_SESSION_DELETED),
            "{id:?}"
        );
    }
}

#[test]
fn on_3_1_1_an_unsigned_one_ends_the_connection() {
    // The negotiation would remain unverified.
    let server = HoldfastServer::lenient();
    let session = server.session(Options::default().signing(Signing::IfRequired));
    let unsigned = session
        .tree_connect(r"\\127.0.0.1\data")
        .overriding(|o| o.sign = Some(false));
    assert_eq!(outcome(session.client().call(unsigned)), Outcome::Closed);
    server.assert_serving();
}

#[test]
fn a_read_only_share_reports_its_maximal_access() {
    let server = HoldfastServer::new();
    let tree = server.session(Options::default()).tree(READ_ONLY).unwrap();
    let access = tree.info().maximal_access;
    assert!(access.contains(AccessMask::FILE_READ_DATA));
    assert!(
        !access.intersects(AccessMask::FILE_WRITE_DATA | AccessMask::DELETE),
        "{access}"
    );
    let refused = status(tree.write_file("f", b"x"));
    assert!(
        [Status::ACCESS_DENIED, Status::MEDIA_WRITE_PROTECTED].contains(&refused),
        "{refused}"
    );
}

#[test]
fn an_encrypted_share_needs_a_client_that_can_encrypt() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
        let tree = server
            .session(Options::dialect(dialect))
            .tree(SEALED)
            .unwrap();
        assert!(tree.info().share_flags.contains(ShareFlags::ENCRYPT_DATA));
        tree.write_file("secret", b"sealed").unwrap();
    }
    for options in [
        Options::dialect(Dialect::SMB_2_1),
        Options::dialect(Dialect::SMB_3_0).encryption(Encryption::Never),
        Options::dialect(Dialect::SMB_3_1_1).encryption(Encryption::Never),
    ] {
        let dialect = options.dialects[0];
        let session = server.session(options);
        assert_eq!(
            status(session.tree_at(r"\\127.0.0.1\sealed")),
            Status::ACCESS_DENIED,
            "{dialect}"
        );
    }
}

/// [MS-SMB2] 2.2.9, 2.2.9.1: the path is where PathOffset says, behind an extension if there is one. The other flags
/// concern shares of clusters.
#[test]
fn the_flags_of_a_tree_connect_leave_the_path_where_it_is() {
    let server = HoldfastServer::new();
    let session = server.session(Options::dialect(Dialect::SMB_3_1_1));
    let path = smb_wire::utf16::encode(r"\\127.0.0.1\data");
    let with = |flags| {
        let request = Request::new(&TreeConnectRequest {
            flags: TreeConnectFlags(flags),
            path: &path,
        });
        request.session(session.id())
    };
    let ask = |request| session.client().call(request).unwrap().status();
    for flags in [1, 2, 3] {
        assert_eq!(ask(with(flags)), Status::SUCCESS, "{flags}");
    }
    let extended = with(4).mutate(|m| {
        m.truncate(72);
        // TreeConnectContextOffset, TreeConnectContextCount and Reserved, then PathName.
        m.extend_from_slice(&[0; 16]);
        m.extend_from_slice(&path);
        m[68..70].copy_from_slice(&88_u16.to_le_bytes());
    });
    assert_eq!(ask(extended), Status::SUCCESS);
}
