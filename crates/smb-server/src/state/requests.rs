//! Counts how often each command was requested and how often it was refused.
//!
//! The counters are spread over several cache lines by connection, so that workers that count at
//! the same time do not take the line from each other. Reading sums them up; they are never reset.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smb_wire::{header::Command, status::Status};

use super::ids::ConnectionId;

/// The number of commands ([MS-SMB2] 2.2.1.2).
pub(crate) const COMMANDS: usize = 19;
/// The number of counters over which connections are spread.
const SHARDS: u64 = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    asked: [AtomicU64; COMMANDS],
    refused: [AtomicU64; COMMANDS],
}

/// The counters.
#[derive(Debug, Default)]
pub struct Requests {
    shards: [Shard; SHARDS as usize],
}

/// The counters of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandCount {
    /// Its name in lower case, as in `query_info`.
    pub command: &'static str,
    /// Requests answered.
    pub asked: u64,
    /// Of these, with an error.
    pub refused: u64,
}

impl Requests {
    /// Counts a request that was answered.
    pub(crate) fn count(&self, connection: ConnectionId, command: Command, status: Status) {
        let at = usize::from(command.0);
        let shard = usize::try_from(connection.0 % SHARDS).unwrap_or(0);
        let Some(shard) = self.shards.get(shard) else {
            return;
        };
        if let Some(asked) = shard.asked.get(at) {
            asked.fetch_add(1, Relaxed);
        }
        if let (true, Some(refused)) = (status.is_error(), shard.refused.get(at)) {
            refused.fetch_add(1, Relaxed);
        }
    }

    /// The sums, one for each command, by the names of the commands.
    pub(crate) fn sums(
        &self,
        names: [&'static str; COMMANDS],
    ) -> impl Iterator<Item = CommandCount> + '_ {
        names.into_iter().enumerate().map(|(at, command)| {
            let sum = |of: fn(&Shard) -> &[AtomicU64; COMMANDS]| {
                let counts = self.shards.iter().filter_map(|shard| of(shard).get(at));
                counts.map(|count| count.load(Relaxed)).sum()
            };
            CommandCount {
                command,
                asked: sum(|shard| &shard.asked),
                refused: sum(|shard| &shard.refused),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_go_over_all_connections() {
        let requests = Requests::default();
        for connection in 0..40 {
            requests.count(ConnectionId(connection), Command::ECHO, Status::SUCCESS);
        }
        requests.count(ConnectionId(7), Command::READ, Status::END_OF_FILE);
        requests.count(ConnectionId(7), Command(99), Status::SUCCESS);
        let of = |name| requests.read().find(|count| count.command == name).unwrap();
        assert_eq!((of("echo").asked, of("echo").refused), (40, 0));
        assert_eq!((of("read").asked, of("read").refused), (1, 1));
        assert_eq!(requests.read().map(|count| count.asked).sum::<u64>(), 41);
    }
}
