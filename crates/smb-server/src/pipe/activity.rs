//! srvsvc for the server's administrators ([MS-SRVS] 3.1.4.1 to 3.1.4.6): sessions, opens and connections to shares,
//! and their end. Everybody else is refused, as on Windows.
//!
//! The number of an open has 32 bits here, the low half of its FileId. If two have the same, neither is found.

use bytes::BytesMut;
use smb_auth::fold_name;
use smb_wire::{
    access_mask::AccessMask,
    codec::size,
    rpc::{
        activity::{
            ActivityRequest, EntryMember, Listing, encode_ended, encode_enumeration,
            encode_file_info, entry_bytes,
        },
        srvsvc::{Stype, Win32Error},
    },
};

use super::world::{Activity, EndRequest, SeenOpen, SeenSession, SeenTree, World};

/// Most bytes of entries in an answer, whatever the client prefers; it asks for the others by the resume handle.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest name of a computer, user, share or path in a request, in UTF-16 units without its NUL ([MS-SRVS] 3.1.4.1).
const NAME_UNITS_MAX: usize = 1023;

/// SESS_GUEST ([MS-SRVS] 2.2.2.3).
const SESSION_OF_GUEST: u32 = 1;

/// PERM_FILE_READ, _WRITE and _CREATE ([MS-SRVS] 2.2.4.7) are these rights of the open ([MS-SMB2] 3.3.4.20).
const PERMISSIONS: u32 = AccessMask::FILE_READ_DATA.bits()
    | AccessMask::FILE_WRITE_DATA.bits()
    | AccessMask::FILE_APPEND_DATA.bits();

type Entry = Vec<EntryMember>;

/// Every place of a list; `None` is one that the client does not ask for.
type Places = Result<Vec<Option<Entry>>, Win32Error>;

pub(super) fn answer(world: &World, request: &ActivityRequest) -> BytesMut {
    let activity = world.activity.as_deref().ok_or(Win32Error::ACCESS_DENIED);
    match request {
        ActivityRequest::ConnectionEnum { qualifier, listing } => page(
            listing,
            activity.and_then(|all| connections(all, qualifier, listing.level)),
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
            encode_file_info(*level, entry.as_deref().map_err(|error| *error))
        }
        ActivityRequest::FileClose { file_id } => encode_ended(activity.and_then(|all| {
            let open = numbered(all, *file_id).ok_or(Win32Error::NERR_FILE_ID_NOT_FOUND)?;
            world.ends.borrow_mut().push(EndRequest::Open(open.id));
            Ok(())
        })),
        ActivityRequest::SessionEnum {
            client_name,
            user_name,
            listing,
        } => page(
            listing,
            activity.and_then(|all| sessions(all, client_name, user_name, listing.level)),
        ),
        ActivityRequest::SessionDel {
            client_name,
            user_name,
        } => encode_ended(activity.and_then(|all| {
            let ids = ending(all, client_name, user_name)?;
            let ids = ids.into_iter().map(EndRequest::Session);
            world.ends.borrow_mut().extend(ids);
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

fn text(text: &str) -> EntryMember {
    EntryMember::Text(text.to_owned())
}

/// Selects the sessions of a computer and of a user; an empty name selects all.
fn of(
    client: &str,
    user: &str,
    no_computer: Win32Error,
) -> Result<impl Fn(&SeenSession) -> bool, Win32Error> {
    bounded(client)?;
    bounded(user)?;
    let client = match client {
        "" => None,
        client => Some(client.strip_prefix(r"\\").ok_or(no_computer)?),
    };
    let user = (!user.is_empty()).then(|| fold_name(user));
    Ok(move |session: &SeenSession| {
        client.is_none_or(|client| session.client.eq_ignore_ascii_case(client))
            && user
                .as_ref()
                .is_none_or(|user| fold_name(&session.user) == *user)
    })
}

const SESSION_LEVELS: [u32; 5] = [0, 1, 2, 10, 502];

fn sessions(all: &Activity, client: &str, user: &str, level: u32) -> Places {
    known(level, &SESSION_LEVELS)?;
    let wanted = of(client, user, Win32Error::NERR_INVALID_COMPUTER)?;
    let sessions = all.sessions.iter();
    let places: Vec<_> = sessions
        .map(|session| wanted(session).then(|| of_session(session, level)))
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
fn of_session(session: &SeenSession, level: u32) -> Entry {
    let mut entry = vec![text(&session.client)];
    if level == 0 {
        return entry;
    }
    entry.push(text(&session.user));
    let times = [session.seconds, 0].map(EntryMember::Number);
    if level == 10 {
        entry.extend(times);
        return entry;
    }
    entry.push(EntryMember::Number(session.opens));
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

fn ending(all: &Activity, client: &str, user: &str) -> Result<Vec<u64>, Win32Error> {
    if client.is_empty() && user.is_empty() {
        return Err(Win32Error::INVALID_PARAMETER);
    }
    let wanted = of(client, user, Win32Error::NERR_CLIENT_NAME_NOT_FOUND)?;
    let found = all.sessions.iter().filter(|&session| wanted(session));
    let ids: Vec<u64> = found.map(|session| session.id).collect();
    if ids.is_empty() {
        return Err(Win32Error::NERR_CLIENT_NAME_NOT_FOUND);
    }
    Ok(ids)
}

const FILE_LEVELS: [u32; 2] = [2, 3];

fn files(all: &Activity, base: &str, user: &str, level: u32) -> Places {
    known(level, &FILE_LEVELS)?;
    bounded(base)?;
    bounded(user)?;
    let (base, user) = (base.to_uppercase(), fold_name(user));
    let wanted = |open: &SeenOpen| {
        is_below(&open.path.to_uppercase(), &base)
            && (user.is_empty() || fold_name(&open.user) == user)
    };
    let opens = all.opens.iter();
    Ok(opens
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

fn number(open: &SeenOpen) -> u32 {
    u32::try_from(open.id & u64::from(u32::MAX)).unwrap_or(0)
}

fn numbered(all: &Activity, id: u32) -> Option<&SeenOpen> {
    let mut found = all.opens.iter().filter(|open| number(open) == id);
    let open = found.next()?;
    found.next().is_none().then_some(open)
}

fn of_open(open: &SeenOpen, level: u32) -> Entry {
    let mut entry = vec![EntryMember::Number(number(open))];
    if level == 3 {
        entry.push(EntryMember::Number(open.access & PERMISSIONS));
        entry.push(EntryMember::Number(open.locks));
        entry.extend([text(&open.path), text(&open.user)]);
    }
    entry
}

/// Lists tree connects: each is a connection of a session to a share.
fn connections(all: &Activity, qualifier: &str, level: u32) -> Places {
    known(level, &[0, 1])?;
    bounded(qualifier)?;
    if qualifier.is_empty() {
        return Err(Win32Error::INVALID_PARAMETER);
    }
    let computer = qualifier.strip_prefix(r"\\");
    let share = qualifier.to_uppercase();
    let pairs = all.sessions.iter().flat_map(|session| {
        let trees = session.trees.iter();
        trees.map(move |tree| (session, tree))
    });
    let place = |(id, (session, tree)): (u32, (&SeenSession, &SeenTree))| {
        // The entry names the other side than the qualifier does ([MS-SRVS] 2.2.4.2).
        let (wanted, name) = match computer {
            Some(computer) => (
                session.client.eq_ignore_ascii_case(computer),
                text(&tree.share),
            ),
            None => (tree.share.to_uppercase() == share, text(&session.client)),
        };
        let entry = || {
            let mut entry = vec![EntryMember::Number(id)];
            if level == 1 {
                let kind = Stype::IPC.when(tree.share == "IPC$");
                let users = 1;
                let numbers = [kind.bits(), tree.opens, users, session.seconds];
                entry.extend(numbers.map(EntryMember::Number));
                entry.extend([text(&session.user), name]);
            }
            entry
        };
        wanted.then(entry)
    };
    Ok((1..).zip(pairs).map(place).collect())
}

#[cfg(test)]
#[path = "activity_tests.rs"]
mod tests;
