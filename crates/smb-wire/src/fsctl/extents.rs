//! Block cloning: DUPLICATE_EXTENTS_TO_FILE and its _EX form as in SMB2 ([MS-FSCC] 2.3.7.2,
//! 2.3.9.2). The server checks alignment and sign of the numbers.

use crate::fscc::record::records;
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the _EX form.
    pub struct DuplicateExtentsFlags(u32) {
        SOURCE_ATOMIC = 1,
    }
}

records! {
    /// SMB2_DUPLICATE_EXTENTS_DATA.
    DuplicateExtents {
        /// The source.
        source_file_id: FileId;
        /// The position of the range in the source.
        source_file_offset: i64;
        /// The position in the target.
        target_file_offset: i64;
        /// The length in bytes.
        byte_count: i64;
    }

    /// SMB2_DUPLICATE_EXTENTS_DATA_EX.
    DuplicateExtentsEx {
        /// 0x30, although the bytes are 56.
        structure_size: u64;
        /// The fields of the other form.
        extents: DuplicateExtents;
        /// Flags.
        flags: DuplicateExtentsFlags, pad 4;
    }
}

impl DuplicateExtentsEx {
    /// The required value of StructureSize.
    pub const STRUCTURE_SIZE: u64 = 0x30;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_specification() {
        assert_eq!(DuplicateExtents::MIN, 40);
        assert_eq!(DuplicateExtentsEx::MIN, 56);
    }
}
