//! The requester on whose behalf a thread works, so that the pool of disk threads can let requesters take turns.
//!
//! The number is the caller's choice; it means nothing else here. It belongs to the thread only while a future of
//! [`on_behalf_of`] is polled or an [`Entered`] lives, so tasks of one thread do not see each other's.

use std::{cell::Cell, future::poll_fn, pin::pin};

/// The number of a requester, which the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Requester(pub u64);

impl Requester {
    /// The server itself, whose work is on behalf of all requesters.
    pub const SERVER: Self = Self(0);
}

thread_local! {
    static CURRENT: Cell<Requester> = const { Cell::new(Requester::SERVER) };
}

/// The requester on whose behalf the calling thread works now.
#[must_use]
pub fn current() -> Requester {
    CURRENT.get()
}

/// While it lives, the thread works on behalf of a requester.
#[derive(Debug)]
pub struct Entered(Requester);

/// From now until the result is dropped, the thread works on behalf of `requester`.
#[must_use]
pub fn enter(requester: Requester) -> Entered {
    Entered(CURRENT.replace(requester))
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Makes a task, and polls it on behalf of a requester. It is made at the first poll, because a task that is given as
/// an argument would be in memory twice.
pub async fn on_behalf_of<F: Future<Output = ()>>(requester: Requester, make: impl FnOnce() -> F) {
    let mut task = pin!(make());
    poll_fn(|context| {
        let _entered = enter(requester);
        task.as_mut().poll(context)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_thread_works_for_a_requester_only_while_its_future_is_polled() {
        let mut polled = 0;
        let inner = poll_fn(move |_| {
            assert_eq!(current(), Requester(7));
            polled += 1;
            match polled {
                1 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        });
        let mut future = Box::pin(on_behalf_of(Requester(7), || inner));
        let mut context = Context::from_waker(Waker::noop());
        let outer = enter(Requester(8));
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert_eq!(current(), Requester(8));
        drop(outer);
        assert_eq!(current(), Requester::SERVER);
        assert!(future.as_mut().poll(&mut context).is_ready());
        assert_eq!(current(), Requester::SERVER);
    }
}
