//! Calls to a disk that may not answer, with a time limit.
//!
//! Each question is asked on a thread of its own, and given up after a while. A folder that has not answered yet is not
//! asked again, so a disk that hangs holds one thread for each folder, however often somebody asks. While there is such
//! a folder, questions about the others are given up sooner, so that a server that is gone does not cost the whole time
//! for each of its folders.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use crate::lock;

/// The longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The longest time for an answer while another folder has not answered yet.
const ANSWER_MAX_NEXT: Duration = Duration::from_millis(500);

/// Folders that one message names.
const NAMED_MAX: usize = 8;

/// Folders that have not answered in time.
static UNANSWERED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The answer of `look`, which accesses `folder`, or `None` if its disk does not answer: a mount that hangs must not
/// keep an administrator from changing other shares.
pub(crate) fn in_time<T: Send + 'static>(
    folder: &Path,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let patience = {
        let unanswered = lock(&UNANSWERED);
        if unanswered.contains(folder) {
            return None;
        }
        match unanswered.is_empty() {
            true => ANSWER_MAX,
            false => ANSWER_MAX_NEXT,
        }
    };
    let (answer_to, answers) = mpsc::channel();
    let asked = folder.to_owned();
    let look = move || {
        drop(answer_to.send(look()));
        lock(&UNANSWERED).remove(&asked);
    };
    // If no thread can be started, there is no answer either.
    let thread = thread::Builder::new().name("look".to_owned());
    thread.spawn(look).ok()?;
    match answers.recv_timeout(patience) {
        Ok(answer) => Some(answer),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let mut unanswered = lock(&UNANSWERED);
            // The answer may have come meanwhile; after this, the thread finds the entry.
            let answer = answers.try_recv().ok();
            if answer.is_none() {
                unanswered.insert(folder.to_owned());
            }
            answer
        }
    }
}

/// The folders that have not answered in time, the first few by name.
pub(crate) fn unanswered() -> Option<String> {
    let unanswered = lock(&UNANSWERED);
    let named = unanswered.iter().take(NAMED_MAX);
    let named: Vec<_> = named.map(|folder| folder.display().to_string()).collect();
    let names = named.join(", ");
    match unanswered.len() - named.len() {
        0 if named.is_empty() => None,
        0 => Some(names),
        more => Some(format!("{names} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_disk_that_hangs_is_asked_once() {
        let (hang, release) = mpsc::channel::<()>();
        let (hangs, works) = (Path::new("/no/hangs"), Path::new("/no/works"));
        assert_eq!(in_time(hangs, move || release.recv().is_ok()), None);
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(in_time::<()>(hangs, || panic!("asked again")), None);
            assert_eq!(in_time(works, || 7), Some(7));
        }
        assert!(start.elapsed() < ANSWER_MAX, "{:?}", start.elapsed());
        assert!(unanswered().is_some_and(|named| named.contains("/no/hangs")));
        // Another folder of the same server is waited for less long.
        let (_silent, silence) = mpsc::channel::<()>();
        let start = Instant::now();
        let other = Path::new("/no/other");
        assert_eq!(in_time(other, move || silence.recv().is_ok()), None);
        assert!(start.elapsed() < ANSWER_MAX, "{:?}", start.elapsed());
        hang.send(()).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while in_time(hangs, || 8) != Some(8) {
            assert!(Instant::now() < end, "it is never asked again");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
