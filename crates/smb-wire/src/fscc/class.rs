//! The numbers of the information classes ([MS-FSCC] 2.4 and 2.5) and their uses.
//!
//! Unknown numbers are preserved. The uses are those of the tables of [MS-FSCC], which lack
//! `LINK_EX`; the server decides which status an unsuitable class gets ([MS-SMB2] 3.3.5.18,
//! 3.3.5.20, 3.3.5.21).

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

/// Defines classes by rows of a name, a number and a use.
macro_rules! information_classes {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident { $( $class:ident = $number:literal: $class_use:ident, )* }
    )*) => {
        enum_of_the_wire! {$(
            $(#[$meta])*
            pub struct $name(u8) { $( $class = $number ),* }
        )*}

        $(
            impl $name {
                /// Returns the use of the class.
                pub fn class_use(self) -> ClassUse {
                    match self {
                        $( Self::$class => ClassUse::$class_use, )*
                        _ => ClassUse::Unknown,
                    }
                }
            }
        )*
    };
}

information_classes! {
    /// A file information class ([MS-FSCC] 2.4). `LINK_EX` is not documented there: it is to `LINK`
    /// what `RENAME_EX` is to `RENAME` (FILE_LINK_INFORMATION of the Windows driver kit).
    pub struct FileInformationClass {
        DIRECTORY = 1: Directory,
        FULL_DIRECTORY = 2: Directory,
        BOTH_DIRECTORY = 3: Directory,
        BASIC = 4: QueryAndSet,
        STANDARD = 5: Query,
        INTERNAL = 6: Query,
        EA = 7: Query,
        ACCESS = 8: Query,
        NAME = 9: Local,
        RENAME = 10: Set,
        LINK = 11: Set,
        NAMES = 12: Directory,
        DISPOSITION = 13: Set,
        POSITION = 14: QueryAndSet,
        FULL_EA = 15: QueryAndSet,
        MODE = 16: QueryAndSet,
        ALIGNMENT = 17: Query,
        ALL = 18: Query,
        ALLOCATION = 19: Set,
        END_OF_FILE = 20: Set,
        ALTERNATE_NAME = 21: Query,
        STREAM = 22: Query,
        PIPE = 23: QueryAndSet,
        PIPE_LOCAL = 24: Query,
        PIPE_REMOTE = 25: Query,
        MAILSLOT_QUERY = 26: Local,
        MAILSLOT_SET = 27: Local,
        COMPRESSION = 28: Query,
        OBJECT_ID = 29: Local,
        MOVE_CLUSTER = 31: Local,
        QUOTA = 32: QueryAndSet,
        REPARSE_POINT = 33: Local,
        NETWORK_OPEN = 34: Query,
        ATTRIBUTE_TAG = 35: Query,
        TRACKING = 36: Local,
        ID_BOTH_DIRECTORY = 37: Directory,
        ID_FULL_DIRECTORY = 38: Directory,
        VALID_DATA_LENGTH = 39: Set,
        SHORT_NAME = 40: Set,
        SFIO_RESERVE = 44: Local,
        SFIO_VOLUME = 45: Local,
        HARD_LINK = 46: Local,
        NORMALIZED_NAME = 48: Query,
        ID_GLOBAL_TX_DIRECTORY = 50: Local,
        STANDARD_LINK = 54: Local,
        ID = 59: Query,
        ID_EXTD_DIRECTORY = 60: Directory,
        DISPOSITION_EX = 64: Set,
        RENAME_EX = 65: Set,
        LINK_EX = 72: Set,
        ID_64_EXTD_DIRECTORY = 78: Directory,
        ID_64_EXTD_BOTH_DIRECTORY = 79: Directory,
        ID_ALL_EXTD_DIRECTORY = 80: Directory,
        ID_ALL_EXTD_BOTH_DIRECTORY = 81: Directory,
    }

    /// A file system information class ([MS-FSCC] 2.5).
    pub struct FsInformationClass {
        VOLUME = 1: Query,
        LABEL = 2: Local,
        SIZE = 3: Query,
        DEVICE = 4: Query,
        ATTRIBUTE = 5: Query,
        CONTROL = 6: QueryAndSet,
        FULL_SIZE = 7: Query,
        OBJECT_ID = 8: QueryAndSet,
        DRIVER_PATH = 9: Local,
        VOLUME_FLAGS = 10: Local,
        SECTOR_SIZE = 11: Query,
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
            let is_listed = super::super::DirectoryFormat::of(class).is_some();
            assert_eq!(is_listed, class.class_use() == ClassUse::Directory);
            let class = FsInformationClass(number);
            assert_eq!(class.is_known(), class.class_use() != ClassUse::Unknown);
        }
        assert_eq!(
            FileInformationClass::ID_GLOBAL_TX_DIRECTORY.class_use(),
            ClassUse::Local
        );
    }
}
