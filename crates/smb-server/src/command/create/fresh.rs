//! Creates a file or directory that does not exist ([MS-FSA] 2.1.5.1.1), under a claim on its name.

use std::{cell::Cell, sync::Arc, time::Duration};

use smb_wire::{
    access_mask::AccessMask,
    dtyp::{AceType, SecurityDescriptor, SecurityInformation, Sid},
    file_attributes::FileAttributes,
    msg::CreateDisposition,
    status::Status,
};
use vfs::{Attr, FileKey, Kind, NewNode, NewSecurity, Node, Permissions, Timestamp, Vfs, VfsError};

use super::{
    CreateAttempt, Known, Made, Opening, Seen, judge,
    judge::{Case, Judged},
    request::Wanted,
};
use crate::{
    access::{self, Above, Parent},
    command::Call,
    failure::{Failure, of_eas},
    file::{Change, Link, Place, Remove, Step, Waiter},
    state::{Server, breaks::perform, notices},
};

/// How long a request pauses that has no room to wait for the end of a claim.
const PAUSE: Duration = Duration::from_millis(100);

/// A name by which something is being created; given back when dropped.
pub(super) struct Claim<V: Vfs> {
    server: Arc<Server<V>>,
    link: Link,
}

/// A claim that its request can give back early.
pub(super) type HeldClaim<V> = Cell<Option<Claim<V>>>;

impl<V: Vfs> Drop for Claim<V> {
    fn drop(&mut self) {
        let effects = self.server.files.claims.release(&self.link);
        perform(&self.server, effects);
    }
}

/// Claims a name. `None` means that another request had claimed it meanwhile, so the caller must look it up again.
pub(super) async fn claim<V: Vfs>(
    call: &Call<V>,
    link: Link,
) -> Result<Option<HeldClaim<V>>, Failure> {
    let server = Arc::clone(call.server());
    let free = is_free(call, |waiter| server.files.claims.claim(&link, waiter)).await?;
    Ok(free.then(|| Cell::new(Some(Claim { server, link }))))
}

/// Waits for a request that has made the object of this name and is not in the tables yet. False if there was one: then
/// the caller must look the name up again.
pub(super) async fn made_by_nobody<V: Vfs>(call: &Call<V>, link: &Link) -> Result<bool, Failure> {
    let files = &call.server().files;
    is_free(call, |waiter| files.claims.after(link, waiter)).await
}

/// As [`made_by_nobody`], for the named streams of a file.
pub(in crate::command) async fn streams_made_by_nobody<V: Vfs>(
    call: &Call<V>,
    file: FileKey,
) -> Result<bool, Failure> {
    let files = &call.server().files;
    is_free(call, |waiter| {
        files.claims.after_those_of_streams(file, waiter)
    })
    .await
}

/// Asks for a name; false if this had to wait for the end of a claim.
///
/// A request for which there is no room among those that wait, behind the claim or on its connection, looks the name up
/// again after a pause: the claim ends soon, and its number of attempts is limited.
///
/// # Errors
/// Those of [`Call::wait_ended`] if the request is ended first. It keeps its place behind the claim until that ends.
async fn is_free<V: Vfs>(
    call: &Call<V>,
    ask: impl FnOnce(Waiter) -> Step,
) -> Result<bool, Failure> {
    let server = call.server();
    let mut parking = call.parking()?;
    let failure: Failure = match ask(parking.waiter) {
        Step::Go => return Ok(true),
        Step::Refused(status) => status.into(),
        // The wait is no longer than one creation takes on disk; a dropped claim wakes all that wait.
        Step::Wait => match Box::pin(call.park_quietly(None, &mut parking.woken)).await {
            Ok(Ok(_)) => return Ok(false),
            Ok(Err(_)) => call.wait_ended(),
            Err(failure) => failure,
        },
    };
    drop(parking);
    match failure {
        Failure::Status(Status::INSUFFICIENT_RESOURCES) if !call.connection.is_closed() => {
            server.env.sleep(PAUSE).await;
            Ok(false)
        }
        failure => Err(failure),
    }
}

/// Creates a file or directory under a claim on its name, and opens it: no other client can open it before its creator
/// is in the engine's tables, which could cause a conflict. The claim was taken without waiting, so the lookup is still
/// good enough: if the name was made since, the creation fails. It is given up before the request waits for others.
pub(super) async fn create<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    claim: &HeldClaim<V>,
) -> Result<CreateAttempt<V>, Failure> {
    // The lookup's path ends at the directory; the open's path includes the new name.
    let mut whole = lookup.clone();
    whole.lookup.path.push(whole.name.clone());
    let lookup = &whole;
    let parent = lookup.parent.as_ref();
    let parent = parent.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    let inherited = check(on, lookup, parent).await?;
    judge::check_new(on, None)?;
    let granted = grant(on)?;
    let descriptor = descriptor(on, inherited)?;
    let begun = on.share()?.gate.begin(parent);
    let (node, attr) = match make(on, lookup, parent, descriptor).await {
        // Another request was faster: the object that exists now is opened by the rules for existing objects.
        Err(Failure::Status(Status::OBJECT_NAME_COLLISION)) => return Ok(CreateAttempt::Taken),
        other => other?,
    };
    let (as_made, turn) = (|| (&node, Some(attr.changed)), Some(on.turn.get()));
    let policy = super::enter_policy(on, lookup, &node)?;
    // The name is marked dirty at once, because another client may open and flush the file.
    let created = {
        // The guard ends here, because the lookup that it borrows from is given away.
        let begun = begun;
        begun.created(&node, parent, on.wanted.flags()).await
    };
    let receipt = match created {
        Ok(receipt) => receipt,
        Err(error) => return undone(on, parent, lookup, as_made(), error.into()).await,
    };
    let place = Place::of(&node);
    let case = Case {
        node: &node,
        claim: Some(claim),
        place: &place,
        lookup,
        directory: on.wanted.directory(),
        granted,
        share: on.wanted.share,
        effect: AccessMask::empty(),
        allocation: attr.allocation(),
        created: true,
        receipt: receipt.into(),
        policy: Some(policy),
    };
    let mut opened = match judge::open(on, case).await {
        Ok(Judged::Granted(opened)) => opened,
        // Another client opened the new object first, with a share mode that excludes this open: the object stays, and
        // is reported here, because nobody else does. The request has waited for that client's caching.
        Ok(Judged::Again) => {
            announce(on, lookup, Change::ADDED)?;
            return Ok(CreateAttempt::Waited);
        }
        // The new object is not at the requested path: the directory was moved, or another request has opened or
        // removed the object already.
        Ok(Judged::Moved) => {
            Box::pin(take_back(on, parent, lookup, as_made())).await?;
            return Ok(CreateAttempt::Again);
        }
        Err(failure) => return undone(on, parent, lookup, as_made(), failure).await,
    };
    announce(on, lookup, Change::ADDED)?;
    opened.made = Some(Box::new(Made {
        node,
        changed: Some(attr.changed),
        lookup: whole,
    }));
    opened.known = Some(Known {
        attr,
        turn,
        is_final: true,
    });
    Ok(CreateAttempt::Done(opened))
}

/// Checks whether the object may be created; if so, returns the parent's stored descriptor.
async fn check<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    parent: &V::Node,
) -> Result<Option<Above>, Failure> {
    let share = on.share()?;
    let token = on.token()?;
    Status::ACCESS_DENIED.when(share.config.read_only)?;
    // [MS-FSA] 2.1.5.1.1: no new directory is temporary; one that exists may be opened with this attribute.
    if on.wanted.directory() && on.wanted.attributes.contains(FileAttributes::TEMPORARY) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    check_deletion(on.wanted)?;
    let above = Parent::seen(parent, lookup.parent_seen.as_ref());
    let inherited = access::may_add(&*share.vfs, above, &token, on.wanted.directory()).await?;
    // [MS-FSA] 2.1.5.1.1: nothing is added to a directory that is to be deleted.
    Status::DELETE_PENDING.when(on.server().files.is_to_be_deleted(parent.key()))?;
    Ok(inherited)
}

/// [MS-FSA] 2.1.5.1.1: nothing that is made read-only can be deleted with its first handle.
pub(super) fn check_deletion(wanted: &Wanted) -> Result<(), Failure> {
    if wanted.attributes.contains(FileAttributes::READONLY) && wanted.delete_on_close() {
        return Err(Status::CANNOT_DELETE.into());
    }
    Ok(())
}

/// The descriptor of the new object, encoded, if it is given or inherited.
fn descriptor<V: Vfs>(
    on: &Opening<'_, V>,
    inherited: Option<Above>,
) -> Result<Option<Vec<u8>>, Failure> {
    let token = on.token()?;
    let given = on.contexts.security()?;
    let given = given.as_ref();
    if let Some(given) = given {
        let nobody = SecurityDescriptor::default();
        // The group gives no access by itself, only through entries, and the creator may choose those.
        let owner = SecurityInformation::OWNER;
        access::may_own(&nobody, given, owner, &token, |sid| *sid)?;
        check_system_entries(given)?;
    }
    let new = access::for_new(inherited.as_ref(), &token, given, on.wanted.directory());
    // Inheritance can make two entries of one. A list that becomes too long cannot be truncated, because its last
    // entries may deny access.
    let bytes = new.map(|sd| encoded(&sd).map_err(|_| Status::BAD_INHERITANCE_ACL));
    Ok(bytes.transpose()?)
}

/// Nobody has SeSecurityPrivilege, without which only labels and resource attributes are set ([MS-SMB2] 3.3.5.21.3): no
/// client could see or remove other system entries.
fn check_system_entries(given: &SecurityDescriptor) -> Result<(), Failure> {
    let mut entries = given.sacl.iter().flat_map(|list| &list.aces);
    let are_free = entries.all(|entry| {
        matches!(
            entry.ace_type,
            AceType::SYSTEM_MANDATORY_LABEL | AceType::SYSTEM_RESOURCE_ATTRIBUTE
        )
    });
    match are_free {
        true => Ok(()),
        false => Err(Status::PRIVILEGE_NOT_HELD.into()),
    }
}

async fn make<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    parent: &V::Node,
    descriptor: Option<Vec<u8>>,
) -> Result<(V::Node, Attr), Failure> {
    let share = on.share()?;
    let token = on.token()?;
    let vfs = &*share.vfs;
    let directory = on.wanted.directory();
    let describe = |of| owned(token.owner_sid, of, directory);
    let security = match descriptor {
        None => (!token.owns_by_uid).then_some(NewSecurity::Of(&describe)),
        Some(bytes) => Some(NewSecurity::Given(bytes)),
    };
    let new = NewNode {
        mode: None,
        dos_attributes: on.wanted.stored_attributes(directory),
        security,
        eas: on.contexts.eas()?,
        allocation: if directory { 0 } else { on.contexts.allocation },
        // If the request has waited since the lookup began, what the lookup saw may be outdated.
        above: (lookup.parent_seen.as_ref()).filter(|_| lookup.turn == on.turn.get()),
    };
    let name = &lookup.name;
    let made = vfs.create(&token.identity, parent, name, &new, directory);
    match made.await {
        Err(VfsError::Exists) if on.wanted.disposition == CreateDisposition::CREATE => {
            Err(Status::OBJECT_NAME_COLLISION.into())
        }
        // It is the descriptor that is too large.
        Err(error @ VfsError::TooLarge) => Err(error.into()),
        Err(error) if !new.eas.is_empty() => Err(of_eas(error)),
        other => Ok(other?),
    }
}

fn encoded(sd: &SecurityDescriptor) -> Result<Vec<u8>, Failure> {
    let mut bytes = bytes::BytesMut::new();
    sd.encode(&mut bytes)?;
    Ok(bytes.to_vec())
}

/// The descriptor of a new file or directory: its access entries follow the permission bits, and its owner is the
/// account. Inheritable entries of a directory are not stored: they follow `file_mode` and `directory_mode`.
fn owned(owner: Sid, of: Permissions, directory: bool) -> Vec<u8> {
    // So few entries always fit. If the encoding failed, the empty descriptor would be unreadable and grant nothing.
    encoded(&access::effective(owner, of, directory)).unwrap_or_default()
}

/// [MS-FSA] 2.1.5.1.1: the creator gets what it asked for, whatever the new descriptor says; MAXIMUM_ALLOWED stands for
/// every right.
pub(super) fn grant<V: Vfs>(on: &Opening<'_, V>) -> Result<AccessMask, Failure> {
    let ceiling = on.tree()?.maximal_access;
    let maximum = on.wanted.access.contains(AccessMask::MAXIMUM_ALLOWED);
    let named = on.wanted.access.without(AccessMask::MAXIMUM_ALLOWED);
    Ok((named | AccessMask::FILE_ALL_ACCESS.when(maximum)) & ceiling)
}

/// Fails a request whose object was made, and reports the object if it stays because another client has it.
async fn undone<V: Vfs>(
    on: &Opening<'_, V>,
    parent: &V::Node,
    lookup: &Seen<V::Node>,
    made: (&V::Node, Option<Timestamp>),
    failure: Failure,
) -> Result<CreateAttempt<V>, Failure> {
    if !Box::pin(take_back(on, parent, lookup, made)).await? {
        announce(on, lookup, Change::ADDED)?;
    }
    Err(failure)
}

/// Removes an object that was created and announced, and whose open was undone since.
pub(super) async fn withdraw<V: Vfs>(on: &Opening<'_, V>, made: &Made<V>) -> Result<(), Failure> {
    let Some(parent) = &made.lookup.parent else {
        return Ok(());
    };
    let as_made = (&made.node, made.changed);
    if Box::pin(take_back(on, parent, &made.lookup, as_made)).await? {
        announce(on, &made.lookup, Change::REMOVED)?;
    }
    Ok(())
}

/// Removes the object that was created, unless another client has it open by now or has changed it; returns whether it
/// did. `changed` is the change time that it was made with, as for [`is_as_made`]. If it cannot be
/// removed, it stays and remains dirty. The client gets the error for which its request failed.
async fn take_back<V: Vfs>(
    call: &Call<V>,
    parent: &V::Node,
    lookup: &Seen<V::Node>,
    (node, changed): (&V::Node, Option<Timestamp>),
) -> Result<bool, Failure> {
    let token = call.token()?;
    let share = call.share()?;
    let files = &call.server().files;
    let (place, name) = (Place::of(node), Remove::Link(Link::of(lookup)));
    let stays = |error: VfsError| {
        tracing::warn!(%error, share = share.config.name, "a new file whose open failed could not be removed");
    };
    let begun = match share.gate.begin_removal(node, parent).await {
        Ok(begun) => begun,
        Err(error) => {
            stays(error);
            return Ok(false);
        }
    };
    if !files.take_out(&place, &name) {
        return Ok(false);
    }
    let removed = match is_as_made(&*share.vfs, node, changed).await {
        true => {
            let removal = share
                .vfs
                .remove(&token.identity, node, parent, &lookup.name);
            removal.await.map(Some)
        }
        false => Ok(None),
    };
    files.removed(&place, &name, None);
    match removed {
        Ok(Some(name)) => {
            // The inode number may be reused for another file, so nothing of this one may remain dirty or poisoned.
            // Nobody waits for the result.
            let flags = durability::RequestFlags::default();
            drop(begun.removed(node, name, flags).await);
            return Ok(true);
        }
        // Somebody opened it and changed it, or removed it.
        Ok(None) | Err(VfsError::NotFound) => {}
        Err(error) => stays(error),
    }
    Ok(false)
}

/// Whether nobody has changed an object that was just created. A client may have set attributes of it, and was answered
/// with success, through a handle that is closed again: the change time shows that as exactly as the kernel keeps it.
/// Without one, only contents count. A directory with entries cannot be removed anyway.
async fn is_as_made<V: Vfs>(vfs: &V, node: &V::Node, changed: Option<Timestamp>) -> bool {
    let as_made = |attr: Attr| {
        let empty = attr.kind == Kind::Directory || attr.size == 0;
        empty && changed.is_none_or(|changed| attr.changed == changed)
    };
    let streams = vfs.streams(node).await;
    streams.is_ok_and(|streams| streams.is_empty()) && vfs.attr(node).await.is_ok_and(as_made)
}

/// Reports the name that came or went to watchers and breaks leases on the directory.
fn announce<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    action: u32,
) -> Result<(), Failure> {
    on.announce(lookup, action, notices::name_filter(on.wanted.directory()))
}

#[cfg(test)]
#[path = "fresh_tests.rs"]
mod tests;
