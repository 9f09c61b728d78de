//! The guard of a change, from before it is made until its receipt. Renames (`rename.rs`) and changes of contents
//! (`contents.rs`) have guards of the same kind.
//!
//! Invariants:
//! - Every guard draws a sequence number before its change. If a sync of the inode fails between
//!   that and the report, it may have dropped the change, and a later sync would not save it. Such a
//!   change is added to the latch, and a latch is made if that of the failed sync is already gone.
//! - A guard that is dropped without a report marks nothing, because the change was not made. There are two exceptions,
//!   which count as a change of anything: a guard that a panic drops, since the panic may have come between the change
//!   and its report, and a change of contents that has begun and may have been made in part (`contents.rs`).

use vfs::{FileKey, Node, VfsResult, Volume};

use super::{Asked, Gate, Judged, Receipt};
use crate::{
    dirty::{Account, Changed, Failure, Held, Inode},
    planted::Planted,
    policy::{Event, Meta, RequestFlags, Wait},
};

/// A name, metadata, a size or a stream, about to be made, changed or removed.
///
/// The methods that report it fail with the error of the syncs that the policy requires. The change was made anyway.
#[must_use = "a change that was made must be reported"]
pub struct PendingChange<'a, V: Volume> {
    pub(super) gate: &'a Gate<V>,
    pub(super) since: u64,
    pub(super) node: &'a V::Node,
}

/// If a panic drops the guard, anything of the node may have changed.
impl<V: Volume> Drop for PendingChange<'_, V> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let asked = Asked::of(Event::Meta(Meta::Attributes), RequestFlags::default());
        (self.gate).mark(self.node, asked, self.since, |inode, _, doubt| {
            // It is not known what changed. This is the kind that no later change repairs if its sync fails.
            inode.pending.entries = true;
            if let Some(failure) = doubt {
                inode.entry_failed(failure);
            }
        });
    }
}

impl<V: Volume> PendingChange<'_, V> {
    /// Reports that a file or directory was created in `parent`.
    pub async fn created(
        &self,
        node: &V::Node,
        parent: &V::Node,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        self.name_added(Event::Create, node, parent, flags).await
    }

    /// `node` has one more name in `parent`, or already had the name that the request asks for. Another request may
    /// have made that name, which may be dirty, or lost by a failed sync. So it is promised like one made now.
    pub async fn linked(
        &self,
        node: &V::Node,
        parent: &V::Node,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let event = match node.is_directory() {
            true => Event::Move,
            false => Event::Link,
        };
        self.name_added(event, node, parent, flags).await
    }

    async fn name_added(
        &self,
        event: Event,
        node: &V::Node,
        parent: &V::Node,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let (gate, parents) = (self.gate, (Some(parent), None));
        let judged = gate.mark_name(event, node, parents, (flags, self.since));
        gate.acknowledge(node, judged).await
    }

    /// Reports that a client set metadata of `node`.
    pub async fn metadata_changed(
        &self,
        node: &V::Node,
        what: Meta,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let change = |inode: &mut Inode<V>| inode.pending.set(Changed::Meta(what));
        self.changed(Event::Meta(what), node, flags, change).await
    }

    /// Extended attributes of `node` changed. `names` are the attributes that were really set or removed. A latch ends
    /// only for these, because the removal of an attribute that does not exist writes nothing.
    pub async fn eas_changed<'n>(
        &self,
        node: &V::Node,
        names: impl IntoIterator<Item = &'n str>,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let change = |inode: &mut Inode<V>| inode.pending.set_eas(names);
        self.changed(Event::Meta(Meta::Eas), node, flags, change)
            .await
    }

    /// A change of extended attributes of `node` failed midway: any of them may have changed, and no latch ends.
    pub async fn eas_doubtful(&self, node: &V::Node, flags: RequestFlags) -> VfsResult<Receipt> {
        let change = |inode: &mut Inode<V>| inode.pending.set(Changed::DoubtfulEas);
        self.changed(Event::Meta(Meta::Eas), node, flags, change)
            .await
    }

    /// Reports that the end of file was set to `size` bytes; `None`: space was reserved, and it did not move.
    pub async fn resized(
        &self,
        node: &V::Node,
        size: Option<u64>,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let stream = node.stream().unwrap_or_default();
        let change = |inode: &mut Inode<V>| match size {
            Some(size) => inode.resized(stream, size),
            None => inode.room_changed(Changed::Allocation),
        };
        self.changed(Event::Resize, node, flags, change).await
    }

    /// A file was overwritten: attributes, extended attributes and size. `eas` as in [`PendingChange::eas_changed`].
    pub async fn overwritten<'n>(
        &self,
        node: &V::Node,
        eas: impl IntoIterator<Item = &'n str>,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        self.changed(Event::Resize, node, flags, |inode| {
            let pending = &mut inode.pending;
            pending.set(Changed::Meta(Meta::Attributes));
            pending.set_eas(eas);
            // All others are gone from the file, so a loss of unknown attributes is repaired as well.
            pending.set(Changed::Meta(Meta::Eas));
            inode.resized("", 0);
        })
        .await
    }

    /// Reports that a stream was created.
    pub async fn stream_created(&self, node: &V::Node, flags: RequestFlags) -> VfsResult<Receipt> {
        let held = self.gate.held(node);
        let change = |inode: &mut Inode<V>| inode.stream_named(held);
        self.changed(Event::Stream, node, flags, change).await
    }

    /// Reports that a stream was renamed; `node` is the stream under its new name.
    pub async fn stream_renamed(
        &self,
        node: &V::Node,
        from: &str,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let held = self.gate.held(node);
        let change = |inode: &mut Inode<V>| inode.stream_renamed(from, held);
        self.changed(Event::Stream, node, flags, change).await
    }

    /// The stream has the name that the request asks for, as in [`PendingChange::linked`].
    pub async fn stream_found(&self, node: &V::Node, flags: RequestFlags) -> VfsResult<Receipt> {
        let change = |inode: &mut Inode<V>| inode.pending.meta = true;
        self.changed(Event::Stream, node, flags, change).await
    }

    /// A stream was removed; `node` is the stream. The object that held it is synced through that node.
    pub async fn stream_removed(&self, node: &V::Node, flags: RequestFlags) -> VfsResult<Receipt> {
        let stream = node.stream().unwrap_or_default();
        let change = |inode: &mut Inode<V>| inode.stream_removed(stream);
        self.changed(Event::Stream, node, flags, change).await
    }

    async fn changed(
        &self,
        event: Event,
        node: &V::Node,
        flags: RequestFlags,
        change: impl FnOnce(&mut Inode<V>),
    ) -> VfsResult<Receipt> {
        let (gate, asked) = (self.gate, Asked::of(event, flags));
        let judged = gate.mark(node, asked, self.since, |inode, _, doubt| {
            if event == Event::Resize && node.stream().is_none() {
                // The descriptor of the change, unless `Gate::watch_write_back` could hold another one.
                inode.keep(gate.held(node));
            }
            match doubt {
                Some(failure) => inode.own_failed(failure, change),
                None => change(inode),
            }
        });
        gate.acknowledge(node, judged).await
    }
}

impl<V: Volume> Gate<V> {
    /// Metadata, size or a stream of `node` are about to change, or it is to have another name or a new entry.
    pub fn begin<'a>(&'a self, node: &'a V::Node) -> PendingChange<'a, V> {
        let (gate, since) = (self, self.since(Planted::ChangeBesideFailureTrusted));
        PendingChange { gate, since, node }
    }

    /// Marks a change and reads its policy in one step. `change` receives the failure of a sync after `since`.
    pub(super) fn mark(
        &self,
        node: &V::Node,
        asked: Asked,
        since: u64,
        change: impl FnOnce(&mut Inode<V>, &Account<'_>, Option<Failure>),
    ) -> Judged {
        let (core, key) = (&self.core, node.key());
        let held = self.held(node);
        core.with(key, |inode| {
            let mut judged = self.judge(inode, &asked);
            let account = self.account(inode, judged.kind, asked.bounded);
            inode.mark_dirty(&account, &held);
            if core.planted(Planted::KeepFirstDescriptor) {
                inode.keep_first();
            }
            change(inode, &account, core.failed_since(key, since));
            if inode.is_overfull() {
                judged.barriers.wait = judged.barriers.wait.max(Wait::Inode);
            }
            judged
        })
    }

    /// Marks a name that was added in `new`, or moved there from `old`.
    pub(super) fn mark_name(
        &self,
        event: Event,
        node: &V::Node,
        (new, old): (Option<&V::Node>, Option<&V::Node>),
        (flags, since): (RequestFlags, u64),
    ) -> Judged {
        let (core, key) = (&self.core, node.key());
        let asked = self.also_of(Asked::of(event, flags), new.into_iter().chain(old));
        let new = new.map(|dir| self.held(dir));
        let old = old.map(|dir| self.held(dir));
        let judged = self.mark(node, asked, since, |inode, account, doubt| {
            inode.pending.created |= event == Event::Create;
            if let Some(failure) = doubt.filter(|_| event == Event::Create) {
                // It was found and synced before this report, and all that it was made with may be lost.
                inode.own_failed(failure, |inode| {
                    inode.pending.set_meta.extend(Changed::METADATA);
                });
            }
            if event == Event::Move {
                let both = new.as_ref().zip(old.as_ref());
                let between = both.is_some_and(|(new, old)| new.key() != old.key());
                core.moves.marked(key, node.is_directory(), between);
            }
            self.mark_parents(inode, account, (new.as_ref(), old.as_ref()), (key, since));
            if inode.names().is_empty() {
                // A failed sync has lost them already. No later step does that, which would end the outstanding move.
                core.moves.not_outstanding(key);
            }
        });
        for dir in new.iter().chain(&old) {
            core.entry_failed_since(dir.key(), since);
        }
        judged
    }

    /// Call with [`Gate::mark`]: a name of the inode came into `new`, or moved there from `old`.
    pub(super) fn mark_parents(
        &self,
        inode: &mut Inode<V>,
        account: &Account<'_>,
        (new, old): (Option<&Held<V>>, Option<&Held<V>>),
        (key, since): (FileKey, u64),
    ) {
        let core = &self.core;
        // The number is drawn under the lock, so that a barrier that draws a later number finds the name in its plan.
        let seq = core.tick();
        inode.renamed(account, (new, old), seq, key);
        for dir in new.into_iter().chain(old).map(Held::key) {
            if let Some(failure) = core.failed_since(dir, since) {
                inode.name_failed(dir, failure);
            }
        }
    }
}
