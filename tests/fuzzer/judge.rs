//! Finds what no server may do in the messages on the connections and the contents of the folders.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{USERS, marker};

/// Requests whose number of answers is remembered after they were answered, per connection.
const ANSWERED_MAX: usize = 4_096;

/// A request that is not finally answered.
#[derive(Debug)]
struct Asked {
    at: Duration,
    what: String,
    /// STATUS_PENDING came: the final answer may take as long as others make it wait.
    pending: bool,
    /// Requests of its message: each may wait for a break, one after the other.
    many: u32,
}

/// The requests of one connection and their answers, by MessageId.
#[derive(Default)]
pub(crate) struct Ledger {
    awaited: BTreeMap<u64, Vec<Asked>>,
    answered: BTreeMap<u64, u64>,
    /// Messages were sent that end a connection, or that the server reads otherwise than they are
    /// counted here: it may leave requests unanswered.
    pub(crate) lenient: bool,
}

impl Ledger {
    /// A request was sent, one of `many` in its message.
    pub(crate) fn asked(&mut self, id: u64, at: Duration, what: String, many: u32) {
        self.awaited.entry(id).or_default().push(Asked {
            at,
            what,
            pending: false,
            many,
        });
    }

    /// STATUS_PENDING came.
    pub(crate) fn interim(&mut self, id: u64) -> Result<(), String> {
        match self.awaited.get_mut(&id).and_then(|asked| asked.last_mut()) {
            Some(asked) if !asked.pending => {
                asked.pending = true;
                Ok(())
            }
            Some(_) if self.lenient => Ok(()),
            None if self.lenient && !self.answered.contains_key(&id) => Ok(()),
            Some(asked) => Err(format!("two interim answers to {id}: {}", asked.what)),
            None => Err(format!("an interim answer to {id}, which is not under way")),
        }
    }

    /// A final answer came; whether it is to something that was asked here.
    pub(crate) fn answered(&mut self, id: u64) -> Result<(), String> {
        let Some(asked) = self.awaited.get_mut(&id) else {
            return match self.answered.get(&id) {
                Some(_) => Err(format!("a second answer to {id}")),
                None if self.lenient => Ok(()),
                None => Err(format!("an answer to {id}, which nobody asked")),
            };
        };
        asked.pop();
        if asked.is_empty() {
            self.awaited.remove(&id);
        }
        *self.answered.entry(id).or_default() += 1;
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_first();
        }
        Ok(())
    }

    /// Requests that were answered neither finally nor, in `patience`, with STATUS_PENDING.
    pub(crate) fn overdue(&self, now: Duration, patience: Duration) -> Result<(), String> {
        if self.lenient {
            return Ok(());
        }
        for (id, asked) in &self.awaited {
            for asked in asked.iter().filter(|asked| !asked.pending) {
                let Asked { at, what, many, .. } = asked;
                let patience = patience * *many;
                if now.saturating_sub(*at) > patience {
                    return Err(format!("no answer within {patience:?} to {id}: {what}"));
                }
            }
        }
        Ok(())
    }

    /// How many requests are not finally answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.awaited.values().map(Vec::len).sum()
    }

    /// Fails if a request still waits for its answer, at a time when none may.
    pub(crate) fn settled(&self) -> Result<(), String> {
        match self.awaited.first_key_value() {
            Some((id, asked)) if !self.lenient => {
                let what = asked.last().map_or("", |asked| &asked.what);
                let pending = asked.iter().any(|asked| asked.pending);
                let how = if pending { "after STATUS_PENDING" } else { "" };
                Err(format!("no final answer {how} to {id}: {what}"))
            }
            _ => Ok(()),
        }
    }
}

/// The user whose marker `message` carries, if `reader` may not see it.
pub(crate) fn foreign(message: &[u8], reader: Option<usize>) -> Option<usize> {
    let of = |user: &usize| {
        let plain = marker(*user).into_bytes();
        let wide: Vec<u8> = plain.iter().flat_map(|byte| [*byte, 0]).collect();
        [plain, wide].iter().any(|needle| contains(message, needle))
    };
    // All markers begin with the same byte, which little else has.
    let first = marker(0).as_bytes()[0];
    if !message.contains(&first) {
        return None;
    }
    (0..USERS.len())
        .filter(|user| Some(*user) != reader && Some(marker(*user)) != reader.map(marker))
        .find(of)
}

fn contains(message: &[u8], needle: &[u8]) -> bool {
    let mut rest = message;
    while let Some(at) = rest.iter().position(|byte| *byte == needle[0]) {
        rest = &rest[at..];
        if rest.starts_with(needle) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Everything about the private files, by their paths.
pub(crate) type Vault = BTreeMap<String, String>;

/// Whether the private files are as they were.
pub(crate) fn unchanged(before: &Vault, now: &Vault) -> Result<(), String> {
    for (path, was) in before {
        match now.get(path) {
            Some(is) if is == was => {}
            Some(is) => return Err(format!("{path} was changed:\n  was {was}\n  is  {is}")),
            None => return Err(format!("{path} is gone")),
        }
    }
    match now.keys().find(|path| !before.contains_key(*path)) {
        Some(path) => Err(format!("{path} came into a folder that is private")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.asked(7, Duration::ZERO, "READ".to_owned(), 1);
        ledger
    }

    #[test]
    fn one_answer_is_right_and_two_are_not() {
        let mut ledger = ledger();
        ledger.answered(7).unwrap();
        ledger.settled().unwrap();
        assert!(ledger.answered(7).is_err());
        ledger.lenient = true;
        assert!(ledger.answered(7).is_err());
    }

    #[test]
    fn an_answer_to_nothing_is_found() {
        assert!(ledger().answered(8).is_err());
        assert!(ledger().interim(8).is_err());
    }

    #[test]
    fn a_missing_answer_is_found() {
        let mut ledger = ledger();
        ledger.overdue(PATIENCE, PATIENCE).unwrap();
        assert!(ledger.overdue(2 * PATIENCE, PATIENCE).is_err());
        assert!(ledger.settled().is_err());
        ledger.interim(7).unwrap();
        ledger.overdue(2 * PATIENCE, PATIENCE).unwrap();
        assert!(ledger.settled().is_err(), "pending is not answered");
        assert!(ledger.interim(7).is_err(), "one interim answer");
        ledger.answered(7).unwrap();
        assert!(ledger.interim(7).is_err(), "after the final one");
    }

    #[test]
    fn the_marker_of_another_is_found_in_both_encodings() {
        let plain = format!("..{}..", marker(1));
        let wide: Vec<u8> = plain.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for message in [plain.as_bytes(), &wide] {
            assert_eq!(foreign(message, Some(0)), Some(1));
            assert_eq!(foreign(message, None), Some(1));
            assert_eq!(foreign(message, Some(1)), None);
        }
        assert_eq!(foreign(&marker(1).as_bytes()[1..], Some(0)), None);
    }

    #[test]
    fn changes_of_private_files_are_found() {
        let vault = |pairs: &[(&str, &str)]| -> Vault {
            let pairs = pairs.iter();
            pairs.map(|(k, v)| ((*k).into(), (*v).into())).collect()
        };
        let before = vault(&[("a", "1"), ("b", "2")]);
        unchanged(&before, &before.clone()).unwrap();
        for now in [
            vault(&[("a", "1"), ("b", "3")]),
            vault(&[("a", "1")]),
            vault(&[("a", "1"), ("b", "2"), ("c", "3")]),
        ] {
            assert!(unchanged(&before, &now).is_err());
        }
    }
}
