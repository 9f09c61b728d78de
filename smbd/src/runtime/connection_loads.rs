//! The connections of a worker: which of them keep it busy, and which one leaves it for a worker that has less to do.
//!
//! A connection's share of its worker is the time that its task runs. It is measured only while the worker is asked to
//! give connections away, because reading the clock twice for each request costs something too.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

/// How often workers are compared. One that has more to do than another in two of these periods in a row gives a
/// connection away.
pub const PERIOD: Duration = Duration::from_millis(250);

/// How long a connection that cannot leave is not asked again, in periods. One on which a request always waits, such as
/// a CHANGE_NOTIFY, never can.
const ASKED_AGAIN: u8 = 40;
/// The least part of a worker's time for which a connection is worth moving.
const SHARE_MIN: f64 = 0.05;

/// A connection of a worker: how busy it keeps the worker, and where it is asked to go.
pub struct ConnectionLoad<D> {
    /// The listener that accepted it: it may go only to workers of this listener.
    listener: usize,
    /// How long its task ran in this period.
    ran: Cell<Duration>,
    /// Where it is asked to go.
    to: RefCell<Option<D>>,
    /// Periods for which it is not asked.
    stays: Cell<u8>,
}

impl<D> ConnectionLoad<D> {
    /// Whether the connection is asked to leave.
    pub fn leaves(&self) -> bool {
        self.to.borrow().is_some()
    }

    /// The place where the connection, which has left, is to go.
    pub fn destination(&self) -> Option<D> {
        self.to.take()
    }

    /// The part of `all` for which it ran.
    fn share(&self, all: Duration) -> f64 {
        self.ran.get().as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// All connections of a worker; `D` is where they can go.
pub struct ConnectionLoads<D> {
    /// When this period began, while shares are measured.
    since: Cell<Option<Instant>>,
    all: RefCell<Vec<Rc<ConnectionLoad<D>>>>,
}

impl<D> Default for ConnectionLoads<D> {
    fn default() -> Self {
        Self {
            since: Cell::new(None),
            all: RefCell::default(),
        }
    }
}

impl<D> ConnectionLoads<D> {
    /// Adds a connection that this listener accepted.
    pub fn take(&self, listener: usize) -> Rc<ConnectionLoad<D>> {
        let load = Rc::new(ConnectionLoad {
            listener,
            ran: Cell::default(),
            to: RefCell::new(None),
            stays: Cell::new(0),
        });
        let mut all = self.all.borrow_mut();
        if all.len() == all.capacity() {
            // Most workers are never asked to give a connection away.
            forget_ended(&mut all);
            let live = all.len();
            all.reserve(live);
        }
        all.push(Rc::clone(&load));
        load
    }

    /// Runs a connection's task, and measures it while shares are measured.
    pub async fn run<T>(&self, load: &ConnectionLoad<D>, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        poll_fn(|cx| {
            let Some(since) = self.since.get() else {
                return task.as_mut().poll(cx);
            };
            let began = Instant::now();
            if began.saturating_duration_since(since) > 2 * PERIOD {
                self.since.set(None);
                // The worker is not asked any more, so a connection that rests since then stays when it wakes.
                for load in self.all.borrow().iter() {
                    drop(load.to.take());
                }
            }
            let polled = task.as_mut().poll(cx);
            load.ran.set(load.ran.get() + began.elapsed());
            polled
        })
        .await
    }

    /// Asks the connection to leave that balances best: this worker had more to do than another in this period, and
    /// `surplus` is the difference as a part of it. Called once in each period for which that holds, for one listener.
    pub fn relieve(&self, listener: usize, surplus: f64, to: D) {
        let now = Instant::now();
        let since = self.since.replace(Some(now));
        let mut all = self.all.borrow_mut();
        forget_ended(&mut all);
        let measured: Duration = all.iter().map(|load| load.ran.get()).sum();
        let is_second = since.is_some_and(|since| now.duration_since(since) <= 2 * PERIOD);
        let mut best: Option<(f64, &Rc<ConnectionLoad<D>>)> = None;
        for load in all.iter() {
            let share = load.share(measured);
            load.ran.set(Duration::ZERO);
            load.stays.set(load.stays.get().saturating_sub(1));
            if load.to.take().is_some() {
                // It was asked a period ago, and has never been quiet since.
                load.stays.set(ASKED_AGAIN);
            }
            // A moved connection counts twice: one worker loses it, and the other one gets it.
            let left = (surplus - 2.0 * share).abs();
            let may = load.listener == listener && load.stays.get() == 0 && share >= SHARE_MIN;
            // If the other worker gets the greater part, the difference must become clearly smaller, or the connection
            // would be moved back later.
            let lasts = 2.0 * share <= surplus || left <= surplus / 2.0;
            if may && lasts && best.is_none_or(|(least, _)| left < least) {
                best = Some((left, load));
            }
        }
        if let Some((_, load)) = best.filter(|_| is_second) {
            *load.to.borrow_mut() = Some(to);
        }
    }
}

/// Forgets connections that have ended or left.
fn forget_ended<D>(all: &mut Vec<Rc<ConnectionLoad<D>>>) {
    // The worker holds the other reference while it serves.
    all.retain(|load| Rc::strong_count(load) > 1);
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// ConnectionLoads of these listeners that ran for so many milliseconds, in a worker whose first period is over.
    fn loads(ran: &[(usize, u64)]) -> (ConnectionLoads<()>, Vec<Rc<ConnectionLoad<()>>>) {
        let loads = ConnectionLoads::default();
        loads.relieve(0, 1.0, ());
        let all = ran.iter().map(|(listener, ms)| {
            let load = loads.take(*listener);
            load.ran.set(Duration::from_millis(*ms));
            load
        });
        let all = all.collect();
        (loads, all)
    }

    fn asked(all: &[Rc<ConnectionLoad<()>>]) -> Vec<usize> {
        let asked = all.iter().enumerate().filter(|(_, load)| load.leaves());
        asked.map(|(at, _)| at).collect()
    }

    #[test]
    fn the_connection_that_balances_best_is_asked_to_leave() {
        for (surplus, ran, leaves) in [
            (1.0, &[(0, 50), (0, 50)][..], &[0][..]),
            (2.0 / 3.0, &[(0, 33), (0, 33), (0, 33)], &[0]),
            (1.0, &[(0, 100), (0, 0)], &[]),
            (0.5, &[(0, 50), (0, 50)], &[]),
            (0.5, &[(0, 70), (0, 20), (0, 10)], &[1]),
            (1.0, &[(1, 50), (0, 30), (0, 20)], &[1]),
            (1.0, &[(0, 10); 10], &[0]),
        ] {
            let (loads, all) = loads(ran);
            loads.relieve(0, surplus, ());
            assert_eq!(asked(&all), leaves, "{surplus} {ran:?}");
        }
    }

    #[test]
    fn one_busy_period_moves_nothing() {
        let loads = ConnectionLoads::default();
        let all = [loads.take(0), loads.take(0)];
        for load in &all {
            load.ran.set(Duration::from_millis(50));
        }
        loads.relieve(0, 1.0, ());
        assert!(asked(&all).is_empty());
    }

    #[test]
    fn after_one_that_cannot_leave_another_is_asked() {
        let (loads, all) = loads(&[(0, 50), (0, 50)]);
        loads.relieve(0, 1.0, ());
        assert_eq!(asked(&all), [0]);
        for load in &all {
            load.ran.set(Duration::from_millis(50));
        }
        loads.relieve(0, 1.0, ());
        assert_eq!(asked(&all), [1]);
        assert_eq!(all[1].destination(), Some(()));
        assert!(!all[1].leaves());
    }

    #[test]
    fn a_connection_that_was_asked_long_ago_stays() {
        let (loads, all) = loads(&[(0, 50), (0, 50)]);
        loads.relieve(0, 1.0, ());
        assert_eq!(asked(&all), [0]);
        loads.since.set(Instant::now().checked_sub(3 * PERIOD));
        let wakes = pin!(loads.run(&all[0], async { all[0].leaves() }));
        let leaves = wakes.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(leaves, Poll::Ready(false));
    }

    #[test]
    fn a_connection_that_has_ended_is_forgotten() {
        let (loads, mut all) = loads(&[(0, 50), (0, 50)]);
        all.truncate(1);
        loads.relieve(0, 1.0, ());
        assert_eq!(loads.all.borrow().len(), 1);
    }

    #[test]
    fn those_that_have_ended_do_not_pile_up_where_no_shares_are_measured() {
        let loads: ConnectionLoads<()> = ConnectionLoads::default();
        let live: Vec<_> = (0..10).map(|_| loads.take(0)).collect();
        for _ in 0..1_000 {
            drop(loads.take(0));
        }
        assert!(loads.all.borrow().len() < 100);
        assert!(live.iter().all(|load| Rc::strong_count(load) == 2));
    }
}
