//! The payloads of QUERY_INFO, SET_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY: the information
//! classes of [MS-FSCC] 2.4, 2.5 and 2.7 as types, both directions.
//!
//! Every class has `MIN`: the smallest output buffer of a query (below it the server answers
//! STATUS_INFO_LENGTH_MISMATCH) and the smallest input of a set. `encode` always writes the whole
//! structure; where a name or list may be truncated with STATUS_BUFFER_OVERFLOW ([MS-SMB2]
//! 3.3.5.20.1), the caller truncates the output to the client's length, never below `MIN`.
//!
//! Declarations only.

#[cfg(test)]
mod captured;
mod class;
mod directory;
mod ea;
mod file;
mod file_system;
mod name;
mod notify;
mod object_id;
mod pipe;
pub(crate) mod record;
mod stream;

pub use class::{ClassUse, FileInformationClass, FsInformationClass};
pub use directory::{
    DirectoryEntries, DirectoryEntry, DirectoryFormat, DirectoryWriter, OwnedDirectoryEntry, Pushed,
};
pub use ea::{
    EaEntry, EaFlags, MAX_EA_LIST_BYTES, MAX_EA_NAME_BYTES, check_ea_name, encode_ea_list,
    encode_get_ea_list, read_ea_list, read_get_ea_list,
};
pub use file::{
    DispositionFlags, FileAccessInformation, FileAlignmentInformation, FileAllInformation,
    FileAllocationInformation, FileAttributeTagInformation, FileBasicInformation,
    FileCompressionInformation, FileDispositionInformation, FileDispositionInformationEx,
    FileEaInformation, FileEndOfFileInformation, FileFacts, FileIdInformation,
    FileInternalInformation, FileModeInformation, FileNetworkOpenInformation,
    FilePositionInformation, FileStandardInformation,
};
pub use file_system::{
    DeviceCharacteristics, DeviceType, FileFsAttributeInformation, FileFsControlInformation,
    FileFsDeviceInformation, FileFsFullSizeInformation, FileFsObjectIdInformation,
    FileFsSectorSizeInformation, FileFsSizeInformation, FileFsVolumeInformation,
    FileSystemAttributes, SectorSizeFlags,
};
pub use name::{
    FileLinkInformation, FileNameInformation, FileRenameInformation, FileRenameInformationEx,
    RenameFlags,
};
pub use notify::{FileAction, FileNotifyEntry, encode_notify_list, read_notify_list};
pub use object_id::FileObjectIdBuffer;
pub use pipe::{FilePipeInformation, FilePipeLocalInformation};
pub use record::Field;
pub use stream::{StreamEntry, encode_stream_list, read_stream_list};
