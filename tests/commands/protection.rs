//! Signing and encryption ([MS-SMB2] 3.3.5.2.1, 3.3.5.2.4, 3.3.5.2.9, 3.3.5.2.11).

use smb_client::{Break, CreateArgs, Encryption, Options, Overrides, Request, Signing, Tree};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_tests::{DATA, HoldfastServer, Outcome, PASSWORD, SEALED, SOON, USER, extents, outcome};
use smb_wire::Status;
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::{FileId, SessionId};
use smb_wire::msg::{
    Capabilities, Dialect, EchoRequest, OplockLevel, SecurityMode, SessionSetupFlags,
    SessionSetupRequest, WriteFlags,
};

#[test]
fn signed_requests_get_signed_replies() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect).signing(Signing::Required));
        let reply = tree.reply(CreateArgs::open_if("f").request()).unwrap();
        assert!(reply.signed, "{dialect}");
        let reply = tree.reply(CreateArgs::open("missing").request()).unwrap();
        assert!(reply.signed, "{dialect}, an error");
    }
}

#[test]
fn every_algorithm_signs() {
    let server = HoldfastServer::new();
    for algorithm in [
        SigningAlgorithm::HmacSha256,
        SigningAlgorithm::AesCmac,
        SigningAlgorithm::AesGmac,
    ] {
        let options = Options::default()
            .signing(Signing::Required)
            .signing_algorithm(algorithm);
        let tree = server.tree_with(options);
        tree.write_file("f", &[1; 100_000]).unwrap();
        assert_eq!(tree.read_file("f").unwrap(), [1; 100_000]);
    }
}

#[test]
fn a_wrong_signature_is_refused_without_effect() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect).signing(Signing::Required));
        let forged = CreateArgs::create("forged")
            .request()
            .overriding(|o| o.corrupt_signature = true);
        match outcome(tree.reply(forged)) {
            Outcome::Answered(status) => assert_eq!(status, Status::ACCESS_DENIED, "{dialect}"),
            Outcome::Closed => {}
        }
        assert!(!server.path("forged").exists());
    }
    server.assert_serving();
}

#[test]
fn unsigned_requests_are_refused_where_signing_is_required() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect).signing(Signing::Required));
        let bare = CreateArgs::create("bare")
            .request()
            .overriding(|o| o.sign = Some(false));
        match outcome(tree.reply(bare)) {
            Outcome::Answered(status) => assert_eq!(status, Status::ACCESS_DENIED, "{dialect}"),
            Outcome::Closed => {}
        }
        assert!(!server.path("bare").exists());
    }
}

/// [MS-SMB2] 3.3.4.1.1: clients drop an answer without a signature to a request that has one.
#[test]
fn the_refusal_of_a_related_first_element_is_signed() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect).signing(Signing::Required));
        let related = |request: Request| tree.address(request).related();
        let create = CreateArgs::open_if("f").request();
        let write = Request::write(FileId::ANY, 0, b"x", WriteFlags::empty());
        let replies = (tree.client()).compound(vec![related(create), related(write)]);
        for reply in replies.unwrap() {
            let answer = (reply.status(), reply.signed);
            assert_eq!(answer, (Status::INVALID_PARAMETER, true), "{dialect}");
        }
    }
}

/// [MS-SMB2] 3.3.5.2.4, 3.3.5.2.7.2: no element of a compound is covered by the signature of another.
#[test]
fn each_element_of_a_compound_is_signed() {
    let server = HoldfastServer::new();
    let spoils: [fn(&mut Overrides); 2] =
        [|o| o.corrupt_signature = true, |o| o.sign = Some(false)];
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect).signing(Signing::Required));
        for spoil in spoils {
            let write = Request::write(FileId::ANY, 0, b"forged", WriteFlags::empty());
            let replies = tree.client().compound(vec![
                tree.address(CreateArgs::open_if("f").request()),
                tree.address(write).related().overriding(spoil),
            ]);
            let answers: Vec<_> = replies
                .unwrap()
                .iter()
                .map(|reply| (reply.status(), reply.signed))
                .collect();
            let expected = [(Status::SUCCESS, true), (Status::ACCESS_DENIED, true)];
            assert_eq!(answers, expected, "{dialect}");
            assert_eq!(std::fs::read(server.path("f")).unwrap(), b"");
        }
    }
}

#[test]
fn if_signing_is_only_desired_the_client_decides() {
    let server = HoldfastServer::lenient();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect).signing(Signing::Never));
        let reply = tree.reply(CreateArgs::open_if("f").request()).unwrap();
        assert_eq!(reply.status(), Status::SUCCESS);
        assert!(!reply.signed);
        // A signed request is still verified, and answered signed.
        let signed = CreateArgs::open("f")
            .request()
            .overriding(|o| o.sign = Some(true));
        assert!(tree.reply(signed).unwrap().signed, "{dialect}");
        let forged = CreateArgs::create("forged").request().overriding(|o| {
            o.sign = Some(true);
            o.corrupt_signature = true;
        });
        match outcome(tree.reply(forged)) {
            Outcome::Answered(status) => assert_eq!(status, Status::ACCESS_DENIED),
            Outcome::Closed => {}
        }
        assert!(!server.path("forged").exists());
    }
}

#[test]
fn a_client_that_requires_signing_gets_it() {
    // [MS-SMB2] 3.3.5.5.3: the security mode of the request makes signing required for the session.
    let server = HoldfastServer::lenient();
    let tree = server.tree_with(Options::default().signing(Signing::Required));
    let bare = CreateArgs::create("bare")
        .request()
        .overriding(|o| o.sign = Some(false));
    match outcome(tree.reply(bare)) {
        Outcome::Answered(status) => assert_eq!(status, Status::ACCESS_DENIED),
        Outcome::Closed => {}
    }
    assert!(!server.path("bare").exists());
}

#[test]
fn a_signed_request_of_no_session_is_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let setup = SessionSetupRequest {
        flags: SessionSetupFlags::empty(),
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        previous_session_id: SessionId(0),
        security_buffer: b"no token",
    };
    for request in [
        Request::new(&EchoRequest).session(SessionId(0x55)),
        Request::new(&EchoRequest),
        Request::new(&setup),
    ] {
        let signed = request.flag(smb_wire::HeaderFlags::SIGNED);
        assert_eq!(
            outcome(session.client().call(signed)),
            Outcome::Answered(Status::USER_SESSION_DELETED)
        );
    }
}

/// [MS-SMB2] 3.3.5.2.4 looks the session of an unsigned request up among those of all connections.
#[test]
fn an_unsigned_request_names_a_session_of_another_connection() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default().signing(Signing::Required));
    let stranger = server.client(Options::default());
    let ask = || outcome(stranger.call(Request::new(&EchoRequest).session(session.id())));
    assert_eq!(ask(), Outcome::Answered(Status::ACCESS_DENIED));
    session.logoff().unwrap();
    assert_eq!(ask(), Outcome::Answered(Status::USER_SESSION_DELETED));
}

fn everywhere() -> Vec<Options> {
    let mut all: Vec<Options> = [
        Cipher::Aes128Ccm,
        Cipher::Aes128Gcm,
        Cipher::Aes256Ccm,
        Cipher::Aes256Gcm,
    ]
    .into_iter()
    .map(|cipher| Options::default().cipher(cipher))
    .collect();
    all.push(Options::dialect(Dialect::SMB_3_0));
    all.push(Options::dialect(Dialect::SMB_3_0_2));
    all
}

#[test]
fn encrypted_requests_get_encrypted_replies() {
    let server = HoldfastServer::new();
    for options in everywhere() {
        let tree = server.tree_with(options.encryption(Encryption::Always));
        tree.write_file("f", &[2; 100_000]).unwrap();
        assert_eq!(tree.read_file("f").unwrap(), [2; 100_000]);
        let reply = tree.reply(CreateArgs::open("missing").request()).unwrap();
        assert!(reply.encrypted);
        let replies = tree
            .client()
            .compound(vec![
                tree.address(CreateArgs::open("f").request()),
                tree.address(CreateArgs::open("missing").request()),
            ])
            .unwrap();
        assert!(replies.iter().all(|reply| reply.encrypted));
    }
}

#[test]
fn an_encrypted_share_refuses_unencrypted_requests() {
    let server = HoldfastServer::new();
    for options in [Options::default(), Options::dialect(Dialect::SMB_3_0)] {
        let tree = server.session(options).tree(SEALED).unwrap();
        let file = tree.create(&CreateArgs::open_if("secret")).unwrap();
        file.write_all(0, b"secret").unwrap();
        let clear = file
            .read_request(0, 6, 0)
            .overriding(|o| o.encrypt = Some(false));
        match outcome(tree.reply(clear)) {
            Outcome::Answered(status) => assert_eq!(status, Status::ACCESS_DENIED),
            Outcome::Closed => {}
        }
    }
}

/// [MS-SMB2] 3.3.4.1.4: what had to come encrypted is refused in an encrypted message.
#[test]
fn the_refusal_of_an_unencrypted_request_is_encrypted() {
    let strict = HoldfastServer::start(&smb_tests::Options {
        server: "encryption = \"required\"".into(),
        ..smb_tests::Options::default()
    });
    let server = HoldfastServer::new();
    let clear = |tree: &Tree, sign| {
        let request = tree.address(CreateArgs::open_if("f").request());
        request.overriding(|o| (o.encrypt, o.sign) = (Some(false), Some(sign)))
    };
    let refused = (Status::ACCESS_DENIED, true);
    for options in [Options::default(), Options::dialect(Dialect::SMB_3_0)] {
        let by_session = strict.tree_with(options.clone());
        let by_share = server.session(options).tree(SEALED).unwrap();
        for tree in [&by_session, &by_share] {
            for sign in [true, false] {
                let reply = tree.client().call(clear(tree, sign)).unwrap();
                assert_eq!((reply.status(), reply.encrypted), refused, "{sign}");
            }
            let requests = vec![clear(tree, true), clear(tree, true).related()];
            for reply in tree.client().compound(requests).unwrap() {
                assert!(reply.encrypted, "{}", reply.status());
            }
            tree.write_file("f", b"x").unwrap();
        }
        // The answers of other elements of the message stay as their requests came.
        let session = by_share.session();
        let plain = session.tree(DATA).unwrap();
        let requests = [&plain, &by_share, &plain].map(|tree| clear(tree, true));
        let replies = session.client().compound(requests.into()).unwrap();
        let answers: Vec<_> = replies
            .iter()
            .map(|reply| (reply.status(), reply.encrypted))
            .collect();
        let done = (Status::SUCCESS, false);
        assert_eq!(answers, [done, refused, done]);
    }
}

/// The server copies the data itself, but its copy could be read without encryption.
#[test]
fn an_encrypted_share_is_not_copied_to_an_unencrypted_one() {
    let server = HoldfastServer::new();
    let copies = |options: Options, into: &str| {
        let session = server.session(options);
        let (sealed, plain) = (session.tree(SEALED).unwrap(), session.tree(into).unwrap());
        sealed.write_file("secret", b"secret").unwrap();
        let source = sealed.create(&CreateArgs::open("secret")).unwrap();
        let target = plain.create(&CreateArgs::open_if("copy")).unwrap();
        let chunks = source.copy_chunks(&[(0, 0, 6)]).unwrap();
        let extents = extents(source.id(), 6);
        let ask = |code, input: &[u8]| {
            // It is refused even if this request is encrypted.
            let request = target.ioctl_request(code, input, 12);
            let sealed = request.overriding(|o| o.encrypt = Some(true));
            plain.reply(plain.address(sealed)).unwrap().status()
        };
        let answers = [
            ask(FsctlCode::SRV_COPYCHUNK, &chunks),
            ask(FsctlCode::SRV_COPYCHUNK_WRITE, &chunks),
            ask(FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &extents),
        ];
        let copied = std::fs::read(server.share_path(into, "copy")).unwrap();
        (answers, copied)
    };
    let (refused, copied) = copies(Options::default(), DATA);
    assert_eq!(refused, [Status::ACCESS_DENIED; 3]);
    assert_eq!(copied, b"");
    // Copies within the share still work; the file system decides whether extents can be shared.
    let ([one, other, extents], copied) = copies(Options::default(), SEALED);
    assert_eq!((one, other), (Status::SUCCESS, Status::SUCCESS));
    assert_ne!(extents, Status::ACCESS_DENIED);
    assert_eq!(copied, b"secret");
}

/// [MS-FSA] 2.1.5.10.4.
#[test]
fn the_size_of_a_source_of_extents_is_checked_before_its_share() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (from, to) = (session.tree(DATA).unwrap(), session.tree(SEALED).unwrap());
    from.write_file("source", &[1; 6]).unwrap();
    let source = from.create(&CreateArgs::open("source")).unwrap();
    let target = to.create(&CreateArgs::open_if("target")).unwrap();
    let ask = |byte_count: i64| {
        let input = extents(source.id(), byte_count);
        let request = target.ioctl_request(FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &input, 0);
        to.reply(to.address(request)).unwrap().status()
    };
    assert_eq!(ask(1 << 30), Status::NOT_SUPPORTED);
    assert_eq!(ask(6), Status::INVALID_PARAMETER);
}

/// [MS-SMB2] 3.3.4.1.4, 3.3.4.6.
#[test]
fn oplock_breaks_of_encrypted_sessions_and_shares_are_encrypted() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "encryption = \"required\"".into(),
        ..smb_tests::Options::default()
    });
    // Each on a file of its own: the opens of a connection that has gone may still be there for a moment.
    let files = std::cell::Cell::new(0);
    let encrypted = |server: &HoldfastServer, options: Options, share: &str, level| {
        let name = format!("held-{}", files.replace(files.get() + 1));
        let (holder, other) = (server.session(options.clone()), server.session(options));
        let (holder, other) = (holder.tree(share).unwrap(), other.tree(share).unwrap());
        let args = CreateArgs::open_if(&name).oplock(level);
        let file = holder.create(&args).unwrap();
        let id = other.send(CreateArgs::open(&name).request()).unwrap();
        let broken = holder.client().connection().next_break_as_sent(SOON);
        let (broken, encrypted) = broken.unwrap().expect("no break came");
        assert!(matches!(broken, Break::Oplock { file_id, .. } if file_id == file.id()));
        file.acknowledge_oplock(OplockLevel::II).unwrap();
        other.client().wait(id).unwrap().ok().unwrap();
        encrypted
    };
    for level in [OplockLevel::BATCH, OplockLevel::EXCLUSIVE] {
        for options in everywhere() {
            // Every session of this server is encrypted.
            assert!(encrypted(&server, options, DATA, level));
        }
    }
    let server = HoldfastServer::new();
    for options in everywhere() {
        assert!(encrypted(
            &server,
            options.clone(),
            SEALED,
            OplockLevel::BATCH
        ));
        assert!(!encrypted(&server, options, DATA, OplockLevel::BATCH));
    }
}

/// [MS-SMB2] 3.3.5.5: the first request of a login is refused, so that the client does not prove its password in vain.
#[test]
fn no_login_begins_where_encryption_is_required_and_impossible() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "encryption = \"required\"".into(),
        ..smb_tests::Options::default()
    });
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect).encryption(Encryption::Never));
        let first = Request::session_setup(
            b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        let refused = outcome(client.call(first));
        assert_eq!(
            refused,
            Outcome::Answered(Status::ACCESS_DENIED),
            "{dialect}"
        );
    }
}

#[test]
fn a_wrong_tag_ends_the_connection() {
    let server = HoldfastServer::new();
    for options in everywhere() {
        let tree = server.tree_with(options.encryption(Encryption::Always));
        let forged = CreateArgs::create("forged")
            .request()
            .overriding(|o| o.corrupt_signature = true);
        assert_eq!(outcome(tree.reply(forged)), Outcome::Closed);
        assert!(!server.path("forged").exists());
    }
    server.assert_serving();
}

#[test]
fn an_encrypted_message_of_no_session_ends_the_connection() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::default().encryption(Encryption::Always));
    let request = CreateArgs::open_if("f")
        .request()
        .overriding(|o| o.transform_session_id = Some(SessionId(0x66)));
    assert_eq!(outcome(tree.reply(request)), Outcome::Closed);
}

#[test]
fn keys_of_another_session_are_refused() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default().encryption(Encryption::Always));
    let first = client.login(USER, PASSWORD, "").unwrap();
    let second = client.login(USER, PASSWORD, "").unwrap();
    let tree = first.tree(DATA).unwrap();
    // The message is encrypted with the keys of the first session, and names the second.
    let request = tree
        .address(CreateArgs::create("mixed").request())
        .overriding(|o| o.transform_session_id = Some(second.id()));
    assert_eq!(outcome(client.call(request)), Outcome::Closed);
    assert!(!server.path("mixed").exists());
}
