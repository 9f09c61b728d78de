//! Memory that a storm of requests has left behind goes back to the kernel.
//!
//! The allocator keeps what was freed between what is still in use; asked to, it gives whole pages
//! back. That costs time and new page faults, and holds its locks meanwhile: it is asked only when
//! much was in use and little is now, on a thread that serves nobody.

use std::{sync::Arc, time::Duration};

use smb_server::Memory;

use crate::runtime::worker::WorkerHandle;

/// How often it is looked at what is in use.
const LOOK: Duration = Duration::from_secs(1);
/// Looks in a row that find little in use.
const QUIET_LOOKS: u32 = 3;
/// Much, in bytes.
const MUCH: usize = 16 << 20;
/// Little, as a part of what was in use.
const LITTLE_PART: usize = 8;
/// Between two times.
const AGAIN: Duration = Duration::from_secs(60);

/// The results of the checks.
#[derive(Debug, Default)]
struct Looks {
    most: usize,
    quiet: u32,
    /// Since memory was given back.
    since: Option<Duration>,
}

impl Looks {
    /// A look after another [`LOOK`]: whether memory is to be given back now.
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

/// Looks until the server stops.
pub(super) async fn give_back(memory: Arc<Memory>, worker: WorkerHandle) {
    let mut looks = Looks::default();
    let looking = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let peak = memory.take_peak();
            if looks.look(peak, memory.figures().used) {
                let asked = tokio::task::spawn_blocking(vfs::linux::pool::give_back_memory);
                if asked.await.unwrap_or(false) {
                    tracing::debug!("memory that is not in use was given back to the kernel");
                }
            }
        }
    };
    tokio::select! {
        () = looking => {}
        () = worker.stopping() => {}
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
