//! The turns of a connection on its worker.
//!
//! A worker runs one task at a time, so the work of a connection is done in turns: the work of all its requests is
//! counted together, and when it is enough, the connection waits until all other tasks that are ready on this worker
//! have run. So neither one long request nor many pipelined ones keep others waiting for longer than about a turn.
//!
//! Work is counted in units of about a nanosecond: work that is known to take long is counted before it is done
//! ([`Turn::did`]), and the clock, which is read seldom, bounds work that is not counted. Handlers run by
//! [`Turn::run`], which polls them only in their turn; loops of unknown length check in between ([`Turn::wait`]).

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use vfs::env::{Env, pause};

use crate::limits::{TURN_TIME_MAX, TURN_WORK_MAX};

/// A request that touches only tables.
pub(crate) const SMALL_WORK: usize = 1 << 10;
/// A request that asks the disk about names or attributes.
pub(crate) const NAME_WORK: usize = 8 << 10;
/// A poll after a wait.
const POLL_WORK: usize = 1 << 10;
/// One component of a path: an open and a query.
pub(crate) const COMPONENT_WORK: usize = 4 << 10;
/// One entry of a directory that is encoded.
pub(crate) const ENTRY_WORK: usize = 256;
/// An element of a LOCK request, which is compared with the locks held on the file.
pub(crate) const LOCK_WORK: usize = 8 << 10;
/// A waiting request that a CANCEL is compared with.
pub(crate) const WAITING_WORK: usize = 4;
/// A step of matching a pattern ([`crate::pattern::Pattern::cost`]).
pub(crate) const MATCH_WORK: usize = 2;

/// The work after which the clock is read again.
const CLOCK_WORK: usize = 16 << 10;

/// The turns of one connection.
pub(crate) struct Turn {
    env: Arc<dyn Env>,
    work: Cell<usize>,
    /// Work at which the clock is read again.
    look_at: Cell<usize>,
    /// When the clock was first read in this turn.
    began: Cell<Option<Duration>>,
    /// The turn is used up, and a task waits to begin the next one.
    over: Cell<bool>,
    /// The tasks that wait for the next turn, in their order.
    waiting: RefCell<Vec<Waker>>,
    /// Tasks were waiting when this turn began.
    shared: Cell<bool>,
}

impl Turn {
    pub(crate) fn new(env: Arc<dyn Env>) -> Rc<Self> {
        Rc::new(Self {
            env,
            work: Cell::new(0),
            look_at: Cell::new(CLOCK_WORK),
            began: Cell::new(None),
            over: Cell::new(false),
            waiting: RefCell::default(),
            shared: Cell::new(false),
        })
    }

    pub(crate) fn did(&self, work: usize) {
        self.work.set(self.work.get().saturating_add(work));
    }

    /// Called when the connection's task has waited, so that others had their turn. If it has used up its own turn, it
    /// still waits for the next one.
    pub(crate) fn rested(&self) {
        if !self.over.get() {
            self.reset();
        }
    }

    /// Lets other tasks run first if the turn is used up. Only the task that reads requests calls this, and it needs no
    /// other task to begin the next turn.
    pub(crate) async fn rest(self: &Rc<Self>) {
        while self.is_used_up() {
            if self.over.get() {
                self.wait().await;
                continue;
            }
            self.over.set(true);
            let next = Next(self);
            pause(&*self.env).await;
            drop(next);
            if self.shared.take() {
                // This task goes behind those that have waited, because otherwise new requests would always run
                // before them.
                pause(&*self.env).await;
            }
        }
    }

    /// Waits for the next turn if this one is used up, and returns whether it was.
    pub(crate) async fn wait(self: &Rc<Self>) -> bool {
        let mut waited = false;
        poll_fn(|cx| {
            let polled = self.poll(cx);
            waited |= polled.is_pending();
            polled
        })
        .await;
        waited
    }

    /// Runs `work`, polling it only in the connection's turn.
    pub(crate) async fn run<T>(
        self: &Rc<Self>,
        mut work: Pin<&mut (dyn Future<Output = T> + '_)>,
    ) -> T {
        poll_fn(|cx| {
            ready!(self.poll(cx));
            self.did(POLL_WORK);
            work.as_mut().poll(cx)
        })
        .await
    }

    fn poll(self: &Rc<Self>, cx: &Context<'_>) -> Poll<()> {
        if !self.is_used_up() {
            return Poll::Ready(());
        }
        self.waiting.borrow_mut().push(cx.waker().clone());
        if !self.over.replace(true) {
            let turn = Rc::clone(self);
            self.env.spawn(Box::pin(async move {
                let next = Next(&turn);
                pause(&*turn.env).await;
                drop(next);
            }));
        }
        Poll::Pending
    }

    /// Whether the turn is used up; it stays so until others have had their turn.
    pub(crate) fn is_used_up(&self) -> bool {
        let work = self.work.get();
        if self.over.get() || work >= TURN_WORK_MAX {
            return true;
        }
        if work < self.look_at.get() {
            return false;
        }
        let now = self.env.monotonic();
        let began = self.began.get().unwrap_or(now);
        self.began.set(Some(began));
        let used_up = now.saturating_sub(began) >= TURN_TIME_MAX;
        if !used_up {
            self.look_at.set(work + CLOCK_WORK);
        }
        used_up
    }

    fn reset(&self) {
        self.work.set(0);
        self.look_at.set(CLOCK_WORK);
        self.began.set(None);
    }
}

/// Begins the next turn when dropped, even if the task that waited for it was dropped.
struct Next<'a>(&'a Turn);

impl Drop for Next<'_> {
    fn drop(&mut self) {
        self.0.over.set(false);
        self.0.reset();
        let waiting = self.0.waiting.take();
        self.0.shared.set(!waiting.is_empty());
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
