//! The numbers of the information classes ([MS-FSCC] 2.4 and 2.5) and their uses.
//!
//! Unknown numbers are preserved. `class_use` only repeats the tables of [MS-FSCC], which lack
//! `LINK_EX`; the server decides which status an unsuitable class gets ([MS-SMB2] 3.3.5.18,
//! 3.3.5.20, 3.3.5.21).

enum_of_the_wire! {
    /// A file information class ([MS-FSCC] 2.4). `LINK_EX` is not documented there: it is to `LINK`
    /// what `RENAME_EX` is to `RENAME` (FILE_LINK_INFORMATION of the Windows driver kit).
    pub struct FileInformationClass(u8) {
        DIRECTORY = 1,
        FULL_DIRECTORY = 2,
        BOTH_DIRECTORY = 3,
        BASIC = 4,
        STANDARD = 5,
        INTERNAL = 6,
        EA = 7,
        ACCESS = 8,
        NAME = 9,
        RENAME = 10,
        LINK = 11,
        NAMES = 12,
        DISPOSITION = 13,
        POSITION = 14,
        FULL_EA = 15,
        MODE = 16,
        ALIGNMENT = 17,
        ALL = 18,
        ALLOCATION = 19,
        END_OF_FILE = 20,
        ALTERNATE_NAME = 21,
        STREAM = 22,
        PIPE = 23,
        PIPE_LOCAL = 24,
        PIPE_REMOTE = 25,
        MAILSLOT_QUERY = 26,
        MAILSLOT_SET = 27,
        COMPRESSION = 28,
        OBJECT_ID = 29,
        MOVE_CLUSTER = 31,
        QUOTA = 32,
        REPARSE_POINT = 33,
        NETWORK_OPEN = 34,
        ATTRIBUTE_TAG = 35,
        TRACKING = 36,
        ID_BOTH_DIRECTORY = 37,
        ID_FULL_DIRECTORY = 38,
        VALID_DATA_LENGTH = 39,
        SHORT_NAME = 40,
        SFIO_RESERVE = 44,
        SFIO_VOLUME = 45,
        HARD_LINK = 46,
        NORMALIZED_NAME = 48,
        ID_GLOBAL_TX_DIRECTORY = 50,
        STANDARD_LINK = 54,
        ID = 59,
        ID_EXTD_DIRECTORY = 60,
        DISPOSITION_EX = 64,
        RENAME_EX = 65,
        LINK_EX = 72,
        ID_64_EXTD_DIRECTORY = 78,
        ID_64_EXTD_BOTH_DIRECTORY = 79,
        ID_ALL_EXTD_DIRECTORY = 80,
        ID_ALL_EXTD_BOTH_DIRECTORY = 81,
    }

    /// A file system information class ([MS-FSCC] 2.5).
    pub struct FsInformationClass(u8) {
        VOLUME = 1,
        LABEL = 2,
        SIZE = 3,
        DEVICE = 4,
        ATTRIBUTE = 5,
        CONTROL = 6,
        FULL_SIZE = 7,
        OBJECT_ID = 8,
        DRIVER_PATH = 9,
        VOLUME_FLAGS = 10,
        SECTOR_SIZE = 11,
    }
}

/// The "Uses" column of the tables in [MS-FSCC] 2.4 and 2.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassUse {
    /// Only QUERY_INFO.
    Query,
    /// Only SET_INFO.
    Set,
    /// Both.
    QueryAndSet,
    /// Only QUERY_DIRECTORY.
    Directory,
    /// Known, but never requested over the wire.
    Local,
    /// No such class.
    Unknown,
}

impl FileInformationClass {
    /// Returns the use of the class.
    pub fn class_use(self) -> ClassUse {
        match self {
            Self::ACCESS
            | Self::ALIGNMENT
            | Self::ALL
            | Self::ALTERNATE_NAME
            | Self::ATTRIBUTE_TAG
            | Self::COMPRESSION
            | Self::EA
            | Self::ID
            | Self::INTERNAL
            | Self::NETWORK_OPEN
            | Self::NORMALIZED_NAME
            | Self::PIPE_LOCAL
            | Self::PIPE_REMOTE
            | Self::STANDARD
            | Self::STREAM => ClassUse::Query,
            Self::ALLOCATION
            | Self::DISPOSITION
            | Self::DISPOSITION_EX
            | Self::END_OF_FILE
            | Self::LINK
            | Self::LINK_EX
            | Self::RENAME
            | Self::RENAME_EX
            | Self::SHORT_NAME
            | Self::VALID_DATA_LENGTH => ClassUse::Set,
            Self::BASIC
            | Self::FULL_EA
            | Self::MODE
            | Self::PIPE
            | Self::POSITION
            | Self::QUOTA => ClassUse::QueryAndSet,
            class if super::DirectoryFormat::of(class).is_some() => ClassUse::Directory,
            class if class.is_known() => ClassUse::Local,
            _ => ClassUse::Unknown,
        }
    }
}

impl FsInformationClass {
    /// Returns the use of the class.
    pub fn class_use(self) -> ClassUse {
        match self {
            Self::VOLUME
            | Self::SIZE
            | Self::DEVICE
            | Self::ATTRIBUTE
            | Self::FULL_SIZE
            | Self::SECTOR_SIZE => ClassUse::Query,
            Self::CONTROL | Self::OBJECT_ID => ClassUse::QueryAndSet,
            Self::LABEL | Self::DRIVER_PATH | Self::VOLUME_FLAGS => ClassUse::Local,
            _ => ClassUse::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_number_has_a_use_and_no_other_has() {
        for number in 0..=u8::MAX {
            let class = FileInformationClass(number);
            assert_eq!(class.is_known(), class.class_use() != ClassUse::Unknown);
            let class = FsInformationClass(number);
            assert_eq!(class.is_known(), class.class_use() != ClassUse::Unknown);
        }
        assert_eq!(
            FileInformationClass::ID_GLOBAL_TX_DIRECTORY.class_use(),
            ClassUse::Local
        );
    }
}
