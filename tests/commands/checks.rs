//! Checks and requests that more than one command needs alike.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{DATA, HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;
use smb_wire::fscc::{FileBasicInformation, FileInformationClass};
use smb_wire::ids::FileId;
use smb_wire::msg::{Channel, Dialect, InfoType, OplockLevel};

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

/// A SET_INFO that hides the file.
pub(crate) fn hide(file: &File) -> Request {
    let mut buffer = BytesMut::new();
    FileBasicInformation {
        file_attributes: FileAttributes::HIDDEN,
        ..FileBasicInformation::default()
    }
    .encode(&mut buffer);
    file.set_info_request(InfoType::FILE, FileInformationClass::BASIC.0, 0, &buffer)
}

/// Each oplock that a file opened alone can have is granted; `with` is called while it is held.
pub(crate) fn grants_each_oplock(tree: &Tree, with: impl Fn(&File, OplockLevel)) {
    for level in [OplockLevel::BATCH, OplockLevel::EXCLUSIVE, OplockLevel::II] {
        let file = tree
            .create(&CreateArgs::open_if("f").oplock(level))
            .unwrap();
        assert_eq!(file.created().oplock_level, level);
        with(&file, level);
        file.close().unwrap();
    }
}

/// Two opens of a new file of 100 bytes.
pub(crate) fn opened_twice(tree: &Tree) -> [File; 2] {
    tree.write_file("f", &[1; 100]).unwrap();
    [(); 2].map(|()| tree.create(&CreateArgs::open("f")).unwrap())
}
