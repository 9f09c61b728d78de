//! The new name of a rename or link: reading it, finding where it leads, and whether what is
//! there may be replaced ([MS-FSA] 2.1.5.15.7, 2.1.5.15.12; spec-notes 12.6, 12.7).

use std::sync::Arc;

use durability::RequestFlags;
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::{
        FileInformationClass, FileLinkInformation, FileRenameInformation, FileRenameInformationEx,
        RenameFlags,
    },
    ids::Guid,
    msg::ShareAccess,
    status::Status,
    utf16,
};
use vfs::{Attr, FileKey, Kind, Node, Vfs, env::LocalTask};

use crate::{
    access::{self, Subject},
    command::{
        Call, Failure,
        attempts::{Attempt, attempts},
        close,
        create::{NameStream, parse_name},
        engine,
    },
    file::{Actor, CacheRequest, Decision, Link, OpenId, OpenRequest, Operation, Place, SharePath},
    state::{Open, Server, Share},
};

/// What the request says.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Something of that name may go.
    pub(super) replace: bool,
    /// Also if it is read-only.
    pub(super) ignore_readonly: bool,
    /// Components from the share's root; none for a stream of the file itself.
    pub(super) path: Vec<String>,
    /// The stream, if the name says one.
    pub(super) stream: Option<NameStream>,
}

/// Reads the buffer of a rename or link.
///
/// # Errors
/// `INFO_LENGTH_MISMATCH`, `INVALID_PARAMETER`, `OBJECT_NAME_INVALID`; `NOT_SUPPORTED` for flags
/// that would change what is done.
pub(super) fn read(class: FileInformationClass, buffer: &[u8]) -> Result<Wanted, Failure> {
    if buffer.len() < FileRenameInformation::MIN {
        return Err(Status::INFO_LENGTH_MISMATCH.into());
    }
    let (flags, root, name) = match class {
        FileInformationClass::RENAME_EX => {
            let info = FileRenameInformationEx::read(buffer)?;
            (info.flags, info.root_directory, info.file_name)
        }
        FileInformationClass::LINK => {
            let info = FileLinkInformation::read(buffer)?;
            let flags = RenameFlags::REPLACE_IF_EXISTS.when(info.replace_if_exists);
            (flags, info.root_directory, info.file_name)
        }
        _ => {
            let info = FileRenameInformation::read(buffer)?;
            let flags = RenameFlags::REPLACE_IF_EXISTS.when(info.replace_if_exists);
            (flags, info.root_directory, info.file_name)
        }
    };
    let known = RenameFlags::REPLACE_IF_EXISTS
        | RenameFlags::IGNORE_READONLY_ATTRIBUTE
        | RenameFlags::SUPPRESS_PIN_STATE_INHERITANCE;
    if !flags.without(known).is_empty() {
        return Err(Status::NOT_SUPPORTED.into());
    }
    if root != 0 || name.is_empty() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let name = parse_name(&utf16::encode(&name))?;
    if name.trailing || (name.path.is_empty() && name.stream.is_none()) {
        return Err(Status::OBJECT_NAME_INVALID.into());
    }
    Ok(Wanted {
        replace: flags.contains(RenameFlags::REPLACE_IF_EXISTS),
        ignore_readonly: flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE),
        path: name.path,
        stream: name.stream,
    })
}

/// A new name is on its way while this lives: its path moves along with the directories above.
pub(super) struct Way<V: Vfs> {
    server: Arc<Server<V>>,
    pub(super) id: OpenId,
}

impl<V: Vfs> Way<V> {
    fn begin(server: &Arc<Server<V>>, path: &SharePath) -> Self {
        let id = OpenId(server.fresh_id());
        server.files.expect(id, path);
        Self {
            server: Arc::clone(server),
            id,
        }
    }
}

impl<V: Vfs> Drop for Way<V> {
    fn drop(&mut self) {
        self.server.files.dismiss(self.id);
    }
}

/// Where a new name leads.
pub(super) struct Target<V: Vfs> {
    pub(super) parent: V::Node,
    /// The last component, as asked for.
    pub(super) name: String,
    /// The whole path with that component, as it was found.
    pub(super) path: SharePath,
    pub(super) way: Way<V>,
    /// What has the name now.
    pub(super) existing: Option<(V::Node, Attr)>,
    /// The name as it is stored now.
    pub(super) stored: String,
}

impl<V: Vfs> Target<V> {
    pub(super) fn link(&self) -> Link {
        link(self.parent.key(), &self.name)
    }

    /// The whole path, wherever the directory is by now.
    pub(super) fn path_now(&self) -> SharePath {
        let now = self.way.server.files.coming(self.way.id);
        now.unwrap_or_else(|| self.path.clone())
    }
}

/// A name as the engine takes it.
pub(super) fn link(parent: vfs::FileKey, name: &str) -> Link {
    Link {
        parent,
        name: vfs::posix::name::fold(name).into(),
    }
}

/// Finds the directory of a new name, and whether something may be added to it.
pub(super) async fn find<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    path: &[String],
    directory: bool,
) -> Result<Target<V>, Failure> {
    let files = &call.server().files;
    attempts(async || {
        let look = files.look();
        let target = look_up(call, open, path, directory).await?;
        // Who moves a directory from here on knows of the new name.
        if !files.has_directory_moved(look) || leads_there(call, path, &target).await {
            return Ok(Attempt::Done(target));
        }
        Ok(Attempt::Again(Status::SHARING_VIOLATION))
    })
    .await
}

/// Whether a path that was looked up while directories moved, anywhere, leads where it did.
async fn leads_there<V: Vfs>(call: &Call<V>, path: &[String], target: &Target<V>) -> bool {
    let (Ok(share), Ok(token)) = (call.share(), call.token()) else {
        return false;
    };
    let Ok(again) = share.vfs.lookup(&token.identity, path).await else {
        // What is said of that is said by who looks it up next.
        return false;
    };
    let parent = again.parent.as_ref().map(Node::key);
    parent == Some(target.parent.key())
        && whole(share.id, path, again.path).is_some_and(|found| found == target.path_now())
}

/// The way to a directory as it was found, and the last component as it was asked for.
fn whole(share: u32, asked: &[String], found: Vec<String>) -> Option<SharePath> {
    let (name, above) = asked.split_last()?;
    let mut names: Vec<String> = found.into_iter().take(above.len()).collect();
    names.push(name.clone());
    Some(engine::share_path(share, &names))
}

async fn look_up<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    path: &[String],
    directory: bool,
) -> Result<Target<V>, Failure> {
    let share = call.share()?;
    let token = call.token()?;
    let lookup = share.vfs.lookup(&token.identity, path).await?;
    let whole = whole(share.id, path, lookup.path);
    let (Some(parent), Some(name), Some(whole)) = (lookup.parent, path.last(), whole) else {
        return Err(Status::OBJECT_NAME_INVALID.into());
    };
    let files = &call.server().files;
    if files.is_doomed(parent.key()) {
        return Err(Status::DELETE_PENDING.into());
    }
    let directly_above = access::Parent::seen(&parent, lookup.parent_seen.as_ref());
    access::may_add(&*share.vfs, directly_above, &token, directory).await?;
    let place = Place {
        key: parent.key(),
        stream: None,
    };
    let ask = |id| files.admit_entry(&place, directory, id);
    engine::wait_for(call, Some(open), &place, ask).await?;
    Ok(Target {
        parent,
        name: name.clone(),
        way: Way::begin(call.server(), &whole),
        path: whole,
        existing: lookup.found,
        stored: lookup.name,
    })
}

/// What is to be replaced stays as it is while this lives: an open of the engine's own, beside
/// which nobody opens it to write. What came in between would be acknowledged and then gone.
///
/// Somebody else may have opened it to delete it, have marked it and closed: then the last close is
/// that of this, and the name goes with it.
pub(super) struct Room<V: Vfs> {
    server: Arc<Server<V>>,
    share: Arc<Share<V>>,
    node: V::Node,
    place: Place,
    open: OpenId,
    ended: bool,
}

impl<V: Vfs> Room<V> {
    /// What is to be replaced, and nothing else.
    pub(super) fn key(&self) -> FileKey {
        self.place.key
    }

    /// Who has seen it by its name, and is not in the engine's tables yet, looks again.
    pub(super) fn is_replaced(&self) {
        self.server.files.name_gone(self.place.key);
    }

    /// Lets others in again.
    async fn end(mut self) {
        if let Some(removing) = self.leave() {
            removing.await;
        }
    }

    /// What is to be done, if it falls to this, which is seldom: on the heap.
    fn leave(&mut self) -> Option<LocalTask> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let files = &self.server.files;
        // Who saw it before it was replaced sees that before it is let in.
        files.name_gone(self.place.key);
        let closed = files.close(&self.place, self.open, None);
        let Some((remove, deleter)) = closed.remove else {
            engine::perform(&self.server, closed.effects);
            return None;
        };
        let (server, share) = (Arc::clone(&self.server), Arc::clone(&self.share));
        let (node, place, open) = (self.node.clone(), self.place.clone(), self.open);
        Some(Box::pin(async move {
            let who = (&deleter.identity, RequestFlags::default());
            let removed = close::remove_name(&server, &share, &node, (&remove, open), who, None);
            let removed = removed.await;
            server.files.removed(&place, &remove, Some(open));
            // Whoever waited for this finds the name gone, not going.
            engine::perform(&server, closed.effects);
            if let Err(error) = removed {
                // What stays is told there.
                tracing::warn!(%error, share = share.config.name, "what another client marked for deletion went not as it should");
            }
        }))
    }
}

impl<V: Vfs> Drop for Room<V> {
    fn drop(&mut self) {
        if let Some(removing) = self.leave() {
            // The request is given up; what was promised to another is not.
            self.server.env.spawn(removing);
        }
    }
}

/// What was replaced, or not after all, needs to be held no more.
pub(super) async fn end<V: Vfs>(room: Option<Room<V>>) {
    if let Some(room) = room {
        room.end().await;
    }
}

/// Whether what has the target's name may be replaced; holders of it are asked to let go. `None`
/// where nothing has the name.
///
/// # Errors
/// `OBJECT_NAME_COLLISION`, `ACCESS_DENIED`, `DELETE_PENDING`.
pub(super) async fn make_room<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    target: &Target<V>,
    wanted: &Wanted,
) -> Result<Option<Room<V>>, Failure> {
    let Some((node, attr)) = &target.existing else {
        return Ok(None);
    };
    if !wanted.replace {
        return Err(Status::OBJECT_NAME_COLLISION.into());
    }
    let readonly = FileAttributes(attr.dos_attributes).contains(FileAttributes::READONLY);
    if attr.kind == Kind::Directory || (readonly && !wanted.ignore_readonly) {
        return Err(Status::ACCESS_DENIED.into());
    }
    let files = &call.server().files;
    if files.is_doomed(node.key()) {
        return Err(Status::DELETE_PENDING.into());
    }
    let subject = Subject {
        vfs: &*call.share()?.vfs,
        node,
        attr,
        changed: None,
        parent: Some(access::Parent::seen(&target.parent, None).named(&target.stored)),
        ceiling: call.tree()?.maximal_access,
        stream: false,
    };
    access::grant(&subject, &*call.token()?, AccessMask::DELETE).await?;
    let place = Place {
        key: node.key(),
        stream: None,
    };
    if files.count(node.key(), None) > 0 {
        engine::make_way(call, Some(open), &place, Actor::Stranger, Operation::Rename).await?;
        engine::clear_streams(call, open, node.key()).await?;
    }
    hold(call, place, node, target).await.map(Some)
}

/// Takes the place of whoever might open it. Nobody may have it open.
async fn hold<V: Vfs>(
    call: &Call<V>,
    place: Place,
    node: &V::Node,
    target: &Target<V>,
) -> Result<Room<V>, Failure> {
    let server = call.server();
    let share = Arc::clone(call.share()?);
    let (waiter, _) = server.waiter();
    let request = OpenRequest {
        open: OpenId(server.fresh_id()),
        place: place.clone(),
        link: target.link(),
        path: target.path_now(),
        directory: false,
        access: AccessMask::FILE_READ_DATA,
        share: ShareAccess::READ | ShareAccess::DELETE,
        effect: AccessMask::empty(),
        delete_on_close: false,
        client: Guid::default(),
        cache: CacheRequest::None,
        allocation: 0,
        waiter,
    };
    let (decision, effects) = server.files.open(&request);
    engine::perform(server, effects);
    server.forget_waiter(waiter);
    let Decision::Granted(_) = decision else {
        server.files.cancel(&place, waiter);
        return Err(Status::ACCESS_DENIED.into());
    };
    let key = place.key;
    let room = Room {
        server: Arc::clone(server),
        share,
        node: node.clone(),
        place,
        open: request.open,
        ended: false,
    };
    if server.files.count(key, None) > 1 {
        room.end().await;
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(room)
}

/// A replaced file has no handle left, and one name less.
pub(super) async fn replaced<V: Vfs>(call: &Call<V>, target: &Target<V>) {
    if let (Some((node, _)), Ok(share)) = (&target.existing, call.share()) {
        share.gate.replaced(node, &target.parent).await;
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn status(class: FileInformationClass, bytes: &[u8]) -> Option<Status> {
        match read(class, bytes) {
            Ok(_) => None,
            Err(Failure::Status(status)) => Some(status),
            Err(_) => panic!("no status"),
        }
    }

    fn rename(root_directory: u64, name: &str) -> BytesMut {
        let mut out = BytesMut::new();
        FileRenameInformation {
            replace_if_exists: true,
            root_directory,
            file_name: name.to_owned(),
        }
        .encode(&mut out);
        out
    }

    #[test]
    fn names_are_checked_as_the_text_says() {
        let class = FileInformationClass::RENAME;
        assert_eq!(status(class, &rename(0, "a\\b")), None);
        assert_eq!(status(class, &rename(0, ":s")), None);
        assert_eq!(status(class, &[0; 23]), Some(Status::INFO_LENGTH_MISMATCH));
        for bad in [rename(1, "a"), rename(0, ""), rename(0, "\\a")] {
            assert_eq!(status(class, &bad), Some(Status::INVALID_PARAMETER));
        }
        let mut odd = rename(0, "ab");
        odd[16] = 3;
        assert_eq!(status(class, &odd), Some(Status::INVALID_PARAMETER));
        assert_eq!(
            status(class, &rename(0, "a*")),
            Some(Status::OBJECT_NAME_INVALID)
        );
    }

    #[test]
    fn flags_that_are_not_done_are_refused() {
        let mut out = BytesMut::new();
        FileRenameInformationEx {
            flags: RenameFlags::REPLACE_IF_EXISTS | RenameFlags::POSIX_SEMANTICS,
            root_directory: 0,
            file_name: "a".to_owned(),
        }
        .encode(&mut out);
        assert_eq!(
            status(FileInformationClass::RENAME_EX, &out),
            Some(Status::NOT_SUPPORTED)
        );
    }
}
