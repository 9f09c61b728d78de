//! The identity of a session: names, SIDs for access checks, and the identity on disk.

use std::sync::Arc;

use smb_auth::{UserIdentity, UserStore};
use smb_wire::dtyp::Sid;
use vfs::{Identity, identity::LocalUser};

use crate::{config::ServerConfig, locks::Mutex};

/// The security context of a session. Rebuilt, never patched, when the session authenticates
/// again (CVE-2025-0620: old groups survived).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Account name in the database's spelling; empty for anonymous.
    pub(crate) user: String,
    pub(crate) domain: String,
    pub(crate) user_sid: Sid,
    /// Owner of the objects that the user creates: the user's own SID, or that of the local user whom several accounts
    /// share.
    pub(crate) owner_sid: Sid,
    /// Primary group of the objects that the user creates.
    pub(crate) group_sid: Sid,
    /// Every SID that the access check uses, the user's own first.
    pub(crate) sids: Vec<Sid>,
    /// RIDs of groups in the machine's domain.
    pub(crate) group_rids: Vec<u32>,
    /// Names of groups the user is in.
    pub(crate) groups: Arc<[Box<str>]>,
    /// The identity that the kernel checks.
    pub(crate) identity: Identity,
    /// Whether the uid on disk identifies the owner of what this token creates. Otherwise other accounts have that
    /// uid too, and a stored descriptor names the owner.
    pub(crate) owns_by_uid: bool,
    pub(crate) guest: bool,
    pub(crate) anonymous: bool,
}

/// The identity under which a tree connect acts if it is not the session's user: the share names a local user, or
/// treats anonymous users as guests. It is made again when the session's token changes.
#[derive(Default)]
pub(crate) struct Acting(Mutex<Option<(Arc<Token>, Arc<Token>)>>);

impl Acting {
    /// The token under which the session's `token` acts here, made by `make` on first use.
    pub(crate) fn token(
        &self,
        token: Arc<Token>,
        make: impl FnOnce(&Token) -> Token,
    ) -> Arc<Token> {
        let mut known = self.0.lock();
        match &*known {
            Some((of, acting)) if Arc::ptr_eq(of, &token) => Arc::clone(acting),
            _ => {
                let acting = Arc::new(make(&token));
                *known = Some((token, Arc::clone(&acting)));
                acting
            }
        }
    }
}

/// RID of the built-in guest account.
pub(crate) const GUEST_RID: u32 = 501;
pub(crate) const GUEST_NAME: &str = "guest";

impl Token {
    /// A user of the database.
    pub(crate) fn user(config: &ServerConfig, user: &UserIdentity, users: &dyn UserStore) -> Self {
        let user_sid = account(config, user.rid);
        let own = bound(config, user.uid_gid);
        // Without root all users act under one uid, which cannot distinguish them.
        let together = own.filter(|_| config.switch_identity).map(|(uid, _)| uid);
        let together = together.filter(|uid| config.local_accounts.user(*uid) != Some(user.rid));
        let mut sids = vec![user_sid];
        sids.extend(user.group_rids.iter().map(|rid| account(config, *rid)));
        let (local, gid) = local(config, own);
        sids.extend(local);
        // [MS-DTYP] 2.4.2.4: the authenticated users are the members of BUILTIN\Users.
        sids.extend([Sid::AUTHENTICATED_USERS, Sid::BUILTIN_USERS]);
        Self {
            user: user.name.clone(),
            domain: user.domain.clone(),
            group_sid: Sid::unix_group(gid),
            user_sid,
            owner_sid: together.map_or(user_sid, Sid::unix_user),
            sids,
            group_rids: user.group_rids.clone(),
            groups: (user.group_rids.iter())
                .filter_map(|rid| users.by_rid(*rid))
                .map(|group| group.name.into())
                .collect(),
            identity: identity(config, own),
            owns_by_uid: own.is_some(),
            guest: false,
            anonymous: false,
        }
    }

    /// The same user with another identity on disk, which all users of the share then have.
    pub(crate) fn acting_as(&self, config: &ServerConfig, (uid, gid): (u32, u32)) -> Self {
        let mut sids = self.sids.clone();
        sids.extend([Sid::unix_user(uid), Sid::unix_group(gid)]);
        let groups = local_groups(config, uid).iter();
        sids.extend(groups.map(|gid| Sid::unix_group(*gid)));
        Self {
            owner_sid: Sid::unix_user(uid),
            group_sid: Sid::unix_group(gid),
            sids,
            identity: identity(config, Some((uid, gid))),
            owns_by_uid: true,
            ..self.clone()
        }
    }

    /// The uid and gid that the kernel checks; `None` for those of the service.
    pub(crate) fn local_ids(&self) -> Option<(u32, u32)> {
        match &self.identity {
            Identity::Service => None,
            Identity::User(user) => Some((user.uid, user.gid)),
        }
    }

    /// The guest: a user without an account.
    pub(crate) fn guest(config: &ServerConfig) -> Self {
        let user_sid = account(config, GUEST_RID);
        let (local, gid) = local(config, None);
        let mut sids = vec![user_sid];
        sids.extend(local);
        sids.push(Sid::BUILTIN_GUESTS);
        Self {
            user: GUEST_NAME.to_owned(),
            domain: config.netbios_name.clone(),
            group_sid: Sid::unix_group(gid),
            sids,
            user_sid,
            owner_sid: user_sid,
            group_rids: Vec::new(),
            groups: Arc::default(),
            identity: identity(config, None),
            owns_by_uid: false,
            guest: true,
            anonymous: false,
        }
    }

    /// An anonymous user, who may only list shares. A share that allows guests treats an anonymous user as one.
    pub(crate) fn anonymous(config: &ServerConfig) -> Self {
        Self {
            user: String::new(),
            domain: String::new(),
            user_sid: Sid::ANONYMOUS,
            owner_sid: Sid::ANONYMOUS,
            sids: vec![Sid::ANONYMOUS, Sid::NETWORK],
            guest: false,
            anonymous: true,
            ..Self::guest(config)
        }
    }
}

/// The SID of an account of this machine. A machine SID has room for a RID, or it would not have passed validation.
fn account(config: &ServerConfig, rid: u32) -> Sid {
    config.machine_sid.child(rid).unwrap_or(Sid::NULL)
}

/// Supplementary groups of a local user.
pub(crate) fn local_groups(config: &ServerConfig, uid: u32) -> &[u32] {
    config.local_groups.get(&uid).map_or(&[], Vec::as_slice)
}

/// The uid and gid under which an account bound to `ids` acts. A server that cannot switch identities has only one.
fn bound(config: &ServerConfig, ids: Option<(u32, u32)>) -> Option<(u32, u32)> {
    ids.filter(|(uid, _)| config.switch_identity || *uid == config.guest_ids.0)
}

/// The uid that an account bound to `ids` has for the access check, and its gids, the primary one first.
///
/// The uid of the guest account makes no account an owner. The uid of a server that cannot switch identities makes its
/// accounts owners: otherwise nobody could use files without a descriptor, and new files get one.
pub(crate) fn carried(config: &ServerConfig, ids: Option<(u32, u32)>) -> (Option<u32>, Vec<u32>) {
    let own = bound(config, ids);
    let switched = own.filter(|_| config.switch_identity);
    let (uid, gid) = switched.unwrap_or(config.guest_ids);
    let mut gids = vec![gid];
    gids.extend(local_groups(config, uid));
    let owns = own.is_some() || !config.switch_identity;
    (owns.then_some(uid), gids)
}

/// The SIDs of an account's identity on disk for the access check, and its primary group there; `own` is the
/// binding of the account.
fn local(config: &ServerConfig, own: Option<(u32, u32)>) -> (Vec<Sid>, u32) {
    let (uid, gids) = carried(config, own);
    let mut sids: Vec<Sid> = uid.map(Sid::unix_user).into_iter().collect();
    sids.extend(gids.iter().map(|gid| Sid::unix_group(*gid)));
    sids.extend([Sid::EVERYONE, Sid::NETWORK]);
    (sids, gids.first().copied().unwrap_or(config.guest_ids.1))
}

/// The identity that the kernel checks. An unbound account acts as the service only where identities cannot be
/// switched.
fn identity(config: &ServerConfig, own: Option<(u32, u32)>) -> Identity {
    if !config.switch_identity {
        return Identity::Service;
    }
    let (uid, gid) = own.unwrap_or(config.guest_ids);
    Identity::User(Arc::new(LocalUser {
        uid,
        gid,
        groups: (local_groups(config, uid).iter().copied())
            .filter(|group| *group != gid)
            .collect(),
    }))
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
