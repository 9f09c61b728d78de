//! The watchers that a change reaches ([MS-FSA] 2.1.4.1): those of the directories above it, by the paths that lead to
//! it in its own share and in others, and those of its own directory, by whatever path they know it.

use std::sync::Arc;

use vfs::FileKey;

use super::{Files, IndexKey, OpenId, Reported, ShareId, SharePath, Watches};

impl Watches {
    /// Queues one change for the watchers of the directories above it, and collects the opens of these watchers.
    pub(super) fn queue(&mut self, reported: &Reported, reached: &mut Vec<OpenId>) {
        // The watchers of its own directory are found by the directory's key: another directory may have its path in a
        // share that it was moved out of.
        let own = usize::from(reported.parent.is_some());
        let mut paths = self.elsewhere(&reported.path);
        paths.push(reported.path.clone());
        for path in paths {
            let depths = path.folded().len().saturating_sub(own);
            self.queue_above(reported, &path, depths, reached);
        }
        if let Some(parent) = reported.parent {
            self.queue_in(reported, parent, reached);
        }
    }

    /// The paths that lead in other shares to the object at `path`.
    pub(in crate::file) fn elsewhere(&self, path: &SharePath) -> Vec<SharePath> {
        if self.same_folders.is_empty() {
            return Vec::new();
        }
        let folded = path.folded();
        let same = |depth: usize| {
            let above: Arc<[Box<str>]> = folded.get(..depth).unwrap_or_default().into();
            let key: IndexKey = (path.share, above, OpenId(0));
            self.same_folders.get(&key)
        };
        (0..folded.len())
            .filter_map(same)
            .flatten()
            .filter_map(|(from, to)| path.moved(from, to))
            .collect()
    }

    /// The other paths below which shares show what is below a directory, each with the place in an index after which
    /// its opens are: the directory by other paths, whose own opens are not below it, and the folders of shares in it.
    pub(in crate::file) fn trees_below(&self, directory: &SharePath) -> Vec<(SharePath, IndexKey)> {
        let itself = |path: SharePath| {
            let last = path.key(OpenId(u64::MAX));
            (path, last)
        };
        let mut trees: Vec<_> = self.elsewhere(directory).into_iter().map(itself).collect();
        let folders = self.same_folders.range(directory.key(OpenId(0))..);
        let folders = folders.take_while(|(key, _)| directory.is_above(key));
        for (from, to) in folders.flat_map(|(_, pairs)| pairs).cloned() {
            trees.push(match from.same(directory) {
                true => itself(to),
                false => (to.clone(), to.key(OpenId(0))),
            });
        }
        trees
    }

    /// The paths that had led in other shares to what moves from one path to another, each with the one that leads to
    /// it then, if that share shows it.
    pub(in crate::file) fn elsewhere_moved(
        &self,
        from: &SharePath,
        to: &SharePath,
    ) -> Vec<(SharePath, Option<SharePath>)> {
        let targets = self.elsewhere(to);
        let with_target = |source: SharePath| {
            let mut targets = targets.iter();
            let target = targets.find(|target| target.share == source.share);
            (source, target.cloned())
        };
        self.elsewhere(from).into_iter().map(with_target).collect()
    }

    /// Records that a directory at `from` is at `to` now, or is not in this share any more, and so are the folders at
    /// or below it that other shares show.
    pub(super) fn move_folders(&mut self, from: &SharePath, to: Option<&SharePath>) {
        // Each pair is there in both orders, so a path that moves is a key, and the first one from here on.
        let mut keys = self.same_folders.range(from.key(OpenId(0))..);
        if !keys.next().is_some_and(|(key, _)| from.is_above(key)) {
            return;
        }
        let moved = |path: SharePath| match path.starts_with(from) {
            // The request that moves the directory pays for its own path, not for these.
            true => Some(path.moved(from, to?)?.charged(None)),
            false => Some(path),
        };
        let pairs = std::mem::take(&mut self.same_folders);
        for (one, other) in pairs.into_values().flatten() {
            if let Some(pair) = moved(one).zip(moved(other)) {
                let same = self.same_folders.entry(pair.0.key(OpenId(0)));
                same.or_default().push(pair);
            }
        }
    }

    /// Enters a watcher, of a tree or not, among those found by their path.
    pub(super) fn index(&mut self, key: IndexKey, tree: bool) {
        if tree {
            self.tree_paths.insert(key.clone());
        }
        self.by_path.insert(key);
    }

    /// Takes out of the index the watchers that move with the directory `key`: those of it at `from`, and all below.
    /// Returns their opens, and whether they watch trees.
    pub(super) fn take_moving(&mut self, key: FileKey, from: &SharePath) -> Vec<(OpenId, bool)> {
        let there: Vec<IndexKey> = from.at_or_below(&self.by_path).cloned().collect();
        let mut moving = Vec::new();
        for old in there {
            // Another directory may have been given that path already.
            if let Some(watcher) = self.by_open.get(&old.2)
                && (watcher.key == key || !watcher.path.same(from))
            {
                moving.push((old.2, watcher.tree));
                self.by_path.remove(&old);
                self.tree_paths.remove(&old);
            }
        }
        moving
    }

    /// Records that a directory at `from` was moved to where its share does not show it. Its watchers are found by
    /// their directories alone from now on: changes further below concern nobody who may see no more than the share.
    pub(super) fn leave_share(&mut self, key: FileKey, from: &SharePath) {
        self.move_folders(from, None);
        self.take_moving(key, from);
    }

    /// Finds the watchers of a directory that had left their share by its path again, if their share shows it at `to`
    /// or elsewhere.
    pub(super) fn come_back(&mut self, key: FileKey, to: &SharePath) {
        let mut paths = self.elsewhere(to);
        paths.push(to.clone());
        let all = (key, OpenId(0))..=(key, OpenId(u64::MAX));
        let opens: Vec<OpenId> = self.by_key.range(all).map(|(_, open)| *open).collect();
        for open in opens {
            if let Some(watcher) = self.by_open.get_mut(&open)
                && !self.by_path.contains(&watcher.path.key(open))
                && let Some(path) = paths.iter().find(|path| path.share == watcher.path.share)
            {
                watcher.path = path.clone();
                let tree = watcher.tree;
                self.index(path.key(open), tree);
            }
        }
    }

    /// Queues one change for the watchers of the directories above it on `path`, those of the first `depths` ones.
    fn queue_above(
        &mut self,
        reported: &Reported,
        path: &SharePath,
        depths: usize,
        reached: &mut Vec<OpenId>,
    ) {
        let folded = path.folded();
        // Depths of the directories above, the deepest first.
        for depth in (0..depths).rev() {
            let above: Arc<[Box<str>]> = folded.get(..depth).unwrap_or_default().into();
            let key = |open| (path.share, Arc::clone(&above), OpenId(open));
            // A user may have thousands of watchers in each of these directories.
            let near = depth + 1 == folded.len();
            let index = match near {
                true => &self.by_path,
                false => &self.tree_paths,
            };
            let mut name = None;
            for (_, _, open) in index.range(key(0)..=key(u64::MAX)) {
                let Some(watcher) = self.by_open.get_mut(open) else {
                    continue;
                };
                if watcher.filter.intersects(reported.filter) {
                    let name = name.get_or_insert_with(|| relative(reported, path, depth));
                    watcher.push(reported.action, name);
                    reached.push(*open);
                }
            }
        }
    }

    /// Queues one change for the watchers of its directory, by whatever path they know that ([MS-FSA] 2.1.4.1 compares
    /// the directories): in another share, through a link, or from before a host change moved the directory.
    fn queue_in(&mut self, reported: &Reported, parent: FileKey, reached: &mut Vec<OpenId>) {
        let path = &reported.path;
        let Some((_, above)) = path.folded().split_last() else {
            return;
        };
        let all = (parent, OpenId(0))..=(parent, OpenId(u64::MAX));
        let mut name = None;
        for (_, open) in self.by_key.range(all) {
            let Some(watcher) = self.by_open.get_mut(open) else {
                continue;
            };
            if watcher.filter.intersects(reported.filter) {
                let name = name.get_or_insert_with(|| relative(reported, path, above.len()));
                watcher.push(reported.action, name);
                reached.push(*open);
            }
        }
    }
}

/// The name of a change at `path` as seen from the directory `depth` components below the root.
fn relative(reported: &Reported, path: &SharePath, depth: usize) -> String {
    let names = path.names().get(depth..).unwrap_or_default();
    let mut name = names.join("\\");
    if let Some(stream) = &reported.stream {
        name.push(':');
        name.push_str(stream);
    }
    name
}

impl Files {
    /// The path that leads in a share to the object at `path`, if the share is known to show it.
    pub(crate) fn path_in(&self, share: ShareId, path: &SharePath) -> Option<SharePath> {
        if path.share == share {
            return Some(path.clone());
        }
        let elsewhere = self.watches.lock().elsewhere(path);
        elsewhere.into_iter().find(|path| path.share == share)
    }

    /// Sets the folders that several shares show: pairs of paths in two shares that lead to one folder. They replace
    /// those set before.
    pub(crate) fn set_same_folders(&self, pairs: Vec<(SharePath, SharePath)>) {
        let mut watches = self.watches.lock();
        watches.same_folders.clear();
        for (one, other) in pairs {
            for (from, to) in [(one.clone(), other.clone()), (other, one)] {
                let same = watches.same_folders.entry(from.key(OpenId(0)));
                same.or_default().push((from, to));
            }
        }
    }
}
