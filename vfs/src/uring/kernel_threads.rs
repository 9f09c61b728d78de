//! The share of each file system in the kernel threads of a ring.
//!
//! Operations that the file system cannot start without waiting each occupy a kernel thread (io-wq) of the ring until
//! they end. These threads are common to all file systems. So that one that hangs leaves threads to the others, an
//! operation begins only if its file system has less than its part of the threads, and if there is a thread for it: the
//! ring never queues for one. The pool takes all other operations; it has threads for each file system.

use std::collections::BTreeMap;

/// The threads are divided into this many parts. A file system may use one part, so only if this many file systems hang
/// does the ring decline everything that would occupy a thread.
const PARTS: u32 = 4;

/// The operations under way that may occupy a kernel thread.
pub(super) struct KernelThreads {
    /// By device number; it has no entry without operations.
    devices: BTreeMap<u64, u32>,
    total: u32,
    most: u32,
}

impl KernelThreads {
    pub(super) fn new(threads: u32) -> Self {
        Self {
            devices: BTreeMap::new(),
            total: 0,
            most: threads,
        }
    }

    /// Counts an operation that waits for a file system (`None`: one that occupies no thread). False if there is no
    /// thread for it.
    pub(super) fn begin(&mut self, device: Option<u64>) -> bool {
        let Some(device) = device else { return true };
        let part = (self.most / PARTS).max(1);
        let has = self.devices.get(&device).copied().unwrap_or(0);
        if has >= part || self.total >= self.most {
            return false;
        }
        self.devices.insert(device, has + 1);
        self.total += 1;
        true
    }

    /// To be called when an operation that was counted has ended.
    pub(super) fn end(&mut self, device: Option<u64>) {
        let Some(device) = device else { return };
        if let Some(has) = self.devices.get_mut(&device) {
            *has -= 1;
            self.total -= 1;
            if *has == 0 {
                self.devices.remove(&device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_hangs_leaves_threads_to_the_others() {
        let mut threads = KernelThreads::new(8);
        let begun = |threads: &mut KernelThreads, device| {
            (0..100).filter(|_| threads.begin(Some(device))).count()
        };
        assert_eq!(begun(&mut threads, 1), 2);
        assert_eq!(begun(&mut threads, 2), 2);
        threads.end(Some(1));
        assert_eq!(begun(&mut threads, 1), 1);
        assert_eq!(begun(&mut threads, 3) + begun(&mut threads, 4), 4);
        assert_eq!(begun(&mut threads, 5), 0, "all threads are taken");
        assert!(threads.begin(None));
        threads.end(None);
        threads.end(Some(4));
        assert_eq!(begun(&mut threads, 5), 1);
        for device in [1, 1, 2, 2, 3, 3, 4, 5] {
            threads.end(Some(device));
        }
        assert!(threads.devices.is_empty() && threads.total == 0);
    }
}
