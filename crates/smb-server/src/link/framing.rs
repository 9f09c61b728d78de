//! Following the direct-TCP framing ([MS-SMB2] 2.1): one zero byte, a 24-bit length, the message.

use bytes::{Buf, BytesMut};
use smb_wire::header::{NETBIOS_KEEP_ALIVE, NETBIOS_SESSION_MESSAGE, TRANSPORT_HEADER_SIZE};

/// Frames up to this length leave the receive buffer by copy.
const COPIED_MAX: usize = 4096;
/// And longer ones, if they are less than this part of it.
const PINNED_SHARE: usize = 8;

/// Why the stream of bytes cannot be followed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The first byte is none that direct TCP or a session service uses.
    Type(u8),
    /// Longer than what has been negotiated.
    TooLong(usize),
}

/// The contents of the front of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A whole message.
    Message(BytesMut),
    /// Part of one; so many bytes are missing, as far as is known.
    Missing(usize),
}

/// Takes the next whole message out of `input`, at most `max` bytes long. Session-service
/// keep-alives (0x85) are skipped. `size` is that of the whole buffer that `input` is in.
///
/// # Errors
/// [`FrameError`]: the connection must be closed.
pub(crate) fn next(input: &mut BytesMut, size: usize, max: usize) -> Result<Next, FrameError> {
    loop {
        let Some(&[kind, high, middle, low]) = input.first_chunk::<TRANSPORT_HEADER_SIZE>() else {
            return Ok(Next::Missing(TRANSPORT_HEADER_SIZE - input.len()));
        };
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            NETBIOS_SESSION_MESSAGE => {}
            NETBIOS_KEEP_ALIVE if length == 0 => {
                input.advance(TRANSPORT_HEADER_SIZE);
                continue;
            }
            other => return Err(FrameError::Type(other)),
        }
        if length > max {
            return Err(FrameError::TooLong(length));
        }
        let missing = (TRANSPORT_HEADER_SIZE + length).saturating_sub(input.len());
        if missing > 0 {
            return Ok(Next::Missing(missing));
        }
        input.advance(TRANSPORT_HEADER_SIZE);
        if length <= COPIED_MAX || length < size / PINNED_SHARE {
            // A small request that waits must not hold a large receive buffer.
            let frame = BytesMut::from(input.get(..length).unwrap_or_default());
            input.advance(length);
            return Ok(Next::Message(frame));
        }
        return Ok(Next::Message(input.split_to(length)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> Result<Next, FrameError> {
        Ok(Next::Message(feed(bytes)))
    }

    fn feed(bytes: &[u8]) -> BytesMut {
        BytesMut::from(bytes)
    }

    #[test]
    fn a_message_comes_out_whole_and_the_rest_stays() {
        let mut input = feed(&[0, 0, 0, 3, 1, 2, 3, 0, 0]);
        assert_eq!(next(&mut input, 0, 100), message(&[1, 2, 3]));
        assert_eq!(next(&mut input, 0, 100), Ok(Next::Missing(2)));
        assert_eq!(input.as_ref(), [0, 0]);
    }

    #[test]
    fn a_message_holds_no_buffer_much_larger_than_itself() {
        let mut stream = BytesMut::zeroed(4 + 100_000);
        stream[1..4].copy_from_slice(&[1, 0x86, 0xA0]);
        let place = stream.as_ptr().addr() + 4;
        for (size, copied) in [(100_004, false), (800_000, false), (1 << 20, true)] {
            let mut input = BytesMut::with_capacity(size);
            input.extend_from_slice(&stream);
            let place = place - stream.as_ptr().addr() + input.as_ptr().addr();
            let Ok(Next::Message(message)) = next(&mut input, size, 1 << 20) else {
                panic!("it is whole");
            };
            assert_eq!(message.len(), 100_000);
            assert_eq!(message.as_ptr().addr() != place, copied, "{size}");
        }
    }

    #[test]
    fn a_part_of_a_message_waits_for_more() {
        let mut input = feed(&[0, 0, 0, 3, 1, 2]);
        assert_eq!(next(&mut input, 0, 100), Ok(Next::Missing(1)));
        input.extend_from_slice(&[3]);
        assert_eq!(next(&mut input, 0, 100), message(&[1, 2, 3]));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_buffered() {
        assert_eq!(
            next(&mut feed(&[0, 0xff, 0xff, 0xff]), 0, 1000),
            Err(FrameError::TooLong(0x00ff_ffff))
        );
    }

    #[test]
    fn keep_alives_are_skipped_and_other_types_refused() {
        let mut input = feed(&[0x85, 0, 0, 0, 0, 0, 0, 1, 9]);
        assert_eq!(next(&mut input, 0, 10), message(&[9]));
        assert_eq!(
            next(&mut feed(&[0x81, 0, 0, 0]), 0, 10),
            Err(FrameError::Type(0x81))
        );
    }
}
