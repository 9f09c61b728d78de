//! A file that the server has open for a redirector, with its lease and its cached pages.
//!
//! Everything here is sent without looking for breaks: a client that holds a lease for what it does asks for nothing
//! that another client's break could delay.

use std::ops::Range;

use smb_client::{ClientError, File};
use smb_wire::{Status, create_context::LeaseState, ids::LeaseKey, msg::WriteFlags};

use super::pages::Pages;
use crate::error::check_written;

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
            self.pages.fill(&(at..end), &data);
            at = end;
        }
        Ok(())
    }

    /// Writes everything that the server lacks.
    pub(super) fn write_back(&mut self) -> Result<(), ClientError> {
        while let Some((offset, data)) = self.pages.take_dirty(PIECE) {
            let written = self.file.write(offset, &data, WriteFlags::empty())?;
            check_written(written, data.len())?;
        }
        Ok(())
    }
}
