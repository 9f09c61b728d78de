//! Encoding and decoding: one error, one reader, a few functions for writing.
//!
//! Fixed parts are read in order through [`Reader`] (nom's `take` behind short names); variable
//! parts are located with [`slice_at`] in the whole message, because offsets in SMB2 count from the
//! SMB2 header. Encoders write directly into a `BytesMut`; a field whose value is known only later
//! is written as a placeholder and filled through [`Patch`].
//!
//! Invariants: nothing here panics or indexes; arithmetic on numbers from the wire is checked.

use bytes::{BufMut, BytesMut};
use nom::IResult;
use nom::bytes::complete::take;

/// The one decode error: the bytes are not the structure they claim to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The structure or field that was being read, for logs and tests.
    pub what: &'static str,
}

impl Malformed {
    /// Creates an error that names the structure or field that could not be read.
    pub const fn new(what: &'static str) -> Self {
        Self { what }
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "malformed {}", self.what)
    }
}

impl core::error::Error for Malformed {}

/// Returns the variable part of a message: `len` bytes at `offset` from the SMB2 header, and not before `floor`: a
/// buffer that overlaps the header or the fixed part of its own message is forged.
///
/// An empty part is legal at any offset: clients send 0, the end of the message, or a stale value.
///
/// # Errors
/// [`Malformed`] when a non-empty part is not entirely inside `message`, or begins before `floor`.
pub fn slice_at<'a>(
    message: &'a [u8],
    floor: usize,
    offset: usize,
    len: usize,
    what: &'static str,
) -> Result<&'a [u8], Malformed> {
    if len == 0 {
        return Ok(&[]);
    }
    let end = offset.checked_add(len).filter(|_| offset >= floor);
    let part = end.and_then(|end| message.get(offset..end));
    part.ok_or(Malformed { what })
}

/// Appends a fixed part: the bytes that `put` writes, and zeros up to `N` bytes. This is faster
/// than appending every field separately, because the capacity is checked only once.
///
/// # Panics
/// When `put` writes more than `N` bytes.
pub fn put_fixed<const N: usize>(out: &mut BytesMut, put: impl FnOnce(&mut &mut [u8])) {
    let mut bytes = [0; N];
    put(&mut bytes.as_mut_slice());
    out.put_slice(&bytes);
}

/// Converts a 32-bit length or offset of the wire.
pub const fn size(number: u32) -> usize {
    // All supported targets have addresses of at least 32 bits.
    number as usize
}

/// Reads the fixed part of a structure from front to back.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Creates a reader over `bytes`; its errors name `what`.
    pub const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    /// Creates a reader over the body of an SMB2 message (which begins with its header), behind
    /// StructureSize, which is checked.
    ///
    /// # Errors
    /// [`Malformed`] when there is no body or StructureSize has another value.
    pub fn body(
        message: &'a [u8],
        structure_size: u16,
        what: &'static str,
    ) -> Result<Self, Malformed> {
        let body = message.get(HEADER_SIZE..).ok_or(Malformed { what })?;
        let mut reader = Self::new(body, what);
        reader.structure_size(structure_size)?;
        Ok(reader)
    }

    fn parse<T>(&mut self, parsed: IResult<&'a [u8], T, ()>) -> Result<T, Malformed> {
        let (rest, value) = parsed.map_err(|_| Malformed { what: self.what })?;
        self.rest = rest;
        Ok(value)
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the bytes, as for all the others below.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// The variable part of `message` at `offset` from the SMB2 header. This reader has read the fixed part of that
    /// message, in which the variable part must not begin (see [`slice_at`]).
    ///
    /// # Errors
    /// [`Malformed`] when the part lies outside `message` or begins in its fixed part.
    pub fn buffer(
        &self,
        message: &'a [u8],
        offset: impl Into<u32>,
        len: impl Into<u32>,
    ) -> Result<&'a [u8], Malformed> {
        let floor = message.len().saturating_sub(self.rest.len());
        let (offset, len) = (size(offset.into()), size(len.into()));
        slice_at(message, floor, offset, len, self.what)
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        self.parse(take(len)(self.rest))
    }

    /// The next `N` bytes by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| Malformed { what: self.what })
    }

    /// Skips `len` bytes (reserved fields, padding).
    pub fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.take(len).map(|_| ())
    }

    /// Reads the StructureSize field, which must be `expected`.
    ///
    /// # Errors
    /// [`Malformed`] when it does not.
    pub fn structure_size(&mut self, expected: u16) -> Result<(), Malformed> {
        if self.u16()? == expected {
            Ok(())
        } else {
            Err(Malformed { what: self.what })
        }
    }

    /// The bytes that have not been read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the error that names the structure of this reader.
    pub const fn malformed(&self) -> Malformed {
        Malformed { what: self.what }
    }
}

/// Returns an iterator over the `count` members of a list, which `read` reads; each begins at a multiple of eight from
/// the first. It ends after the first malformed one.
pub(crate) fn counted_list<'a, T>(
    list: &'a [u8],
    count: usize,
    what: &'static str,
    read: fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> impl Iterator<Item = Result<T, Malformed>> {
    let (mut rest, mut left) = (list, count);
    core::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let mut reader = Reader::new(rest, what);
        let member = read(&mut reader).inspect_err(|_| left = 0);
        let used = (rest.len() - reader.rest().len()).next_multiple_of(8);
        rest = rest.get(used..).unwrap_or(&[]);
        Some(member)
    })
}

/// Length of the SMB2 header, which precedes every message body.
pub const HEADER_SIZE: usize = 64;

/// A position in the output whose value is filled in later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Patch {
    at: usize,
}

impl Patch {
    /// Writes two zero bytes to be filled later.
    pub fn u16(out: &mut BytesMut) -> Self {
        let at = out.len();
        out.put_u16_le(0);
        Self { at }
    }

    /// Writes four zero bytes to be filled later.
    pub fn u32(out: &mut BytesMut) -> Self {
        let at = out.len();
        out.put_u32_le(0);
        Self { at }
    }

    /// The position `at` in the output, which must have been written already.
    pub const fn at(at: usize) -> Self {
        Self { at }
    }

    /// Writes a 16-bit number to the position.
    pub fn set_u16(self, out: &mut BytesMut, value: u16) {
        self.set(out, &value.to_le_bytes());
    }

    /// Writes a 32-bit number to the position.
    pub fn set_u32(self, out: &mut BytesMut, value: u32) {
        self.set(out, &value.to_le_bytes());
    }

    fn set(self, out: &mut BytesMut, bytes: &[u8]) {
        let place = out.get_mut(self.at..self.at.saturating_add(bytes.len()));
        debug_assert!(place.is_some(), "patch outside the output");
        if let Some(place) = place {
            place.copy_from_slice(bytes);
        }
    }
}

/// Offset and length of the buffer of a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// From the SMB2 header.
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl Place {
    /// The place of a buffer behind a fixed part of `fixed` bytes.
    pub(crate) fn behind(fixed: usize, buffer: &[u8]) -> Self {
        let number = |size| u32::try_from(size).unwrap_or(u32::MAX);
        Self {
            offset: number(HEADER_SIZE + fixed),
            length: number(buffer.len()),
        }
    }

    pub(crate) fn none_if_empty(self) -> Self {
        match self.length {
            0 => Self::default(),
            _ => self,
        }
    }
}

/// Offset and length, of 32 bits each, of a buffer that is appended later.
pub(crate) struct Buffer {
    offset: Patch,
    len: Patch,
}

impl Buffer {
    pub(crate) fn reserve(out: &mut BytesMut) -> Self {
        Self {
            offset: Patch::u32(out),
            len: Patch::u32(out),
        }
    }

    pub(crate) fn put(self, out: &mut BytesMut, start: usize, bytes: &[u8]) {
        let (bytes, len) = fitting_u32(bytes);
        self.offset.set_u32(out, offset_u32(out, start));
        self.len.set_u32(out, len);
        out.put_slice(bytes);
    }
}

/// Appends zeros until the length of the output, counted from `start`, is a multiple of `align`.
pub fn pad_to(out: &mut BytesMut, start: usize, align: usize) {
    let len = out.len().saturating_sub(start);
    let padded = len.next_multiple_of(align.max(1));
    out.put_bytes(0, padded - len);
}

/// The length of the output from `start` on, as the value of a 32-bit offset field.
pub fn offset_u32(out: &BytesMut, start: usize) -> u32 {
    u32::try_from(out.len().saturating_sub(start)).unwrap_or(u32::MAX)
}

/// The length of the output from `start` on, as the value of a 16-bit offset field.
pub fn offset_u16(out: &BytesMut, start: usize) -> u16 {
    u16::try_from(out.len().saturating_sub(start)).unwrap_or(u16::MAX)
}

/// Returns the part of `bytes` that fits a 16-bit length field, and its length. Callers stay below
/// this limit; a longer field would produce an unreadable message.
pub fn fitting_u16(bytes: &[u8]) -> (&[u8], u16) {
    debug_assert!(bytes.len() <= usize::from(u16::MAX), "field too long");
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    (bytes.get(..usize::from(len)).unwrap_or(bytes), len)
}

/// As [`fitting_u16`] for a 32-bit length.
pub fn fitting_u32(bytes: &[u8]) -> (&[u8], u32) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    (bytes.get(..size(len)).unwrap_or(bytes), len)
}

/// Appends a variable part of a request whose StructureSize counts one byte of it, and at least one
/// byte: servers refuse a message without that byte.
pub(crate) fn put_at_least_a_byte(out: &mut BytesMut, bytes: &[u8]) {
    if bytes.is_empty() {
        out.put_u8(0);
    } else {
        out.put_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside_the_message() {
        let message = [1u8, 2, 3, 4];
        let none = Err(Malformed::new("x"));
        assert_eq!(slice_at(&message, 0, 1, 3, "x"), Ok(&message[1..4]));
        assert_eq!(slice_at(&message, 0, 2, 3, "x"), none);
        assert_eq!(slice_at(&message, 0, usize::MAX, 2, "x"), none);
        assert_eq!(slice_at(&message, 0, 9000, 0, "x"), Ok(&[][..]));
        assert_eq!(slice_at(&message, 2, 1, 1, "x"), none);
        assert_eq!(slice_at(&message, 2, 2, 1, "x"), Ok(&message[2..3]));
    }

    #[test]
    fn reader_reads_in_order_and_stops_at_the_end() {
        let bytes = [1u8, 2, 0, 3, 0, 0, 0, 9];
        let mut reader = Reader::new(&bytes, "thing");
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(2));
        assert_eq!(reader.u32(), Ok(3));
        assert_eq!(reader.u16(), Err(Malformed { what: "thing" }));
        assert_eq!(reader.rest(), [9]);
        assert_eq!(reader.array::<1>(), Ok([9]));
        assert!(reader.is_empty());
    }

    #[test]
    fn patches_fill_their_place() {
        let mut out = BytesMut::from(&b"abc"[..]);
        let patch = Patch::u32(&mut out);
        pad_to(&mut out, 3, 8);
        patch.set_u32(&mut out, 0x0102_0304);
        assert_eq!(&out[..], b"abc\x04\x03\x02\x01\0\0\0\0");
        assert_eq!(offset_u16(&out, 3), 8);
    }
}
