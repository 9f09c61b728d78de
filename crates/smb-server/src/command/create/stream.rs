//! Opens a named stream ([MS-FSA] 2.1.5.1): first the file, which is created if need be, then its stream.

use std::cell::Cell;

use durability::{Completion, Unchanged};
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    msg::{CreateDisposition, CreateOptions, NotifyFilter, OplockLevel},
    status::Status,
};
use vfs::{Attr, Kind, Node, StreamOpen, Vfs, VfsError};

use super::{
    CreateAttempt, Known, Opened, Opening, Seen, existing, fresh,
    fresh::HeldClaim,
    judge,
    judge::{Case, Judged},
    name::Stream,
    request::Contexts,
};
use crate::{
    access::{self, Parent, Subject},
    command::{Call, engine, modified},
    failure::Failure,
    file::{Change, Effects, Link, Place, Remove, SharePath},
    state::{archive, notices},
};

/// Opens the stream `stream` of the file that `lookup` found. A new file that is named by its unnamed stream is made as
/// by its plain name, and not here.
pub(super) async fn open<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    stream: &Stream,
) -> Result<CreateAttempt<V>, Failure> {
    match (&lookup.found, stream) {
        (Some((_, attr)), Stream::Unnamed) if attr.kind == Kind::Directory => {
            // A directory has no unnamed data stream; and no stream is a directory.
            Err(match on.wanted.directory() {
                true => Status::NOT_A_DIRECTORY.into(),
                false => Status::FILE_IS_A_DIRECTORY.into(),
            })
        }
        (Some((node, attr)), Stream::Unnamed) => existing::open(on, lookup, node, attr).await,
        (Some((_, attr)), Stream::Named(_)) if attr.kind == Kind::Special => {
            Err(Status::ACCESS_DENIED.into())
        }
        (Some((node, attr)), Stream::Named(name)) => {
            let claim = None;
            named(on, lookup, Carrier { node, attr, claim }, name).await
        }
        (None, Stream::Named(name)) if on.wanted.creates() => {
            Box::pin(with_file(on, lookup, name)).await
        }
        (None, _) => Err(Status::OBJECT_NAME_NOT_FOUND.into()),
    }
}

/// The file or directory that carries the stream.
struct Carrier<'a, V: Vfs> {
    node: &'a V::Node,
    attr: &'a Attr,
    /// The claim on its name, if this request has made it; otherwise that on the name of a new stream.
    claim: Option<&'a HeldClaim<V>>,
}

/// Creates a file and its stream ([MS-FSA] 2.1.5.1.1). The file is open until the stream is, and is removed again if
/// the stream is refused. Its name is claimed until the stream is open: another client's open of the file that may
/// delete it would have the stream refused.
async fn with_file<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    name: &str,
) -> Result<CreateAttempt<V>, Failure> {
    // A request that can be refused without the file is refused before the file is made.
    judge::check_new(on, None)?;
    fresh::check_deletion(on.wanted)?;
    on.share()?.vfs.check_stream_name(name)?;
    let Some(claim) = fresh::claim(on, Link::of(lookup)).await? else {
        return Ok(CreateAttempt::Again);
    };
    let mut file = match Box::pin(carrier(on, lookup, &claim)).await? {
        CreateAttempt::Done(file) => *file,
        again => return Ok(again),
    };
    if let Some(made) = &mut file.made {
        made.changed = None;
    }
    match in_new(on, &file, &claim, name).await {
        Ok(CreateAttempt::Done(mut opened)) => {
            // The open stream keeps the file, so this close removes nothing and cannot fail.
            let _closed = judge::undo(on, &file.place, file.id, &file.node).await;
            opened.made = file.made.take();
            Ok(CreateAttempt::Done(opened))
        }
        // The next attempt makes the file again, unless it finds one of another client.
        other => {
            Box::pin(super::withdraw(on, &file)).await?;
            other
        }
    }
}

/// Creates the file that carries the stream, as an empty one.
async fn carrier<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    claim: &HeldClaim<V>,
) -> Result<CreateAttempt<V>, Failure> {
    let mut plain = on.wanted.clone();
    plain.disposition = CreateDisposition::CREATE;
    plain.access = AccessMask::FILE_READ_ATTRIBUTES;
    plain.oplock = OplockLevel::NONE;
    plain.options = plain.options.without(CreateOptions::DELETE_ON_CLOSE);
    let contexts = Contexts {
        lease: None,
        // The size is that of the stream that is opened, not of its file.
        allocation: 0,
        ..on.contexts.clone()
    };
    let on = &Opening {
        call: on.call,
        wanted: &plain,
        contexts: &contexts,
        path_held: on.path_held,
        patient: on.patient,
    };
    fresh::create(on, lookup, claim).await
}

/// Creates and opens the stream of a file that this request has just made.
async fn in_new<V: Vfs>(
    on: &Opening<'_, V>,
    file: &Opened<V>,
    claim: &HeldClaim<V>,
    name: &str,
) -> Result<CreateAttempt<V>, Failure> {
    let (Some(made), Some(known)) = (&file.made, &file.known) else {
        return Ok(CreateAttempt::Again);
    };
    let file = Carrier {
        node: &file.node,
        attr: &known.attr,
        claim: Some(claim),
    };
    named(on, &made.lookup, file, name).await
}

/// Opens a named stream of a file, and creates it under a claim if need be.
async fn named<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    carrier: Carrier<'_, V>,
    name: &str,
) -> Result<CreateAttempt<V>, Failure> {
    let Some(known) = find(on, carrier.node, name).await? else {
        return Ok(CreateAttempt::Again);
    };
    // [MS-FSA] 2.1.5.1.2: the disposition is checked before the access.
    let creates_only = on.wanted.disposition == CreateDisposition::CREATE;
    Status::OBJECT_NAME_COLLISION.when(known.is_some() && creates_only)?;
    Status::OBJECT_NAME_NOT_FOUND.when(known.is_none() && !on.wanted.creates())?;
    let granted = grant(on, lookup, &carrier, known.is_some()).await?;
    if known.is_none() && !may_make(on, lookup, &carrier, name).await? {
        return Ok(CreateAttempt::Again);
    }
    let own = match known.is_none() && carrier.claim.is_none() {
        true => fresh::claim(on, Link::of_stream(carrier.node.key(), name))
            .await?
            .map(Some),
        false => Some(None),
    };
    let Some(own) = own else {
        return Ok(CreateAttempt::Again);
    };
    let claim = carrier.claim.or(own.as_ref());
    let carrier = Carrier { claim, ..carrier };
    enter(on, lookup, carrier, (name, known), granted).await
}

/// Makes the stream if it is not `known`, and puts its open into the engine's tables.
async fn enter<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    carrier: Carrier<'_, V>,
    (name, known): (&str, Option<V::Node>),
    granted: AccessMask,
) -> Result<CreateAttempt<V>, Failure> {
    let (file, attr, claim) = (carrier.node, carrier.attr, carrier.claim);
    let share_access = existing::share(on, lookup, known.is_some()).await?;
    let policy = super::enter_policy(on, lookup, file)?;
    let (node, created, receipt) = find_or_make(on, file, name, known).await?;
    let place = Place::of(&node);
    let size = match on.share()?.vfs.attr(&node).await {
        // The stream was created, so the request must not fail any more.
        Err(_) if created => new_stream(attr),
        asked => asked?,
    };
    let empties = on.wanted.overwrites() && !created;
    let case = Case {
        node: &node,
        claim,
        place: &place,
        lookup,
        directory: false,
        granted,
        share: share_access,
        effect: on.wanted.effect().when(empties),
        allocation: if empties { 0 } else { size.allocation() },
        created,
        receipt,
        policy: Some(policy),
    };
    let mut opened = match judge::open(on, case).await {
        Ok(Judged::Granted(opened)) => opened,
        other => {
            // The next attempt must not find it, either.
            if created {
                unmake(on, &place, &node).await?;
            }
            return other.map(|judged| judged.attempt());
        }
    };
    drop(claim.and_then(Cell::take));
    if let Err(failure) = act(on, lookup, attr, &mut opened, created).await {
        judge::undo(on, &place, opened.id, &node).await?;
        if created {
            unmake(on, &place, &node).await?;
        }
        return Err(failure);
    }
    opened.known = (created || empties).then(|| {
        Known::unasked(Attr {
            size: 0,
            allocated: 0,
            ..size
        })
    });
    Ok(CreateAttempt::Done(opened))
}

/// Whether a new stream may be made. If a rename has reserved its name, this waits for the end of the rename and
/// returns false: the stream may exist then.
async fn may_make<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    carrier: &Carrier<'_, V>,
    name: &str,
) -> Result<bool, Failure> {
    let file = carrier.node.key();
    match judge::check_new(on, Some((lookup, file, name))) {
        Err(Failure::Status(Status::SHARING_VIOLATION)) => {}
        checked => return checked.map(|()| true),
    }
    drop(carrier.claim.and_then(Cell::take));
    let (files, place) = (&on.server().files, &Place::of_stream(file, name));
    let ask = |waiter| (files.after_stream_rename(place, waiter), Effects::default());
    Box::pin(engine::wait_for(on, None, place, ask)).await?;
    Ok(false)
}

/// Sets FILE_ATTRIBUTE_ARCHIVE of the file, whose attributes are `attr`, because its stream is `created` or
/// overwritten.
async fn archive_of<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    attr: &Attr,
    opened: &Opened<V>,
    created: bool,
) -> Result<(), Failure> {
    let (server, share, stream) = (on.server(), on.share()?, &opened.node);
    if modified::lacks_archive(attr) {
        server.files.lacks_archive(stream.key(), true);
    }
    let changed = created || on.wanted.overwrites();
    if !changed || !opened.engine.quick.lacks_archive() {
        return Ok(());
    }
    let done = Box::pin(archive::set(server, share, stream, on.wanted.flags())).await;
    // Listings show the attribute.
    on.entries_changed(lookup);
    Ok(done?)
}

/// The stream, if it exists. The outer `None` means that the request which had just made it is over by now, so the
/// caller must look it up again.
async fn find<V: Vfs>(
    call: &Call<V>,
    file: &V::Node,
    name: &str,
) -> Result<Option<Option<V::Node>>, Failure> {
    let (vfs, who) = (&call.share()?.vfs, &call.token()?.identity);
    let node = match vfs.open_stream(who, file, name, StreamOpen::Existing).await {
        Ok((node, _)) => node,
        Err(VfsError::NotFound | VfsError::NoAttribute) => return Ok(Some(None)),
        Err(error) => return Err(error.into()),
    };
    if !call.server().files.claims.is_empty() {
        let link = Link::of_stream(file.key(), name);
        if !Box::pin(fresh::made_by_nobody(call, &link)).await? {
            return Ok(None);
        }
    }
    Ok(Some(Some(node)))
}

/// Removes a stream that this request created, unless another client has it open by now or has written to it. The
/// client already gets the error, so nobody waits for a sync of this.
pub(super) async fn unmake<V: Vfs>(
    call: &Call<V>,
    place: &Place,
    node: &V::Node,
) -> Result<(), Failure> {
    let share = call.share()?;
    let who = &call.token()?.identity;
    let files = &call.server().files;
    if !files.take_out(place, &Remove::Stream) {
        return Ok(());
    }
    let removed = async {
        let empty = share.vfs.attr(node).await.is_ok_and(|attr| attr.size == 0);
        if !empty {
            return Ok(None);
        }
        let begun = share.gate.begin(node);
        let removed = share.vfs.remove_stream(who, node).await;
        removed.map(|()| Some(begun))
    };
    let removed = removed.await;
    files.removed(place, &Remove::Stream, None);
    if let Some(begun) = removed? {
        let flags = durability::RequestFlags::default();
        drop(begun.stream_removed(node, flags).await);
    }
    Ok(())
}

/// The attributes of an empty stream of a file with the attributes `attr`.
fn new_stream(attr: &Attr) -> Attr {
    let bits = FileAttributes(attr.dos_attributes).without(FileAttributes::DIRECTORY);
    let bits = if bits.is_empty() {
        FileAttributes::NORMAL
    } else {
        bits
    };
    Attr {
        kind: Kind::File,
        size: 0,
        allocated: 0,
        dos_attributes: bits.bits(),
        ..attr.clone()
    }
}

async fn find_or_make<V: Vfs>(
    on: &Opening<'_, V>,
    file: &V::Node,
    name: &str,
    known: Option<V::Node>,
) -> Result<(V::Node, bool, Completion), Failure> {
    let share = on.share()?;
    if let Some(node) = known {
        return Ok((node, false, Unchanged::because("the stream exists").into()));
    }
    let (vfs, who) = (&share.vfs, &on.token()?.identity);
    let begun = share.gate.begin(file);
    let opened = vfs.open_stream(who, file, name, StreamOpen::Either);
    let (node, created) = opened.await?;
    if !created {
        // Another request has created it meanwhile.
        return match on.wanted.disposition {
            CreateDisposition::CREATE => Err(Status::OBJECT_NAME_COLLISION.into()),
            _ => Ok((node, false, Unchanged::because("the stream exists").into())),
        };
    }
    // The stream is marked dirty at once, because another client may open and flush it.
    match begun.stream_created(&node, on.wanted.flags()).await {
        Ok(receipt) => Ok((node, true, receipt.into())),
        Err(error) => {
            unmake(on, &Place::of(&node), &node).await?;
            Err(error.into())
        }
    }
}

/// [MS-FSA] 2.1.5.1.2: to create or overwrite a stream needs the right to write the file, and to supersede one needs
/// the right to delete it, whether or not the open asks for these rights.
async fn grant<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    carrier: &Carrier<'_, V>,
    exists: bool,
) -> Result<AccessMask, Failure> {
    if carrier.claim.is_some() {
        // [MS-FSA] 2.1.5.1.1: the creator gets what it asked for, whatever descriptor and attributes the file got.
        return fresh::grant(on);
    }
    let token = on.token()?;
    let attr = carrier.attr;
    let subject = Subject {
        parent: Parent::of(lookup),
        stream: true,
        ..on.subject(carrier.node, attr)?
    };
    if access::readonly(attr) {
        existing::check_readonly(on.wanted, attr.kind == Kind::Directory)?;
    }
    let implied = match on.wanted.disposition {
        CreateDisposition::SUPERSEDE if exists => AccessMask::DELETE,
        _ => AccessMask::FILE_WRITE_DATA.when(!exists || on.wanted.overwrites()),
    };
    if !implied.is_empty() {
        access::grant(&subject, &token, implied).await?;
    }
    let granted = access::grant(&subject, &token, on.wanted.access).await?;
    if on.wanted.delete_on_close() && !granted.contains(AccessMask::DELETE) {
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(granted)
}

/// Makes and reports the changes on disk of an open that the engine has granted. `attr` are the attributes of the file.
async fn act<V: Vfs>(
    on: &Opening<'_, V>,
    lookup: &Seen<V::Node>,
    attr: &Attr,
    opened: &mut Opened<V>,
    created: bool,
) -> Result<(), Failure> {
    let share = on.share()?;
    let empties = on.wanted.overwrites() && !created;
    opened.node = on.for_io(&opened.node, opened.granted, false).await?;
    let node = &opened.node;
    let report = |action, filter| {
        let path = SharePath::of(share.id, &lookup.path);
        let name = node.stream().unwrap_or_default();
        let parent = lookup.parent.as_ref().map(Node::key);
        let report = notices::change_of_stream(path, parent, name, action, filter);
        notices::report(on.server(), &[report]);
    };
    if created {
        report(Change::ADDED_STREAM, NotifyFilter::STREAM_NAME);
    } else if empties {
        share.gate.watch_write_back(node).await;
        let begun = share.gate.begin(node);
        share.vfs.set_size(node, 0).await?;
        opened.receipt = begun
            .resized(node, Some(0), on.wanted.flags())
            .await?
            .into();
        report(Change::MODIFIED_STREAM, notices::STREAM_DATA);
    }
    archive_of(on, lookup, attr, opened, created).await?;
    if empties {
        Box::pin(judge::emptied(on, opened)).await?;
    }
    Ok(())
}
