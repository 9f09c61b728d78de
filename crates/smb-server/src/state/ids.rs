//! Unique numbers of sessions, opens and other objects.
//!
//! The server counts up. Clients see SessionIds and FileIds, which are that count under a permutation that differs for
//! each run ([`smb_crypto::Permutation`]): they are as unique, but a client that has one cannot derive those of others.
//! A FileId is valid only in its session anyway, so a guess would be of no use.

use std::{
    collections::BTreeSet,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use smb_crypto::Permutation;
use vfs::Env;

/// A connection, numbered since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct ConnectionId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Ids {
    next: AtomicU64,
    permutation: Permutation,
    /// FileIds of an earlier run with which clients may reconnect.
    earlier: OnceLock<BTreeSet<u64>>,
}

impl Ids {
    pub(crate) fn new(env: &dyn Env) -> Self {
        let mut key = [0; 16];
        env.fill_random(&mut key);
        Self {
            next: AtomicU64::new(1),
            permutation: Permutation::new(&key),
            earlier: OnceLock::new(),
        }
    }

    /// A number that was not used since the server started. It must not be shown to clients.
    pub(crate) fn internal(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Excludes FileIds that an earlier run has given out; called once, before the first client is served.
    pub(crate) fn not_these(&self, earlier: BTreeSet<u64>) {
        // A second call is not expected and is ignored.
        let _ = self.earlier.set(earlier);
    }

    /// Half of a FileId that was not used in this run and is not in use from an earlier one. It is neither 0 nor the
    /// value that stands for any file ([MS-SMB2] 3.3.5.2.7.2).
    pub(crate) fn file(&self) -> u64 {
        let earlier = self.earlier.get();
        loop {
            let id = self.permutation.of_64(self.internal());
            let taken = earlier.is_some_and(|earlier| earlier.contains(&id));
            if !matches!(id, 0 | u64::MAX) && !taken {
                return id;
            }
        }
    }

    /// A SessionId, which may still be in use. Some clients keep only its low 32 bits, so it has no more.
    pub(crate) fn session(&self) -> u64 {
        loop {
            // The count wraps around after four billion numbers.
            let id = self.permutation.of_32(self.internal() as u32);
            if !matches!(id, 0 | u32::MAX) {
                return id.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vfs::{Timestamp, env::LocalTask};

    struct Keyed(u8);

    impl Env for Keyed {
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn realtime(&self) -> Timestamp {
            Timestamp::default()
        }
        fn fill_random(&self, out: &mut [u8]) {
            out.fill(self.0);
        }
        fn spawn(&self, _: LocalTask) {}
        fn sleep(&self, _: Duration) -> LocalTask {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn no_id_comes_twice_and_none_means_something_else() {
        let ids = Ids::new(&Keyed(1));
        let files: BTreeSet<_> = (0..10_000).map(|_| ids.file()).collect();
        let sessions: BTreeSet<_> = (0..10_000).map(|_| ids.session()).collect();
        assert_eq!((files.len(), sessions.len()), (10_000, 10_000));
        assert!(!files.contains(&0) && !files.contains(&u64::MAX));
        let low = u64::from(u32::MAX);
        assert!(sessions.iter().all(|id| (1..low).contains(id)));
    }

    #[test]
    fn the_next_id_does_not_follow_from_the_last_ones() {
        let (one, other) = (Ids::new(&Keyed(1)), Ids::new(&Keyed(2)));
        let of = |ids: &Ids| -> Vec<u64> { (0..1000).map(|_| ids.file()).collect() };
        let (one, other) = (of(&one), of(&other));
        assert!(one.iter().all(|id| !other.contains(id)));
        let steps: BTreeSet<_> = one
            .windows(2)
            .map(|two| two[1].wrapping_sub(two[0]))
            .collect();
        assert_eq!(steps.len(), 999);
        assert!(steps.iter().all(|step| step.count_ones() > 4));
    }

    #[test]
    fn what_an_earlier_run_gave_is_not_given_again() {
        let mut first = Vec::new();
        let before = Ids::new(&Keyed(1));
        first.extend((0..100).map(|_| before.file()));
        // The same key: the worst that can happen.
        let again = Ids::new(&Keyed(1));
        again.not_these(first.iter().copied().collect());
        assert!((0..100).all(|_| !first.contains(&again.file())));
    }
}
