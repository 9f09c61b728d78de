//! FileBasicInformation: times and attributes ([MS-FSA] 2.1.5.15.2), and the times that an open has
//! frozen.
//!
//! Linux has no call that sets the change time; `ChangeTimes` remembers the time that a client set.

use durability::{Completion, Meta, PendingChange, RequestFlags, Unchanged};
use smb_wire::{
    access_mask::AccessMask, file_attributes::FileAttributes, fscc::FileBasicInformation,
    ids::FileTime, msg::NotifyFilter, status::Status,
};
use vfs::{Attr, SetAttr, Timestamp, Vfs, VfsError};

use super::{Changed, break_parent_leases, report_change};
use crate::{
    command::{engine::OnDisk, modified},
    failure::Failure,
};

/// Attributes that a client may set.
const SETTABLE: FileAttributes = FileAttributes(
    FileAttributes::READONLY.0
        | FileAttributes::HIDDEN.0
        | FileAttributes::SYSTEM.0
        | FileAttributes::ARCHIVE.0
        | FileAttributes::TEMPORARY.0
        | FileAttributes::OFFLINE.0
        | FileAttributes::NOT_CONTENT_INDEXED.0,
);

/// The meaning of a time field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskedTime {
    /// 0: the time is not changed.
    Keep,
    /// -1: operations through this handle no longer change the time.
    Freeze,
    /// -2: operations through this handle change the time again.
    Thaw,
    /// A time.
    Set(Timestamp),
}

fn asked(time: FileTime) -> Result<AskedTime, Failure> {
    match time.0.cast_signed() {
        0 => Ok(AskedTime::Keep),
        -1 => Ok(AskedTime::Freeze),
        -2 => Ok(AskedTime::Thaw),
        negative if negative < 0 => Err(Status::INVALID_PARAMETER.into()),
        _ => {
            let (secs, nanos) = time.to_unix();
            Ok(AskedTime::Set(Timestamp { secs, nanos }))
        }
    }
}

struct Times {
    created: AskedTime,
    accessed: AskedTime,
    written: AskedTime,
    changed: AskedTime,
}

pub(super) async fn set<V: Vfs>(on: &OnDisk<'_, V>, buffer: &[u8]) -> Changed {
    on.open.need(AccessMask::FILE_WRITE_ATTRIBUTES)?;
    let info = parse!(FileBasicInformation, buffer);
    let times = Times {
        created: asked(info.creation_time)?,
        accessed: asked(info.last_access_time)?,
        written: asked(info.last_write_time)?,
        changed: asked(info.change_time)?,
    };
    let node = &on.disk.node;
    let begun = on.share.gate.begin(node);
    // A change that is under way restores its times, not the ones that are set here: wait until it is over.
    let turn = modified::turn(on.disk.quick).await;
    let before = on.attr().await?;
    let root = on.server.path_of(on.open)?.names().is_empty();
    let attributes = attributes(on.disk.directory, &before, info.file_attributes, root)?;
    let change = SetAttr {
        created: set_to(times.created),
        accessed: set_to(times.accessed),
        written: set_to(times.written),
        dos_attributes: attributes,
        ..SetAttr::default()
    };
    if change != SetAttr::default() {
        store(on, &begun, &change).await?;
    }
    let bits = attributes.map(FileAttributes);
    if bits.is_some_and(|bits| !on.disk.directory && !bits.contains(FileAttributes::ARCHIVE)) {
        let (files, key) = (&on.server.files, on.disk.place.key);
        // A CREATE that read the attributes before this must not go by them.
        files.name_gone(key);
        files.lacks_archive(key, true);
    }
    keep(on, &times);
    let shown = show_changed(on, times.changed, &before, &change).await;
    drop(turn);
    let filter = filter(&change, before.dos_attributes);
    if !filter.is_empty() {
        report_change(on, filter);
    } else if let AskedTime::Set(_) = times.changed {
        // [MS-FSA] 2.1.5.15.2: watchers cannot ask for this change, but listings show it.
        break_parent_leases(on);
    }
    // Each change is marked, even if something after it failed.
    let timed = change.accessed.is_some() || change.written.is_some();
    // The time of creation is stored with the attributes.
    let described = change.created.is_some() || change.dos_attributes.is_some();
    let changed = [
        timed.then_some(Meta::Times),
        described.then_some(Meta::Attributes),
    ];
    let mut completion = Ok(Unchanged::because("no stored attribute changed").into());
    for what in changed.into_iter().flatten() {
        let receipt = begun.metadata_changed(node, what, on.open.flags()).await;
        completion = completion.and(receipt.map(Completion::from));
    }
    shown?;
    Ok(completion?)
}

/// Stores times and attributes.
///
/// # Errors
/// The error of the file system. Nothing is changed, but if the attributes were refused after the times, these were set
/// and restored, and a sync in between may have stored what is refused.
async fn store<V: Vfs>(
    on: &OnDisk<'_, V>,
    begun: &PendingChange<'_, V>,
    change: &SetAttr,
) -> Result<(), Failure> {
    use VfsError::{AccessDenied, ReadOnly};
    let (node, token) = (&on.disk.node, on.token()?);
    let stored = on.vfs().set_attr(&token.identity, node, change).await;
    let timed = change.accessed.is_some() || change.written.is_some();
    let described = change.created.is_some() || change.dos_attributes.is_some();
    // These refuse the user before the first step.
    let late = stored.is_err_and(|error| !matches!(error, AccessDenied | ReadOnly));
    if timed && described && late {
        // The client gets this error, whatever the gate says.
        let flags = RequestFlags::default();
        drop(begun.metadata_changed(node, Meta::Times, flags).await);
    }
    Ok(stored?)
}

fn set_to(asked: AskedTime) -> Option<Timestamp> {
    match asked {
        AskedTime::Set(at) => Some(at),
        _ => None,
    }
}

/// The attributes to store, if any are given: even if they are the same as before, because another client may just have
/// set them without their being stable yet, or a failed sync may have lost them.
fn attributes(
    directory: bool,
    before: &Attr,
    wanted: FileAttributes,
    root: bool,
) -> Result<Option<u32>, Failure> {
    // [MS-FSA] 2.1.5.15.2: no directory is temporary, not by way of its streams either, and no stream is a directory.
    let temporary = wanted.contains(FileAttributes::TEMPORARY) && before.is_of_directory();
    if temporary || (wanted.contains(FileAttributes::DIRECTORY) && !directory) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    let old = FileAttributes(before.dos_attributes);
    let new = replaced(old, wanted, root);
    Ok(Some(new.bits()))
}

/// NORMAL alone clears everything; the share's root keeps HIDDEN and SYSTEM as they are.
fn replaced(old: FileAttributes, wanted: FileAttributes, root: bool) -> FileAttributes {
    let fixed = (FileAttributes::HIDDEN | FileAttributes::SYSTEM).when(root);
    let settable = SETTABLE.without(fixed);
    old.without(settable | FileAttributes::NORMAL) | FileAttributes(wanted.bits() & settable.bits())
}

/// [MS-FSA] 2.1.5.15.2: attributes that are set to what they are already are no change: watchers are not notified, and
/// the change time stays.
fn filter(change: &SetAttr, attributes: u32) -> NotifyFilter {
    let before = FileAttributes(attributes).without(FileAttributes::NORMAL);
    let differ = |bits| FileAttributes(bits).without(FileAttributes::NORMAL) != before;
    NotifyFilter::ATTRIBUTES.when(change.dos_attributes.is_some_and(differ))
        | NotifyFilter::CREATION.when(change.created.is_some())
        | NotifyFilter::LAST_ACCESS.when(change.accessed.is_some())
        | NotifyFilter::LAST_WRITE.when(change.written.is_some())
}

/// From here on changes through the handle leave these times as they are: those set explicitly, and
/// those frozen by -1 ([MS-FSA] UserSetModificationTime).
fn keep<V: Vfs>(on: &OnDisk<'_, V>, times: &Times) {
    let next = |old, asked| match asked {
        AskedTime::Keep => old,
        AskedTime::Freeze | AskedTime::Set(_) => true,
        AskedTime::Thaw => false,
    };
    let mut state = on.open.state();
    let keeps = &mut state.keeps_times;
    let old = *keeps;
    keeps.accessed = next(old.accessed, times.accessed);
    keeps.written = next(old.written, times.written);
    keeps.changed = next(old.changed, times.changed);
    if old.accessed != keeps.accessed {
        // Unlike the others this time is not restored: that would cost each READ two calls more, and move the change
        // time.
        on.vfs().keep_access_time(&on.disk.node, keeps.accessed);
    }
    if old.written != keeps.written {
        on.vfs().keep_write_time(&on.disk.node, keeps.written);
    }
    if old.is_empty() != keeps.is_empty() && on.disk.place.stream.is_none() {
        // This happens while the state is locked, because another SET_INFO of this open may be under way.
        let files = &on.server.files;
        files.keep_times(&on.disk.place, on.open.engine, !keeps.is_empty());
    }
}

/// Shows the change time that was set, or the previous one if the handle keeps it or nothing has become different,
/// although the kernel has moved it.
async fn show_changed<V: Vfs>(
    on: &OnDisk<'_, V>,
    asked: AskedTime,
    before: &Attr,
    change: &SetAttr,
) -> Result<(), Failure> {
    let stays = || on.open.state().keeps_times.changed;
    let shown = match asked {
        AskedTime::Set(at) => at,
        _ if *change == SetAttr::default() => return Ok(()),
        _ if stays() || filter(change, before.dos_attributes).is_empty() => before.changed,
        _ => return Ok(()),
    };
    let attr = on.vfs().attr(&on.disk.node).await?;
    on.server.change_times.remember(&attr, shown);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_times() {
        assert_eq!(asked(FileTime(0)).unwrap(), AskedTime::Keep);
        assert_eq!(asked(FileTime(u64::MAX)).unwrap(), AskedTime::Freeze);
        assert_eq!(asked(FileTime(u64::MAX - 1)).unwrap(), AskedTime::Thaw);
        assert!(asked(FileTime(u64::MAX - 2)).is_err());
        let at = Timestamp { secs: -5, nanos: 0 };
        assert_eq!(
            asked(FileTime::from_unix(-5, 0)).unwrap(),
            AskedTime::Set(at)
        );
    }

    #[test]
    fn attributes_are_replaced_where_they_may_be() {
        use FileAttributes as Has;
        let old = Has::HIDDEN | Has::ARCHIVE | Has::SPARSE_FILE;
        assert_eq!(replaced(old, Has::NORMAL, false), Has::SPARSE_FILE);
        assert_eq!(
            replaced(old, Has::READONLY | Has::COMPRESSED, false),
            Has::SPARSE_FILE | Has::READONLY
        );
        assert_eq!(
            replaced(Has::HIDDEN | Has::DIRECTORY, Has::SYSTEM, true),
            Has::HIDDEN | Has::DIRECTORY
        );
    }
}
