//! A bare executor for this crate's tests: one future, one thread.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
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

/// The bytes that hexadecimal digits stand for.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
