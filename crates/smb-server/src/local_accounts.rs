//! Maps local users and groups to accounts, so that one person has one SID.
//!
//! Permission bits name users by uid and gid. If a single account acts as a uid, or has a gid, then that SID
//! (S-1-22-1-UID, S-1-22-2-GID) and the account's mean the same person, and clients see the account's. If several
//! do, clients see the local user or group itself: an entry for one account would leave the others out. Access
//! checks do not need this: a token has both SIDs.

use std::collections::BTreeMap;

use smb_wire::dtyp::Sid;

use crate::{
    config::ServerConfig,
    token::{carried, local_groups},
};

/// RIDs by uid and by gid; `None` if several accounts, or guests, act as it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalAccounts {
    users: BTreeMap<u32, Option<u32>>,
    groups: BTreeMap<u32, Option<u32>>,
}

impl LocalAccounts {
    /// Builds the map from all `accounts`, each given by its RID and the local user it is bound to. `guests` says that
    /// some share admits guests.
    pub fn of(
        config: &ServerConfig,
        accounts: impl IntoIterator<Item = (u32, Option<(u32, u32)>)>,
        guests: bool,
    ) -> Self {
        let mut known = Self::default();
        for (rid, bound) in accounts {
            known.add(config, Some(rid), bound);
        }
        if guests || config.switch_identity {
            known.add(config, None, None);
        }
        known
    }

    fn add(&mut self, config: &ServerConfig, rid: Option<u32>, bound: Option<(u32, u32)>) {
        let one = |map: &mut BTreeMap<u32, Option<u32>>, id| {
            map.entry(id)
                .and_modify(|known| *known = known.filter(|known| Some(*known) == rid))
                .or_insert(rid);
        };
        let (uid, gids) = carried(config, bound);
        uid.into_iter().for_each(|uid| one(&mut self.users, uid));
        gids.into_iter().for_each(|gid| one(&mut self.groups, gid));
    }

    /// RID of the account that alone acts as this uid.
    pub fn user(&self, uid: u32) -> Option<u32> {
        self.users.get(&uid).copied().flatten()
    }

    /// RID of the account that alone has this gid.
    pub fn group(&self, gid: u32) -> Option<u32> {
        self.groups.get(&gid).copied().flatten()
    }
}

/// The SID by which clients see the account that `sid` names.
pub(crate) fn shown(config: &ServerConfig, sid: &Sid) -> Sid {
    let accounts = &config.local_accounts;
    let user = sid.as_unix_user().and_then(|uid| accounts.user(uid));
    let rid = user.or_else(|| sid.as_unix_group().and_then(|gid| accounts.group(gid)));
    rid.and_then(|rid| config.machine_sid.child(rid))
        .unwrap_or(*sid)
}

/// As [`shown`], on a share on which everybody acts as `ids`: there the local user and its groups stand for everybody
/// and for no single account.
pub(crate) fn shown_on(config: &ServerConfig, ids: Option<(u32, u32)>, sid: &Sid) -> Sid {
    let everybodys = ids.is_some_and(|(uid, gid)| {
        let is_one = |group: u32| group == gid || local_groups(config, uid).contains(&group);
        sid.as_unix_user() == Some(uid) || sid.as_unix_group().is_some_and(is_one)
    });
    if everybodys { *sid } else { shown(config, sid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;
    const CAROL: u32 = 1002;

    fn config(
        switch_identity: bool,
        accounts: &[(u32, Option<(u32, u32)>)],
        guests: bool,
    ) -> ServerConfig {
        let mut config = ServerConfig {
            switch_identity,
            guest_ids: (65_534, 65_533),
            local_groups: [(5000, vec![50])].into(),
            ..crate::pipe::tests::config()
        };
        config.local_accounts = LocalAccounts::of(&config, accounts.iter().copied(), guests);
        config
    }

    #[test]
    fn who_alone_acts_as_a_local_user_is_named_in_its_stead() {
        let accounts = [
            (ALICE, Some((5000, 100))),
            (BOB, Some((5001, 100))),
            (CAROL, None),
        ];
        let config = config(true, &accounts, false);
        let account = |rid| config.machine_sid.child(rid).unwrap();
        let is = |sid, expected| assert_eq!(shown(&config, &sid), expected, "{sid}");
        is(Sid::unix_user(5000), account(ALICE));
        is(Sid::unix_user(5001), account(BOB));
        is(Sid::unix_group(50), account(ALICE));
        // Two accounts have this gid.
        is(Sid::unix_group(100), Sid::unix_group(100));
        // The guest account stands for no single person, and no account is bound to root.
        is(Sid::unix_user(65_534), Sid::unix_user(65_534));
        is(Sid::unix_group(65_533), Sid::unix_group(65_533));
        is(Sid::unix_user(0), Sid::unix_user(0));
        is(Sid::EVERYONE, Sid::EVERYONE);
        is(account(CAROL), account(CAROL));
        // Where everybody acts as alice's local user, that user does not stand for her.
        let all = Some((5000, 7));
        for sid in [
            Sid::unix_user(5000),
            Sid::unix_group(7),
            Sid::unix_group(50),
        ] {
            assert_eq!(shown_on(&config, all, &sid), sid);
        }
        let bob = Sid::unix_user(5001);
        assert_eq!(shown_on(&config, all, &bob), account(BOB));
    }

    #[test]
    fn a_local_user_of_several_is_none_of_them() {
        let root = Some((0, 0));
        let config = config(true, &[(ALICE, root), (BOB, root)], false);
        assert_eq!(shown(&config, &Sid::unix_user(0)), Sid::unix_user(0));
    }

    #[test]
    fn an_unprivileged_server_is_its_one_account() {
        let own = Sid::unix_user(65_534);
        let (alone, guests) = (config(false, &[(ALICE, None)], false), true);
        assert_eq!(shown(&alone, &own), alone.machine_sid.child(ALICE).unwrap());
        for config in [
            config(false, &[(ALICE, None)], guests),
            config(false, &[(ALICE, None), (BOB, Some((65_534, 0)))], false),
        ] {
            assert_eq!(shown(&config, &own), own);
        }
    }
}
