//! The Finder of macOS: the probes of a mount, the metadata beside a file, and its special names.

use smb_client::{CreateArgs, Request};
use smb_tests::{HoldfastServer, Options, status};
use smb_wire::Status;
use smb_wire::create_context::{AppleBitmap, AppleClientCapabilities, AppleRequest, name};
use smb_wire::fsctl::{FsctlCode, RequestResumeKeyResponse};
use smb_wire::ids::FileId;
use smb_wire::msg::{IoctlFlags, IoctlRequest, IoctlResponse};

use crate::requests::{names, related_close, statuses, streams};

#[test]
fn the_mount_probes_apples_extensions_and_server_side_copies() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let mut apple = bytes::BytesMut::new();
    AppleRequest::ServerQuery {
        bitmap: AppleBitmap(7),
        client_capabilities: AppleClientCapabilities(7),
    }
    .encode(&mut apple);
    let args = CreateArgs::directory("").context(name::APPLE, &apple);
    tree.create(&args).unwrap().close().unwrap();
    // The client uses server-side copies only if this request succeeds.
    let key = Request::new(&IoctlRequest {
        ctl_code: FsctlCode::SRV_REQUEST_RESUME_KEY.0,
        file_id: FileId::ANY,
        input: &[],
        max_input_response: 0,
        output: &[],
        max_output_response: 32,
        flags: IoctlFlags::IS_FSCTL,
    });
    let replies = tree.client().compound(vec![
        tree.address(CreateArgs::directory("").request()),
        tree.address(key).related(),
        related_close(&tree),
    ]);
    let replies = replies.unwrap();
    assert_eq!(statuses(&replies), [Status::SUCCESS; 3]);
    let key = IoctlResponse::read(&replies[1].message).unwrap();
    RequestResumeKeyResponse::read(key.output).unwrap();
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
