//! Waiting for the first of two things, in a fixed order so that a seed replays.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// Which of two futures was ready first. If both are, the left one.
#[derive(Debug)]
pub(crate) enum First<A, B> {
    /// The left future's value.
    Left(A),
    /// The right future's value.
    Right(B),
}

/// Waits for either future. The loser is dropped: give it nothing that the kernel may be
/// writing to.
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
