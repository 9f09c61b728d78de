//! Block cloning: DUPLICATE_EXTENTS_TO_FILE and its _EX form as SMB2 carries them
//! ([MS-FSCC] 2.3.7.2, 2.3.9.2). Alignment and sign of the numbers are checked by the server.

use crate::fscc::record::{newtype_fields, records};
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the _EX form.
    pub struct DuplicateExtentsFlags(u32) {
        SOURCE_ATOMIC = 1,
    }
}

newtype_fields! {
    DuplicateExtentsFlags: u32;
}

records! {
    /// SMB2_DUPLICATE_EXTENTS_DATA.
    DuplicateExtents {
        /// The source.
        source_file_id: FileId;
        /// Where the range begins in the source.
        source_file_offset: i64;
        /// Where it goes.
        target_file_offset: i64;
        /// Its bytes.
        byte_count: i64;
    }

    /// SMB2_DUPLICATE_EXTENTS_DATA_EX.
    DuplicateExtentsEx {
        /// 0x30, although the bytes are 56.
        structure_size: u64;
        /// The source.
        source_file_id: FileId;
        /// Where the range begins in the source.
        source_file_offset: i64;
        /// Where it goes.
        target_file_offset: i64;
        /// Its bytes.
        byte_count: i64;
        /// Flags.
        flags: DuplicateExtentsFlags, pad 4;
    }
}

impl DuplicateExtentsEx {
    /// What StructureSize must hold.
    pub const STRUCTURE_SIZE: u64 = 0x30;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_text() {
        assert_eq!(DuplicateExtents::MIN, 40);
        assert_eq!(DuplicateExtentsEx::MIN, 56);
    }
}
