//! Classes that contain a name: FileNameInformation and similar classes, rename and link in their
//! SMB2 form, short name ([MS-FSCC] 2.1.7, 2.4.28.2, 2.4.42.2, 2.4.43, 2.4.46).
//!
//! Only the layout is checked. An empty name, a root directory and a leading backslash are valid
//! values here; the server refuses them with the status it chooses.

use bytes::{BufMut, BytesMut};

use super::record::named_records;
use crate::codec::{Malformed, Reader, size};
use crate::utf16;

flags_of_the_wire! {
    /// Flags of FileRenameInformationEx ([MS-FSCC] 2.4.43), and of FileLinkInformationEx, where the
    /// same bits have the same meaning.
    pub struct RenameFlags(u32) {
        REPLACE_IF_EXISTS = 0x001,
        POSIX_SEMANTICS = 0x002,
        SUPPRESS_PIN_STATE_INHERITANCE = 0x004,
        SUPPRESS_STORAGE_RESERVE_INHERITANCE = 0x008,
        NO_INCREASE_AVAILABLE_SPACE = 0x010,
        NO_DECREASE_AVAILABLE_SPACE = 0x020,
        IGNORE_READONLY_ATTRIBUTE = 0x040,
        FORCE_RESIZE_TARGET_SR = 0x080,
        FORCE_RESIZE_SOURCE_SR = 0x100,
    }
}

/// Reads a 32-bit length in bytes and the name of that length.
pub(super) fn read_name(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let len = size(reader.u32()?);
    let what = reader.malformed().what;
    utf16::decode(reader.take(len)?, what)
}

/// Appends a 32-bit length in bytes and the name.
pub(super) fn put_name(out: &mut BytesMut, name: &str) {
    out.put_u32_le(u32::try_from(utf16::len_bytes(name)).unwrap_or(u32::MAX));
    utf16::put(out, name);
}

named_records! {
    /// A name alone: FileNameInformation, FileAlternateNameInformation and FileNormalizedNameInformation share it
    /// ([MS-FSCC] 2.1.7; for the length of the buffer [MS-FSA] 2.1.5.12.5).
    FileNameInformation(8) {
        => /// The name, in the form of the class (a path from the share's root, or the 8.3 name).
        file_name
    }

    /// FileRenameInformation for SMB2 ([MS-FSCC] 2.4.42.2): set. It is padded to 24 bytes. Many clients (go-smb2,
    /// impacket, jcifs-ng) do not pad a name of one character, and Samba takes that as well.
    FileRenameInformation(22, padded 24) {
        /// Whether an existing file of that name may be replaced.
        replace_if_exists: bool, pad 7;
        /// Zero over the network; the server refuses other values.
        root_directory: u64;
        => /// The new name from the share's root, without a leading backslash.
        file_name
    }

    /// FileRenameInformationEx ([MS-FSCC] 2.4.43), and FileLinkInformationEx: set. It is padded like the other form.
    FileRenameInformationEx(22, padded 24) {
        /// Flags.
        flags: RenameFlags, pad 4;
        /// Zero over the network; the server refuses other values.
        root_directory: u64;
        => /// The new name from the share's root, without a leading backslash.
        file_name
    }
}

/// FileLinkInformation for SMB2 ([MS-FSCC] 2.4.28.2), which has the same layout: set.
pub type FileLinkInformation = FileRenameInformation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_is_padded_and_round_trips() {
        let rename = FileRenameInformation {
            replace_if_exists: true,
            root_directory: 0,
            file_name: "b".to_owned(),
        };
        let mut out = BytesMut::new();
        rename.encode(&mut out);
        assert_eq!(
            &out[..],
            b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0b\0\0\0"
        );
        assert_eq!(FileRenameInformation::read(&out), Ok(rename));
        // A name of one letter need not be padded, but must be there.
        assert!(FileRenameInformation::read(&out[..22]).is_ok());
        assert!(FileRenameInformation::read(&out[..21]).is_err());
    }

    #[test]
    fn names_beyond_the_buffer_or_of_odd_length_are_rejected() {
        let mut bytes = [0u8; 24];
        bytes[16] = 5;
        assert!(FileLinkInformation::read(&bytes).is_err());
        bytes[16] = 3;
        assert!(FileLinkInformation::read(&bytes).is_err());
        bytes[16] = 4;
        bytes[20] = b'x';
        bytes[22] = b'y';
        assert_eq!(FileLinkInformation::read(&bytes).unwrap().file_name, "xy");
    }

    #[test]
    fn rename_ex_preserves_unknown_flags() {
        let rename = FileRenameInformationEx {
            flags: RenameFlags::POSIX_SEMANTICS | RenameFlags(0x8000_0000),
            root_directory: 0,
            file_name: "dir\\name".to_owned(),
        };
        let mut out = BytesMut::new();
        rename.encode(&mut out);
        assert_eq!(FileRenameInformationEx::read(&out), Ok(rename));
    }
}
