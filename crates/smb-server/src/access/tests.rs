//! Tests of descriptors derived from permission bits, and of adding an entry to them.

use std::sync::Arc;

use smb_wire::dtyp::{Ace, AceFlags, Acl};
use vfs::{Descriptors, Identity, Paths, identity::LocalUser};

use super::{derived::derived_for, unreadable::RIGHTS_OF_OWNERS, *};
use crate::{
    limits::ServerLimits,
    restore::world::{World, run},
};

const BELOW: Option<NewModes> = Some(NewModes {
    file: 0o644,
    directory: 0o755,
});
const FULL: AccessMask = AccessMask::FILE_ALL_ACCESS;

fn of(mode: u32) -> Permissions {
    let (uid, gid) = (1000, 100);
    Permissions { uid, gid, mode }
}

fn rights(sd: &SecurityDescriptor, sids: &[Sid]) -> AccessMask {
    dtyp::maximal_access(sd, sids)
}

/// Bob's "Modify, this folder, subfolders and files".
fn with_bob(mut sd: SecurityDescriptor) -> SecurityDescriptor {
    let bob = Ace::allow(Sid::unix_user(2000), AccessMask(0x0013_01bf), AceFlags(3));
    sd.dacl.as_mut().unwrap().aces.insert(0, bob);
    sd
}

#[test]
fn what_a_directory_passes_on_takes_no_part_in_its_own_rights() {
    for mode in 0..0o1000 {
        let (plain, whole) = (derived(of(mode), None), derived(of(mode), BELOW));
        let mine = [Sid::unix_user(1000), Sid::EVERYONE];
        let in_group = [Sid::unix_group(100), Sid::EVERYONE];
        let effective = &whole.dacl.as_ref().unwrap().aces[..3];
        let only = SecurityDescriptor {
            dacl: Some(Acl::new(effective.to_vec())),
            ..whole.clone()
        };
        for who in [&mine[..], &in_group, &[Sid::EVERYONE]] {
            assert_eq!(rights(&whole, who), rights(&only, who), "{mode:o}");
        }
        assert_eq!(plain.dacl.unwrap().aces.len(), 3);
    }
}

#[test]
fn an_added_entry_takes_nothing_from_who_makes_something() {
    let creator = (Sid::unix_user(3000), Sid::unix_group(300));
    for mode in 0..0o1000 {
        let folder = with_bob(derived(of(mode), BELOW));
        for directory in [false, true] {
            let new = dtyp::inherit(Some(&folder), None, directory, creator.0, creator.1);
            let who = [creator.0, creator.1, Sid::EVERYONE];
            assert_eq!(rights(&new, &who), FULL, "{mode:o}");
            assert!(rights(&new, &[Sid::unix_user(2000)]).contains(AccessMask::FILE_WRITE_DATA));
            // No more rights are given than by the permission bits of the directory and of new files.
            let others = rights(&new, &[Sid::EVERYONE]);
            assert!(!others.contains(AccessMask::FILE_WRITE_DATA), "{mode:o}");
            let reads = others.contains(AccessMask::FILE_READ_DATA);
            assert_eq!(reads, mode & 0o4 != 0, "{mode:o}");
            // The same holds two folders below.
            let deeper = dtyp::inherit(Some(&new), None, true, creator.0, creator.1);
            if directory {
                assert_eq!(rights(&deeper, &who), FULL, "{mode:o}");
            }
        }
    }
}

#[test]
fn group_and_everyone_are_given_what_new_files_would() {
    let team = Some(NewModes {
        file: 0o664,
        directory: 0o775,
    });
    let folder = with_bob(derived(of(0o2777), team));
    let (owner, group) = (Sid::unix_user(3000), Sid::unix_group(100));
    let new = dtyp::inherit(Some(&folder), None, false, owner, group);
    let writes = |who: &[Sid]| rights(&new, who).contains(AccessMask::FILE_WRITE_DATA);
    assert!(writes(&[group, Sid::EVERYONE]) && !writes(&[Sid::EVERYONE]));
}

#[test]
fn what_an_earlier_version_stored_for_an_account_counts_as_what_is_stored_today() {
    let account = Sid::of(5, [21, 1, 2, 3, 1001]);
    let today = derived_for(account, of(0o755), BELOW);
    let mut old = today.clone();
    old.dacl.as_mut().unwrap().aces.truncate(3);
    let completed = |sd: &SecurityDescriptor| derived::completed(sd.clone(), of(0o755), BELOW);
    assert_eq!(completed(&old), today);
    assert_eq!(completed(&today), today);
    // Anything else is as it was set.
    for other in [
        with_bob(old.clone()),
        derived_for(account, of(0o700), BELOW),
    ] {
        assert_eq!(completed(&other), other);
    }
    let file = derived_for(account, of(0o644), None);
    assert_eq!(derived::completed(file.clone(), of(0o644), None), file);
}

#[test]
fn nobody_is_given_what_is_not_his() {
    use SecurityInformation as Part;
    let config = crate::pipe::tests::config();
    let token = Token::guest(&config);
    let sd = |owner, group| SecurityDescriptor {
        owner: Some(owner),
        group: Some(group),
        ..SecurityDescriptor::default()
    };
    let (me, other) = (token.user_sid, Sid::unix_user(9));
    let parts = Part::OWNER | Part::GROUP;
    let may = |old: &SecurityDescriptor, new: &SecurityDescriptor| {
        may_own(old, new, parts, &token, |sid| *sid).is_ok()
    };
    assert!(may(&sd(other, other), &sd(me, me)));
    assert!(may(&sd(other, other), &sd(other, other)));
    assert!(!may(&sd(me, me), &sd(other, me)));
    assert!(!may(&sd(me, me), &sd(me, other)));
    // A SID that clients see as another one still names the same account.
    let same = |_: &Sid| me;
    assert!(may_own(&sd(other, me), &sd(me, me), parts, &token, same).is_ok());
}

#[test]
fn a_group_that_is_its_one_user_is_listed_once() {
    let mut config = ServerConfig {
        switch_identity: true,
        guest_ids: (65_534, 65_534),
        ..crate::pipe::tests::config()
    };
    let bound = [(1000, Some((1000, 100)))];
    config.local_accounts = crate::config::LocalAccounts::of(&config, bound, false);
    let alice = config.machine_sid.child(1000).unwrap();
    let sd = shown(&config, None, derived(of(0o750), BELOW));
    assert_eq!((sd.owner, sd.group), (Some(alice), Some(alice)));
    let aces = sd.dacl.unwrap().aces;
    let hers = |ace: &&Ace| ace.access().unwrap().1 == &alice;
    assert_eq!(aces.iter().filter(hers).count(), 1);
    assert_eq!(aces[0], Ace::allow(alice, FULL, AceFlags::empty()));
    // An entry that was set twice appears twice, and an entry that adds something appears.
    let twice = derived(of(0o570), BELOW);
    assert_eq!(shown(&config, None, twice).dacl.unwrap().aces.len(), 6 - 1);
    // Two entries may together give what a third one would.
    let (read, write) = (AccessMask::FILE_READ_DATA, AccessMask::FILE_WRITE_DATA);
    let part = |mask| Ace::allow(alice, mask, AceFlags::empty());
    let local = Ace::allow(Sid::unix_user(1000), read | write, AceFlags::empty());
    let mut parts = derived(of(0o750), None);
    parts.dacl = Some(Acl::new(vec![part(read), part(write), local]));
    let aces = shown(&config, None, parts).dacl.unwrap().aces;
    assert_eq!(aces, [part(read), part(write)]);
    let mut set = derived(of(0o750), None);
    let entry = Ace::allow(Sid::EVERYONE, FULL, AceFlags::empty());
    set.dacl = Some(Acl::new(vec![entry.clone(), entry]));
    assert_eq!(
        shown(&config, None, set.clone()),
        SecurityDescriptor {
            owner: Some(alice),
            group: Some(alice),
            ..set
        }
    );
}

#[test]
fn a_directory_is_opened_for_reading_only_to_be_listed() {
    let none = IoAccess::default();
    assert_eq!(io_access(AccessMask::FILE_ADD_FILE, true), none);
    assert_eq!(io_access(AccessMask::FILE_ADD_SUBDIRECTORY, true), none);
    let listed = io_access(AccessMask::FILE_LIST_DIRECTORY, true);
    assert!(listed.read && !listed.write);
}

#[test]
fn only_the_owner_on_disk_replaces_a_descriptor_that_cannot_be_read() {
    let world = World::new(false, ServerLimits::default());
    let (shares, me) = (world.server.shares(), Identity::Service);
    let vfs = &*shares.find("data").unwrap().vfs;
    let lookup = run(vfs.lookup(&me, &["f".to_owned()])).unwrap();
    let (node, attr) = lookup.found.unwrap();
    // No descriptor has the revision 0.
    run(vfs.set_security(&me, &node, &[0; 20])).unwrap();
    let subject = Subject {
        vfs,
        node: &node,
        attr: &attr,
        changed: None,
        parent: None,
        ceiling: FULL,
        stream: false,
    };
    let guest = Token::guest(&world.server.config());
    let user = |uid, owns_by_uid| Token {
        identity: Identity::User(Arc::new(LocalUser {
            uid,
            gid: attr.gid,
            groups: Vec::new(),
        })),
        owns_by_uid,
        ..guest.clone()
    };
    let granted = |token: &Token, desired| run(grant(&subject, token, desired)).ok();
    let owner = user(attr.uid, true);
    for desired in [RIGHTS_OF_OWNERS, AccessMask::MAXIMUM_ALLOWED] {
        assert_eq!(granted(&owner, desired), Some(RIGHTS_OF_OWNERS));
    }
    for more in [
        AccessMask::FILE_READ_DATA,
        AccessMask::WRITE_OWNER,
        AccessMask::DELETE,
    ] {
        assert_eq!(granted(&owner, more), None);
    }
    let service = Token {
        identity: Identity::Service,
        ..owner.clone()
    };
    for other in [&user(attr.uid + 1, true), &user(attr.uid, false), &service] {
        assert_eq!(granted(other, AccessMask::READ_CONTROL), None);
    }
    let sd = run(replaceable(vfs, &node, &attr)).unwrap();
    assert_eq!(rights(&sd, &[Sid::EVERYONE]), AccessMask::empty());
    assert_eq!(rights(&sd, &[Sid::unix_user(attr.uid)]), RIGHTS_OF_OWNERS);
}
