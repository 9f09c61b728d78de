//! Opening what exists ([MS-FSA] 2.1.5.1.2), and truncating it only when nothing else is in the
//! way.

use durability::Unchanged;
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    msg::{CreateDisposition, CreateOptions, NotifyFilter, ShareAccess},
    status::Status,
};
use vfs::{Attr, FileKey, Kind, Vfs, VfsError};

use super::{
    CreateAttempt, Known, Opened, Opening, Seen, judge,
    judge::{Case, Judged},
    overwrite,
    request::Wanted,
};
use crate::{
    access::{self, Parent, Subject},
    command::{Call, modified},
    failure::Failure,
    file::{Change, Place},
};

/// The rights that an open of a FIFO, socket or device of the host can have. It can be queried, renamed and
/// deleted, and its times can be set, because clients that delete often request that right as well. The node itself
/// is never opened, as that would affect the process at its other end.
const OF_SPECIAL: AccessMask = AccessMask(
    AccessMask::DELETE.bits()
        | AccessMask::FILE_READ_ATTRIBUTES.bits()
        | AccessMask::FILE_WRITE_ATTRIBUTES.bits()
        | AccessMask::READ_CONTROL.bits()
        | AccessMask::SYNCHRONIZE.bits(),
);

/// The changes of a file that is overwritten ([MS-FSA] 2.1.5.1.2).
const OVERWRITTEN: NotifyFilter =
    NotifyFilter(NotifyFilter::ATTRIBUTES.0 | NotifyFilter::SIZE.0 | NotifyFilter::LAST_WRITE.0);

/// Opens an existing file or directory that the lookup has just found.
pub(super) async fn open<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    node: &V::Node,
    attr: &Attr,
) -> Result<CreateAttempt<V>, Failure> {
    let turn = on.turn.get();
    let directory = check_kind(on.wanted, attr, lookup.parent.is_none())?;
    if access::readonly(attr) {
        check_readonly(on.wanted, directory)?;
    }
    let granted = grant(on, lookup, node, attr).await?;
    check_attributes(on.wanted, attr)?;
    if on.wanted.delete_on_close() {
        Box::pin(check_kernel(on, lookup, node)).await?;
    }
    let mut share = share(on, lookup, true).await?;
    let place = Place::of(node);
    if directory && !share.contains(ShareAccess::READ) {
        share |= ShareAccess::READ.when(Box::pin(shares_reading(on, node, attr)).await?);
    }
    let case = Case {
        node,
        claim: None,
        place: &place,
        lookup,
        directory,
        granted,
        share,
        effect: on.wanted.effect(),
        allocation: if on.wanted.overwrites() {
            on.contexts.allocation
        } else {
            attr.allocation()
        },
        created: false,
        receipt: Unchanged::because("opened as it is").into(),
        policy: None,
    };
    let mut opened = match judge::open(on, case).await? {
        Judged::Granted(opened) => opened,
        judged => return Ok(judged.attempt()),
    };
    note_archive(on, lookup, attr, place.key);
    opened.policy = Some(super::enter_policy(on, lookup, node)?);
    if let Err(failure) = act(on, &mut opened, attr).await {
        judge::undo(on, &place, opened.id, node).await?;
        return Err(failure);
    }
    if on.wanted.overwrites() {
        on.announce(lookup, Change::MODIFIED, OVERWRITTEN)?;
    }
    opened.known = Some(known(on.wanted, attr, turn));
    Ok(CreateAttempt::Done(opened))
}

/// Records whether the file may lack FILE_ATTRIBUTE_ARCHIVE. An overwrite sets it. Attributes that were read before
/// somebody cleared it prove nothing.
fn note_archive<V: Vfs>(on: &Opening<'_, V>, lookup: &Seen<V::Node>, attr: &Attr, key: FileKey) {
    let files = &on.server().files;
    let stale = attr.kind == Kind::File && files.has_moved(key, lookup.look);
    if (modified::lacks_archive(attr) || stale) && !on.wanted.overwrites() {
        files.lacks_archive(key, true);
    }
}

fn known(wanted: &Wanted, attr: &Attr, turn: u32) -> Known {
    if wanted.overwrites() {
        return Known::unasked(overwrite::overwritten(wanted, attr));
    }
    Known {
        attr: attr.clone(),
        turn: Some(turn),
        is_final: false,
    }
}

/// Whether the object's kind fits the request; true for a directory.
fn check_kind(wanted: &Wanted, attr: &Attr, root: bool) -> Result<bool, Failure> {
    let directory = attr.kind == Kind::Directory;
    let special = attr.kind == Kind::Special;
    if attr.kind == Kind::SymbolicLink || (special && wanted.overwrites()) {
        return Err(Status::ACCESS_DENIED.into());
    }
    // [MS-FSA] 2.1.5.1, phase 7: the kind is checked before the disposition, so that a client that makes a file can
    // distinguish a directory of that name from another file.
    if directory && wanted.options.contains(CreateOptions::NON_DIRECTORY_FILE) {
        return Err(Status::FILE_IS_A_DIRECTORY.into());
    }
    Status::OBJECT_NAME_COLLISION.when(wanted.disposition == CreateDisposition::CREATE)?;
    Status::NOT_A_DIRECTORY.when(!directory && wanted.directory())?;
    if directory && wanted.overwrites() {
        return Err(match root {
            true => Status::ACCESS_DENIED.into(),
            false => Status::OBJECT_NAME_COLLISION.into(),
        });
    }
    Status::ACCESS_DENIED.when(root && wanted.delete_on_close())?;
    Ok(directory)
}

/// [MS-FSA] 2.1.5.1.2.1: a READONLY object is not written or deleted, whatever its descriptor says. In a READONLY
/// directory, names may still be made and removed.
pub(super) fn check_readonly(wanted: &Wanted, directory: bool) -> Result<(), Failure> {
    let writes = AccessMask::FILE_WRITE_DATA | AccessMask::FILE_APPEND_DATA;
    Status::ACCESS_DENIED.when(!directory && wanted.access.intersects(writes))?;
    Status::CANNOT_DELETE.when(wanted.delete_on_close())?;
    Ok(Status::ACCESS_DENIED.when(!directory && wanted.overwrites())?)
}

/// The share access of an open. [MS-FSA] 2.1.5.1.2.2: a user who may not write in the directory cannot keep others from
/// reading an object that exists.
pub(super) async fn share<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    exists: bool,
) -> Result<ShareAccess, Failure> {
    let excludes_readers = exists && !on.wanted.share.contains(ShareAccess::READ);
    let Some(parent) = Parent::of(lookup).filter(|_| excludes_readers) else {
        return Ok(on.wanted.share);
    };
    let token = on.token()?;
    let writes = access::may_write_in(&*on.share()?.vfs, parent, &token);
    let writes = Box::pin(writes).await?;
    Ok(on.wanted.share | ShareAccess::READ.when(!writes))
}

/// [MS-FSA] 2.1.5.1.2: the first open of a directory by a user who may not write it keeps nobody from reading it.
/// FILE_DISALLOW_EXCLUSIVE, which has such an open refused, is ignored ([MS-SMB2] 2.2.13).
async fn shares_reading<V: Vfs>(
    on: &Opening<'_, V>,
    node: &V::Node,
    attr: &Attr,
) -> Result<bool, Failure> {
    if on.server().files.is_stream_open(&Place::of(node)) {
        return Ok(false);
    }
    let sd = access::descriptor(&*on.share()?.vfs, node, attr, Some(&attr.changed)).await?;
    let rights = access::maximal(&sd, &*on.token()?);
    Ok(!rights.contains(AccessMask::FILE_GENERIC_WRITE))
}

/// The access that the open is granted. An overwriting open needs rights that its request need not name ([MS-FSA]
/// 2.1.5.1.2.1; their absence was CVE-2023-4091).
async fn grant<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    node: &V::Node,
    attr: &Attr,
) -> Result<AccessMask, Failure> {
    let token = on.token()?;
    let subject = Subject {
        changed: Some(&attr.changed),
        parent: Parent::of(lookup),
        ..on.subject(node, attr)?
    };
    let granted = access::grant(&subject, &token, on.wanted.access).await?;
    if attr.kind == Kind::Special {
        let named = on.wanted.access.without(AccessMask::MAXIMUM_ALLOWED);
        Status::ACCESS_DENIED.when(!OF_SPECIAL.contains(named.map_generic()))?;
        return Ok(granted & OF_SPECIAL);
    }
    let implied = match on.wanted.disposition {
        CreateDisposition::SUPERSEDE => {
            AccessMask::DELETE | AccessMask::FILE_WRITE_EA | AccessMask::FILE_WRITE_ATTRIBUTES
        }
        CreateDisposition::OVERWRITE | CreateDisposition::OVERWRITE_IF => {
            AccessMask::FILE_WRITE_DATA
                | AccessMask::FILE_WRITE_EA
                | AccessMask::FILE_WRITE_ATTRIBUTES
        }
        _ => return Ok(granted),
    };
    access::grant(&subject, &token, implied).await?;
    Ok(granted)
}

fn check_attributes(wanted: &Wanted, attr: &Attr) -> Result<(), Failure> {
    // [MS-FSA] 2.1.5.1.2: an overwrite may not take HIDDEN or SYSTEM away. It takes away nothing that only follows from
    // the name.
    let marks = FileAttributes::HIDDEN.when(!attr.hidden_by_name) | FileAttributes::SYSTEM;
    let marked = FileAttributes(attr.dos_attributes) & marks;
    Ok(Status::ACCESS_DENIED.when(wanted.overwrites() && !wanted.attributes.contains(marked))?)
}

/// Checks whether the kernel would allow the name to be removed. On a read-only file system the status is CANNOT_DELETE
/// ([MS-FSA] 2.1.5.1.2.1).
async fn check_kernel<V: Vfs>(
    call: &Call<V>,
    lookup: &Seen<V::Node>,
    node: &V::Node,
) -> Result<(), Failure> {
    let Some(parent) = &lookup.parent else {
        return Ok(());
    };
    let (vfs, who) = (&call.share()?.vfs, &call.token()?.identity);
    match vfs.may_remove(who, node, parent, &lookup.name).await {
        Err(VfsError::ReadOnly) => Err(Status::CANNOT_DELETE.into()),
        other => Ok(other?),
    }
}

/// Makes the changes on disk: opens descriptors and truncates.
async fn act<V: Vfs>(
    on: &Opening<'_, V>,
    opened: &mut Opened<V>,
    attr: &Attr,
) -> Result<(), Failure> {
    let directory = attr.kind == Kind::Directory;
    opened.node = on.for_io(&opened.node, opened.granted, directory).await?;
    if !on.wanted.overwrites() {
        return Ok(());
    }
    {
        // A change that is under way restores its times, not those of the overwrite: wait until it is over.
        let _turn = opened.engine.quick.turn().lock().await;
        let receipt = Box::pin(overwrite::overwrite(on, &opened.node, attr)).await?;
        opened.receipt = receipt.into();
    }
    Box::pin(judge::emptied(on, opened)).await
}
