//! NEGOTIATE ([MS-SMB2] 3.3.5.3, 3.3.5.4).

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::BytesMut;
use smb_client::{Client, Connection, Encryption, MultiProtocol, Options, Reply, Request};
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_tests::{HoldfastServer, Outcome, SOON, outcome, status};
use smb_wire::Status;
use smb_wire::header::{HeaderFlags, TRANSPORT_HEADER_SIZE, transport_header, transport_length};
use smb_wire::ids::{Guid, MessageId};
use smb_wire::msg::{
    CancelRequest, Capabilities, Dialect, EchoRequest, NegotiateRequest, NegotiateResponse,
    SecurityMode,
};
use smb_wire::negotiate_context::{
    EncryptionCapabilities, HashAlgorithm, NegotiateContextList, NegotiateContextType,
    PreauthIntegrityCapabilities, SigningCapabilities,
};
use smb_wire::smb1::{DIALECT_SMB_2_002, DIALECT_SMB_2_WILDCARD, Smb1NegotiateRequest};

fn request(dialects: &[Dialect], contexts: &NegotiateContextList) -> Request {
    Request::new(&NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::ENCRYPTION | Capabilities::LARGE_MTU,
        client_guid: Guid([7; 16]),
        dialects: dialects.to_vec(),
        context_offset: 0,
        contexts: contexts.contexts(),
    })
}

fn preauth(list: &mut NegotiateContextList, algorithms: &[u16]) {
    let context = PreauthIntegrityCapabilities {
        hash_algorithms: algorithms.iter().map(|a| HashAlgorithm(*a)).collect(),
        salt: &[9; 32],
    };
    list.push_with(PreauthIntegrityCapabilities::TYPE, |out| {
        context.encode(out)
    });
}

fn ciphers(list: &mut NegotiateContextList, ids: &[u16]) {
    let context = EncryptionCapabilities {
        ciphers: ids
            .iter()
            .map(|c| smb_wire::negotiate_context::CipherId(*c))
            .collect(),
    };
    list.push_with(EncryptionCapabilities::TYPE, |out| context.encode(out));
}

fn signings(list: &mut NegotiateContextList, ids: &[u16]) {
    let context = SigningCapabilities {
        algorithms: ids
            .iter()
            .map(|a| smb_wire::negotiate_context::SigningAlgorithmId(*a))
            .collect(),
    };
    list.push_with(SigningCapabilities::TYPE, |out| context.encode(out));
}

fn with_preauth() -> NegotiateContextList {
    let mut list = NegotiateContextList::new();
    preauth(&mut list, &[1]);
    list
}

fn fresh(server: &HoldfastServer) -> Connection {
    server.connection(Options::default())
}

fn ask(server: &HoldfastServer, request: Request) -> Outcome {
    outcome(fresh(server).call(request))
}

fn answer(server: &HoldfastServer, request: Request) -> Reply {
    fresh(server).call(request).unwrap().ok().unwrap()
}

#[test]
fn each_dialect_can_be_negotiated_alone() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect));
        assert_eq!(client.negotiated().dialect, dialect);
    }
}

#[test]
fn the_newest_common_dialect_is_chosen_in_any_order() {
    let server = HoldfastServer::new();
    let none = NegotiateContextList::new();
    for (offered, chosen) in [
        (vec![Dialect(0x0210), Dialect(0x0202)], Dialect::SMB_2_1),
        (
            vec![Dialect(0x0302), Dialect(0x0300), Dialect(0x0210)],
            Dialect::SMB_3_0_2,
        ),
        (vec![Dialect(0x0400), Dialect(0x0300)], Dialect::SMB_3_0),
    ] {
        let reply = answer(&server, request(&offered, &none));
        let response = NegotiateResponse::read(&reply.message).unwrap();
        assert_eq!(response.dialect, chosen, "{offered:?}");
    }
    let reply = answer(&server, request(&Dialect::ALL, &with_preauth()));
    let response = NegotiateResponse::read(&reply.message).unwrap();
    assert_eq!(response.dialect, Dialect::SMB_3_1_1);
}

#[test]
fn no_dialect_and_no_common_dialect_are_refused() {
    let server = HoldfastServer::new();
    let none = NegotiateContextList::new();
    let refused = |dialects: &[Dialect]| ask(&server, request(dialects, &none));
    assert_eq!(refused(&[]), Outcome::Answered(Status::INVALID_PARAMETER));
    assert_eq!(
        refused(&[Dialect(0x0203), Dialect(0x0400)]),
        Outcome::Answered(Status::NOT_SUPPORTED)
    );
    // The multi-protocol value is not a dialect of SMB2 NEGOTIATE.
    assert_eq!(
        refused(&[Dialect::WILDCARD]),
        Outcome::Answered(Status::NOT_SUPPORTED)
    );
}

#[test]
fn a_list_of_more_dialects_than_windows_reads_is_refused() {
    // [MS-SMB2] note 8
    let server = HoldfastServer::new();
    let none = NegotiateContextList::new();
    let mut dialects = vec![Dialect(0x0400); 63];
    dialects.push(Dialect::SMB_2_1);
    let reply = answer(&server, request(&dialects, &none));
    let response = NegotiateResponse::read(&reply.message).unwrap();
    assert_eq!(response.dialect, Dialect::SMB_2_1);
    dialects.push(Dialect::SMB_2_1);
    assert_eq!(
        ask(&server, request(&dialects, &none)),
        Outcome::Answered(Status::INVALID_PARAMETER)
    );
}

#[test]
fn a_signed_negotiate_is_refused() {
    // [MS-SMB2] 3.3.5.2.4
    let server = HoldfastServer::new();
    let signed =
        request(&[Dialect::SMB_2_1], &NegotiateContextList::new()).flag(HeaderFlags::SIGNED);
    assert_eq!(
        ask(&server, signed),
        Outcome::Answered(Status::INVALID_PARAMETER)
    );
}

#[test]
fn a_second_negotiate_ends_the_connection() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let mut connection = client.connection();
    let again = connection.core_mut().negotiate_request();
    assert_eq!(outcome(connection.call(again)), Outcome::Closed);
}

#[test]
fn anything_before_negotiate_ends_the_connection() {
    let server = HoldfastServer::new();
    assert_eq!(ask(&server, Request::new(&EchoRequest)), Outcome::Closed);
    // A CANCEL gets no answer, but it is a request (3.3.5.2.2).
    let mut connection = fresh(&server);
    connection.send(Request::new(&CancelRequest)).unwrap();
    assert!(connection.closed_by_server(SOON).unwrap());
    server.assert_serving();
}

#[test]
fn exactly_one_preauth_context_with_sha_512_is_required() {
    let server = HoldfastServer::new();
    let status =
        |contexts: &NegotiateContextList| ask(&server, request(&[Dialect::SMB_3_1_1], contexts));
    let mut none = NegotiateContextList::new();
    signings(&mut none, &[1]);
    assert_eq!(status(&none), Outcome::Answered(Status::INVALID_PARAMETER));
    let mut two = with_preauth();
    preauth(&mut two, &[1]);
    assert_eq!(status(&two), Outcome::Answered(Status::INVALID_PARAMETER));
    let mut other = NegotiateContextList::new();
    preauth(&mut other, &[2, 3]);
    assert_eq!(
        status(&other),
        Outcome::Answered(Status::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP)
    );
    let mut empty = NegotiateContextList::new();
    preauth(&mut empty, &[]);
    assert_eq!(status(&empty), Outcome::Answered(Status::INVALID_PARAMETER));
    assert_eq!(
        status(&NegotiateContextList::new()),
        Outcome::Answered(Status::INVALID_PARAMETER)
    );
}

#[test]
fn duplicate_and_truncated_contexts_are_refused() {
    let server = HoldfastServer::new();
    let status = |add: &dyn Fn(&mut NegotiateContextList)| {
        let mut list = with_preauth();
        add(&mut list);
        ask(&server, request(&[Dialect::SMB_3_1_1], &list))
    };
    let refused = Outcome::Answered(Status::INVALID_PARAMETER);
    assert_eq!(status(&|list| signings(list, &[])), refused, "no signing");
    assert_eq!(status(&|list| ciphers(list, &[])), refused, "no cipher");
    let twice = status(&|list| {
        ciphers(list, &[1]);
        ciphers(list, &[2]);
    });
    assert_eq!(twice, refused, "two encryption contexts");
    let twice = status(&|list| {
        signings(list, &[1]);
        signings(list, &[2]);
    });
    assert_eq!(twice, refused, "two signing contexts");
    let short = status(&|list| {
        list.push_with(NegotiateContextType::ENCRYPTION_CAPABILITIES, |out| {
            out.extend_from_slice(&[9, 0, 1, 0]);
        });
    });
    assert_eq!(short, refused, "counts more than it holds");
}

fn contexts_of(reply: &Reply) -> Vec<(NegotiateContextType, Vec<u8>)> {
    let response = NegotiateResponse::read(&reply.message).unwrap();
    response
        .contexts
        .iter()
        .map(|context| context.unwrap())
        .map(|context| (context.context_type, context.data.to_vec()))
        .collect()
}

#[test]
fn contexts_are_answered_only_if_requested() {
    let server = HoldfastServer::new();
    let reply = answer(&server, request(&[Dialect::SMB_3_1_1], &with_preauth()));
    let contexts = contexts_of(&reply);
    let [(kind, data)] = &contexts[..] else {
        panic!("{contexts:?}");
    };
    assert_eq!(*kind, PreauthIntegrityCapabilities::TYPE);
    let preauth = PreauthIntegrityCapabilities::read(data).unwrap();
    assert_eq!(preauth.hash_algorithms, [HashAlgorithm::SHA_512]);
    assert!(!preauth.salt.is_empty());

    let mut list = NegotiateContextList::new();
    list.push_with(NegotiateContextType(0x4321), |out| {
        out.extend_from_slice(b"what");
    });
    signings(&mut list, &[2, 1]);
    ciphers(&mut list, &[4]);
    preauth_last(&mut list);
    let reply = answer(&server, request(&[Dialect::SMB_3_1_1], &list));
    let contexts = contexts_of(&reply);
    let data = |wanted| {
        let mut found = contexts.iter().filter(|(kind, _)| *kind == wanted);
        let data = found.next().unwrap_or_else(|| panic!("no {wanted}"));
        assert!(found.next().is_none());
        &data.1
    };
    let cipher = EncryptionCapabilities::read(data(EncryptionCapabilities::TYPE)).unwrap();
    assert_eq!(cipher.ciphers, [smb_wire::negotiate_context::CipherId(4)]);
    let signing = SigningCapabilities::read(data(SigningCapabilities::TYPE)).unwrap();
    assert_eq!(signing.algorithms.len(), 1);
    assert!([1, 2].contains(&signing.algorithms[0].0));
    assert_eq!(contexts.len(), 3, "{contexts:?}");
}

fn preauth_last(list: &mut NegotiateContextList) {
    preauth(list, &[7, 1]);
}

#[test]
fn without_an_overlap_cipher_is_none_and_signing_is_cmac() {
    let server = HoldfastServer::new();
    let mut list = with_preauth();
    ciphers(&mut list, &[0x77]);
    signings(&mut list, &[0x77]);
    let reply = answer(&server, request(&[Dialect::SMB_3_1_1], &list));
    let contexts = contexts_of(&reply);
    let data = |wanted| {
        let found = contexts.iter().find(|(kind, _)| *kind == wanted);
        &found.unwrap_or_else(|| panic!("no {wanted}")).1
    };
    let cipher = EncryptionCapabilities::read(data(EncryptionCapabilities::TYPE)).unwrap();
    assert_eq!(
        cipher.ciphers,
        [smb_wire::negotiate_context::CipherId::NONE]
    );
    let signing = SigningCapabilities::read(data(SigningCapabilities::TYPE)).unwrap();
    assert_eq!(
        signing.algorithms,
        [smb_wire::negotiate_context::SigningAlgorithmId::AES_CMAC]
    );
}

#[test]
fn an_unknown_compression_is_not_accepted() {
    let server = HoldfastServer::new();
    let mut list = with_preauth();
    // One algorithm, no flags ([MS-SMB2] 2.2.3.1.3).
    let compression = [1, 0, 0, 0, 0, 0, 0, 0, 0x77, 0];
    let kind = NegotiateContextType::COMPRESSION_CAPABILITIES;
    list.push_with(kind, |out| out.extend_from_slice(&compression));
    let reply = answer(&server, request(&[Dialect::SMB_3_1_1], &list));
    // The server supports no compression, so the response has no such context.
    let kinds: Vec<_> = contexts_of(&reply).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [PreauthIntegrityCapabilities::TYPE]);
}

#[test]
fn every_cipher_and_signing_algorithm_can_be_negotiated() {
    let server = HoldfastServer::new();
    for cipher in [
        Cipher::Aes128Ccm,
        Cipher::Aes128Gcm,
        Cipher::Aes256Ccm,
        Cipher::Aes256Gcm,
    ] {
        let client = server.client(Options::default().cipher(cipher));
        assert_eq!(client.negotiated().cipher, Some(cipher));
    }
    for algorithm in [
        SigningAlgorithm::HmacSha256,
        SigningAlgorithm::AesCmac,
        SigningAlgorithm::AesGmac,
    ] {
        let client = server.client(Options::default().signing_algorithm(algorithm));
        assert_eq!(client.negotiated().signing_algorithm, algorithm);
    }
}

#[test]
fn smb1_negotiates_lead_to_smb2() {
    let server = HoldfastServer::new();
    for (multi_protocol, dialect) in [
        (MultiProtocol::Wildcard, Dialect::SMB_3_1_1),
        (MultiProtocol::Smb2002, Dialect::SMB_2_0_2),
    ] {
        let client = Client::connect(
            server.addr(),
            Options {
                multi_protocol,
                ..Options::default()
            },
        )
        .unwrap();
        assert_eq!(client.negotiated().dialect, dialect);
        client
            .login(smb_tests::USER, smb_tests::PASSWORD, "")
            .unwrap();
    }
}

/// [MS-SMB2] 3.3.5.3.1, 3.3.5.3.2.
#[test]
fn the_answer_to_an_smb1_negotiate_has_the_capabilities_of_its_dialect() {
    let server = HoldfastServer::new();
    let of_2_1 = Capabilities::LARGE_MTU | Capabilities::LEASING;
    for (offered, dialect, capabilities) in [
        (DIALECT_SMB_2_WILDCARD, Dialect::WILDCARD, of_2_1),
        (DIALECT_SMB_2_002, Dialect::SMB_2_0_2, Capabilities::empty()),
    ] {
        let mut message = BytesMut::new();
        Smb1NegotiateRequest::encode(&mut message, &[offered]);
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
            .write_all(&transport_header(message.len()).unwrap())
            .unwrap();
        stream.write_all(&message).unwrap();
        let mut header = [0; TRANSPORT_HEADER_SIZE];
        stream.read_exact(&mut header).unwrap();
        let (_, length) = transport_length(header);
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        let answer = NegotiateResponse::read(&answer).unwrap();
        assert_eq!(answer.dialect, dialect);
        assert_eq!(answer.capabilities & of_2_1, capabilities, "{dialect}");
    }
}

/// [MS-SMB2] 3.3.5.2.2, 3.3.5.3, 3.3.5.3.2: anything else ends the connection.
#[test]
fn an_smb1_negotiate_offers_smb2_and_comes_first() {
    let server = HoldfastServer::new();
    let smb1 = |dialects: &[&[u8]]| {
        let mut message = BytesMut::new();
        Smb1NegotiateRequest::encode(&mut message, dialects);
        message
    };
    let wildcard = smb1(&[DIALECT_SMB_2_WILDCARD]);
    let mut another = wildcard.clone();
    another[4] = 0x73;
    for messages in [
        vec![smb1(&[])],
        vec![smb1(&[&b"NT LM 0.12"[..], b"SMB 2.00"])],
        vec![another],
        vec![wildcard.clone(), wildcard.clone()],
        vec![smb1(&[DIALECT_SMB_2_002]), wildcard.clone()],
    ] {
        let mut connection = fresh(&server);
        for message in &messages {
            connection.send_message(message).unwrap();
        }
        assert!(connection.closed_by_server(SOON).unwrap(), "{messages:x?}");
    }
    let client = server.client(Options::default());
    client.connection().send_message(&wildcard).unwrap();
    assert!(client.connection().closed_by_server(SOON).unwrap());
    // A dialect is still to be chosen.
    let mut connection = fresh(&server);
    connection.send_message(&wildcard).unwrap();
    let echo = Request::new(&EchoRequest).overriding(|o| o.message_id = Some(MessageId(1)));
    assert_eq!(outcome(connection.call(echo)), Outcome::Closed);
}

#[test]
fn the_capabilities_of_the_response_depend_on_the_dialect() {
    let server = HoldfastServer::new();
    let first = server.client(Options::default()).negotiated().server_guid;
    assert_ne!(first, Guid::default());
    for dialect in Dialect::ALL {
        let client = server.client(Options::dialect(dialect));
        let said = client.negotiated();
        assert_eq!(said.server_guid, first);
        assert!(said.security_mode.contains(SecurityMode::SIGNING_ENABLED));
        let smallest = 65_536;
        assert!(said.max_read_size >= smallest && said.max_write_size >= smallest);
        assert!(said.max_transact_size >= smallest);
        if dialect == Dialect::SMB_2_0_2 {
            assert!(!said.capabilities.intersects(
                Capabilities::LEASING | Capabilities::LARGE_MTU | Capabilities::MULTI_CHANNEL
            ));
            assert_eq!(said.max_read_size, smallest);
        } else {
            assert!(said.capabilities.contains(Capabilities::LARGE_MTU));
        }
        // [MS-SMB2] 3.3.5.4: the bit belongs to 3.0 and 3.0.2; 3.1.1 uses the context instead.
        let encryption = said.capabilities.contains(Capabilities::ENCRYPTION);
        let expected = [Dialect::SMB_3_0, Dialect::SMB_3_0_2].contains(&dialect);
        assert_eq!(encryption, expected, "{dialect}");
    }
}

#[test]
fn the_encryption_capability_is_hidden_from_clients_without_it() {
    let server = HoldfastServer::new();
    let options = Options::dialect(Dialect::SMB_3_0).encryption(Encryption::Never);
    let client = server.client(options);
    let capabilities = client.negotiated().capabilities;
    assert!(!capabilities.contains(Capabilities::ENCRYPTION));
}

#[test]
fn a_context_offset_elsewhere_is_refused() {
    let server = HoldfastServer::new();
    for offset in [0u32, 1, 0x40, 0x64, 0xffff, 0xffff_ffff] {
        let spoilt = request(&[Dialect::SMB_3_1_1], &with_preauth())
            .mutate(|message| message[64 + 28..64 + 32].copy_from_slice(&offset.to_le_bytes()));
        assert_ne!(
            ask(&server, spoilt),
            Outcome::Answered(Status::SUCCESS),
            "{offset:#x}"
        );
    }
    assert_eq!(status(fresh(&server).negotiate()), Status::SUCCESS);
}
