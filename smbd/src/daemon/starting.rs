//! The order to stop while the server starts.
//!
//! A start may wait for a disk that does not answer, and the thread that waits carries out no order. So until the start
//! is over, a separate thread carries out an order to stop by ending the process. Nothing was served by then, so
//! nothing is lost; the mark of a running server stays, and the next start syncs.

use std::{
    io,
    sync::{Arc, Mutex},
    thread,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::lock;

/// While this lives, SIGTERM and SIGINT end the process at once.
#[derive(Debug)]
pub(super) struct EarlyStop {
    /// Whether the start is over.
    over: Arc<Mutex<bool>>,
    /// Ends the thread when it is dropped.
    _ends: oneshot::Sender<()>,
}

impl EarlyStop {
    /// Starts the thread, which accesses no file.
    ///
    /// # Errors
    /// The signals cannot be received, or there can be no thread.
    pub(super) fn begin() -> io::Result<Self> {
        let over = Arc::new(Mutex::new(false));
        let (ends, mut ended) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt) = {
            let _in_runtime = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            )
        };
        let known = Arc::clone(&over);
        let wait = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = &mut ended => {}
                }
            });
            let over = lock(&known);
            if !*over {
                // The lock is held, so that the server does not begin to serve meanwhile.
                std::process::exit(0);
            }
        };
        let thread = thread::Builder::new().name("start".to_owned());
        thread.spawn(wait)?;
        Ok(Self { over, _ends: ends })
    }
}

impl Drop for EarlyStop {
    fn drop(&mut self) {
        *lock(&self.over) = true;
    }
}
