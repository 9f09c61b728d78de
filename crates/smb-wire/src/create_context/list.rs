//! The list of create contexts: reading the chain, writing it.
//!
//! The iterator ends after the first malformed member. Every step of the chain must go forward by a
//! multiple of eight, so the work is bounded by the length of the list.

use bytes::{BufMut, BytesMut};

use crate::codec::{
    Malformed, Patch, Reader, fitting_u16, fitting_u32, offset_u16, offset_u32, pad_to, size,
    slice_at,
};

/// One member of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateContext<'a> {
    /// Its name: four letters or a GUID, see [`name`](super::name).
    pub name: &'a [u8],
    /// Its data; may be empty.
    pub data: &'a [u8],
}

/// Iterator over the members of a raw list; ends after the first malformed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateContexts<'a> {
    rest: &'a [u8],
}

impl<'a> CreateContexts<'a> {
    const HEADER: usize = 16;
    /// [MS-SMB2] 3.3.5.9: a shorter name is an error.
    const NAME_LEN_MIN: usize = 4;

    /// Returns the members of `list`, the bytes delimited by CreateContextsOffset and CreateContextsLength.
    pub const fn new(list: &'a [u8]) -> Self {
        Self { rest: list }
    }

    /// Returns the first member called `name`, unless a malformed member precedes it.
    #[must_use]
    pub fn find(mut self, name: &[u8]) -> Option<CreateContext<'a>> {
        self.find_map(|context| context.ok().filter(|context| context.name == name))
    }

    fn context(&mut self) -> Result<CreateContext<'a>, Malformed> {
        const MALFORMED: Malformed = Malformed::new("create context");
        let list = self.rest;
        let mut reader = Reader::new(list, MALFORMED.what);
        let next = size(reader.u32()?);
        let (name_offset, name_len) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
        reader.skip(2)?;
        let data_offset = usize::from(reader.u16()?);
        let data_len = size(reader.u32()?);
        let element = if next == 0 {
            self.rest = &[];
            list
        } else {
            if !next.is_multiple_of(8) || next < Self::HEADER {
                return Err(MALFORMED);
            }
            let (element, rest) = list.split_at_checked(next).ok_or(MALFORMED)?;
            self.rest = rest;
            if rest.is_empty() {
                return Err(MALFORMED);
            }
            element
        };
        if name_len < Self::NAME_LEN_MIN {
            return Err(Malformed::new("create context name"));
        }
        let name = slice_at(
            element,
            Self::HEADER,
            name_offset,
            name_len,
            "create context name",
        )?;
        // The name was found inside the element, so the sum cannot overflow.
        let floor = name_offset + name_len;
        if data_len != 0 && !data_offset.is_multiple_of(8) {
            return Err(Malformed::new("create context data"));
        }
        let data = slice_at(element, floor, data_offset, data_len, "create context data")?;
        Ok(CreateContext { name, data })
    }
}

impl<'a> Iterator for CreateContexts<'a> {
    type Item = Result<CreateContext<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let context = self.context();
        if context.is_err() {
            self.rest = &[];
        }
        Some(context)
    }
}

/// A list under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateContextList {
    bytes: BytesMut,
    last: Option<usize>,
}

impl CreateContextList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a member; `write` appends its data.
    pub fn push_with(&mut self, name: &[u8], write: impl FnOnce(&mut BytesMut)) {
        let out = &mut self.bytes;
        pad_to(out, 0, 8);
        let start = out.len();
        if let Some(last) = self.last.replace(start) {
            Patch::at(last).set_u32(out, offset_u32(out, last));
        }
        let (name, name_len) = fitting_u16(name);
        out.put_u32_le(0);
        out.put_u16_le(16);
        out.put_u16_le(name_len);
        out.put_u16_le(0);
        let (data_offset, data_len) = (Patch::u16(out), Patch::u32(out));
        out.put_slice(name);
        pad_to(out, start, 8);
        let data_start = out.len();
        // Without data the offset still points behind the name, as in Samba's messages.
        data_offset.set_u16(out, offset_u16(out, start));
        write(out);
        data_len.set_u32(out, offset_u32(out, data_start));
    }

    /// Appends a member.
    pub fn push(&mut self, name: &[u8], data: &[u8]) {
        let (data, _) = fitting_u32(data);
        self.push_with(name, |out| out.put_slice(data));
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The encoded list.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &[u8]) -> Result<Vec<CreateContext<'_>>, Malformed> {
        CreateContexts::new(list).collect()
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let mut list = CreateContextList::new();
        list.push(b"MxAc", b"");
        list.push(b"DHnQ", &[7; 13]);
        list.push(super::super::name::APP_INSTANCE_ID, &[1; 20]);
        list.push(b"QFid", b"");
        let read = all(list.bytes()).unwrap();
        assert_eq!(read.len(), 4);
        assert_eq!(
            read[0],
            CreateContext {
                name: b"MxAc",
                data: b""
            }
        );
        assert_eq!(
            read[1],
            CreateContext {
                name: b"DHnQ",
                data: &[7; 13]
            }
        );
        assert_eq!(read[2].data, [1; 20]);
        let found = CreateContexts::new(list.bytes()).find(b"QFid");
        assert_eq!(
            found,
            Some(CreateContext {
                name: b"QFid",
                data: b""
            })
        );
    }

    fn member(next: u32, name: (u16, u16), data: (u16, u32)) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.put_u32_le(next);
        out.put_u16_le(name.0);
        out.put_u16_le(name.1);
        out.put_u16_le(0);
        out.put_u16_le(data.0);
        out.put_u32_le(data.1);
        out.put_bytes(b'n', 8);
        out.put_bytes(b'd', 8);
        out.to_vec()
    }

    #[test]
    fn every_broken_rule_ends_the_list() {
        let good = member(0, (16, 4), (24, 8));
        assert_eq!(all(&good).unwrap().len(), 1);
        for (broken, why) in [
            (member(4, (16, 4), (24, 8)), "unaligned step"),
            (member(8, (16, 4), (24, 8)), "step into itself"),
            (member(32, (16, 4), (24, 8)), "step to the very end"),
            (member(40, (16, 4), (24, 8)), "step outside"),
            (member(0xffff_fff8, (16, 4), (24, 8)), "step far outside"),
            (member(0, (16, 3), (24, 8)), "short name"),
            (member(0, (12, 4), (24, 8)), "name in the header"),
            (member(0, (16, 17), (24, 0)), "name outside"),
            (member(0, (16, 4), (25, 4)), "unaligned data"),
            (member(0, (16, 4), (16, 4)), "data in the name"),
            (member(0, (16, 4), (24, 9)), "data outside"),
            (member(0, (16, 4), (24, u32::MAX)), "data far outside"),
            (good[..15].to_vec(), "cut header"),
        ] {
            assert!(all(&broken).is_err(), "{why}");
            assert!(
                CreateContexts::new(&broken).count() <= 1,
                "{why}: not fused"
            );
        }
        // A member must not overlap the next one.
        let mut two = member(32, (16, 4), (24, 16));
        two.extend(good);
        assert!(all(&two).is_err());
    }
}
