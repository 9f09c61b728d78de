//! Structures whose fields all have a fixed width: one table row for each field generates the
//! struct, its size, its encoder and its decoder.
//!
//! `records!` takes a field list with the padding behind a field (`field: u32, pad 4;`). Padding is
//! encoded as zeros and ignored by the decoder. Bytes behind the structure are ignored: [MS-FSCC]
//! allows a buffer to be longer than the class. Behind a name, `, exactly` forbids them.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::ids::{FileId, FileTime, Guid, LeaseKey, SessionId};

/// A value of fixed width inside a structure.
pub trait Field: Sized {
    /// Bytes on the wire.
    const SIZE: usize;
    /// Reads the next field.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the bytes.
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
    /// Appends the field.
    fn put(&self, out: &mut impl BufMut);
}

macro_rules! number_fields {
    ($( $int:ty, $get:ident, $put:ident; )*) => {$(
        impl Field for $int {
            const SIZE: usize = size_of::<$int>();
            fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                // The cast reinterprets the sign bit and loses nothing.
                Ok(reader.$get()? as $int)
            }
            fn put(&self, out: &mut impl BufMut) {
                out.$put(*self);
            }
        }
    )*};
}

number_fields! {
    u8, u8, put_u8;
    u16, u16, put_u16_le;
    u32, u32, put_u32_le;
    u64, u64, put_u64_le;
    i32, u32, put_i32_le;
    i64, u64, put_i64_le;
}

newtype_field! { FileTime: u64 }
newtype_field! { SessionId: u64 }
newtype_field! { Guid: [u8; 16] }
newtype_field! { LeaseKey: [u8; 16] }

impl Field for bool {
    const SIZE: usize = 1;
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        // [MS-FSCC] 2.1.8: any value but zero is true.
        Ok(reader.u8()? != 0)
    }
    fn put(&self, out: &mut impl BufMut) {
        out.put_u8(u8::from(*self));
    }
}

impl<const N: usize> Field for [u8; N] {
    const SIZE: usize = N;
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.array::<N>()
    }
    fn put(&self, out: &mut impl BufMut) {
        out.put_slice(self);
    }
}

impl Field for FileId {
    const SIZE: usize = 16;
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            persistent: reader.u64()?,
            volatile: reader.u64()?,
        })
    }
    fn put(&self, out: &mut impl BufMut) {
        out.put_u64_le(self.persistent);
        out.put_u64_le(self.volatile);
    }
}

/// Refuses bytes behind a structure.
pub(crate) fn exactly(reader: &Reader<'_>) -> Result<(), Malformed> {
    if reader.is_empty() {
        Ok(())
    } else {
        Err(reader.malformed())
    }
}

/// Generates a structure of fixed fields that is itself a [`Field`].
macro_rules! record {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$fmeta:meta])* $field:ident: $ty:ty $(, pad $pad:literal)?; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )+
        }

        impl $crate::fscc::record::Field for $name {
            const SIZE: usize =
                0 $( + <$ty as $crate::fscc::record::Field>::SIZE $( + $pad )? )+;

            fn get(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::Malformed> {
                $(
                    let $field = <$ty as $crate::fscc::record::Field>::get(reader)?;
                    $( reader.skip($pad)?; )?
                )+
                Ok(Self { $( $field ),+ })
            }

            fn put(&self, out: &mut impl bytes::BufMut) {
                $(
                    $crate::fscc::record::Field::put(&self.$field, out);
                    $( out.put_bytes(0, $pad); )?
                )+
            }
        }
    };
}
pub(crate) use record;

/// Generates structures of fixed fields; see the module documentation.
macro_rules! records {
    ($(
        $(#[$meta:meta])*
        $name:ident $(, $exactly:ident)? { $( $fields:tt )+ }
    )*) => {$(
        $crate::fscc::record::record! { $(#[$meta])* $name { $( $fields )+ } }

        impl $name {
            /// Bytes on the wire, all of them required.
            pub const MIN: usize = <Self as $crate::fscc::record::Field>::SIZE;

            /// Reads the structure from the front of `bytes`; what follows is ignored, or is an error where the
            /// specification prescribes the length.
            ///
            /// # Errors
            /// [`Malformed`](crate::codec::Malformed) when the length is wrong.
            pub fn read(bytes: &[u8]) -> Result<Self, $crate::codec::Malformed> {
                let mut reader = $crate::codec::Reader::new(bytes, stringify!($name));
                let record = $crate::fscc::record::Field::get(&mut reader)?;
                $( $crate::fscc::record::$exactly(&reader)?; )?
                Ok(record)
            }

            /// Appends the structure, `MIN` bytes.
            pub fn encode(&self, out: &mut bytes::BytesMut) {
                $crate::fscc::record::Field::put(self, out);
            }
        }
    )*};
}
pub(crate) use records;

/// Generates structures of fixed fields, written as in `records!`, that end with a 32-bit length in bytes and a name of
/// that length. The number behind the structure's name is that of the bytes that a query must have room for or a
/// request must have; `padded` is the length up to which an encoded request is filled with zeros.
macro_rules! named_records {
    ($(
        $(#[$meta:meta])*
        $name:ident($min:literal $(, padded $padded:literal)?) {
            $( $(#[$fmeta:meta])* $field:ident: $ty:ty $(, pad $pad:literal)?; )*
            => $(#[$nmeta:meta])* $text:ident
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
            $(#[$nmeta])*
            pub $text: String,
        }

        impl $name {
            /// Smallest output buffer of a query, or smallest request.
            pub const MIN: usize = $min;

            /// Bytes before the name.
            pub const FIXED: usize =
                4 $( + <$ty as $crate::fscc::record::Field>::SIZE $( + $pad )? )*;

            /// Reads the structure.
            ///
            /// # Errors
            /// [`Malformed`](crate::codec::Malformed) when a part is missing, the name is not valid UTF-16, or a
            /// request is too short.
            pub fn read(bytes: &[u8]) -> Result<Self, $crate::codec::Malformed> {
                let mut reader = $crate::codec::Reader::new(bytes, stringify!($name));
                $(
                    if bytes.len() < Self::MIN.min($padded) {
                        return Err(reader.malformed());
                    }
                )?
                $(
                    let $field = <$ty as $crate::fscc::record::Field>::get(&mut reader)?;
                    $( reader.skip($pad)?; )?
                )*
                let $text = $crate::fscc::name::read_name(&mut reader)?;
                Ok(Self { $( $field, )* $text })
            }

            /// Appends the structure with its whole name.
            pub fn encode(&self, out: &mut bytes::BytesMut) {
                $(
                    $crate::fscc::record::Field::put(&self.$field, out);
                    $( bytes::BufMut::put_bytes(out, 0, $pad); )?
                )*
                $crate::fscc::name::put_name(out, &self.$text);
                $(
                    let written = Self::FIXED + $crate::utf16::len_bytes(&self.$text);
                    bytes::BufMut::put_bytes(out, 0, usize::saturating_sub($padded, written));
                )?
            }
        }
    )*};
}
pub(crate) use named_records;

/// Iterator over a list that is chained by NextEntryOffset: each item is the bytes of one entry
/// from its NextEntryOffset on, up to the next entry or the end of the list.
#[derive(Debug, Clone)]
pub(crate) struct Chain<'a> {
    rest: Option<&'a [u8]>,
    what: &'static str,
}

impl<'a> Chain<'a> {
    /// Creates an iterator over the chain in `bytes`; no bytes are an empty chain.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        let rest = (!bytes.is_empty()).then_some(bytes);
        Self { rest, what }
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = Result<&'a [u8], Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let next = match Reader::new(rest, self.what).u32() {
            Ok(next) => crate::codec::size(next),
            Err(error) => return Some(Err(error)),
        };
        if next == 0 {
            return Some(Ok(rest));
        }
        // An offset below the size of the smallest header would make the chain endless or overlapping.
        let parts = rest.split_at_checked(next).filter(|_| next >= 4);
        let Some((entry, after)) = parts.filter(|(_, after)| !after.is_empty()) else {
            return Some(Err(Malformed { what: self.what }));
        };
        self.rest = Some(after);
        Some(Ok(entry))
    }
}

/// Encodes as many of `entries` as fit into a chained list of at most `limit` bytes; returns the list and their number.
/// `put` appends an entry, behind its NextEntryOffset.
pub(crate) fn encode_chain<T>(
    entries: impl IntoIterator<Item = T>,
    limit: usize,
    align: usize,
    put: impl Fn(&T, &mut BytesMut),
) -> (BytesMut, usize) {
    let mut writer = ChainWriter::new(limit, align);
    let fits = |entry: &T| {
        writer.push(|out| {
            out.put_u32_le(0);
            put(entry, out);
        })
    };
    let fitted = entries.into_iter().take_while(fits).count();
    (writer.finish(), fitted)
}

/// Encodes a list chained by NextEntryOffset under a limit in bytes: entries are aligned, the last
/// offset is zero, and an entry that would exceed the limit leaves no trace.
#[derive(Debug)]
pub(crate) struct ChainWriter {
    out: BytesMut,
    last: Option<usize>,
    limit: usize,
    align: usize,
}

impl ChainWriter {
    pub(crate) fn new(limit: usize, align: usize) -> Self {
        Self {
            out: BytesMut::new(),
            last: None,
            limit,
            align,
        }
    }

    /// Appends an entry that `put` writes (it begins with four zero bytes, the NextEntryOffset) if
    /// it fits; otherwise removes it again and returns false.
    pub(crate) fn push(&mut self, put: impl FnOnce(&mut BytesMut)) -> bool {
        let before = self.out.len();
        crate::codec::pad_to(&mut self.out, 0, self.align);
        let at = self.out.len();
        put(&mut self.out);
        if self.out.len() > self.limit {
            self.out.truncate(before);
            return false;
        }
        if let Some(last) = self.last {
            let step = u32::try_from(at - last).unwrap_or(0);
            crate::codec::Patch::at(last).set_u32(&mut self.out, step);
        }
        self.last = Some(at);
        true
    }

    /// Reserves capacity for a number of bytes, at most up to the limit.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes.min(self.limit));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns the list, with space for a truncated last entry.
    pub(crate) fn finish(self) -> BytesMut {
        self.out
    }
}
