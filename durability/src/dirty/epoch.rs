//! One epoch of an inode: what changed since a sync last took it, except names, and the shares to
//! which that is charged.
//!
//! Invariant: nothing in an epoch ever becomes clean. A sync takes an epoch as a whole, and drops it
//! or hands it to the latch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use vfs::{FileKey, SyncScope};

use super::ranges::Extents;
use crate::{
    policy::Meta,
    settings::PolicyKind,
    share::{Charge, Share},
};

/// The shares that are charged with a change.
pub(crate) struct Account<'a> {
    pub(crate) share: &'a Arc<Share>,
    /// The policy that the change is acknowledged under.
    pub(crate) kind: PolicyKind,
    /// Other shares with a bounded open of the inode.
    pub(crate) also: Vec<Arc<Share>>,
}

impl Account<'_> {
    /// These shares, each with the policy under which it is charged.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&Arc<Share>, PolicyKind)> {
        let also = (self.also.iter()).map(|share| (share, PolicyKind::Bounded));
        std::iter::once((self.share, self.kind)).chain(also)
    }

    /// Adds to `charges` those of these shares that are missing.
    pub(crate) fn charge(&self, charges: &mut Vec<Charge>, key: FileKey, now: Duration) {
        for (share, kind) in self.shares() {
            if !charges.iter().any(|charge| charge.is_for(share, kind)) {
                charges.push(Charge::new(share, key, now, kind));
            }
        }
    }
}

/// A client's change of an inode other than of its contents. Once it is made again and synced, it is proven again.
/// `Meta::Eas` are the extended attributes of which no names are known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Changed {
    Meta(Meta),
    /// One extended attribute, by its name in folded case.
    Ea(String),
    /// A stream was made, named or removed.
    Stream(String),
    /// The end of file of a stream was set.
    Size(String),
    /// Space was reserved.
    Allocation,
}

impl Changed {
    pub(crate) const METADATA: [Self; 4] = [
        Self::Meta(Meta::Security),
        Self::Meta(Meta::Times),
        Self::Meta(Meta::Attributes),
        Self::Meta(Meta::Eas),
    ];
}

/// In a set of changes, moves the changed size of a stream from its old name to its new one.
pub(crate) fn rename_size(all: &mut BTreeSet<Changed>, from: &str, to: &str) {
    if all.remove(&Changed::Size(from.to_owned())) {
        all.insert(Changed::Size(to.to_owned()));
    }
}

/// The place where contents changed.
#[derive(Clone, Copy)]
pub(crate) enum Where {
    /// From one offset to another (exclusive).
    At(u64, u64),
    /// Somewhere within this range: all of it is dirty, and nothing of it counts as rewritten.
    Within(u64, u64),
    /// In the ranges that the latch already calls unproven.
    Latched,
}

impl Where {
    /// Anywhere in the stream.
    pub(crate) const UNKNOWN: Self = Self::Within(0, u64::MAX);
}

/// All changes of one epoch, except names.
#[derive(Default)]
pub(crate) struct Epoch {
    /// Contents or size of the unnamed stream.
    pub(crate) data: bool,
    /// Times that a change of contents set, which `fdatasync` leaves behind.
    pub(crate) times: bool,
    /// Metadata, or a name (whose record in the inode only a full sync saves).
    pub(crate) meta: bool,
    /// Extended attributes may have changed, and it is not known which ones. So a failed sync may have lost each of
    /// them, and a good one proves none.
    pub(crate) doubtful_eas: bool,
    /// Metadata and sizes that a client set, as opposed to names.
    pub(crate) set_meta: BTreeSet<Changed>,
    /// The inode was made, with all of its metadata.
    pub(crate) created: bool,
    /// A directory's entries: a name went away.
    pub(crate) entries: bool,
    /// Streams, by name.
    pub(crate) streams: BTreeSet<String>,
    pub(crate) extents: Extents,
    /// Streams that were cut short, to these sizes, or removed: once that is on disk, nothing beyond these sizes is
    /// unproven.
    pub(crate) cut: BTreeMap<String, u64>,
    pub(crate) charges: Vec<Charge>,
}

impl Epoch {
    pub(crate) fn is_clean(&self) -> bool {
        !self.data && !self.times && !self.meta && !self.entries && self.streams.is_empty()
    }

    /// The scope of the sync. If no request that waits for it wants the times, `fdatasync` is enough for
    /// data and size.
    pub(crate) fn scope(&self, times: bool) -> SyncScope {
        if times || self.meta || self.entries || !self.streams.is_empty() {
            SyncScope::All
        } else {
            SyncScope::Data
        }
    }

    /// The epoch that stays dirty when only data and size are synced: the times, as old as before.
    pub(crate) fn without_data(&self) -> Self {
        Self {
            times: self.times,
            charges: self.charges.iter().filter_map(Charge::for_times).collect(),
            ..Self::default()
        }
    }

    /// A client changed metadata.
    pub(crate) fn set(&mut self, what: Changed) {
        self.meta = true;
        self.set_meta.insert(what);
    }

    /// The extended attributes of these names changed.
    pub(crate) fn set_eas<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.meta = true;
        let names = names.into_iter();
        let names = names.map(|name| Changed::Ea(vfs::fold(name)));
        self.set_meta.extend(names);
    }

    pub(crate) fn merge(&mut self, other: Epoch) {
        self.data |= other.data;
        self.times |= other.times;
        self.meta |= other.meta;
        self.doubtful_eas |= other.doubtful_eas;
        self.set_meta.extend(other.set_meta);
        self.created |= other.created;
        self.entries |= other.entries;
        self.streams.extend(other.streams);
        self.extents.merge(&other.extents);
        for (stream, size) in other.cut {
            self.cut_short(&stream, size);
        }
        self.charges.extend(other.charges);
    }

    /// So many names went away from the directory. The caller must have charged the shares before.
    pub(crate) fn entries_removed(&mut self, account: &Account<'_>, count: u64) {
        self.entries = true;
        for charge in &self.charges {
            if (account.shares()).any(|(share, kind)| charge.is_for(share, kind)) {
                charge.names_removed(count);
            }
        }
    }

    pub(crate) fn cut_short(&mut self, stream: &str, size: u64) {
        let known = self.cut.entry(stream.to_owned()).or_insert(size);
        *known = size.min(*known);
    }

    /// The changes of a stream count for its new name from now on.
    pub(crate) fn rename_stream(&mut self, from: &str, to: &str) {
        // The changes of an earlier stream of that name prove nothing of this one.
        self.extents.remove_stream(to);
        self.cut.remove(to);
        self.set_meta.remove(&Changed::Size(to.to_owned()));
        self.extents.rename(from, to);
        rename_size(&mut self.set_meta, from, to);
        if let Some(size) = self.cut.remove(from) {
            self.cut.insert(to.to_owned(), size);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.charges.iter().map(Charge::bytes).sum()
    }
}
