//! Corrupted structures inside requests: create contexts, information, FSCTL inputs, descriptors,
//! attributes, tokens, remote procedure calls.

use bytes::BytesMut;
use fastrand::Rng;
use smb_client::{CreateArgs, Options, Request};
use smb_tests::{HoldfastServer, USER, rpc};
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::name;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{FileInformationClass, FileRenameInformation};
use smb_wire::fsctl::FsctlCode;
use smb_wire::ids::SessionId;
use smb_wire::msg::{InfoType, SessionSetupResponse, WriteFlags};

use crate::random::{bytes, spoil};
use crate::requests::{Attacker, End, Precious, end};

/// Sends `count` requests that `make` builds from one seed each.
fn many(
    server: &HoldfastServer,
    count: u64,
    what: &str,
    make: impl Fn(&Attacker, &mut Rng) -> Request,
) {
    let precious = Precious::new(server);
    let mut attacker = Attacker::new(server, Options::default());
    for seed in 1..=count {
        let mut random = Rng::with_seed(seed);
        let request = make(&attacker, &mut random);
        let what = format!("{what}, seed {seed}");
        let ended = end(&attacker, request, &what);
        precious.check(&what);
        // Handles and pending locks accumulate, so the attacker is replaced from time to time.
        if ended == End::Closed || ended == End::Pending || seed % 200 == 0 {
            attacker = Attacker::new(server, Options::default());
        }
    }
    server.assert_serving();
}

/// Every create context with data of the right length.
fn contexts() -> Vec<(&'static [u8], Vec<u8>)> {
    let mut ea = vec![0, 0, 0, 0, 0, 3, 5, 0];
    ea.extend_from_slice(b"abc\0value");
    vec![
        (name::EXTENDED_ATTRIBUTES, ea),
        (name::SECURITY_DESCRIPTOR, descriptor()),
        (name::DURABLE_HANDLE_REQUEST, vec![0; 16]),
        (name::DURABLE_HANDLE_RECONNECT, vec![0; 16]),
        (name::DURABLE_HANDLE_REQUEST_V2, vec![0; 32]),
        (name::DURABLE_HANDLE_RECONNECT_V2, vec![0; 36]),
        (name::QUERY_MAXIMAL_ACCESS, vec![0; 8]),
        (name::QUERY_ON_DISK_ID, Vec::new()),
        (name::ALLOCATION_SIZE, vec![0; 8]),
        (name::TIMEWARP_TOKEN, vec![0; 8]),
        (name::REQUEST_LEASE, vec![7; 32]),
        (name::REQUEST_LEASE, vec![7; 52]),
        (name::APPLE, vec![1; 24]),
        (name::POSIX, vec![0; 4]),
        (name::APP_INSTANCE_ID, vec![20; 20]),
        (name::APP_INSTANCE_VERSION, vec![24; 24]),
        (name::SVHDX_OPEN_DEVICE, vec![0; 40]),
    ]
}

/// A security descriptor: owner, group and a list of one entry.
fn descriptor() -> Vec<u8> {
    let mut out = vec![1, 0, 0x04, 0x80];
    for offset in [20u32, 32, 0, 44] {
        out.extend_from_slice(&offset.to_le_bytes());
    }
    for last in [0u32, 0] {
        out.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 1]);
        out.extend_from_slice(&last.to_le_bytes());
    }
    // An ACL of 28 bytes with one ACCESS_ALLOWED entry for Everyone.
    out.extend_from_slice(&[2, 0, 28, 0, 1, 0, 0, 0, 0, 0, 20, 0, 0xff, 0x01, 0x1f, 0]);
    out.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    out
}

#[test]
fn create_contexts() {
    let server = HoldfastServer::new();
    let all = contexts();
    many(&server, 1500, "create contexts", |attacker, random| {
        let mut args = CreateArgs::open_if("playground");
        for _ in 0..=random.usize(..3) {
            let (name, data) = &all[random.usize(..all.len())];
            args = args.context(name, &spoil(random, data));
        }
        // Sometimes the chain itself is corrupted too.
        let request = attacker.tree.address(args.request());
        if random.usize(..2) == 0 {
            return request;
        }
        request.mutate(|message| {
            let start = 64 + 56;
            let at = start + random.usize(..message.len() - start);
            message[at] = random.u8(..);
        })
    });
}

#[test]
fn names() {
    let server = HoldfastServer::new();
    many(&server, 800, "names", |attacker, random| {
        const PARTS: [&str; 12] = [
            "..",
            ".",
            "\\",
            "/",
            ":",
            "$DATA",
            "playground",
            "\u{0}",
            "*",
            "?",
            "\u{feff}",
            "a",
        ];
        let mut args = CreateArgs::open("").access(AccessMask::FILE_READ_ATTRIBUTES);
        let text: String = (0..random.usize(..8))
            .map(|_| PARTS[random.usize(..PARTS.len())])
            .collect();
        args.name = smb_wire::utf16::encode(&text);
        if random.usize(..4) == 0 {
            args.name = spoil(random, &args.name.clone());
        }
        attacker.tree.address(args.request())
    });
}

#[test]
fn information_to_be_set() {
    let server = HoldfastServer::new();
    let mut rename = BytesMut::new();
    FileRenameInformation {
        replace_if_exists: true,
        root_directory: 0,
        file_name: "playground".into(),
    }
    .encode(&mut rename);
    many(&server, 2000, "SET_INFO", |attacker, random| {
        let class = match random.usize(..3) {
            0 => FileInformationClass(random.u8(..)),
            _ => FileInformationClass::KNOWN[random.usize(..FileInformationClass::KNOWN.len())],
        };
        let names = [
            FileInformationClass::RENAME,
            FileInformationClass::RENAME_EX,
            FileInformationClass::LINK_EX,
            FileInformationClass::LINK,
        ];
        let len = random.usize(..120);
        let buffer = if names.contains(&class) {
            spoil(random, &rename)
        } else if class == FileInformationClass::ALLOCATION {
            // Larger than any file, so that the disk is not filled.
            (1u64 << (60 + random.usize(..4))).to_le_bytes().to_vec()
        } else {
            bytes(random, len)
        };
        let request = attacker
            .file
            .set_info_request(InfoType::FILE, class.0, 0, &buffer);
        attacker.tree.address(request)
    });
}

#[test]
fn security_descriptors() {
    let server = HoldfastServer::new();
    let good = descriptor();
    many(&server, 800, "security", |attacker, random| {
        let parts = [
            SecurityInformation::DACL,
            SecurityInformation::OWNER | SecurityInformation::GROUP,
            SecurityInformation::SACL,
            SecurityInformation(u32::MAX),
        ];
        let part = parts[random.usize(..parts.len())].bits();
        let buffer = spoil(random, &good);
        let request = attacker
            .file
            .set_info_request(InfoType::SECURITY, 0, part, &buffer);
        attacker.tree.address(request)
    });
}

#[test]
fn queries_with_input() {
    let server = HoldfastServer::new();
    many(&server, 1000, "QUERY_INFO", |attacker, random| {
        let kind = [
            InfoType::FILE,
            InfoType::FILESYSTEM,
            InfoType::SECURITY,
            InfoType::QUOTA,
        ][random.usize(..4)];
        let class = random.u8(..) % 90;
        let len = random.usize(..60);
        let max = [0, 1, 8, 24, 100, 65_536][random.usize(..6)];
        let mut request = smb_wire::msg::QueryInfoRequest {
            info_type: kind,
            info_class: class,
            output_buffer_length: max,
            additional_information: 7,
            flags: smb_wire::msg::QueryInfoFlags(0),
            file_id: attacker.file.id(),
            input: &[],
        };
        let input = bytes(random, len);
        request.input = &input;
        attacker.tree.address(Request::new(&request))
    });
}

#[test]
fn fsctl_inputs() {
    let server = HoldfastServer::new();
    many(&server, 2500, "IOCTL", |attacker, random| {
        let code = match random.usize(..8) {
            0 => FsctlCode(random.u32(..)),
            _ => FsctlCode::KNOWN[random.usize(..FsctlCode::KNOWN.len())],
        };
        let len = random.usize(..130);
        let mut input = bytes(random, len);
        // Small numbers pass more checks than large ones.
        if random.usize(..2) == 0 {
            for chunk in input.chunks_mut(8) {
                if let Some(rest) = chunk.get_mut(2..) {
                    rest.fill(0);
                }
            }
        }
        let file = if random.usize(..4) == 0 {
            &attacker.root
        } else {
            &attacker.file
        };
        let max = [0, 1, 12, 32, 4096, 65_536][random.usize(..6)];
        attacker.tree.address(file.ioctl_request(code, &input, max))
    });
}

#[test]
fn patterns() {
    let server = HoldfastServer::new();
    for i in 0..50 {
        std::fs::write(server.path(&format!("aaaaaaaaaaaaaaaaaaaaaaaa{i}")), b"").unwrap();
    }
    many(&server, 600, "patterns", |attacker, random| {
        const PARTS: [&str; 9] = ["*", "?", "<", ">", "\"", "a", ".", "\\", "*a"];
        let count = if random.usize(..10) == 0 { 120 } else { 10 };
        let text: String = (0..random.usize(..count))
            .map(|_| PARTS[random.usize(..PARTS.len())])
            .collect();
        let request = Request::query_directory(
            attacker.root.id(),
            FileInformationClass::KNOWN[random.usize(..FileInformationClass::KNOWN.len())],
            &text,
            smb_wire::msg::QueryDirectoryFlags(random.u8(..)),
            [0, 1, 12, 100, 65_536][random.usize(..5)],
        );
        attacker.tree.address(request)
    });
}

#[test]
fn tokens() {
    use smb_client::ClientError;
    let server = HoldfastServer::new();
    let setup = |token: &[u8], id| Request::session_setup(token).session(id);
    // A bare NTLMSSP NEGOTIATE, which starts an exchange, and an AUTHENTICATE that cannot succeed.
    let mut first = b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2".to_vec();
    first.extend_from_slice(&[0; 24]);
    let mut last = b"NTLMSSP\0\x03\0\0\0".to_vec();
    for (len, offset) in [
        (24u16, 88u32),
        (60, 112),
        (0, 88),
        (10, 172),
        (0, 88),
        (16, 182),
    ] {
        last.extend_from_slice(&len.to_le_bytes());
        last.extend_from_slice(&len.to_le_bytes());
        last.extend_from_slice(&offset.to_le_bytes());
    }
    last.extend_from_slice(&[0x15, 0x82, 0x88, 0xe2]);
    last.resize(172, 1);
    last.extend(smb_wire::utf16::encode(USER));
    last.resize(198, 2);
    let mut client = server.client(Options::default());
    for seed in 1..=400 {
        let mut random = Rng::with_seed(seed);
        let begun = client.call(setup(&spoil(&mut random, &first), SessionId(0)));
        let id = match &begun {
            Ok(reply) => reply.header.session_id,
            Err(ClientError::Disconnected) => {
                client = server.client(Options::default());
                continue;
            }
            Err(other) => panic!("seed {seed}: {other}"),
        };
        if let Ok(reply) = &begun
            && reply.status() == smb_wire::Status::MORE_PROCESSING_REQUIRED
        {
            SessionSetupResponse::read(&reply.message).unwrap();
        }
        match client.call(setup(&spoil(&mut random, &last), id)) {
            Ok(reply) => assert!(!reply.status().is_success(), "seed {seed} logged in"),
            Err(ClientError::Disconnected) => client = server.client(Options::default()),
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    server.assert_serving();
}

#[test]
fn remote_procedure_calls() {
    let server = HoldfastServer::new();
    let bind = rpc::bind();
    let mut call = vec![5, 0, 0, 3, 0x10, 0, 0, 0, 64, 0, 0, 0, 2, 0, 0, 0];
    call.extend_from_slice(&[40, 0, 0, 0, 0, 0, 15, 0]);
    call.resize(64, 0);
    let session = server.session(Options::default());
    for pipe in ["srvsvc", "wkssvc", "lsarpc", "samr", "nothing-of-the-kind"] {
        for seed in 1..=60 {
            let mut random = Rng::with_seed(seed);
            let tree = session.tree("IPC$").unwrap();
            let access = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
            let Ok(pipe) = tree.create(&CreateArgs::open(pipe).access(access)) else {
                break;
            };
            for good in [&bind, &call, &call] {
                let bytes = if random.usize(..3) == 0 {
                    good.clone()
                } else {
                    spoil(&mut random, good)
                };
                let request = if random.usize(..2) == 0 {
                    pipe.write_request(0, &bytes, WriteFlags::empty())
                } else {
                    pipe.ioctl_request(FsctlCode::PIPE_TRANSCEIVE, &bytes, 4096)
                };
                let id = tree.send(request).unwrap();
                // Half a call remains pending until its other half arrives.
                if session.client().wait_pending(id).unwrap().is_none() {
                    session.client().wait(id).unwrap();
                }
            }
            // Pending requests end when the pipe is closed.
            let _ = pipe.close();
            tree.disconnect().unwrap();
        }
    }
    server.assert_serving();
}
