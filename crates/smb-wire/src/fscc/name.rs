//! Classes that contain a name: FileNameInformation and similar classes, rename and link in their
//! SMB2 form, short name ([MS-FSCC] 2.1.7, 2.4.28.2, 2.4.42.2, 2.4.43, 2.4.46).
//!
//! Only the layout is checked. An empty name, a root directory and a leading backslash are valid
//! values here; the server refuses them with the status it chooses.

use bytes::{BufMut, BytesMut};

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

/// A name alone: FileNameInformation, FileAlternateNameInformation and
/// FileNormalizedNameInformation share it ([MS-FSCC] 2.1.7).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileNameInformation {
    /// The name, in the form of the class (a path from the share's root, or the 8.3 name).
    pub file_name: String,
}

impl FileNameInformation {
    /// Smallest output buffer of a query ([MS-FSA] 2.1.5.12.5).
    pub const MIN: usize = 8;

    /// Bytes before the name.
    pub const FIXED: usize = 4;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Malformed`] when the name is missing or not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let file_name = read_name(&mut Reader::new(bytes, "FileNameInformation"))?;
        Ok(Self { file_name })
    }

    /// Appends the structure.
    pub fn encode(&self, out: &mut BytesMut) {
        put_name(out, &self.file_name);
    }
}

/// [MS-FSCC] 2.4.42.2: the structure is padded to this length. Many clients (go-smb2, impacket, jcifs-ng) do not pad a
/// name of one character, and Samba takes that as well.
const PADDED: usize = 24;

/// Reads the common layout of rename and link: eight bytes whose meaning depends on the class, the
/// root directory, the name.
fn read_target(bytes: &[u8], what: &'static str) -> Result<(u32, u64, String), Malformed> {
    if bytes.len() < FileRenameInformation::MIN {
        return Err(Malformed { what });
    }
    let mut reader = Reader::new(bytes, what);
    let flags = reader.u32()?;
    reader.skip(4)?;
    let root_directory = reader.u64()?;
    let file_name = read_name(&mut reader)?;
    Ok((flags, root_directory, file_name))
}

fn encode_target(out: &mut BytesMut, flags: u32, root_directory: u64, file_name: &str) {
    let start = out.len();
    out.put_u32_le(flags);
    out.put_u32_le(0);
    out.put_u64_le(root_directory);
    put_name(out, file_name);
    let written = out.len() - start;
    out.put_bytes(0, PADDED.saturating_sub(written));
}

/// FileRenameInformation for SMB2 ([MS-FSCC] 2.4.42.2): set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileRenameInformation {
    /// Whether an existing file of that name may be replaced.
    pub replace_if_exists: bool,
    /// Zero over the network; the server refuses other values.
    pub root_directory: u64,
    /// The new name from the share's root, without a leading backslash.
    pub file_name: String,
}

/// FileLinkInformation for SMB2 ([MS-FSCC] 2.4.28.2), which has the same layout: set.
pub type FileLinkInformation = FileRenameInformation;

impl FileRenameInformation {
    /// Smallest input of a set: a name of one character, without padding.
    pub const MIN: usize = 22;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Malformed`] when it is shorter than `MIN`, or the name is outside or not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (flags, root_directory, file_name) = read_target(bytes, "FileRenameInformation")?;
        // The first byte is a boolean; the other three are reserved.
        Ok(Self {
            replace_if_exists: flags & 0xff != 0,
            root_directory,
            file_name,
        })
    }

    /// Appends the structure, padded as [MS-FSCC] asks.
    pub fn encode(&self, out: &mut BytesMut) {
        let flags = u32::from(self.replace_if_exists);
        encode_target(out, flags, self.root_directory, &self.file_name);
    }
}

/// FileRenameInformationEx ([MS-FSCC] 2.4.43), and FileLinkInformationEx: set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileRenameInformationEx {
    /// Flags.
    pub flags: RenameFlags,
    /// Zero over the network; the server refuses other values.
    pub root_directory: u64,
    /// The new name from the share's root, without a leading backslash.
    pub file_name: String,
}

impl FileRenameInformationEx {
    /// Smallest input of a set: a name of one character, without padding.
    pub const MIN: usize = 22;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Malformed`] when it is shorter than `MIN`, or the name is outside or not valid UTF-16.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (flags, root_directory, file_name) = read_target(bytes, "FileRenameInformationEx")?;
        Ok(Self {
            flags: RenameFlags(flags),
            root_directory,
            file_name,
        })
    }

    /// Appends the structure, padded as [MS-FSCC] asks.
    pub fn encode(&self, out: &mut BytesMut) {
        encode_target(out, self.flags.0, self.root_directory, &self.file_name);
    }
}

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
