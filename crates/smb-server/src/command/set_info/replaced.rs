//! The file that already has the new name of a rename or link: decides whether it may be replaced,
//! breaks caching by other clients, and handles its opens ([MS-FSA] 2.1.5.15.7, 2.1.5.15.12,
//! [MS-FSCC] 2.4.43).

use std::sync::Arc;

use durability::{Receipt, Replaced, RequestFlags};
use smb_wire::{access_mask::AccessMask, ids::Guid, msg::ShareAccess, status::Status};
use vfs::{Attr, FileKey, Kind, Node, Vfs, VfsError, env::LocalTask};

use super::target::{Target, WantedName};
use crate::{
    access::{self, Subject},
    command::{engine::OnDisk, modified},
    failure::Failure,
    file::{CacheRequest, Decision, Link, OpenId, OpenRequest, Operation, Place},
    state::{Server, Share, archive, breaks::perform, close, records},
};

/// How often clients may begin to cache the object that is to be replaced before the rename fails.
const HOLDS_MAX: usize = 16;

/// Holds the object that a rename replaces, so that it does not change: it is an open of the engine itself that forbids
/// clients to open the object for writing. A change in between would be acknowledged and then lost. With POSIX
/// semantics that is intended: there this open stands for the deletion, which all other opens share.
///
/// A client may have opened the object, marked it for deletion and closed it meanwhile: then this open is closed
/// last and removes the name.
pub(super) struct ReplacedHold<V: Vfs> {
    server: Arc<Server<V>>,
    share: Arc<Share<V>>,
    node: V::Node,
    place: Place,
    link: Link,
    open: OpenId,
    /// It has other names, and no FILE_ATTRIBUTE_ARCHIVE.
    lacks_archive: bool,
    ended: bool,
}

impl<V: Vfs> ReplacedHold<V> {
    /// The key of the object to be replaced; no other object may be replaced.
    pub(super) fn key(&self) -> FileKey {
        self.place.key
    }

    /// Called when the name belongs to another file: opens of the replaced object keep handles without a name, and a
    /// request that looked it up by that name and is not yet in the engine's tables looks it up again.
    ///
    /// The gate has marked the loss of the name before the engine knows of it, because from then on a close that was to
    /// remove the name is answered by what is marked. The future, whose result is for [`answer`], may be awaited later.
    pub(super) fn replaced<'g>(
        &self,
        on: &'g OnDisk<'_, V>,
        target: &Target<V>,
    ) -> impl Future<Output = Replaced<'g, V>> {
        let flags = on.open.flags();
        let marked = (on.share.gate).replaced(&self.node, &target.parent, flags);
        self.server.files.replaced(self.place.key, &self.link);
        async {
            let replaced = marked.await;
            records::inode_changed(&self.server, self.place.key).await;
            replaced
        }
    }

    /// Sets FILE_ATTRIBUTE_ARCHIVE of the replaced file if it has other names. To be called without a guard of the gate
    /// for the names, because this may wait for a sync of them.
    ///
    /// # Errors
    /// The error of a sync. The name is gone all the same.
    pub(super) async fn archive(&self, flags: RequestFlags) -> Result<(), VfsError> {
        if !self.lacks_archive {
            return Ok(());
        }
        let set = archive::set_of_others(&self.server, &self.share, &self.node, flags);
        Box::pin(set).await
    }

    /// Allows other opens again.
    pub(super) async fn end(mut self) {
        if let Some(removing) = self.leave() {
            removing.await;
        }
    }

    /// Closes this open and returns the removal if this open must carry it out. It is boxed because that is rare.
    fn leave(&mut self) -> Option<LocalTask> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let files = &self.server.files;
        // A request that looked the object up before it was replaced must see the replacement before it gets an
        // open.
        files.name_gone(self.place.key);
        let closed = files.close(&self.place, self.open, None);
        if closed.remove.is_none() {
            perform(&self.server, closed.effects);
            return None;
        }
        let (server, share) = (Arc::clone(&self.server), Arc::clone(&self.share));
        let (node, place, open) = (self.node.clone(), self.place.clone(), self.open);
        Some(Box::pin(async move {
            let at = (&place, open);
            let removed = close::without_client(&server, &share, &node, at, closed);
            if let Err(error) = removed.await {
                // The removal has logged a name that stays.
                tracing::warn!(%error, share = share.config.name, "a file that another client marked for deletion could not be removed");
            }
        }))
    }
}

impl<V: Vfs> Drop for ReplacedHold<V> {
    fn drop(&mut self) {
        if let Some(removing) = self.leave() {
            // The request was given up, but the removal was promised to another client.
            self.server.env.spawn(removing);
        }
    }
}

/// Waits for what [`ReplacedHold::replaced`] has begun, if anything was replaced.
pub(super) async fn marked<T>(replaced: Option<impl Future<Output = T>>) -> Option<T> {
    match replaced {
        Some(replaced) => Some(replaced.await),
        None => None,
    }
}

/// Releases the object that was to be replaced, whether or not it was.
pub(super) async fn end<V: Vfs>(hold: Option<ReplacedHold<V>>) {
    if let Some(hold) = hold {
        hold.end().await;
    }
}

/// Checks whether the object that has the target's name may be replaced, and breaks the caching of it. `None` if
/// nothing has the name.
///
/// # Errors
/// `OBJECT_NAME_COLLISION`, `ACCESS_DENIED`, `DELETE_PENDING`; with POSIX semantics
/// `SHARING_VIOLATION` if an open of it does not share deletion.
pub(super) async fn hold<V: Vfs>(
    on: &OnDisk<'_, V>,
    target: &Target<V>,
    wanted: &WantedName,
) -> Result<Option<ReplacedHold<V>>, Failure> {
    let Some((node, attr)) = &target.existing else {
        return Ok(None);
    };
    Status::OBJECT_NAME_COLLISION.when(!wanted.replace)?;
    check_replaceable(on, target, node, attr, wanted).await?;
    let place = Place::of(node);
    for _ in 0..HOLDS_MAX {
        if on.server.files.count(node.key(), None) > 0 {
            on.operation_at(&place, Operation::Rename).await?;
            on.clear_streams(node.key()).await?;
            if wanted.posix {
                // [MS-FSA] 2.1.5.15.12 breaks caching as for a change of the size, because the name belongs to another
                // file from now on.
                on.operation_at(&place, Operation::SetSize).await?;
            }
        }
        if let Some(hold) = open(on, &place, (node, attr), target, wanted.posix).await? {
            return Ok(Some(hold));
        }
    }
    Err(Status::SHARING_VIOLATION.into())
}

/// Checks whether the user may replace the object, and whether the request asks for it.
async fn check_replaceable<V: Vfs>(
    on: &OnDisk<'_, V>,
    target: &Target<V>,
    node: &V::Node,
    attr: &Attr,
    wanted: &WantedName,
) -> Result<(), Failure> {
    let readonly = access::readonly(attr);
    if attr.kind == Kind::Directory || (readonly && !wanted.ignore_readonly) {
        return Err(Status::ACCESS_DENIED.into());
    }
    // [MS-FSA] 2.1.5.15.12: only this name counts, and not others of the file.
    Status::DELETE_PENDING.when((on.server.files).is_going(node.key(), &target.existing_link()))?;
    let subject = Subject {
        parent: Some(access::Parent::seen(&target.parent, None).named(&target.stored)),
        ..on.call.subject(node, attr)?
    };
    // A user who may change the attribute may also ignore it, as in [MS-FSA] 2.1.5.15.4.
    let rights = AccessMask::DELETE | AccessMask::FILE_WRITE_ATTRIBUTES.when(readonly);
    access::grant(&subject, &*on.token()?, rights).await?;
    Ok(())
}

/// Opens the object before any client can. With POSIX semantics this open deletes, and all other opens must share
/// that; without, no other open may exist. `None`: a client caches the object meanwhile and was asked to give that
/// up.
async fn open<V: Vfs>(
    on: &OnDisk<'_, V>,
    place: &Place,
    (node, attr): (&V::Node, &Attr),
    target: &Target<V>,
    posix: bool,
) -> Result<Option<ReplacedHold<V>>, Failure> {
    let parking = on.call.parking()?;
    let shared = ShareAccess::READ | ShareAccess::DELETE;
    let (access, share) = match posix {
        true => (AccessMask::DELETE, shared | ShareAccess::WRITE),
        false => (AccessMask::FILE_READ_DATA, shared),
    };
    let request = OpenRequest {
        open: OpenId(on.server.fresh_id()),
        place: place.clone(),
        link: target.existing_link(),
        path: target.existing_path(),
        directory: false,
        access,
        share,
        effect: AccessMask::empty(),
        delete_on_close: false,
        patient: true,
        client: Guid::default(),
        cache: CacheRequest::None,
        allocation: 0,
        waiter: parking.waiter,
    };
    let (decision, effects) = on.server.files.open(&request);
    perform(on.server, effects);
    match decision {
        Decision::Granted(_) => {}
        Decision::Conflict(status) if posix => return Err(status.into()),
        Decision::MustBreak | Decision::Conflict(_) => {
            on.server.files.cancel(place, parking.waiter.id);
            return match posix {
                true => Ok(None),
                false => Err(Status::ACCESS_DENIED.into()),
            };
        }
    }
    let hold = ReplacedHold {
        server: Arc::clone(on.server),
        share: Arc::clone(on.share),
        node: node.clone(),
        place: place.clone(),
        link: request.link,
        open: request.open,
        lacks_archive: attr.links > 1 && modified::lacks_archive(attr),
        ended: false,
    };
    if !posix {
        // From here on nobody opens a named stream, either.
        on.server.files.replaces(place, hold.open);
        if on.server.files.count(place.key, None) > 1 {
            hold.end().await;
            return Err(Status::ACCESS_DENIED.into());
        }
    }
    Ok(Some(hold))
}

/// The receipt of a rename or link that may have replaced a file. `own` is the receipt of `node`, which has the name
/// now.
pub(super) async fn answer<V: Vfs>(
    replaced: Option<Replaced<'_, V>>,
    node: &V::Node,
    own: Result<Receipt, VfsError>,
) -> Result<Receipt, VfsError> {
    match replaced {
        Some(replaced) => replaced.answer(node, own).await,
        None => own,
    }
}
