//! The table of control codes: the effect of each and the access it needs.
//!
//! A code that changes something requires a right to change; a code that reads data requires the right to read. A
//! row that requires no right says why. A code that is not in the table gets [`UNKNOWN`].

use smb_wire::{access_mask::AccessMask, fsctl::FsctlCode, status::Status};

/// The effect of a code that works without a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    ValidateNegotiate,
    NetworkInterfaces,
    WaitForPipe,
    Refuse(Status),
}

/// The effect of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// [MS-SMB2] 3.3.5.15: FileId must be all ones.
    Alone(Alone),
    Transceive,
    Peek,
    ResumeKey,
    CopyChunk,
    DuplicateExtents {
        extended: bool,
    },
    SetSparse,
    ZeroData,
    AllocatedRanges,
    GetCompression,
    SetCompression,
    ObjectId,
    Snapshots,
    Resiliency,
    MarkHandle,
    /// Is refused with this status.
    Refuse(Status),
}

impl Does {
    /// The status for a handle of a kind that the code is not for. [MS-FSA] 2.1.5.10 checks the kind first, because an
    /// operation that the kind does not support does not depend on rights.
    pub(super) fn refusal(self, kind: Kind) -> Option<Status> {
        match (self, kind) {
            (Self::Transceive | Self::Peek, Kind::Stream | Kind::Directory) => {
                Some(Status::NOT_SUPPORTED)
            }
            (Self::SetSparse | Self::ZeroData | Self::AllocatedRanges, Kind::Directory) => {
                Some(Status::INVALID_PARAMETER)
            }
            (Self::DuplicateExtents { .. }, Kind::Directory) => Some(Status::NOT_SUPPORTED),
            // A copy that a pipe takes part in is refused with the limits of copies.
            (Self::Transceive | Self::Peek | Self::ResumeKey | Self::CopyChunk, Kind::Pipe)
            | (Self::Refuse(Status::NOT_SUPPORTED), _) => None,
            (_, Kind::Pipe) => Some(Status::INVALID_DEVICE_REQUEST),
            _ => None,
        }
    }
}

/// The kind of object that a handle is open on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, or a named stream of one.
    Stream,
    Directory,
    Pipe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) code: FsctlCode,
    /// The handle must have been granted one of these; if none is named, any handle will do.
    pub(super) access: AccessMask,
    pub(super) does: Does,
}

const NONE: AccessMask = AccessMask::empty();
const READ: AccessMask = AccessMask::FILE_READ_DATA;
const WRITE: AccessMask = AccessMask::FILE_WRITE_DATA;
const WRITE_OR_APPEND: AccessMask =
    AccessMask(AccessMask::FILE_WRITE_DATA.0 | AccessMask::FILE_APPEND_DATA.0);
/// [MS-FSA] 2.1.5.10.38 names FILE_WRITE_DATA and FILE_WRITE_ATTRIBUTES; Windows takes
/// FILE_APPEND_DATA as well.
const SPARSE: AccessMask = AccessMask(WRITE_OR_APPEND.0 | AccessMask::FILE_WRITE_ATTRIBUTES.0);

const FORBIDDEN: Does = Does::Refuse(Status::NOT_SUPPORTED);
/// A file that has no reparse point (docs/protocol-notes.md, "Control codes for what no file has").
const NO_REPARSE: Does = Does::Refuse(Status::NOT_A_REPARSE_POINT);
const UNSUPPORTED: Does = Does::Refuse(Status::INVALID_DEVICE_REQUEST);
const NO_DFS: Does = Does::Alone(Alone::Refuse(Status::FS_DRIVER_REQUIRED));

const fn row(code: FsctlCode, access: AccessMask, does: Does) -> Row {
    Row { code, access, does }
}

/// Rows of code, access and effect.
macro_rules! rows {
    ($($code:ident, $access:expr, $does:expr;)+) => {
        &[$(row(FsctlCode::$code, $access, $does)),+]
    };
}

const TABLE: &[Row] = rows! {
    // These need no handle. VALIDATE_NEGOTIATE_INFO is protected by the signature of its request.
    VALIDATE_NEGOTIATE_INFO, NONE, Does::Alone(Alone::ValidateNegotiate);
    PIPE_WAIT, NONE, Does::Alone(Alone::WaitForPipe);
    // [MS-SMB2] 3.3.5.15.2: this is no DFS server.
    DFS_GET_REFERRALS, NONE, NO_DFS;
    DFS_GET_REFERRALS_EX, NONE, NO_DFS;
    QUERY_NETWORK_INTERFACE_INFO, NONE, Does::Alone(Alone::NetworkInterfaces);
    // Pipes: the pipe itself checks the rights for both directions.
    PIPE_TRANSCEIVE, AccessMask(READ.0 | WRITE.0), Does::Transceive;
    PIPE_PEEK, READ, Does::Peek;
    // The key names the handle and grants nothing beyond its rights: copying checks them again.
    SRV_REQUEST_RESUME_KEY, NONE, Does::ResumeKey;
    // [MS-SMB2] 3.3.5.15.6 prescribes its own order of checks: access is checked by `copy.rs`, after the sizes, and
    // once more for the source.
    SRV_COPYCHUNK, NONE, Does::CopyChunk;
    SRV_COPYCHUNK_WRITE, NONE, Does::CopyChunk;
    DUPLICATE_EXTENTS_TO_FILE, WRITE, Does::DuplicateExtents { extended: false };
    DUPLICATE_EXTENTS_TO_FILE_EX, WRITE, Does::DuplicateExtents { extended: true };
    SET_SPARSE, SPARSE, Does::SetSparse;
    SET_ZERO_DATA, WRITE, Does::ZeroData;
    QUERY_ALLOCATED_RANGES, READ, Does::AllocatedRanges;
    // The answer is the same for every file.
    GET_COMPRESSION, NONE, Does::GetCompression;
    SET_COMPRESSION, WRITE, Does::SetCompression;
    // The id is made of the inode number, which the create context QFid returns as well.
    CREATE_OR_GET_OBJECT_ID, NONE, Does::ObjectId;
    GET_OBJECT_ID, NONE, Does::ObjectId;
    // There are no snapshots.
    SRV_ENUMERATE_SNAPSHOTS, NONE, Does::Snapshots;
    GET_REPARSE_POINT, NONE, NO_REPARSE;
    DELETE_REPARSE_POINT, AccessMask(WRITE.0 | AccessMask::FILE_WRITE_ATTRIBUTES.0), NO_REPARSE;
    // It is refused whatever it asks for.
    MARK_HANDLE, NONE, Does::MarkHandle;
    // Concerns the handle's own end only.
    LMR_REQUEST_RESILIENCY, NONE, Does::Resiliency;
    // [MS-SMB2] 3.3.5.15.7: a service that is not offered.
    SRV_READ_HASH, NONE, FORBIDDEN;
};

/// The codes that Windows passes to no file system ([MS-SMB2] 3.3.5.15.8, note 397), and FSCTL_OPLOCK_BREAK_ACK_NO_2:
/// oplocks are asked for by CREATE, and most others concern the volume, its journal or transactions.
const BLOCKED: &[u32] = &[
    0x9_0000, 0x9_0004, 0x9_0008, 0x9_000c, 0x9_0010, 0x9_0014, 0x9_003b, 0x9_0050, 0x9_0054,
    0x9_005c, 0x9_0068, 0x9_006f, 0x9_0074, 0x9_00b3, 0x9_00bb, 0x9_00e7, 0x9_00f4, 0x9_00f8,
    0x9_01f0, 0x9_01f4, 0x9_01f8, 0x9_0200, 0x9_0230, 0x9_0234, 0x9_0238, 0x9_023c, 0x9_0240,
    0x9_0248, 0x9_025c, 0x9_0284, 0x9_4148, 0x9_4160, 0x9_416c, 0x9_4170, 0x9_418c, 0x9_41e4,
    0x9_8144, 0x9_8150, 0x9_8154, 0x9_8158, 0x9_815c, 0x9_8164, 0x9_8168, 0x9_8178, 0x9_817c,
    0x11_0000,
];
/// The row of every code in [`BLOCKED`] ([MS-SMB2] 3.3.5.15, note 380).
const BLOCKED_ROW: &Row = &row(FsctlCode(0), NONE, FORBIDDEN);
/// [MS-SMB2] 3.3.5.15: the row of every other code. Clients do without those that are known, such as offloaded copies,
/// trimming and integrity.
const UNKNOWN: &Row = &row(FsctlCode(0), NONE, UNSUPPORTED);

pub(super) fn row_of(code: FsctlCode) -> &'static Row {
    let other = match BLOCKED.contains(&code.0) {
        true => BLOCKED_ROW,
        false => UNKNOWN,
    };
    TABLE.iter().find(|row| row.code == code).unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_row() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..at].iter().all(|other| other.code != row.code),
                "{}",
                row.code
            );
        }
        assert!(TABLE.iter().all(|row| !BLOCKED.contains(&row.code.0)));
        assert_eq!(row_of(FsctlCode(0x1234)), UNKNOWN);
    }

    /// The access bits inside a code ([MS-FSCC] 2.3) are the least access that its row requires, except where the
    /// handler checks access itself, as the rows say.
    #[test]
    fn codes_that_change_data_ask_for_the_right() {
        for row in TABLE {
            let changes = row.code.0 & 0x8000 != 0;
            let refused = matches!(row.does, Does::Refuse(_));
            if changes && !refused && row.does != Does::CopyChunk {
                assert!(row.access.intersects(WRITE), "{}", row.code);
            }
        }
        let sparse = row_of(FsctlCode::SET_SPARSE);
        assert!(!sparse.access.intersects(AccessMask::FILE_READ_DATA));
    }
}
