//! NDR of 32 bits (C706 chapter 14; [MS-RPCE] 2.2.4): a reader with limits and a writer.
//!
//! Alignment counts from the start of the stub. The referent of a pointer inside a structure
//! follows the structure; callers encode and decode in that order themselves. The reader accepts
//! any non-zero referent id as a pointer and never follows two ids to one referent (full pointers
//! do not occur in these interfaces).

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, pad_to, size};
use crate::dtyp::{MAX_SUB_AUTHORITIES, Sid};

/// Maximum length of a string in UTF-16 units.
pub const MAX_STRING_UNITS: usize = 4_096;

/// Maximum number of elements of an array of structures ([MS-SAMR] 3.1.5.11.1 allows at most 1000 names).
pub const MAX_ARRAY_ELEMENTS: usize = 1_024;

/// A handle to state of the server, opaque to the client; all zeros means no handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ContextHandle(pub [u8; 20]);

/// Reads a stub from front to back.
#[derive(Debug, Clone, Copy)]
pub struct NdrReader<'a> {
    reader: Reader<'a>,
    /// Length of the stub, in bytes.
    len: usize,
}

const MALFORMED: Malformed = Malformed::new("RPC stub");

impl<'a> NdrReader<'a> {
    /// A reader at the start of a stub.
    pub const fn new(stub: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(stub, MALFORMED.what),
            len: stub.len(),
        }
    }

    /// The next `len` bytes, unaligned.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the stub, as for all the others below.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        self.reader.take(len)
    }

    /// Skips padding before a value aligned to `to`.
    pub fn align(&mut self, to: usize) -> Result<(), Malformed> {
        let at = self.len - self.reader.rest().len();
        self.reader.skip(at.next_multiple_of(to) - at)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.reader.u8()
    }

    /// A 16-bit number, aligned.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.align(2)?;
        self.reader.u16()
    }

    /// A 32-bit number, aligned.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.align(4)?;
        self.reader.u32()
    }

    /// Reads a pointer; returns whether it points to something.
    pub fn pointer(&mut self) -> Result<bool, Malformed> {
        Ok(self.u32()? != 0)
    }

    /// A context handle.
    pub fn handle(&mut self) -> Result<ContextHandle, Malformed> {
        self.align(4)?;
        self.reader.array().map(ContextHandle)
    }

    /// The count of a conformant array.
    ///
    /// # Errors
    /// [`Malformed`] over [`MAX_ARRAY_ELEMENTS`].
    pub fn max_count(&mut self) -> Result<usize, Malformed> {
        let count = size(self.u32()?);
        if count > MAX_ARRAY_ELEMENTS {
            return Err(MALFORMED);
        }
        Ok(count)
    }

    /// The actual count of a conformant varying array that begins at its start.
    ///
    /// # Errors
    /// [`Malformed`] for another start, a count over the maximum or over `limit`.
    pub fn actual_count(&mut self, limit: usize) -> Result<usize, Malformed> {
        let max = size(self.u32()?);
        let offset = self.u32()?;
        let actual = size(self.u32()?);
        if offset != 0 || actual > max || actual > limit {
            return Err(MALFORMED);
        }
        Ok(actual)
    }

    /// Reads a conformant varying string of UTF-16; a final NUL is dropped.
    ///
    /// # Errors
    /// [`Malformed`] over [`MAX_STRING_UNITS`] or for half a surrogate pair.
    pub fn wide_string(&mut self) -> Result<String, Malformed> {
        let units = self.actual_count(MAX_STRING_UNITS)?;
        let bytes = self.take(units * 2)?;
        let mut text = crate::utf16::decode(bytes, MALFORMED.what)?;
        if text.ends_with('\0') {
            text.pop();
        }
        Ok(text)
    }

    /// A pointer to a string.
    ///
    /// # Errors
    /// [`Malformed`] as [`NdrReader::wide_string`].
    pub fn unique_wide_string(&mut self) -> Result<Option<String>, Malformed> {
        if self.pointer()? {
            self.wide_string().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Reads the fixed part of an RPC_UNICODE_STRING ([MS-DTYP] 2.3.10); returns whether its text follows.
    ///
    /// # Errors
    /// [`Malformed`] for an odd length.
    pub fn unicode_string_head(&mut self) -> Result<bool, Malformed> {
        self.align(4)?;
        let len = self.u16()?;
        let _maximum = self.u16()?;
        if !len.is_multiple_of(2) {
            return Err(MALFORMED);
        }
        self.pointer()
    }

    /// Reads an RPC_UNICODE_STRING whose text follows immediately (not inside an array).
    ///
    /// # Errors
    /// [`Malformed`] as the parts.
    pub fn unicode_string(&mut self) -> Result<String, Malformed> {
        let present = self.unicode_string_head()?;
        self.unicode_text(present)
    }

    fn unicode_text(&mut self, present: bool) -> Result<String, Malformed> {
        if present {
            self.wide_string()
        } else {
            Ok(String::new())
        }
    }

    /// Reads `count` RPC_UNICODE_STRINGs: the fixed parts, then the texts.
    ///
    /// # Errors
    /// [`Malformed`] as the parts.
    pub fn unicode_strings(&mut self, count: usize) -> Result<Vec<String>, Malformed> {
        let heads = (0..count)
            .map(|_| self.unicode_string_head())
            .collect::<Result<Vec<_>, _>>()?;
        heads
            .into_iter()
            .map(|present| self.unicode_text(present))
            .collect()
    }

    /// An RPC_SID ([MS-DTYP] 2.4.2.3).
    ///
    /// # Errors
    /// [`Malformed`] for contradictory counts or a malformed SID.
    pub fn sid(&mut self) -> Result<Sid, Malformed> {
        let count = size(self.u32()?);
        if count > MAX_SUB_AUTHORITIES {
            return Err(MALFORMED);
        }
        let sid = Sid::read(self.take(Sid::MIN + 4 * count)?)?;
        if sid.sub_authorities().len() != count {
            return Err(MALFORMED);
        }
        Ok(sid)
    }
}

/// Writes a stub from front to back.
#[derive(Debug, Default)]
pub struct NdrWriter {
    out: BytesMut,
    pointers: u32,
}

impl NdrWriter {
    /// An empty stub.
    pub fn new() -> Self {
        Self::default()
    }

    /// The stub.
    #[must_use]
    pub fn finish(self) -> BytesMut {
        self.out
    }

    /// The stub of a response, which ends with the result of the operation.
    #[must_use]
    pub fn finish_with(mut self, result: u32) -> BytesMut {
        self.u32(result);
        self.out
    }

    /// Zeros before a value aligned to `to`.
    pub fn align(&mut self, to: usize) {
        pad_to(&mut self.out, 0, to);
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.out.put_u8(value);
    }

    /// A 16-bit number, aligned.
    pub fn u16(&mut self, value: u16) {
        self.align(2);
        self.out.put_u16_le(value);
    }

    /// A 32-bit number, aligned.
    pub fn u32(&mut self, value: u32) {
        self.align(4);
        self.out.put_u32_le(value);
    }

    /// Writes a count, which is always far below 2^32.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    /// Writes a pointer, with a referent id of its own if it points to something.
    pub fn pointer(&mut self, present: bool) {
        if present {
            let id = 0x0002_0000 + 4 * self.pointers;
            self.pointers += 1;
            self.u32(id);
        } else {
            self.u32(0);
        }
    }

    /// Writes the count of an array, the pointer to it, and the beginning of the array itself, whose elements the
    /// caller appends. An empty array has no pointer.
    pub fn array_head(&mut self, count: usize) {
        self.count(count);
        self.pointer(count > 0);
        if count > 0 {
            self.count(count);
        }
    }

    /// A context handle.
    pub fn handle(&mut self, handle: &ContextHandle) {
        self.align(4);
        self.bytes(&handle.0);
    }

    /// A conformant varying string with its NUL.
    pub fn wide_string(&mut self, text: &str) {
        self.text(text, 1);
        self.out.put_u16_le(0);
    }

    /// A varying string with its NUL; the type limits its length.
    pub fn varying_string(&mut self, text: &str) {
        self.varying_text(text, 1);
        self.out.put_u16_le(0);
    }

    /// Writes the counts of a text, with the units that follow it, and the text.
    fn text(&mut self, text: &str, more: usize) {
        self.count(crate::utf16::len_bytes(text) / 2 + more);
        self.varying_text(text, more);
    }

    fn varying_text(&mut self, text: &str, more: usize) {
        self.u32(0);
        self.count(crate::utf16::len_bytes(text) / 2 + more);
        crate::utf16::put(&mut self.out, text);
    }

    /// Writes the fixed part of an RPC_UNICODE_STRING, whose text must follow by
    /// [`NdrWriter::unicode_text`]. An empty text gets a pointer as well, because some clients
    /// print it without a check. Texts beyond the 16-bit length are truncated, in both functions.
    pub fn unicode_string_head(&mut self, text: &str) {
        let len = u16::try_from(crate::utf16::len_bytes(fitting(text))).unwrap_or(0);
        self.align(4);
        self.u16(len);
        self.u16(len);
        self.pointer(true);
    }

    /// The fixed part of an RPC_UNICODE_STRING without text.
    pub fn no_unicode_string(&mut self) {
        self.align(4);
        self.u16(0);
        self.u16(0);
        self.pointer(false);
    }

    /// The text of an RPC_UNICODE_STRING.
    pub fn unicode_text(&mut self, text: &str) {
        self.text(fitting(text), 0);
    }

    /// An RPC_SID.
    pub fn sid(&mut self, sid: &Sid) {
        self.count(sid.sub_authorities().len());
        sid.encode(&mut self.out);
    }
}

/// Returns the part of a text that fits a 16-bit length in bytes; no character takes more than four.
fn fitting(text: &str) -> &str {
    const MAX_BYTES: usize = u16::MAX as usize / 4;
    text.get(..text.floor_char_boundary(MAX_BYTES))
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_sids_round_trip_aligned() {
        let mut writer = NdrWriter::new();
        writer.u8(1);
        writer.pointer(true);
        writer.wide_string("ab");
        writer.u16(7);
        writer.unicode_string_head("xyz");
        writer.unicode_text("xyz");
        writer.sid(&Sid::BUILTIN_USERS);
        writer.handle(&ContextHandle([9; 20]));
        let stub = writer.finish();
        let mut reader = NdrReader::new(&stub);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.unique_wide_string().unwrap().as_deref(), Some("ab"));
        assert_eq!(reader.u16(), Ok(7));
        assert_eq!(reader.unicode_string().as_deref(), Ok("xyz"));
        assert_eq!(reader.sid(), Ok(Sid::BUILTIN_USERS));
        assert_eq!(reader.handle(), Ok(ContextHandle([9; 20])));
        assert!(reader.u8().is_err());
    }

    #[test]
    fn untrusted_counts_are_limited() {
        let huge = [0xff; 12];
        assert!(NdrReader::new(&huge).wide_string().is_err());
        assert!(NdrReader::new(&huge).max_count().is_err());
        assert!(NdrReader::new(&huge).sid().is_err());
        // The actual count exceeds the maximum; the offset is not zero.
        let string = |words: [u32; 3]| {
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            NdrReader::new(&[&bytes[..], &[0; 8]].concat()).wide_string()
        };
        assert!(string([1, 0, 2]).is_err());
        assert!(string([2, 1, 1]).is_err());
        assert!(string([2, 0, 2]).is_ok());
    }
}
