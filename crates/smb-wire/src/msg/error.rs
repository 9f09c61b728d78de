//! The ERROR response ([MS-SMB2] 2.2.2): the body of every response whose status is an error
//! (and of some warnings), with the error contexts of 3.1.1.
//!
//! There is always at least one byte of data after the fixed part.

use bytes::{BufMut, BytesMut};

use crate::codec::{
    Malformed, Reader, counted_list, fitting_u32, pad_to, put_at_least_a_byte, size,
};

/// The ERROR response ([MS-SMB2] 2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorResponse<'a> {
    /// The number of error contexts in the data (3.1.1), else 0.
    pub context_count: u8,
    /// The data: error contexts if `context_count` is not zero, else data that depend on the status.
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

    /// Returns an iterator over the error contexts, none if the data are bare; it ends after the first malformed one.
    pub fn contexts(&self) -> impl Iterator<Item = Result<ErrorContext<'a>, Malformed>> + use<'a> {
        let count = self.context_count.into();
        counted_list(self.data, count, "ERROR context", |reader| {
            let len = size(reader.u32()?);
            let error_id = ErrorId(reader.u32()?);
            let data = reader.take(len)?;
            Ok(ErrorContext { error_id, data })
        })
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
