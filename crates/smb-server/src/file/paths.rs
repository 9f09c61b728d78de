//! Paths of opens: finds the opens below a directory, and the present path of an open.
//!
//! Owns one index per engine: (share, folded components) of every open, so that "any open below
//! this directory" ([MS-FSA] 2.1.4.2) and the renaming of a directory are range scans. Paths are
//! share-relative; two shares over one directory do not see each other's opens here.
//!
//! An open whose close removes its name is leaving: it is no longer found among the opens, but a rename of a directory
//! above it takes it into account and moves its path, until the name is off the disk.
//!
//! The caller folds the names: it passes both forms of every component.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfs::FileKey;

use super::types::{OpenId, Place};
use crate::memory::Held;

/// A share, named engine-wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShareId(pub u32);

/// The path of an object in a share: every component as stored and folded. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SharePath {
    /// The share.
    pub share: ShareId,
    names: Arc<[Box<str>]>,
    folded: Arc<[Box<str>]>,
    /// The part of the server's memory budget that it takes. All opens of a renamed object share the path, so the part
    /// is held until the last of them is closed or renamed again.
    held: Option<Arc<Held>>,
}

impl PartialEq for SharePath {
    fn eq(&self, other: &Self) -> bool {
        self.share == other.share && self.names == other.names && self.folded == other.folded
    }
}

impl Eq for SharePath {}

impl SharePath {
    /// A path of `names` (none for the share's root), which are compared as `fold` maps them.
    pub fn new<S: AsRef<str>>(
        share: ShareId,
        names: impl IntoIterator<Item = S>,
        fold: impl Fn(&str) -> String,
    ) -> Self {
        let names: Arc<[Box<str>]> = names.into_iter().map(|name| name.as_ref().into()).collect();
        let folded = names.iter().map(|name| fold(name).into()).collect();
        Self {
            share,
            names,
            folded,
            held: None,
        }
    }

    /// This path, which takes the part `held` of the server's memory budget.
    pub(crate) fn charged(self, held: Option<Arc<Held>>) -> Self {
        Self { held, ..self }
    }

    /// The components as stored.
    #[must_use]
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The components as compared.
    #[must_use]
    pub fn folded(&self) -> &[Box<str>] {
        &self.folded
    }

    /// The path as FileNameInformation shows it: components joined by `\`, nothing in front.
    #[must_use]
    pub fn text(&self) -> String {
        self.names.join("\\")
    }

    /// Whether this is `above` or something below it.
    #[must_use]
    pub fn starts_with(&self, above: &Self) -> bool {
        self.share == above.share && self.folded.starts_with(&above.folded)
    }

    /// Whether both name the same object: share and folded components are equal.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.share == other.share && self.folded == other.folded
    }

    /// The key of this path of an open in an index.
    pub(super) fn key(&self, open: OpenId) -> IndexKey {
        (self.share, Arc::clone(&self.folded), open)
    }

    /// The part of an index that is at this path and below.
    pub(super) fn at_or_below<'a>(
        &'a self,
        index: &'a BTreeSet<IndexKey>,
    ) -> impl Iterator<Item = &'a IndexKey> + 'a {
        index
            .range(self.key(OpenId(0))..)
            .take_while(|(share, folded, _)| {
                *share == self.share && folded.starts_with(&self.folded)
            })
    }

    /// This path with its first components, `from`, replaced by `to`; `None` if it does not
    /// start with them.
    #[must_use]
    pub(crate) fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        if !self.starts_with(from) {
            return None;
        }
        let depth = from.folded.len();
        if self.folded.len() == depth {
            // The opens of the object that moves share one path, however many they are.
            return Some(to.clone());
        }
        let join =
            |head: &[Box<str>], tail: &[Box<str>]| head.iter().chain(tail).cloned().collect();
        Some(Self {
            share: to.share,
            names: join(&to.names, self.names.get(depth..).unwrap_or_default()),
            folded: join(&to.folded, self.folded.get(depth..).unwrap_or_default()),
            held: self.held.clone(),
        })
    }
}

/// The order is by path, so all that is below a directory follows it directly.
pub(super) type IndexKey = (ShareId, Arc<[Box<str>]>, OpenId);

/// The index.
#[derive(Debug, Default)]
pub(super) struct Paths {
    by_path: BTreeMap<IndexKey, Place>,
    by_open: BTreeMap<OpenId, SharePath>,
    /// The opens that are closed and whose names are being removed.
    leaving: BTreeSet<OpenId>,
    /// The new names of renames under way.
    coming: BTreeMap<OpenId, SharePath>,
    coming_at: BTreeSet<IndexKey>,
}

impl Paths {
    pub(super) fn len(&self) -> usize {
        self.by_open.len()
    }

    /// The stream of an open has another name.
    pub(super) fn set_place(&mut self, open: OpenId, place: Place) {
        if let Some(path) = self.by_open.get(&open)
            && let Some(known) = self.by_path.get_mut(&path.key(open))
        {
            *known = place;
        }
    }

    pub(super) fn insert(&mut self, open: OpenId, path: SharePath, place: Place) {
        self.by_path.insert(path.key(open), place);
        self.by_open.insert(open, path);
    }

    pub(super) fn remove(&mut self, open: OpenId) -> Option<(SharePath, Place)> {
        self.leaving.remove(&open);
        let path = self.by_open.remove(&open)?;
        let place = self.by_path.remove(&path.key(open))?;
        Some((path, place))
    }

    pub(super) fn path_of(&self, open: OpenId) -> Option<SharePath> {
        let path = self.by_open.get(&open);
        path.filter(|_| !self.leaving.contains(&open)).cloned()
    }

    /// Marks an open as closed while its name is being removed: until [`Paths::remove`] it is leaving.
    pub(super) fn leave(&mut self, open: OpenId) {
        if self.by_open.contains_key(&open) {
            self.leaving.insert(open);
        }
    }

    /// The path of an open that is leaving.
    pub(super) fn leaving(&self, open: OpenId) -> Option<SharePath> {
        let path = self.by_open.get(&open);
        path.filter(|_| self.leaving.contains(&open)).cloned()
    }

    /// The opens of `path` itself.
    pub(super) fn at(&self, path: &SharePath) -> Vec<OpenId> {
        let key = |open| path.key(OpenId(open));
        let here = self.by_path.range(key(0)..=key(u64::MAX));
        here.map(|((_, _, open), _)| *open)
            .filter(|open| !self.leaving.contains(open))
            .collect()
    }

    /// The opens of `path` and of everything below it, in the order of their paths.
    pub(super) fn at_or_below<'a>(
        &'a self,
        path: &'a SharePath,
    ) -> impl Iterator<Item = (OpenId, &'a Place, bool)> + 'a {
        self.by_path
            .range(path.key(OpenId(0))..)
            .take_while(|((share, folded, _), _)| {
                *share == path.share && folded.starts_with(&path.folded)
            })
            .map(|((_, folded, open), place)| (*open, place, folded.len() > path.folded.len()))
    }

    /// The opens strictly below a directory, and those that are leaving.
    pub(super) fn below(&self, path: &SharePath) -> Vec<(OpenId, Place)> {
        self.at_or_below(path)
            .filter(|(_, _, below)| *below)
            .map(|(open, place, _)| (open, place.clone()))
            .collect()
    }

    /// Announces the new path of a rename. Until [`Paths::dismiss`], it moves along with the directories above it.
    pub(super) fn expect(&mut self, rename: OpenId, path: SharePath) {
        self.dismiss(rename);
        self.coming_at.insert(path.key(rename));
        self.coming.insert(rename, path);
    }

    pub(super) fn dismiss(&mut self, rename: OpenId) {
        if let Some(path) = self.coming.remove(&rename) {
            self.coming_at.remove(&path.key(rename));
        }
    }

    /// The present path of a rename's new name.
    pub(super) fn coming(&self, rename: OpenId) -> Option<SharePath> {
        self.coming.get(&rename).cloned()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let opens = self.by_path.is_empty() && self.by_open.is_empty();
        let coming = self.coming.is_empty() && self.coming_at.is_empty();
        opens && coming && self.leaving.is_empty()
    }

    /// Follows a rename of `key`: every open of it at `from`, and every one below, is now at or below `to`. Other
    /// opens at `from` are of objects that got this path later, or that were replaced there before. The cost depends on
    /// the number of paths that move, however many others there are.
    pub(super) fn rename(&mut self, key: FileKey, from: &SharePath, to: &SharePath) {
        let coming: Vec<OpenId> = from
            .at_or_below(&self.coming_at)
            // A new name strictly below `from` moves along. One at `from` itself does not: only the object that has had
            // this name moves away.
            .filter(|(_, folded, _)| folded.len() > from.folded.len())
            .map(|(_, _, rename)| *rename)
            .collect();
        for rename in coming {
            if let Some(path) = self.coming(rename).and_then(|path| path.moved(from, to)) {
                self.expect(rename, path);
            }
        }
        let moving: Vec<OpenId> = self
            .at_or_below(from)
            .filter(|(_, place, below)| *below || place.key == key)
            .map(|(open, _, _)| open)
            .collect();
        for open in moving {
            let leaving = self.leaving.contains(&open);
            if let Some((path, place)) = self.remove(open) {
                let path = path.moved(from, to).unwrap_or(path);
                self.insert(open, path, place);
            }
            if leaving {
                self.leave(open);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn path(share: u32, text: &str) -> SharePath {
        let names = text.split('\\').filter(|name| !name.is_empty());
        SharePath::new(ShareId(share), names, str::to_uppercase)
    }

    fn place(ino: u64) -> Place {
        let key = FileKey {
            ino,
            ..FileKey::default()
        };
        Place { key, stream: None }
    }

    #[test]
    fn below_is_by_component_and_without_case() {
        let mut paths = Paths::default();
        for (id, share, text) in [
            (1, 0, "a"),
            (2, 0, "A\\x"),
            (3, 0, "a\\b\\C"),
            (4, 0, "ab\\x"),
            (5, 0, "a!\\x"),
            (6, 1, "a\\x"),
        ] {
            paths.insert(OpenId(id), path(share, text), place(id));
        }
        let below = |text| -> Vec<u64> {
            let found = paths.below(&path(0, text));
            found.into_iter().map(|(open, _)| open.0).collect()
        };
        assert_eq!(below("A"), [3, 2]);
        assert_eq!(below("a\\B"), [3]);
        assert_eq!(below("a\\b\\c"), [0u64; 0]);
        assert_eq!(paths.at(&path(0, "A")), [OpenId(1)]);
        assert_eq!(paths.at(&path(0, "a\\X")), [OpenId(2)]);
        assert!(paths.at(&path(0, "a\\b")).is_empty());
        let mut all = below("");
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn opens_of_a_renamed_object_share_its_path() {
        let mut paths = Paths::default();
        for id in 1..=2 {
            paths.insert(OpenId(id), path(0, "f"), place(1));
        }
        let memory = Memory::new(1 << 20);
        let held = memory.account([10, 0, 0, 1].into()).keep(4096);
        let to = path(0, "deep\\g").charged(held.map(Arc::new));
        paths.rename(place(1).key, &path(0, "f"), &to);
        drop(to);
        let [one, two] = [1, 2].map(|id| paths.path_of(OpenId(id)).unwrap());
        assert_eq!(one.text(), "deep\\g");
        assert!(Arc::ptr_eq(&one.names, &two.names) && Arc::ptr_eq(&one.folded, &two.folded));
        drop((one, two));
        // The path is in memory, and so in the budget, as long as any open has it.
        paths.remove(OpenId(1));
        assert_eq!(memory.figures().used, 4096);
        paths.remove(OpenId(2));
        assert_eq!(memory.figures().used, 0);
    }

    #[test]
    fn renames_move_everything_below_and_keep_the_case_of_the_rest() {
        let mut paths = Paths::default();
        paths.insert(OpenId(1), path(0, "Old"), place(1));
        paths.insert(OpenId(2), path(0, "Old\\Sub\\File"), place(2));
        paths.insert(OpenId(3), path(0, "Older"), place(3));
        paths.insert(OpenId(4), path(0, "old"), place(4));
        paths.rename(place(1).key, &path(0, "OLD"), &path(0, "up\\New"));
        let text = |id| paths.path_of(OpenId(id)).unwrap().text();
        assert_eq!(text(1), "up\\New");
        assert_eq!(text(2), "up\\New\\Sub\\File");
        assert_eq!(text(3), "Older");
        assert_eq!(text(4), "old", "another one came there");
        assert_eq!(paths.below(&path(0, "UP")).len(), 2);
        assert!(paths.below(&path(0, "old")).is_empty());
        paths.expect(OpenId(9), path(0, "up\\new\\Other"));
        paths.expect(OpenId(8), path(0, "up\\new"));
        paths.rename(place(1).key, &path(0, "Up\\New"), &path(0, "Down"));
        assert_eq!(paths.coming(OpenId(9)).unwrap().text(), "Down\\Other");
        assert_eq!(paths.coming(OpenId(8)).unwrap().text(), "up\\new");
        assert!(paths.remove(OpenId(2)).is_some());
        assert!(paths.remove(OpenId(2)).is_none());
        assert_eq!(paths.by_path.len(), paths.by_open.len());
    }

    #[test]
    fn a_renamed_stream_is_found_by_its_new_name() {
        let mut paths = Paths::default();
        let stream = |name: &str| Place {
            stream: Some(name.into()),
            ..place(1)
        };
        paths.insert(OpenId(1), path(0, "d\\f"), stream("a"));
        paths.set_place(OpenId(1), stream("b"));
        paths.set_place(OpenId(2), stream("c"));
        assert_eq!(
            paths.remove(OpenId(1)),
            Some((path(0, "d\\f"), stream("b")))
        );
        assert!(paths.is_empty());
    }

    #[test]
    fn what_is_leaving_is_below_and_moves_along_and_is_no_open() {
        let mut paths = Paths::default();
        paths.insert(OpenId(1), path(0, "Old\\File"), place(1));
        paths.leave(OpenId(1));
        paths.leave(OpenId(2));
        assert_eq!(paths.path_of(OpenId(1)), None);
        assert!(paths.at(&path(0, "old\\file")).is_empty());
        assert_eq!(paths.below(&path(0, "old")).len(), 1);
        paths.rename(place(9).key, &path(0, "old"), &path(0, "New"));
        assert_eq!(paths.path_of(OpenId(1)), None);
        assert_eq!(paths.leaving(OpenId(1)).unwrap().text(), "New\\File");
        assert_eq!(paths.leaving(OpenId(2)), None);
        assert!(paths.remove(OpenId(1)).is_some());
        assert!(paths.is_empty());
    }
}
