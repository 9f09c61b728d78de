//! The opens below a directory that is to be renamed ([MS-FSA] 2.1.4.2, 2.1.5.15.12).
//!
//! There may be as many as all users may have, so the caller looks at them in portions, and lets others have their turn
//! in between. No lock is held for longer than a portion. An open that comes, or whose path moves, while the search is
//! under way may be missed, as one that comes after the search is; an open that is closed after it was found counts.

use std::collections::BTreeSet;

use smb_wire::Status;

use super::{
    files::Files,
    share_path::{IndexKey, SharePath},
    types::{Actor, Effects, OpenId, Operation, Place, Step, Waiter},
};

/// The most opens or objects of one portion.
pub(super) const PORTION: usize = 256;

/// The opens below a directory that is to be renamed.
#[derive(Debug)]
pub struct Below {
    /// The number of opens there: if any are left after the wait, the rename fails with ACCESS_DENIED.
    pub open: usize,
    /// The file whose holder was asked to give up its handle.
    pub asked: Option<Place>,
    /// Whether to wait for handles to be given up.
    pub step: Step,
    /// The effects to carry out.
    pub effects: Effects,
}

/// The opens strictly below a directory, through whichever share, and those whose names are still being removed: one
/// share after the other, in the order of their paths.
#[derive(Debug)]
pub struct OpensBelow {
    /// The directories with opens to look at, each with the place in the index after which they are.
    trees: Vec<(SharePath, IndexKey)>,
}

impl OpensBelow {
    /// The next opens; `None` after the last ones.
    pub fn portion(&mut self, files: &Files) -> Option<Vec<(OpenId, Place)>> {
        let (tree, after) = self.trees.pop()?;
        let found = files.paths.lock().below(&tree, &after, PORTION);
        if let (PORTION, Some((last, _))) = (found.len(), found.last()) {
            self.trees.push((tree, last.clone()));
        }
        let opens = found.into_iter();
        Some(opens.map(|((_, _, open), place)| (open, place)).collect())
    }
}

/// The search for [`Below`] under way.
#[derive(Debug)]
pub struct Clearing {
    /// The opens that were not looked at yet.
    opens: OpensBelow,
    /// The number of those that were and are below the directory.
    open: usize,
    /// The objects that they have open and whose holders were not asked yet.
    places: BTreeSet<Place>,
    effects: Effects,
}

impl Files {
    /// The opens strictly below a directory, and those whose names are still being removed.
    #[must_use]
    pub fn opens_below(&self, directory: &SharePath) -> OpensBelow {
        let mut trees = self.watches.lock().trees_below(directory);
        // The opens of the directory itself are not below it.
        trees.push((directory.clone(), directory.key(OpenId(u64::MAX))));
        OpensBelow { trees }
    }

    /// Before a directory is renamed: breaks the caching of handles below it, one file after the other, by
    /// [`Clearing::go_on`].
    #[must_use]
    pub fn clear_below(&self, directory: &SharePath) -> Clearing {
        Clearing {
            opens: self.opens_below(directory),
            open: 0,
            places: BTreeSet::new(),
            effects: Effects::default(),
        }
    }
}

impl Clearing {
    /// Does the next portion; `None` if there is more to do. `before` says how many opens there were at the last break,
    /// and which file that concerned. If no fewer are open now and that file has no caching left to give up, the rename
    /// is refused: the file is really in use, or somebody opened another one ([MS-FSA] 2.1.5.15.12, note 186).
    pub fn go_on(
        &mut self,
        files: &Files,
        waiter: Waiter,
        before: Option<&(usize, Place)>,
    ) -> Option<Below> {
        for (open, place) in self.opens.portion(files).unwrap_or_default() {
            // A handle whose name was removed or replaced by POSIX semantics has its last path, but is below no
            // directory.
            if !files.is_unlinked(&place, open) {
                self.open += 1;
                self.places.insert(place);
            }
        }
        if !self.opens.trees.is_empty() {
            return None;
        }
        let ask = |place: &Place| {
            files.operation(place, Actor::Stranger, Operation::Rename, Some(waiter))
        };
        if let Some((_, last)) = before.filter(|(count, _)| self.open >= *count) {
            // The break of that file may go in several steps, of which some are left.
            let (step, effects) = ask(last);
            self.effects.merge(effects);
            let step = match step {
                Step::Go => Step::Refused(Status::ACCESS_DENIED),
                step => step,
            };
            return Some(self.found(step, Some(last.clone())));
        }
        for _ in 0..PORTION {
            let Some(place) = self.places.pop_first() else {
                return Some(self.found(Step::Go, None));
            };
            let (step, effects) = ask(&place);
            self.effects.merge(effects);
            if step != Step::Go {
                return Some(self.found(step, Some(place)));
            }
        }
        None
    }

    fn found(&mut self, step: Step, asked: Option<Place>) -> Below {
        Below {
            open: self.open,
            asked,
            step,
            effects: std::mem::take(&mut self.effects),
        }
    }
}
