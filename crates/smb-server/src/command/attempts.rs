//! What looks at names, decides by what it saw and finds at its end that something came in
//! between: it begins again, with everything.
//!
//! Who does so holds nothing over from one attempt to the next, so each decides by what there is.

use smb_wire::status::Status;

use super::Failure;

/// How often things may change under our feet before we give up. Each time somebody else has got on
/// with what he asked for, so nothing stands still; where six clients rename one file as fast as
/// they can, three attempts of four are in vain.
pub(super) const ATTEMPTS_MAX: usize = 256;

/// What became of one attempt.
pub(super) enum Attempt<T> {
    Done(T),
    /// What was seen is no more. This is said if it never ends.
    Again(Status),
}

/// Makes attempts until one is the last.
///
/// # Errors
/// Those of the attempts.
pub(super) async fn attempts<T>(
    mut one: impl AsyncFnMut() -> Result<Attempt<T>, Failure>,
) -> Result<T, Failure> {
    let mut refused = Status::INTERNAL_ERROR;
    for _ in 0..ATTEMPTS_MAX {
        match one().await? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Again(status) => refused = status,
        }
    }
    Err(refused.into())
}
