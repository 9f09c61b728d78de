//! samr ([MS-SAMR] 3.1.5): lists and looks up accounts of the machine's domain and of BUILTIN.
//!
//! Read-only, and only for users with an account of their own. Passwords are never returned.

use std::collections::BTreeSet;

use bytes::BytesMut;
use smb_auth::Account;
use smb_wire::{
    dtyp::Sid,
    ids::FileTime,
    rpc::{
        ContextHandle, FaultStatus,
        samr::{
            DomainFacts, Enumerated, SamrCall, SamrRequest, SidNameUse, UserInfo,
            encode_alias_membership, encode_connect5, encode_enumerate, encode_groups_for_user,
            encode_handle, encode_lookup_domain, encode_lookup_ids, encode_lookup_names,
            encode_password_rules, encode_query_display, encode_query_domain, encode_query_user,
        },
    },
    status::Status,
};

use super::{
    handles::{Handles, Object},
    lsarpc::opened_or,
    names::{self, BUILTIN_ALIASES, NONE_RID},
    services::Answer,
    world::World,
};

/// Entries of one reply of a listing; the rest comes with the next call.
const PAGE: usize = 500;

/// STATUS_MORE_ENTRIES (docs/protocol-notes.md, "Lists of users that are cut").
const MORE_ENTRIES: Status = Status(0x0000_0105);

/// USER_NORMAL_ACCOUNT, USER_ACCOUNT_DISABLED ([MS-SAMR] 2.2.1.12).
const NORMAL_ACCOUNT: u32 = 0x10;
const ACCOUNT_DISABLED: u32 = 0x01;

pub(super) fn answer(world: &World, handles: &mut Handles, request: SamrRequest) -> Answer {
    Ok(match request {
        SamrRequest::Connect => opened_or(connect(world, handles)),
        SamrRequest::Connect5 => match connect(world, handles) {
            Ok(handle) => encode_connect5(&handle, Status::SUCCESS),
            Err(status) => encode_connect5(&ContextHandle::default(), status),
        },
        // [MS-SAMR] 3.1.5.13.4: the rules of the machine's domain, for everybody who may connect.
        SamrRequest::DomainPasswordRules => match world.may_enumerate() {
            true => encode_password_rules(0, Status::SUCCESS),
            false => encode_password_rules(0, Status::ACCESS_DENIED),
        },
        SamrRequest::On(handle, call) => return on(world, handles, &handle, call),
    })
}

/// The calls on open objects.
fn on(world: &World, handles: &mut Handles, handle: &ContextHandle, call: SamrCall) -> Answer {
    Ok(match call {
        SamrCall::Close => {
            handles.close(handle)?;
            encode_handle(&ContextHandle::default(), Status::SUCCESS)
        }
        SamrCall::LookupDomain(name) => {
            handles.check(handle, Object::Server)?;
            encode_lookup_domain(domain_named(world, &name).as_ref())
        }
        SamrCall::OpenDomain(sid) => {
            handles.check(handle, Object::Server)?;
            let known = sid == world.config.machine_sid || sid == Sid::BUILTIN;
            let checked = Status::NO_SUCH_DOMAIN.when(!known);
            opened_or(checked.and_then(|()| handles.open(Object::Domain(sid))))
        }
        SamrCall::QueryDomain(class) => {
            let domain = domain(handles, handle)?;
            encode_query_domain(class, &facts(world, &domain))
        }
        SamrCall::Enumerate { what, context } => {
            let from = usize::try_from(context).unwrap_or(usize::MAX);
            page(entries(world, handles, handle, what, from)?, from)
        }
        SamrCall::AliasMembership(sids) => {
            let domain = domain(handles, handle)?;
            encode_alias_membership(&aliases_of(world, &domain, &sids))
        }
        SamrCall::LookupNames(names) => {
            let domain = domain(handles, handle)?;
            let found: Vec<_> = names.iter().map(|one| named(world, &domain, one)).collect();
            encode_lookup_names(&found)
        }
        SamrCall::LookupIds(rids) => {
            let domain = domain(handles, handle)?;
            let found: Vec<_> = rids.iter().map(|id| of_rid(world, &domain, *id)).collect();
            encode_lookup_ids(&found)
        }
        SamrCall::OpenUser(rid) => {
            let domain = domain(handles, handle)?;
            let known = domain == world.config.machine_sid && user(world, rid).is_ok();
            let checked = Status::NO_SUCH_USER.when(!known);
            opened_or(checked.and_then(|()| handles.open(Object::User(rid))))
        }
        SamrCall::QueryUser(class) => {
            // The account may have been removed since it was opened.
            let user = user(world, open_user(handles, handle)?);
            encode_query_user(class, user.as_ref().map_err(|status| *status))
        }
        SamrCall::GroupsForUser => {
            let rid = open_user(handles, handle)?;
            let account = world.users.by_rid(rid).filter(|account| !account.group);
            let mut rids = vec![NONE_RID];
            rids.extend(account.into_iter().flat_map(|account| account.group_rids));
            encode_groups_for_user(&rids)
        }
        SamrCall::UserPasswordRules => {
            let user = user(world, open_user(handles, handle)?);
            encode_password_rules(0, user.err().unwrap_or(Status::SUCCESS))
        }
        SamrCall::QueryDisplay {
            class,
            index,
            count,
        } => {
            let domain = domain(handles, handle)?;
            let (users, status) = display(world, &domain, index, count);
            encode_query_display(class, index, &users, status)
        }
    })
}

/// The users from an entry on, and whether there are more.
fn display(world: &World, domain: &Sid, index: u32, count: u32) -> (Vec<UserInfo>, Status) {
    let from = usize::try_from(index).unwrap_or(usize::MAX);
    let most = usize::try_from(count).unwrap_or(usize::MAX).min(PAGE);
    let mut users = if *domain == world.config.machine_sid {
        world.users.users(from, most + 1)
    } else {
        Vec::new()
    };
    // A client that asks for no entries gets none, so it must not ask for more for ever.
    let status = if most > 0 && users.len() > most {
        MORE_ENTRIES
    } else {
        Status::SUCCESS
    };
    users.truncate(most);
    (users.iter().map(info).collect(), status)
}

fn connect(world: &World, handles: &mut Handles) -> Result<ContextHandle, Status> {
    Status::ACCESS_DENIED.when(!world.may_enumerate())?;
    handles.open(Object::Server)
}

fn domain(handles: &Handles, handle: &ContextHandle) -> Result<Sid, FaultStatus> {
    match handles.get(handle) {
        Some(Object::Domain(sid)) => Ok(sid),
        _ => Err(FaultStatus::CONTEXT_MISMATCH),
    }
}

fn open_user(handles: &Handles, handle: &ContextHandle) -> Result<u32, FaultStatus> {
    match handles.get(handle) {
        Some(Object::User(rid)) => Ok(rid),
        _ => Err(FaultStatus::CONTEXT_MISMATCH),
    }
}

/// [MS-SAMR] 3.1.5.5.1: the machine's domain has the one group that each user belongs to, and its own groups are
/// aliases.
fn facts<'a>(world: &'a World, domain: &Sid) -> DomainFacts<'a> {
    let config = &world.config;
    let (name, [users, groups, aliases]) = match *domain == Sid::BUILTIN {
        true => ("Builtin", [0, 0, BUILTIN_ALIASES.len()]),
        false => {
            let users = world.users.users(0, usize::MAX).len();
            let aliases = world.users.groups(0, usize::MAX).len();
            (&*config.netbios_name, [users, 1, aliases])
        }
    };
    DomainFacts {
        name,
        server: &config.netbios_name,
        comment: &config.comment,
        users,
        groups,
        aliases,
    }
}

fn domain_named(world: &World, name: &str) -> Option<Sid> {
    if name.eq_ignore_ascii_case(&world.config.netbios_name) {
        Some(world.config.machine_sid)
    } else {
        name.eq_ignore_ascii_case("BUILTIN").then_some(Sid::BUILTIN)
    }
}

/// [MS-SAMR] 3.1.5.9.2: the aliases of a domain that any of the accounts is a member of. Of BUILTIN these are Users,
/// which every user of the machine's domain belongs to.
fn aliases_of(world: &World, domain: &Sid, sids: &[Sid]) -> Vec<u32> {
    let rids = sids
        .iter()
        .filter_map(|sid| sid.rid_in(&world.config.machine_sid));
    let accounts = rids.filter_map(|rid| world.users.by_rid(rid));
    let mut users = accounts.filter(|account| !account.group).peekable();
    if *domain == Sid::BUILTIN {
        let is_user = sids.contains(&Sid::AUTHENTICATED_USERS) || users.peek().is_some();
        let rid = Sid::BUILTIN_USERS.rid_in(domain);
        return rid.filter(|_| is_user).into_iter().collect();
    }
    let aliases: BTreeSet<u32> = users.flat_map(|account| account.group_rids).collect();
    aliases.into_iter().collect()
}

fn named(world: &World, domain: &Sid, name: &str) -> Option<(u32, SidNameUse)> {
    if *domain == Sid::BUILTIN {
        return names::builtin_named(name).map(|rid| (rid, SidNameUse::ALIAS));
    }
    names::account_named(world, name)
}

fn of_rid(world: &World, domain: &Sid, rid: u32) -> Option<(String, SidNameUse)> {
    if *domain == Sid::BUILTIN {
        return names::builtin_of(rid).map(|name| (name.to_owned(), SidNameUse::ALIAS));
    }
    names::account_of(world, rid)
}

/// The entries of a listing without the first `from`; more than a page holds shows that more follow.
fn entries(
    world: &World,
    handles: &Handles,
    handle: &ContextHandle,
    what: Enumerated,
    from: usize,
) -> Result<Vec<(u32, String)>, FaultStatus> {
    let few = |all: Vec<(u32, String)>| all.into_iter().skip(from).collect();
    if what == Enumerated::Domains {
        handles.check(handle, Object::Server)?;
        return Ok(few(vec![
            (0, world.config.netbios_name.clone()),
            (0, "Builtin".to_owned()),
        ]));
    }
    let builtin = domain(handles, handle)? == Sid::BUILTIN;
    let pairs = |accounts: Vec<Account>| {
        let all = accounts.into_iter();
        all.map(|account| (account.rid, account.name)).collect()
    };
    Ok(match what {
        Enumerated::Aliases if builtin => {
            let aliases = BUILTIN_ALIASES.into_iter();
            few(aliases.map(|(rid, name)| (rid, name.to_owned())).collect())
        }
        _ if builtin => Vec::new(),
        Enumerated::Users => pairs(world.users.users(from, PAGE + 1)),
        Enumerated::Aliases => pairs(world.users.groups(from, PAGE + 1)),
        Enumerated::Groups | Enumerated::Domains => {
            let none = names::account_of(world, NONE_RID);
            few(none.map(|(name, _)| (NONE_RID, name)).into_iter().collect())
        }
    })
}

/// [MS-SAMR] 3.1.5.2.2: the context of a listing is the number of entries already returned.
fn page(mut entries: Vec<(u32, String)>, from: usize) -> BytesMut {
    let more = entries.len() > PAGE;
    entries.truncate(PAGE);
    if more {
        let next = u32::try_from(from + entries.len()).unwrap_or(u32::MAX);
        encode_enumerate(next, &entries, MORE_ENTRIES)
    } else {
        encode_enumerate(0, &entries, Status::SUCCESS)
    }
}

fn user(world: &World, rid: u32) -> Result<UserInfo, Status> {
    let account = world.users.by_rid(rid).filter(|account| !account.group);
    account.as_ref().map(info).ok_or(Status::NO_SUCH_USER)
}

fn info(account: &Account) -> UserInfo {
    let disabled = u32::from(account.disabled) * ACCOUNT_DISABLED;
    UserInfo {
        rid: account.rid,
        primary_group_rid: NONE_RID,
        user_name: account.name.clone(),
        full_name: account.full_name.clone(),
        account_control: NORMAL_ACCOUNT | disabled,
        password_last_set: match i64::try_from(account.password_set) {
            Ok(0) | Err(_) => FileTime::ZERO,
            Ok(seconds) => FileTime::from_unix(seconds, 0),
        },
    }
}
