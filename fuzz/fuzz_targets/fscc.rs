//! Information classes and lists of MS-FSCC from strangers.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::fscc::*;

fuzz_target!(|bytes: &[u8]| {
    let mut out = BytesMut::new();
    macro_rules! try_all {
        ($($type:ty),* $(,)?) => {
            $( if let Ok(value) = <$type>::read(bytes) { value.encode(&mut out); } )*
        };
    }
    try_all!(
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
