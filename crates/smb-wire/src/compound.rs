//! Splits a compound: from one message of the transport to its elements.
//!
//! Checks the chain of NextCommand ([MS-SMB2] 3.3.5.2.7): each element is 8-aligned, inside the
//! message and at least a header long, and there are no more than [`COMPOUND_ELEMENTS_MAX`]. The
//! server interprets RELATED and decides which commands it accepts.

use core::ops::Range;

use crate::codec::{Malformed, size};
use crate::header::Header;

/// Maximum number of elements in a compound. Most clients send up to about ten, and a library in Go
/// 126: it asks for the descriptors of 42 files at once. The limit keeps one message from occupying
/// a connection.
pub const COMPOUND_ELEMENTS_MAX: usize = 128;

/// The reason why a message is not a valid compound. The server closes the connection for any of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompoundError {
    /// An element has no SMB2 header, or is shorter than one.
    Header(Malformed),
    /// NextCommand is not a multiple of eight.
    Unaligned {
        /// The position of the element in the message.
        at: usize,
    },
    /// NextCommand points into the element's own header.
    Overlapping {
        /// The position of the element in the message.
        at: usize,
    },
    /// NextCommand points to or past the end of the message.
    Outside {
        /// The position of the element in the message.
        at: usize,
    },
    /// There are more than [`COMPOUND_ELEMENTS_MAX`] elements.
    TooMany,
}

impl core::fmt::Display for CompoundError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Header(malformed) => write!(f, "compound element: {malformed}"),
            Self::Unaligned { at } => write!(f, "compound element at {at}: NextCommand unaligned"),
            Self::Overlapping { at } => {
                write!(f, "compound element at {at}: NextCommand inside its header")
            }
            Self::Outside { at } => write!(f, "compound element at {at}: NextCommand outside"),
            Self::TooMany => write!(f, "more than {COMPOUND_ELEMENTS_MAX} compound elements"),
        }
    }
}

impl core::error::Error for CompoundError {}

/// One element of a compound, or the only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its header.
    pub header: Header,
    /// Its position in the message: from its header to the next header or the end, including
    /// padding.
    pub range: Range<usize>,
}

/// Iterator over the elements of a message; ends after the first error.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    message: &'a [u8],
    next: Option<usize>,
    count: usize,
}

/// Returns an iterator over the elements of `message`, which begins with an SMB2 header.
#[must_use]
pub const fn elements(message: &[u8]) -> Elements<'_> {
    Elements {
        message,
        next: Some(0),
        count: 0,
    }
}

/// Returns all elements of `message`; the whole chain is checked first.
///
/// # Errors
/// The first [`CompoundError`] of the chain.
pub fn split(message: &[u8]) -> Result<Vec<Element>, CompoundError> {
    elements(message).collect()
}

impl Elements<'_> {
    fn element(&mut self, at: usize) -> Result<Element, CompoundError> {
        if self.count == COMPOUND_ELEMENTS_MAX {
            return Err(CompoundError::TooMany);
        }
        self.count += 1;
        let rest = self.message.get(at..).unwrap_or(&[]);
        let header = Header::read(rest).map_err(CompoundError::Header)?;
        let step = size(header.next_command);
        if step == 0 {
            return Ok(Element {
                header,
                range: at..self.message.len(),
            });
        }
        if !step.is_multiple_of(8) {
            return Err(CompoundError::Unaligned { at });
        }
        if step < Header::SIZE {
            return Err(CompoundError::Overlapping { at });
        }
        if step >= rest.len() {
            return Err(CompoundError::Outside { at });
        }
        let end = at + step;
        self.next = Some(end);
        Ok(Element {
            header,
            range: at..end,
        })
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Element, CompoundError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next.take()?;
        Some(self.element(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};

    fn chain(steps: &[u32]) -> BytesMut {
        let mut out = BytesMut::new();
        for step in steps {
            Header {
                next_command: *step,
                ..Header::default()
            }
            .encode(&mut out);
            out.put_bytes(0, 8);
        }
        out
    }

    #[test]
    fn elements_follow_one_another() {
        let ranges = |message: &[u8]| {
            split(message).map(|all| {
                all.into_iter()
                    .map(|e| (e.range.start, e.range.end))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(ranges(&chain(&[0])), Ok(vec![(0, 72)]));
        assert_eq!(
            ranges(&chain(&[72, 72, 0])),
            Ok(vec![(0, 72), (72, 144), (144, 216)])
        );
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let error = |message: &[u8]| split(message).unwrap_err();
        assert_eq!(error(&chain(&[76, 0])), CompoundError::Unaligned { at: 0 });
        assert_eq!(
            error(&chain(&[72, 56, 0])),
            CompoundError::Overlapping { at: 72 }
        );
        assert_eq!(error(&chain(&[72, 72])), CompoundError::Outside { at: 72 });
        assert_eq!(
            error(&chain(&[0xffff_fff8, 0])),
            CompoundError::Outside { at: 0 }
        );
        assert!(matches!(error(&chain(&[80, 0])), CompoundError::Header(_)));
        assert!(matches!(error(&[]), CompoundError::Header(_)));
        let mut most = vec![72; COMPOUND_ELEMENTS_MAX - 1];
        most.push(0);
        assert_eq!(
            split(&chain(&most)).map(|all| all.len()),
            Ok(COMPOUND_ELEMENTS_MAX)
        );
        most.insert(0, 72);
        assert_eq!(error(&chain(&most)), CompoundError::TooMany);
    }
}
