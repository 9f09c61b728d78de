//! Claims on names: one CREATE, rename or removal at a time for each path.
//!
//! A new file is on disk before the engine can know its inode. The request that creates it holds the claim of the
//! path from the lookup until the open is in the tables, so that no other client opens the new file in between and
//! causes its creator to be refused. A claim is held over disk operations but never while waiting for a break: it
//! is released first.
//!
//! Paths are share-relative and folded; a claim of one path says nothing about the others.

use std::collections::{BTreeMap, btree_map::Entry};
use std::sync::Arc;

use smb_wire::Status;

use super::files::{Files, lock};
use super::paths::{ShareId, SharePath};
use super::types::{Effects, Outcome, Step, WaiterId};

/// Requests parked behind one claim; one more gives INSUFFICIENT_RESOURCES.
pub(super) const PARKED_MAX: usize = 1_024;

/// The claimed paths, with who waits for them.
#[derive(Debug, Default)]
pub(super) struct Claims {
    parked: BTreeMap<Key, Vec<WaiterId>>,
}

impl Claims {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }
}

type Key = (ShareId, Arc<[Box<str>]>);

fn key(path: &SharePath) -> Key {
    (path.share, path.shared_folded())
}

impl Files {
    /// Claims a path. `Step::Go`: it is claimed until [`Files::release`]. `Step::Wait`: `waiter`
    /// is woken when it is worth another try.
    pub fn claim(&self, path: &SharePath, waiter: WaiterId) -> Step {
        let mut claims = lock(&self.claims);
        let mut known = match claims.parked.entry(key(path)) {
            Entry::Occupied(known) => known,
            Entry::Vacant(free) => {
                free.insert(Vec::new());
                return Step::Go;
            }
        };
        let parked = known.get_mut();
        if parked.len() >= PARKED_MAX {
            return Step::Refused(Status::INSUFFICIENT_RESOURCES);
        }
        parked.push(waiter);
        Step::Wait
    }

    /// Releases a claim; requests that wait for it try again, in the order of their arrival.
    pub fn release(&self, path: &SharePath) -> Effects {
        let mut effects = Effects::default();
        let parked = lock(&self.claims).parked.remove(&key(path));
        for waiter in parked.unwrap_or_default() {
            effects.wake(waiter, Outcome::Retry);
        }
        effects
    }

    /// Takes a request parked behind a claim back. True if it was still parked.
    pub fn cancel_claim(&self, path: &SharePath, waiter: WaiterId) -> bool {
        let mut claims = lock(&self.claims);
        let Some(parked) = claims.parked.get_mut(&key(path)) else {
            return false;
        };
        let before = parked.len();
        parked.retain(|other| *other != waiter);
        before != parked.len()
    }
}
