//! The local users: their ids, and the groups of those to which accounts are bound.
//!
//! Reads `/etc/passwd` and `/etc/group`, as the C library does for `files`. Users of other sources
//! (LDAP, SSSD) are not found: they can be named by their ids, and act only with their primary
//! group. The files are read at start and at reload, never for a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
};

use crate::config::LocalIds;

/// The most bytes read of either file; the rest is ignored.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most groups of one user: NGROUPS_MAX of Linux.
const GROUPS_MAX: usize = 65_536;

/// Uid and primary group of the user `name`.
pub fn ids_of(name: &str) -> Option<LocalIds> {
    accounts(&read("/etc/passwd"))
        .find(|(known, _)| *known == name)
        .map(|(_, ids)| ids)
}

/// The primary group of the user `uid`.
pub fn primary_group(uid: u32) -> Option<u32> {
    accounts(&read("/etc/passwd"))
        .find(|(_, ids)| ids.uid == uid)
        .map(|(_, ids)| ids.gid)
}

/// Name and numbers of each line of passwd(5) that has them: `name:password:uid:gid:...`.
fn accounts(users: &str) -> impl Iterator<Item = (&str, LocalIds)> {
    users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?);
        let ids = format!("{uid}:{}", fields.next()?).parse().ok()?;
        (!name.is_empty()).then_some((name, ids))
    })
}

/// Supplementary groups of each of `uids` that has any.
pub fn of(uids: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Vec<u32>> {
    let uids: BTreeSet<u32> = uids.into_iter().collect();
    if uids.is_empty() {
        return BTreeMap::new();
    }
    let (users, groups) = (read("/etc/passwd"), read("/etc/group"));
    find(&uids, &users, &groups)
}

fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    let opened = File::open(path);
    if let Err(error) = opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
        tracing::warn!(%error, path, "this file cannot be read: users act on disk without the groups of /etc/group");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// group(5): `name:password:gid:member,member`. Invalid lines are skipped, as the C library does.
fn find(uids: &BTreeSet<u32>, users: &str, groups: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, LocalIds { uid, .. }) in accounts(users) {
        if uids.contains(&uid) {
            names.entry(name).or_insert(uid);
        }
    }
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for line in groups.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, gid, members] = fields[..] else {
            continue;
        };
        let Ok(gid) = gid.parse::<u32>() else {
            continue;
        };
        for member in members.split(',') {
            if let Some(uid) = names.get(member.trim()) {
                let list = found.entry(*uid).or_default();
                if gid != u32::MAX && !list.contains(&gid) && list.len() < GROUPS_MAX {
                    list.push(gid);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name() {
        let users = "root:x:0:0::/root:/bin/sh\nbroken:x:1\nnone:x:none:1:\n:x:5:5:\n\
                     nobody:x:65534:65533:nobody:/:/bin/false\n";
        let found: Vec<_> = accounts(users).collect();
        let (nobody, root) = (
            LocalIds {
                uid: 65_534,
                gid: 65_533,
            },
            LocalIds { uid: 0, gid: 0 },
        );
        assert_eq!(found, [("root", root), ("nobody", nobody)]);
        assert_eq!(ids_of("no such user"), None);
    }

    #[test]
    fn members_are_found_by_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n\
                     broken\nbob:x:none:1:\n+nis\ncarol:x:1002:1002::/:/bin/sh\n";
        let groups = "staff:x:50:alice,bob\naudio:x:29:carol, alice\nbroken:x\n\
                      twice:x:50:alice\nempty:x:51:\nnobody:x:4294967295:alice\n";
        let uids = [1000, 1001].into();
        let expected = [(1000, vec![50, 29])].into();
        assert_eq!(find(&uids, users, groups), expected);
        assert_eq!(of([]), BTreeMap::new());
    }
}
