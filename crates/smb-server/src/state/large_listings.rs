//! Permits of users to list large directories.
//!
//! A listing takes memory before it is known how much, and so before any can be charged to the server's budget; and a
//! user may have thousands of connections. Each user therefore lists only a few large directories at once. Each share
//! counts apart, so that one whose disk hangs delays no other.
//!
//! Bounded by the users whose listings are under way or wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use tokio::sync::Semaphore;

use crate::{file::CountedUser, limits::LARGE_LISTINGS_PER_USER_MAX, locks::Mutex};

/// The permits of each user of a share, by the share's number.
#[derive(Debug, Default)]
pub(crate) struct LargeListings(Mutex<BTreeMap<(CountedUser, u32), Weak<Semaphore>>>);

impl LargeListings {
    /// The permits of a user of this share.
    pub(crate) fn of(&self, user: CountedUser, share: u32) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        all.retain(|_, permits| permits.strong_count() > 0);
        let known = all.get(&(user, share)).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let permits = Arc::new(Semaphore::new(LARGE_LISTINGS_PER_USER_MAX));
            all.insert((user, share), Arc::downgrade(&permits));
            permits
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_permits_on_each_share() {
        let listings = LargeListings::default();
        let take = |user, share| listings.of(CountedUser(user), share).try_acquire_owned();
        let taken: Vec<_> = (0..LARGE_LISTINGS_PER_USER_MAX)
            .map(|_| take(1, 1).unwrap())
            .collect();
        assert!(take(1, 1).is_err());
        assert!(take(1, 2).is_ok() && take(2, 1).is_ok());
        drop(taken);
        assert!(take(1, 1).is_ok());
        drop(listings.of(CountedUser(3), 1));
        assert_eq!(listings.0.lock().len(), 1, "and forgets all others");
    }
}
