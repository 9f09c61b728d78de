//! Checks that hold for more than one command alike.

use smb_client::{CreateArgs, File, Options, Request};
use smb_tests::{DATA, HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{Channel, Dialect};

/// A request needs FILE_WRITE_DATA or FILE_APPEND_DATA; the file has ten bytes.
pub(crate) fn needs_a_write_right(request: impl Fn(&File) -> Status) {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"0123456789").unwrap();
    let base = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    for (access, expected) in [
        (AccessMask::FILE_READ_DATA, Status::ACCESS_DENIED),
        (AccessMask::FILE_WRITE_ATTRIBUTES, Status::ACCESS_DENIED),
        (AccessMask::FILE_WRITE_DATA, Status::SUCCESS),
        (AccessMask::FILE_APPEND_DATA, Status::SUCCESS),
    ] {
        let file = tree
            .create(&CreateArgs::open("f").access(base | access))
            .unwrap();
        assert_eq!(request(&file), expected, "{access}");
        file.close().unwrap();
    }
}

/// A channel of RDMA is refused on a connection without RDMA; dialects that have no channels ignore
/// the field. The request names a channel and how many bytes remain.
pub(crate) fn refuses_channels_of_rdma(request: impl Fn(FileId, Channel, u32) -> Request) {
    let server = HoldfastServer::new();
    let answer = |dialect, channel, remaining| {
        let session = server.session(Options::dialect(dialect));
        let tree = session.tree(DATA).unwrap();
        tree.write_file("f", b"x").unwrap();
        let file = tree.create(&CreateArgs::open("f")).unwrap();
        status(tree.call(request(file.id(), channel, remaining)))
    };
    for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
        for channel in [Channel::RDMA_V1, Channel::RDMA_V1_INVALIDATE, Channel(9)] {
            let refused = answer(dialect, channel, 1);
            assert_eq!(refused, Status::INVALID_PARAMETER, "{dialect} {channel}");
        }
    }
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
        let ignored = answer(dialect, Channel::RDMA_V1, 0);
        assert_eq!(ignored, Status::SUCCESS, "{dialect}");
    }
}
