//! Claims on names that are being made: one CREATE of a new name at a time.

use std::collections::{BTreeMap, btree_map::Entry};

use smb_wire::Status;
use vfs::FileKey;

use crate::locks::Mutex;

use super::types::{Effects, Link, Outcome, Step, Waiter};

/// Requests parked behind one claim, half of them for one user; one more gives INSUFFICIENT_RESOURCES.
pub(super) const PARKED_MAX: usize = 1_024;

/// The claimed names, with the requests that wait for them.
///
/// Claims allow one CREATE of a new file at a time for each name. A new file is on disk before the engine can know its
/// inode. The request that creates it holds the claim of the name from the lookup until the open is in the tables, and
/// an open that finds the file on disk waits for the end of the claim, so that no other client opens the new file in
/// between and causes its creator to be refused. A claim is held over disk operations but never while waiting for a
/// break: it is released first. Names are claimed in their directory, which every share and every path leads to.
///
/// A named stream that is created in an existing file is claimed in the same way ([`Link::of_stream`]). A rename of the
/// file waits for the end of the claim, because it is refused while a stream is open.
#[derive(Debug, Default)]
pub struct Claims(Mutex<BTreeMap<Link, Vec<Waiter>>>);

fn park(parked: &mut Vec<Waiter>, waiter: Waiter) -> Step {
    match waiter.park(parked, PARKED_MAX) {
        true => Step::Wait,
        false => Step::Refused(Status::INSUFFICIENT_RESOURCES),
    }
}

impl Claims {
    /// Claims a name. With `Step::Go` it is claimed until [`Claims::release`]; with `Step::Wait`, `waiter` is woken when
    /// another try makes sense.
    pub fn claim(&self, link: &Link, waiter: Waiter) -> Step {
        match self.0.lock().entry(link.clone()) {
            Entry::Occupied(mut known) => park(known.get_mut(), waiter),
            Entry::Vacant(free) => {
                free.insert(Vec::new());
                Step::Go
            }
        }
    }

    /// How many names are claimed.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks, after a lookup has found an object, whether the request that made it may still be on its way into the
    /// tables: with `Step::Wait`, `waiter` is woken when another lookup makes sense. Claims nothing.
    pub fn after(&self, link: &Link, waiter: Waiter) -> Step {
        match self.0.lock().get_mut(link) {
            Some(parked) => park(parked, waiter),
            None => Step::Go,
        }
    }

    /// As [`Claims::after`], for all named streams of a file.
    pub fn after_those_of_streams(&self, file: FileKey, waiter: Waiter) -> Step {
        let first = Link::of_stream(file, "");
        let of_file = |link: &Link| link.parent == file && link.name.starts_with(&*first.name);
        let mut claims = self.0.lock();
        match claims.range_mut(&first..).next() {
            Some((link, parked)) if of_file(link) => park(parked, waiter),
            _ => Step::Go,
        }
    }

    /// Releases a claim; requests that wait for it try again, in the order of their arrival.
    pub fn release(&self, link: &Link) -> Effects {
        let mut effects = Effects::default();
        let parked = self.0.lock().remove(link);
        for waiter in parked.unwrap_or_default() {
            effects.wake(waiter.id, Outcome::Retry);
        }
        effects
    }
}
