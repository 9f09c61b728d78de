//! Small structures of fixed fields, each with its section of the specification. Layout only.

use bytes::{BufMut, BytesMut};

use crate::codec::Malformed;
use crate::fscc::record::records;

enum_of_the_wire! {
    /// Compression of a file: input of SET_COMPRESSION, output of GET_COMPRESSION ([MS-FSCC] 2.3.18, 2.3.67).
    pub struct CompressionFormat(u16) {
        NONE = 0,
        /// In a set request: the file system chooses.
        DEFAULT = 1,
        LZNT1 = 2,
    }
}

impl CompressionFormat {
    /// Bytes on the wire.
    pub const MIN: usize = 2;

    /// Reads the format.
    ///
    /// # Errors
    /// [`Malformed`] for fewer than two bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = crate::codec::Reader::new(bytes, "COMPRESSION");
        reader.u16().map(Self)
    }

    /// Appends the format.
    pub fn encode(self, out: &mut BytesMut) {
        out.put_u16_le(self.0);
    }
}

records! {
    /// LMR_REQUEST_RESILIENCY ([MS-SMB2] 2.2.31.3).
    LmrRequestResiliency {
        /// Time in milliseconds for which the open is preserved after a lost connection.
        timeout_ms: u32, pad 4;
    }

    /// MARK_HANDLE_INFO ([MS-FSCC] 2.3.39).
    MarkHandleInfo {
        /// The copy of the data to read.
        copy_number: u32, pad 4;
        /// Unused.
        volume_handle: u64;
        /// The request: one of the constants.
        handle_info: u32, pad 4;
    }

    /// FILE_ZERO_DATA_INFORMATION ([MS-FSCC] 2.3.85): a range to fill with zeros.
    SetZeroData {
        /// First byte; negative is refused.
        file_offset: i64;
        /// First byte after the range; negative or below the offset is refused.
        beyond_final_zero: i64;
    }

    /// SRV_SNAPSHOT_ARRAY without the names of snapshots, which no share has ([MS-SMB2] 2.2.32.2).
    SnapshotArray {
        /// Total number of snapshots.
        number_of_snapshots: u32;
        /// How many names follow.
        number_of_snapshots_returned: u32;
        /// Length in bytes that the names have or would have, including the final NUL.
        snapshot_array_size: u32, pad 4;
    }
}

impl MarkHandleInfo {
    /// MARK_HANDLE_READ_COPY: read from one copy only.
    pub const READ_COPY: u32 = 0x80;
    /// MARK_HANDLE_NOT_READ_COPY: read from any copy.
    pub const NOT_READ_COPY: u32 = 0x100;
}

/// FILE_SET_SPARSE_BUFFER ([MS-FSCC] 2.3.83): an empty input means "make it sparse".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetSparse {
    /// Whether the file is to be sparse.
    pub set_sparse: bool,
}

impl SetSparse {
    /// Reads the input, which may be empty.
    pub fn read(bytes: &[u8]) -> Self {
        Self {
            set_sparse: bytes.first().is_none_or(|byte| *byte != 0),
        }
    }

    /// Appends the input in its long form.
    pub fn encode(self, out: &mut BytesMut) {
        out.put_u8(u8::from(self.set_sparse));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_specification() {
        assert_eq!(LmrRequestResiliency::MIN, 8);
        assert_eq!(MarkHandleInfo::MIN, 24);
        assert_eq!(SetZeroData::MIN, 16);
        assert_eq!(SnapshotArray::MIN, 16);
    }

    #[test]
    fn no_byte_means_sparse() {
        assert!(SetSparse::read(&[]).set_sparse);
        assert!(SetSparse::read(&[2]).set_sparse);
        assert!(!SetSparse::read(&[0]).set_sparse);
    }
}
