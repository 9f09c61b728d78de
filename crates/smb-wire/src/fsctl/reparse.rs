//! Reparse points: the buffer of SET/GET_REPARSE_POINT ([MS-FSCC] 2.1.2.2), its symbolic link
//! form (2.1.2.4), and the error data of STATUS_STOPPED_ON_SYMLINK ([MS-SMB2] 2.2.2.2.1).

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, size, slice_at};
use crate::utf16;

enum_of_the_wire! {
    /// The kind of a reparse point ([MS-FSCC] 2.1.2.1).
    pub struct ReparseTag(u32) {
        MOUNT_POINT = 0xa000_0003,
        SYMLINK = 0xa000_000c,
        NFS = 0x8000_0014,
        DEDUP = 0x8000_0013,
        APPEXECLINK = 0x8000_001b,
        AF_UNIX = 0x8000_0023,
        LX_SYMLINK = 0xa000_001d,
        LX_FIFO = 0x8000_0024,
        LX_CHR = 0x8000_0025,
        LX_BLK = 0x8000_0026,
    }
}

impl ReparseTag {
    /// Returns whether the tag is Microsoft's, in which case the buffer has no GUID.
    #[must_use]
    pub const fn is_microsoft(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// REPARSE_DATA_BUFFER, or REPARSE_GUID_DATA_BUFFER with the GUID at the front of `data`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReparseDataBuffer {
    /// The kind.
    pub tag: ReparseTag,
    /// The data of this kind; for tags of other vendors they begin with 16 bytes of GUID.
    pub data: Vec<u8>,
}

impl ReparseDataBuffer {
    /// Bytes before the data.
    pub const MIN: usize = 8;

    /// Maximum length of the data in bytes ([MS-FSCC] 2.1.2.2: 16 KiB in total).
    pub const MAX_DATA: usize = 16_384 - Self::MIN;

    /// Reads the buffer, whose length must be the one it announces ([MS-FSA] 2.1.5.10.36).
    ///
    /// # Errors
    /// [`Malformed`] for another length or over [`Self::MAX_DATA`].
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "REPARSE_DATA_BUFFER");
        let tag = ReparseTag(reader.u32()?);
        let len = usize::from(reader.u16()?);
        reader.skip(2)?;
        let guid = if tag.is_microsoft() { 0 } else { 16 };
        let data = reader.take(len + guid)?;
        if !reader.is_empty() || len > Self::MAX_DATA {
            return Err(reader.malformed());
        }
        Ok(Self {
            tag,
            data: data.to_vec(),
        })
    }

    /// Appends the buffer.
    pub fn encode(&self, out: &mut BytesMut) {
        let guid = if self.tag.is_microsoft() { 0 } else { 16 };
        let len = self.data.len().saturating_sub(guid);
        out.put_u32_le(self.tag.0);
        out.put_u16_le(u16::try_from(len).unwrap_or(u16::MAX));
        out.put_u16_le(0);
        out.put_slice(&self.data);
    }
}

/// The data of a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SymbolicLinkReparseData {
    /// The target, with backslashes.
    pub substitute_name: String,
    /// The target for display.
    pub print_name: String,
    /// Whether the target is relative to the link's directory.
    pub relative: bool,
}

impl SymbolicLinkReparseData {
    /// Bytes before the names.
    pub const MIN: usize = 12;

    /// Reads the data of a buffer with tag SYMLINK.
    ///
    /// # Errors
    /// [`Malformed`] when a name lies outside or is not valid UTF-16.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "symbolic link";
        let mut reader = Reader::new(data, WHAT);
        let mut number = || reader.u16().map(usize::from);
        let (substitute_at, substitute_len) = (number()?, number()?);
        let (print_at, print_len) = (number()?, number()?);
        let relative = reader.u32()? & 1 != 0;
        let names = reader.rest();
        let name = |at, len| utf16::decode(slice_at(names, at, len, WHAT)?, WHAT);
        Ok(Self {
            substitute_name: name(substitute_at, substitute_len)?,
            print_name: name(print_at, print_len)?,
            relative,
        })
    }

    /// Appends the data.
    pub fn encode(&self, out: &mut BytesMut) {
        let number = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        let substitute_len = utf16::len_bytes(&self.substitute_name);
        out.put_u16_le(0);
        out.put_u16_le(number(substitute_len));
        out.put_u16_le(number(substitute_len));
        out.put_u16_le(number(utf16::len_bytes(&self.print_name)));
        out.put_u32_le(u32::from(self.relative));
        utf16::put(out, &self.substitute_name);
        utf16::put(out, &self.print_name);
    }

    /// The whole reparse buffer.
    #[must_use]
    pub fn to_buffer(&self) -> ReparseDataBuffer {
        let mut data = BytesMut::new();
        self.encode(&mut data);
        ReparseDataBuffer {
            tag: ReparseTag::SYMLINK,
            data: data.to_vec(),
        }
    }
}

/// The error data of STATUS_STOPPED_ON_SYMLINK.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SymbolicLinkErrorData {
    /// Length in UTF-16 bytes of the part of the path behind the link.
    pub unparsed_path_len_bytes: u16,
    /// The link.
    pub link: SymbolicLinkReparseData,
}

impl SymbolicLinkErrorData {
    const TAG: u32 = 0x4c4d_5953;

    /// Reads the error data.
    ///
    /// # Errors
    /// [`Malformed`] for other tags or a bad link.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "symbolic link error");
        let len = size(reader.u32()?);
        let mut reader = Reader::new(reader.take(len)?, "symbolic link error");
        let tags = (reader.u32()?, reader.u32()?);
        reader.skip(2)?;
        let unparsed_path_len_bytes = reader.u16()?;
        if tags != (Self::TAG, ReparseTag::SYMLINK.0) {
            return Err(reader.malformed());
        }
        Ok(Self {
            unparsed_path_len_bytes,
            link: SymbolicLinkReparseData::read(reader.rest())?,
        })
    }

    /// Appends the error data.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut data = BytesMut::new();
        self.link.encode(&mut data);
        out.put_u32_le(u32::try_from(data.len() + 12).unwrap_or(u32::MAX));
        out.put_u32_le(Self::TAG);
        out.put_u32_le(ReparseTag::SYMLINK.0);
        out.put_u16_le(u16::try_from(data.len()).unwrap_or(u16::MAX));
        out.put_u16_le(self.unparsed_path_len_bytes);
        out.put_slice(&data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_round_trip() {
        let link = SymbolicLinkReparseData {
            substitute_name: "..\\target".to_owned(),
            print_name: "../target".to_owned(),
            relative: true,
        };
        let mut out = BytesMut::new();
        link.to_buffer().encode(&mut out);
        let buffer = ReparseDataBuffer::read(&out).unwrap();
        assert_eq!(buffer.tag, ReparseTag::SYMLINK);
        assert_eq!(
            SymbolicLinkReparseData::read(&buffer.data),
            Ok(link.clone())
        );
        for cut in 0..buffer.data.len() {
            assert!(SymbolicLinkReparseData::read(&buffer.data[..cut]).is_err());
        }
        let error = SymbolicLinkErrorData {
            unparsed_path_len_bytes: 8,
            link,
        };
        let mut out = BytesMut::new();
        error.encode(&mut out);
        assert_eq!(SymbolicLinkErrorData::read(&out), Ok(error));
    }

    #[test]
    fn buffers_must_have_the_announced_length() {
        let bytes = [0x0c, 0, 0, 0xa0, 1, 0, 0, 0, 7];
        assert!(ReparseDataBuffer::read(&bytes).is_ok());
        assert!(ReparseDataBuffer::read(&bytes[..8]).is_err());
        assert!(ReparseDataBuffer::read(&[&bytes[..], &[0]].concat()).is_err());
        // A tag of another vendor is followed by a GUID.
        let foreign = [&[1, 0, 0, 0, 1, 0, 0, 0][..], &[9; 17]].concat();
        assert_eq!(ReparseDataBuffer::read(&foreign).unwrap().data.len(), 17);
    }
}
