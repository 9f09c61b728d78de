//! The messages on the network, for comparing two runs.

use std::time::Duration;

use bytes::Bytes;

/// Bytes kept of one run; what follows only enters the digest.
const KEPT_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Bytes handed over at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Since the simulation began.
    pub at: Duration,
    pub connection: u64,
    pub direction: Direction,
    pub bytes: Bytes,
}

/// Everything that went over the network so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The first 16 MiB of it.
    pub passages: Vec<Passage>,
    pub bytes: u64,
    /// FNV-1a over all, times and directions included.
    pub digest: u64,
    kept: usize,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            passages: Vec::new(),
            bytes: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            kept: 0,
        }
    }
}

impl Trace {
    pub(crate) fn add(&mut self, passage: Passage) {
        self.bytes += u64::try_from(passage.bytes.len()).unwrap_or(u64::MAX);
        self.mix(&passage.at.as_nanos().to_le_bytes());
        self.mix(&passage.connection.to_le_bytes());
        self.mix(&[u8::from(passage.direction == Direction::ToServer)]);
        self.mix(&passage.bytes);
        self.kept = self.kept.saturating_add(passage.bytes.len());
        if self.kept <= KEPT_BYTES_MAX {
            self.passages.push(passage);
        }
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
