//! A change of a watched directory, as a client receives it.

/// One change of a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The action's number ([MS-FSCC] 2.7.1).
    pub action: u32,
    /// The path relative to the watched directory, components joined by `\`.
    pub name: String,
}

impl Change {
    /// FILE_ACTION_ADDED.
    pub const ADDED: u32 = 1;
    /// FILE_ACTION_REMOVED.
    pub const REMOVED: u32 = 2;
    /// FILE_ACTION_MODIFIED.
    pub const MODIFIED: u32 = 3;
    /// FILE_ACTION_RENAMED_OLD_NAME.
    pub const RENAMED_OLD_NAME: u32 = 4;
    /// FILE_ACTION_RENAMED_NEW_NAME.
    pub const RENAMED_NEW_NAME: u32 = 5;
    /// FILE_ACTION_ADDED_STREAM.
    pub const ADDED_STREAM: u32 = 6;
    /// FILE_ACTION_REMOVED_STREAM.
    pub const REMOVED_STREAM: u32 = 7;
    /// FILE_ACTION_MODIFIED_STREAM.
    pub const MODIFIED_STREAM: u32 = 8;

    /// Bytes of the entry in a reply, if it is the last one; any other is padded to a multiple of 4.
    pub fn encoded_len(&self) -> usize {
        const FIXED: usize = 12;
        FIXED + 2 * self.name.encode_utf16().count()
    }
}
