//! The buffer into which a connection's bytes are received, and the messages cut from it.
//!
//! A request's data stay where they were received until they are written to the file, so a buffer
//! may not be free when the next bytes come. It then goes to its thread's store and is taken from there once nobody
//! holds a part of it. So memory that was used before is reused instead of being returned and faulted in again. A
//! connection that waits for its client holds no buffer.
//!
//! A message that is larger than the usual buffer gets one of its own size and is received to its end and no
//! further, so that nothing of the next message has to be moved. After a large message, only the beginning of the next
//! one is received at first: if that is large too, little has to be copied into its buffer.
//!
//! Buffers of one size are interchangeable. The store is bounded by [`STORED_BYTES_MAX`] and frees buffers that were
//! not taken for long.
//!
//! Messages are cut according to the direct-TCP framing ([MS-SMB2] 2.1): one zero byte, a 24-bit length, the message.

use std::{cell::RefCell, collections::VecDeque};

use bytes::{Buf, BufMut, BytesMut};
use smb_wire::header::{
    NETBIOS_KEEP_ALIVE, NETBIOS_SESSION_MESSAGE, NETBIOS_SESSION_REQUEST, TRANSPORT_HEADER_SIZE,
};

/// Bytes requested from the socket at a time: a WRITE of 64 KiB with its headers fits.
const RECEIVE_BYTES: usize = 68 * 1024;
/// Buffers for more data than this have a multiple of it as their size, plus room for headers.
const LARGE_BYTES: usize = 1 << 20;
/// The room in a large buffer for the headers before a message's data.
const HEADERS_BYTES: usize = 4096;
/// The offset of a large message in its buffer, so that the data of a WRITE, 116 bytes further, start at a multiple of
/// 128.
const PADDING: usize = 12;
/// Bytes requested after a large message, so that the rest of another large one starts at a multiple of a page.
const BEGINNING_BYTES: usize = 4096 - PADDING;
/// If less room than this is left in a buffer, no more is received into it.
const ROOM_MIN: usize = 4096;
/// Memory that a thread keeps for receiving beyond what is in use.
const STORED_BYTES_MAX: usize = 8 << 20;
/// A stored buffer is freed once this many others were put back after it.
const STORED_FOR: u64 = 1024;
/// The number of stored buffers that are checked for a free one.
const LOOKED_AT_MAX: usize = 16;

/// The bytes received and not yet taken as frames.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    /// The received bytes, with room for more.
    pub(crate) bytes: BytesMut,
    /// The size of the whole buffer, of which `bytes` may be a part.
    pub(crate) size: usize,
    /// The last message was larger than the usual buffer.
    after_large: bool,
}

impl ReceiveBuffer {
    /// Makes room for `missing` more bytes of a message, and returns how many to request from the socket.
    pub(crate) fn make_room(&mut self, missing: usize) -> usize {
        let needed = self.bytes.len().saturating_add(missing);
        let size = size_for(needed);
        if size > RECEIVE_BYTES {
            self.after_large = true;
            if self.bytes.capacity() < needed {
                self.move_to(size, PADDING);
            }
            return missing;
        }
        let room = self.bytes.capacity() - self.bytes.len();
        let wanted = missing.max(ROOM_MIN);
        // A small incomplete request must not hold a large buffer.
        let fits = self.size <= RECEIVE_BYTES;
        if !fits || (room < wanted && !self.bytes.try_reclaim(wanted)) {
            self.move_to(size, 0);
        }
        if std::mem::take(&mut self.after_large) {
            return missing.max(BEGINNING_BYTES);
        }
        self.bytes.capacity() - self.bytes.len()
    }

    /// Continues in a buffer of `size`, after `padding` unused bytes.
    fn move_to(&mut self, size: usize, padding: usize) {
        let mut bytes = STORE
            .with_borrow_mut(|store| store.take(size))
            .unwrap_or_else(|| BytesMut::with_capacity(size));
        bytes.put_bytes(0, padding);
        bytes.advance(padding);
        bytes.extend_from_slice(&self.bytes);
        self.replace(bytes, size);
    }

    /// Continues with other bytes, in a buffer of `size`.
    fn replace(&mut self, bytes: BytesMut, size: usize) {
        let after_large = self.after_large;
        let new = Self {
            bytes,
            size,
            after_large,
        };
        let old = std::mem::replace(self, new);
        if old.size > 0 {
            STORE.with_borrow_mut(|store| store.put(old));
        }
    }

    /// By how much the buffer that [`Self::make_room`] will leave exceeds the usual size; 0 for the usual one.
    pub(crate) fn beyond_usual(&self, missing: usize) -> usize {
        let needed = self.bytes.len().saturating_add(missing);
        if needed <= RECEIVE_BYTES {
            return 0;
        }
        size_for(needed).max(self.size) - RECEIVE_BYTES
    }

    /// Shrinks the buffer to the bytes received.
    pub(crate) fn shrink(&mut self) {
        if self.size > RECEIVE_BYTES {
            self.replace(BytesMut::from(self.bytes.as_ref()), self.bytes.len());
        }
    }

    /// Gives the buffer back if it is empty.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() && self.size > 0 {
            self.replace(BytesMut::new(), 0);
        }
    }
}

/// The size of a buffer for so many bytes. There are few sizes, so that one buffer can be used in place of another.
fn size_for(needed: usize) -> usize {
    if needed <= RECEIVE_BYTES {
        return RECEIVE_BYTES;
    }
    let data = needed.saturating_add(PADDING) - HEADERS_BYTES;
    let data = if data <= LARGE_BYTES {
        data.next_power_of_two()
    } else {
        data.checked_next_multiple_of(LARGE_BYTES).unwrap_or(data)
    };
    data.saturating_add(HEADERS_BYTES)
}

/// A thread's spare buffers, in the order in which they were put back.
#[derive(Default)]
struct Store {
    spare: VecDeque<(u64, ReceiveBuffer)>,
    bytes: usize,
    puts: u64,
}

thread_local! {
    static STORE: RefCell<Store> = RefCell::default();
}

impl Store {
    /// A buffer of `size` that nobody holds a part of.
    fn take(&mut self, size: usize) -> Option<BytesMut> {
        let free = |spare: &mut ReceiveBuffer| spare.size == size && spare.bytes.try_reclaim(size);
        let spare = &mut self.spare;
        let mut back = (0..spare.len()).rev().take(LOOKED_AT_MAX);
        let found = back.find(|at| spare.get_mut(*at).is_some_and(|(_, one)| free(one)));
        let (_, taken) = spare.remove(found?)?;
        self.bytes -= taken.size;
        Some(taken.bytes)
    }

    fn put(&mut self, mut buffer: ReceiveBuffer) {
        buffer.bytes.clear();
        self.puts += 1;
        self.bytes += buffer.size;
        self.spare.push_back((self.puts, buffer));
        let old = self.puts.saturating_sub(STORED_FOR);
        while let Some((put, oldest)) = self.spare.front()
            && (self.bytes > STORED_BYTES_MAX || *put < old)
        {
            self.bytes -= oldest.size;
            self.spare.pop_front();
        }
    }
}

/// Longest request for a session of NetBIOS, in bytes: two names of 255 (RFC 1002 4.1).
const SESSION_REQUEST_MAX: usize = 512;
/// Frames up to this length are copied out of the receive buffer.
const COPIED_MAX: usize = 4096;
/// Longer frames are copied too if they are shorter than the buffer divided by this.
const PINNED_SHARE: usize = 8;

/// The reason why no further message can be cut from the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The first byte belongs neither to direct TCP nor to a session service.
    Type(u8),
    /// The message is longer than negotiated.
    TooLong(usize),
}

/// The state of the message at the front of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A whole message.
    Message(BytesMut),
    /// A request for a session of NetBIOS, whose names mean nothing here.
    SessionRequest,
    /// A part of a message, and how many bytes are missing as far as is known.
    Missing(usize),
}

/// Takes the next whole message, or request for a session, out of `input`, at most `max` bytes long. Session-service
/// keep-alives (0x85) are skipped. `size` is the size of the whole buffer of which `input` is a part.
///
/// # Errors
/// [`FrameError`]: the connection must be closed.
pub(crate) fn next_message(
    input: &mut BytesMut,
    size: usize,
    max: usize,
) -> Result<Next, FrameError> {
    loop {
        let Some(&[kind, high, middle, low]) = input.first_chunk::<TRANSPORT_HEADER_SIZE>() else {
            return Ok(Next::Missing(TRANSPORT_HEADER_SIZE - input.len()));
        };
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            NETBIOS_SESSION_MESSAGE => {}
            NETBIOS_SESSION_REQUEST if length <= SESSION_REQUEST_MAX => {}
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
        if kind == NETBIOS_SESSION_REQUEST {
            input.advance(length);
            return Ok(Next::SessionRequest);
        }
        if length <= COPIED_MAX || length < size / PINNED_SHARE {
            // A small waiting request must not hold a large receive buffer.
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

    fn fill(buffer: &mut ReceiveBuffer, count: usize) {
        buffer.make_room(count);
        buffer.bytes.extend_from_slice(&vec![7; count]);
    }

    fn stored() -> (usize, usize) {
        STORE.with_borrow(|store| (store.spare.len(), store.bytes))
    }

    #[test]
    fn what_is_still_held_is_never_received_into() {
        let mut buffer = ReceiveBuffer::default();
        let mut held = Vec::new();
        for number in 0..20 {
            buffer.make_room(0);
            buffer.bytes.extend_from_slice(&vec![number; 65_000]);
            held.push(buffer.bytes.split_to(65_000).freeze());
        }
        for (number, data) in held.iter().enumerate() {
            assert!(data.iter().all(|byte| usize::from(*byte) == number));
        }
    }

    #[test]
    fn memory_is_used_again_once_nobody_holds_it() {
        let mut buffer = ReceiveBuffer::default();
        let mut places = std::collections::BTreeSet::new();
        let mut held: VecDeque<bytes::Bytes> = VecDeque::new();
        for _ in 0..100 {
            fill(&mut buffer, 66_000);
            let frame = buffer.bytes.split_to(65_000).freeze();
            places.insert(frame.as_ptr().addr());
            held.push_back(frame);
            if held.len() > 3 {
                held.pop_front();
            }
            buffer.bytes.clear();
        }
        assert!(places.len() < 8, "{}", places.len());
    }

    #[test]
    fn a_large_message_is_received_to_its_end_and_lies_well() {
        let mut buffer = ReceiveBuffer::default();
        let length = (1 << 20) + 116;
        for round in 0..3 {
            let asked = buffer.make_room(4);
            let expected = if round == 0 {
                RECEIVE_BYTES
            } else {
                BEGINNING_BYTES
            };
            assert_eq!(asked, expected);
            buffer.bytes.extend_from_slice(&vec![7; asked]);
            let asked = buffer.make_room(length - asked);
            assert_eq!(buffer.bytes.len() + asked, length);
            assert_eq!(buffer.size, (1 << 20) + HEADERS_BYTES);
            let place = buffer.bytes.as_ptr();
            buffer.bytes.extend_from_slice(&vec![7; asked - 10]);
            assert_eq!(buffer.make_room(10), 10);
            buffer.bytes.extend_from_slice(&[7; 10]);
            assert_eq!(buffer.bytes.as_ptr(), place, "it has not moved");
            assert_eq!((place.addr() + 116) % 16, 0);
            drop(buffer.bytes.split());
            buffer.rest();
        }
        // A small message follows: the usual buffer and all that it takes.
        assert_eq!(buffer.make_room(4), BEGINNING_BYTES);
        buffer.bytes.extend_from_slice(&[7; 100]);
        assert_eq!(buffer.make_room(4), RECEIVE_BYTES - 100);
    }

    #[test]
    fn what_was_received_goes_along() {
        let mut buffer = ReceiveBuffer::default();
        fill(&mut buffer, 66_000);
        let frame = buffer.bytes.split_to(60_000);
        buffer.make_room(1 << 20);
        assert_eq!(buffer.bytes.as_ref(), vec![7; 6_000]);
        assert!(buffer.bytes.capacity() >= 6_000 + (1 << 20));
        drop(frame);
    }

    #[test]
    fn who_rests_holds_nothing_and_the_store_is_bounded() {
        let mut buffers: Vec<_> = (0..400).map(|_| ReceiveBuffer::default()).collect();
        for buffer in &mut buffers {
            fill(buffer, 10);
            buffer.rest();
            assert_eq!(buffer.bytes.len(), 10, "what is in it stays");
            buffer.bytes.clear();
        }
        for buffer in &mut buffers {
            buffer.rest();
            assert_eq!(buffer.bytes.capacity(), 0);
        }
        let (count, bytes) = stored();
        assert!(bytes <= STORED_BYTES_MAX && bytes == count * RECEIVE_BYTES);
        // Spare buffers that are not taken are freed in time.
        let mut one = ReceiveBuffer::default();
        for _ in 0..=STORED_FOR {
            one.make_room(0);
            one.rest();
        }
        assert_eq!(stored().0, 1);
    }

    fn message(bytes: &[u8]) -> Result<Next, FrameError> {
        Ok(Next::Message(feed(bytes)))
    }

    fn feed(bytes: &[u8]) -> BytesMut {
        BytesMut::from(bytes)
    }

    #[test]
    fn a_message_comes_out_whole_and_the_rest_stays() {
        let mut input = feed(&[0, 0, 0, 3, 1, 2, 3, 0, 0]);
        assert_eq!(next_message(&mut input, 0, 100), message(&[1, 2, 3]));
        assert_eq!(next_message(&mut input, 0, 100), Ok(Next::Missing(2)));
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
            let Ok(Next::Message(message)) = next_message(&mut input, size, 1 << 20) else {
                panic!("it is whole");
            };
            assert_eq!(message.len(), 100_000);
            assert_eq!(message.as_ptr().addr() != place, copied, "{size}");
        }
    }

    #[test]
    fn a_part_of_a_message_waits_for_more() {
        let mut input = feed(&[0, 0, 0, 3, 1, 2]);
        assert_eq!(next_message(&mut input, 0, 100), Ok(Next::Missing(1)));
        input.extend_from_slice(&[3]);
        assert_eq!(next_message(&mut input, 0, 100), message(&[1, 2, 3]));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_buffered() {
        assert_eq!(
            next_message(&mut feed(&[0, 0xff, 0xff, 0xff]), 0, 1000),
            Err(FrameError::TooLong(0x00ff_ffff))
        );
    }

    #[test]
    fn keep_alives_are_skipped_and_other_types_refused() {
        let mut input = feed(&[0x85, 0, 0, 0, 0, 0, 0, 1, 9]);
        assert_eq!(next_message(&mut input, 0, 10), message(&[9]));
        assert_eq!(
            next_message(&mut feed(&[0x82, 0, 0, 0]), 0, 10),
            Err(FrameError::Type(0x82))
        );
    }

    #[test]
    fn a_request_for_a_session_is_taken_out_whole() {
        let mut input = feed(&[0x81, 0, 0, 2, 7]);
        assert_eq!(next_message(&mut input, 0, 10), Ok(Next::Missing(1)));
        input.extend_from_slice(&[7, 0, 0, 0, 1, 9]);
        assert_eq!(next_message(&mut input, 0, 10), Ok(Next::SessionRequest));
        assert_eq!(next_message(&mut input, 0, 10), message(&[9]));
        assert_eq!(
            next_message(&mut feed(&[0x81, 0, 2, 1]), 0, 1000),
            Err(FrameError::Type(0x81))
        );
    }
}
