//! Names and SIDs ([MS-LSAT] 3.1.1): the machine's own domain, BUILTIN, well-known ones, and
//! the two authorities for UNIX ids.
//!
//! Names compare without case. The host is not queried: the name of a UNIX id is that of the account it stands for, or
//! else its number.

use smb_auth::Account;
use smb_wire::{dtyp::Sid, rpc::lsarpc::SidNameUse};

use super::world::World;
use crate::{
    local_accounts,
    token::{GUEST_NAME, GUEST_RID},
};

/// RID of the group every local user is a member of, called "None" as on Windows.
pub(super) const NONE_RID: u32 = 513;
const NONE_NAME: &str = "None";

/// Aliases of BUILTIN that this server has.
pub(super) const BUILTIN_ALIASES: [(u32, &str); 3] =
    [(544, "Administrators"), (545, "Users"), (546, "Guests")];

/// Aliases of BUILTIN ([MS-DTYP] 2.4.2.4) that nobody is a member of here. They are looked up but not listed, because
/// only lists that were copied from a Windows machine name them.
const FOREIGN_ALIASES: [(u32, &str); 9] = [
    (547, "Power Users"),
    (548, "Account Operators"),
    (549, "Server Operators"),
    (550, "Print Operators"),
    (551, "Backup Operators"),
    (552, "Replicator"),
    (555, "Remote Desktop Users"),
    (568, "IIS_IUSRS"),
    (578, "Hyper-V Administrators"),
];

const BUILTIN_NAME: &str = "BUILTIN";
const UNIX_USER: &str = "Unix User";
const UNIX_GROUP: &str = "Unix Group";
const NT_AUTHORITY: &str = "NT AUTHORITY";

/// Well-known SIDs ([MS-LSAT] 3.1.1.1.1): the number of the authority, that of the account, and the name. They can be
/// entries of any list that was copied from a Windows machine.
const WELL_KNOWN: [(u64, u32, &str); 27] = [
    (0, 0, "NULL SID"),
    (1, 0, "Everyone"),
    (2, 0, "LOCAL"),
    (3, 0, "CREATOR OWNER"),
    (3, 1, "CREATOR GROUP"),
    (3, 2, "CREATOR OWNER SERVER"),
    (3, 3, "CREATOR GROUP SERVER"),
    (3, 4, "OWNER RIGHTS"),
    (5, 1, "DIALUP"),
    (5, 2, "NETWORK"),
    (5, 3, "BATCH"),
    (5, 4, "INTERACTIVE"),
    (5, 6, "SERVICE"),
    (5, 7, "ANONYMOUS LOGON"),
    (5, 8, "PROXY"),
    (5, 9, "ENTERPRISE DOMAIN CONTROLLERS"),
    (5, 10, "SELF"),
    (5, 11, "Authenticated Users"),
    (5, 12, "RESTRICTED"),
    (5, 13, "TERMINAL SERVER USER"),
    (5, 14, "REMOTE INTERACTIVE LOGON"),
    (5, 15, "This Organization"),
    (5, 18, "SYSTEM"),
    (5, 19, "LOCAL SERVICE"),
    (5, 20, "NETWORK SERVICE"),
    (5, 33, "WRITE RESTRICTED"),
    (5, 1000, "Other Organization"),
];

/// A name and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Domain or authority, by name and SID.
    pub(super) domain: (String, Sid),
    /// Name within the domain; empty for the domain itself.
    pub(super) name: String,
    pub(super) sid: Sid,
    pub(super) kind: SidNameUse,
}

fn builtin() -> (String, Sid) {
    (BUILTIN_NAME.to_owned(), Sid::BUILTIN)
}

/// The kind of an account: groups here are local groups.
pub(super) fn kind(account: &Account) -> SidNameUse {
    if account.group {
        SidNameUse::ALIAS
    } else {
        SidNameUse::USER
    }
}

/// An account of the machine's domain by its relative id.
pub(super) fn account_of(world: &World, rid: u32) -> Option<(String, SidNameUse)> {
    match rid {
        NONE_RID => Some((NONE_NAME.to_owned(), SidNameUse::GROUP)),
        GUEST_RID => Some((GUEST_NAME.to_owned(), SidNameUse::USER)),
        rid => {
            let account = world.accounts()?.by_rid(rid)?;
            Some((account.name.clone(), kind(&account)))
        }
    }
}

/// An account of the machine's domain by its name: relative id and kind.
pub(super) fn account_named(world: &World, name: &str) -> Option<(u32, SidNameUse)> {
    if let Some(account) = world.accounts().and_then(|users| users.by_name(name)) {
        return Some((account.rid, kind(&account)));
    }
    if name.eq_ignore_ascii_case(NONE_NAME) {
        return Some((NONE_RID, SidNameUse::GROUP));
    }
    let is_guest = name.eq_ignore_ascii_case(GUEST_NAME);
    is_guest.then_some((GUEST_RID, SidNameUse::USER))
}

fn aliases() -> impl Iterator<Item = (u32, &'static str)> {
    BUILTIN_ALIASES.into_iter().chain(FOREIGN_ALIASES)
}

pub(super) fn builtin_named(name: &str) -> Option<u32> {
    let found = aliases().find(|(_, alias)| alias.eq_ignore_ascii_case(name));
    found.map(|(rid, _)| rid)
}

pub(super) fn builtin_of(rid: u32) -> Option<&'static str> {
    let found = aliases().find(|(known, _)| *known == rid);
    found.map(|(_, name)| name)
}

/// The object that a SID stands for.
pub(super) fn of_sid(world: &World, sid: &Sid) -> Option<Found> {
    let sid = &local_accounts::shown(&world.config, sid);
    let found = |domain, name, kind| Found {
        domain,
        name,
        sid: *sid,
        kind,
    };
    let known = &world.config.machine_sid;
    let domain = (world.config.netbios_name.clone(), *known);
    if sid == known {
        return Some(found(domain, String::new(), SidNameUse::DOMAIN));
    }
    if *sid == Sid::BUILTIN {
        return Some(found(builtin(), String::new(), SidNameUse::DOMAIN));
    }
    if let Some(rid) = sid.rid_in(known) {
        let (name, kind) = account_of(world, rid)?;
        return Some(found(domain, name, kind));
    }
    if let Some(rid) = sid.rid_in(&Sid::BUILTIN) {
        let name = builtin_of(rid)?.to_owned();
        return Some(found(builtin(), name, SidNameUse::ALIAS));
    }
    if let Some(uid) = sid.as_unix_user() {
        let domain = (UNIX_USER.to_owned(), Sid::UNIX_USERS);
        return Some(found(domain, uid.to_string(), SidNameUse::USER));
    }
    if let Some(gid) = sid.as_unix_group() {
        let domain = (UNIX_GROUP.to_owned(), Sid::UNIX_GROUPS);
        return Some(found(domain, gid.to_string(), SidNameUse::GROUP));
    }
    WELL_KNOWN
        .into_iter()
        .find(|(authority, account, _)| Sid::of(*authority, [*account]) == *sid)
        .map(well_known)
}

/// The name of the authority of well-known SIDs; only one has any.
fn authority_name(authority: u64) -> &'static str {
    match authority {
        5 => NT_AUTHORITY,
        _ => "",
    }
}

fn well_known((authority, account, name): (u64, u32, &str)) -> Found {
    let domain = authority_name(authority).to_owned();
    Found {
        domain: (domain, Sid::of(authority, [])),
        name: name.to_owned(),
        sid: Sid::of(authority, [account]),
        kind: SidNameUse::WELL_KNOWN_GROUP,
    }
}

/// The object that a name stands for: `name`, `DOMAIN\name` or the name of a domain ([MS-LSAT] 3.1.4.5).
pub(super) fn of_name(world: &World, text: &str) -> Option<Found> {
    match text.split_once('\\') {
        Some((domain, name)) if !name.is_empty() => qualified(world, domain, name),
        Some((domain, _)) => of_domain(world, domain),
        None => bare(world, text),
    }
}

fn of_domain(world: &World, name: &str) -> Option<Found> {
    if name.eq_ignore_ascii_case(&world.config.netbios_name) {
        return of_sid(world, &world.config.machine_sid);
    }
    // The empty name also stands for BUILTIN, as on Windows.
    match name.is_empty() || name.eq_ignore_ascii_case(BUILTIN_NAME) {
        true => of_sid(world, &Sid::BUILTIN),
        false => None,
    }
}

/// Well-known names first, then domains, then accounts ([MS-LSAT] 3.1.4.5).
fn bare(world: &World, name: &str) -> Option<Found> {
    WELL_KNOWN
        .into_iter()
        .find(|(_, _, known)| known.eq_ignore_ascii_case(name))
        .map(well_known)
        .or_else(|| of_domain(world, name))
        .or_else(|| local(world, name))
        .or_else(|| in_builtin(world, name))
}

fn local(world: &World, name: &str) -> Option<Found> {
    let (rid, _) = account_named(world, name)?;
    of_sid(world, &world.config.machine_sid.child(rid)?)
}

fn in_builtin(world: &World, name: &str) -> Option<Found> {
    of_sid(world, &Sid::BUILTIN.child(builtin_named(name)?)?)
}

fn qualified(world: &World, domain: &str, name: &str) -> Option<Found> {
    let is = |other: &str| domain.eq_ignore_ascii_case(other);
    if is(&world.config.netbios_name) {
        return local(world, name);
    }
    if is(BUILTIN_NAME) {
        return in_builtin(world, name);
    }
    if is(UNIX_USER) {
        let sid = Sid::unix_user(name.parse().ok()?);
        return of_sid(world, &sid);
    }
    if is(UNIX_GROUP) {
        let sid = Sid::unix_group(name.parse().ok()?);
        return of_sid(world, &sid);
    }
    WELL_KNOWN
        .into_iter()
        .find(|(authority, _, known)| {
            is(authority_name(*authority)) && known.eq_ignore_ascii_case(name)
        })
        .map(well_known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::tests::world;

    #[test]
    fn well_known_names_and_sids_stand_for_each_other() {
        let world = world(false);
        for (authority, account, name) in WELL_KNOWN {
            let sid = Sid::of(authority, [account]);
            let found = of_sid(&world, &sid).unwrap();
            assert_eq!(found.name, name);
            assert_eq!(found.kind, SidNameUse::WELL_KNOWN_GROUP);
            assert_eq!(of_name(&world, name), Some(found.clone()));
            let qualified = format!(r"{}\{name}", found.domain.0);
            assert_eq!(of_name(&world, &qualified), Some(found));
        }
        let service = of_sid(&world, &Sid::of(5, [20])).unwrap();
        assert_eq!(service.name, "NETWORK SERVICE");
        let authority = ("NT AUTHORITY".to_owned(), Sid::of(5, []));
        assert_eq!(service.domain, authority);
    }

    #[test]
    fn aliases_of_windows_are_known_by_name_and_sid() {
        let world = world(false);
        let sid = Sid::BUILTIN.child(551).unwrap();
        let found = of_sid(&world, &sid).unwrap();
        assert_eq!((&found.name[..], found.sid), ("Backup Operators", sid));
        for text in ["backup operators", r"BUILTIN\Backup Operators"] {
            assert_eq!(of_name(&world, text), Some(found.clone()), "{text}");
        }
        assert_eq!(of_sid(&world, &Sid::BUILTIN.child(553).unwrap()), None);
    }
}
