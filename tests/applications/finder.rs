//! The Finder of macOS: the probes of a mount, the metadata beside a file, and its special names.

use bytes::BytesMut;
use smb_client::{CreateArgs, Request, Tree};
use smb_tests::{HoldfastServer, Options, status};
use smb_wire::Status;
use smb_wire::create_context::{
    AppleBitmap, AppleClientCapabilities, AppleRequest, AppleResponse, AppleServerCapabilities,
    AppleVolumeCapabilities, name,
};
use smb_wire::fsctl::{FsctlCode, RequestResumeKeyResponse};
use smb_wire::ids::FileId;
use smb_wire::msg::{ChangeNotifyFlags, ChangeNotifyRequest, IoctlResponse, NotifyFilter};
use smb_wire::utf16;

use crate::requests::{names, related_close, statuses, streams};

/// The query as Apple's "Time Machine over SMB Specification" prints it: all three parts, and a
/// client that can do all that was defined then.
const PUBLISHED_QUERY: [u8; 24] = [
    1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0, 0,
];
/// The answer that the same text prints for a server that is no Mac: no model, no capability of the
/// server, full sync as the only one of the volume.
const PUBLISHED_ANSWER: [u8; 32] = [
    1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
];

/// An open of the share's root with this AAPL context.
fn root_with(query: &[u8]) -> CreateArgs {
    CreateArgs::directory("").context(name::APPLE, query)
}

/// The answer to this AAPL context on the share's root.
#[track_caller]
fn answer_to(tree: &Tree, query: &[u8]) -> Vec<u8> {
    let root = tree.create(&root_with(query)).unwrap();
    let answer = root.created().context(name::APPLE).expect("an answer");
    let answer = answer.to_vec();
    root.close().unwrap();
    answer
}

fn query(bitmap: u64) -> Vec<u8> {
    let mut query = BytesMut::new();
    AppleRequest::ServerQuery {
        bitmap: AppleBitmap(bitmap),
        client_capabilities: AppleClientCapabilities(0x3f),
    }
    .encode(&mut query);
    query.to_vec()
}

/// Whether the client goes on to send F_FULLFSYNC: macOS fails the call itself otherwise.
#[track_caller]
fn full_sync_announced(tree: &Tree) -> bool {
    let answer = answer_to(tree, &PUBLISHED_QUERY);
    let answer = AppleResponse::read(&answer).unwrap();
    let volume = answer.volume_capabilities.expect("volume capabilities");
    // Names are the same in either case, and no path is found by a file's number.
    let known = AppleVolumeCapabilities::SUPPORTS_FULL_SYNC;
    assert!(volume.without(known).is_empty(), "{volume:?}");
    volume.contains(known)
}

#[test]
fn the_mount_probes_apples_extensions_and_server_side_copies() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let answer = answer_to(&tree, &PUBLISHED_QUERY);
    let answer = AppleResponse::read(&answer).unwrap();
    // Nothing that is not done: with READ_DIR_ATTR, listings would be read in another form; with
    // UNIX_BASED, the client would rely on symbolic links and on the right to execute.
    let none = AppleServerCapabilities::empty();
    assert_eq!(answer.server_capabilities, Some(none));
    let full_sync = AppleVolumeCapabilities::SUPPORTS_FULL_SYNC;
    assert_eq!(answer.volume_capabilities, Some(full_sync));
    let model = utf16::decode(answer.model.unwrap(), "model");
    assert_eq!(model.unwrap(), "Holdfast");
    // Whether this one succeeds decides whether the client ever asks the server to copy.
    let key = Request::ioctl(FileId::ANY, FsctlCode::SRV_REQUEST_RESUME_KEY, &[], 32);
    let replies = tree.client().compound(vec![
        tree.address(CreateArgs::directory("").request()),
        tree.address(key).related(),
        related_close(&tree),
    ]);
    let replies = replies.unwrap();
    assert_eq!(statuses(&replies), [Status::SUCCESS; 3]);
    let key = IoctlResponse::read(&replies[1].message).unwrap();
    RequestResumeKeyResponse::read(key.output).unwrap();
    // A server that answers is asked for messages of its own, by a handle that nobody has. The
    // client goes on without, as long as the connection is there.
    let messages = Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags::empty(),
        output_buffer_length: 1024,
        file_id: FileId::ANY,
        completion_filter: NotifyFilter::FILE_NAME,
    });
    assert_eq!(status(tree.call(messages)), Status::FILE_CLOSED);
    assert_eq!(names(&tree, ""), [""; 0]);
}

#[test]
fn the_published_exchange_is_answered_to_the_byte() {
    let server = HoldfastServer::start(&Options {
        server: "apple_model = \"\"\n".into(),
        ..Options::default()
    });
    let tree = server.tree();
    assert_eq!(answer_to(&tree, &PUBLISHED_QUERY), PUBLISHED_ANSWER);
    // Again on each connection and each open: a client that finds no answer after a lost
    // connection gives the mount up.
    assert_eq!(
        answer_to(&server.tree(), &PUBLISHED_QUERY),
        PUBLISHED_ANSWER
    );
    // Only what is asked for, and nothing for bits that nobody knows.
    assert_eq!(
        answer_to(&tree, &query(2)),
        [&[1, 0, 0, 0, 0, 0, 0, 0, 2][..], &[0; 7], &[4], &[0; 7]].concat()
    );
    let nothing = [&[1][..], &[0; 15]].concat();
    assert_eq!(answer_to(&tree, &query(0)), nothing);
    assert_eq!(answer_to(&tree, &query(!7)), nothing);
    // Only who asks is answered.
    let plain = tree.create(&CreateArgs::directory("")).unwrap();
    assert_eq!(plain.created().context(name::APPLE), None);
    // A file by its number is not announced, and what is unknown is left alone.
    for command in [0, 2, 3, u32::MAX] {
        let mut asks = PUBLISHED_QUERY;
        asks[..4].copy_from_slice(&command.to_le_bytes());
        let root = tree.create(&root_with(&asks)).unwrap();
        assert_eq!(root.created().context(name::APPLE), None, "{command}");
    }
    // A query of another length is none. Samba refuses it, too.
    for length in [0, 1, 4, 8, 16, 23, 25, 4096] {
        let mut asks = PUBLISHED_QUERY.to_vec();
        asks.resize(length, 0);
        let refused = status(tree.create(&root_with(&asks)));
        assert_eq!(refused, Status::INVALID_PARAMETER, "{length}");
    }
    assert_eq!(answer_to(&tree, &PUBLISHED_QUERY), PUBLISHED_ANSWER);
}

/// Full sync is announced where a FLUSH that asks for it is stable before its answer, through
/// whatever handle of the share.
#[test]
fn full_sync_is_announced_where_it_is_honored() {
    const LAZY: &str = "durability = \"treat-host-as-stable-storage\"\naccept_loss = true\n";
    const BOUNDED: &str = "durability = \"bounded:60s,1GiB\"\n";
    const IGNORED: &str = "ignore_full_sync = true\n";
    const LAZY_RULE: &str =
        "[[share.durability_rule]]\npaths = [\"*.tmp\"]\ndurability = \"bounded:60s,1GiB\"\n";
    let honored = [
        String::new(),
        IGNORED.into(),
        "durability = \"strict-sync\"\n".into(),
        format!("durability = \"strict-sync\"\n{IGNORED}"),
        BOUNDED.into(),
        LAZY.into(),
        LAZY_RULE.into(),
    ];
    let ignored = [
        format!("{BOUNDED}{IGNORED}"),
        format!("{LAZY}{IGNORED}"),
        format!("{IGNORED}{LAZY_RULE}"),
    ];
    let cases = honored.iter().map(|keys| (keys, true));
    for (keys, expected) in cases.chain(ignored.iter().map(|keys| (keys, false))) {
        let server = HoldfastServer::start(&Options {
            share: keys.clone(),
            ..Options::default()
        });
        let tree = server.tree();
        assert_eq!(full_sync_announced(&tree), expected, "{keys}");
        let file = tree.create(&CreateArgs::create("backup.tmp")).unwrap();
        file.write_all(0, &[7; 4096]).unwrap();
        file.flush(true).unwrap();
        let status = server.status();
        let exposed = status["server"]["shares"][0]["exposed_bytes"].as_u64();
        assert_eq!(exposed.unwrap() == 0, expected, "{keys}: {exposed:?}");
    }
}

#[test]
fn metadata_and_names_of_macos_are_preserved() {
    // Resource forks are longer than an extended attribute of ext4 can be.
    let server = HoldfastServer::start(&Options {
        share: "streams = \"depot\"\n".into(),
        ..Options::default()
    });
    let tree = server.tree();
    // A colon, a question mark and a final dot, in the client's mapping.
    let photo = "9\u{f022}41 Cafe\u{301} wo\u{f025} etc\u{f029}";
    for file in [".DS_Store", "._old", photo] {
        let opened = tree.create(&CreateArgs::create(file)).unwrap();
        opened.write_all(0, b"data").unwrap();
        // F_FULLFSYNC.
        opened.flush(true).unwrap();
        opened.close().unwrap();
    }
    let info = format!("{photo}:AFP_AfpInfo");
    assert_eq!(status(tree.read_file(&info)), Status::OBJECT_NAME_NOT_FOUND);
    tree.write_file(&info, &[7; 60]).unwrap();
    tree.write_file(&format!("{photo}:AFP_Resource"), &[8; 5000])
        .unwrap();
    tree.rename(photo, "Photo", false).unwrap();
    let expected = [
        ("::$DATA", 4),
        (":AFP_AfpInfo:$DATA", 60),
        (":AFP_Resource:$DATA", 5000),
    ];
    assert_eq!(
        streams(&tree, "Photo"),
        expected.map(|(n, s)| (n.to_owned(), s))
    );
    assert_eq!(tree.read_file("Photo:AFP_AfpInfo").unwrap(), [7; 60]);
    tree.rename("Photo", photo, false).unwrap();
    assert_eq!(names(&tree, ""), [".DS_Store", "._old", photo]);
}
