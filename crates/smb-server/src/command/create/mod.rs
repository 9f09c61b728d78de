//! CREATE opens or makes a file, a directory, a stream or a pipe ([MS-SMB2] 3.3.5.9, [MS-FSA] 2.1.5.1).
//!
//! The order matters: names and parameters are checked first, then access, then sharing and caching (waiting for
//! breaks), and only then is anything created or truncated. A refused CREATE leaves nothing behind.
//!
//! `request.rs` checks the request by itself, `name.rs` parses its name, `existing.rs` opens an existing object,
//! `overwrite.rs` empties it, `fresh.rs` creates a new one, and `answer.rs` makes the open and its reply, and decides
//! whether the open survives the loss of the connection. `reconnect.rs` gives a disconnected open back, `replay.rs`
//! recognises a CREATE that is sent twice, `app_instance.rs` closes opens of another instance of the same application,
//! `pipe.rs` opens named pipes, and `apple.rs` answers Macs.
//!
//! Rare steps are awaited in boxed futures, so that the future of a CREATE has room only for the usual ones.

mod answer;
mod app_instance;
mod apple;
mod existing;
mod fresh;
mod judge;
mod name;
mod overwrite;
mod pipe;
mod reconnect;
mod replay;
mod request;
mod stream;

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    ops::Deref,
    pin::pin,
    sync::Arc,
};

use durability::{OpenPolicy, Opener};
use smb_wire::{
    access_mask::AccessMask,
    msg::{CreateAction, CreateDisposition, CreateOptions, NotifyFilter},
    status::Status,
};
use vfs::{Attr, IoAccess, Kind, Lookup, Node, Timestamp, Vfs, disk::NAME_MAX};

use self::{
    name::Name,
    replay::Replay,
    request::{Asks, Contexts, Wanted},
};
use super::{Call, Handled, attempts::Count};
use crate::{
    access,
    failure::Failure,
    file::{Link, Look, OpenId, Place, SharePath},
    limits::{PATH_MEMORY, ServerLimits},
    memory::Held,
    state::{
        Open,
        breaks::{Holder, perform},
        notices,
    },
    turn::COMPONENT_WORK,
};

pub(in crate::command) use fresh::streams_made_by_nobody;
pub(in crate::command) use name::{Stream as NameStream, is_too_long, parse_name};

/// The number of copies of an open's path that are kept: as it is stored, as it is compared, on disk, and for the rules
/// of durability.
const PATH_COPIES: usize = 4;

/// The memory that a component of a path takes beside its bytes.
const COMPONENT_MEMORY: usize = 32;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let tree = call.tree()?;
    if tree.share.is_none() {
        take_place(call)?;
        return pipe::open(call);
    }
    // The session was authenticated again as anonymous, and the share admits no guests: existing opens stay, but no
    // new one is allowed.
    Status::ACCESS_DENIED.when(call.token()?.anonymous)?;
    let (wanted, contexts, name) = match request::read(call)? {
        Asks::Open(wanted, contexts, name) => (wanted, contexts, name),
        Asks::Back {
            mut contexts,
            back,
            name,
        } => {
            // A reconnected open already has its place under the limit.
            check_session(call, &call.server().config().limits)?;
            return Box::pin(reconnect::handle(call, &mut contexts, back, name.as_ref())).await;
        }
    };
    call.connection.turn.did(COMPONENT_WORK * name.path.len());
    if name.foreign_index {
        return Box::pin(foreign_index(call, &wanted, &name)).await;
    }
    let (path_held, patient) = (OnceCell::new(), Cell::new(true));
    let on = &Opening {
        call,
        wanted: &wanted,
        contexts: &contexts,
        path_held: &path_held,
        patient: &patient,
    };
    let replay = match contexts.replayable() {
        Some(asked) => replay::begin(on, &name, &asked).await?,
        None => Replay::First(None),
    };
    // Held until the request has its answer or has failed: the same CREATE sent again is refused until then.
    let under_way = match replay {
        Replay::Of(open) => return Box::pin(replay::answer(on, &open)).await,
        Replay::Back(open) => {
            let by = reconnect::By::Replay;
            return Box::pin(reconnect::resume(call, &contexts, open, by)).await;
        }
        Replay::First(under_way) => under_way,
    };
    call.replayable.set(under_way.is_some());
    take_place(call)?;
    if let Some(held) = path_memory(call, &name.path)? {
        path_held.get_or_init(|| held);
    }
    if let Some(app) = contexts.app {
        Box::pin(app_instance::close_other_instances(call, app, &name)).await?;
    }
    let mut opening = pin!(open(on, &name));
    poll_fn(|context| {
        call.turn.set(call.turn.get().wrapping_add(1));
        opening.as_mut().poll(context)
    })
    .await
}

/// [MS-FSA] 2.1.5.1, phases 6 and 7: an index that no directory has is refused once its file was looked for.
async fn foreign_index<V: Vfs>(call: &Call<V>, wanted: &Wanted, name: &Name) -> Handled {
    let (vfs, token) = (&call.share()?.vfs, call.token()?);
    let lookup = vfs.lookup(&token.identity, &name.path).await?;
    match lookup.found.is_some() || wanted.creates() {
        true => Err(Status::INVALID_PARAMETER.into()),
        false => Err(Status::OBJECT_NAME_NOT_FOUND.into()),
    }
}

async fn open<V: Vfs>(on: &Opening<'_, V>, name: &Name) -> Handled {
    let mut count = Count::default();
    loop {
        let another = match attempt(on, name).await? {
            CreateAttempt::Done(opened) => return answer::reply(on, *opened).await,
            CreateAttempt::Waited => count.waited(),
            CreateAttempt::Again => count.another(false),
            CreateAttempt::Taken => count.another(true),
        };
        Status::SHARING_VIOLATION.when(!another)?;
        on.check_ended()?;
    }
}

fn check_session<V: Vfs>(call: &Call<V>, limits: &ServerLimits) -> Result<(), Failure> {
    if call.session()?.tables().opens.len() >= limits.opens_per_session {
        return Err(Status::TOO_MANY_OPENED_FILES.into());
    }
    Ok(())
}

/// Takes a place under the limit for the new open.
fn take_place<V: Vfs>(call: &Call<V>) -> Result<(), Failure> {
    check_session(call, &call.server().config().limits)?;
    let place = call.place_of_open()?;
    *call.place.borrow_mut() = Some(place.ok_or(Status::TOO_MANY_OPENED_FILES)?);
    Ok(())
}

/// Charges what an open keeps of its path to the server's memory budget: a user may have many thousands of opens, and a
/// path may have 64 KiB.
pub(in crate::command) fn path_memory<V: Vfs>(
    call: &Call<V>,
    path: &[String],
) -> Result<Option<Arc<Held>>, Failure> {
    // A short name may stand for one of any length.
    let stored = |name: &String| match name.contains('~') {
        true => NAME_MAX,
        false => name.len(),
    };
    let bytes = path.iter().map(|name| stored(name) + COMPONENT_MEMORY);
    let bytes = bytes.sum::<usize>() * PATH_COPIES;
    let beyond = bytes.saturating_sub(PATH_MEMORY);
    if beyond == 0 {
        return Ok(None);
    }
    Ok(Some(Arc::new(call.keep(beyond)?)))
}

/// A CREATE that opens or creates something: the request, and what it asks for.
struct Opening<'a, V: Vfs> {
    call: &'a Call<V>,
    wanted: &'a Wanted,
    contexts: &'a Contexts,
    /// The part of the server's memory budget that the path of the new open takes.
    path_held: &'a OnceCell<Arc<Held>>,
    /// See [`crate::file::OpenRequest::patient`].
    patient: &'a Cell<bool>,
}

impl<V: Vfs> Deref for Opening<'_, V> {
    type Target = Call<V>;

    fn deref(&self) -> &Call<V> {
        self.call
    }
}

impl<V: Vfs> Opening<'_, V> {
    /// Reports a change of the name that was looked up to watchers, and breaks leases on its directory.
    fn announce(
        &self,
        lookup: &Lookup<V::Node>,
        action: u32,
        filter: NotifyFilter,
    ) -> Result<(), Failure> {
        let path = SharePath::of(self.share()?.id, &lookup.path);
        let parent = lookup.parent.as_ref().map(Node::key);
        let change = notices::change(path, parent, action, filter);
        notices::report(self.server(), &[change]);
        self.entries_changed(lookup);
        Ok(())
    }

    /// The node, opened for the I/O that these rights and the disposition need.
    async fn for_io(
        &self,
        node: &V::Node,
        granted: AccessMask,
        directory: bool,
    ) -> Result<V::Node, Failure> {
        let mut io = access::io_access(granted, directory);
        io.write |= self.wanted.overwrites();
        if io == IoAccess::default() {
            return Ok(node.clone());
        }
        let token = self.token()?;
        Ok(self.share()?.vfs.open(&token.identity, node, io).await?)
    }

    /// Breaks the leases on the directory of a name, except the one that the client named.
    fn entries_changed(&self, lookup: &Lookup<V::Node>) {
        if let Some(parent) = &lookup.parent {
            let spared = answer::parent_lease(self.contexts);
            let effects = self.server().files.entries_changed(parent.key(), spared);
            perform(self.server(), effects);
        }
    }
}

/// Everything an open needs once the disk and the engine agreed.
struct Opened<V: Vfs> {
    id: OpenId,
    node: V::Node,
    parent: Option<V::Node>,
    place: Place,
    granted: AccessMask,
    engine: judge::Agreed<V>,
    action: CreateAction,
    receipt: durability::Completion,
    /// Taken by the open that the session gets.
    policy: Option<OpenPolicy<V>>,
    known: Option<Known>,
    /// The file or directory that this request has made.
    made: Option<Box<Made<V>>>,
}

/// A file or directory that was just made, and the lookup that found its name free.
struct Made<V: Vfs> {
    node: V::Node,
    /// Its change time; none once this request may have moved it.
    changed: Option<Timestamp>,
    /// Its path includes the new name.
    lookup: Seen<V::Node>,
}

/// Undoes an open that was granted, together with what this request has made.
async fn withdraw<V: Vfs>(on: &Opening<'_, V>, opened: &Opened<V>) -> Result<(), Failure> {
    judge::undo(on, &opened.place, opened.id, &opened.node).await?;
    if opened.action == CreateAction::CREATED && opened.place.stream.is_some() {
        stream::unmake(on, &opened.place, &opened.node).await?;
    }
    match &opened.made {
        Some(made) => fresh::withdraw(on, made).await,
        None => Ok(()),
    }
}

/// The attributes of an object.
struct Known {
    attr: Attr,
    /// The turn of the request ([`Call::turn`]) in which they were read; none if the disk was not asked.
    turn: Option<u32>,
    /// The object was just created or emptied, which cannot be undone, so the answer must not fail.
    is_final: bool,
}

impl Known {
    /// The attributes of an object that was just created or emptied, if querying it fails.
    fn unasked(attr: Attr) -> Self {
        Self {
            attr,
            turn: None,
            is_final: true,
        }
    }
}

/// A lookup, and when it was begun, so that later changes of names are noticed.
#[derive(Clone)]
struct Seen<N> {
    lookup: Lookup<N>,
    look: Look,
    /// The turn of the request ([`Call::turn`]) in which it was begun.
    turn: u32,
}

impl<N> Deref for Seen<N> {
    type Target = Lookup<N>;

    fn deref(&self) -> &Lookup<N> {
        &self.lookup
    }
}

enum CreateAttempt<V: Vfs> {
    Done(Box<Opened<V>>),
    /// Others had to give up caching first, and the request has waited for that: look the name up again.
    Waited,
    /// The name was made or removed meanwhile: look it up again.
    Again,
    /// The lookup found the name free, but the disk has something by it: look it up again, a few times only.
    Taken,
}

async fn attempt<V: Vfs>(on: &Opening<'_, V>, name: &Name) -> Result<CreateAttempt<V>, Failure> {
    let share = on.share()?;
    let token = on.token()?;
    let (look, turn) = (on.server().files.look(), on.turn.get());
    let lookup = share.vfs.lookup(&token.identity, &name.path).await?;
    let lookup = Seen { lookup, look, turn };
    if name.trailing && !on.wanted.directory() {
        check_trailing(on.wanted, name, &lookup)?;
    }
    if lookup.found.is_some()
        && !on.server().files.claims.is_empty()
        && !Box::pin(fresh::made_by_nobody(on, &Link::of(&lookup))).await?
    {
        return Ok(CreateAttempt::Again);
    }
    match (&name.stream, &lookup.found) {
        (None, Some((node, attr))) => existing::open(on, &lookup, node, attr).await,
        (None | Some(NameStream::Unnamed), None) if on.wanted.creates() => {
            match fresh::claim(on, Link::of(&lookup)).await? {
                Some(claim) => fresh::create(on, &lookup, &claim).await,
                None => Ok(CreateAttempt::Again),
            }
        }
        (None, None) => Err(Status::OBJECT_NAME_NOT_FOUND.into()),
        (Some(stream), _) => Box::pin(stream::open(on, &lookup, stream)).await,
    }
}

/// [MS-FSA] 2.1.5.1, phase 7: a name that ends in a backslash is that of a directory, and no file is opened or made by
/// it.
fn check_trailing<N>(wanted: &Wanted, name: &Name, lookup: &Lookup<N>) -> Result<(), Failure> {
    let is_file = match &lookup.found {
        Some((_, attr)) => attr.kind != Kind::Directory || name.stream.is_some(),
        None => wanted.creates(),
    };
    match is_file {
        true => Err(Status::OBJECT_NAME_INVALID.into()),
        false => Ok(()),
    }
}

/// Registers the open at the gate: from here on it takes part in deciding the durability policy of the inode.
fn enter_policy<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Lookup<V::Node>,
    node: &V::Node,
) -> Result<OpenPolicy<V>, Failure> {
    let token = on.session()?.token();
    let asks = |option| on.wanted.options.contains(option);
    let opener = Opener {
        client: Some(on.connection.peer.ip()),
        user: token.user.as_str().into(),
        groups: Arc::clone(&token.groups),
        dialect: on.connection.dialect().0,
        path: lookup.path.join("/").into(),
        write_through: asks(CreateOptions::WRITE_THROUGH),
        // Requests of any size are served all the same (docs/protocol-notes.md, "Unaligned access without buffering").
        unbuffered: asks(CreateOptions::NO_INTERMEDIATE_BUFFERING),
    };
    Ok(on.share()?.gate.opened(node, opener.into()))
}

/// The entry by which a break of an open of this session finds its client.
fn holder<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Holder {
    Holder {
        connection: call.connection.id,
        session: open.origin.session,
        file_id: open.file_id,
        encrypted: open.tree.encrypted,
    }
}

/// The CreateAction of a successful open of an object that existed before, or whose stream was just `created`.
fn action(disposition: CreateDisposition, created: bool) -> CreateAction {
    match disposition {
        _ if created => CreateAction::CREATED,
        CreateDisposition::SUPERSEDE => CreateAction::SUPERSEDED,
        CreateDisposition::OVERWRITE | CreateDisposition::OVERWRITE_IF => CreateAction::OVERWRITTEN,
        _ => CreateAction::OPENED,
    }
}
