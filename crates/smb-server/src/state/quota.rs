//! Counts the places that a user holds in a table of the server (its opens or its sessions), over all connections.
//!
//! A place is taken before a CREATE or a login ends and released when the open or the session ends, so no count ever
//! exceeds its limit. (An open costs the server a descriptor, and a second one from its first write on.) Unless an
//! administrator has set a limit for each user, a user may have half of the places that are free, so that others always
//! find some left.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
    sync::Arc,
};

use smb_auth::limiter::network;
use smb_wire::dtyp::Sid;

use crate::{file::CountedUser, locks::Mutex, token::Token};

/// The identity that counts as one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum QuotaUser {
    /// A user with an account.
    User(Sid),
    /// Guests and anonymous users, by their address (IPv6: /64).
    Address(IpAddr),
}

impl QuotaUser {
    /// The user that a token from `peer` counts as.
    pub(crate) fn of(token: &Token, peer: IpAddr) -> Self {
        if token.guest || token.anonymous {
            Self::Address(network(peer))
        } else {
            Self::User(token.user_sid)
        }
    }

    /// The user as the file engine counts it.
    pub(crate) fn counted(&self) -> CountedUser {
        let mut user = DefaultHasher::new();
        self.hash(&mut user);
        CountedUser(user.finish())
    }
}

/// The places of one table.
#[derive(Debug, Default)]
pub(crate) struct Quota(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: BTreeMap<QuotaUser, (Arc<QuotaUser>, usize)>,
}

impl Quota {
    /// Takes one of at most `all` places, of which a user gets `each` or half of those free; `None` if there is none.
    pub(crate) fn enter(
        self: &Arc<Self>,
        who: QuotaUser,
        all: usize,
        each: Option<usize>,
    ) -> Option<QuotaPlace> {
        let mut places = self.0.lock();
        let mine = places.of.get(&who).map_or(0, |(_, mine)| *mine);
        let free = all.checked_sub(places.all)?;
        let most = each.unwrap_or((free + mine) / 2);
        (free > 0 && mine < most).then(|| self.take(&mut places, who))
    }

    /// A place for an open restored from an earlier run; it is counted regardless of the limits.
    pub(crate) fn enter_again(self: &Arc<Self>, who: QuotaUser) -> QuotaPlace {
        self.take(&mut self.0.lock(), who)
    }

    fn take(self: &Arc<Self>, places: &mut Taken, who: QuotaUser) -> QuotaPlace {
        places.all += 1;
        let new = || (Arc::new(who), 0);
        let (who, mine) = places.of.entry(who).or_insert_with(new);
        *mine += 1;
        QuotaPlace {
            places: Arc::clone(self),
            who: Arc::clone(who),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().all
    }
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct QuotaPlace {
    places: Arc<Quota>,
    who: Arc<QuotaUser>,
}

impl QuotaPlace {
    /// The user who has the place.
    pub(crate) fn who(&self) -> QuotaUser {
        *self.who
    }
}

impl Drop for QuotaPlace {
    fn drop(&mut self) {
        let mut places = self.places.0.lock();
        places.all -= 1;
        if let Some((_, mine)) = places.of.get_mut(&*self.who) {
            *mine -= 1;
            if *mine == 0 {
                places.of.remove(&*self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::ServerLimits, restore::world::World};

    #[test]
    fn guests_count_by_their_address_and_users_wherever_they_are() {
        let world = World::new(false, ServerLimits::default());
        let mut owner = Token::guest(&world.server.config());
        let of = |owner: &Token, last: u8| QuotaUser::of(owner, [127, 0, 0, last].into()).counted();
        assert_eq!(of(&owner, 1), of(&owner, 1));
        assert_ne!(of(&owner, 1), of(&owner, 2));
        owner.guest = false;
        assert_eq!(of(&owner, 1), of(&owner, 2));
    }

    fn user(rid: u32) -> QuotaUser {
        QuotaUser::User(Sid::unix_user(rid))
    }

    fn all_of(
        opens: &Arc<Quota>,
        who: QuotaUser,
        all: usize,
        each: Option<usize>,
    ) -> Vec<QuotaPlace> {
        std::iter::from_fn(|| opens.enter(who, all, each)).collect()
    }

    #[test]
    fn each_user_takes_half_of_what_is_free_to_him() {
        let opens = Arc::new(Quota::default());
        let taken = |who| all_of(&opens, who, 1024, None);
        let first = taken(user(1));
        assert_eq!(first.len(), 512);
        let second = taken(user(2));
        assert_eq!(second.len(), 256);
        let guest = QuotaUser::Address([127, 0, 0, 1].into());
        assert_eq!(taken(guest).len(), 128);
        assert_eq!(opens.len(), 512 + 256, "and gave them back");
        drop(first);
        assert_eq!(taken(user(3)).len(), 384);
        drop(second);
        assert_eq!(opens.len(), 0);
        assert!(opens.0.lock().of.is_empty());
    }

    #[test]
    fn an_administrator_says_how_many_one_user_may_have() {
        let opens = Arc::new(Quota::default());
        let first = all_of(&opens, user(1), 10, Some(8));
        let second = all_of(&opens, user(2), 10, Some(8));
        assert_eq!((first.len(), second.len()), (8, 2));
        // Restored opens are counted even above the limit.
        let again = opens.enter_again(user(2));
        assert!(opens.enter(user(2), 10, Some(8)).is_none());
        drop(second);
        assert_eq!(opens.len(), 9);
        drop(again);
        assert!(opens.enter(user(3), 10, Some(8)).is_some());
    }
}
