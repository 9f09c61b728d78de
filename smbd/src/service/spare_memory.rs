//! Returns memory to the kernel after a burst of requests.
//!
//! The allocator keeps freed memory between blocks that are still in use, and returns whole pages
//! only on request. That costs time and new page faults and holds the allocator's locks meanwhile,
//! so it is requested only when much memory was in use and little is now, on a thread that serves
//! no clients.

use std::{sync::Arc, time::Duration};

use smb_server::Memory;

use crate::runtime::worker::WorkerHandle;

/// How often the memory in use is checked.
const LOOK: Duration = Duration::from_secs(1);
/// The number of successive checks that must find little in use.
const QUIET_LOOKS: u32 = 3;
/// The number of bytes in use that counts as much.
const MUCH: usize = 16 << 20;
/// The part of the peak below which the memory in use counts as little.
const LITTLE_PART: usize = 8;
/// The least time between two returns of memory.
const AGAIN: Duration = Duration::from_secs(60);

/// The results of the checks.
#[derive(Debug, Default)]
struct Looks {
    most: usize,
    quiet: u32,
    /// The time since memory was last given back.
    since: Option<Duration>,
}

impl Looks {
    /// Takes the result of a check, made every [`LOOK`], and returns whether memory should be
    /// returned now.
    fn look(&mut self, peak: usize, used: usize) -> bool {
        self.since = self.since.map(|since| since + LOOK);
        self.most = self.most.max(peak);
        let quiet = self.most >= MUCH && used <= self.most / LITTLE_PART;
        self.quiet = if quiet { self.quiet + 1 } else { 0 };
        let due = self.quiet >= QUIET_LOOKS && self.since.is_none_or(|since| since >= AGAIN);
        if due {
            *self = Self {
                since: Some(Duration::ZERO),
                ..Self::default()
            };
        }
        due
    }
}

/// Checks until the server stops.
pub(super) async fn give_back(memory: Arc<Memory>, worker: WorkerHandle) {
    let mut looks = Looks::default();
    let looking = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let peak = memory.take_peak();
            if looks.look(peak, memory.figures().used) {
                // Where no thread can be started, the runtime would panic, and this task end.
                let thread = std::thread::Builder::new().name("memory".to_owned());
                if let Err(error) = thread.spawn(ask_for_return) {
                    tracing::debug!(%error, "memory that is not in use stays with the process");
                }
            }
        }
    };
    tokio::select! {
        () = looking => {}
        () = worker.stopping() => {}
    }
}

fn ask_for_return() {
    if vfs::linux::pool::give_back_memory() {
        tracing::debug!("memory that is not in use was given back to the kernel");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_after_a_storm_and_not_during_one() {
        let mut looks = Looks::default();
        for _ in 0..10 {
            assert!(!looks.look(MUCH - 1, 0), "too little");
        }
        for _ in 0..10 {
            assert!(!looks.look(4 * MUCH, 2 * MUCH), "still in use");
        }
        assert!(!looks.look(2 * MUCH, MUCH / 4));
        assert!(!looks.look(MUCH, MUCH), "not quiet");
        assert!(!looks.look(0, 0));
        assert!(!looks.look(0, 0));
        assert!(looks.look(0, 0));
        // The next storm is over at once, but it was just done.
        let mut waited = 0;
        while !looks.look(if waited == 0 { MUCH } else { 0 }, 0) {
            waited += 1;
        }
        assert_eq!(waited, 59);
    }
}
