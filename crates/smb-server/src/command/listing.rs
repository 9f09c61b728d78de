//! Takes the names of a directory when its user may list one more large directory
//! ([`crate::state::LargeListings`]).

use std::{cell::Cell, pin::pin, sync::Arc, time::Duration};

use smb_wire::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use vfs::{Vfs, VfsError, VfsResult};

use super::Call;
use crate::{
    failure::Failure,
    limits::{DIRECTORY_NAMES_MAX, LISTING_PERMIT_MAX, SMALL_DIRECTORY_NAMES},
    race::with_patience,
    state::{EndReason, Open},
};

/// The result of a listing, and the permit for that of a large directory, to be held until its memory is charged.
pub(super) type Permitted<T> = (T, Option<OwnedSemaphorePermit>);

/// Waits for a permit of the connection to take the names of a directory.
///
/// # Errors
/// Those of [`Call::park_quietly`]; `CANCELLED` if the request is ended while it waits.
pub(super) async fn permit<'a, V: Vfs>(
    call: &'a Call<V>,
    open: Option<&Open<V>>,
) -> Result<Option<SemaphorePermit<'a>>, Failure> {
    let permits = &call.connection.listings;
    if let Ok(permit) = permits.try_acquire() {
        return Ok(Some(permit));
    }
    let waited = call.park_quietly(open, permits.acquire()).await?;
    // The semaphore is never closed.
    Ok(waited.map_err(ended)?.ok())
}

/// Waits for the disk with `few`, the permit of the connection, and gives it up if that takes long: listings on other
/// disks must not wait for one that hangs.
pub(super) async fn promptly<V: Vfs, T>(
    call: &Call<V>,
    few: &mut Option<SemaphorePermit<'_>>,
    work: impl Future<Output = T>,
) -> T {
    let (slow, mut counted) = (&call.connection.slow_listings, None);
    // The timer is made only if the disk is waited for.
    let patience = async { call.server().env.sleep(patience(slow.get())).await };
    let give_up = || {
        *few = None;
        counted = Some(Slow::new(slow));
    };
    with_patience(pin!(work), patience, give_up).await
}

/// How long a listing keeps its permit while this many of its connection are slow. It becomes shorter with each, so
/// that hundreds that hang delay those on other disks by seconds in all, and not each by as much as the first.
fn patience(slow: u32) -> Duration {
    LISTING_PERMIT_MAX / slow.saturating_add(1)
}

/// A listing that has given up its permit, counted until this is dropped.
struct Slow<'a>(&'a Cell<u32>);

impl<'a> Slow<'a> {
    fn new(slow: &'a Cell<u32>) -> Self {
        slow.set(slow.get().saturating_add(1));
        Self(slow)
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Calls `list` with the most names that it may return: first as for a small directory, and for a larger one again
/// with one of `permits`, those of the user. While the request waits for it, it gives up `few`, the permit of its
/// connection, so that other listings there do not wait with it.
///
/// # Errors
/// Those of `list`, of which `TooLarge` means that there are more names, and those of [`Call::park_bounded`];
/// `CANCELLED` if the request is ended while it waits.
pub(super) async fn list<'a, V: Vfs, T>(
    call: &'a Call<V>,
    open: Option<&Open<V>>,
    permits: impl FnOnce() -> Arc<Semaphore>,
    few: &mut Option<SemaphorePermit<'a>>,
    list: impl AsyncFn(usize) -> VfsResult<T>,
) -> Result<Permitted<T>, Failure> {
    match promptly(call, few, list(SMALL_DIRECTORY_NAMES)).await {
        Err(VfsError::TooLarge) => {}
        listed => return Ok((listed?, None)),
    }
    let permits = permits();
    let mut permit = Arc::clone(&permits).try_acquire_owned().ok();
    if permit.is_none() {
        *few = None;
        // The semaphores are never closed.
        permit = match call.park_bounded(open, permits.acquire_owned()).await? {
            Ok(permit) => permit.ok(),
            Err(reason) => return Err(ended(reason)),
        };
        *few = self::permit(call, open).await?;
    }
    // Nothing is listed for a client that is gone.
    call.check_connected()?;
    let listed = Box::pin(promptly(call, few, list(DIRECTORY_NAMES_MAX)));
    Ok((listed.await?, permit))
}

/// The failure of a listing whose wait was ended.
pub(super) fn ended(reason: EndReason) -> Failure {
    match reason {
        EndReason::Closed => Status::FILE_CLOSED.into(),
        EndReason::Cancelled | EndReason::Gone => Status::CANCELLED.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use smb_wire::header::Command;

    use super::*;
    use crate::{
        command::park,
        limits::{LARGE_LISTINGS_PER_USER_MAX, LISTINGS_PER_CONNECTION_MAX},
        restore::world::HASTE,
    };

    const LARGE: usize = SMALL_DIRECTORY_NAMES + 1;

    /// Lists a directory of so many names.
    fn of(names: usize) -> impl AsyncFn(usize) -> VfsResult<usize> {
        async move |most: usize| match names <= most {
            true => Ok(names),
            false => Err(VfsError::TooLarge),
        }
    }

    #[test]
    fn a_disk_that_hangs_keeps_no_permit() {
        let call = park::tests::call();
        let free = || call.connection.listings.available_permits();
        let mut context = Context::from_waker(Waker::noop());
        let mut few = call.connection.listings.try_acquire().ok();
        {
            let soon = pin!(promptly(&call, &mut few, std::future::ready(7)));
            assert_eq!(soon.poll(&mut context), Poll::Ready(7));
        }
        assert_eq!(free(), LISTINGS_PER_CONNECTION_MAX - 1);
        HASTE.set(true);
        {
            let hung = pin!(promptly(&call, &mut few, std::future::pending::<()>()));
            assert!(hung.poll(&mut context).is_pending());
            assert_eq!(call.connection.slow_listings.get(), 1);
        }
        HASTE.set(false);
        assert_eq!(call.connection.slow_listings.get(), 0);
        assert_eq!(free(), LISTINGS_PER_CONNECTION_MAX);
    }

    #[test]
    fn hundreds_that_hang_delay_others_by_seconds() {
        let each = (0..511).step_by(LISTINGS_PER_CONNECTION_MAX).map(patience);
        let all: Duration = each.sum();
        assert!(all < 3 * LISTING_PERMIT_MAX, "{all:?}");
    }

    #[test]
    fn a_listing_that_waits_for_others_of_its_connection_can_be_cancelled() {
        let call = park::tests::call();
        let mut context = Context::from_waker(Waker::noop());
        let all = u32::try_from(LISTINGS_PER_CONNECTION_MAX).unwrap();
        let others = call.connection.listings.try_acquire_many(all).unwrap();
        let mut waits = pin!(permit(&call, None));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        call.connection.cancel(call.header.message_id);
        match waits.as_mut().poll(&mut context) {
            Poll::Ready(Err(Failure::Status(Status::CANCELLED))) => {}
            _ => panic!("not cancelled"),
        }
        drop(others);
        let free = pin!(permit(&call, None)).poll(&mut context);
        assert!(matches!(free, Poll::Ready(Ok(Some(_)))));
    }

    #[test]
    fn a_further_large_listing_waits_and_can_be_cancelled() {
        let mut call = park::tests::call();
        call.last = true;
        call.header.command = Command::QUERY_DIRECTORY;
        let permits = Arc::new(Semaphore::new(LARGE_LISTINGS_PER_USER_MAX));
        let mut context = Context::from_waker(Waker::noop());
        let most = u32::try_from(LARGE_LISTINGS_PER_USER_MAX).unwrap();
        let ask = || Arc::clone(&permits);
        let mut few = None;
        {
            let small = pin!(list(&call, None, ask, &mut few, of(LARGE - 1)));
            let small = small.poll(&mut context);
            assert!(matches!(small, Poll::Ready(Ok((_, None)))), "no permit");
        }
        let others = permits.try_acquire_many(most).unwrap();
        for ends in [Some(EndReason::Cancelled), None] {
            let mut few = call.connection.listings.try_acquire().ok();
            let free = || call.connection.listings.available_permits();
            assert_eq!(free(), LISTINGS_PER_CONNECTION_MAX - 1);
            let mut listing = pin!(list(&call, None, ask, &mut few, of(LARGE)));
            assert!(listing.as_mut().poll(&mut context).is_pending());
            assert_eq!(free(), LISTINGS_PER_CONNECTION_MAX);
            assert!(call.chain.pending().is_some(), "an interim response");
            let Some(reason) = ends else {
                permits.add_permits(1);
                let listed = listing.as_mut().poll(&mut context);
                assert!(matches!(listed, Poll::Ready(Ok((LARGE, Some(_))))));
                assert_eq!(free(), LISTINGS_PER_CONNECTION_MAX - 1);
                continue;
            };
            for waiting in call.connection.waiting.borrow().values() {
                waiting.ender.end(reason);
            }
            match listing.as_mut().poll(&mut context) {
                Poll::Ready(Err(Failure::Status(Status::CANCELLED))) => {}
                _ => panic!("not cancelled"),
            }
            call.connection.waiting.borrow_mut().clear();
            call.chain.registered.set(None);
        }
        drop(others);
    }
}
