//! Turns of users in listing large directories.
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

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use vfs::{VfsError, VfsResult};

use crate::{
    file::CountedUser,
    limits::{DIRECTORY_NAMES_MAX, LARGE_LISTINGS_PER_USER_MAX, SMALL_DIRECTORY_NAMES},
    locks::Mutex,
};

/// A user of a share, given by its number.
type SharesUser = (CountedUser, u32);

/// The permits of each user of a share.
#[derive(Debug, Default)]
pub(crate) struct LargeListings(Mutex<BTreeMap<SharesUser, Weak<Semaphore>>>);

/// The result of a listing, and the permit for that of a large directory, to be held until its memory is charged.
pub(crate) type Permitted<T> = (T, Option<OwnedSemaphorePermit>);

impl LargeListings {
    fn of(&self, user: SharesUser) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        all.retain(|_, permits| permits.strong_count() > 0);
        all.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
            let permits = Arc::new(Semaphore::new(LARGE_LISTINGS_PER_USER_MAX));
            all.insert(user, Arc::downgrade(&permits));
            permits
        })
    }

    /// Calls `list` with the most names that it may return: first as for a small directory, and for a larger one again
    /// when the user has a permit, if the client `is_there` still.
    ///
    /// # Errors
    /// Those of `list`, of which `TooLarge` means that there are more names; `Exhausted` for a client that is gone.
    pub(crate) async fn list<T>(
        &self,
        user: SharesUser,
        is_there: impl Fn() -> bool,
        list: impl AsyncFn(usize) -> VfsResult<T>,
    ) -> VfsResult<Permitted<T>> {
        match list(SMALL_DIRECTORY_NAMES).await {
            Err(VfsError::TooLarge) => {}
            listed => return Ok((listed?, None)),
        }
        // The semaphore is never closed, so this waits until there is a permit.
        let permit = self.of(user).acquire_owned().await.ok();
        if !is_there() {
            return Err(VfsError::Exhausted);
        }
        Ok((Box::pin(list(DIRECTORY_NAMES_MAX)).await?, permit))
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_user_lists_so_many_large_directories_at_once() {
        let listings = LargeListings::default();
        let begin = |user, names| {
            let list = async |most: usize| match names <= most {
                true => Ok(names),
                false => Err(VfsError::TooLarge),
            };
            let mut listing = Box::pin(listings.list((CountedUser(user), 1), || true, list));
            let mut context = Context::from_waker(Waker::noop());
            match listing.as_mut().poll(&mut context) {
                Poll::Ready(listed) => Some(listed),
                Poll::Pending => None,
            }
        };
        let large = SMALL_DIRECTORY_NAMES + 1;
        let permits = (0..LARGE_LISTINGS_PER_USER_MAX).map(|_| begin(1, large).unwrap().unwrap().1);
        let permits: Vec<_> = permits.collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(begin(1, large).is_none());
        // Small directories and other users do not wait.
        assert!(matches!(begin(1, large - 1), Some(Ok((_, None)))));
        assert!(matches!(begin(2, large), Some(Ok((_, Some(_))))));
        let too_large = begin(2, DIRECTORY_NAMES_MAX + 1);
        assert!(matches!(too_large, Some(Err(VfsError::TooLarge))));
        drop(permits);
        assert!(begin(1, large).is_some());
        drop(listings.of((CountedUser(3), 1)));
        assert_eq!(listings.0.lock().len(), 1, "and forgets all others");
    }

    #[test]
    fn nothing_is_listed_for_a_client_that_is_gone() {
        let listings = LargeListings::default();
        let list = async |most: usize| match most {
            SMALL_DIRECTORY_NAMES => Err(VfsError::TooLarge),
            _ => Ok(()),
        };
        let gone = listings.list((CountedUser(1), 1), || false, list);
        let gone = crate::restore::world::run(gone);
        assert_eq!(gone.map(|(listed, _)| listed), Err(VfsError::Exhausted));
    }
}
