//! LOCK locks and unlocks ranges of bytes, and may wait for other locks ([MS-SMB2] 3.3.5.14).

use smb_wire::{
    access_mask::AccessMask,
    msg::{Dialect, LockElement, LockRequest, LockResponse},
    status::Status,
};
use vfs::Vfs;

use super::{
    Call, Handled, Reply,
    engine::{OnDisk, Parking},
};
use crate::{
    failure::Failure,
    file::{
        Actor, LockBounds, LockSequence, Locking, Operation, Outcome, Withdrawal, before_bad_flags,
        can_lock, is_unlock,
    },
    limits::{LOCKS_PER_REQUEST_MAX, RANGE_MEMORY, RANGES_UNCHARGED},
    memory::Portion,
    persistent::LOCKS_MAX,
    state::{EndReason, Endurance, Open, breaks::perform, records},
    turn::LOCK_WORK,
};

/// Rights to data, of which a handle needs one to lock. No section names them, but a client that may only read
/// attributes must not keep others from the data (docs/protocol-notes.md, "The right to lock").
const DATA: AccessMask = AccessMask::FILE_READ_DATA
    .union(AccessMask::FILE_WRITE_DATA)
    .union(AccessMask::FILE_APPEND_DATA)
    .union(AccessMask::FILE_EXECUTE);

/// Locks or unlocks ranges; waits for a range where the client says so.
pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = LockRequest::read(&call.message)?;
    if request.locks.is_empty() || request.locks.len() > LOCKS_PER_REQUEST_MAX {
        return Err(Status::INVALID_PARAMETER.into());
    }
    call.connection.turn.did(LOCK_WORK * request.locks.len());
    let open = call.open(request.file_id)?;
    let on = &OnDisk::new(call, &open)?;
    let (files, disk) = (&on.server.files, &on.disk);
    // [MS-FSA] 2.1.5.8.
    Status::INVALID_PARAMETER.when(disk.directory)?;
    open.need_any(DATA)?;
    let sequence = sequence(on, &request);
    // [MS-SMB2] 3.3.5.14: a replay does nothing, so it needs no memory and breaks nothing.
    let is_replay =
        sequence.is_some_and(|one| files.is_lock_replayed(&disk.place, open.engine, one));
    let wanted = match is_unlock(&request.locks) || is_replay {
        true => 0,
        false => request.locks.len(),
    };
    if wanted > 0 {
        charge(on, wanted)?;
    }
    let locked: Result<(Status, bool), Failure> = async {
        // The caching of others is also broken for other ranges (docs/protocol-notes.md, "Locks beyond the
        // allocation"). A request that can lock nothing breaks nothing.
        if wanted > 0 && can_lock(&request.locks) && disk.quick.others_cache() {
            on.operation(Operation::Lock).await?;
            // Another request on the open may have given its memory back meanwhile.
            charge(on, wanted)?;
        }
        lock(on, &request, sequence).await
    }
    .await;
    // A request that was refused or answered before ([MS-SMB2] 3.3.5.14) has locked nothing. Memory can always be given
    // back. Ranges of an earlier run were not charged and stay so.
    let _ = charge(on, 0);
    let (status, replayed) = locked?;
    let recorded = match status {
        // [MS-SMB2] 3.3.5.14: bad flags fail a request, but what it locked or unlocked before them stays so.
        Status::SUCCESS | Status::INVALID_PARAMETER => {
            if can_lock(&request.locks) && !replayed {
                break_late(on).await;
            }
            record(on, &request, sequence, replayed).await
        }
        // [MS-SMB2] 3.3.5.14.1: an unlock that fails leaves those before it done.
        _ if is_unlock(&request.locks) => record(on, &request, sequence, replayed).await,
        _ => Ok(()),
    };
    match status {
        Status::SUCCESS => recorded.map(|()| Reply::read_only(&LockResponse)),
        status => Err(status.into()),
    }
}

/// Breaks caching that was granted after the caching of others was broken and before the range was locked; from the
/// lock on, [MS-FSA] 2.1.5.18 grants none. Nobody can have been granted write caching beside this open, so nobody is
/// waited for.
async fn break_late<V: Vfs>(on: &OnDisk<'_, V>) {
    let server = on.server;
    if !on.disk.quick.others_cache() {
        return;
    }
    {
        let _breaking = server.persistence.breaking();
        let (files, actor) = (&server.files, Actor::Open(on.open.engine));
        let (_, effects) = files.operation(&on.disk.place, actor, Operation::Lock, None);
        perform(server, effects);
    }
    // The loss is recorded before the client is informed of its lock.
    server.persistence.caching_recorded().await;
}

/// Charges the ranges that the open holds or waits for, and `wanted` more, to the server's memory budget: each file may
/// have thousands, and each user thousands of files.
fn charge<V: Vfs>(on: &OnDisk<'_, V>, wanted: usize) -> Result<(), Failure> {
    let mut state = on.open.state();
    let ranges = (on.server.files).locks_of(&on.disk.place, on.open.engine) + wanted;
    let bytes = ranges.saturating_sub(RANGES_UNCHARGED) * RANGE_MEMORY;
    if bytes == 0 {
        state.locks = None;
        return Ok(());
    }
    let account = on.call.connection.account();
    let held = state.locks.get_or_insert_with(|| account.nothing());
    match held.resize(bytes, Portion::Half) {
        true => Ok(()),
        false => Err(Status::INSUFFICIENT_RESOURCES.into()),
    }
}

/// Records the locks of a persistent open before its client gets the answer. A lock that cannot be recorded is not
/// granted, or does not stay. The locks of a replayed request belong to the first one, which takes them back itself,
/// unless the replay was recorded and answered before.
async fn record<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &LockRequest,
    sequence: Option<LockSequence>,
    replayed: bool,
) -> Result<(), Failure> {
    let (server, open, place) = (on.server, on.open, &on.disk.place);
    let taken = before_bad_flags(&request.locks);
    if taken.is_empty() && !is_unlock(&request.locks) {
        return Ok(());
    }
    let recorded = records::changed(server, open).await.is_ok();
    if is_unlock(&request.locks) {
        // The ranges are unlocked even so; the store reports its error itself.
        return Ok(());
    }
    let files = &server.files;
    if replayed {
        let answers = |one| files.answer_replay(place, open.engine, one);
        return match recorded && sequence.is_some_and(answers) {
            true => Ok(()),
            false => Err(Status::INSUFFICIENT_RESOURCES.into()),
        };
    }
    if recorded {
        return Ok(());
    }
    let Some(effects) = files.take_back(place, open.engine, taken, sequence) else {
        return Ok(());
    };
    // The record may be written later, but must not show the lock as held.
    drop(records::changed(server, open));
    perform(server, effects);
    Err(Status::INSUFFICIENT_RESOURCES.into())
}

/// The most byte-range locks that the open may have, and the user whose limit it shares with other opens.
fn bounds<V: Vfs>(on: &OnDisk<'_, V>) -> LockBounds {
    let mut most = on.server.config().limits.locks_per_open;
    if on.open.endurance().is_persistent() {
        most = most.min(LOCKS_MAX);
    }
    LockBounds {
        most,
        user: on.call.counted_for(&on.open.origin.owner),
    }
}

/// Carries out the request. Returns its status, and whether it was a replay ([MS-SMB2] 3.3.5.14).
async fn lock<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &LockRequest,
    sequence: Option<LockSequence>,
) -> Result<(Status, bool), Failure> {
    let (server, open, bounds) = (on.server, on.open, bounds(on));
    let parking = Parking::new(server, bounds.user);
    let (place, locks, id) = (&on.disk.place, &*request.locks, parking.waiter.id);
    let (locking, effects) = (server.files).lock(place, open.engine, locks, sequence, id, bounds);
    if is_unlock(&request.locks) {
        // The store must get the unlock before the lock of anybody else who gets the range. Nothing waits for it here.
        drop(records::changed(server, open));
    }
    perform(server, effects);
    Ok(match locking {
        Locking::Done(status) => (status, false),
        Locking::Replayed => (Status::SUCCESS, true),
        Locking::Pending => (
            wait(on.call, open, (locks, sequence), parking).await?,
            false,
        ),
    })
}

/// Waits until a blocked request is granted, fails or is ended.
async fn wait<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    (locks, sequence): (&[LockElement], Option<LockSequence>),
    mut parking: Parking<'_, V>,
) -> Result<Status, Failure> {
    let server = call.server();
    let disk = open.disk()?;
    let ended = match call.park(Some(open), &mut parking.woken).await {
        Ok(Ok(Ok(Outcome::Locked))) => return Ok(Status::SUCCESS),
        Ok(Ok(Ok(Outcome::Failed(status)))) => return Ok(status),
        Ok(Ok(_)) => Ok(EndReason::Gone),
        Ok(Err(reason)) => Ok(reason),
        Err(failure) => Err(failure),
    };
    let id = parking.waiter.id;
    let withdrawal = (server.files).withdraw_lock(&disk.place, open.engine, id);
    // docs/protocol-notes.md, "A lock request whose open ends".
    match (ended, withdrawal) {
        // The lock was granted as the wait ended: it is held, and the client must be informed.
        (Ok(EndReason::Cancelled) | Err(_), Withdrawal::Granted) => Ok(Status::SUCCESS),
        (Ok(EndReason::Cancelled), _) => Ok(Status::CANCELLED),
        (Ok(EndReason::Closed | EndReason::Gone), withdrawal) => {
            let granted = withdrawal == Withdrawal::Granted;
            let take_back = || (server.files).take_back(&disk.place, open.engine, locks, sequence);
            // An open that outlives its connection would hold a lock that its client knows nothing of.
            if let Some(effects) = granted.then(take_back).flatten() {
                drop(records::changed(server, open));
                perform(server, effects);
            }
            Ok(Status::RANGE_NOT_LOCKED)
        }
        (Err(failure), _) => Err(failure),
    }
}

/// [MS-SMB2] 3.3.5.14: lock sequences are verified for opens that outlive their connection, and on 3.x where
/// multichannel is offered; 2.0.2 has none.
fn sequence<V: Vfs>(on: &OnDisk<'_, V>, request: &LockRequest) -> Option<LockSequence> {
    let facts = on.call.connection.negotiated()?;
    let multichannel = facts.dialect >= Dialect::SMB_3_0
        && facts
            .server_capabilities
            .contains(smb_wire::msg::Capabilities::MULTI_CHANNEL);
    let verified = facts.dialect > Dialect::SMB_2_0_2
        && (multichannel || on.open.endurance() != Endurance::None);
    verified.then(|| LockSequence {
        index: request.sequence_index(),
        number: request.sequence_number(),
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use smb_wire::{header::Header, ids::AsyncId, msg::LockFlags};

    use super::*;
    use crate::{
        command::chain::Chain,
        file::{CountedUser, WaiterId},
        limits::ServerLimits,
        restore::world::{Back, World, connection, run},
        state::InFlight,
    };

    const RANGE: LockElement = LockElement {
        offset: 0,
        length: 1,
        flags: LockFlags::EXCLUSIVE,
    };
    const UNLOCKED: LockElement = LockElement {
        flags: LockFlags::UNLOCK,
        ..RANGE
    };

    #[test]
    fn a_lock_that_is_granted_as_the_channel_is_lost_does_not_stay() {
        let world = World::new(false, ServerLimits::default());
        world.changes_seen(true);
        let _back = world.bring_back(&[world.record(10), world.record(11)]);
        let server = &world.server;
        let open = |id| {
            let old = server.durables.take(id).unwrap();
            InFlight::new(world.reconnect(&old)).unwrap()
        };
        let (holder, blocked): (InFlight<Back>, _) = (open(10), open(11));
        let place = holder.disk().unwrap().place;
        let lock = |open: &InFlight<Back>, element, id| {
            let (files, any) = (&server.files, LockBounds::ANY);
            files.lock(&place, open.engine, &[element], None, id, any)
        };
        let parking = Parking::new(server, CountedUser::default());
        let _held = lock(&holder, RANGE, WaiterId(0));
        let asked = lock(&blocked, RANGE, parking.waiter.id);
        assert_eq!(asked.0, Locking::Pending);
        // The wake-up is under way.
        let _granted = lock(&holder, UNLOCKED, WaiterId(0));
        let connection = connection(server, None);
        let chain = Rc::new(Chain::new(&connection, None, 1));
        // It is registered with the connection no more.
        chain.registered.set(Some(AsyncId(1)));
        let mut call = Call::new(&chain, &connection, Header::default());
        call.last = true;
        let ended = run(wait(&call, &blocked, (&[RANGE], None), parking));
        assert_eq!(ended.ok(), Some(Status::RANGE_NOT_LOCKED));
        assert_eq!(server.files.locks_of(&place, blocked.engine), 0);
    }
}
