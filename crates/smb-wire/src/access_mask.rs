//! The access mask of CREATE, of TREE_CONNECT responses and of ACEs ([MS-SMB2] 2.2.13.1, [MS-DTYP]
//! 2.4.3): file rights, directory rights (other names for the same bits), standard and generic
//! rights. The mapping of generic rights is here because the specification fixes it; the decision
//! about access is not.

flags_of_the_wire! {
    /// The rights that a request asks for, an open was granted, or an ACE names.
    pub struct AccessMask(u32) {
        FILE_READ_DATA = 0x0000_0001,
        FILE_WRITE_DATA = 0x0000_0002,
        FILE_APPEND_DATA = 0x0000_0004,
        FILE_READ_EA = 0x0000_0008,
        FILE_WRITE_EA = 0x0000_0010,
        FILE_EXECUTE = 0x0000_0020,
        FILE_DELETE_CHILD = 0x0000_0040,
        FILE_READ_ATTRIBUTES = 0x0000_0080,
        FILE_WRITE_ATTRIBUTES = 0x0000_0100,
        DELETE = 0x0001_0000,
        READ_CONTROL = 0x0002_0000,
        WRITE_DAC = 0x0004_0000,
        WRITE_OWNER = 0x0008_0000,
        SYNCHRONIZE = 0x0010_0000,
        ACCESS_SYSTEM_SECURITY = 0x0100_0000,
        MAXIMUM_ALLOWED = 0x0200_0000,
        GENERIC_ALL = 0x1000_0000,
        GENERIC_EXECUTE = 0x2000_0000,
        GENERIC_WRITE = 0x4000_0000,
        GENERIC_READ = 0x8000_0000,
        /// FILE_READ_DATA of a directory.
        FILE_LIST_DIRECTORY = 0x0000_0001,
        /// FILE_WRITE_DATA of a directory.
        FILE_ADD_FILE = 0x0000_0002,
        /// FILE_APPEND_DATA of a directory.
        FILE_ADD_SUBDIRECTORY = 0x0000_0004,
        /// FILE_EXECUTE of a directory.
        FILE_TRAVERSE = 0x0000_0020,
    }
}

impl AccessMask {
    /// The rights that GENERIC_READ stands for on a file or directory.
    pub const FILE_GENERIC_READ: Self = Self(0x0012_0089);
    /// The rights that GENERIC_WRITE stands for on a file or directory.
    pub const FILE_GENERIC_WRITE: Self = Self(0x0012_0116);
    /// The rights that GENERIC_EXECUTE stands for on a file or directory.
    pub const FILE_GENERIC_EXECUTE: Self = Self(0x0012_00a0);
    /// All rights of a file or directory, for which GENERIC_ALL stands.
    pub const FILE_ALL_ACCESS: Self = Self(0x001f_01ff);
    /// The four generic bits.
    pub const GENERIC: Self = Self(0xf000_0000);

    /// Returns the mask with its generic rights replaced by the rights that they stand for on files.
    #[must_use]
    pub fn map_generic(self) -> Self {
        let mut mapped = self.without(Self::GENERIC);
        mapped |= Self::FILE_GENERIC_READ.when(self.contains(Self::GENERIC_READ));
        mapped |= Self::FILE_GENERIC_WRITE.when(self.contains(Self::GENERIC_WRITE));
        mapped |= Self::FILE_GENERIC_EXECUTE.when(self.contains(Self::GENERIC_EXECUTE));
        mapped |= Self::FILE_ALL_ACCESS.when(self.contains(Self::GENERIC_ALL));
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_rights_become_file_rights() {
        let asked = AccessMask::GENERIC_READ | AccessMask::DELETE;
        assert_eq!(asked.map_generic().bits(), 0x0013_0089);
        assert_eq!(
            AccessMask::GENERIC_ALL.map_generic(),
            AccessMask::FILE_ALL_ACCESS
        );
    }
}
