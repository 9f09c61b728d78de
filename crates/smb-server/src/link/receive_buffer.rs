//! Where the bytes of a connection land.
//!
//! A request's data stay where they were received until they are written to the file, so a buffer
//! is not free when the next bytes come. It goes to its thread's store then, and is taken from
//! there once nobody holds a part of it: memory that has been touched is used again instead of
//! being returned and faulted in anew. A connection that waits for its client holds no buffer.
//!
//! Which buffer one gets makes no difference to be seen: those of a size are alike. The store is
//! bounded by [`STORED_BYTES_MAX`] and lets go what has long not been taken.

use std::{cell::RefCell, collections::VecDeque};

use bytes::BytesMut;

/// Bytes asked of the socket at a time: a WRITE of 64 KiB with its headers fits.
const RECEIVE_BYTES: usize = 68 * 1024;
/// Above this, sizes are multiples of it.
const LARGE_BYTES: usize = 1 << 20;
/// Room below which the socket is not asked again into the same buffer.
const ROOM_MIN: usize = 4096;
/// Memory that a thread keeps for receiving beyond what is in use.
const STORED_BYTES_MAX: usize = 8 << 20;
/// Buffers put back since one was last taken, after which it goes.
const STORED_FOR: u64 = 1024;
/// Stored buffers looked at for one that is free.
const LOOKED_AT_MAX: usize = 16;

/// The bytes received and not yet taken as frames.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    /// They, and room for more.
    pub(crate) bytes: BytesMut,
    /// Size of the whole buffer, of which `bytes` may be a part.
    pub(crate) size: usize,
}

impl ReceiveBuffer {
    /// Makes room for `missing` more bytes, or as many as are asked of a socket at a time.
    pub(crate) fn make_room(&mut self, missing: usize) {
        let room = self.bytes.capacity() - self.bytes.len();
        let wanted = missing.max(ROOM_MIN);
        let size = size_for(self.bytes.len().saturating_add(missing));
        // A small request that is not whole must not hold a large buffer.
        let fits = size > RECEIVE_BYTES || self.size <= RECEIVE_BYTES;
        if fits && (room >= wanted || self.bytes.try_reclaim(wanted)) {
            return;
        }
        let mut bytes = STORE
            .with_borrow_mut(|store| store.take(size))
            .unwrap_or_else(|| BytesMut::with_capacity(size));
        bytes.extend_from_slice(&self.bytes);
        let old = std::mem::replace(self, Self { bytes, size });
        old.put_back();
    }

    /// How much larger than the usual buffer the one is that [`Self::make_room`] leaves, 0 for the
    /// usual one.
    pub(crate) fn beyond_usual(&self, missing: usize) -> usize {
        let needed = self.bytes.len().saturating_add(missing);
        if needed <= RECEIVE_BYTES {
            return 0;
        }
        size_for(needed).max(self.size) - RECEIVE_BYTES
    }

    /// Holds no more than what has been received.
    pub(crate) fn shrink(&mut self) {
        if self.size > RECEIVE_BYTES {
            let size = self.bytes.len();
            let bytes = BytesMut::from(self.bytes.as_ref());
            std::mem::replace(self, Self { bytes, size }).put_back();
        }
    }

    /// Lets the buffer go if nothing is in it.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() && self.size > 0 {
            std::mem::take(self).put_back();
        }
    }

    fn put_back(self) {
        if self.size > 0 {
            STORE.with_borrow_mut(|store| store.put(self));
        }
    }
}

/// Buffers come in few sizes, so that one can stand in for another.
fn size_for(needed: usize) -> usize {
    if needed <= RECEIVE_BYTES {
        RECEIVE_BYTES
    } else if needed <= LARGE_BYTES {
        needed.next_power_of_two()
    } else {
        let whole = needed.checked_next_multiple_of(LARGE_BYTES);
        whole.unwrap_or(needed)
    }
}

/// A thread's spare buffers, the one put back last at the end.
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
        let back = (0..self.spare.len()).rev().take(LOOKED_AT_MAX);
        let mut found = None;
        for at in back {
            if self.spare.get_mut(at).is_some_and(|(_, spare)| free(spare)) {
                found = Some(at);
                break;
            }
        }
        let (_, taken) = self.spare.remove(found?)?;
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
}
