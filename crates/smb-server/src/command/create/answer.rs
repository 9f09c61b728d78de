//! Enters a granted open into the session, with the durability that it gets, and builds the reply ([MS-SMB2] 3.3.5.9,
//! 2.2.14).

use std::{sync::Arc, time::Duration};

use smb_wire::{
    access_mask::AccessMask,
    create_context::{
        CreateContextList, DurableHandleFlags, DurableHandleResponseV2, LeaseContext, LeaseState,
        QueryMaximalAccessRequest, QueryMaximalAccessResponse, QueryOnDiskIdResponse, name,
    },
    ids::LeaseKey,
    msg::{CreateAction, CreateResponse, CreateResponseFlags, OplockLevel},
    status::Status,
};
use vfs::{Attr, Node, Vfs};

use super::{
    Opened, Opening, apple, holder,
    request::{self, Asked, Contexts},
    withdraw,
};
use crate::{
    access::{self, Parent, Subject},
    command::{Call, Handled, Reply, facts, file_time},
    failure::Failure,
    file::{CacheGrant, Place},
    host_watch::Interest,
    locks::Mutex,
    state::{
        At, Endurance, LeaseName, NewOpen, Open, OpenKind, Origin, breaks, disconnected, records,
    },
};

/// Open.DurableOpenTimeout of version 1 (note 335: the value of Windows since 8).
const TIMEOUT_V1: Duration = Duration::from_secs(120);
/// The timeout of version 2, if the client leaves it to the server (note 344).
const TIMEOUT_V2: Duration = Duration::from_secs(60);
/// The longest timeout that a client is granted ([MS-SMB2] 3.3.5.9.10).
const TIMEOUT_V2_MAX: Duration = Duration::from_secs(300);

/// Enters the open into the session and answers.
pub(super) async fn reply<V: Vfs>(on: &Opening<'_, V>, mut opened: Opened<V>) -> Handled {
    let granting = opened.engine.granting.take();
    let is_observed = observe(on, &opened).await;
    let answers = match attributes(on, &mut opened).await {
        Ok(attr) => {
            let object = (&opened.node, opened.parent.as_ref());
            answers(on, on.contexts, object, attr).await
        }
        Err(failure) => Err(failure),
    };
    let (attr, mut list) = match answers {
        Ok(answers) => answers,
        Err(failure) => {
            Box::pin(withdraw(on, &opened)).await?;
            return Err(failure);
        }
    };
    let (action, place) = (opened.action, opened.place.clone());
    let granted = opened.engine.cache;
    let directory = opened.node.is_directory();
    let (open, receipt) = enter(on, opened).await?;
    on.chain.set_file_id(open.file_id);
    // The answer reports the caching that was granted, since later breaks follow the answer and start from it.
    let cache = match granted {
        CacheGrant::Lease(lease) if lease.is_breaking() => {
            Box::pin(breaking(on, &place, &open)).await
        }
        granted => granted,
    };
    if let Some(granting) = granting {
        on.chain.grants_caching(granting);
    }
    if !is_observed {
        on.server().unobserved(place.key, directory);
    }
    push_granted(&mut list, on.contexts, &cache, open.endurance());
    let response = response(&open, action, &attr, &cache, &list);
    Ok(Reply::changed(&response, receipt))
}

/// The attributes of the object. They are queried again unless they were read in the present turn, because the request
/// has not waited since then, not even for a break. Attributes of an object that the client may cache are always
/// queried after the grant, because changes before it cause no break.
async fn attributes<V: Vfs>(call: &Call<V>, opened: &mut Opened<V>) -> Result<Attr, Failure> {
    let known = opened.known.take();
    let caches = !matches!(opened.engine.cache, CacheGrant::None);
    match known {
        Some(known) if known.turn == Some(call.turn.get()) && !caches => Ok(known.attr),
        Some(known) if known.is_final => {
            let asked = call.share()?.vfs.attr(&opened.node).await;
            Ok(asked.unwrap_or(known.attr))
        }
        _ => Ok(call.share()?.vfs.attr(&opened.node).await?),
    }
}

/// [MS-SMB2] 3.3.5.9, "Response Construction".
pub(super) fn response<'a, V: Vfs>(
    open: &Open<V>,
    action: CreateAction,
    attr: &Attr,
    cache: &CacheGrant,
    list: &'a CreateContextList,
) -> CreateResponse<'a> {
    CreateResponse {
        oplock_level: match cache {
            CacheGrant::None => OplockLevel::NONE,
            CacheGrant::Oplock(level) => *level,
            CacheGrant::Lease(_) => OplockLevel::LEASE,
        },
        flags: CreateResponseFlags::empty(),
        create_action: action,
        facts: facts(attr),
        file_id: open.file_id,
        contexts: list.bytes(),
    }
}

/// Starts watching an object that the client may cache for host changes, before its attributes are queried for the
/// answer: otherwise a change in between would cause no break, and the client would cache the old state. Returns
/// false if the object cannot be watched. Ends with the close or with [`super::judge::undo`].
async fn observe<V: Vfs>(call: &Call<V>, opened: &Opened<V>) -> bool {
    let wanted = call.share().is_ok_and(|share| share.config.host_changes);
    let caches = !matches!(opened.engine.cache, CacheGrant::None);
    if !caches || opened.place.stream.is_some() || !wanted {
        return true;
    }
    let interest = Interest::Caching {
        directory: opened.node.is_directory(),
    };
    let server = call.server();
    let observed = server.observe_ahead(opened.id, &opened.node, interest);
    observed.await.is_ok()
}

/// The present state of a lease that was already breaking. Its notification may be on the way to this connection, and
/// the answer must not overtake it. If it waits until a client of the lease is back, it follows the answer: this client
/// is there, and may never reconnect to the opens that it lost.
async fn breaking<V: Vfs>(call: &Call<V>, place: &Place, open: &Open<V>) -> CacheGrant {
    call.connection.mail_delivered().await;
    let owner = disconnected::owner(open);
    breaks::resume(call.server(), owner);
    breaks::reported(call.server(), place, open.engine, owner)
}

/// Enters the open into the tables; from here on its FileId is valid.
async fn enter<V: Vfs>(
    on: &Opening<'_, V>,
    mut opened: Opened<V>,
) -> Result<(Arc<Open<V>>, durability::Completion), Failure> {
    let server = on.server();
    let session = on.session()?;
    let cache = &opened.engine.cache;
    let directory = opened.node.is_directory();
    let persistence = request::offers_persistence(on);
    let endurance = endurance(on.contexts, cache, directory, persistence);
    let origin = origin(on, cache, opened.action)?;
    let open = Arc::new(Open::new(NewOpen {
        file_id: server.fresh_file_id(),
        tree: Arc::clone(on.tree()?),
        granted: opened.granted,
        options: on.wanted.options,
        kind: OpenKind::Disk {
            directory,
            at: Mutex::new(At {
                node: opened.node.clone(),
                place: opened.place.clone(),
            }),
            quick: opened.engine.quick.clone(),
        },
        user: session.token().user.clone(),
        engine: opened.id,
        channel_sequence: on.header.channel_sequence(),
        parent_lease: parent_lease(on.contexts),
        policy: opened.policy.take(),
        place: on.place.borrow_mut().take(),
        origin,
        endurance,
    }));
    if endurance.is_persistent() && !records::begin(server, &open).await {
        // An open that could not be recorded is durable at most, not persistent.
        let less = self::endurance(on.contexts, &opened.engine.cache, directory, false);
        open.state().endurance = less;
        if !open.origin.is_replayable(less, open.granted, directory) {
            open.used();
        }
    }
    // This must happen before the open can be found, by its FileId or by its CreateGuid, because another channel may
    // close it or replay the CREATE at once.
    server.holders.add(opened.id, holder(on, &open));
    server.durables.made(&open);
    if let Err(over) = session.insert(Arc::clone(&open)) {
        // The session or tree connect ended meanwhile, so nothing else would ever close this open.
        server.holders.remove(opened.id);
        server.durables.ended(&open);
        records::end(server, &open).await;
        Box::pin(withdraw(on, &opened)).await?;
        return Err(over.into());
    }
    Ok((open, opened.receipt))
}

/// The durability that the granted caching permits. A durable open needs a batch oplock or a lease that caches the
/// handle, and is not a directory ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10 with note 342). A persistent open needs no
/// caching, and directories can be persistent, as in Windows and Samba.
fn endurance(
    contexts: &Contexts,
    granted: &CacheGrant,
    directory: bool,
    persistence: bool,
) -> Endurance {
    let Some(asked) = contexts.durable else {
        return Endurance::None;
    };
    let asks_persistent = match asked {
        Asked::V1 => false,
        Asked::V2(asked) => asked.flags.contains(DurableHandleFlags::PERSISTENT),
    };
    let persistent = persistence && asks_persistent;
    if !persistent && (directory || !caches_handle(granted)) {
        return Endurance::None;
    }
    // 3.3.5.9.6: version 1 goes by the state that this request asks for; the lease may have more already.
    let asks_handle = |lease: LeaseContext| lease.lease_state.contains(LeaseState::HANDLE);
    if matches!(asked, Asked::V1) && !contexts.lease.is_none_or(asks_handle) {
        return Endurance::None;
    }
    let timeout = match asked {
        Asked::V1 => TIMEOUT_V1,
        Asked::V2(asked) if asked.timeout_ms == 0 => TIMEOUT_V2,
        Asked::V2(asked) => Duration::from_millis(asked.timeout_ms.into()).min(TIMEOUT_V2_MAX),
    };
    Endurance::Durable {
        timeout,
        persistent,
    }
}

/// Whether the granted caching permits a durable open.
pub(super) fn caches_handle(granted: &CacheGrant) -> bool {
    match granted {
        CacheGrant::None => false,
        CacheGrant::Oplock(level) => *level == OplockLevel::BATCH,
        CacheGrant::Lease(lease) => {
            lease.lease_state.contains(LeaseState::HANDLE) && !lease.is_breaking()
        }
    }
}

/// The parts of the request that the open remembers.
fn origin<V: Vfs>(
    on: &Opening<'_, V>,
    granted: &CacheGrant,
    action: CreateAction,
) -> Result<Origin, Failure> {
    let lease = match *granted {
        CacheGrant::Lease(lease) => Some(LeaseName {
            key: lease.lease_key,
            v2: lease.v2.is_some(),
        }),
        _ => None,
    };
    let create_guid = on.contexts.replayable().map(|asked| asked.create_guid);
    Ok(Origin {
        session: on.session()?.id,
        client: on.client()?,
        owner: on.token()?,
        create_guid: create_guid.unwrap_or_default(),
        lease,
        app: on.contexts.app,
        desired: on.wanted.access,
        share: on.wanted.share,
        action,
    })
}

/// The directory lease that changes through this open do not break ([MS-FSA] 2.1.4.12.2).
pub(super) fn parent_lease(contexts: &Contexts) -> Option<LeaseKey> {
    contexts.lease.as_ref()?.parent_lease_key()
}

/// The answers to create contexts that query the object; needs its node, and its directory where that is known. `attr`
/// comes from the disk, and is returned as it is to be shown.
pub(super) async fn answers<V: Vfs>(
    call: &Call<V>,
    contexts: &Contexts,
    object: (&V::Node, Option<&V::Node>),
    mut attr: Attr,
) -> Result<(Attr, CreateContextList), Failure> {
    call.server().change_times.apply(&mut attr);
    let mut list = CreateContextList::new();
    if let Some(asked) = contexts.maximal_access {
        let answer = maximal_access(call, asked, object, &attr).await?;
        list.push_with(name::QUERY_MAXIMAL_ACCESS, |out| answer.encode(out));
    }
    if contexts.on_disk_id {
        let answer = QueryOnDiskIdResponse {
            disk_file_id: attr.file_id,
            volume_id: call.share()?.vfs.volume_id(),
        };
        list.push_with(name::QUERY_ON_DISK_ID, |out| answer.encode(out));
    }
    if let Some(asked) = contexts.apple {
        apple::push_answer(call, asked, &mut list)?;
    }
    Ok((attr, list))
}

/// [MS-SMB2] 3.3.5.9.5.
async fn maximal_access<V: Vfs>(
    call: &Call<V>,
    asked: QueryMaximalAccessRequest,
    (node, parent): (&V::Node, Option<&V::Node>),
    attr: &Attr,
) -> Result<QueryMaximalAccessResponse, Failure> {
    let refused = |query_status| QueryMaximalAccessResponse {
        query_status,
        maximal_access: AccessMask::empty(),
    };
    // The client knows the rights that the object gave at that time.
    if asked.timestamp == Some(file_time(attr.changed)) {
        return Ok(refused(Status::NONE_MAPPED));
    }
    let token = call.token()?;
    // The change time may be one that a client has set, not the disk's, so no cached descriptor is used.
    let subject = Subject {
        parent: parent.map(|parent| Parent::seen(parent, None)),
        ..call.subject(node, attr)?
    };
    Ok(match access::maximum(&subject, &token).await {
        Ok(maximal_access) => QueryMaximalAccessResponse {
            query_status: Status::SUCCESS,
            maximal_access,
        },
        Err(_) => refused(Status::ACCESS_DENIED),
    })
}

/// Adds the answers that state what the open got: its lease, in the version of the lease, which is that of its first
/// open, and its durability, if the client asked for it.
pub(super) fn push_granted(
    list: &mut CreateContextList,
    contexts: &Contexts,
    cache: &CacheGrant,
    got: Endurance,
) {
    if let (Some(_), CacheGrant::Lease(lease)) = (&contexts.lease_named, cache) {
        list.push_with(name::REQUEST_LEASE, |out| lease.encode(out));
    }
    let Endurance::Durable {
        timeout,
        persistent,
    } = got
    else {
        return;
    };
    match contexts.durable {
        None => {}
        Some(Asked::V1) => list.push(name::DURABLE_HANDLE_REQUEST, &[0; 8]),
        Some(Asked::V2(_)) => {
            let answer = DurableHandleResponseV2 {
                timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
                flags: DurableHandleFlags::PERSISTENT.when(persistent),
            };
            list.push_with(name::DURABLE_HANDLE_REQUEST_V2, |out| answer.encode(out));
        }
    }
}
