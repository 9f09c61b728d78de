//! QUERY_DIRECTORY lists the entries of a directory ([MS-SMB2] 3.3.5.18, [MS-FSA] 2.1.5.6.3).
//!
//! The names are taken as a snapshot when the enumeration starts, so positions are stable while
//! clients delete what they list; attributes are read as each entry is answered.

use std::collections::VecDeque;

use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    fscc::{DirectoryEntry, DirectoryFormat, DirectoryWriter, FileInformationClass, Pushed},
    msg::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse},
    status::Status,
    utf16,
};
use tokio::sync::MutexGuard;
use vfs::{Attr, DirName, Lookup, Node, Vfs, VfsError, VfsResult};

use super::{Call, Handled, Reply, create, engine::OnDisk, listing};
use crate::{
    access,
    command::file_time,
    failure::Failure,
    limits::PATTERN_UNITS_MAX,
    memory::Held,
    pattern::Pattern,
    state::{DirectoryCursor, Open},
    turn::{COMPONENT_WORK, ENTRY_WORK, MATCH_WORK},
};

/// The most entries whose attributes are read from the disk at once.
const LOOKED_AT_MAX: usize = 512;

/// The least number of bytes of an entry besides its name ([MS-FSCC] 2.4.10).
const ENTRY_BYTES_MIN: usize = 64;

/// The bytes of an entry for which room is made: the largest format with a name of usual length.
const ENTRY_BYTES_USUAL: usize = 144;

/// The attributes of an entry, and the size of its extended attributes where the class shows it.
type Looked = (Attr, u32);

/// Attributes of the next entries, `None` where an entry is not shown. An error is that of its own entry only. `.` and
/// `..` are not among them.
type Ahead = std::vec::IntoIter<VfsResult<Option<Looked>>>;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = QueryDirectoryRequest::read(&call.message)?;
    let open = super::directory(call, request.file_id, request.output_buffer_length)?;
    let class = FileInformationClass(request.info_class);
    let format = DirectoryFormat::of(class).ok_or(Status::INVALID_INFO_CLASS)?;
    let on = &OnDisk::new(call, &open)?;
    let _alone = alone(call, &open).await?;
    call.check_connected()?;
    let mut cursor = std::mem::take(&mut open.state().cursor);
    let answered = fill(on, &request, format, &mut cursor).await;
    open.state().cursor = cursor;
    let buffer: &[u8] = &answered?;
    Ok(Reply::read_only(&QueryDirectoryResponse { buffer }))
}

/// Waits until no other request lists through this handle: one that waits for its user's turn can last long.
async fn alone<'a, V: Vfs>(
    call: &Call<V>,
    open: &'a Open<V>,
) -> Result<MutexGuard<'a, ()>, Failure> {
    match open.listing.try_lock() {
        Ok(alone) => Ok(alone),
        Err(_) => {
            let waits = call.park_quietly(Some(open), open.listing.lock());
            waits.await?.map_err(listing::ended)
        }
    }
}

fn pattern(bytes: &[u8]) -> Result<String, Failure> {
    Status::OBJECT_NAME_INVALID.when(bytes.len() / 2 > PATTERN_UNITS_MAX)?;
    let text = utf16::decode(bytes, "pattern").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let forbidden = |c: char| matches!(c, '\0'..='\x1f' | '\\' | '/' | ':' | '|');
    Status::OBJECT_NAME_INVALID.when(text.contains(forbidden))?;
    Ok(text)
}

async fn fill<V: Vfs>(
    on: &OnDisk<'_, V>,
    request: &QueryDirectoryRequest<'_>,
    format: DirectoryFormat,
    cursor: &mut DirectoryCursor,
) -> Result<bytes::BytesMut, Failure> {
    let asks = |flag| request.flags.contains(flag);
    let reopen = asks(QueryDirectoryFlags::REOPEN);
    let restart = reopen || asks(QueryDirectoryFlags::RESTART_SCANS);
    let single = asks(QueryDirectoryFlags::RETURN_SINGLE_ENTRY);
    let limit = on.server.config().limits.directory_bytes;
    let room = size(request.output_buffer_length.min(limit));
    // [MS-FSA] 2.1.5.6.3: this is checked before anything is searched or kept.
    Status::INFO_LENGTH_MISMATCH.when(room < format.fixed())?;
    // With REOPEN the enumeration starts as on a new handle ([MS-SMB2] 3.3.5.18).
    cursor.started &= !reopen;
    let first = cursor.pattern.is_none();
    let mut ahead = Ahead::default();
    if first || restart {
        // [MS-FSA] 2.1.5.6.3: the pattern of any other call is ignored, even an invalid one.
        let pattern = pattern(request.pattern)?;
        let looked = if single { 0 } else { room / ENTRY_BYTES_USUAL };
        let looked = looked.min(LOOKED_AT_MAX);
        ahead = start(on, (pattern, format), cursor, looked).await?;
    }
    let mut writer = DirectoryWriter::new(format, room);
    let most = if single { 1 } else { LOOKED_AT_MAX };
    writer.reserve(cursor.names.len().min(most) * ENTRY_BYTES_USUAL);
    let mut short = String::new();
    while let Some(name) = cursor.names.front() {
        let fitting = (room.saturating_sub(writer.len()), most);
        let looked = match next(on, &cursor.names, fitting, format, &mut ahead).await {
            Ok(looked) => looked,
            // The search is past the names in the answer, so the client gets them. When it asks again, it meets this
            // name first, and the error with it.
            Err(_) if !writer.is_empty() => break,
            Err(failure) => return Err(failure),
        };
        if let Some((mut attr, ea_size)) = looked {
            on.server.change_times.apply(&mut attr);
            if format.has_short_name() {
                shorten(on.vfs(), &name.name, &mut short);
            }
            match writer.push(&entry(name, &short, &(attr, ea_size), cursor.index)) {
                Pushed::Pushed => {}
                Pushed::Full => break,
                Pushed::FirstDoesNotFit => {
                    // [MS-FSA] 2.1.5.6.3: only the name of the first entry does not fit. QueryLastEntry is not set, so
                    // the next request begins with the same entry.
                    return Err(Status::BUFFER_OVERFLOW.into());
                }
            }
        }
        cursor.names.pop_front();
        cursor.index = cursor.index.wrapping_add(1);
        if single && !writer.is_empty() {
            break;
        }
    }
    if !writer.is_empty() {
        cursor.started = true;
        return Ok(writer.finish());
    }
    end(cursor);
    // [MS-FSA] 2.1.5.6.3: nothing at the very first call means that no such file exists.
    let status = if (first || restart) && !cursor.started {
        Status::NO_SUCH_FILE
    } else {
        Status::NO_MORE_FILES
    };
    cursor.started = true;
    Err(status.into())
}

/// Takes the names that match; `.` and `..` come first. If all match, it also returns the attributes of about the first
/// `looked`.
async fn start<V: Vfs>(
    on: &OnDisk<'_, V>,
    (asked, format): (String, DirectoryFormat),
    cursor: &mut DirectoryCursor,
    looked: usize,
) -> Result<Ahead, Failure> {
    let (call, vfs, node) = (on.call, on.vfs(), &on.disk.node);
    let who = &on.token()?.identity;
    // A request that is cancelled while it waits leaves the enumeration before as it is.
    let mut few = listing::permit(call, Some(on.open)).await?;
    call.check_connected()?;
    let text = match (asked.is_empty(), cursor.pattern.take()) {
        (true, Some(old)) => old,
        _ => asked,
    };
    // The names of the enumeration before are freed first, so that the budget need not have room for both.
    end(cursor);
    let pattern = Pattern::new(&text).ok_or(Status::OBJECT_NAME_INVALID)?;
    let found = match pattern.is_plain() {
        true => listing::promptly(call, &mut few, plain(on, &text)).await?,
        false => None,
    };
    let (user, share) = (call.counted()?, on.share.id);
    let permits = || on.server.large_listings.of(user, share);
    let ((names, attrs), permit) = if let Some(names) = found {
        ((names, Vec::new()), None)
    } else if pattern.is_everything() {
        let list = async |most: usize| vfs.list_looked(who, node, most, looked).await;
        listing::list(call, Some(on.open), permits, &mut few, list).await?
    } else {
        let list = async |most: usize| vfs.list(who, node, most).await;
        let listed = listing::list(call, Some(on.open), permits, &mut few, list).await;
        let (names, permit) = listed?;
        // Matching them may take many turns.
        let _listed = kept(call, &names)?;
        drop(permit);
        ((matching(on, &pattern, names).await?, Vec::new()), None)
    };
    let mut names = VecDeque::from(names);
    for dots in ["..", "."] {
        if pattern.matches(dots) {
            names.push_front(DirName::same(dots.to_owned()));
        }
    }
    let held = kept(call, &names)?;
    drop((permit, few));
    *cursor = DirectoryCursor {
        held: Some(held),
        pattern: Some(text),
        names,
        started: cursor.started,
        index: 0,
    };
    let names = cursor.names.iter().skip_while(|name| is_dots(name));
    seen(on, names, attrs, format).await
}

/// Ends the enumeration. The names are freed as well, because the budget no longer counts them.
fn end(cursor: &mut DirectoryCursor) {
    (cursor.names, cursor.held) = (VecDeque::new(), None);
}

/// Charges names to the server's memory budget.
fn kept<'a, V: Vfs>(
    call: &Call<V>,
    names: impl IntoIterator<Item = &'a DirName>,
) -> Result<Held, Failure> {
    call.keep(names.into_iter().map(DirName::memory).sum())
}

/// Returns the `names` that match by any of their spellings ([MS-FSA] 2.1.5.6.3).
async fn matching<V: Vfs>(
    on: &OnDisk<'_, V>,
    pattern: &Pattern,
    names: Vec<DirName>,
) -> Result<Vec<DirName>, Failure> {
    let (call, mut short) = (on.call, String::new());
    let mut matching = Vec::new();
    for name in names {
        call.worked(MATCH_WORK * pattern.cost(&name.name)).await?;
        let mut matches = pattern.matches(&name.name);
        if !matches {
            short.clear();
            on.vfs().short_name(&name.name, &mut short);
            // A short form leaves out an extension that is too long for it, but the name still has one: `<`, which a
            // client sends for `*.`, must not find page.html, because a client may delete what it finds.
            if let Some((base, extension)) = name.name.rsplit_once('.')
                && !(base.is_empty() || short.is_empty() || short.contains('.'))
            {
                short.extend([".", extension]);
            }
            let unmapped = vfs::posix::name::unmapped(&name.name);
            for other in [Some(&short), unmapped.as_ref()].into_iter().flatten() {
                call.worked(MATCH_WORK * pattern.cost(other)).await?;
                matches |= !other.is_empty() && pattern.matches(other);
            }
        }
        if matches {
            matching.push(name);
        }
    }
    // The budget counts only the names that are kept, so spare room is freed.
    matching.shrink_to_fit();
    Ok(matching)
}

/// A pattern without wildcards names at most one entry: a lookup finds it without listing. `None` if the directory is
/// not at its path: it was moved on the host or through another share, or is just being moved.
async fn plain<V: Vfs>(on: &OnDisk<'_, V>, text: &str) -> Result<Option<Vec<DirName>>, Failure> {
    let name = create::parse_name(text).ok();
    // "." names the directory itself, which is not one of its names here.
    let Some(name) = name.filter(|name| name.path.len() == 1) else {
        return Ok(Some(Vec::new()));
    };
    let directory = Some(on.disk.node.key());
    let mut whole = on.server.path_of(on.open)?.to_names();
    whole.extend(name.path);
    let token = on.token()?;
    match on.vfs().lookup(&token.identity, &whole).await {
        Ok(Lookup { parent, .. }) if parent.as_ref().map(Node::key) != directory => Ok(None),
        Ok(lookup) if lookup.found.is_some() => {
            let on_disk = vfs::posix::name::to_disk(&lookup.name)?;
            Ok(Some(vec![DirName::new(lookup.name, on_disk)]))
        }
        Err(VfsError::PathNotFound) => Ok(None),
        // A listing shows no link that may not be followed either.
        Ok(_) | Err(VfsError::NotFound | VfsError::SymbolicLink) => Ok(Some(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// The attributes of the first of `names`, `None` if it is not shown. They come from `ahead`, which is filled as by
/// [`look`] when it is empty.
async fn next<V: Vfs>(
    on: &OnDisk<'_, V>,
    names: &VecDeque<DirName>,
    fitting: (usize, usize),
    format: DirectoryFormat,
    ahead: &mut Ahead,
) -> Result<Option<Looked>, Failure> {
    if let Some(dots) = names.front().filter(|name| is_dots(name)) {
        return Ok(Some(above(on, dots, format).await?));
    }
    if ahead.len() == 0 {
        on.call.worked(ENTRY_WORK * LOOKED_AT_MAX).await?;
        *ahead = look(on, names, fitting, format).await?;
    }
    Ok(ahead.next().transpose()?.flatten())
}

/// Attributes of the next entries, about as many as fit `room` bytes, at least one and at most
/// `most`.
async fn look<V: Vfs>(
    on: &OnDisk<'_, V>,
    names: &VecDeque<DirName>,
    (room, most): (usize, usize),
    format: DirectoryFormat,
) -> Result<Ahead, Failure> {
    let mut used = 0;
    let (front, _) = names.as_slices();
    let fitting = front.iter().take(most).take_while(|name| {
        let first = used == 0;
        used += ENTRY_BYTES_MIN + 2 * name.name.len();
        first || used <= room
    });
    let count = fitting.count();
    let batch = front.get(..count).unwrap_or_default();
    let who = &on.token()?.identity;
    let attrs = on.vfs().attrs_at(who, &on.disk.node, batch).await;
    seen(on, batch.iter(), attrs, format).await
}

/// The attributes of `names` that the listing shows: none for names that have disappeared meanwhile or that the
/// user may not see.
async fn seen<V: Vfs>(
    on: &OnDisk<'_, V>,
    names: impl Iterator<Item = &DirName> + Clone,
    attrs: Vec<VfsResult<Attr>>,
    format: DirectoryFormat,
) -> Result<Ahead, Failure> {
    let attrs = attrs.into_iter().map(|attr| match attr {
        Ok(attr) => Ok(Some(attr)),
        Err(VfsError::NotFound | VfsError::SymbolicLink | VfsError::AccessDenied) => Ok(None),
        Err(error) => Err(error),
    });
    let mut attrs: Vec<VfsResult<Option<Attr>>> = attrs.collect();
    if on.share.config.access_based_enumeration {
        let path = on.server.path_of(on.open)?;
        let each = COMPONENT_WORK * (path.names().len() + 2);
        for (name, attr) in names.clone().zip(&mut attrs) {
            on.call.worked(each).await?;
            if matches!(attr, Ok(Some(_))) {
                match visible(on, name).await? {
                    Ok(true) => {}
                    Ok(false) => *attr = Ok(None),
                    Err(error) => *attr = Err(error),
                }
            }
        }
    }
    let mut sizes = Vec::new();
    if format.has_ea_size() {
        let shown = names.zip(&attrs);
        let shown: Vec<_> = shown
            .filter_map(|(name, attr)| Some((name, attr.as_ref().ok()?.as_ref()?)))
            .collect();
        sizes = on.vfs().ea_sizes_at(&on.disk.node, &shown).await;
    }
    let mut sizes = sizes.into_iter();
    let mut looked = Vec::with_capacity(attrs.len());
    for attr in attrs {
        looked.push(attr.map(|shown| shown.map(|attr| (attr, sizes.next().unwrap_or(0)))));
    }
    Ok(looked.into_iter())
}

fn is_dots(name: &DirName) -> bool {
    matches!(name.name.as_str(), "." | "..")
}

/// Attributes of the directory itself or of the one above it.
async fn above<V: Vfs>(
    on: &OnDisk<'_, V>,
    dots: &DirName,
    format: DirectoryFormat,
) -> Result<Looked, Failure> {
    let mut node = on.disk.node.clone();
    if dots.name == ".." {
        // The directory above the root of the share is not shown.
        let lookup = on.lookup_once().await;
        node = lookup.ok().and_then(|lookup| lookup.parent).unwrap_or(node);
    }
    let attr = on.vfs().attr(&node).await?;
    let ea_size = match format.has_ea_size() {
        // As for every other entry, an error of the disk does not end the listing.
        true => on.vfs().ea_size(&node, &attr).await.unwrap_or(0),
        false => 0,
    };
    Ok((attr, ea_size))
}

/// Whether the descriptor of an entry grants the user generic read: an entry for which a right is missing is not
/// listed. The inner error is that of the disk for this entry.
async fn visible<V: Vfs>(on: &OnDisk<'_, V>, name: &DirName) -> Result<VfsResult<bool>, Failure> {
    let mut whole = on.server.path_of(on.open)?.to_names();
    whole.push(name.name.clone());
    let (token, vfs) = (on.token()?, on.vfs());
    let Ok(Lookup {
        parent: Some(parent),
        found: Some((node, attr)),
        ..
    }) = vfs.lookup(&token.identity, &whole).await
    else {
        return Ok(Ok(false));
    };
    // Another directory may have the path by now.
    if parent.key() != on.disk.node.key() {
        return Ok(Ok(false));
    }
    Ok(match access::descriptor(vfs, &node, &attr, None).await {
        Ok(sd) => Ok(access::maximal(&sd, &token).contains(AccessMask::FILE_GENERIC_READ)),
        // A descriptor that cannot be understood or read opens nothing, but does not end the listing of the others.
        Err(VfsError::Corrupt | VfsError::AccessDenied) => Ok(false),
        Err(error) => Err(error),
    })
}

/// Writes the short name that a listing shows into `short`: none if the name itself is a valid short name.
fn shorten<V: Vfs>(vfs: &V, name: &str, short: &mut String) {
    short.clear();
    vfs.short_name(name, short);
    if short.eq_ignore_ascii_case(name) {
        short.clear();
    }
}

fn entry<'a>(
    name: &'a DirName,
    short_name: &'a str,
    (attr, ea_size): &Looked,
    index: u32,
) -> DirectoryEntry<&'a str> {
    DirectoryEntry {
        file_index: index,
        creation_time: file_time(attr.created),
        last_access_time: file_time(attr.accessed),
        last_write_time: file_time(attr.written),
        change_time: file_time(attr.changed),
        end_of_file: attr.size,
        allocation_size: attr.allocated,
        file_attributes: smb_wire::file_attributes::FileAttributes(attr.dos_attributes),
        ea_size: *ea_size,
        short_name,
        file_id: attr.file_id,
        file_id_128: u128::from(attr.file_id).to_le_bytes(),
        reparse_tag: 0,
        file_name: &name.name,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        command::park,
        limits::ServerLimits,
        restore::world::{World, came},
    };

    #[test]
    fn a_request_that_waits_for_another_of_its_handle_can_be_cancelled() {
        let world = World::new(false, ServerLimits::default());
        assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
        let open = world.server.durables.take(10).unwrap();
        let call = park::tests::call();
        let mut context = Context::from_waker(Waker::noop());
        let first = open.listing.try_lock().unwrap();
        let mut second = pin!(alone(&call, &open));
        assert!(second.as_mut().poll(&mut context).is_pending());
        call.connection.cancel(call.header.message_id);
        match second.as_mut().poll(&mut context) {
            Poll::Ready(Err(Failure::Status(Status::CANCELLED))) => {}
            _ => panic!("not cancelled"),
        }
        drop(first);
        assert!(pin!(alone(&call, &open)).poll(&mut context).is_ready());
    }
}
