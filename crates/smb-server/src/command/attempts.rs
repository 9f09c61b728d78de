//! Repeats an operation that looked up names, decided by what it saw, and found at the end that another request had
//! changed them in between.
//!
//! An operation that is repeated keeps nothing from one attempt to the next, so each attempt decides by the present
//! state.

use smb_wire::status::Status;

use crate::failure::Failure;

/// How often things may change under our feet before we give up. Each time somebody else has got on
/// with what he asked for, so nothing stands still; where six clients rename one file as fast as
/// they can, three attempts of four are in vain.
const ATTEMPTS_MAX: usize = 256;

/// How often in a row a name may be seen free and taken. On some names nobody gets on: a link that
/// the share hides, or what only the file system takes for the same name.
const TAKEN_MAX: usize = 16;

/// The outcome of one attempt.
pub(super) enum Attempt<T> {
    Done(T),
    /// The state that was looked up no longer holds. The client gets this status if the attempts are used up.
    Again(Status),
    /// The same, where nothing was seen by the name and the disk has something.
    Taken(Status),
}

/// Counts attempts.
#[derive(Default)]
pub(super) struct Count {
    all: usize,
    taken: usize,
}

impl Count {
    /// One more; whether it found a name taken that it had seen free. Whether there may be another.
    pub(super) fn another(&mut self, taken: bool) -> bool {
        self.all += 1;
        self.taken = if taken { self.taken + 1 } else { 0 };
        self.all < ATTEMPTS_MAX && self.taken < TAKEN_MAX
    }
}

/// Makes attempts until one is the last.
///
/// # Errors
/// Those of the attempts.
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
    }
}
