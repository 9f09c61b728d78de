//! Notes that a file has been modified ([MS-FSA] 2.1.4.17): it gets FILE_ATTRIBUTE_ARCHIVE, and its times move unless
//! the handle through which it is changed has set them explicitly (Open.UserSetModificationTime and its like).
//!
//! Backup programs clear the attribute. The engine knows which open files lack it ([`Quick::lacks_archive`]): a CREATE
//! has read it, and the server itself clears it. Changes of all others, which are nearly all, ask no disk. A program on
//! the host that clears it while clients have the file open is not seen.
//!
//! The kernel moves the times with each change, so they are restored after it, to their values before the change and
//! not to those that this handle once set, because another handle may have written since. Where a handle of the file
//! keeps times, changes of its data take turns, so that restoring the times hides no other change. A change of data
//! does not move the access time (docs/protocol-notes.md, "The time of last access"), and READs through a handle that
//! keeps it do not either (`Contents::keep_access_time`).
//!
//! For a change of a named stream it is the file system that moves the write time of the file, unless the handle keeps
//! it (`Contents::keep_write_time`), so only the change time is restored after it. It takes no turn with changes of the
//! unnamed stream, so the times may not show it beside one through a handle that keeps them.

use durability::Meta;
use smb_wire::file_attributes::FileAttributes;
use tokio::sync::MutexGuard;
use vfs::{Attr, Kind, SetAttr, Timestamp, Vfs};

use super::{engine::OnDisk, set_info::break_parent_leases};
use crate::{
    failure::Failure,
    file::{Ongoing, Operation, Quick},
    state::{KeepsTimes, archive as attribute},
};

/// Held from before a change until the times are restored. The holder must not wait for a break: a client that
/// gives up its caching may write first.
#[must_use]
pub(super) struct KeptTimes<'a> {
    before: Option<(KeepsTimes, Attr)>,
    turn: Option<MutexGuard<'a, ()>>,
    keeper: Option<Ongoing<'a>>,
    change: Option<Ongoing<'a>>,
}

/// The turn of a change that restores nothing, if changes of the file take turns.
pub(super) async fn turn(quick: &Quick) -> Option<MutexGuard<'_, ()>> {
    if quick.keeps_times() {
        return Some(quick.turn().lock().await);
    }
    None
}

/// Begins a change of the data of an open.
///
/// # Errors
/// The times cannot be read.
pub(super) async fn begin<'a, V: Vfs>(on: &OnDisk<'a, V>) -> Result<KeptTimes<'a>, Failure> {
    let quick = on.disk.quick;
    let change = quick.change_without_turn();
    // A handle of a named stream is not counted among those that keep times.
    let is_stream = on.disk.place.stream.is_some();
    let restores = is_stream && on.open.state().keeps_times.changed;
    if change.is_some() && !restores {
        return Ok(KeptTimes {
            before: None,
            turn: None,
            keeper: None,
            change,
        });
    }
    Box::pin(take_turn(on, None, change)).await
}

/// Begins a change that [MS-FSA] 2.1.4.18 does not count as a modification, so that only the change time moves.
pub(super) async fn begin_unmodified<'a, V: Vfs>(
    on: &OnDisk<'a, V>,
) -> Result<KeptTimes<'a>, Failure> {
    if on.disk.place.stream.is_some() {
        // A reservation for a named stream changes no time of the file.
        return begin(on).await;
    }
    // Changes that begin meanwhile wait for their turn.
    take_turn(on, Some(on.disk.quick.keep_times()), None).await
}

async fn take_turn<'a, V: Vfs>(
    on: &OnDisk<'a, V>,
    keeper: Option<Ongoing<'a>>,
    change: Option<Ongoing<'a>>,
) -> Result<KeptTimes<'a>, Failure> {
    let quick = on.disk.quick;
    let turn = Some(quick.turn().lock().await);
    let mut keeps = on.open.state().keeps_times;
    keeps.written &= on.disk.place.stream.is_none();
    // A change that began before the keeper was counted would be hidden when the times are restored. It is then better
    // that the file shows as modified after a reservation.
    keeps.written |= keeper.is_some() && !quick.has_changes_without_turn();
    let before = if keeps.is_empty() {
        None
    } else {
        Some((keeps, on.attr().await?))
    };
    Ok(KeptTimes {
        before,
        turn,
        keeper,
        change,
    })
}

impl KeptTimes<'_> {
    /// Ends the change: sets the attribute if there was a change, restores the times that the handle keeps, and breaks
    /// the caching that others were granted meanwhile. Each of this is done whatever the others return.
    pub(super) async fn end<V: Vfs>(
        self,
        on: &OnDisk<'_, V>,
        changed: bool,
        done: Operation,
    ) -> Result<(), Failure> {
        let archived = match changed {
            true => archive(on).await,
            false => Ok(()),
        };
        let kept = self.put_back(on).await;
        let broken = on.data_changed(done).await;
        archived.and(kept).and(broken)
    }

    /// Restores the times that the handle keeps.
    async fn put_back<V: Vfs>(self, on: &OnDisk<'_, V>) -> Result<(), Failure> {
        let Some((keeps, before)) = self.before else {
            return Ok(());
        };
        let reserved = self.keeper.is_some();
        Box::pin(put_back(on, keeps, &before, reserved)).await?;
        drop((self.turn, self.keeper, self.change));
        Ok(())
    }
}

async fn put_back<V: Vfs>(
    on: &OnDisk<'_, V>,
    keeps: KeepsTimes,
    before: &Attr,
    reserved: bool,
) -> Result<(), Failure> {
    let node = &on.disk.node;
    let change = SetAttr {
        written: keeps.written.then_some(before.written),
        ..SetAttr::default()
    };
    if change != SetAttr::default() {
        let token = on.token()?;
        let begun = on.share.gate.begin(node);
        match on.vfs().set_attr(&token.identity, node, &change).await {
            // A user who may only write must not set times. The file then shows as modified, and programs that
            // compare times look at it once more.
            Err(error) if reserved => {
                tracing::debug!(%error, "the write time moved with a reservation of space");
            }
            set => {
                set?;
                // Times that a client set explicitly are dirty like any other metadata.
                let flags = on.open.flags();
                drop(begun.metadata_changed(node, Meta::Times, flags).await?);
            }
        }
    }
    if keeps.changed {
        // Linux has no call that sets the change time, so the time to show is remembered beside the kernel's.
        let now = on.vfs().attr(node).await?;
        on.server.change_times.remember(&now, before.changed);
    }
    Ok(())
}

/// A change of names, attributes or rights, which moves the change time alone ([MS-FSA] 2.1.5.15.6, 2.1.5.15.7,
/// 2.1.5.15.12, 2.1.5.17; Open.UserSetChangeTime).
#[must_use]
pub(super) struct KeptChange<'a> {
    turn: Option<MutexGuard<'a, ()>>,
    /// The change time, if the handle keeps it.
    before: Option<Timestamp>,
}

impl<'a> KeptChange<'a> {
    /// To be called right before the change, with its turn if it takes one. A time that cannot be read is not kept.
    pub(super) async fn begin<V: Vfs>(
        on: &OnDisk<'_, V>,
        turn: Option<MutexGuard<'a, ()>>,
    ) -> Self {
        let keeps = on.open.state().keeps_times.changed;
        let before = match keeps {
            true => Box::pin(on.attr()).await.ok().map(|attr| attr.changed),
            false => None,
        };
        Self { turn, before }
    }

    /// Ends a change that sets the attribute.
    pub(super) async fn end<V: Vfs>(self, on: &OnDisk<'_, V>) -> Result<(), Failure> {
        let archived = archive(on).await;
        let shown = self.show(on).await;
        archived.and(shown)
    }

    /// Shows the time that the handle keeps, after everything that belongs to the change is done.
    pub(super) async fn show<V: Vfs>(self, on: &OnDisk<'_, V>) -> Result<(), Failure> {
        if let Some(before) = self.before {
            let now = Box::pin(on.vfs().attr(&on.disk.node)).await?;
            on.server.change_times.remember(&now, before);
        }
        drop(self.turn);
        Ok(())
    }
}

/// Whether the attributes are those of a file without FILE_ATTRIBUTE_ARCHIVE.
pub(super) fn lacks_archive(attr: &Attr) -> bool {
    let bits = FileAttributes(attr.dos_attributes);
    attr.kind == Kind::File && !bits.contains(FileAttributes::ARCHIVE)
}

/// Sets FILE_ATTRIBUTE_ARCHIVE of the file of an open that was changed.
///
/// # Errors
/// The error of the durability gate. An attribute that the file system refuses is only logged, because the change
/// itself was made.
pub(super) async fn archive<V: Vfs>(on: &OnDisk<'_, V>) -> Result<(), Failure> {
    if !on.disk.quick.lacks_archive() {
        return Ok(());
    }
    let flags = on.open.flags();
    let done = Box::pin(attribute::set(on.server, on.share, &on.disk.node, flags)).await;
    // Listings show the attribute, and a named stream is changed without any other break of these leases. The
    // attribute is still missing where the file system refused it.
    if !on.disk.quick.lacks_archive() {
        break_parent_leases(on);
    }
    Ok(done?)
}
