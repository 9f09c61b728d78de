//! Asks the file engine whether an open is allowed, and waits while holders give up their caching.

use std::{cell::Cell, time::Duration};

use durability::{Completion, OpenPolicy};
use smb_wire::{
    access_mask::AccessMask,
    msg::{Dialect, OplockLevel, ShareAccess},
    status::Status,
};
use vfs::{FileKey, Node, Vfs};

use super::{
    CreateAttempt, Opened, Opening, Seen, action,
    fresh::HeldClaim,
    request::{Contexts, Wanted},
};
use crate::{
    command::{
        Call,
        engine::{self, Parking},
    },
    failure::Failure,
    file::{
        Actor, CacheGrant, CacheRequest, Decision, Link, OpenId, OpenRequest, Operation, Owner,
        Place, Quick, SharePath,
    },
    state::{
        breaks::{Granting, perform},
        close, records,
    },
};

/// How long an open that will delete waits for cached handles. [MS-FSA] 2.1.5.1.2 has no such wait. If the client gives
/// up its handle in time, this open's close removes the name; otherwise the name stays until the handle is closed
/// (docs/protocol-notes.md, "Cached handles of a file that an open will delete").
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine's answer to an open.
pub(super) enum Judged<V: Vfs> {
    /// The open is in the engine's tables.
    Granted(Box<Opened<V>>),
    /// Holders gave up caching meanwhile: the request must look everything up again.
    Again,
    /// Since the lookup the name was removed or leads to another object; the open was undone.
    Moved,
}

impl<V: Vfs> Judged<V> {
    /// The outcome of an attempt whose open was not granted.
    pub(super) fn attempt(&self) -> CreateAttempt<V> {
        match self {
            Self::Again => CreateAttempt::Waited,
            Self::Granted(_) | Self::Moved => CreateAttempt::Again,
        }
    }
}

/// The access and caching that the engine granted.
pub(super) struct Agreed<V: Vfs> {
    pub(super) cache: CacheGrant,
    pub(super) quick: Quick,
    /// Breaks of the granted caching wait until the answer has left.
    pub(super) granting: Option<Granting<V>>,
}

/// An open that the engine is asked for.
pub(super) struct Case<'a, V: Vfs> {
    pub(super) node: &'a V::Node,
    /// The claim on its name, which is released before anything is waited for; empty once it is released.
    pub(super) claim: Option<&'a HeldClaim<V>>,
    pub(super) place: &'a Place,
    pub(super) lookup: &'a Seen<V::Node>,
    pub(super) directory: bool,
    pub(super) granted: AccessMask,
    pub(super) share: ShareAccess,
    /// The changes that the open makes to the object, whatever access was granted ([`Wanted::effect`]).
    pub(super) effect: AccessMask,
    /// Bytes allocated to it once it is open.
    pub(super) allocation: u64,
    /// The object was just created.
    pub(super) created: bool,
    /// The receipt of the change that created it.
    pub(super) receipt: Completion,
    /// The durability policy of the open, which is in force already if the object was just created.
    pub(super) policy: Option<OpenPolicy<V>>,
}

/// Checks, before an object is created, whether an open of it would be allowed, as far as that can be known by then: an
/// object whose open is refused must not be created and removed again. For a stream, `stream` is the file that it
/// belongs to, as `lookup` found it, and the stream's name.
///
/// # Errors
/// The reason why it is refused.
pub(super) fn check_new<V: Vfs>(
    on: &Opening<'_, V>,
    stream: Option<(&Seen<V::Node>, FileKey, &str)>,
) -> Result<(), Failure> {
    let stream = stream.map(|(lookup, key, name)| (Place::of_stream(key, name), Link::of(lookup)));
    let stream = match &stream {
        Some((place, link)) => Some((place, link, on.counted()?)),
        None => None,
    };
    let cache = cache(on.wanted, on.contexts);
    match (on.server().files).refusal_of_new(on.client()?, &cache, stream) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

/// Asks the engine whether an open is allowed, and carries out its effects.
pub(super) async fn open<V: Vfs>(
    on: &Opening<'_, V>,
    case: Case<'_, V>,
) -> Result<Judged<V>, Failure> {
    let server = on.server();
    Status::FILE_NOT_AVAILABLE.when(is_unavailable(on, case.place))?;
    // Somebody may come back to a persistent open of the file, which must not be deleted meanwhile.
    let is_kept = |open| server.durables.is_kept(open);
    let awaited = || server.persistence.any_at(case.place, is_kept);
    let (parking, share) = (on.parking()?, on.share()?);
    let request = OpenRequest {
        open: OpenId(server.fresh_id()),
        place: case.place.clone(),
        link: Link::of(case.lookup),
        path: SharePath::of(share.id, &case.lookup.path).charged(on.path_held.get().cloned()),
        directory: case.directory,
        access: case.granted,
        share: case.share,
        effect: case.effect,
        delete_on_close: on.wanted.delete_on_close(),
        patient: on.patient.get() || awaited(),
        client: on.client()?,
        cache: cache(on.wanted, on.contexts),
        allocation: case.allocation,
        waiter: parking.waiter,
    };
    let caches = !matches!(request.cache, CacheRequest::Oplock(OplockLevel::NONE));
    let owner = request.owner().filter(|_| caches);
    let granting = owner.map(|owner| Granting::begin(server, owner));
    let decision = {
        let _breaking = server.persistence.breaking();
        let (decision, effects) = server.files.open(&request);
        perform(server, effects);
        decision
    };
    match decision {
        Decision::Granted(granted) => {
            drop(parking);
            if let Some(owner @ Owner::Lease(..)) = request.owner() {
                records::caching_changed(server, owner);
            }
            // The caching that others lost because of this open is recorded before its client gets an answer.
            server.persistence.caching_recorded().await;
            if !is_there(on, &case).await {
                undo(on, case.place, request.open, case.node).await?;
                return Ok(Judged::Moved);
            }
            let engine = Agreed {
                cache: granted.cache,
                quick: granted.quick,
                granting: granting.filter(|_| granted.cache.is_some()),
            };
            Ok(Judged::Granted(Box::new(Opened {
                id: request.open,
                node: case.node.clone(),
                parent: case.lookup.parent.clone(),
                place: request.place,
                granted: case.granted,
                engine,
                action: action(on.wanted.disposition, case.created),
                receipt: case.receipt,
                policy: case.policy,
                known: None,
                made: None,
            })))
        }
        Decision::Conflict(status) => Err(status.into()),
        Decision::MustBreak => {
            // No break may wait for this answer while the request itself waits for others.
            drop(granting);
            drop(case.claim.and_then(Cell::take));
            wait(on, case.place, parking).await?;
            Ok(Judged::Again)
        }
    }
}

/// [MS-SMB2] 3.3.5.9 <301>: a persistent open whose client is disconnected and caches no handle cannot be asked to give
/// way. A client that does cache the handle is asked when it reconnects. This is examined again after a break
/// (docs/protocol-notes.md, "A persistent open whose client is away").
fn is_unavailable<V: Vfs>(call: &Call<V>, place: &Place) -> bool {
    let server = call.server();
    let is_mute = |open| server.durables.is_kept(open) && !server.files.holds_handle(place, open);
    call.connection.dialect() >= Dialect::SMB_3_0 && server.persistence.any_at(place, is_mute)
}

/// Waits while holders give up their caching; an open that will delete waits [`PATIENCE`] at most.
async fn wait<V: Vfs>(
    on: &Opening<'_, V>,
    place: &Place,
    parking: Parking<'_, V>,
) -> Result<(), Failure> {
    if on.wanted.delete_on_close() && on.patient.get() {
        let wait = parking.wait_at_most(on, place, PATIENCE);
        on.patient.set(Box::pin(wait).await?);
    } else {
        parking.wait(on, None, place).await?;
    }
    Ok(())
}

/// Whether the path still leads to the object whose open was just granted. From here on the engine takes part whenever
/// the name is removed or its path is moved. The disk is not asked if nothing has moved since the lookup.
async fn is_there<V: Vfs>(call: &Call<V>, case: &Case<'_, V>) -> bool {
    let (place, seen) = (case.place, case.lookup);
    if !call.server().files.has_moved(place.key, seen.look) {
        return true;
    }
    // A stream may have been replaced by another one of the same name.
    let (Ok(share), Ok(token), None) = (call.share(), call.token(), &place.stream) else {
        return false;
    };
    let again = Box::pin(share.vfs.lookup(&token.identity, &seen.path)).await;
    again.is_ok_and(|again| {
        let key = |node: &V::Node| node.key();
        again.path == seen.path
            && again.parent.as_ref().map(key) == seen.parent.as_ref().map(key)
            && again.found.is_some_and(|(node, _)| node.key() == place.key)
    })
}

fn cache(wanted: &Wanted, contexts: &Contexts) -> CacheRequest {
    match (contexts.lease, wanted.oplock) {
        (Some(lease), _) => CacheRequest::Lease(lease),
        (None, OplockLevel::LEASE) => CacheRequest::None,
        (None, level) => CacheRequest::Oplock(level),
    }
}

/// Called when an open has emptied the object that it was granted to overwrite: from here on the engine judges the open
/// by its granted rights alone.
pub(super) async fn emptied<V: Vfs>(call: &Call<V>, opened: &Opened<V>) -> Result<(), Failure> {
    let (place, open) = (&opened.place, opened.id);
    let mut broken = Ok(());
    call.past_cancel.set(true);
    if opened.engine.quick.others_cache() {
        // A read cache granted meanwhile may hold the old bytes.
        let actor = Actor::Opener(open);
        broken = engine::break_conflicts(call, None, place, actor, Operation::SetSize).await;
    }
    (call.server().files).overwritten(place, open, opened.granted);
    broken
}

/// Takes an open out of the engine again because the disk refused it. If another client marked the file for deletion
/// and closed it meanwhile, this was the last open, and the name is removed now.
pub(super) async fn undo<V: Vfs>(
    call: &Call<V>,
    place: &Place,
    open: OpenId,
    node: &V::Node,
) -> Result<(), Failure> {
    let (server, share) = (call.server(), call.share()?);
    server.host_watches.forget(open);
    let closed = server.files.close(place, open, None);
    let removed = close::without_client(server, share, node, (place, open), closed);
    Ok(removed.await?)
}
