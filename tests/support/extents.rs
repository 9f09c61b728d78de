//! The input of the control code that shares extents between two files.

use bytes::BytesMut;
use smb_wire::fsctl::DuplicateExtents;
use smb_wire::ids::FileId;

/// Asks for the first bytes of a source to be shared as the first bytes of a target ([MS-FSCC] 2.3.7.2).
#[must_use]
pub fn extents(source_file_id: FileId, byte_count: i64) -> BytesMut {
    let mut input = BytesMut::new();
    DuplicateExtents {
        source_file_id,
        source_file_offset: 0,
        target_file_offset: 0,
        byte_count,
    }
    .encode(&mut input);
    input
}
