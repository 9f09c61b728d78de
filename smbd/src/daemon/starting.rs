//! The orders that come while the server starts.
//!
//! A start may wait for a disk that does not answer, and the thread that waits carries out no order. So until the start
//! is over, a separate thread carries out an order to stop by ending the process. Nothing was served by then, so
//! nothing is lost, and the mark of a running server is removed. It stays if an earlier server left something that
//! could not be synced, or if the disk of the state folder does not answer; then the next start syncs. An order to
//! reload is carried out when the start is over: by its default, the signal would end the process.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
};

use super::{
    Order, Undo,
    ending::{GRACE_MIN, change_in_time},
};
use crate::lock;

/// From here on SIGHUP does not end this process. Its handler stays; [`EarlyStop`] receives the signal.
///
/// # Errors
/// The signal cannot be received.
pub(crate) fn outlive_hangup() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _in_runtime = runtime.enter();
    signal(SignalKind::hangup()).map(drop)
}

/// While this lives, SIGTERM and SIGINT end the process at once, except for the time that the [`Undo`] takes.
pub(super) struct EarlyStop {
    /// `None` when the start is over.
    undo: Arc<Mutex<Option<Undo>>>,
    /// Whether an order to reload came.
    reload: Arc<AtomicBool>,
    /// Ends the thread when it is dropped.
    _ends: oneshot::Sender<()>,
}

impl EarlyStop {
    /// Starts the thread. SIGHUP is an order to reload if the server `reloads`.
    ///
    /// # Errors
    /// The signals cannot be received, or there can be no thread.
    pub(super) fn begin(reloads: bool) -> io::Result<Self> {
        let undo: Arc<Mutex<Option<Undo>>> = Arc::new(Mutex::new(Some(Box::new(|| ()))));
        let reload = Arc::new(AtomicBool::new(false));
        let (ends, mut ended) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (mut terminate, mut interrupt, mut hangup) = {
            let _in_runtime = runtime.enter();
            let hangup = reloads.then(|| signal(SignalKind::hangup()));
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                hangup.transpose()?,
            )
        };
        let (known, wanted) = (Arc::clone(&undo), Arc::clone(&reload));
        let wait = move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => return,
                        _ = interrupt.recv() => return,
                        _ = &mut ended => return,
                        Some(()) = async { hangup.as_mut()?.recv().await } => {
                            wanted.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
            // The lock is held to the end, so that the server does not begin to serve meanwhile.
            let mut known = lock(&known);
            if let Some(undo) = known.take() {
                runtime.block_on(change_in_time(GRACE_MIN, undo));
                std::process::exit(0);
            }
        };
        let thread = thread::Builder::new().name("start".to_owned());
        thread.spawn(wait)?;
        Ok(Self {
            undo,
            reload,
            _ends: ends,
        })
    }

    /// Sets what an order to stop does before it ends the process.
    pub(super) fn undo_by(&self, undo: Undo) {
        *lock(&self.undo) = Some(undo);
    }

    /// Ends when the start is over, and passes on an order to reload that came meanwhile.
    pub(super) async fn end(self, orders: mpsc::Sender<Order>) {
        let reload = self.reload.load(Ordering::Relaxed);
        drop(self);
        if reload {
            // The server may be about to end.
            let _ = orders.send(Order::Reload).await;
        }
    }
}

impl Drop for EarlyStop {
    fn drop(&mut self) {
        *lock(&self.undo) = None;
    }
}
