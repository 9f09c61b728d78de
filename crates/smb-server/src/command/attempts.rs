//! Repeats an operation that looked up names, decided by what it saw, and found at the end that another request had
//! changed them in between.
//!
//! An operation that is repeated keeps nothing from one attempt to the next, so each attempt decides by the present
//! state.

use smb_wire::status::Status;

use crate::failure::Failure;

/// How many attempts are made before the request fails. An attempt fails only because another request succeeded, so the
/// server as a whole makes progress. Where six clients rename one file as fast as they can, three attempts of four
/// fail.
const ATTEMPTS_MAX: usize = 256;

/// How often in a row a name may be seen free and taken. Some names stay like that for every request: a link that the
/// share hides, or a name that only the file system takes for the same as another.
const TAKEN_MAX: usize = 16;

/// How often a CREATE may wait until others have given up caching. Each of the opens that a file can have may do so at
/// a time of its own.
const WAITS_MAX: usize = 65_536;

pub(super) enum Attempt<T> {
    Done(T),
    /// The state that was looked up no longer holds. The client gets this status if the attempts are used up.
    Again(Status),
    /// As `Again`, where the lookup found nothing by the name, but the disk has something.
    Taken(Status),
}

#[derive(Default)]
pub(super) struct Count {
    all: usize,
    taken: usize,
    waits: usize,
}

impl Count {
    /// Counts one attempt; `taken` says whether it found a name taken that the lookup had seen free. Returns whether
    /// another attempt may be made.
    pub(super) fn another(&mut self, taken: bool) -> bool {
        self.all += 1;
        self.taken = if taken { self.taken + 1 } else { 0 };
        self.all < ATTEMPTS_MAX && self.taken < TAKEN_MAX
    }

    /// Counts an attempt that has waited for a break. It is counted apart: every close of a handle and every
    /// acknowledgment on the file may end such a wait, even if the request must then wait again. Returns whether
    /// another attempt may be made.
    pub(super) fn waited(&mut self) -> bool {
        self.waits += 1;
        self.taken = 0;
        self.waits < WAITS_MAX
    }
}

/// Makes attempts until one gives a result or no further one is allowed.
pub(super) async fn attempts<T>(
    mut one: impl AsyncFnMut() -> Result<Attempt<T>, Failure>,
) -> Result<T, Failure> {
    let mut count = Count::default();
    loop {
        let (taken, refused) = match one().await? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Again(status) => (false, status),
            Attempt::Taken(status) => (true, status),
        };
        if !count.another(taken) {
            return Err(refused.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_each_time_ends_sooner() {
        let mut count = Count::default();
        assert_eq!((1..).find(|_| !count.another(true)), Some(TAKEN_MAX));
        let mut count = Count::default();
        assert_eq!((1..).find(|_| !count.another(false)), Some(ATTEMPTS_MAX));
        let mut count = Count::default();
        let mixed = (1..).find(|number| !count.another(number % 2 == 0));
        assert_eq!(mixed, Some(ATTEMPTS_MAX));
        let mut count = Count::default();
        assert_eq!((1..).find(|_| !count.waited()), Some(WAITS_MAX));
        assert!(count.another(true) && count.another(false));
        let mut count = Count::default();
        let ends = (0..2 * TAKEN_MAX).any(|_| !count.another(true) || !count.waited());
        assert!(!ends, "not in a row");
    }
}
