//! The file system that the daemon serves, and its use on threads that must not wait for it.

use std::future::Future;

use vfs::{linux::LinuxDisk, posix::PosixVfs};

/// The file system that the daemon serves.
pub type HostVfs = PosixVfs<LinuxDisk>;

/// Runs the future of `call` to its end on a separate thread, because this thread may already be running a runtime.
pub(crate) fn apart<T: Send, F: Future<Output = T>>(call: impl FnOnce() -> F + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let mut future = std::pin::pin!(call());
            loop {
                if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
                    return value;
                }
                // This runs only at the start and at a reload, for a `stat` or two, so polling costs nothing.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
