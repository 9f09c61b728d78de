//! The orders that come while the server starts.
//!
//! A start may wait for a disk that does not answer, and the thread that waits carries out no order. So until the start
//! is over, a separate thread carries out an order to stop by ending the process. Nothing was served by then, so
//! nothing is lost; the mark of a running server stays, and the next start syncs. An order to reload is carried out
//! when the start is over: by its default, the signal would end the process.

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

use super::Order;
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

/// While this lives, SIGTERM and SIGINT end the process at once.
#[derive(Debug)]
pub(super) struct EarlyStop {
    /// Whether the start is over.
    over: Arc<Mutex<bool>>,
    /// Whether an order to reload came.
    reload: Arc<AtomicBool>,
    /// Ends the thread when it is dropped.
    _ends: oneshot::Sender<()>,
}

impl EarlyStop {
    /// Starts the thread, which accesses no file. SIGHUP is an order to reload if the server `reloads`.
    ///
    /// # Errors
    /// The signals cannot be received, or there can be no thread.
    pub(super) fn begin(reloads: bool) -> io::Result<Self> {
        let over = Arc::new(Mutex::new(false));
        let reload = Arc::new(AtomicBool::new(false));
        let (ends, mut ended) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt, mut hangup) = {
            let _in_runtime = runtime.enter();
            let hangup = reloads.then(|| signal(SignalKind::hangup()));
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                hangup.transpose()?,
            )
        };
        let (known, wanted) = (Arc::clone(&over), Arc::clone(&reload));
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
            let over = lock(&known);
            if !*over {
                // The lock is held, so that the server does not begin to serve meanwhile.
                std::process::exit(0);
            }
        };
        let thread = thread::Builder::new().name("start".to_owned());
        thread.spawn(wait)?;
        Ok(Self {
            over,
            reload,
            _ends: ends,
        })
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
        *lock(&self.over) = true;
    }
}
