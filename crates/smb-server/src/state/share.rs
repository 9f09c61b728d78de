//! The shares of the server, a snapshot that a reload replaces as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use durability::Gate;
use vfs::{Vfs, posix::name::to_client};

use crate::{config::ShareConfig, file::SharePath};

/// Most pairs of paths that lead to one folder in two shares. It suffices if all shares that a server may have lie in
/// one of them.
const SAME_FOLDERS_MAX: usize = 16_384;

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

    /// The same set, with the names of shares that cannot be served yet because their disks do not answer.
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

    /// All shares, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Share<V>>> {
        self.by_name.values()
    }

    /// The pairs of paths in two shares that lead to one folder, as far as the folders' paths on the host are known.
    pub(crate) fn same_folders(&self) -> Vec<(SharePath, SharePath)> {
        let folders = self.iter();
        let known = folders.filter_map(|share| Some((share.id, share.config.folder.as_deref()?)));
        same_folders(known)
    }
}

/// As [`Shares::same_folders`], for these numbers of shares and their folders.
fn same_folders<'a>(roots: impl Iterator<Item = (u32, &'a [u8])>) -> Vec<(SharePath, SharePath)> {
    let mut at: BTreeMap<Vec<&[u8]>, Vec<u32>> = BTreeMap::new();
    for (share, folder) in roots {
        let names = folder.split(|byte| *byte == b'/');
        let names = names.filter(|name| !name.is_empty()).collect();
        at.entry(names).or_default().push(share);
    }
    let mut same = Vec::new();
    for (names, inner) in &at {
        for depth in 0..=names.len() {
            let (above, below) = names.split_at(depth);
            let Some(outer) = at.get(above) else {
                continue;
            };
            let below: Vec<String> = below.iter().map(|name| to_client(name)).collect();
            for outer in outer {
                // Two shares of one folder are one pair.
                for inner in (inner.iter()).filter(|inner| !below.is_empty() || outer < *inner) {
                    if same.len() >= SAME_FOLDERS_MAX {
                        return same;
                    }
                    same.push((SharePath::of(*outer, &below), SharePath::of(*inner, &[])));
                }
            }
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_in_one_another_are_found_by_their_folders() {
        let folders: [(u32, &[u8]); 5] = [
            (1, b"/srv"),
            (2, b"/srv/a:b/c"),
            (3, b"/srv/a:b/c"),
            (4, b"/srv/a"),
            (5, b"/other"),
        ];
        let path = |share, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            SharePath::of(share, &names)
        };
        // Clients see a colon as another character.
        let below: [&str; 2] = ["a\u{f022}b", "c"];
        let root = |share| path(share, &[]);
        let mut same = same_folders(folders.into_iter());
        same.sort_by_key(|(outer, inner)| (outer.share, inner.share));
        let expected = [
            (path(1, &below), root(2)),
            (path(1, &below), root(3)),
            (path(1, &["a"]), root(4)),
            (root(2), root(3)),
        ];
        assert_eq!(same, expected);
        let all: Vec<(u32, &[u8])> = (0..1000).map(|share| (share, &b"/"[..])).collect();
        assert_eq!(same_folders(all.into_iter()).len(), SAME_FOLDERS_MAX);
    }
}
