//! Information classes and lists of MS-FSCC from strangers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb_wire::fscc::*;

#[macro_use]
#[path = "../support/try_all.rs"]
mod try_all;

fuzz_target!(|bytes: &[u8]| {
    try_all!(bytes;
        FileAllInformation,
        FileBasicInformation,
        FileDispositionInformationEx,
        FileEndOfFileInformation,
        FileLinkInformation,
        FileNameInformation,
        FileRenameInformation,
        FileRenameInformationEx,
        FileFsAttributeInformation,
        FileFsControlInformation,
        FileFsVolumeInformation,
        FilePipeInformation,
        FileObjectIdBuffer,
    );
    for class in FileInformationClass::KNOWN {
        if let Some(format) = DirectoryFormat::of(*class) {
            for entry in DirectoryEntries::new(format, bytes) {
                let _ = entry;
            }
        }
    }
    if let Ok(list) = read_ea_list(bytes) {
        let (again, fitted) = encode_ea_list(&list, usize::MAX);
        assert_eq!(fitted, list.len());
        assert_eq!(read_ea_list(&again), Ok(list));
    }
    let _ = read_get_ea_list(bytes);
    let _ = read_stream_list(bytes);
    let _ = read_notify_list(bytes);
});
