//! Which groups the local users have that accounts are bound to.
//!
//! Reads `/etc/passwd` (a uid's name) and `/etc/group` (the groups that list the name), as the C
//! library does for `files`. Users of other sources (LDAP, SSSD) are not found: they act with
//! their primary group alone. Read at start and at reload, never on the way of a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::Path,
};

/// Most bytes read of either file; what lies beyond is not seen.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most groups of one user: NGROUPS_MAX of Linux.
const GROUPS_MAX: usize = 65_536;

/// Supplementary groups of each of `uids` that has any.
#[must_use]
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
    let opened = File::open(Path::new(path));
    if let Err(error) = opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
        tracing::warn!(%error, path, "supplementary groups are not known");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// passwd(5): `name:password:uid:gid:...`; group(5): `name:password:gid:member,member`. Lines
/// that are neither are passed over, as the C library does.
fn find(uids: &BTreeSet<u32>, users: &str, groups: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    for line in users.lines() {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next(), fields.nth(1));
        if let (Some(name), Some(Ok(uid))) = (name, uid.map(str::parse))
            && uids.contains(&uid)
            && !name.is_empty()
        {
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
