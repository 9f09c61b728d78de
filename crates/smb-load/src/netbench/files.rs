//! The files that one client of the mix has open and has created, after the operations that it was given.

use super::operation::{Handle, Name};
use fastrand::Rng;

/// Files that one client has open at most; so many has the load file.
pub(crate) const OPEN_MAX: usize = 23;
/// Documents that a client opens before the load begins and keeps open: FLUSH and LOCK use them.
pub(crate) const KEPT_OPEN: u32 = 2;
/// Documents that are open when the load begins, those included that stay open: a Close always finds one.
pub(crate) const OPEN_AT_START: u32 = 8;
/// Files that the preparation creates and closes, so that an Unlink or a Rename always finds one.
pub(crate) const STOCK: u32 = 8;
/// Bytes to which a new file may grow.
const GROWN_MAX: u64 = 1 << 20;

/// Bytes of a document: 64 to 400 KiB.
pub(crate) fn document_bytes(number: u32) -> u64 {
    65_536 + u64::from(number) * 7 % 23 * 15_360
}

#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) handle: Handle,
    pub(crate) name: Name,
    pub(crate) bytes: u64,
    next_read: u64,
    next_write: u64,
}

/// The files of one client.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    documents: u32,
    open: Vec<Open>,
    closed: Vec<Name>,
    next_handle: Handle,
    next_new: u32,
}

impl Files {
    pub(crate) fn new(documents: u32) -> Self {
        let mut this = Self {
            documents,
            open: Vec::with_capacity(OPEN_MAX),
            closed: (0..STOCK).map(Name::New).collect(),
            next_handle: 0,
            next_new: STOCK,
        };
        for number in 0..OPEN_AT_START {
            this.opened(Name::Old(number), document_bytes(number));
        }
        this
    }

    fn opened(&mut self, name: Name, bytes: u64) -> Handle {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.open.push(Open {
            handle,
            name,
            bytes,
            next_read: 0,
            next_write: 0,
        });
        handle
    }

    pub(crate) fn may_open(&self) -> bool {
        self.open.len() < OPEN_MAX
    }

    pub(crate) fn may_close(&self) -> bool {
        self.open.len() > KEPT_OPEN as usize
    }

    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    pub(crate) fn create(&mut self) -> (Name, Handle) {
        let name = Name::New(self.next_new);
        self.next_new += 1;
        (name, self.opened(name, 0))
    }

    pub(crate) fn open_document(&mut self, random: &mut Rng) -> (Name, Handle) {
        let name = self.document(random);
        let Name::Old(number) = name else {
            return (name, 0);
        };
        (name, self.opened(name, document_bytes(number)))
    }

    pub(crate) fn document(&self, random: &mut Rng) -> Name {
        Name::Old(random.u32(..self.documents.max(1)))
    }

    pub(crate) fn close(&mut self, random: &mut Rng) -> Option<Handle> {
        let kept = KEPT_OPEN as usize;
        let spare = self.open.len().checked_sub(kept)?;
        let closed = self.open.swap_remove(kept + random.usize(..spare));
        if matches!(closed.name, Name::New(_)) {
            self.closed.push(closed.name);
        }
        Some(closed.handle)
    }

    pub(crate) fn unlink(&mut self, random: &mut Rng) -> Option<Name> {
        let which = random.usize(..self.closed.len().max(1));
        (which < self.closed.len()).then(|| self.closed.swap_remove(which))
    }

    pub(crate) fn rename(&mut self, random: &mut Rng) -> Option<(Name, Name)> {
        let from = self.unlink(random)?;
        let to = Name::New(self.next_new);
        self.next_new += 1;
        self.closed.push(to);
        Some((from, to))
    }

    /// Any open file of at least so many bytes.
    pub(crate) fn any(&mut self, bytes: u64, random: &mut Rng) -> Option<&mut Open> {
        let fit = self.open.iter().filter(|open| open.bytes >= bytes).count();
        let which = random.usize(..fit.max(1));
        let mut fitting = self.open.iter_mut().filter(|open| open.bytes >= bytes);
        fitting.nth(which)
    }

    /// One of the documents that stay open.
    pub(crate) fn kept_open(&mut self, number: usize) -> Option<&mut Open> {
        self.open.get_mut(number % KEPT_OPEN as usize)
    }
}

impl Open {
    /// The offset of the next READ of a file that has so many bytes.
    pub(crate) fn read(&mut self, length: u32, follows: bool, random: &mut Rng) -> u64 {
        let offset = place(self.next_read, self.bytes, length, follows, random);
        self.next_read = offset + u64::from(length);
        offset
    }

    /// The offset of the next WRITE; a new file grows by it.
    pub(crate) fn write(&mut self, length: u32, follows: bool, random: &mut Rng) -> u64 {
        let grows = matches!(self.name, Name::New(_));
        let length = u64::from(length);
        let offset = match length {
            // The redirector extends a file by a WRITE of one byte at its new end.
            1 if grows && self.bytes + 8192 <= GROWN_MAX => self.bytes + 8191,
            1 => self.bytes.saturating_sub(1),
            _ if grows && self.bytes + length <= GROWN_MAX => self.bytes,
            _ => place(self.next_write, self.bytes, length as u32, follows, random),
        };
        self.next_write = offset + length;
        self.bytes = self.bytes.max(self.next_write);
        offset
    }
}

/// Where a piece goes that `follows` the one before, or lies anywhere.
fn place(next: u64, bytes: u64, length: u32, follows: bool, random: &mut Rng) -> u64 {
    let room = bytes.saturating_sub(u64::from(length));
    match (follows, next <= room) {
        (true, true) => next,
        (true, false) => 0,
        (false, _) => random.u64(..=room),
    }
}
