//! Waiting for the first of two things, in a fixed order, so that a simulation with the same seed repeats itself.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Wake, Waker},
};

/// The one of two futures that was ready first; the left one if both were.
#[derive(Debug)]
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Waits for either future. The other one is dropped, so it must not own memory that the kernel may be writing to.
pub(crate) async fn race<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> First<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(value) = left.as_mut().poll(cx) {
            return Poll::Ready(First::Left(value));
        }
        right.as_mut().poll(cx).map(First::Right)
    })
    .await
}

/// Does `work` to its end. If `patience` is over before, `give_up` is called meanwhile.
pub(crate) async fn with_patience<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    patience: impl Future<Output = ()>,
    give_up: impl FnOnce(),
) -> T {
    match race(work.as_mut(), patience).await {
        First::Left(done) => done,
        First::Right(()) => {
            give_up();
            work.await
        }
    }
}

/// As [`race`], for a right future that is seldom ready: it is polled only when it was itself
/// woken, not each time that the left one is.
pub(crate) async fn race_aside<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> First<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let mut aside: Option<(Arc<Aside>, Waker)> = None;
    poll_fn(|cx| {
        if let Poll::Ready(value) = left.as_mut().poll(cx) {
            return Poll::Ready(First::Left(value));
        }
        let (aside, waker) = match &mut aside {
            Some((aside, waker)) if aside.task.will_wake(cx.waker()) => (aside, waker),
            other => {
                let fresh = Arc::new(Aside {
                    woken: AtomicBool::new(true),
                    task: cx.waker().clone(),
                });
                let waker = Waker::from(Arc::clone(&fresh));
                let (aside, waker) = other.insert((fresh, waker));
                (aside, waker)
            }
        };
        // The flag is cleared first, so that a wake-up during the poll counts for the next one.
        if !aside.woken.load(Ordering::Acquire) || !aside.woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let mut context = std::task::Context::from_waker(waker);
        right.as_mut().poll(&mut context).map(First::Right)
    })
    .await
}

/// Wakes the task and records that the right future was woken.
struct Aside {
    woken: AtomicBool,
    task: Waker,
}

impl Wake for Aside {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::{Cell, RefCell},
        task::Context,
    };

    /// Unlike `Waker::noop`, `will_wake` treats it as the same in every crate.
    struct Quiet;

    impl Wake for Quiet {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn what_stands_aside_is_polled_when_it_was_woken_and_only_then() {
        let (polls, ready) = (Cell::new(0), Cell::new(false));
        let waker = RefCell::new(None::<Waker>);
        let right = poll_fn(|cx| {
            polls.set(polls.get() + 1);
            *waker.borrow_mut() = Some(cx.waker().clone());
            if ready.get() {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        });
        let mut racing = pin!(race_aside(std::future::pending::<()>(), right));
        let task = Waker::from(Arc::new(Quiet));
        let mut context = Context::from_waker(&task);
        for _ in 0..3 {
            assert!(racing.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(polls.get(), 1);
        waker.borrow().as_ref().unwrap().wake_by_ref();
        assert!(racing.as_mut().poll(&mut context).is_pending());
        assert!(racing.as_mut().poll(&mut context).is_pending());
        assert_eq!(polls.get(), 2);
        ready.set(true);
        assert!(racing.as_mut().poll(&mut context).is_pending());
        waker.borrow().as_ref().unwrap().wake_by_ref();
        let ended = racing.as_mut().poll(&mut context);
        assert!(matches!(ended, Poll::Ready(First::Right(7))));
    }
}
