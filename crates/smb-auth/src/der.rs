//! The part of DER that SPNEGO needs: reading and writing of definite-length tag-length-value
//! elements.
//!
//! Invariants: the reader never recurses (the caller descends explicitly, at most six levels),
//! never allocates, and rejects indefinite lengths, multi-byte tags and lengths above four bytes.
//! It accepts non-minimal lengths, since some clients write them. It skips unknown elements without
//! parsing their content, so nesting depth costs nothing.

use crate::AuthError::{self, InvalidToken};
use crate::MAX_TOKEN_LEN;

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const OID: u8 = 0x06;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const GENERAL_STRING: u8 = 0x1b;
/// `[APPLICATION 0]`, the GSS-API wrapper of a first token.
pub(crate) const APPLICATION_0: u8 = 0x60;

/// The tag of a constructed context-specific element `[n]`; n is below 31.
pub(crate) const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// A cursor over sibling elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// Tag, length and content as received.
    pub(crate) raw: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, AuthError> {
        InvalidToken("token too long").when(bytes.len() > MAX_TOKEN_LEN)?;
        Ok(Self { rest: bytes })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next element of any tag.
    pub(crate) fn next(&mut self) -> Result<Element<'a>, AuthError> {
        let (&tag, after_tag) = self.rest.split_first().ok_or(InvalidToken("DER: no tag"))?;
        InvalidToken("DER: multi-byte tag").when(tag & 0x1f == 0x1f)?;
        let (&first, mut after) = after_tag
            .split_first()
            .ok_or(InvalidToken("DER: no length"))?;
        let len = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let (digits, tail) = after
                    .split_at_checked(usize::from(first & 0x7f))
                    .ok_or(InvalidToken("DER: cut length"))?;
                after = tail;
                digits
                    .iter()
                    .fold(0usize, |len, d| (len << 8) | usize::from(*d))
            }
            _ => return Err(InvalidToken("DER: length form")),
        };
        let (content, rest) = after
            .split_at_checked(len)
            .ok_or(InvalidToken("DER: length beyond end"))?;
        let raw = self
            .rest
            .get(..self.rest.len() - rest.len())
            .ok_or(InvalidToken("DER: length"))?;
        self.rest = rest;
        Ok(Element { tag, content, raw })
    }

    /// Returns the next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<Element<'a>, AuthError> {
        let element = self.next()?;
        InvalidToken("DER: unexpected tag").when(element.tag != tag)?;
        Ok(element)
    }
}

/// Returns the single element of this tag that fills `bytes`; trailing bytes are an error.
pub(crate) fn only(bytes: &[u8], tag: u8) -> Result<Element<'_>, AuthError> {
    let mut reader = Reader::new(bytes)?;
    let element = reader.expect(tag)?;
    InvalidToken("DER: trailing bytes").when(!reader.is_empty())?;
    Ok(element)
}

/// Encodes one element around the concatenation of `parts`, with a minimal length.
pub(crate) fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    let mut out = Vec::with_capacity(len + 6);
    out.push(tag);
    let digits = len.to_be_bytes();
    let digits: Vec<u8> = digits.into_iter().skip_while(|d| *d == 0).collect();
    match digits.as_slice() {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or(0x7f));
            out.extend_from_slice(long);
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_round_trip() {
        for len in [0usize, 1, 127, 128, 255, 256, 60_000] {
            let body = vec![7u8; len];
            let bytes = wrap(OCTET_STRING, &[&body]);
            let element = only(&bytes, OCTET_STRING).unwrap();
            assert_eq!(element.content, body);
            assert_eq!(element.raw, bytes);
        }
        assert_eq!(wrap(4, &[&[0; 128]])[..3], [4, 0x81, 0x80]);
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        for bytes in [
            &[0x30u8][..],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x05, 1, 2],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x30, 0xff],
            &[0x30, 0x82, 0],
            &[0x1f, 0x01, 0],
            &[0x30, 0, 0],
        ] {
            assert!(only(bytes, SEQUENCE).is_err(), "{bytes:02x?}");
        }
        assert!(Reader::new(&vec![0; MAX_TOKEN_LEN + 1]).is_err());
    }
}
