//! Work on a thread of its own.

use std::{io, thread};

use tokio::sync::oneshot;

/// Does work that may wait for a disk on a thread of its own: neither the runtime nor the end of the process waits for
/// it.
///
/// # Errors
/// There can be no thread, or the work panicked.
pub(crate) async fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(move || drop(sender.send(work())))?;
    done.await
        .map_err(|_| io::Error::other(format!("the thread `{name}` has died")))
}
