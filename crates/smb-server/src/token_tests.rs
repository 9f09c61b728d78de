//! Tests of the identities that the kernel and the access check use for a token.

use smb_auth::{MachineSid, UserDb};
use smb_wire::{access_mask::AccessMask, dtyp::SecurityDescriptor};
use vfs::Permissions;

use super::*;
use crate::access;

const GUEST: (u32, u32) = (65_534, 65_533);
const ALICE: (u32, u32) = (12_345, 12_400);

fn config(switch_identity: bool) -> ServerConfig {
    ServerConfig {
        switch_identity,
        guest_ids: GUEST,
        local_groups: [(ALICE.0, vec![50]), (GUEST.0, vec![60])].into(),
        ..crate::pipe::tests::config()
    }
}

fn account_of(rid: u32, uid_gid: Option<(u32, u32)>) -> UserIdentity {
    UserIdentity {
        name: format!("user-{rid}"),
        domain: String::new(),
        rid,
        group_rids: Vec::new(),
        uid_gid,
    }
}

fn token(config: &ServerConfig, rid: u32, uid_gid: Option<(u32, u32)>) -> Token {
    let users = UserDb::new(MachineSid([1, 2, 3]));
    Token::user(config, &account_of(rid, uid_gid), &users)
}

fn on_disk(token: &Token) -> Option<(u32, u32, Vec<u32>)> {
    match &token.identity {
        Identity::Service => None,
        Identity::User(user) => Some((user.uid, user.gid, user.groups.clone())),
    }
}

fn of(ids: (u32, u32), mode: u32) -> Permissions {
    let (uid, gid) = ids;
    Permissions { uid, gid, mode }
}

fn may_write(sd: &SecurityDescriptor, token: &Token) -> bool {
    access::maximal(sd, token).contains(AccessMask::FILE_WRITE_DATA)
}

#[test]
fn nobody_is_the_service_where_identities_are_switched() {
    let config = config(true);
    let guest = Some((GUEST.0, GUEST.1, vec![60]));
    assert_eq!(on_disk(&token(&config, 1001, None)), guest);
    assert_eq!(on_disk(&Token::guest(&config)), guest);
    assert_eq!(on_disk(&Token::anonymous(&config)), guest);
    let alice = token(&config, 1000, Some(ALICE));
    assert_eq!(on_disk(&alice), Some((ALICE.0, ALICE.1, vec![50])));
    // Only an account that is bound to root is root.
    let root = token(&config, 1002, Some((0, 0)));
    assert_eq!(on_disk(&root), Some((0, 0, vec![])));
    for token in [Token::guest(&config), token(&config, 1001, None)] {
        assert!(!token.sids.contains(&Sid::unix_user(0)));
        assert!(!token.sids.contains(&Sid::unix_group(0)));
    }
}

#[test]
fn the_uid_of_the_guest_account_makes_nobody_an_owner() {
    let config = config(true);
    let (bob, carol) = (token(&config, 1001, None), token(&config, 1002, None));
    for token in [&bob, &carol, &Token::guest(&config)] {
        assert!(!token.sids.contains(&Sid::unix_user(GUEST.0)));
        assert!(!token.owns_by_uid);
        let lies_there = access::derived(of(GUEST, 0o644), None);
        assert!(!may_write(&lies_there, token));
    }
    let bobs = access::effective(bob.user_sid, of(GUEST, 0o644), false);
    assert!(may_write(&bobs, &bob) && !may_write(&bobs, &carol));
    // The access follows the permission bits.
    let open = access::effective(bob.user_sid, of(GUEST, 0o664), false);
    assert!(may_write(&open, &carol));
}

#[test]
fn accounts_of_an_unprivileged_server_own_what_they_make() {
    let config = config(false);
    // A binding to another uid cannot be obeyed.
    let (bob, carol) = (
        token(&config, 1001, None),
        token(&config, 1002, Some(ALICE)),
    );
    for token in [&bob, &carol] {
        assert_eq!(on_disk(token), None);
        assert!(!token.owns_by_uid);
        // Files without a descriptor belong to everybody, as the owner's bits allow.
        let lies_there = |mode| access::derived(of(GUEST, mode), None);
        assert!(may_write(&lies_there(0o600), token));
        assert!(!may_write(&lies_there(0o444), token));
    }
    let bobs = access::effective(bob.user_sid, of(GUEST, 0o644), false);
    assert!(may_write(&bobs, &bob) && !may_write(&bobs, &carol));
    // An account bound to the server's own uid owns the server's files.
    let own = token(&config, 1003, Some(GUEST));
    assert!(own.owns_by_uid && on_disk(&own).is_none());
}

#[test]
fn everybody_is_one_where_a_share_names_its_owner() {
    for switch in [true, false] {
        let config = config(switch);
        let ids = if switch { ALICE } else { GUEST };
        let token = Arc::new(token(&config, 1001, None));
        let acting = Acting::default();
        let make = |token: &Token| token.acting_as(&config, ids);
        let there = acting.token(Arc::clone(&token), make);
        assert!(there.owns_by_uid);
        assert!(may_write(&access::derived(of(ids, 0o600), None), &there));
        let expected = switch.then_some((ALICE.0, ALICE.1, vec![50]));
        assert_eq!(on_disk(&there), expected);
        // The acting token is made once for each session token.
        let again = acting.token(token, make);
        assert!(Arc::ptr_eq(&there, &again));
    }
}

/// A token is rebuilt from the account as it is: nothing of an earlier one remains.
#[test]
fn groups_are_those_of_the_account_as_it_is_now() {
    let config = config(true);
    let mut users = UserDb::new(MachineSid([1, 2, 3]));
    let rid = users.add_user("dora").unwrap();
    users.add_group("staff").unwrap();
    let staff = account(&config, users.group("staff").unwrap().rid);
    let now = |users: &UserDb| {
        let user = users.user("dora").unwrap();
        let identity = UserIdentity {
            name: user.name.clone(),
            domain: String::new(),
            rid,
            group_rids: user.group_rids.clone(),
            uid_gid: user.uid_gid,
        };
        Token::user(&config, &identity, users)
    };
    let for_staff = access::effective(staff, of((0, 0), 0o600), false);
    assert!(!may_write(&for_staff, &now(&users)));
    users.add_member("staff", "dora").unwrap();
    assert!(may_write(&for_staff, &now(&users)));
    assert_eq!(now(&users).groups.len(), 1);
    users.remove_member("staff", "dora").unwrap();
    assert!(!may_write(&for_staff, &now(&users)));
    assert_eq!(now(&users).groups.len(), 0);
}

/// An account that takes the name of a removed one is another account.
#[test]
fn an_account_of_the_same_name_is_another() {
    let config = config(true);
    let mut users = UserDb::new(MachineSid([1, 2, 3]));
    let old = users.add_user("dora").unwrap();
    users.remove_user("dora").unwrap();
    let new = users.add_user("dora").unwrap();
    let (old, new) = (token(&config, old, None), token(&config, new, None));
    assert_ne!(old.user_sid, new.user_sid);
    let hers = access::effective(old.user_sid, of(GUEST, 0o600), false);
    assert!(may_write(&hers, &old) && !may_write(&hers, &new));
}

#[test]
fn users_are_in_builtin_users_and_guests_are_not() {
    let config = config(true);
    let user = token(&config, 1000, Some(ALICE));
    assert!(user.sids.contains(&Sid::BUILTIN_USERS));
    let acting = user.acting_as(&config, (1, 1));
    assert!(acting.sids.contains(&Sid::BUILTIN_USERS));
    for other in [Token::guest(&config), Token::anonymous(&config)] {
        assert!(!other.sids.contains(&Sid::BUILTIN_USERS));
    }
}
