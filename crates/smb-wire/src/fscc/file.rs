//! File information classes with fixed fields ([MS-FSCC] 2.4), and FileAllInformation, which
//! concatenates several of them.
//!
//! Sizes that a client *sets* are signed, as in the specification: the server refuses negative
//! ones. Times are not interpreted: 0, -1 and -2 have special meanings ([MS-FSCC] 2.4.7).

use super::record::{named_records, records};
use crate::access_mask::AccessMask;
use crate::file_attributes::FileAttributes;
use crate::ids::FileTime;

flags_of_the_wire! {
    /// Flags of FileDispositionInformationEx ([MS-FSCC] 2.4.12).
    pub struct DispositionFlags(u32) {
        DELETE = 0x01,
        POSIX_SEMANTICS = 0x02,
        ON_CLOSE = 0x08,
        IGNORE_READONLY_ATTRIBUTE = 0x10,
    }
}

records! {
    /// FileBasicInformation ([MS-FSCC] 2.4.7): times and attributes; query and set.
    FileBasicInformation {
        /// The time of creation.
        creation_time: FileTime;
        /// The time of the last access.
        last_access_time: FileTime;
        /// The time of the last change of the data.
        last_write_time: FileTime;
        /// The time of the last change of data or metadata.
        change_time: FileTime;
        /// In a set request, 0 leaves them unchanged.
        file_attributes: FileAttributes, pad 4;
    }

    /// FileStandardInformation ([MS-FSCC] 2.4.47).
    FileStandardInformation {
        /// Bytes reserved on disk.
        allocation_size: u64;
        /// Length in bytes.
        end_of_file: u64;
        /// Hard links that are not deleted.
        number_of_links: u32;
        /// Whether the file is deleted at its last close.
        delete_pending: bool;
        /// Whether it is a directory.
        directory: bool, pad 2;
    }

    /// FileInternalInformation ([MS-FSCC] 2.4.27).
    FileInternalInformation {
        /// The 64-bit id of the file on its volume.
        index_number: u64;
    }

    /// FileEaInformation ([MS-FSCC] 2.4.13).
    FileEaInformation {
        /// Length of all extended attributes in bytes, as a FULL_EA list.
        ea_size: u32;
    }

    /// FileAccessInformation ([MS-FSCC] 2.4.1).
    FileAccessInformation {
        /// The rights granted to the open.
        access_flags: AccessMask;
    }

    /// FilePositionInformation ([MS-FSCC] 2.4.40): stored for each open, without other effect.
    FilePositionInformation {
        /// Byte offset; a negative one is refused.
        current_byte_offset: i64;
    }

    /// FileModeInformation ([MS-FSCC] 2.4.31).
    FileModeInformation {
        /// Bits of the create options (write-through, no intermediate buffering, ...).
        mode: u32;
    }

    /// FileAlignmentInformation ([MS-FSCC] 2.4.3).
    FileAlignmentInformation {
        /// Alignment of buffers less one (0 is a byte, 0x1ff 512 bytes).
        alignment_requirement: u32;
    }

    /// FileAllocationInformation ([MS-FSCC] 2.4.4): set.
    FileAllocationInformation {
        /// Bytes to reserve.
        allocation_size: i64;
    }

    /// FileEndOfFileInformation ([MS-FSCC] 2.4.14): set.
    FileEndOfFileInformation {
        /// The new length in bytes.
        end_of_file: i64;
    }

    /// FileDispositionInformation ([MS-FSCC] 2.4.11): set.
    FileDispositionInformation {
        /// Whether the file is to be deleted at its last close.
        delete_pending: bool;
    }

    /// FileDispositionInformationEx ([MS-FSCC] 2.4.12): set.
    FileDispositionInformationEx {
        /// The way in which the file is to be deleted.
        flags: DispositionFlags;
    }

    /// FileCompressionInformation ([MS-FSCC] 2.4.9).
    FileCompressionInformation {
        /// Size of the file after compression, in bytes.
        compressed_file_size: u64;
        /// 0 none, 2 LZNT1.
        compression_format: u16;
        /// Logarithm of the compression unit's length in bytes.
        compression_unit_shift: u8;
        /// Logarithm of the chunk's length in bytes.
        chunk_shift: u8;
        /// Logarithm of the cluster's length in bytes.
        cluster_shift: u8, pad 3;
    }

    /// Times, sizes and attributes as CREATE, CLOSE and FileNetworkOpenInformation return them alike.
    FileFacts {
        /// The time of creation.
        creation_time: FileTime;
        /// The time of the last access.
        last_access_time: FileTime;
        /// The time of the last change of the data.
        last_write_time: FileTime;
        /// The time of the last change of data or metadata.
        change_time: FileTime;
        /// Bytes reserved on disk.
        allocation_size: u64;
        /// Length in bytes.
        end_of_file: u64;
        /// Its attributes.
        file_attributes: FileAttributes;
    }

    /// FileNetworkOpenInformation ([MS-FSCC] 2.4.34).
    FileNetworkOpenInformation {
        /// All that it says.
        facts: FileFacts, pad 4;
    }

    /// FileAttributeTagInformation ([MS-FSCC] 2.4.6).
    FileAttributeTagInformation {
        /// Its attributes.
        file_attributes: FileAttributes;
        /// The tag of its reparse point, else 0.
        reparse_tag: u32;
    }

    /// FileIdInformation ([MS-FSCC] 2.4.26).
    FileIdInformation {
        /// Serial number of the volume.
        volume_serial_number: u64;
        /// The 128-bit id of the file on its volume.
        file_id: [u8; 16];
    }
}

named_records! {
    /// FileAllInformation ([MS-FSCC] 2.4.2). The buffer of a query has room for one unit of the name, rounded up to 8
    /// ([MS-FSA] 2.1.5.12.3).
    FileAllInformation(104) {
        /// Times and attributes.
        basic: FileBasicInformation;
        /// Sizes, links, kind.
        standard: FileStandardInformation;
        /// Id.
        internal: FileInternalInformation;
        /// Length of extended attributes.
        ea: FileEaInformation;
        /// Rights of the open.
        access: FileAccessInformation;
        /// Position of the open.
        position: FilePositionInformation;
        /// Mode of the open.
        mode: FileModeInformation;
        /// Alignment.
        alignment: FileAlignmentInformation;
        => /// The name from the share's root, beginning with a backslash.
        file_name
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_specification() {
        assert_eq!(FileBasicInformation::MIN, 40);
        assert_eq!(FileStandardInformation::MIN, 24);
        assert_eq!(FileNetworkOpenInformation::MIN, 56);
        assert_eq!(FileAttributeTagInformation::MIN, 8);
        assert_eq!(FileIdInformation::MIN, 24);
        assert_eq!(FileCompressionInformation::MIN, 16);
        assert_eq!(FileDispositionInformation::MIN, 1);
    }

    #[test]
    fn all_information_round_trips() {
        let all = FileAllInformation {
            standard: FileStandardInformation {
                allocation_size: 4096,
                end_of_file: 6,
                number_of_links: 1,
                delete_pending: false,
                directory: true,
            },
            file_name: "\\dir\\grün".to_owned(),
            ..FileAllInformation::default()
        };
        let mut out = BytesMut::new();
        all.encode(&mut out);
        assert_eq!(out.len(), FileAllInformation::FIXED + 18);
        assert_eq!(out[61], 1, "Directory is the second byte at 60");
        assert_eq!(FileAllInformation::read(&out), Ok(all));
        for cut in 0..out.len() {
            assert!(FileAllInformation::read(&out[..cut]).is_err());
        }
    }

    #[test]
    fn short_input_is_an_error_and_long_input_is_not() {
        assert!(FileEndOfFileInformation::read(&[0; 7]).is_err());
        let read = FileEndOfFileInformation::read(&[0xff; 20]).unwrap();
        assert_eq!(read.end_of_file, -1);
    }
}
