//! The state found after a crash.

use std::collections::BTreeMap;

use super::{
    history::{Key, Value},
    stamp::{SECTOR, Sector, sectors_of},
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundStream {
    pub size: u64,
    /// Its sectors, the last one perhaps in part.
    pub sectors: Vec<Sector>,
}

impl FoundStream {
    pub fn read(bytes: &[u8]) -> Self {
        Self {
            size: bytes.len() as u64,
            sectors: sectors_of(bytes),
        }
    }

    pub(super) fn sector(&self, number: u64) -> Sector {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.sectors.get(number))
            .copied()
            .unwrap_or(Sector::Zero)
    }

    /// Sectors that are there whole.
    pub(super) fn whole(&self) -> u64 {
        self.size / SECTOR as u64
    }
}

/// One file or directory as found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The server's index number, if the reader knows it; else the object is guessed from the name.
    pub index: Option<u64>,
    pub directory: bool,
    /// Its streams, the unnamed one by the empty name.
    pub streams: BTreeMap<String, FoundStream>,
    /// Metadata that was examined. Other metadata is not checked; [`Value::Nothing`] says that it was looked for
    /// and is absent.
    pub meta: Vec<(Key, Value)>,
}

/// Everything found: path components from the root to what is there. A path's directories are listed too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    pub entries: BTreeMap<Vec<String>, Found>,
}

impl View {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what is at a path given with slashes.
    pub fn add(&mut self, path: &str, found: Found) {
        let path = path.split('/').map(str::to_owned).collect();
        self.entries.insert(path, found);
    }
}
