//! srvsvc for the server's administrators ([MS-SRVS] 3.1.4.1 to 3.1.4.6): sessions, opens and connections to shares,
//! and their end. Everybody else is refused, as on Windows.
//!
//! The number of an open has 31 bits here, the lowest of its FileId, because Samba's `net` shows and reads it with a
//! sign. If two have the same, neither is found.

use std::collections::BTreeMap;

use bytes::BytesMut;
use smb_auth::fold_name;
use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    rpc::{
        activity::{
            ActivityRequest, EntryMember, Listing, encode_ended, encode_enumeration, encode_info,
            entry_bytes,
        },
        srvsvc::{Stype, Win32Error},
    },
};

use super::world::World;
use crate::administration::{OpenReport, Report, SessionReport, Target};

/// Most bytes of entries in an answer, whatever the client prefers; it asks for the others by the resume handle
/// (docs/protocol-notes.md, "Enumerations of srvsvc above 1 MiB").
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest name of a computer, user, share or path in a request, in UTF-16 units without its NUL ([MS-SRVS] 3.1.4.1).
const NAME_UNITS_MAX: usize = 1023;

/// SESS_GUEST ([MS-SRVS] 2.2.2.3).
const SESSION_OF_GUEST: u32 = 1;

/// PERM_FILE_READ, _WRITE and _CREATE ([MS-SRVS] 2.2.4.7) are these rights of the open ([MS-SMB2] 3.3.4.20).
const PERMISSIONS: u32 = AccessMask::FILE_READ_DATA.bits()
    | AccessMask::FILE_WRITE_DATA.bits()
    | AccessMask::FILE_APPEND_DATA.bits();

type Entry = Vec<EntryMember<'static>>;

/// Every place of a list; `None` is one that the client does not ask for.
type Places = Result<Vec<Option<Entry>>, Win32Error>;

pub(super) fn answer(world: &World, request: &ActivityRequest) -> BytesMut {
    let activity = world.activity.as_deref().ok_or(Win32Error::ACCESS_DENIED);
    match request {
        ActivityRequest::ConnectionEnum { qualifier, listing } => page(
            listing,
            activity.and_then(|all| connections(world, all, qualifier, listing.level)),
        ),
        ActivityRequest::FileEnum {
            base_path,
            user_name,
            listing,
        } => page(
            listing,
            activity.and_then(|all| files(all, base_path, user_name, listing.level)),
        ),
        ActivityRequest::FileGetInfo { file_id, level } => {
            let entry = activity.and_then(|all| {
                known(*level, &FILE_LEVELS)?;
                let open = numbered(all, *file_id).ok_or(Win32Error::FILE_NOT_FOUND)?;
                Ok(of_open(open, *level))
            });
            encode_info(*level, entry)
        }
        ActivityRequest::FileClose { file_id } => encode_ended(activity.and_then(|all| {
            let open = numbered(all, *file_id).ok_or(Win32Error::NERR_FILE_ID_NOT_FOUND)?;
            world.ends.borrow_mut().push(Target::Open(open.id));
            Ok(())
        })),
        ActivityRequest::SessionEnum {
            client_name,
            user_name,
            listing,
        } => page(
            listing,
            activity.and_then(|all| sessions(world, all, client_name, user_name, listing.level)),
        ),
        ActivityRequest::SessionDel {
            client_name,
            user_name,
        } => encode_ended(activity.and_then(|all| {
            let ended = ending(world, all, client_name, user_name)?;
            world.ends.borrow_mut().extend(ended);
            Ok(())
        })),
    }
}

/// The entries after the resume handle, as far as they fit. The handle is the place of the last entry returned, counted
/// from 1 over the whole list.
fn page(listing: &Listing, places: Places) -> BytesMut {
    let places = match places {
        Ok(places) => places,
        Err(error) => return encode_enumeration(listing, None, 0, 0, error),
    };
    let from = size(listing.resume_handle.unwrap_or(0));
    let room = size(listing.prefered_maximum_length).min(ANSWER_BYTES_MAX);
    let left = (1..).zip(places).skip(from);
    let left: Vec<(u32, Entry)> = left.filter_map(|(at, one)| Some((at, one?))).collect();
    let total = left.len();
    let mut last = listing.resume_handle.unwrap_or(0);
    let mut entries = Vec::new();
    let mut bytes = 0;
    for (place, entry) in left {
        bytes += entry_bytes(&entry);
        if bytes > room {
            break;
        }
        last = place;
        entries.push(entry);
    }
    let (next, result) = if entries.len() == total {
        (0, Win32Error::SUCCESS)
    } else if entries.is_empty() {
        (last, Win32Error::NERR_BUF_TOO_SMALL)
    } else {
        (last, Win32Error::MORE_DATA)
    };
    encode_enumeration(listing, Some(&entries), total, next, result)
}

fn known(level: u32, levels: &[u32]) -> Result<(), Win32Error> {
    match levels.contains(&level) {
        true => Ok(()),
        false => Err(Win32Error::INVALID_LEVEL),
    }
}

fn bounded(name: &str) -> Result<(), Win32Error> {
    match name.encode_utf16().count() <= NAME_UNITS_MAX {
        true => Ok(()),
        false => Err(Win32Error::INVALID_PARAMETER),
    }
}

fn text(text: &str) -> EntryMember<'static> {
    EntryMember::Text(text.to_owned().into())
}

fn number(count: u64) -> EntryMember<'static> {
    EntryMember::Number(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A session, and its first connection.
struct Seen<'a> {
    session: &'a SessionReport,
    /// The client's address; empty if the connection is lost.
    client: String,
    /// The age of the connection.
    seconds: u64,
}

fn seen<'a>(world: &'a World, all: &'a Report) -> impl Iterator<Item = Seen<'a>> {
    all.sessions.iter().map(move |session| {
        let first = all.first_connection(session);
        Seen {
            session,
            client: first.map_or_else(String::new, |one| one.peer.ip().to_canonical().to_string()),
            seconds: first.map_or(0, |one| world.seconds_since(one.since)),
        }
    })
}

/// Selects the sessions of a computer and of a user; an empty name selects all.
fn of(
    client: &str,
    user: &str,
    no_computer: Win32Error,
) -> Result<impl Fn(&Seen<'_>) -> bool, Win32Error> {
    bounded(client)?;
    bounded(user)?;
    let client = match client {
        "" => None,
        client => Some(client.strip_prefix(r"\\").ok_or(no_computer)?),
    };
    let user = (!user.is_empty()).then(|| fold_name(user));
    Ok(move |seen: &Seen<'_>| {
        client.is_none_or(|client| seen.client.eq_ignore_ascii_case(client))
            && user
                .as_ref()
                .is_none_or(|user| fold_name(&seen.session.user) == *user)
    })
}

const SESSION_LEVELS: [u32; 5] = [0, 1, 2, 10, 502];

fn sessions(world: &World, all: &Report, client: &str, user: &str, level: u32) -> Places {
    known(level, &SESSION_LEVELS)?;
    let wanted = of(client, user, Win32Error::NERR_INVALID_COMPUTER)?;
    let places: Vec<_> = seen(world, all)
        .map(|seen| wanted(&seen).then(|| of_session(&seen, level)))
        .collect();
    let none = places.iter().all(Option::is_none);
    if none && !client.is_empty() {
        return Err(Win32Error::NERR_CLIENT_NAME_NOT_FOUND);
    }
    if none && !user.is_empty() {
        return Err(Win32Error::NERR_USER_NOT_FOUND);
    }
    Ok(places)
}

/// [MS-SMB2] 3.3.4.18. The time that a session is idle is not measured, and the transport has no name.
fn of_session(seen: &Seen<'_>, level: u32) -> Entry {
    let session = seen.session;
    let mut entry = vec![text(&seen.client)];
    if level == 0 {
        return entry;
    }
    entry.push(text(&session.user));
    let times = [seen.seconds, 0].map(number);
    if level == 10 {
        entry.extend(times);
        return entry;
    }
    entry.push(number(session.open_count as u64));
    entry.extend(times);
    let flags = if session.guest { SESSION_OF_GUEST } else { 0 };
    entry.push(EntryMember::Number(flags));
    if level != 1 {
        entry.push(text(""));
    }
    if level == 502 {
        entry.push(text(""));
    }
    entry
}

fn ending(
    world: &World,
    all: &Report,
    client: &str,
    user: &str,
) -> Result<Vec<Target>, Win32Error> {
    if client.is_empty() && user.is_empty() {
        return Err(Win32Error::INVALID_PARAMETER);
    }
    let wanted = of(client, user, Win32Error::NERR_CLIENT_NAME_NOT_FOUND)?;
    let found = seen(world, all).filter(wanted);
    let ended: Vec<_> = found.map(|seen| Target::Session(seen.session.id)).collect();
    if ended.is_empty() {
        return Err(Win32Error::NERR_CLIENT_NAME_NOT_FOUND);
    }
    Ok(ended)
}

const FILE_LEVELS: [u32; 2] = [2, 3];

fn files(all: &Report, base: &str, user: &str, level: u32) -> Places {
    known(level, &FILE_LEVELS)?;
    bounded(base)?;
    bounded(user)?;
    let (base, user) = (base.to_uppercase(), fold_name(user));
    let wanted = |open: &OpenReport| {
        is_below(&path(open).to_uppercase(), &base)
            && (user.is_empty() || fold_name(&open.user) == user)
    };
    Ok(all
        .opens()
        .map(|open| wanted(open).then(|| of_open(open, level)))
        .collect())
}

/// Whether the path begins with the whole components of `base`.
fn is_below(path: &str, base: &str) -> bool {
    let whole = |rest: &str| rest.is_empty() || rest.starts_with('\\');
    base.is_empty()
        || path
            .strip_prefix(base)
            .is_some_and(|rest| base.ends_with('\\') || whole(rest))
}

/// The path of an open in the form in which shares have theirs, or that of a pipe.
fn path(open: &OpenReport) -> String {
    let (share, path) = (&open.share, &open.path);
    match &**share {
        "IPC$" => format!(r"\PIPE\{path}"),
        _ => format!(r"C:\{share}\{path}"),
    }
}

fn file_id(open: &OpenReport) -> u32 {
    u32::try_from(open.id & 0x7fff_ffff).unwrap_or(0)
}

fn numbered(all: &Report, id: u32) -> Option<&OpenReport> {
    let mut found = all.opens().filter(|open| file_id(open) == id);
    let open = found.next()?;
    found.next().is_none().then_some(open)
}

fn of_open(open: &OpenReport, level: u32) -> Entry {
    let mut entry = vec![EntryMember::Number(file_id(open))];
    if level == 3 {
        entry.push(EntryMember::Number(open.access & PERMISSIONS));
        entry.push(number(open.locks));
        entry.extend([text(&path(open)), text(&open.user)]);
    }
    entry
}

/// Lists tree connects: each is a connection of a session to a share.
fn connections(world: &World, all: &Report, qualifier: &str, level: u32) -> Places {
    known(level, &[0, 1])?;
    bounded(qualifier)?;
    if qualifier.is_empty() {
        return Err(Win32Error::INVALID_PARAMETER);
    }
    let computer = qualifier.strip_prefix(r"\\");
    let share = qualifier.to_uppercase();
    let mut places = Vec::new();
    for seen in seen(world, all) {
        let session = seen.session;
        // A session may have a thousand tree connects and ten thousand opens.
        let mut opens_on: BTreeMap<&str, u64> = BTreeMap::new();
        for open in &session.opens {
            *opens_on.entry(&open.share).or_default() += 1;
        }
        for tree in &session.trees {
            // The entry names the other side than the qualifier does ([MS-SRVS] 2.2.4.2).
            let (wanted, name) = match computer {
                Some(computer) => (seen.client.eq_ignore_ascii_case(computer), tree),
                None => (tree.to_uppercase() == share, &seen.client),
            };
            let id = number(places.len() as u64 + 1);
            places.push(wanted.then(|| {
                let mut entry = vec![id];
                if level == 1 {
                    let kind = Stype::IPC.when(tree == "IPC$");
                    let opens = opens_on.get(tree.as_str()).copied().unwrap_or(0);
                    let users = 1;
                    let numbers = [kind.bits().into(), opens, users, seen.seconds];
                    entry.extend(numbers.map(number));
                    entry.extend([text(&session.user), text(name)]);
                }
                entry
            }));
        }
    }
    Ok(places)
}

#[cfg(test)]
#[path = "activity_tests.rs"]
mod tests;
