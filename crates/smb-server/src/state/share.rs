//! The shares of the server, a snapshot that a reload replaces whole.

use std::{collections::BTreeMap, sync::Arc};

use durability::Gate;
use vfs::Vfs;

use crate::config::ShareConfig;

/// A folder that clients may connect to.
pub struct Share<V: Vfs> {
    /// What the administrator said of it.
    pub config: ShareConfig,
    /// Its files.
    pub vfs: Arc<V>,
    /// What must be stable before which reply.
    pub gate: Arc<Gate<V>>,
    /// Number of the share in the file engine; stays the same over reloads that keep its name.
    pub id: u32,
}

/// All shares by folded name.
pub struct Shares<V: Vfs> {
    by_name: BTreeMap<String, Arc<Share<V>>>,
}

impl<V: Vfs> Default for Shares<V> {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
        }
    }
}

impl<V: Vfs> Shares<V> {
    /// A set of shares; of two with one name the later stays.
    pub fn new(shares: impl IntoIterator<Item = Arc<Share<V>>>) -> Self {
        Self {
            by_name: shares
                .into_iter()
                .map(|share| (share.config.name.to_uppercase(), share))
                .collect(),
        }
    }

    /// The share of this name, case aside.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Share<V>>> {
        self.by_name.get(&name.to_uppercase())
    }

    /// All, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Share<V>>> {
        self.by_name.values()
    }
}
