//! Splits a compound: from one message of the transport to its elements.
//!
//! Checks the chain of NextCommand ([MS-SMB2] 3.3.5.2.7): each element is 8-aligned, inside the
//! message and at least a header long, and there are no more than [`COMPOUND_ELEMENTS_MAX`]. The
//! server interprets RELATED and decides which commands it accepts.

use core::ops::Range;

use crate::codec::{Malformed, size};
use crate::header::Header;

/// Maximum number of elements in a compound. Most clients send up to about ten, and a library in Go 126: it asks for
/// the descriptors of 42 files at once. The limit keeps one message from occupying a connection.
pub const COMPOUND_ELEMENTS_MAX: usize = 128;

const UNALIGNED: &str = "compound: NextCommand is unaligned";
const OVERLAPPING: &str = "compound: NextCommand points into its own header";
const OUTSIDE: &str = "compound: NextCommand points outside";
const TOO_MANY: &str = "compound: too many elements";

/// One element of a compound, or the only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its header.
    pub header: Header,
    /// Its position in the message: from its header to the next header or the end, including padding.
    pub range: Range<usize>,
}

/// Returns an iterator over the elements of `message`, which begins with an SMB2 header. It ends after the first error,
/// for any of which the server closes the connection.
pub fn elements(message: &[u8]) -> impl Iterator<Item = Result<Element, Malformed>> {
    let (mut next, mut count) = (Some(0), 0);
    core::iter::from_fn(move || {
        let at = next.take()?;
        if count == COMPOUND_ELEMENTS_MAX {
            return Some(Err(Malformed::new(TOO_MANY)));
        }
        count += 1;
        let element = element(message, at);
        if let Ok(Element { header, range }) = &element
            && header.next_command != 0
        {
            next = Some(range.end);
        }
        Some(element)
    })
}

/// Returns all elements of `message`; the whole chain is checked first.
///
/// # Errors
/// The first [`Malformed`] element of the chain.
pub fn split(message: &[u8]) -> Result<Vec<Element>, Malformed> {
    elements(message).collect()
}

fn element(message: &[u8], at: usize) -> Result<Element, Malformed> {
    let rest = message.get(at..).unwrap_or(&[]);
    let header = Header::read(rest)?;
    let end = match size(header.next_command) {
        0 => message.len(),
        step if !step.is_multiple_of(8) => return Err(Malformed::new(UNALIGNED)),
        step if step < Header::SIZE => return Err(Malformed::new(OVERLAPPING)),
        step if step >= rest.len() => return Err(Malformed::new(OUTSIDE)),
        step => at + step,
    };
    let range = at..end;
    Ok(Element { header, range })
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
        let error = |message: &[u8]| split(message).unwrap_err().what;
        assert_eq!(error(&chain(&[76, 0])), UNALIGNED);
        assert_eq!(error(&chain(&[72, 56, 0])), OVERLAPPING);
        assert_eq!(error(&chain(&[72, 72])), OUTSIDE);
        assert_eq!(error(&chain(&[0xffff_fff8, 0])), OUTSIDE);
        let header = Header::read(&[]).unwrap_err().what;
        assert_eq!(error(&chain(&[80, 0])), header);
        assert_eq!(error(&[]), header);
        let mut most = vec![72; COMPOUND_ELEMENTS_MAX - 1];
        most.push(0);
        assert_eq!(
            split(&chain(&most)).map(|all| all.len()),
            Ok(COMPOUND_ELEMENTS_MAX)
        );
        most.insert(0, 72);
        assert_eq!(error(&chain(&most)), TOO_MANY);
    }
}
