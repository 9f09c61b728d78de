//! Deals the operations of NetBench's Enterprise Disk Mix to any number of clients.
//!
//! The frequencies, sizes and wanted failures are those counted in the load file of dbench 4.0 (`client.txt`,
//! recorded from NetBench's Enterprise Disk Mix): 458,341 operations, 1,472,088,767 bytes read and
//! 1,015,974,170 bytes written. They hold within 1 % or two operations for all clients together, whatever their
//! number, however long they run and however unequal their speeds are, because all clients are dealt from the same
//! accounts (`share.rs`), each at the moment when it asks: nothing is dealt that is not carried out.
//!
//! The mix holds no connection; [`super::client`] carries out what is dealt.

use fastrand::Rng;
use smb_wire::msg::{CreateDisposition, CreateOptions};

use super::{
    files::{Files, OPEN_AT_START},
    operation::{Handle, Kind, Name, Operation},
};
use crate::share::Share;

/// Counts of the load file, in the order of [`Kind::ALL`].
pub const COUNTS: [u64; 14] = [
    124_199, 79_230, 71_814, 58_200, 39_502, 27_765, 16_000, 13_168, 12_585, 6_454, 5_553, 3_355,
    258, 258,
];
/// CREATEs in the load file: of a missing name, of a new file, of one that is there.
pub const CREATES: [u64; 3] = [21_030, 16_067, 42_133];
/// Queries by name in the load file: of a missing name, of one that is there.
pub const PATH_INFOS: [u64; 2] = [24_385, 47_429];
/// Queries by name: of FileBasicInformation and of FileAttributeTagInformation, in percent.
const CLASSES: [u64; 2] = [73, 27];
/// Searches in the load file: for a missing name, for one that is there.
pub const FINDS: [u64; 2] = [14_328, 13_437];
/// Bytes that the load file reads and writes.
pub const BYTES_READ: u64 = 1_472_088_767;
/// Bytes that the load file writes.
pub const BYTES_WRITTEN: u64 = 1_015_974_170;

/// Lengths of READs and their parts of 1,000. The last stands for all others, by their mean.
const READ_LENGTHS: [u32; 6] = [4096, 61_440, 2048, 8192, 16_384, 4367];
const READ_PARTS: [u64; 6] = [670, 130, 37, 37, 16, 110];
/// Lengths of WRITEs and their parts of 1,000. The last stands for all others, by their mean.
const WRITE_LENGTHS: [u32; 6] = [65_536, 4096, 1, 2048, 8192, 19_885];
const WRITE_PARTS: [u64; 6] = [320, 250, 188, 42, 29, 171];
/// READs and WRITEs that follow the one before in the same file, of 1,000.
const READS_FOLLOW: [u64; 2] = [715, 285];
const WRITES_FOLLOW: [u64; 2] = [484, 516];

/// The place of [`FLUSHED`] in [`WRITE_LENGTHS`].
const FLUSHED_PLACE: usize = 1;
/// Bytes that are dirty in a file when it is flushed (median of the load file).
const FLUSHED: u32 = 4096;
/// FLUSHes of one document that follow each other, where the rate of FLUSHes permits it.
const BURST: u32 = 5;
/// Draws of a client between two of them.
const BURST_PAUSE: u32 = 6;
/// Of so many clients, one has a burst at a time.
const CLIENTS_A_BURST: usize = 6;
/// Draws of others, for each client of the mix, after which a client that draws nothing loses its burst.
const BURST_IDLE: usize = (BURST * BURST_PAUSE) as usize;

/// One or two operations that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    pub first: Operation,
    /// One that follows at once: the FLUSH of a WRITE, the unlock of a lock, the query after a file was extended.
    pub second: Option<Operation>,
}

/// FLUSHes of one client that follow each other.
struct Burst {
    client: usize,
    left: u32,
    pause: u32,
    /// Draws of others since the last one of the client.
    idle: usize,
}

/// Deals operations to clients.
pub struct Mix {
    clients: Vec<Files>,
    bursts: Vec<Burst>,
    flushes: u32,
    kinds: Share<14>,
    creates: Share<3>,
    path_infos: Share<2>,
    classes: Share<2>,
    finds: Share<2>,
    reads: Share<6>,
    writes: Share<6>,
    reads_follow: Share<2>,
    writes_follow: Share<2>,
    random: Rng,
}

impl Mix {
    /// A mix for `clients` clients, each with a folder of `documents` documents (at least `OPEN_AT_START`).
    pub fn new(clients: usize, documents: u32) -> Self {
        Self {
            clients: vec![Files::new(documents.max(OPEN_AT_START)); clients],
            bursts: Vec::new(),
            flushes: 0,
            kinds: Share::new(COUNTS),
            creates: Share::new(CREATES),
            path_infos: Share::new(PATH_INFOS),
            classes: Share::new(CLASSES),
            finds: Share::new(FINDS),
            reads: Share::new(READ_PARTS),
            writes: Share::new(WRITE_PARTS),
            reads_follow: Share::new(READS_FOLLOW),
            writes_follow: Share::new(WRITES_FOLLOW),
            random: Rng::with_seed(clients as u64),
        }
    }

    /// The next draw of a client; `None` if there is no such client.
    pub fn next(&mut self, client: usize) -> Option<Draw> {
        let may_flush = self.may_flush(client);
        let files = self.clients.get(client)?;
        let is_feasible = |which: usize| match Kind::ALL.get(which) {
            Some(Kind::Create) => files.may_open(),
            Some(Kind::Close) => files.may_close(),
            Some(Kind::Unlink | Kind::Rename) => files.has_closed(),
            Some(Kind::Flush) => may_flush,
            // An unlock follows its lock.
            Some(Kind::Unlock) | None => false,
            Some(_) => true,
        };
        let picked = self.kinds.pick(&mut self.random, is_feasible)?;
        let kind = *Kind::ALL.get(picked)?;
        if kind == Kind::Flush {
            return self.flush(client);
        }
        let files = self.clients.get_mut(client)?;
        let random = &mut self.random;
        let first = match kind {
            Kind::Read => self.read(client)?,
            Kind::Write => return self.write(client),
            Kind::Create => self.create(client)?,
            Kind::Close => Operation::Close {
                handle: files.close(random)?,
            },
            Kind::PathInfo => Operation::PathInfo {
                name: match self.path_infos.pick(random, |_| true)? {
                    0 => Name::Missing,
                    _ => files.document(random),
                },
                tag: self.classes.pick(random, |_| true)? == 1,
            },
            Kind::Find => Operation::Find {
                name: match self.finds.pick(random, |_| true)? {
                    0 => Name::Missing,
                    _ => files.document(random),
                },
            },
            Kind::Unlink => Operation::Unlink {
                name: files.unlink(random)?,
            },
            Kind::Rename => {
                let (from, to) = files.rename(random)?;
                Operation::Rename { from, to }
            }
            Kind::FsInfo => Operation::FsInfo,
            Kind::FileInfo => Operation::FileInfo {
                handle: files.any(0, random)?.handle,
            },
            Kind::SetInfo => Operation::SetInfo {
                handle: files.any(0, random)?.handle,
            },
            Kind::Lock | Kind::Unlock | Kind::Flush => return self.lock(client),
        };
        Some(Draw {
            first,
            second: None,
        })
    }

    fn create(&mut self, client: usize) -> Option<Operation> {
        let files = self.clients.get_mut(client)?;
        let picked = self.creates.pick(&mut self.random, |_| true)?;
        let (name, handle) = match picked {
            0 => (Name::Missing, Handle::MAX),
            1 => files.create(),
            _ => files.open_document(&mut self.random),
        };
        Some(Operation::Create {
            name,
            disposition: match picked {
                1 => CreateDisposition::CREATE,
                _ => CreateDisposition::OPEN,
            },
            options: CreateOptions::empty(),
            handle,
        })
    }

    fn read(&mut self, client: usize) -> Option<Operation> {
        let length = *READ_LENGTHS.get(self.reads.pick(&mut self.random, |_| true)?)?;
        let follows = self.reads_follow.pick(&mut self.random, |_| true)? == 0;
        let files = self.clients.get_mut(client)?;
        let open = files.any(u64::from(length), &mut self.random)?;
        Some(Operation::Read {
            handle: open.handle,
            offset: open.read(length, follows, &mut self.random),
            length,
        })
    }

    fn write(&mut self, client: usize) -> Option<Draw> {
        let length = *WRITE_LENGTHS.get(self.writes.pick(&mut self.random, |_| true)?)?;
        let follows = self.writes_follow.pick(&mut self.random, |_| true)? == 0;
        let files = self.clients.get_mut(client)?;
        let open = files.any(0, &mut self.random)?;
        let handle = open.handle;
        let first = Operation::Write {
            handle,
            offset: open.write(length, follows, &mut self.random),
            length,
        };
        let second = (length == 1).then(|| {
            self.kinds.count(Kind::FileInfo as usize);
            Operation::FileInfo { handle }
        });
        Some(Draw { first, second })
    }

    /// A WRITE to one of the documents that stay open, and its FLUSH.
    fn flush(&mut self, client: usize) -> Option<Draw> {
        self.flushed(client);
        self.kinds.count(Kind::Write as usize);
        self.writes.count(FLUSHED_PLACE);
        let follows = self.writes_follow.pick(&mut self.random, |_| true)? == 0;
        let document = (self.flushes / BURST) as usize;
        self.flushes = self.flushes.wrapping_add(1);
        let open = self.clients.get_mut(client)?.kept_open(document)?;
        let handle = open.handle;
        Some(Draw {
            first: Operation::Write {
                handle,
                offset: open.write(FLUSHED, follows, &mut self.random),
                length: FLUSHED,
            },
            second: Some(Operation::Flush { handle }),
        })
    }

    fn lock(&mut self, client: usize) -> Option<Draw> {
        self.kinds.count(Kind::Unlock as usize);
        let handle = self.clients.get_mut(client)?.kept_open(0)?.handle;
        Some(Draw {
            first: Operation::Lock {
                handle,
                offset: 0,
                length: 1,
            },
            second: Some(Operation::Unlock {
                handle,
                offset: 0,
                length: 1,
            }),
        })
    }

    /// Whether this draw of the client may be a FLUSH: the next of its burst, or the first of a new burst.
    fn may_flush(&mut self, client: usize) -> bool {
        let most = BURST_IDLE * self.clients.len();
        // Clients that stand would otherwise hold all bursts, and no other one would be dealt a FLUSH.
        self.bursts.retain_mut(|burst| {
            burst.idle = if burst.client == client {
                0
            } else {
                burst.idle + 1
            };
            burst.idle <= most
        });
        if let Some(burst) = self.bursts.iter_mut().find(|burst| burst.client == client) {
            burst.pause = burst.pause.saturating_sub(1);
            return burst.pause == 0;
        }
        self.bursts.len() <= self.clients.len() / CLIENTS_A_BURST
    }

    fn flushed(&mut self, client: usize) {
        let pause = BURST_PAUSE;
        match self.bursts.iter_mut().find(|burst| burst.client == client) {
            Some(burst) => {
                burst.left -= 1;
                burst.pause = pause;
            }
            None => self.bursts.push(Burst {
                client,
                left: BURST - 1,
                pause,
                idle: 0,
            }),
        }
        self.bursts.retain(|burst| burst.left > 0);
    }
}

#[cfg(test)]
mod tests;
