//! A CREATE that is sent twice ([MS-SMB2] 3.3.5.9, "Create Context Validation", and 3.3.5.9.10). The server
//! recognises it by its CreateGuid and answers again instead of opening again. While the first one has no answer,
//! the second gets FILE_NOT_AVAILABLE, as from Samba; [MS-SMB2] only describes CREATEs that have completed.

use std::sync::Arc;

use smb_wire::{
    create_context::{DurableHandleFlags, DurableHandleRequestV2},
    header::HeaderFlags,
    ids::Guid,
    msg::OplockLevel,
    status::Status,
};
use vfs::Vfs;

use super::{Opening, answer, holder, name::Name, reconnect, request};
use crate::{
    command::{Handled, Reply},
    failure::Failure,
    file::{CacheGrant, Owner},
    state::{
        Endurance, Known, Open, Server,
        breaks::{self, Granting},
        disconnected,
    },
};

/// A CREATE under way that can be replayed. It is forgotten if it is dropped before it has made an open.
pub(super) struct UnderWay<V: Vfs> {
    server: Arc<Server<V>>,
    client: Guid,
    create: Guid,
}

impl<V: Vfs> Drop for UnderWay<V> {
    fn drop(&mut self) {
        self.server.durables.create_failed(self.client, self.create);
    }
}

/// How a CREATE relates to earlier ones.
pub(super) enum Replay<V: Vfs> {
    /// It comes for the first time, or cannot be replayed.
    First(Option<UnderWay<V>>),
    /// It made this open before.
    Of(Arc<Open<V>>),
    /// It made this open before, and the open is now disconnected.
    Back(Arc<Open<V>>),
}

/// Checks whether the request, whose context with the CreateGuid is `asked`, was carried out before.
///
/// # Errors
/// `INVALID_PARAMETER` for the lease of another file, `DUPLICATE_OBJECTID` for a CreateGuid used before without
/// SMB2_FLAGS_REPLAY_OPERATION or from another session, `ACCESS_DENIED` for another user or lease, `FILE_NOT_AVAILABLE`
/// while the first has no answer, or its open is being closed.
pub(super) async fn begin<V: Vfs>(
    on: &Opening<'_, V>,
    name: &Name,
    asked: &DurableHandleRequestV2,
) -> Result<Replay<V>, Failure> {
    let client = on.client()?;
    let (server, create) = (on.server(), asked.create_guid);
    if let Some(open) = server.durables.made_by(client, create)
        && moves_lease(on, name, &open)?
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let replays = on.header.flags.contains(HeaderFlags::REPLAY);
    if replays && let Some(open) = server.durables.made_by(client, create) {
        // The open's connection may be lost but not cleaned up yet.
        Box::pin(reconnect::left(on, &open)).await?;
    }
    if let Some(open) = away(on, client, asked)? {
        return Ok(Replay::Back(open));
    }
    let open = match server.durables.begin_create(client, create) {
        Known::First => {
            return Ok(Replay::First(Some(UnderWay {
                server: Arc::clone(server),
                client,
                create,
            })));
        }
        Known::UnderWay => return Err(Status::FILE_NOT_AVAILABLE.into()),
        Known::Made(open) => open,
    };
    Status::DUPLICATE_OBJECTID.when(!replays)?;
    let key = on.contexts.lease.map(|lease| lease.lease_key);
    let other_lease = match open.origin.lease {
        Some(lease) => Some(lease.key) != key,
        // A directory gets no lease of version 1, although its CREATE names one. A file always gets the lease of its
        // CREATE, so one without a lease was opened by another request.
        None => key.is_some() && !open.is_directory(),
    };
    Status::ACCESS_DENIED
        .when(open.origin.owner.user_sid != on.token()?.user_sid || other_lease)?;
    // Each is asked once, and the table first: an open that another request takes out of it goes on closing.
    let waits = server.durables.is_kept(open.engine);
    // The client must try again when the open is gone or waits: a duplicate would be final.
    Status::FILE_NOT_AVAILABLE.when(!waits && open.is_closing())?;
    // A disconnected open has no session: it continues in the session of the client that has come back, as with Windows
    // and Samba.
    let here = open.origin.session == on.session()?.id;
    let is_ours = match waits {
        true => reconnect::same_share(on, &open)?,
        false => here && open.tree.id == on.tree()?.id,
    };
    Status::DUPLICATE_OBJECTID.when(!is_ours)?;
    if open.endurance().is_persistent() && !asked.flags.contains(DurableHandleFlags::PERSISTENT) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(match waits {
        true => Replay::Back(open),
        false => Replay::Of(open),
    })
}

/// Whether the request has the lease of the open, but the name of another file. [MS-SMB2] 3.3.5.9.8, 3.3.5.9.11: a
/// lease stays with its file; Windows examines this before the CreateGuid (docs/protocol-notes.md, "A replay for
/// another file").
fn moves_lease<V: Vfs>(on: &Opening<'_, V>, name: &Name, open: &Open<V>) -> Result<bool, Failure> {
    let asked = on.contexts.lease.map(|lease| lease.lease_key);
    let key = open.origin.lease.map(|lease| lease.key);
    Ok(key.is_some()
        && key == asked
        // An open that has just ended has no path any more.
        && on.server().files.path_of(open.engine).is_some()
        && reconnect::same_share(on, open)?
        && !reconnect::named_so(on, Some(name), open)?)
}

/// [MS-SMB2] 3.3.5.9, "Create Context Validation": if the CREATE of a persistent open is sent again with
/// SMB2_FLAGS_REPLAY_OPERATION while the open is disconnected, it gives the open back.
fn away<V: Vfs>(
    on: &Opening<'_, V>,
    client: Guid,
    asked: &DurableHandleRequestV2,
) -> Result<Option<Arc<Open<V>>>, Failure> {
    if !asked.flags.contains(DurableHandleFlags::PERSISTENT) || !request::offers_persistence(on) {
        return Ok(None);
    }
    let durables = &on.server().durables;
    let found = durables.find_persistent(client, asked.create_guid);
    if !on.header.flags.contains(HeaderFlags::REPLAY) {
        // 3.3.5.9.10: another CREATE uses the CreateGuid of an open that can be replayed.
        let same = |open: &Arc<Open<V>>| open.origin.client == client && open.is_replayable();
        return match found.filter(same) {
            Some(_) => Err(Status::DUPLICATE_OBJECTID.into()),
            None => Ok(None),
        };
    }
    let Some(open) = found else {
        let own = durables.made_by(client, asked.create_guid);
        let lasts = |open: &Open<V>| open.endurance().is_persistent() && !open.is_closing();
        let used = match own {
            Some(open) if lasts(&open) => !open.is_replayable(),
            // The ClientGuid does not matter here.
            _ => {
                let others = durables.made_elsewhere(client, asked.create_guid);
                others.iter().any(|open| lasts(open))
            }
        };
        // The client must try again when the server knows that the old connection is lost.
        return match used {
            true => Err(Status::FILE_NOT_AVAILABLE.into()),
            false => Ok(None),
        };
    };
    let origin = &open.origin;
    Status::ACCESS_DENIED.when(origin.owner.user_sid != on.token()?.user_sid)?;
    // While the client may replay its CREATE, the lease is examined first, as of an open that is connected.
    let key = on.contexts.lease.map(|lease| lease.lease_key);
    let other_lease = origin.lease.is_some_and(|lease| Some(lease.key) != key);
    Status::ACCESS_DENIED.when(other_lease && origin.client == client && open.is_replayable())?;
    // A CREATE for another share or lease, or with other rights, is not the same CREATE.
    let asks = (on.wanted.options, on.wanted.access, on.wanted.share);
    if (open.options, origin.desired, origin.share) != asks
        || !reconnect::same_share(on, &open)?
        || open.origin.lease.is_some() && !reconnect::same_lease(on, on.contexts, &open)?
    {
        return Err(Status::CONTEXT_MISMATCH.into());
    }
    Ok(Some(open))
}

/// Answers once more, with the present caching of the open. As in Windows, the answer reports no higher oplock than
/// this request asks for, and durability only with it; the open itself does not change.
pub(super) async fn answer<V: Vfs>(on: &Opening<'_, V>, open: &Arc<Open<V>>) -> Handled {
    let disk = open.disk()?;
    let share = on.share()?;
    let attr = share.vfs.attr(&disk.node).await?;
    let object = (&disk.node, None);
    let (attr, mut list) = answer::answers(on, on.contexts, object, attr).await?;
    let server = on.server();
    // From here on breaks follow the answer. The client may have received an earlier break already, so the answer
    // must not report caching that it would wrongly rely on.
    let owner = disconnected::owner(open);
    let granting = Granting::begin(server, owner);
    if let Owner::Lease(..) = owner {
        // The answer must not overtake the notification of a break whose epoch it reports.
        on.connection.mail_delivered().await;
        // The client asks again because it lost the channel of its first request, and with it perhaps a break.
        breaks::recall(server, owner, on.connection.id, false);
    }
    let cache = match breaks::reported(server, &disk.place, open.engine, owner) {
        CacheGrant::Oplock(_) if server.files.gives_way(&disk.place, open.engine) => {
            CacheGrant::None
        }
        CacheGrant::Oplock(held) => lower(on.wanted.oplock, held),
        other => other,
    };
    // [MS-SMB2] 3.3.5.9.10: Open.Connection is the one that carried the replay.
    server.holders.moved(open.engine, holder(on, open));
    on.chain.grants_caching(granting);
    let persistent = open.endurance().is_persistent();
    let endurance = if persistent || answer::caches_handle(&cache) {
        open.endurance()
    } else {
        Endurance::None
    };
    answer::push_granted(&mut list, on.contexts, &cache, endurance);
    on.chain.set_file_id(open.file_id);
    let action = open.origin.action;
    let response = answer::response(open, action, &attr, &cache, &list);
    Ok(Reply::unchanged(&response, "a replayed CREATE"))
}

/// The caching by the lower of two levels.
fn lower(asked: OplockLevel, held: OplockLevel) -> CacheGrant {
    match asked {
        OplockLevel::BATCH | OplockLevel::EXCLUSIVE | OplockLevel::II
            if held != OplockLevel::NONE =>
        {
            CacheGrant::Oplock(asked.min(held))
        }
        _ => CacheGrant::None,
    }
}
