//! The table of recorded opens: their records, by inode, by lease and by owner, and the store's changes that describe
//! them.

use std::collections::{BTreeMap, BTreeSet};

use durability::MapChange;
use smb_wire::{
    dtyp::Sid,
    ids::{Guid, LeaseKey},
};
use vfs::FileKey;

use super::record::{MOVING_MAX, OpenRecord, encode_lease, lease_key, open_key};
use crate::file::{Files, OpenId, Owner, Place, SavedLease, SharePath};

/// Most bytes of the records of one owner: an eighth of a store's capacity. Above that, no more of the owner's opens
/// and locks are recorded, nor longer names.
pub(crate) const OWNER_BYTES_MAX: usize = 8 << 20;

pub(super) struct Recorded {
    pub(super) record: OpenRecord,
    /// The old and the new path of each rename under way, by its id: until the rename is stable, a crash may leave the
    /// old name, although the engine already has the new path.
    pub(super) moving: BTreeMap<OpenId, [Vec<String>; 2]>,
    pub(super) place: Place,
    /// The bytes of its last record and that of its lease.
    bytes: usize,
}

impl Recorded {
    /// Whether one more rename may be recorded beside those under way.
    pub(super) fn has_room_for(&self, rename: OpenId) -> bool {
        self.moving.contains_key(&rename) || self.moving.len() < MOVING_MAX
    }
}

/// The records of one owner.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) opens: usize,
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(super) opens: BTreeMap<OpenId, Recorded>,
    pub(super) by_inode: BTreeMap<FileKey, BTreeSet<OpenId>>,
    pub(crate) leases: BTreeMap<(Guid, LeaseKey), BTreeSet<OpenId>>,
    owners: BTreeMap<Sid, Usage>,
    /// The renames under way, whether the object is open or not.
    pub(super) renames: BTreeMap<OpenId, Rename>,
}

/// A rename under way, of an object that may get a recorded open meanwhile.
pub(super) struct Rename {
    pub(super) key: FileKey,
    pub(super) from: SharePath,
    pub(super) to: SharePath,
    /// The opens of other objects, below a directory that is renamed, that were recorded meanwhile.
    pub(super) below: Vec<OpenId>,
}

impl Rename {
    /// The path to which an open at `path` moves, in the share of that path. `None` if it does not move, or if the
    /// share does not show both names.
    fn follow(&self, files: &Files, path: &SharePath) -> Option<SharePath> {
        let (from, to) = (&self.from, &self.to);
        let [from, to] = [from, to].map(|name| files.path_in(path.share, name));
        path.moved(&from?, &to?)
    }
}

impl Inner {
    /// Announces a rename. It is announced again if directories have moved: the opens below that met it before stay,
    /// and get the new names that they would have now.
    pub(super) fn announce(&mut self, files: &Files, id: OpenId, mut rename: Rename) {
        let known = self.renames.remove(&id);
        rename.below = known.map(|known| known.below).unwrap_or_default();
        for open in &rename.below {
            let recorded = self.opens.get_mut(open);
            if let Some([from, to]) = recorded.and_then(|recorded| recorded.moving.get_mut(&id))
                && let Some(now) = files.path_of(*open)
                && let Some(path) = rename.follow(files, &SharePath::of(now.share.0, from))
            {
                *to = path.to_names();
            }
        }
        self.renames.insert(id, rename);
    }

    /// Gives an open that was just entered the names that it may have after a crash, because it or a directory above is
    /// being renamed.
    pub(super) fn meets_renames(&mut self, files: &Files, open: OpenId, path: &SharePath) {
        let Some(recorded) = self.opens.get_mut(&open) else {
            return;
        };
        for (id, rename) in &mut self.renames {
            let Some(to) = rename.follow(files, path) else {
                continue;
            };
            let own = rename.key == recorded.place.key;
            // Another file that has the old name exactly may have got it after the rename.
            let below = !files
                .path_in(path.share, &rename.from)
                .is_some_and(|from| from.same(path));
            if (own || below) && recorded.has_room_for(*id) {
                let names = [path.to_names(), to.to_names()];
                recorded.moving.insert(*id, names);
                if !own {
                    rename.below.push(open);
                }
            }
        }
    }

    /// Called when a rename is over: opens below its directory have one name again. Those of the object itself still
    /// have both.
    pub(super) fn rename_over(&mut self, id: OpenId) {
        let below = self.renames.remove(&id).map(|rename| rename.below);
        for open in below.unwrap_or_default() {
            if let Some(recorded) = self.opens.get_mut(&open) {
                recorded.moving.remove(&id);
            }
        }
    }

    pub(super) fn enter(&mut self, open: OpenId, place: &Place, record: OpenRecord) {
        self.by_inode.entry(place.key).or_default().insert(open);
        if let Some((key, _)) = record.lease {
            let opens = self.leases.entry((record.client, key)).or_default();
            opens.insert(open);
        }
        let bytes = record.encode().len();
        let usage = self.owners.entry(record.owner).or_default();
        usage.opens += 1;
        usage.bytes += bytes;
        let place = place.clone();
        let recorded = Recorded {
            moving: BTreeMap::new(),
            record,
            place,
            bytes,
        };
        self.opens.insert(open, recorded);
    }

    pub(super) fn usage(&self, owner: Sid) -> Usage {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    pub(super) fn is_over(&self, owner: Sid) -> bool {
        self.usage(owner).bytes > OWNER_BYTES_MAX
    }

    /// The store's changes that describe an open and its lease.
    pub(super) fn describe(&mut self, files: &Files, open: OpenId) -> Vec<MapChange> {
        let Some(recorded) = self.opens.get_mut(&open) else {
            return Vec::new();
        };
        let record = &mut recorded.record;
        let mut lease = None;
        if let Some((kept, held)) = files.kept(&recorded.place, open) {
            record.engine = kept;
            lease = held;
        }
        if let Some(path) = files.path_of(open) {
            record.path = path.to_names();
        }
        record.moving.clear();
        for path in recorded.moving.values().flatten() {
            if *path != record.path && !record.moving.contains(path) {
                record.moving.push(path.clone());
            }
        }
        let mut changes = vec![MapChange::Put(open_key(record.id), record.encode())];
        if let Some((Owner::Lease(client, key), kept)) = lease {
            changes.push(put_lease(client, key, kept));
        }
        let sizes = changes.iter().map(|change| match change {
            MapChange::Put(key, value) => key.len() + value.len(),
            MapChange::Remove(_) => 0,
        });
        let bytes = sizes.sum();
        let usage = self.owners.entry(record.owner).or_default();
        usage.bytes = usage.bytes.saturating_sub(recorded.bytes) + bytes;
        recorded.bytes = bytes;
        changes
    }

    pub(super) fn leave(&mut self, open: OpenId) -> Option<Vec<MapChange>> {
        let Recorded {
            record,
            place,
            bytes,
            ..
        } = self.opens.remove(&open)?;
        if let Some(usage) = self.owners.get_mut(&record.owner) {
            usage.opens = usage.opens.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(bytes);
            if usage.opens == 0 {
                self.owners.remove(&record.owner);
            }
        }
        let mut changes = vec![MapChange::Remove(open_key(record.id))];
        if let Some(opens) = self.by_inode.get_mut(&place.key) {
            opens.remove(&open);
            if opens.is_empty() {
                self.by_inode.remove(&place.key);
            }
        }
        if let Some((key, _)) = record.lease {
            let name = (record.client, key);
            if let Some(opens) = self.leases.get_mut(&name) {
                opens.remove(&open);
                if opens.is_empty() {
                    self.leases.remove(&name);
                    changes.push(MapChange::Remove(lease_key(record.client, key)));
                }
            }
        }
        Some(changes)
    }
}

pub(crate) fn put_lease(client: Guid, key: LeaseKey, kept: SavedLease) -> MapChange {
    MapChange::Put(lease_key(client, key), encode_lease(&kept))
}
