//! The end of the process when a worker can go on no longer.

use std::{thread, time::Duration};

/// The time for the log's thread to write why the process ends.
const LAST_LINE: Duration = Duration::from_millis(100);

/// Ends the process if the thread of a worker dies, or nobody drives its ring any more: its background syncs, which
/// lazy policies promise, would end with it, and its clients' locks would stay. The next start syncs what this process
/// leaves dirty.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(
                "a worker has died: the server ends, and its next start syncs before it serves\n  = \
                 please report it with the lines above"
            );
            end_process();
        }
    }
}

/// Ends the process, after the log's thread has had time to write the reason.
pub(super) fn end_process() -> ! {
    thread::sleep(LAST_LINE);
    std::process::abort()
}
