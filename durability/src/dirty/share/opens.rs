//! The opens of an inode: how they come and go, and how the rules choose between them.

use std::{mem, net::IpAddr, sync::Arc};

use super::{Alike, Opened, Opens, Share};
use crate::rules::Opener;

impl Opens {
    pub(crate) fn is_empty(&self) -> bool {
        self.alike.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Alike> {
        self.alike.iter()
    }

    /// Any of the opens, and its share.
    fn any(&self) -> Option<(&Arc<Share>, &Arc<Opener>)> {
        let some = self.alike.first()?;
        Some((&some.share, &some.openers.first()?.opener))
    }

    /// A path that the inode is or was opened by, from the root of the share.
    pub(crate) fn path(&self) -> Option<String> {
        let open = self.any().map(|(_, opener)| opener);
        let opener = open.or(self.last.as_ref())?;
        Some(opener.path.to_string())
    }

    pub(crate) fn have_several_names(&self) -> bool {
        self.several_names
    }

    /// Adds an open, and judges it by its share's present rules.
    pub(crate) fn insert(&mut self, id: u64, share: &Arc<Share>, opener: Arc<Opener>) {
        self.several_names = self.any().is_some_and(|(known, first)| {
            self.several_names || known != share || first.path != opener.path
        });
        self.add(id, share, opener);
    }

    fn add(&mut self, id: u64, share: &Arc<Share>, opener: Arc<Opener>) {
        let rule = share.rules().find(&opener).cloned();
        let mut all = self.alike.iter_mut();
        match all.find(|some| some.share == *share && some.rule == rule) {
            Some(some) => {
                let at = some.openers.partition_point(|one| one.id < id);
                some.openers.insert(at, Opened { id, opener });
            }
            None => {
                // Nearly every inode has one group with few opens, and a vector would have room for four at once.
                self.alike.reserve_exact(1);
                self.alike.push(Alike {
                    share: Arc::clone(share),
                    rule,
                    openers: vec![Opened { id, opener }],
                });
            }
        }
    }

    fn take(&mut self, id: u64) -> Option<(Arc<Share>, Arc<Opener>)> {
        let mut all = self.alike.iter_mut();
        let (share, opener) = all.find_map(|some| {
            let at = some.openers.binary_search_by_key(&id, |one| one.id).ok()?;
            Some((Arc::clone(&some.share), some.openers.remove(at).opener))
        })?;
        self.alike.retain(|some| !some.openers.is_empty());
        Some((share, opener))
    }

    /// Judges an open again whose client has reconnected through another connection.
    pub(crate) fn came_back(&mut self, id: u64, client: IpAddr, dialect: u16) {
        if let Some((share, opener)) = self.take(id) {
            let opener = Opener {
                client: Some(client),
                dialect,
                ..Opener::clone(&opener)
            };
            self.add(id, &share, opener.into());
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let taken = self.take(id).filter(|_| self.is_empty());
        self.last = taken.map(|(_, opener)| opener).or(self.last.take());
    }

    /// Judges the opens through a share again, because its rules changed.
    pub(crate) fn judge_anew(&mut self, share: &Arc<Share>) {
        let all = mem::take(&mut self.alike).into_iter();
        let (of_share, others): (Vec<_>, _) = all.partition(|some| some.share == *share);
        self.alike = others;
        for one in of_share.into_iter().flat_map(|some| some.openers) {
            self.add(one.id, share, one.opener);
        }
    }
}
