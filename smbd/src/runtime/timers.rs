//! Lets tasks of a worker sleep without using the runtime's timer each time.
//!
//! A runtime's timer that becomes the earliest one wakes the runtime through a system call, and
//! each request that waits for the disk needs one for its interim response ([MS-SMB2] 3.3.4.2). So
//! sleepers are in a table of their thread, and one task sleeps for the earliest of them. It is
//! woken only by a sleeper that is due earlier than its own time; sleepers that have left meanwhile
//! cost nothing.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The time, and a number that distinguishes sleepers of the same time.
type Key = (Instant, u64);

#[derive(Default)]
struct Table {
    sleepers: BTreeMap<Key, Waker>,
    next: u64,
    /// The time at which the task wakes; `None` while nothing sleeps.
    armed: Option<Instant>,
    /// The task, while it runs.
    task: Option<Waker>,
    running: bool,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// A sleep of `span` from now on; lives on the thread that polls it, within its local runtime.
pub(crate) fn sleep(span: Duration) -> Sleep {
    Sleep {
        deadline: Instant::now() + span,
        key: None,
    }
}

/// See [`sleep`].
#[derive(Debug)]
pub(crate) struct Sleep {
    deadline: Instant,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Most sleepers are polled once, right after the clock was read for their deadline. One that is over by then is
        // woken at once.
        if self.key.is_some() && Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        let starts = TABLE.with_borrow_mut(|table| {
            let key = *self.key.get_or_insert_with(|| {
                table.next += 1;
                (deadline, table.next)
            });
            table.sleepers.insert(key, cx.waker().clone());
            if table.armed.is_none_or(|armed| deadline < armed)
                && let Some(task) = table.task.take()
            {
                task.wake();
            }
            !std::mem::replace(&mut table.running, true)
        });
        if starts {
            tokio::task::spawn_local(run(Running));
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // While the thread ends, the table may already be gone.
            let gone = TABLE.try_with(|table| table.borrow_mut().sleepers.remove(&key));
            drop(gone);
        }
    }
}

/// Records that the task is gone when its runtime drops it.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let _ = TABLE.try_with(|table| *table.borrow_mut() = Table::default());
    }
}

/// Waits for the timers of all sleepers of the thread.
async fn run(_running: Running) {
    loop {
        let until = poll_fn(|cx| {
            TABLE.with_borrow_mut(|table| {
                table.armed = table.sleepers.first_key_value().map(|(key, _)| key.0);
                table.task = Some(cx.waker().clone());
                table.armed.map_or(Poll::Pending, Poll::Ready)
            })
        })
        .await;
        let mut alarm = pin!(sleep_until(until));
        poll_fn(|cx| {
            let earlier = TABLE.with_borrow_mut(|table| {
                table.task = Some(cx.waker().clone());
                table
                    .sleepers
                    .first_key_value()
                    .is_some_and(|(key, _)| key.0 < until)
            });
            if earlier {
                Poll::Ready(())
            } else {
                alarm.as_mut().poll(cx)
            }
        })
        .await;
        for waker in due() {
            waker.wake();
        }
    }
}

/// The wakers of sleepers that are due.
fn due() -> Vec<Waker> {
    let now = Instant::now();
    TABLE.with_borrow_mut(|table| {
        let mut due = Vec::new();
        while let Some(first) = table.sleepers.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap()
            .block_on(future)
    }

    async fn ends_after(span: Duration) -> Duration {
        let start = Instant::now();
        sleep(span).await;
        start.elapsed()
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_sleeper_wakes_at_its_time_whatever_the_order() {
        // Twice: a thread may have one runtime after the other.
        for _ in 0..2 {
            local(async {
                let tasks: Vec<_> = [30, 10, 500, 20, 10]
                    .map(|ms| (ms, tokio::task::spawn_local(ends_after(ms * MS))))
                    .into();
                for (ms, task) in tasks {
                    let took = task.await.unwrap();
                    assert!(took >= ms * MS && took < 5_000 * MS, "{ms}: {took:?}");
                }
            });
        }
    }

    #[test]
    fn an_earlier_sleeper_is_not_kept_waiting_by_a_later_one() {
        local(async {
            let long = tokio::task::spawn_local(ends_after(10_000 * MS));
            tokio::time::sleep(5 * MS).await;
            assert!(ends_after(20 * MS).await < 5_000 * MS);
            long.abort();
        });
    }

    #[test]
    fn who_leaves_is_forgotten() {
        local(async {
            for _ in 0..10 {
                let left = tokio::time::timeout(MS, sleep(10_000 * MS)).await;
                assert!(left.is_err());
            }
            TABLE.with_borrow(|table| assert!(table.sleepers.is_empty()));
            assert!(ends_after(3 * MS).await < 5_000 * MS);
        });
    }
}
