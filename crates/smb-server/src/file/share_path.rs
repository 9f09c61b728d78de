//! The path of an object in a share, and its place among the paths of all opens.

use std::collections::BTreeSet;
use std::sync::Arc;

use vfs::fold;

use super::types::OpenId;
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
    /// A path of `names`; none for the share's root.
    pub fn new<S: AsRef<str>>(share: ShareId, names: impl IntoIterator<Item = S>) -> Self {
        let names: Arc<[Box<str>]> = names.into_iter().map(|name| name.as_ref().into()).collect();
        let folded = names.iter().map(|name| fold(name).into()).collect();
        Self {
            share,
            names,
            folded,
            held: None,
        }
    }

    /// A path of a share.
    pub fn of(share: u32, names: &[String]) -> Self {
        Self::new(ShareId(share), names)
    }

    /// The components in the form that the file system takes.
    pub fn to_names(&self) -> Vec<String> {
        self.names().iter().map(ToString::to_string).collect()
    }

    /// This path, which takes the part `held` of the server's memory budget.
    pub(crate) fn charged(self, held: Option<Arc<Held>>) -> Self {
        Self { held, ..self }
    }

    /// The components as stored.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The components as compared.
    pub fn folded(&self) -> &[Box<str>] {
        &self.folded
    }

    /// The path as FileNameInformation shows it: components joined by `\`, nothing in front.
    pub fn text(&self) -> String {
        self.names.join("\\")
    }

    /// Whether this is `above` or something below it.
    pub fn starts_with(&self, above: &Self) -> bool {
        self.share == above.share && self.folded.starts_with(&above.folded)
    }

    /// Whether both name the same object: share and folded components are equal.
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
            .take_while(move |key| self.is_above(key))
    }

    /// Whether an entry of an index is at this path or below it.
    pub(super) fn is_above(&self, (share, folded, _): &IndexKey) -> bool {
        *share == self.share && folded.starts_with(&self.folded)
    }

    /// This path with the last component of `to` in place of its own, if that is `name`, which is folded.
    pub(super) fn renamed(&self, name: &str, to: &Self) -> Option<Self> {
        let (last, above) = self.folded.split_last()?;
        let above = self.names.get(..above.len()).filter(|_| **last == *name)?;
        let names = above.iter().chain(to.names.last());
        Some(Self::new(self.share, names).charged(self.held.clone()))
    }

    /// This path with its first components, `from`, replaced by `to`; `None` if it does not start with them.
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
