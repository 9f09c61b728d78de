//! The shares of the server, a snapshot that a reload replaces as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use durability::Gate;
use vfs::Vfs;

use crate::config::ShareConfig;

/// A folder that clients may connect to.
pub struct Share<V: Vfs> {
    /// The configuration of the share.
    pub config: ShareConfig,
    /// Its files.
    pub vfs: Arc<V>,
    /// Decides what must be stable before which reply.
    pub gate: Arc<Gate<V>>,
    /// Number of the share in the file engine; stays the same over reloads that keep its name.
    pub id: u32,
}

/// All shares by folded name.
pub struct Shares<V: Vfs> {
    by_name: BTreeMap<String, Arc<Share<V>>>,
    /// Folded names of shares that cannot be served yet.
    late: BTreeSet<String>,
}

impl<V: Vfs> Default for Shares<V> {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            late: BTreeSet::new(),
        }
    }
}

impl<V: Vfs> Shares<V> {
    /// A set of shares; if two have the same name, the later one is used.
    pub fn new(shares: impl IntoIterator<Item = Arc<Share<V>>>) -> Self {
        Self {
            by_name: shares
                .into_iter()
                .map(|share| (share.config.name.to_uppercase(), share))
                .collect(),
            late: BTreeSet::new(),
        }
    }

    /// The same set, with the names of shares that cannot be served yet because their disks do not
    /// answer.
    #[must_use]
    pub fn with_late<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.late = names.into_iter().map(str::to_uppercase).collect();
        self
    }

    /// Whether the share of this name, case aside, cannot be served yet.
    pub fn is_late(&self, name: &str) -> bool {
        self.late.contains(&name.to_uppercase())
    }

    /// The share of this name, case aside.
    pub fn find(&self, name: &str) -> Option<&Arc<Share<V>>> {
        self.by_name.get(&name.to_uppercase())
    }

    /// All, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Share<V>>> {
        self.by_name.values()
    }
}
