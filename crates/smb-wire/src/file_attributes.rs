//! File attributes ([MS-FSCC] 2.6), shared by CREATE, CLOSE and the information classes.

flags_of_the_wire! {
    /// The attributes of a file or directory.
    pub struct FileAttributes(u32) {
        READONLY = 0x0000_0001,
        HIDDEN = 0x0000_0002,
        SYSTEM = 0x0000_0004,
        /// Not stored on the wire; asking for it is an error.
        VOLUME = 0x0000_0008,
        DIRECTORY = 0x0000_0010,
        ARCHIVE = 0x0000_0020,
        /// Not stored on the wire; asking for it is an error.
        DEVICE = 0x0000_0040,
        /// Means "no attribute"; never together with another.
        NORMAL = 0x0000_0080,
        TEMPORARY = 0x0000_0100,
        SPARSE_FILE = 0x0000_0200,
        REPARSE_POINT = 0x0000_0400,
        COMPRESSED = 0x0000_0800,
        OFFLINE = 0x0000_1000,
        NOT_CONTENT_INDEXED = 0x0000_2000,
        ENCRYPTED = 0x0000_4000,
    }
}
