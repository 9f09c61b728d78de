//! A file that the server has open for a redirector, with its lease and its cached pages.
//!
//! Everything here is sent without looking for breaks: a client that holds a lease for what it does asks for nothing
//! that another client's break could delay.

use std::ops::Range;

use smb_client::{ClientError, File};
use smb_wire::{Status, create_context::LeaseState, ids::LeaseKey};

use super::pages::Pages;

/// Bytes of the largest READ or WRITE.
const PIECE: u64 = 65_536;

/// A file that the server has open for this client.
pub(super) struct Held {
    pub(super) file: File,
    pub(super) key: LeaseKey,
    pub(super) state: LeaseState,
    /// Opens of the programs; without any, the CLOSE is delayed.
    pub(super) users: u32,
    /// The size that programs see.
    pub(super) bytes: u64,
    /// The size that the server has, as far as this client knows: a part of what programs see may not be written yet.
    pub(super) stored: u64,
    pub(super) pages: Pages,
    /// Where a program that reads in order reads next.
    pub(super) next_read: u64,
}

impl Held {
    /// Whether the lease permits this caching.
    pub(super) fn may(&self, state: LeaseState) -> bool {
        self.state.contains(state)
    }

    /// Takes whole pages of the file into the cache.
    pub(super) fn fetch(&mut self, bytes: &Range<u64>) -> Result<(), ClientError> {
        let mut at = bytes.start;
        while at < bytes.end {
            let end = bytes.end.min(at + PIECE);
            let data = match self.file.read(at, (end - at) as u32) {
                Err(ClientError::Status(Status::END_OF_FILE)) => Vec::new(),
                other => other?,
            };
            check_fetched(data.len() as u64, &(at..end), self.stored)?;
            self.pages.fill(&(at..end), &data);
            at = end;
        }
        Ok(())
    }

    /// Writes everything that the server lacks.
    pub(super) fn write_back(&mut self) -> Result<(), ClientError> {
        while let Some((offset, data)) = self.pages.take_dirty(PIECE) {
            self.file.write_all(offset, &data)?;
            self.stored = self.stored.max(offset + data.len() as u64);
        }
        Ok(())
    }
}

/// An error if a READ returned fewer bytes than the file has there: only behind its end are there none. Pages are
/// filled up with zeros, which would pass for data.
fn check_fetched(got: u64, bytes: &Range<u64>, stored: u64) -> Result<(), ClientError> {
    let there = stored.min(bytes.end).saturating_sub(bytes.start);
    match got < there {
        true => Err(ClientError::Protocol(
            "a READ inside the file returned fewer bytes",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_short_only_at_the_end_of_the_file() {
        let is_right = |got, stored| check_fetched(got, &(4096..12_288), stored).is_ok();
        assert!(is_right(8192, 20_000) && is_right(8192, 12_288));
        assert!(!is_right(8191, 20_000) && !is_right(4096, 12_288) && !is_right(0, 4097));
        // The file ends in the piece, at its beginning, and before.
        assert!(is_right(904, 5000) && !is_right(903, 5000));
        assert!(is_right(0, 4096) && is_right(0, 0));
        // Another client may have made it longer.
        assert!(is_right(8192, 5000));
    }
}
