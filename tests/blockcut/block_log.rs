//! The log of a block device as `blklogwrites` writes it (dm-log-writes' format), read while it
//! grows.
//!
//! The storage daemon serves one request at a time and answers when the log has it: every request
//! that was reported to the kernel as done lies before the end that a later [`BlockLog::scan`]
//! finds. An entry is a sector of header, then the data.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
/// Bytes of a sector, of the device and of the log.
pub(crate) const SECTOR: u64 = 512;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// One request to the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// First sector.
    pub(crate) sector: u64,
    /// How many; 0 for a flush without data.
    pub(crate) sectors: u64,
    flags: u64,
    /// Where the data lies in the log.
    data: u64,
}

impl Entry {
    pub(crate) fn is_flush(&self) -> bool {
        self.flags & FLUSH != 0
    }

    pub(crate) fn is_discard(&self) -> bool {
        self.flags & DISCARD != 0
    }

    /// Stored before it was answered, whatever the cache does.
    pub(crate) fn is_forced(&self) -> bool {
        self.flags & FUA != 0
    }

    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.sectors * SECTOR).unwrap()
    }
}

/// The log.
#[derive(Debug)]
pub(crate) struct BlockLog {
    file: File,
    next: u64,
    entries: Vec<Entry>,
}

impl BlockLog {
    /// Opens a log to which something has been written.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0)
            .map_err(|error| error.to_string())?;
        let sector = u32::from_le_bytes(head[24..28].try_into().unwrap());
        if word(&head, 0) != MAGIC || u64::from(sector) != SECTOR {
            return Err(format!("{} is no log of 512-byte sectors", path.display()));
        }
        Ok(Self {
            file,
            next: SECTOR,
            entries: Vec::new(),
        })
    }

    /// Reads what has come; how many entries there are now.
    pub(crate) fn scan(&mut self) -> usize {
        let mut head = [0; 32];
        while self.file.read_exact_at(&mut head, self.next).is_ok() {
            let entry = Entry {
                sector: word(&head, 0),
                sectors: word(&head, 8),
                flags: word(&head, 16),
                data: self.next + SECTOR,
            };
            if entry.sectors == 0 && entry.flags == 0 {
                break;
            }
            let data = if entry.is_discard() {
                0
            } else {
                entry.sectors * SECTOR
            };
            self.next = entry.data + data;
            self.entries.push(entry);
        }
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Bytes of log so far.
    pub(crate) fn len(&self) -> u64 {
        self.next
    }

    /// The data of a write.
    pub(crate) fn read(&self, entry: &Entry, into: &mut Vec<u8>) {
        into.resize(entry.bytes(), 0);
        self.file.read_exact_at(into, entry.data).unwrap();
    }

    /// How many entries from the start end with the last completed flush before entry `cut`.
    pub(crate) fn flushed_before(&self, cut: usize) -> usize {
        let before = &self.entries[..cut];
        before
            .iter()
            .rposition(Entry::is_flush)
            .map_or(0, |at| at + 1)
    }

    /// Whether any request of `range` is a write that is stable at its end: because it is a forced one, or because
    /// a flush follows it there.
    pub(crate) fn makes_stable(&self, range: Range<usize>) -> bool {
        let entries = &self.entries[range];
        let flush = entries.iter().rposition(Entry::is_flush).unwrap_or(0);
        let written = entries[..flush].iter().any(|entry| entry.sectors > 0);
        written || entries.iter().any(Entry::is_forced)
    }

    /// The first flush at or behind `from`, or the end.
    pub(crate) fn next_flush(&self, from: usize) -> usize {
        let behind = &self.entries[from..];
        behind
            .iter()
            .position(Entry::is_flush)
            .map_or(self.entries.len(), |at| from + at)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
