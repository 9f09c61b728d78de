//! Ends a request that waits for a lock, a change or a break.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::locks::Mutex;

/// The reason why a waiting request ends before its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// CANCEL.
    Cancelled,
    /// Its handle was closed.
    Closed,
    /// Its session, tree connect or connection ended.
    Gone,
}

/// Ends one waiting request; only the first reason counts.
#[derive(Default)]
pub(crate) struct Ender(Mutex<Option<oneshot::Sender<EndReason>>>);

impl Ender {
    /// Makes an ender and the receiver through which the request learns of its end.
    pub(crate) fn new() -> (Arc<Self>, oneshot::Receiver<EndReason>) {
        let (sender, receiver) = oneshot::channel();
        (Arc::new(Self(Mutex::new(Some(sender)))), receiver)
    }

    /// Whether the request has ended by itself.
    pub(crate) fn is_over(&self) -> bool {
        let sender = self.0.lock();
        sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Ends the request unless it has ended.
    pub(crate) fn end(&self, reason: EndReason) {
        let sender = self.0.lock().take();
        if let Some(sender) = sender {
            // The request may have finished by itself meanwhile; then nobody receives this.
            let _ = sender.send(reason);
        }
    }
}
