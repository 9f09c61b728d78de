//! Renames and removals at the gate: their guards, their locks and their promises.
//!
//! Invariants, on a file system whose renames are not atomic:
//! - A rename between two directories is made stable before the next one starts, and none of its
//!   directories is synced in between (`sync/barrier.rs`).
//! - A name of an inode is removed or replaced only when the inode's other names are stable.

use tokio::sync::OwnedRwLockWriteGuard;
use vfs::{FileKey, Node, RemovedName, VfsError, VfsResult, Volume};

use super::{Asked, BEYOND_DOUBT, Gate, Judged, PendingChange, Receipt};
use crate::{
    dirty::{Held, Inode},
    planted::Planted,
    policy::{Event, RequestFlags, Wait},
};

/// A name that is about to move. A guard like [`PendingChange`].
#[must_use = "a change that was made must be reported"]
pub struct PendingRename<'a, V: Volume> {
    from: PendingChange<'a, V>,
    to: PendingChange<'a, V>,
    /// The rename lock of a file system that may persist only half of a rename; held until the rename is marked.
    alone: Option<OwnedRwLockWriteGuard<()>>,
}

/// A file that has lost a name, to another file or altogether, for the answer to the request that caused that.
#[must_use = "the answer to the request depends on the replaced file as well"]
pub struct Replaced<'a, V: Volume> {
    gate: &'a Gate<V>,
    /// The directory of the name, and what its loss requires.
    dir: Held<V>,
    judged: Judged,
    /// The directories from which earlier names of the file were removed, where these removals are not stable.
    left: Vec<Held<V>>,
    /// The error of a sync that was to remove one of those.
    comes_back: Option<VfsError>,
}

impl<V: Volume> Gate<V> {
    /// To be called before [`Gate::begin_rename`] where [`Gate::needs_rename_lock`], and before anything is taken that
    /// other requests wait for: `node` is synced under the lock. The descriptor for that is opened here, because a
    /// program on the host that has a lease on the file delays this open, for 45 s by default, and must not delay all
    /// other renames. The sync of a named stream opens the file each time, so dirty ones are synced here.
    pub async fn prepare_rename(&self, node: &V::Node) {
        let (core, key) = (&self.core, node.key());
        self.keep_for_sync(node).await;
        if !node.is_directory() && core.peek(key, Inode::has_dirty_streams) == Some(true) {
            // A stream that is not stable then is synced under the lock, and an error poisons the file, which the
            // answer to the rename says.
            let _ = Box::pin(core.sync_one(key, None)).await;
        }
    }

    /// Whether a rename may be kept in half by a power cut, and needs the rename lock.
    pub fn needs_rename_lock(&self, from: &V::Node, to: &V::Node) -> bool {
        from.key() != to.key() && !self.vfs.renames_are_atomic(from.key().fs)
    }

    /// A name is about to move, within a directory (both the same) or between two. It may replace
    /// another one. Hold the guard no longer than the rename takes.
    ///
    /// # Errors
    /// `NotStarted`: a sync that must precede the rename could not be started.
    pub async fn begin_rename<'a>(
        &'a self,
        from: &'a V::Node,
        to: &'a V::Node,
        replaced: Option<&V::Node>,
    ) -> VfsResult<PendingRename<'a, V>> {
        let mut alone = None;
        if let Some(replaced) = replaced {
            self.begin_replacement(replaced, to).await?;
        }
        let fs = from.key().fs;
        if self.needs_rename_lock(from, to) {
            let lock = self.core.moves.lock_of(fs).write_owned().await;
            let locked = self.core.to_its_end(move |me| async move {
                me.sync_outstanding(fs, FileKey::default()).await?;
                Ok(lock)
            });
            alone = Some(Box::pin(locked).await?);
        }
        let (from, to) = (self.begin(from), self.begin(to));
        Ok(PendingRename { from, to, alone })
    }

    /// A name of `node` in a directory is about to be removed.
    ///
    /// # Errors
    /// As of [`Gate::begin_rename`].
    pub async fn begin_removal<'a>(
        &'a self,
        node: &V::Node,
        from: &'a V::Node,
    ) -> VfsResult<PendingChange<'a, V>> {
        self.begin_replacement(node, from).await?;
        Ok(self.begin(from))
    }

    /// A name of `node` in `from` is about to be replaced by a link. On a file system whose renames
    /// are not atomic the inode's other names are made stable first.
    ///
    /// # Errors
    /// As of [`Gate::begin_rename`].
    pub async fn begin_replacement(&self, node: &V::Node, from: &V::Node) -> VfsResult<()> {
        let (core, key) = (&self.core, node.key());
        let elsewhere = || core.names_in_other_directories(key, from.key(), |name| name.here);
        if self.vfs.renames_are_atomic(key.fs) || elsewhere().is_empty() {
            return Ok(());
        }
        match Box::pin(core.barrier(key, None)).await {
            Err(VfsError::NotStarted) => Err(VfsError::NotStarted),
            // Every other failure poisons the inode: nothing is promised of it any more.
            _ => Ok(()),
        }
    }

    /// The name of `node` in a directory was replaced by another one, as announced by [`Gate::begin_rename`] or
    /// [`Gate::begin_replacement`]. `flags` are those of the request. Call this before the new name is reported, and
    /// before anybody else may answer a request because the name is gone ([`Gate::removed_beside`]): the call itself
    /// marks the directory, and the future does the rest.
    pub fn replaced<'g>(
        &'g self,
        node: &V::Node,
        from: &V::Node,
        flags: RequestFlags,
    ) -> impl Future<Output = Replaced<'g, V>> {
        // A symbolic link is replaced itself; it is not followed.
        let name = RemovedName::Own;
        self.name_removed(node, from, (name, flags))
    }

    /// A handle that was to remove a name of `node` in the directory `from` is closed, and another request has removed
    /// that name already. Where a removal by the handle itself would be answered when it is stable, so is this.
    ///
    /// # Errors
    /// The removal, or that of an earlier name, is not stable, and cannot be proven to become so.
    pub async fn removed_beside(
        &self,
        node: &V::Node,
        from: FileKey,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let asked = self.also_of(Asked::of(Event::Remove, flags), [node]);
        let judged = (self.core).with(from, |inode| self.judge(inode, &asked));
        let result = match judged.barriers.wait {
            Wait::Nothing => Ok(()),
            _ => Box::pin(self.gone_beside(node.key(), from)).await,
        };
        self.receipt(from, result).await
    }

    /// Waits until the name that was removed from `from`, and every earlier name of the inode, is gone for good.
    async fn gone_beside(&self, key: FileKey, from: FileKey) -> VfsResult<()> {
        let core = &self.core;
        core.barrier(from, None).await?;
        let earlier = core.peek(key, |inode| inode.earlier_names(from));
        let earlier = earlier.unwrap_or_default();
        for dir in earlier.keys() {
            core.barrier(*dir, None).await?;
        }
        let Some(since) = earlier.into_values().min() else {
            return Ok(());
        };
        if !core.moves.has_lost_directory(key.fs, since) {
            return Ok(());
        }
        // One of those directories may be gone itself. The directory that had it, which is not known, brings it back
        // unless a sync has stored that. A failure before the name left concerns other names.
        for dir in core.may_bring_names_back(key.fs) {
            let synced = core.barrier(dir, None).await;
            if let Some(failure) = core.failed_since(dir, since) {
                return Err(failure.error);
            }
            if synced == Err(VfsError::NotStarted) {
                return synced;
            }
        }
        Ok(())
    }

    /// Marks a name that was removed from `from`. The future finds out whether it was the last one.
    fn name_removed<'g>(
        &'g self,
        node: &V::Node,
        from: &V::Node,
        (name, flags): (RemovedName, RequestFlags),
    ) -> impl Future<Output = Replaced<'g, V>> {
        let core = &self.core;
        let mut left = core.names_in_other_directories(node.key(), from.key(), |name| name.left);
        let asked = self.also_of(Asked::of(Event::Remove, flags), [node]);
        let own = name == RemovedName::Own;
        let ages = || core.peek(node.key(), Inode::ages).unwrap_or_default();
        // Until its sync, the directory may bring the name back, and with it what is dirty now.
        let inherited = if own { ages() } else { Vec::new() };
        let judged = self.mark(from, asked, BEYOND_DOUBT, |inode, account, _| {
            inode.pending.entry_removed(account);
            inode.inherit(from.key(), inherited, 0);
        });
        async move {
            // A directory has one name. A file whose last name was removed has nothing left to sync:
            // once the directory is synced, no crash can bring back its contents.
            let last = own
                && (node.is_directory()
                    || self.vfs.links(node).await.is_ok_and(|links| links == 0));
            let mut comes_back = None;
            if last {
                // The same holds for the directories of the names that it had before.
                for dir in left.iter().map(Held::key) {
                    let inherited = ages();
                    core.with(dir, |inode| inode.inherit(dir, inherited, 0));
                }
                if node.is_directory() {
                    core.moves.directory_removed(node.key().fs, core.tick());
                }
                // The latch of the removed inode ends. Its dirty state is dropped, or under a bound goes to the
                // directory.
                let (rest, lost) = core.with(node.key(), |inode| inode.unlinked(from.key()));
                let plain = Asked::of(Event::Remove, RequestFlags::default());
                self.mark(from, plain, BEYOND_DOUBT, |inode, _, _| {
                    inode.pending.entries = true;
                    inode.inherit(from.key(), rest.charges, rest.bytes);
                });
                if let Some((error, names)) = lost {
                    // The sync that failed was to remove another name.
                    comes_back = (!names.is_empty()).then_some(error);
                    core.clear_stored_when_removed(node.key(), self.held(from), names);
                }
            } else if !own {
                // A symbolic link had none of the earlier names. Of a file it is not known which of its names had
                // them.
                left.clear();
            }
            Replaced {
                gate: self,
                dir: self.held(from),
                judged,
                left,
                comes_back,
            }
        }
    }
}

impl<V: Volume> Replaced<'_, V> {
    /// Completes the answer to the request: where the replaced file must be gone for good before it, none of its names
    /// comes back. `own` is the receipt of `node`, which has the name now and may be judged less strictly.
    ///
    /// # Errors
    /// That of `own`, or of a sync that was to remove a name.
    pub async fn answer(self, node: &V::Node, own: VfsResult<Receipt>) -> VfsResult<Receipt> {
        let receipt = own?;
        if self.judged.barriers.wait == Wait::Nothing {
            return Ok(receipt);
        }
        let (gate, key) = (self.gate, node.key());
        let core = &gate.core;
        let result = Box::pin(async {
            // The new name was marked after the old one, so a sync of the directory for it has covered both. The data
            // of `node` are stable before that, because nothing else has the name then.
            let synced = match core.peek(key, |inode| (inode.names().is_empty(), inode.is_gone())) {
                Some((false, _)) => core.barrier_unless_clean(gate.held(node)).await,
                // Another request has removed it since.
                Some((true, true)) => core.barrier_unless_clean(self.dir.clone()).await,
                _ => gate.check_failures(node),
            };
            self.for_good(synced).await
        });
        let result = result.await;
        gate.receipt(key, result).await
    }

    /// Waits until no earlier name can come back. `synced` is the result of the sync for the name itself.
    async fn for_good(self, synced: VfsResult<()>) -> VfsResult<()> {
        let mut result = self.comes_back.map_or(synced, Err);
        for dir in self.left {
            result = result.and(self.gate.core.barrier(dir.key(), Some(dir)).await);
        }
        result
    }
}

impl<V: Volume> PendingChange<'_, V> {
    /// The name of `node` was removed, as announced by [`Gate::begin_removal`].
    pub async fn removed(
        &self,
        node: &V::Node,
        name: RemovedName,
        flags: RequestFlags,
    ) -> VfsResult<Receipt> {
        let (gate, from) = (self.gate, self.node);
        let core = &gate.core;
        let gone = gate.name_removed(node, from, (name, flags)).await;
        core.entry_failed_since(from.key(), self.since);
        if gone.judged.barriers.wait == Wait::Nothing {
            return gate.acknowledge(from, gone.judged).await;
        }
        let result = Box::pin(async {
            let synced = core.barrier(from.key(), Some(gone.dir.clone())).await;
            gone.for_good(synced).await
        });
        let result = result.await;
        gate.receipt(from.key(), result).await
    }
}

impl<V: Volume> PendingRename<'_, V> {
    /// The name of `node` moved.
    pub async fn renamed(&mut self, node: &V::Node, flags: RequestFlags) -> VfsResult<Receipt> {
        let (from, to, alone) = (self.from.node, self.to.node, self.alone.take());
        let (gate, since) = (self.from.gate, self.from.since);
        let (core, key) = (&gate.core, node.key());
        if core.check_latch(key).is_err()
            && !node.is_directory()
            && gate.vfs.links(node).await != Ok(1)
        {
            core.with(key, Inode::lost_one_of_several_names);
        }
        if from.key() != to.key() {
            let plain = Asked::of(Event::Rename, RequestFlags::default());
            gate.mark(from, plain, BEYOND_DOUBT, |inode, _, _| {
                inode.pending.entries = true;
            });
        }
        let forgotten = core.planted(Planted::OneParentOnRename);
        let parents = (Some(to), (!forgotten).then_some(from));
        let event = match node.is_directory() || alone.is_some() {
            true => Event::Move,
            false => Event::Rename,
        };
        let judged = gate.mark_name(event, node, parents, (flags, since));
        if let Some(alone) = alone
            && judged.barriers.wait != Wait::Nothing
        {
            let marked = core.tick();
            // Read before the syncs: if the host moves the inode meanwhile, a FLUSH finds it at another path.
            let path = gate.vfs.with_path(node, <[u8]>::to_vec);
            let stable = core.to_its_end(move |me| async move {
                let _alone = alone;
                me.directories(key, Some(None), (marked, false)).await
            });
            if let Err(error) = Box::pin(stable).await {
                return gate.receipt(key, Err(error)).await;
            }
            // This name is stable and need not be synced again when it is found (`flush.rs`).
            let at = path.map(|path| gate.found_at(path));
            core.with(key, |inode| inode.found_at = at);
        }
        gate.acknowledge(node, judged).await
    }
}
