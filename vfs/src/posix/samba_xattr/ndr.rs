//! The part of NDR that Samba's blobs need (little-endian, aligned to the blob's start).
//!
//! A reader that can only fail with `Corrupt` and a writer; both align by themselves.

use crate::{VfsError, VfsResult};

pub(super) struct Reader<'a> {
    blob: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(blob: &'a [u8]) -> Self {
        Self { blob, at: 0 }
    }

    pub(super) fn align(&mut self, to: usize) -> VfsResult<()> {
        self.at = self
            .at
            .checked_next_multiple_of(to)
            .ok_or(VfsError::Corrupt)?;
        VfsError::Corrupt.when(self.at > self.blob.len())
    }

    pub(super) fn bytes(&mut self, count: usize) -> VfsResult<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(VfsError::Corrupt)?;
        let found = self.blob.get(self.at..end).ok_or(VfsError::Corrupt)?;
        self.at = end;
        Ok(found)
    }

    fn array<const N: usize>(&mut self) -> VfsResult<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| VfsError::Corrupt)
    }

    pub(super) fn hash(&mut self) -> VfsResult<[u8; 64]> {
        self.array()
    }

    pub(super) fn u16(&mut self) -> VfsResult<u16> {
        self.align(2)?;
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> VfsResult<u32> {
        self.align(4)?;
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// NTTIME and `udlong`: eight bytes aligned to four.
    pub(super) fn u64(&mut self) -> VfsResult<u64> {
        self.align(4)?;
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes up to a NUL, which is consumed.
    pub(super) fn text(&mut self) -> VfsResult<&'a [u8]> {
        let rest = self.blob.get(self.at..).ok_or(VfsError::Corrupt)?;
        let end = rest.iter().position(|b| *b == 0).ok_or(VfsError::Corrupt)?;
        let found = self.bytes(end)?;
        self.at += 1;
        Ok(found)
    }

    /// The position of the next field.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.blob.get(self.at..).unwrap_or_default()
    }
}

#[derive(Default)]
pub(super) struct Writer {
    pub(super) blob: Vec<u8>,
}

impl Writer {
    pub(super) fn align(&mut self, to: usize) {
        self.blob.resize(self.blob.len().next_multiple_of(to), 0);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.blob.extend_from_slice(bytes);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.align(2);
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes aligned to four.
    pub(super) fn u64(&mut self, value: u64) {
        self.align(4);
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes aligned to eight (`hyper`).
    pub(super) fn hyper(&mut self, value: u64) {
        self.align(8);
        self.bytes(&value.to_le_bytes());
    }
}
