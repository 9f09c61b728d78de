//! The opens of an inode: how they come and go, and how the rules choose between them.

use std::{net::IpAddr, sync::Arc};

use super::{Counted, OpenEntry, Opens, Share};
use crate::rules::Opener;

impl Opens {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenEntry> {
        self.by_id.values()
    }

    /// A path that the inode is or was opened by, from the root of the share.
    pub(crate) fn path(&self) -> Option<String> {
        let open = self.by_id.values().next().map(|open| &open.opener);
        open.or(self.last.as_ref())
            .map(|opener| opener.path.to_string())
    }

    pub(crate) fn have_several_names(&self) -> bool {
        self.several_names
    }

    /// Adds an open, and judges it by its share's present rules.
    pub(crate) fn insert(&mut self, id: u64, share: &Arc<Share>, opener: Arc<Opener>) {
        self.several_names = self.by_id.values().next().is_some_and(|first| {
            let one_name = first.share == *share && first.opener.path == opener.path;
            self.several_names || !one_name
        });
        let rule = share.rules().find(&opener).cloned();
        let share = Arc::clone(share);
        let entry = OpenEntry {
            share,
            opener,
            rule,
        };
        self.add(&entry);
        self.by_id.insert(id, entry);
    }

    /// Judges an open again whose client has reconnected through another connection.
    pub(crate) fn came_back(&mut self, id: u64, client: IpAddr, dialect: u16) {
        let Some(entry) = self.by_id.get(&id) else {
            return;
        };
        let share = Arc::clone(&entry.share);
        let mut opener = Opener::clone(&entry.opener);
        (opener.client, opener.dialect) = (Some(client), dialect);
        let several_names = self.several_names;
        self.remove(id);
        self.insert(id, &share, opener.into());
        // An open that was closed before may have come by another name.
        self.several_names = several_names;
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let Some(entry) = self.by_id.remove(&id) else {
            return;
        };
        if self.by_id.is_empty() {
            self.last = Some(Arc::clone(&entry.opener));
        }
        for counted in &mut self.counted {
            counted.number -= usize::from(counted.has(&entry));
        }
        self.counted.retain(|counted| counted.number > 0);
    }

    /// Judges the opens through a share again, because its rules changed.
    pub(crate) fn judge_anew(&mut self, share: &Arc<Share>) {
        let rules = share.rules();
        self.counted.clear();
        let mut all = std::mem::take(&mut self.by_id);
        for entry in all.values_mut() {
            if entry.share == *share {
                entry.rule = rules.find(&entry.opener).cloned();
            }
            self.add(entry);
        }
        self.by_id = all;
    }

    fn add(&mut self, entry: &OpenEntry) {
        let mut all = self.counted.iter_mut();
        match all.find(|counted| counted.has(entry)) {
            Some(counted) => counted.number += 1,
            None => self.counted.push(Counted {
                share: Arc::clone(&entry.share),
                rule: entry.rule.clone(),
                number: 1,
            }),
        }
    }
}
