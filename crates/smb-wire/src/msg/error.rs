//! The ERROR response ([MS-SMB2] 2.2.2): the body of every response whose status is an error
//! (and of some warnings), with the error contexts of 3.1.1 and the data of a symbolic link.
//!
//! There is always at least one byte of data after the fixed part.

use bytes::{BufMut, BytesMut};

use crate::codec::{
    Malformed, Patch, Reader, fitting_u16, fitting_u32, offset_u32, pad_to, put_at_least_a_byte,
    size, slice_at,
};

/// The ERROR response ([MS-SMB2] 2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorResponse<'a> {
    /// The number of error contexts in the data (3.1.1), else 0.
    pub context_count: u8,
    /// The data: error contexts if `context_count` is not zero, else data that depend on the
    /// status.
    pub data: &'a [u8],
}

impl<'a> ErrorResponse<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 9;

    /// An error without data.
    pub const EMPTY: ErrorResponse<'static> = ErrorResponse {
        context_count: 0,
        data: &[],
    };

    /// Reads the response, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the data are outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "ERROR response")?;
        let context_count = body.u8()?;
        body.skip(1)?;
        let len = size(body.u32()?);
        Ok(Self {
            context_count,
            data: body.take(len)?,
        })
    }

    /// Returns the error contexts; none if the data are bare.
    #[must_use]
    pub const fn contexts(&self) -> ErrorContexts<'a> {
        ErrorContexts {
            data: self.data,
            at: 0,
            left: self.context_count,
        }
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        let (data, len) = fitting_u32(self.data);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(self.context_count);
        out.put_u8(0);
        out.put_u32_le(len);
        put_at_least_a_byte(out, data);
    }
}

enum_of_the_wire! {
    /// The kind of an error context.
    pub struct ErrorId(u32) {
        DEFAULT = 0x0000_0000,
        SHARE_REDIRECT = 0x7264_5253,
    }
}

/// One error context ([MS-SMB2] 2.2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorContext<'a> {
    /// Its kind.
    pub error_id: ErrorId,
    /// Its data.
    pub data: &'a [u8],
}

impl ErrorContext<'_> {
    /// Appends the context to a list of them that began at `list_start` of `out`.
    pub fn encode(&self, out: &mut BytesMut, list_start: usize) {
        let (data, len) = fitting_u32(self.data);
        pad_to(out, list_start, 8);
        out.put_u32_le(len);
        out.put_u32_le(self.error_id.0);
        out.put_slice(data);
    }
}

/// Iterator over the error contexts of a response; ends after the first malformed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorContexts<'a> {
    data: &'a [u8],
    at: usize,
    left: u8,
}

impl<'a> ErrorContexts<'a> {
    fn context(&mut self) -> Result<ErrorContext<'a>, Malformed> {
        const WHAT: &str = "ERROR context";
        let rest = self.data.get(self.at..).ok_or(Malformed::new(WHAT))?;
        let mut reader = Reader::new(rest, WHAT);
        let len = size(reader.u32()?);
        let error_id = ErrorId(reader.u32()?);
        let data = reader.take(len)?;
        self.at = (self.data.len() - reader.rest().len()).next_multiple_of(8);
        Ok(ErrorContext { error_id, data })
    }
}

impl<'a> Iterator for ErrorContexts<'a> {
    type Item = Result<ErrorContext<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let context = self.context();
        if context.is_err() {
            self.left = 0;
        }
        Some(context)
    }
}

/// The data of STOPPED_ON_SYMLINK ([MS-SMB2] 2.2.2.2.1). Names are raw UTF-16LE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolicLinkError<'a> {
    /// Length in bytes of the part of the requested path behind the link.
    pub unparsed_path_length: u16,
    /// Whether the substitute name is relative to the link's directory.
    pub relative: bool,
    /// The path to use instead.
    pub substitute_name: &'a [u8],
    /// The path for display.
    pub print_name: &'a [u8],
}

impl<'a> SymbolicLinkError<'a> {
    const TAG: u32 = 0x4c4d_5953;
    const REPARSE_TAG_SYMLINK: u32 = 0xa000_000c;
    const FLAG_RELATIVE: u32 = 0x0000_0001;
    /// The number of bytes besides the names that ReparseDataLength counts.
    const COUNTED: usize = 12;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Malformed`] when tags are wrong or a name does not lie in it.
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data, "symbolic link error");
        reader.skip(4)?;
        if reader.u32()? != Self::TAG || reader.u32()? != Self::REPARSE_TAG_SYMLINK {
            return Err(reader.malformed());
        }
        reader.skip(2)?;
        let unparsed_path_length = reader.u16()?;
        let (substitute_offset, substitute_len) = (reader.u16()?, reader.u16()?);
        let (print_offset, print_len) = (reader.u16()?, reader.u16()?);
        let flags = reader.u32()?;
        let names = reader.rest();
        let name = |offset: u16, len: u16| {
            slice_at(names, offset.into(), len.into(), "symbolic link name")
        };
        Ok(Self {
            unparsed_path_length,
            relative: flags & Self::FLAG_RELATIVE != 0,
            substitute_name: name(substitute_offset, substitute_len)?,
            print_name: name(print_offset, print_len)?,
        })
    }

    /// Appends the structure.
    pub fn encode(&self, out: &mut BytesMut) {
        let (substitute, substitute_len) = fitting_u16(self.substitute_name);
        let (print, print_len) = fitting_u16(self.print_name);
        let len = Patch::u32(out);
        let start = out.len();
        out.put_u32_le(Self::TAG);
        out.put_u32_le(Self::REPARSE_TAG_SYMLINK);
        let counted = Self::COUNTED + substitute.len() + print.len();
        out.put_u16_le(u16::try_from(counted).unwrap_or(u16::MAX));
        out.put_u16_le(self.unparsed_path_length);
        out.put_u16_le(0);
        out.put_u16_le(substitute_len);
        out.put_u16_le(substitute_len);
        out.put_u16_le(print_len);
        out.put_u32_le(u32::from(self.relative));
        out.put_slice(substitute);
        out.put_slice(print);
        let total = offset_u32(out, start);
        len.set_u32(out, total);
    }
}
