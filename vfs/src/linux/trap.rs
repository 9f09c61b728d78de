//! System calls that a seccomp filter refuses with SIGSYS: each returns ENOSYS and is counted.
//!
//! A signal handler can neither allocate nor log, so it sets a bit for the number of the call;
//! [`take_new`] returns the numbers later.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::posix_sys as raw;

/// Numbers that are distinguished; the table of Linux 6.18 ends at 470.
const CALLS: usize = 512;

static REFUSED: AtomicU64 = AtomicU64::new(0);
static SEEN: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];

/// Handles SIGSYS from now on.
///
/// # Errors
/// The error of `sigaction`.
pub fn catch() -> io::Result<()> {
    Ok(raw::catch_refused_calls(note)?)
}

/// Calls refused since the start.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Numbers of the calls that were refused since the last call of this function.
pub fn take_new() -> Vec<usize> {
    let words = SEEN.iter().enumerate();
    words
        .flat_map(|(word, bits)| {
            let bits = bits.swap(0, Ordering::Relaxed);
            let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
            set.map(move |bit| word * 64 + bit)
        })
        .collect()
}

/// Records a refused call; it runs in the signal handler.
fn note(number: usize) {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    let last = CALLS - 1;
    let number = number.min(last);
    if let Some(word) = SEEN.get(number / 64) {
        word.fetch_or(1 << (number % 64), Ordering::Relaxed);
    }
}
