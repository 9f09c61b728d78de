//! Counts the opens in total and for each user, over all sessions and connections.
//!
//! Every open costs the server a descriptor, and a second one from its first write on. A place is taken before a
//! CREATE begins and released when the open is closed or the CREATE fails, so no count ever exceeds its limit.
//! Unless an administrator has set a limit for each user, a user may have half of the places that are free, so that
//! others always find some left.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, MutexGuard},
};

use smb_auth::limiter::network;
use smb_wire::dtyp::Sid;

use crate::{limits::Limits, locks::Mutex, token::Token};

/// The identity that counts as one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OpenUser {
    /// A user with an account.
    User(Sid),
    /// Guests and anonymous users, by their address (IPv6: /64).
    Address(IpAddr),
}

impl OpenUser {
    /// The user that a token from `peer` counts as.
    pub(crate) fn of(token: &Token, peer: IpAddr) -> Self {
        if token.guest || token.anonymous {
            Self::Address(network(peer))
        } else {
            Self::User(token.user_sid)
        }
    }
}

/// The places.
#[derive(Debug, Default)]
pub(crate) struct Opens(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    all: usize,
    of: BTreeMap<OpenUser, (Arc<OpenUser>, usize)>,
}

impl Opens {
    /// A place for one more open; `None` if there is none left for this user.
    pub(crate) fn enter(self: &Arc<Self>, who: OpenUser, limits: &Limits) -> Option<OpenPlace> {
        let mut places = self.lock();
        let mine = places.of.get(&who).map_or(0, |(_, mine)| *mine);
        let free = limits.opens.checked_sub(places.all)?;
        let most = limits.opens_per_user.unwrap_or((free + mine) / 2);
        (free > 0 && mine < most).then(|| self.take(&mut places, who))
    }

    /// A place for an open restored from an earlier run; it is counted regardless of the limits.
    pub(crate) fn enter_again(self: &Arc<Self>, who: OpenUser) -> OpenPlace {
        self.take(&mut self.lock(), who)
    }

    fn take(self: &Arc<Self>, places: &mut Places, who: OpenUser) -> OpenPlace {
        places.all += 1;
        let new = || (Arc::new(who), 0);
        let (who, mine) = places.of.entry(who).or_insert_with(new);
        *mine += 1;
        OpenPlace {
            opens: Arc::clone(self),
            who: Arc::clone(who),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock()
    }
}

/// The place of one open, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenPlace {
    opens: Arc<Opens>,
    who: Arc<OpenUser>,
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        let mut places = self.opens.lock();
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

    fn user(rid: u32) -> OpenUser {
        OpenUser::User(Sid::unix_user(rid))
    }

    fn limits(opens: usize, opens_per_user: Option<usize>) -> Limits {
        Limits {
            opens,
            opens_per_user,
            ..Limits::default()
        }
    }

    fn all_of(opens: &Arc<Opens>, who: OpenUser, limits: &Limits) -> Vec<OpenPlace> {
        std::iter::from_fn(|| opens.enter(who, limits)).collect()
    }

    #[test]
    fn each_user_takes_half_of_what_is_free_to_him() {
        let (opens, limits) = (Arc::new(Opens::default()), limits(1024, None));
        let first = all_of(&opens, user(1), &limits);
        assert_eq!(first.len(), 512);
        let second = all_of(&opens, user(2), &limits);
        assert_eq!(second.len(), 256);
        let guest = OpenUser::Address([127, 0, 0, 1].into());
        assert_eq!(all_of(&opens, guest, &limits).len(), 128);
        assert_eq!(opens.len(), 512 + 256, "and gave them back");
        drop(first);
        assert_eq!(all_of(&opens, user(3), &limits).len(), 384);
        drop(second);
        assert_eq!(opens.len(), 0);
        assert!(opens.lock().of.is_empty());
    }

    #[test]
    fn an_administrator_says_how_many_one_user_may_have() {
        let (opens, limits) = (Arc::new(Opens::default()), limits(10, Some(8)));
        let first = all_of(&opens, user(1), &limits);
        let second = all_of(&opens, user(2), &limits);
        assert_eq!((first.len(), second.len()), (8, 2));
        // Restored opens are counted even above the limit.
        let again = opens.enter_again(user(2));
        assert!(opens.enter(user(2), &limits).is_none());
        drop(second);
        assert_eq!(opens.len(), 9);
        drop(again);
        assert!(opens.enter(user(3), &limits).is_some());
    }
}
