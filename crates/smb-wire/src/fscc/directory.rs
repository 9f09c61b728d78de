//! Directory entries: encodes the eleven classes of QUERY_DIRECTORY ([MS-FSCC] 2.4.8, .10, .15,
//! .18-.24, .33) from one set of facts, and decodes them.
//!
//! [`DirectoryEntry`] holds all facts about an entry; [`DirectoryFormat`] describes which of them a
//! class contains and where; [`DirectoryWriter`] packs entries into the client's buffer, 8-aligned
//! and chained, with zero as the last offset. An entry that does not fit leaves no trace. The
//! caller chooses the status ([MS-FSA] 2.1.5.6.3).

use bytes::{BufMut, BytesMut};

use super::class::FileInformationClass;
use super::record::{Chain, ChainWriter};
use crate::codec::{Malformed, Reader, size};
use crate::file_attributes::FileAttributes;
use crate::ids::FileTime;
use crate::utf16;

/// Bytes of the short name's field: twelve units of UTF-16.
const SHORT_NAME_BYTES: usize = 24;

/// All facts that any class contains about a directory entry. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryEntry<S> {
    /// Position in the directory; 0 where the file system has none.
    pub file_index: u32,
    /// The time of creation.
    pub creation_time: FileTime,
    /// The time of the last access.
    pub last_access_time: FileTime,
    /// The time of the last change of the data.
    pub last_write_time: FileTime,
    /// The time of the last change of data or metadata.
    pub change_time: FileTime,
    /// Length of the data.
    pub end_of_file: u64,
    /// Bytes reserved on disk.
    pub allocation_size: u64,
    /// Its attributes; the reparse tag is used only with REPARSE_POINT.
    pub file_attributes: FileAttributes,
    /// Length of its extended attributes.
    pub ea_size: u32,
    /// The 8.3 name; empty for none, truncated after twelve units.
    pub short_name: S,
    /// 64-bit id.
    pub file_id: u64,
    /// 128-bit id.
    pub file_id_128: [u8; 16],
    /// Reparse tag, 0 for none.
    pub reparse_tag: u32,
    /// The name.
    pub file_name: S,
}

/// A decoded entry, as a client sees it. Fields that the class lacks are empty. The size of the extended attributes is
/// the reparse tag in classes without a field for it.
pub type OwnedDirectoryEntry = DirectoryEntry<String>;

/// The fields of a class behind FileNameLength, in this order on the wire (except for
/// IdBothDirectory, whose id follows the short name).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryFormat {
    class: FileInformationClass,
    /// Times, sizes and attributes (all but Names).
    facts: bool,
    ea_size: bool,
    reparse_tag: bool,
    file_id: bool,
    file_id_128: bool,
    short_name: bool,
    /// Bytes before the name.
    fixed: usize,
}

impl DirectoryFormat {
    /// Returns the format of a class; `None` if it is not for QUERY_DIRECTORY.
    pub fn of(class: FileInformationClass) -> Option<Self> {
        use FileInformationClass as C;
        // The columns: facts, EaSize, reparse tag, id, id of 128 bits, short name; and the bytes before the name.
        let (fields, fixed) = match class {
            C::NAMES => ([0, 0, 0, 0, 0, 0], 12),
            C::DIRECTORY => ([1, 0, 0, 0, 0, 0], 64),
            C::FULL_DIRECTORY => ([1, 1, 0, 0, 0, 0], 68),
            C::BOTH_DIRECTORY => ([1, 1, 0, 0, 0, 1], 94),
            C::ID_FULL_DIRECTORY => ([1, 1, 0, 1, 0, 0], 80),
            C::ID_BOTH_DIRECTORY => ([1, 1, 0, 1, 0, 1], 104),
            C::ID_EXTD_DIRECTORY => ([1, 1, 1, 0, 1, 0], 88),
            C::ID_64_EXTD_DIRECTORY => ([1, 1, 1, 1, 0, 0], 80),
            C::ID_64_EXTD_BOTH_DIRECTORY => ([1, 1, 1, 1, 0, 1], 106),
            C::ID_ALL_EXTD_DIRECTORY => ([1, 1, 1, 1, 1, 0], 96),
            C::ID_ALL_EXTD_BOTH_DIRECTORY => ([1, 1, 1, 1, 1, 1], 122),
            _ => return None,
        };
        let [
            facts,
            ea_size,
            reparse_tag,
            file_id,
            file_id_128,
            short_name,
        ] = fields.map(|has| has == 1);
        Some(Self {
            class,
            facts,
            ea_size,
            reparse_tag,
            file_id,
            file_id_128,
            short_name,
            fixed,
        })
    }

    /// The number of bytes before the name: a smaller output buffer is STATUS_INFO_LENGTH_MISMATCH.
    pub const fn fixed(self) -> usize {
        self.fixed
    }

    /// Returns whether entries of the class contain an 8.3 name.
    pub const fn has_short_name(self) -> bool {
        self.short_name
    }

    /// Returns whether entries of the class contain the size of the extended attributes.
    pub const fn has_ea_size(self) -> bool {
        self.ea_size
    }

    /// Appends an entry. The name is written first, behind space for the fields before it: then its length is known,
    /// and the fields are filled in without checking the buffer's capacity each time.
    fn put(self, entry: &DirectoryEntry<&str>, out: &mut BytesMut) {
        let start = out.len();
        out.put_bytes(0, self.fixed);
        utf16::put(out, entry.file_name);
        let name_len = out.len() - start - self.fixed;
        let front = out.get_mut(start..start + self.fixed);
        self.put_front(entry, name_len, front.unwrap_or_default());
    }

    /// Fills in the fields before the name; `out` has exactly their length.
    fn put_front(self, entry: &DirectoryEntry<&str>, name_len: usize, mut out: &mut [u8]) {
        let out = &mut out;
        field(out, [0; 4]);
        field(out, entry.file_index.to_le_bytes());
        if self.facts {
            field(out, entry.creation_time.0.to_le_bytes());
            field(out, entry.last_access_time.0.to_le_bytes());
            field(out, entry.last_write_time.0.to_le_bytes());
            field(out, entry.change_time.0.to_le_bytes());
            field(out, entry.end_of_file.to_le_bytes());
            field(out, entry.allocation_size.to_le_bytes());
            field(out, entry.file_attributes.0.to_le_bytes());
        }
        let name_len = u32::try_from(name_len).unwrap_or(u32::MAX);
        field(out, name_len.to_le_bytes());
        if self.class == FileInformationClass::ID_BOTH_DIRECTORY {
            self.put_id_both(entry, out);
        } else {
            self.put_extra(entry, out);
        }
    }

    /// The value of EaSize, which is the tag of a reparse point in classes without a field for it
    /// ([MS-FSCC] 2.4.8 and others).
    fn ea_size_of(self, entry: &DirectoryEntry<&str>) -> u32 {
        let is_reparse = entry
            .file_attributes
            .contains(FileAttributes::REPARSE_POINT);
        if is_reparse && !self.reparse_tag {
            entry.reparse_tag
        } else {
            entry.ea_size
        }
    }

    fn put_extra(self, entry: &DirectoryEntry<&str>, out: &mut &mut [u8]) {
        if self.ea_size {
            field(out, self.ea_size_of(entry).to_le_bytes());
        }
        if self.reparse_tag {
            field(out, entry.reparse_tag.to_le_bytes());
        } else if self.file_id {
            // FileIdFullDirectory aligns its id.
            field(out, [0; 4]);
        }
        if self.file_id {
            field(out, entry.file_id.to_le_bytes());
        }
        if self.file_id_128 {
            field(out, entry.file_id_128);
        }
        if self.short_name {
            put_short_name(entry.short_name, out);
        }
    }

    fn put_id_both(self, entry: &DirectoryEntry<&str>, out: &mut &mut [u8]) {
        field(out, self.ea_size_of(entry).to_le_bytes());
        put_short_name(entry.short_name, out);
        field(out, [0; 2]);
        field(out, entry.file_id.to_le_bytes());
    }

    fn get(self, bytes: &[u8]) -> Result<OwnedDirectoryEntry, Malformed> {
        let mut reader = Reader::new(bytes, "directory entry");
        reader.skip(4)?;
        let mut entry = OwnedDirectoryEntry {
            file_index: reader.u32()?,
            ..OwnedDirectoryEntry::default()
        };
        if self.facts {
            entry.creation_time = FileTime(reader.u64()?);
            entry.last_access_time = FileTime(reader.u64()?);
            entry.last_write_time = FileTime(reader.u64()?);
            entry.change_time = FileTime(reader.u64()?);
            entry.end_of_file = reader.u64()?;
            entry.allocation_size = reader.u64()?;
            entry.file_attributes = FileAttributes(reader.u32()?);
        }
        let name_len = size(reader.u32()?);
        if self.ea_size {
            entry.ea_size = reader.u32()?;
        }
        if self.class == FileInformationClass::ID_BOTH_DIRECTORY {
            entry.short_name = get_short_name(&mut reader)?;
            reader.skip(2)?;
            entry.file_id = reader.u64()?;
        } else {
            self.get_extra(&mut reader, &mut entry)?;
        }
        entry.file_name = utf16::decode(reader.take(name_len)?, reader.malformed().what)?;
        Ok(entry)
    }

    fn get_extra(
        self,
        reader: &mut Reader<'_>,
        entry: &mut OwnedDirectoryEntry,
    ) -> Result<(), Malformed> {
        if self.reparse_tag {
            entry.reparse_tag = reader.u32()?;
        } else if self.file_id {
            reader.skip(4)?;
        }
        if self.file_id {
            entry.file_id = reader.u64()?;
        }
        if self.file_id_128 {
            entry.file_id_128 = reader.array()?;
        }
        if self.short_name {
            entry.short_name = get_short_name(reader)?;
        }
        Ok(())
    }
}

/// Fills in the next field. The space suffices: it has the length of all fields of the class.
#[inline]
fn field<const N: usize>(out: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((place, rest)) = std::mem::take(out).split_first_chunk_mut() {
        *place = bytes;
        *out = rest;
    }
}

/// Fills in ShortNameLength, a reserved byte, and the short name's field of fixed length.
fn put_short_name(name: &str, out: &mut &mut [u8]) {
    let mut short = [0; SHORT_NAME_BYTES];
    let mut len = 0;
    let (places, _) = short.as_chunks_mut();
    for (place, unit) in places.iter_mut().zip(name.encode_utf16()) {
        *place = unit.to_le_bytes();
        len += 2;
    }
    field(out, [len, 0]);
    field(out, short);
}

fn get_short_name(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let len = usize::from(reader.u8()?);
    reader.skip(1)?;
    let field = reader.take(SHORT_NAME_BYTES)?;
    let name = field.get(..len).ok_or(reader.malformed())?;
    Ok(utf16::decode_lossy(name))
}

/// The result of appending an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// The entry was appended.
    Pushed,
    /// The entry does not fit behind the others; it belongs into the next response.
    Full,
    /// Not even the first entry fits. If its fixed part does, the status is STATUS_BUFFER_OVERFLOW.
    FirstDoesNotFit,
}

/// Packs entries of one class into a buffer of the client's length.
#[derive(Debug)]
pub struct DirectoryWriter {
    format: DirectoryFormat,
    chain: ChainWriter,
}

impl DirectoryWriter {
    /// Creates a list of `format` of at most `limit` bytes.
    pub fn new(format: DirectoryFormat, limit: usize) -> Self {
        Self {
            format,
            chain: ChainWriter::new(limit, 8),
        }
    }

    /// Reserves capacity for a number of bytes, at most up to the limit; only a hint.
    pub fn reserve(&mut self, bytes: usize) {
        self.chain.reserve(bytes);
    }

    /// Appends an entry if it fits entirely.
    pub fn push(&mut self, entry: &DirectoryEntry<&str>) -> Pushed {
        let format = self.format;
        if self.chain.push(|out| format.put(entry, out)) {
            Pushed::Pushed
        } else if self.chain.is_empty() {
            Pushed::FirstDoesNotFit
        } else {
            Pushed::Full
        }
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// The current length in bytes.
    pub fn len(&self) -> usize {
        self.chain.len()
    }

    /// The list.
    #[must_use]
    pub fn finish(self) -> BytesMut {
        self.chain.finish()
    }
}

/// Iterator over the entries of a QUERY_DIRECTORY response; ends after the first error.
#[derive(Debug, Clone)]
pub struct DirectoryEntries<'a> {
    format: DirectoryFormat,
    chain: Chain<'a>,
}

impl<'a> DirectoryEntries<'a> {
    /// The entries of `format` in `bytes`.
    pub fn new(format: DirectoryFormat, bytes: &'a [u8]) -> Self {
        Self {
            format,
            chain: Chain::new(bytes, "directory entries"),
        }
    }
}

impl Iterator for DirectoryEntries<'_> {
    type Item = Result<OwnedDirectoryEntry, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.chain.next()?;
        Some(entry.and_then(|bytes| self.format.get(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> DirectoryEntry<&str> {
        DirectoryEntry {
            file_index: 1,
            creation_time: FileTime(2),
            last_access_time: FileTime(3),
            last_write_time: FileTime(4),
            change_time: FileTime(5),
            end_of_file: 6,
            allocation_size: 7,
            file_attributes: FileAttributes::ARCHIVE,
            ea_size: 8,
            short_name: "ABCDEF~1.TXT",
            file_id: 9,
            file_id_128: [10; 16],
            reparse_tag: 0,
            file_name: name,
        }
    }

    fn formats() -> Vec<DirectoryFormat> {
        FileInformationClass::KNOWN
            .iter()
            .filter_map(|class| DirectoryFormat::of(*class))
            .collect()
    }

    #[test]
    fn every_class_round_trips_its_fields() {
        assert_eq!(formats().len(), 11);
        for format in formats() {
            let mut writer = DirectoryWriter::new(format, 1000);
            assert_eq!(writer.push(&sample("grün.txt")), Pushed::Pushed);
            assert_eq!(writer.push(&sample("b")), Pushed::Pushed);
            let out = writer.finish();
            let first = usize::from(out[0]);
            assert_eq!(
                first,
                (format.fixed() + 16).next_multiple_of(8),
                "{format:?}"
            );
            assert_eq!(out.len(), first + format.fixed() + 2);
            let read: Vec<_> = DirectoryEntries::new(format, &out)
                .collect::<Result<_, _>>()
                .unwrap();
            assert_eq!(read.len(), 2);
            assert_eq!(read[0].file_name, "grün.txt");
            assert_eq!(read[1].file_name, "b");
            assert_eq!(read[0].end_of_file, if format.facts { 6 } else { 0 });
            assert_eq!(read[0].file_id, if format.file_id { 9 } else { 0 });
            assert_eq!(read[0].short_name.is_empty(), !format.short_name);
            assert_eq!(
                read[0].file_id_128[0],
                if format.file_id_128 { 10 } else { 0 }
            );
        }
    }

    #[test]
    fn a_reparse_tag_goes_where_the_class_has_room() {
        let mut link = sample("l");
        link.file_attributes = FileAttributes::REPARSE_POINT;
        link.reparse_tag = 0xa000_000c;
        for format in formats().into_iter().filter(|format| format.ea_size) {
            let mut writer = DirectoryWriter::new(format, 1000);
            assert_eq!(writer.push(&link), Pushed::Pushed);
            let out = writer.finish();
            let at = if format.reparse_tag { 68 } else { 64 };
            assert_eq!(out[at..at + 4], [0x0c, 0, 0, 0xa0], "{format:?}");
        }
    }

    #[test]
    fn full_buffers_are_reported() {
        let format = DirectoryFormat::of(FileInformationClass::ID_BOTH_DIRECTORY).unwrap();
        let mut writer = DirectoryWriter::new(format, 110);
        assert_eq!(writer.push(&sample("abc")), Pushed::Pushed);
        assert_eq!(writer.push(&sample("d")), Pushed::Full);
        let out = writer.finish();
        assert_eq!(out.len(), 110);
        assert_eq!(out[..4], [0; 4]);

        let mut writer = DirectoryWriter::new(format, 106);
        assert_eq!(writer.push(&sample("abc")), Pushed::FirstDoesNotFit);
    }

    #[test]
    fn forged_chains_are_an_error() {
        let format = DirectoryFormat::of(FileInformationClass::NAMES).unwrap();
        for bytes in [
            &b"\x01\0\0\0"[..],
            b"\xff\0\0\0\0\0\0\0\0\0\0\0",
            b"\x04\0\0\0",
        ] {
            let read: Vec<_> = DirectoryEntries::new(format, bytes).collect();
            assert!(read.last().unwrap().is_err());
        }
    }
}
