//! Remembers names that were recently found by their short forms ([MS-FSA] 2.1.1.2, 2.1.5.1.1).
//!
//! A program written for DOS saves a file by deleting or renaming it by its short name and creating
//! it again by that name. The long name is remembered for a while, so that the new file gets it back.
//! The table is bounded; the oldest name is dropped first.

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use super::name_cache::later;
use crate::{FileKey, Timestamp, lock};

const NAMES_MAX: usize = 64;
/// How long a name is remembered ([MS-FSA] 2.1.1.2).
const REMEMBERED_FOR: Duration = Duration::from_secs(15);

struct Name {
    directory: FileKey,
    short: String,
    long: String,
    until: Timestamp,
}

#[derive(Default)]
pub(super) struct Tunnel(Mutex<VecDeque<Name>>);

impl Tunnel {
    /// Remembers a name that was found by its short form.
    pub(super) fn remember(&self, directory: FileKey, short: &str, long: &str, now: Timestamp) {
        let mut names = lock(&self.0);
        names.retain(|name| !name.is(directory, short));
        if names.len() >= NAMES_MAX {
            names.pop_front();
        }
        names.push_back(Name {
            directory,
            short: short.to_owned(),
            long: long.to_owned(),
            until: later(now, REMEMBERED_FOR),
        });
    }

    /// The long name that had this short form in the directory.
    pub(super) fn long(&self, directory: FileKey, short: &str, now: Timestamp) -> Option<String> {
        let names = lock(&self.0);
        let name = names.iter().find(|name| name.is(directory, short))?;
        (now < name.until).then(|| name.long.clone())
    }
}

impl Name {
    fn is(&self, directory: FileKey, short: &str) -> bool {
        self.directory == directory && self.short.eq_ignore_ascii_case(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(ino: u64) -> FileKey {
        FileKey {
            ino,
            ..FileKey::default()
        }
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    #[test]
    fn names_are_remembered_for_a_while_and_so_many() {
        let tunnel = Tunnel::default();
        tunnel.remember(directory(1), "A~1", "long", at(0));
        let long = |dir, short, now| tunnel.long(directory(dir), short, at(now));
        assert_eq!(long(1, "a~1", 14).as_deref(), Some("long"));
        assert_eq!(long(1, "A~1", 15), None);
        assert_eq!(long(2, "A~1", 1), None);
        assert_eq!(long(1, "B~1", 1), None);
        tunnel.remember(directory(1), "a~1", "another", at(10));
        assert_eq!(long(1, "A~1", 20).as_deref(), Some("another"));
        for ino in 2..=u64::try_from(NAMES_MAX).unwrap() + 1 {
            tunnel.remember(directory(ino), "A~1", "long", at(10));
        }
        assert_eq!(long(1, "A~1", 11), None);
        assert_eq!(lock(&tunnel.0).len(), NAMES_MAX);
    }
}
