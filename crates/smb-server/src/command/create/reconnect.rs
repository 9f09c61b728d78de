//! CREATE that reconnects to a disconnected open ([MS-SMB2] 3.3.5.9.7, 3.3.5.9.12).
//!
//! The open is checked first and then taken out of the table of disconnected opens. The request that takes it out
//! is the only one that gets it, whatever others have checked before. Then the requests that still run on the open
//! end, and it continues under the new session and tree with its locks, its caching and its dirty state. A failure
//! after that puts it back.
//!
//! Breaks of its caching are held back from before the open is taken out until the answer has left. A break that
//! was sent before has ended the open, or is seen when its caching is checked, or waits for the client of a
//! persistent open and follows the answer. So does one that another connection carries, whose loss the server may not
//! have noticed yet.

use std::sync::Arc;

use smb_wire::{create_context::DurableHandleFlags, ids::Guid, msg::CreateAction, status::Status};
use vfs::Vfs;

use super::{
    answer, holder,
    name::Name,
    request::{self, Contexts, Reconnect},
};
use crate::{
    command::{Call, Handled, Reply, revoke},
    failure::Failure,
    file::{Owner, SharePath},
    race::race,
    state::{
        Endurance, Open, Server,
        breaks::{self, Granting},
        disconnected, records,
    },
};

/// The request with which a client reconnects to its open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A reconnect context.
    Reconnect,
    /// The CREATE that made the open, sent again.
    Replay,
}

impl By {
    fn action<V: Vfs>(self, open: &Open<V>) -> CreateAction {
        match self {
            Self::Reconnect => CreateAction::OPENED,
            Self::Replay => open.origin.action,
        }
    }

    /// The failure if the open has ended or another request was faster. The client must send a replay once more: it
    /// then counts as a first CREATE, or finds the open again.
    fn gone(self) -> Failure {
        match self {
            Self::Reconnect => Status::OBJECT_NAME_NOT_FOUND.into(),
            Self::Replay => Status::FILE_NOT_AVAILABLE.into(),
        }
    }
}

/// Gives a disconnected open back to its client.
pub(super) async fn handle<V: Vfs>(
    call: &Call<V>,
    contexts: &mut Contexts,
    back: Reconnect,
    name: Option<&Name>,
) -> Handled {
    // [MS-SMB2] 3.3.5.9.9: a reconnect gets no such answer.
    contexts.on_disk_id = false;
    let kept = match find(call, &back) {
        Some(kept) => kept,
        None => {
            if let Some(open) = connected(call, &back) {
                left(call, &open).await?;
            }
            find(call, &back).ok_or(Status::OBJECT_NAME_NOT_FOUND)?
        }
    };
    check(call, contexts, &back, name, &kept)?;
    resume(call, contexts, kept, By::Reconnect).await
}

fn find<V: Vfs>(call: &Call<V>, back: &Reconnect) -> Option<Arc<Open<V>>> {
    let kept = call.server().durables.find(back.file_id.persistent);
    kept.or_else(|| by_create_guid(call, back))
}

/// The open with the FileId of the request, if it is not disconnected. A client that uses a FileId from before the
/// last reconnect has lost the open.
fn connected<V: Vfs>(call: &Call<V>, back: &Reconnect) -> Option<Arc<Open<V>>> {
    let open = call.server().durables.made_as(back.file_id.persistent)?;
    (open.file_id == back.file_id).then_some(open)
}

/// Gives the open back once everything is checked.
pub(super) async fn resume<V: Vfs>(
    call: &Call<V>,
    contexts: &Contexts,
    kept: Arc<Open<V>>,
    by: By,
) -> Handled {
    let server = call.server();
    let id = kept.file_id.persistent;
    let owner = disconnected::owner(&kept);
    let granting = Granting::begin(server, owner);
    let old = server.durables.take(id).ok_or_else(|| by.gone())?;
    if !Arc::ptr_eq(&old, &kept) || !disconnected::is_intact(server, &old) {
        // The client came back and was lost again in between, or a break was under way.
        give_up(server, old).await;
        return Err(by.gone());
    }
    // Requests that its client sent before must end before anything new begins.
    old.quiesce(0).await;
    let node = old.disk()?.node;
    let answers = match call.share()?.vfs.attr(&node).await {
        Ok(attr) => answer::answers(call, contexts, (&node, None), attr).await,
        Err(error) => Err(error.into()),
    };
    let (attr, mut list) = match answers {
        Ok(answers) => answers,
        Err(failure) => {
            give_up(server, old).await;
            return Err(failure);
        }
    };
    if by == By::Reconnect {
        take_lease_anew(call, contexts, &old, attr.allocation()).await;
    }
    let open = enter(call, old).await?;
    // The notification of a break that left before may be on the way to this connection; the answer, which reports its
    // epoch, must not overtake it.
    call.connection.mail_delivered().await;
    breaks::recall(server, owner, call.connection.id, true);
    call.chain.set_file_id(open.file_id);
    let cache = breaks::reported(server, &open.disk()?.place, open.engine, owner);
    call.chain.grants_caching(granting);
    // A reconnect context gets no answer; only a request for durability does.
    answer::push_granted(&mut list, contexts, &cache, open.endurance());
    let response = answer::response(&open, by.action(&open), &attr, &cache, &list);
    tracing::debug!(peer = %call.connection.peer, user = open.user, "a client has reconnected to its open");
    Ok(Reply::unchanged(&response, "a reconnected open"))
}

/// Renews the lease of a restored open ([`crate::file::Files::take_anew`]) and records it before the client gets the
/// answer.
async fn take_lease_anew<V: Vfs>(
    call: &Call<V>,
    contexts: &Contexts,
    open: &Open<V>,
    allocation: u64,
) {
    let server = call.server();
    let (Ok(disk), Some(lease)) = (open.disk(), contexts.lease_named) else {
        return;
    };
    if !open.endurance().is_persistent() {
        return;
    }
    let epoch = lease.v2.map_or(0, |v2| v2.epoch);
    let (files, place) = (&server.files, &disk.place);
    // The table of disconnected opens is asked before the engine and not by it, because its lock comes before the
    // engine's.
    let mut away = files.sharing(place, open.engine);
    away.retain(|other| server.durables.is_kept(*other));
    if files.take_anew(place, open.engine, epoch, allocation, &away) {
        records::caching_changed(server, disconnected::owner(open));
        server.persistence.caching_recorded().await;
    }
}

/// [MS-SMB2] 3.3.5.9.12: a persistent open is known by its CreateGuid as well.
fn by_create_guid<V: Vfs>(call: &Call<V>, back: &Reconnect) -> Option<Arc<Open<V>>> {
    let (create_guid, flags) = back.v2?;
    if !flags.contains(DurableHandleFlags::PERSISTENT) || !request::offers_persistence(call) {
        return None;
    }
    (call.server().durables).find_persistent(call.client().ok()?, create_guid)
}

/// Makes every check of the specification, and first those that fail with OBJECT_NAME_NOT_FOUND. The specification
/// places the check of the name before them in version 1 and after them in version 2; Windows and Samba make it after
/// them. That the open has no session follows from the table in which it was found.
fn check<V: Vfs>(
    call: &Call<V>,
    contexts: &Contexts,
    back: &Reconnect,
    name: Option<&Name>,
    open: &Open<V>,
) -> Result<(), Failure> {
    let server = call.server();
    let endurance = open.endurance();
    let durable = matches!(endurance, Endurance::Durable { .. });
    let lease = open.origin.lease;
    let create_guid = back.v2.map(|(create_guid, _)| create_guid);
    let asked_persistent = back
        .v2
        .is_some_and(|(_, flags)| flags.contains(DurableHandleFlags::PERSISTENT));
    let fits = same_share(call, open)?
        && endurance != Endurance::None
        && same_lease(call, contexts, open)?
        && create_guid.is_none_or(|guid: Guid| guid == open.origin.create_guid)
        && (asked_persistent || !endurance.is_persistent())
        && (!durable || disconnected::is_intact(server, open));
    Status::OBJECT_NAME_NOT_FOUND.when(!fits)?;
    if lease.is_some() && !named_so(call, name, open)?
        || asked_persistent && !endurance.is_persistent()
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(Status::ACCESS_DENIED.when(open.origin.owner.user_sid != call.token()?.user_sid)?)
}

/// Whether the request concerns the open's share. The share's name may lead to another folder by now.
pub(super) fn same_share<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<bool, Failure> {
    let here = open.tree.share.as_ref().zip(call.tree()?.share.as_ref());
    Ok(here.is_some_and(|(a, b)| a.id == b.id && Arc::ptr_eq(&a.vfs, &b.vfs)))
}

/// Whether the request names the open's lease, and comes from the client whose lease it is; or
/// neither has one.
pub(super) fn same_lease<V: Vfs>(
    call: &Call<V>,
    contexts: &Contexts,
    open: &Open<V>,
) -> Result<bool, Failure> {
    let client = call.client()?;
    Ok(match (open.origin.lease, contexts.lease_named) {
        (None, None) => true,
        (Some(lease), Some(named)) => {
            client == open.origin.client
                && lease.key == named.lease_key
                && lease.v2 == named.v2.is_some()
        }
        _ => false,
    })
}

/// Whether the request has the name of the lease, which follows renames. If the file is to be deleted, any name is
/// accepted (Open.Lease.FileDeleteOnClose).
pub(super) fn named_so<V: Vfs>(
    call: &Call<V>,
    name: Option<&Name>,
    open: &Open<V>,
) -> Result<bool, Failure> {
    let files = &call.server().files;
    let disk = open.disk()?;
    if let Owner::Lease(client, key) = disconnected::owner(open)
        && files.is_lease_to_be_deleted(client, key)
    {
        return Ok(true);
    }
    let (Some(name), Some(path)) = (name, files.path_of(open.engine)) else {
        return Ok(false);
    };
    let same_stream = name.folded_stream().as_deref() == disk.place.stream.as_deref();
    Ok(same_stream && SharePath::of(call.share()?.id, &name.path).same(&path))
}

/// Enters the open into its new session, or puts it back if that session has ended already.
async fn enter<V: Vfs>(call: &Call<V>, old: Arc<Open<V>>) -> Result<Arc<Open<V>>, Failure> {
    let server = call.server();
    let session = call.session()?;
    let (tree, volatile) = (Arc::clone(call.tree()?), server.fresh_file_id().volatile);
    let sent = call.header.channel_sequence();
    let open = Open::reconnected(&old, session.id, tree, volatile, sent);
    let open = Arc::new(open.ok_or(Status::OBJECT_NAME_NOT_FOUND)?);
    if let Some(policy) = &*open.policy.lock() {
        let connection = &call.connection;
        policy.came_back(connection.peer.ip(), connection.dialect().0);
    }
    // This must happen before the open can be found, as in a CREATE that makes one.
    server.holders.add(open.engine, holder(call, &open));
    server.durables.renewed(&old, &open);
    let Err(over) = session.insert(Arc::clone(&open)) else {
        return Ok(open);
    };
    // The session or tree connect ended meanwhile: the open waits for its client again, unless an instance of its
    // application has found it by now and closes it.
    server.holders.left(open.engine, open.file_id);
    if open.begin_close() {
        give_up(server, open).await;
    }
    Err(over.into())
}

/// Waits until an open that a client wants back, and that is still connected, is disconnected or closed. The client may
/// be faster than the news of its lost connection, and than the clean-up on that connection's worker, which first
/// carries out the requests received before ([MS-SMB2] 3.3.7.1). Returns at once if the open is used by this very
/// connection.
pub(super) async fn left<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<(), Failure> {
    let server = call.server();
    let session = server.session(open.origin.session);
    if session.is_some_and(|session| session.channels().contains(&call.connection.id)) {
        return Ok(());
    }
    if let Some(left) = server.durables.leaving(open) {
        let time = server.env.sleep(disconnected::LEAVING_MAX);
        // The caller checks the open again in any case and decides by its state.
        let _ = call.park_bounded(None, race(left, time)).await?;
    }
    Ok(())
}

/// Lets an open whose reconnect failed wait for its client again. If its session or tree connect was ended for good,
/// the open is checked again.
async fn give_up<V: Vfs>(server: &Arc<Server<V>>, open: Arc<Open<V>>) {
    if disconnected::keep_again(server, &open).await {
        revoke::look_again_at_open(server, &open);
    }
}
