//! Executors for this crate's tests: a bare one, and one with a ring; each for one future on one thread.

use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use tokio::{net::unix::pipe, runtime::Builder, task::LocalSet};

use crate::{
    FileKey,
    uring::{UringOptions, UringWorker, local, probe},
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether the test runs as root. If not, it prints that; with `HOLDFAST_REQUIRE_ROOT=1`
/// (`tests/run`) the test fails.
#[track_caller]
pub(crate) fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        missing("root");
    }
    root
}

/// Prints that a test cannot run here, or fails, as [`root`] does.
#[track_caller]
pub(crate) fn missing(what: &str) {
    assert!(
        std::env::var_os("HOLDFAST_REQUIRE_ROOT").is_none_or(|value| value != "1"),
        "HOLDFAST_REQUIRE_ROOT=1, but there is no {what}"
    );
    eprintln!("missing: {what}");
}

/// The key of an inode of a file system without generations.
pub(crate) fn key(fs: u64, ino: u64) -> FileKey {
    FileKey {
        fs,
        ino,
        generation: 0,
    }
}

/// Polls `future` to its end, parking the thread in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

/// Runs a future on a thread with a ring, which tokio drives as it does in the daemon, and returns the ring. If there
/// can be none here, it prints the reason.
pub(crate) fn on_ring<F: Future<Output = ()>>(
    options: UringOptions,
    test: impl FnOnce(Rc<UringWorker>) -> F,
) -> Option<Rc<UringWorker>> {
    if let Err(reason) = probe() {
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    let runtime = Builder::new_current_thread()
        .enable_all()
        .on_thread_park(|| local().iter().for_each(|ring| ring.drive()))
        .build();
    let runtime = runtime.unwrap();
    let worker = Rc::new(UringWorker::new(options).unwrap());
    let driver = Rc::clone(&worker);
    let local = LocalSet::new();
    local.spawn_local(async move {
        let event = pipe::Receiver::from_owned_fd_unchecked(driver.eventfd().unwrap()).unwrap();
        loop {
            event.readable().await.unwrap();
            if event.try_read(&mut [0; 8]).is_ok() {
                driver.drive();
            }
        }
    });
    let run = Box::pin(test(Rc::clone(&worker)));
    let limited = async { tokio::time::timeout(Duration::from_secs(300), run).await };
    let ended = runtime.block_on(local.run_until(limited));
    ended.expect("the ring lost a wake-up");
    // Nothing waits on a file system in memory, and so nothing goes to the ring.
    let on = rustix::fs::statfs(std::env::temp_dir()).unwrap();
    let in_memory = on.f_type as u64 == 0x0102_1994;
    assert!(in_memory || worker.completed() > 0, "the ring was not used");
    Some(worker)
}
